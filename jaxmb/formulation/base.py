"""The interface of all formulations."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..foundations import RESULTS
from ..linalg import ConstrainedFactor, cutoff, independent_rows, minimum_norm_multipliers
from ..system import Terms


class Acceleration(eqx.Module):
    """What a formulation returns.

    Attributes:
        vdot: v̇ (nv,).
        reaction: M v̇ − F (nv,), the force of the constraints on the system, conjugate to v.
        multipliers: λ (m,) with Cᵀλ = reaction, of least Euclidean norm; not unique where rows are redundant.
        rank: the numerical rank of C.
        result: `RESULTS.contradictory_constraints` if no v̇ satisfies all rows, `RESULTS.nonfinite` if M is
            not positive definite where the formulation needs it or an input is not finite.
    """

    vdot: Float[Array, " nv"]
    reaction: Float[Array, " nv"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    result: RESULTS


class AbstractFormulation(eqx.Module):
    """A way to solve M v̇ = F + Cᵀλ, C v̇ = Γ.

    To add one, inherit from this class and define `rank_tol`, `metric` and `motion`. `prepare` decides the rank once per
    accepted state, and `motion` uses that decision at the stages of a step, which lie off the constraints and could not
    decide it.
    """

    rank_tol: eqx.AbstractVar[float]

    @abc.abstractmethod
    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """The positive definite matrix in whose metric rows are orthogonal and states are corrected."""

    @abc.abstractmethod
    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and the multipliers of the independent rows; zero for the other rows."""

    def prepare(self, terms: Terms) -> Bool[Array, " m"]:
        """Decides which rows are independent; the sum of the mask is the rank."""
        metric = self.metric(terms)
        return independent_rows(metric, terms.jacobian, terms.scale, self.rank_tol, terms.holonomic)

    def factorise(self, terms: Terms, keep: Bool[Array, " m"]) -> ConstrainedFactor:
        """The factors of the constrained equations of the rows in `keep`."""
        return ConstrainedFactor(self.metric(terms), terms.jacobian, terms.scale, keep)

    @eqx.filter_jit
    def acceleration(self, terms: Terms, carry: Bool[Array, " m"] | None = None) -> Acceleration:
        """Solves for v̇ and the reaction.

        Args:
            terms: the evaluated system.
            carry: what `prepare` returned at the last accepted state; decided here if None.
        """
        keep = self.prepare(terms) if carry is None else carry
        factor = self.factorise(terms, keep)
        vdot, multipliers = self.motion(terms, factor)
        consistent = jnp.all(contradiction(terms, vdot) <= contradiction_tol(terms))
        successful: Any = RESULTS.successful
        nonfinite: Any = RESULTS.nonfinite
        result = RESULTS.where(consistent, successful, RESULTS.contradictory_constraints)
        return Acceleration(
            vdot=vdot,
            reaction=terms.mass @ vdot - terms.force,
            multipliers=minimum_norm_multipliers(factor, terms.jacobian, multipliers),
            rank=jnp.sum(keep),
            result=RESULTS.where(jnp.all(jnp.isfinite(vdot)), result, nonfinite),
        )


def contradiction(terms: Terms, vdot: Float[Array, " nv"]) -> Float[Array, " m"]:
    """|C v̇ − Γ| of each row relative to the sizes of its terms."""
    rows, gamma = jnp.abs(terms.jacobian), jnp.abs(terms.gamma)
    size = rows @ jnp.abs(vdot) + gamma
    return jnp.abs(terms.jacobian @ vdot - terms.gamma) / jnp.where(size > 0, size, 1)


def contradiction_tol(terms: Terms) -> float:
    """Above this a row contradicts the others; below, it may come from a state that is exact to its tolerance only."""
    return cutoff(1e-6, terms.mass.dtype)
