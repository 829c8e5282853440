"""A Stewart platform balances a pole and brings it to a place: six legs of cylinders and pistons."""

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

G = 9.81
# Feet on the ground and heads below the plate, in pairs that alternate, and the plate's height, in m.
HEIGHT = 0.8
around = lambda radius, angles: radius * np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad(angles)])
FEET, HEADS = around(0.7, [50, 70, 170, 190, 290, 310]), around(0.35, [10, 110, 130, 230, 250, 350])
PLATE, CYLINDER, PISTON, POLE = 8.0, 1.0, 0.6, 0.8  # masses in kg
BARREL, ROD, LENGTH = 0.5, 0.5, 1.0  # lengths in m, of parts of a leg and of the pole
LEGS = tuple(f"leg{i}" for i in range(len(FEET)))
FORCE = 80.0  # N, of a leg around what carries the weight in the middle
# In m: the error that halves the reward, and the error and the lean of the pole's tip that end the episode.
NEAR, FAR, TILTED = 0.1, 0.4, 0.5


def weight() -> float:
    """The force in N with which each leg carries the weight, by virtual work of a lift."""
    length = np.sqrt(np.sum((HEADS[0] - FEET[0])[:2] ** 2) + HEIGHT**2)
    rise = HEIGHT / length  # of a leg's direction, and how much longer a leg gets
    turn = (1 - rise**2) / length  # of that by the height
    legs = CYLINDER * BARREL / 2 * turn + PISTON * (1 - ROD / 2 * turn)
    return G * ((PLATE + POLE) / len(LEGS) + legs) / rise


def mechanism() -> S.Mechanism:
    """The plate on six legs, each a cylinder on a Cardan joint, a piston in it and a ball; a pole on a Cardan joint in the middle."""
    top = np.array([0.0, 0.0, HEIGHT])
    bodies = [
        S.Body("plate", PLATE, shape=S.Cylinder(0.03, 0.4), position=top),
        S.Body("pole", POLE, shape=S.Cylinder(LENGTH, 0.02), position=top),
    ]
    joints = [S.Universal("foot", "plate", "pole", axis=(0.0, 1.0, 0.0), axis_b=(1.0, 0.0, 0.0))]
    forces = [S.JointFriction("pin", "foot", viscous=0.01)]
    for i, (leg, foot, head) in enumerate(zip(LEGS, FEET, HEADS, strict=True)):
        way = top + head - foot
        up = way / np.linalg.norm(way)
        rim = np.cross([0.0, 0.0, 1.0], foot) / np.linalg.norm(foot)
        across = np.cross(rim, up) / np.linalg.norm(np.cross(rim, up))
        turned = np.stack([across, np.cross(up, across), up], axis=1)
        bodies += [
            S.Body(f"cylinder{i}", CYLINDER, shape=S.Cylinder(BARREL, 0.03), position=foot, orientation=turned),
            S.Body(f"piston{i}", PISTON, shape=S.Cylinder(ROD, 0.015), position=top + head - ROD * up, orientation=turned),
        ]  # fmt: skip
        joints += [
            S.Universal(f"base{i}", ("ground", foot), f"cylinder{i}.a", axis=rim),
            S.Prismatic(leg, f"cylinder{i}.a", f"piston{i}.b"),
            S.Spherical(f"head{i}", f"piston{i}.b", ("plate", head)),
        ]
        forces.append(S.JointFriction(f"oil{i}", leg, viscous=40.0))
    motors = [S.Motor(f"motor{i}", leg) for i, leg in enumerate(LEGS)]
    return S.Mechanism(bodies, joints, [], forces, motors, (0.0, 0.0, -G), params={"place": np.zeros(2)})


def off(system: System, state: State) -> Array:
    """From its place to the middle of the plate (3,)."""
    return position(system, state, "plate") - jnp.append(system.params.params["place"], HEIGHT)


def lean(system: System, state: State) -> Array:
    """From above the middle of the plate to the tip of the pole (2,)."""
    return (position(system, state, "pole.b") - position(system, state, "plate"))[:2]


def observe(system: System, state: State) -> Array:
    """Lengths of the legs and their rates, how far the plate is off and its velocity, lean of the pole and the velocity of its tip."""
    legs = np.array([system.coordinates.index(name) for name in LEGS])
    rates = np.array([system.velocities.index(name) for name in LEGS])
    moving = velocity(system, state, "plate"), lean(system, state), velocity(system, state, "pole.b")
    return jnp.concatenate([state.q[legs], state.v[rates], off(system, state), *moving])


def reward(system: System, state: State, action: Array) -> dict[str, Array]:
    """Uprightness and nearness, each from 0 to 1, and effort."""
    upright = 1 / (1 + jnp.sum(lean(system, state) ** 2) / NEAR**2)
    return {"upright": upright, **tracking_reward(off(system, state), NEAR, action)}


def fallen(system: System, state: State) -> Array:
    """Whether the pole leans too far, or the plate is too far from its place."""
    far = jnp.sum(off(system, state) ** 2) > FAR**2
    return far | (jnp.sum(lean(system, state) ** 2) > TILTED**2)


def draw(rng: Key, system: System) -> System:
    """Masses to ±20 %, and a place up to 10 cm from the middle in both directions."""
    mass, place = jax.random.split(rng)
    return with_params(with_heavier_bodies(mass, system), place=between(place, -0.1, 0.1, (2,)))


def stewart_balancing(episode_length: int | None, randomise: bool) -> Environment:
    """The task, 20 ms a step."""
    system = mechanism().build()
    step = stepper(system, assemble(system), 0.02, substeps=4, solver=dfx.Midpoint())
    starts = {name: 0.05 for name in system.coordinates if name.startswith("foot.")}
    return Environment(
        step, observe, reward, weight() + FORCE, weight() - FORCE, done=fallen, randomise=draw if randomise else None,
        spread=starts, episode_length=episode_length,
    )  # fmt: skip
