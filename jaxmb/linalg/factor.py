"""The interface of every factor of the constrained equations."""

import abc

import equinox as eqx
from jaxtyping import Array, Bool, Float


class AbstractFactor(eqx.Module):
    """The equations M x − C_kᵀ λ = f, C_k x = γ_k of the rows k, factorised once for many right-hand sides.

    Attributes:
        in_use: mask (m,) of the rows k.
        basis: orthonormal rows in use; without columns where they are not made.
    """

    in_use: eqx.AbstractVar[Bool[Array, " m"]]
    basis: eqx.AbstractVar[Float[Array, "m n"]]

    @property
    @abc.abstractmethod
    def gap(self) -> Float[Array, ""]:
        """How far the rows in use are from being dependent."""

    @abc.abstractmethod
    def particular(self, gamma: Float[Array, " m"]) -> Float[Array, " nv"]:
        """The smallest x in the metric with C_k x = γ_k, without derivatives; γ of other rows is not read."""

    @abc.abstractmethod
    def solve(
        self, force: Float[Array, " nv"], gamma: Float[Array, " m"]
    ) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """Returns x (nv,) and λ (m,), which is zero in rows that are not in use; γ of those rows is not read."""
