"""Tables of parameters: columns of equal length, a row for each evaluation."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from ..foundations import contract, default_float, listing

Table = dict[str, np.ndarray]
# What a row is told beside its parameters.
NUMBER = "row"


def as_table(columns: object) -> Table:
    """The columns as arrays with a common leading axis, of the types that JAX is set to.

    Raises:
        TypeError: if `columns` is no mapping of names to numbers.
        ValueError: if there is none, one is called "row" or has a slash in its name, holds numbers that are not finite, or has another length.
    """
    items: Any = getattr(columns, "items", None)  # a frame of pandas is no `Mapping`, but has them
    if items is None or isinstance(columns, type) or not all(isinstance(name, str) for name, _ in items()):
        raise TypeError(f"Argument `table` must map names to arrays, but is {columns!r}.")
    by_name = dict(items())
    if not by_name or NUMBER in by_name:
        raise ValueError(
            f"Argument `table` must hold columns, and none called '{NUMBER}', but holds {listing(by_name)}."
        )
    check_names(by_name)
    table = {name: _column(name, values) for name, values in by_name.items()}
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        counts = ", ".join(f"'{name}' has {length}" for name, length in lengths.items())
        raise ValueError(f"Argument `table` must hold columns of one length, of one row at least, but {counts}.")
    return table


def check_names(names: Iterable[str]) -> None:
    """Refuses names of columns or results that files take for paths: Zarr would hide what is called so."""
    paths = [name for name in names if "/" in name]
    if paths:
        raise ValueError(f"Columns and results must have names without a slash, but there are {listing(paths)}.")


def _column(name: str, values: object) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TypeError(f"Column '{name}' of the table must be an array of numbers, but: {error}") from error
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise TypeError(
            f"Column '{name}' of the table must be an array of numbers with a row for each, but is {values!r}."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"Column '{name}' of the table must be finite, but is not in row {_first(~np.isfinite(array))}."
        )
    # A list of whole numbers is of quantities, an array of integers of what it says.
    quantity = array.dtype.kind == "f" or (not hasattr(values, "dtype") and array.dtype.kind != "b")
    column = array.astype(default_float() if quantity else jax.dtypes.canonicalize_dtype(array.dtype))
    # Without 64 bits a large integer wraps around silently.
    if not quantity and (column != array).any():
        raise ValueError(f"Column '{name}' of the table holds integers that need 64 bits, which JAX is not set to.")
    return column


def _first(mask: np.ndarray) -> int:
    return int(np.argwhere(mask)[0][0])


@contract
def grid(columns: Mapping[str, Any]) -> Table:
    """A table of all combinations of the values of the columns, with the last column varying fastest.

    Args:
        columns: by name, values (n,) or (n, …).

    Example:
        >>> {name: values.tolist() for name, values in grid({"mass": [1.0, 2.0], "length": [0.5, 0.7]}).items()}
        {'mass': [1.0, 1.0, 2.0, 2.0], 'length': [0.5, 0.7, 0.5, 0.7]}
    """
    axes = {name: as_table({name: values})[name] for name, values in columns.items()} or as_table({})
    indices = np.indices([len(values) for values in axes.values()]).reshape(len(axes), -1)
    return {name: values[index] for (name, values), index in zip(axes.items(), indices, strict=True)}


def part(table: Table, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Some rows, and their numbers."""
    return {name: values[numbers] for name, values in table.items()} | {
        NUMBER: numbers.astype(jax.dtypes.canonicalize_dtype(int))
    }


def digest(table: Table) -> str:
    """A fingerprint of names, types, shapes and numbers."""
    sha = hashlib.sha256()
    for name, values in table.items():
        sha.update(f"{name!r} {values.dtype} {values.shape} ".encode() + np.ascontiguousarray(values).tobytes())
    return sha.hexdigest()
