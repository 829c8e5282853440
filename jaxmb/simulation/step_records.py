"""Records of a step: where it starts, how it went, and what is carried from one accepted state to the next."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..kinematics import Correction, Rows
from .real_scalar import RealScalar
from .state_vector import StateVector
from .vector_field import VectorField

Scalar = Float[Array, ""]


class Blended(dfx.AbstractLocalInterpolation):
    """The inner solver's interpolation, moved smoothly towards the corrected end of the step.

    y(s) + s²(3 − 2s) (y_corrected − y): continuous from step to step, and of the inner order.
    """

    t0: PyTree
    t1: PyTree
    inner: dfx.AbstractLocalInterpolation
    shift: PyTree

    def evaluate(self, t0: RealScalar, t1: RealScalar | None = None, left: bool = True) -> Any:
        """The state at `t0`, or the increment from `t0` to `t1`."""
        if t1 is not None:
            return jax.tree.map(lambda a, b: b - a, self.evaluate(t0), self.evaluate(t1))
        # A step of no length, by which a row of a batch waits, must not divide by zero: NaN would enter derivatives by the branch not taken.
        span = self.t1 - self.t0
        s = (t0 - self.t0) / jnp.where(span == 0, 1, span)
        # Flat at both ends: there the rate of the interpolation stays that of the inner one.
        weight = s * s * (3 - 2 * s)
        # Without the shift the interpolation jumps at each corrected step, by 1.2e-3 of Tsit5 at rtol 1e-4.
        return jax.tree.map(lambda y, d: y + weight * d, self.inner.evaluate(t0), self.shift)


@dataclasses.dataclass(frozen=True)
class BlendedClass:
    """Makes `Blended` from a step's dense information; compared by value, so that equal solvers share programs."""

    inner: Callable[..., dfx.AbstractLocalInterpolation]

    def __call__(self, *, t0: RealScalar, t1: RealScalar, inner: PyTree, shift: PyTree) -> Blended:
        """As Diffrax calls it."""
        return Blended(t0, t1, self.inner(t0=t0, t1=t1, **inner), shift)


class Interpolant(eqx.Module):
    """What the interpolation of an explicit step needs.

    Attributes:
        slopes: k (s, …).
        y0: where it begins.
        raw: its end before the correction.
        shift: from that to the corrected end.
    """

    slopes: StateVector
    y0: StateVector
    raw: StateVector
    shift: StateVector

    @property
    def dense(self) -> dict[str, PyTree]:
        """As Diffrax keeps it."""
        return {"inner": explicit_dense(self.slopes, self.y0, self.raw), "shift": self.shift}

    def at(self, make: Callable[..., dfx.AbstractLocalInterpolation], t0: Array, t1: Array, t: Array) -> StateVector:
        """The state at a time of the step from `t0` to `t1`."""
        return make(t0=t0, t1=t1, **self.dense).evaluate(t)


def explicit_dense(slopes: StateVector, y0: StateVector, raw: StateVector) -> dict[str, StateVector]:
    """What the interpolations of Diffrax's explicit solvers ask for."""
    return {"y0": y0, "y1": raw, "k": slopes}


class Switches(eqx.Module):
    """Changes of the formulation's choice during a run, in order; unused entries have t = NaN.

    Attributes:
        count: how many there were; the last ones are not recorded if there were more than K.
        t: times (K,) in s.
        before: the choice (K, n) until then: the mask of independent velocities.
        after: the choice (K, n) from then on.
    """

    count: Int[Array, "..."]
    t: Float[Array, "... K"]
    before: Bool[Array, "... K n"]
    after: Bool[Array, "... K n"]


# How many changes of the formulation's choice are recorded.
RECORDED = 64


class Accepted(eqx.Module):
    """The record carried from one accepted state to the next.

    Attributes:
        inner: the inner solver's state; of an explicit one the slope at the end before its correction, and whether there is one.
        end: when and where the latest step ended, events aside.
        ended: whether a guard has ended the motion in it,
        reached: and when; otherwise when it ended.
        rows: the decision about rows at the latest state from which a step has started.
        certified: whether the same rows are certainly right where the latest step ended.
        basis: of the rows in use where the latest step ended, see `corrected_end`; without columns where nobody needs it.
        branch_jump: whether the latest step went from one branch of the motion to another; such a step is no motion and is not accepted.
        switches: the changes of the formulation's choice so far; None if it chooses nothing.
        lowest_rank: the lowest rank over the accepted states from which a step has started.
        highest_rank: the highest rank over the same states.
        residual: largest residual (m,) left by a correction so far, of each row, relative to its span, and to that times the rate.
        compiled: how many steps compiled code has made.
        sparse: how many were made by sparse linear algebra.
        steady: whether the same rows were in use all the time.
        failed: whether the latest step has failed.
    """

    inner: PyTree
    end: tuple[Scalar, StateVector]
    ended: Bool[Array, ""]
    reached: Scalar
    rows: Rows
    certified: Bool[Array, ""]
    basis: Float[Array, "m n"]
    branch_jump: Bool[Array, ""]
    switches: Switches | None
    lowest_rank: Int[Array, ""]
    highest_rank: Int[Array, ""]
    residual: Float[Array, " m"]
    compiled: Int[Array, ""]
    sparse: Int[Array, ""]
    steady: Bool[Array, ""]
    failed: Bool[Array, ""]

    @property
    def first(self) -> Bool[Array, ""]:
        """Whether no step has started before."""
        return self.lowest_rank > self.highest_rank

    def with_rows(self, rows: Rows) -> "Accepted":
        """The record where a step starts by these rows."""
        return dataclasses.replace(
            self,
            rows=rows,
            lowest_rank=jnp.minimum(self.lowest_rank, rows.rank),
            highest_rank=jnp.maximum(self.highest_rank, rows.rank),
            steady=self.steady & (self.first | jnp.all(rows.in_use == self.rows.in_use)),
        )


class StepStart(eqx.Module):
    """Where a step begins, and when it ends.

    Attributes:
        field: the problem.
        t0, t1: when it begins and ends.
        y0: the state where it begins.
        before: what was carried there.
        jumped: whether the vector field has jumped there.
    """

    field: VectorField
    t0: Scalar
    t1: Scalar
    y0: StateVector
    before: Accepted
    jumped: Bool[Array, ""]

    @property
    def first_slope(self) -> tuple[StateVector, Bool[Array, ""]]:
        """Of an explicit method that ends a step with the first stage of the next: its slope, and whether it may be used again."""
        slope, has_slope = self.before.inner
        return slope, has_slope & ~self.jumped

    def after_sample(self, in_use: Bool[Array, " m"]) -> "StepStart":
        """The start after a sample of the controller, where one is due."""
        return dataclasses.replace(self, y0=self.field.after_sample(self.t0, self.y0, in_use))


class StepAttempt(eqx.Module):
    """A step before it is judged.

    Attributes:
        raw: its end before the correction.
        error: the estimate of the error there.
        dense: the data of the interpolation.
        inner: the inner solver's state.
        result: the inner solver's; None where it cannot fail.
        y1, correction: the corrected end, and how its correction went.
        certified: whether the rows are certainly the same there.
        basis: the basis of the rows at the end, see `Accepted`.
        turns: whether the motion turns off at a stage, see `Sample`.
        slopes: the vector field where it begins and ends; None where that is not at hand.
    """

    raw: StateVector
    error: StateVector | None
    dense: PyTree
    inner: PyTree
    result: PyTree
    y1: StateVector
    correction: Correction
    certified: Bool[Array, ""]
    basis: Float[Array, "m n"]
    turns: Bool[Array, ""]
    slopes: tuple[StateVector, StateVector] | None = None


def with_switch(switches: Switches | None, t: Array, before: Array | None, after: Array | None) -> Switches | None:
    """The switches with that from one choice to another at `t`, if they differ; None where nothing is chosen."""
    if switches is None or before is None or after is None:
        return None
    # Beyond the room that there is no entry is this one, while the count goes on.
    here = (jnp.arange(RECORDED) == switches.count) & jnp.any(before != after)
    return Switches(
        switches.count + jnp.any(before != after),
        jnp.where(here, t, switches.t),
        jnp.where(here[:, None], before, switches.before),
        jnp.where(here[:, None], after, switches.after),
    )
