"""The shortest moves that constraints, and held coordinates, ask for."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ..linalg import ConstrainedFactor, Eliminated, cutoff, independent_factor, inverse_root, regular_metric, row_norms
from ..system import Scale, System


def shortest_move(
    system: System,
    mass: Array,
    jacobian: Array,
    scale: Scale,
    extra: Array,
    residual: Array,
    along: Array,
    beside: Array,
    holonomic: Array | None,
    rank_tol: float,
) -> tuple[Array, Array]:
    """The shortest x with C x = residual in the rows of the constraints and in the extra rows, and how far these are from being dependent.

    Where all residuals are rounding, of C times `along` and of `beside`, and the extra ones zero, only the derivative of x is
    left: close to a singular pose rounding makes a large move.
    """
    rounding = 8 * jnp.finfo(mass.dtype).eps * (jnp.abs(jacobian) @ jnp.abs(along) + jnp.abs(beside))
    rounding = lax.stop_gradient(jnp.concatenate([rounding, jnp.zeros(extra.shape[0])]))
    if holonomic is not None:
        jacobian = jnp.where(holonomic[:, None], jacobian, 0)
    none = jnp.zeros(system.nv)

    def by(factor: ConstrainedFactor) -> tuple[Array, Array]:
        return factor.solve(none, residual)[0], lax.stop_gradient(factor.gap)

    def generally() -> tuple[Array, Array]:
        return by(held_factor(mass, jacobian, scale.row, extra, rank_tol))

    if system.layout is None or extra.shape[0]:
        move, gap = generally()
    else:
        acting = system.acting if holonomic is None else system.acting & holonomic
        factor, sure = independent_factor(mass, jacobian, scale.row, acting, rank_tol, system.layout)
        move, gap = lax.cond(sure, lambda: by(factor), generally)
    move = move - jnp.where(jnp.all(jnp.abs(residual) <= rounding), lax.stop_gradient(move), 0)
    return move, gap


def held_factor(mass: Array, jacobian: Array, sizes: Array, extra: Array, rank_tol: float) -> ConstrainedFactor:
    """The factor of the rows that the rank rule chooses, of the extra rows first."""
    metric, first, m = regular_metric(mass, jacobian), None, jacobian.shape[0]
    if extra.shape[0]:
        jacobian = jnp.concatenate([jacobian, extra])
        sizes = lax.stop_gradient(jnp.concatenate([sizes, row_norms(metric, extra)]))
        first = jnp.arange(jacobian.shape[0]) >= m  # what is held is held
    root = inverse_root(metric)
    rows = lax.stop_gradient(jacobian / sizes[:, None]) @ root.T
    in_use = Eliminated.of(rows).eliminate(cutoff(rank_tol, rows.dtype), first).chosen
    return ConstrainedFactor(metric, jacobian, sizes, in_use, rank_tol, root=root)
