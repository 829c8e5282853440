"""Functions over lanes by plain JAX. An operand has all axes of lanes, or none of them where all lanes share it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array

from .code import Shaped


def over_lanes(fn: Callable[..., Any], operands: Sequence[Shaped], lanes: tuple[int, ...]) -> Callable[..., Any]:
    """A function, of these shapes and types in one lane, over all lanes."""

    def each(*arrays: ArrayLike) -> Any:
        axes, many = [0 if jnp.ndim(x) > len(s.shape) else None for x, s in zip(arrays, operands, strict=True)], fn
        for _ in lanes:
            many = jax.vmap(many, in_axes=axes)
        return many(*arrays)

    return each


def with_lanes(x: ArrayLike, axis: int | None, shaped: Shaped, lanes: tuple[int, ...]) -> Array:
    """An operand over lanes of which the first axis is new, where it stands at `axis`, or for all if there is none."""
    x = jnp.asarray(x, shaped.dtype)  # a constant of a program may be a plain number
    x = x if axis is None else jnp.moveaxis(x, axis, 0)
    if x.ndim == len(shaped.shape):
        return x
    if axis is not None and x.ndim == 1 + len(shaped.shape):
        x = x.reshape(lanes[0], *(1 for _ in lanes[1:]), *shaped.shape)
    return jnp.broadcast_to(x, (*lanes, *shaped.shape))


def of_some(fn: Callable[..., Any], fixed: Mapping[int, Any], moving: Sequence[int]) -> Callable[..., Any]:
    """A function of the operands at some places, the others being fixed."""

    def of_those(*operands: Any) -> Any:
        values = {**fixed, **dict(zip(moving, operands, strict=True))}
        return fn(*(values[k] for k in range(len(values))))

    return of_those
