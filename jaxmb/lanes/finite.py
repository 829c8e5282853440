"""Which few numbers of a scalar program tell whether all of them are finite.

A set cover: the elements are the suspects, the sets are for each node those suspects that would make it NaN or infinite. The greedy
choice, each time the set that adds most, is within ln n of the fewest (Chvátal 1979).
"""

import functools
import heapq
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .operations import OPERATIONS

if TYPE_CHECKING:
    from .graph import OperationGraph


def covering(graph: "OperationGraph", numbers: Sequence[int], suspects: Sequence[int]) -> list[int]:
    """Of nodes that are numbers, arguments first, as few as are easily found of which one is not finite wherever a suspect, one of them, is not."""
    own, every = {i: 1 << k for k, i in enumerate(suspects)}, (1 << len(suspects)) - 1
    # For each node the suspects, as bits, of which none may be NaN or infinite if it is finite.
    implied: dict[int, int] = {}
    # Nodes made of a constant infinity, which a choice further on may leave out.
    infinite: set[int] = set()
    for i in numbers:
        operation, arguments = graph.operations[i], graph.arguments[i]
        if graph.is_constant(i):
            implied[i] = 0 if np.isfinite(graph.values[i]) else every
        else:
            implied[i] = _of_operation(operation, [implied.get(a, 0) for a in arguments])
        implied[i] |= own.get(i, 0)
        if not infinite.isdisjoint(arguments) or (graph.is_constant(i) and np.isinf(graph.values[i])):
            infinite.add(i)
    infinite |= {i for i in numbers if graph.is_constant(i)}
    return _chosen({i: s for i, s in implied.items() if i in own or i not in infinite}, every)


def _of_operation(operation: str, sets: Sequence[int]) -> int:
    """The suspects of which none may be NaN or infinite if the result of an operation is finite, from those of its arguments."""
    if operation == "select":
        return sets[1] & sets[2]
    if operation == "div":  # ∞/x, but not x/∞
        return sets[0]
    if operation in OPERATIONS and OPERATIONS[operation].hands_on:
        return functools.reduce(operator.or_, sets, 0)
    return 0


def _chosen(sets: Mapping[int, int], every: int) -> list[int]:
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
