"""The saddle-point equations of Lagrange multipliers."""

import equinox as eqx
from jaxtyping import Array, Float

from ..linalg import RANK_TOL, ConstrainedFactor, mean_inertia
from ..system import Terms
from .base import AbstractFormulation


class KKT(AbstractFormulation):
    """The index-1 equations of Lagrange multipliers, M v̇ = F + Cᵀλ and C v̇ = Γ, with λ of least norm.

    Frączek and Wojtyra, eq. (11), where Cᵀλ has the opposite sign. M need be positive definite on null(C) only (massless bodies, redundant coordinates): adding ρ² Cᵀ diag(1/σ²) C to M and
    ρ² Cᵀ diag(1/σ²) Γ to F changes neither v̇ nor λ and makes the matrix regular.

    Args:
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.
    """

    rank_tol: float = eqx.field(static=True, default=RANK_TOL)

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M + ρ² Cᵀ diag(1/σ²) C."""
        return terms.mass + terms.jacobian.T @ self._weighted(terms, terms.jacobian)

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows."""
        return factor.solve(terms.force + terms.jacobian.T @ self._weighted(terms, terms.gamma), terms.gamma)

    def _weighted(self, terms: Terms, rows: Array) -> Array:
        weight = mean_inertia(terms.mass) / terms.scale**2
        return rows * weight.reshape((-1,) + (1,) * (rows.ndim - 1))
