"""Whole runs by compiled code: where all steps are regular ones, no loop of XLA is needed around them.

What becomes of a step is judged by the functions that judge it in Diffrax's loop, `ConstrainedSolver.judged` and the step size
controller, here as scalar programs too; what is around them, of `diffrax.diffeqsolve`, is written here once more.
"""

import dataclasses
import functools
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..foundations import Blank, shapes_of
from ..kinematics import Rows
from ..lanes import NotScalarError, Program, Shaped
from ..runge_kutta import RunProgram, RunTangent, StepProgram, augmented
from .compiled_step import CompiledStep, Found, known_problem
from .problem import Problem, RegularOnly
from .solver import Accepted, ConstrainedSolver, regular_derivative
from .stages import coefficients
from .state_vector import StateVector

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
        residual, over: see `Accepted`.
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
    over: Bool[Array, ""]
    controller: Any
    steps: Int[Array, ""]
    accepted: Int[Array, ""]
    result: Any


class _Around(eqx.Module):
    """What an attempt depends on besides the problem: the run's controller and end, and whether its rows are certain."""

    controller: dfx.AbstractStepSizeController
    until: Scalar
    nearly: Scalar  # a step that would end later ends with the run
    certain: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class _Form:
    """What a program of runs is made for, besides the blank problem and what is around it."""

    nq: int
    nv: int
    structure: Any  # of the carry
    leaves: tuple[Shaped, ...]
    max_steps: int

    def flow(self, packed: Array) -> StateVector:
        return StateVector(packed, self.nq, self.nv)


class CompiledRun(eqx.Module):
    """A run that went through: the states at the given times, the tape if there is one, and what was carried to its end."""

    ys: StateVector
    tape: tuple[Array, StateVector] | None
    t: Scalar
    y: StateVector
    result: Any
    stats: dict[str, Array]
    accepted: Accepted


def compiled_run(
    problem: Problem,
    step: CompiledStep,
    solver: ConstrainedSolver,
    controller: dfx.AbstractStepSizeController,
    dt0: Scalar | None,
    span: tuple[Scalar, Scalar],
    y0: StateVector,
    ts: Float[Array, " T"],
    max_steps: int,
    tape: bool,
) -> CompiledRun | None:
    """The run by regular steps only, from its start to its end or to the first step that is none; None if it cannot be made as a whole.

    Args:
        problem: the problem, with the rows that are in use.
        step: its step.
        solver: by which
        controller: steps are made, and chosen.
        dt0: the first one.
        span: when it starts and ends.
        y0: where it starts.
        ts: when states are saved.
        max_steps: largest number of steps.
        tape: whether accepted states are kept.
    """
    (t0, t1), only = span, problem.regular_only
    assert only is not None
    in_use = only.in_use
    start = solver.init(None, t0, t1, y0, (dataclasses.replace(problem, step=step), in_use))
    term: Any = dfx.ODETerm(regular_derivative)
    first, state = controller.init(term, t0, t1, y0, dt0, (problem, in_use), solver.func, solver.error_order(term))
    none: Any = dfx.RESULTS.successful
    carry = Carry(
        t0,
        jnp.minimum(first, t1),
        y0.packed,
        start.inner[0].packed,
        start.basis,
        jnp.array(False),
        start.residual,
        start.over,
        state,
        jnp.array(0),
        jnp.array(0),
        none,
    )
    carry = jax.tree.map(jnp.asarray, carry)
    nearly = t1 - SLIVER * (t1 - eqxi.prevbefore(t1))
    around, more = Blank.of(_Around(controller, t1, nearly, start.certain))
    blank, own = Blank.of(dataclasses.replace(problem, regular_only=None, step=None, until=None))
    kind, numbers = Blank.of(solver)
    if numbers or not (around.hashable and blank.hashable and kind.hashable):
        return None
    leaves, structure = jax.tree.flatten(carry)
    form = _Form(y0.nq, y0.nv, structure, shapes_of(leaves), max_steps)
    program = _program(step.program, kind, blank, shapes_of(own), around, shapes_of(more), form, ts.shape[0], tape)
    if program is None:
        return None
    found = _run((*leaves, ts, in_use, *own, *more), program, form, len(own), coefficients(solver.solver)[3])
    moves = t0 < t1  # else no step is made
    carry = jax.tree.map(
        lambda a, b: jnp.where(moves, a, b), jax.tree.unflatten(structure, found[: len(leaves)]), carry
    )
    ys, *rest = found[len(leaves) :]
    ys = jnp.where(moves, ys, y0.packed)
    unfinished = (carry.t0 < t1) & (carry.result == dfx.RESULTS.successful)
    many: Any = dfx.RESULTS.max_steps_reached
    stats = dict(
        num_steps=carry.steps, num_accepted_steps=carry.accepted, num_rejected_steps=carry.steps - carry.accepted
    )
    end = form.flow(carry.y0)
    return CompiledRun(
        form.flow(ys),
        (rest[0], form.flow(rest[1])) if tape else None,
        carry.t0,
        end,
        dfx.RESULTS.where(unfinished, many, carry.result),
        stats,
        dataclasses.replace(_accepted(start, carry, form, problem), rows=start.rows),
    )


@eqx.filter_custom_jvp
def _run(operands: tuple[Array, ...], program: RunProgram, form: _Form, own: int, reuses: bool) -> list[Array]:
    return program(*operands)


@_run.def_jvp
def _along(primals: Any, tangents: Any) -> tuple[list[Array], list[Any]]:
    """Along the accepted steps; where their times change, step by step in a loop of XLA. Of the tape, which nobody reads then, there are none."""
    (operands, program, form, own, reuses), dots = primals, tangents[0]
    count = len(program.carry)
    first = count + 2  # of the parameters, behind the times and the rows in use
    others = (*dots[:2], *dots[5:first], *dots[first + own :])
    moving = tuple(k for k, dot in enumerate(dots[first : first + own], 1) if dot is not None)
    parts = augmented(program.stage, program.end, False, moving)
    if isinstance(parts, str) or any(dot is not None for dot in others):
        found, moved = eqx.filter_jvp(dataclasses.replace(program, taped=0).by_steps, operands, dots)
        tape = [jnp.zeros(s.shape, s.dtype) for s in program.results[len(found) :]]
        return [*found, *tape], [*moved, *(None for _ in tape)]
    found = _run(*primals)
    carry: Carry = jax.tree.unflatten(form.structure, found[:count])
    along = _along_program(program, *parts, form.nq + form.nv, reuses)
    steps = jnp.maximum(carry.accepted - carry.over, 1).astype(jnp.int32)
    y0_dot = jnp.zeros_like(operands[2]) if dots[2] is None else dots[2]
    given = *found[-2:], steps, carry.t0, operands[count], y0_dot, *operands[count + 1 : first + own]
    ys_dot, end_dot = (jnp.where(carry.over, jnp.nan, x) for x in along(*given, *(dots[first - 1 + k] for k in moving)))
    moved = {2: end_dot, count: ys_dot}
    return found, [moved.get(k) for k in range(len(found))]


@functools.lru_cache(maxsize=64)
def _along_program(run: RunProgram, stage: Program, end: Program, replaced: int, reuses: bool) -> RunTangent:
    return RunTangent(stage, end, run.a, run.c, run.between, replaced, run.times, run.taped, reuses)


def _accepted(start: Accepted, carry: Carry, form: _Form, problem: Problem) -> Accepted:
    """What is carried in Diffrax's loop."""
    return dataclasses.replace(
        start,
        inner=(form.flow(carry.slope), jnp.array(True)),
        end=(carry.t0, form.flow(carry.y0)),
        basis=carry.basis,
        residual=carry.residual,
        compiled=carry.accepted,
        sparse=carry.accepted if problem.system.layout is not None else start.sparse,
        over=carry.over,
    )


@functools.lru_cache(maxsize=64)
def _program(
    step: StepProgram,
    kind: Blank,
    blank: Blank,
    own: tuple[Shaped, ...],
    around: Blank,
    more: tuple[Shaped, ...],
    form: _Form,
    times: int,
    tape: bool,
) -> RunProgram | None:
    """The program of a run, None if something about it is no scalar program."""
    count, n, dtype = len(form.leaves), step.state.shape, step.dtype
    solver: ConstrainedSolver = kind.filled(())

    def attempt(*given: Array) -> list[Array]:
        carry: Carry = jax.tree.unflatten(form.structure, given[:count])
        results, in_use = given[count : count + len(step.results)], given[count + len(step.results)]
        arrays = given[count + len(step.results) + 1 :]
        problem = known_problem(blank, arrays[: len(own)])
        other: _Around = around.filled(arrays[len(own) :])
        following, accepted, going, shift = _attempt(carry, results, in_use, solver, problem, other, form)
        return [*jax.tree.leaves(following), accepted, going, shift]

    def between(t: Array, t0: Array, t1: Array, y0: Array, y1: Array, k: Array, shift: Array) -> list[Array]:
        inner = {"y0": form.flow(y0), "y1": form.flow(y1), "k": form.flow(k)}
        found = solver.interpolation_cls(t0=t0, t1=t1, inner=inner, shift=form.flow(shift))
        return [found.evaluate(t).packed]

    in_use = step.end.operands[3]
    t, y = Shaped((), dtype), Shaped(n, dtype)
    try:
        judge = Program.of(attempt, *form.leaves, *step.results, in_use, *own, *more, exact=True)
        read = Program.of(between, t, t, t, y, y, step.slopes, y)
    except NotScalarError:
        return None
    taped = form.max_steps + 1 if tape else 0
    return RunProgram(step.stage, step.end, step.a, step.c, step.knows_start, judge, read, times, taped)


def _attempt(
    carry: Carry,
    results: Any,
    in_use: Array,
    solver: ConstrainedSolver,
    problem: Problem,
    around: _Around,
    form: _Form,
) -> tuple[Carry, Array, Array, Array]:
    """What is tried next, whether the step is accepted, whether there is another one, and the interpolation's shift."""
    y0, until = form.flow(carry.y0), around.until
    start = solver.init(None, carry.t0, carry.t1, y0, (problem, in_use))
    start = dataclasses.replace(start, rows=Rows.independent(in_use, y0.packed.dtype), certain=around.certain)
    before = _accepted(start, carry, form, problem)
    problem = dataclasses.replace(problem, regular_only=RegularOnly(in_use))
    found = Found.of(results, y0, in_use)
    y1, error, dense, after, result = solver.judged(found, carry.t0, carry.t1, y0, problem, before, carry.jumped)
    error = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), error)
    order = solver.error_order(dfx.ODETerm(regular_derivative))
    kept, begin, end, jumped, state, said = around.controller.adapt_step_size(
        carry.t0, carry.t1, y0, y1, None, error, order, carry.controller
    )
    kept = jnp.asarray(kept)
    begin = jnp.minimum(begin, until)
    last = jnp.where(kept, until, begin + 0.5 * (until - begin))
    fine: Any = dfx.RESULTS.successful
    result = dfx.RESULTS.where(kept, result, fine)
    result = dfx.RESULTS.where(dfx.is_okay(carry.result), result, carry.result)
    result = dfx.RESULTS.where(dfx.is_okay(result), said, result)
    y = y1.where(kept, y0)
    chosen = lambda a, b: jnp.where(kept, a, b)
    following = Carry(
        begin,
        jnp.where(end > around.nearly, last, end),
        y.packed,
        chosen(after.inner[0].packed, carry.slope),
        chosen(after.basis, carry.basis),
        chosen(jumped, carry.jumped),
        chosen(after.residual, carry.residual),
        chosen(after.over, carry.over),
        state,
        carry.steps + 1,
        carry.accepted + kept,
        result,
    )
    following = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), following, carry)
    going = (begin < until) & dfx.is_successful(result) & (following.steps < form.max_steps)
    return following, kept, going, dense["shift"].packed
