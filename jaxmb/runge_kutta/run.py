"""Whole runs as one program: all steps of a lane, one after the other."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from ..lanes import Call, Program, Shaped
from .method import RungeKuttaProgram, time_at, with_row
from .step import StepProgram


@dataclasses.dataclass(frozen=True, eq=False)
class RunProgram(RungeKuttaProgram):
    """The run (carry, times, parameters) ↦ (carry at its end, states at the times, tape), of functions that are scalar programs.

    The carry begins with t₀, t₁, y₀, f₀, x of the step that is tried next, as of `StepProgram`. States at times that were not reached, and
    unused times of the tape, are infinite; unused states and ends of the tape hold anything.

    Attributes:
        stage, end, a, c: see `StepProgram`.
        knows_start: likewise.
        start: (t, y, parameters) ↦ y: where a step starts that comes after one that has ended there; None if it is the same.
        attempt: (carry, results of the step, parameters, more of them) ↦ (carry, whether the step is accepted, whether there is
            another one, what the interpolation needs besides): what becomes of a step.
        between: (t, t₀, t₁, y₀, y₁, k, what it needs besides) ↦ y: the interpolation of a step.
        times: how many times there are.
        taped: how many accepted states are kept, the first one included, and when the steps from them have ended; none if zero.
    """

    knows_start: bool
    start: Program | None
    attempt: Program
    between: Program
    times: int
    taped: int

    @property
    def step(self) -> StepProgram:
        """One step."""
        return StepProgram(self.stage, self.end, self.a, self.c, self.knows_start)

    @property
    def carry(self) -> tuple[Shaped, ...]:
        """Shapes and types of what goes from one attempt to the next."""
        return self.attempt.results[: -2 - self.rest]

    @property
    def rest(self) -> int:
        """How many arrays the interpolation needs besides."""
        return len(self.between.operands) - 6

    @property
    def fixed(self) -> tuple[Shaped, ...]:
        """Shapes and types of the parameters."""
        return self.attempt.operands[len(self.carry) + len(self.step.results) :]

    @property
    def own(self) -> int:
        """How many operands, the first ones, belong to a run; the others are parameters."""
        return len(self.carry) + 1

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        return (*self.carry, self.number(self.times), *self.fixed)

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        n, number = self.state.shape[0], self.number
        tape = (number(self.taped), number(self.taped, n), number(self.taped)) if self.taped else ()
        return (*self.carry, number(self.times, n), *tape)

    @property
    def by_steps(self) -> Callable[..., list[Array]]:
        """What it does, by programs of each step in a loop of XLA: with derivatives by the times, too."""
        return functools.partial(self._run, self.step, self.start, self.attempt, self.between)

    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""
        step = functools.partial(self.step.advance, call)
        start = None if self.start is None else call(self.start)
        return self._run(step, start, call(self.attempt), call(self.between), *operands)

    def _run(
        self,
        step: Callable[..., list[Array]],
        start: Callable[..., list[Array]] | None,
        judge: Callable[..., list[Array]],
        between: Callable[..., list[Array]],
        *operands: Array,
    ) -> list[Array]:
        count = len(self.carry)
        first_carry, times, fixed = operands[:count], operands[count], operands[count + 1 :]
        own, n = len(self.step.operands) - 5, self.state.shape[0]

        def record(tape: tuple[Array, ...], k: Array, carry: PyTree, where: Array) -> Any:
            """A state on the tape."""
            return with_row(tape[0], k, carry[0], where), with_row(tape[1], k, carry[2], where), tape[2]

        def attempt(state: PyTree) -> Any:
            _, carry, index, due, ys, rows, tape = state
            if self.taped:
                # Recorded at the first attempt, accepted or not: the tape begins with where the run does.
                tape = record(tape, rows, carry, rows == 0)  # the start
                rows = jnp.maximum(rows, 1)
            if start is not None:
                # A rejected attempt leaves the state as it is after this.
                carry = (*carry[:2], *start(carry[0], carry[2], *fixed[:own]), *carry[3:])
            raw, slopes, doubtful, *more = step(*carry[:5], *fixed[:own])
            verdict = judge(*carry, raw, slopes, doubtful, *more, *fixed)
            new, (accepted, proceed, *extra) = tuple(verdict[:count]), verdict[count:]

            def save(saved: PyTree) -> Any:
                index, due, ys = saved
                y = between(due, *carry[:3], raw, slopes, *extra)[0]
                return index + 1, time_at(times, index + 1), ys.at[index].set(y)

            # `carry` is that before the verdict: its t₁ is the end of the step just made, and only an accepted one has saved states.
            late = lambda saved: accepted & (saved[1] <= carry[1])
            # How many saved times lie within a step depends on its length, hence a loop and no static shape.
            index, due, ys = lax.while_loop(late, save, (index, due, ys))
            if self.taped:
                ts, ys_of_tape, ends = record(tape, rows, new, accepted)
                # The next step begins later than this one ends where a jump of the vector field lies between.
                tape = ts, ys_of_tape, with_row(ends, rows - 1, carry[1], accepted)
            return proceed, new, index, due, ys, rows + accepted, tape

        first = jnp.array(0)
        ys = jnp.full((self.times, n), jnp.inf, self.dtype)
        # The states are not filled: the tape has room for the largest number of steps, and writing all of it could cost more than the run.
        # Its times are, so that unused ones sort behind all others.
        room = lambda *shape: lax.empty((self.taped, *shape), self.dtype)
        tape = (jnp.full(self.taped, jnp.inf, self.dtype), room(n), room()) if self.taped else ()
        begin = (jnp.array(True), tuple(first_carry), first, time_at(times, first), ys, first, tape)
        # At least one attempt is made: the caller takes the start for the end where a run has no duration.
        _, carry, _, _, ys, _, tape = lax.while_loop(lambda c: c[0], attempt, begin)
        return [*carry, ys, *tape]
