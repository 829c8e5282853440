"""Regularised multipliers with refinement."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..foundations import Positive, Whole
from ..linalg import RANK_TOL, ConstrainedFactor, inverse_root, solve_spd, stiffened
from ..system import Terms
from .base import AbstractFormulation


class Proximal(AbstractFormulation):
    """Multipliers by the proximal point method: a regularised system, solved again for its residual.

    With M̃ = M + CᵀΣ⁻²C, F̃ = F + CᵀΣ⁻²Γ and the scaled rows A = Σ⁻¹C,

        v̇(λ) = M̃⁻¹(F̃ + Cᵀλ),   λ ← λ + Σ⁻¹ (A M̃⁻¹Aᵀ + μ I)⁻¹ Σ⁻¹ (Γ − C v̇(λ)),

    which converges by μ/(μ + s²) in a direction of singular value s (Rockafellar 1976; for constrained dynamics Carpentier,
    Budhiraja and Mansard 2021). The result is smooth where rows come close to being dependent. It is enough that M is positive definite on null(C).

    Args:
        mu: μ, relative to the squares of the scaled singular values.
        refinements: number of solutions.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.

    Limits:
        Rows closer to dependence than about √μ are satisfied only in part; the residual is reported as
        `RESULTS.contradictory_constraints`.
    """

    mu: Positive = eqx.field(static=True, default=1e-8)
    refinements: Whole = eqx.field(static=True, default=6)
    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M + Cᵀ diag(1/σ²) C."""
        return stiffened(terms.mass, terms.jacobian, terms.scale)[0]

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows."""
        metric, weighted = stiffened(terms.mass, terms.jacobian, terms.scale)
        rows = jnp.where(factor.in_use[:, None], terms.jacobian / terms.scale[:, None], 0)
        target = jnp.where(factor.in_use, terms.gamma / terms.scale, 0)
        free = solve_spd(metric, terms.force + weighted @ terms.gamma)
        # The iteration is for the scaled multiplier μ_i = σ_i λ_i, in which all rows are alike in size.
        response = solve_spd(metric, rows.T)
        # μ is relative to squares of scaled singular values, which are about one: it needs no units.
        regular = rows @ response + self.mu * jnp.eye(rows.shape[0], dtype=rows.dtype)
        root = inverse_root(regular)

        def refine(mu: Array, _: None) -> tuple[Array, None]:
            return mu + root.T @ (root @ (target - rows @ (free + response @ mu))), None

        # A fixed number of solutions, as a test of convergence would make a batch wait for its slowest row.
        mu, _ = lax.scan(refine, jnp.zeros_like(target), None, length=self.refinements)
        return free + response @ mu, mu / terms.scale
