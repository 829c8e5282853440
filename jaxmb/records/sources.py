"""Files as named arrays of numbers."""

import abc
import csv
import json
import math
import pathlib
import zipfile
import zlib
from collections.abc import Iterable
from io import BufferedIOBase
from typing import IO, Any

import numpy as np

from ..foundations import listing
from .matlab import variables

# What stands for a missing sample in text, besides an empty cell.
MISSING = {"", "nan", "na"}
DELIMITERS = ",;\t"
# Bytes of one column, or variable, when it is unpacked: half a day of a hundred channels at 30 kHz are as much, and a small file can
# grow a thousandfold.
LARGEST = 2**30
# What the comment begins with that tells units by name, as JSON.
UNITS_LINE = "# units "


class AbstractSource(abc.ABC):
    """What a file holds, by name.

    Args:
        path: the file.

    Raises:
        ValueError: if it cannot be read.
    """

    path: pathlib.Path

    @property
    @abc.abstractmethod
    def names(self) -> Iterable[str]:
        """The names of all that the file holds."""

    @abc.abstractmethod
    def _load(self, name: str) -> np.ndarray:
        """What is stored under a name."""

    def unit(self, name: str) -> str | None:
        """The unit that the file says a name has; none by default."""
        return None

    def values(self, name: str, what: str) -> np.ndarray:
        """An array as it is stored: of numbers, or of objects for a cell array.

        Args:
            name: its name in the file.
            what: what asks for it, for messages.

        Raises:
            ValueError: if there is none of that name.
        """
        if name not in self.names:
            raise ValueError(
                f"{what} must be in {self.path} under a name out of {listing(self.names)}, but is looked for as '{name}'."
            )
        return self._load(name)


class TextTable(AbstractSource):
    """A table in text: a line of names, then lines of numbers; lines that begin with `#` are comments."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            # -sig: spreadsheets begin a file with a byte order mark, which would be part of the first name.
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be text in UTF-8, but {error}.") from error
        self._units = _units(lines)
        numbered = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
        if not numbered:
            raise ValueError(f"{path} must begin with a line of names, but holds no line.")
        self._names, delimiter = names_in(numbered.pop(0)[1])
        self._rows = [(i, _cells(line, delimiter)) for i, line in numbered]
        for i, row in self._rows:
            if len(row) != len(self._names):
                raise ValueError(
                    f"{path}, line {i}, must have {len(self._names)} cells, like the names, but has {len(row)}."
                )

    @property
    def names(self) -> list[str]:
        """The names in the first line."""
        return self._names

    def unit(self, name: str) -> str | None:
        """By the comment `# units {"name": "unit", …}`, if there is one."""
        return self._units.get(name)

    def _load(self, name: str) -> np.ndarray:
        if self._names.count(name) > 1:
            raise ValueError(f"{self.path} has {self._names.count(name)} columns '{name}'; names must be different.")
        column = self._names.index(name)
        return np.array([self._number(row[column], i, name) for i, row in self._rows], float)

    def _number(self, cell: str, line: int, name: str) -> float:
        try:
            return np.nan if cell.casefold() in MISSING else float(cell)
        except ValueError:
            raise ValueError(
                f"{self.path}, line {line}, column '{name}' must be a number, or empty, 'nan' or 'NA', but is {cell!r}."
                + (" Decimals are written with a point." if "," in cell else "")
            ) from None


def _units(lines: list[str]) -> dict[str, str]:
    """Units by name; other comments are none of ours."""
    for line in lines:
        if line.startswith(UNITS_LINE):
            try:
                units = json.loads(line.removeprefix(UNITS_LINE))
            except (ValueError, RecursionError):
                continue
            if isinstance(units, dict):
                return {name: str(unit) for name, unit in units.items()}
    return {}


def names_in(line: str) -> tuple[list[str], str]:
    """The names in the first line of a table, and what is between them."""
    # By the line of names alone: in lines of numbers a comma may be a decimal one.
    delimiter = max(DELIMITERS, key=lambda delimiter: len(_cells(line, delimiter)))
    return _cells(line, delimiter), delimiter


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]


def within_limit(size: int, what: str) -> None:
    """Refuses what is too large to be unpacked.

    Raises:
        ValueError: telling how large it is.
    """
    if size > LARGEST:
        raise ValueError(f"{what} takes {size / 2**20:.0f} MiB when it is unpacked, more than {LARGEST // 2**20} MiB.")


class NumpyArchive(AbstractSource):
    """NumPy's `.npz`; only what is asked for is unpacked, and Python objects in it are never loaded."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            with zipfile.ZipFile(path) as file:
                self._names = [name.removesuffix(".npy") for name in file.namelist()]
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise ValueError(f"{path} must be a file of `numpy.savez`, but: {error}") from error

    @property
    def names(self) -> list[str]:
        """The names of its arrays."""
        return self._names

    def _load(self, name: str) -> np.ndarray:
        try:
            with zipfile.ZipFile(self.path) as file:
                with file.open(name + ".npy") as part:
                    shape, dtype = _header(part)
                # Unpickling runs code; the header says so before the data are read.
                if dtype.hasobject:
                    raise ValueError("it is an array of Python objects, which are never loaded.")
                within_limit(math.prod(shape) * dtype.itemsize, "it")
                with file.open(name + ".npy") as part:
                    return np.lib.format.read_array(part, allow_pickle=False)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError) as error:
            raise ValueError(f"'{name}' in {self.path} must be an array, but: {error}") from error


def _header(file: BufferedIOBase | IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array in a file of NumPy."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, dtype


class MatlabFile(AbstractSource):
    """MATLAB's `.mat` up to version 7.2: matrices, and cell arrays of them; only what is asked for is read."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            self._is_readable = variables(path.read_bytes(), LARGEST)
        except ValueError as error:
            raise ValueError(f"{path} must be a MATLAB file, but: {error}") from error

    @property
    def names(self) -> list[str]:
        """The names of its variables."""
        return list(self._is_readable)

    def _load(self, name: str) -> np.ndarray:
        if not self._is_readable[name]:
            raise ValueError(f"'{name}' in {self.path} must be an array of numbers, or cells of them, but is none.")
        from scipy.io import loadmat

        try:
            return np.asarray(loadmat(self.path, variable_names=[name])[name])
        except Exception as error:
            raise ValueError(f"'{name}' in {self.path} must be a matrix of numbers, but: {error}") from error
