"""Reverse derivatives of scalar programs, operation by operation."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jaxtyping import Array

from .code import Shaped
from .graph import CONSTANT, INPUT, OPAQUE, OperationGraph
from .jaxpr import equation_as_fun, has_own_derivative, pruned, shaped, traced
from .operations import OPERATIONS
from .program import WRITING, is_number
from .scalarise import LARGEST, Reader, Value
from .uncompiled import of_some

Nodes = Sequence[int]
# (a function, its arguments, tangents or cotangents) ↦ the derivative.
Change = Callable[[Callable[..., list[Array]], Sequence[Array], Sequence[Array]], Sequence[Array]]

# Equations of which what is written in their place has other derivatives than they have themselves, where branches meet or beyond the range of
# numbers.
_DIFFERENT_DERIVATIVE = (
    "clamp",
    "cond",
    "logistic",
    "reduce_max",
    "reduce_min",
)


def cotangents(
    graph: OperationGraph,
    jaxpr: ClosedJaxpr,
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
    reader = DifferentiatingReader(graph, largest)
    results = [reader.nodes(x) for x in reader.closed(jaxpr, arguments)]
    sources = [arguments[k] for k in moving]
    return results + shaped_like(sources, _Backward(reader, flat(sources)).back(flat(results[:1]), bars))


def flat(arrays: Iterable[np.ndarray]) -> list[int]:
    """The nodes of arrays, one after the other."""
    return [i for x in arrays for i in np.ravel(x).tolist()]


def shaped_like(arrays: Iterable[np.ndarray], nodes: Iterable[int]) -> list[np.ndarray]:
    """Nodes, one after the other, as arrays of the shapes of these."""
    rest = iter(nodes)
    return [np.array([next(rest) for _ in x.flat], np.int64).reshape(x.shape) for x in arrays]


@dataclasses.dataclass(frozen=True, eq=False)
class LinearSolve:
    """A solution x of A x = b.

    Attributes:
        jaxprs: `matvec`, A times a vector, `solve` and `transpose_solve`, as in `lax.custom_linear_solve`.
        constants: of each of these.
        rhs: b.
        x: the solution.
    """

    jaxprs: Any
    constants: Any
    rhs: Sequence[np.ndarray]
    x: Sequence[np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class OwnDerivative:
    """An equation whose derivative is another one than that of what is written in its place.

    Attributes:
        equation: the equation.
        operands: what it is given.
        results: its results, opaque nodes.
    """

    equation: JaxprEqn
    operands: Sequence[np.ndarray]
    results: Sequence[np.ndarray]

    @property
    def numbers(self) -> list[int]:
        """Which of the results have derivatives."""
        return [k for k, v in enumerate(self.equation.outvars) if is_number(shaped(v))]

    def moving(self, nodes: set[int]) -> list[int]:
        """Which of the operands have entries among these nodes."""
        numbers = [is_number(shaped(v)) for v in self.equation.invars]
        return [k for k, x in enumerate(self.operands) if numbers[k] and not nodes.isdisjoint(flat([x]))]

    def program(self, moving: Sequence[int], change: Change, directions: Sequence[Shaped]) -> ClosedJaxpr:
        """(operands, directions) ↦ `change` of the results that are numbers, as functions of the operands that move, as JAX has it."""
        operands, equation = [shaped(v) for v in self.equation.invars], equation_as_fun(self.equation)

        def numbers(*xs: Array) -> list[Array]:
            results = equation(*xs)
            return [results[k] for k in self.numbers]

        def fn(*xs: Array) -> Sequence[Array]:
            at = dict(enumerate(xs[: len(operands)]))
            return change(of_some(numbers, at, moving), [at[k] for k in moving], xs[len(operands) :])

        with WRITING:
            return pruned(traced(fn, *operands, *directions))


class DifferentiatingReader(Reader):
    """Remembers what is differentiated otherwise than operation by operation.

    Attributes:
        solutions: for each entry of a solution of linear equations that solution.
        own: for each entry of the results of an equation with another derivative that equation.
    """

    def __init__(self, graph: OperationGraph, largest: int):
        super().__init__(graph, largest)
        self.solutions: dict[int, LinearSolve] = {}
        self.own: dict[int, OwnDerivative] = {}

    def opaque(self, x: Value) -> np.ndarray:
        """Nodes of the same numbers, behind which nobody looks."""
        x = self.nodes(x)
        return shaped_like([x], map(self.graph.opaque, flat([x])))[0]

    def equation(self, equation: JaxprEqn, ins: Sequence[Value]) -> Sequence[Value]:
        """The results of an equation; opaque ones where the derivative is none of operations."""
        name, results = equation.primitive.name, super().equation(equation, ins)
        if name == "custom_linear_solve":
            return self._linear_solve(equation, [self.nodes(x) for x in ins], [self.opaque(x) for x in results])
        if name in ("stop_gradient", "sign"):
            return [self.opaque(x) for x in results]
        differs = name in _DIFFERENT_DERIVATIVE or has_own_derivative(equation) or self._without_rule(results)
        if differs and not (name == "cond" and self.constants(self.nodes(ins[0])) is not None):
            results = [self.opaque(x) for x in results]
            own = OwnDerivative(equation, [self.nodes(x) for x in ins], results)
            self.own |= {i: own for i in flat(results) if not self.graph.is_constant(i)}
        return results

    def _without_rule(self, results: Sequence[Value]) -> bool:
        """Whether there is no rule for the operations of which results are."""
        nodes = flat(x for x in results if isinstance(x, np.ndarray))
        return any(self.graph.operations[i] == "lookup" for i in nodes)

    def _linear_solve(
        self, equation: JaxprEqn, ins: Sequence[np.ndarray], x: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray]:
        lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
        rest = iter(ins)
        constants = type(lengths)(*(list(itertools.islice(rest, count)) for count in lengths))
        solution = LinearSolve(jaxprs, constants, list(rest), x)
        self.solutions |= {i: solution for i in flat(x) if not self.graph.is_constant(i)}
        return x


@functools.cache
def _pullback(operation: str, count: int, moving: tuple[int, ...], dtype: np.dtype) -> ClosedJaxpr:
    """(cotangent of an operation's result, arguments, so many) ↦ cotangents of those that move, as JAX has it."""

    def pull(bar: Array, *arguments: Array) -> Sequence[Array]:
        fn = of_some(OPERATIONS[operation].array, dict(enumerate(arguments)), moving)
        return jax.vjp(fn, *(arguments[k] for k in moving))[1](bar)

    with WRITING:
        return pruned(traced(pull, *(Shaped((), dtype) for _ in range(count + 1))))


class Sweep:
    """Over all nodes that change with `sources`, between these and results.

    Attributes:
        ends: the sources, as a set.
        angles: of a sine or cosine the angle, the other one of the two, and whether the derivative has the other sign.
        moving: nodes that change with the sources.
    """

    def __init__(self, reader: DifferentiatingReader, sources: Nodes):
        self.reader, self.graph, self.sources = reader, reader.graph, list(sources)
        self.ends = {*sources}
        self.angles: dict[int, tuple[int, int, bool]] = {}
        for x, (sine, cosine) in self.graph.angles.items():
            self.angles[sine], self.angles[cosine] = (x, cosine, False), (x, sine, True)
        self.moving: set[int] = set()

    def find_moving(self, outputs: Nodes) -> None:
        """Finds the nodes on the way to these results."""
        stack, predecessors = list(outputs), {}
        while stack:
            i = stack.pop()
            if i not in predecessors:
                predecessors[i] = () if i in self.ends else tuple(self._predecessors(i))
                stack.extend(predecessors[i])
        for i in sorted(predecessors):
            if i in self.ends or not self.moving.isdisjoint(predecessors[i]):
                self.moving.add(i)

    def arguments(self, i: int) -> Nodes:
        """The nodes of which a node is a function."""
        return self.angles[i][:1] if i in self.angles else self.graph.arguments[i]

    def shares(self, i: int, bar: int) -> Sequence[int | None]:
        """The derivative of a node by each of its arguments, times a number; None by what has none."""
        graph = self.graph
        if i in self.angles:
            _, other, falls = self.angles[i]
            share = graph.apply("mul", bar, other)
            return (graph.apply("neg", share) if falls else share,)
        name, arguments = graph.operations[i], graph.arguments[i]
        rule = OPERATIONS[name].rule
        if rule is not None:
            return rule(graph, bar, i, arguments)
        moving = tuple(k for k, a in enumerate(arguments) if a in self.moving)
        program = _pullback(name, len(arguments), moving, np.dtype(np.float32 if graph.single else np.float64))
        reader = Reader(graph, self.reader.largest)
        shares = reader.closed(program, list(map(np.asarray, (bar, *arguments))))
        at = dict(zip(moving, flat(map(reader.nodes, shares)), strict=True))
        return [at.get(k) for k in range(len(arguments))]

    def _predecessors(self, i: int) -> Sequence[int]:
        """The nodes with which one changes."""
        if i in self.angles:
            return self.angles[i][:1]
        if i in self.reader.solutions:
            solution = self.reader.solutions[i]
            return flat([*solution.constants.matvec, *solution.rhs])
        # Of all that the equation is given: its value need not depend on what its derivative does.
        if i in self.reader.own:
            return flat(self.reader.own[i].operands)
        name, arguments = self.graph.operations[i], self.graph.arguments[i]
        if name in (CONSTANT, INPUT, OPAQUE):
            return ()
        operation = OPERATIONS[name]
        if operation.flat or operation.truth:
            return ()
        return arguments[1:] if name == "select" else arguments


class _Backward(Sweep):
    """From results back to the sources.

    Attributes:
        bars: cotangents, as far as they have been summed up.
    """

    def __init__(self, reader: DifferentiatingReader, sources: Nodes):
        super().__init__(reader, sources)
        self.bars: dict[int, int] = {}

    def back(self, outputs: Nodes, bars: Nodes) -> list[int]:
        """The cotangents of the sources."""
        zero, done = self.graph.constant(0.0), set()
        self.find_moving(outputs)
        for i, bar in zip(outputs, bars, strict=True):
            self._add(i, bar)
        # Nodes are numbered in order: when one is reached, all to which it has contributed have been.
        for i in sorted(self.moving - self.ends, reverse=True):
            if i in done:
                continue
            self.reader.measure()
            solution, own = self.reader.solutions.get(i), self.reader.own.get(i)
            # Entries of such results were made one after the other, and no node between them depends on one: all go back at once.
            if solution is not None:
                done.update(flat(solution.x))
                self._back_over(solution)
            elif own is not None:
                done.update(flat(own.results))
                self._by_jax(own)
            elif i in self.bars:
                for argument, share in zip(self.arguments(i), self.shares(i, self.bars[i]), strict=True):
                    if share is not None:
                        self._add(argument, share)
        return [self.bars.get(i, zero) for i in self.sources]

    def _add(self, i: int, bar: int) -> None:
        if i in self.moving:
            self.bars[i] = self.graph.apply("add", self.bars[i], bar) if i in self.bars else bar

    def _bars(self, x: np.ndarray) -> np.ndarray:
        zero = self.graph.constant(0.0)
        return shaped_like([x], (self.bars.get(i, zero) for i in flat([x])))[0]

    def _by_jax(self, own: OwnDerivative) -> None:
        """Over an equation with a derivative of its own: by that, as JAX has it."""
        numbers, moving = own.numbers, own.moving(self.moving)
        change = lambda fn, at, bars: jax.vjp(fn, *at)[1](list(bars))
        program = own.program(moving, change, [shaped(own.equation.outvars[k]) for k in numbers])
        shares = self.reader.closed(program, [*own.operands, *(self._bars(own.results[k]) for k in numbers)])
        for k, share in zip(moving, shares, strict=True):
            for i, bar in zip(flat([own.operands[k]]), flat([self.reader.nodes(share)]), strict=True):
                self._add(i, bar)

    def _back_over(self, solution: LinearSolve) -> None:
        """Over x = A⁻¹b, with Aᵀ w = x̄: b̄ = w and Ā = −w xᵀ."""
        reader, bars = self.reader, [self._bars(x) for x in solution.x]
        w = flat(
            map(
                reader.nodes,
                reader.closed(solution.jaxprs.transpose_solve, [*solution.constants.transpose_solve, *bars]),
            )
        )
        for i, bar in zip(flat(solution.rhs), w, strict=True):
            self._add(i, bar)
        # Ā by the derivative of A·x at fixed x, whose entries are copies of A's: with the nodes themselves products would be
        # simplified by what they are made of, and pass them by.
        own, matvec = solution.constants.matvec, solution.jaxprs.matvec
        matrix = [reader.opaque(x) for x in own]
        pairs = [(k, i) for k, i in zip(flat(matrix), flat(own), strict=True) if i in self.moving]
        if pairs:
            product = flat(map(reader.nodes, reader.closed(matvec, [*matrix, *solution.x])))
            inner = _Backward(reader, [k for k, _ in pairs])
            bars = inner.back(product, [self.graph.apply("neg", x) for x in w])
            for (_, i), bar in zip(pairs, bars, strict=True):
                self._add(i, bar)
