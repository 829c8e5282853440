"""Inertia that moves with a joint alone."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import NonNegative, as_floats, contract
from .force import AbstractForce
from .motion import Motion

Scalar = Float[Array, ""]


class JointInertia(AbstractForce):
    """Inertia that moves with the velocities v of a joint alone, T = ½ a |v|²: f = −a v̇, as of the rotor of a geared drive.

    It adds a JᵀJ to the mass matrix, J = ∂v/∂(velocities of the system), without a coordinate and without a row. A
    rotor that turns n times as fast as its joint and has the moment of inertia I about its axis has a = n² I. Its mass,
    and its inertia as a part of the body that carries it, belong to that body. The rotation of its axis with this body
    is neglected, which is a small effect if n is large. To model all of it, use a body with a `Gear`. In other
    programs: armature (MuJoCo), reflected inertia (Featherstone 2008, section 9.6).

    Args:
        name: its name.
        joint: name of the joint, or "joint.velocity" for one of several.
        inertia: a in kg m² for an angular velocity, in kg for a linear one.
    """

    name: str = eqx.field(static=True)
    joint: str = eqx.field(static=True)
    inertia: Scalar

    @contract
    def __init__(self, name: str, joint: str, inertia: NonNegative):
        self.name, self.joint = name, joint
        self.inertia = as_floats(inertia)

    def speeds(self, motion: Motion) -> Float[Array, " k"]:
        """The velocities with which it moves."""
        return motion.rate(self.joint)[None] if "." in self.joint else motion.joint_rates(self.joint)

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """Zero: its force is part of the mass matrix and of the inertia forces."""
        return jnp.zeros((), motion.q.dtype)

    def value(self, motion: Motion) -> Float[Array, " k"]:
        """f, along each of the velocities.

        Raises:
            ValueError: for a motion without accelerations, such as functions of elements receive.
        """
        if motion.accelerations is None:
            raise ValueError(
                f"The force of '{self.name}' must be read by `jaxmb.force`: it depends on accelerations, which a `Motion` does not know."
            )
        vdot, accelerations = motion.accelerations
        speeds = lambda poses, rates, v: self.speeds(dataclasses.replace(motion, poses=poses, rates=rates, v=v))
        at, change = (motion.poses, motion.rates, motion.v), (motion.rates, accelerations, vdot)
        return -self.inertia * jax.jvp(speeds, at, change)[1]
