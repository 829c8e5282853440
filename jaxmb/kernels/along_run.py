"""The derivative of a whole run along a direction as one program, in forward mode."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .code import Shaped
from .driver import Stepping
from .module import Lane, Period
from .program import Program
from .saving import Saving
from .step import StepProgram


@dataclasses.dataclass(frozen=True, eq=False)
class AlongRunProgram(Stepping):
    """The derivative ẏ along the accepted steps of a run, whose times are given, at the saved times and at its end.

    Operands are the tape's times and states, how many steps there are, when the last one ended, the saved times, ẏ at the start, and the
    parameters with those derivatives that are not zero; results ẏ at the saved times, zero where they were not reached, and at the end.

    Attributes:
        stage, end, a, c: of (y, ẏ), see `doubled`; the end's first results behind the rates are the derivatives of what replaces
            the first numbers of y₁.
        between: see `RunProgram`; it is linear in all but the times.
        replaced: how many numbers of y₁ are replaced.
        times: how many saved times there are.
        taped: how many states the tape has room for.
        reuses: whether the first slope of a step is the last one of the step before.
    """

    between: Program
    replaced: int
    times: int
    taped: int
    reuses: bool

    @property
    def step(self) -> StepProgram:
        """A step."""
        return StepProgram(self.stage, self.end, self.a, self.c, True)

    @property
    def size(self) -> int:
        """How many numbers y has."""
        return self.state.shape[0] // 2

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        n, number = self.size, lambda *shape: Shaped(shape, self.dtype)
        tape = number(self.taped), number(self.taped, n), Shaped((), jnp.int32), number()
        return (*tape, number(self.times), number(n), *self.stage.operands[2:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return Shaped((self.times, self.size), self.dtype), Shaped((self.size,), self.dtype)

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""
        return self._along

    def _along(self, *given: Array) -> list[Any]:
        (ts, ys, count, last, times, dot), fixed = given[:6], given[6:]
        n = self.size

        def step(carry: Any) -> Any:
            k, dot, slope, found = carry
            t0, t1 = ts[k], jnp.where(k == count - 1, last, ts[k + 1])
            y0 = jnp.concatenate([ys[k], dot])
            fresh = (k == 0) | (not self.reuses)
            slope = jnp.where(fresh, self.stage.fn(t0, y0, *fixed)[0], slope)
            raw, ks, _, *more = self.step.fn(t0, t1, y0, slope, jnp.zeros(self.end.operands[2].shape), *fixed)
            moved = jnp.concatenate([jnp.ravel(x) for x in more] + [jnp.zeros(n)])[: self.replaced]
            following = raw[n:].at[: self.replaced].set(moved)
            read = lambda t: self.between.fn(t, t0, t1, dot, raw[n:], ks[:, n:], following - raw[n:])[0]
            lies = (times <= t1) & ((times > t0) | (k == 0))
            found = jnp.where(lies[:, None], lax.map(read, times), found)
            return k + 1, following, ks[-1] / (t1 - t0), found

        start = jnp.array(0), dot, jnp.zeros(2 * n, self.dtype), jnp.zeros((self.times, n), self.dtype)
        _, end, _, found = lax.while_loop(lambda c: c[0] < count, step, start)
        return [found, end]

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        out = _AlongRun(self, periods, lanes)
        out.write_all()
        return out


_TS, _YS, _COUNT, _LAST, _TIMES, _DOT = range(6)


class _AlongRun(Saving):
    """The module; y₀ and ẏ₀ stand one behind the other."""

    def __init__(self, run: AlongRunProgram, periods: Sequence[Period], lanes: int):
        self.run = run
        own = range(6, len(run.operands))
        functions = (
            (run.stage, (None, None, *own)),
            (run.end, (None, None, None, *own)),
            (run.between, (None,) * len(run.between.operands)),
        )
        super().__init__(run, functions, range(6), periods, lanes)
        self.save_by(self.called[2], _TIMES, 0, run.times, run.size)
        types = self.types
        self.t0, self.t1, self.fresh, self.last = (self.room(types, 1) for _ in range(4))
        self.slope, self.following = self.room(types, self.n), self.room(types, run.size)
        self.at_step = self.counters(types.width)

    def clear(self) -> None:
        """Numbers for lanes without a run."""
        types, one = self.types, self.types.constant(1.0)
        for place in (self.start, self.slope):
            self.each(self.n, lambda e, place=place: self.store(types, one, place, e))
        for place in (self.t0, self.fresh, self.due, self.last):
            self.store(types, one, place, 0)
        self.store(types, types.constant(2.0), self.t1, 0)

    def load_lane(self, k: str, job: str) -> None:
        """The start of a run."""
        n = self.run.size
        self.put("0", self.at_step, k)
        self.begin_saving(k, job)
        self.each(
            n,
            lambda e: self.store(self.one, self.of_job(_DOT, job, e), self.start, self.own(self.behind(n, e), k)),
        )

    def attempt_all(self, busy: str) -> str:
        """One step in all lanes side by side; which of them are over."""
        types, n, size, zero = self.types, self.n, self.run.size, self.types.constant(0.0)
        self.each_where(busy, self._fetch)
        t0, t1 = self.load(types, self.t0, 0), self.load(types, self.t1, 0)
        h = self.operate(types, "sub", [t1, t0])
        fresh = self.truth(self.load(types, self.fresh, 0))

        def first() -> None:
            found = self.call(self.stage, t0, 0)

            def put(e: str) -> None:
                x = self.operate(types, "select", [fresh, self.load(types, found, e), self.load(types, self.slope, e)])
                self.store(types, x, self.slope, e)

            self.each(n, put)

        self.where(self.joined(types, "or", fresh), first)
        _, found = self.advance(t0, t1, h, lambda e: self.load(types, self.slope, e))
        raw = self.entry(types.number, self.argument(self.end, 1), size)  # its derivative
        self.copy(raw, self.following, size)
        self.copy(self.entry(types.number, found, n), self.following, self.run.replaced)
        self.save(t1, busy, lambda: self._prepare(raw))
        self.copy(self.following, self.entry(types.number, self.start, size), size)
        last = (self.count - 1) * n

        def slope(e: str) -> None:
            x = self.let(f"fdiv {types.number} {self.load(types, self.ks, self.behind(last, e))}, {h}")
            self.store(types, x, self.slope, e)

        self.each(n, slope)
        over = self.let(f"fcmp une {types.number} {self.load(types, self.last, 0)}, {zero}")
        return self.operate(types, "and", [busy, over])

    def _fetch(self, k: str) -> None:
        """When and where the step of a lane begins, and when it ends."""
        job, step, size = self.whole(self.jobs, k), self.whole(self.at_step, k), self.run.size
        after = self.let(f"add i64 {step}, 1")
        self.put(after, self.at_step, k)
        number = lambda truth: self.let(f"uitofp i1 {truth} to {self.one.scalar}")
        self.store(self.one, self.of_job(_TS, job, step), self.t0, k)
        first = self.let(f"icmp eq i64 {step}, 0") if self.run.reuses else "true"
        self.store(self.one, number(first), self.fresh, k)
        state = lambda e: self.store(
            self.one, self.of_job(_YS, job, self.at(step, size, e)), self.start, self.own(e, k)
        )
        self.each(size, state)
        count = self.let(f"fptosi {self.one.scalar} {self.of_job(_COUNT, job, '0')} to i64")
        last = self.let(f"icmp eq i64 {after}, {count}")
        self.store(self.one, number(last), self.last, k)
        ends = lambda operand, entry: self.store(self.one, self.of_job(operand, job, entry), self.t1, k)
        self.either(last, lambda: ends(_LAST, "0"), lambda: ends(_TS, after))

    def _prepare(self, raw: str) -> None:
        """What ẏ within the step is made of."""
        types, size, between = self.types, self.run.size, self.between
        self.copy(self.t0, self.argument(between, 1), 1)
        self.copy(self.t1, self.argument(between, 2), 1)
        self.copy(self.entry(types.number, self.start, size), self.argument(between, 3), size)
        self.copy(raw, self.argument(between, 4), size)
        slopes, shift = self.argument(between, 5), self.argument(between, 6)
        for i in range(self.count):
            source = self.entry(types.number, self.ks, i * self.n + size)
            self.copy(source, self.entry(types.number, slopes, i * size), size)

        def differ(e: str) -> None:
            x = self.operate(types, "sub", [self.load(types, self.following, e), self.load(types, raw, e)])
            self.store(types, x, shift, e)

        self.each(size, differ)

    def give_lane(self, k: str, job: str) -> None:
        """The derivative of the end; zeros at times that were not reached."""
        self.each(self.run.size, lambda e: self.give_job(1, job, e, self.of_lane(self.following, e, k)))
        self.fill_up(k, job, 0.0)
