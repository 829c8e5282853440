"""Which few numbers of a scalar program tell whether all of them are finite."""

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .graph import Graph

# Results are not finite where one argument is not: ∞ + x, ∞·x, √∞ …
_KEEPING = ("add", "sub", "mul", "neg", "abs", "held", "sqrt", "floor", "ceil", "round", "nothing")
# Of NaN these may make a number.
_LOSING = ("pow", "lookup", "number")


def covering(graph: "Graph", order: Sequence[int], choices: Sequence[int], suspects: Sequence[int]) -> list[int]:
    """Nodes of which at least one is not finite wherever a suspect is not: as few as are easily found.

    Args:
        graph: all operations.
        order: nodes, arguments first.
        choices: those to choose from, which are numbers.
        suspects: some of these.
    """
    implied, own = _Implied(graph, suspects), {*suspects}
    chosen, covered = {i for i in choices if not graph.is_constant(i)}, set()
    candidates = []
    for i in order:
        implied.add(i)
        if i in own or (i in chosen and i not in implied.guarded):
            candidates.append(i)
            covered |= {
                a for a in implied.numbers(i) if implied.infinite[a] | implied.infinite[i] == implied.infinite[i]
            }
    return _chosen({i: implied.infinite[i] for i in candidates if i not in covered}, implied.every)


def _chosen(sets: dict[int, int], every: int) -> list[int]:
    """Of sets, those that together hold every element, each time the one that adds most."""
    found, left = [], every
    # What a set adds only becomes less: where it still adds as much as it did, the others are not looked at.
    heap = [(-s.bit_count(), i) for i, s in sets.items()]
    heapq.heapify(heap)
    while left:
        before, i = heapq.heappop(heap)
        adds = (sets[i] & left).bit_count()
        if adds == -before:
            found.append(i)
            left &= ~sets[i]
        elif adds:
            heapq.heappush(heap, (-adds, i))
    return found


class _Implied:
    """What it means for a node if suspects are not finite; sets of suspects are bits.

    Attributes:
        undefined, infinite: the suspects without a finite number of which a node is NaN, or is not finite.
        false: likewise of which a truth value is false.
        guarded: nodes made of a known infinity, which a choice further on may leave out.
    """

    def __init__(self, graph: "Graph", suspects: Sequence[int]) -> None:
        self.graph, self.every = graph, (1 << len(suspects)) - 1
        self.bits = {i: 1 << k for k, i in enumerate(suspects)}
        self.undefined: dict[int, int] = {}
        self.infinite: dict[int, int] = {}
        self.false: dict[int, int] = {}
        self.guarded: set[int] = set()

    def numbers(self, i: int) -> list[int]:
        """The arguments that are numbers."""
        return [a for a in self.graph.arguments[i] if a in self.infinite]

    def add(self, i: int) -> None:
        """Adds a node, after its arguments."""
        if self.graph.is_truth(i):
            self.false[i] = self._false(i)
        elif self.graph.is_constant(i):
            value = self.graph.values[i]
            self.undefined[i] = self.every if np.isnan(value) else 0
            self.infinite[i] = 0 if np.isfinite(value) else self.every
            self.guarded |= {i} if np.isinf(value) else set()
        else:
            self.undefined[i], self.infinite[i] = (
                self._choice(i) if self.graph.operations[i] == "select" else self._made(i)
            )
            self.infinite[i] |= self.bits.get(i, 0)
            self.guarded |= {i} if self.guarded.intersection(self.graph.arguments[i]) else set()

    def _choice(self, i: int) -> tuple[int, int]:
        p, x, y = self.graph.arguments[i]
        undefined, infinite = (sets[y] & (sets[x] | self.false[p]) for sets in (self.undefined, self.infinite))
        return undefined, infinite

    def _made(self, i: int) -> tuple[int, int]:
        operation, arguments = self.graph.operations[i], self.numbers(i)
        undefined = 0 if operation in _LOSING else _union(self.undefined[a] for a in arguments)
        infinite = _union(self.infinite[a] for a in arguments) if operation in _KEEPING else undefined
        if operation == "div":  # ∞/x, but not x/∞
            infinite |= self.infinite[arguments[0]]
        return infinite if operation == "nothing" else undefined, infinite

    def _false(self, i: int) -> int:
        operation, arguments = self.graph.operations[i], self.graph.arguments[i]
        if operation == "and":
            return _union(self.false[a] for a in arguments)
        if operation == "or":
            return self.false[arguments[0]] & self.false[arguments[1]]
        if operation not in ("lt", "le", "gt", "ge", "eq"):
            return 0
        x, y = arguments
        out = self.undefined.get(x, 0) | self.undefined.get(y, 0)
        bounded = self.graph.is_constant(y) and np.isfinite(self.graph.values[y])
        if operation in ("lt", "le") and self.graph.operations[x] == "abs" and bounded:  # |x| ≤ c
            out |= self.infinite[x]
        return out


def _union(sets: Iterable[int]) -> int:
    out = 0
    for s in sets:
        out |= s
    return out
