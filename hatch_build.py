"""The description that an index of packages shows: README.md without what only the repository has."""

import pathlib
import re

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


def on_an_index(text: str) -> str:
    """A README in which pictures of the repository are left out, and links into it are their names."""
    return LINK.sub(r"\1", PICTURE.sub("", text))


class Readme(MetadataHookInterface):
    """Sets `readme`."""

    def update(self, metadata: dict) -> None:
        """Reads README.md beside pyproject.toml."""
        text = on_an_index((pathlib.Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
