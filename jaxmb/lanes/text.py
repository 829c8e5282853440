"""Code as text of LLVM."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .code import Code
from .graph import CONSTANT
from .operations import OPERATIONS


class Types:
    """Numbers and truth values of some lanes side by side.

    Args:
        dtype: of the numbers.
        width: how many lanes.
    """

    def __init__(self, dtype: Any, width: int):
        self.dtype, self.width = np.dtype(dtype), width
        self.scalar, short = ("double", "f64") if self.dtype == np.float64 else ("float", "f32")
        self.number = self.scalar if width == 1 else f"<{width} x {self.scalar}>"
        self.truth = "i1" if width == 1 else f"<{width} x i1>"
        self.suffix = short if width == 1 else f"v{width}{short}"

    def constant(self, value: Any) -> str:
        """A number or a truth value in all lanes."""
        if isinstance(value, bool):
            each, scalar = "true" if value else "false", "i1"
        else:
            rounded = float(self.dtype.type(value))
            each, scalar = "0x" + struct.pack(">d", rounded).hex().upper(), self.scalar
        return each if self.width == 1 else "<" + ", ".join([f"{scalar} {each}"] * self.width) + ">"


class Function:
    """The text of a function, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.library: set[str] = set()
        self._count = 0

    def do(self, line: str) -> None:
        """A line without a result."""
        self.lines.append("  " + line)

    def let(self, line: str) -> str:
        """A line with a result, and its name."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {line}")
        return f"%v{self._count}"

    def unique(self) -> int:
        """A number that no other name has."""
        self._count += 1
        return self._count

    def label(self, name: str) -> None:
        """Where one may go."""
        self.lines.append(f"{name}:")

    def each(self, count: int, work: Callable[[str], None], step: int = 1) -> None:
        """A loop over numbers below `count`, `step` apart; `work` writes what is done for one."""
        if count < 1:
            return
        n = self.unique()
        self.do(f"br label %before{n}")
        self.label(f"before{n}")
        self.do(f"br label %loop{n}")
        self.label(f"loop{n}")
        k = self.let(f"phi i64 [ 0, %before{n} ], [ %next{n}, %end{n} ]")
        work(k)
        self.do(f"br label %end{n}")
        self.label(f"end{n}")
        self.do(f"%next{n} = add nuw nsw i64 {k}, {step}")
        self.do(f"br i1 {self.let(f'icmp ult i64 %next{n}, {count}')}, label %loop{n}, label %after{n}")
        self.label(f"after{n}")

    def repeat(self, work: Callable[[], str]) -> None:
        """A loop that is gone through at least once; `work` writes what is done, and returns whether it is done again."""
        n = self.unique()
        self.do(f"br label %again{n}")
        self.label(f"again{n}")
        more = work()
        self.do(f"br i1 {more}, label %again{n}, label %done{n}")
        self.label(f"done{n}")

    def either(self, truth: str, work: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """One of two parts, as one truth value says."""
        n = self.unique()
        self.do(f"br i1 {truth}, label %then{n}, label %else{n}")
        for name, part in ((f"then{n}", work), (f"else{n}", otherwise)):
            self.label(name)
            part()
            self.do(f"br label %joined{n}")
        self.label(f"joined{n}")

    def behind(self, first: int, k: str) -> str:
        """The number of what stands k places behind the first."""
        return self.let(f"add nuw nsw i64 {k}, {first}") if first else k

    def entry(self, kind: str, base: str, index: Any) -> str:
        """The address of an entry of an array."""
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def load(self, types: Types, base: str, index: Any) -> str:
        """Numbers from memory where each stands at a multiple of its size."""
        return self.let(
            f"load {types.number}, ptr {self.entry(types.number, base, index)}, align {types.dtype.itemsize}"
        )

    def store(self, types: Types, value: str, base: str, index: Any) -> None:
        """Numbers to memory."""
        self.do(
            f"store {types.number} {value}, ptr {self.entry(types.number, base, index)}, align {types.dtype.itemsize}"
        )

    def splat(self, types: Types, value: str) -> str:
        """A number in all lanes."""
        if types.width == 1:
            return value
        one = self.let(f"insertelement {types.number} poison, {types.scalar} {value}, i64 0")
        return self.let(
            f"shufflevector {types.number} {one}, {types.number} poison, <{types.width} x i32> zeroinitializer"
        )

    def joined(self, types: Types, word: str, truth: str) -> str:
        """Whether something is true in all lanes side by side, if the word is "and", or in one of them, if it is "or"."""
        if types.width == 1:
            return truth
        symbol = f"llvm.vector.reduce.{word}.v{types.width}i1"
        self.declared.add(f"declare i1 @{symbol}({types.truth})")
        return self.let(f"call i1 @{symbol}({types.truth} {truth})")

    def operate(self, types: Types, name: str, arguments: Sequence[str]) -> str:
        """One operation."""
        operation = OPERATIONS[name]
        if operation.text:
            words = dict(
                T=types.number,
                B=types.truth,
                one=types.constant(1.0),
                zero=types.constant(0.0),
                true=types.constant(True),
            )
            return self.let(operation.text.format(*arguments, **words))
        if operation.intrinsic:
            return self._call(types.number, f"llvm.{operation.intrinsic}.{types.suffix}", arguments)
        symbol = name + ("" if types.scalar == "double" else "f")
        self.library.add(symbol)
        if types.width == 1:
            return self._call(types.scalar, symbol, arguments)
        out = "poison"
        for k in range(types.width):  # lane after lane
            parts = [self.let(f"extractelement {types.number} {x}, i64 {k}") for x in arguments]
            out = self.let(
                f"insertelement {types.number} {out}, {types.scalar} {self._call(types.scalar, symbol, parts)}, i64 {k}"
            )
        return out

    def lookup(self, types: Types, which: str, base: str, lanes: int, count: int) -> str:
        """A number of a table of so many, of which each entry stands for `lanes` lanes side by side: the first for what is no number."""
        zero, last = types.constant(0.0), types.constant(float(count - 1))
        low = self.let(f"fcmp ogt {types.number} {which}, {zero}")
        which = self.operate(types, "select", [low, which, zero])
        high = self.let(f"fcmp olt {types.number} {which}, {last}")
        which = self.operate(types, "select", [high, which, last])
        whole = "i64" if types.width == 1 else f"<{types.width} x i64>"
        places = self.let(f"fptosi {types.number} {which} to {whole}")
        out = "poison"
        for k in range(types.width):
            place = places if types.width == 1 else self.let(f"extractelement {whole} {places}, i64 {k}")
            if lanes > 1:
                place = self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {place}, {lanes}')}, {k}")
            x = self.let(
                f"load {types.scalar}, ptr {self.entry(types.scalar, base, place)}, align {types.dtype.itemsize}"
            )
            if types.width == 1:
                return x
            out = self.let(f"insertelement {types.number} {out}, {types.scalar} {x}, i64 {k}")
        return out

    def _call(self, kind: str, symbol: str, arguments: Sequence[str]) -> str:
        self.declared.add(f"declare {kind} @{symbol}({', '.join([kind] * len(arguments))})")
        return self.let(f"call {kind} @{symbol}({', '.join(f'{kind} {x}' for x in arguments)})")

    def text(self, head: str) -> str:
        """The whole function."""
        return "\n".join([head + " {", *self.lines, "}"])


def body(code: Code, types: Types, places: Mapping[tuple[int, int], int], referred: Sequence[int] = ()) -> Function:
    """A function of code: (numbers of each lane, numbers that are the same in all lanes, results, operands that are referred to).

    Args:
        code: its operations.
        types: of the lanes.
        places: where the numbers of each lane stand, by operand and entry; those of other operands are the same in all.
        referred: operands that are read where they stand.
    """
    out, graph, found = Function(), code.graph, {}

    def value(i: int) -> str:
        """What a node has been called; what is given is read when it is first needed."""
        if i not in found and i in code.leaves:
            operand, entry = code.leaves[i]
            if operand in referred:
                x = out.load(types, f"%operand{operand}", entry)
            elif code.leaves[i] not in places:
                address = out.entry(types.scalar, "%fixed", entry)
                x = out.splat(types, out.let(f"load {types.scalar}, ptr {address}, align {types.dtype.itemsize}"))
            else:
                x = out.load(types, "%given", places[code.leaves[i]])
            found[i] = out.let(f"fcmp une {types.number} {x}, {types.constant(0.0)}") if graph.is_truth(i) else x
        return found[i]

    def looked_up(i: int) -> str:
        """A number of a table, which stands in memory as it is, or is brought there."""
        which, *table = graph.arguments[i]
        leaves = [code.leaves.get(x) for x in table]
        own = [None if leaf is None else places.get(leaf) for leaf in leaves]
        fixed = [None if leaf is None or leaf in places or leaf[0] in referred else leaf[1] for leaf in leaves]
        for name, at, lanes in (("%given", own, types.width), ("%fixed", fixed, 1)):
            if at[0] is not None and at == [at[0] + k for k in range(len(table))]:
                base = out.entry(types.scalar, name, at[0] * lanes)
                return out.lookup(types, value(which), base, lanes, len(table))
        base = out.let(f"alloca {types.number}, i64 {len(table)}, align 64")
        for k, x in enumerate(table):
            out.store(types, value(x), base, k)
        return out.lookup(types, value(which), base, types.width, len(table))

    for i in code.order:
        if graph.operations[i] == CONSTANT:
            found[i] = types.constant(graph.values[i])
        elif graph.operations[i] == "lookup":
            found[i] = looked_up(i)
        elif i not in code.leaves:
            found[i] = out.operate(types, graph.operations[i], [value(a) for a in graph.arguments[i]])
    for k, i in enumerate(code.outputs):
        x = out.operate(types, "number", [value(i)]) if graph.is_truth(i) else value(i)
        out.store(types, x, "%found", k)
    out.do("ret void")
    return out
