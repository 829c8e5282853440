"""What becomes of an attempt at a step, and of a run: accepted, rejected, failed, and why."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ..foundations import RESULTS, where_needed
from ..kinematics import CLOSE, Rows, directions
from ..system import rows_at
from .passage import Path, distance_missed
from .state_vector import StateVector
from .step_records import Accepted, StepAttempt, StepStart
from .vector_field import VectorField


class Judgement(eqx.Module):
    """What becomes of an attempt at a general step.

    Attributes:
        accept: whether its end is the next state.
        branch_jump: whether it would go on along another branch of motion.
        residual: what the correction has left (m,), scaled.
        error: the estimate for the step size controller: infinite where a shorter step is to be tried, zero where none would help; None of
            solvers without an estimate.
        result: of Diffrax.
    """

    accept: Bool[Array, ""]
    branch_jump: Bool[Array, ""]
    residual: Float[Array, " m"]
    error: PyTree
    result: PyTree


def judge(start: StepStart, rows: Rows, attempt: StepAttempt) -> Judgement:
    """Whether the end of an attempt is on the constraints, determined and on the branch of its start.

    Args:
        start: where the step begins, with the formulation's choice.
        rows: those that were decided there.
        attempt: the step.
    """
    t0, t1, y0, field, before, y1 = start.t0, start.t1, start.y0, start.field, start.before, attempt.y1
    # With a layout A is carried and not Q (`corrected_end`). Directions belong to a set of rows: among others a row has another remainder.
    changed = jnp.any(rows.in_use != before.rows.in_use)
    arguments = (field, t0, y0, rows.in_use)
    dense = field.system.layout is None
    began = (
        where_needed(changed, _start_directions, arguments, before.basis) if dense else _start_directions(*arguments)
    )
    path = Path.of(field.system, t0, t1, (y0, y1), attempt.slopes)
    jumps, miss, inconclusive = distance_missed(field, rows.in_use, path, began, attempt.correction.basis)
    residual = lax.stop_gradient(field.relative_residuals(attempt.correction))
    possible = field.consistent & ~jnp.any(rows.indeterminate) & ~rows.unfit & ~(before.first & rows.contradictory)
    closed = field.closed(residual)
    # Branches that miss each other by δ do so over √(2δ); below CLOSE stages cannot follow either, be the step ever so short.
    admissible = possible & y1.finite & closed
    unresolvable = admissible & jumps & ~inconclusive & (2 * miss < CLOSE**2)
    branch_jump = jumps | attempt.turns
    accept = admissible & ~branch_jump
    # Where the vector field is not finite at the start of a step, none is short enough.
    undefined = attempt.slopes is not None and ~attempt.slopes[0].finite
    hopeless = ~possible | unresolvable | undefined | ~(t1 - t0 > shortest_step(t0, t1))
    return Judgement(accept, branch_jump, residual, _error(attempt, accept, hopeless), _result(attempt, accept))


def _start_directions(field: VectorField, t0: Array, y0: StateVector, in_use: Bool[Array, " m"]) -> Float[Array, "m n"]:
    """The directions of rows at the start of a step, see `directions`."""
    terms = lax.stop_gradient(rows_at(field.system, t0, y0.q, field.scale.row))
    return directions(field.scale, field.formulation.factorise(terms, in_use))


def _error(attempt: StepAttempt, accept: Bool[Array, ""], hopeless: Bool[Array, ""]) -> PyTree:
    """Infinite: the controller tries a shorter step. Zero: it accepts, and the result ends the run, where shorter steps would fail likewise."""
    return jax.tree.map(lambda e: jnp.where(accept, e, jnp.where(hopeless, 0, jnp.inf)), attempt.error)


def _result(attempt: StepAttempt, accept: Bool[Array, ""]) -> PyTree:
    failure: PyTree = dfx.RESULTS.breakdown
    # Diffrax reports success for constant steps of a vector field that is NaN: the step itself must tell.
    failure = dfx.RESULTS.where(attempt.y1.finite, failure, dfx.RESULTS.nonfinite)  # pyright: ignore[reportArgumentType]
    if attempt.result is None:
        return dfx.RESULTS.where(accept, dfx.RESULTS.successful, failure)
    # The inner solver's own failure (Newton's iterations) comes first.
    return dfx.RESULTS.where(~accept & dfx.is_okay(attempt.result), failure, attempt.result)


def shortest_step(t0: Array, t1: Array) -> Array:
    """The resolution of time, 16 units of rounding: steps of this length are not shortened any more."""
    return 16 * jnp.finfo(t1.dtype).eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1))


def may_be_rejected(result: PyTree, t0: Array, t1: Array) -> Bool[Array, ""]:
    """Whether a step may be rejected by a guard that rises and falls within it."""
    # A step at the resolution of time is accepted all the same: it cannot be made shorter, and the run must go on.
    return (result == dfx.RESULTS.successful) & (t1 - t0 > shortest_step(t0, t1))


def or_stop(irregular: Bool[Array, ""], y0: StateVector, attempt: PyTree) -> Any:
    """The step if it is regular; otherwise the state stays as it is and the run ends."""
    y1, error, dense, accepted, result = attempt
    failure: PyTree = dfx.RESULTS.breakdown
    accepted = dataclasses.replace(accepted, failed=irregular)
    error = jax.tree.map(lambda e: jnp.where(irregular, 0, e), error)
    return y1.where(~irregular, y0), error, dense, accepted, dfx.RESULTS.where(irregular, failure, result)


def with_verdict(y1: StateVector, error: PyTree, dense: PyTree, accepted: Accepted, result: PyTree) -> Any:
    """The step, whose interpolation is NaN where the step has failed."""
    # Times within a failed step would pass for reached ones: NaN tells them apart.
    shift = jax.tree.map(lambda x: jnp.where(dfx.is_okay(result), x, jnp.nan), dense["shift"])
    return y1, error, {**dense, "shift": shift}, accepted, result


def verdict(motion: PyTree, consistent: Bool[Array, ""]) -> RESULTS:
    """The result of a run by a `ConstrainedSolver`; failures are expressed in terms of constrained dynamics."""
    accepted: PyTree = motion.accepted
    rows: Rows = jax.tree.map(lax.stop_gradient, accepted.rows)
    # Later conditions overwrite earlier ones: the most particular reason comes last.
    result = RESULTS.promote(motion.result)
    failed = result != RESULTS.successful
    for condition, text in (
        (motion.result == dfx.RESULTS.breakdown, RESULTS.projection_failed),  # what `ConstrainedSolver` says
        ((motion.stats["num_steps"] <= 1) & rows.contradictory, RESULTS.contradictory_constraints),
        (jnp.any(rows.indeterminate), RESULTS.undetermined_motion),
        (rows.unfit, RESULTS.unfit_choice),
        (accepted.branch_jump, RESULTS.unresolved_passage),
        (~consistent, RESULTS.inconsistent_state),
    ):
        result = RESULTS.where(failed & condition, text, result)
    return result
