"""Faces and lines in the world."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .colour import mix
from .solid import Solid

Colour = str | tuple[str, float]
FAINT = 0.3  # opacity of faces in the plane


class Primitive(NamedTuple):
    """A face or a line in the world.

    Attributes:
        name: of the element that it belongs to.
        loops: of a face its outline and holes, else one line (n, d) or one dot (1, d).
        colour: written #rrggbb, or with its opacity.
        fills: whether it is a face.
        width: of the line in points; 0 for none.
        rim: colour of a face's outline, or None.
        heads: number of its arrow heads: 1 at the end, 2 for a second one behind.
        layer: −1 for what is behind everything, 1 for what nothing hides, 0 for all others.
    """

    name: str
    loops: tuple[np.ndarray, ...]
    colour: Colour
    fills: bool = False
    width: float = 1.0
    rim: str | None = None
    heads: int = 0
    layer: int = 0


def of_solid(
    dim: int, name: str, solid: Solid, colour: str, width: float = 1.0, fill: str | None = None
) -> Iterable[Primitive]:
    """A solid in a colour, its faces in another one where that is given."""
    for loops in solid.faces:
        # Caps of cylinders are outlined; the four-cornered faces of their sides would show as a grid.
        rim = _dark(colour) if dim == 3 and len(loops[0]) > 4 else None
        yield Primitive(name, loops, fill or ((colour, FAINT) if dim == 2 else colour), fills=True, rim=rim)
    edge = _dark(colour) if dim == 3 and solid.faces and not fill else colour
    for line in solid.edges:
        yield Primitive(name, (line,), edge, width=width)
    for line in solid.rods:  # of the plane: a bar with its outline
        yield Primitive(name, (line,), colour, width=6.5)
        if len(line) > 1:
            yield Primitive(name, (line,), _light(colour), width=4.5)


def _dark(colour: str) -> str:
    return mix(colour, 0.45, 0.0)


def _light(colour: str) -> str:
    return mix(colour, 0.4, 0.6)
