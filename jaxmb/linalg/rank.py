"""The rank rule: which rows of a constraint Jacobian are independent.

Rows are compared in the metric of the mass matrix and in units of a reference size σ each, fixed when a state is
assembled, so that one absolute cut-off holds for all of them:

    A = diag(1/σ) C M̂^(−1/2),   M̂ = M/ρ²,   ρ² = tr(M)/nv
    σ_i² = ‖C_i M̂^(−1/2)‖² + ‖M̂^(−1/2) (∂C_i/∂q · N) M̂^(−1/2)‖_F²

The curvature term keeps σ_i away from zero where the row itself vanishes at a singular pose. Scaling, duplicating or
permuting rows changes nothing; the singular values of A, not of A Aᵀ, are what the cut-off sees.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .root import inverse_root

# Just above it an acceleration near a singular pose errs by rounding/tol, or by 3e-13/tol if the velocity is that inexact;
# just below it, where rows are restored by their derivative, by the order of tol.
RANK_TOL = 1.4e-7


def cutoff(rank_tol: float, dtype) -> float:
    """`rank_tol`, but never below what the precision of `dtype` can tell from zero."""
    return max(rank_tol, 1e3 * float(jnp.finfo(dtype).eps))


def mean_inertia(mass: Float[Array, "nv nv"]) -> Float[Array, ""]:
    """ρ² = tr(M)/nv, the unit of mass in which rows and corrections are measured."""
    return jnp.trace(mass) / mass.shape[0]


def stiffened(
    mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"], scale: Float[Array, " m"]
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv m"]]:
    """M + ρ²CᵀΣ⁻²C and ρ²CᵀΣ⁻², Σ = diag(σ).

    If M is positive semidefinite, the first is positive definite exactly where M is so on null(C). Adding the second times Γ
    to F leaves M v̇ = F + Cᵀλ, C v̇ = Γ with the same solution.
    """
    weighted = mean_inertia(mass) * (jacobian / scale[:, None] ** 2).T
    return mass + weighted @ jacobian, weighted


def regular_metric(mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"]) -> Float[Array, "nv nv"]:
    """M where it is positive definite, else M with the constraint rows, brought to unit length, added, see `stiffened`."""
    squared = jnp.sum(jacobian**2, axis=1)
    stiff, _ = stiffened(mass, jacobian, jnp.sqrt(jnp.where(squared > 0, squared, 1)))
    return jnp.where(jnp.all(jnp.isfinite(inverse_root(mass))), mass, stiff)


def metric_rows(
    mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"], scale: Float[Array, " m"]
) -> Float[Array, "m nv"]:
    """A = diag(1/σ) C M̂^(−1/2), up to a rotation of its columns."""
    return (jacobian / scale[:, None]) @ inverse_root(mass / mean_inertia(mass)).T


def reference_sizes(
    mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"], curvature: Float[Array, "m nv nv"]
) -> Float[Array, " m"]:
    """The reference size σ of each row; zero for a row that can never act.

    Args:
        mass: a positive definite metric, as a rule M.
        jacobian: C.
        curvature: ∂C_i/∂q · N, the derivative of row i along each velocity.
    """
    root = inverse_root(mass / mean_inertia(mass))
    rows, bends = jacobian @ root.T, root @ curvature @ root.T
    return jnp.sqrt(jnp.sum(rows**2, axis=1) + jnp.sum(bends**2, axis=(1, 2)))


def independent_rows(
    mass: Float[Array, "nv nv"],
    jacobian: Float[Array, "m nv"],
    scale: Float[Array, " m"],
    rank_tol: float = RANK_TOL,
    first: Bool[Array, " m"] | None = None,
) -> Bool[Array, " m"]:
    """A largest set of well-conditioned independent rows, as a mask; its sum is the numerical rank.

    Greedy choice by modified Gram–Schmidt: in turn the row with the largest remainder, as long as that remainder is
    above the cut-off. The choice has no derivative.

    Args:
        mass: M or another positive definite metric.
        jacobian: C.
        scale: the reference sizes σ.
        rank_tol: smallest remainder, relative to σ, of an independent row.
        first: rows that are chosen before any of the others.
    """
    m, n = jacobian.shape
    tol = cutoff(rank_tol, jacobian.dtype)
    rows = lax.stop_gradient(metric_rows(mass, jacobian, scale))

    def pick(carry):
        rest, keep = carry
        size = jnp.sum(rest**2, axis=1)
        if first is not None:
            left = first & (size > tol**2)
            size = jnp.where(jnp.any(left) & ~left, 0, size)
        largest = jnp.max(size)
        chosen = jnp.arange(m) == jnp.argmax(size)
        found = largest > tol**2
        direction = jnp.sum(jnp.where(chosen[:, None], rest, 0), axis=0) * jnp.where(
            found, lax.rsqrt(jnp.where(found, largest, 1)), 0
        )
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            rest = rest - (rest @ direction)[:, None] * direction
        return rest, keep | (chosen & found)

    return repeat(min(m, n), pick, (rows, jnp.zeros(m, bool)))[1]


def repeat(count: int, body, carry):
    """Applies `body` to `carry` `count` times: unrolled while that is short, as a loop beyond, which compiles faster."""
    if count > 4:
        return lax.fori_loop(0, count, lambda _, c: body(c), carry)
    for _ in range(count):
        carry = body(carry)
    return carry
