"""An excavator's bucket follows a digging cycle by three hydraulic cylinders, through soil that resists."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import planar as P
from ...foundations import Key
from ...kinematics import assemble
from ...mechanism import AbstractMechanism, Motion
from ...output import position, velocity
from ...simulation import stepper
from ...system import State, System
from ..environment import Environment
from .shared import between, tracking_reward, with_heavier_bodies, with_params

STEEL = 7850.0 * 0.05  # kg/m², plates of 50 mm
BOOM = [(0.0, 0.0), (1.2, 0.6), (2.8, 0.5), (1.3, 1.1)]
STICK = [(-0.5, 0.25), (0.0, -0.15), (1.6, 0.0), (0.2, 0.2)]
BUCKET = [(0.0, 0.0), (0.25, 0.1), (0.6, -0.3), (0.5, -0.7), (0.3, -0.3)]
EDGE = "bucket.c3"
CYLINDERS = ("lift", "reach", "curl")
# Forces in N that a valve half open and fully open gives, and leakage in N s/m: without load the cylinders then move at 0.5 m/s.
FORCE, LEAKAGE = np.array([9e4, 6e4, 3e4]), np.array([1.8e5, 1.2e5, 6e4])
# The middle of the cycle in m, its radii, where on it the edge begins in rad, and the surface of the soil in m.
MIDDLE, RADII, FIRST, SURFACE = np.array([2.6, -1.7]), np.array([0.5, 0.4]), -0.45, -1.9
DEEP = 0.05  # m, over which the soil's resistance begins
NEAR, LIMIT = 0.2, 1.0  # m: errors that halve the reward, and that end the episode


def soil_force(motion: Motion) -> Array:
    """Against the edge's velocity in the soil, and no torque."""
    depth = SURFACE - motion.position(EDGE)[1]
    return jnp.append(-motion.params["soil"] * jax.nn.sigmoid(depth / DEEP) * motion.velocity(EDGE), 0.0)


def with_cylinder(arm: AbstractMechanism, name: str, low: str, high: str, leakage: float) -> AbstractMechanism:
    """Barrel and piston, each 60 % of their distance, on pins at both ends, and a valve that pushes."""
    foot, way = arm.position(low), arm.position(high) - arm.position(low)
    length = float(np.linalg.norm(way))
    part = P.Mechanism(
        [
            P.Body.rod("barrel", 40.0, 0.6 * length),
            P.Body.rod("piston", 25.0, 0.6 * length, position=(0.4 * length, 0.0)),
        ],
        [P.Prismatic("stroke", "barrel", "piston")],
        forces=[P.JointFriction("oil", "stroke", viscous=leakage)],
        actuators=[P.Motor("valve", "stroke")],
    ).renamed(f"{name}_")
    pins = [P.Revolute(f"{name}_low", low, f"{name}_barrel"), P.Revolute(f"{name}_high", f"{name}_piston.b", high)]
    return arm.joined(part.placed(P.frame(foot, np.arctan2(way[1], way[0]))), joints=pins)


def mechanism() -> AbstractMechanism:
    """Boom, stick and bucket, with a cylinder to lift the boom, one to reach out and one to curl the bucket."""
    plate = lambda name, corners, **where: P.Body(name, shape=P.Plate(corners), density=STEEL, **where)
    bodies = [
        plate("boom", BOOM),
        plate("stick", STICK, position=(2.8, 0.5), angle=-np.pi / 2),
        plate("bucket", BUCKET, position=(2.8, -1.1), angle=-0.3),
    ]
    pins = (("foot", "ground", "boom"), ("elbow", "boom.c2", "stick"), ("wrist", "stick.c2", "bucket"))
    arm: AbstractMechanism = P.Mechanism(
        bodies,
        [P.Revolute(*pin) for pin in pins],
        forces=[P.Force("soil", EDGE, soil_force)],
        gravity=(0.0, -9.81),
        points={"rack": (0.6, -0.5)},
        params={"soil": 2e3, "speed": 1.0, "phase": FIRST},
    )
    ends = (("ground.rack", "boom.c1"), ("boom.c3", "stick.c0"), ("stick.c3", "bucket.c1"))
    for name, (low, high), leakage in zip(CYLINDERS, ends, LEAKAGE, strict=True):
        arm = with_cylinder(arm, name, low, high, float(leakage))
    return arm


def target(system: System, t: Array) -> tuple[Array, Array]:
    """Position and velocity (2,) of the target: down, through the soil towards the machine, and up."""
    p = system.params.params
    angle = p["phase"] - p["speed"] * t
    turn = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return jnp.asarray(MIDDLE) + RADII * turn, -p["speed"] * RADII * jnp.stack([-turn[1], turn[0]])


def error(system: System, state: State) -> Array:
    """From the edge to the target (2,)."""
    return target(system, state.t)[0] - position(system, state, EDGE)


def observe(system: System, state: State) -> Array:
    """Strokes and their rates, position and velocity of the edge, and of the target as the edge sees it."""
    strokes = np.array([system.coordinates.index(f"{name}_stroke") for name in CYLINDERS])
    speed = velocity(system, state, EDGE)
    observed = error(system, state), target(system, state.t)[1] - speed
    return jnp.concatenate([state.q[strokes], state.v[strokes], position(system, state, EDGE), speed, *observed])


def reward(system: System, state: State, action: Array) -> dict[str, Array]:
    """Nearness to the target, from 0 to 1, and effort."""
    return tracking_reward(error(system, state), NEAR, action)


def off_target(system: System, state: State) -> Array:
    """Whether the edge is too far from the target."""
    return jnp.sum(error(system, state) ** 2) > LIMIT**2


def draw(rng: Key, system: System) -> System:
    """Masses to ±20 %, the soil's resistance from 1 to 4 kN s/m, the cycle's speed from 0.5 to 1 rad/s and its phase."""
    mass, soil, speed, phase = jax.random.split(rng, 4)
    system = with_heavier_bodies(mass, system)
    return with_params(
        system,
        soil=between(soil, 1e3, 4e3),
        speed=between(speed, 0.5, 1.0),
        phase=between(phase, FIRST - 0.3, FIRST + 0.3),
    )


def excavator_digging(episode_length: int | None, randomise: bool) -> Environment:
    """The task, 50 ms a step."""
    system = mechanism().build()
    step = stepper(system, assemble(system), 0.05, substeps=20, solver=dfx.Midpoint())
    strokes = {f"{name}_stroke": 0.02 for name in CYLINDERS}
    return Environment(
        step, observe, reward, FORCE, done=off_target, randomise=draw if randomise else None, spread=strokes, episode_length=episode_length
    )  # fmt: skip
