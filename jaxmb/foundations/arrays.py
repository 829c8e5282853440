"""Numbers at the edge of the interface become arrays, so that a new value does not compile a new program."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes

from .check import arrays_of, is_concrete


def default_float() -> Any:
    """The floating-point type of the current JAX configuration."""
    return jnp.result_type(float)


def as_jax(value: Any) -> jax.Array:
    """`jnp.asarray`, which compiles a program for each new shape of a NumPy array unless its type is given."""
    if isinstance(value, np.ndarray | np.generic):
        return jnp.asarray(value, dtypes.canonicalize_dtype(value.dtype))
    return jnp.asarray(value)


def as_floats(value: Any) -> jax.Array:
    """An array of `default_float`; what is known is converted by NumPy, which compiles nothing."""
    known = not isinstance(value, jax.Array) and is_concrete(value)
    return jnp.asarray(np.asarray(value, default_float()) if known else value, default_float())


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, bool):
        return leaf
    if isinstance(leaf, jax.Array):
        return strong(leaf)
    if isinstance(leaf, int | float):
        return as_floats(leaf)
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype != object:
        return as_jax(leaf)
    return leaf


def as_parameters(params: Any) -> Any:
    """Converts Python numbers of a pytree to floating-point arrays and NumPy arrays to JAX arrays, with explicit types.

    A Python integer becomes floating point too: a parameter written as ``m=1`` is a quantity, not an index.
    """
    return jax.tree_util.tree_map(_as_array, params)


def strong(tree: Any) -> Any:
    """The tree with the type of each array made explicit, so that `jnp.array(2.0)` and `1.0` share a program.

    Where JAX is configured for float32, float64 numbers become such.
    """

    def typed(x: jax.Array) -> jax.Array:
        kind: Any = dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
        return jnp.asarray(x, kind) if x.weak_type or x.dtype != kind else x

    return jax.tree_util.tree_map(lambda x: typed(x) if isinstance(x, jax.Array) else x, tree)


def in_numpy(*arrays: Any) -> Any:
    """The arrays, as NumPy's where all are known: operations on them compile nothing then."""
    xp = arrays_of(arrays)
    first, *others = (xp.asarray(x) for x in arrays)
    return (first, *others) if others else first


def stacked(arrays: Sequence[Any]) -> jax.Array:
    """`jnp.stack`, which is compiled anew for each number of arrays only where one is not known."""
    return as_jax(arrays_of(arrays).stack(arrays))
