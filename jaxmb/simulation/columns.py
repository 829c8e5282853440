"""A motion as a table, with names and units."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from ..foundations import RESULTS, codes, is_concrete, listing, optional, verdicts
from ..system import Names

if TYPE_CHECKING:
    from .solution import Solution


def frame(solution: "Solution", runs: Sequence[str] | None) -> Any:
    """See `Solution.to_pandas`."""
    pandas = optional("pandas", "data")
    solution, names, batch = concrete_data(solution, runs)
    columns, units = columns_of(solution, names), units_of(names)
    flat = {name: values.ravel() for name, values in columns.items()}
    where = np.indices(solution.ts.shape).reshape(solution.ts.ndim, -1)[: len(batch)]
    times = solution.ts.ravel()
    index = pandas.MultiIndex.from_arrays([*where, times], names=[*batch, "time"]) if batch else times
    table = pandas.DataFrame(flat, index=index if batch else pandas.Index(index, name="time"))
    spread = np.broadcast_to(names_of_results(solution.result)[..., None], solution.ts.shape)
    table["verdict"] = pandas.Categorical(spread.ravel())
    table.attrs["units"] = {"time": "s"} | {name: unit for name, unit in units.items() if name in columns}
    return table


def columns_of(solution: "Solution", names: Names) -> dict[str, Any]:
    """Coordinates, velocities, inputs and work by name, each (…, T)."""
    inputs = () if solution.u is None else names.inputs
    columns = [*names.coordinates, *names.rates, *(f"u.{name}" for name in inputs), "work"]
    # A coordinate may have the name of a velocity; in a table one column would replace the other without a word.
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise ValueError(f"Columns must have different names, but several are called {listing(repeated)}.")
    parts = [solution.q, solution.v, *(() if solution.u is None else (solution.u,)), solution.work[..., None]]
    values = [part[..., i] for part in parts for i in range(part.shape[-1])]
    return dict(zip(columns, values, strict=True))


def units_of(names: Names) -> dict[str, str]:
    """The units of these columns, where they are known."""
    inputs = tuple(f"u.{name}" for name in names.inputs)
    columns = (*names.coordinates, *names.rates, *inputs, "work")
    units = (*names.coordinate_units, *names.velocity_units, *names.input_units, "J")
    return {name: unit for name, unit in zip(columns, units, strict=True) if unit is not None}


def concrete_data(solution: "Solution", runs: Sequence[str] | None) -> tuple["Solution", Names, tuple[str, ...]]:
    """The solution with arrays of NumPy, its names, and those of its leading axes."""
    if not is_concrete(solution):
        raise TypeError(
            "A `Solution` must hold known numbers to become data, but is traced: return it from `jit`, `vmap` or `grad` first."
        )
    if solution.names is None:
        raise ValueError("A `Solution` must have `names` to become data; those of `simulate` do.")
    axes = solution.ts.ndim - 1
    default = ("run",) if axes == 1 else tuple(f"run_{i}" for i in range(axes))
    chosen = default if runs is None else tuple(runs)
    if len(chosen) != axes or len(set(chosen)) != axes:
        raise ValueError(f"Argument `runs` must be {axes} different names, one for each leading axis, but is {runs!r}.")
    # Vector field and interpolation are there to be evaluated: they are no data, and hold functions.
    no_data = lambda s: (s.field, s.dense)
    data = eqx.tree_at(no_data, solution, (None, None), is_leaf=lambda x: x is None)
    as_numpy = lambda x: np.asarray(x) if isinstance(x, jax.Array) else x
    return jax.tree.map(as_numpy, data), solution.names, chosen


def names_of_results(result: RESULTS) -> np.ndarray:
    """The name of each result."""
    names = {code: name for code, (name, _) in verdicts().items()}
    return np.vectorize(lambda code: names[int(code)], otypes=[object])(codes(result))
