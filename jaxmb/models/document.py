"""XML as elements that know where they stand, read without trust."""

import dataclasses
import io
import math
import pathlib
import re
import xml.sax
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..foundations import listing

# The longest text in bytes, the deepest nesting and the most elements that are read: models of whole robots have a thousandth of them.
LONGEST, DEEPEST, MOST = 2**26, 128, 500_000
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclasses.dataclass(frozen=True)
class Element:
    """An element of a document.

    Attributes:
        tag: its name.
        attributes: by name.
        children: the elements inside, in their order.
        file: the file it stands in.
        line: the line on which it begins.
    """

    tag: str
    attributes: dict[str, str]
    children: list["Element"]
    file: pathlib.Path
    line: int

    @property
    def where(self) -> str:
        """File, line and element, with which a refusal begins."""
        return f"{self.file}, line {self.line}, {self}"

    def __str__(self) -> str:
        name = self.attributes.get("name")
        return f"<{self.tag}>" if name is None else f"<{self.tag} name={name!r}>"

    def refusal(self, reason: str) -> ValueError:
        """The error that says what is wrong with the element."""
        return ValueError(f"{self.where} {reason}")

    def all(self, *tags: str) -> list["Element"]:
        """The children with one of these names."""
        return [child for child in self.children if child.tag in tags]

    def one(self, tag: str) -> "Element | None":
        """The only child of that name, if there is one.

        Raises:
            ValueError: if there are several.
        """
        found = self.all(tag)
        if len(found) > 1:
            raise found[1].refusal(f"must stand in {self} once, but stands there {len(found)} times.")
        return found[0] if found else None

    def needed(self, tag: str) -> "Element":
        """The only child of that name.

        Raises:
            ValueError: if there is none, or there are several.
        """
        found = self.one(tag)
        if found is None:
            raise self.refusal(f"must hold a <{tag}>, but does not.")
        return found

    def walk(self) -> Iterator["Element"]:
        """The element and all inside, in their order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def text(self, attribute: str, default: str | None = None) -> str:
        """An attribute that is not empty.

        Raises:
            ValueError: if there is none, and no default.
        """
        found = self.attributes.get(attribute, default)
        if not found or not found.strip():
            raise self.refusal(f"must have the attribute `{attribute}`, but has {listing(self.attributes)}.")
        return found

    def numbers(self, attribute: str, count: int, default: Sequence[float] | None = None) -> np.ndarray:
        """An attribute of so many finite numbers, (count,).

        Raises:
            ValueError: for anything else, and if there is none, and no default.
        """
        if attribute not in self.attributes and default is not None:
            return np.array(default, float)
        words = self.text(attribute).split()
        wrong = [word for word in words if NUMBER.fullmatch(word) is None or not math.isfinite(float(word))]
        if wrong or len(words) != count:
            kind = "a finite number" if count == 1 else f"{count} finite numbers"
            raise self.refusal(f"must have {kind} as `{attribute}`, but has {self.attributes[attribute]!r}.")
        return np.array([float(word) for word in words])

    def number(self, attribute: str, default: float | None = None) -> float:
        """An attribute that is one finite number."""
        return float(self.numbers(attribute, 1, None if default is None else (default,))[0])


class _Handler(xml.sax.ContentHandler):
    """Makes elements of what a parser tells."""

    def __init__(self, file: pathlib.Path):
        super().__init__()
        self.file, self.root, self.open, self.count = file, None, [], 0
        self.locator: Any = None

    def setDocumentLocator(self, locator: Any) -> None:
        self.locator = locator

    def startElement(self, name: str, attrs: Any) -> None:
        element = Element(name, dict(attrs.items()), [], self.file, self.locator.getLineNumber())
        self.count += 1
        if len(self.open) >= DEEPEST:
            raise element.refusal(f"must not be nested in more than {DEEPEST} others, but is.")
        if self.count > MOST:
            raise element.refusal(f"must be one of {MOST} at most in a file, but there are more.")
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def endElement(self, name: str) -> None:
        self.open.pop()


def document(data: bytes, file: pathlib.Path) -> Element:
    """The root of a document. Entities and document types are refused, which nothing of ours needs and bombs are made of.

    Raises:
        ValueError: with file and line, for what is no XML, and for what is too long or too deep.
    """
    from defusedxml import DefusedXmlException
    from defusedxml.sax import make_parser

    if len(data) > LONGEST:
        raise ValueError(f"{file} must not be longer than {LONGEST} bytes, but has {len(data)}.")
    handler, parser = _Handler(file), make_parser()
    parser.forbid_dtd = True
    parser.setContentHandler(handler)
    parser.setErrorHandler(xml.sax.ErrorHandler())
    source = xml.sax.InputSource()
    source.setByteStream(io.BytesIO(data))
    try:
        parser.parse(source)
    except xml.sax.SAXParseException as error:
        raise ValueError(
            f"{file}, line {error.getLineNumber()}, must be XML, but is not: {error.getMessage()}."
        ) from None
    except DefusedXmlException as error:
        line = handler.locator.getLineNumber()
        raise ValueError(
            f"{file}, line {line}, must not declare document types or entities, but does ({type(error).__name__})."
        ) from None
    except (ValueError, LookupError) as error:
        if str(error).startswith(str(file)):
            raise
        raise ValueError(f"{file} must be XML, but is not: {error}.") from error
    if handler.root is None:
        raise ValueError(f"{file} must hold an element, but holds none.")
    return handler.root
