"""Records from files."""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from ..foundations import Text, contract
from .column import UNITS, Column, as_column
from .formats import open_source
from .record import Record, check_times
from .sources import AbstractSource


@contract
def read(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | Column],
    *,
    time: str | Column = "time",
    source: Text | None = None,
) -> Record:
    r"""Reads columns of a file, in SI units.

    * `.csv`: a line of names, then a line for each sample; commas, semicolons or tabs between, `#` before comments; a sample
      that is empty, `nan` or `NA` is missing.
    * `.npz`: vectors, and matrices with one row or one column for each sample; nothing is unpickled.
    * `.mat`, MATLAB up to version 7.2: likewise, and cell arrays of these.
    * `.nc`, netCDF, and `.zarr`, a folder, as `Solution.to_xarray` and `Record.to_xarray` write them, or others: variables; of a
      matrix with an axis of names each part is called "variable.name" too. Needs `pip install jaxmb[data]`.

    The unit in the file, a netCDF attribute `units` or the comment of `Record.to_csv`, is used if the column gives none.

    Args:
        path: the file.
        columns: by the name in the record, a name in the file, or a `Column` with unit, scale, offset and index. Matrices become
            (T, k) unless an index selects one of them.
        time: likewise for the times, in s unless a unit is given.
        source: where the record comes from, in words, for print.

    Returns:
        The record.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if `columns` is not such a mapping, or `source` no string.
        ValueError: naming file and column, if the suffix is unknown, the file cannot be read, a column is not there, is not numbers
            or is not as long as the times, if times do not increase or there are none, or if the file has an unknown unit.
        ImportError: without the packages that read netCDF or Zarr.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "swing.csv"
        >>> _ = path.write_text("t;enc\n0;180\n5;181\n10;\n")
        >>> record = read(path, {"angle": Column("enc", "deg", offset=180.0)}, time=Column("t", "ms"))
        >>> print(record)
        Record: 3 samples in 0.01 s
          angle         rad, 1 missing
    """
    by_name = {name: as_column(column) for name, column in columns.items()}
    clock = as_column(time)
    _check_clock(clock)
    file = open_source(pathlib.Path(path))
    by_name = {name: _with_unit(file, column, name) for name, column in by_name.items()}
    # The unit of the column, else that of the file, else seconds.
    clock = as_column(_with_unit(file, clock, "time"), unit="s")
    _check_clock(clock)
    t = _times(file, clock)
    arrays = {name: _column(file, column, len(t), f"Column '{name}'") for name, column in by_name.items()}
    units = {name: column.si for name, column in by_name.items() if column.si is not None}
    try:
        return Record(t, arrays, units, source or "")
    except ValueError as error:
        raise ValueError(f"{file.path}: {error}") from error


def _check_clock(clock: Column) -> None:
    if clock.si not in (None, "s"):
        raise ValueError(f"The unit of column 'time' must be one of time, but is {clock.unit!r}.")


def _with_unit(file: AbstractSource, column: Column, name: str) -> Column:
    """The column with the unit that the file says, if it says none itself."""
    unit = file.unit(column.source)
    if column.unit is None and unit is not None and unit not in UNITS:
        raise ValueError(
            f"Column '{name}' ('{column.source}' in {file.path}) is said there to be in {unit!r}, which is not known; say one out of "
            f"{', '.join(map(repr, UNITS))} in a `Column`."
        )
    return as_column(column, unit=unit)


def _times(file: AbstractSource, clock: Column) -> np.ndarray:
    """The times in s."""
    t = _column(file, clock, None, "Column 'time'")
    check_times(t, f"Column 'time' ('{clock.source}' in {file.path})")
    return t


def _column(file: AbstractSource, column: Column, count: int | None, what: str) -> np.ndarray:
    """A column in SI units, (T,) or (T, k); where T is not known yet it is the longer side."""
    array, chosen = _array(file, column, what)
    count = int(max(array.shape, default=1)) if count is None else count
    return column.in_si(_along_times(array, count, chosen, f"{what} ('{column.source}' in {file.path})"))


def _along_times(array: np.ndarray, count: int, chosen: int | None, name: str) -> np.ndarray:
    """The array with the axis of `count` times first; of a matrix what is chosen."""
    if array.size == count and chosen is None:
        return array.reshape(count)
    if array.ndim not in (1, 2) or count not in array.shape:
        raise ValueError(f"{name} must have a sample for each of the {count} times, but has shape {array.shape}.")
    # To guess would exchange channels and times without a word.
    if array.shape == (count, count) and count > 1:
        raise ValueError(f"{name} is square, {array.shape}, so that rows and columns cannot be told apart.")
    array = array if array.shape[0] == count else array.T
    if chosen is None:
        return array
    width = array.shape[1] if array.ndim == 2 else 0
    if chosen >= width:
        raise ValueError(f"{name} has {width} columns to choose from, and not number {chosen}, counted from 0.")
    return array[:, chosen]


def _array(file: AbstractSource, column: Column, what: str) -> tuple[np.ndarray, int | None]:
    """The matrix of numbers that a column is in, and the index that is left to select in it."""
    array, indices = file.values(column.source, what), column.index
    name = f"{what} ('{column.source}' in {file.path})"
    if array.dtype.kind == "O":  # a cell array, whose cells MATLAB counts down the columns
        cells = array.ravel(order="F")
        if not indices or indices[0] >= len(cells):
            raise ValueError(
                f"{name} is an array of {len(cells)} cells: `index` must name one, from 0, but is {column.index or None}."
            )
        array, indices = cells[indices[0]], indices[1:]
    elif len(indices) > 1:
        raise ValueError(f"{name} is no cell array: `index` must be one number, but is {column.index or None}.")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of numbers, but is of type {array.dtype}.")
    return np.asarray(array, float), indices[0] if indices else None
