"""What a function of a sweep may return, and its results as a data set."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree

from ..foundations import RESULTS, listing, optional
from ..simulation import Solution, verdict_variables
from .table import NUMBER, Table, check_names, part

if TYPE_CHECKING:
    import xarray

_IS_RESULT = lambda x: isinstance(x, type(RESULTS.successful))


def check_function(fn: Callable[..., object], table: Table) -> PyTree:
    """What the function returns for one row, as shapes; refuses what cannot be stored.

    Raises:
        TypeError: if it is no function, or returns neither a `Solution` nor a dictionary of arrays.
        RuntimeError: if it raises an error.
        ValueError: if a result is called like a column of the table.
    """
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), part(table, np.arange(1)))
    try:
        shapes = eqx.filter_eval_shape(fn, row)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise RuntimeError(
            f"Argument `fn` must be written in JAX for one row of {listing(row)}, but raised {message}"
        ) from error
    if isinstance(shapes, Solution):
        return shapes
    fits = lambda name, x: isinstance(name, str) and ((_IS_RESULT(x) and name == "result") or _is_real(x))
    if not isinstance(shapes, dict) or not shapes or not all(fits(name, x) for name, x in shapes.items()):
        kinds = (
            {name: str(getattr(x, "dtype", type(x).__name__)) for name, x in shapes.items()}
            if isinstance(shapes, dict)
            else "an array"
            if hasattr(shapes, "shape")
            else type(shapes).__name__
        )
        raise TypeError(
            f"Argument `fn` must return a `Solution` or a dictionary of arrays of real numbers, in which a `result` may be, but returns {kinds}."
        )
    check_names(shapes)
    _check_names(shapes, table)
    return shapes


def _is_real(x: object) -> bool:
    """Whether it is an array of numbers that every kind of file holds."""
    kinds, dtype = (jnp.floating, jnp.integer, jnp.bool_), getattr(x, "dtype", None)
    return dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in kinds)


def _check_names(results: Collection[str], table: Table) -> None:
    shared = [name for name in (*table, NUMBER) if name in results]
    if shared:
        raise ValueError(f"Results must have other names than the columns of the table, but {listing(shared)} is both.")


def dataset_of(results: Solution | dict[str, PyTree], table: Table, numbers: np.ndarray) -> "xarray.Dataset":
    """The results of some rows, with their parameters as coordinates."""
    if isinstance(results, Solution):
        data = results.to_xarray([NUMBER], shared_times=False)
    else:
        variables = {}
        for name, x in results.items():
            if _IS_RESULT(x):
                variables |= verdict_variables(x, (NUMBER,))
            else:
                variables[name] = (_axes(name, x), np.asarray(x))
        data = optional("xarray", "data").Dataset(variables)
    # The last shard was filled up; what was computed twice goes.
    data = data.isel({NUMBER: slice(len(numbers))})
    _check_names({*data.variables, *data.dims} - {NUMBER}, table)
    columns = {name: (_axes(name, values), values[numbers]) for name, values in table.items()}
    return data.assign_coords({NUMBER: (NUMBER, numbers), **columns})


def _axes(name: str, values: ArrayLike) -> tuple[str, ...]:
    return (NUMBER, *(f"{name}_{i}" for i in range(np.ndim(values) - 1)))


def verdict_counts(data: "xarray.Dataset") -> Counter[str]:
    """How many rows have which verdict; where there is none, how many are finite."""
    if "verdict" in data:
        return Counter(map(str, np.ravel(data["verdict"].values)))
    finite = np.ones(data.sizes[NUMBER], bool)
    for variable in data.data_vars.values():
        # Integers and booleans are always finite.
        if variable.dtype.kind == "f":
            finite &= np.isfinite(variable.values).reshape(len(finite), -1).all(axis=1)
    counts = Counter({"finite": int(finite.sum()), "not finite": int((~finite).sum())})
    return +counts
