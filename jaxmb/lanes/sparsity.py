"""Which results of a function depend on which entries of its first argument."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from .code import Shaped, entries
from .graph import INPUT, OperationGraph
from .jaxpr import pruned, traced
from .program import WRITING
from .scalarise import scalarise


def sparsity(fn: Callable[..., object], first: Shaped, *others: Shaped) -> list[Bool[np.ndarray, "k n"]]:
    """For each result of a function, by entries of the result and of the first argument, whether one may depend on the other.

    What the other arguments are is not known. Structural zeros count: 0·x does not depend on x.

    Raises:
        NotScalarError: if that cannot be read off the function, with the reason.
    """
    graph = _Influence()
    count = entries(first.shape)
    nodes = [np.array([graph.influenced(1 << k) for k in range(count)]).reshape(first.shape)]
    nodes += [np.full(s.shape, graph.influenced(0)) for s in others]
    with WRITING:
        jaxpr = traced(fn, first, *others)
    results = scalarise(graph, pruned(jaxpr), nodes)
    return [graph.matrix(np.ravel(result), count) for result in results]


class _Influence(OperationGraph):
    """A graph whose nodes are known numbers, or sets of entries on which a number depends: the bits of a whole number."""

    def influenced(self, entries: int) -> int:
        """A number that depends on these."""
        return self._node(INPUT, (), entries)

    def apply(self, operation: str, *arguments: int) -> int:
        """What an operation depends on."""
        if all(self.is_constant(i) for i in arguments):
            return super().apply(operation, *arguments)
        if operation == "mul" and any(self._number_is(i, 0.0) for i in arguments):
            return self.constant(0.0)
        if operation == "select" and self.is_constant(arguments[0]):
            return arguments[1] if self.values[arguments[0]] else arguments[2]
        sources = {i for i in arguments if not self.is_constant(i)}
        if len(sources) == 1:
            return sources.pop()
        # Whole numbers of thousands of bits are united once for equal arguments.
        key = ("union", tuple(sorted(sources)))
        if key not in self._nodes:
            union = 0
            for i in sources:
                union |= self.values[i]
            self._nodes[key] = self.influenced(union)
        return self._nodes[key]

    def matrix(self, nodes: np.ndarray, count: int) -> Bool[np.ndarray, "k n"]:
        """Of each node the entries that it depends on, as a row."""
        size = -(-count // 8)
        influence = lambda i: 0 if self.is_constant(i) else self.values[i]
        packed = b"".join(influence(int(i)).to_bytes(size, "little") for i in nodes)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(len(nodes), size), axis=1, bitorder="little")
        return bits[:, :count].astype(bool)
