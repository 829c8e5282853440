"""Reverse derivatives of operations on scalars, as further nodes of the same graph."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import OperationGraph

# (graph, cotangent of the result, the result, arguments) ↦ cotangent of each argument; None where there is no rule for one.
CotangentRule = Callable[["OperationGraph", int, int, Sequence[int]], tuple[int | None, ...]]


@dataclasses.dataclass(frozen=True)
class NodeNumber:
    """A node as a number that Python's operators apply to."""

    graph: "OperationGraph"
    node: int

    def _with(self, operation: str, other: "float | NodeNumber") -> "NodeNumber":
        node = other.node if isinstance(other, NodeNumber) else self.graph.constant(other)
        return NodeNumber(self.graph, self.graph.apply(operation, self.node, node))

    def of(self, operation: str) -> "NodeNumber":
        """A function of it."""
        return NodeNumber(self.graph, self.graph.apply(operation, self.node))

    def __add__(self, other: "float | NodeNumber") -> "NodeNumber":
        return self._with("add", other)

    def __sub__(self, other: "float | NodeNumber") -> "NodeNumber":
        return self._with("sub", other)

    def __mul__(self, other: "float | NodeNumber") -> "NodeNumber":
        return self._with("mul", other)

    def __neg__(self) -> "NodeNumber":
        return self.of("neg")

    @property
    def inverse(self) -> "NodeNumber":
        """1/x."""
        return self.of("reciprocal")


def by_slope(slope: Callable[[NodeNumber, NodeNumber], NodeNumber]) -> CotangentRule:
    """The rule of a function of one number, from its derivative in terms of argument and result."""

    def rule(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
        number = lambda k: NodeNumber(graph, k)
        return ((number(bar) * slope(number(arguments[0]), number(i))).node,)

    return rule


def of_product(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of x·y: y̅ = bar·x and x̅ = bar·y."""
    x, y = arguments
    return graph.apply("mul", bar, y), graph.apply("mul", bar, x)


def of_quotient(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of x/y, by the quotient itself: y̅ = −(bar/y)·(x/y)."""
    share = graph.apply("div", bar, arguments[1])
    return share, graph.apply("neg", graph.apply("mul", share, i))


def of_power(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of x^y by x; the one by y is refused."""
    x, y = arguments
    number, apply = graph.constant, graph.apply
    # y·x^(y−1) is 0·∞ at x = 0 where y = 0, whose power is constant.
    zero = apply("eq", y, number(0.0))
    less = apply("select", zero, number(1.0), apply("sub", y, number(1.0)))
    slope = apply("select", zero, number(0.0), apply("mul", y, apply("pow", x, less)))
    return apply("mul", bar, slope), None


def of_extreme(better: str) -> CotangentRule:
    """Of the larger or smaller one of two; both have half of the cotangent where they are equal, as in JAX."""

    def rule(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
        x, y = arguments
        apply, zero = graph.apply, graph.constant(0.0)
        tied = apply("select", apply("eq", x, y), apply("mul", graph.constant(0.5), bar), zero)
        return tuple(apply("select", apply(better, *pair), bar, tied) for pair in ((x, y), (y, x)))

    return rule


def of_absolute(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of |x|, which rises from zero on."""
    rises = graph.apply("ge", arguments[0], graph.constant(0.0))
    return (graph.apply("select", rises, bar, graph.apply("neg", bar)),)


def of_choice(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of a choice: the cotangent goes to the one that is chosen, zero to the other."""
    zero, predicate = graph.constant(0.0), arguments[0]
    return None, graph.apply("select", predicate, bar, zero), graph.apply("select", predicate, zero, bar)


def of_arctangent(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of atan2(y, x)."""
    y, x = (NodeNumber(graph, k) for k in arguments)
    share = NodeNumber(graph, bar) * (x * x + y * y).inverse
    return (share * x).node, (-(share * y)).node
