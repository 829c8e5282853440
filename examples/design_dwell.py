"""A six-bar linkage whose output stands still for a third of a turn: a coupler point on an arc of a circle, and a rod as long as its radius.

A four-bar draws the path. While it is an arc, the rod from the coupler point turns about its other end; for the rest of the turn it
moves the output to and fro.
"""

import jax
import numpy as np
from gallery import check, meeting, save

import jaxmb as jm

D, P = jm.design, jm.planar
LINKS = {"crank": 1.0, "coupler": 2.5, "rocker": 2.5, "rod": 2.7, "output": 2.0}  # lengths in m
POINTS = {"A": (0.0, 0.0), "D": (2.0, 0.0), "G": (1.7, 2.4)}
TIP = (1.25, 2.2)  # of the coupler
START = {"A": 0.0, "B": 1.4, "D": 1.8, "E": 5.1, "G": 3.8}
ANGLES = np.radians(np.arange(0.0, 361.0, 5.0))
# The output stands still while the crank is between the first two, and swings by the third; least transmission angle of both loops.
FROM, TO, STROKE, ANGLE = np.radians([120.0, 240.0, 40.0, 30.0])


def six_bar():
    """The four-bar with a point on its coupler, and the rod and the output that hang on it."""
    points = {"coupler": {"tip": TIP}}
    bodies = [P.Body.rod(name, 1.0, length, points=points.get(name)) for name, length in LINKS.items()]
    joints = [
        P.Revolute("A", "ground.A", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.b"),
        P.Revolute("D", "ground.D", "rocker.a"),
        P.Revolute("E", "coupler.tip", "rod.a"),
        P.Revolute("F", "rod.b", "output.b"),
        P.Revolute("G", "ground.G", "output.a"),
    ]
    return P.Mechanism(bodies, joints, points=POINTS)


def variables():
    """All lengths but the crank's, which sets the size, and all places but that of the crank's pivot."""
    lengths = [jm.fit.Parameter(f"{name}.length", min_value=1.2, max_value=8.0) for name in LINKS if name != "crank"]
    places = ["points.D.x", "points.G.x", "points.G.y", "coupler.points.tip.x", "coupler.points.tip.y"]
    return lengths + [jm.fit.Parameter(name, min_value=-8.0, max_value=8.0) for name in places]


def circles(values, angles):
    """The joints B, C, tip, F and the pivots D and G at some angles of the crank, by circles about joints; no solver."""
    value = lambda *names: np.array([values[name] for name in names])
    b = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    d, g = np.append(value("points.D.x"), 0.0), value("points.G.x", "points.G.y")
    c = meeting(b, values["coupler.length"], d, values["rocker.length"], 1)
    along = (c - b) / values["coupler.length"]
    x, y = value("coupler.points.tip.x", "coupler.points.tip.y")
    tip = b + x * along + y * np.stack([-along[:, 1], along[:, 0]], axis=1)
    return b, c, d, tip, meeting(tip, values["rod.length"], g, values["output.length"], -1), g


def acute(one, at, other):
    """The acute angle at a joint."""
    a, b = one - at, other - at
    return np.arccos(np.abs(np.sum(a * b, axis=1)) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))


def main():
    goals = [
        D.Goal("dwell", D.Dwell("G", (FROM, TO)), 0.0),
        D.Goal("stroke", D.Stroke("G"), low=STROKE),
        D.Goal("transmission of the four-bar", D.TransmissionAngle("crank.b", "coupler.b", "ground.D"), low=ANGLE),
        D.Goal("transmission of the output", D.TransmissionAngle("coupler.tip", "rod.b", "ground.G"), low=ANGLE),
    ]
    design = D.optimise(six_bar(), variables(), goals, over={"A": ANGLES}, start=START)
    print(design)
    values = {name: float(x) for name, x in design.values.items()}
    b, c, d, tip, f, g = circles(values, ANGLES)
    output = np.unwrap(np.arctan2(*(f - g).T[::-1]))
    _, _, _, _, fine, _ = circles(values, np.linspace(0.0, 2 * np.pi, 100_001))
    stroke = np.ptp(np.unwrap(np.arctan2(*(fine - g).T[::-1])))
    still = np.degrees(np.ptp(output[(ANGLES >= FROM) & (ANGLES <= TO)]))
    print(f"the output swings by {np.degrees(stroke):.2f}° and stands still within {still:.3f}° for 120° of the crank")
    own = jm.coordinate(design.after.system, design.after.states, "G")
    check(
        [
            ("output's angle from circles, rad", np.abs(np.exp(1j * (own - output)) - 1).max(), 1e-9),
            ("dwell, degrees", still, 0.25),
            ("stroke from its limit, rad", abs(stroke - STROKE), 1e-6),
            ("transmission of the four-bar below its limit", ANGLE - acute(b, c, d).min(), 1e-6),
            ("transmission of the output below its limit", ANGLE - acute(tip, f, g).min(), 1e-6),
        ]
    )
    axes = jm.plot.draw(design.after.system, jax.tree.map(lambda x: x[36], design.after.states))
    axes.plot(*tip.T, "k--", lw=1, zorder=1)
    axes.set_ylim(bottom=tip[:, 1].min() - 0.3)
    save(axes, "design_dwell")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
