"""MJCF as a text that refers to no file, for MuJoCo to read."""

import dataclasses
import math
import pathlib
from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

from ..foundations import listing
from .document import XmlElement, document
from .folder import Folder
from .graph import ModelGraph, expect_names

# Parts that a mechanism has no use for, and why they are not read.
LISTED = {
    "visual": "settings of pictures are not read",
    "statistic": "settings of pictures are not read",
    "size": "sizes of memory are not read",
    "sensor": "sensors are not read",
    "contact": "contacts are not read",
    "custom": "numbers and texts of the user are not read",
    "camera": "cameras and lights are not read",
    "light": "cameras and lights are not read",
    "texture": "shapes are not read",
    "material": "shapes are not read",
    "hfield": "shapes are not read",
    "skin": "shapes are not read",
}
# What moves bodies in ways that no mechanism has, or brings other files along: it cannot be left out unnoticed.
REFUSED = {
    "flexcomp": "bodies that bend have no element",
    "flex": "bodies that bend have no element",
    "plugin": "forces of plugins are not known",
    "extension": "forces of plugins are not known",
    "model": "models in models are not read; write the whole by MuJoCo's `MjSpec.to_xml` first",
    "attach": "models in models are not read; write the whole by MuJoCo's `MjSpec.to_xml` first",
}
FILES = ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")
FOLDERS = ("meshdir", "texturedir", "assetdir", "strippath")
# Attributes that name another element, and the own name.
REFERENCES = (
    *("name", "body", "body1", "body2", "joint", "joint1", "joint2", "jointinparent", "site", "site1", "site2"),
    *("cranksite", "slidersite", "refsite", "sidesite", "geom", "geom1", "geom2", "tendon", "tendon1", "tendon2"),
)
# The most copies that nested replications may make together: three nested ones of 1000 would fill any memory.
COPIES = 10_000


def expanded(root: XmlElement, folder: Folder) -> XmlElement:
    """The document with the files that it includes in their places.

    Raises:
        ValueError: for a file that is not there, lies elsewhere, or is included twice.
    """
    files_read = {root.file.resolve()}

    def with_includes(children: Iterable[XmlElement]) -> list[XmlElement]:
        elements = []
        for child in children:
            if child.tag != "include":
                elements.append(dataclasses.replace(child, children=with_includes(child.children)))
                continue
            path = folder.locate(child.text("file"), child.where)
            data = folder.read(child.text("file"), child.where)
            if path is None or data is None:
                raise child.refusal(f"must include a file that is there, but {child.text('file')!r} is not.")
            if path in files_read:
                raise child.refusal(f"must include each file once, but {child.text('file')!r} is read already.")
            files_read.add(path)
            inner = document(data, path)
            if inner.tag not in ("mujoco", "mujocoinclude"):
                raise inner.refusal("must be a <mujoco> or a <mujocoinclude> to be included, but is neither.")
            elements += with_includes(inner.children)
        return elements

    return dataclasses.replace(root, children=with_includes(root.children))


def expect_readable(root: XmlElement) -> None:
    """Refuses elements that cannot be read, and more copies than `COPIES`.

    Raises:
        ValueError: with file, line and element.
    """
    for element in root.walk():
        if element.tag in REFUSED:
            raise element.refusal(f"cannot be read: {REFUSED[element.tag]}.")

    def copies(element: XmlElement, before: float) -> None:
        count = before
        if element.tag in ("replicate", "composite"):
            words = element.attributes.get("count", "1").split()
            count *= math.prod(float(word) if word.replace(".", "", 1).isdigit() else 1.0 for word in words)
        if count > COPIES:
            raise element.refusal(f"must make {COPIES} copies at most, but makes {count:g}.")
        for child in element.children:
            copies(child, count)

    copies(root, 1.0)


def without(root: XmlElement, names: tuple[str, ...], graph: ModelGraph) -> XmlElement:
    """The document less the elements of these names, and less what refers to them or to anything in them."""
    expect_names(names, {e.attributes.get("name") for e in root.walk()})
    removed: set[str] = set(names)
    count = -1
    # To a fixed point: a tendon that goes with a joint takes its actuator with it, which may take a sensor.
    while names and count < len(removed):
        count = len(removed)
        for element in root.walk():
            if _is_removed(element, removed):
                removed |= {inner.attributes["name"] for inner in element.walk() if "name" in inner.attributes}

    def reduced(element: XmlElement) -> XmlElement:
        children = []
        for child in element.children:
            if not _is_removed(child, removed) and not (names and child.tag == "keyframe"):
                children.append(reduced(child))
            elif child.attributes.get("name") in names:
                graph.note("left out", child, "as was asked for")
            # Values of a keyframe are listed without names; they no longer fit when coordinates are missing.
            elif child.tag == "keyframe":
                graph.note("left out", child, "keyframes belong to all coordinates of the whole model")
        return dataclasses.replace(element, children=children)

    return reduced(root)


def _is_removed(element: XmlElement, removed: set[str]) -> bool:
    """Whether an element has one of these names, or refers to one, by itself or along a tendon."""
    if element.tag in ("mujoco", "default", "key", "keyframe"):
        return False
    inner = element.children if element.tag in ("fixed", "spatial") else []
    return any(part.attributes.get(name) in removed for part in (element, *inner) for name in REFERENCES)


def stripped(root: XmlElement, graph: ModelGraph) -> XmlElement:
    """The document without elements that no mechanism has, each of which is noted."""

    def is_read(element: XmlElement) -> bool:
        if element.tag in LISTED:
            for part in element.children if element.tag in ("sensor", "contact") else (element,):
                graph.note("listed", part, LISTED[element.tag])
            return False
        if element.tag == "geom" and "hfield" in element.attributes:
            graph.note("listed", element, LISTED["hfield"])
            return False
        return True

    def copy(element: XmlElement) -> XmlElement:
        attributes = {k: v for k, v in element.attributes.items() if k != "material"}
        children = [copy(child) for child in element.children if is_read(child)]
        return dataclasses.replace(element, attributes=attributes, children=children)

    return copy(root)


class Meshes:
    """The mesh files of a model, each under a name of its own.

    Args:
        root: the document.
        folder: where files may lie.

    Attributes:
        root: the document in which meshes have these names.
        files: for each the reference, with the folder it begins in, and the element.
    """

    def __init__(self, root: XmlElement, folder: Folder):
        self.folder = folder
        self.files: dict[str, tuple[str, str, XmlElement]] = {}
        self._within = ""
        for compiler in root.children_of("compiler"):
            self._within = compiler.attributes.get("meshdir", compiler.attributes.get("assetdir", self._within))
        self.root = self._renamed(root, False)

    def _renamed(self, element: XmlElement, in_asset: bool) -> XmlElement:
        drop = FOLDERS if element.tag == "compiler" else ()
        attributes = {k: v for k, v in element.attributes.items() if k not in drop}
        if any(name in attributes for name in FILES) and element.tag != "mesh":
            raise element.refusal("must not refer to a file, but does.")
        if in_asset and element.tag == "mesh" and "file" in attributes:
            reference = element.text("file")
            path = pathlib.PurePosixPath(reference.replace("\\", "/"))
            self.folder.locate(reference, element.where, self._within)
            attributes.setdefault("name", path.stem)
            # Names of our own, which are no paths: whatever MuJoCo would look for, it finds only what it is handed.
            attributes["file"] = f"{len(self.files)}{path.suffix}"
            self.files[attributes["file"]] = (reference, self._within, element)
        children = [self._renamed(child, element.tag == "asset") for child in element.children]
        return dataclasses.replace(element, attributes=attributes, children=children)

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if it is not there."""
        reference, within, element = self.files[name]
        return self.folder.read(reference, element.where, within)

    def references(self, names: Iterable[str]) -> str:
        """The references of files, for a message."""
        return listing(self.files[name][0] for name in names)


def xml_text(root: XmlElement) -> str:
    """The document as text, in which each element stands on its own line of the file where possible."""
    parts, line = [], 1

    def write(element: XmlElement) -> None:
        nonlocal line
        # MuJoCo's messages name lines of its input: with these they are lines of the file.
        if element.file == root.file and element.line > line:
            parts.append("\n" * (element.line - line))
            line = element.line
        attributes = "".join(f" {name}={quoteattr(value)}" for name, value in element.attributes.items())
        parts.append(f"<{element.tag}{attributes}>")
        for child in element.children:
            write(child)
        parts.append(f"</{element.tag}>")

    write(root)
    return "".join(parts)
