"""The way back over a step as one program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .code import Shaped, entries
from .driver import Driver, Stepping
from .module import Called, Lane


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
        h, a = t1 - t0, np.asarray(self.a, self.dtype)
        bar, *moves = self.end.fn(t1, y0 + a[-1] @ ks, y1, end, *parameters)
        bar = bar + raw
        start, bars = start + bar, bars + a[-1][:, None] * bar
        for i in reversed(range(a.shape[1])):
            found = self.stage.fn(t0 + self.c[i] * h, y0 + a[i] @ ks, h * bars[i], *parameters)
            bar, *more = [jnp.where(taken, 0, x) for x in found] if i == 0 else found
            start, bars = start + bar, bars + a[i][:, None] * bar
            moves = [x + m for x, m in zip(moves, more, strict=True)]
        return [start, jnp.where(taken, h * bars[0], 0), *moves]

    def module(self, batched: Sequence[bool], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        parameters = range(10, len(self.operands))
        out = _Back(self, (None, None, None, *parameters), (None, None, 4, 5, *parameters), range(10), batched, lanes)
        out.over_lanes(out.work)
        return out


class _Back(Driver):
    """The module: cotangents are summed up in places of their own."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.size = sum(entries(s.shape) for s in self.results[2:])
        sizes = (self.n, self.n * self.count, self.size)
        self.state, self.bars, self.moves = (self.room(self.types, k) for k in sizes)

    def work(self, numbers: list[str]) -> None:
        """What is done for some lanes."""
        types, n, zero = self.types, self.n, self.types.constant(0.0)
        t0, t1 = self.gathered(numbers, 0, 0), self.gathered(numbers, 1, 0)
        h = self.begin(numbers, t0, t1, 2)
        for operand, place, entry in ((3, self.ks, n * self.count), (7, self.state, n), (8, self.bars, n * self.count)):
            self.take(numbers, operand, place, entry)
        self.each(self.size, lambda k: self.store(types, zero, self.moves, k))
        self._pull(self.end, len(self.program.a) - 1, t1, lambda e: self.gathered(numbers, 6, e))
        fresh = self.let(f"fcmp oeq {types.number} {self.gathered(numbers, 9, 0)}, {zero}")

        def stage(i: int) -> None:
            bar = self.argument(self.stage, 2)
            self.each(n, lambda e: self.store(types, self._rate_bar(h, i, e, fresh), bar, e))
            self._pull(self.stage, i, self.time(t0, h, i))

        for i in reversed(range(1, self.count)):
            stage(i)
        self.either(self.joined(types, "or", fresh), lambda: stage(0), lambda: None)
        self.give(numbers, 0, self.state)

        def before(e: str) -> None:
            x = self.operate(types, "mul", [h, self.load(types, self.bars, e)])
            self.scattered(numbers, self.operate(types, "select", [fresh, zero, x]), 1, e)

        self.each(n, before)
        entry = 0
        for result in range(2, len(self.results)):
            entry = self.give(numbers, result, self.moves, entry)

    def _rate_bar(self, h: str, i: int, e: str, fresh: str) -> str:
        """The cotangent of a rate; of the first one only where that was found in this step."""
        x = self.operate(self.types, "mul", [h, self.load(self.types, self.bars, self.behind(i * self.n, e))])
        return x if i else self.operate(self.types, "select", [fresh, x, self.types.constant(0.0)])

    def _pull(self, called: Called, i: int, t: str, raw: Callable[[str], str] | None = None) -> None:
        """One of the functions, and what follows for everything on which its argument depends."""
        found = self.call(called, t, i)

        def follow(e: str) -> None:
            x = self.load(self.types, found, e)
            x = x if raw is None else self.operate(self.types, "add", [x, raw(e)])
            self._add(self.state, e, x)
            for j, a in enumerate(self.program.a[i]):
                if a != 0:
                    place = self.behind(j * self.n, e)
                    self.store(self.types, self.plus(self.load(self.types, self.bars, place), a, x), self.bars, place)

        self.each(self.n, follow)
        self.each(self.size, lambda k: self._add(self.moves, k, self.load(self.types, found, self.behind(self.n, k))))

    def _add(self, place: str, k: str, x: str) -> None:
        self.store(self.types, self.operate(self.types, "add", [self.load(self.types, place, k), x]), place, k)
