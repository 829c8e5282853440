"""Searches in files, from which they go on bit by bit as they would have."""

import hashlib
import json
import os
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..foundations import Function, folder_there, replacing, text_digest

T = TypeVar("T")
# Raised whenever the arrays of a search, or their order, change: an old file is refused then, not misread.
FORMAT = 1


class Checkpoint:
    """A file that holds the state of a search.

    A line of JSON tells format and fingerprint of the search, then follow the arrays, as Equinox writes them. A new
    version is written beside the old one and takes its place when it is complete.

    Args:
        path: of the file; None for no file.
        search: a pytree of all that the search depends on.

    Raises:
        ValueError: if the folder of the file is not there.
    """

    def __init__(self, path: str | os.PathLike[str] | None, search: PyTree):
        self.path = None if path is None else folder_there(path, "checkpoint")
        self.header = {"format": FORMAT, "search": _fingerprint(search) if path is not None else ""}

    def load(self, like: T) -> T:
        """The state in the file; `like` itself if there is none.

        Raises:
            ValueError: for a file of another search, or no file of this kind.
        """
        if self.path is None or not self.path.exists():
            return like
        with self.path.open("rb") as file:
            try:
                header = json.loads(file.readline())
            except ValueError:
                header = None
            if header != self.header:
                raise ValueError(
                    f"Argument `checkpoint` must name a file of this search, or none, but '{self.path}' belongs to another one: other "
                    "parameters, data, functions, options or formats. Delete it, or give another name."
                )
            try:
                return eqx.tree_deserialise_leaves(file, like)
            except Exception as error:
                raise ValueError(
                    f"Argument `checkpoint` must name a whole file, but '{self.path}' is damaged: delete it."
                ) from error

    def save(self, state: PyTree) -> None:
        """Writes the state."""
        if self.path is None:
            return
        # A process that is killed while it writes must not take the last good state with it.
        with replacing(self.path, "checkpoint") as fresh, fresh.open("wb") as file:
            file.write(json.dumps(self.header).encode() + b"\n")
            eqx.tree_serialise_leaves(file, state)


def _fingerprint(tree: PyTree) -> str:
    """A digest of all numbers of a tree, their shapes and types; functions count by their names and texts."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, Function))[0]:
        digest.update(jax.tree_util.keystr(path).encode())
        if eqx.is_array_like(leaf):
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            fn = leaf.fn if isinstance(leaf, Function) else leaf
            digest.update((getattr(fn, "__qualname__", type(fn).__qualname__) + text_digest(fn)).encode())
    return digest.hexdigest()
