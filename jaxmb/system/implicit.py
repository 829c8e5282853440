"""Equations of motion that are solved by factors, and differentiated by products of M and C with single vectors."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..linalg import SparseFactor
from .system import System
from .terms import velocity_residual

Scalar = Float[Array, ""]


def imbalance(
    system: System, t: Scalar, q: Float[Array, " nq"], x: Float[Array, " nv"], multipliers: Float[Array, " m"]
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Cᵀ λ − M x and −C x."""
    # Products by one vjp and one jvp of the velocity residual: C itself is not formed, and b drops out of both.
    residual, rest = lambda v: velocity_residual(system, t, q, v), jnp.zeros_like(x)
    reaction = jax.vjp(residual, rest)[1](multipliers)[0]
    return reaction - system.mass_products(t, q, x[None])[0], -jax.jvp(residual, (rest,), (x,))[1]


@eqx.filter_custom_jvp
def solve_by_factor(
    system: System,
    t: Scalar,
    q: Float[Array, " nq"],
    force: Float[Array, " nv"],
    gamma: Float[Array, " m"],
    factor: SparseFactor,
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """`factor.solve(force, gamma)`, the factors being those of this system and pose.

    With M x − Cᵀ λ = f and C x = γ derivatives obey M ẋ − Cᵀ λ̇ = ḟ − Ṁ x + Ċᵀ λ and C ẋ = γ̇ − Ċ x: where M and C are made
    of many products, one is enough for that.
    """
    return factor.solve(force, gamma)


@solve_by_factor.def_jvp
def _by_products(
    primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    system, t, q, _, _, factor = primals
    # The primal solution by the rule itself, so that it may be differentiated again.
    solution = solve_by_factor(*primals)
    # Derivatives of the equations at the solution and not of the factors, whose own may be NaN where rows are dependent.
    _, change = eqx.filter_jvp(lambda *at: imbalance(*at, *solution), (system, t, q), tangents[:3])
    rates = [_sum(a, b, x) for a, b, x in zip(change, tangents[3:5], primals[3:5], strict=True)]
    return solution, factor.solve(*rates)


def _sum(a: Array | None, b: Array | None, like: Array) -> Array:
    """The sum of tangents, of which some may not be there."""
    return sum((x for x in (a, b) if x is not None), jnp.zeros_like(like))
