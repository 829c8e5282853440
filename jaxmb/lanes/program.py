"""A primitive of our own: the same scalar program over many lanes."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core
from jax.extend.core import ClosedJaxpr
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike
from jaxtyping import Array

from .code import Code, Shaped, Subprogram, entries, precision
from .elementwise import by_numbers
from .errors import NotScalarError
from .graph import OperationGraph
from .jaxpr import contains, equations, jaxpr_as_fun, pruned, traced
from .jit import missing, registered
from .module import LaneLoop
from .queue import Operand, Queue
from .scalarise import LARGEST, LARGEST_BRIEF, LARGEST_DERIVATIVE, Reader, Value, scalarise
from .transpose import transposed
from .uncompiled import of_some, over_lanes, with_lanes
from .within import Within

if TYPE_CHECKING:
    from .loops import LoopProgram

Write = Callable[[OperationGraph, list[np.ndarray]], list[np.ndarray]]


# Where a program is being traced its parts need not be programs themselves.
WRITING = Within()


class Program:
    """A function of small arrays, as a scalar program that is differentiated by making programs of its derivatives.

    Args:
        jaxpr: the function, closed.
        linear: the arguments in which it is linear, of a derivative.
        largest: how many operations it may have.
        thorough: whether compiled code was requested: it is compiled well even if it is large, and on other devices than CPUs made of operations on
            single numbers.
        exact: whether a number that is not finite spoils those results only that depend on it, where else it may spoil all; of derivatives too.
        brief: whether it is called so seldom that it is rather compiled soon than well.
        library: whether sine and cosine stay functions of the C library: less code, and not of vectors.

    Raises:
        NotScalarError: if the function cannot be one, with the reason.
    """

    linear: tuple[int, ...] = ()
    thorough, exact, brief = False, False, False

    def __init__(
        self,
        jaxpr: ClosedJaxpr,
        linear: tuple[int, ...] = (),
        largest: int = LARGEST,
        thorough: bool = False,
        exact: bool = False,
        brief: bool = False,
        library: bool = False,
    ):
        self.jaxpr, self.linear, self.thorough, self.exact, self.brief = jaxpr, linear, thorough, exact, brief
        self.operands, self.results = shapes_of(jaxpr.in_avals), shapes_of(jaxpr.out_avals)
        self.code = self.code_of(lambda graph, nodes: scalarise(graph, pruned(jaxpr), nodes, largest), library)

    @classmethod
    def of(
        cls,
        fn: Callable[..., Sequence[Array]],
        *arguments: Shaped,
        linear: tuple[int, ...] = (),
        largest: int = LARGEST,
        thorough: bool = False,
        exact: bool = False,
        brief: bool = False,
        library: bool = False,
    ) -> "Program":
        """Of a function of arrays of these shapes, which returns a sequence of arrays."""
        with WRITING:
            jaxpr = traced(fn, *arguments)
        return cls(jaxpr, linear, largest=largest, thorough=thorough, exact=exact, brief=brief, library=library)

    @classmethod
    def callee(cls, fn: Callable[..., Sequence[Array]], *arguments: Shaped) -> "Program | None":
        """Of a function that stands in programs of XLA's, which call it in place of compiling it each time; None if it cannot be one, or is large."""
        try:
            return cls.of(fn, *arguments, largest=LARGEST_BRIEF, exact=True, brief=True)
        except NotScalarError:
            return None

    def code_of(self, write: Write, library: bool = False) -> Code:
        """Its code, of the nodes of the results that are written into a graph.

        Args:
            write: (graph, nodes of the arguments) ↦ nodes of the results; see `coded`.
            library: see the class.
        """
        dtype = precision((*self.operands, *self.results))
        if dtype is None:
            raise NotScalarError("it has numbers of several precisions")
        self.dtype, graph = dtype, OperationGraph(dtype == np.float32, self.exact, library)
        code = self.coded(*_graph_of(write, self.operands, graph))
        code.graph.close()
        return code

    def coded(self, graph: OperationGraph, leaves: dict[int, tuple[int, int]], nodes: list[int]) -> Code:
        """The code of its results."""
        return Code(graph, leaves, guarded(graph, nodes, graph.guard()))

    def __call__(self, *operands: ArrayLike) -> list[Array]:
        """The results."""
        return lanes_p.bind(*operands, program=self, lanes=())

    def in_lane(self, own: int, *operands: ArrayLike) -> list[Array]:
        """The results by the function that is compiled for several lanes, of which the first operands, so many, are those of one."""
        lane = [jnp.asarray(x)[None] for x in operands[:own]]
        results = lanes_p.bind(*lane, *operands[own:], program=self, lanes=(1,))
        return [x[0] for x in results]

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """The function by itself."""
        return jaxpr_as_fun(self.jaxpr)

    @property
    def by_numbers(self) -> Callable[..., list[Array]]:
        """The same, by the operations of its code."""
        return by_numbers(self.code, self.dtype, self.results)

    @property
    def constants(self) -> list[np.ndarray | None]:
        """Results that are the same whatever the arguments; None for the others."""
        out, nodes, graph = [], list(self.code.outputs), self.code.graph
        for shaped in self.results:
            own, nodes = nodes[: entries(shaped.shape)], nodes[entries(shaped.shape) :]
            constant = all(graph.is_constant(i) for i in own)
            values = [graph.values[i] for i in own] if constant else []
            out.append(np.reshape(values, shaped.shape).astype(shaped.dtype) if constant else None)
        return out

    def inlined(self, reader: Reader, operands: Sequence[Value]) -> list[Value]:
        """The results, written into another program in place of a call."""
        return reader.closed(self.jaxpr, operands)

    def module(self, per_lane: Sequence[bool], lanes: int) -> LaneLoop:
        """What is compiled for so many lanes, in which operands differ or not."""
        out = Queue(
            dtype=self.dtype, own=0, operands=self.operands, results=self.results, per_lane=per_lane, lanes=lanes
        )
        out.write(lambda: out.call(self, [Operand(k) for k in range(len(self.operands))]))
        return out

    def reads(self, operand: int) -> bool:
        """Whether its results depend on an operand."""
        return operand in self._reads

    @functools.cached_property
    def _reads(self) -> frozenset[int]:
        return frozenset(operand for operand, _ in self.code.inputs)

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def tangent(self, moving: tuple[bool, ...]) -> "Program | None":
        """(arguments, tangents of those that move) ↦ tangents of the results that are numbers; None if that is no scalar program."""
        shapes, numbers = self.operands, [k for k, s in enumerate(self.results) if is_number(s)]
        indices = [k for k, moves in enumerate(moving) if moves]

        def fn(*operands: Array) -> Sequence[Array]:
            primals, tangents = operands[: len(shapes)], operands[len(shapes) :]
            move = of_some(self.fn, dict(enumerate(primals)), indices)
            changes = jax.jvp(move, tuple(primals[k] for k in indices), tuple(tangents))[1]
            return [changes[k] for k in numbers]

        arguments = (*shapes, *(shapes[k] for k in indices))
        linear = tuple(range(len(shapes), len(arguments)))
        try:
            return Program.of(
                fn, *arguments, linear=linear, largest=LARGEST_DERIVATIVE, exact=self.exact, brief=self.brief
            )
        except NotScalarError:
            return None

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def transposed(self) -> "TransposedProgram | None":
        """(other arguments, cotangents of the results) ↦ cotangents of the linear arguments; None if that is no scalar program."""
        try:
            return TransposedProgram(self)
        except NotScalarError:
            return None


class TransposedProgram(Program):
    """(other arguments, cotangents of the results) ↦ cotangents of the arguments in which a program is linear."""

    def __init__(self, program: Program):
        self.of_linear, linear = program, program.linear
        others = [k for k in range(len(program.operands)) if k not in linear]
        self.others, self.linear = others, tuple(range(len(others), len(others) + len(program.results)))
        self.exact, self.brief = program.exact, program.brief
        self.operands = (*(program.operands[k] for k in others), *program.results)
        self.results = tuple(program.operands[k] for k in linear)

        def write(graph: OperationGraph, nodes: list[np.ndarray]) -> list[np.ndarray]:
            # A branch that is not taken may have no derivative: JAX goes back over none but the other, operations over both.
            if contains(program.jaxpr, "cond"):
                return scalarise(graph, pruned(self.jaxpr), nodes, LARGEST_DERIVATIVE)
            fixed = {k: _numbers(graph, x) for k, x in zip(others, nodes, strict=False)}
            bars = [int(i) for x in nodes[len(others) :] for i in np.ravel(x)]
            shares = transposed(graph, program.code, linear, fixed, bars, LARGEST_DERIVATIVE)
            zero = graph.constant(0.0)
            own = [(k, s, entries(s.shape)) for k, s in zip(linear, self.results, strict=True)]
            return [
                np.array([shares.get((k, e), zero) for e in range(n)], np.int64).reshape(s.shape) for k, s, n in own
            ]

        self.code = self.code_of(write)

    @functools.cached_property
    def jaxpr(self) -> ClosedJaxpr:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As JAX transposes the function, which takes longer: where it is not compiled."""
        program, others, linear = self.of_linear, self.others, self.of_linear.linear

        def back(*operands: Array) -> list[Array]:
            of_linear = of_some(program.fn, dict(zip(others, operands, strict=False)), linear)
            cotangents = list(operands[len(others) :])
            return list(jax.linear_transpose(of_linear, *(program.operands[k] for k in linear))(cotangents))

        with WRITING:
            return traced(back, *self.operands)


def _numbers(graph: OperationGraph, nodes: np.ndarray) -> np.ndarray:
    """The nodes of an operand as numbers, as code reads them: truth values as 1 and 0."""
    of = lambda i: graph.apply("to_number", i) if graph.is_truth(i) else i
    return np.array([of(int(i)) for i in nodes.ravel()], np.int64).reshape(nodes.shape)


def shapes_of(avals: Sequence[ShapedArray]) -> tuple[Shaped, ...]:
    """Shapes and types alone."""
    return tuple(Shaped(a.shape, a.dtype) for a in avals)


def guarded(graph: OperationGraph, nodes: Sequence[int], guard: int | None) -> tuple[int, ...]:
    """Nodes whose numbers are NaN where a guard is."""
    return tuple(i if guard is None or graph.is_truth(i) else graph.apply("add", i, guard) for i in nodes)


def _graph_of(
    write: Write, operands: Sequence[Shaped], graph: OperationGraph
) -> tuple[OperationGraph, dict[int, tuple[int, int]], list[int]]:
    """The graph of a function, the nodes of its operands' entries, and those of its results."""
    leaves, arguments = {}, []
    for k, s in enumerate(operands):
        nodes = []
        for entry in range(entries(s.shape)):
            node = graph.input(len(leaves))
            leaves[node] = (k, entry)
            nodes.append(graph.apply("ne", node, graph.constant(0.0)) if np.dtype(s.dtype) == bool else node)
        arguments.append(np.array(nodes, np.int64).reshape(s.shape))
    nodes = [int(i) for x in write(graph, arguments) for i in np.ravel(x)]
    graph, copies = graph.lowered(nodes)
    return graph, {copies[i]: leaf for i, leaf in leaves.items() if i in copies}, [copies[i] for i in nodes]


def length(fn: Callable[..., Sequence[Array]], *arguments: Shaped) -> int:
    """Of how many equations a function of arrays of these shapes consists, whatever sizes they have: what XLA compiles."""
    with WRITING:
        return sum(1 for _ in equations(traced(fn, *arguments)))


# The primitive. An operand has all axes of `lanes`, or none of them where all lanes share it.

lanes_p = core.Primitive("scalar_program")
lanes_p.multiple_results = True


@lanes_p.def_impl
def _run(*operands: ArrayLike, program: "Program | LoopProgram", lanes: tuple[int, ...]) -> list[Array]:
    # One operation, also where a user has switched `jit` off: what is compiled is the primitive itself.
    with jax.disable_jit(False):
        return _jitted(*operands, program=program, lanes=lanes)


@functools.partial(jax.jit, static_argnames=("program", "lanes"))
def _jitted(*operands: ArrayLike, program: "Program | LoopProgram", lanes: tuple[int, ...]) -> list[Array]:
    return lanes_p.bind(*operands, program=program, lanes=lanes)


@lanes_p.def_abstract_eval
def _shapes(
    *operands: ShapedArray, program: "Program | LoopProgram | Subprogram", lanes: tuple[int, ...]
) -> list[ShapedArray]:
    return [ShapedArray((*lanes, *s.shape), s.dtype) for s in program.results]


def uncompiled(*operands: Array | np.ndarray, program: "Program | LoopProgram", lanes: tuple[int, ...]) -> list[Array]:
    """By the function itself."""
    return over_lanes(program.fn, program.operands, lanes)(*operands)


def _elsewhere(*operands: Array | np.ndarray, program: "Program | LoopProgram", lanes: tuple[int, ...]) -> list[Array]:
    """By operations on single numbers where compiled code was requested, which compilers of other devices fuse; else by the function itself."""
    return over_lanes(program.by_numbers if program.thorough else program.fn, program.operands, lanes)(*operands)


def _compiled_lowering(
    context: mlir.LoweringRuleContext, *operands: object, program: "Program | LoopProgram", lanes: tuple[int, ...]
) -> Sequence[Any]:
    """By compiled code; what is exported must run elsewhere and is left to XLA."""
    if (
        not entries(lanes)
        or missing() is not None
        or context.module_context.lowering_parameters.for_export
        or len(context.module_context.platforms) > 1
    ):
        return _uncompiled_lowering(context, *operands, program=program, lanes=lanes)
    avals = cast(Sequence[ShapedArray], context.avals_in)
    per_lane = [x.ndim > len(s.shape) for x, s in zip(avals, program.operands, strict=True)]
    module = program.module(per_lane, entries(lanes))
    context = context.replace(avals_in=[context.avals_in[k] for k in module.used])
    # Older versions of JAX return what is a sequence by its methods only.
    return list(jax.ffi.ffi_lowering(registered(module))(context, *(operands[k] for k in module.used)))


_uncompiled_lowering = mlir.lower_fun(uncompiled, multiple_results=True)
mlir.register_lowering(lanes_p, mlir.lower_fun(_elsewhere, multiple_results=True))
mlir.register_lowering(lanes_p, _compiled_lowering, platform="cpu")


def _batch(
    operands: Sequence[ArrayLike],
    axes: Sequence[int | None],
    *,
    program: "Program | LoopProgram",
    lanes: tuple[int, ...],
) -> tuple[list[Array], list[int]]:
    size = next(jnp.shape(x)[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    more = (size, *lanes)
    out = [with_lanes(x, axis, s, more) for x, axis, s in zip(operands, axes, program.operands, strict=True)]
    results = lanes_p.bind(*out, program=program, lanes=more)
    return results, [0] * len(results)


batching.primitive_batchers[lanes_p] = _batch


def _jvp(
    primals: Sequence[ArrayLike],
    tangents: Sequence[ArrayLike | ad.Zero],
    *,
    program: "Program | LoopProgram",
    lanes: tuple[int, ...],
) -> tuple[list[Array], list[ArrayLike | ad.Zero]]:
    results = lanes_p.bind(*primals, program=program, lanes=lanes)
    # A program of its own for each set of operands that move: those on which nothing depends, such as the time, make none.
    moving = tuple(
        is_number(s) and not isinstance(t, ad.Zero) and program.reads(k)
        for k, (t, s) in enumerate(zip(tangents, program.operands, strict=True))
    )
    if not any(moving) or not any(map(is_number, results)):
        return results, [_no_tangent(x) for x in results]
    which = [k for k, moves in enumerate(moving) if moves]
    directions = [tangents[k] for k in which]
    tangent = program.tangent(moving)
    if tangent is None:  # by JAX
        fn = functools.partial(uncompiled, program=program, lanes=lanes)
        move = of_some(fn, dict(enumerate(primals)), which)
        every = jax.jvp(move, tuple(primals[k] for k in which), tuple(directions))[1]
        return results, [t if is_number(x) else _no_tangent(x) for x, t in zip(results, every, strict=True)]
    changes = iter(_without_zeros(lanes_p.bind(*primals, *directions, program=tangent, lanes=lanes), tangent))
    return results, [next(changes) if is_number(x) else _no_tangent(x) for x in results]


def _without_zeros(results: Sequence[Array], program: Program) -> list[Array | ad.Zero]:
    """Results, without those that are zero whatever the arguments."""
    zero = (k is not None and not np.any(k) for k in program.constants)
    return [_no_tangent(x) if is_zero else x for x, is_zero in zip(results, zero, strict=True)]


def is_number(x: Array | Shaped) -> bool:
    """Whether it is of floating-point numbers, which have derivatives."""
    return np.dtype(x.dtype).kind == "f"


def _no_tangent(x: Array) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


ad.primitive_jvps[lanes_p] = _jvp


def _transpose(
    cotangents: Sequence[ArrayLike | ad.Zero],
    *operands: ArrayLike | ad.UndefinedPrimal,
    program: Program,
    lanes: tuple[int, ...],
) -> list[ArrayLike | None]:
    avals = {k: cast(ShapedArray, x.aval) for k, x in enumerate(operands) if isinstance(x, ad.UndefinedPrimal)}
    linear = list(avals)
    assert tuple(linear) == program.linear
    others = [k for k in range(len(operands)) if k not in linear]
    bars = [
        jnp.zeros((*lanes, *s.shape), s.dtype) if isinstance(ct, ad.Zero) else ct
        for ct, s in zip(cotangents, program.results, strict=True)
    ]
    out: list[ArrayLike | None] = [None] * len(operands)
    back = program.transposed()
    if back is None:  # by JAX
        shapes = (Shaped(avals[k].shape, avals[k].dtype) for k in linear)
        fn = functools.partial(uncompiled, program=program, lanes=lanes)
        shares = jax.linear_transpose(of_some(fn, {k: operands[k] for k in others}, linear), *shapes)(bars)
        for k, share in zip(linear, shares, strict=True):
            out[k] = share
        return out
    shares = lanes_p.bind(*(operands[k] for k in others), *bars, program=back, lanes=lanes)
    for k, share in zip(linear, shares, strict=True):
        # What lanes share gets the cotangents of all of them.
        out[k] = jnp.sum(share, axis=tuple(range(share.ndim - avals[k].ndim)))
    return out


ad.primitive_transposes[lanes_p] = _transpose
