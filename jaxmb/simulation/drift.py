"""How the constraints are kept although only their second derivative is integrated."""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..foundations import Count, NonNegative, Positive, check_fields
from ..kinematics import Correction, correct, correct_by, linearise_correction
from ..linalg import AbstractFactor
from ..system import SparseTerms, State, System, Terms, position_residual, residuals, velocity_residual


class AbstractDrift(eqx.Module):
    """A way to keep φ = 0 and C v + b = 0. To add one, inherit from this class and define the two abstract methods."""

    def __check_init__(self):
        check_fields(self)

    @abc.abstractmethod
    def feedback(self, system: System, state: State) -> Float[Array, " m"] | None:
        """The term that is added to Γ at every evaluation; None for nothing."""

    def correct(
        self, system: System, formulation: AbstractFormulation, state: State, in_use: Bool[Array, " m"]
    ) -> Correction:
        """Changes the state after a step; by default it restores the normalisation of the coordinates. It has no derivative."""
        q = system.normalise(state.q)
        none = jnp.zeros((system.m, system.nv), q.dtype)  # no row has a direction
        return Correction(q, state.v, in_use, none, *residuals(system, state.t, q, state.v))

    def correct_by(
        self,
        factor: AbstractFactor,
        system: System,
        formulation: AbstractFormulation,
        state: State,
        terms: Terms | SparseTerms,
    ) -> Correction:
        """Like `correct`, with the given terms and factors of the state, which is far from any singular pose."""
        return self.correct(system, formulation, state, factor.in_use)

    def linearise_correction(
        self,
        system: System,
        formulation: AbstractFormulation,
        state: State,
        corrected: State,
        in_use: Bool[Array, " m"],
        sparse: bool,
    ) -> Callable[[System, State], State]:
        """A function of system and state that has the derivative of `correct`, which has made `corrected` of `state`; it may be `sparse`."""
        return lambda system, state: dataclasses.replace(state, q=system.normalise(state.q))

    @abc.abstractmethod
    def tolerance(self, dtype: DTypeLike) -> float:
        """The largest scaled residual with which a step is accepted."""


class Projection(AbstractDrift):
    """Moves q, then v, onto the constraints after each step, along the shortest way in the metric of M.

    See `jaxmb.kinematics.correct`. The order of the integrator is kept. A step that cannot be corrected is rejected
    if the step size is controlled, and fails otherwise.

    Args:
        iterations: number of corrections, of q and of v, with one Jacobian. A drift of size δ leaves δ^(iterations+1).
        tol: largest residual accepted after the correction, relative to the size of the mechanism; for velocities, relative to that size
            times the rate of its motion; eps^(2/3) by default, 4e-11 in float64.
    """

    iterations: Count = eqx.field(static=True, default=3)
    tol: Positive | None = eqx.field(static=True, default=None)

    def feedback(self, system: System, state: State) -> None:
        """None."""
        return None

    def correct(
        self, system: System, formulation: AbstractFormulation, state: State, in_use: Bool[Array, " m"]
    ) -> Correction:
        """See `jaxmb.kinematics.correct`."""
        return correct(system, formulation, state, in_use, self.iterations)

    def correct_by(
        self,
        factor: AbstractFactor,
        system: System,
        formulation: AbstractFormulation,
        state: State,
        terms: Terms | SparseTerms,
    ) -> Correction:
        """See `jaxmb.kinematics.correct_by`."""
        # Without rows nothing is to be solved; quaternions still need their norm.
        if not system.m:
            return self.correct(system, formulation, state, factor.in_use)
        return correct_by(factor, system, formulation, state, terms, self.iterations)[0]

    def linearise_correction(
        self,
        system: System,
        formulation: AbstractFormulation,
        state: State,
        corrected: State,
        in_use: Bool[Array, " m"],
        sparse: bool,
    ) -> Callable[[System, State], State]:
        """See `jaxmb.kinematics.linearise_correction`."""
        return linearise_correction(system, formulation, state, corrected, in_use, sparse)

    def tolerance(self, dtype: DTypeLike) -> float:
        """`tol` or its default."""
        # Far above rounding and far below the default tolerances of the integrator: a residual between the two is that of iterations which do
        # not converge.
        return float(jnp.finfo(dtype).eps) ** (2 / 3) if self.tol is None else self.tol


class Baumgarte(AbstractDrift):
    """Baumgarte's stabilisation, C v̇ = Γ − 2α (C v + b) − β² φ: residuals decay instead of growing (Baumgarte 1972).

    Args:
        alpha: damping rate in 1/s.
        beta: frequency in 1/s; α = β is critical damping. Large rates make the equations stiff.
    """

    alpha: NonNegative = 10.0
    beta: NonNegative = 10.0

    def feedback(self, system: System, state: State) -> Float[Array, " m"]:
        """−2α (C v + b) − β² φ."""
        # On velocity level a row of ψ has no position: its φ counts as zero (`position_residual`), so that it decays by 2α alone.
        velocity = velocity_residual(system, state.t, state.q, state.v)
        # Added to Γ, where all formulations take it (Baumgarte 1972).
        return -2 * self.alpha * velocity - self.beta**2 * position_residual(system, state.t, state.q)

    def tolerance(self, dtype: DTypeLike) -> float:
        """No limit."""
        return float("inf")


class NoDrift(AbstractDrift):
    """No correction of drift: residuals grow, on position level with the square of time. For comparison, and for systems without constraints."""

    def feedback(self, system: System, state: State) -> None:
        """None."""
        return None

    def tolerance(self, dtype: DTypeLike) -> float:
        """No limit."""
        return float("inf")
