"""A module of LLVM that runs code over lanes, called by XLA."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from jax.typing import DTypeLike

from .code import Code, Shaped, entries
from .interface import interface
from .text import FunctionText, Types, body

# From so many lines of text on, code of one lane is compiled soon rather than well: in a tenth of the time, to run twice as long.
LARGE = 10_000
# Types in memory of numbers that are not of the module's own.
_MEMORY = {"float64": "double", "float32": "float", "bool": "i8"} | {
    f"{u}int{n}": f"i{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


@dataclasses.dataclass(frozen=True)
class Part:
    """Code that a module calls, from numbers of all lanes, one vector after the other.

    Attributes:
        varying: the code.
        shared: what of it does not depend on the lane, computed once; the code's last operand.
        sources: which operand of the module is each of the code's; None where its numbers are computed by the module.
        slots: where each number stands that is passed to the code, by operand and entry.
        references: which operands of the code are read where they stand, and are passed by address.
    """

    varying: Code
    shared: Code
    sources: tuple[int | None, ...]
    slots: dict[tuple[int, int], int]
    references: tuple[int, ...] = ()

    @classmethod
    def make(
        cls,
        code: Code,
        sources: Sequence[int | None],
        per_lane: Sequence[bool],
        references: Sequence[int] = (),
    ) -> "Part":
        """The code, in a module of whose operands some differ from lane to lane; `references` are read where they stand."""
        own = [k is None or per_lane[k] for k in sources]
        shared, varying = code.split([not x for x in own])
        slots = numbered(leaf for leaf in varying.inputs if leaf[0] < len(sources) and leaf[0] not in references)
        return cls(varying=varying, shared=shared, sources=tuple(sources), slots=slots, references=tuple(references))


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
    def of(cls, function: FunctionText, head: str, quick: bool) -> "Unit":
        """A function that is named by its text."""
        text = function.text("(" + head + ")")
        name = "jaxmb_" + hashlib.sha256(f"{text}{quick}".encode()).hexdigest()[:32]
        full = "\n".join([*sorted(function.declared), f"define void @{name}{text}"])
        return cls(name, full, frozenset(function.library), quick)


def numbered(leaves: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """A slot for each entry of an operand, in their order."""
    return {leaf: k for k, leaf in enumerate(sorted(leaves))}


def runs(slots: dict[tuple[int, int], int]) -> list[tuple[int, int, int, int]]:
    """Entries of one operand that follow each other: (operand, its first entry, the slot of that, how many)."""
    out: list[tuple[int, int, int, int]] = []
    for (operand, entry), k in slots.items():
        if out and out[-1][0] == operand and out[-1][1] + out[-1][3] == entry:
            out[-1] = (*out[-1][:3], out[-1][3] + 1)
        else:
            out.append((operand, entry, k, 1))
    return out


@dataclasses.dataclass(frozen=True)
class CallSite:
    """A part in a module.

    Attributes:
        part: the part.
        name: of its function.
        varying: memory of the numbers of each lane that are passed to it, and
        shared: of those that are the same in all lanes.
    """

    part: Part
    name: str
    varying: str
    shared: str

    def text(self, results: str, *references: str) -> str:
        """The call, whose results are written to that memory."""
        operands = (self.varying, self.shared, results, *references)
        return f"call void @{self.name}({', '.join(f'ptr {x}' for x in operands)})"


class Handler(FunctionText):
    """A function that XLA calls."""

    def __init__(self) -> None:
        super().__init__()
        self.units: list[Unit] = []

    def open(self, operands: int, results: int) -> tuple[list[str], list[str]]:
        """Memory of the numbers of so many operands and results."""
        self._answer_query()
        return self._buffers(interface().arguments, operands), self._buffers(interface().results, results)

    def _answer_query(self) -> None:
        """What XLA asks when the function is registered: for which version of the interface it was made."""
        at = interface()
        extension = self.let(f"load ptr, ptr {self.entry('i8', '%frame', at.extension)}")
        self.do(f"br i1 {self.let(f'icmp eq ptr {extension}, null')}, label %called, label %queried")
        self.label("queried")
        metadata = self.let(f"load ptr, ptr {self.entry('i8', extension, at.metadata)}")
        for k, number in enumerate(at.version):
            self.do(f"store i32 {number}, ptr {self.entry('i8', metadata, at.built_for + 4 * k)}")
        self.do("ret ptr null")
        self.label("called")

    def _buffers(self, offset: int, count: int) -> list[str]:
        array = self.let(f"load ptr, ptr {self.entry('i8', '%frame', offset)}")
        buffers = [self.let(f"load ptr, ptr {self.entry('ptr', array, k)}") for k in range(count)]
        return [self.let(f"load ptr, ptr {self.entry('i8', buffer, interface().data)}") for buffer in buffers]

    @property
    def handler(self) -> Unit:
        """The function that XLA calls, compiled as the largest one is that it calls."""
        text = self.text("(ptr %frame)")
        name = "jaxmb_" + hashlib.sha256(text.encode()).hexdigest()[:32]
        full = "\n".join([*sorted(self.declared), f"define ptr @{name}{text}"])
        largest = max(self.units, key=lambda unit: len(unit.text), default=None)
        return Unit(name, full, frozenset(self.library), quick=largest is None or largest.quick)


class LaneLoop(Handler):
    """A loop over the lanes, `width` of them at a time.

    Args:
        dtype: of numbers.
        width: how many lanes are side by side.
        lanes: how many there are.
        operands: shapes and types of one lane's operands.
        results: likewise.
        per_lane: of each operand whether lanes have numbers of their own; else all share them.

    Attributes:
        read: the operands that are read so far; XLA passes no others.
        ins, outs: the names of their memory, and of that of the results.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        width: int,
        lanes: int,
        operands: Sequence[Shaped],
        results: Sequence[Shaped],
        per_lane: Sequence[bool],
    ):
        super().__init__()
        self.types, self.one, self.lanes = Types(dtype, width), Types(dtype, 1), lanes
        self.operands, self.results, self.per_lane = operands, results, per_lane
        self.ins = [f"%in{k}" for k in range(len(operands))]
        self.outs = [f"%out{k}" for k in range(len(results))]
        self.read: set[int] = set()

    @property
    def used(self) -> list[int]:
        """The operands that are read."""
        return sorted(self.read)

    def operand(self, operand: int, index: str) -> str:
        """One number of an operand, by its place among those of all runs."""
        self.read.add(operand)
        return self.number(self.operands[operand], self.ins[operand], index)

    def allocate(self, types: Types, count: int) -> str:
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

    def prepared(self, part: Part, thorough: bool, brief: bool = False) -> CallSite:
        """A part, ready to be called; what does not depend on the lane is computed here. A large one is compiled well if it is `thorough`."""
        slots = numbered(part.shared.inputs)
        function = self._unit(part.shared, self.one, slots, thorough, brief)
        inputs, shared = self.allocate(self.one, len(slots)), self.allocate(self.one, len(part.shared.outputs))

        def read(source: int, entry: int, first: int, k: str) -> None:
            x = self.operand(source, self.offset(entry, k))
            self.store(self.one, x, inputs, self.offset(first, k))

        for operand, entry, first, count in runs(slots):
            source = part.sources[operand]
            assert source is not None
            self.each(count, functools.partial(read, source, entry, first))
        if part.shared.outputs:
            self.do(f"call void @{function}(ptr {inputs}, ptr null, ptr {shared})")
        varying = self.allocate(self.types, len(part.slots))
        name = self._unit(part.varying, self.types, part.slots, thorough, brief, part.references)
        return CallSite(part=part, name=name, varying=varying, shared=shared)

    def _unit(
        self,
        code: Code,
        types: Types,
        slots: dict[tuple[int, int], int],
        thorough: bool,
        brief: bool,
        references: Sequence[int] = (),
    ) -> str:
        """The name of a function of code."""
        names = ("varying", "shared", "results", *(f"operand{k}" for k in references))
        text = body(code, types, slots, references)
        quick = brief or (not thorough and types.width == 1 and len(text.lines) > LARGE)
        unit = Unit.of(text, ", ".join(f"ptr noalias %{name}" for name in names), quick)
        self.units.append(unit)
        self.declared.add(f"declare void @{unit.name}({', '.join('ptr' for _ in names)})")
        return unit.name

    def gathered(self, numbers: list[str], operand: int, entry: int | str) -> str:
        """An entry of an operand in some lanes, side by side."""
        if not self.per_lane[operand]:
            return self.splat(self.types, self.operand(operand, str(entry)))
        size, out = entries(self.operands[operand].shape), "poison"
        for k, lane in enumerate(numbers):
            index = self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {lane}, {size}')}, {entry}")
            x = self.operand(operand, index)
            out = (
                x
                if self.types.width == 1
                else self.let(f"insertelement {self.types.number} {out}, {self.types.scalar} {x}, i64 {k}")
            )
        return out

    def fill(self, site: CallSite, numbers: list[str]) -> None:
        """Passes to a part what it reads of the operands of the module."""
        part = site.part

        def read(source: int, entry: int, first: int, k: str) -> None:
            x = self.gathered(numbers, source, self.offset(entry, k))
            self.store(self.types, x, site.varying, self.offset(first, k))

        for operand, entry, first, count in runs(part.slots):
            source = part.sources[operand]
            if source is not None:
                self.each(count, functools.partial(read, source, entry, first))
