"""The way back over a step as one program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .code import Shaped, entries
from .driver import Driver, Stepping
from .module import Called, Lane, Period
from .pulled import PulledProgram


@dataclasses.dataclass(frozen=True, eq=False)
class BackProgram(Stepping):
    """The way back over a step: cotangents of its start and of what its functions depend on.

    Operands are t₀, t₁, y₀, k, where the end was moved to, the cotangents of that, of the end before, of y₀ and of k, whether k₁ was
    taken from the step before, and the parameters; results the cotangents of y₀, of f₀ where it was taken, and of the parameters
    that move.

    Attributes:
        stage: (t, y, cotangent of the rate, parameters) ↦ cotangents of (y, parameters that move).
        end: (t, y₁, where it was moved to, cotangent of that, parameters) ↦ cotangents of (y₁, parameters that move).
        a, c: see `Stepping`.
    """

    stage: PulledProgram

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        t, y, k = self.stage.operands[0], self.state, self.slopes
        return (t, t, y, k, y, y, y, y, k, Shaped((), jnp.bool_), *self.stage.operands[3:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return (self.state, self.state, *self.stage.results[1:])

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""
        return self._back

    def _back(self, *given: Any) -> list[Any]:
        (t0, t1, y0, ks, y1, end, raw, start, bars, taken), parameters = given[:10], given[10:]
        h = t1 - t0
        a, c = (jnp.asarray(numbers, self.dtype) for numbers in (self.a, self.c))
        bar, *moves = self.end.fn(t1, y0 + a[-1] @ ks, y1, end, *parameters)
        bar, count = bar + raw, a.shape[1]

        def stage(n: Array, carry: Any) -> Any:
            start, bars, moves = carry
            i = count - 1 - n
            found = self.stage.fn(t0 + c[i] * h, y0 + a[i] @ ks, h * bars[i], *parameters)
            bar, *more = [jnp.where(taken & (i == 0), 0, x) for x in found]
            moves = [x + m for x, m in zip(moves, more, strict=True)]
            return start + bar, bars + a[i][:, None] * bar, moves

        carry = start + bar, bars + a[-1][:, None] * bar, moves
        start, bars, moves = lax.fori_loop(0, count, stage, carry)
        return [start, jnp.where(taken, h * bars[0], 0), *moves]

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        parameters = range(10, len(self.operands))
        functions = (self.stage, (None, None, None, *parameters)), (self.end, (None, None, 4, 5, *parameters))
        out = _Back(self, functions, range(10), periods, lanes)
        out.over_lanes(out.work)
        return out


class Pull:
    """Writes the way back over one step into a module, in which y₀ and all k stand; cotangents are summed up in places of their own.

    Args:
        out: the module.
        stages, end: the functions of a `BackProgram` in it, that of a stage for each of them.
        size: how many numbers the parameters that move have.
        prepared: whether stages have been given what they need of their states.
    """

    def __init__(self, out: Driver, stages: Sequence[Called], end: Called, size: int, prepared: bool = False):
        self.out, self.stages, self.end, self.size, self.prepared = out, stages, end, size, prepared
        self.state, self.bars, self.moves = (out.room(out.types, k) for k in (out.n, out.n * out.count, size))

    def over(self, t0: str, t1: str, h: str, fresh: str, raw: Callable[[str], str]) -> None:
        """All functions, from the end to the first stage, which is `fresh` where it belongs to this step; `raw` gives the cotangent of y₁."""
        out, n = self.out, self.out.n
        self._pull(self.end, len(out.program.a) - 1, t1, raw)

        def stage(i: int) -> None:
            called = self.stages[i]
            bar = out.argument(called, 2)
            out.each(n, lambda e: out.store(out.types, self._rate_bar(h, i, e, fresh), bar, e))
            self._pull(called, i, None if self.prepared else out.time(t0, h, i))

        for i in reversed(range(1, out.count)):
            stage(i)
        out.either(out.joined(out.types, "or", fresh), lambda: stage(0), lambda: None)

    def before(self, h: str, fresh: str, e: str) -> str:
        """The cotangent of the first rate, where it was taken from the step before."""
        out = self.out
        x = out.operate(out.types, "mul", [h, out.load(out.types, self.bars, e)])
        return out.operate(out.types, "select", [fresh, out.types.constant(0.0), x])

    def _rate_bar(self, h: str, i: int, e: str, fresh: str) -> str:
        """The cotangent of a rate; of the first one only where that was found in this step."""
        out = self.out
        x = out.operate(out.types, "mul", [h, out.load(out.types, self.bars, out.behind(i * out.n, e))])
        return x if i else out.operate(out.types, "select", [fresh, x, out.types.constant(0.0)])

    def _pull(self, called: Called, i: int, t: str | None, raw: Callable[[str], str] | None = None) -> None:
        """One of the functions, and what follows for everything on which its argument depends."""
        out, types, n = self.out, self.out.types, self.out.n
        if t is None:
            out.do(called.text)
        found = called.found if t is None else out.call(called, t, i)

        def follow(e: str) -> None:
            x = out.load(types, found, e)
            x = x if raw is None else out.operate(types, "add", [x, raw(e)])
            out.add(self.state, e, x)
            for j, a in enumerate(out.program.a[i]):
                if a != 0:
                    place = out.behind(j * n, e)
                    out.store(types, out.plus(out.load(types, self.bars, place), a, x), self.bars, place)

        out.each(n, follow)
        out.each(self.size, lambda k: out.add(self.moves, k, out.load(types, found, out.behind(n, k))))


class _Back(Driver):
    """The module of one step."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        size = sum(entries(s.shape) for s in self.results[2:])
        self.pull = Pull(self, [self.stage] * self.count, self.end, size)

    def work(self, numbers: list[str]) -> None:
        """What is done for some lanes."""
        types, n, zero, pull = self.types, self.n, self.types.constant(0.0), self.pull
        t0, t1 = self.gathered(numbers, 0, 0), self.gathered(numbers, 1, 0)
        h = self.begin(numbers, t0, t1, 2)
        for operand, place, entry in ((3, self.ks, n * self.count), (7, pull.state, n), (8, pull.bars, n * self.count)):
            self.take(numbers, operand, place, entry)
        self.each(pull.size, lambda k: self.store(types, zero, pull.moves, k))
        fresh = self.let(f"fcmp oeq {types.number} {self.gathered(numbers, 9, 0)}, {zero}")
        pull.over(t0, t1, h, fresh, lambda e: self.gathered(numbers, 6, e))
        self.give(numbers, 0, pull.state)
        self.each(n, lambda e: self.scattered(numbers, pull.before(h, fresh, e), 1, e))
        entry = 0
        for result in range(2, len(self.results)):
            entry = self.give(numbers, result, pull.moves, entry)
