"""Records described by a file beside them."""

import os
from collections.abc import Mapping
from typing import Any

from ..foundations import contract
from .beside import beside, check_keys, toml
from .column import Column
from .read import read
from .record import Record

KEYS = ("file", "source", "time", "columns")
COLUMN_KEYS = ("column", "unit", "scale", "offset", "index")


@contract
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
    path, described = toml(path)
    check_keys(described, KEYS, ("file", "columns"), str(path))
    columns = described["columns"]
    if not isinstance(columns, Mapping):
        raise TypeError(f"'columns' in {path} must be a table, but is {columns!r}.")
    return read(
        beside(path, described["file"], "file"),
        {name: _column(column, f"Column '{name}' in {path}") for name, column in columns.items()},
        time=_column(described.get("time", "time"), f"Column 'time' in {path}"),
        source=described.get("source"),
    )


def _column(described: Any, what: str) -> str | Column:
    if isinstance(described, str):
        return described
    if not isinstance(described, Mapping):
        raise TypeError(f"{what} must be a name or a table, but is {described!r}.")
    check_keys(described, COLUMN_KEYS, ("column",), what)
    index = described.get("index")
    rest = {key: described[key] for key in ("unit", "scale", "offset") if key in described}
    try:
        return Column(described["column"], index=tuple(index) if isinstance(index, list) else index, **rest)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from error
