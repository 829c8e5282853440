"""XML of unknown origin as elements with file and line."""

import dataclasses
import io
import math
import pathlib
import re
import xml.sax
import xml.sax.xmlreader
from collections.abc import Iterator, Sequence

import numpy as np

from ..foundations import listing

# The longest text in bytes, the deepest nesting and the most elements that are read: models of whole robots have a thousandth of them.
MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS = 2**26, 128, 500_000
# Python's `float` also takes underscores, digits of other scripts, "nan" and "inf", which no format of models has.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclasses.dataclass(frozen=True)
class XmlElement:
    """An element of a document.

    Attributes:
        tag: its name.
        attributes: by name.
        children: the elements inside, in their order.
        file: the file it stands in.
        line: the line on which it begins.
        pieces: the text directly inside, in the pieces in which the parser hands it over.
    """

    tag: str
    attributes: dict[str, str]
    children: list["XmlElement"]
    file: pathlib.Path
    line: int
    pieces: list[str] = dataclasses.field(default_factory=list)

    @property
    def content(self) -> str:
        """The text directly inside, without blanks around it."""
        return "".join(self.pieces).strip()

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

    def children_of(self, *tags: str) -> list["XmlElement"]:
        """The children with one of these names."""
        return [child for child in self.children if child.tag in tags]

    def optional_child(self, tag: str) -> "XmlElement | None":
        """The only child of that name, if there is one.

        Raises:
            ValueError: if there are several.
        """
        children = self.children_of(tag)
        if len(children) > 1:
            raise children[1].refusal(f"must stand in {self} once, but stands there {len(children)} times.")
        return children[0] if children else None

    def required_child(self, tag: str) -> "XmlElement":
        """The only child of that name.

        Raises:
            ValueError: if there is none, or there are several.
        """
        child = self.optional_child(tag)
        if child is None:
            raise self.refusal(f"must hold a <{tag}>, but does not.")
        return child

    def walk(self) -> Iterator["XmlElement"]:
        """The element and all inside, in their order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def text(self, attribute: str, default: str | None = None) -> str:
        """An attribute that is not empty.

        Raises:
            ValueError: if there is none, and no default.
        """
        value = self.attributes.get(attribute, default)
        if not value or not value.strip():
            raise self.refusal(f"must have the attribute `{attribute}`, but has {listing(self.attributes)}.")
        return value

    def numbers(self, attribute: str, count: int, default: Sequence[float] | None = None) -> np.ndarray:
        """An attribute of so many finite numbers, (count,).

        Raises:
            ValueError: for anything else, and if there is none, and no default.
        """
        if attribute not in self.attributes and default is not None:
            return np.array(default, float)
        return self._finite(self.text(attribute), count, f" as `{attribute}`")

    def content_numbers(self, count: int) -> np.ndarray:
        """The text inside as so many finite numbers, (count,).

        Raises:
            ValueError: for anything else.
        """
        return self._finite(self.content, count, " inside")

    def _finite(self, text: str, count: int, what: str) -> np.ndarray:
        words = text.split()
        malformed = [word for word in words if NUMBER.fullmatch(word) is None or not math.isfinite(float(word))]
        if malformed or len(words) != count:
            kind = "a finite number" if count == 1 else f"{count} finite numbers"
            raise self.refusal(f"must have {kind}{what}, but has {text!r}.")
        return np.array([float(word) for word in words])

    def number(self, attribute: str, default: float | None = None) -> float:
        """An attribute that is one finite number."""
        return float(self.numbers(attribute, 1, None if default is None else (default,))[0])


# SAX, since ElementTree drops line numbers, and a refusal without a line is of no use in a file of thousands of them.
class _Handler(xml.sax.ContentHandler):
    """Makes elements from the events of a parser."""

    def __init__(self, file: pathlib.Path):
        super().__init__()
        self.file, self.root, self.open, self.count = file, None, [], 0
        self.locator: xml.sax.xmlreader.Locator | None = None

    def setDocumentLocator(self, locator: xml.sax.xmlreader.Locator) -> None:
        self.locator = locator

    @property
    def line(self) -> int:
        """The line that the parser has reached."""
        return 0 if self.locator is None else self.locator.getLineNumber() or 0

    def startElement(self, name: str, attrs: xml.sax.xmlreader.AttributesImpl) -> None:
        element = XmlElement(tag=name, attributes=dict(attrs.items()), children=[], file=self.file, line=self.line)
        self.count += 1
        # Checked while reading, before functions that walk through elements by recursion meet Python's own limit.
        if len(self.open) >= MAX_DEPTH:
            raise element.refusal(f"must not be nested in more than {MAX_DEPTH} others, but is.")
        if self.count > MAX_ELEMENTS:
            raise element.refusal(f"must be one of {MAX_ELEMENTS} at most in a file, but there are more.")
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def characters(self, content: str) -> None:
        self.open[-1].pieces.append(content)

    def endElement(self, name: str) -> None:
        self.open.pop()


def document(data: bytes, file: pathlib.Path) -> XmlElement:
    """The root of a document. Entities and document types are refused: no model needs them, and XML bombs are made of them.

    Raises:
        ValueError: with file and line, for what is no XML, and for what is too long or too deep.
    """
    from defusedxml import DefusedXmlException
    from defusedxml.sax import make_parser

    if len(data) > MAX_BYTES:
        raise ValueError(f"{file} must not be longer than {MAX_BYTES} bytes, but has {len(data)}.")
    handler, parser = _Handler(file), make_parser()
    # Without a document type there are no entities, neither those that expand without end nor those that open files.
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
        raise ValueError(
            f"{file}, line {handler.line}, must not declare document types or entities, but does ({type(error).__name__})."
        ) from None
    except (ValueError, LookupError) as error:
        # Refusals of the handler come through the parser, and have file and line already.
        if str(error).startswith(str(file)):
            raise
        raise ValueError(f"{file} must be XML, but is not: {error}.") from error
    assert handler.root is not None
    return handler.root
