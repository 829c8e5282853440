"""What is drawn of a mechanism: lines of bodies in their frames, places of joints, guides and rods."""

from typing import Any, NamedTuple

import numpy as np

from ..mechanism import AbstractLinkage, Distance, DrivenDistance, Numbers, Stroke

# Points of a circle.
ROUND = np.linspace(0, 2 * np.pi, 49)
# Points are taken for a plane, or a line, if they are off it by less than this part of their size.
FLAT = 1e-6


class Line(NamedTuple):
    """Points (n, d) in the body's frame; one point is a dot. What a filled line encloses is filled, and a thin one is one of many."""

    points: np.ndarray
    is_filled: bool = False
    is_thin: bool = False


class Joint(NamedTuple):
    """A connection: its name, whether it is on the ground, and the body and place of its end B."""

    name: str
    is_grounded: bool
    body: int
    place: np.ndarray


class Guide(NamedTuple):
    """A connection whose two places come apart: bodies and places of A and B, and whether B slides in A or is a rod's length off."""

    bodies: tuple[int, int]
    places: tuple[np.ndarray, np.ndarray]
    slides: bool


def moved(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Points of a body in the world."""
    return points @ pose[:-1, :-1].T + pose[:-1, -1]


def lines_of_bodies(linkage: AbstractLinkage, numbers: Numbers, points: bool) -> list[list[Line]]:
    """Of the ground and each body the lines of its shape; of one without a shape those through its joints and points.

    Args:
        linkage: of the mechanism.
        numbers: its numbers.
        points: whether named points count.
    """
    shapes, places = _shapes(linkage, numbers), _places(linkage, numbers, points)
    return [_dots(places[0])] + [shapes.get(body, _through(places[body])) for body in range(1, len(places))]


def joints(linkage: AbstractLinkage, numbers: Numbers) -> list[Joint]:
    """All connections."""
    return [
        Joint(name, bool(group.a[i] == 0 or group.b[i] == 0), group.b[i], _place(frames.b[i]))
        for group, frames in zip(linkage.skeleton.groups, numbers.frames, strict=True)
        for i, name in enumerate(group.names)
    ]


def guides(linkage: AbstractLinkage, numbers: Numbers) -> list[Guide]:
    """Joints that slide, and distances."""
    found = []
    for group, frames in zip(linkage.skeleton.groups, numbers.frames, strict=True):
        slides = bool(getattr(getattr(group.kind, "pair", None), "axes", ()))
        if slides or issubclass(group.kind, Distance | DrivenDistance):
            for i, ends in enumerate(zip(group.a, group.b, strict=True)):
                found.append(Guide(ends, (_place(frames.a[i]), _place(frames.b[i])), slides))
    return found


def _place(frame: Any) -> np.ndarray:
    return np.asarray(frame)[:-1, -1]


def _shapes(linkage: AbstractLinkage, numbers: Numbers) -> dict[int, list[Line]]:
    """By number of each body that has a shape."""
    poses = dict(zip(linkage.skeleton.points, np.asarray(numbers.points), strict=True))
    return {
        i + 1: [line for stroke in strokes for line in _of_stroke(stroke, name, poses)]
        for i, (name, strokes) in enumerate(zip(linkage.bodies, linkage.skeleton.strokes, strict=True))
        if strokes
    }


def _of_stroke(stroke: Stroke, body: str, poses: dict[str, np.ndarray]) -> list[Line]:
    """See `AbstractShape.strokes`."""
    kind, *names = stroke
    frames = [poses[f"{body}.{name}"] for name in names]
    places = np.stack([frame[:-1, -1] for frame in frames])
    if kind in ("line", "loop"):
        return [
            Line(places if kind == "line" else _closed(places), kind == "loop", len(places) > 2 or places.shape[1] > 2)
        ]
    radius, axes = np.linalg.norm(places[-1] - places[-2]), frames[0][:-1, :-1].T
    planes = ((0, 1), (1, 2), (2, 0)) if kind == "sphere" else ((0, 1),)
    circle = lambda i, j: places[0] + radius * (np.outer(np.cos(ROUND), axes[i]) + np.outer(np.sin(ROUND), axes[j]))
    return [Line(circle(i, j), kind == "circle", True) for i, j in planes]


def _places(linkage: AbstractLinkage, numbers: Numbers, points: bool) -> list[np.ndarray]:
    """Of the ground and each body its joints, of a knife edge or a rolling contact on body B only, and its points."""
    found: list[list[np.ndarray]] = [[] for _ in range(len(linkage.bodies) + 1)]
    for group, frames in zip(linkage.skeleton.groups, numbers.frames, strict=True):
        for i, (a, b) in enumerate(zip(group.a, group.b, strict=True)):
            found[b].append(_place(frames.b[i]))
            if not group.kind.nonholonomic:
                found[a].append(_place(frames.a[i]))
    if points:
        for name, local in zip(linkage.skeleton.points, np.asarray(numbers.points), strict=True):
            found[("ground", *linkage.bodies).index(name.partition(".")[0])].append(_place(local))
    for places, inertia in zip(found[1:], np.asarray(numbers.inertia), strict=True):
        if len(places) < 2:  # at least its centre of mass
            places.append(inertia[:-1, -1] / max(inertia[-1, -1], 1e-30))
    return [np.unique(np.round(x, 9), axis=0) if x else np.zeros((0, linkage.dim)) for x in found]


def _dots(places: np.ndarray) -> list[Line]:
    return [Line(place[None]) for place in places]


def _through(places: np.ndarray) -> list[Line]:
    """The outline of points in a plane, all lines between others."""
    if len(places) < 2:
        return _dots(places)
    middle = places.mean(axis=0)
    _, sizes, axes = np.linalg.svd(places - middle)
    thickness = np.append(sizes, 0.0)[: places.shape[1]] / sizes[0]
    if (thickness[2:] <= FLAT).all() and thickness[1] > FLAT:
        return [Line(_closed(_round((places - middle) @ axes[:2].T)) @ axes[:2] + middle, True)]
    pairs = [(i, j) for i in range(len(places)) for j in range(i)]
    return [Line(places[[i, j]], is_thin=len(places) > 2) for i, j in pairs]


def _closed(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, points[:1]])


def _round(points: np.ndarray) -> np.ndarray:
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
