"""Whole runs as one program: all steps of a lane, one after the other."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from ..lanes import Call, Program, Shaped
from .method import RungeKuttaProgram, guarded, time_at, with_row
from .step import StepProgram


@dataclasses.dataclass(frozen=True, eq=False)
class RunProgram(RungeKuttaProgram):
    """The run (carry, times, parameters) ↦ (carry at its end, states at the times, tape), of functions that are scalar programs.

    The carry begins with t₀, t₁, y₀, f₀, x of the step that is tried next, as in `StepProgram`. States at times that were not reached are
    infinite; what of the tape is not used holds anything.

    A run with a guard ends with a step at whose end that holds, or within it where it begins to hold: the last t₀ and y₀, of the tape too, are those
    there, by the interpolation. Behind the states at the times there are then two more results: whether it has ended so, and y at the end of its last step.

    Attributes:
        stage, end, a, c: see `StepProgram`.
        knows_start: likewise.
        start: (t, y, parameters) ↦ y: where a step starts that comes after one that has ended there; None if it is the same.
        attempt: (carry, results of the step, whether it is too long, parameters, more of them) ↦ (carry, whether the step is
            accepted, whether there is another one, what the interpolation needs besides): what becomes of a step.
        between: (t, t₀, t₁, y₀, y₁, k, what it needs besides) ↦ y: the interpolation of a step.
        guard: (t, y, parameters, more of them) ↦ (whether it holds, whether the run is to end where it begins to hold and not with the
            step); None if there is none.
        parts: into how many parts a step is divided, at whose ends the guard is looked at: where it begins and ceases to hold the step is too long.
        times: how many times there are.
        taped: how many accepted states are kept, the first one included, and when the steps from them have ended; none if zero.
    """

    knows_start: bool
    start: Program | None
    attempt: Program
    between: Program
    guard: Program | None
    parts: int
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
        return self.attempt.operands[len(self.carry) + len(self.step.results) + 1 :]

    @property
    def own(self) -> int:
        """How many operands, the first ones, belong to a run, the first one behind the times among them; the others are parameters."""
        return len(self.carry) + 2

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        return (*self.carry, self.number(self.times), *self.fixed)

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        n, number = self.state.shape[0], self.number
        tape = (number(self.taped), number(self.taped, n), number(self.taped)) if self.taped else ()
        end = () if self.guard is None else (Shaped((), jnp.bool_), self.state)
        return (*self.carry, number(self.times, n), *end, *tape)

    @property
    def by_steps(self) -> Callable[..., list[Array]]:
        """What it does, by programs of each step in a loop of XLA: with derivatives by the times, too."""
        return functools.partial(self._run, lambda program: program, self.step)

    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""
        return self._run(call, functools.partial(self.step.advance, call), *operands)

    def _run(self, call: Call, step: Callable[..., list[Array]], *operands: Array) -> list[Array]:
        judge, between, count = call(self.attempt), call(self.between), len(self.carry)
        first_carry, times, fixed = operands[:count], operands[count], operands[count + 1 :]
        own, n = len(self.step.operands) - 5, self.state.shape[0]

        def record(tape: tuple[Array, ...], k: Array, carry: PyTree, where: Array) -> Any:
            """A state on the tape."""
            return with_row(tape[0], k, carry[0], where), with_row(tape[1], k, carry[2], where), tape[2]

        def attempt(state: PyTree) -> Any:
            _, carry, index, due, ys, end, rows, tape = state
            if self.taped:
                # Recorded at the first attempt, accepted or not: the tape begins with where the run does.
                tape = record(tape, rows, carry, rows == 0)  # the start
                rows = jnp.maximum(rows, 1)
            if self.start is not None:
                # A rejected attempt leaves the state as it is after this.
                carry = (*carry[:2], *call(self.start)(carry[0], carry[2], *fixed[:own]), *carry[3:])
            raw, slopes, *more = step(*carry[:5], *fixed[:own])
            verdict = lambda too_long: judge(*carry, raw, slopes, *more, jnp.array(too_long), *fixed)
            judged = verdict(False)
            at = lambda t: between(t, *carry[:3], raw, slopes, *judged[count + 2 :])[0]
            if self.guard is not None:
                guard = call(self.guard)
                value = lambda t: guard(*lax.stop_gradient((t, at(t), *fixed)))
                too_long, holds, reached = guarded(value, carry[0], carry[1], self.parts)
                judged = lax.cond(too_long, lambda: verdict(True), lambda: judged)
                end = judged[count] & holds, judged[2]
                t = jnp.where(end[0], reached, carry[1])
                judged = [jnp.where(end[0], t, judged[0]), judged[1], jnp.where(end[0], at(t), judged[2]), *judged[3:]]
                judged[count + 1] &= ~end[0]
            new, (accepted, proceed) = tuple(judged[:count]), judged[count : count + 2]

            def save(saved: PyTree) -> Any:
                index, due, ys = saved
                return index + 1, time_at(times, index + 1), ys.at[index].set(at(due))

            # `carry` is that before the verdict: its t₁ is the end of the step just made, and only an accepted one has saved states.
            late = lambda saved: accepted & (saved[1] <= carry[1])
            # How many saved times lie within a step depends on its length, hence a loop and no static shape.
            index, due, ys = lax.while_loop(late, save, (index, due, ys))
            if self.taped:
                ts, ys_of_tape, ends = record(tape, rows, new, accepted)
                # The next step begins later than this one ends where a jump of the vector field lies between.
                tape = ts, ys_of_tape, with_row(ends, rows - 1, carry[1], accepted)
            return proceed, new, index, due, ys, end, rows + accepted, tape

        first = jnp.array(0)
        ys = jnp.full((self.times, n), jnp.inf, self.dtype)
        # Not filled: the tape has room for the largest number of steps, and writing all of it could cost more than the run.
        room = lambda *shape: lax.empty((self.taped, *shape), self.dtype)
        tape = (room(), room(n), room()) if self.taped else ()
        end = () if self.guard is None else (jnp.array(False), first_carry[2])
        begin = (jnp.array(True), tuple(first_carry), first, time_at(times, first), ys, end, first, tape)
        # At least one attempt is made: the caller takes the start for the end where a run has no duration.
        _, carry, _, _, ys, end, _, tape = lax.while_loop(lambda c: c[0], attempt, begin)
        return [*carry, ys, *end, *tape]
