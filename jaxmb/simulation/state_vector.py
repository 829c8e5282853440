"""The vector that is integrated."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class StateVector(eqx.Module):
    """Coordinates, velocities, work and the state of a controller as one vector, or their rates.

    Attributes:
        packed: all of them, one after the other, behind any leading axes.
        nq: number of coordinates.
        nv: number of velocities.
    """

    packed: Float[Array, "... n"]
    nq: int = eqx.field(static=True)
    nv: int = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        q: Float[Array, "... nq"],
        v: Float[Array, "... nv"],
        work: Float[Array, "..."],
        control: Float[Array, "... nz"] | None = None,
    ) -> "StateVector":
        """The parts as one vector; without a controller that remembers anything it ends with the work."""
        # One array: arithmetic of stages is one operation each, and a tape has one array of states.
        parts = [q, v, work[..., None]] + ([] if control is None else [control])
        return cls(jnp.concatenate(parts, axis=-1), q.shape[-1], v.shape[-1])

    @property
    def q(self) -> Float[Array, "... nq"]:
        """Coordinates."""
        return self.packed[..., : self.nq]

    @property
    def v(self) -> Float[Array, "... nv"]:
        """Velocities."""
        return self.packed[..., self.nq : self.nq + self.nv]

    @property
    def work(self) -> Float[Array, "..."]:
        """Work."""
        return self.packed[..., self.nq + self.nv]

    @property
    def control(self) -> Float[Array, "... nz"]:
        """State of the controller."""
        return self.packed[..., self.nq + self.nv + 1 :]

    def like(self, packed: Float[Array, "... n"]) -> "StateVector":
        """Other numbers as a vector of the same parts."""
        return StateVector(packed, self.nq, self.nv)

    def with_qv(self, q: Float[Array, "... nq"], v: Float[Array, "... nv"]) -> "StateVector":
        """The vector with other coordinates and velocities."""
        rest = self.packed[..., self.nq + self.nv :]
        return self.like(jnp.concatenate([q, v, rest], axis=-1))

    def with_control(self, control: Float[Array, "... nz"]) -> "StateVector":
        """The vector with another state of the controller."""
        rest = self.packed[..., : self.nq + self.nv + 1]
        return self.like(jnp.concatenate([rest, control], axis=-1))

    def where(self, condition: Array, other: "StateVector") -> "StateVector":
        """The state where the condition, one for each of the leading axes, holds, else another."""
        return self.like(jnp.where(condition[..., None], self.packed, other.packed))

    def plus(self, change: "StateVector", factor: Array | float) -> "StateVector":
        """The sum with a multiple of another vector."""
        return self.like(self.packed + factor * change.packed)

    @property
    def finite(self) -> Array:
        """Whether all numbers are finite (…,)."""
        return jnp.all(jnp.isfinite(self.packed), axis=-1)
