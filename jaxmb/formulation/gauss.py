"""Gauss's principle by projection."""

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import Positive, Vector, contract
from ..linalg import RANK_TOL, ConstrainedFactor, null_space
from ..system import Terms
from .base import AbstractFormulation


class GaussProjection(AbstractFormulation):
    """The acceleration closest to the free one in the metric of M, among those that the constraints allow.

    v̇ = a + M^(−1/2) (C M^(−1/2))⁺ (Γ − C a), a = M⁻¹F: the minimiser of ½ (v̇ − a)ᵀ M (v̇ − a) subject to C v̇ = Γ
    (Gauss; Udwadia and Kalaba 1992). Redundant rows are recognised and change nothing.

    Args:
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.

    Limits:
        M must be positive definite; where it is so on null(C) only, use `KKT`, which is the default there if the numbers are
        concrete.
    """

    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M."""
        return terms.mass

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows."""
        return factor.solve(terms.force, terms.gamma)


@contract
def gauss_residual(terms: Terms, vdot: Vector, rank_tol: Positive = RANK_TOL) -> Float[Array, " nv"]:
    """Nᵀ(M v̇ − F), with N a basis of null(C): zero exactly where v̇ obeys Gauss's principle, given C v̇ = Γ.

    The derivative of Gauss's function ½ (v̇ − a)ᵀM(v̇ − a) along the free directions (Müller, eq. 7). N is orthonormal in
    the metric of M, so that it is in N kg^(−1/2); entries beyond the degrees of freedom are zero.

    Args:
        terms: the evaluated system.
        vdot: an acceleration v̇ (nv,).
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.
    """
    formulation = GaussProjection(rank_tol)
    # The rank rule of all formulations, so that the test has as many free directions as the motion.
    basis = null_space(formulation.factorise(terms, formulation.prepare(terms)))
    return basis.T @ (terms.mass @ vdot - terms.force)
