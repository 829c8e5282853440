"""Code as text of LLVM."""

import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jax.typing import DTypeLike

from .code import Code
from .graph import CONSTANT
from .operations import OPERATIONS

# By comparisons that are true of NaN too, for single numbers: LLVM's functions, which vectors have, are none for its quick choice of instructions, and
# 3,000 of them took 3.5 s in place of 0.2.
_EXTREMES = {"max": "ugt", "min": "ult"}


class Types:
    """Numbers and truth values of some lanes side by side.

    Args:
        dtype: of the numbers.
        width: how many lanes.
    """

    def __init__(self, dtype: DTypeLike, width: int):
        self.dtype, self.width = np.dtype(dtype), width
        self.scalar, short = ("double", "f64") if self.dtype == np.float64 else ("float", "f32")
        self.number = self.scalar if width == 1 else f"<{width} x {self.scalar}>"
        self.truth = "i1" if width == 1 else f"<{width} x i1>"
        self.suffix = short if width == 1 else f"v{width}{short}"

    def constant(self, value: float | bool) -> str:
        """A number or a truth value in all lanes."""
        if isinstance(value, bool):
            each, scalar = "true" if value else "false", "i1"
        else:
            # LLVM reads a float's bits as those of the double of the same value.
            rounded = float(self.dtype.type(value))
            each, scalar = "0x" + struct.pack(">d", rounded).hex().upper(), self.scalar
        return each if self.width == 1 else "<" + ", ".join([f"{scalar} {each}"] * self.width) + ">"


class FunctionText:
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

    def each(self, count: int, work: Callable[[str], None]) -> None:
        """A loop over numbers below `count`; `work` writes what is done for one."""
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
        self.do(f"%next{n} = add nuw nsw i64 {k}, 1")
        self.do(f"br i1 {self.let(f'icmp ult i64 %next{n}, {count}')}, label %loop{n}, label %after{n}")
        self.label(f"after{n}")

    def either(self, truth: str, work: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """One of two parts, as one truth value says."""
        n = self.unique()
        self.do(f"br i1 {truth}, label %then{n}, label %else{n}")
        for name, part in ((f"then{n}", work), (f"else{n}", otherwise)):
            self.label(name)
            part()
            self.do(f"br label %joined{n}")
        self.label(f"joined{n}")

    def offset(self, first: int, k: str) -> str:
        """The number of the entry that is k entries behind the first."""
        return self.let(f"add nuw nsw i64 {k}, {first}") if first else k

    def entry(self, kind: str, base: str, index: int | str) -> str:
        """The address of an entry of an array."""
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def load(self, types: Types, base: str, index: int | str) -> str:
        """Numbers from memory where each stands at a multiple of its size."""
        return self.let(
            f"load {types.number}, ptr {self.entry(types.number, base, index)}, align {types.dtype.itemsize}"
        )

    def store(self, types: Types, value: str, base: str, index: int | str) -> None:
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
        if name in _EXTREMES and types.width == 1:
            return self._extreme(types, _EXTREMES[name], *arguments)
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
        # The C library has no functions of vectors.
        for k in range(types.width):
            parts = [self.let(f"extractelement {types.number} {x}, i64 {k}") for x in arguments]
            out = self.let(
                f"insertelement {types.number} {out}, {types.scalar} {self._call(types.scalar, symbol, parts)}, i64 {k}"
            )
        return out

    def _extreme(self, types: Types, condition: str, x: str, y: str) -> str:
        """The larger or the smaller one of two numbers, NaN if one of them is."""
        larger = self.operate(types, "select", [self.let(f"fcmp {condition} {types.number} {x}, {y}"), x, y])
        return self.operate(types, "select", [self.operate(types, "ne", [y, y]), y, larger])

    def clamped(self, types: Types, x: str, count: int) -> str:
        """A number in the range of the indices of so many; 0 for NaN."""
        # Comparisons with NaN are false, so that the first choice takes zero; clamped after it is converted, NaN would be any integer.
        for comparison, end in (("gt", 0.0), ("lt", float(count - 1))):
            bound = types.constant(end)
            x = self.operate(types, "select", [self.operate(types, comparison, [x, bound]), x, bound])
        return x

    def lookup(self, types: Types, which: str, base: str, lanes: int, count: int) -> str:
        """A number of a table of so many, of which each entry stands for `lanes` lanes side by side; the nearest one beyond its ends, the first for NaN."""
        which = self.clamped(types, which, count)
        integers = "i64" if types.width == 1 else f"<{types.width} x i64>"
        indices = self.let(f"fptosi {types.number} {which} to {integers}")
        out = "poison"
        for k in range(types.width):
            index = indices if types.width == 1 else self.let(f"extractelement {integers} {indices}, i64 {k}")
            if lanes > 1:
                index = self.let(f"add nuw nsw i64 {self.let(f'mul nuw nsw i64 {index}, {lanes}')}, {k}")
            x = self.let(
                f"load {types.scalar}, ptr {self.entry(types.scalar, base, index)}, align {types.dtype.itemsize}"
            )
            if types.width == 1:
                return x
            out = self.let(f"insertelement {types.number} {out}, {types.scalar} {x}, i64 {k}")
        return out

    def _call(self, kind: str, symbol: str, arguments: Sequence[str]) -> str:
        self.declared.add(f"declare {kind} @{symbol}({', '.join([kind] * len(arguments))})")
        return self.let(f"call {kind} @{symbol}({', '.join(f'{kind} {x}' for x in arguments)})")

    def text(self, head: str) -> str:
        """The text with the head of the function."""
        return "\n".join([head + " {", *self.lines, "}"])


def body(
    code: Code, types: Types, slots: Mapping[tuple[int, int], int], references: Sequence[int] = ()
) -> FunctionText:
    """A function of code: (numbers of each lane, numbers that are the same in all lanes, results, operands that are read where they stand).

    Args:
        code: its operations.
        types: of the lanes.
        slots: where the numbers of each lane stand, by operand and entry; those of other operands are the same in all.
        references: operands that are read where they stand.
    """
    return _BodyText(code, types, slots, references).write()


class _BodyText(FunctionText):
    """The text of `body`."""

    def __init__(
        self, code: Code, types: Types, slots: Mapping[tuple[int, int], int], references: Sequence[int]
    ) -> None:
        super().__init__()
        self.code, self.graph, self.types, self.slots, self.references = code, code.graph, types, slots, references
        self.names: dict[int, str] = {}

    def write(self) -> FunctionText:
        """All operations, then the results."""
        types = self.types
        for i in self.code.order:
            operation = self.graph.operations[i]
            if operation == CONSTANT:
                self.names[i] = types.constant(self.graph.values[i])
            elif i in self.code.leaves:
                continue
            elif operation == "lookup":
                self.names[i] = self._table_entry(i)
            else:
                self.names[i] = self.operate(types, operation, [self._value(a) for a in self.graph.arguments[i]])
        for k, i in enumerate(self.code.outputs):
            is_truth = self.graph.is_truth(i)
            x = self.operate(types, "to_number", [self._value(i)]) if is_truth else self._value(i)
            self.store(types, x, "%results", k)
        self.do("ret void")
        return self

    def _value(self, i: int) -> str:
        """The name of a node's numbers; an operand is read when it is first needed, which keeps registers free until then."""
        if i not in self.names and i in self.code.leaves:
            x, types = self._operand(*self.code.leaves[i]), self.types
            if self.graph.is_truth(i):
                x = self.let(f"fcmp une {types.number} {x}, {types.constant(0.0)}")
            self.names[i] = x
        return self.names[i]

    def _operand(self, operand: int, entry: int) -> str:
        """An entry of an operand, from where it stands."""
        types = self.types
        if operand in self.references:
            return self.load(types, f"%operand{operand}", entry)
        if (operand, entry) in self.slots:
            return self.load(types, "%varying", self.slots[operand, entry])
        address = self.entry(types.scalar, "%shared", entry)
        return self.splat(types, self.let(f"load {types.scalar}, ptr {address}, align {types.dtype.itemsize}"))

    def _table_entry(self, i: int) -> str:
        """A number of a table, which stands in memory as it is, or is brought there."""
        types, leaves = self.types, self.code.leaves
        which, *table = self.graph.arguments[i]
        for name, lanes, slots in (
            ("%varying", types.width, [self._slot(leaves.get(x)) for x in table]),
            ("%shared", 1, [self._shared_slot(leaves.get(x)) for x in table]),
        ):
            first = slots[0]
            if first is not None and slots == [first + k for k in range(len(table))]:
                base = self.entry(types.scalar, name, first * lanes)
                return self.lookup(types, self._value(which), base, lanes, len(table))
        base = self.let(f"alloca {types.number}, i64 {len(table)}, align 64")
        for k, x in enumerate(table):
            self.store(types, self._value(x), base, k)
        return self.lookup(types, self._value(which), base, types.width, len(table))

    def _slot(self, leaf: tuple[int, int] | None) -> int | None:
        return None if leaf is None else self.slots.get(leaf)

    def _shared_slot(self, leaf: tuple[int, int] | None) -> int | None:
        return None if leaf is None or leaf in self.slots or leaf[0] in self.references else leaf[1]
