"""A table on three rods, upright on a cart: linearised, balanced by a linear-quadratic regulator, and pushed over.

One of the three rods is redundant. A single motor, along the track, stabilises two degrees of freedom.
"""

import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import jaxmb as jm

CART, ROD, TABLE, LENGTH, GRAVITY = 4.0, 0.5, 2.0, 0.8, 9.81
FEET = (-0.3, 0.0, 0.3)


def balanced_table():
    """Cart on a track, three rods of equal length, and a table on them that stays level."""
    rods = [jm.planar.Body.rod(f"rod{i}", ROD, LENGTH) for i in range(3)]
    ends = {f"{i}": (x, 0.0) for i, x in enumerate(FEET)}
    bodies = [jm.planar.Body("cart", CART, 1.0, points=ends), *rods, jm.planar.Body("table", TABLE, 0.2, points=ends)]
    joints = [jm.planar.Prismatic("track", "ground", "cart")]
    joints += [jm.planar.Revolute(f"foot{i}", f"cart.{i}", f"rod{i}.a") for i in range(3)]
    joints += [jm.planar.Revolute(f"head{i}", f"rod{i}.b", f"table.{i}") for i in range(3)]
    motor = jm.planar.Motor("motor", "track")
    return jm.planar.Mechanism(bodies, joints, actuators=[motor], gravity=(0.0, -GRAVITY)).build()


def pose(tilt, place=0.0):
    """A guess of the coordinates: rods at an angle from the vertical, forwards if positive."""
    return {"track": place, **{f"foot{i}": np.pi / 2 - tilt for i in range(3)}, "head0": tilt - np.pi / 2}


def known():
    """Mass, first and second moment: (m + …) s̈ − c θ̈ = u,  −c s̈ + J θ̈ = c g θ, θ the turn of the rods to the left."""
    moment = (3 * ROD / 2 + TABLE) * LENGTH
    return CART + 3 * ROD + TABLE, moment, (3 * ROD / 3 + TABLE) * LENGTH**2


def draw(path, system, solution, plain):
    """The mechanism at some times, and what moves, with the linear prediction."""
    matplotlib.use("Agg")
    rows = [["0", "1", "2"], ["motion"] * 3, ["force"] * 3]
    figure, axes = plt.subplot_mosaic(rows, figsize=(10, 10), layout="constrained")
    for panel, i in zip("012", (0, 8, 40), strict=True):
        jm.plot.draw(system, solution.state(i), axes[panel])
        axes[panel].set(xlim=(-0.5, 0.9), ylim=(-0.1, 1.0), title=f"t = {float(solution.ts[i]):g} s")
    ts = np.asarray(solution.ts)
    for index, label in enumerate(("cart (m)", "tilt of the rods (rad)")):
        seen = np.asarray(solution.q[:, 0] if index == 0 else solution.q[:, 1] - np.pi / 2)
        axes["motion"].plot(ts, seen, label=label)
        axes["motion"].plot(ts, plain[:, index], "k:", lw=1, label="linear" if index else None)
    axes["force"].plot(ts, np.asarray(solution.u[:, 0]), color="tab:red", label="motor (N)")
    for name in ("motion", "force"):
        axes[name].set(xlabel="time (s)", xlim=(0, ts[-1]))
        axes[name].legend()
        axes[name].grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main():
    system = balanced_table()
    rest = jm.equilibrium(system, pose(0.05), hold=["track"])
    print(rest)
    found = jm.linearise(system, rest.state, u=rest.u, independent=["track", "foot1"])
    print(found)
    mass, moment, inertia = known()
    growth = np.sqrt(moment * GRAVITY * mass / (mass * inertia - moment**2))
    off = abs(max(found.eigenvalues.real) - growth)
    print(f"growth of the fall {growth:.6f} 1/s, off by {off:.1e}")
    assert off <= 1e-9 and found.controllable

    regulator = jm.control.lqr(found, {"track": 10.0, "foot1": 50.0, "track'": 1.0, "foot1'": 1.0}, {"motor": 0.02})
    print(regulator)
    pushed = jm.assemble(system, pose(np.deg2rad(12.0)), hold=["track", "foot1"])
    ts = jnp.linspace(0.0, 6.0, 121)
    solution = jm.simulate(system, pushed, ts, control=regulator.law)
    x = np.stack(
        [regulator.law.deviation(0.0, q, v, system.params) for q, v in zip(solution.q, solution.v, strict=True)]
    )
    values, vectors = np.linalg.eig(np.asarray(regulator.A - regulator.B @ regulator.gain))
    modes = np.exp(np.outer(np.asarray(ts), values)) * np.linalg.solve(vectors, x[0])
    plain = (modes @ vectors.T).real
    slowest = max(values.real)
    work = float(jnp.abs(jm.energy(system, solution).balance).max())
    # A tenth of the disturbance: what is not linear shows a thousandth as much, since the mechanism is symmetric.
    small = jm.assemble(system, pose(np.deg2rad(1.2)), hold=["track", "foot1"])
    near = jm.simulate(system, small, ts, control=regulator.law).q[:, 0]
    rows = (
        (
            "distance from rest at the end, relative",
            np.abs(x[-1]).max() / np.abs(x[0]).max(),
            20 * np.exp(slowest * 6.0),
        ),
        ("cart of a tenth of the push against linear, m", np.abs(near - plain[:, 0] / 10).max(), 1e-4),
        ("energy balance, J", work, 1e-6),
        ("residual of the redundant loops", float(jnp.abs(jm.residuals(system, solution).position).max()), 1e-10),
    )
    for label, value, limit in rows:
        print(f"  {label:<48}{value:>10.1e}   at most {limit:.0e}")
        assert value <= limit, f"{label} is {value:.1e}, more than {limit:.0e}."
    pathlib.Path("output").mkdir(exist_ok=True)
    draw("output/balance.png", system, solution, plain)
    print("output/balance.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
