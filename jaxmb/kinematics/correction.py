"""Bringing a state that is nearly consistent back onto the constraints."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from ..formulation import AbstractFormulation
from ..system import State, System, evaluate_at, position_residual, velocity_residual


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
    t, q, v = state.t, system.normalise(state.q), state.v
    zero = jnp.zeros_like(v)
    terms = evaluate_at(system, t, q, v, state.scale, zero)
    factor = formulation.factorise(terms, keep)
    holonomic = terms.holonomic
    position_factor = factor if holonomic is None else formulation.factorise(terms, keep & holonomic)

    def improve_position(q: Array, _: None) -> tuple[Array, None]:
        step = position_factor.solve(zero, position_residual(system, t, q))[0]
        return system.normalise(q - system.qdot(q, step)), None

    def improve_velocity(v: Array, _: None) -> tuple[Array, None]:
        return v - factor.solve(zero, velocity_residual(system, t, q, v))[0], None

    q = lax.scan(improve_position, q, None, length=iterations)[0]
    v = lax.scan(improve_velocity, v, None, length=iterations)[0]
    return State(t, q, v, state.scale)
