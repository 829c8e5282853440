"""Fallbacks that are compiled when they are first needed.

Code that a program rarely needs may be most of what is compiled for it. On a CPU such code becomes a call of the host, which does nothing
unless some row of a batch needs it; then the fallback is traced, compiled and run there.
"""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool, PyTree

from ..foundations import FEWEST, PART, Blank, default_float, quickest_options, shapes_of, where_needed
from ..lanes import Shaped, Within, entries, latest, missing, of_some, over_lanes, registered, with_lanes
from .host import handler, has_own_cpu, own_cpu

# What names stand for, so that no two have one.
_REGISTERED: dict[str, Any] = {}
# So many rows are worked on one by one.
ONE_BY_ONE = 2


# Fallbacks within a fallback are part of it.
_WITHIN = Within()


@dataclasses.dataclass(frozen=True)
class Fallback:
    """A function of arrays that is traced when it is needed.

    Attributes:
        fn: the function.
        blank: its arguments without their arrays; None where they are nothing else.
        operands: shapes and types of these.
        results: shapes and types of the arrays that it returns.
        wide: whether JAX has numbers of double precision.
    """

    fn: Callable[..., Any]
    blank: Blank | None
    operands: tuple[Shaped, ...]
    results: tuple[Shaped, ...]
    wide: bool

    def run(self, *arrays: Array) -> list[Array]:
        """The arrays that the function returns."""
        arguments = arrays if self.blank is None else self.blank.filled(arrays)
        results = [x for x in jax.tree.leaves(self.fn(*arguments)) if eqx.is_array(x)]
        shapes, expected = shapes_of(results), self.results
        if [(s.shape, s.dtype) for s in shapes] != [(s.shape, s.dtype) for s in expected]:
            raise TypeError(f"A fallback must return arrays {expected}, but returns {shapes}.")
        return results

    @property
    def name(self) -> str:
        """A name that programs of other processes have too, if these do the same, so that JAX may keep what it compiles."""
        # Addresses differ from process to process.
        words = re.sub("0x[0-9a-f]+", "", repr(self))
        return "jaxmb_" + hashlib.sha256(words.encode()).hexdigest()[:32]


def defers() -> bool:
    """Whether fallbacks are compiled when they are first needed, and are no part of the program."""
    return not _WITHIN and jax.default_backend() == "cpu" and missing() is None and has_own_cpu()


def with_fallback(
    needed: Bool[Array, ""], fn: Callable[..., Any], arguments: tuple[object, ...], otherwise: PyTree
) -> Any:
    """`fn(*arguments)` where `needed`, else `otherwise`, as `where_needed`; on a CPU the function is not traced before it is needed.

    There it runs by itself: `needed` must be rare. What it raises is an error of the program.

    Args:
        needed: whether `fn` is to be evaluated.
        fn: a hashable function without arrays of its own.
        arguments: a tuple of its arguments; all arrays that it uses.
        otherwise: a result of the same structure.
    """
    blank, arrays = Blank.of(arguments)
    # What cannot be hashed has no name by which XLA could find it again.
    if not defers() or not blank.hashable:
        return where_needed(needed, fn, arguments, otherwise)
    others, rest = eqx.partition(otherwise, eqx.is_array)
    leaves, structure = jax.tree.flatten(others)
    work = Fallback(fn, blank, shapes_of(arrays), shapes_of(leaves), default_float() == np.float64)
    results = fallback_p.bind(needed, *arrays, *leaves, work=work, lanes=())
    return eqx.combine(jax.tree.unflatten(structure, results), rest)


# The primitive: whether, the arguments' arrays, those of the other result. An operand has all axes of `lanes`, or none of them.

fallback_p = core.Primitive("fallback")
fallback_p.multiple_results = True


@fallback_p.def_impl
def _run(*operands: Array, **params: object) -> list[Array]:
    # One operation, also where a user has switched `jit` off: what is compiled is the primitive itself.
    with jax.disable_jit(False):
        return _jitted(*operands, **params)


@functools.partial(jax.jit, static_argnames=("work", "lanes"))
def _jitted(*operands: Array, work: Fallback, lanes: tuple[int, ...]) -> list[Array]:
    return fallback_p.bind(*operands, work=work, lanes=lanes)


@fallback_p.def_abstract_eval
def _shapes(*operands: ShapedArray, work: Fallback, lanes: tuple[int, ...]) -> list[Any]:
    return [ShapedArray((*lanes, *s.shape), s.dtype) for s in work.results]


def _batch(operands: Sequence[Any], axes: Sequence[Any], *, work: Fallback, lanes: tuple[int, ...]) -> Any:
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    out, more = [], (size, *lanes)
    for k, (x, axis, shaped) in enumerate(zip(operands, axes, _row_shapes(work), strict=True)):
        x = with_lanes(x, axis, shaped, more)
        # Flags and results are there for each row, as the call writes rows in place; arguments that all rows share are not copied.
        shares = 0 < k <= len(work.operands)
        out.append(x if shares else jnp.broadcast_to(x, (*more, *shaped.shape)))
    results = fallback_p.bind(*out, work=work, lanes=more)
    return results, [0] * len(results)


def _row_shapes(work: Fallback) -> tuple[Shaped, ...]:
    """Shapes and types of the operands of one row: the flag, the arguments, the other results."""
    return (Shaped((), jnp.bool_), *work.operands, *work.results)


def _inline(*operands: Array, work: Fallback, lanes: tuple[int, ...]) -> list[Array]:
    """The fallback as a part of the program, without a call of the host."""
    count = len(work.operands)

    def one(needed: Array, *arrays: Array) -> list[Array]:
        return where_needed(needed, work.run, arrays[:count], list(arrays[count:]))

    return over_lanes(one, _row_shapes(work), lanes)(*operands)


@dataclasses.dataclass(frozen=True)
class _Transpose:
    """Cotangents of the arguments in which a fallback is linear, from those of its results.

    Attributes:
        work: the fallback.
        linear: in which of its arguments it is.
    """

    work: Fallback
    linear: tuple[int, ...]

    def __call__(self, *operands: Array) -> list[Array]:
        others = [k for k in range(len(self.work.operands)) if k not in self.linear]
        fn = of_some(self.work.run, dict(zip(others, operands, strict=False)), self.linear)
        shapes = (self.work.operands[k] for k in self.linear)
        return list(jax.linear_transpose(fn, *shapes)(list(operands[len(others) :])))


@dataclasses.dataclass(frozen=True)
class _Tangent:
    """The tangents of a fallback's results of real numbers, along those of some of its arguments.

    Attributes:
        work: the fallback.
        moving: which of its arguments have a tangent.
    """

    work: Fallback
    moving: tuple[int, ...]

    def __call__(self, *operands: Array) -> list[Array]:
        count = len(self.work.operands)
        real = lambda *arguments: [x for x in self.work.run(*arguments) if eqx.is_inexact_array(x)]
        fn = of_some(real, dict(enumerate(operands[:count])), self.moving)
        return jax.jvp(fn, [operands[k] for k in self.moving], list(operands[count:]))[1]


def _tangents(
    primals: Sequence[Any], tangents: Sequence[Any], *, work: Fallback, lanes: tuple[int, ...]
) -> tuple[list[Any], list[Any]]:
    """A fallback for the tangents too, beside the other results' where it was not needed."""
    results = fallback_p.bind(*primals, work=work, lanes=lanes)
    first = 1 + len(work.operands)
    moving = tuple(k for k, dot in enumerate(tangents[1:first]) if not isinstance(dot, ad.Zero))
    real = [k for k, s in enumerate(work.results) if jnp.issubdtype(s.dtype, jnp.inexact)]
    dots = [tangents[1 + k] for k in moving]
    idle = [ad.instantiate_zeros(tangents[first + k]) for k in real]
    tangent = Fallback(
        _Tangent(work, moving),
        None,
        (*work.operands, *(work.operands[k] for k in moving)),
        tuple(work.results[k] for k in real),
        work.wide,
    )
    out = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]  # whole numbers have no tangent
    bound = fallback_p.bind(*primals[:first], *dots, *idle, work=tangent, lanes=lanes)
    for k, dot in zip(real, bound, strict=True):
        out[k] = dot
    return results, out


def _transpose(bars: Sequence[Any], *operands: PyTree, work: Fallback, lanes: tuple[int, ...]) -> list[Any]:
    """Of tangents: `with_fallback` of the cotangents, and the other results' where it was not needed."""
    first, needed = 1 + len(work.operands), jnp.asarray(operands[0])
    linear = tuple(k for k, x in enumerate(operands[1:first]) if ad.is_undefined_primal(x))
    others = [k for k in range(len(work.operands)) if k not in linear]
    zeros = lambda shapes: [jnp.zeros((*lanes, *s.shape), s.dtype) for s in shapes]
    filled = [z if isinstance(b, ad.Zero) else b for b, z in zip(bars, zeros(work.results), strict=True)]
    transpose = Fallback(
        _Transpose(work, linear),
        None,
        (*(work.operands[k] for k in others), *work.results),
        tuple(work.operands[k] for k in linear),
        work.wide,
    )
    constant = (operands[1 + k] for k in others)
    cotangents = fallback_p.bind(needed, *constant, *filled, *zeros(transpose.results), work=transpose, lanes=lanes)
    out: list[Any] = [None] * len(operands)
    for k, bar in zip(linear, cotangents, strict=True):
        # An argument that all rows share gets the sum of their cotangents.
        shared = operands[1 + k].aval.ndim != bar.ndim
        out[1 + k] = jnp.sum(bar, axis=tuple(range(len(lanes)))) if shared else bar
    for k, bar in enumerate(filled, first):
        if ad.is_undefined_primal(operands[k]):
            mask = needed.reshape(*lanes, *(1 for _ in bar.shape[len(lanes) :]))
            # Where the fallback was needed the other result took no part.
            out[k] = jnp.where(mask, 0, bar)
    return out


ad.primitive_jvps[fallback_p] = _tangents
ad.primitive_transposes[fallback_p] = _transpose
_inline_lowering = mlir.lower_fun(_inline, multiple_results=True)
mlir.register_lowering(fallback_p, _inline_lowering)
batching.primitive_batchers[fallback_p] = _batch


@functools.partial(mlir.register_lowering, fallback_p, platform="cpu")
def _on_host(context: PyTree, *operands: object, work: Fallback, lanes: tuple[int, ...]) -> Any:
    """By a call of the host; what is exported must run elsewhere."""
    module = context.module_context
    if not entries(lanes) or module.lowering_parameters.for_export or len(module.platforms) > 1:
        return _inline_lowering(context, *operands, work=work, lanes=lanes)
    own = tuple(len(aval.shape) > len(s.shape) for aval, s in zip(context.avals_in, _row_shapes(work), strict=True))
    first = len(operands) - len(work.results)
    # The other results become the output in place: the call overwrites those rows only that need it.
    aliases = {first + k: k for k in range(len(work.results))}
    return jax.ffi.ffi_lowering(_name(work, lanes, own), operand_output_aliases=aliases)(context, *operands)


@functools.cache
def _name(work: Fallback, lanes: tuple[int, ...], own: tuple[bool, ...]) -> str:
    """The name by which XLA finds the call of the host; equal calls are made once."""
    each, size, count = _row_shapes(work), entries(lanes), len(work.operands)
    shapes = [Shaped((*lanes, *s.shape) if of_lane else s.shape, s.dtype) for s, of_lane in zip(each, own, strict=True)]
    arguments, results, own = each[1 : count + 1], each[count + 1 :], own[1 : count + 1]

    def run(inputs: Sequence[np.ndarray], out: Sequence[np.ndarray]) -> None:
        rows = np.flatnonzero(inputs[0])
        flat = lambda x, shaped: x.reshape(size, *shaped.shape)
        group = 1 if len(rows) <= ONE_BY_ONE else min(max(FEWEST, size // PART), size)
        for first in range(0, len(rows), group):
            some = rows[first : first + group]
            # Groups of one size: another one would be compiled for each number of rows. The last is filled up with a row of its own.
            chosen = some[0] if group == 1 else np.pad(some, (0, group - len(some)), mode="edge")
            take = lambda x, shaped, of_lane: np.asarray(flat(x, shaped)[chosen]) if of_lane else x  # noqa: B023
            values = _evaluated(work, own, group > 1, list(map(take, inputs[1:], arguments, own)))
            for result, x, shaped in zip(out, values, results, strict=True):
                flat(result, shaped)[some] = x[: len(some)] if group > 1 else x

    name = work.name + "_".join(map(str, lanes))
    # XLA knows handlers by name only, and what `repr` leaves out may differ: a name in use for something else is lengthened.
    while _REGISTERED.setdefault(name, (work, own)) != (work, own):
        name += "_"
    return registered(handler(run, shapes, shapes[count + 1 :]), name)


def _evaluated(work: Fallback, own: tuple[bool, ...], many: bool, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The function's results, of one row or of a group."""
    # Fallbacks within this one are part of its program, without calls of their own.
    with own_cpu() as device, jax.default_device(device), jax.enable_x64(work.wide), _WITHIN:
        # Arrays of NumPy: to put each on the device takes longer than a short run.
        results = _compiled(work, own if many else None)(*arrays)
        return [np.asarray(x) for x in results]


@latest
def _compiled(work: Fallback, own: tuple[bool, ...] | None) -> Callable[..., list[Array]]:
    fn = work.run if own is None else jax.vmap(work.run, in_axes=[0 if of_lane else None for of_lane in own])
    return jax.jit(fn, compiler_options=quickest_options())
