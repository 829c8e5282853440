"""Numbers at the edge of the interface become arrays, so that a new value does not compile a new program."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from .check import arrays_of, expect_shape, is_concrete

N = TypeVar("N", bound=jax.Array | np.ndarray | np.floating)


def default_float() -> np.dtype:
    """The floating-point type of the current JAX configuration."""
    return jnp.result_type(float)


def as_jax(value: PyTree[ArrayLike]) -> jax.Array:
    """`jnp.asarray`, which compiles a program for each new shape of a NumPy array unless its type is given."""
    if isinstance(value, np.ndarray | np.generic):
        return jnp.asarray(value, dtypes.canonicalize_dtype(value.dtype))
    return jnp.asarray(value)


def as_floats(value: PyTree[ArrayLike]) -> jax.Array:
    """An array of `default_float`; a value that is no array of JAX's yet is converted by NumPy, which compiles nothing."""
    by_numpy = not isinstance(value, jax.Array) and is_concrete(value)
    return jnp.asarray(np.asarray(value, default_float()) if by_numpy else value, default_float())


def floats_or_none(value: PyTree[ArrayLike] | None) -> jax.Array | None:
    """`as_floats`; None as it is."""
    return None if value is None else as_floats(value)


def lower_limits(upper: Float[Array, "*n"], lower: PyTree[ArrayLike] | None, *, apart: bool = False) -> Array:
    """`lower`, −upper where it is None.

    Args:
        upper: upper limits.
        lower: lower limits, or None.
        apart: whether there must be something between them.

    Raises:
        ValueError: for an upper limit below the lower one, or at it where they must be `apart`, and for other numbers of both.
    """
    low = -upper if lower is None else as_floats(lower)
    if upper.ndim:
        expect_shape("`lower`", low, (), upper.shape)
    if not is_concrete(upper, low) or bool(jnp.all(low < upper if apart else low <= upper)):
        return low
    if lower is None:
        must = "be positive" if apart else "not be negative"
        raise ValueError(f"Argument `upper` must {must} where no `lower` is given, but is {upper}.")
    must = "be above" if apart else "not be below"
    raise ValueError(f"Argument `upper` must {must} `lower`, but is {upper} with `lower` {low}.")


def positive_or_one(x: N) -> N:
    """Numbers where they are positive, else 1: what may be divided by, with derivatives that are no NaN. NumPy's stay such."""
    xp: Any = np if isinstance(x, np.ndarray | np.floating) else jnp
    return xp.where(x > 0, x, 1)


def quotient(a: Float[Array, "..."] | float, b: Float[Array, "..."]) -> Float[Array, "..."]:
    """a/b where b is positive, else zero."""
    # `where` inside and outside: what is not chosen is differentiated too, and a division by zero would make NaN of it.
    return jnp.where(b > 0, a / positive_or_one(b), 0)


def square_root(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """√x where x is positive, else zero, and there without a derivative, which would be infinite."""
    # `where` inside and outside, as in `quotient`: 0 · inf is NaN in the derivative of what is not chosen.
    return jnp.where(x > 0, jnp.sqrt(positive_or_one(x)), 0)


def _as_array(leaf: object) -> object:
    # A flag is no quantity: it stays a Python value, so that it may choose what is compiled. It is an `int` too.
    if isinstance(leaf, bool):
        return leaf
    if isinstance(leaf, jax.Array):
        return strong(leaf)
    if isinstance(leaf, int | float):
        return as_floats(leaf)
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype != object:
        return as_jax(leaf)
    return leaf


def as_parameters(params: PyTree) -> PyTree:
    """Converts Python numbers of a pytree to floating-point arrays and NumPy arrays to JAX arrays, with explicit types.

    A Python integer becomes floating point too: a parameter written as ``m=1`` is a quantity, not an index.
    """
    return jax.tree_util.tree_map(_as_array, params)


def strong(tree: PyTree) -> PyTree:
    """The tree with the type of each array made explicit, so that `jnp.array(2.0)` and `1.0` share a program.

    Where JAX is configured for float32, float64 numbers become such.
    """

    def typed(x: jax.Array) -> jax.Array:
        # Keys of `jax.random` have extended types, which `asarray` takes though its annotation does not say so, and no weak type.
        kind = cast(np.dtype, dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True))
        return jnp.asarray(x, kind) if getattr(x, "weak_type", False) or x.dtype != kind else x

    return jax.tree_util.tree_map(lambda x: typed(x) if isinstance(x, jax.Array) else x, tree)


def in_numpy(*arrays: PyTree[ArrayLike]) -> Any:
    """The arrays, as NumPy's where all have values: operations on them compile nothing then."""
    xp = arrays_of(arrays)
    first, *others = (xp.asarray(x) for x in arrays)
    return (first, *others) if others else first


def stacked(arrays: Sequence[PyTree[ArrayLike]]) -> jax.Array:
    """`jnp.stack`, which is compiled anew for each number of arrays only where one is traced."""
    return as_jax(arrays_of(arrays).stack(arrays))


def index_among(values: Float[Array, " n"], x: Float[Array, ""], side: str = "right") -> Int[Array, ""]:
    """The index of the first of increasing values that is larger than x, or with "left" no smaller, in a program without a loop: those of a run are slow."""
    return jnp.searchsorted(values, x, side=side, method="scan_unrolled")
