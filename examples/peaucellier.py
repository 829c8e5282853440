"""Peaucellier's linkage of 1864: seven bars that draw a straight line, by inversion in a circle."""

import jax
import jax.numpy as jnp
import numpy as np
from gallery import bar, check, meeting, save

import jaxmb as jm

ARM, SIDE, CRANK = 1.0, 0.4, 0.45  # m; the crank's circle goes through the origin
SWING = 1.2  # rad


def peaucellier():
    """Two long arms, a rhombus between their ends, and a crank that turns about (CRANK, 0) to one of its corners."""
    origin, pivot, corner = np.zeros(2), np.array([CRANK, 0.0]), np.array([2 * CRANK, 0.0])
    ends = [meeting(origin, ARM, corner, SIDE, side) for side in (1, -1)]
    pen = np.array([2 * ends[0][0] - corner[0], 0.0])
    bodies, joints = [bar("crank", pivot, corner)], [jm.planar.Revolute("P", ("ground", pivot), "crank.a")]
    for name, end in zip("AB", ends, strict=True):
        bodies += [bar(f"arm{name}", origin, end), bar(f"in{name}", end, corner), bar(f"out{name}", end, pen)]
        joints.append(jm.planar.Revolute(f"O{name}", "ground", f"arm{name}.a"))
        joints += [jm.planar.Revolute(f"{name}{way}", f"arm{name}.b", f"{way}{name}.a") for way in ("in", "out")]
        joints.append(jm.planar.Revolute(f"C{name}", "crank.b", f"in{name}.b"))
    joints.append(jm.planar.Revolute("pen", "outA.b", "outB.b"))
    drive = jm.planar.Driver("drive", "P", lambda t, params: SWING * jnp.sin(t))
    return jm.planar.Mechanism(bodies, joints, [drive])


def main():
    system, ts = peaucellier().build(), jnp.linspace(0.0, 2 * np.pi, 25)
    solution = jm.simulate(system, jm.assemble(system), ts)
    corner, pen = (np.asarray(jm.position(system, solution, place)) for place in ("crank.b", "outA.b"))
    power = ARM**2 - SIDE**2  # of the inversion
    inverse = power * corner / np.sum(corner**2, axis=1, keepdims=True)
    print(
        f"the pen runs from y = {pen[:, 1].min():.3f} m to {pen[:, 1].max():.3f} m along x = {power / (2 * CRANK):.3f} m"
    )
    check(
        [
            ("distance of the pen from the line, m", np.abs(pen[:, 0] - power / (2 * CRANK)).max(), 1e-9),
            ("distance from the inverse of the corner, m", np.abs(pen - inverse).max(), 1e-9),
        ]
    )
    axes = jm.plot.draw(system, solution.state(3))
    axes.plot(*pen.T, "k--", lw=1, zorder=1)
    axes.set_ylim(-1.0, 1.0)
    save(axes, "peaucellier")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
