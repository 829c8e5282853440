"""A primitive of our own: the same scalar program over many lanes."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from .code import Code, Shaped, entries, precision
from .elementwise import by_numbers
from .graph import STILL, Graph
from .jaxpr import jaxpr_as_fun, pruned
from .jit import missing, registered
from .module import Lane, Period
from .queue import Operand, Queue
from .scalarise import LARGEST, NotScalarError, scalarise
from .uncompiled import leads, plainly, varying
from .within import Within

Write = Callable[[Graph, list[np.ndarray]], list[np.ndarray]]


# Where a program is being traced its parts need not be programs themselves.
WRITING = Within()


class Program:
    """A function of small arrays, as a scalar program that is differentiated by making programs of its derivatives.

    Args:
        jaxpr: the function, closed.
        linear: the arguments in which it is linear, of a derivative.
        largest: how many operations it may have.
        thorough: whether compiled code was asked for: it is compiled well even if it is large, and on other devices than CPUs made of operations on
            single numbers.
        exact: whether what is not finite spoils those results only that are made of it, where else it may spoil all; of derivatives too.
        brief: whether it is called so seldom that it is rather compiled soon than well.
        write: (graph, nodes of the arguments) ↦ nodes of the results, where this is known better than by the function; see `coded`.

    Raises:
        NotScalarError: if the function cannot be one, with the reason.
    """

    def __init__(
        self,
        jaxpr: Any,
        linear: tuple[int, ...] = (),
        largest: int = LARGEST,
        thorough: bool = False,
        exact: bool = False,
        brief: bool = False,
        write: Write | None = None,
    ):
        self.jaxpr, self.linear, self.thorough, self.exact, self.brief = jaxpr, linear, thorough, exact, brief
        self.numbered = False
        shaped = lambda avals: tuple(Shaped(a.shape, a.dtype) for a in avals)
        self.operands, self.results = shaped(jaxpr.in_avals), shaped(jaxpr.out_avals)
        self.dtype = precision((*self.operands, *self.results))
        if self.dtype is None:
            raise NotScalarError("it has numbers of several precisions")
        write = write or (lambda graph, nodes: scalarise(graph, pruned(jaxpr), nodes, largest))
        self.code = self.coded(*_written(write, self.operands, self.dtype, exact))

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
    ) -> "Program":
        """Of a function of arrays of these shapes, which returns a sequence of arrays."""
        with WRITING:
            jaxpr = jax.make_jaxpr(fn)(*arguments)
        return cls(jaxpr, linear, largest, thorough, exact, brief)

    def coded(self, graph: Graph, leaves: dict[int, tuple[int, int]], nodes: list[int]) -> Code:
        """The code of its results."""
        return Code(graph, leaves, watching(graph, nodes, graph.watched()))

    def __call__(self, *operands: Any) -> list[Array]:
        """The results."""
        return lanes_p.bind(*operands, program=self, lanes=())

    def in_lane(self, own: int, *operands: Any) -> list[Array]:
        """The results by the function that is compiled for several lanes, of which the first operands, so many, are those of one."""
        lane = [jnp.asarray(x)[None] for x in operands[:own]]
        found = lanes_p.bind(*lane, *operands[own:], program=self, lanes=(1,))
        return [x[0] for x in found]

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """The function by itself, as it was given or as the operations of its code."""
        return by_numbers(self.code, self.dtype, self.results) if self.numbered else jaxpr_as_fun(self.jaxpr)

    @property
    def constants(self) -> list[np.ndarray | None]:
        """Results that are the same whatever the arguments; None for the others."""
        out, nodes, graph = [], list(self.code.outputs), self.code.graph
        for shaped in self.results:
            own, nodes = nodes[: entries(shaped.shape)], nodes[entries(shaped.shape) :]
            known = all(graph.is_constant(i) for i in own)
            out.append(np.reshape([graph.values[i] for i in own], shaped.shape).astype(shaped.dtype) if known else None)
        return out

    @functools.cached_property
    def by_numbers(self) -> "Program":
        """The same, whose function are the operations of its code."""
        out = copy.copy(self)
        out.numbered = True
        return out

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        out = Queue(self.dtype, 0, self.operands, self.results, periods, lanes)
        out.write(lambda: out.call(self, [Operand(k) for k in range(len(self.operands))]))
        return out

    @functools.cache  # noqa: B019
    def tangent(self, moving: tuple[bool, ...]) -> "Program | None":
        """(arguments, tangents of those that move) ↦ tangents of the results that are numbers; None if that is no scalar program."""
        shapes, numbers = self.operands, [k for k, s in enumerate(self.results) if _is_number(s)]
        places = [k for k, moves in enumerate(moving) if moves]

        def fn(*given: Array) -> Sequence[Array]:
            primals, tangents = given[: len(shapes)], given[len(shapes) :]
            along = dict(zip(places, tangents, strict=True))
            move = lambda *xs: self.fn(*(dict(zip(places, xs, strict=True)).get(k, x) for k, x in enumerate(primals)))
            moved = jax.jvp(move, tuple(primals[k] for k in places), tuple(along[k] for k in places))[1]
            return [moved[k] for k in numbers]

        arguments = (*shapes, *(shapes[k] for k in places))
        return self._derived(fn, *arguments, linear=tuple(range(len(shapes), len(arguments))))

    @functools.cache  # noqa: B019
    def transposed(self) -> "Program | None":
        """(other arguments, cotangents of the results) ↦ cotangents of the linear arguments; None if that is no scalar program."""
        shapes, linear = self.operands, self.linear
        others = [k for k in range(len(shapes)) if k not in linear]

        def fn(*given: Array) -> Sequence[Array]:
            fixed = dict(zip(others, given[: len(others)], strict=True))
            whole = lambda *xs: self.fn(
                *(({**fixed, **dict(zip(linear, xs, strict=True))})[k] for k in range(len(shapes)))
            )
            return jax.linear_transpose(whole, *(shapes[k] for k in linear))(list(given[len(others) :]))

        arguments = (*(shapes[k] for k in others), *self.results)
        return self._derived(fn, *arguments, linear=tuple(range(len(others), len(arguments))))

    def _derived(
        self, fn: Callable[..., Sequence[Array]], *arguments: Shaped, linear: tuple[int, ...]
    ) -> "Program | None":
        try:
            return Program.of(fn, *arguments, linear=linear, exact=self.exact, brief=self.brief)
        except NotScalarError:
            return None


def watching(graph: Graph, nodes: Sequence[int], watch: int | None) -> tuple[int, ...]:
    """Nodes whose numbers are NaN where a watch is."""
    return tuple(i if watch is None or graph.is_truth(i) else graph.apply("add", i, watch) for i in nodes)


def _written(
    write: Write, operands: Sequence[Shaped], dtype: Any, exact: bool
) -> tuple[Graph, dict[int, tuple[int, int]], list[int]]:
    """The graph of a function, where the numbers stand that it is given, and what it has written."""
    graph, leaves, arguments = Graph(dtype == np.float32, exact), {}, []
    for k, s in enumerate(operands):
        nodes = []
        for entry in range(entries(s.shape)):
            node = graph.input(len(leaves))
            leaves[node] = (k, entry)
            nodes.append(graph.apply("ne", node, graph.constant(0.0)) if np.dtype(s.dtype) == bool else node)
        arguments.append(np.array(nodes, np.int64).reshape(s.shape))
    nodes = [int(i) for x in write(graph, arguments) for i in np.ravel(x)]
    if STILL in graph.operations:
        graph, free = graph.free(nodes)
        nodes, leaves = [free[i] for i in nodes], {free[i]: at for i, at in leaves.items() if i in free}
    return graph, leaves, nodes


# The primitive. Operands may have leading axes: all of `lanes` or the last of them, of which some have length one. Along those, and along
# the others, they are the same; the axes along which they are not follow each other.

lanes_p = core.Primitive("scalar_program")
lanes_p.multiple_results = True


@lanes_p.def_impl
def _run(*operands: Any, **params: Any) -> list[Array]:
    return _jitted(*operands, **params)


@functools.partial(jax.jit, static_argnames=("program", "lanes"))
def _jitted(*operands: Any, program: Any, lanes: tuple[int, ...]) -> list[Array]:
    return lanes_p.bind(*operands, program=program, lanes=lanes)


@lanes_p.def_abstract_eval
def _shapes(*operands: Any, program: Any, lanes: tuple[int, ...]) -> list[Any]:
    return [ShapedArray((*lanes, *s.shape), s.dtype) for s in program.results]


def _by_numbers(*operands: Any, program: Any, lanes: tuple[int, ...]) -> list[Array]:
    """By operations on single numbers where compiled code was asked for, which compilers of other devices fuse; else by the function itself."""
    return plainly(*operands, program=program.by_numbers if program.thorough else program, lanes=lanes)


def _repeated(lead: tuple[int, ...], lanes: tuple[int, ...]) -> tuple[int, int] | None:
    """(d, p) where lane i has the numbers (i // d) mod p of an operand; None where all lanes share them."""
    places = varying(lead, lanes)
    if not places:
        return None
    return entries(lanes[places[-1] + 1 :]), entries([lanes[d] for d in places])


def _natively(context: Any, *operands: Any, program: Any, lanes: tuple[int, ...]) -> Any:
    """By compiled code; what is exported must run elsewhere and is plain."""
    if (
        not entries(lanes)
        or missing() is not None
        or context.module_context.lowering_parameters.for_export
        or len(context.module_context.platforms) > 1
    ):
        return _plain_lowering(context, *operands, program=program, lanes=lanes)
    periods = [_repeated(lead, lanes) for lead in leads(context.avals_in, program)]
    module = program.module(periods, entries(lanes))
    context = context.replace(avals_in=[context.avals_in[k] for k in module.used])
    return jax.ffi.ffi_lowering(registered(module))(context, *(operands[k] for k in module.used))


_plain_lowering = mlir.lower_fun(plainly, multiple_results=True)
mlir.register_lowering(lanes_p, mlir.lower_fun(_by_numbers, multiple_results=True))
mlir.register_lowering(lanes_p, _natively, platform="cpu")


def _batch(operands: Sequence[Any], axes: Sequence[Any], *, program: Any, lanes: tuple[int, ...]) -> Any:
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    out = []
    for x, axis, shaped in zip(operands, axes, program.operands, strict=True):
        if axis is not None:
            x = jnp.moveaxis(x, axis, 0)
            own = len(shaped.shape)
            if x.ndim - own <= len(lanes):  # it lacks lanes that others have
                inner, rest = x.shape[1 : x.ndim - own], x.shape[x.ndim - own :]
                lead = (size, *(1 for _ in range(len(lanes) - len(inner))), *inner)
                x = x.reshape(*lead, *rest)
                along = varying(lead, (size, *lanes))
                if along != list(range(along[0], along[-1] + 1)):
                    x = jnp.broadcast_to(x, (size, *lanes, *rest))
        out.append(x)
    found = lanes_p.bind(*out, program=program, lanes=(size, *lanes))
    return found, [0] * len(found)


batching.primitive_batchers[lanes_p] = _batch


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Any, lanes: tuple[int, ...]) -> Any:
    found = lanes_p.bind(*primals, program=program, lanes=lanes)
    moving = tuple(
        _is_number(s) and not isinstance(t, ad.Zero) for t, s in zip(tangents, program.operands, strict=True)
    )
    if not any(moving) or not any(map(_is_number, found)):
        return found, [_no_tangent(x) for x in found]
    along = [t for t, moves in zip(tangents, moving, strict=True) if moves]
    tangent = program.tangent(moving)
    if tangent is None:
        every = jax.jvp(_in_places(primals, moving, program, lanes), _chosen(primals, moving), tuple(along))[1]
        return found, [t if _is_number(x) else _no_tangent(x) for x, t in zip(found, every, strict=True)]
    moved = iter(lanes_p.bind(*primals, *along, program=tangent, lanes=lanes))
    return found, [next(moved) if _is_number(x) else _no_tangent(x) for x in found]


def _chosen(operands: Sequence[Any], of: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(x for x, own in zip(operands, of, strict=True) if own)


def _in_places(
    operands: Sequence[Any], of: Sequence[bool], program: Any, lanes: tuple[int, ...]
) -> Callable[..., list[Array]]:
    """The function itself over lanes, of some operands, to be differentiated by JAX where its derivative is no scalar program."""

    def fn(*given: Any) -> list[Array]:
        own = iter(given)
        return plainly(
            *(next(own) if chosen else x for x, chosen in zip(operands, of, strict=True)), program=program, lanes=lanes
        )

    return fn


def _is_number(x: Any) -> bool:
    return np.dtype(x.dtype).kind == "f"


def _no_tangent(x: Any) -> Any:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


ad.primitive_jvps[lanes_p] = _jvp


def _transpose(cotangents: Sequence[Any], *operands: Any, program: Program, lanes: tuple[int, ...]) -> Any:
    linear = [k for k, x in enumerate(operands) if ad.is_undefined_primal(x)]
    assert tuple(linear) == program.linear
    others = [k for k in range(len(operands)) if k not in linear]
    given = [
        jnp.zeros((*lanes, *s.shape), s.dtype) if isinstance(ct, ad.Zero) else ct
        for ct, s in zip(cotangents, program.results, strict=True)
    ]
    out: list[Any] = [None] * len(operands)
    transposed = program.transposed()
    if transposed is None:
        of = [k in linear for k in range(len(operands))]
        shapes = (Shaped(operands[k].aval.shape, operands[k].aval.dtype) for k in linear)
        bars = jax.linear_transpose(_in_places(operands, of, program, lanes), *shapes)(given)
        for k, bar in zip(linear, bars, strict=True):
            out[k] = bar
        return out
    found = lanes_p.bind(*(operands[k] for k in others), *given, program=transposed, lanes=lanes)
    for k, bar in zip(linear, found, strict=True):
        lead = operands[k].aval.shape[: operands[k].aval.ndim - len(program.operands[k].shape)]
        ahead = len(lanes) - len(lead)
        summed = jnp.sum(bar, axis=tuple(range(ahead)))
        out[k] = jnp.sum(summed, axis=tuple(d for d, n in enumerate(lead) if n != lanes[ahead + d]), keepdims=True)
    return out


ad.primitive_transposes[lanes_p] = _transpose
