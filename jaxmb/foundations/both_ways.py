"""Linear functions with a program of their own for each direction: derivatives in both modes.

`jax.custom_jvp` leaves reverse mode to the transposition of what it is given, `jax.custom_vjp` has no forward mode, and
`jax.custom_derivatives.linear_call` cannot be batched.
"""

from collections.abc import Callable, Sequence

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike
from jaxtyping import Array

# (residuals, operands) → results, all of them lists of arrays
Linear = Callable[[list[Array], list[Array]], list[Array]]


def both_ways(
    forward: Linear,
    reverse: Linear,
    residuals: Sequence[Array],
    operands: Sequence[Array],
    results: Sequence[jax.ShapeDtypeStruct | Array],
    refusal: str,
) -> list[Array]:
    """`forward(residuals, operands)`, linear in the operands, whose transpose is `reverse(residuals, cotangents)`.

    Args:
        forward: the function; neither it nor the other one may hold traced numbers.
        reverse: its transpose.
        residuals: what both depend on; by these `forward` may be differentiated forwards, and nothing else.
        operands: in which they are linear.
        results: shapes and types of what `forward` returns.
        refusal: what a TypeError says of all other derivatives by the residuals.
    """
    shapes = tuple(ShapedArray(x.shape, x.dtype) for x in results)
    params = {"forward": forward, "reverse": reverse, "count": len(residuals), "results": shapes}
    return _linear.bind(*residuals, *operands, **params, refusal=refusal, transposed=False)


_linear = Primitive("both_ways")
_linear.multiple_results = True
Shapes = tuple[ShapedArray, ...]


def _impl(*args: Array, forward: Linear, count: int, **params: object) -> list[Array]:
    return list(forward(list(args[:count]), list(args[count:])))


def _jvp(
    primals: Sequence[Array],
    tangents: Sequence[Array | ad.Zero],
    forward: Linear,
    count: int,
    refusal: str,
    transposed: bool,
    **params: object,
) -> tuple[list[Array], list[Array]]:
    params |= {"forward": forward, "count": count, "refusal": refusal, "transposed": transposed}
    out = _linear.bind(*primals, **params)
    moving = [k for k, dot in enumerate(tangents) if not isinstance(dot, ad.Zero)]
    if all(k >= count for k in moving):
        dots = [ad.instantiate_zeros(dot) for dot in tangents[count:]]
        return out, _linear.bind(*primals[:count], *dots, **params)
    # What goes back may hold what was found on the way there as a constant.
    if transposed:
        raise TypeError(refusal)

    def fn(*operands: Array) -> list[Array]:
        values = {**dict(enumerate(primals)), **dict(zip(moving, operands, strict=True))}
        return _impl(*values.values(), forward=forward, count=count)

    dots = jax.jvp(fn, [primals[k] for k in moving], [tangents[k] for k in moving])[1]
    return out, eqxi.nondifferentiable_backward(dots, msg=refusal)


def _transpose(
    bars: Sequence[Array | ad.Zero],
    *args: ArrayLike | ad.UndefinedPrimal,
    forward: Linear,
    reverse: Linear,
    count: int,
    results: Shapes,
    refusal: str,
    transposed: bool,
) -> list[Array | None]:
    residuals, operands = args[:count], args[count:]
    cotangents = [
        jnp.zeros(s.shape, s.dtype) if isinstance(bar, ad.Zero) else bar for bar, s in zip(bars, results, strict=True)
    ]
    linear = [x.aval for x in operands if isinstance(x, ad.UndefinedPrimal)]
    back = _linear.bind(
        *residuals,
        *cotangents,
        forward=reverse,
        reverse=forward,
        count=count,
        results=tuple(ShapedArray(x.shape, x.dtype) for x in linear),
        refusal=refusal,
        transposed=not transposed,
    )
    return [*(None for _ in residuals), *back]


def _batch(
    args: Sequence[Array],
    axes: Sequence[int | None],
    forward: Linear,
    reverse: Linear,
    count: int,
    results: Shapes,
    **params: object,
) -> tuple[list[Array], list[int]]:
    size = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    leading = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)]
    # Operands and results all have the axis, so that the transpose has it too.
    operands = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else x
        for x, axis in zip(leading[count:], axes[count:], strict=True)
    ]
    residual_axes = [None if axis is None else 0 for axis in axes[:count]]
    lanes = lambda fn: jax.vmap(fn, in_axes=(residual_axes, 0), axis_size=size)
    batched = _linear.bind(
        *leading[:count],
        *operands,
        forward=lanes(forward),
        reverse=lanes(reverse),
        count=count,
        results=tuple(ShapedArray((size, *s.shape), s.dtype) for s in results),
        **params,
    )
    return batched, [0] * len(batched)


_linear.def_impl(_impl)
_linear.def_abstract_eval(lambda *args, results, **params: list(results))
mlir.register_lowering(_linear, mlir.lower_fun(_impl, multiple_results=True))
ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
