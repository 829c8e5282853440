"""A joint jams while an arm follows a path: what the law can still do, and what it cannot.

An arm of three links with motors in all joints follows references by projected inverse dynamics; its last joint locks on the way.
In joint coordinates, the two remaining joints continue to obey their error law, since the output of the locked joint is
held anyway. The pose of the hand then has three numbers for two freedoms: they can be met by chance only, and the law gives the
acceleration nearest to the demanded one. If only the position of the hand is demanded, it is followed exactly.
"""

import pathlib
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
from locking import NAMES, pendulum

import jaxmb as jm

ROOT, AT = 6.0, 0.6  # twice the root of the error's equation in 1/s; when the joint locks, in s
BEGIN = jnp.array([0.4, 0.9, 0.8])
OFFSET = jnp.array([0.05, -0.04, 0.06])


def place(motion):
    """Of the hand in m."""
    return motion.position("link3.b")


def pose(motion):
    """Place in m and angle in rad of the hand."""
    return jnp.append(place(motion), sum(motion.coordinate(name) for name in NAMES))


def angles(t):
    """Reference of the joints."""
    return BEGIN + OFFSET + jnp.array([0.3, 0.4, 0.5]) * jnp.sin(2.0 * t)


def hand(t):
    """Reference of the hand's pose."""
    turns = jnp.cumsum(BEGIN + OFFSET)
    rest = jnp.array([jnp.cos(turns).sum(), jnp.sin(turns).sum(), turns[-1]])
    return rest + jnp.array([-0.3, -0.3, 0.3]) * jnp.stack([jnp.sin(2 * t), 1 - jnp.cos(2 * t), jnp.sin(2 * t)])


def law(output, reference):
    """Motors in all joints make the output follow."""
    return jm.control.Track(output, reference, ROOT**2, 2 * ROOT, joints=NAMES)


LAWS = {
    "joints": law(NAMES, angles),
    "pose": law(jm.control.MotionOutput(pose), hand),
    "place": law(jm.control.MotionOutput(place), lambda t: hand(t)[:2]),
}


def errors(system, solution, name):
    """E and ė of a law's output along a run."""

    def one(t, q, v):
        plant = jm.control.Plant.at(system, jm.as_state(system, q, v, t=t))
        *_, found = LAWS[name].evaluate(plant)
        return found.error, found.rate

    return jax.jit(jax.vmap(one))(solution.ts, solution.q, solution.v)


def error_law(e, rate, ts):
    """The solution of ë + G_D ė + G_P e = 0 from e and ė at the first of the times."""
    t = (ts - ts[0])[:, None]
    return (e + (rate + ROOT * e) * t) * jnp.exp(-ROOT * t)


def run(system, state, ts, name, events=()):
    """The motion, precisely."""
    steps = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-11, atol=1e-11), step_ts=ts)
    options = {"solver": dfx.Dopri8(), "stepsize_controller": steps, "max_events": 1}
    return jm.simulate(system, state, ts, control=LAWS[name], events=events, **options)


def draw(found, path):
    """Errors, and torques of the pose."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    titles = {"joints": "joints followed", "pose": "pose of the hand", "place": "after the lock its place only"}
    for ax, (name, (solution, e)) in zip(axes.flat, found.items(), strict=False):
        ax.plot(solution.ts, e, label=NAMES if name == "joints" else ("x", "y", "angle")[: e.shape[1]])
        ax.set(
            title=titles[name],
            ylabel={"joints": "error in rad", "pose": "error in m and rad", "place": "error in m"}[name],
        )
    axes[1, 1].plot(found["pose"][0].ts, found["pose"][0].u, label=NAMES)
    axes[1, 1].set(title="pose of the hand", ylabel="torque in N m")
    for ax in axes.flat:
        ax.axvline(AT, color="0.5", linestyle="--", linewidth=0.9)
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    for ax in axes[1]:
        ax.set_xlabel("t in s; dashed: the last joint locks")
    fig.savefig(path / "lock_control.png", dpi=120)
    plt.close(fig)


def main():
    system, ts, found = pendulum(), jnp.linspace(0.0, 1.8, 181), {}
    state, lock = jm.assemble(system, BEGIN), [jm.Lock(NAMES[-1], at=AT)]
    last = int(jnp.searchsorted(ts, AT - 1e-9))  # the state saved there is that after the lock
    limits = lambda label, value, limit: (print(f"  {label:<58}{value:>9.1e}   at most {limit:.0e}"), value <= limit)[1]
    size = lambda x: float(jnp.abs(x).max())
    for name in ("joints", "pose"):
        begin = time.perf_counter()
        solution = run(system, state, ts, name, lock)
        print(f"{name}, first call {time.perf_counter() - begin:.0f} s")
        e, rate = errors(system, solution, name)
        found[name] = solution, e
        assert limits("error from the analytic one before", size(e[:last] - error_law(e[0], rate[0], ts[:last])), 1e-9)
    after = error_law(*(x[last] for x in errors(system, found["joints"][0], "joints")), ts[last:])
    assert limits(
        "joints: of the two left, from the analytic one after", size((found["joints"][1][last:] - after)[:, :2]), 1e-9
    )
    assert limits("joints: motion of the locked one", size(found["joints"][0].v[last:, 2]), 1e-12)

    at = found["pose"][0].state(last)
    system_with_motors = system.acting_at(NAMES)
    command = lambda name: LAWS[name].command(jm.control.Plant.at(system_with_motors, at))
    commands = jax.jit(lambda: {name: command(name) for name in ("pose", "place")})()
    for name, found_ in commands.items():
        print(f"{name}: {int(found_.surplus)} outputs too many, misses {size(found_.residual):.1e} of the acceleration")
    assert int(commands["pose"].surplus) == 1 and int(commands["place"].surplus) == 0
    solution = run(system, at, ts[last:], "place")
    e, rate = errors(system, solution, "place")
    found["place"] = solution, e
    assert limits("place: error from the analytic one after", size(e - error_law(e[0], rate[0], ts[last:])), 1e-9)
    left = size(found["pose"][1][-20:])
    print(f"  pose: its error at the end is up to {left:.2f}, that of the place alone {size(e[-20:]):.1e} m")
    assert left > 0.05 > 1e-3 > size(e[-20:])
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(found, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
