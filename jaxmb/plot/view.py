"""Ways to look at a mechanism in space, and how faces and lines are brought to paper."""

from itertools import pairwise

import numpy as np

from ..foundations import listing
from .colour import to_hex, to_rgb
from .primitive import Primitive
from .solid import TINY

# Directions on paper to the right and up, and towards the viewer, of the orthographic views.
SIDES = {
    "front": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "side": ((0, 1, 0), (0, 0, 1), (1, 0, 0)),
    "top": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
LIGHT = np.array([-0.35, 0.6, 0.72])  # right, up, towards the viewer
DIM, PALE = 0.55, 0.25  # brightness of a face that the light does not meet, and how much white is in its colour
# Sizes of the parts that are sorted, and how much nearer lines are than faces, in radii of what is seen: an edge is farther than a part of
# its face may be, by up to half a part.
CELL, LIFT = 0.08, 0.025
DISTANCE = 3.5  # of the eye of a perspective view, in sizes of what is seen


class View:
    """A projection on paper."""

    def __init__(self, kind: str | tuple[float, float] | None, centre: np.ndarray, radius: float):
        self.kind, self.centre, self.radius = kind, centre, radius
        self.axes = None if kind is None else np.array(SIDES[kind] if kind in SIDES else _direction(kind), float)
        self.is_flat = kind is None or kind in SIDES

    @property
    def labels(self) -> tuple[str, str]:
        """Of the axes."""
        if not self.is_flat:
            return "", ""
        right, up = (0, 1) if self.axes is None else np.argmax(self.axes[:2], axis=1).tolist()
        return f"{'xyz'[right]} in m", f"{'xyz'[up]} in m"

    def projected(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places on paper (n, 2), in m (in perspective in the plane of the centre), and how near they are (n,)."""
        if self.axes is None:
            return points, np.zeros(len(points))
        if self.is_flat:
            return points @ self.axes[:2].T, points @ self.axes[2]
        in_view, eye = (points - self.centre) @ self.axes.T, DISTANCE * self.radius
        # Similar triangles: what is nearer to the eye than the centre grows.
        return in_view[:, :2] * eye / (eye - in_view[:, 2:]), in_view[:, 2]

    def sorted(self, pieces: list[Primitive]) -> list[tuple[Primitive, tuple[np.ndarray, ...]]]:
        """Pieces with their loops on paper, in the order in which they are drawn: in space the far ones first."""
        if self.axes is not None:
            # Painter's algorithm: far ones first. Long lines and large faces have no one depth, so that they are cut.
            pieces = [part for piece in pieces for part in _cut(piece, CELL * self.radius)]
        projections, depths = [], []
        for piece in pieces:
            flat, loop_depths = zip(*(self.projected(loop) for loop in piece.loops), strict=True)
            lift = 0.0 if piece.fills or self.axes is None else LIFT * self.radius  # an edge is before its faces
            projections.append((self._shaded(piece), flat))
            # Layers are infinitely near or far, whatever their positions.
            depths.append(np.mean(loop_depths[0]) + lift if not piece.layer else piece.layer * np.inf)
        return [projections[i] for i in np.argsort(depths, kind="stable")]

    def _shaded(self, piece: Primitive) -> Primitive:
        """A face in space in the brightness of its slope."""
        if self.axes is None or not piece.fills:
            return piece
        assert isinstance(piece.colour, str)  # faces in space are opaque
        corners = piece.loops[0]
        normal = self.axes @ np.cross(corners, np.roll(corners, -1, axis=0)).sum(axis=0)
        # A face has no inner side: its normal is taken towards the viewer.
        normal *= np.sign(normal[2] or 1.0) / max(np.linalg.norm(normal), TINY)
        bright = DIM + (1 - DIM) * max(float(normal @ LIGHT), 0.0)
        return piece._replace(colour=to_hex(bright * ((1 - PALE) * to_rgb(piece.colour) + PALE)))


def _direction(kind: str | tuple[float, float]) -> list[np.ndarray]:
    azimuth, elevation = np.deg2rad((-60.0, 22.0) if kind == "perspective" else kind)
    right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    towards = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    return [right, np.cross(towards, right), towards]


def view_kinds(view: object, dim: int) -> tuple[str | tuple[float, float] | None, ...]:
    """The views that an argument asks for.

    Raises:
        ValueError: for one that is not known, or any in the plane.
    """
    if dim == 2:
        if view is not None:
            raise ValueError(f"Argument `view` must be None for a mechanism in the plane, but is {view!r}.")
        return (None,)
    if view == "three":
        return ("top", "perspective", "front", "side")
    if view is None or (isinstance(view, str) and view in (*SIDES, "perspective")):
        return (view or "perspective",)
    if isinstance(view, tuple) and len(view) == 2 and all(isinstance(x, int | float) for x in view):
        return (view,)
    names = listing(["front", "side", "top", "perspective", "three"])
    raise ValueError(f"Argument `view` must be one of {names}, or azimuth and elevation in degrees, but is {view!r}.")


def _cut(piece: Primitive, longest: float) -> list[Primitive]:
    """Parts of a line, or of a face with four corners, that are short enough to be sorted."""
    points = piece.loops[0]
    if piece.layer or len(piece.loops) > 1 or len(points) < 2:
        return [piece]
    if not piece.fills:
        pieces = []
        for a, b in pairwise(points):
            points_between = a + np.linspace(0, 1, _count(b - a, longest) + 1)[:, None] * (b - a)
            pieces += [
                piece._replace(loops=(pair,)) for pair in np.stack([points_between[:-1], points_between[1:]], axis=1)
            ]
        return pieces
    if len(points) != 4:
        return [piece]
    a, b, c, d = points
    n, m = _count(b - a, longest), _count(d - a, longest)
    x, y = np.linspace(0, 1, n + 1)[:, None, None], np.linspace(0, 1, m + 1)[None, :, None]
    grid = (1 - x) * (1 - y) * a + x * (1 - y) * b + x * y * c + (1 - x) * y * d
    return [
        piece._replace(loops=(np.stack([grid[i, j], grid[i + 1, j], grid[i + 1, j + 1], grid[i, j + 1]]),))
        for i in range(n)
        for j in range(m)
    ]


def _count(step: np.ndarray, longest: float) -> int:
    return max(1, int(np.ceil(np.linalg.norm(step) / longest)))
