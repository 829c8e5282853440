"""A leg of five bars hops on the spot: two motors at the hips, a trunk on a vertical rail, a foot on springy ground."""

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ... import planar as P
from ...foundations import Key
from ...kinematics import assemble
from ...mechanism import Motion
from ...output import position, velocity
from ...simulation import stepper
from ...system import State, System
from ..environment import Environment
from .shared import between, with_heavier_bodies, with_params

FOOT = "left_shank.b"
TORQUE = 8.0  # N m, about twice what the weight asks for
# Ground: stiffness in N/m, damping in s/m (Hunt and Crossley, Coefficient of restitution interpreted as damping in vibroimpact, Journal of
# Applied Mechanics 42, 1975), friction reached at that speed in m/s, and half the depth in m over which contact begins smoothly.
STIFFNESS, DAMPING, SLIDING, SMOOTH = 2e4, 0.8, 0.25, 1e-3
SHORTEST = 0.15  # m, of the trunk above the foot: below, the leg is folded, or goes round
# Knees outwards, the foot 0.3 m below the trunk.
START = {"rail": 0.32, "left_hip": -2.16, "left_knee": 1.41, "right_hip": -0.98, "right_knee": -1.41}


def ground_force(motion: Motion) -> Array:
    """The ground's force on the foot, and no torque: k δ (1 − d ḣ) upwards, friction across, δ the depth of the foot."""
    height, (across, upwards) = motion.position(FOOT)[1], motion.velocity(FOOT)
    depth = 0.5 * (jnp.sqrt(height**2 + SMOOTH**2) - height)
    normal = STIFFNESS * depth * jax.nn.relu(1 - DAMPING * upwards)
    return jnp.stack([-motion.params["friction"] * normal * jnp.tanh(across / SLIDING), normal, jnp.zeros(())])


def mechanism() -> P.Mechanism:
    """Trunk, two thighs and two shanks that share the foot."""
    rod, hinge = P.Body.rod, P.Revolute
    trunk = P.Body("trunk", mass=3.0, shape=P.Box((0.16, 0.08)), points={"left": (-0.06, 0.0), "right": (0.06, 0.0)})
    bodies = [trunk]
    joints: list[P.Prismatic | P.Revolute] = [P.Prismatic("rail", "ground", "trunk", axis=(0.0, 1.0))]
    for side in ("left", "right"):
        bodies += [rod(f"{side}_thigh", 0.3, 0.18), rod(f"{side}_shank", 0.2, 0.22)]
        joints.append(hinge(f"{side}_hip", f"trunk.{side}", f"{side}_thigh.a"))
        joints.append(hinge(f"{side}_knee", f"{side}_thigh.b", f"{side}_shank.a"))
    joints.append(hinge("foot", FOOT, "right_shank.b"))
    return P.Mechanism(
        bodies,
        joints,
        forces=[
            P.Force("floor", FOOT, ground_force),
            P.SpringDamper("tendon", "trunk", FOOT, stiffness=400.0, damping=4.0, length=0.4),  # carries the weight
        ]
        + [P.JointFriction(f"{side}_gear", f"{side}_hip", viscous=0.05) for side in ("left", "right")],
        actuators=[P.Motor(f"{side}_motor", f"{side}_hip") for side in ("left", "right")],
        gravity=(0.0, -9.81),
        params={"friction": 0.8},
    )


def observe(system: System, state: State) -> Array:
    """Coordinates, velocities, and the foot's position and velocity."""
    return jnp.concatenate([state.q, state.v, position(system, state, FOOT), velocity(system, state, FOOT)])


def reward(system: System, state: State, action: Array) -> dict[str, Array]:
    """Heights of trunk and foot count, and effort."""
    height = position(system, state, "trunk")[1]
    clearance = jax.nn.relu(position(system, state, FOOT)[1])
    return {"height": height / 0.3, "clearance": clearance / 0.1, "effort": -0.05 * jnp.sum(action**2)}


def folded(system: System, state: State) -> Array:
    """Whether the trunk is too low above the foot."""
    return (position(system, state, "trunk") - position(system, state, FOOT))[1] < SHORTEST


def draw(rng: Key, system: System) -> System:
    """Masses to ±20 %, the ground's friction from 0.4 to 1."""
    first, second = jax.random.split(rng)
    return with_params(with_heavier_bodies(first, system), friction=between(second, 0.4, 1.0))


def five_bar_hopper(episode_length: int | None, randomise: bool) -> Environment:
    """The task, 20 ms a step."""
    system = mechanism().build()
    step = stepper(system, assemble(system, START), 0.02, substeps=20, solver=dfx.Midpoint())
    spread = {name: 0.02 if name == "rail" else 0.05 for name in system.coordinates}
    return Environment(
        step, observe, reward, TORQUE, done=folded, randomise=draw if randomise else None, spread=spread, episode_length=episode_length
    )  # fmt: skip
