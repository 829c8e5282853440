"""A scalar program as a graph of operations, each there once."""

import collections
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from .finite import covering
from .operations import OPERATIONS
from .sincos import sincos

# Kinds of nodes that are no operations. An opaque one is the same number as its argument, behind which nobody looks. A guarded one is so too, or NaN
# where one of the nodes is not finite whose bits are its value.
CONSTANT, INPUT, OPAQUE, GUARDED = "constant", "input", "opaque", "guarded"
# Operations whose results are finite if and only if all arguments are, but for overflow; sines are operations of exact graphs only.
_UNBROKEN = {name for name, operation in OPERATIONS.items() if operation.hands_on and not operation.partial} | {
    "sin",
    "cos",
}


class OperationGraph:
    """Nodes are numbers: node i is `operations[i]` of the nodes `arguments[i]`; constants and inputs have a value instead.

    Arguments stand before what is made of them. Zeros and ones are folded, signs are drawn out, and equal operations are one
    node (value numbering). A dropped factor, the x of 0·x, may not be finite: see `guard`.

    Args:
        single: whether numbers are of single precision.
        exact: whether of 0·x the result alone is NaN where x is not finite, in place of the whole program; and whether huge angles have sines.
        library: whether sine and cosine stay functions of the C library; of exact graphs they do.
    """

    def __init__(self, single: bool = False, exact: bool = False, library: bool = False) -> None:
        self.single, self.exact, self.library = single, exact, exact or library
        self.operations: list[str] = []
        self.arguments: list[tuple[int, ...]] = []
        self.values: list[Any] = []
        self.dropped: set[int] = set()
        self._nodes: dict[Hashable, int] = {}
        self._applied: dict[str, dict[tuple[int, ...], int]] = collections.defaultdict(dict)
        self._suspects_of: dict[int, int] = {}
        self._numbered: dict[int, int] = {}
        self._guards: set[int] = set()
        self.angles: dict[int, tuple[int, int]] = {}

    def constant(self, value: float | int | bool | np.generic) -> int:
        """A number or a truth value."""
        if isinstance(value, (bool, np.bool_)):
            return self._node(CONSTANT, (), bool(value))
        value = float(value)
        # Minus zero is zero, and every NaN is the same one.
        return self._node(CONSTANT, (), 0.0 if value == 0 else value if value == value else np.nan)

    def input(self, source: Hashable) -> int:
        """A number that is not known, by where it comes from."""
        return self._node(INPUT, (), source)

    def close(self) -> None:
        """Forgets what finds equal operations, which takes most of its memory: operations that still come may be there twice."""
        self._nodes.clear()
        self._applied.clear()
        self._suspects_of.clear()
        self._numbered.clear()

    def opaque(self, i: int) -> int:
        """A node of its own that is the same number, behind which no simplification looks; a constant or a truth value as it is."""
        transparent = self.is_constant(i) or self.is_truth(i)
        # The value only makes the node another one than all before.
        return i if transparent else self._node(OPAQUE, (i,), len(self.operations))

    def is_constant(self, i: int) -> bool:
        """Whether a node is a known number."""
        return self.operations[i] == CONSTANT

    def is_truth(self, i: int) -> bool:
        """Whether a node is a truth value."""
        if self.is_constant(i):
            return isinstance(self.values[i], bool)
        return self.operations[i] in OPERATIONS and OPERATIONS[self.operations[i]].truth

    @property
    def size(self) -> int:
        """How many nodes there are that may become operations."""
        return len(self.operations) - len(self._guards)

    def _node(self, operation: str, arguments: tuple[int, ...], value: Hashable = None) -> int:
        # By type too: True == 1.0.
        key = (operation, arguments, value, type(value))
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = len(self.operations)
            self.operations.append(operation)
            self.arguments.append(arguments)
            self.values.append(value)
        return node

    def _is(self, i: int, operation: str) -> bool:
        return self.operations[i] == operation

    def _drop(self, i: int) -> int:
        """Zero in place of 0·x."""
        if not self.is_constant(i):
            if self.exact:
                return self._guarded(self.constant(0.0), self._suspects(i))
            self.dropped.add(i)
        elif not np.isfinite(self.values[i]):
            return self.constant(np.nan)
        return self.constant(0.0)

    def _guarded(self, i: int, suspects: int) -> int:
        """A number that is NaN where one of these nodes, which are bits, is not finite."""
        if i in self._guards:
            i, suspects = self.arguments[i][0], self.values[i] | suspects
        if not suspects:
            return i
        node = self._node(GUARDED, (i,), suspects)
        self._guards.add(node)
        return node

    def _suspects(self, i: int) -> int:
        """The nodes, as bits, of which one is not finite where this one is not, if sums and products do not overflow."""
        stack = [i]
        while stack:
            i = stack[-1]
            hands_on = self.operations[i] in _UNBROKEN or self._is(i, GUARDED)
            arguments = self.arguments[i] if hands_on else ()
            missing = [a for a in arguments if a not in self._suspects_of]
            if missing:
                stack.extend(missing)
                continue
            suspects = self.values[i] if self._is(i, GUARDED) else 0
            for a in arguments:
                suspects |= self._suspects_of[a]
            finite = self.is_constant(i) and np.isfinite(self.values[i])
            self._suspects_of[stack.pop()] = suspects if hands_on or finite else self._bit(i)
        return self._suspects_of[i]

    def _bit(self, i: int) -> int:
        """The bit of a node, which has one from now on."""
        return 1 << self._numbered.setdefault(i, len(self._numbered))

    def apply(self, operation: str, *arguments: int) -> int:
        """The node of an operation, simplified."""
        applied = self._applied[operation]
        node = applied.get(arguments)
        if node is None:
            # Guards come out of sums and products, in which zeros are zeros then.
            hoists = operation in _UNBROKEN and not self._guards.isdisjoint(arguments)
            simplified = self._guard_hoisted if hoists else self._simplified
            node = applied[arguments] = simplified(operation, *arguments)
        return node

    def apply_each(self, operation: str, *arguments: Iterable[int]) -> list[int]:
        """The nodes of an operation for each of several arguments, many of which are alike."""
        applied = self._applied[operation]
        return [applied.get(each) or self.apply(operation, *each) for each in zip(*arguments, strict=True)]

    def _guard_hoisted(self, operation: str, *arguments: int) -> int:
        bare = [self.arguments[i][0] if i in self._guards else i for i in arguments]
        suspects = [self.values[i] for i in arguments if i in self._guards]
        return self._guarded(self.apply(operation, *bare), functools.reduce(operator.or_, suspects))

    def _simplified(self, operation: str, *arguments: int) -> int:
        if operation in ("eq", "ne") and self.is_truth(arguments[0]):
            differ = self.apply("xor", *arguments)
            return differ if operation == "ne" else self.apply("not", differ)
        kinds = self.operations
        if kinds[arguments[0]] == CONSTANT and all(kinds[i] == CONSTANT for i in arguments) and operation in OPERATIONS:
            with np.errstate(all="ignore"):
                return self.constant(OPERATIONS[operation].fold(*(np.asarray(self.values[i])[()] for i in arguments)))
        simplify = _SIMPLIFICATIONS.get(operation)
        node = None if simplify is None else simplify(self, *arguments)
        return self._node(operation, arguments) if node is None else node

    # Simplifications, see `_SIMPLIFICATIONS`

    def _number_is(self, i: int, value: float) -> bool:
        return self.is_constant(i) and self.values[i] == value

    def _add(self, x: int, y: int) -> int | None:
        if self._number_is(x, 0.0):
            return y
        if self._number_is(y, 0.0):
            return x
        if self._is(y, "neg"):
            return self.apply("sub", x, self.arguments[y][0])
        if self._is(x, "neg"):
            return self.apply("sub", y, self.arguments[x][0])
        return self._node("add", (min(x, y), max(x, y)))

    def _sub(self, x: int, y: int) -> int | None:
        if x == y:
            return self._drop(x)
        if self._number_is(y, 0.0):
            return x
        if self._number_is(x, 0.0):
            return self.apply("neg", y)
        if self._is(y, "neg"):
            return self.apply("add", x, self.arguments[y][0])
        return None

    def _mul(self, x: int, y: int) -> int | None:
        if self.is_constant(y):
            x, y = y, x
        if self.is_constant(x):
            return self._times(self.values[x], y)
        signless = self._signless("mul", x, y)
        return self._node("mul", (min(x, y), max(x, y))) if signless is None else signless

    def _times(self, value: float, y: int) -> int:
        if value == 0:
            return self._drop(y)
        if value == 1:
            return y
        if value == -1:
            return self.apply("neg", y)
        if self._is(y, "neg"):
            return self._times(-value, self.arguments[y][0])
        return self._node("mul", (self.constant(value), y))

    def _neg(self, x: int) -> int | None:
        if self._is(x, "neg"):
            return self.arguments[x][0]
        if self._is(x, "sub"):
            return self.apply("sub", *self.arguments[x][::-1])
        return None

    def _div(self, x: int, y: int) -> int | None:
        """By a constant as a product, unless its reciprocal is below the smallest normal number, which processors may round to zero."""
        share = 1 / self.values[y] if self.is_constant(y) and self.values[y] else 0.0
        if abs(share) >= np.finfo(np.float32 if self.single else np.float64).tiny:
            return self._times(share, x)
        if self.is_constant(x) and abs(self.values[x]) in (0.0, 1.0):
            return self._times(self.values[x], self.apply("reciprocal", y))
        return self._signless("div", x, y)

    def _sine_or_cosine(self, x: int, which: int) -> int | None:
        if self.library:
            return None
        if x not in self.angles:
            self.angles[x] = sincos(self, x)
        return self.angles[x][which]

    def _signless(self, operation: str, *arguments: int) -> int | None:
        """A product or quotient with the signs of its arguments drawn out; None where there are none."""
        signs = [self._is(i, "neg") for i in arguments]
        if not any(signs):
            return None
        bare = (self.arguments[i][0] if negative else i for i, negative in zip(arguments, signs, strict=True))
        out = self.apply(operation, *bare)
        return self.apply("neg", out) if sum(signs) % 2 else out

    def _without(self, i: int, operation: str) -> int | None:
        """Of what an operation makes its argument; None of anything else."""
        return self.arguments[i][0] if self._is(i, operation) else None

    def _select(self, p: int, x: int, y: int) -> int | None:
        if self.is_constant(p):
            return x if self.values[p] else y
        if x == y:
            return x
        if self._is(p, "not"):
            return self.apply("select", self.arguments[p][0], y, x)
        for i, is_first in ((x, True), (y, False)):
            if self.is_constant(i) and isinstance(self.values[i], bool):
                # where(p, True, y), where(p, False, y), where(p, x, True), where(p, x, False)
                where, other = (p, y) if is_first else (self.apply("not", p), x)
                if self.values[i]:
                    return self.apply("or", where, other)
                return self.apply("and", self.apply("not", where), other)
        if self.is_truth(x):
            return self.apply("or", self.apply("and", p, x), self.apply("and", self.apply("not", p), y))
        return None

    def _lookup(self, i: int, *table: int) -> int | None:
        if self.is_constant(i):
            return table[OPERATIONS["lookup"].fold(self.values[i], *range(len(table)))]
        if len(set(table)) == 1:
            return table[0]
        # All entries must stand in memory, one behind the other; constants stand nowhere until they are stored.
        if any(self.is_constant(x) for x in table):
            return self._node("lookup", (i, *(self._node("stored", (x,), k) for k, x in enumerate(table))))
        return None

    def _of_truths(self, operation: str, x: int, y: int, neutral: bool) -> int:
        if x == y:
            return x
        for i, other in ((x, y), (y, x)):
            if self.is_constant(i):
                return other if self.values[i] is neutral else i
        return self._node(operation, (min(x, y), max(x, y)))

    def _of_order(self, x: int, y: int, neutral: float) -> int | None:
        if x == y:
            return x
        for i, other in ((x, y), (y, x)):
            if self._number_is(i, neutral):
                return other
        return None

    # What a program needs

    def cone(self, ids: Iterable[int], numbers: bool = False) -> list[int]:
        """All nodes on which these depend, arguments first; if only `numbers` count, without predicates of choices and entries of tables."""
        stack, visited = [int(i) for i in ids], set()
        while stack:
            i = stack.pop()
            if i in visited or (numbers and self.is_truth(i)):
                continue
            visited.add(i)
            stack.extend(self.arguments[i][:1] if numbers and self._is(i, "lookup") else self._needed(i))
        return sorted(visited)

    def _needed(self, i: int) -> tuple[int, ...]:
        """A node's arguments, and what it is guarded by."""
        if i not in self._guards:
            return self.arguments[i]
        # Numbered nodes stand in the order of their bits, the lowest first.
        bits = f"{self.values[i]:b}"[::-1]
        return (*self.arguments[i], *(node for node, bit in zip(self._numbered, bits, strict=False) if bit == "1"))

    def lowered(self, ids: Iterable[int]) -> tuple["OperationGraph", dict[int, int]]:
        """A graph that does the same by operations alone, for these nodes, and which of its nodes are which."""
        graph, copies = self, {i: i for i in self.cone([*ids, *self.dropped])}
        # What was opaque may be simplified now, to what is guarded.
        while OPAQUE in graph.operations or GUARDED in graph.operations:
            graph, further = graph._copied([copies[i] for i in ids])
            copies = {i: further[k] for i, k in copies.items() if k in further}
        return graph, copies

    def _copied(self, ids: Sequence[int]) -> tuple["OperationGraph", dict[int, int]]:
        """A graph of what these nodes need, with what was opaque or guarded as operations, and which nodes are which there."""
        out, copies = OperationGraph(self.single, self.exact, self.library), {}
        for i in self.cone([*ids, *self.dropped]):
            operation, arguments = self.operations[i], [copies[a] for a in self.arguments[i]]
            if operation in (CONSTANT, INPUT):
                copies[i] = out._node(operation, (), self.values[i])
            elif operation in (OPAQUE, "stored"):  # a table is stored again where it is looked up
                copies[i] = arguments[0]
            elif operation == GUARDED:
                copies[i] = out.apply("add", arguments[0], out._zero_or_nan(copies[a] for a in self._needed(i)[1:]))
            else:
                copies[i] = out.apply(operation, *arguments)
        out.dropped |= {copies[i] for i in self.dropped if not out.is_constant(copies[i])}
        return out, copies

    def guard(self, dropped: Iterable[int] | None = None) -> int | None:
        """0, or NaN where dropped factors, all or these, are not finite; None if none was dropped.

        A factor is finite if the inputs of which it is made are, and the results of all partial operations on the way. An overflow of
        sums and products is not always seen, nor a known infinity that is chosen and then worked on.
        """
        numbers = self.cone(self.dropped if dropped is None else dropped, numbers=True)
        suspects = [i for i in numbers if self._is(i, INPUT) or self._partial(i)]
        chosen = covering(self, numbers, suspects)
        return self._zero_or_nan(chosen) if chosen else None

    def _zero_or_nan(self, ids: Iterable[int]) -> int:
        """0, or NaN where one of these is not finite."""
        # Not simplified: these very operations must find the NaN.
        zeros = [self._node("zero_or_nan", (i,)) for i in ids]
        return functools.reduce(lambda total, zero: self._node("add", (total, zero)), zeros)

    def _partial(self, i: int) -> bool:
        """Whether a node may be infinite or undefined for finite arguments."""
        operation = OPERATIONS.get(self.operations[i])
        if operation is None or operation.truth:
            return False
        constants = [float(self.values[a]) for a in self.arguments[i] if self.is_constant(a) and not self.is_truth(a)]
        # An infinity that is chosen may well be guarded by another choice: where(x > 0, log(where(x > 0, x, ∞)), 0).
        if self._is(i, "select") and i not in self.dropped:
            return bool(np.any(np.isnan(constants)))
        return operation.partial or not np.all(np.isfinite(constants))


# Of each operation the simplification, if it has one: the arguments' nodes ↦ a node that does the same, or None.
_SIMPLIFICATIONS: dict[str, Callable[..., int | None]] = {
    "add": OperationGraph._add,
    "sub": OperationGraph._sub,
    "mul": OperationGraph._mul,
    "neg": OperationGraph._neg,
    "div": OperationGraph._div,
    "reciprocal": lambda graph, x: graph._signless("reciprocal", x),
    "sin": lambda graph, x: graph._sine_or_cosine(x, 0),
    "cos": lambda graph, x: graph._sine_or_cosine(x, 1),
    "abs": lambda graph, x: graph.apply("abs", graph.arguments[x][0]) if graph._is(x, "neg") else None,
    "select": OperationGraph._select,
    "lookup": OperationGraph._lookup,
    "and": lambda graph, x, y: graph._of_truths("and", x, y, True),
    "or": lambda graph, x, y: graph._of_truths("or", x, y, False),
    "not": lambda graph, x: graph._without(x, "not"),
    "ge": lambda graph, x, y: graph._without(x, "to_number") if graph._number_is(y, 1.0) else None,
    "ne": lambda graph, x, y: graph._without(x, "to_number") if graph._number_is(y, 0.0) else None,
    "max": lambda graph, x, y: graph._of_order(x, y, -np.inf),
    "min": lambda graph, x, y: graph._of_order(x, y, np.inf),
}
