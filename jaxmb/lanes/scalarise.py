"""A function of small arrays, given as a jaxpr, as a scalar program."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from jax.typing import ArrayLike

from .arithmetic import ARITHMETIC, divided, reduced
from .control_flow import CONTROL_FLOW
from .errors import NotScalarError
from .graph import OperationGraph
from .indexing import INDEXING
from .jaxpr import body, is_literal, opened, shaped, traced
from .operations import OPERATIONS
from .uncompiled import over_lanes

# Beyond so many operations, in a function and in a derivative of one, compiling takes long; where it takes the place of what takes longer,
# more are allowed. Fewer where a function is called seldom, so that XLA may as well compile it as a part of its programs.
LARGEST, LARGEST_DERIVATIVE, LARGEST_BRIEF = 25_000, 50_000, 16_000

# Equations that change no numbers.
_SAME = frozenset(
    {
        "copy",
        "copy_p",
        "device_put",
        "stop_gradient",
        "optimization_barrier",
        "unvmap_any",
        "unvmap_all",
        "unvmap_max",
    }
)
# JAX's `round` has two ways of rounding, of which one operation is one.
_ELEMENTWISE = {name: name for name in OPERATIONS if name != "round"} | {"add_any": "add"}
_BITWISE = frozenset({"and", "or", "xor", "not"})
_ORDERED = frozenset({"max", "min", "gt", "lt", "ge", "le"})
_REDUCTIONS: dict[str, tuple[str, float | bool]] = {
    "reduce_sum": ("add", 0.0),
    "reduce_prod": ("mul", 1.0),
    "reduce_max": ("max", -np.inf),
    "reduce_min": ("min", np.inf),
    "reduce_or": ("or", False),
    "reduce_and": ("and", True),
}
# An equation of JAX, as operations on the nodes of its operands: (reader, equation, its parameters, operands) ↦ result, or results.
EQUATIONS: dict[str, Callable[..., "np.ndarray | Sequence[Value]"]] = ARITHMETIC | INDEXING | CONTROL_FLOW


class ArrayReference:
    """An array that is not made of nodes, such as one that stays where it is in memory."""


Value = np.ndarray | ArrayReference


def scalarise(
    graph: OperationGraph, jaxpr: ClosedJaxpr, arguments: Sequence[np.ndarray], largest: int = LARGEST
) -> list[np.ndarray]:
    """Adds a closed jaxpr to a graph of at most so many operations: arrays of nodes for its results from those for its arguments.

    Raises:
        NotScalarError: with the reason.
    """
    reader = Reader(graph, largest)
    return [reader.nodes(x) for x in reader.closed(jaxpr, arguments)]


class Reader:
    """Goes through the equations; arrays are arrays of nodes, those of known numbers included."""

    def __init__(self, graph: OperationGraph, largest: int):
        self.graph, self.largest = graph, largest

    def closed(self, jaxpr: ClosedJaxpr | Jaxpr, arguments: Sequence[Value]) -> list[Value]:
        """Nodes of the results of a closed jaxpr, or of one without constants."""
        program, constants = opened(jaxpr)
        values: dict[Var, Value] = {}
        read = lambda v: self.lifted(v.val) if is_literal(v) else values[v]
        for v, c in zip(program.constvars, constants, strict=True):
            values[v] = self.lifted(c)
        values.update(zip(program.invars, map(self.array, arguments), strict=True))
        for equation in program.eqns:
            self.measure()
            out = self.equation(equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, map(self.array, out), strict=True))
        return [read(v) for v in program.outvars]

    def array(self, x: Value) -> Value:
        """What goes from one equation to the next: arrays, not NumPy's scalars."""
        return np.asarray(x)

    def nodes(self, x: Value) -> np.ndarray:
        """An array as nodes."""
        assert isinstance(x, np.ndarray)
        return x

    def measure(self) -> None:
        """There may not be too many operations."""
        if self.graph.size > self.largest:
            raise NotScalarError(f"it has more than {self.largest:,} operations")

    # Nodes and numbers

    def lifted(self, x: ArrayLike) -> np.ndarray:
        """Known numbers as nodes."""
        if isinstance(x, Tracer):
            raise NotScalarError("it closes over an array that is not known when it is traced")
        x = np.asarray(x)
        if x.dtype.kind not in "fiub":
            raise NotScalarError(f"it has an array of type {x.dtype}")
        return np.array([self.graph.constant(v) for v in x.ravel().tolist()], np.int64).reshape(x.shape)

    def constants(self, x: np.ndarray) -> np.ndarray | None:
        """The numbers of nodes, None if there is one that is no constant."""
        graph, nodes = self.graph, x.ravel().tolist()
        if not all(graph.is_constant(i) for i in nodes):
            return None
        return np.array([graph.values[i] for i in nodes]).reshape(x.shape)

    def indices(self, x: np.ndarray, primitive: str) -> np.ndarray:
        """Constant whole numbers."""
        constants = self.constants(x)
        if constants is None:
            raise NotScalarError(f"`{primitive}` has places that depend on the state")
        return constants.astype(np.int64)

    def each(self, operation: str, *operands: np.ndarray | np.integer | int) -> np.ndarray:
        """An operation on each entry."""
        alike = len({np.shape(x) for x in operands}) == 1
        parts = list(map(np.asarray, operands)) if alike else np.broadcast_arrays(*operands)
        flat = self.graph.apply_each(operation, *(p.ravel().tolist() for p in parts))
        return np.array(flat, np.int64).reshape(parts[0].shape)

    def select(self, predicate: int, yes: Sequence[np.ndarray], no: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Where a predicate holds these, else those."""
        return [self.each("select", predicate, a, b) for a, b in zip(yes, no, strict=True)]

    # Equations

    def equation(self, equation: JaxprEqn, ins: Sequence[Value]) -> Sequence[Value]:
        """The results of an equation.

        Raises:
            NotScalarError: if it cannot be one of scalars.
        """
        name, p = equation.primitive.name, equation.params
        if name in _ELEMENTWISE:
            return [self._elementwise(equation, [self.nodes(x) for x in ins])]
        if name in _SAME:
            return ins
        if name == "scalar_program" and not p["lanes"]:
            return p["program"].inlined(self, ins)
        inner = _program_in_place(equation)
        if inner is not None:
            return self.closed(inner, ins)
        if name in _REDUCTIONS:
            return [reduced(self, *_REDUCTIONS[name], self.nodes(ins[0]), [int(axis) for axis in p["axes"]])]
        rule = EQUATIONS.get(name)
        if rule is None:
            raise NotScalarError(f"it uses `{name}`")
        try:
            out = rule(self, equation, p, *ins)
        # Another version of JAX may have parameters of other names and kinds.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise NotScalarError(f"it uses `{name}` in a way that is not understood: {error}") from error
        return [out] if isinstance(out, np.ndarray) else out

    def _elementwise(self, equation: JaxprEqn, ins: Sequence[np.ndarray]) -> np.ndarray:
        """An operation on each entry, if its entries are of a kind that nodes stand for."""
        name, kind = equation.primitive.name, shaped(equation.invars[0]).dtype.kind
        # Nodes are floating-point numbers or truth values: bits of whole numbers have no operations, nor has an order of truth values.
        if name in _BITWISE and kind != "b":
            raise NotScalarError(f"`{name}` of whole numbers")
        if name in _ORDERED and kind == "b":
            raise NotScalarError(f"`{name}` of truth values")
        if name in ("div", "rem") and not jax.numpy.issubdtype(shaped(equation.outvars[0]).dtype, np.floating):
            return divided(self, name, *ins)
        return self.each(_ELEMENTWISE[name], *ins)


def _program_in_place(equation: JaxprEqn) -> ClosedJaxpr | Jaxpr | None:
    """The program that an equation calls, also that of a scalar program over lanes; None if there is none."""
    if equation.primitive.name != "scalar_program":
        return body(equation)
    program, lanes = equation.params["program"], equation.params["lanes"]
    return traced(over_lanes(program.fn, program.operands, lanes), *map(shaped, equation.invars))
