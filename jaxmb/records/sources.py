"""Files as named arrays of numbers."""

import abc
import csv
import json
import pathlib
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.io

from ..foundations import listing

# What stands for a missing sample in text, besides an empty cell.
MISSING = {"", "nan", "na"}
DELIMITERS = ",;\t"
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
        """What there is."""

    @abc.abstractmethod
    def _stored(self, name: str) -> np.ndarray:
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
                f"{what} is '{name}' in {self.path}, which does not hold it: there are {listing(self.names)}."
            )
        return self._stored(name)


class Text(AbstractSource):
    """A table in text: a line of names, then lines of numbers; lines that begin with `#` are comments."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
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
        """Those of the first line."""
        return self._names

    def unit(self, name: str) -> str | None:
        """By the comment `# units {"name": "unit", …}`, if there is one."""
        return self._units.get(name)

    def _stored(self, name: str) -> np.ndarray:
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
                found = json.loads(line.removeprefix(UNITS_LINE))
            except ValueError:
                continue
            if isinstance(found, dict):
                return {name: str(unit) for name, unit in found.items()}
    return {}


def names_in(line: str) -> tuple[list[str], str]:
    """The names in the first line of a table, and what is between them."""
    delimiter = max(DELIMITERS, key=lambda delimiter: len(_cells(line, delimiter)))
    return _cells(line, delimiter), delimiter


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]


class Arrays(AbstractSource):
    """NumPy's `.npz`; Python objects in it are never loaded."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            file = np.load(path, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array.")
            with file:
                self._arrays = {name: _unpickled(file, name) for name in file.files}
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise ValueError(f"{path} must be a file of `numpy.savez`, but: {error}") from error

    @property
    def names(self) -> list[str]:
        """Those of its arrays."""
        return list(self._arrays)

    def _stored(self, name: str) -> np.ndarray:
        array = self._arrays[name]
        if array is None:
            raise ValueError(f"'{name}' in {self.path} is an array of Python objects, which are never loaded.")
        return array


def _unpickled(file: Any, name: str) -> np.ndarray | None:
    """An array, or None where it would have to be unpickled."""
    try:
        return file[name]
    except ValueError as error:
        if "pickle" in str(error):
            return None
        raise


class Matlab(AbstractSource):
    """MATLAB's `.mat` up to version 7.2: matrices, and cell arrays of them."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            stored = scipy.io.loadmat(path)
        except NotImplementedError as error:
            raise ValueError(f"{path} is a MATLAB file of version 7.3; save it with save(…, '-v7').") from error
        except Exception as error:
            raise ValueError(f"{path} must be a MATLAB file, but: {error}") from error
        self._arrays = {name: value for name, value in stored.items() if not name.startswith("__")}

    @property
    def names(self) -> list[str]:
        """Those of its variables."""
        return list(self._arrays)

    def _stored(self, name: str) -> np.ndarray:
        return np.asarray(self._arrays[name])
