"""Reverse derivatives of scalar programs, operation by operation."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .code import entries
from .graph import CONSTANT, INPUT, STILL, Graph
from .jaxpr import has_own_derivative
from .operations import OPERATIONS
from .scalarise import LARGEST, NotScalarError, Reader

Nodes = Sequence[int]
Rule = Callable[[Graph, int, int, Any], tuple[int | None, ...]]

# Equations of which what is written in their place has other derivatives than they have themselves, where branches meet or beyond the range of
# numbers.
_OTHERS = (
    "clamp",
    "cond",
    "logistic",
    "reduce_max",
    "reduce_min",
)


def cotangents(
    graph: Graph,
    jaxpr: Any,
    arguments: Sequence[np.ndarray],
    bars: Nodes,
    moving: Sequence[int],
    largest: int = LARGEST,
) -> list[np.ndarray]:
    """Adds a closed jaxpr to a graph, and cotangents of the `moving` arguments by those of its first result: nodes of all results, then of these.

    Solutions of linear equations are differentiated as such, by their transpose.

    Raises:
        NotScalarError: if there is no such program, with the reason.
    """
    reader = _Reader(graph, largest)
    results = reader.closed(jaxpr, list(arguments))
    found = iter(_Sweep(reader, flat(arguments[k] for k in moving)).back(flat(results[:1]), bars))
    shapes = [arguments[k].shape for k in moving]
    return results + [np.array([next(found) for _ in range(entries(s))], np.int64).reshape(s) for s in shapes]


def flat(arrays: Any) -> list[int]:
    """The nodes of arrays, one after the other."""
    return [i for x in arrays for i in np.ravel(x).tolist()]


@dataclasses.dataclass(frozen=True, eq=False)
class _Solution:
    """A solution x of matvec(x) = b.

    Attributes:
        equations: the jaxprs of `custom_linear_solve`.
        matrix: the constants of `matvec`.
        transposed: those of the solution of the transposed equations.
        rhs: b.
        x: the solution.
    """

    equations: Any
    matrix: list[np.ndarray]
    transposed: list[np.ndarray]
    rhs: list[np.ndarray]
    x: list[np.ndarray]


class _Reader(Reader):
    """Remembers what is differentiated otherwise than operation by operation."""

    def __init__(self, graph: Graph, largest: int):
        super().__init__(graph, largest)
        self.solutions: dict[int, _Solution] = {}
        self.barred: dict[int, str] = {}

    def still(self, x: np.ndarray) -> np.ndarray:
        """Nodes of the same numbers, behind which nobody looks."""
        return np.array([self.graph.still(i) for i in flat([x])], np.int64).reshape(np.shape(x))

    def _equation(self, equation: Any, ins: list[np.ndarray]) -> list[np.ndarray]:
        name = equation.primitive.name
        found = super()._equation(equation, ins)
        if name in ("stop_gradient", "sign"):
            return [self.still(x) for x in found]
        other = name in _OTHERS or has_own_derivative(equation)
        if other and not (name == "cond" and self.known(ins[0]) is not None):
            found = [self.still(x) for x in found]
            self.barred |= dict.fromkeys(flat(found), name)
        return found

    def _custom_linear_solve(self, equation: Any, p: Any, *ins: np.ndarray) -> list[np.ndarray]:
        lengths = p["const_lengths"]
        ends = np.cumsum([0, *lengths])
        x = [self.still(x) for x in super()._custom_linear_solve(equation, p, *ins)]
        own = lambda k: list(ins[ends[k] : ends[k + 1]])
        made = _Solution(p["jaxprs"], own(0), own(3), list(ins[ends[-1] :]), x)
        self.solutions |= {i: made for i in flat(x) if not self.graph.is_constant(i)}
        return x


class _Sweep:
    """From results back to `sources`, along all nodes between that change with these."""

    def __init__(self, reader: _Reader, sources: Nodes):
        self.reader, self.graph, self.sources = reader, reader.graph, list(sources)
        self.ends = {*sources}
        self.angles = {}
        for x, (sine, cosine) in self.graph.angles.items():
            self.angles[sine], self.angles[cosine] = (x, cosine, False), (x, sine, True)
        self.bars: dict[int, int] = {}
        self.moving: set[int] = set()

    def back(self, outputs: Nodes, bars: Nodes) -> list[int]:
        """The cotangents of the sources."""
        zero, done = self.graph.constant(0.0), set()
        self._find(outputs)
        for i, bar in zip(outputs, bars, strict=True):
            self._give(i, bar)
        for i in sorted(self.moving - self.ends, reverse=True):
            if i in done:
                continue
            self.reader.measure()
            solution = self.reader.solutions.get(i)
            if (
                solution is not None
            ):  # its numbers were made one after the other: nothing that stands between is made of them
                done.update(flat(solution.x))
                self._solved(solution)
            elif i in self.bars:
                for argument, bar in self._shares(i, self.bars[i]):
                    self._give(argument, bar)
        return [self.bars.get(i, zero) for i in self.sources]

    def _give(self, i: int, bar: int) -> None:
        if i in self.moving:
            self.bars[i] = self.graph.apply("add", self.bars[i], bar) if i in self.bars else bar

    def _find(self, outputs: Nodes) -> None:
        """All nodes between."""
        stack, made_of = list(outputs), {}
        while stack:
            i = stack.pop()
            if i not in made_of:
                made_of[i] = () if i in self.ends else tuple(self._made_of(i))
                stack.extend(made_of[i])
        for i in sorted(made_of):
            if i in self.ends or not self.moving.isdisjoint(made_of[i]):
                self.moving.add(i)

    def _made_of(self, i: int) -> Sequence[int]:
        """The nodes with which one changes."""
        if i in self.angles:
            return self.angles[i][:1]
        if i in self.reader.solutions:
            solution = self.reader.solutions[i]
            return flat([*solution.matrix, *solution.rhs])
        operation = self.graph.operations[i]
        if i in self.reader.barred:
            return self.graph.arguments[i]
        if operation in (CONSTANT, INPUT) or operation in _STILL or OPERATIONS[operation].truth:
            return ()
        return self.graph.arguments[i][1:] if operation == "select" else self.graph.arguments[i]

    def _shares(self, i: int, bar: int) -> Iterator[tuple[int, int]]:
        """What the cotangent of a node gives to its arguments."""
        graph = self.graph
        if i in self.angles:
            x, other, falls = self.angles[i]
            share = graph.apply("mul", bar, other)
            yield x, graph.apply("neg", share) if falls else share
            return
        operation, arguments = graph.operations[i], graph.arguments[i]
        operation = self.reader.barred.get(i, operation)
        if operation not in _RULES:
            raise NotScalarError(f"it differentiates `{operation}`")
        for argument, share in zip(arguments, _RULES[operation](graph, bar, i, arguments), strict=True):
            if share is not None:
                yield argument, share
            elif argument in self.moving and operation != "select":
                raise NotScalarError(f"it differentiates `{operation}` by its second argument")

    def _solved(self, solution: _Solution) -> None:
        """With Aᵀ w = x̄: b̄ = w and Ā = −w xᵀ."""
        reader, zero = self.reader, self.graph.constant(0.0)
        given = [np.array([self.bars.get(i, zero) for i in flat([x])], np.int64).reshape(x.shape) for x in solution.x]
        found = reader.closed(solution.equations.transpose_solve, [*solution.transposed, *given])
        w = flat(found)
        for i, bar in zip(flat(solution.rhs), w, strict=True):
            self._give(i, bar)
        own = [reader.still(x) for x in solution.matrix]  # products must not see of what it is made
        pairs = [(k, i) for k, i in zip(flat(own), flat(solution.matrix), strict=True) if i in self.moving]
        if pairs:
            product = flat(reader.closed(solution.equations.matvec, [*own, *solution.x]))
            inner = _Sweep(reader, [k for k, _ in pairs])
            bars = inner.back(product, [self.graph.apply("neg", x) for x in w])
            for (_, i), bar in zip(pairs, bars, strict=True):
                self._give(i, bar)


def _power(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
    x, y = arguments
    number, apply = graph.constant, graph.apply
    none = apply("eq", y, number(0.0))
    less = apply("select", none, number(1.0), apply("sub", y, number(1.0)))
    slope = apply("select", none, number(0.0), apply("mul", y, apply("pow", x, less)))
    return apply("mul", bar, slope), None


def _quotient(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
    share = graph.apply("div", bar, arguments[1])
    return share, graph.apply("neg", graph.apply("mul", share, i))


def _extreme(better: str) -> Rule:
    """Both have half of it where they are equal."""

    def rule(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
        x, y = arguments
        apply, zero = graph.apply, graph.constant(0.0)
        tied = apply("select", apply("eq", x, y), apply("mul", graph.constant(0.5), bar), zero)
        return tuple(apply("select", apply(better, *pair), bar, tied) for pair in ((x, y), (y, x)))

    return rule


def _absolute(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
    """Rising from zero on."""
    rises = graph.apply("ge", arguments[0], graph.constant(0.0))
    return (graph.apply("select", rises, bar, graph.apply("neg", bar)),)


def _chosen(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
    zero, where = graph.constant(0.0), arguments[0]
    return None, graph.apply("select", where, bar, zero), graph.apply("select", where, zero, bar)


def _slope(fn: Callable[["_Number", "_Number"], "_Number"]) -> Rule:
    """Of a function of one number, from its derivative by argument and result."""

    def rule(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
        number = lambda k: _Number(graph, k)
        return ((number(bar) * fn(number(arguments[0]), number(i))).node,)

    return rule


@dataclasses.dataclass(frozen=True)
class _Number:
    """A node that can be reckoned with."""

    graph: Graph
    node: int

    def _with(self, operation: str, other: "float | _Number") -> "_Number":
        node = other.node if isinstance(other, _Number) else self.graph.constant(other)
        return _Number(self.graph, self.graph.apply(operation, self.node, node))

    def of(self, operation: str) -> "_Number":
        """A function of it."""
        return _Number(self.graph, self.graph.apply(operation, self.node))

    def __add__(self, other: "float | _Number") -> "_Number":
        return self._with("add", other)

    def __sub__(self, other: "float | _Number") -> "_Number":
        return self._with("sub", other)

    def __mul__(self, other: "float | _Number") -> "_Number":
        return self._with("mul", other)

    def __neg__(self) -> "_Number":
        return self.of("neg")

    @property
    def inverse(self) -> "_Number":
        """1/x."""
        return self.of("reciprocal")


def _by_both(graph: Graph, bar: int, i: int, arguments: Nodes) -> tuple[int | None, ...]:
    y, x = (_Number(graph, k) for k in arguments)
    share = _Number(graph, bar) * (x * x + y * y).inverse
    return (share * x).node, (-(share * y)).node


# What does not change, or is not to be looked behind.
_STILL = ("floor", "ceil", "round", "number", "nothing", STILL)
_RULES: dict[str, Rule] = {
    "add": lambda g, bar, i, xs: (bar, bar),
    "sub": lambda g, bar, i, xs: (bar, g.apply("neg", bar)),
    "mul": lambda g, bar, i, xs: (g.apply("mul", bar, xs[1]), g.apply("mul", bar, xs[0])),
    "div": _quotient,
    "neg": lambda g, bar, i, xs: (g.apply("neg", bar),),
    "rem": lambda g, bar, i, xs: (bar, None),
    "select": _chosen,
    "max": _extreme("gt"),
    "min": _extreme("lt"),
    "abs": _absolute,
    "pow": _power,
    "atan2": _by_both,
    "reciprocal": _slope(lambda x, y: -(y * y)),
    "sqrt": _slope(lambda x, y: y.inverse * 0.5),
    "cbrt": _slope(lambda x, y: (y * y * 3.0).inverse),
    "exp": _slope(lambda x, y: y),
    "exp2": _slope(lambda x, y: y * float(np.log(2.0))),
    "expm1": _slope(lambda x, y: y + 1.0),
    "log": _slope(lambda x, y: x.inverse),
    "log1p": _slope(lambda x, y: (x + 1.0).inverse),
    "tan": _slope(lambda x, y: y * y + 1.0),
    "asin": _slope(lambda x, y: (-(x * x) + 1.0).of("sqrt").inverse),
    "acos": _slope(lambda x, y: -(-(x * x) + 1.0).of("sqrt").inverse),
    "atan": _slope(lambda x, y: (x * x + 1.0).inverse),
    "sinh": _slope(lambda x, y: x.of("cosh")),
    "cosh": _slope(lambda x, y: x.of("sinh")),
    "tanh": _slope(lambda x, y: -(y * y) + 1.0),
    "asinh": _slope(lambda x, y: (x * x + 1.0).of("sqrt").inverse),
    "acosh": _slope(lambda x, y: ((x - 1.0) * (x + 1.0)).of("sqrt").inverse),
    "atanh": _slope(lambda x, y: (-(x * x) + 1.0).inverse),
}
