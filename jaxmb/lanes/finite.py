"""Which few numbers of a scalar program tell whether all of them are finite.

A set cover: the elements are the suspects, the sets are for each node those suspects that would make it NaN or infinite. The greedy
choice, each time the set that adds most, is within ln n of the fewest (Chvátal 1979).
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .operations import OPERATIONS, Finiteness

if TYPE_CHECKING:
    from .graph import OperationGraph


def covering(
    graph: "OperationGraph", order: Sequence[int], choices: Sequence[int], suspects: Sequence[int]
) -> list[int]:
    """Nodes of which at least one is not finite wherever a suspect is not: as few as are easily found.

    Args:
        graph: all operations.
        order: nodes, arguments first.
        choices: those to choose from, which are numbers.
        suspects: some of these.
    """
    implied, own = _Implied(graph, suspects), {*suspects}
    chosen, covered = {i for i in choices if not graph.is_constant(i)}, set()
    # A node whose set is also that of a node made of it is not looked at: sums and products hand on what their factors are.
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
    cover, rest = [], every
    # What a set adds only becomes less: where it still adds as much as it did, the others are not looked at (lazy greedy, Minoux 1978).
    heap = [(-s.bit_count(), i) for i, s in sets.items()]
    heapq.heapify(heap)
    while rest:
        before, i = heapq.heappop(heap)
        adds = (sets[i] & rest).bit_count()
        if adds == -before:
            cover.append(i)
            rest &= ~sets[i]
        elif adds:
            heapq.heappush(heap, (-adds, i))
    return cover


class _Implied:
    """What it means for a node if suspects are not finite; sets of suspects are bits.

    Attributes:
        undefined, infinite: the suspects without a finite number of which a node is NaN, or is not finite.
        false: likewise of which a truth value is false.
        guarded: nodes made of a constant infinity, which a choice further on may leave out.
    """

    def __init__(self, graph: "OperationGraph", suspects: Sequence[int]) -> None:
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
                self._of_choice(i) if self.graph.operations[i] == "select" else self._of_operation(i)
            )
            self.infinite[i] |= self.bits.get(i, 0)
            self.guarded |= {i} if self.guarded.intersection(self.graph.arguments[i]) else set()

    def _of_choice(self, i: int) -> tuple[int, int]:
        p, x, y = self.graph.arguments[i]
        undefined, infinite = (sets[y] & (sets[x] | self.false[p]) for sets in (self.undefined, self.infinite))
        return undefined, infinite

    def _of_operation(self, i: int) -> tuple[int, int]:
        operation, arguments = self.graph.operations[i], self.numbers(i)
        # Inputs and opaque nodes are none: their own bits are added by `add`.
        kind = OPERATIONS[operation].finiteness if operation in OPERATIONS else Finiteness.UNDEFINED
        undefined = 0 if kind is Finiteness.ABSORBED else _union(self.undefined[a] for a in arguments)
        infinite = _union(self.infinite[a] for a in arguments) if kind is Finiteness.INFINITE else undefined
        if operation == "div":  # ∞/x, but not x/∞
            infinite |= self.infinite[arguments[0]]
        # 0·∞ is NaN.
        return infinite if operation == "zero_or_nan" else undefined, infinite

    def _false(self, i: int) -> int:
        operation, arguments = self.graph.operations[i], self.graph.arguments[i]
        if operation == "and":
            return _union(self.false[a] for a in arguments)
        if operation == "or":
            return self.false[arguments[0]] & self.false[arguments[1]]
        if operation not in ("lt", "le", "gt", "ge", "eq"):
            return 0
        x, y = arguments
        # Ordered comparisons with NaN are false.
        out = self.undefined.get(x, 0) | self.undefined.get(y, 0)
        bounded = self.graph.is_constant(y) and np.isfinite(self.graph.values[y])
        # |x| ≤ c, as the sine asks, is false of infinity too.
        if operation in ("lt", "le") and self.graph.operations[x] == "abs" and bounded:
            out |= self.infinite[x]
        return out


def _union(sets: Iterable[int]) -> int:
    out = 0
    for s in sets:
        out |= s
    return out
