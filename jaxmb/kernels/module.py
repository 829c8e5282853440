"""A module of LLVM that runs code over lanes, called by XLA."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .code import Code, Shaped, entries
from .ir import Function, Types, body

# Offsets in bytes in the structs of XLA's foreign function interface (xla/ffi/api/c_api.h): of the extension, the arguments and the
# results in a call frame; of the data in a buffer; of an extension's metadata and the version in them.
_EXTENSION, _ARGUMENTS, _RESULTS, _DATA, _METADATA, _VERSION = 8, 72, 112, 24, 24, 24
VERSION = (0, 3)
# Types in memory of numbers that are not of the module's own.
_MEMORY = {"float64": "double", "float32": "float", "bool": "i8"} | {
    f"{u}int{n}": f"i{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


@dataclasses.dataclass(frozen=True)
class Part:
    """Code that a module calls, from numbers of all lanes, one vector after the other.

    Attributes:
        name: of its function.
        moving: the code.
        still: what of it does not depend on the lane, found once; the code's last operand.
        of: which operand of the module stands for each of the code's; None where its numbers are made on the way.
        places: where each number stands that the code is given, by operand and entry: of operands that are made on the way all,
            of others those that it reads.
    """

    name: str
    moving: Code
    still: Code
    of: tuple[int | None, ...]
    places: dict[tuple[int, int], int]

    @classmethod
    def make(
        cls, name: str, code: Code, operands: Sequence[Shaped], of: Sequence[int | None], batched: Sequence[bool]
    ) -> "Part":
        """The code, in a module whose operands are the same in all lanes where they are not `batched`."""
        still, moving = code.apart([k is not None and not batched[k] for k in of])
        made = {(k, e) for k, source in enumerate(of) if source is None for e in range(entries(operands[k].shape))}
        return cls(name, moving, still, tuple(of), numbered({p for p in moving.inputs if p[0] < len(of)} | made))


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


class Lane(Function):
    """The function that XLA calls: a loop over the lanes, `width` of them at a time.

    Args:
        dtype: of numbers.
        width: how many lanes are side by side.
        lanes: how many there are.
        operands: shapes and types of one lane's operands.
        results: likewise.
        batched: which operands have lanes.
        used: the operands that are read; XLA passes no others.
    """

    def __init__(
        self,
        dtype: Any,
        width: int,
        lanes: int,
        operands: Sequence[Shaped],
        results: Sequence[Shaped],
        batched: Sequence[bool],
        used: Sequence[int],
    ):
        super().__init__()
        self.types, self.one, self.lanes = Types(dtype, width), Types(dtype, 1), lanes
        self.operands, self.results, self.batched, self.used = operands, results, batched, tuple(used)
        self.functions: list[tuple[str, Function]] = []
        self._asked()
        self.ins = dict(zip(self.used, self._buffers(_ARGUMENTS, len(self.used)), strict=True))
        self.outs = self._buffers(_RESULTS, len(results))

    def _asked(self) -> None:
        """What XLA asks when the function is registered: for which version it was made."""
        extension = self.let(f"load ptr, ptr {self.entry('i8', '%frame', _EXTENSION)}")
        self.do(f"br i1 {self.let(f'icmp eq ptr {extension}, null')}, label %called, label %asked")
        self.label("asked")
        metadata = self.let(f"load ptr, ptr {self.entry('i8', extension, _METADATA)}")
        for k, number in enumerate(VERSION):
            self.do(f"store i32 {number}, ptr {self.entry('i8', metadata, _VERSION + 4 * k)}")
        self.do("ret ptr null")
        self.label("called")

    def _buffers(self, offset: int, count: int) -> list[str]:
        array = self.let(f"load ptr, ptr {self.entry('i8', '%frame', offset)}")
        buffers = [self.let(f"load ptr, ptr {self.entry('ptr', array, k)}") for k in range(count)]
        return [self.let(f"load ptr, ptr {self.entry('i8', buffer, _DATA)}") for buffer in buffers]

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

    def write(self, shaped: Shaped, x: str, base: str, index: str) -> None:
        """One number to memory."""
        kind, scalar, letter = _MEMORY[str(np.dtype(shaped.dtype))], self.one.scalar, np.dtype(shaped.dtype).kind
        if letter == "b":
            x = self.let(f"zext i1 {self.let(f'fcmp une {scalar} {x}, 0.0')} to i8")
        elif letter != "f":
            x = self.let(f"{'fptosi' if letter == 'i' else 'fptoui'} {scalar} {x} to {kind}")
        self.do(f"store {kind} {x}, ptr {self.entry(kind, base, index)}")

    # Parts

    def prepared(self, part: Part) -> tuple[str, str, str]:
        """Memory for what a part is given, for what does not depend on the lane, which is found, and for its results."""
        places = numbered(part.still.inputs)
        self.functions += [
            (f"{part.name}.still", body(part.still, self.one, places)),
            (part.name, body(part.moving, self.types, part.places)),
        ]
        given, fixed = self.room(self.one, len(places)), self.room(self.one, len(part.still.outputs))

        def read(source: int, entry: int, first: int, k: str) -> None:
            x = self.number(self.operands[source], self.ins[source], self.behind(entry, k))
            self.store(self.one, x, given, self.behind(first, k))

        for operand, entry, first, count in runs(places):
            source = part.of[operand]
            assert source is not None
            self.each(count, functools.partial(read, source, entry, first))
        if part.still.outputs:
            self.do(f"call void @{part.name}.still(ptr {given}, ptr null, ptr {fixed})")
        return self.room(self.types, len(part.places)), fixed, self.room(self.types, len(part.moving.outputs))

    def over_lanes(self, work: Callable[[list[str]], None]) -> None:
        """A loop over the lanes; `work` writes what is done for some of them, by their numbers. The last ones are done twice if they are too few."""
        width, last = self.types.width, self.lanes - 1

        def some(first: str) -> None:
            numbers = [first] if width == 1 else []
            for k in range(width if width > 1 else 0):
                own = self.behind(k, first)
                numbers.append(self.let(f"call i64 @llvm.umin.i64(i64 {own}, i64 {last})"))
            if width > 1:
                self.declared.add("declare i64 @llvm.umin.i64(i64, i64)")
            work(numbers)

        self.each(self.lanes, some, width)
        self.do("ret ptr null")

    def gathered(self, numbers: list[str], operand: int, entry: int | str) -> str:
        """An entry of an operand in some lanes, side by side."""
        shaped, base = self.operands[operand], self.ins[operand]
        if not self.batched[operand]:
            return self.splat(self.types, self.number(shaped, base, str(entry)))
        size, out = entries(shaped.shape), "poison"
        for k, lane in enumerate(numbers):
            index = self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {lane}, {size}')}, {entry}")
            x = self.number(shaped, base, index)
            out = (
                x
                if self.types.width == 1
                else self.let(f"insertelement {self.types.number} {out}, {self.types.scalar} {x}, i64 {k}")
            )
        return out

    def scattered(self, numbers: list[str], value: str, result: int, entry: int | str) -> None:
        """An entry of a result in some lanes."""
        shaped, base = self.results[result], self.outs[result]
        size = entries(shaped.shape)
        for k, lane in enumerate(numbers):
            index = self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {lane}, {size}')}, {entry}")
            x = value if self.types.width == 1 else self.let(f"extractelement {self.types.number} {value}, i64 {k}")
            self.write(shaped, x, base, index)

    def module(self, name: str) -> str:
        """The whole text."""
        heads = [(f"define ptr @{name}(ptr %frame)", self)]
        heads += [
            (f"define internal void @{n}(ptr noalias %given, ptr noalias %fixed, ptr noalias %found) noinline", f)
            for n, f in self.functions
        ]
        declared = sorted(set().union(*(f.declared for _, f in heads)))
        return "\n\n".join([*declared, *(f.text(head) for head, f in heads)])

    @property
    def symbols(self) -> set[str]:
        """The functions of the C library that are called."""
        return set().union(self.library, *(f.library for _, f in self.functions))

    def fill(self, part: Part, given: str, numbers: list[str]) -> None:
        """What a part is given of the operands of the module."""

        def read(source: int, entry: int, first: int, k: str) -> None:
            x = self.gathered(numbers, source, self.behind(entry, k))
            self.store(self.types, x, given, self.behind(first, k))

        for operand, entry, first, count in runs(part.places):
            source = part.of[operand]
            if source is not None:
                self.each(count, functools.partial(read, source, entry, first))

    def give(self, numbers: list[str], result: int, place: str, first: int = 0) -> int:
        """A result from a place, from an entry of that on; the entry behind it."""
        size = entries(self.results[result].shape)
        read = lambda e: self.load(self.types, place, self.behind(first, e))
        self.each(size, lambda e: self.scattered(numbers, read(e), result, e))
        return first + size


def single(
    code: Code,
    dtype: Any,
    width: int,
    lanes: int,
    operands: Sequence[Shaped],
    results: Sequence[Shaped],
    batched: Sequence[bool],
) -> Lane:
    """Code over lanes, once for each."""
    out = Lane(dtype, width, lanes, operands, results, batched, sorted({k for k, _ in code.inputs}))
    part = Part.make("code", code, operands, range(len(operands)), batched)
    given, fixed, found = out.prepared(part)

    def work(numbers: list[str]) -> None:
        out.fill(part, given, numbers)
        out.do(f"call void @code(ptr {given}, ptr {fixed}, ptr {found})")
        entry = 0
        for result in range(len(results)):
            entry = out.give(numbers, result, found, entry)

    out.over_lanes(work)
    return out
