"""The interface of all formulations."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from ..dependence import Decision, decide
from ..foundations import RESULTS, Positive, TextInNotebooks, check_fields, positive_or_one, program, result_of
from ..linalg import ConstrainedFactor, SparseRows, cutoff, independent_rows, minimum_norm_multipliers
from ..system import Nearby, Terms
from .interpolation import beside_singular_poses
from .restored import RestoredRows, restore

# A row contradicts the others where it is off by more than this part of its terms. States are on the constraints to eps^(2/3), 4e-11, and
# beside a singular pose that is amplified: what is below is no more than the tolerance of the state.
CONTRADICTION = 1e-6
# A row's terms are compared with no less than this part of the largest row's: at equilibrium both of its terms are rounding.
SMALL_ROW = 1e-6


class Acceleration(TextInNotebooks, eqx.Module):
    """The solution of the equations of motion at one state, as a formulation returns it.

    Attributes:
        vdot: v̇ (nv,).
        reaction: M v̇ − F (nv,), the force of the constraints on the system, conjugate to v.
        multipliers: λ (m,) with Cᵀλ = reaction, of least Euclidean norm; not unique where rows are redundant, and NaN, for
            undefined, in rows that are degenerate at a singular pose or combined with degenerate ones.
        rank: the numerical rank of C.
        result: `RESULTS.contradictory_constraints` if no v̇ satisfies all rows, `RESULTS.undetermined_motion` if at a
            singular pose several do, `RESULTS.ill_conditioned_state` if `uncertainty` is above 1e-6, `RESULTS.unfit_choice` if a choice of the formulation does not fit the pose,
            `RESULTS.nonfinite` if M is not positive definite where the formulation needs it or an input is not finite.
        eliminated: mask (m,) of the rows whose multipliers are zero because the formulation left them out.
        uncertainty: beside a singular pose the relative difference of v from the velocity of a motion through the pose, whose acceleration v̇ is; zero
            elsewhere.
    """

    vdot: Float[Array, " nv"]
    reaction: Float[Array, " nv"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    result: RESULTS
    eliminated: Bool[Array, " m"]
    uncertainty: Float[Array, ""]


class AbstractFormulation(eqx.Module):
    """A way to solve M v̇ = F + Cᵀλ, C v̇ = Γ.

    To add one, inherit from this class and define `rank_tol`, `metric` and `motion`. The rank is decided in one way for all
    of them: `prepare` decides it once per accepted state, and `motion` uses that decision at the stages of a step, which lie
    off the constraints and could not decide it.

    A formulation that chooses something, coordinates or rows, does so in `choose`, at accepted states only, and takes the
    choice by `with_choice`; it may keep rows out of use by `excluded`, say by `unfit` that its choice does not fit a pose, and share
    multipliers among dependent rows in its own way by `shares`.
    """

    rank_tol: eqx.AbstractVar[Positive]

    def __check_init__(self):
        check_fields(self)

    @abc.abstractmethod
    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """The positive definite matrix in whose metric rows are orthogonal and states are corrected."""

    @abc.abstractmethod
    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and the multipliers of the independent rows; zero for the other rows."""

    def choose(self, terms: Terms, present: Bool[Array, " n"] | None = None) -> Bool[Array, " n"] | None:
        """The choice that suits an accepted state, given the present one; None if there is nothing to choose."""
        return None

    def with_choice(self, choice: Bool[Array, " n"] | None) -> "AbstractFormulation":
        """The formulation with a choice."""
        return self

    def excluded(self, m: int) -> Bool[Array, " m"] | None:
        """Mask of the rows that must not be used; None where all may be."""
        return None

    def unfit(self, terms: Terms, in_use: Bool[Array, " m"], degenerate: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the choice does not fit a pose with independent rows `in_use`, at which `degenerate` more rows are degenerate."""
        return jnp.array(False)

    def shares(
        self, factor: ConstrainedFactor, jacobian: Float[Array, "m nv"], multipliers: Float[Array, " m"]
    ) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
        """The multipliers (m,) of all rows from those of the independent ones, and the mask (m,) of rows whose multipliers are set to zero.

        By default the multipliers have least norm, and no row is in the mask.
        """
        return minimum_norm_multipliers(factor, jacobian, multipliers), jnp.zeros_like(factor.in_use)

    def prepare(self, terms: Terms) -> Bool[Array, " m"]:
        """Decides which rows are independent; the sum of the mask is the rank."""
        # Zeros in place of rows that are left out keep shapes static, and a zero row is never independent.
        terms = self.without_excluded(terms)
        return independent_rows(self.metric(terms), terms.jacobian, terms.scale, self.rank_tol, terms.holonomic)

    def mask_excluded(self, rows: Float[Array, "m *n"]) -> Float[Array, "m *n"]:
        """Zeros in place of the rows that are left out."""
        excluded = self.excluded(rows.shape[0])
        return rows if excluded is None else jnp.where(excluded.reshape((-1,) + (1,) * (rows.ndim - 1)), 0, rows)

    def without_excluded(self, terms: Terms) -> Terms:
        """The terms with zeros in the rows that are left out."""
        rows = lambda t: (t.jacobian, t.offset, t.gamma)
        return eqx.tree_at(rows, terms, jax.tree.map(self.mask_excluded, rows(terms)))

    def factorise(
        self, terms: Terms, in_use: Bool[Array, " m"], rank_tol: float | None = None, quick: bool = False
    ) -> ConstrainedFactor:
        """The factors of the constrained equations of the rows in `in_use`, without those that are degenerate at these terms.

        With `rank_tol=0` all rows in `in_use` stay, for a rank that was decided at these very terms with the rows in another
        order. `quick` is as in `ConstrainedFactor`.
        """
        tol = self.rank_tol if rank_tol is None else rank_tol
        return ConstrainedFactor(
            mass=self.metric(terms),
            jacobian=terms.jacobian,
            scale=terms.scale,
            in_use=in_use,
            rank_tol=tol,
            quick=quick,
            layout=terms.layout,
        )

    def decide(
        self,
        terms: Terms,
        nearby: Nearby,
        consistent: Bool[Array, ""] | bool = True,
        in_use: Bool[Array, " m"] | None = None,
    ) -> Decision:
        """Which rows are independent, degenerate, indeterminate or redundant, see `jaxmb.dependence.decide`."""
        used = self.without_excluded(terms)
        excluded = self.excluded(terms.scale.shape[0])
        return decide(used, self.metric(used), nearby, self.rank_tol, consistent, excluded, in_use)

    @program
    def acceleration(self, terms: Terms, carry: Bool[Array, " m"] | None = None) -> Acceleration:
        """Solves for v̇ and the reaction.

        Args:
            terms: the evaluated system.
            carry: what `prepare` returned at the last accepted state; decided here if None.
        """
        self, original = self.with_choice(self.choose(terms)), terms
        terms = self.without_excluded(terms)
        if terms.nearby is None:
            in_use = self.prepare(terms) if carry is None else carry
            restored, moving = RestoredRows.unchanged(terms, in_use), 0.0
        else:
            decision = self.decide(original, terms.nearby, in_use=carry)
            in_use, restored = decision.in_use, self.restore(terms, decision, terms.nearby)
            state = terms.nearby.state
            # Ω|v| has the size of an acceleration of this motion: a measure for rows whose own v̇ and Γ vanish.
            moving = state.scale.rate * jnp.abs(state.v)
        # Rows decided at these very terms stay whatever the cut-off says of them in another order; a mask from elsewhere is tried again here.
        factor = self.factorise(restored.terms, restored.in_use, 0.0 if carry is None else None)
        vdot, multipliers = self.motion(restored.terms, factor)
        uncertainty = jnp.zeros_like(vdot, shape=())
        if original.nearby is not None:
            degenerate = jnp.any(restored.in_use & ~in_use)
            beside = beside_singular_poses(self, terms, restored, factor, degenerate, vdot)
            vdot, uncertainty = beside.vdot, beside.uncertainty
        multipliers, eliminated = self.shares(factor, restored.terms.jacobian, multipliers)
        # At equilibrium, and in uniform motion, v̇ and Γ are rounding of the forces and velocities that they result from. Independent rows contradict none:
        # where one nearly vanishes, what it is off by is rounding too.
        free = factor.root.T @ (factor.root @ original.force)
        off = contradiction(original.jacobian, original.gamma, original.scale, vdot, jnp.abs(free) + moving)
        consistent = jnp.all((in_use & factor.in_use) | (off <= contradiction_tol(vdot.dtype)))
        numbers = (original.mass, original.force, original.jacobian, original.gamma, vdot)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in numbers]))
        # Numbers that are not finite make all others meaningless.
        result = result_of(
            (restored.indeterminate, RESULTS.undetermined_motion),
            (uncertainty > contradiction_tol(vdot.dtype), RESULTS.ill_conditioned_state),
            (~consistent, RESULTS.contradictory_constraints),
            (
                jnp.asarray(carry is None) & self.unfit(original, in_use, jnp.sum(restored.in_use & ~in_use)),
                RESULTS.unfit_choice,
            ),
            (~finite, RESULTS.nonfinite),
        )
        return Acceleration(
            vdot=vdot,
            # Not Cᵀλ: M v̇ − F is unique wherever v̇ is, also where λ is undefined.
            reaction=terms.mass @ vdot - terms.force,
            multipliers=jnp.where(restored.undefined, jnp.nan, multipliers),
            rank=jnp.sum(in_use),
            result=result,
            eliminated=eliminated,
            uncertainty=uncertainty,
        )

    def restore(self, terms: Terms, decision: Decision, nearby: Nearby) -> RestoredRows:
        """The rows in use, those degenerate here replaced by ZᵀĊ, along which their reaction acts."""
        return restore(self, terms, decision, nearby)


def contradiction(
    jacobian: Float[Array, "m nv"] | SparseRows,
    gamma: Float[Array, " m"],
    scale: Float[Array, " m"],
    vdot: Float[Array, " nv"],
    typical: Float[Array, " nv"],
) -> Float[Array, " m"]:
    """|C v̇ − Γ| of each row relative to the sizes of its terms, or to a millionth of the largest row's, by v̇ or `typical` ones like Ω|v|."""
    size = (abs(jacobian) @ jnp.abs(vdot) + jnp.abs(gamma)) / scale
    typical_size = abs(jacobian) @ typical / scale
    # Per row in units of σ, so that neither scaled rows nor a change of units decide.
    size = jnp.maximum(size, SMALL_ROW * jnp.max(jnp.maximum(size, typical_size), initial=0))
    return jnp.abs(jacobian @ vdot - gamma) / scale / positive_or_one(size)


def contradiction_tol(dtype: DTypeLike) -> float:
    """Above this a row contradicts the others; below, it may come from a state that is exact to its tolerance only."""
    return cutoff(CONTRADICTION, dtype)
