"""Minimal accelerations in the null space of the constraints."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import Matrix, Positive
from ..linalg import RANK_TOL, ConstrainedFactor, null_space, solve_spd, stiffened
from ..system import Terms
from .base import AbstractFormulation
from .metric import metric_factor, multipliers_of


class Minimal(eqx.Module):
    """The equations of minimal accelerations, NᵀMN a = Nᵀ(F − M v̇₀), v̇ = v̇₀ + N a.

    Attributes:
        basis: N (nv, nv) with C N = 0; columns beyond the degrees of freedom are zero.
        particular: v̇₀ = C⁺Γ (nv,).
        mass: NᵀMN (nv, nv), with ones on the diagonal where columns of N are zero.
        force: Nᵀ(F − M v̇₀) (nv,).
    """

    basis: Float[Array, "nv nv"]
    particular: Float[Array, " nv"]
    mass: Float[Array, "nv nv"]
    force: Float[Array, " nv"]


class NullSpace(AbstractFormulation):
    """Projection onto an orthogonal complement N of the rows: Nᵀ M v̇ = Nᵀ F, C v̇ = Γ.

    Frączek and Wojtyra, eqs. (12)–(14). With v̇ = C⁺Γ + N a the minimal accelerations a follow from the positive definite
    NᵀMN. N is orthonormal in the metric W; v̇ does not depend on it.

    Args:
        weight: W (nv, nv), symmetric and positive definite, in which N is orthonormal and C⁺ is taken; the identity if None.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.

    Limits:
        It is enough that M is positive definite on null(C). The basis is chosen at each evaluation, so that the minimal accelerations may
        jump from one state to the next; v̇ and its derivatives do not.
    """

    weight: Matrix | None = None
    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M + Cᵀ diag(1/σ²) C."""
        return stiffened(terms.mass, terms.jacobian, terms.scale)[0]

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows."""
        # The rows in use come from the rank rule in the metric of M; N and C⁺ may be in any other, since v̇ does not depend on it.
        own = metric_factor(terms, factor.in_use, self.weight)
        parts = _minimal(terms, own)
        vdot = parts.particular + parts.basis @ solve_spd(parts.mass, parts.force)
        return vdot, multipliers_of(own, terms.mass @ vdot - terms.force)

    def minimal(self, terms: Terms) -> Minimal:
        """N and the equations of the minimal accelerations at a state."""
        return _minimal(terms, metric_factor(terms, self.prepare(terms), self.weight))


def _minimal(terms: Terms, factor: ConstrainedFactor) -> Minimal:
    basis = null_space(factor)
    particular = factor.solve(jnp.zeros_like(terms.force), terms.gamma)[0]
    # Ones on the diagonal of empty columns keep the fixed-size matrix regular; the accelerations there are zero.
    empty = jnp.all(basis == 0, axis=0)
    mass = basis.T @ terms.mass @ basis + jnp.diag(empty.astype(basis.dtype))
    return Minimal(basis, particular, mass, basis.T @ (terms.force - terms.mass @ particular))
