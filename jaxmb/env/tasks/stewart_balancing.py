"""A platform on six legs keeps level and in the middle while forces and torques push it."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import spatial as S
from ...foundations import Key
from ...kinematics import assemble
from ...mechanism import Motion
from ...output import angular_velocity, pose, velocity
from ...simulation import stepper
from ...system import State, System
from ..environment import Environment
from .draw import between, with_heavier_bodies, with_params

LEGS = 6
# Feet on the ground and heads on the platform in m, in pairs that alternate.
FEET = np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad([50, 70, 170, 190, 290, 310])])
HEADS = 0.6 * np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad([10, 110, 130, 230, 250, 350])])
HEIGHT = 1.0  # m, of the platform
FORCE, WEIGHT = 120.0, 63.4  # N, of a leg around what carries the weight, and that
TILT, SHIFT = 0.1, 0.05  # rad and m: errors that halve the reward
TOO_FAR = 0.4  # rad and m: errors that end the episode


def disturbance(motion: Motion) -> Array:
    """A force in N and a torque in N m that sway."""
    p = motion.params
    return p["push"] * jnp.sin(p["rates"] * motion.t + p["phases"])


def mechanism() -> S.Mechanism:
    """The platform on six legs: a cylinder on a universal joint, a piston in it, and a ball joint at its head."""
    middle = np.array([0.0, 0.0, HEIGHT])
    bodies = [S.Body("platform", 20.0, (0.9, 0.8, 1.6), shape=S.Plate(HEADS[:, :2], 0.03), position=middle)]
    joints = []
    for i, (foot, head) in enumerate(zip(FEET, middle + HEADS, strict=True)):
        rim, along = np.cross([0.0, 0.0, 1.0], foot), (head - foot) / np.linalg.norm(head - foot)
        x = np.cross(rim, along) / np.linalg.norm(np.cross(rim, along))
        turned = np.stack([x, np.cross(along, x), along], axis=1)
        bodies.append(
            S.Body(f"cylinder{i}", 3.0, (0.05, 0.05, 0.002), com=(0.0, 0.0, 0.3), position=foot, orientation=turned)
        )
        bodies.append(
            S.Body(f"piston{i}", 2.0, (0.04, 0.04, 0.001), com=(0.0, 0.0, -0.35), position=head, orientation=turned)
        )
        joints += [
            S.Universal(f"foot{i}", ("ground", foot), f"cylinder{i}", axis=rim),
            S.Prismatic(f"leg{i}", f"cylinder{i}", f"piston{i}"),
            S.Spherical(f"head{i}", f"piston{i}", ("platform", HEADS[i])),
        ]
    return S.Mechanism(
        bodies,
        joints,
        forces=[S.Force("sway", "platform", disturbance)]
        + [S.JointFriction(f"seal{i}", f"leg{i}", viscous=60.0) for i in range(LEGS)],
        actuators=[S.Motor(f"motor{i}", f"leg{i}") for i in range(LEGS)],
        gravity=(0.0, 0.0, -9.81),
        params={
            "push": np.array([40.0, 40.0, 40.0, 15.0, 15.0, 15.0]),
            "rates": np.full(6, 3.0),
            "phases": np.zeros(6),
        },
    )


def errors(system: System, state: State) -> tuple[Array, Array]:
    """Sines of the rotation about the axes of the world (3,), and the shift (3,) in m, from the level pose in the middle."""
    at = pose(system, state, "platform")
    turn = at[:3, :3]
    sines = 0.5 * jnp.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    return sines, at[:3, 3] - jnp.array([0.0, 0.0, HEIGHT])


def observe(system: System, state: State) -> Array:
    """Lengths and rates of the legs, rotation and shift of the platform, its velocity and angular velocity."""
    legs = np.array([system.coordinates.index(f"leg{i}") for i in range(LEGS)])
    rates = np.array([system.velocities.index(f"leg{i}") for i in range(LEGS)])
    moves = velocity(system, state, "platform"), angular_velocity(system, state, "platform")
    return jnp.concatenate([state.q[legs], state.v[rates], *errors(system, state), *moves])


def reward(system: System, state: State, action: Array) -> dict[str, Array]:
    """How level and how near to the middle the platform is, each from 0 to 1, and effort."""
    turn, shift = errors(system, state)
    near = lambda x, half: 0.5 / (1 + jnp.sum(x**2) / half**2)
    return {"level": near(turn, TILT), "middle": near(shift, SHIFT), "effort": -0.02 * jnp.sum(action**2)}


def astray(system: System, state: State) -> Array:
    """Whether the platform is too far away, or turned too far."""
    return jnp.any(jnp.abs(jnp.concatenate(errors(system, state))) > TOO_FAR)


def draw(rng: Key, system: System) -> System:
    """Masses to ±20 %, and a disturbance: amplitudes to 40 N and 15 N m, rates from 1 to 6 rad/s, phases."""
    mass, push, rate, phase = jax.random.split(rng, 4)
    system = with_heavier_bodies(mass, system)
    return with_params(
        system,
        push=system.params.params["push"] * between(push, 0.0, 1.0, (6,)),
        rates=between(rate, 1.0, 6.0, (6,)),
        phases=between(phase, -np.pi, np.pi, (6,)),
    )


def stewart_balancing(episode_length: int | None, randomise: bool) -> Environment:
    """The task, 20 ms a step."""
    system = mechanism().build()
    step = stepper(system, assemble(system), 0.02, substeps=4, solver=dfx.Midpoint())
    legs = {f"leg{i}": 0.01 for i in range(LEGS)}
    return Environment(
        step, observe, reward, WEIGHT + FORCE, WEIGHT - FORCE, done=astray, randomise=draw if randomise else None, spread=legs,
        episode_length=episode_length,
    )  # fmt: skip
