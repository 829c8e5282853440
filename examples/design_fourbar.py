"""Synthesis of a four-bar whose coupler point goes through ten given points: with their timing from random starts, and without it from a guess.

The points are those of a known four-bar, so that there is an exact answer for the search to recover.
"""

import time

import jax
import numpy as np
from gallery import check, save

import jaxmb as jm

D, P = jm.design, jm.planar
# In m: links, the coupler's point in the coupler, the pivots of crank and rocker on the ground.
KNOWN = {
    "crank.length": 1.0, "coupler.length": 3.0, "rocker.length": 2.5, "coupler.points.p.x": 1.5, "coupler.points.p.y": 1.0,
    "points.D.x": 3.0, "points.D.y": 0.2, "points.A.x": 0.1, "points.A.y": -0.1,
}  # fmt: skip
# Far enough from the known one that the first guess misses the points by half the length of the crank.
GUESS = dict(zip(KNOWN, (1.2, 3.3, 2.3, 1.3, 1.2, 3.2, 0.1, 0.0, 0.0), strict=True))
LOW = dict(zip(KNOWN, (0.3, 1.0, 1.0, 0.0, 0.0, 1.0, -1.0, -1.0, -1.0), strict=True))
HIGH = dict(zip(KNOWN, (2.0, 5.0, 5.0, 4.0, 3.0, 5.0, 1.0, 1.0, 1.0), strict=True))
ANGLES = np.linspace(0.0, 2 * np.pi, 11)[:10]
START = {"A": 0.0, "B": 0.9, "D": 2.0}


def four_bar(sizes):
    """A four-bar with these dimensions."""
    point = lambda name: (sizes[f"{name}.x"], sizes[f"{name}.y"])
    bodies = [
        P.Body.rod("crank", mass=1.0, length=sizes["crank.length"]),
        P.Body.rod("coupler", mass=1.0, length=sizes["coupler.length"], points={"p": point("coupler.points.p")}),
        P.Body.rod("rocker", mass=1.0, length=sizes["rocker.length"]),
    ]
    joints = [
        P.Revolute("A", "ground.A", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.b"),
        P.Revolute("D", "ground.D", "rocker.a"),
    ]
    return P.Mechanism(bodies, joints, points={name: point(f"points.{name}") for name in "AD"})


def coupler_points(sizes, angles):
    """The path of the coupler's point by the circles about its joints: the law of cosines, no solver."""
    a, d = (np.array([sizes[f"points.{name}.x"], sizes[f"points.{name}.y"]]) for name in "AD")
    b = a + sizes["crank.length"] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gap, one, other = d - b, sizes["coupler.length"], sizes["rocker.length"]
    far = np.linalg.norm(gap, axis=1)
    turn = np.arctan2(gap[:, 1], gap[:, 0]) + np.arccos((one**2 + far**2 - other**2) / (2 * one * far))
    u, v = np.stack([np.cos(turn), np.sin(turn)], axis=1), np.stack([-np.sin(turn), np.cos(turn)], axis=1)
    return b + sizes["coupler.points.p.x"] * u + sizes["coupler.points.p.y"] * v


def variables():
    """All nine dimensions with their bounds."""
    return [jm.fit.Parameter(name, min_value=LOW[name], max_value=HIGH[name]) for name in KNOWN]


def errors(design):
    """How far dimensions are from the known ones, in m."""
    return max(abs(float(design.values[name]) - KNOWN[name]) for name in KNOWN)


def main(starts=200):
    points = coupler_points(KNOWN, ANGLES)
    timed = D.Goal("path", D.Path("coupler.p"), points)
    free = D.Goal("path without timing", D.PathDeviation("coupler.p", points), 0.0)
    mechanism, begin = four_bar(GUESS), time.perf_counter()
    with_timing = D.optimise(
        mechanism, variables(), timed, over={"A": ANGLES}, start=START, starts=starts, key=jax.random.key(1)
    )
    print(f"{with_timing}\n{starts} starts in {time.perf_counter() - begin:.0f} s")
    without = D.optimise(mechanism, variables(), free, over={"A": np.linspace(0.0, 2 * np.pi, 61)}, start=START)
    print(without)
    check(
        [
            ("dimensions with timing, of many starts, m", errors(with_timing), 1e-8),
            ("dimensions without timing, of one start, m", errors(without), 1e-8),
        ]
    )
    save(jm.plot.design(with_timing).axes, "design_fourbar")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
