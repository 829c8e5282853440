"""Records described by a file beside them."""

import os
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

from ..foundations import listing
from .column import Column
from .read import read
from .record import Record

KEYS = ("file", "source", "time", "columns")
COLUMN_KEYS = ("column", "unit", "scale", "offset", "index")


def read_described(path: str | os.PathLike[str]) -> Record:
    """Reads the record that a TOML file describes, with the keys of `read` and `Column`.

        file = "swing.csv"
        source = "test stand, third run"

        [time]
        column = "t"
        unit = "ms"

        [columns.angle]
        column = "enc"
        unit = "deg"
        offset = 180.0

    `source`, `unit`, `scale`, `offset` and `index` may be left out; a column may be a name alone (``time = "t"``).

    Args:
        path: the TOML file. The data are in its folder or below; `file` is relative to it.

    Returns:
        The record.

    Raises:
        FileNotFoundError: if one of the files is not there.
        TypeError: as `read` and `Column`, and if a table or a name is none.
        ValueError: as `read` and `Column`, if the file is no TOML, has unknown keys or lacks some, or if `file` is not below its folder.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of the encoding or of the syntax
        raise ValueError(f"{path} must be a TOML file: {error}") from error
    _check_keys(described, KEYS, ("file", "columns"), str(path))
    columns = described["columns"]
    if not isinstance(columns, Mapping):
        raise TypeError(f"'columns' in {path} must be a table, but is {columns!r}.")
    return read(
        _beside(path, described["file"]),
        {name: _column(column, f"Column '{name}' in {path}") for name, column in columns.items()},
        time=_column(described.get("time", "time"), f"Column 'time' in {path}"),
        source=described.get("source"),
    )


def _beside(path: pathlib.Path, file: Any) -> pathlib.Path:
    """The file, which must be in the folder of `path` or below, wherever links lead."""
    if not isinstance(file, str):
        raise TypeError(f"'file' in {path} must be a name, but is {file!r}.")
    folder = path.parent.resolve()
    if pathlib.Path(file).is_absolute() or not (folder / file).resolve().is_relative_to(folder):
        raise ValueError(f"'file' in {path} must be in the same folder or below, but is '{file}'.")
    return path.parent / file


def _column(described: Any, what: str) -> str | Column:
    if isinstance(described, str):
        return described
    if not isinstance(described, Mapping):
        raise TypeError(f"{what} must be a name or a table, but is {described!r}.")
    _check_keys(described, COLUMN_KEYS, ("column",), what)
    index = described.get("index")
    rest = {key: described[key] for key in ("unit", "scale", "offset") if key in described}
    try:
        return Column(described["column"], index=tuple(index) if isinstance(index, list) else index, **rest)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from error


def _check_keys(described: Mapping[str, Any], known: tuple[str, ...], needed: tuple[str, ...], what: str) -> None:
    unknown, lacking = [key for key in described if key not in known], [key for key in needed if key not in described]
    if unknown:
        raise ValueError(f"{what} has unknown keys {listing(unknown)}; they may be {listing(known)}.")
    if lacking:
        raise ValueError(f"{what} lacks {listing(lacking)}.")
