"""Bringing a state that is nearly consistent back onto the constraints."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from ..formulation import AbstractFormulation
from ..linalg import ConstrainedFactor
from ..system import State, System, evaluate_at, position_residual, scaled_residuals, velocity_residual


def corrected(
    system: System, formulation: AbstractFormulation, state: State, keep: Bool[Array, " m"], iterations: int
) -> State:
    """The state moved onto the constraints along the shortest way in the formulation's metric.

    q ← q − N M⁻¹C_kᵀ (C_k M⁻¹ C_kᵀ)⁻¹ φ_k for the holonomic rows, then likewise v with C v + b for all rows. C and M are
    taken at the given state and kept, so that `iterations` steps leave an error of order δ^(iterations+1) after a drift
    of size δ. The step is the same for any scaling of the rows.

    Args:
        system: the system.
        formulation: gives the metric.
        state: the state; its time stays.
        keep: mask (m,) of independent rows.
        iterations: number of corrections of q and of v.
    """
    t, v, zero = state.t, state.v, jnp.zeros_like(state.v)

    def once(q: Array, keep: Array) -> _Pass:
        terms = evaluate_at(system, t, q, v, state.scale, zero)
        factor = formulation.factorise(terms, keep)
        position_factor = factor
        if terms.holonomic is not None:
            position_factor = formulation.factorise(terms, factor.keep & terms.holonomic)

        def improve_position(q: Array, _: None) -> tuple[Array, None]:
            step = position_factor.solve(zero, position_residual(system, t, q))[0]
            return system.normalise(q - system.qdot(q, step)), None

        def improve_velocity(v: Array, _: None) -> tuple[Array, None]:
            return v - factor.solve(zero, velocity_residual(system, t, q_new, v))[0], None

        q_new = lax.scan(improve_position, q, None, length=iterations)[0]
        v_new = lax.scan(improve_velocity, v, None, length=iterations)[0]
        rest = _at_rest(system, State(t, q, v, state.scale), factor)
        again = jnp.any(rest)
        return _Pass(jnp.where(again, q, q_new), jnp.where(again, v, v_new), keep & ~rest, factor.gap < NEAR)

    def repeat(found: _Pass, count: Array) -> tuple[_Pass, None]:
        better = lax.cond(eqxi.unvmap_any(found.near), lambda: once(found.q, found.keep), lambda: found)
        near = better.near | (count > 0)
        better = _Pass(better.q, better.v, better.keep, near)
        return jax.tree.map(lambda a, b: jnp.where(found.near, a, b), better, found), None

    # Close to a singular pose the direction of a correction belongs to a pose off the constraints, and rows may turn out to
    # be better left alone; then it is done again, from v. Three times are enough for both.
    found = _Pass(system.normalise(state.q), v, keep, jnp.array(True))
    if not system.m:
        return State(t, found.q, v, state.scale)
    found = lax.scan(repeat, found, jnp.arange(3))[0]
    return State(t, found.q, found.v, state.scale)


class _Pass(eqx.Module):
    q: Array
    v: Array
    keep: Bool[Array, " m"]
    near: Bool[Array, ""]


def _at_rest(system: System, state: State, factor: ConstrainedFactor) -> Bool[Array, " m"]:
    """Rows that are close to being dependent and hold to rounding, which a correction would amplify."""
    state, factor = lax.stop_gradient((state, factor))
    off = jnp.maximum(*(jnp.abs(factor.vanishing @ r) for r in scaled_residuals(system, state)))
    eps = jnp.finfo(off.dtype).eps
    return (factor.remainders < CLOSE) & (off * factor.remainders <= 4 * eps) & (off <= eps**0.75)


# Distances from being dependent, relative to the reference sizes. Below NEAR corrections are repeated and stages are
# corrected before they are evaluated. Below CLOSE rounding would do more harm than an error along the row.
NEAR = 0.02
CLOSE = 1e-3
