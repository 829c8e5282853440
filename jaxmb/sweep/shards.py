"""Files of a sweep, each with the results of some neighbouring rows."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from ..foundations import optional
from .table import NUMBER

if TYPE_CHECKING:
    import xarray

Kind = Literal["nc", "zarr"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shards of a sweep: number i holds the rows from i · size on.

    A shard is written beside its place and takes it when it is complete, so that what is in place is whole, whoever wrote it.

    Attributes:
        folder: where they are.
        rows: number of rows of the sweep.
        size: rows in a shard; the last one may have fewer.
        kind: "nc" for files of netCDF, "zarr" for groups of Zarr.
    """

    folder: pathlib.Path
    rows: int
    size: int
    kind: str

    @property
    def count(self) -> int:
        """How many there are in a complete sweep."""
        return -(-self.rows // self.size)

    def numbers(self, i: int) -> np.ndarray:
        """The numbers of the rows of a shard."""
        return np.arange(i * self.size, min((i + 1) * self.size, self.rows))

    def path(self, i: int) -> pathlib.Path:
        """The path of a shard."""
        return self.folder / f"shard-{i:06d}.{self.kind}"

    def read(self, i: int) -> "xarray.Dataset | None":
        """A shard, opened lazily; None if it is not there or not whole."""
        path, open_dataset = self.path(i), optional("xarray", "data").open_dataset
        if not path.exists():
            return None
        options = {"engine": "zarr", "consolidated": False} if self.kind == "zarr" else {"engine": "netcdf4"}
        try:
            data = open_dataset(path, decode_timedelta=False, **options)
            is_complete = np.array_equal(data[NUMBER], self.numbers(i))
        except (OSError, ValueError, KeyError, RuntimeError):
            return None
        if not is_complete:
            data.close()
        return data if is_complete else None

    def has(self, i: int) -> bool:
        """Whether a shard is there, and whole."""
        data = self.read(i)
        if data is not None:
            data.close()
        return data is not None

    def write(self, i: int, data: "xarray.Dataset") -> None:
        """Puts a shard in its place, unless another process has meanwhile."""
        path = self.path(i)
        temporary = self.folder / f".{path.name}.{uuid.uuid4().hex}.part"
        try:
            if self.kind == "zarr":
                data.to_zarr(temporary, consolidated=False)
            else:
                data.to_netcdf(temporary, engine="netcdf4")
            # Contents reach the disk before the name does: after a power cut a shard is there in full or not at all.
            _flush(temporary)
            if not self.has(i):
                _remove(path)
                temporary.rename(path)
                _flush_entry(self.folder)
        except OSError:
            if not self.has(i):
                raise

    def tidy(self) -> None:
        """Removes what processes that were killed, or came too late, have left beside shards that are in place."""
        for leftover in self.folder.glob(".shard-*.part"):
            if (self.folder / leftover.name[1:].rsplit(".", 2)[0]).exists():
                _remove(leftover)


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator[None]:
    """Where the results of a shard are read: one that was damaged after it was written is named.

    Raises:
        ValueError: with its path.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{path} must be whole, but: {error}. Once it is removed, `run` makes it again.") from error


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(path: pathlib.Path) -> None:
    """Waits until a file, or all in a folder, is on the disk."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        _flush_entry(file)


def _flush_entry(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
