"""A double wishbone suspension whose wheel leans by a given curve over its travel and does not steer: places of the upper arm and the track rod.

Camber should fall by 20° for each metre that the wheel rises, and toe should stay zero.
"""

import jax
import jax.numpy as jnp
import numpy as np
from gallery import check, meeting, save

import jaxmb as jm

D, S = jm.design, jm.spatial
# y to the wheel and z up, in m; all in the plane x = 0 but the track rod. Inner ends of the arms and of the rod are on the ground.
LOWER, UPPER, RACK = np.array([0.0, 0.0, 0.0]), np.array([0.0, 0.1, 0.28]), np.array([0.12, 0.05, 0.07])
LOW, HIGH, STEER, WHEEL = np.array([[0.0, 0.4, -0.02], [0.0, 0.36, 0.28], [0.12, 0.4, 0.06], [0.0, 0.46, 0.13]])
GAIN = np.radians(-20.0)  # of camber, in rad for each m
RANGES = {
    "upper.points.ball.y": (0.15, 0.4), "points.upper.y": (-0.1, 0.2), "points.upper.z": (0.15, 0.35),
    "points.rack.y": (-0.1, 0.2), "points.rack.z": (0.0, 0.2), "rod.length": (0.2, 0.5),
}  # fmt: skip
ANGLES = np.radians(np.linspace(-12.0, 12.0, 13))


def turned(start, end):
    """Axes with x along x, and y from one point to another."""
    y = (end - start) / np.linalg.norm(end - start)
    return np.stack([[1.0, 0.0, 0.0], y, np.cross([1.0, 0.0, 0.0], y)], axis=1)


def wishbone():
    """Both arms, the upright and the track rod."""
    arms = {"lower": (LOWER, LOW), "upper": (UPPER, HIGH)}
    bodies, joints = [], []
    for name, (inner, ball) in arms.items():
        length, axes = float(np.linalg.norm(ball - inner)), turned(inner, ball)
        bodies.append(
            S.Body(name, 3.0, (0.1, 0.1, 0.1), points={"ball": (0.0, length, 0.0)}, position=inner, orientation=axes)
        )
        joints.append(S.Revolute(f"{name}_hinge", f"ground.{name}", name, axis=(1.0, 0.0, 0.0)))
        joints.append(S.Spherical(f"{name}_ball", f"{name}.ball", f"upright.{name}"))
    points = {"lower": np.zeros(3), "upper": HIGH - LOW, "steer": STEER - LOW, "wheel": WHEEL - LOW}
    bodies.append(S.Body("upright", 5.0, (0.1, 0.1, 0.1), points=points, position=LOW))
    joints.append(S.Distance("rod", "ground.rack", "upright.steer", float(np.linalg.norm(STEER - RACK))))
    return S.Mechanism(bodies, joints, points={"lower": LOWER, "upper": UPPER, "rack": RACK})


def orientation(system, states):
    """The columns of the upright's orientation (n, 3, 3)."""
    return jm.pose(system, states, "upright")[:, :3, :3]


def camber(system, states):
    """How far the wheel leans outwards, beside what it should at the height of its centre, in rad."""
    lean = orientation(system, states)[:, :, 2]
    return jnp.arctan2(lean[:, 1], lean[:, 2]) - GAIN * (jm.position(system, states, "upright.wheel")[:, 2] - WHEEL[2])


def toe(system, states):
    """How far the axle turns about the vertical, in rad."""
    axle = orientation(system, states)[:, :, 1]
    return jnp.arctan2(-axle[:, 0], axle[:, 1])


def exact(values):
    """The orientations by circles in the plane of the arms, and by the length of the rod about the line through both balls; no solver."""
    upper, rack = (np.array([values[f"points.{name}.{x}"] for x in "yz"]) for name in ("upper", "rack"))
    found = []
    for low in np.linalg.norm(LOW) * np.stack([0 * ANGLES, np.cos(ANGLES), np.sin(ANGLES)], axis=1):
        high = meeting(low[1:], np.linalg.norm(HIGH - LOW), upper, values["upper.points.ball.y"], -1)
        axis = np.append(0.0, high - low[1:]) / np.linalg.norm(HIGH - LOW)
        level = turned(np.zeros(3), axis) @ turned(LOW, HIGH).T
        # By δ about the axis the end of the rod goes to low + s∥ + s⊥ cos δ + (axis × s) sin δ.
        gap, s = low - np.append(RACK[0], rack), level @ (STEER - LOW)
        along = (s @ axis) * axis
        a, b = 2 * gap @ (s - along), 2 * gap @ np.cross(axis, s)
        c = values["rod.length"] ** 2 - gap @ gap - s @ s - 2 * gap @ along
        both = np.angle(np.exp(1j * (np.arctan2(b, a) + np.array([1, -1]) * np.arccos(c / np.hypot(a, b)))))
        delta, k = both[np.argmin(np.abs(both))], np.cross(axis, np.eye(3)).T
        found.append((np.eye(3) + np.sin(delta) * k + (1 - np.cos(delta)) * k @ k) @ level)
    return np.array(found)


def main():
    variables = [jm.fit.Parameter(name, min_value=low, max_value=high) for name, (low, high) in RANGES.items()]
    goals = [D.Goal("camber, rad", camber, 0.0), D.Goal("toe, rad", toe, 0.0)]
    design = D.optimise(wishbone(), variables, goals, over={"lower_hinge": ANGLES})
    print(design)
    system, states = design.after.system, design.after.states
    travel = np.ptp(jm.position(system, states, "upright.wheel")[:, 2])
    errors = {name: np.degrees(np.abs(x).max()) for name, x in design.after.values.items()}
    print(f"the wheel travels by {1e3 * travel:.0f} mm")
    values = {name: float(x) for name, x in design.values.items()}
    check(
        [
            (
                "orientation from circles and the rod's length",
                np.abs(orientation(system, states) - exact(values)).max(),
                1e-9,
            ),
            ("camber from the curve, degrees", errors["camber, rad"], 0.01),
            ("toe, degrees", errors["toe, rad"], 0.001),
            ("travel short of 160 mm, m", 0.16 - travel, 0.0),
        ]
    )
    save(jm.plot.design(design).axes, "design_wishbone")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
