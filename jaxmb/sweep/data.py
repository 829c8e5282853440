"""Sweeps as data."""

import dataclasses
import importlib.util
import os
import pathlib
from typing import TYPE_CHECKING

from ..foundations import TextInNotebooks, contract, counted, optional, warn
from .manifest import load
from .shards import Shards, reading
from .table import NUMBER

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Status(TextInNotebooks):
    """How far a sweep is.

    Attributes:
        folder: where it is.
        rows: number of its rows.
        shards: number of its shards.
        missing: the numbers of those that are not there, or not whole.
        missing_rows: the number of rows in them.
    """

    folder: pathlib.Path
    rows: int
    shards: int
    missing: tuple[int, ...]
    missing_rows: int

    def __str__(self) -> str:
        done = f"{self.shards - len(self.missing)} of {counted(self.shards, 'shard')} are there"
        first = ", ".join(map(str, self.missing[:12])) + (", …" if len(self.missing) > 12 else "")
        return f"Sweep in {self.folder}: {done}, {self.rows - self.missing_rows} of {counted(self.rows, 'row')}" + (
            f"; missing are {first}" if self.missing else ""
        )


@contract
def status(folder: str | os.PathLike[str]) -> Status:
    """Which shards of a sweep are there and whole, as `run` finds them; of each the numbers of its rows are read.

    Raises:
        FileNotFoundError: if there is no sweep in the folder.
        ImportError: without `pip install jaxmb[data]`.
    """
    shards = _shards(folder)
    return _status(shards, tuple(i for i in range(shards.count) if not shards.has(i)))


@contract
def open(folder: str | os.PathLike[str]) -> "xarray.Dataset":
    """The results of a sweep as one `xarray.Dataset` along `row`, with the columns of the table as coordinates.

    With dask installed the arrays are read when they are needed, without it at once. Times that all rows share are the index `time`.
    Of an incomplete sweep it holds the rows that are there; `attrs` counts those that are missing, and a warning says so.

    Raises:
        FileNotFoundError: if there is no sweep in the folder, or none of its shards.
        ValueError: naming a shard that was damaged after it was written.
        ImportError: without `pip install jaxmb[data]`.
    """
    concat, shards, columns = optional("xarray", "data").concat, _shards(folder), load(pathlib.Path(folder))["columns"]
    shards_by_number = {i: shards.read(i) for i in range(shards.count)}
    parts = {shards.path(i): data for i, data in shards_by_number.items() if data is not None}
    state = _status(shards, tuple(i for i, data in shards_by_number.items() if data is None))
    if not parts:
        raise FileNotFoundError(f"There are no shards in {folder} yet.")
    if state.missing:
        warn(str(state))
    data = concat(
        # Shards agree in variables by construction; to compare coordinates would read all of them.
        [_lazy(path, part) for path, part in parts.items()],
        NUMBER,
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="exact",
    )
    data.attrs |= {"rows": state.rows, "missing_rows": state.missing_rows, "missing_shards": len(state.missing)}
    # NetCDF does not know a coordinate by a name with a space.
    return _with_common_times(data.set_coords([*columns]))


def _lazy(path: pathlib.Path, data: "xarray.Dataset") -> "xarray.Dataset":
    """With dask an array of chunks, otherwise all numbers, after which the file is closed."""
    if importlib.util.find_spec("dask") is not None:
        return data.chunk()
    with data, reading(path):
        return data.load()


def _with_common_times(data: "xarray.Dataset") -> "xarray.Dataset":
    times = data.coords.get("time")
    if times is None or times.dims != (NUMBER, "sample"):
        return data
    values = times.values
    # Equal to the last bit or not at all: rows with a grid of their own keep it.
    if not (values == values[:1]).all():
        return data
    return data.assign_coords(time=("sample", values[0], times.attrs)).swap_dims(sample="time")


def _shards(folder: str | os.PathLike[str]) -> Shards:
    folder = pathlib.Path(folder)
    record = load(folder)
    return Shards(folder, record["rows"], record["rows_per_shard"], record["kind"])


def _status(shards: Shards, missing: tuple[int, ...]) -> Status:
    rows = int(sum(len(shards.numbers(i)) for i in missing))
    return Status(folder=shards.folder, rows=shards.rows, shards=shards.count, missing=missing, missing_rows=rows)
