"""The files of an SDF: their versions, and models that are included from other ones."""

import dataclasses
import pathlib
from collections.abc import Sequence

from .document import MAX_DEPTH, MAX_ELEMENTS, XmlElement, document
from .folder import Folder
from .graph import ModelGraph, expect_names
from .sdf_frames import MODEL, SCOPE, inside, is_true

# From version 1.5 on an axis is in the frame of its joint; before, in that of the model.
FIRST_VERSION = (1, 5)
# The most files that a model may include, each as often as it is.
MAX_INCLUDES = 1000
# What tells the file of a model that is named by its folder.
CONFIG = "model.config"
# What an <include> says instead of the model that it names.
REPLACED = ("name", "pose", "static", "placement_frame")


class SdfFiles:
    """An <sdf> with the models of other files in the place of <include>, and without what is not to be read.

    Args:
        folder: where files may lie.
        excluded: names of elements that are not read, of models in models with "::" between.
        graph: what notes are added to.

    Attributes:
        names: those of all elements that were met, and those that were left out.
    """

    def __init__(self, folder: Folder, excluded: Sequence[str], graph: ModelGraph):
        self.folder, self.excluded, self.graph = folder, excluded, graph
        self.includes = self.elements = 0
        self.names: set[str | None] = set()
        self._roots: dict[pathlib.Path, XmlElement] = {}

    def expanded(
        self, element: XmlElement, scope: str = MODEL, depth: int = 0, files: tuple[pathlib.Path, ...] = ()
    ) -> XmlElement:
        """An element with the models that it includes.

        Raises:
            ValueError: with file, line and element, for files elsewhere or not there, what is no model, circles, and too many or too deep.
        """
        files = files or (element.file.resolve(),)
        # Counted here too: files that include each other twice grow by powers of two.
        self.elements += 1
        if self.elements > MAX_ELEMENTS or depth > MAX_DEPTH:
            raise element.refusal(
                f"must be one of {MAX_ELEMENTS} at most, nested in {MAX_DEPTH} others at most, but with what is included it is not."
            )
        children = []
        for child in element.children:
            self.names.add(child.attributes.get("name"))
            if self._is_excluded(child, scope):
                self.graph.note("left out", child, "as was asked for")
                continue
            path = ()
            if child.tag == "include":
                child, file = self._included(child, files)
                path = (file,)
            # The outermost model, in an <sdf> or a <world>, gives no names.
            is_inner = child.tag == element.tag == "model"
            inner = inside(scope, child.text("name")) if is_inner else scope
            children.append(self.expanded(child, inner, depth + 1, (*files, *path)))
        return dataclasses.replace(element, children=children)

    def expect_excluded(self) -> None:
        """Refuses names to be left out that no element has.

        Raises:
            ValueError: with these names.
        """
        # What is in a model that is left out is not looked at, but goes with it.
        outer = [x for x in self.excluded if not any(x.startswith(y + SCOPE) for y in self.excluded)]
        expect_names(outer, self.names)

    def _is_excluded(self, element: XmlElement, scope: str) -> bool:
        """Whether an element is to be left out, by its name or as a joint at such a link or model."""
        names = [end.content for end in element.children_of("parent", "child")] if element.tag == "joint" else []
        if element.tag == "include":
            uri, name = element.required_child("uri").content, element.optional_child("name")
            names = [uri.rstrip("/").split("/")[-1].removesuffix(".sdf") if name is None else name.content]
        elif element.tag in ("model", "link", "joint", "frame"):
            names.append(element.text("name"))
        full = [inside(scope, name) for name in names]
        matches = {x for x in self.excluded for name in full if name == x or name.startswith(x + SCOPE)}
        self.names |= matches
        return bool(matches)

    def _included(self, include: XmlElement, files: tuple[pathlib.Path, ...]) -> tuple[XmlElement, pathlib.Path]:
        """The model that an <include> means, with what it says of it, and its file."""
        if is_true(include, "merge"):
            raise include.refusal(
                "must not `merge` a model into another one, but does: it is read as a model of its own."
            )
        path = self._path(include)
        if path in files:
            raise include.refusal(f"must not include the file it is included by, but {path} is one.")
        self.includes += 1
        if self.includes > MAX_INCLUDES:
            raise include.refusal(f"must be one of {MAX_INCLUDES} at most, but there are more.")
        if path not in self._roots:
            data = self.folder.read(str(path), include.where)
            assert data is not None
            self._roots[path] = document(data, path)
        root = self._roots[path]
        expect_version(root)
        models = root.children_of("model")
        if len(models) != 1:
            raise root.refusal(f"must hold one <model> to be included, but holds {len(models)}.")
        return _replaced_by(include, models[0]), path

    def _path(self, include: XmlElement) -> pathlib.Path:
        """The file that an <include> means; of a folder, the one that its `model.config` names."""
        uri = include.required_child("uri")
        path = self.folder.locate(uri.content, uri.where, str(include.file.resolve().parent))
        if path is not None and path.is_dir():
            path = self._of_folder(path, uri)
        if path is None or not path.is_file():
            raise uri.refusal(
                f"must refer to a model that is there, but refers to {uri.content!r}; `packages={{name: folder}}` says where models are."
            )
        return path

    def _of_folder(self, path: pathlib.Path, uri: XmlElement) -> pathlib.Path | None:
        data = self.folder.read(str(path / CONFIG), uri.where)
        if data is None:
            return None
        named = document(data, path / CONFIG).children_of("sdf")
        if not named:
            return None
        newest = max(named, key=lambda sdf: _version(sdf.attributes.get("version", "")))
        return self.folder.locate(newest.content, newest.where, str(path))


def _replaced_by(include: XmlElement, model: XmlElement) -> XmlElement:
    """A model as an <include> has it: under another name, elsewhere, or standing still."""
    own = {tag: include.optional_child(tag) for tag in REPLACED}
    own = {tag: element for tag, element in own.items() if element is not None}
    if "placement_frame" in own and "pose" not in own:
        raise include.refusal("must hold a <pose> where it holds a <placement_frame>, but does not.")
    attributes = model.attributes | {tag: own.pop(tag).content for tag in ("name", "placement_frame") if tag in own}
    others = [child for child in include.children if child.tag not in (*REPLACED, "uri")]
    rest = [child for child in model.children if child.tag not in own]
    return dataclasses.replace(model, attributes=attributes, children=[*own.values(), *rest, *others])


def expect_version(root: XmlElement) -> None:
    """Refuses what is no <sdf>, or an old one.

    Raises:
        ValueError: with file and line.
    """
    if root.tag != "sdf":
        raise root.refusal("must be an <sdf>, but is not.")
    version = root.text("version")
    if _version(version) < FIRST_VERSION:
        first = ".".join(map(str, FIRST_VERSION))
        raise root.refusal(
            f"must have the `version` {first} or a later one, but has {version!r}; `gz sdf -p` writes it anew."
        )


def _version(text: str) -> tuple[int, ...]:
    """The numbers of a version; none for what is no version."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
