"""States beside singular poses, better determined than by their residuals."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..formulation import BESIDE, EXACT, ITERATIONS, OFFSETS, WEIGHTS, away_from_pose
from ..foundations import program
from ..linalg import ConstrainedFactor
from ..system import (
    Nearby,
    State,
    System,
    constraint_jacobian,
    position_residual,
    velocity_residual,
)
from .shortest_move import consistent_velocities, factor_with_fixed, fixed_rows, fixed_sizes, nearest

if TYPE_CHECKING:
    from .closing import Guess

# With a smallest remainder g of the rows rounding ε of φ leaves ε/g² of v open: below this more than 1e-11.
REFINED = BESIDE / 2


@program
def refined(system: System, guess: "Guess", state: State) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Coordinates and velocities of the motion through a singular pose, near a state beside it that is on the constraints to rounding.

    There rounding ε of φ leaves ε/g of q open and ε/g² of v, g being the smallest remainder of the rows. Six states further along the motion
    are determined better, and so is the state interpolated between them, to O(τ⁶). Fixed coordinates keep their values. Where rows are not close to
    being dependent, or no such states are found, the state stays as it is. Without derivatives.

    Args:
        system: the system, in its mode.
        guess: tells which coordinates and velocities are fixed.
        state: a state on the constraints.
    """
    # The caller keeps the derivatives of the iterations and takes only the value from here.
    system, state = lax.stop_gradient((system, state))
    t, q, v, scale = state.t, state.q, state.v, state.scale
    fixed, fixed_velocities = np.array(guess.fixed, int), np.array(guess.fixed_velocities, int)
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    factor = factor_with_fixed(mass, jacobian, scale.row, jnp.eye(system.nv)[:0], guess.rank_tol)
    direction, (tdot, spacing) = away_from_pose(Nearby(system, state), factor, REFINED)
    near = factor.by_lengths(scale.reach, scale.row_by_length).gap < REFINED

    def sample(offset: Array) -> tuple[Array, Array, Array]:
        at = t + offset * tdot
        return _onto(system, guess, state, at, q + system.qdot(q, offset * spacing * direction))

    def between() -> tuple[Array, Array]:
        weights = jnp.asarray(WEIGHTS, q.dtype)
        # One after the other: one copy of the iterations in the program, which a run seldom needs.
        qs, vs, offs = lax.map(sample, jnp.asarray(OFFSETS, q.dtype))
        better_q, better_v = _on_regular_rows(
            system, guess, state, factor, system.normalise(weights @ qs), weights @ vs
        )
        # Fixed coordinates have their values but for the rounding of the weighted sum.
        better_q, better_v = better_q.at[fixed].set(q[fixed]), better_v.at[fixed_velocities].set(v[fixed_velocities])
        eps = jnp.finfo(q.dtype).eps
        off = jnp.abs(position_residual(system, t, better_q)) / scale.span
        closed = (jnp.max(offs) <= eps**EXACT) & (jnp.max(off) <= eps**EXACT)
        closed &= jnp.all(jnp.isfinite(better_q)) & jnp.all(jnp.isfinite(better_v))
        return jnp.where(closed, better_q, q), jnp.where(closed, better_v, v)

    # Elsewhere the state is determined to rounding already, and samples beside it would add their errors.
    return lax.cond(near & (spacing > 0), between, lambda: (q, v))


def _onto(system: System, guess: "Guess", state: State, t: Array, target: Array) -> tuple[Array, Array, Array]:
    """Coordinates and velocities on the constraints near others, held ones with their values there, and the largest φ/Φ that is left."""
    scale = state.scale
    q = nearest(system, t, system.normalise(target), scale, guess.rank_tol, guess.fixed, ITERATIONS)
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    v, _ = consistent_velocities(system, guess, t, q, state.v, scale, mass, jacobian)
    return q, v, jnp.max(jnp.abs(position_residual(system, t, q)) / scale.span, initial=0)


def _on_regular_rows(
    system: System, guess: "Guess", state: State, factor: ConstrainedFactor, q: Array, v: Array
) -> tuple[Array, Array]:
    """Interpolated coordinates and velocities, moved onto the rows that are not close to being dependent, as exactly as rounding allows."""
    t, regular = state.t, factor.in_use & (factor.remainders >= REFINED)
    holonomic = regular if system.holonomic is None else regular & system.holonomic

    def shift(q: Array, rows: Array, fixed: tuple[int, ...], extra: Array, residual: Array) -> Array:
        jacobian = jnp.concatenate([constraint_jacobian(system, t, q), extra])
        sizes = jnp.concatenate([state.scale.row, fixed_sizes(factor.metric, extra)])
        mask = jnp.concatenate([rows, jnp.ones(len(fixed), bool)])
        values = jnp.concatenate([residual, jnp.zeros(len(fixed))])
        return ConstrainedFactor(factor.metric, jacobian, sizes, mask, guess.rank_tol).particular(values)

    extra = fixed_rows(system, q, guess.fixed)
    q = system.displaced(q, -shift(q, holonomic, guess.fixed, extra, position_residual(system, t, q)))
    extra, velocities = jnp.eye(system.nv)[np.array(guess.fixed_velocities, int)], guess.fixed_velocities
    return q, v - shift(q, regular, velocities, extra, velocity_residual(system, t, q, v))
