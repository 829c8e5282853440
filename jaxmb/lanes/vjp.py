"""Cotangents as programs, whole or in two halves."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Array

from .code import Code, Piece, Shaped, entries
from .graph import Graph
from .jaxpr import jaxpr_as_fun, pruned
from .program import WRITING, Program, watching
from .reverse import cotangents, flat
from .scalarise import LARGEST, NotScalarError, scalarise


class VJPProgram(Program):
    """(arguments, with the cotangent of the first result before the one `at` this place) ↦ cotangents of the `moving` arguments of a function.

    Operation by operation, which takes fewer than by JAX's derivatives of whole arrays; by those where an operation has no such rule.

    Args:
        fn: returns a sequence of arrays.
        arguments: their shapes.
        moving: which of them.
        at: those before are its own, those behind are parameters.
        largest: how many operations it may have.
        thorough: see `Program`.
    """

    def __init__(
        self,
        fn: Callable[..., Sequence[Array]],
        *arguments: Shaped,
        moving: Sequence[int],
        at: int,
        largest: int = LARGEST,
        thorough: bool = False,
    ):
        with WRITING:
            whole = jax.make_jaxpr(fn)(*arguments)
        direct = pruned(whole)
        self.at, self.values = at, [Shaped(a.shape, a.dtype) for a in direct.out_avals]

        def back(*given: Array) -> list[Array]:
            fixed = dict(enumerate((*given[:at], *given[at + 1 :])))
            along = lambda *xs: jaxpr_as_fun(whole)(*(fixed | dict(zip(moving, xs, strict=True))).values())[0]
            return list(jax.vjp(along, *(fixed[k] for k in moving))[1](given[at]))

        def by_operations(graph: Graph, nodes: list[np.ndarray]) -> list[np.ndarray]:
            own, bar = nodes[:at] + nodes[at + 1 :], flat(nodes[at : at + 1])
            return cotangents(graph, direct, own, bar, moving, largest)

        def by_arrays(graph: Graph, nodes: list[np.ndarray]) -> list[np.ndarray]:
            own = nodes[:at] + nodes[at + 1 :]
            return scalarise(graph, direct, own, largest) + scalarise(graph, pruned(jaxpr), nodes, largest)

        with WRITING:
            jaxpr = jax.make_jaxpr(back)(*arguments[:at], self.values[0], *arguments[at:])
        try:
            super().__init__(jaxpr, thorough=thorough, write=by_operations)
        except NotScalarError:
            super().__init__(jaxpr, thorough=thorough, write=by_arrays)

    def coded(self, graph: Graph, leaves: dict[int, tuple[int, int]], nodes: list[int]) -> Code:
        """The code of the cotangents; nodes of the values of the function come before theirs."""
        count = sum(entries(s.shape) for s in self.values)
        self.nodes, self.bars = nodes[:count], nodes[count:]
        return super().coded(graph, leaves, self.bars)

    def halves(self, *wanted: Sequence[int]) -> tuple[list[Piece], Piece]:
        """What can be done before the cotangent is known, for each choice of `wanted` values of the function, and the rest.

        The former is given the function's arguments, and returns those values and what the rest needs besides, as one array, which the rest is given
        as one more argument and does not read the function's own ones. Values chosen must be of one size.
        """
        graph, leaves, at = self.code.graph, self.code.leaves, self.at
        late = self._made_of(at)
        watch = lambda after: graph.watched([i for i in graph.dropped if (i in late) is after])
        values, outputs = watching(graph, self.nodes, watch(False)), watching(graph, self.bars, watch(True))
        early, late = self._made_of(*range(at)), self._made_of(at)
        used = {a for i in Code(graph, leaves, outputs).order if i in late for a in graph.arguments[i]}
        asked = {i for i in used.union(outputs) if i in early and i not in late}
        # What is one operation from others that are passed on is not.
        passed = [
            i for i in sorted(asked) if i in leaves or not asked.issuperset(early.intersection(graph.arguments[i]))
        ]
        ends = np.cumsum([0, *(entries(s.shape) for s in self.values)])
        own = {i: (k - (k > at), e) for i, (k, e) in leaves.items() if k != at}
        arguments, first = (*self.operands[:at], *self.operands[at + 1 :]), []
        for choice in wanted:
            results = [i for k in choice for i in values[ends[k] : ends[k + 1]]]
            code = Code(graph, own, (*results, *passed))
            first.append(Piece(code, arguments, (Shaped((len(code.outputs),), self.dtype),), self.thorough))
        size = len(first[0].code.outputs)
        places = {i: place for i, place in leaves.items() if place[0] >= at}
        places |= {i: (len(self.operands), size - len(passed) + k) for k, i in enumerate(passed)}
        rest = Code(graph, places, outputs)
        return first, Piece(rest, (*self.operands, Shaped((size,), self.dtype)), self.results, self.thorough)

    def _made_of(self, *operands: int) -> set[int]:
        """All nodes that are made of these operands."""
        graph, out = self.code.graph, set()
        for i, arguments in enumerate(graph.arguments):
            given = self.code.leaves.get(i)
            if not out.isdisjoint(arguments) if given is None else given[0] in operands:
                out.add(i)
        return out
