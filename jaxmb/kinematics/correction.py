"""Bringing a state that is nearly consistent back onto the constraints."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..system import evaluate_at, position_residual, State, System, velocity_residual


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
    for _ in range(iterations):
        step = position_factor.solve(zero, position_residual(system, t, q))[0]
        q = system.normalise(q - system.qdot(q, step))
    for _ in range(iterations):
        v = v - factor.solve(zero, velocity_residual(system, t, q, v))[0]
    return State(t, q, v, state.scale)
