"""What the modules of steps and of the way back over them have in common."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Array

from .code import Piece, Shaped, entries
from .module import Called, Lane, Part, Period
from .program import Program, lanes_p, width_of

Functions = Sequence[tuple[Program | Piece, Sequence[int | None]]]


@dataclasses.dataclass(frozen=True, eq=False)
class Stepping(abc.ABC):
    """A program that calls those of a stage and of an end, with the coefficients of a method.

    Attributes:
        stage: of the stages.
        end: of the end of a step.
        a: (r, s), r being s or s + 1 where a row for the end is added that counts for nothing.
        c: (r,).
    """

    stage: Program
    end: Program
    a: tuple[tuple[float, ...], ...]
    c: tuple[float, ...]

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.stage.dtype

    @property
    def state(self) -> Shaped:
        """Shape and type of y."""
        return self.stage.operands[1]

    @property
    def thorough(self) -> bool:
        """See `Program`."""
        return self.stage.thorough

    @property
    def by_numbers(self) -> "Stepping":
        """The same, whose function calls those of `Program.by_numbers`."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return dataclasses.replace(self, **{k: x.by_numbers for k, x in parts.items() if isinstance(x, Program)})

    @property
    def slopes(self) -> Shaped:
        """Shape and type of all k."""
        return Shaped((len(self.a[0]), *self.state.shape), self.state.dtype)

    @property
    @abc.abstractmethod
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""

    @property
    @abc.abstractmethod
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""

    @property
    @abc.abstractmethod
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""

    @abc.abstractmethod
    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""

    def __call__(self, *operands: Any) -> list[Array]:
        """The results."""
        return lanes_p.bind(*operands, program=self, lanes=())

    def tangent(self, moving: tuple[bool, ...]) -> None:
        """There is none as one program: it is differentiated by its functions."""
        return None


class Driver(Lane):
    """A module for such a program: places for y₀ and all k, and calls of its functions.

    Args:
        program: the program.
        functions: what is called, a stage first, then the end, and which operand stands for each of theirs, None where its numbers
            are made on the way.
        read: the operands that are read besides.
        periods: see `Period`, of each operand.
        lanes: how many there are.
    """

    def __init__(
        self,
        program: Stepping,
        functions: Functions,
        read: Sequence[int],
        periods: Sequence[Period],
        lanes: int,
    ):
        parts = [Part.make(fn.code, fn.operands, of, periods) for fn, of in functions]
        used = sorted(set(read).union(*(part.used for part in parts)))
        width = width_of(program.dtype, lanes)
        super().__init__(program.dtype, width, lanes, program.operands, program.results, periods, used)
        self.program, self.n, self.count = program, entries(program.state.shape), len(program.a[0])
        self.called = [self.prepared(part, fn.thorough) for part, (fn, _) in zip(parts, functions, strict=True)]
        self.stage, self.end = self.called[:2]
        self.start, self.ks = self.room(self.types, self.n), self.room(self.types, self.n * self.count)

    def begin(self, lanes: list[str], t0: str, t1: str, y0: int) -> str:
        """Reads the start of a step and what its functions are given of the operands; h."""
        for part in self.called:
            self.fill(part, lanes)
        self.take(lanes, y0, self.start, self.n)
        return self.operate(self.types, "sub", [t1, t0])

    def advance(self, t0: str, t1: str, h: str, known: Callable[[str], str] | None) -> tuple[str, str]:
        """All stages of a step, and its end: whether a stage was doubtful, and where the end's results are.

        Args:
            t0: when it starts.
            t1: when it ends.
            h: how long it is.
            known: the rate at the start, where the first stage is not evaluated.
        """
        types, n, found = self.types, self.n, ""
        doubtful = types.constant(False)

        def keep(i: int, rate: Callable[[str], str]) -> None:
            put = lambda e: self.store(types, self.operate(types, "mul", [h, rate(e)]), self.ks, self.behind(i * n, e))
            if i < self.count:
                self.each(n, put)

        for i in range(len(self.program.a)):
            if i == 0 and known is not None:
                keep(i, known)
                continue
            if i == len(self.program.a) - 1:
                found = self.call(self.end, t1, i)
            else:
                found = self.call(self.stage, self.time(t0, h, i), i)
                doubtful = self.operate(types, "or", [doubtful, self.truth(self.load(types, found, n))])
            keep(i, functools.partial(self.load, types, found))
        return doubtful, found

    def truth(self, x: str) -> str:
        """Whether numbers are not zero."""
        return self.let(f"fcmp une {self.types.number} {x}, {self.types.constant(0.0)}")

    def nothing(self, lanes: list[str]) -> None:
        """Zeros for all results."""
        for result, shaped in enumerate(self.results):
            zero = self.types.constant(0.0)
            self.each(entries(shaped.shape), functools.partial(self.scattered, lanes, zero, result))

    def take(self, lanes: list[str], operand: int, place: str, size: int) -> None:
        """An operand into a place."""
        self.each(size, lambda e: self.store(self.types, self.gathered(lanes, operand, e), place, e))

    def argument(self, called: Called, operand: int) -> str:
        """The place of one of the operands of a function that are made on the way."""
        return self.entry(self.types.number, called.given, called.part.places[operand, 0])

    def call(self, called: Called, t: str, i: int) -> str:
        """One of the functions, at t and y₀ + Σ a_ij k_j; where its results are."""
        self.store(self.types, t, self.argument(called, 0), 0)
        y = self.argument(called, 1)
        self.each(self.n, lambda e: self.store(self.types, self._entry(i, e), y, e))
        found = self.results_of(called, i)
        self.do(dataclasses.replace(called, found=found).text)
        return found

    def results_of(self, called: Called, i: int) -> str:
        """Where the results of a function stand, called for row i of the method."""
        return called.found

    def _entry(self, i: int, e: str) -> str:
        y = self.load(self.types, self.start, e)
        for j, a in enumerate(self.program.a[i]):
            if a != 0:
                y = self.plus(y, a, self.load(self.types, self.ks, self.behind(j * self.n, e)))
        return y

    def plus(self, y: str, a: float, x: str) -> str:
        """Y + a x."""
        return self.operate(self.types, "add", [y, self.operate(self.types, "mul", [self.types.constant(a), x])])

    def add(self, place: str, k: str, x: str) -> None:
        """Adds to what stands in a place."""
        self.store(self.types, self.operate(self.types, "add", [self.load(self.types, place, k), x]), place, k)

    def time(self, t0: str, h: str, i: int) -> str:
        """t₀ + c_i h."""
        return self.plus(t0, self.program.c[i], h)
