"""A Diffrax solver that accepts states on the constraints only."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PyTree

from ..deferral import with_fallback
from ..foundations import tree_where, where_needed
from ..kinematics import NEAR, Rows
from ..linalg import BlockMatrix, SparseRows, lowered
from ..runge_kutta import guarded
from .certificate import certify_dense
from .compiled_step import CompiledStep, StepResult, basis_shape
from .guard import SAMPLES_PER_STEP
from .judgement import judge, may_be_rejected, or_stop, shortest_step, with_verdict
from .real_scalar import RealScalar
from .sparse import sparse_step
from .stages import Stages, Tableau, all_stages, combine, is_explicit, last_slope
from .state_vector import StateVector
from .step_records import (
    RECORDED,
    Accepted,
    BlendedClass,
    Interpolant,
    StepAttempt,
    StepStart,
    Switches,
    explicit_dense,
    with_switch,
)
from .vector_field import VectorField

# Rows are decided anew from this remainder on: of redundant rows others may be far from being dependent, and no stage of the next step is near then.
AHEAD = 2 * NEAR

Scalar = Float[Array, ""]
Arguments = tuple[VectorField, Bool[Array, " m"]]  # the rows of the latest accepted state take the second place


class ConstrainedSolver(dfx.AbstractWrappedSolver):
    """Decides the rank at the accepted state, steps with `solver` under that decision, and corrects the drift.

    A step fails whose corrected state is not finite or leaves a scaled residual above the drift's tolerance, with
    `RESULTS.nonfinite` or `RESULTS.breakdown` (which `simulate` translates). Its error estimate is infinite then, so that
    an adaptive controller rejects it, forgets the result and tries a shorter one. From a start that is not sound or whose
    constraints contradict each other, from a state where the motion is not determined or a choice of the formulation does not
    fit (`simulate` reads which from `rows`), or when the step is down to the resolution of time, the estimate is zero: the step
    is accepted without a change of state, and its result ends the run, so that no row of a batch runs on in vain.
    """

    solver: dfx.AbstractSolver  # pyright: ignore[reportIncompatibleVariableOverride]

    # Diffrax's adjoints and controllers look for these on the solver that they are given.
    scan_kind = property(lambda self: self.solver.scan_kind)
    root_finder = property(lambda self: self.solver.root_finder)
    root_find_max_steps = property(lambda self: self.solver.root_find_max_steps)
    term_structure = property(lambda self: self.solver.term_structure)
    term_compatible_contr_kwargs = property(lambda self: self.solver.term_compatible_contr_kwargs)
    interpolation_cls = property(  # pyright: ignore[reportAssignmentType]
        lambda self: BlendedClass(self.solver.interpolation_cls)
    )

    def order(self, terms: PyTree) -> Any:
        """The inner solver's order."""
        return self.solver.order(terms)

    def strong_order(self, terms: PyTree) -> Any:
        """The inner solver's order."""
        return self.solver.strong_order(terms)

    def error_order(self, terms: PyTree) -> Any:
        """The inner solver's order."""
        return self.solver.error_order(terms)

    def init(self, terms: PyTree, t0: RealScalar, t1: RealScalar, y0: StateVector, args: Arguments) -> Accepted:
        """The inner solver's initial state, before any decision about rank."""
        (field, _), t0, t1 = args, jnp.asarray(t0), jnp.asarray(t1)
        if is_explicit(self.solver):
            inner: PyTree = (jax.tree.map(jnp.zeros_like, y0), jnp.array(False))
        else:
            inner = self.solver.init(terms, t0, t1, y0, args)
        m, choice, switches = field.system.m, field.choice, None
        if choice is not None:
            # Room for a fixed number: shapes cannot follow how often the choice changes.
            masks = jnp.zeros((RECORDED, *choice.shape), bool)
            switches = Switches(jnp.array(0), jnp.full(RECORDED, jnp.nan, t0.dtype), masks, masks)
        none, zero, no = jnp.zeros(m, bool), jnp.zeros(m, t0.dtype), jnp.array(False)
        rows = dataclasses.replace(Rows.independent(none, t0.dtype), choice=choice)
        # No row has a direction yet.
        carried = field.system.layout is None or field.step is not None
        basis = jnp.zeros(basis_shape(field.system) if carried else (m, 0), t0.dtype)
        start = Accepted(
            inner=inner,
            end=(t0, y0),
            ended=no,
            reached=t0,
            rows=rows,
            certified=no,
            basis=basis,
            branch_jump=no,
            switches=switches,
            lowest_rank=jnp.array(m),
            highest_rank=jnp.array(0),
            residual=zero,
            compiled=jnp.array(0),
            sparse=jnp.array(0),
            steady=jnp.array(True),
            failed=no,
        )
        if field.regular_only is not None:
            return self._start_regular(field, field.regular_only.in_use, t0, y0, start)
        if field.step is None:
            return start
        # Where all rows that act are surely independent nothing is left to be decided.
        # A certificate and no rank rule: it tells that all rows are independent where that is clear, and nothing else.
        acting = field.system.acting
        uncertified = lax.stop_gradient(field).step.uncertified(*lax.stop_gradient((t0, y0)), acting)
        certified = self._start_regular(field, acting, t0, y0, start)
        return tree_where(uncertified | ~field.consistent, start, certified)

    def _start_regular(
        self, field: VectorField, in_use: Bool[Array, " m"], t0: Array, y0: StateVector, start: Accepted
    ) -> Accepted:
        """The start of a run by regular steps only, with these rows in use."""
        rows = Rows.independent(in_use, t0.dtype)
        if field.step is None:  # a sparse step looks itself whether all rows that act are independent
            return dataclasses.replace(start, rows=rows, certified=jnp.any(in_use != field.system.acting))
        slope, correction, uncertified = field.step.at(t0, y0, in_use)
        return dataclasses.replace(
            start,
            # Compiled code may have NaN where arrays have numbers: such a slope is found anew.
            inner=(slope, slope.finite),
            rows=rows,
            certified=~uncertified,
            basis=correction.basis,
            lowest_rank=rows.rank,
            highest_rank=rows.rank,
        )

    def func(self, terms: PyTree, t0: RealScalar, y0: StateVector, args: Arguments) -> Any:
        """The vector field at an accepted state."""
        (field, _), t0 = args, jnp.asarray(t0)
        return field.with_choice(field.choice).evaluate_regular(t0, y0, field.independent(t0, y0))[0]

    @eqx.filter_jit  # Diffrax traces its loop three times
    def step(
        self,
        terms: PyTree,
        t0: RealScalar,
        t1: RealScalar,
        y0: StateVector,
        args: Arguments,
        solver_state: Accepted,
        made_jump: ArrayLike,
    ) -> Any:
        """One step of the inner solver, its correction and its verdict; where that is a failure no state within the step is reached.

        A step within which a guard rises above zero and falls again is rejected, as one whose error is too large; one at whose end a guard ends
        the motion ends it with the state there, or where the guard has risen.
        """
        (field, _), t0, t1 = args, jnp.asarray(t0), jnp.asarray(t1)
        guard, field = field.guard, dataclasses.replace(field, guard=None)
        start = StepStart(field=field, t0=t0, t1=t1, y0=y0, before=solver_state, jumped=jnp.asarray(made_jump))
        y1, error, dense, accepted, result = self._step(terms, start)
        ended, reached = jnp.array(False), t1
        if guard is not None:
            path = self.interpolation_cls(t0=t0, t1=t1, **dense)
            fixed = (guard, dataclasses.replace(field, step=None), path, accepted.rows.in_use)
            guard, field, detached, in_use = lax.stop_gradient(fixed)
            holds = lambda t: guard(field, t, detached.evaluate(t), in_use)
            too_long, at_end, reached = guarded(holds, t0, t1, SAMPLES_PER_STEP)
            too_long &= may_be_rejected(result, t0, t1)
            error = jax.tree.map(lambda e: jnp.where(too_long, jnp.inf, e), error)
            ended = at_end & dfx.is_okay(result)
            reached = jnp.where(ended, reached, t1)
            y1 = tree_where(ended, path.evaluate(reached), y1)
        accepted = dataclasses.replace(accepted, ended=ended, reached=reached)
        *attempt, result = with_verdict(y1, error, dense, accepted, result)
        # Diffrax's loop ends by any failure of an accepted step, but not by an event that a step tells of.
        failure: PyTree = dfx.RESULTS.breakdown
        return *attempt, dfx.RESULTS.where(ended, failure, result)

    def _step(self, terms: PyTree, start: StepStart) -> Any:
        step, until = start.field.step, start.field.until
        # The general step may be a program of its own (`with_fallback`): what it has no use for is no argument of it.
        field = dataclasses.replace(start.field, step=None, until=None)
        start = dataclasses.replace(start, field=field)
        if step is not None:
            irregular, attempt = self._regular_step(step, start)
        elif field.system.layout is not None:
            irregular, attempt = self._sparse_step(start)
        else:
            return ConstrainedSolver._general_step(self, terms, start)
        if field.regular_only is not None:
            return or_stop(irregular, start.y0, attempt)
        # In a batch a run that is over waits for the others, by steps that do not count.
        assert until is not None  # `_by_diffrax` sets it
        irregular &= ~start.before.failed & (start.t0 < until)
        # Where the regular step is irregular rows are decided anew.
        before = dataclasses.replace(start.before, certified=jnp.array(False))
        general = self, terms, dataclasses.replace(start, before=before)
        return with_fallback(irregular, ConstrainedSolver._general_step, general, attempt)

    def _regular_step(self, step: CompiledStep, start: StepStart) -> tuple[Bool[Array, ""], Any]:
        """One step by compiled code, and whether it is irregular: then the general program must make it."""
        before = start.before
        if start.field.takes_samples:
            start = start.after_sample(before.rows.in_use)
        step_result = step(start.t0, start.t1, start.y0, before.inner[0], before.rows.in_use, before.basis)
        before = dataclasses.replace(before, compiled=before.compiled + 1)
        return self._judged_step(step_result, dataclasses.replace(start, before=before))

    def _judged_step(self, step: StepResult, start: StepStart) -> tuple[Bool[Array, ""], Any]:
        field, before = start.field, start.before
        regular = before.certified
        if Tableau.of(self.solver, start.t0.dtype).fsal and not field.begins_anew:
            # Its first slope is taken from the step before, which after a jump is that of another vector field.
            regular &= start.first_slope[1]
        before = dataclasses.replace(before, sparse=before.sparse + (field.system.layout is not None))
        return self._judged(step, regular, dataclasses.replace(start, before=before))

    def judged(self, step: StepResult, start: StepStart) -> Any:
        """The result of `step` for a regular step that compiled code has made already."""
        irregular, attempt = self._judged_step(step, start)
        return with_verdict(*or_stop(irregular, start.y0, attempt))

    def _sparse_step(self, start: StepStart) -> tuple[Bool[Array, ""], Any]:
        """One step by sparse linear algebra, and whether it is irregular: then the general program must make it."""
        step, rows = sparse_step(start, Tableau.of(self.solver, start.t0.dtype))
        before = start.before.with_rows(rows)
        before = dataclasses.replace(before, certified=jnp.array(True), sparse=before.sparse + 1)
        return self._judged(step, jnp.array(True), dataclasses.replace(start, before=before))

    def _judged(self, step: StepResult, regular: Bool[Array, ""], start: StepStart) -> tuple[Bool[Array, ""], Any]:
        """Whether a step is irregular, and the step with what is carried on from it."""
        t0, t1, y0, field, before = start.t0, start.t1, start.y0, start.field, start.before
        tableau = Tableau.of(self.solver, t0.dtype)
        error = combine(jax.tree.map(jnp.zeros_like, y0), tableau.error, step.slopes)
        # An end that is not finite is irregular and not merely indeterminate: the general step tells the reason, which a comparison with NaN would hide.
        residual = field.relative_residuals(step.end)
        regular &= field.consistent & ~step.irregular & step.y1.finite & error.finite
        closed = field.closed(residual)
        if field.loop is not None:
            regular &= ~field.loop.due(t0, y0.control)
        regular &= closed | (t1 - t0 > shortest_step(t0, t1))  # else it cannot be made shorter
        accepted = dataclasses.replace(
            before,
            inner=last_slope(step.slopes, t1 - t0),
            end=(t1, step.y1),
            basis=step.end.basis,
            residual=jnp.maximum(before.residual, residual),
        )
        shift = jax.tree.map(lambda a, b: jnp.where(closed, a - b, 0), step.y1, step.raw)
        dense = Interpolant(step.slopes, y0, step.raw, shift).dense
        # One that is not closed is rejected, or fails, as it is.
        error = jax.tree.map(lambda e: jnp.where(closed, e, jnp.inf), error)
        successful: PyTree = dfx.RESULTS.successful
        result = dfx.RESULTS.where(closed, successful, dfx.RESULTS.breakdown)  # pyright: ignore[reportArgumentType]
        return ~regular, (step.y1.where(closed, y0), error, dense, accepted, result)

    def _general_step(self, terms: PyTree, start: StepStart) -> Any:
        """One step by the general program: rows are decided, singular poses passed, and failures judged."""
        t0, t1, before = start.t0, start.t1, start.before
        # What is certain need not be decided again.
        rows = where_needed(
            ~before.certified,
            VectorField.prepare,
            (*lax.stop_gradient((start.field, t0, start.y0)), before.rows.choice),
            before.rows,
        )
        field = start.field.with_choice(rows.choice)
        start = dataclasses.replace(start, field=field)
        if field.loop is not None:
            jumped = start.jumped | field.loop.due(t0, start.y0.control)
            start = dataclasses.replace(start, jumped=jumped).after_sample(rows.in_use)
        y0 = start.y0
        attempt = self._explicit_step(start, rows) if is_explicit(self.solver) else self._inner_step(terms, start, rows)
        verdict = judge(start, rows, attempt)
        y1 = attempt.y1.where(verdict.accept, y0)
        accepted = dataclasses.replace(
            before.with_rows(rows),
            inner=attempt.inner,
            end=(t1, y1),
            certified=verdict.accept & attempt.certified,
            basis=attempt.basis,
            branch_jump=verdict.branch_jump,
            switches=with_switch(before.switches, t0, before.rows.choice, rows.choice),
            residual=jnp.maximum(before.residual, verdict.residual),
            failed=~verdict.accept,
        )
        shift = jax.tree.map(lambda a, b: jnp.where(verdict.accept, a - b, 0), y1, attempt.raw)
        return y1, verdict.error, {"inner": attempt.dense, "shift": shift}, accepted, verdict.result

    def _explicit_step(self, start: StepStart, rows: Rows) -> StepAttempt:
        """A step by the stages of `all_stages`; the factor of the last one, at the end of the step, serves its correction too."""
        t0, t1, y0, field, before = start.t0, start.t1, start.y0, start.field, start.before
        tableau = Tableau.of(self.solver, t0.dtype)
        stages = all_stages(field, tableau, t0, t1, y0, rows.in_use, start.first_slope)
        last, raw = stages.last, stages.raw
        corrected = field.correction_by(last.factor, last.terms, t1, raw)
        # Near a singular pose the end has been corrected by factors of its own: those of the last stage belong to a state off the
        # constraints.
        correction = tree_where(last.near, last.end, corrected)
        return StepAttempt(
            raw=raw,
            # The estimate is not projected as CVODE does it: that saved 10 to 20 % of the steps for errors up to 7 times as large.
            error=combine(jax.tree.map(jnp.zeros_like, y0), tableau.error, stages.slopes),
            dense=explicit_dense(stages.slopes, y0, raw),
            # First same as last: the slope from before the correction serves the next step, with no measurable loss (errors 5.30e-6 and
            # 5.31e-6).
            inner=last_slope(stages.slopes, t1 - t0),
            result=None,
            y1=field.with_correction(t1, raw, correction),
            correction=correction,
            # Read off the factor that is there: most steps begin without a decision about rows.
            certified=_certify_end(field, rows, stages),
            basis=correction.basis if field.system.layout is None else _carried_basis(field, last.terms, before.basis),
            turns=jnp.any(stages.turns),
            slopes=(jax.tree.map(lambda k: k[0] / (t1 - t0), stages.slopes), last.flow),
        )

    def _inner_step(self, terms: PyTree, start: StepStart, rows: Rows) -> StepAttempt:
        """By a solver that is not explicit, or that wraps another; the end is corrected by factors of its own."""
        field, arguments = start.field, (start.field, rows.in_use)
        attempt = self.solver.step(terms, start.t0, start.t1, start.y0, arguments, start.before.inner, start.jumped)
        # The stages of other solvers are not at hand, nor is a factor at the end: the next step decides about rows anew.
        y1, end = field.corrected(start.t1, attempt[0], rows.in_use)
        return StepAttempt(*attempt, y1, end, jnp.array(False), end.basis, jnp.array(False))


def _carried_basis(field: VectorField, terms: PyTree, like: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """A (`SparseFactor.lowered`) of a system with a layout, if that is carried."""
    layout = field.system.layout
    if layout is None or not like.shape[1]:
        return like
    terms = lax.stop_gradient(terms)
    rows = SparseRows.from_dense(layout, terms.jacobian).values / terms.scale[:, None, None]
    return lowered(BlockMatrix.from_dense(layout, terms.mass), rows)[1].reshape(like.shape)


def _certify_end(field: VectorField, rows: Rows, stages: Stages) -> Bool[Array, ""]:
    """Whether the decision about rows would be as good where a step ends, as seen by the factors there.

    The rows in use are far from being dependent, and those left out follow from them.
    """
    if field.choice is not None or field.formulation.excluded(field.system.m) is not None:
        return jnp.array(False)  # choices are looked at anew
    factor, terms = lax.stop_gradient((stages.last.factor, stages.last.terms))
    regular = field.consistent & ~rows.unfit & ~jnp.any(rows.degenerate)
    return regular & certify_dense(field.scale, factor, terms, field.formulation.rank_tol, AHEAD)


def derivative(t: RealScalar, y: StateVector, args: Arguments) -> StateVector:
    """The vector field, for solvers that are not explicit."""
    field, in_use = args
    return field.derivative(jnp.asarray(t), y, in_use)


def regular_derivative(t: RealScalar, y: StateVector, args: Arguments) -> StateVector:
    """The same without what is done near singular poses: `ConstrainedSolver` evaluates stages itself, Diffrax asks for shapes."""
    field, in_use = args
    return field.evaluate_regular(jnp.asarray(t), y, in_use, quick=True)[0]
