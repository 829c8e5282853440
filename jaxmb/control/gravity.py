"""Inputs that hold a mechanism where it is."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..foundations import Limits, contract, floats_or_none
from ..system import System, joint_names
from .controller import AbstractJointController
from .instant import AbstractInstant
from .operational import inverse_dynamics
from .plant import with_dynamics


class GravityCompensation(AbstractJointController):
    """Inputs by which the mechanism, were it at rest, would stay so: of gravity, springs and all other forces at v = 0.

    u = W^(1/2) (D B W^(1/2))⁺ D (−F(t, q, 0)), the inverse dynamics of no motion. Where the actuators cannot hold the mechanism it is
    the input that comes closest.

    Args:
        joints: names of joint coordinates at which the inputs act; None for the system's own inputs.
        limits: as in `Track`.
        model: likewise.
    """

    limits: Float[Array, " nu"] | None
    model: System | None

    @contract
    def __init__(
        self,
        joints: str | Sequence[str] | None = None,
        limits: Limits | None = None,
        model: System | None = None,
    ):
        self.joints = joint_names(joints)
        self.limits = floats_or_none(limits)
        self.model = None if model is None else model.acting_at(self.joints)

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs u."""
        plant = with_dynamics(plant)
        plant = plant if self.model is None else plant.of(self.model)
        # Friction and Coriolis forces are those of no motion: what is left is what a brake would hold.
        rest = plant.with_motion(plant.q, jnp.zeros_like(plant.v))
        return inverse_dynamics(rest, jnp.zeros_like(plant.v), self.limits).u
