"""The inertia of a mechanism."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..system import AbstractInertia, Rate
from .linkage import AbstractLinkage
from .structure import Numbers

Scalar = Float[Array, ""]


class LinkageInertia(AbstractInertia):
    """Inertia and potential of the bodies of a linkage; `params` are its `Numbers`."""

    linkage: AbstractLinkage

    def mass(self, t: Scalar, q: Array, params: Numbers, rate: Rate | None, nv: int) -> Float[Array, "nv nv"]:
        """M(q)."""
        return self.linkage.mass(t, q, params)

    def products(
        self, t: Scalar, q: Array, directions: Float[Array, "k nv"], params: Numbers, rate: Rate | None
    ) -> Float[Array, "k nv"]:
        """The momenta of several velocities."""
        return self.linkage.momenta(q, directions, params)

    def force(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> Float[Array, " nv"]:
        """Inertia forces and those of gravity and springs."""
        return self.linkage.intrinsic_force(t, q, v, params)

    def solve(self, t: Scalar, q: Array, force: Float[Array, " nv"], params: Numbers) -> Float[Array, " nv"] | None:
        """M⁻¹ f by articulated inertias, where bodies are evaluated recursively and are many; else None."""
        return self.linkage.solved(q, force, params)

    def energy(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> tuple[Scalar, Scalar]:
        """Kinetic energy; potential energy of gravity and springs."""
        motion = self.linkage.motion(t, q, v, params)
        # ½ tr(Ẋ J Ẋᵀ) of each body without the ground: J is the pseudo-inertia matrix, which does not move in the
        # body's frame.
        rates = motion.rates[1:]
        kinetic = 0.5 * jnp.sum(rates * (rates @ params.inertia))
        return kinetic, self.linkage.potential_energy(motion)

    def lagrangian(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> Scalar:
        """T − V."""
        kinetic, potential = self.energy(t, q, v, params, rate)
        return kinetic - potential

    def explicit_power(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> Scalar:
        """Zero: no potential reads the time."""
        return jnp.zeros_like(t)
