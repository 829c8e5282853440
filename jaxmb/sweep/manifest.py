"""What a folder of shards belongs to."""

import json
import os
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import jax

from ..foundations import default_float, text_digest, version
from .shards import KINDS
from .table import Table, digest

FILE = "manifest.json"
FORMAT = 1
PACKAGES = ("jaxmb", "jax", "jaxlib", "diffrax", "equinox")


def manifest(fn: Callable[..., Any], table: Table, rows_per_shard: int, shards: int, kind: str) -> dict[str, Any]:
    """All that the numbers in a folder depend on, as far as it can be told: shards of one folder agree in it."""
    columns = {name: [str(values.dtype), *values.shape[1:]] for name, values in table.items()}
    return {
        "format": FORMAT,
        "function": f"{getattr(fn, '__module__', None)}:{getattr(fn, '__qualname__', type(fn).__qualname__)}",
        "source": text_digest(fn),
        "columns": columns,
        "table": digest(table),
        "rows": len(next(iter(table.values()))),
        "rows_per_shard": rows_per_shard,
        "shards": shards,
        "kind": kind,
        "dtype": str(default_float()),
        "platform": jax.default_backend(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def claim(folder: pathlib.Path, own: dict[str, Any]) -> None:
    """Writes the manifest of a new sweep, or checks that the folder belongs to this one.

    Raises:
        ValueError: with all that differs, if it belongs to another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    if not path.exists():
        # Written beside and linked: a link fails where the name exists, so that of several processes one manifest
        # wins, and it is complete.
        temporary = folder / f".{FILE}.{uuid.uuid4().hex}.part"
        temporary.write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
        try:
            os.link(temporary, path)  # of several processes the first one
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    manifest = load(folder)
    differing = [key for key in {**own, **manifest} if own.get(key) != manifest.get(key)]
    if differing:
        differences = "; ".join(
            f"'{key}' is {_short(manifest.get(key))} there and {_short(own.get(key))} here" for key in differing
        )
        raise ValueError(f"Folder {folder} must be empty or of this sweep, but holds another one: {differences}.")


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " …"


def _check(manifest: dict[str, Any]) -> None:
    """Refuses counts and kinds that no sweep has: files are looked for by them."""
    for key in ("rows", "rows_per_shard", "shards"):
        # Not `isinstance`: true is an int in Python, and JSON has it.
        if type(manifest[key]) is not int or manifest[key] < 1:
            raise ValueError(f"'{key}' must be a positive integer, but is {manifest[key]!r}.")
    shards = -(-manifest["rows"] // manifest["rows_per_shard"])
    if manifest["shards"] != shards:
        raise ValueError(f"'shards' must be {shards} for these rows, but is {manifest['shards']}.")
    if manifest["kind"] not in KINDS:
        raise ValueError(f"'kind' must be one of {', '.join(KINDS)}, but is {manifest['kind']!r}.")


def load(folder: pathlib.Path) -> dict[str, Any]:
    """The manifest.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        raise FileNotFoundError(f"There is no sweep in {folder}: it holds no {FILE}.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise ValueError(f"it has format {manifest['format']}, and not {FORMAT}.")
        _check(manifest)
        return manifest
    # RecursionError: deeply nested brackets in a damaged file.
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} must be the manifest of a sweep, but: {error}") from error
