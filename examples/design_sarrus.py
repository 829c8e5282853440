"""Sarrus' linkage with hinges that are drilled askew: what jams it, which constraint to release, and what a soft hinge then carries.

Two chains of three parallel hinges guide a plate straight up. Each of them keeps it from turning about the vertical, which is one
constraint more than is needed. Lengths may be off; but a hinge that is askew turns the plate by its share along the vertical, and the
other chain does not allow that.
"""

import jax
import numpy as np
from gallery import check, save

import jaxmb as jm

D, S, Parameter = jm.design, jm.spatial, jm.fit.Parameter
# In m and rad: links, the plate, how far links rise from the level at first; tolerances of lengths and of directions.
LINK, SIDE, RISE, SHORT, ASKEW = 0.2, 0.15, 0.9, 1e-4, 1e-3
STIFFNESS, MOST = 2000.0, 6.0  # of the soft hinge about the vertical, in N m/rad, and the torque that it bears, in N m
UP, ACROSS = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
CHAINS = {"x": -UP[[0, 2, 1]], "y": -UP[[2, 1, 0]]}  # where they stand, by the axis along which their hinges lie
HINGES = [f"{place}_{chain}" for chain in CHAINS for place in ("ground", "knee", "top")]
FALL = np.linspace(0.0, 0.5, 9)  # of the links, from where they start


def sarrus(released=False):
    """The linkage; x of each link lies along it, and y on its hinges. If `released`, the last hinge also turns about the vertical."""
    top = 2 * LINK * np.sin(RISE) * UP
    bodies, joints = [S.Body.box("plate", 1.0, (2 * SIDE, 2 * SIDE, 0.01), position=top)], []
    for chain, out in CHAINS.items():
        foot, axis = SIDE * out, np.eye(3)["xy".index(chain)]
        knee = foot + LINK * (np.cos(RISE) * out + np.sin(RISE) * UP)
        for part, start, end in (("lower", foot, knee), ("upper", knee, foot + top)):
            along = (end - start) / LINK
            turned = np.stack([along, axis, np.cross(along, axis)], axis=1)
            shape = S.Plate([(0.0, -0.03), (LINK, -0.03), (LINK, 0.03), (0.0, 0.03)], 0.005)
            points = {"end": (LINK, 0.0, 0.0)}
            bodies.append(
                S.Body(f"{part}_{chain}", 0.1, points=points, shape=shape, position=start, orientation=turned)
            )
        kind, first = (S.Universal, UP) if released and chain == "y" else (S.Revolute, axis)
        joints += [
            S.Revolute(f"ground_{chain}", ("ground", foot), f"lower_{chain}", axis, ACROSS),
            S.Revolute(f"knee_{chain}", f"lower_{chain}.end", f"upper_{chain}", ACROSS),
            kind(f"top_{chain}", ("plate", foot), f"upper_{chain}.end", first, ACROSS),
        ]
    return S.Mechanism(bodies, joints)


def variables():
    """The lengths of all links, and both directions in which the hole of a hinge in a link may be askew."""
    lengths = [f"{part}_{chain}.points.end.x" for chain in CHAINS for part in ("lower", "upper")]
    directions = [f"{hinge}.axis_b.{axis}" for hinge in HINGES for axis in "xz"]
    return [Parameter(x, scale=SHORT) for x in lengths] + [Parameter(x, scale=ASKEW) for x in directions]


def main():
    rigid, released = sarrus(), sarrus(released=True)
    system = rigid.build()
    state = jm.assemble(system)
    reactions = jm.analyse_reactions(system, state)
    print(reactions)
    over = {"ground_x": float(jm.coordinate(system, state, "ground_x")) + FALL}
    height = D.Goal("height of the plate, m", lambda system, states: jm.position(system, states, "plate")[:, 2], 0.0)
    jammed = D.tolerances(rigid, variables(), height, over=over)
    print(f"All hinges as they are:\n{jammed}")
    # The hinge lies along y of the plate where the cross has turned by a quarter.
    torque = lambda system, states: STIFFNESS * (jm.coordinate(system, states, "top_y.first") - np.pi / 2)
    soft = D.tolerances(released, variables(), D.Goal("torque, N m", torque, low=-MOST, high=MOST), over=over)
    print(f"With a soft hinge:\n{soft}")
    # A hinge that is askew along its link turns the plate about the vertical by the sine of the link's rise, one across by the cosine.
    turns = ASKEW * np.stack([np.cos(RISE - FALL), np.sin(RISE - FALL)])
    lengths, (opened, *others) = 2 * len(CHAINS), sorted(jammed.closure.values(), key=lambda x: -x.max())
    sine_and_cosine = np.abs(opened[lengths:] - np.tile(turns.max(axis=1), len(HINGES)))
    worst, spread, sampled = (x["torque, N m"] for x in (soft.worst_case, soft.root_sum_square, soft.monte_carlo))
    check(
        [
            ("constraints more than needed, from one", abs(reactions.redundancy - 1), 0),
            ("what a length opens, m or rad", opened[:lengths].max(), 0),
            ("what opens besides one row, m or rad", np.max(others), 0),
            ("that row from sine and cosine, rad", sine_and_cosine.max(), 1e-12),
            ("worst torque from these, N m", abs(worst - STIFFNESS * len(HINGES) * turns.sum(axis=0)).max(), 1e-9),
            ("root sum square from √6 k τ, N m", abs(spread - np.sqrt(6) * STIFFNESS * ASKEW).max(), 1e-9),
            ("Monte Carlo beside it, relative", abs(sampled / spread - 1).max(), 5 / np.sqrt(2 * 1000)),
            ("gaps of loops after the release", soft.gaps.max(), 1e-9),
        ]
    )
    save(jm.plot.draw(system, state, view=(25.0, 20.0)), "design_sarrus")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
