"""The shortest moves that constraints, and coordinates that are fixed, ask for."""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ..foundations import positive_or_one
from ..linalg import ConstrainedFactor, independent_factor, independent_rows, regular_metric, row_norms
from ..system import (
    Scale,
    System,
    constraint_jacobian,
    extent,
    position_residual,
    velocity_residual,
)

if TYPE_CHECKING:
    from .closing import Guess

# Residuals below so many units of rounding of the terms they are sums of are rounding: a product and a sum of a few entries each.
ROUNDING = 8


class LinearEquations(NamedTuple):
    """C x = r in the rows of the constraints, and x = r in those of coordinates that are fixed.

    Attributes:
        mass: M (nv, nv), the metric of the shortest x.
        jacobian: C (m, nv).
        sizes: σ (m,) of the rows.
        extra: rows (k, nv) of what is fixed.
        residual: r (m + k,).
        magnitude: the sizes (nv,) of what C is multiplied by in the residual, from which its rounding follows.
        offset: the other part (m,) of the residual.
        holonomic: mask (m,) of the rows that count; None for all.
    """

    mass: Array
    jacobian: Array
    sizes: Array
    extra: Array
    residual: Array
    magnitude: Array
    offset: Array
    holonomic: Array | None


def position_equations(
    system: System, t: Array, q: Array, scale: Scale, fixed: tuple[int, ...], target: Array
) -> LinearEquations:
    """Those of moves from a pose onto the constraints, that bring fixed coordinates to their values in `target` (nq,)."""
    # What is held is an equation like the others, so that redundant and contradicting holds come under the rank rule as well.
    return LinearEquations(
        mass=system.mass(t, q),
        jacobian=constraint_jacobian(system, t, q),
        sizes=scale.row,
        extra=fixed_rows(system, q, fixed),
        residual=jnp.concatenate([position_residual(system, t, q), (q - target)[np.array(fixed, int)]]),
        magnitude=extent(system, q),
        offset=scale.span,
        holonomic=system.holonomic,
    )


def nearest(
    system: System, t: Array, target: Array, scale: Scale, rank_tol: float, fixed: tuple[int, ...], count: int
) -> Array:
    """The pose q (nq,) on the constraints to which so many shortest moves lead from another one, whose `fixed` coordinates stay.

    The rank is decided at each of them. The derivatives are those of the moves.
    """

    def closer(q: Array, _: None) -> tuple[Array, None]:
        equations = position_equations(system, t, q, scale, fixed, target)
        return system.displaced(q, -shortest_move(system, equations, rank_tol)[0]), None

    return lax.scan(closer, target, None, length=count)[0]


def fixed_rows(system: System, q: Array, fixed: tuple[int, ...]) -> Array:
    """The rows (k, nv) of the derivatives of fixed coordinates with respect to the velocities."""
    return system.by_velocities(q, jnp.eye(system.nq)[np.array(fixed, int)])


def fixed_sizes(metric: Array, extra: Array) -> Array:
    """The sizes σ (k,) of the rows of what is fixed; of one that vanishes at a pose, as of the first number of a quaternion, 1."""
    # Compared in the metric of M like all rows, else holds in metres and in millimetres would be of different rank.
    size = lax.stop_gradient(row_norms(metric, extra))
    return positive_or_one(size)


def consistent_velocities(
    system: System, guess: "Guess", t: Array, q: Array, v: Array, scale: Scale, mass: Array, jacobian: Array
) -> tuple[Array, Array]:
    """The velocities that satisfy the constraints next to others in the metric of M, fixed ones as they are, and the smallest remainder of the rows."""
    extra = jnp.eye(system.nv)[np.array(guess.fixed_velocities, int)]
    # b, by a function that is evaluated here anyway.
    offset = velocity_residual(system, t, q, jnp.zeros_like(v))

    def closer(v: Array, _: None) -> tuple[Array, Array]:
        equations = LinearEquations(
            mass=mass,
            jacobian=jacobian,
            sizes=scale.row,
            extra=extra,
            residual=jnp.concatenate([velocity_residual(system, t, q, v), jnp.zeros(extra.shape[0])]),
            magnitude=v,
            offset=offset,
            holonomic=None,
        )
        move, gap = shortest_move(system, equations, guess.rank_tol)
        return v - move, gap

    v, gaps = lax.scan(closer, v, None, length=2)  # the second removes the rounding of the first
    return v, gaps[-1]


def shortest_move(system: System, equations: LinearEquations, rank_tol: float) -> tuple[Array, Array]:
    """The shortest x that solves the equations, and how far their rows are from being dependent.

    Where all residuals are rounding and the extra ones zero, only the derivative of x is left: close to a singular pose rounding
    makes a large move.
    """
    mass, jacobian, sizes, extra, residual = equations[:5]
    bound = jnp.abs(jacobian) @ jnp.abs(equations.magnitude) + jnp.abs(equations.offset)
    rounding = ROUNDING * jnp.finfo(mass.dtype).eps * bound
    rounding = lax.stop_gradient(jnp.concatenate([rounding, jnp.zeros(extra.shape[0])]))
    none = jnp.zeros(system.nv)

    def by(factor: ConstrainedFactor) -> tuple[Array, Array]:
        return factor.solve(none, residual)[0], lax.stop_gradient(factor.gap)

    def generally() -> tuple[Array, Array]:
        return by(factor_with_fixed(mass, jacobian, sizes, extra, rank_tol, equations.holonomic))

    if system.layout is None or extra.shape[0]:
        move, gap = generally()
    else:
        # The sparse factor decides nothing about rank; where its certificate fails the dense elimination does.
        acting = system.acting if equations.holonomic is None else system.acting & equations.holonomic
        acting_rows = _acting(jacobian, equations.holonomic)
        factor, full_rank = independent_factor(mass, acting_rows, sizes, acting, rank_tol, system.layout)
        move, gap = lax.cond(full_rank, lambda: by(factor), generally)
    # Value zero, derivative kept: the implicit function theorem holds at the solution as well.
    return move - jnp.where(jnp.all(jnp.abs(residual) <= rounding), lax.stop_gradient(move), 0), gap


def _acting(jacobian: Array, holonomic: Array | None) -> Array:
    """The rows; zero rows, which are never independent, stand for those of velocities, which have no position residual."""
    return jacobian if holonomic is None else jnp.where(holonomic[:, None], jacobian, 0)


def factor_with_fixed(
    mass: Array, jacobian: Array, sizes: Array, extra: Array, rank_tol: float, holonomic: Array | None = None
) -> ConstrainedFactor:
    """The factor of the rows that the rank rule chooses, of the extra rows first; of holonomic ones only, where a mask (m,) is given."""
    # In the metric of all rows: a body without inertia may be held by rows of velocities alone.
    metric, first, m = regular_metric(mass, jacobian), None, jacobian.shape[0]
    jacobian = _acting(jacobian, holonomic)
    if extra.shape[0]:
        jacobian = jnp.concatenate([jacobian, extra])
        sizes = jnp.concatenate([sizes, fixed_sizes(metric, extra)])
        first = jnp.arange(jacobian.shape[0]) >= m  # what is held is held
    in_use = independent_rows(metric, jacobian, sizes, rank_tol, first)
    return ConstrainedFactor(metric, jacobian, sizes, in_use, rank_tol)
