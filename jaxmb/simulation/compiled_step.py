"""Steps as compiled code far from singular configurations."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, PyTree

from ..foundations import Blank, shapes_of
from ..kinematics import Correction
from ..lanes import NotScalarError, Program, Shaped, VJPProgram, latest
from ..runge_kutta import StepAdjoint, StepProgram
from ..system import System
from .certificate import certify, corrected_end
from .stages import coefficients
from .state_vector import StateVector
from .vector_field import VectorField

# So many operations a function of a step, or of the way back, may have, and where compiled code is asked for.
LARGEST_PROGRAM, LARGEST_ON_DEMAND = 150_000, 500_000


class StepResult(eqx.Module):
    """The result of a step.

    Attributes:
        raw: its end before the correction.
        slopes: k (s, …).
        y1: the corrected end.
        end: its correction, with the residuals that are left.
        irregular: whether the general program must make the step instead.
    """

    raw: StateVector
    slopes: StateVector
    y1: StateVector
    end: Correction
    irregular: Bool[Array, ""]

    @classmethod
    def of(cls, results: Sequence[Array], y0: StateVector, in_use: Bool[Array, " m"]) -> "StepResult":
        """From the arrays that a step's program returns."""
        raw, slopes, near, q, v, position, velocity, basis, uncertified = results
        # Residuals and bases serve decisions, which have no derivative; that of the state goes by y₁.
        correction = lax.stop_gradient(
            Correction(q=q, v=v, in_use=in_use, basis=basis, position=position, velocity=velocity)
        )
        return cls(y0.like(raw), y0.like(slopes), y0.like(raw).with_qv(q, v), correction, near | uncertified)


class CompiledStep(eqx.Module):
    """A step whose stages are scalar programs.

    Attributes:
        program: the step.
        sample: (t, y, rows in use, parameters) ↦ y after the sample of a controller that is due, if one is; None if there is no such program.
        parameters: all arrays of the problem.
    """

    program: StepProgram = eqx.field(static=True)
    sample: Program | None = eqx.field(static=True)
    parameters: list[Array]

    def __call__(
        self, t0: Array, t1: Array, y0: StateVector, slope: StateVector, in_use: Bool[Array, " m"], basis: Array
    ) -> StepResult:
        """One step from a state at which the rows in use are certain, and the slope known if the method has use for it."""
        results = self.program(t0, t1, y0.packed, slope.packed, basis, in_use, *self.parameters)
        return StepResult.of(results, y0, in_use)

    def rate(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> StateVector:
        """The vector field at a state."""
        return y.like(self.program.stage.in_lane(3, t, y.packed, in_use, *self.parameters)[0])

    def at(
        self, t: Array, y: StateVector, in_use: Bool[Array, " m"]
    ) -> tuple[StateVector, Correction, Bool[Array, ""]]:
        """The vector field at a state, its correction, and whether rows in use are not certain there."""
        nothing = jnp.zeros(self.program.end.operands[2].shape, y.packed.dtype)
        slope, q, v, position, velocity, basis, uncertified = self.program.end.in_lane(
            4, t, y.packed, nothing, in_use, *self.parameters
        )
        return (
            y.like(slope),
            Correction(q=q, v=v, in_use=in_use, basis=basis, position=position, velocity=velocity),
            uncertified,
        )

    def uncertified(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> Bool[Array, ""]:
        """Whether a step from a state may lose rows in use, or they are not certain there."""
        near = self.program.stage.in_lane(3, t, y.packed, in_use, *self.parameters)[1]
        return near | self.at(t, y, in_use)[2]


def compiled_step(
    field: VectorField, solver: dfx.AbstractSolver, y0: StateVector, on_demand: bool
) -> CompiledStep | str:
    """The step of a problem by a solver of Diffrax, or why there is none; `on_demand` also of one that takes long to compile."""
    problem, parameters = _Problem.of(y0, field)
    if not problem.blank.hashable:
        return "part of the problem is neither an array nor hashable"
    # Who asks for compiled code is ready to wait for it; by default a first call must not take long.
    limit = LARGEST_ON_DEMAND if on_demand else LARGEST_PROGRAM
    program = _step_program(problem, _Coefficients.of(solver, field), limit, on_demand)
    sample = _sample_program(problem) if field.takes_samples else None
    return program if isinstance(program, str) else CompiledStep(program, sample, parameters)


def basis_shape(system: System) -> tuple[int, int]:
    """The shape of what is carried from the end of one step to that of the next, see `corrected_end`."""
    layout = system.layout
    return system.m, system.nv if layout is None else layout.touched.shape[1] * layout.blocks.shape[1]


class CompiledStepAdjoint(eqx.Module):
    """The reverse sweep over a step, whose functions are scalar programs.

    Attributes:
        step: the step, with its first slope.
        program: the reverse sweep over it.
        sample: see `CompiledStep`.
        sample_vjp: (t, y, cotangent of y after the sample, rows in use, parameters) ↦ cotangents of (t, y, parameters that move).
    """

    step: StepProgram = eqx.field(static=True)
    program: StepAdjoint = eqx.field(static=True)
    sample: Program | None = eqx.field(static=True)
    sample_vjp: VJPProgram | None = eqx.field(static=True)

    def replay(
        self, moves: PyTree, rest: VectorField, in_use: Array, t0: Array, t1: Array, y0: StateVector
    ) -> tuple[StateVector, StateVector, Array]:
        """The end of a step before its correction, its slopes, and whether the step is irregular."""
        operands = (t0, t1, y0.packed, jnp.zeros_like(y0.packed), jnp.zeros(0, y0.packed.dtype), in_use)
        raw, slopes, near, uncertified = self.step(*operands, *arrays_of_field(moves, rest))
        # Steps on a tape were finite when they were made: where one is not now it was made otherwise, and is made so again.
        finite = jnp.all(jnp.isfinite(raw)) & jnp.all(jnp.isfinite(slopes))
        return y0.like(raw), y0.like(slopes), near | uncertified | ~finite

    def pull(self, moves: PyTree, rest: VectorField, in_use: Array, *operands: Array) -> tuple[Array, Array, Any]:
        """Cotangents of the state at the start, of the slope taken over from the step before, and of the problem."""
        state_bar, slope_bar, *bars = self.program(*operands, in_use, *arrays_of_field(moves, rest))
        return state_bar, slope_bar, jax.tree.unflatten(jax.tree.structure(moves), bars)


def compiled_step_adjoint(
    moves: PyTree, rest: VectorField, solver: dfx.AbstractSolver, y0: StateVector, on_demand: bool
) -> CompiledStepAdjoint | str:
    """The reverse sweep over a step of a problem, of which parts move, by a solver of Diffrax, or why there is none; `on_demand` as of the step."""
    field = eqx.combine(moves, rest)
    replay = compiled_step(field, solver, y0, on_demand)
    if isinstance(replay, str):
        return replay
    (problem, _), moving = _Problem.of(y0, moves, rest), len(jax.tree.leaves(moves))
    programs = _adjoint_programs(problem, moving, _Coefficients.of(solver, field), on_demand)
    samples = _sample_adjoint(problem, moving) if field.takes_samples else (None, None)
    return programs if isinstance(programs, str) else CompiledStepAdjoint(*programs, *samples)


def arrays_of_field(moves: PyTree, rest: VectorField) -> list[Array]:
    """All arrays of a problem, those that move first."""
    return jax.tree.leaves(moves) + jax.tree.leaves(eqx.filter(rest, eqx.is_array))


@dataclasses.dataclass(frozen=True)
class _Coefficients:
    """Coefficients of a method, see `Tableau`, and whether the first slope of a step is known from the step before."""

    a: tuple[tuple[float, ...], ...]
    c: tuple[float, ...]
    knows_start: bool

    @classmethod
    def of(cls, solver: dfx.AbstractSolver, field: VectorField) -> "_Coefficients":
        a, c, _, fsal = coefficients(solver)
        # No step asks whether a sample, or a jump, has come between: that would take a branch, a slope takes one stage in seven.
        return cls(tuple(map(tuple, a.tolist())), tuple(c.tolist()), fsal and not field.begins_anew)


@dataclasses.dataclass(frozen=True)
class _Problem:
    """A problem without its numbers, which are operands of all its programs, with the sizes and the type of what is integrated."""

    blank: Blank
    parameters: tuple[Shaped, ...]
    n: int
    nq: int
    nv: int
    basis: tuple[int, int]
    dtype: np.dtype

    @classmethod
    def of(cls, y: StateVector, *parts: PyTree) -> tuple["_Problem", list[Array]]:
        """Of a vector field, which may be in parts, and its numbers."""
        blank, parameters = Blank.of(*parts)
        field: VectorField = blank.filled(parameters)
        sizes = y.packed.shape[-1], y.nq, y.nv, basis_shape(field.system), np.dtype(y.packed.dtype)
        return cls(blank, shapes_of(parameters), *sizes), parameters

    def field(self, arrays: Sequence[Array]) -> VectorField:
        """The problem with these numbers, by the fewest operations."""
        return specialised(self.blank.filled(arrays))

    def flow(self, packed: Array) -> StateVector:
        return StateVector(packed, self.nq, self.nv)

    def numbers(self, *shape: int) -> Shaped:
        return Shaped(shape, self.dtype)

    @property
    def state(self) -> Shaped:
        return self.numbers(self.n)

    def operands(self, *more: Shaped) -> tuple[Shaped, ...]:
        """t, y, more, the rows in use, and the parameters."""
        return self.numbers(), self.state, *more, Shaped(self.basis[:1], jnp.bool_), *self.parameters


def specialised(field: VectorField) -> VectorField:
    """The problem far from singular poses, with known entries of its parameters as constants, by the fewest operations."""
    system = field.system.specialised
    return dataclasses.replace(field, system=system.unrolled if system.layout is None else system, smooth=True)


@latest
def _step_program(problem: _Problem, method: _Coefficients, largest: int, thorough: bool) -> StepProgram | str:
    """The programs of a step, traced once for all runs of such a problem, or the reason why there are none."""

    def end(t: Array, y: Array, before: Array, in_use: Array, *arrays: Array) -> list[Array]:
        field, raw = problem.field(arrays), problem.flow(y)
        flow, correction, uncertified = corrected_end(field, t, raw, in_use, before)
        y1 = field.with_correction(t, raw, correction)
        return [flow.packed, y1.q, y1.v, correction.position, correction.velocity, correction.basis, uncertified]

    operands = problem.operands(problem.numbers(*problem.basis))
    try:
        # The end first, which is the larger one: of what is too large nothing else is written.
        last = Program.of(end, *operands, largest=largest, thorough=thorough)
        # A function of its own: the steps that a reverse sweep makes again are made of the same stages.
        stage = _stage_program(problem, largest, thorough)
        return StepProgram(stage, last, method.a, method.c, method.knows_start)
    except NotScalarError as error:
        return str(error)


@latest
def _stage_program(problem: _Problem, largest: int, thorough: bool) -> Program:
    def stage(t: Array, y: Array, in_use: Array, *arrays: Array) -> list[Array]:
        field = problem.field(arrays)
        flow, _, factor = field.evaluate_regular(t, problem.flow(y), in_use, quick=True)
        return [flow.packed, field.loses_rows(factor)]

    return Program.of(stage, *problem.operands(), largest=largest, thorough=thorough)


def _sample(problem: _Problem) -> Callable[..., list[Array]]:
    """The state after a sample, if one is due, as a function."""

    def sample(t: Array, y: Array, in_use: Array, *arrays: Array) -> list[Array]:
        field, before = problem.field(arrays), problem.flow(y)
        assert field.loop is not None
        after = field.sample(t, before, in_use)
        return [after.where(field.loop.due(t, before.control), before).packed]

    return sample


@latest
def _sample_program(problem: _Problem) -> Program | None:
    try:
        return Program.of(_sample(problem), *problem.operands(), largest=LARGEST_PROGRAM)
    # Such as one that draws noise: the state after a sample is XLA's then.
    except NotScalarError:
        return None


@latest
def _sample_adjoint(problem: _Problem, moving: int) -> tuple[Program, VJPProgram] | tuple[None, None]:
    moves, program = (0, 1, *range(3, 3 + moving)), _sample_program(problem)
    if program is None:
        return None, None
    limits: dict[str, Any] = dict(moving=moves, at=2, largest=LARGEST_PROGRAM)
    try:
        return program, VJPProgram(_sample(problem), *problem.operands(), **limits)
    except NotScalarError:
        return None, None


@latest
def _adjoint_programs(
    problem: _Problem, moving: int, method: _Coefficients, thorough: bool
) -> tuple[StepProgram, StepAdjoint] | str:
    """The programs of a step and of the reverse sweep over it, or the reason why there are none."""

    def end(t: Array, y: Array, nothing: Array, in_use: Array, *arrays: Array) -> list[Array]:
        flow, _, uncertified = rate(t, y, in_use, *arrays)
        return [flow, uncertified]

    def rate(t: Array, y: Array, in_use: Array, *arrays: Array) -> list[Array]:
        field = problem.field(arrays)
        flow, terms, factor = field.evaluate_regular(t, problem.flow(y), in_use, quick=True)
        return [flow.packed, field.loses_rows(factor), ~certify(field, factor, terms)]

    def correction(t: Array, y: Array, corrected: Array, in_use: Array, *arrays: Array) -> list[Array]:
        field, flow = problem.field(arrays), problem.flow
        # Linear about constants: only its arguments, the problem and y, are differentiated.
        correct = lax.stop_gradient(field).correction_map(t, flow(lax.stop_gradient(y)), flow(corrected), in_use)
        return [correct(field, flow(y)).packed]

    limits: dict[str, Any] = dict(largest=LARGEST_PROGRAM, thorough=thorough)
    try:
        last = Program.of(end, *problem.operands(problem.numbers(0)), **limits)
        step = StepProgram(_stage_program(problem, **limits), last, method.a, method.c, False)
        active_operands = lambda first: (1, *range(first, first + moving))
        pulls = (
            # Operands behind the time: y, then those parameters that move; at these places cotangents are asked for.
            VJPProgram(rate, *problem.operands(), moving=active_operands(3), at=2, **limits),
            VJPProgram(correction, *problem.operands(problem.state), moving=active_operands(4), at=3, **limits),
        )
        return step, StepAdjoint(*pulls, method.a, method.c)
    except NotScalarError as error:
        return str(error)
