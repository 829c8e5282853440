"""Aghili's formulation by the orthogonal projection matrix."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import AllPositive, Matrix, Positive, contract
from ..linalg import RANK_TOL, ConstrainedFactor, projector, singular_values, solve_square, stiffened
from ..system import Terms
from .base import AbstractFormulation
from .metric import metric_factor, multipliers_of

# How the projected inertia is made invertible.
Inertia = Literal["skew", "symmetric", "parameterised"]


class Projected(eqx.Module):
    """The equations M_c v̇ = f_c of one state.

    Attributes:
        projector: P (nv, nv), onto null(C), with W P = PᵀW.
        particular: C⁺Γ (nv,), the part of v̇ that the constraints alone determine.
        inertia: M_c (nv, nv), the constraint inertia matrix.
        force: f_c (nv,).
    """

    projector: Float[Array, "nv nv"]
    particular: Float[Array, " nv"]
    inertia: Float[Array, "nv nv"]
    force: Float[Array, " nv"]


class OrthogonalProjection(AbstractFormulation):
    """Projected equations that need neither multipliers nor a choice of independent coordinates (Aghili).

    With P = I − C⁺C the constraint force drops out of PᵀM v̇ = PᵀF (eq. 21), and (I − P) v̇ = C⁺Γ (eq. 13). The two act in
    complementary spaces and are added to one regular system M_c v̇ = f_c, in one of three ways:

    * "skew" (eqs. 22–24): M_c = M + PᵀM − (PᵀM)ᵀ, f_c = PᵀF + M C⁺Γ; positive definite where M is, not symmetric;
    * "symmetric" (eqs. 27–28): M_c' = PᵀMP + (I−P)ᵀM(I−P), f_c = PᵀF + (I − 2Pᵀ) M C⁺Γ; symmetric, positive definite where M is;
    * "parameterised" (eq. 29): M_c'' = PᵀM + γ W(I−P), f_c = PᵀF + γ W C⁺Γ; regular also where M is so on null(C) only.

    In a metric W, P is orthogonal in W and C⁺ = W⁻¹Cᵀ(CW⁻¹Cᵀ)⁺ (section 2.1.1). v̇ is the same for any W, γ and inertia.

    Args:
        inertia: one of the three names above.
        gamma: γ in units of inertia; tr(M)/tr(W) if None, the mean inertia for W = I.
        weight: W (nv, nv), symmetric and positive definite; the identity if None. See `length_metric` for mixed units.
        rank_tol: cut-off below which a row counts as dependent, see `jaxmb.linalg.independent_rows`.

    Limits:
        Conditioning of M_c adds to that of M and C; see `inertia_conditioning`.
    """

    inertia: Inertia = eqx.field(static=True, default="parameterised")
    gamma: Positive | None = None
    weight: Matrix | None = None
    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M, or M + Cᵀ diag(1/σ²) C where that is enough."""
        if self.inertia == "parameterised":
            return stiffened(terms.mass, terms.jacobian, terms.scale)[0]
        return terms.mass

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the independent rows, by the pseudo-inverse of Cᵀ."""
        own = metric_factor(terms, factor.in_use, self.weight)
        parts = self._projected(terms, own)
        vdot = solve_square(parts.inertia, parts.force)
        return vdot, multipliers_of(own, terms.mass @ vdot - terms.force)

    def projected(self, terms: Terms) -> Projected:
        """P, M_c and f_c at a state."""
        return self._projected(terms, metric_factor(terms, self.prepare(terms), self.weight))

    def constraint_force(self, terms: Terms) -> Float[Array, " nv"]:
        """The generalised reaction by eq. (32), with the sign used here: −(I − Pᵀ)F + μ (PᵀF + M C⁺Γ), μ = (I − Pᵀ) M M_c⁻¹.

        M_c is the "skew" one, whatever `inertia` says, since (32) is written with it.
        """
        parts = OrthogonalProjection(inertia="skew", weight=self.weight, rank_tol=self.rank_tol).projected(terms)
        # (32) collected: μ (PᵀF + M C⁺Γ) = (I − Pᵀ) M v̇, so that both terms are one projection of M v̇ − F.
        passive = jnp.eye(parts.projector.shape[0]) - parts.projector.T
        return passive @ (terms.mass @ solve_square(parts.inertia, parts.force) - terms.force)

    def _projected(self, terms: Terms, own: ConstrainedFactor) -> Projected:
        particular = own.solve(jnp.zeros_like(terms.force), terms.gamma)[0]
        p, mass, weight = projector(own), terms.mass, own.metric
        # Each form is PᵀM v̇ = PᵀF with (I − P) v̇ = C⁺Γ added, multiplied by M, (I − 2Pᵀ) M or γ W. In a metric W forces are projected
        # by Pᵀ, velocities by P.
        normal = jnp.eye(p.shape[0]) - p
        if self.inertia == "skew":
            inertia, drive = mass + p.T @ mass - mass @ p, mass @ particular
        elif self.inertia == "symmetric":
            inertia = p.T @ mass @ p + normal.T @ mass @ normal
            drive = mass @ particular - 2 * p.T @ (mass @ particular)
        else:
            # Any γ gives the same v̇. The mean inertia keeps both parts of M_c alike in size, and follows the units.
            gamma = jnp.trace(mass) / jnp.trace(weight) if self.gamma is None else self.gamma
            inertia, drive = p.T @ mass + gamma * weight @ normal, gamma * weight @ particular
        return Projected(p, particular, inertia, p.T @ terms.force + drive)


@contract
def decoupling(terms: Terms, weight: Matrix | None = None, rank_tol: Positive = RANK_TOL) -> Float[Array, ""]:
    """How much applied forces that move the system also load its constraints: ‖(I − Pᵀ) M P‖ / ‖M‖ (Frobenius).

    Zero exactly where the null space of the constraints is invariant under W⁻¹M (Aghili, Proposition 3): the cross-coupling
    μP vanishes and the constraint force depends on passive forces and velocities only.
    """
    p = OrthogonalProjection(inertia="skew", weight=weight, rank_tol=rank_tol).projected(terms).projector
    # "Decoupled" makes μP vanish, not μ as printed: (I − Pᵀ) M P, whose P is on the right.
    coupling = terms.mass @ p - p.T @ terms.mass @ p
    return jnp.sqrt(jnp.sum(coupling**2) / jnp.sum(terms.mass**2))


@contract
def inertia_conditioning(
    terms: Terms,
    gammas: AllPositive,
    weight: Matrix | None = None,
    rank_tol: Positive = RANK_TOL,
) -> dict[str, Float[Array, "..."]]:
    """Condition numbers (2-norm) of the three constraint inertia matrices; of the parameterised one for each γ.

    Args:
        terms: the evaluated system.
        gammas: values (k,) of γ.
        weight: W as in `OrthogonalProjection`.
        rank_tol: likewise.

    Raises:
        ValueError: for γ that are no vector of positive numbers.
    """
    if jnp.ndim(gammas) != 1:
        raise ValueError(f"Argument `gammas` must have shape (k,), but has shape {jnp.shape(gammas)}.")

    def make(kind: Inertia, gamma: Array | None) -> Array:
        own = OrthogonalProjection(inertia=kind, gamma=gamma, weight=weight, rank_tol=rank_tol)
        return own.projected(terms).inertia

    def condition(matrix: Array) -> Array:
        values = singular_values(matrix)
        return values[0] / values[-1]

    return {
        "skew": condition(make("skew", None)),
        "symmetric": condition(make("symmetric", None)),
        "parameterised": jax.vmap(lambda gamma: condition(make("parameterised", gamma)))(gammas),
    }
