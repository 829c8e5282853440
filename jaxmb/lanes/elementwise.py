"""Scalar programs as operations of JAX on whole arrays of lanes, for devices whose compiler fuses such operations."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .code import Code, Shaped, entries
from .graph import CONSTANT

Function = Callable[..., list[Array]]
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "neg": jnp.negative,
    "div": jnp.divide,
    "reciprocal": lambda x: 1 / x,
    "sqrt": jnp.sqrt,
    "abs": jnp.abs,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "max": jnp.maximum,
    "min": jnp.minimum,
    "rem": jnp.fmod,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "pow": jnp.power,
    "cbrt": jnp.cbrt,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "atan": jnp.arctan,
    "atan2": jnp.arctan2,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "tanh": jnp.tanh,
    "asinh": jnp.arcsinh,
    "acosh": jnp.arccosh,
    "atanh": jnp.arctanh,
    "gt": jnp.greater,
    "lt": jnp.less,
    "ge": jnp.greater_equal,
    "le": jnp.less_equal,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "and": jnp.logical_and,
    "or": jnp.logical_or,
    "xor": jnp.logical_xor,
    "not": jnp.logical_not,
    "select": jnp.where,
    "held": lambda x: x,
    "nothing": lambda x: x * 0,
    "lookup": lambda which, *table: _looked_up(which, *table),
}


def by_numbers(code: Code, dtype: Any, results: Sequence[Shaped]) -> Function:
    """What code does as operations of JAX on single numbers, so that over lanes each is one on arrays of numbers."""

    def fn(*given: Array) -> list[Array]:
        graph, found = code.graph, {}
        flat = [jnp.ravel(jnp.asarray(x, dtype)) for x in given]
        for i in code.order:
            operation = graph.operations[i]
            if i in code.leaves:
                operand, entry = code.leaves[i]
                found[i] = flat[operand][entry]
            elif operation == CONSTANT:
                found[i] = np.asarray(graph.values[i], bool if graph.is_truth(i) else dtype)[()]
            elif operation == "number":
                found[i] = jnp.asarray(found[graph.arguments[i][0]], dtype)
            else:
                found[i] = _FUNCTIONS[operation](*(found[a] for a in graph.arguments[i]))
        numbers = [jnp.asarray(found[i]) for i in code.outputs]
        ends = np.cumsum([0, *(entries(s.shape) for s in results)])
        return [_joined(numbers[a:b], s) for a, b, s in zip(ends, ends[1:], results, strict=False)]

    return fn


def _joined(numbers: list[Array], shaped: Shaped) -> Array:
    """A result from its numbers or truth values."""
    if not numbers:
        return jnp.zeros(shaped.shape, shaped.dtype)
    return jnp.stack(numbers).astype(shaped.dtype).reshape(shaped.shape)


def _looked_up(which: Array, *table: Array) -> Array:
    """The first one for what is no number."""
    place = jnp.where(which > 0, jnp.minimum(which, len(table) - 1), 0)
    return jnp.stack(table)[place.astype(jnp.int32)]
