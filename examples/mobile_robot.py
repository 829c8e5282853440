"""Frączek and Wojtyra's mobile robot: knife edges and joints some of whose rows are redundant, steered by a driver."""

import pathlib
import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from jaxmb.planar import Body, Driver, KnifeEdge, Mechanism, Prismatic, Revolute

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "mobile_robot.npz"
BODIES = ("platform", "front", "rear", "front_rod", "rear_rod", "slider", "trolley")
BUMPS = ((0.5, 2.5, -0.05), (5.0, 7.0, 0.0644797949))  # start and end in s, height in m
LEAN = np.arctan2(0.16, 0.12)  # of the rods at the start, from the line through both forks


def shift(t, params):
    """The slider's place on the platform, in m: y₀ and bumps A · 64 s³(1 − s)³."""
    total = jnp.asarray(0.16)
    for start, end, height in BUMPS:
        s = jnp.clip((t - start) / (end - start), 0.0, 1.0)
        total = total + height * 64 * (s * (1 - s)) ** 3
    return total


def mobile_robot():
    """A platform on two fixed wheels, two forks that a slider steers by rods, and a trolley, all seen from above."""
    fork = {"pin": (-0.03, 0.0), "rod": (0.09, 0.0)}
    rod = {"fork": (-0.1, 0.0), "slider": (0.1, 0.0)}
    sides = {"front": (0.4, 0.0), "rear": (-0.4, 0.0)}
    left, right = {"left": (0.0, 0.3)}, {"right": (0.0, -0.3)}
    bodies = [
        Body("platform", 20.0, 1.5, points=sides | left | right | {"hitch": (-0.6, 0.0)}),
        Body("front", 2.0, 0.01, points=fork, position=(0.43, 0.0)),
        Body("rear", 2.0, 0.01, points=fork, position=(-0.43, 0.0), angle=np.pi),
        Body("front_rod", 0.3, 0.001, points=rod, position=(0.46, 0.08), angle=np.pi - LEAN),
        Body("rear_rod", 0.3, 0.001, points=rod, position=(-0.46, 0.08), angle=LEAN),
        Body("slider", 1.5, 0.09, points=sides, position=(0.0, 0.16)),
        Body("trolley", 8.0, 0.4, points={"hitch": (0.25, 0.0), "axle": (-0.1, 0.0)}, position=(-0.85, 0.0)),
    ]
    joints = [
        Revolute("A", "platform.hitch", "trolley.hitch"),
        Revolute("B", "platform.front", "front.pin"),
        Revolute("C", "platform.rear", "rear.pin"),
        Revolute("D", "front.rod", "front_rod.fork"),
        Revolute("E", "rear.rod", "rear_rod.fork"),
        Revolute("F", "front_rod.slider", "slider.front"),
        Revolute("G", "rear_rod.slider", "slider.rear"),
        Prismatic("H", "platform", "slider", axis=(0.0, 1.0)),
        KnifeEdge("W1", "front.pin"),
        KnifeEdge("W2", "rear.pin"),
        KnifeEdge("W3", "platform.left"),
        KnifeEdge("W4", "platform.right"),
        KnifeEdge("W5", "trolley.axle"),
    ]
    breaks = [time for start, end, _ in BUMPS for time in (start, end)]
    return Mechanism(bodies, joints, [Driver("steering", "H", shift, breaks=breaks)])


def build(coordinates):
    """The system in relative or absolute coordinates, and its start, in which all bodies move forward at 1 m/s."""
    system = mobile_robot().build(coordinates)
    forward = {v: 1.0 for v in system.velocities if v in [f"{body}.x" for body in BODIES]}
    return system, jm.assemble(system, v=forward)


def run(system, state, ts):
    """The motion, by steps that end at the saved times and so need no interpolation there."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=ts)
    return jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)


def poses(system, motion):
    """Position of each body with cosine and sine of its angle, (..., 7, 4)."""
    found = jnp.stack([jm.pose(system, motion, body) for body in BODIES], axis=-3)
    return jnp.concatenate([found[..., :2, 2], found[..., :2, 0]], axis=-1)


def ranks(system, jacobian):
    """Of the rows of joints and driver, of those of the knife edges, and of all."""
    rows, edges = np.asarray(jacobian), system.rows["W1"].start
    return tuple(int(np.linalg.matrix_rank(part, rtol=1e-9)) for part in (rows[:edges], rows[edges:], rows))


def main(coordinates):
    reference = np.load(REFERENCE)
    ts, angles = reference["t"], reference["q"][:, 2::3]
    exact = np.stack([reference["q"][:, 0::3], reference["q"][:, 1::3], np.cos(angles), np.sin(angles)], axis=-1)
    system, state = build(coordinates)
    solution = run(system, state, ts)
    found = jm.diagnose(system, solution.state(75))
    print(f"Mobile robot in {coordinates} coordinates, {ts[-1]:.0f} s, {solution.stats['num_accepted_steps']} steps")
    print(found)
    if coordinates == "absolute":
        places = (solution.state(i) for i in (0, 60, 75, 120, 300, 450))
        several = {ranks(system, jm.evaluate(system, state).jacobian) for state in places}
        print(f"  ranks of joints and driver, of knife edges, of all: {', '.join(map(str, several))}")
        assert several == {(17, 4, 20)}
    rows = (
        ("largest error of the poses, m and 1", poses(system, solution) - exact, 1e-9),
        ("largest energy imbalance, J", jm.energy(system, solution).balance, 1e-9),
        ("largest position residual, m", jm.residuals(system, solution).position, 1e-12),
        ("largest velocity residual, m/s", jm.residuals(system, solution).velocity, 1e-12),
    )
    for label, values, limit in rows:
        largest = float(abs(values).max())
        print(f"  {label:<38}{largest:>10.1e}   at most {limit:.0e}")
        assert largest <= limit, f"{label} is {largest:.1e}, more than {limit:.0e}."
    assert found.freedom == 1 and found.redundancy == 2


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main("relative" if "relative" in sys.argv else "absolute")
