"""The deviations of all coordinates and velocities that independent ones stand for."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import CoordinatePartition
from ..foundations import positive_or_one
from ..linalg import ConstrainedFactor, row_norms
from ..system import State, System, Terms, rows_at, velocity_residual
from .readings import StateReadings, rate_rows, rates


class Tangent(eqx.Module):
    """The deviations that states stand for: δq = q x, δr = r x with δq = N δr, δv = v x."""

    q: Float[Array, "... nq n"]
    r: Float[Array, "... nv n"]
    v: Float[Array, "... nv n"]


def tangent_of(
    system: System, state: State, readings: StateReadings, rank_tol: float
) -> tuple[Tangent, Float[Array, "n n"], tuple[Bool[Array, "..."], ...]]:
    """What deviations the states stand for, the metric of M in them, and which of positions and velocities are independent."""
    t, q, v = state.t, state.q, state.v
    partition = CoordinatePartition(rank_tol=rank_tol)
    terms = rows_at(system, t, q, state.scale.row)
    in_use = partition.prepare(terms)
    of_positions = in_use if system.holonomic is None else in_use & system.holonomic
    k, n = len(readings.positions), readings.size

    velocity, velocity_fits = _factor(partition, terms, in_use, rate_rows(readings.velocities, system, t, q))
    position, position_fits = velocity, velocity_fits
    # The same rows, the same factors: a second factorisation only where velocity constraints make a difference.
    if not (system.holonomic is None and readings.same_names):
        position, position_fits = _factor(partition, terms, of_positions, rate_rows(readings.positions, system, t, q))
    zero, none = jnp.zeros_like(v), jnp.zeros(system.m, q.dtype)
    displaced = jax.vmap(lambda x: position.solve(zero, jnp.concatenate([none, x]))[0], out_axes=1)(jnp.eye(k))
    displaced = jnp.concatenate([displaced, jnp.zeros((system.nv, n - k), q.dtype)], axis=1)

    def opened(q: Array) -> Array:
        """What is left of the velocity rows, and the velocities that are read."""
        return jnp.concatenate(
            [velocity_residual(system, t, q, v), rates(readings.velocities, system, t, q, v)],
        )

    def faster(displaced: Array, x: Array) -> Array:
        # C δv + ∂(C v + b)/∂q N δr = 0 and δṡ as asked for: S δs + T_v δṡ in one solve.
        change = jax.jvp(opened, (q,), (system.qdot(q, displaced),))[1]
        return velocity.solve(zero, jnp.concatenate([none, x]) - change)[0]

    velocities = jax.vmap(faster, in_axes=1, out_axes=1)(displaced, jnp.eye(n, dtype=q.dtype)[k:])
    changed = jax.vmap(lambda r: system.qdot(q, r), in_axes=1, out_axes=1)(displaced)
    parts = (displaced[:, :k], velocities[:, k:])
    metric = jax.scipy.linalg.block_diag(*(part.T @ terms.mass @ part for part in parts))
    return Tangent(changed, displaced, velocities), metric, (position_fits, velocity_fits)


def _factor(
    partition: CoordinatePartition, terms: Terms, in_use: Bool[Array, " m"], rows: Float[Array, "k nv"]
) -> tuple[ConstrainedFactor, Bool[Array, "..."]]:
    """The factors of the rows in use with those of the readings, and which of the latter are independent.

    After them the mask holds whether all velocities follow.
    """
    metric, m = partition.metric(terms), in_use.shape[0]
    sizes = row_norms(metric, rows)
    factor = ConstrainedFactor(
        metric,
        jnp.concatenate([jnp.where(in_use[:, None], terms.jacobian, 0), rows]),
        # A reading of any unit counts as one row of unit length; its size decides nothing but rank.
        jnp.concatenate([terms.scale, lax.stop_gradient(positive_or_one(sizes))]),
        jnp.concatenate([in_use, jnp.ones(rows.shape[0], bool)]),
        partition.rank_tol,
    )
    complete = jnp.sum(factor.in_use) == metric.shape[0]
    return factor, jnp.append(factor.in_use[m:], complete)
