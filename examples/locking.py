"""Joints that lock while they turn (Müller, "Forward Dynamics of Variable Topology Mechanisms", section 6), right and wrong.

A pendulum of three links whose joints 2 and 3 lock at 0.8 s and 1.3 s, and a Puma 560 arm whose first three joints lock one
after another. The momenta of joints that stay free are continuous. A common mistake, to set the rate of the locked joint to zero and leave the others as they are, violates this.
"""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import puma

import jaxmb as jm

NAMES = ("q1", "q2", "q3")
MASS, INERTIA = 108.0, 9.36  # of a link of aluminium, 1 m long, 0.2 m × 0.2 m
TIMES = (0.8, 1.3)
PRECISE = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(rtol=1e-10, atol=1e-11)}
# v just before and just after each jump, found by another integrator (SciPy's DOP853) and transition in minimal coordinates.
EXPECTED = (
    ((1.2717427470, -7.8740794060, -8.9336214500), (-2.0622687236, 0.0, -14.2005130578)),
    ((-1.7901668001, 0.0, -11.8547051717), (-2.4127938463, 0.0, 0.0)),
)


def pendulum():
    """Three links, each turning against the one before; they start 30° apart above the horizontal."""
    links = [
        jm.planar.Body(f"link{i}", MASS, INERTIA, com=(0.5, 0.0), points={"a": (0.0, 0.0), "b": (1.0, 0.0)})
        for i in (1, 2, 3)
    ]
    ends = ["ground", "link1.a", "link1.b", "link2.a", "link2.b", "link3.a"]
    joints = [jm.planar.Revolute(name, *ends[2 * i : 2 * i + 2]) for i, name in enumerate(NAMES)]
    return jm.planar.Mechanism(links, joints, gravity=(0.0, -9.81)).build()


def run(system, ts, consistent):
    """The motion with joints 2 and 3 locked."""
    events = [jm.Lock(name, at=at, consistent=consistent) for name, at in zip(NAMES[1:], TIMES, strict=True)]
    state = jm.assemble(system, jnp.full(3, np.pi / 6))
    return jm.simulate(system, state, ts, events=events, max_events=2, **PRECISE)


def momenta(system, solution):
    """M v (T, nv)."""
    return jax.vmap(lambda t, q, v: system.mass(t, q) @ v)(solution.ts, solution.q, solution.v)


def draw(system, good, naive, path):
    """Joint angles, rates, momenta and energy of both runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 3, figsize=(13, 7), sharex=True, layout="constrained")
    for row, (solution, name) in enumerate(((naive, "naive, rate set to zero"), (good, "momentum-consistent"))):
        for column, (values, label) in enumerate(
            (
                (solution.q, "joint angles in rad"),
                (solution.v, "joint rates in rad/s"),
                (momenta(system, solution), "generalised momenta in N m s"),
            )
        ):
            ax = axes[row, column]
            for i in range(3):
                ax.plot(solution.ts, values[:, i], label=f"joint {i + 1}", linewidth=1.4)
            for at in TIMES:
                ax.axvline(at, color="0.7", linewidth=0.8, linestyle="--")
            ax.set_title(f"{label}: {name}", fontsize=9)
            ax.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("t in s")
    fig.savefig(path / "locking.png", dpi=120)
    fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for solution, name in ((naive, "rate set to zero"), (good, "momentum-consistent")):
        ax.plot(solution.ts, jm.energy(system, solution).total, label=name)
    ax.set_xlabel("t in s")
    ax.set_ylabel("total energy in J")
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    fig.savefig(path / "locking_energy.png", dpi=120)
    plt.close("all")


def arm():
    """The Puma arm with joints 1, 2 and 3 locked at 0.05, 0.10 and 0.15 s."""
    system = puma.puma().build()
    events = [jm.Lock(name, at=at) for name, at in zip(puma.JOINTS, (0.05, 0.10, 0.15), strict=False)]
    return system, jm.simulate(
        system, puma.start(system), jnp.linspace(0.0, 0.3, 31), events=events, max_events=3, **PRECISE
    )


def main():
    system, ts = pendulum(), jnp.linspace(0.0, 3.0, 601)
    good, naive = run(system, ts, True), run(system, ts, False)
    print("Pendulum of three links")
    print(good.events)
    for k, (before, after) in enumerate(EXPECTED):
        assert np.abs(good.events.before.v[k] - np.array(before)).max() < 1e-7
        assert np.abs(good.events.after.v[k] - np.array(after)).max() < 1e-7
    kept = []
    for events, kind in ((good.events, "kept"), (naive.events, "lost")):
        change = [
            np.asarray(system.mass(events.before.t[k], events.before.q[k]) @ (events.after.v[k] - events.before.v[k]))
            for k in (0, 1)
        ]
        free = np.concatenate([change[0][[0, 2]], change[1][[0]]])
        kept.append(np.abs(free).max())
        print(f"momenta of free joints are {kind}: they change by {kept[-1]:.1e} N m s at most")
    assert kept[0] < 1e-8 < 100 < kept[1]
    assert np.ptp(good.q[ts >= 0.8, 1]) < 1e-12 and np.ptp(good.q[ts >= 1.3, 2]) < 1e-12

    system_arm, solution = arm()
    print("Puma 560")
    print(solution.events)
    for k in range(3):
        before, after = solution.events.before, solution.events.after
        print(
            f"t = {float(solution.events.t[k]):.2f} s, v from {np.round(before.v[k], 4)} to {np.round(after.v[k], 4)} rad/s"
        )
        change = np.asarray(system_arm.mass(before.t[k], before.q[k]) @ (after.v[k] - before.v[k]))
        assert np.abs(change[k + 1 :]).max() < 1e-10 and np.abs(after.v[k, : k + 1]).max() < 1e-12
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(system, good, naive, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
