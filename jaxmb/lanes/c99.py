"""Code as text of C (ISO/IEC 9899:1999), of one lane."""

from collections.abc import Sequence

import numpy as np
from jax.typing import DTypeLike

from .code import Subprogram, entries
from .graph import CONSTANT
from .operations import OPERATIONS
from .program import Program

# A number of a table: the nearest one beyond its ends, the first one for NaN.
LOOKUP = """static {real} lookup({real} which, const {real} *table, int count)
{{
    const {real} last = ({real})(count - 1);
    return table[(int)(which > {zero} ? (which < last ? which : last) : {zero})];
}}
"""


class CTypes:
    """Numbers of one precision, in C.

    Args:
        dtype: of the numbers.
    """

    def __init__(self, dtype: DTypeLike):
        self.dtype = np.dtype(dtype)
        self.real, self.suffix = ("float", "f") if self.dtype == np.float32 else ("double", "")

    def literal(self, value: float | bool) -> str:
        """A number, or a truth value."""
        if isinstance(value, bool):
            return "1" if value else "0"
        if not np.isfinite(value):
            return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
        # The shortest decimals that round to the number.
        text = str(self.dtype.type(value)) + self.suffix
        return f"({text})" if value < 0 else text

    @property
    def lookup(self) -> str:
        """The function that reads a table."""
        return LOOKUP.format(real=self.real, zero=self.literal(0.0))


def c_function(
    name: str, program: Program | Subprogram, dtype: DTypeLike, operands: Sequence[str], results: Sequence[str]
) -> str:
    """A static function of C that writes the results of a program from its operands; it calls nothing but functions of math.h and `lookup`.

    A number by itself is passed by value, an array by address, a truth value among the results as 1 or 0.

    Args:
        name: of the function.
        program: what it does.
        dtype: of its numbers.
        operands: their names in C,
        results: and those of the results; no other name of theirs may be x or t followed by digits.
    """
    return _Text(program, CTypes(dtype), operands, results).function(name)


class _Text:
    """The text of `c_function`."""

    def __init__(
        self, program: Program | Subprogram, types: CTypes, operands: Sequence[str], results: Sequence[str]
    ) -> None:
        self.program, self.types, self.results = program, types, results
        self.code, self.graph = program.code, program.code.graph
        self.operands = operands
        self.names: dict[int, str] = {}
        self.lines: list[str] = []

    def function(self, name: str) -> str:
        """All operations, then the results."""
        for i in self.code.order:
            self.names[i] = self._leaf(i) if i in self.code.leaves else self._value(i)
        nodes = iter(self.code.outputs)
        for result, shaped in zip(self.results, self.program.results, strict=True):
            for k in range(entries(shaped.shape)):
                self.lines.append(f"{result}[{k}] = {self._number(next(nodes))};")
        read = {operand for operand, _ in self.code.inputs}
        ignored = [f"(void){x};" for k, x in enumerate(self.operands) if k not in read]
        # A result without entries is written nowhere.
        ignored += [
            f"(void){x};" for x, s in zip(self.results, self.program.results, strict=True) if not entries(s.shape)
        ]
        body = "".join(f"    {line}\n" for line in [*ignored, *self.lines])
        return f"static void {name}({self._arguments()})\n{{\n{body}}}\n"

    def _arguments(self) -> str:
        real, shapes = self.types.real, self.program.operands
        ins = [
            f"{real} {x}" if s.shape == () else f"const {real} *{x}" for x, s in zip(self.operands, shapes, strict=True)
        ]
        return ", ".join([*ins, *(f"{real} *{x}" for x in self.results)])

    def _leaf(self, i: int) -> str:
        operand, entry = self.code.leaves[i]
        name = self.operands[operand]
        if self.program.operands[operand].shape != ():
            name = f"{name}[{entry}]"
        return f"({name} != {self.types.literal(0.0)})" if self.graph.is_truth(i) else name

    def _number(self, i: int) -> str:
        """A node as a number, also if it is a truth value."""
        return self._expression("to_number", [self.names[i]]) if self.graph.is_truth(i) else self.names[i]

    def _value(self, i: int) -> str:
        """The name of an operation's result, which a line defines."""
        operation, arguments = self.graph.operations[i], self.graph.arguments[i]
        if operation == CONSTANT:
            return self.types.literal(self.graph.values[i])
        names = [self.names[a] for a in arguments]
        # Entries of a table in C stand where the table does.
        if operation == "stored":
            return names[0]
        if operation == "lookup":
            which, *table = names
            constant = all(self.graph.is_constant(self._origin(a)) for a in arguments[1:])
            kind = f"{'static ' if constant else ''}const {self.types.real}"
            self.lines.append(f"{kind} t{i}[{len(table)}] = {{{', '.join(table)}}};")
            expression = f"lookup({which}, t{i}, {len(table)})"
        else:
            expression = self._expression(operation, names)
        self.lines.append(f"const {'int' if self.graph.is_truth(i) else self.types.real} x{i} = {expression};")
        return f"x{i}"

    def _origin(self, i: int) -> int:
        return self.graph.arguments[i][0] if self.graph.operations[i] == "stored" else i

    def _expression(self, operation: str, arguments: Sequence[str]) -> str:
        text = OPERATIONS[operation].c or f"{operation}{{f}}({', '.join(f'{{{k}}}' for k in range(len(arguments)))})"
        one, zero = self.types.literal(1.0), self.types.literal(0.0)
        return text.format(*arguments, f=self.types.suffix, one=one, zero=zero)
