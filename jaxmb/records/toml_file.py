"""Descriptions in TOML, and the files beside them."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..foundations import listing, toml_table


def read_toml(path: str | os.PathLike[str]) -> tuple[pathlib.Path, dict[str, Any]]:
    """A TOML file and what it says.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is no TOML.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        return path, toml_table(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of the encoding or of the syntax
        raise ValueError(f"{path} must be a TOML file: {error}") from error


def sibling_path(path: pathlib.Path, file: object, key: str) -> pathlib.Path:
    """The file that a key names, which must be in the folder of `path` or below, wherever links lead.

    Raises:
        TypeError: if it is no name.
        ValueError: if it leads elsewhere.
    """
    if not isinstance(file, str):
        raise TypeError(f"'{key}' in {path} must be a name, but is {file!r}.")
    # Descriptions come from others: a name must not lead out of the folder, by `..` or by links.
    folder = path.parent.resolve()
    if pathlib.Path(file).is_absolute() or not (folder / file).resolve().is_relative_to(folder):
        raise ValueError(f"'{key}' in {path} must be in the same folder or below, but is '{file}'.")
    return path.parent / file


def check_keys(keys: Mapping[str, Any], allowed: Sequence[str], required: Sequence[str], what: str) -> None:
    """Refuses keys that are not known, and asks for those that are needed."""
    unknown, lacking = [key for key in keys if key not in allowed], [key for key in required if key not in keys]
    if unknown:
        raise ValueError(f"{what} has unknown keys {listing(unknown)}; they may be {listing(allowed)}.")
    if lacking:
        raise ValueError(f"{what} lacks {listing(lacking)}.")
