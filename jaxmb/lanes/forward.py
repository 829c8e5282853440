"""Forward derivatives of scalar programs, operation by operation."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from .graph import OperationGraph
from .jaxpr import shaped
from .reverse import DifferentiatingReader, LinearSolve, Nodes, OwnDerivative, Sweep, flat, shaped_like
from .scalarise import LARGEST


def tangents(
    graph: OperationGraph,
    jaxpr: ClosedJaxpr,
    arguments: Sequence[np.ndarray],
    dots: Mapping[int, np.ndarray],
    largest: int = LARGEST,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Adds a closed jaxpr to a graph, and its derivative along a direction: nodes of its results, and of the tangents of these.

    Solutions of linear equations are differentiated as such, by the same equations.

    Args:
        graph: the graph.
        jaxpr: the function.
        arguments: nodes of its arguments.
        dots: by the number of each argument that moves, nodes of its tangent.
        largest: how many operations there may be.

    Raises:
        NotScalarError: if there is no such program, with the reason.
    """
    reader = DifferentiatingReader(graph, largest)
    results = [reader.nodes(x) for x in reader.closed(jaxpr, arguments)]
    sources, moves = flat(arguments[k] for k in dots), flat(dots.values())
    return results, shaped_like(results, _Forward(reader, sources).ahead(flat(results), moves))


class _Forward(Sweep):
    """From the sources to results.

    Attributes:
        dots: tangents of nodes.
    """

    def ahead(self, outputs: Nodes, dots: Nodes) -> list[int]:
        """The tangents of these nodes."""
        self.find_moving(outputs)
        self.dots = dict(zip(self.sources, dots, strict=True))
        # Nodes are numbered in order: when one is reached, all of which it is made have been.
        for i in sorted(self.moving - self.ends):
            if i in self.dots:
                continue
            self.reader.measure()
            solution, own = self.reader.solutions.get(i), self.reader.own.get(i)
            if solution is not None:
                self._over(solution)
            elif own is not None:
                self._by_jax(own)
            else:
                self.dots[i] = self._tangent(i)
        return [self._dot(i) for i in outputs]

    def _dot(self, i: int) -> int:
        return self.dots[i] if i in self.moving else self.graph.constant(0.0)

    def _tangent(self, i: int) -> int:
        """Σ (derivative by each argument) · (its tangent)."""
        if self.graph.operations[i] == "select" and i not in self.angles:
            predicate, *others = self.graph.arguments[i]
            return self.graph.apply("select", predicate, *map(self._dot, others))
        terms = [
            self.shares(i, self.dots[argument])[k]
            for k, argument in enumerate(self.arguments(i))
            if argument in self.moving
        ]
        total, *more = [x for x in terms if x is not None]
        for x in more:
            total = self.graph.apply("add", total, x)
        return total

    def _by_jax(self, own: OwnDerivative) -> None:
        """Of an equation with a derivative of its own: that, as JAX has it."""
        moving = own.moving(self.moving)
        change = lambda fn, at, dots: jax.jvp(fn, tuple(at), tuple(dots))[1]
        jaxpr = own.program(moving, change, [shaped(own.equation.invars[k]) for k in moving])
        directions = [self._dots(own.operands[k]) for k in moving]
        changes = flat(map(self.reader.nodes, self.reader.closed(jaxpr, [*own.operands, *directions])))
        self.dots |= dict(zip(flat(own.results[k] for k in own.numbers), changes, strict=True))

    def _dots(self, x: np.ndarray) -> np.ndarray:
        return shaped_like([x], map(self._dot, flat([x])))[0]

    def _over(self, solution: LinearSolve) -> None:
        """Of x = A⁻¹b: ẋ = A⁻¹(ḃ − Ȧ x)."""
        reader, graph = self.reader, self.graph
        changes = flat(map(self._dots, solution.rhs))
        # Ȧ x as the derivative of A·x at fixed x, whose entries are copies of A's: with the nodes themselves products would be simplified by
        # what they are made of, and pass them by.
        own, jaxprs = solution.constants, solution.jaxprs
        matrix = [reader.opaque(x) for x in own.matvec]
        pairs = {k: self.dots[i] for k, i in zip(flat(matrix), flat(own.matvec), strict=True) if i in self.moving}
        if pairs:
            product = flat(map(reader.nodes, reader.closed(jaxprs.matvec, [*matrix, *solution.x])))
            of_matrix = _Forward(reader, list(pairs)).ahead(product, list(pairs.values()))
            changes = [graph.apply("sub", a, b) for a, b in zip(changes, of_matrix, strict=True)]
        rhs = shaped_like(solution.rhs, changes)
        solved = flat(map(reader.nodes, reader.closed(jaxprs.solve, [*own.solve, *rhs])))
        self.dots |= dict(zip(flat(solution.x), solved, strict=True))
