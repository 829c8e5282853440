"""The rank rule: which rows of a constraint Jacobian are independent.

Rows are compared in the metric of the mass matrix and in units of a reference size σ each, fixed when a state is
assembled, so that one absolute cut-off holds for all of them:

    A = diag(1/σ) C M^(−1/2)

σ_i is the size ‖C_i M^(−1/2)‖ at the pose and nearby (`jaxmb.system.measure`), so that it is not zero where the row vanishes
at a singular pose. A has no unit: measuring lengths, masses or times otherwise, scaling, duplicating or permuting rows, and
bodies without connection change nothing. The singular values of A, not of A Aᵀ, are what the cut-off sees.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from ..foundations import positive_or_one, quotient
from .elimination import Eliminated
from .root import inverse_root
from .small import small

# Just above it an acceleration near a singular pose errs by rounding/tol, or by 3e-13/tol if the velocity is that inexact;
# just below it, where rows are restored by their derivative, by the order of tol.
# It is a matter of correctness, not of taste: with 1e-12 a parallelogram 1e-5 beside its singular pose has a gradient of 2e5 in place of
# −1.68.
RANK_TOL = 2.5e-7
# A mass matrix is singular where a pivot, relative to its diagonal, is rounding: by so many units of the precision.
SINGULAR = 100
# No cut-off is below so many units of the precision: rounding makes remainders of rows that follow from others of some of these.
UNITS = 1e3
# A velocity whose inertia is so small beside that of others in its rows counts as without inertia: rows that differ by √LIGHT in the metric
# only would come near to the cut-off.
LIGHT = (10 * RANK_TOL) ** 2
# An entry takes part in a row from this size on, rows and columns being scaled to largest entries of 1, whatever their units, by so many
# turns, each of which halves the orders of magnitude that are left (Ruiz 2001, RAL-TR-2001-034).
PART, BALANCING = 1e-2, 4
# How often sizes are handed on between rows and coordinates without mass: across so many of these in a chain.
TURNS = 3


def cutoff(rank_tol: float, dtype: DTypeLike) -> float:
    """`rank_tol`, but never below what the precision of `dtype` can tell from zero."""
    return max(rank_tol, UNITS * float(jnp.finfo(dtype).eps))


def stiffened(
    mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"], scale: Float[Array, " m"]
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv m"]]:
    """M + CᵀΣ⁻²C and CᵀΣ⁻², Σ = diag(σ).

    If M is positive semidefinite, the first is positive definite exactly where M is so on null(C). Adding the second times Γ
    to F leaves M v̇ = F + Cᵀλ, C v̇ = Γ with the same solution.
    """
    weighted = (jacobian / scale[:, None] ** 2).T
    return mass + weighted @ jacobian, weighted


def regular_metric(mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"]) -> Float[Array, "nv nv"]:
    """M where it is positive definite by more than `LIGHT`, else M with the constraint rows added, see `stiffened`.

    The size of a row is then that in the diagonal of M, as far as it has masses; what it connects them to takes part from
    there on, for a few rows in turn. Rank and reactions are the same in any metric: one that is nearly singular has too few digits for them.
    """
    all_heavy, stiff = _stiffened_by_inertia(mass, jacobian)
    return jnp.where(all_heavy & _definite(mass, inverse_root(mass)), mass, stiff)


def metric_root(mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"]) -> Float[Array, "nv nv"]:
    """R with R M Rᵀ = I, of `regular_metric` in place of M."""
    all_heavy, stiff = _stiffened_by_inertia(mass, jacobian)
    # As two lanes of one function, not one after the other: it is large.
    root, other = jax.vmap(inverse_root)(jnp.stack([mass, stiff]))
    return jnp.where(all_heavy & _definite(mass, root), root, other)


def _stiffened_by_inertia(mass: Array, jacobian: Array) -> tuple[Bool[Array, ""], Float[Array, "nv nv"]]:
    """Whether no velocity is light beside others in its rows, and M with the constraint rows added."""
    all_heavy, sizes = _sizes_by_inertia(*lax.stop_gradient((jnp.diagonal(mass), jacobian**2)))
    return all_heavy, stiffened(mass, jacobian, sizes)[0]


def _definite(mass: Array, root: Array) -> Bool[Array, ""]:
    """Whether M, of which the inverse root is given, is positive definite by more than `LIGHT`."""
    # Cholesky's pivots relative to the diagonal of M: NaN where M is indefinite, which compares as false, so that the stiffened matrix is taken.
    pivots = 1 / (jnp.diagonal(root) ** 2 * jnp.diagonal(mass))
    return jnp.all(pivots > _least_inertia(mass.dtype))


def _least_inertia(dtype: DTypeLike) -> float:
    """`LIGHT`, but never below rounding."""
    return max(LIGHT, SINGULAR * float(jnp.finfo(dtype).eps))


@small
def _sizes_by_inertia(
    inertia: Float[Array, " nv"], squared: Float[Array, "m nv"], quick: bool
) -> tuple[Bool[Array, ""], Float[Array, " m"]]:
    """Whether no velocity is light beside others in its rows, of which the squares are given, and the sizes of rows in `regular_metric`."""
    heavy = inertia > _least_inertia(inertia.dtype) * _inertia_beside(inertia, squared)
    all_heavy, inertia = jnp.all(heavy), jnp.where(heavy, inertia, 0)
    squared = _without_rounding(inertia, squared)

    def turn(_: object, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        inertia, sizes = carry
        heavy = inertia > 0
        new = jnp.sum(jnp.where(heavy, squared / jnp.where(heavy, inertia, 1), 0), axis=1)
        # A row keeps the first size it gets: that by the masses nearest to it.
        sizes = jnp.where(sizes > 0, sizes, new)
        pull = jnp.sum(quotient(squared, sizes[:, None]), axis=0)
        return jnp.where(heavy, inertia, pull), sizes

    inertia, sizes = lax.fori_loop(0, TURNS, turn, (inertia, jnp.zeros(squared.shape[0], inertia.dtype)))
    heaviest = jnp.max(inertia, initial=0)
    alone = jnp.sum(squared, axis=1) / positive_or_one(heaviest)  # rows without any mass
    sizes = jnp.where(sizes > 0, sizes, alone)
    return all_heavy, jnp.sqrt(positive_or_one(sizes))


def _without_rounding(inertia: Float[Array, " nv"], squared: Float[Array, "m nv"]) -> Float[Array, "m nv"]:
    """The squares of the entries that are more than rounding beside others of their row, as they stand and in the metric of M.

    A velocity without mass that rounding ties to masses would count as nearly free; and a row in mm on which an angle with inertia acts by rounding only would take
    its size from that. A velocity without inertia has the unit that balances its column.
    """
    heavy = inertia > 0

    def turn(_: object, balanced: Array) -> Array:
        balanced = balanced / positive_or_one(jnp.max(balanced, axis=1, keepdims=True, initial=0))
        column = positive_or_one(jnp.max(balanced, axis=0, initial=0))
        return jnp.where(heavy, balanced, balanced / jnp.sqrt(column))

    balanced = lax.fori_loop(0, BALANCING, turn, jnp.where(heavy, squared / jnp.where(heavy, inertia, 1), squared))
    least = (SINGULAR * jnp.finfo(inertia.dtype).eps) ** 2
    rounding = least * jnp.max(squared, axis=1, keepdims=True, initial=0)
    squared = jnp.where(squared > rounding, squared, 0)
    return jnp.where(balanced > least * jnp.max(balanced, axis=1, keepdims=True, initial=0), squared, 0)


def _inertia_beside(inertia: Float[Array, " nv"], squared: Float[Array, "m nv"]) -> Float[Array, " nv"]:
    """For each velocity the largest inertia M_kk (C_ij/C_ik)² that its rows, of which the squares are given, connect it to.

    Of those that are larger as they stand too: beside an entry that vanishes at a pose, as of a particle on a rod that hangs, any inertia looks small.
    """

    def turn(_: object, balanced: Array) -> Array:
        largest = [positive_or_one(jnp.max(balanced, axis=axis, keepdims=True, initial=0)) for axis in (0, 1)]
        return balanced / jnp.sqrt(largest[0] * largest[1])

    balanced = lax.fori_loop(0, BALANCING, turn, squared)
    # What is rounding in the metric of M takes no part, whatever the units; in M itself rounding is no inertia.
    eps = SINGULAR * jnp.finfo(inertia.dtype).eps
    sizes = squared / positive_or_one(jnp.maximum(inertia, eps * jnp.max(inertia, initial=0)))
    takes_part = (balanced > PART**2) & (sizes > eps**2 * jnp.max(sizes, axis=1, keepdims=True, initial=0))
    beside = jnp.where(takes_part, inertia / positive_or_one(squared), 0)
    larger = math.sqrt(LIGHT) * inertia > inertia[:, None]
    part = jnp.where(takes_part, squared, 0)
    return jnp.max(part * jnp.max(jnp.where(larger, beside[:, None], 0), axis=2, initial=0), axis=0, initial=0)


def metric_rows(
    mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"], scale: Float[Array, " m"]
) -> Float[Array, "m nv"]:
    """A = diag(1/σ) C M^(−1/2), up to a rotation of its columns."""
    return (jacobian / scale[:, None]) @ inverse_root(mass).T


def row_norms(mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"]) -> Float[Array, " m"]:
    """‖C_i M^(−1/2)‖, the sizes of rows at one pose."""
    return jnp.linalg.norm(jacobian @ inverse_root(mass).T, axis=1)


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
    rows = lax.stop_gradient(metric_rows(mass, jacobian, scale))
    tol = jnp.asarray(cutoff(rank_tol, rows.dtype), rows.dtype)
    return _chosen(rows, tol, *(() if first is None else (first,)))[0]


@small
def _chosen(rows: Array, tol: Array, *first: Array, quick: bool) -> list[Array]:
    return [Eliminated.of(rows).eliminate(tol, *first).chosen]
