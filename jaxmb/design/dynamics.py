"""Inverse dynamics where drivers determine the motion: no equation of motion is solved, and no rank decided.

C has as many independent rows as there are velocities, so that C v̇ = Γ alone gives v̇, and Cᵀλ = M v̇ − F the multipliers.
"""

import jax
from jaxtyping import Array, Float

from ..linalg import solve_spd
from ..mechanism import absolute, acceleration_of_bodies, joint_terms, linkage_of, wrench_map
from ..system import State, System, constraint_jacobian, gamma


def multipliers(system: System, states: State) -> Float[Array, "n m"]:
    """λ (n, m) of all rows of a driven mechanism, of least norm where rows are redundant; that of a driver is its effort."""

    def at(state: State) -> Float[Array, " m"]:
        t, q, v = state.t, state.q, state.v
        rows, vdot = _acceleration(system, state)
        reaction = system.mass(t, q) @ vdot - system.intrinsic_force(t, q, v) - system.applied_force(t, q, v)
        return _shared(rows, reaction) / state.scale.span

    return jax.vmap(at)(states)


def joint_forces(system: System, states: State, joint: str) -> Float[Array, "n d"]:
    """The force (n, d) of a joint of a driven mechanism on its body of B, in the world, as `jaxmb.joint_reaction` gives it."""
    free, dim = absolute(system), linkage_of(system).dim

    def at(state: State) -> Float[Array, " d"]:
        there, terms = joint_terms(system, free, state.t, state.q, state.v)
        change = acceleration_of_bodies(system, state, _acceleration(system, state)[1], free)
        intrinsic = free.intrinsic_force(there.t, there.q, there.v)
        reaction = terms.mass @ change - intrinsic - free.applied_force(there.t, there.q, there.v)
        sized = _shared(terms.jacobian / terms.scale[:, None], reaction) / terms.scale
        return (wrench_map(free, terms.jacobian, terms.poses, joint, 1, "world")[0] @ sized)[:dim]

    return jax.vmap(at)(states)


def _acceleration(system: System, state: State) -> tuple[Float[Array, "m nv"], Float[Array, " nv"]]:
    """The rows over their sizes, and v̇."""
    weights = 1 / state.scale.span
    rows = constraint_jacobian(system, state.t, state.q) * weights[:, None]
    rates = gamma(system, state.t, state.q, state.v) * weights
    return rows, solve_spd(rows.T @ rows, rows.T @ rates)


def _shared(rows: Float[Array, "m n"], reaction: Float[Array, " n"]) -> Float[Array, " m"]:
    """λ of least norm with rowsᵀ λ = reaction."""
    return rows @ solve_spd(rows.T @ rows, reaction)
