"""The saddle-point equations of Lagrange multipliers."""

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import Positive
from ..linalg import RANK_TOL, ConstrainedFactor, stiffened
from ..system import Terms
from .base import AbstractFormulation


class KKT(AbstractFormulation):
    """The index-1 equations of Lagrange multipliers, M v̇ = F + Cᵀλ and C v̇ = Γ, with λ of least norm.

    Frączek and Wojtyra, eq. (11), where Cᵀλ has the opposite sign. M need be positive definite on null(C) only (massless
    bodies, redundant coordinates): adding Cᵀ diag(1/σ²) C to M and Cᵀ diag(1/σ²) Γ to F changes neither v̇ nor λ and
    makes the matrix regular.

    Args:
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.
    """

    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M + Cᵀ diag(1/σ²) C."""
        return stiffened(terms.mass, terms.jacobian, terms.scale)[0]

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows."""
        # Since C v̇ = Γ, the term CᵀΣ⁻²C v̇ added on the left is CᵀΣ⁻²Γ, and λ is untouched. The saddle-point matrix itself is never
        # factorised: with redundant rows it is singular, and `solve` gives NaN.
        _, weighted = stiffened(terms.mass, terms.jacobian, terms.scale)
        return factor.solve(terms.force + weighted @ terms.gamma, terms.gamma)
