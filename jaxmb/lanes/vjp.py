"""Cotangents as programs, in one or in two halves."""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array

from .code import Code, Shaped, Subprogram, entries
from .graph import OperationGraph
from .jaxpr import jaxpr_as_fun, pruned
from .program import WRITING, Program, guarded, shapes_of
from .reverse import cotangents, flat
from .scalarise import LARGEST
from .uncompiled import of_some


class VJPProgram(Program):
    """(arguments, with the cotangent of the first result before the one `at` this place) ↦ cotangents of the `moving` arguments of a function.

    Operation by operation, which takes fewer than JAX's derivatives of arrays.

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
            full = jax.make_jaxpr(fn)(*arguments)
        direct = pruned(full)
        self.full, self.moving, self.at, self.values = full, tuple(moving), at, shapes_of(direct.out_avals)
        self.thorough = thorough
        self.operands = (*arguments[:at], self.values[0], *arguments[at:])
        self.results = tuple(arguments[k] for k in moving)

        def write(graph: OperationGraph, nodes: list[np.ndarray]) -> list[np.ndarray]:
            own, bar = nodes[:at] + nodes[at + 1 :], flat(nodes[at : at + 1])
            return cotangents(graph, direct, own, bar, moving, largest)

        self.code = self.code_of(write)

    @functools.cached_property
    def jaxpr(self) -> ClosedJaxpr:  # pyright: ignore[reportIncompatibleVariableOverride]
        """By JAX's derivatives of arrays, which take longer to trace than all else: where it is not compiled."""
        at, moving = self.at, self.moving

        def back(*operands: Array) -> list[Array]:
            values = dict(enumerate((*operands[:at], *operands[at + 1 :])))
            of_moving = of_some(lambda *xs: jaxpr_as_fun(self.full)(*xs)[0], values, moving)
            return list(jax.vjp(of_moving, *(values[k] for k in moving))[1](operands[at]))

        with WRITING:
            return jax.make_jaxpr(back)(*self.operands)

    def coded(self, graph: OperationGraph, leaves: dict[int, tuple[int, int]], nodes: list[int]) -> Code:
        """The code of the cotangents; nodes of the values of the function come before theirs."""
        count = sum(entries(s.shape) for s in self.values)
        self.nodes, self.bars = nodes[:count], nodes[count:]
        return super().coded(graph, leaves, self.bars)

    def halves(self, *choices: Sequence[int]) -> tuple[list[Subprogram], Subprogram]:
        """What can be done before the cotangent is known, for each choice of values of the function, and the rest.

        The former takes the function's arguments, and returns those values and what the rest needs besides, as one array. The rest takes that
        as one more argument, and does not read the function's own ones. All choices must have as many numbers.
        """
        graph, leaves, at = self.code.graph, self.code.leaves, self.at
        late = self._dependents(at)
        guard = lambda after: graph.guard([i for i in graph.dropped if (i in late) is after])
        values, outputs = guarded(graph, self.nodes, guard(False)), guarded(graph, self.bars, guard(True))
        early, late = self._dependents(*range(at)), self._dependents(at)
        used = {a for i in Code(graph, leaves, outputs).order if i in late for a in graph.arguments[i]}
        needed = {i for i in used.union(outputs) if i in early and i not in late}
        # What is one operation from others that are passed on is computed again: memory costs more than an operation.
        passed = [
            i for i in sorted(needed) if i in leaves or not needed.issuperset(early.intersection(graph.arguments[i]))
        ]
        ends = np.cumsum([0, *(entries(s.shape) for s in self.values)])
        own = {i: (k - (k > at), e) for i, (k, e) in leaves.items() if k != at}
        arguments, first = (*self.operands[:at], *self.operands[at + 1 :]), []
        for choice in choices:
            results = [i for k in choice for i in values[ends[k] : ends[k + 1]]]
            code = Code(graph, own, (*results, *passed))
            first.append(Subprogram(code, arguments, (Shaped((len(code.outputs),), self.dtype),), self.thorough))
        size = len(first[0].code.outputs)
        late_leaves = {i: leaf for i, leaf in leaves.items() if leaf[0] >= at}
        late_leaves |= {i: (len(self.operands), size - len(passed) + k) for k, i in enumerate(passed)}
        rest = Code(graph, late_leaves, outputs)
        return first, Subprogram(rest, (*self.operands, Shaped((size,), self.dtype)), self.results, self.thorough)

    def _dependents(self, *operands: int) -> set[int]:
        """All nodes that depend on these operands."""
        graph, out = self.code.graph, set()
        for i, arguments in enumerate(graph.arguments):
            leaf = self.code.leaves.get(i)
            if not out.isdisjoint(arguments) if leaf is None else leaf[0] in operands:
                out.add(i)
        return out
