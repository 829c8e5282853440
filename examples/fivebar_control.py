"""Five-bar linkage with passive elbows: its tip follows a circle by the two motors at the base.

Projected inverse dynamics needs no model in minimal coordinates and no torque in passive joints (Aghili 2005, eqs. 45, 46, 62). From
a wrong start the error of the tip obeys ë + G_D ė + G_P e = 0, whose solution is known. The torques for the circle itself are
found from a mechanism whose tip is driven, and played back without feedback. With one motor alone the report says what is missing.
"""

import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

CENTRE, RADIUS, PERIOD = jnp.array([0.0, 0.64]), 0.09, 1.5
ROOT = 6.0  # twice the root of the error's equation, in 1/s
TIP = "lower1.b"
GUESS = {"base1": 2.2, "elbow1": -1.4, "base2": 0.9, "elbow2": 1.4}


def circle(t):
    """The place of the tip."""
    angle = 2 * jnp.pi * t / PERIOD
    return CENTRE + RADIUS * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def tip(motion):
    """What follows."""
    return motion.position(TIP)


def fivebar():
    """Two arms of two rods each, hinged at their tips; motors at the ground."""
    rod = lambda name, length: jm.planar.Body.rod(name, mass=2 * length, length=length)
    hinge = jm.planar.Revolute
    return jm.planar.Mechanism(
        bodies=[rod("upper1", 0.4), rod("lower1", 0.5), rod("upper2", 0.4), rod("lower2", 0.5)],
        joints=[
            hinge("base1", "ground.left", "upper1.a"),
            hinge("elbow1", "upper1.b", "lower1.a"),
            hinge("base2", "ground.right", "upper2.a"),
            hinge("elbow2", "upper2.b", "lower2.a"),
            hinge("tip", "lower1.b", "lower2.b"),
        ],
        actuators=[jm.planar.Motor("motor1", "base1"), jm.planar.Motor("motor2", "base2")],
        points={"left": jm.planar.frame((-0.15, 0.0)), "right": jm.planar.frame((0.15, 0.0))},
        gravity=(0.0, -9.81),
    )


def law(**options):
    """The tip follows the circle."""
    return jm.control.Track(jm.control.MotionOutput(tip), circle, ROOT**2, 2 * ROOT, **options)


def run(system, state, ts, control=None):
    """The motion, precisely."""
    steps = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-11, atol=1e-12), step_ts=ts)
    return jm.simulate(system, state, ts, control=control, solver=dfx.Dopri8(), stepsize_controller=steps)


def error(system, solution):
    """Of the tip, along a run."""
    return jax.vmap(circle)(solution.ts) - jm.position(system, solution, TIP)


def error_law(e, rate, ts):
    """The solution of ë + G_D ė + G_P e = 0."""
    return (e + (rate + ROOT * e) * ts[:, None]) * jnp.exp(-ROOT * ts)[:, None]


def torques(system, count=64):
    """U over one turn (count, 2), the efforts of drivers beside those that these torques are, and the state at the start.

    The linkage whose tip is driven has no freedom left: its pose, velocity and acceleration are those of the path.
    """
    output = jm.control.MotionOutput(tip)
    moved = jm.control.with_drivers(system, output, circle)

    def needed(t):
        state = jm.assemble(moved, GUESS, t=t)
        found = jm.formulation.GaussProjection().acceleration(jm.evaluate(moved, state))
        plant = jm.control.Plant.at(system, jm.as_state(system, state.q, state.v, t=t))
        u = jm.control.inverse_dynamics(plant, found.vdot).u
        along = jm.control.operational(plant, jm.control.output_rows(plant, output)).by_input @ u
        return u, found.multipliers[moved.rows["driver fn"]], along, state.q, state.v

    u, efforts, along, q, v = jax.jit(jax.vmap(needed))(jnp.arange(count) * PERIOD / count)
    return u, efforts - along, jm.assemble(system, q[0], v[0])


def played(u):
    """The law that plays periodic torques, between samples by their Fourier series; it sees no state."""
    series = jnp.fft.rfft(u, axis=0)[:-1] / len(u)
    orders = jnp.arange(len(series))

    def control(t, q, v, params):
        turning = jnp.where(orders > 0, 2, 1) * jnp.exp(2j * jnp.pi * orders * t / PERIOD)
        return jnp.real(turning @ series)

    return control


def draw(system, solution, exact, path):
    """Error, path and torques with feedback."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ts, place = solution.ts, jm.position(system, solution, TIP)
    fig, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for i, name in enumerate("xy"):
        axes[0].semilogy(ts, jnp.abs(error(system, solution)[:, i]), color=f"C{i}", label=f"in {name}")
        axes[0].semilogy(ts, jnp.abs(exact[:, i]), "k:", label="analytic" if i else None)
        axes[2].plot(ts, solution.u[:, i], label=f"motor {i + 1}")
    axes[1].plot(place[:, 0], place[:, 1], label="tip")
    axes[1].plot(*np.asarray(jax.vmap(circle)(ts)).T, "k:", label="circle")
    axes[1].set_aspect("equal", "datalim")
    labels = ("t in s", "error of the tip in m"), ("x in m", "y in m"), ("t in s", "torque in N m")
    for ax, (x, y) in zip(axes, labels, strict=True):
        ax.set(xlabel=x, ylabel=y)
        ax.legend(fontsize=8, loc="right")
        ax.grid(alpha=0.3)
    fig.savefig(path / "fivebar_control.png", dpi=120)
    plt.close(fig)


def main():
    system = fivebar().build()
    state = jm.assemble(system, GUESS)
    ts = jnp.linspace(0.0, 2.0 * PERIOD, 301)
    begin = time.perf_counter()
    solution = run(system, state, ts, law())
    print(f"first call {time.perf_counter() - begin:.0f} s, {int(solution.stats['num_steps'])} steps")
    found = error(system, solution)
    exact = error_law(found[0], jax.jvp(circle, (0.0,), (1.0,))[1] - jm.velocity(system, solution, TIP)[0], ts)
    acts = jax.jit(jax.vmap(system.actuation))(ts, solution.q) @ solution.u[..., None]
    u, off, start = torques(system)
    again = run(system, start, ts[:151], played(u))
    size = lambda x: float(jnp.abs(x).max())
    print(f"the tip starts {float(jnp.linalg.norm(found[0])):.2f} m beside the circle")
    for label, value, limit in (
        ("error of the tip from the analytic one, m", size(found - exact), 1e-9),
        ("torque that acts at the elbows, N m", size(acts[:, [1, 3]]), 0.0),
        ("residual of the loop, m", size(jm.residuals(system, solution).position), 1e-12),
        ("efforts of drivers from those of torques, N", size(off), 1e-9),
        ("error without feedback after one turn, m", size(error(system, again)), 1e-9),
    ):
        print(f"  {label:<46}{value:>9.1e}   at most {limit:.0e}")
        assert value <= limit, label

    report = jm.control.controllability(system, start, limits=[1.0, 0.0], output=jm.control.MotionOutput(tip))
    print("Motor 1 alone:\n" + str(report))
    assert (report.freedoms, report.rank, report.remedy) == (2, 1, ("base2",))
    command = lambda state: law(limits=[1.0, 0.0]).command(jm.control.Plant.at(system, state))
    alone = jax.jit(command)(state)
    print(
        f"  asked for the circle, it misses {float(alone.missed):.1%} of the acceleration; motor 2 gives {float(alone.u[1])} N m"
    )
    assert float(alone.missed) > 0.1 and float(alone.u[1]) == 0.0
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(system, solution, exact, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
