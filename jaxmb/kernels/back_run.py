"""The way back over a whole run as one program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .back import BackProgram, Pull
from .code import Shaped, entries
from .driver import Stepping
from .module import Called, Lane, Period
from .program import Program, width_of
from .pulled import PulledProgram
from .queue import Queue
from .step import StepProgram

# So many bytes may be kept of the stages of a step for the way back over it.
KEPT = 2**18


@dataclasses.dataclass(frozen=True, eq=False)
class BackRunProgram(Stepping):
    """The way back over all steps of a run, from the last to the first, each of which is made again.

    Operands are the tape's times and states, how many steps there are, when the last one ended and where, the times at which states
    were saved, with the end, their cotangents, in which step each lies, how many of them were reached (the end apart), and the
    parameters; results the cotangent of the start, minus its product with the first slope, the cotangents of the parameters that move and of
    the saved times, and whether anything about a step was special.

    Attributes:
        stage, end, a, c: of the step, see `Stepping`; the first slope is found anew.
        pulled, pulled_end: those of `BackProgram`; the values of the former are the rate, and what a stage and an end are doubtful by.
        read: (t, t₀, t₁, y₀, y₁, k, what the interpolation needs besides, cotangent of the state at t) ↦ cotangents of all of them but
            t₀ and t₁.
        times: how many states were saved, with the end.
        taped: how many states the tape has room for.
        reuses: whether the first slope of a step is the last one of the step before.
    """

    pulled: PulledProgram
    pulled_end: Program
    read: Program
    times: int
    taped: int
    reuses: bool

    @property
    def step(self) -> StepProgram:
        """A step."""
        return StepProgram(self.stage, self.end, self.a, self.c, False)

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        n, number = self.state.shape[0], lambda *shape: Shaped(shape, self.dtype)
        whole = lambda *shape: Shaped(shape, jnp.int32)
        saved = number(self.times), number(self.times, n), whole(self.times), whole()
        return (
            number(self.taped),
            number(self.taped, n),
            whole(),
            number(),
            number(n),
            *saved,
            *self.stage.operands[2:],
        )

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        t = Shaped((), self.dtype)
        return (self.state, t, *self.pulled.results[1:], Shaped((self.times,), self.dtype), Shaped((), jnp.bool_))

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""
        return self._back

    def _back(self, *given: Array) -> list[Any]:
        (ts, ys, count, last, end, times, bars, place, reached), fixed = given[:9], given[9:]
        way_back = BackProgram(self.pulled, self.pulled_end, self.a, self.c).fn
        zero, slopes = jnp.zeros_like(end), jnp.zeros(self.slopes.shape, self.dtype)
        index = jnp.arange(self.times)

        def step(carry: Any) -> Any:
            k, end_bar, slope_bar, moves, times_bar, _, special = carry
            ends = k == count - 1
            t0, t1, y0 = ts[k], jnp.where(ends, last, ts[k + 1]), ys[k]
            y1 = jnp.where(ends, end, ys[k + 1])
            raw, ks, near, doubtful = self.step.fn(t0, t1, y0, zero, jnp.zeros(0, self.dtype), *fixed)
            finite = jnp.all(jnp.isfinite(raw)) & jnp.all(jnp.isfinite(ks))
            lies = jnp.where(index == self.times - 1, ends, (place == k) & (index < reached))

            def add(total: Any, part: Any) -> Any:
                t, bar, lies = part
                found = self.read.fn(t, t0, t1, y0, raw, ks, y1 - raw, jnp.where(lies, bar, 0))
                return [a + jnp.where(lies, x, 0) for a, x in zip(total, found[1:], strict=True)], found[0]

            total, more = lax.scan(add, [zero, zero, slopes, zero], (times, bars, lies))
            y0_bar, raw_bar, ks_bar, shift_bar = total
            h, taken = t1 - t0, (k > 0) & self.reuses
            ks_bar = ks_bar.at[-1].add(slope_bar / h)
            given = t0, t1, y0, ks, y1, end_bar + shift_bar, raw_bar - shift_bar, y0_bar, ks_bar, taken, *fixed
            state, before, *own = way_back(*given)
            moves = [a + b for a, b in zip(moves, own, strict=True)]
            times_bar = jnp.where(lies, more, times_bar)
            return (
                k - 1,
                state,
                before,
                moves,
                times_bar,
                -jnp.dot(state, ks[0] / h),
                special | near | doubtful | ~finite,
            )

        none = [jnp.zeros(s.shape, s.dtype) for s in self.pulled.results[1:]]
        start = count - 1, zero, zero, none, jnp.zeros(self.times, self.dtype), jnp.zeros((), self.dtype), False
        start = (*start[:-1], jnp.array(False))
        _, state, _, moves, times_bar, begin, special = lax.while_loop(lambda c: c[0] >= 0, step, start)
        return [state, begin, *moves, times_bar, special]

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        out = _BackRun(self, periods, lanes)
        out.write_all()
        return out


_TS, _YS, _COUNT, _LAST, _END, _TIMES, _BARS, _PLACE, _REACHED = range(9)


class _BackRun(Queue):
    """The module."""

    def __init__(self, run: BackRunProgram, periods: Sequence[Period], lanes: int):
        self.run = run
        own = range(9, len(run.operands))
        forth, pulled, kept = self._in_two(lanes)
        functions = (
            (forth[0], (None, None, *own)),
            (forth[1], (None, None, *own) if kept else (None, None, None, *own)),
            (pulled, (None, None, None, *own, *(None,) * kept)),
            (run.pulled_end, (None, None, None, None, *own)),
            (run.read, (None,) * len(run.read.operands)),
        )
        super().__init__(run, functions, range(9), periods, lanes)
        pulled, pulled_end, self.read = self.called[2:]
        stages = [pulled] * self.count
        if kept:  # what each stage finds stands where the way back over it reads it
            size = len(pulled.part.places)
            stages[1:] = [dataclasses.replace(pulled, given=self.room(self.types, size)) for _ in stages[1:]]
            self.called += stages[1:]
            last = len(pulled.part.of) - 1
            self.kept = [self.argument(stage, last) for stage in stages]
        self.pull = Pull(self, stages, pulled_end, sum(entries(s.shape) for s in run.pulled.results[1:]), kept)
        types, n = self.types, self.n
        self.t0, self.t1, self.fresh, self.current, self.due, self.begins, self.special = (
            self.room(types, 1) for _ in range(7)
        )
        self.y1, self.end_bar, self.slope_bar, self.raw_bar, self.shift_bar = (self.room(types, n) for _ in range(5))
        self.at_step, self.index = (self.counters(types.width) for _ in range(2))

    def _in_two(self, lanes: int) -> tuple[Sequence[Any], Any, bool]:
        """A stage and an end, and the way back over a rate: in halves where what these exchange takes little memory."""
        run = self.run
        width, (forth, back) = width_of(run.dtype, lanes), run.pulled.halves((0, 1), (0, 2))
        room = len(run.a[0]) * len(forth[0].code.outputs) * width * np.dtype(run.dtype).itemsize
        return (forth, back, True) if room <= KEPT else ((run.stage, run.end), run.pulled, False)

    def results_of(self, called: Called, i: int) -> str:
        """Those of stages are kept for the way back."""
        kept = self.pull.prepared and called in self.called[:2] and i < self.count
        return self.kept[i] if kept else called.found

    def clear(self) -> None:
        """Numbers for lanes without a run."""
        types, one = self.types, self.types.constant(1.0)
        for place, size in ((self.start, self.n), (self.y1, self.n), (self.end_bar, self.n), (self.slope_bar, self.n)):
            self.each(size, lambda e, place=place: self.store(types, one, place, e))
        self.each(self.pull.size, lambda e: self.store(types, one, self.pull.moves, e))
        for place in (self.t0, self.fresh, self.current, self.begins, self.special):
            self.store(types, one, place, 0)
        self.store(types, types.constant(2.0), self.t1, 0)
        self.store(types, types.constant(-1.0), self.due, 0)

    def _zero(self, place: str, size: int, k: str) -> None:
        zero = self.one.constant(0.0)
        self.each(size, lambda e: self.store(self.one, zero, place, self.own(e, k)))

    def load_lane(self, k: str, job: str) -> None:
        """The last step of a run."""
        for place, size in (
            (self.end_bar, self.n),
            (self.slope_bar, self.n),
            (self.pull.moves, self.pull.size),
            (self.special, 1),
        ):
            self._zero(place, size, k)
        count = self._whole_of_job(_COUNT, job)
        last = self.let(f"sub i64 {count}, 1")
        self.put(last, self.at_step, k)
        self.put(str(self.run.times - 1), self.index, k)
        self._set(self.due, k, self._as_number(last))

        def nothing(i: str) -> None:
            self.give_job(len(self.results) - 2, job, i, self.one.constant(0.0))

        self.each(self.run.times, nothing)

    def _whole_of_job(self, operand: int, job: str, entry: str = "0") -> str:
        return self.let(f"fptosi {self.one.scalar} {self.of_job(operand, job, entry)} to i64")

    def _as_number(self, whole: str) -> str:
        return self.let(f"sitofp i64 {whole} to {self.one.scalar}")

    def _set(self, place: str, k: str, x: str) -> None:
        self.store(self.one, x, place, k)

    def attempt_all(self, busy: str) -> str:
        """The way back over one step in all lanes side by side; which of them are over."""
        types, n, pull, zero = self.types, self.n, self.pull, self.types.constant(0.0)
        self.each_where(busy, self._fetch)
        t0, t1 = self.load(types, self.t0, 0), self.load(types, self.t1, 0)
        h = self.operate(types, "sub", [t1, t0])
        near, found = self.advance(t0, t1, h, None)
        raw = self.argument(self.end, 1)
        self._look_at(near, found, raw)
        for place, size in ((pull.state, n), (pull.bars, n * self.count), (self.raw_bar, n), (self.shift_bar, n)):
            self.each(size, lambda e, place=place: self.store(types, zero, place, e))
        self._read(busy, raw)
        # What the next step has taken of this one, and the shift from y₁ to where it was moved.
        last = (self.count - 1) * n

        def gather(e: str) -> None:
            shift = self.load(types, self.shift_bar, e)
            total = self.operate(types, "add", [self.load(types, self.end_bar, e), shift])
            self.store(types, total, self.argument(pull.end, 3), e)
            self.store(types, self.load(types, self.y1, e), self.argument(pull.end, 2), e)
            rest = self.operate(types, "sub", [self.load(types, self.raw_bar, e), shift])
            self.store(types, rest, self.raw_bar, e)
            slope = self.let(f"fdiv {types.number} {self.load(types, self.slope_bar, e)}, {h}")
            self.add(pull.bars, self.behind(last, e), slope)

        self.each(n, gather)
        fresh = self.truth(self.load(types, self.fresh, 0))
        pull.over(t0, t1, h, fresh, lambda e: self.load(types, self.raw_bar, e))
        self.store(types, zero, self.begins, 0)

        def follow(e: str) -> None:
            bar = self.load(types, pull.state, e)
            self.store(types, bar, self.end_bar, e)
            self.store(types, pull.before(h, fresh, e), self.slope_bar, e)
            slope = self.let(f"fdiv {types.number} {self.load(types, self.ks, e)}, {h}")
            self.add(self.begins, "0", self.operate(types, "neg", [self.operate(types, "mul", [bar, slope])]))

        self.each(n, follow)
        number = self.load(types, self.current, 0)
        self.each_where(
            busy, lambda k: self.put(self.let(f"sub i64 {self.whole(self.at_step, k)}, 1"), self.at_step, k)
        )
        return self.operate(types, "and", [busy, self.operate(types, "le", [number, zero])])

    def _fetch(self, k: str) -> None:
        """When and where the step of a lane begins and ends."""
        job, step, n = self.whole(self.jobs, k), self.whole(self.at_step, k), self.n
        after = self.let(f"add i64 {step}, 1")
        self._set(self.current, k, self._as_number(step))
        self._set(self.t0, k, self.of_job(_TS, job, step))
        first = self.let(f"icmp eq i64 {step}, 0") if self.run.reuses else "true"
        self._set(self.fresh, k, self.let(f"uitofp i1 {first} to {self.one.scalar}"))
        put = lambda place, read: self.each(n, lambda e: self.store(self.one, read(e), place, self.own(e, k)))
        put(self.start, lambda e: self.of_job(_YS, job, self.at(step, n, e)))

        def last() -> None:
            self._set(self.t1, k, self.of_job(_LAST, job, "0"))
            put(self.y1, lambda e: self.of_job(_END, job, e))

        def other() -> None:
            self._set(self.t1, k, self.of_job(_TS, job, after))
            put(self.y1, lambda e: self.of_job(_YS, job, self.at(after, n, e)))

        self.either(self.let(f"icmp eq i64 {after}, {self._whole_of_job(_COUNT, job)}"), last, other)

    def _look_at(self, near: str, found: str, raw: str) -> None:
        """Remembers whether anything about a step is special."""
        types, n = self.types, self.n
        self.store(types, types.constant(0.0), self.begins, 0)  # here 0, or NaN
        for place, size in ((raw, n), (self.ks, n * self.count)):
            nothing = lambda e, place=place: self.operate(types, "nothing", [self.load(types, place, e)])
            self.each(size, lambda e, nothing=nothing: self.add(self.begins, "0", nothing(e)))
        doubtful = self.operate(types, "or", [near, self.truth(self.load(types, found, n))])
        special = self.operate(types, "or", [doubtful, self.truth(self.load(types, self.begins, 0))])
        special = self.operate(types, "or", [special, self.truth(self.load(types, self.special, 0))])
        self.store(types, self.operate(types, "number", [special]), self.special, 0)

    def _read(self, busy: str, raw: str) -> None:
        """Cotangents of what is read off the interpolation at the saved times within the step."""
        types, n, read = self.types, self.n, self.read

        def due() -> str:
            here = self.operate(types, "eq", [self.load(types, self.due, 0), self.load(types, self.current, 0)])
            return self.operate(types, "and", [busy, here])

        def prepare() -> None:
            for place, operand, size in (
                (self.t0, 1, 1),
                (self.t1, 2, 1),
                (self.start, 3, n),
                (raw, 4, n),
                (self.ks, 5, n * self.count),
            ):
                self.copy(place, self.argument(read, operand), size)
            shift = self.argument(read, 6)
            self.each(
                n,
                lambda e: self.store(
                    types,
                    self.operate(types, "sub", [self.load(types, self.y1, e), self.load(types, raw, e)]),
                    shift,
                    e,
                ),
            )
            self.repeat(one)

        def one() -> str:
            here, bar, zero = due(), self.argument(read, 7), types.constant(0.0)
            self.copy(self.t0, self.argument(read, 0), 1)
            self.each(n, lambda e: self.store(types, zero, bar, e))
            self.each_where(here, self._saved)
            self.do(read.text)
            entry = 1
            pull = self.pull
            for place, size in ((pull.state, n), (self.raw_bar, n), (pull.bars, n * self.count), (self.shift_bar, n)):

                def add(e: str, place: str = place, entry: int = entry) -> None:
                    x = self.load(types, read.found, self.behind(entry, e))
                    self.add(place, e, self.operate(types, "select", [here, x, zero]))

                self.each(size, add)
                entry += size
            self.each_where(here, self._next_saved)
            return self.joined(types, "or", due())

        self.where(self.joined(types, "or", due()), prepare)

    def _saved(self, k: str) -> None:
        """The time of a saved state, and its cotangent."""
        job, index = self.whole(self.jobs, k), self.whole(self.index, k)
        self._set(self.argument(self.read, 0), k, self.of_job(_TIMES, job, index))
        bar = self.argument(self.read, 7)
        self.each(
            self.n,
            lambda e: self.store(self.one, self.of_job(_BARS, job, self.at(index, self.n, e)), bar, self.own(e, k)),
        )

    def _next_saved(self, k: str) -> None:
        """The cotangent of its time; the saved state before, and the step in which that lies."""
        job, index = self.whole(self.jobs, k), self.whole(self.index, k)
        self.give_job(len(self.results) - 2, job, index, self.load(self.one, self.read.found, k))
        end = self.let(f"icmp eq i64 {index}, {self.run.times - 1}")
        reached = self.let(f"sub i64 {self._whole_of_job(_REACHED, job)}, 1")
        before = self.let(f"select i1 {end}, i64 {reached}, i64 {self.let(f'sub i64 {index}, 1')}")
        self.put(before, self.index, k)
        none = lambda: self._set(self.due, k, self.one.constant(-1.0))
        more = lambda: self._set(self.due, k, self.of_job(_PLACE, job, before))
        self.either(self.let(f"icmp slt i64 {before}, 0"), none, more)

    def give_lane(self, k: str, job: str) -> None:
        """The cotangents of a run."""
        self.each(self.n, lambda e: self.give_job(0, job, e, self.of_lane(self.end_bar, e, k)))
        self.give_job(1, job, "0", self.load(self.one, self.begins, k))
        entry = 0
        for result in range(2, len(self.results) - 2):
            size = entries(self.results[result].shape)

            def give(e: str, result: int = result, entry: int = entry) -> None:
                self.give_job(result, job, e, self.of_lane(self.pull.moves, self.behind(entry, e), k))

            self.each(size, give)
            entry += size
        self.give_job(len(self.results) - 1, job, "0", self.load(self.one, self.special, k))
