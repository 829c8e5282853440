"""What is drawn of a mechanism, in the frames of its bodies: solids, connections and places."""

from typing import Any, NamedTuple

import numpy as np

from ..mechanism import AbstractLinkage, Distance, Numbers, Stroke, marker
from ..spatial import RollingSphere
from .solid import Solid, disk, joined, polygon, prism, sphere, tube

# Points are taken for a plane, or a line, if they are off it by less than this part of their size.
FLAT = 1e-6
# Points with rods between all of them; between more the lines are thin.
FEW = 4


class Link(NamedTuple):
    """A connection: its class, the bodies and local poses of A and B, and the numbers that it reads."""

    name: str
    kind: type
    bodies: tuple[int, int]
    frames: tuple[np.ndarray, np.ndarray]
    numbers: np.ndarray

    @property
    def pair(self) -> Any:
        """Of a joint its pair, else None."""
        return getattr(self.kind, "pair", None)

    @property
    def slides(self) -> bool:
        """Whether B is shifted along an axis of A."""
        return bool(getattr(self.pair, "axes", ()))

    @property
    def rolls(self) -> bool:
        """Whether it is a rolling contact."""
        return bool(self.kind.holonomic and self.kind.nonholonomic)

    @property
    def is_rod(self) -> bool:
        """Whether it keeps a distance."""
        return issubclass(self.kind, Distance)

    @property
    def is_grounded(self) -> bool:
        """Whether one of its ends is on the ground."""
        return 0 in self.bodies


def links(linkage: AbstractLinkage, numbers: Numbers) -> list[Link]:
    """All connections."""
    return [
        Link(
            name,
            group.kind,
            (group.a[i], group.b[i]),
            (np.asarray(frames.a[i]), np.asarray(frames.b[i])),
            np.asarray(frames.numbers[i]),
        )
        for group, frames in zip(linkage.connectivity.groups, numbers.frames, strict=True)
        for i, name in enumerate(group.names)
    ]


def place(linkage: AbstractLinkage, numbers: Numbers, at: Any) -> tuple[int, np.ndarray]:
    """The body of a place, and its pose there."""
    body, local = linkage.locate(marker(at, "place"), numbers)
    return body, np.asarray(local)


def solids(linkage: AbstractLinkage, numbers: Numbers, points: bool) -> list[Solid]:
    """Of the ground and each body its shape; of one without a shape the wheels that it rolls on, its joints and points.

    Args:
        linkage: of the mechanism.
        numbers: its numbers.
        points: whether named points count.
    """
    shapes, found = _shapes(linkage, numbers), links(linkage, numbers)
    places = _places(linkage, numbers, found, points)
    wheels = {link.bodies[1]: _wheel(link) for link in found if link.rolls}
    without = lambda body: wheels[body] if body in wheels else _through(places[body])
    return [_dots(places[0])] + [shapes[i] if i in shapes else without(i) for i in range(1, len(places))]


def _wheel(link: Link) -> Solid:
    """What rolls."""
    radius = float(link.numbers[0])
    return (sphere if issubclass(link.kind, RollingSphere) else disk)(link.frames[1], radius)


def _shapes(linkage: AbstractLinkage, numbers: Numbers) -> dict[int, Solid]:
    """By number of each body that has a shape."""
    poses = dict(zip(linkage.connectivity.points, np.asarray(numbers.points), strict=True))
    return {
        i + 1: joined([_of_stroke(stroke, name, poses) for stroke in strokes])
        for i, (name, strokes) in enumerate(zip(linkage.bodies, linkage.connectivity.strokes, strict=True))
        if strokes
    }


def _of_stroke(stroke: Stroke, body: str, poses: dict[str, np.ndarray]) -> Solid:
    """See `AbstractShape.strokes`."""
    kind, *names = stroke
    frames = [poses[f"{body}.{name}"] for name in names]
    places = np.stack([frame[:-1, -1] for frame in frames])
    if kind == "line":
        return Solid([], [], [places])
    if kind == "loop":
        return polygon(places)
    if kind == "prism":
        return prism(*np.split(places, 2))
    radii = np.linalg.norm(places - places[0], axis=1).tolist()
    solids = {"disk": disk, "tube": tube, "sphere": sphere}
    return solids[kind](frames[0], *radii[1:])


def _places(linkage: AbstractLinkage, numbers: Numbers, found: list[Link], points: bool) -> list[np.ndarray]:
    """Of the ground and each body its joints, of a knife edge or a rolling contact on body B only, and its points."""
    places: list[list[np.ndarray]] = [[] for _ in range(len(linkage.bodies) + 1)]
    for link in found:
        for end in (1,) if link.kind.nonholonomic else (0, 1):
            places[link.bodies[end]].append(link.frames[end][:-1, -1])
    if points:
        for name, local in zip(linkage.connectivity.points, np.asarray(numbers.points), strict=True):
            places[("ground", *linkage.bodies).index(name.partition(".")[0])].append(local[:-1, -1])
    for each, inertia in zip(places[1:], np.asarray(numbers.inertia), strict=True):
        if len(each) < 2:  # at least its centre of mass
            each.append(inertia[:-1, -1] / max(inertia[-1, -1], 1e-30))
    return [np.unique(np.round(x, 9), axis=0) if x else np.zeros((0, linkage.dim)) for x in places]


def _dots(places: np.ndarray) -> Solid:
    return Solid([], [], [place[None] for place in places])


def _through(places: np.ndarray) -> Solid:
    """The outline of points in a plane, all lines between others."""
    if len(places) < 2:
        return _dots(places)
    middle = places.mean(axis=0)
    _, sizes, axes = np.linalg.svd(places - middle)
    thickness = np.append(sizes, 0.0)[: places.shape[1]] / sizes[0]
    if (thickness[2:] <= FLAT).all() and thickness[1] > FLAT:
        return polygon(_hull((places - middle) @ axes[:2].T) @ axes[:2] + middle)
    if thickness[1] <= FLAT:  # the two ends of a line
        order = np.argsort((places - middle) @ axes[0])
        return Solid([], [], [places[order[[0, -1]]]])
    pairs = [places[[i, j]] for i in range(len(places)) for j in range(i)]
    return Solid([], [], pairs) if len(places) <= FEW else Solid([], pairs, [])


def _hull(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull of points in the plane, in order."""
    ordered = points[np.lexsort(points.T[::-1])]

    def half(points: np.ndarray) -> list[np.ndarray]:
        hull: list[np.ndarray] = []
        for p in points:
            while len(hull) > 1 and _turn(hull[-2], hull[-1], p) <= 0:
                hull.pop()
            hull.append(p)
        return hull[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
