"""Numbers among a system's parameters that are zero or one, so that compiled code leaves out what they make vanish."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..foundations import is_concrete, remembered

# Larger arrays are tables.
LARGEST = 10_000


@dataclasses.dataclass(frozen=True)
class Constants:
    """For each leaf of a tree the entries whose values are known, as the bytes of integers: 0, 1, −1, or 2 for any value; None for a leaf without known entries.

    Of arrays these are the zeros, of poses [[R, p], [0, 1]] the ones too, but not those of p. A number by itself is never known: it
    is there to be changed.
    """

    leaves: tuple[bytes | None, ...]

    @classmethod
    def of(cls, tree: PyTree) -> "Constants":
        """The known entries of a tree; traced leaves have none."""
        return cls(tuple(_entries(x) for x in jax.tree.leaves(tree)))

    def substituted(self, tree: PyTree) -> PyTree:
        """The tree with these entries as constants."""
        leaves, structure = jax.tree.flatten(tree)
        return jax.tree.unflatten(
            structure, [x if k is None else _substituted(x, k) for x, k in zip(leaves, self.leaves, strict=True)]
        )


def _entries(x: object) -> bytes | None:
    if not isinstance(x, jax.Array) or not is_concrete(x) or x.dtype.kind != "f" or not x.ndim or x.size > LARGEST:
        return None
    return _entries_of(x)


@remembered
def _entries_of(x: jax.Array) -> bytes | None:
    values = np.asarray(x)
    # Zeros are structure: a plane mechanism in space, an axis along a coordinate. One that is to be changed later costs a new program,
    # since it is a constant of the present one.
    entries = np.where(values == 0, 0, 2)
    if values.ndim > 1 and values.shape[-1] == values.shape[-2]:
        # A pose differs from other square matrices by its orthogonal block, which may be off by more than rounding.
        turn, size = values[..., :-1, :-1], values.shape[-1]
        turns = np.abs(turn @ np.swapaxes(turn, -1, -2) - np.eye(size - 1)) < 1e-6
        pose = np.all(turns, axis=(-1, -2)) & np.all(values[..., -1, :] == np.eye(size)[-1], axis=-1)
        ones = (np.abs(values) == 1) & pose[..., None, None]
        # A length of exactly one metre is a number like any other: it is there to be changed.
        ones[..., :-1, -1] = False
        entries = np.where(ones, values, entries)
    return entries.astype(np.int8).tobytes() if np.any(entries != 2) else None


def _substituted(x: Array, entries: bytes) -> Array:
    """An array with constants in the place of those entries: XLA folds them, and compiled code leaves out what they make vanish."""
    numbers = np.frombuffer(entries, np.int8).reshape(x.shape)
    return jnp.where(numbers == 2, x, numbers.astype(x.dtype))
