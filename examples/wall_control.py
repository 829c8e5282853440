"""An arm of two links slides along a wall and presses on it with a set force, on a flat and on a round wall.

The motion has priority; the force is controlled in the freedom that it leaves (Aghili 2005, sections 4 and 5). With a constant external
force along the normal, which the law's model does not include, the force error obeys (1 + G_F) ė + G_I e = 0, and the motion does not depend on the
demanded force. Sampled, with inputs held for a period h, both hold up to O(h).
"""

import functools
import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

GAIN, INTEGRAL = 3.0, 12.0  # G_F without a unit, G_I in 1/s: the error falls by exp(−3 t)
PUSH = 8.0  # N, away from the wall, unknown to the model
LENGTH, MASS = 1.0, 1.0
CENTRE, RADIUS = jnp.array([2.2, 0.2]), 1.0
DOWN, FORCE = 0.6, 30.0  # m, N


def tip(q):
    """Place of the end of the arm; both angles are those of a link against the horizontal."""
    return LENGTH * jnp.stack([jnp.cos(q).sum(), jnp.sin(q).sum()])


# By name: φ = 0 is the wall, and where the tip is along it, in m.
WALLS = {
    "flat": (lambda q: tip(q)[0] - 1.2, lambda t, q, p: tip(q)[1]),
    "round": (
        lambda q: jnp.linalg.norm(tip(q) - CENTRE) - RADIUS,
        lambda t, q, p: RADIUS * jnp.arctan2(tip(q)[1] - CENTRE[1], CENTRE[0] - tip(q)[0]),
    ),
}


@functools.cache
def arm(kind):
    """Links with point masses at their ends; both joints have motors, the second one between the links."""
    wall, _ = WALLS[kind]

    def mass(t, q, p):
        c = jnp.cos(q[0] - q[1])
        return MASS * LENGTH**2 * jnp.array([[2.0, c], [c, 1.0]])

    return jm.System(
        ("upper", "lower"),
        mass=mass,
        potential=lambda t, q, p: 9.81 * MASS * LENGTH * (2 * jnp.sin(q[0]) + jnp.sin(q[1])),
        force=lambda t, q, v, p: p["push"] * jax.grad(wall)(q),
        constraints=[jm.Holonomic("wall", lambda t, q, p: wall(q))],
        actuation=lambda t, q, p: jnp.array([[1.0, -1.0], [0.0, 1.0]]),
        params={"push": PUSH},
    )


def path(t):
    """Along the wall, up and down, in m."""
    return DOWN * jnp.cos(2.0 * t) - 0.2


def law(kind, force=FORCE):
    """The tip follows the path, and presses."""
    model = arm(kind).with_params({"push": 0.0})
    motion = jm.control.Track(WALLS[kind][1], path, 64.0, 16.0, model=model)
    return jm.control.TrackForce(motion, jm.control.Multipliers("wall"), force, gain=GAIN, integral=INTEGRAL)


def start(kind):
    """On the wall, a little beside the path."""
    return jm.assemble(arm(kind), [-0.6, 1.2])


def run(kind, ts, controller, step=0.004):
    """A motion with constant steps."""
    steps = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": step}
    return jm.simulate(arm(kind), start(kind), ts, control=controller, max_steps=4096, **steps)


def pressed(kind, solution):
    """The force on the wall in N."""
    return jm.reactions(arm(kind), solution).multipliers["wall"][:, 0]


def draw(found, path_):
    """Path, torques and force on both walls."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(3, 2, figsize=(11, 8), sharex=True, layout="constrained")
    for column, (kind, (solution, force, expected)) in enumerate(found.items()):
        ts = solution.ts
        axes[0, column].plot(ts, jax.vmap(WALLS[kind][1], (None, 0, None))(0.0, solution.q, None), label="tip")
        axes[0, column].plot(ts, path(ts), "k:", label="reference")
        axes[0, column].set(title=f"{kind} wall", ylabel="along the wall in m")
        axes[1, column].plot(ts, solution.u, label=["shoulder", "elbow"])
        axes[1, column].set_ylabel("torque in N m")
        axes[2, column].semilogy(ts, jnp.abs(FORCE - force), label="run")
        axes[2, column].semilogy(ts, jnp.abs(expected), "k:", label="analytic")
        axes[2, column].set(xlabel="t in s", ylabel="|error| of the force in N")
    for ax in axes.flat:
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    fig.savefig(path_ / "wall_control.png", dpi=120)
    plt.close(fig)


def main():
    ts, found = jnp.linspace(0.0, 2.0, 251), {}
    for kind in WALLS:
        begin = time.perf_counter()
        solution, strong = (run(kind, ts, law(kind, force)) for force in (FORCE, 4 * FORCE))
        force = pressed(kind, solution)
        # At the start e is what the disturbance leaves, PUSH/(1 + G_F).
        expected = PUSH / (1 + GAIN) * jnp.exp(-INTEGRAL * ts / (1 + GAIN))
        print(f"{kind} wall, first call and another one {time.perf_counter() - begin:.0f} s")
        size = lambda x: float(jnp.abs(x).max())
        for label, value, limit in (
            ("force error from its exponential, N", size(FORCE - force - expected), 1e-10),
            ("motion changed by four times the force, rad", size(solution.q - strong.q), 1e-12),
            ("residual of the wall, m", size(jm.residuals(arm(kind), solution).position), 1e-12),
        ):
            print(f"  {label:<46}{value:>9.1e}   at most {limit:.0e}")
            assert value <= limit, label
        found[kind] = solution, force, expected

    print(
        "sampled, on the round wall: period, distance from the continuous run, change of the motion by four times the force"
    )
    rows, exact = [], found["round"][0].q
    for period in (8e-3, 4e-3, 2e-3):
        held, strong = (run("round", ts, jm.control.Sampled(law("round", f), period)) for f in (FORCE, 4 * FORCE))
        rows.append([float(jnp.abs(x).max()) for x in (held.q - exact, held.q - strong.q)])
        print(f"  {1e3 * period:.0f} ms  {rows[-1][0]:.2e} rad  {rows[-1][1]:.2e} rad")
    ratios = np.array(rows[:-1]) / np.array(rows[1:])
    assert np.all((ratios > 1.8) & (ratios < 2.2)), ratios
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(found, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
