"""Whole runs as one program: all steps of a lane, one after the other, and the next run as soon as one is over."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .code import Shaped, entries
from .driver import Stepping
from .module import Lane, Period
from .program import Program
from .saving import Saving
from .step import StepProgram


@dataclasses.dataclass(frozen=True, eq=False)
class RunProgram(Stepping):
    """The run (carry, times, parameters) ↦ (carry at its end, states at the times, tape), of functions that are scalar programs.

    The carry begins with t₀, t₁, y₀, f₀, x of the step that is tried next, as of `StepProgram`. States at times that were not reached, and
    unused times of the tape, are infinite; unused states of the tape hold anything.

    Attributes:
        stage, end, a, c: see `StepProgram`.
        knows_start: likewise.
        attempt: (carry, results of the step, parameters, more of them) ↦ (carry, whether the step is accepted, whether there is
            another one, what the interpolation needs besides): what becomes of a step.
        between: (t, t₀, t₁, y₀, y₁, k, what it needs besides) ↦ y: the interpolation of a step.
        times: how many times there are.
        taped: how many accepted states are kept, the first one included; none if zero.
    """

    knows_start: bool
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
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        return (*self.carry, Shaped((self.times,), self.dtype), *self.fixed)

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        n, dtype = self.state.shape[0], self.dtype
        tape = (Shaped((self.taped,), dtype), Shaped((self.taped, n), dtype)) if self.taped else ()
        return (*self.carry, Shaped((self.times, n), dtype), *tape)

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""
        return functools.partial(self._run, self.step.fn, self.attempt.fn, self.between.fn)

    @property
    def by_steps(self) -> Callable[..., list[Array]]:
        """What it does, by programs of each step in a loop of XLA: with derivatives by the times, too."""
        return functools.partial(self._run, self.step, self.attempt, self.between)

    def _run(self, step: Any, judge: Any, between: Any, *operands: Array) -> list[Array]:
        count = len(self.carry)
        start, times, fixed = operands[:count], operands[count], operands[count + 1 :]
        own, n = len(self.step.operands) - 5, self.state.shape[0]
        nothing = jnp.full((self.times, n), jnp.inf, self.dtype)
        tape = (jnp.full(self.taped, jnp.inf, self.dtype), jnp.zeros((self.taped, n), self.dtype))
        if self.taped:
            tape = (tape[0].at[0].set(start[0]), tape[1].at[0].set(start[2]))

        def attempt(carried: Any) -> Any:
            _, carry, index, ys, rows, tape = carried
            raw, slopes, doubtful, *more = step(*carry[:5], *fixed[:own])
            out = judge(*carry, raw, slopes, doubtful, *more, *fixed)
            new, accepted, going, rest = out[:count], out[count], out[count + 1], out[count + 2 :]

            def save(saved: Any) -> Any:
                index, ys = saved
                y = between(times[index], *carry[:3], raw, slopes, *rest)[0]
                return index + 1, ys.at[index].set(y)

            due = lambda saved: accepted & (saved[0] < self.times) & (times[saved[0]] <= carry[1])
            index, ys = lax.while_loop(due, save, (index, ys))
            rows = rows + accepted
            if self.taped:
                at = jnp.where(accepted, rows, self.taped)
                tape = (tape[0].at[at].set(new[0], mode="drop"), tape[1].at[at].set(new[2], mode="drop"))
            return going, tuple(new), index, ys, rows, tape

        begin = (jnp.array(True), tuple(start), jnp.array(0), nothing, jnp.array(0), tape)
        _, carry, _, ys, _, tape = lax.while_loop(lambda c: c[0], attempt, begin)
        return [*carry, ys, *(tape if self.taped else ())]

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        out = _Run(self, periods, lanes)
        out.write_all()
        return out


class _Run(Saving):
    """The module: what is carried of each lane stands in one place, its parts one behind the other.

    Args:
        run: the program.
        periods: see `Period`, of each operand.
        lanes: how many runs there are.
    """

    def __init__(self, run: RunProgram, periods: Sequence[Period], lanes: int):
        self.run = run
        count = len(run.carry)
        parameters = range(count + 1, len(run.operands))
        own = parameters[: len(run.step.operands) - 5]
        made = (None,) * (len(run.attempt.operands) - len(parameters))
        functions = (
            (run.stage, (None, None, *own)),
            (run.end, (None, None, None, *own)),
            (run.attempt, (*made, *parameters)),
            (run.between, (None,) * len(run.between.operands)),
        )
        super().__init__(run, functions, range(count + 1), periods, lanes)
        self.attempt, between = self.called[2:]
        self.save_by(between, count, count, run.times, self.n)
        sizes = [entries(s.shape) for s in run.carry]
        self.offsets = [0, *itertools.accumulate(sizes)]
        self.kept = self.room(self.types, self.offsets[-1])
        self.start = self.entry(self.types.number, self.kept, self.offsets[2])
        self.rows = self.counters(self.types.width)

    def clear(self) -> None:
        """Numbers for lanes without a run."""
        one = self.types.constant(1.0)
        self.each(self.offsets[-1], lambda e: self.store(self.types, one, self.kept, e))
        self.store(self.types, one, self.due, 0)

    def load_lane(self, k: str, job: str) -> None:
        """The start of the run that a lane has."""
        for leaf, shaped in enumerate(self.run.carry):
            self.each(entries(shaped.shape), functools.partial(self._take, leaf, job, k))
        self.begin_saving(k, job)
        if self.run.taped:
            self._tape(k, job, "0")

    def _take(self, leaf: int, job: str, k: str, e: str) -> None:
        x = self.of_job(leaf, job, e)
        self.store(self.one, x, self.kept, self.own(self.behind(self.offsets[leaf], e), k))

    def _tape(self, k: str, job: str, row: str) -> None:
        """The accepted state of a lane as the row of its tape."""
        times, states = len(self.results) - 2, len(self.results) - 1
        self.put(row, self.rows, k)
        self.give_job(times, job, row, self.of_lane(self.kept, "0", k))

        def state(e: str) -> None:
            x = self.of_lane(self.kept, self.behind(self.offsets[2], e), k)
            self.give_job(states, job, self.at(row, self.n, e), x)

        self.each(self.n, state)

    def attempt_all(self, busy: str) -> str:
        """One attempt in all lanes side by side; which of them are over."""
        types, n = self.types, self.n
        kept = lambda e: self.load(types, self.kept, e)
        t0, t1 = kept(0), kept(1)
        size = self.offsets[5] - self.offsets[4]
        if size:
            self.copy(self.entry(types.number, self.kept, self.offsets[4]), self.argument(self.end, 2), size)
        h = self.operate(types, "sub", [t1, t0])
        known = (lambda e: kept(self.behind(self.offsets[3], e))) if self.run.knows_start else None
        doubtful, found = self.advance(t0, t1, h, known)
        # What becomes of it.
        given, place, ks = self.argument(self.attempt, 0), self.offsets[-1], n * self.count
        raw, there = self.argument(self.end, 1), lambda first: self.entry(types.number, given, first)
        self.copy(self.kept, given, place)
        self.copy(raw, there(place), n)
        self.copy(self.ks, there(place + n), ks)
        self.store(types, self.operate(types, "number", [doubtful]), given, place + n + ks)
        ends = sum(entries(s.shape) for s in self.run.end.results[1:])
        self.copy(self.entry(types.number, found, n), there(place + n + ks + 1), ends)
        self.do(self.attempt.text)
        judged = lambda e: self.load(types, self.attempt.found, e)
        accepted = self.operate(types, "and", [busy, self.truth(judged(place))])
        over = self.operate(types, "and", [busy, self.operate(types, "not", [self.truth(judged(place + 1))])])
        self.save(t1, accepted, lambda: self._prepare(raw))
        self.copy(self.attempt.found, self.kept, place)
        if self.run.taped:
            self.each_where(accepted, lambda k: self._tape(k, self.whole(self.jobs, k), self._counted(k)))
        return over

    def _counted(self, k: str) -> str:
        return self.let(f"add nuw nsw i64 {self.whole(self.rows, k)}, 1")

    def _prepare(self, raw: str) -> None:
        """What a state within the step is made of."""
        between, place = self.between, lambda base, first: self.entry(self.types.number, base, first)
        self.copy(self.kept, self.argument(between, 1), 2)
        self.copy(place(self.kept, self.offsets[2]), self.argument(between, 3), self.n)
        self.copy(raw, self.argument(between, 4), self.n)
        self.copy(self.ks, self.argument(between, 5), self.n * self.count)
        entry = self.offsets[-1] + 2
        for k in range(6, len(self.run.between.operands)):
            size = entries(self.run.between.operands[k].shape)
            self.copy(place(self.attempt.found, entry), self.argument(between, k), size)
            entry += size

    def give_lane(self, k: str, job: str) -> None:
        """The results of a run that is over."""
        for leaf, shaped in enumerate(self.run.carry):
            self.each(entries(shaped.shape), functools.partial(self._put, leaf, job, k))
        self.fill_up(k, job, np.inf)
        if self.run.taped:
            self.fill_rows(self._counted(k), job, np.inf, self.run.taped, 1, len(self.results) - 2)

    def _put(self, leaf: int, job: str, k: str, e: str) -> None:
        self.give_job(leaf, job, e, self.of_lane(self.kept, self.behind(self.offsets[leaf], e), k))
