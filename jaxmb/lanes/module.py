"""A module of LLVM that runs code over lanes, called by XLA."""

import dataclasses
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .code import Code, Shaped, entries
from .interface import interface
from .text import Function, Types, body

# From so many operations on code of one lane is compiled soon rather than well: in a tenth of the time, to run twice as long.
LARGE = 20_000
# (d, p) where lane i has the numbers (i // d) mod p of an operand; None where all lanes share them.
Period = tuple[int, int] | None
# Of a single lane, what is treated as its own.
EACH: Period = (1, 1)
# Types in memory of numbers that are not of the module's own.
_MEMORY = {"float64": "double", "float32": "float", "bool": "i8"} | {
    f"{u}int{n}": f"i{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


@dataclasses.dataclass(frozen=True)
class Part:
    """Code that a module calls, from numbers of all lanes, one vector after the other.

    Attributes:
        moving: the code.
        still: what of it does not depend on the lane, found once; the code's last operand.
        of: which operand of the module stands for each of the code's; None where its numbers are made on the way.
        places: where each number stands that the code is given, by operand and entry: all of an operand of the module, but of one of which it
            reads little.
        referred: which operands of the code are read where they stand, whose places are passed to it.
    """

    moving: Code
    still: Code
    of: tuple[int | None, ...]
    places: dict[tuple[int, int], int]
    referred: tuple[int, ...] = ()

    @classmethod
    def make(
        cls,
        code: Code,
        operands: Sequence[Shaped],
        of: Sequence[int | None],
        periods: Sequence[Period],
        referred: Sequence[int] = (),
    ) -> "Part":
        """The code, in a module whose operands are the same in all lanes where they have no period; `referred` ones are read where they stand."""
        own = [k is None or periods[k] is not None for k in of]
        still, moving = code.apart([not x for x in own])
        read = [place for place in moving.inputs if place[0] < len(of)]
        count, places = Counter(operand for operand, _ in read), set(read)
        for k, source in enumerate(of):
            size = entries(operands[k].shape)
            if source is not None and own[k] and size <= 4 * (count[k] + 1):
                places |= {(k, e) for e in range(size)}
        places = numbered(place for place in places if place[0] not in referred)
        return cls(moving, still, tuple(of), places, tuple(referred))

    @property
    def used(self) -> set[int]:
        """The operands of the module that are read."""
        sources = {self.of[operand] for operand, _ in (*self.places, *self.still.inputs)}
        return {source for source in sources if source is not None}


@dataclasses.dataclass(frozen=True)
class Unit:
    """What is compiled at once: a function that others call by its name.

    Attributes:
        name: of the function.
        text: of the function and of what it declares.
        library: functions of the C library that it calls.
        quick: whether it is large, and rather compiled soon than well.
    """

    name: str
    text: str
    library: frozenset[str]
    quick: bool = False

    @classmethod
    def of(cls, function: Function, head: str, quick: bool) -> "Unit":
        """A function that is named by its text."""
        text = function.text("(" + head + ")")
        name = "jaxmb_" + hashlib.sha256(f"{text}{quick}".encode()).hexdigest()[:32]
        whole = "\n".join([*sorted(function.declared), f"define void @{name}{text}"])
        return cls(name, whole, frozenset(function.library), quick)


def numbered(places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """In order."""
    return {place: k for k, place in enumerate(sorted(places))}


def runs(places: dict[tuple[int, int], int]) -> list[tuple[int, int, int, int]]:
    """Entries of one operand that follow each other: (operand, its first entry, where that stands, how many)."""
    out: list[tuple[int, int, int, int]] = []
    for (operand, entry), k in places.items():
        if out and out[-1][0] == operand and out[-1][1] + out[-1][3] == entry:
            out[-1] = (*out[-1][:3], out[-1][3] + 1)
        else:
            out.append((operand, entry, k, 1))
    return out


@dataclasses.dataclass(frozen=True)
class Called:
    """A part in a module.

    Attributes:
        part: the part.
        name: of its function.
        given: where the numbers stand that it is given, and
        fixed: those that are the same in all lanes.
    """

    part: Part
    name: str
    given: str
    fixed: str

    def text(self, results: str, *references: str) -> str:
        """The call, of which the results are written to a place."""
        return (
            f"call void @{self.name}({', '.join(f'ptr {x}' for x in (self.given, self.fixed, results, *references))})"
        )


class Handler(Function):
    """A function that XLA calls.

    Args:
        operands: how many are passed.
        results: how many there are.
    """

    def __init__(self, operands: int, results: int):
        super().__init__()
        self.units: list[Unit] = []
        self.given, self.outs = self.open(operands, results)

    def open(self, operands: int, results: int) -> tuple[list[str], list[str]]:
        """Where the numbers of operands and results stand."""
        self._asked()
        return self._buffers(interface().arguments, operands), self._buffers(interface().results, results)

    def _asked(self) -> None:
        """What XLA asks when the function is registered: for which version it was made."""
        at = interface()
        extension = self.let(f"load ptr, ptr {self.entry('i8', '%frame', at.extension)}")
        self.do(f"br i1 {self.let(f'icmp eq ptr {extension}, null')}, label %called, label %asked")
        self.label("asked")
        metadata = self.let(f"load ptr, ptr {self.entry('i8', extension, at.metadata)}")
        for k, number in enumerate(at.version):
            self.do(f"store i32 {number}, ptr {self.entry('i8', metadata, at.asked + 4 * k)}")
        self.do("ret ptr null")
        self.label("called")

    def _buffers(self, offset: int, count: int) -> list[str]:
        array = self.let(f"load ptr, ptr {self.entry('i8', '%frame', offset)}")
        buffers = [self.let(f"load ptr, ptr {self.entry('ptr', array, k)}") for k in range(count)]
        return [self.let(f"load ptr, ptr {self.entry('i8', buffer, interface().data)}") for buffer in buffers]

    @property
    def handler(self) -> Unit:
        """The function that XLA calls."""
        text = "\n".join([*sorted(self.declared), self.text("define ptr @handler(ptr %frame)")])
        return Unit("handler", text, frozenset(self.library))


class Lane(Handler):
    """A loop over the lanes, `width` of them at a time.

    Args:
        dtype: of numbers.
        width: how many lanes are side by side.
        lanes: how many there are.
        operands: shapes and types of one lane's operands.
        results: likewise.
        periods: see `Period`, of each operand.
        used: the operands that are read; XLA passes no others.
    """

    def __init__(
        self,
        dtype: Any,
        width: int,
        lanes: int,
        operands: Sequence[Shaped],
        results: Sequence[Shaped],
        periods: Sequence[Period],
        used: Sequence[int],
    ):
        super().__init__(len(used), len(results))
        self.types, self.one, self.lanes = Types(dtype, width), Types(dtype, 1), lanes
        self.operands, self.results, self.periods, self.used = operands, results, periods, tuple(used)
        self.ins = dict(zip(self.used, self.given, strict=True))

    def room(self, types: Types, count: int) -> str:
        """Memory for so many numbers."""
        return self.let(f"alloca {types.number}, i64 {max(count, 1)}, align 64")

    def number(self, shaped: Shaped, base: str, index: str) -> str:
        """One number from memory, of whatever type it is there."""
        kind, scalar = _MEMORY[str(np.dtype(shaped.dtype))], self.one.scalar
        x = self.let(f"load {kind}, ptr {self.entry(kind, base, index)}")
        letter = np.dtype(shaped.dtype).kind
        if letter == "f":
            return x
        return self.let(f"{'sitofp' if letter == 'i' else 'uitofp'} {kind} {x} to {scalar}")

    def write_number(self, shaped: Shaped, x: str, base: str, index: str) -> None:
        """One number to memory."""
        kind, scalar, letter = _MEMORY[str(np.dtype(shaped.dtype))], self.one.scalar, np.dtype(shaped.dtype).kind
        if letter == "b":
            x = self.let(f"zext i1 {self.let(f'fcmp une {scalar} {x}, 0.0')} to i8")
        elif letter != "f":
            x = self.let(f"{'fptosi' if letter == 'i' else 'fptoui'} {scalar} {x} to {kind}")
        self.do(f"store {kind} {x}, ptr {self.entry(kind, base, index)}")

    # Parts

    def prepared(self, part: Part, thorough: bool, brief: bool = False) -> "Called":
        """A part, ready to be called; what does not depend on the lane is found here. A large one is compiled well if that is asked for."""
        places = numbered(part.still.inputs)
        still = self._unit(part.still, self.one, places, thorough, brief)
        given, fixed = self.room(self.one, len(places)), self.room(self.one, len(part.still.outputs))

        def read(source: int, entry: int, first: int, k: str) -> None:
            x = self.number(self.operands[source], self.ins[source], self.behind(entry, k))
            self.store(self.one, x, given, self.behind(first, k))

        for operand, entry, first, count in runs(places):
            source = part.of[operand]
            assert source is not None
            self.each(count, functools.partial(read, source, entry, first))
        if part.still.outputs:
            self.do(f"call void @{still}(ptr {given}, ptr null, ptr {fixed})")
        own = self.room(self.types, len(part.places))
        name = self._unit(part.moving, self.types, part.places, thorough, brief, part.referred)
        return Called(part, name, own, fixed)

    def _unit(
        self,
        code: Code,
        types: Types,
        places: dict[tuple[int, int], int],
        thorough: bool,
        brief: bool,
        referred: Sequence[int] = (),
    ) -> str:
        """The name of a function of code."""
        quick = brief or (not thorough and types.width == 1 and code.count > LARGE)
        names = ("given", "fixed", "found", *(f"operand{k}" for k in referred))
        unit = Unit.of(body(code, types, places, referred), ", ".join(f"ptr noalias %{name}" for name in names), quick)
        self.units.append(unit)
        self.declared.add(f"declare void @{unit.name}({', '.join('ptr' for _ in names)})")
        return unit.name

    def repeated(self, operand: int, lane: str) -> str:
        """Whose numbers of an operand a lane has."""
        period = self.periods[operand]
        assert period is not None
        each, count = period
        lane = lane if each == 1 else self.let(f"udiv i64 {lane}, {each}")
        if each * count == self.lanes:
            return lane
        return "0" if count == 1 else self.let(f"urem i64 {lane}, {count}")

    def gathered(self, numbers: list[str], operand: int, entry: int | str) -> str:
        """An entry of an operand in some lanes, side by side."""
        shaped, base = self.operands[operand], self.ins[operand]
        if self.periods[operand] is None:
            return self.splat(self.types, self.number(shaped, base, str(entry)))
        size, out = entries(shaped.shape), "poison"
        for k, lane in enumerate(self.repeated(operand, lane) for lane in numbers):
            index = self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {lane}, {size}')}, {entry}")
            x = self.number(shaped, base, index)
            out = (
                x
                if self.types.width == 1
                else self.let(f"insertelement {self.types.number} {out}, {self.types.scalar} {x}, i64 {k}")
            )
        return out

    def fill(self, called: "Called", numbers: list[str]) -> None:
        """What a part is given of the operands of the module."""
        part, given = called.part, called.given

        def read(source: int, entry: int, first: int, k: str) -> None:
            x = self.gathered(numbers, source, self.behind(entry, k))
            self.store(self.types, x, given, self.behind(first, k))

        for operand, entry, first, count in runs(part.places):
            source = part.of[operand]
            if source is not None:
                self.each(count, functools.partial(read, source, entry, first))
