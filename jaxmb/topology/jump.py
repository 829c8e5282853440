"""Jumps of velocity by impulsive constraint forces."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..formulation import KKT, CoordinatePartition
from ..linalg import ConstrainedFactor, independent_rows, projector, regular_metric
from ..system import State, System, Terms, evaluate

METHODS = ("full", "projected", "minimal")


def impulse_terms(
    system: System,
    state: State,
    impulse: Float[Array, " nv"],
    restitution: Float[Array, " m"],
    consistent: bool | Bool[Array, ""] = True,
) -> Terms:
    """The equations M Δv = U + CᵀΛ, C Δv = −(1 + e)(C v⁻ + b) of the rows that act, as `Terms`.

    The system is in the mode in which the impulses act. If not `consistent`, M is replaced by the identity.
    """
    terms = evaluate(system, state)
    mass = jnp.where(consistent, terms.mass, jnp.eye(system.nv, dtype=terms.mass.dtype))
    rest = terms.jacobian @ state.v + terms.offset
    return dataclasses.replace(terms, mass=mass, force=impulse, gamma=-(1 + restitution) * rest, lost=None)


def impulses(terms: Terms) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Δv and Λ of the full system (Müller, eqs. 22 and 24); Λ of least norm where rows are redundant."""
    found = KKT().acceleration(terms)
    return found.vdot, found.multipliers


def projected(terms: Terms, persistent: Bool[Array, " m"]) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Δv and Λ₂ in redundant coordinates, persistent constraints being projected out (Müller, eq. 32).

    With N₁ the M-orthogonal projector on null(C₁): M Δv = N₁ᵀ(U + C₂ᵀΛ₂) + M C₁⁺γ₁ and C₂ Δv = γ₂. The right-hand side has
    N₁ᵀU, and C₁⁺γ₁ where the persistent constraints demand a jump too.
    """
    metric, jacobian = regular_metric(terms.mass, terms.jacobian), terms.jacobian
    first = jnp.where(persistent[:, None], jacobian, 0)
    keep = independent_rows(metric, first, terms.scale)
    factor = ConstrainedFactor(metric, first, terms.scale, keep)
    onto = projector(factor)
    particular = factor.solve(jnp.zeros_like(terms.force), jnp.where(persistent, terms.gamma, 0))[0]
    rows = jnp.where(persistent[:, None], 0, jacobian) @ onto
    gamma = jnp.where(persistent, 0, terms.gamma - jacobian @ particular)
    reduced = dataclasses.replace(terms, jacobian=rows, gamma=gamma, force=onto.T @ terms.force)
    step, multipliers = impulses(reduced)
    return step + particular, multipliers


def minimal(terms: Terms, persistent: Bool[Array, " m"]) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Δv and Λ₂ in independent velocities of the persistent constraints (Müller, eq. 37).

    F₁ᵀM F₁ Δs = F₁ᵀ(U + C₂ᵀΛ₂), C₂F₁ Δs = γ₂, with F₁ = Dᵀ from an independent subset of the persistent rows, chosen, like the
    independent velocities, by the projective criterion.
    """
    first = dataclasses.replace(
        terms,
        jacobian=jnp.where(persistent[:, None], terms.jacobian, 0),
        gamma=jnp.where(persistent, terms.gamma, 0),
    )
    parts = CoordinatePartition().partition(first)
    onto, particular = parts.tangent, parts.xi
    rows = jnp.where(persistent[:, None], 0, terms.jacobian)
    gamma = jnp.where(persistent, 0, terms.gamma - terms.jacobian @ particular)
    reduced = dataclasses.replace(terms, mass=parts.mass, force=parts.force, jacobian=rows @ onto.T, gamma=gamma)
    step, multipliers = impulses(reduced)
    return onto.T @ step + particular, multipliers
