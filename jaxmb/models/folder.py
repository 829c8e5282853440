"""The files that a model may refer to."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping

from ..foundations import listing

PACKAGE = re.compile(r"(?:package|model)://([^/]*)/?(.*)")
# The largest file in bytes that a model may bring along.
MAX_FILE_BYTES = 2**28


@dataclasses.dataclass(frozen=True)
class Folder:
    """The folders that the files of a model may lie in, those of packages among them; nothing else is opened.

    Attributes:
        root: the folder of the model.
        allowed: further folders.
        packages: the folder of each package, by its name, for references "package://name/file".
    """

    root: pathlib.Path
    allowed: tuple[pathlib.Path, ...] = ()
    packages: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        path: pathlib.Path,
        allow: tuple[str | os.PathLike[str], ...] = (),
        packages: Mapping[str, str | os.PathLike[str]] | None = None,
    ) -> "Folder":
        """The folder of a model, with what the caller allows."""
        real = lambda x: pathlib.Path(x).resolve()
        return cls(real(path).parent, tuple(map(real, allow)), {k: real(v) for k, v in (packages or {}).items()})

    def locate(self, reference: str, where: str, within: str = "") -> pathlib.Path | None:
        """The file that a reference means; None for one in a package whose folder is not known.

        Args:
            reference: a relative path, or "package://name/file".
            where: what refers to it, with which a refusal begins.
            within: the folder in which relative paths begin, seen from that of the model.

        Raises:
            ValueError: if it lies outside of all folders that are allowed, links resolved.
        """
        match = PACKAGE.fullmatch(reference)
        if match is not None:
            # `model://` is Gazebo's name for the same.
            name, rest = match.groups()
            if name not in self.packages:
                return None
            base = self.packages[name]
        else:
            rest = reference.removeprefix("file://")
            base = self.root / within
        homes = (self.root, *self.packages.values(), *self.allowed)
        # Resolved before it is compared: ".." and links inside of the folder may lead out of it.
        path = (base / rest.replace("\\", "/")).resolve()
        if not any(path.is_relative_to(home) for home in homes):
            raise ValueError(
                f"{where} must refer to files in {listing(homes)}, but refers to {reference!r}, which is {path}; `allow=[folder]` allows a folder."
            )
        return path

    def read(self, reference: str, where: str, within: str = "") -> bytes | None:
        """The contents of a file; None if there is no such file.

        Raises:
            ValueError: if it lies elsewhere, or is too large.
        """
        path = self.locate(reference, where, within)
        # A mesh that is not there may not be needed; who needs it refuses.
        if path is None or not path.is_file():
            return None
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ValueError(f"{where} must refer to files of {MAX_FILE_BYTES} bytes at most, but {path} has {size}.")
        return path.read_bytes()
