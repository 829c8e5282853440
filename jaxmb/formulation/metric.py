"""Rows orthonormal in a metric of the user's choice, and the multipliers in it."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..foundations import Positive, contract, expect_available, expect_shape, positive_or_one
from ..linalg import ConstrainedFactor, row_norms
from ..system import System, Terms


def metric_factor(
    terms: Terms, in_use: Bool[Array, " m"], weight: Float[Array, "nv nv"] | None = None
) -> ConstrainedFactor:
    """The independent rows, orthonormal in the metric W; the identity if None."""
    if weight is None:
        weight = jnp.eye(terms.force.shape[0], dtype=terms.force.dtype)
    expect_shape("`weight`", weight, terms.mass.shape)
    # σ belongs to the metric of M. Rows are in use or not already, so that sizes only scale here and need no derivative, which at a zero
    # row would be NaN.
    sizes = lax.stop_gradient(row_norms(weight, terms.jacobian))
    return ConstrainedFactor(weight, terms.jacobian, positive_or_one(sizes), in_use, 0.0)


def multipliers_of(factor: ConstrainedFactor, reaction: Float[Array, " nv"]) -> Float[Array, " m"]:
    """λ of the independent rows with C_kᵀλ = reaction, by the pseudo-inverse of C_kᵀ in the factor's metric."""
    # With γ = 0 and the force −r: W x − C_kᵀλ = −r with C_k x = 0, so that x = 0 if r = C_kᵀλ, and else its part outside range(C_kᵀ).
    return factor.solve(-reaction, jnp.zeros_like(factor.scale))[1]


@contract
def length_metric(system: System, rotations: Sequence[str], length: Positive) -> Float[Array, "nv nv"]:
    """W = diag(1 or ℓ²): velocities in rad/s count as ℓ times as many m/s (Aghili, eqs. 8–10).

    Args:
        system: the system.
        rotations: names of the velocities that are rates of angles.
        length: characteristic length ℓ in m.

    Raises:
        ValueError: for a name that the system does not have.
    """
    expect_available("Argument `rotations` must name velocities", rotations, system.velocities)
    return jnp.diag(jnp.where(np.isin(system.velocities, list(rotations)), jnp.asarray(length) ** 2, 1.0))
