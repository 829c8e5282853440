"""Files that are written completely or not at all, and texts that others have written."""

import contextlib
import os
import pathlib
import tomllib
import uuid
from collections.abc import Iterator
from typing import Any

# Tables and arrays in each other; a description needs five, and Python itself gives up at some hundreds.
DEEPEST = 64


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], argument: str = "path") -> Iterator[pathlib.Path]:
    """A fresh empty file in the folder of `path`, which takes its place at the end, if nothing has been raised until then.

    Its name cannot be guessed and must be new, so that nobody can have put a link there that leads elsewhere. A link at `path`
    itself is replaced, not followed.

    Raises:
        ValueError: if there is no such folder, or `path` is one.
    """
    path = folder_there(path, argument)
    fresh = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")  # some writers go by the suffix
    # O_EXCL fails on a link that is there, which a plain open would follow.
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield fresh
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        # In one step for other processes, and after the data: a crash leaves the old file or the new one.
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def folder_there(path: str | os.PathLike[str], argument: str) -> pathlib.Path:
    """The path of a file to be written.

    Raises:
        ValueError: if its folder is not there, or if it is a folder itself.
    """
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise ValueError(
            f"Argument `{argument}` must name a file in a folder that is there, but '{path.parent}' is not."
        )
    if path.is_dir():
        raise ValueError(f"Argument `{argument}` must name a file, but '{path}' is a folder.")
    return path


def toml_table(text: str) -> dict[str, Any]:
    """What a text in TOML says.

    Raises:
        ValueError: if it is none, or nested too deeply.
    """
    deep = ValueError(f"it is nested more deeply than {DEEPEST} tables and arrays.")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise deep from None
    level = [table]
    for _ in range(DEEPEST):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [x for part in inner for x in part if isinstance(x, dict | list)]
        if not level:
            return table
    raise deep
