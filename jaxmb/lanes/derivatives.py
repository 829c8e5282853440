"""Reverse derivatives of operations on scalars, as further nodes of the same graph, where they take fewer operations than JAX's."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import OperationGraph

# (graph, cotangent of the result, the result, arguments) ↦ cotangent of each argument; None where there is no rule for one.
CotangentRule = Callable[["OperationGraph", int, int, Sequence[int]], tuple[int | None, ...]]


def of_product(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of x·y: y̅ = bar·x and x̅ = bar·y."""
    x, y = arguments
    return graph.apply("mul", bar, y), graph.apply("mul", bar, x)


def of_reciprocal(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of y = 1/x: x̅ = −bar·y²."""
    return (graph.apply("neg", graph.apply("mul", bar, graph.apply("mul", i, i))),)


def of_quotient(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of x/y, by the quotient itself: y̅ = −(bar/y)·(x/y)."""
    share = graph.apply("div", bar, arguments[1])
    return share, graph.apply("neg", graph.apply("mul", share, i))


def of_extreme(better: str) -> CotangentRule:
    """Of the larger or smaller one of two; both have half of the cotangent where they are equal, as in JAX."""

    def rule(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
        x, y = arguments
        apply, zero = graph.apply, graph.constant(0.0)
        tied = apply("select", apply("eq", x, y), apply("mul", graph.constant(0.5), bar), zero)
        return tuple(apply("select", apply(better, *pair), bar, tied) for pair in ((x, y), (y, x)))

    return rule


def of_choice(graph: "OperationGraph", bar: int, i: int, arguments: Sequence[int]) -> tuple[int | None, ...]:
    """Of a choice: the cotangent goes to the one that is chosen, zero to the other."""
    zero, predicate = graph.constant(0.0), arguments[0]
    return None, graph.apply("select", predicate, bar, zero), graph.apply("select", predicate, zero, bar)
