"""Samples over time."""

import os
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..foundations import (
    Count,
    Number,
    Numbers,
    Text,
    TextInNotebooks,
    arrays_of,
    as_floats,
    contract,
    counted,
    is_concrete,
    listing,
    table,
)
from .write import as_dataset, as_frame, write_csv


class Record(TextInNotebooks, eqx.Module):
    """Columns of samples at increasing times.

    A pytree whose leaves are the numbers. Records of one length, with the same names, units and source, may be stacked
    for `jax.vmap` (``jax.tree.map(lambda *x: jnp.stack(x), *records)``); `window`, `every` and `str` are for single ones.

    Args:
        t: times (T,) in s, increasing.
        columns: by name, samples (T,) or (T, k) in SI units; NaN where one is missing.
        units: by name, the SI unit, for print; those not named stay without.
        source: where the record comes from, in words, for print.

    Raises:
        ValueError: if times do not increase or are not finite, if there are none, if a column has another length or
            infinite samples, or if `units` names no column.

    Example:
        >>> record = Record([0.0, 0.1, 0.2], {"crank": [1.0, 1.1, float("nan")]}, {"crank": "rad"})
        >>> print(record)
        Record: 3 samples in 0.2 s
          crank         rad, 1 missing
        >>> len(record.window(0.05, 0.2))
        2
    """

    t: Float[Array, " T"]
    columns: dict[str, Float[Array, "T *k"]]
    units: tuple[tuple[str, str], ...] = eqx.field(static=True)
    source: str = eqx.field(static=True)

    @contract
    def __init__(
        self, t: Numbers, columns: Mapping[str, Numbers], units: Mapping[str, str] | None = None, source: Text = ""
    ):
        self.t = as_floats(t)
        self.columns = {name: as_floats(column) for name, column in columns.items()}
        self.units = tuple(sorted((units or {}).items()))
        self.source = source
        check_times(self.t, "Argument `t`")
        for name, column in self.columns.items():
            _check_column(column, len(self.t), f"Column '{name}'")
        strangers = [name for name, _ in self.units if name not in self.columns]
        if strangers:
            raise ValueError(f"Argument `units` names {listing(strangers)}; the columns are {listing(self.columns)}.")

    def __getitem__(self, name: str) -> Float[Array, "T *k"]:
        """The column of that name."""
        if name not in self.columns:
            raise KeyError(f"There is no column '{name}'; there are {listing(self.columns)}.")
        return self.columns[name]

    def __len__(self) -> int:
        """The number of samples."""
        return self.t.shape[-1]

    @contract
    def window(self, start: Number, stop: Number) -> "Record":
        """The samples with start <= t <= stop, at the times they have.

        Args:
            start: a time in s.
            stop: another, not before it.

        Raises:
            ValueError: if there are none.
        """
        inside = (np.asarray(self.t) >= start) & (np.asarray(self.t) <= stop)
        if not inside.any():
            first, last = float(self.t[0]), float(self.t[-1])
            raise ValueError(
                f"There are no samples from {start} s to {stop} s; they are from {first:g} s to {last:g} s."
            )
        return self._at(np.flatnonzero(inside))

    @contract
    def every(self, n: Count) -> "Record":
        """Every n-th sample, beginning with the first one; nothing is filtered before.

        Args:
            n: a number of samples, at least 1.
        """
        return self._at(np.arange(0, len(self), n))

    @contract
    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes a `.csv` that `jaxmb.records.read` reads to the last digit.

        Comments hold units (`# units {"time": "s", …}`), which `read` uses, and the source; then follow a line of names, "time" first,
        and a line for each sample. Of a column (T, k) each part is one, "name[0]", "name[1]", …; a missing sample is empty.

        Args:
            path: the file; it is replaced when it has been written.

        Raises:
            ValueError: for names that cannot be distinguished in text.
        """
        write_csv(self, path)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` over `time`, columns as in `to_csv`, with the units in `attrs["units"]`.

        Raises:
            ImportError: without pandas, which `pip install jaxmb[data]` brings.
        """
        return as_frame(self)

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` over `time`, with units; `to_netcdf` and `to_zarr` write files that `jaxmb.records.read` reads.

        Raises:
            ImportError: without xarray, which `pip install jaxmb[data]` brings.
        """
        return as_dataset(self)

    def _at(self, index: np.ndarray) -> "Record":
        columns = {name: column[index] for name, column in self.columns.items()}
        return Record(self.t[index], columns, dict(self.units), self.source)

    def __str__(self) -> str:
        if self.t.ndim > 1 or not is_concrete(self):
            return f"Record of {listing(self.columns)}, times of shape {self.t.shape}"
        units, duration = dict(self.units), float(self.t[-1] - self.t[0])
        title = f"Record: {counted(len(self), 'sample')} in {duration:g} s" + (
            f", {self.source}" if self.source else ""
        )
        return table(title, {name: _words(column, units.get(name, "")) for name, column in self.columns.items()})


def _words(column: Array, unit: str) -> list[str]:
    """Unit, width and the number of samples that are missing, in whole or in part."""
    missing = int(np.isnan(np.asarray(column)).reshape(len(column), -1).any(axis=1).sum())
    wide = [f"{column.shape[1]} each"] if column.ndim > 1 else []
    return [unit or "no unit", *wide, *([f"{missing} missing"] if missing else [])]


def check_times(t: Array | np.ndarray, what: str) -> None:
    """Refuses times that are not a vector, are none, are not finite or do not increase; traced ones are not looked at.

    Raises:
        ValueError: so, with the first index at fault.
    """
    if t.ndim != 1 or not len(t):
        raise ValueError(f"{what} must be a vector of at least one time, but has shape {t.shape}.")
    if not is_concrete(t):
        return
    values = np.asarray(t)
    if not np.isfinite(values).all():
        index = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"{what} must be finite, but is {values[index]} at index {index}.")
    # Equal times too: a rate between them is none, and interpolation divides by zero.
    falls = np.diff(values) <= 0
    if falls.any():
        index = int(np.argmax(falls)) + 1
        raise ValueError(
            f"{what} must increase, but is {float(values[index])!r} s at index {index} after {float(values[index - 1])!r} s."
            + (
                " These are float32 numbers; turn on float64 or subtract the first time."
                if values.dtype == "f4"
                else ""
            )
        )


def _check_column(column: Array, count: int, what: str) -> None:
    if column.ndim not in (1, 2) or len(column) != count:
        raise ValueError(f"{what} must have shape ({count},) or ({count}, k), like the times, but has {column.shape}.")
    infinite = arrays_of(column).isinf(column)
    if is_concrete(column) and infinite.any():
        index = int(np.argwhere(np.asarray(infinite))[0][0])
        raise ValueError(f"{what} must be finite, or NaN where samples are missing, but is infinite at index {index}.")
