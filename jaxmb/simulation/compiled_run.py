"""Whole runs by compiled code: where all steps are regular ones, no loop of XLA is needed around them.

Steps are judged by the functions that judge them in Diffrax's loop, `ConstrainedSolver.judged` and the step size
controller, here as scalar programs too; the logic around them in `diffrax.diffeqsolve` is written here once more.
"""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..foundations import Blank, shapes_of
from ..kinematics import Rows
from ..lanes import NotScalarError, Program, Shaped, latest
from ..runge_kutta import RunProgram, RunTangent, StepProgram, augmented
from ..system import dense_work
from .compiled_step import LARGEST_PROGRAM, StepResult, specialised
from .engine import LARGEST_WORK, compiled_step_of
from .guard import SAMPLES_PER_STEP, Guard
from .judgement import may_be_rejected
from .method import Method
from .phase import Phase, PhaseInputs, Tape
from .solver import ConstrainedSolver, regular_derivative
from .state_vector import StateVector
from .step_records import Accepted, Interpolant, StepStart
from .vector_field import RegularOnly, VectorField

Scalar = Float[Array, ""]
# Steps may end by so many units in the last place before the end of a run; they are made to end there.
SLIVER = 100


class Carry(eqx.Module):
    """What goes from one attempt to the next, in the order that `RunProgram` asks for.

    Attributes:
        t0, t1: when the step that is tried next begins and ends.
        y0: where it begins.
        slope, basis: see `Accepted`.
        jumped: whether the vector field has jumped there.
        residual, failed: see `Accepted`.
        controller: the state of the step size controller.
        steps: how many steps were tried,
        accepted: and how many of these were accepted.
        result: Diffrax's.
    """

    t0: Scalar
    t1: Scalar
    y0: Float[Array, " n"]
    slope: Float[Array, " n"]
    basis: Float[Array, "m k"]
    jumped: Bool[Array, ""]
    residual: Float[Array, " m"]
    failed: Bool[Array, ""]
    controller: PyTree
    steps: Int[Array, ""]
    accepted: Int[Array, ""]
    result: PyTree


class _RunSettings(eqx.Module):
    """The settings of a run: its step size controller, its end, a guard by which it ends sooner, and whether its rows are certainly independent."""

    controller: dfx.AbstractStepSizeController
    until: Scalar
    snap_time: Scalar  # a step that would end later ends with the run
    guard: Guard | None
    certified: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class _RunKind:
    """What a program of runs is made for: solver, problem and settings without their numbers, and sizes and structures."""

    solver: Blank
    problem: Blank  # with the settings
    numbers: tuple[Shaped, ...]  # of both
    nq: int
    nv: int
    structure: Hashable  # of the carry
    leaves: tuple[Shaped, ...]
    max_steps: int

    def flow(self, packed: Array) -> StateVector:
        return StateVector(packed, self.nq, self.nv)


def compiled_run(
    inputs: PhaseInputs, method: Method, guard: Guard | None, tape: bool
) -> tuple[Phase, Tape | None] | None:
    """The motion by regular steps only, to its end or to the first step that is none, and the tape; None if it cannot be made as a whole.

    Args:
        inputs: of the motion, with the rows that are in use.
        method: how it is integrated.
        guard: by which it ends sooner.
        tape: whether accepted states are kept.
    """
    field, t0, t1, y0, solver = inputs.field, inputs.t0, inputs.t1, inputs.y0, method.solver
    step = compiled_step_of(method, field, y0)
    # Without a bound on the steps the tape has no size.
    if step is None or method.max_steps is None or (field.takes_samples and step.sample is None):
        return None
    if guard is not None and any(guard.plan.reads) and dense_work(field.system) > LARGEST_WORK:
        return None
    assert field.regular_only is not None
    in_use = field.regular_only.in_use
    # Without derivatives: those of the first slope are found where they are needed, see `_run_tangent`.
    at_start = lax.stop_gradient((t0, t1, y0, (dataclasses.replace(field, step=step), in_use)))
    start = solver.init(None, *at_start)
    carry, settings = _at_start(inputs, method, start, guard)
    # Numbers are operands and the rest is part of the program's key: other tolerances or times compile nothing anew.
    problem, numbers = Blank.of((dataclasses.replace(field, regular_only=None), settings))
    solver_blank, own_numbers = Blank.of(solver)
    if own_numbers or not (problem.hashable and solver_blank.hashable):
        return None
    leaves, structure = jax.tree.flatten(carry)
    sizes = y0.nq, y0.nv, structure, shapes_of(leaves), method.max_steps
    kind = _RunKind(solver_blank, problem, shapes_of(numbers), *sizes)
    # The tangent in forward mode goes along the accepted steps, which are on the tape.
    taped = tape or method.adjoint is not None
    program = _program(step.program, step.sample, kind, inputs.ts.shape[0], taped)
    if program is None:
        return None
    results = _run((*leaves, inputs.ts, in_use, *numbers), program, kind)
    moves = t0 < t1  # else no step is made
    carry = jax.tree.map(
        lambda a, b: jnp.where(moves, a, b), jax.tree.unflatten(structure, results[: len(leaves)]), carry
    )
    ys, *rest = results[len(leaves) :]
    result, end, ended = carry.result, carry.y0, jnp.array(False)
    if guard is not None:
        ended, end, *rest = rest
        ended, end = moves & ended, jnp.where(moves, end, y0.packed)
        occurred: PyTree = dfx.RESULTS.event_occurred
        result = dfx.RESULTS.where(ended, occurred, result)
    # The program ends at the largest number of steps without a word: a result of its own is made here.
    unfinished = (carry.t0 < t1) & (result == dfx.RESULTS.successful)
    too_many: PyTree = dfx.RESULTS.max_steps_reached
    phase = Phase(
        ys=kind.flow(jnp.where(moves, ys, y0.packed)),
        t=carry.t0,
        y=kind.flow(carry.y0),
        result=dfx.RESULTS.where(unfinished, too_many, result),
        stats=dict(
            num_steps=carry.steps, num_accepted_steps=carry.accepted, num_rejected_steps=carry.steps - carry.accepted
        ),
        accepted=dataclasses.replace(_as_accepted(start, carry, field), rows=start.rows, ended=ended),
        irregular=jnp.array(False),
    )
    if not tape:
        return phase, None
    ts, ys_of_tape, ends = rest
    # A failed last step counts as accepted, since its error estimate is zero; as a step it is none.
    return phase, Tape(ts, kind.flow(ys_of_tape), carry.accepted - carry.failed, ends, kind.flow(end))


def _at_start(inputs: PhaseInputs, method: Method, start: Accepted, guard: Guard | None) -> tuple[Carry, _RunSettings]:
    """What a run carries from attempt to attempt before the first, and its settings."""
    field, t0, t1, y0 = inputs.field, inputs.t0, inputs.t1, inputs.y0
    controller, solver = method.controller, method.solver
    term: dfx.ODETerm = dfx.ODETerm(regular_derivative)
    assert field.regular_only is not None and controller is not None
    arguments = field, field.regular_only.in_use
    first_end, state = controller.init(term, t0, t1, y0, method.dt0, arguments, solver.func, solver.error_order(term))
    successful: PyTree = dfx.RESULTS.successful
    carry = Carry(
        t0=t0,
        t1=jnp.minimum(first_end, t1),
        y0=y0.packed,
        slope=start.inner[0].packed,
        basis=start.basis,
        jumped=jnp.array(False),
        residual=start.residual,
        failed=start.failed,
        controller=state,
        steps=jnp.array(0),
        accepted=jnp.array(0),
        result=successful,
    )
    # As in Diffrax's loop: else the last step could be one of rounding's length.
    snap_time = t1 - SLIVER * (t1 - eqxi.prevbefore(t1))
    settings = _RunSettings(controller, t1, snap_time, lax.stop_gradient(guard), start.certified)
    return jax.tree.map(jnp.asarray, carry), settings


@eqx.filter_custom_jvp
def _run(operands: tuple[Array, ...], program: RunProgram, kind: _RunKind) -> list[Array]:
    return program(*operands)


@_run.def_jvp
def _run_tangent(primals: PyTree, tangents: PyTree) -> tuple[list[Array], list[Any]]:
    """Along the accepted steps; where their times change, step by step. Of the tape, which nobody reads then, there are none."""
    (operands, program, kind), dots = primals, tangents[0]
    first, last = _parameter_range(program)
    # Left out: y₀, which may change; the first slope, which is found again from it; the basis, which has no derivative. A change of anything
    # else changes the times of steps, or times at which states are saved.
    others = (*dots[:2], *dots[5:first], *dots[last:])
    moving = tuple(k for k, dot in enumerate(dots[first:last], 1) if dot is not None)
    parts = augmented((program.stage, program.end, *filter(None, [program.start])), False, moving)
    if isinstance(parts, str) or any(dot is not None for dot in others):
        results, dots_of_results = _step_by_step((operands, dots), program)
    else:
        results, dots_of_results = _by_tape((operands, dots), program, parts, kind)
    return results, [dots_of_results.get(k) for k in range(len(results))]


def _parameter_range(program: RunProgram) -> tuple[int, int]:
    """Where the parameters of the problem begin and end among the operands, behind the times and the rows in use."""
    first = len(program.carry) + 2
    return first, first + len(program.stage.operands) - 3


def _step_by_step(
    moves: tuple[tuple[Array, ...], tuple[Array | None, ...]], program: RunProgram
) -> tuple[list[Array], dict[int, Array]]:
    """Results and their tangents, by number, in a loop of XLA that has derivatives of any order; the tape is empty."""
    first, last = _parameter_range(program)
    without_tape = dataclasses.replace(program, taped=0)

    def run(*operands: Array) -> list[Array]:
        # The first slope is handed over without derivatives: it is found again.
        t, y, parameters = operands[0], operands[2], operands[first:last]
        slope = program.end(t, y, operands[4], operands[first - 1], *parameters)[0]
        return without_tape.by_steps(*operands[:3], slope, *operands[4:])

    results, dots = eqx.filter_jvp(run, *moves)
    tape = [jnp.zeros(s.shape, s.dtype) for s in program.results[len(results) :]]
    return [*results, *tape], {k: dot for k, dot in enumerate(dots) if dot is not None}


@eqx.filter_custom_jvp
def _by_tape(
    moves: tuple[tuple[Array, ...], tuple[Array | None, ...]],
    program: RunProgram,
    parts: tuple[Program, ...],
    kind: _RunKind,
) -> tuple[list[Array], dict[int, Array]]:
    """Results, and the tangents of the last state and of those saved, along the accepted steps."""
    operands, dots = moves
    count, (first, last) = len(program.carry), _parameter_range(program)
    results = program(*operands)
    carry: Carry = jax.tree.unflatten(kind.structure, results[:count])
    tangent = _tangent_program(program, parts, kind.nq + kind.nv)
    # A last step that has failed counts as accepted, since its error estimate is zero, and is none.
    steps = jnp.maximum(carry.accepted - carry.failed, 1).astype(jnp.int32)
    y0_dot = jnp.zeros_like(operands[2]) if dots[2] is None else dots[2]
    times = operands[count]
    if program.guard is not None:
        # The end may lie within the last step: it is read off the interpolation, like a saved state.
        times = jnp.append(jnp.minimum(times, carry.t0), carry.t0)
    operands_of_tangent = *results[-3:], steps, times, y0_dot, *operands[count + 1 : last]
    moving = (dot for dot in dots[first:last] if dot is not None)
    ys_dot, end_dot = tangent(*operands_of_tangent, *moving)
    if program.guard is not None:
        ys_dot, end_dot = ys_dot[:-1], jnp.where(results[count + 1], ys_dot[-1], end_dot)
    # A run that has failed has no derivative; that of its accepted steps would pass for one.
    return results, {k: jnp.where(carry.failed, jnp.nan, x) for k, x in ((2, end_dot), (count, ys_dot))}


@_by_tape.def_jvp
def _by_tape_tangent(primals: PyTree, tangents: PyTree) -> tuple[Any, Any]:
    """Of second order step by step: the states on the tape, along which the first one goes, have no tangents there."""
    moves, program, *_ = primals
    last_and_saved = 2, len(program.carry)

    def both(moves: PyTree) -> tuple[list[Array], dict[int, Array]]:
        results, dots = _step_by_step(moves, program)
        return results, {k: dots[k] for k in last_and_saved}

    return eqx.filter_jvp(both, (moves,), (tangents[0],))


@latest
def _tangent_program(run: RunProgram, parts: tuple[Program, ...], replaced: int) -> RunTangent:
    stage, end, *start = parts
    return RunTangent(
        stage=stage,
        end=end,
        start=start[0] if start else None,
        a=run.a,
        c=run.c,
        between=run.between,
        replaced=replaced,
        times=run.times + (run.guard is not None),
        taped=run.taped,
        reuses=run.knows_start,
    )


def _as_accepted(start: Accepted, carry: Carry, field: VectorField) -> Accepted:
    """The record that Diffrax's loop would carry at this point of the run."""
    y = start.end[1]
    return dataclasses.replace(
        start,
        inner=(y.like(carry.slope), jnp.array(True)),
        end=(carry.t0, y.like(carry.y0)),
        reached=carry.t0,
        basis=carry.basis,
        residual=carry.residual,
        compiled=carry.accepted,
        sparse=carry.accepted if field.system.layout is not None else start.sparse,
        failed=carry.failed,
    )


@latest
def _program(step: StepProgram, sample: Program | None, kind: _RunKind, times: int, tape: bool) -> RunProgram | None:
    """The program of a run, None if something about it is no scalar program."""
    parts = _parts(step, kind)
    if parts is None:
        return None
    judge, read, guard = parts
    return RunProgram(
        stage=step.stage,
        end=step.end,
        a=step.a,
        c=step.c,
        knows_start=step.knows_start,
        start=sample,
        attempt=judge,
        between=read,
        guard=guard,
        parts=SAMPLES_PER_STEP,
        times=times,
        taped=kind.max_steps + 1 if tape else 0,
    )


@latest
def _parts(step: StepProgram, kind: _RunKind) -> tuple[Program, Program, Program | None] | None:
    """`attempt`, `between` and `guard` of a run, whatever its times and whether it has a tape."""
    count, n, dtype = len(kind.leaves), step.state.shape, step.dtype
    solver: ConstrainedSolver = kind.solver.filled(())
    first = count + len(step.results)  # behind what is carried and the results of the step

    def attempt(*operands: Array) -> list[Array]:
        carry: Carry = jax.tree.unflatten(kind.structure, operands[:count])
        results, too_long, in_use = operands[count:first], *operands[first : first + 2]
        field, settings = kind.problem.filled(operands[first + 2 :])
        judged = _judge_attempt(carry, results, too_long, in_use, solver, specialised(field), settings, kind)
        following, accepted, proceed, shift = judged
        return [*jax.tree.leaves(following), accepted, proceed, shift]

    def guard(t: Array, y: Array, in_use: Array, *numbers: Array) -> list[Array]:
        field, settings = kind.problem.filled(numbers)
        return list(settings.guard(specialised(field.dense), t, kind.flow(y), in_use))

    def between(t: Array, t0: Array, t1: Array, y0: Array, y1: Array, k: Array, shift: Array) -> list[Array]:
        return [Interpolant(*map(kind.flow, (k, y0, y1, shift))).at(solver.interpolation_cls, t0, t1, t).packed]

    in_use = step.end.operands[3]
    t, y = Shaped((), dtype), Shaped(n, dtype)
    try:
        # Exact: what is not finite must stay so through products with zero, else a broken step would pass.
        no = Shaped((), jnp.bool_)
        judge = Program.of(attempt, *kind.leaves, *step.results, no, in_use, *kind.numbers, exact=True)
        read = Program.of(between, t, t, t, y, y, step.slopes, y)
        guarded = kind.problem.filled(kind.numbers)[1].guard is not None
        guards = Program.of(guard, t, y, in_use, *kind.numbers, largest=LARGEST_PROGRAM) if guarded else None
        return judge, read, guards
    except NotScalarError:
        return None


def _judge_attempt(
    carry: Carry,
    results: Sequence[Array],
    too_long: Array,
    in_use: Array,
    solver: ConstrainedSolver,
    field: VectorField,
    settings: _RunSettings,
    kind: _RunKind,
) -> tuple[Carry, Array, Array, Array]:
    """The carry of the next attempt, whether the step is accepted, whether another one follows, and the shift of the interpolation."""
    y0, until = kind.flow(carry.y0), settings.until
    start = solver.init(None, carry.t0, carry.t1, y0, (field, in_use))
    start = dataclasses.replace(start, rows=Rows.independent(in_use, y0.packed.dtype), certified=settings.certified)
    before = _as_accepted(start, carry, field)
    field = dataclasses.replace(field, regular_only=RegularOnly(in_use))
    step = StepResult.of(results, y0, in_use)
    y1, error, dense, after, result = solver.judged(
        step, StepStart(field=field, t0=carry.t0, t1=carry.t1, y0=y0, before=before, jumped=carry.jumped)
    )
    rejected = too_long & may_be_rejected(result, carry.t0, carry.t1)
    # As in Diffrax's loop: NaN compares as false with any tolerance, and must reject the step.
    error = jax.tree.map(lambda x: jnp.where(jnp.isnan(x) | rejected, jnp.inf, x), error)
    order = solver.error_order(dfx.ODETerm(regular_derivative))
    accept, begin, end, jumped, state, controller_result = settings.controller.adapt_step_size(
        carry.t0, carry.t1, y0, y1, None, error, order, carry.controller
    )
    # One that fails ends the run; a sample that is not finite would make its error NaN.
    accept = jnp.asarray(accept) | after.failed
    # As in Diffrax's loop: rounding in a controller must not lead beyond the end; after a rejection near it half of the rest is tried, since
    # all of it has just failed.
    begin = jnp.minimum(begin, until)
    last = jnp.where(accept, until, begin + 0.5 * (until - begin))
    successful: PyTree = dfx.RESULTS.successful
    # The failure of a rejected step is forgotten, as a shorter one may succeed; of all others the first is reported.
    result = dfx.RESULTS.where(accept, result, successful)
    result = dfx.RESULTS.where(dfx.is_okay(carry.result), result, carry.result)
    result = dfx.RESULTS.where(dfx.is_okay(result), controller_result, result)
    y = y1.where(accept, y0)
    chosen = lambda a, b: jnp.where(accept, a, b)
    following = Carry(
        t0=begin,
        t1=jnp.where(end > settings.snap_time, last, end),
        y0=y.packed,
        slope=chosen(after.inner[0].packed, carry.slope),
        basis=chosen(after.basis, carry.basis),
        jumped=chosen(jumped, carry.jumped),
        residual=chosen(after.residual, carry.residual),
        failed=chosen(after.failed, carry.failed),
        controller=state,
        steps=carry.steps + 1,
        accepted=carry.accepted + accept,
        result=result,
    )
    # A loop's carry keeps its types; weak ones of Python's numbers would change them.
    following = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), following, carry)
    proceed = (begin < until) & dfx.is_successful(result) & (following.steps < kind.max_steps)
    return following, accept, proceed, dense["shift"].packed
