"""Slider-crank with links of equal length, driven by its crank motor through poses at which its constraint is degenerate.

The crank follows a reference by projected inverse dynamics (Aghili 2005, eqs. 45, 46). At q1 = ±π/2 the only row of C vanishes:
the projector of C alone would jump there, but that of the rows which replace the degenerate one does not, and neither does the torque.
The error obeys ë + G_D ė + G_P e = 0 from turn to turn, whose solution is known; the torque is known too, since the mechanism
has one freedom and its branch is q2 = 2π − 2 q1.
"""

import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from slider_crank import slider_crank

import jaxmb as jm

STIFFNESS, DAMPING = 25.0, 10.0  # G_P in 1/s², G_D in 1/s: twice the root −5 1/s
ERROR, SLIP = 0.2, -0.5  # e in rad and ė in rad/s at the start
ROOT = 5.0


def desired(t):
    """The crank's angle: forward, faster and slower."""
    return 0.4 + 3.0 * t + 0.4 * jnp.sin(2.0 * t)


def motor_driven():
    """The slider-crank with a torque on the crank."""
    return slider_crank(actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]))


def law():
    """The crank follows the reference."""
    return jm.control.Track("q1", desired, STIFFNESS, DAMPING)


def error_law(ts):
    """The solution of ë + G_D ė + G_P e = 0."""
    return (ERROR + (SLIP + ROOT * ERROR) * ts) * jnp.exp(-ROOT * ts)


def torque(angle, rate, acceleration):
    """Of the crank, from the one equation that is left on the branch q2 = 2π − 2 q1."""
    return (3 - 2 * jnp.cos(2 * angle)) * acceleration + 2 * jnp.sin(2 * angle) * rate**2 + 9.81 * jnp.cos(angle)


def start(system):
    """Behind the reference by ERROR, on the branch that moves."""
    angle, rate = desired(0.0) - ERROR, jax.grad(desired)(0.0) - SLIP
    return jm.assemble(system, [angle, 2 * jnp.pi - 2 * angle], [rate, -2 * rate], hold=["q1"], hold_velocity=["q1"])


def run(system, ts, controller):
    """The motion, precisely."""
    steps = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-11, atol=1e-11), step_ts=ts)
    return jm.simulate(system, start(system), ts, control=controller, solver=dfx.Dopri8(), stepsize_controller=steps)


def measured(system, solution):
    """Largest deviations along the run, by name."""
    ts, angle, rate = solution.ts, solution.q[:, 0], solution.v[:, 0]
    speed = jax.vmap(jax.grad(desired))(ts)
    demanded = jax.vmap(jax.grad(jax.grad(desired)))(ts) + DAMPING * (speed - rate) + STIFFNESS * (desired(ts) - angle)
    found = jm.reactions(system, solution).vdot[:, 0]
    off, gap = found - demanded, solution.u[:, 0] - torque(angle, rate, demanded)
    size = lambda x: float(jnp.abs(x).max())
    # Beside a pose the constraint says less of q2: rounding/distance is left open there, of the acceleration and the torque that by the distance twice more.
    return {
        "error from its exponential, rad": size(desired(ts) - angle - error_law(ts)),
        "acceleration from the law, rad/s²": size(off),
        "  that, times the distance squared": size(off * jnp.cos(angle) ** 2),
        "torque from that of one equation, N m": size(gap),
        "  the torque, times the distance squared": size(gap * jnp.cos(angle) ** 2),
        "residual of the slider, m": size(jm.residuals(system, solution).position),
    }


def draw(system, solution, path):
    """Error, torque, and the slider's force."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ts, lost = solution.ts, jnp.abs(jnp.cos(solution.q[:, 0]))
    fig, axes = plt.subplots(3, 1, figsize=(8, 7.5), sharex=True, layout="constrained")
    axes[0].semilogy(ts, jnp.abs(desired(ts) - solution.q[:, 0]), label="run")
    axes[0].semilogy(ts, jnp.abs(error_law(ts)), "--", label="analytic")
    axes[0].set_ylabel("|error| of the crank in rad")
    axes[0].legend(fontsize=9)
    axes[1].plot(ts, solution.u[:, 0])
    axes[1].set_ylabel("torque of the crank in N m")
    axes[2].plot(ts, jm.reactions(system, solution).multipliers["slider"][:, 0])
    axes[2].set_ylabel("force on the slider in N")
    axes[2].set_xlabel("t in s; dotted: poses at which the row is degenerate")
    passages = [i for i in range(1, len(ts) - 1) if lost[i] < lost[i - 1] and lost[i] < lost[i + 1] and lost[i] < 0.1]
    for ax in axes:
        ax.grid(alpha=0.3)
        for i in passages:
            ax.axvline(ts[i], color="0.5", linewidth=0.9, linestyle=":")
    fig.savefig(path / "slider_crank_control.png", dpi=120)
    plt.close(fig)


def main():
    system, controller = motor_driven(), law()
    ts = jnp.linspace(0.0, 5.0, 501)
    begin = time.perf_counter()
    solution = run(system, ts, controller)
    print(f"first call {time.perf_counter() - begin:.0f} s, {int(solution.stats['num_steps'])} steps")
    passages = int(jnp.sum(jnp.diff(jnp.sign(jnp.cos(solution.q[:, 0]))) != 0))
    print(f"the crank passes {passages} poses at which the row is degenerate")
    limits = (1e-9, 1e-6, 1e-11, 1e-6, 1e-11, 1e-12)
    for (label, value), limit in zip(measured(system, solution).items(), limits, strict=True):
        print(f"  {label:<42}{value:>9.1e}   at most {limit:.0e}")
        assert value <= limit, label
    assert passages == 5

    # At the pose itself, and beside it.
    gaps = []
    for distance in (0.0, 1e-9, 1e-6, 1e-3):
        angle = np.pi / 2 - distance
        state = jm.as_state(system, [angle, 2 * np.pi - 2 * angle], [3.0, -6.0])
        found = controller.command(jm.control.Plant.at(system, state))
        w = (
            jax.grad(jax.grad(desired))(0.0)
            + DAMPING * (jax.grad(desired)(0.0) - 3.0)
            + STIFFNESS * (desired(0.0) - angle)
        )
        gap = abs(float(found.u[0] - torque(angle, 3.0, w)))
        print(f"  {distance:.0e} rad from the pose: torque {float(found.u[0]):.9f} N m, off by {gap:.1e}")
        gaps.append(gap)
    assert max(gaps) <= 1e-7
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(system, solution, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
