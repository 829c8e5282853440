"""Scalar programs as operations of JAX on whole arrays of lanes, for devices whose compiler fuses such operations."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array

from .code import Code, Shaped, entries
from .graph import CONSTANT
from .operations import OPERATIONS


def by_numbers(code: Code, dtype: DTypeLike, results: Sequence[Shaped]) -> Callable[..., list[Array]]:
    """What code does as operations of JAX on single numbers, so that over lanes each is one on arrays of numbers."""

    def fn(*operands: ArrayLike) -> list[Array]:
        graph, values = code.graph, {}
        flat = [jnp.ravel(jnp.asarray(x, dtype)) for x in operands]
        for i in code.order:
            operation = graph.operations[i]
            if i in code.leaves:
                operand, entry = code.leaves[i]
                values[i] = flat[operand][entry]
            elif operation == CONSTANT:
                values[i] = np.asarray(graph.values[i], bool if graph.is_truth(i) else dtype)[()]
            elif operation == "to_number":
                values[i] = jnp.asarray(values[graph.arguments[i][0]], dtype)
            else:
                values[i] = OPERATIONS[operation].array(*(values[a] for a in graph.arguments[i]))
        numbers = [jnp.asarray(values[i]) for i in code.outputs]
        ends = np.cumsum([0, *(entries(s.shape) for s in results)])
        return [_joined(numbers[a:b], s) for a, b, s in zip(ends, ends[1:], results, strict=False)]

    return fn


def _joined(numbers: list[Array], shaped: Shaped) -> Array:
    """A result from its numbers or truth values."""
    if not numbers:
        return jnp.zeros(shaped.shape, shaped.dtype)
    return jnp.stack(numbers).astype(shaped.dtype).reshape(shaped.shape)
