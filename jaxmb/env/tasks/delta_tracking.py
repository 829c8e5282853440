"""The plate of a Delta robot follows a target that moves on an ellipse: three motors, three parallelograms of rods."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import spatial as S
from ...foundations import Key
from ...kinematics import assemble
from ...output import position, velocity
from ...simulation import stepper
from ...system import State, System
from ..environment import Environment
from .shared import between, tracking_reward, with_heavier_bodies, with_params

BASE, PLATE, ARM, ROD, WIDTH = 0.2, 0.06, 0.25, 0.5, 0.05  # m; WIDTH is half of that of a parallelogram
ANGLES = np.array([0.0, 2 * np.pi / 3, -2 * np.pi / 3])
DEPTH = 0.45  # m, of the middle of the targets below the base
TORQUE, WEIGHT = 1.5, -1.0  # N m, of a motor around what carries the weight in the middle, and that
ARMS = ("shoulder0", "shoulder1", "shoulder2")
NEAR, LIMIT = 0.05, 0.15  # m: errors that halve the reward, and that end the episode


def arm_angle(corner: np.ndarray, out: np.ndarray, across: np.ndarray) -> float:
    """Of an arm below the horizontal by inverse kinematics: its elbow is as far from the plate's corner as the rods are long."""
    x, y, z = corner @ out + PLATE - BASE, corner @ across, corner[2]
    reach = (x**2 + y**2 + z**2 + ARM**2 - ROD**2) / (2 * ARM)
    return float(np.arctan2(-z, x) - np.arccos(reach / np.hypot(x, z)))


def mechanism() -> tuple[S.Mechanism, dict[str, float]]:
    """The robot, and the angles of its arms with the plate in the middle."""
    middle = np.array([0.0, 0.0, -DEPTH])
    bodies, joints, guess = [S.Body("plate", 0.3, shape=S.Cylinder(0.02, 1.5 * PLATE), position=middle)], [], {}
    elbow = S.Body("elbow", 0.1, shape=S.Cylinder(2 * WIDTH, 0.01))
    level = S.frame((0.0, -WIDTH, ARM), (0.5**0.5, -(0.5**0.5), 0.0, 0.0))  # the elbow lies across the arm
    for i, angle in enumerate(ANGLES):
        out, across = np.array([np.cos(angle), np.sin(angle), 0.0]), np.array([-np.sin(angle), np.cos(angle), 0.0])
        pose = np.eye(4)
        pose[:3] = np.stack([[0.0, 0.0, -1.0], across, out, BASE * out], axis=1)
        bar = S.Body("bar", 0.4, shape=S.Cylinder(ARM, 0.015))
        bodies.append(S.Body.joined(f"arm{i}", [bar, (elbow, level)]))
        joints.append(S.Revolute(f"shoulder{i}", ("ground", pose), f"arm{i}.bar_a", axis=(0.0, 1.0, 0.0)))
        for side, shift in (("left", WIDTH), ("right", -WIDTH)):
            ends = (f"arm{i}", (0.0, shift, ARM)), ("plate", PLATE * out + shift * across)
            joints.append(S.Distance(f"{side}{i}", *ends, ROD))
        guess[f"shoulder{i}"] = arm_angle(middle, out, across)
    forces = [S.JointFriction(f"gear{i}", f"shoulder{i}", viscous=0.1, coulomb=0.05, speed=0.1) for i in range(3)]
    motors = [S.Motor(f"motor{i}", f"shoulder{i}") for i in range(3)]
    params = {"radii": np.array([0.08, 0.08, 0.04]), "speed": 2.0, "phases": np.array([0.0, 0.5 * np.pi, 0.0])}
    return S.Mechanism(bodies, joints, [], forces, motors, (0.0, 0.0, -9.81), params=params), guess


def target(system: System, t: Array) -> tuple[Array, Array]:
    """Position and velocity (3,) of the target."""
    p = system.params.params
    angles = p["speed"] * t + p["phases"]
    return jnp.array([0.0, 0.0, -DEPTH]) + p["radii"] * jnp.cos(angles), -p["speed"] * p["radii"] * jnp.sin(angles)


def error(system: System, state: State) -> Array:
    """From the plate to the target (3,)."""
    return target(system, state.t)[0] - position(system, state, "plate")


def observe(system: System, state: State) -> Array:
    """Angles and rates of the arms, position and velocity of the plate, and of the target as the plate sees it."""
    arms = np.array([system.coordinates.index(name) for name in ARMS])
    rates = np.array([system.velocities.index(name) for name in ARMS])
    speed = velocity(system, state, "plate")
    observed = error(system, state), target(system, state.t)[1] - speed
    return jnp.concatenate([state.q[arms], state.v[rates], position(system, state, "plate"), speed, *observed])


def reward(system: System, state: State, action: Array) -> dict[str, Array]:
    """Nearness to the target, from 0 to 1, and effort."""
    return tracking_reward(error(system, state), NEAR, action)


def off_target(system: System, state: State) -> Array:
    """Whether the plate is too far from the target."""
    return jnp.sum(error(system, state) ** 2) > LIMIT**2


def draw(rng: Key, system: System) -> System:
    """Masses to ±20 %, and an ellipse: radii from 2 to 8 cm, speed from 1 to 3 rad/s, phases."""
    mass, radius, speed, phase = jax.random.split(rng, 4)
    system = with_heavier_bodies(mass, system)
    return with_params(
        system,
        radii=between(radius, 0.02, 0.08, (3,)),
        speed=between(speed, 1.0, 3.0),
        phases=between(phase, -np.pi, np.pi, (3,)),
    )


def delta_tracking(episode_length: int | None, randomise: bool) -> Environment:
    """The task, 20 ms a step."""
    robot, guess = mechanism()
    system = robot.build()
    step = stepper(system, assemble(system, guess), 0.02, substeps=4, solver=dfx.Midpoint())
    return Environment(
        step, observe, reward, WEIGHT + TORQUE, WEIGHT - TORQUE, done=off_target, randomise=draw if randomise else None,
        spread=dict.fromkeys(ARMS, 0.05), episode_length=episode_length,
    )  # fmt: skip
