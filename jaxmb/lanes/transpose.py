"""Transposes of linear scalar programs, operation by operation."""

from collections.abc import Collection, Sequence

import numpy as np

from .code import Code
from .errors import NotScalarError
from .graph import CONSTANT, OperationGraph


def transposed(
    graph: OperationGraph,
    code: Code,
    linear: Collection[int],
    others: dict[int, np.ndarray],
    bars: Sequence[int],
    largest: int,
) -> dict[tuple[int, int], int]:
    """Adds to a graph the cotangents of those operands in which a program is linear: nodes by operand and entry, without those that are zero.

    Jaxprs are transposed into more operations: what is zero or equal in a program is not in them.

    Args:
        graph: into which it is written.
        code: of the program.
        linear: these operands.
        others: nodes of the entries of the others.
        bars: cotangents of the results.
        largest: how many operations there may be.

    Raises:
        NotScalarError: if that is not linear, or has more operations.
    """
    sweep = _Transposed(graph, code, linear, others)
    for i, bar in zip(code.outputs, bars, strict=True):
        sweep.add(i, bar)
    # Arguments have lower numbers: when a node is reached, all to which it contributes have been.
    for i in sorted(sweep.varying.difference(code.leaves), reverse=True):
        if i in sweep.bars:
            sweep.back_over(i)
        if graph.size > largest:
            raise NotScalarError(f"it has more than {largest:,} operations")
    return {code.leaves[i]: bar for i, bar in sweep.bars.items() if i in code.leaves}


class _Transposed:
    """From the results of a program back to its operands.

    Attributes:
        varying: nodes of the program that depend on the operands in which it is linear.
        fixed: what the others are in the graph that is written.
        bars: cotangents, by nodes of the program.
    """

    def __init__(self, graph: OperationGraph, code: Code, linear: Collection[int], others: dict[int, np.ndarray]):
        self.graph, self.code = graph, code
        self.varying: set[int] = set()
        self.fixed: dict[int, int] = {}
        self.bars: dict[int, int] = {}
        source = code.graph
        for i in code.order:
            leaf, arguments = code.leaves.get(i), source.arguments[i]
            if leaf[0] in linear if leaf else not self.varying.isdisjoint(arguments):
                self.varying.add(i)
            elif leaf:
                self.fixed[i] = int(np.ravel(others[leaf[0]])[leaf[1]])
            elif source.operations[i] == CONSTANT:
                self.fixed[i] = graph.constant(source.values[i])
            else:
                self.fixed[i] = graph.apply(source.operations[i], *(self.fixed[a] for a in arguments))

    def add(self, i: int, bar: int) -> None:
        """Adds to the cotangent of a node."""
        if i in self.varying:
            self.bars[i] = self.graph.apply("add", self.bars[i], bar) if i in self.bars else bar

    def back_over(self, i: int) -> None:
        """Hands the cotangent of a node on to its arguments."""
        arguments, bar = self.code.graph.arguments[i], self.bars[i]
        shares = self._shares(self.code.graph.operations[i], [self.fixed.get(a) for a in arguments], bar)
        for a, share in zip(arguments, shares, strict=True):
            if share is not None:
                self.add(a, share)

    def _shares(self, operation: str, fixed: Sequence[int | None], bar: int) -> Sequence[int | None]:
        """The cotangents of an operation's arguments, None of those that are `fixed`, which are nodes of the graph that is written."""
        apply, zero = self.graph.apply, self.graph.constant(0.0)
        match operation, fixed:
            case "add" | "sub", [x, y]:
                # What is added to a linear part is zero, or the NaN of a guard, which is handed on.
                for other in (x, y):
                    bar = bar if other is None else apply("add", bar, apply("zero_or_nan", other))
                return bar, apply("neg", bar) if operation == "sub" else bar
            case "neg", _:
                return (apply("neg", bar),)
            case "stored", _:
                return (bar,)
            case "zero_or_nan", _:
                return (apply("mul", zero, bar),)
            case "mul", [None, int(y)]:
                return apply("mul", bar, y), None
            case "mul", [int(x), None]:
                return None, apply("mul", bar, x)
            case "div", [None, int(y)]:
                return apply("div", bar, y), None
            case "select", [int(p), _, _]:
                return None, apply("select", p, bar, zero), apply("select", p, zero, bar)
            case "lookup", [int(which), *table]:
                return None, *(self._entry(which, k, len(table), bar) for k in range(len(table)))
            case _:
                raise NotScalarError(f"`{operation}` is not linear")

    def _entry(self, which: int, k: int, count: int, bar: int) -> int:
        """The cotangent of entry k of a table, from which the nearest to a number is taken, the first one for NaN."""
        apply, number = self.graph.apply, self.graph.constant
        beyond = lambda k: apply("ge", which, number(float(k)))
        chosen = number(True) if k == 0 else beyond(k)
        if k + 1 < count:
            chosen = apply("and", chosen, apply("not", beyond(k + 1)))
        return apply("select", chosen, bar, number(0.0))
