"""Whole runs as one program: all steps of a lane, one after the other, and the next run as soon as one is over."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .code import Shaped, entries
from .driver import Driver, Stepping
from .module import Lane
from .program import Program
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
        return self._run

    def _run(self, *operands: Array) -> list[Array]:
        count = len(self.carry)
        start, times, fixed = operands[:count], operands[count], operands[count + 1 :]
        own, n = len(self.step.operands) - 5, self.state.shape[0]
        nothing = jnp.full((self.times, n), jnp.inf, self.dtype)
        tape = (jnp.full(self.taped, jnp.inf, self.dtype), jnp.zeros((self.taped, n), self.dtype))
        if self.taped:
            tape = (tape[0].at[0].set(start[0]), tape[1].at[0].set(start[2]))

        def attempt(carried: Any) -> Any:
            _, carry, index, ys, rows, tape = carried
            raw, slopes, doubtful, *more = self.step.fn(*carry[:5], *fixed[:own])
            out = self.attempt.fn(*carry, raw, slopes, doubtful, *more, *fixed)
            new, accepted, going, rest = out[:count], out[count], out[count + 1], out[count + 2 :]

            def save(saved: Any) -> Any:
                index, ys = saved
                y = self.between.fn(times[index], *carry[:3], raw, slopes, *rest)[0]
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

    def module(self, batched: Sequence[bool], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        out = _Run(self, batched, lanes)
        out.write_all()
        return out


class _Run(Driver):
    """The module: some lanes side by side, of which each takes the next run when its own is over.

    Args:
        run: the program.
        batched: which operands have lanes.
        lanes: how many runs there are.
    """

    def __init__(self, run: RunProgram, batched: Sequence[bool], lanes: int):
        self.run = run
        count = len(run.carry)
        parameters = range(count + 1, len(run.operands))
        own = parameters[: len(run.step.operands) - 5]
        made = (None,) * (len(run.attempt.operands) - len(parameters))
        if lanes == 1:
            batched = (*(True for _ in range(count + 1)), *batched[count + 1 :])
        others = ((run.attempt, (*made, *parameters)), (run.between, (None,) * len(run.between.operands)))
        read = range(count + 1)
        super().__init__(run, (None, None, *own), (None, None, None, *own), read, batched, lanes, others)
        self.attempt, self.between = self.called[2:]
        sizes = [entries(s.shape) for s in run.carry]
        self.offsets = [0, *itertools.accumulate(sizes)]
        self.kept = self.room(self.types, self.offsets[-1])
        self.start = self.entry(self.types.number, self.kept, self.offsets[2])
        self.busy, self.due, self.ended = (self.room(self.types, 1) for _ in range(3))
        self.jobs, self.index, self.rows = (self._counters(self.types.width) for _ in range(3))
        self.next = self._counters(1)

    def _counters(self, count: int) -> str:
        return self.let(f"alloca i64, i64 {count}, align 64")

    # Whole numbers, and numbers of one lane

    def whole(self, place: str, k: str | int = 0) -> str:
        """A whole number from memory."""
        return self.let(f"load i64, ptr {self.entry('i64', place, k)}")

    def put(self, x: str, place: str, k: str | int = 0) -> None:
        """A whole number to memory."""
        self.do(f"store i64 {x}, ptr {self.entry('i64', place, k)}")

    def own(self, entry: str, k: str) -> str:
        """Where the entry of a place stands in one of the lanes side by side."""
        return self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {entry}, {self.types.width}')}, {k}")

    def of_lane(self, place: str, entry: str, k: str) -> str:
        """An entry of a place in one lane."""
        return self.load(self.one, place, self.own(entry, k))

    def at(self, job: str, size: int, entry: str) -> str:
        """Where an entry of an array stands that belongs to a run."""
        return self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {job}, {size}')}, {entry}")

    def where(self, truth: str, work: Callable[[], None]) -> None:
        """Something, where it is to be done."""
        self.either(truth, work, lambda: None)

    # The parts of a run

    def write_all(self) -> None:
        """The whole function."""
        types, width = self.types, self.types.width
        for place in (self.busy, self.due, self.ended):
            self.store(types, types.constant(0.0), place, 0)
        self.put(str(min(width, self.lanes)), self.next)

        def begin(k: str) -> None:
            self.put(k, self.jobs, k)
            self.where(self.let(f"icmp ult i64 {k}, {self.lanes}"), lambda: self._load(k))

        self.each(self.offsets[-1], lambda e: self.store(types, types.constant(1.0), self.kept, e))
        self.each(width, begin)
        self._fill()
        self.repeat(self._attempt)
        self.do("ret ptr null")

    def _fill(self) -> None:
        """What parts are given of the parameters of each lane's run."""
        numbers = []
        for k in range(self.types.width):
            job = self.whole(self.jobs, k)
            valid = self.let(f"icmp ult i64 {job}, {self.lanes}")
            numbers.append(self.let(f"select i1 {valid}, i64 {job}, i64 {self.lanes - 1}"))
        for part in self.called:
            self.fill(part, numbers)

    def _load(self, k: str) -> None:
        """The start of the run that a lane has."""
        job, one = self.whole(self.jobs, k), self.one
        for leaf, shaped in enumerate(self.run.carry):
            size, offset = entries(shaped.shape), self.offsets[leaf]

            def take(e: str, leaf: int = leaf, shaped: Shaped = shaped, size: int = size, offset: int = offset) -> None:
                index = self.at(job, size, e) if self.batched[leaf] else e
                x = self.number(shaped, self.ins[leaf], index)
                self.store(one, x, self.kept, self.own(self.behind(offset, e), k))

            self.each(size, take)
        self.put("0", self.index, k)
        self.store(one, one.constant(1.0), self.busy, k)
        self._look(k)
        if self.run.taped:
            self._tape(k, "0")

    def _look(self, k: str) -> None:
        """When the next state of a lane is to be saved."""
        index, one = self.whole(self.index, k), self.one
        times = len(self.run.carry)
        last = self.let(f"icmp uge i64 {index}, {self.run.times}")

        def read() -> None:
            place = self.at(self.whole(self.jobs, k), self.run.times, index) if self.batched[times] else index
            self.store(one, self.number(self.operands[times], self.ins[times], place), self.due, k)

        self.either(last, lambda: self.store(one, one.constant(np.inf), self.due, k), read)

    def _tape(self, k: str, row: str) -> None:
        """The accepted state of a lane as the row of its tape."""
        job, taped, n = self.whole(self.jobs, k), self.run.taped, self.n
        times, states = len(self.results) - 2, len(self.results) - 1
        self.put(row, self.rows, k)
        self.write(self.results[times], self.of_lane(self.kept, "0", k), self.outs[times], self.at(job, taped, row))
        base = self.let(f"mul nuw nsw i64 {self.at(job, taped, row)}, {n}")

        def state(e: str) -> None:
            x = self.of_lane(self.kept, self.behind(self.offsets[2], e), k)
            self.write(self.results[states], x, self.outs[states], self.let(f"add nuw nsw i64 {base}, {e}"))

        self.each(n, state)

    def _attempt(self) -> str:
        """One attempt in all lanes side by side; whether any goes on."""
        types, n = self.types, self.n
        kept = lambda e: self.load(types, self.kept, e)
        t0, t1 = kept(0), kept(1)
        size = self.offsets[5] - self.offsets[4]
        x = self.argument(self.end, 2) if size else ""
        self.each(size, lambda e: self.store(types, kept(self.behind(self.offsets[4], e)), x, e))
        h = self.operate(types, "sub", [t1, t0])
        known = (lambda e: kept(self.behind(self.offsets[3], e))) if self.run.knows_start else None
        doubtful, found = self.advance(t0, t1, h, known)
        # What becomes of it.
        given = self.argument(self.attempt, 0)
        copy = lambda source, first, size: self.each(
            size, lambda e: self.store(types, self.load(types, source, e), given, self.behind(first, e))
        )
        place, raw, ks = self.offsets[-1], self.argument(self.end, 1), n * self.count
        copy(self.kept, 0, place)
        copy(raw, place, n)
        copy(self.ks, place + n, ks)
        self.store(types, self.operate(types, "number", [doubtful]), given, place + n + ks)
        ends = sum(entries(s.shape) for s in self.run.end.results[1:])
        rest = self.entry(types.number, found, n)
        copy(rest, place + n + ks + 1, ends)
        self.do(self.attempt.text)
        judged = lambda e: self.load(types, self.attempt.found, e)
        busy = self.truth(self.load(types, self.busy, 0))
        accepted = self.operate(types, "and", [busy, self.truth(judged(place))])
        over = self.operate(types, "and", [busy, self.operate(types, "not", [self.truth(judged(place + 1))])])
        self._save(t0, t1, accepted, raw)
        self.each(place, lambda e: self.store(types, judged(e), self.kept, e))
        if self.run.taped:
            self._each_where(accepted, lambda k: self._tape(k, self._counted(k)))
        self.where(self.joined(types, "or", over), lambda: self._relieve(over))
        return self.joined(types, "or", self.truth(self.load(types, self.busy, 0)))

    def _counted(self, k: str) -> str:
        return self.let(f"add nuw nsw i64 {self.whole(self.rows, k)}, 1")

    def _each_where(self, truth: str, work: Callable[[str], None]) -> None:
        """For each lane of which something is true."""
        self.store(self.types, self.operate(self.types, "number", [truth]), self.ended, 0)

        def one(k: str) -> None:
            x = self.load(self.one, self.ended, k)
            self.where(self.let(f"fcmp une {self.one.number} {x}, 0.0"), lambda: work(k))

        self.each(self.types.width, one)

    def _save(self, t0: str, t1: str, accepted: str, raw: str) -> None:
        """The states at times that lie within the step."""
        types, between = self.types, self.between

        def due() -> str:
            late = self.let(f"fcmp ole {types.number} {self.load(types, self.due, 0)}, {t1}")
            return self.operate(types, "and", [accepted, late])

        def prepare() -> None:
            sources = [(self.kept, 0, 0, 1), (self.kept, 1, 1, 1), (self.kept, self.offsets[2], 2, self.n)]
            sources += [(raw, 0, 3, self.n), (self.ks, 0, 4, self.n * self.count)]
            entry = self.offsets[-1] + 2
            for k in range(self.run.rest):
                size = entries(self.run.between.operands[6 + k].shape)
                sources.append((self.attempt.found, entry, 5 + k, size))
                entry += size
            for source, first, operand, size in sources:
                target = self.argument(between, 1 + operand)
                move = lambda e, source=source, first=first, target=target: self.store(
                    types, self.load(types, source, self.behind(first, e)), target, e
                )
                self.each(size, move)
            self.repeat(save)

        def save() -> str:
            self.store(types, self.load(types, self.due, 0), self.argument(between, 0), 0)
            self.do(between.text)
            self._each_where(due(), self._write_saved)
            return self.joined(types, "or", due())

        self.where(self.joined(types, "or", due()), prepare)

    def _write_saved(self, k: str) -> None:
        index, result = self.whole(self.index, k), len(self.run.carry)
        base = self.let(f"mul nuw nsw i64 {self.at(self.whole(self.jobs, k), self.run.times, index)}, {self.n}")

        def entry(e: str) -> None:
            x = self.of_lane(self.between.found, e, k)
            self.write(self.results[result], x, self.outs[result], self.let(f"add nuw nsw i64 {base}, {e}"))

        self.each(self.n, entry)
        self.put(self.let(f"add nuw nsw i64 {index}, 1"), self.index, k)
        self._look(k)

    def _relieve(self, over: str) -> None:
        """Gives the results of runs that are over, and takes the next ones."""
        self._each_where(over, self._relieve_lane)
        self._fill()

    def _relieve_lane(self, k: str) -> None:
        job, run = self.whole(self.jobs, k), self.run
        for leaf, shaped in enumerate(run.carry):
            size, offset = entries(shaped.shape), self.offsets[leaf]

            def give(e: str, leaf: int = leaf, shaped: Shaped = shaped, size: int = size, offset: int = offset) -> None:
                x = self.of_lane(self.kept, self.behind(offset, e), k)
                self.write(shaped, x, self.outs[leaf], self.at(job, size, e))

            self.each(size, give)
        self._unused(self.whole(self.index, k), job, run.times, self.n, len(run.carry))
        if run.taped:
            self._unused(self._counted(k), job, run.taped, 1, len(self.results) - 2)
        following = self.whole(self.next)
        self.put(self.let(f"add nuw nsw i64 {following}, 1"), self.next)

        def take() -> None:
            self.put(following, self.jobs, k)
            self._load(k)

        none = lambda: self.store(self.one, self.one.constant(0.0), self.busy, k)
        self.either(self.let(f"icmp ult i64 {following}, {self.lanes}"), take, none)

    def _unused(self, first: str, job: str, count: int, size: int, result: int) -> None:
        """Infinite numbers in the rows of a result that were not reached."""
        infinite = self.one.constant(np.inf)

        def row(i: str) -> None:
            base = self.let(f"mul nuw nsw i64 {self.at(job, count, i)}, {size}")
            put = lambda e: self.write(
                self.results[result], infinite, self.outs[result], self.let(f"add nuw nsw i64 {base}, {e}")
            )
            self.where(self.let(f"icmp uge i64 {i}, {first}"), lambda: self.each(size, put))

        self.each(count, row)
