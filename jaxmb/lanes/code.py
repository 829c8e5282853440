"""Some results of a graph as code."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from .graph import OperationGraph

Shaped = jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True, eq=False)
class Code:
    """Some nodes of a graph, from others whose numbers are operands.

    Attributes:
        graph: all operations.
        leaves: nodes whose numbers are operands: (which operand, which of its entries).
        outputs: the nodes of the results, one after the other.
    """

    graph: OperationGraph
    leaves: dict[int, tuple[int, int]]
    outputs: tuple[int, ...]

    @functools.cached_property
    def order(self) -> list[int]:
        """All nodes that are needed, arguments first, each as late as its first use allows: fewer numbers wait for theirs."""
        stack, visited, out = [(i, False) for i in reversed(self.outputs)], set(), []
        while stack:
            i, complete = stack.pop()
            if complete:
                out.append(i)
            elif i not in visited:
                visited.add(i)
                arguments = () if i in self.leaves else self.graph.arguments[i]
                stack += [(i, True), *((a, False) for a in reversed(arguments))]
        return out

    @functools.cached_property
    def inputs(self) -> list[tuple[int, int]]:
        """Which entries of operands are used, in the order in which they are read."""
        return [self.leaves[i] for i in self.order if i in self.leaves]

    @functools.cached_property
    def counts(self) -> Counter[int]:
        """How many entries of each operand are used."""
        return Counter(operand for operand, _ in self.inputs)

    @property
    def count(self) -> int:
        """How many operations there are."""
        return sum(i not in self.leaves and not self.graph.is_constant(i) for i in self.order)

    def split(self, fixed: Sequence[bool]) -> tuple["Code", "Code"]:
        """What depends on the `fixed` operands alone, and the rest, which takes the results of the former as one more operand."""
        graph, shared = self.graph, {}
        for i in self.order:
            if i in self.leaves:
                shared[i] = fixed[self.leaves[i][0]]
            else:
                shared[i] = all(shared[a] for a in graph.arguments[i])
        used = {a for i in self.order if not shared[i] and i not in self.leaves for a in graph.arguments[i]}
        used |= set(self.outputs)
        border = [i for i in sorted(used) if shared[i] and not graph.is_constant(i)]
        varying = {i: leaf for i, leaf in self.leaves.items() if not fixed[leaf[0]]}
        varying |= {i: (len(fixed), k) for k, i in enumerate(border)}
        return Code(graph, self.leaves, tuple(border)), Code(graph, varying, self.outputs)


@dataclasses.dataclass(frozen=True, eq=False)
class Subprogram:
    """Part of a program, which is compiled by itself.

    Attributes:
        code: its operations.
        operands: shapes and types of what it is given,
        results: and of what it returns.
        thorough, brief: how it is compiled.
    """

    code: Code
    operands: tuple[Shaped, ...]
    results: tuple[Shaped, ...]
    thorough: bool = False
    brief: bool = False


def entries(shape: Sequence[int]) -> int:
    """How many numbers an array of that shape has."""
    return int(np.prod(shape, dtype=int))


def precision(shapes: Sequence[Shaped]) -> np.dtype | None:
    """The one type of all that are floating point, None if there are several."""
    kinds = {np.dtype(s.dtype) for s in shapes if np.dtype(s.dtype).kind == "f"}
    if len(kinds) > 1:
        return None
    return kinds.pop() if kinds else np.dtype(jnp.zeros(0).dtype)
