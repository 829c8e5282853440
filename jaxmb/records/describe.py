"""Records described by a file beside them."""

import os
from collections.abc import Mapping

from ..foundations import contract
from .column import Column
from .read import read
from .record import Record
from .toml_file import check_keys, read_toml, sibling_path

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
    path, description = read_toml(path)
    check_keys(description, KEYS, ("file", "columns"), str(path))
    columns = description["columns"]
    if not isinstance(columns, Mapping):
        raise TypeError(f"'columns' in {path} must be a table, but is {columns!r}.")
    return read(
        sibling_path(path, description["file"], "file"),
        {name: _column(column, f"Column '{name}' in {path}") for name, column in columns.items()},
        time=_column(description.get("time", "time"), f"Column 'time' in {path}"),
        source=description.get("source"),
    )


def _column(description: object, what: str) -> str | Column:
    if isinstance(description, str):
        return description
    if not isinstance(description, Mapping):
        raise TypeError(f"{what} must be a name or a table, but is {description!r}.")
    check_keys(description, COLUMN_KEYS, ("column",), what)
    index = description.get("index")
    rest = {key: description[key] for key in ("unit", "scale", "offset") if key in description}
    try:
        return Column(description["column"], index=tuple(index) if isinstance(index, list) else index, **rest)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from error
