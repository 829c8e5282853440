"""What is drawn of a mechanism, in the frames of its bodies: solids, connections and markers."""

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import ConvexHull

from ..mechanism import AbstractLinkage, Distance, Marker, Numbers, Stroke, marker
from ..spatial import RollingSphere
from .solid import Solid, disk, join, polygon, prism, sphere, tube

# Points are taken for a plane, or a line, if they are off it by less than this part of their size.
FLAT = 1e-6
# Points with rods between all of them; between more the lines are thin.
FEW = 4


class Connection(NamedTuple):
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


def connections(linkage: AbstractLinkage, numbers: Numbers) -> list[Connection]:
    """All connections."""
    return [
        Connection(
            name=name,
            kind=group.kind,
            bodies=(group.a[i], group.b[i]),
            frames=(np.asarray(frames.a[i]), np.asarray(frames.b[i])),
            numbers=np.asarray(frames.numbers[i]),
        )
        for group, frames in zip(linkage.connectivity.groups, numbers.frames, strict=True)
        for i, name in enumerate(group.names)
    ]


def locate(linkage: AbstractLinkage, numbers: Numbers, at: Marker | str) -> tuple[int, np.ndarray]:
    """The body of a marker, and its pose there."""
    body, local = linkage.locate(marker(at, "at"), numbers)
    return body, np.asarray(local)


def solids(linkage: AbstractLinkage, numbers: Numbers, named_points: bool) -> list[Solid]:
    """Of the ground and each body its shape; of one without a shape the wheels that it rolls on, its joints and points.

    Args:
        linkage: of the mechanism.
        numbers: its numbers.
        named_points: whether named points count.
    """
    shapes, all_connections = _shapes(linkage, numbers), connections(linkage, numbers)
    points_of_bodies = _body_points(linkage, numbers, all_connections, named_points)
    wheels = {link.bodies[1]: _wheel(link) for link in all_connections if link.rolls}
    without = lambda body: wheels[body] if body in wheels else _outline(points_of_bodies[body])
    return [_isolated_points(points_of_bodies[0])] + [
        shapes[i] if i in shapes else without(i) for i in range(1, len(points_of_bodies))
    ]


def _wheel(link: Connection) -> Solid:
    """What rolls."""
    radius = float(link.numbers[0])
    return (sphere if issubclass(link.kind, RollingSphere) else disk)(link.frames[1], radius)


def _shapes(linkage: AbstractLinkage, numbers: Numbers) -> dict[int, Solid]:
    """By number of each body that has a shape."""
    poses = dict(zip(linkage.connectivity.points, np.asarray(numbers.points), strict=True))
    return {
        i + 1: join([_of_stroke(stroke, name, poses) for stroke in strokes])
        for i, (name, strokes) in enumerate(zip(linkage.bodies, linkage.connectivity.strokes, strict=True))
        if strokes
    }


def _of_stroke(stroke: Stroke, body: str, poses: dict[str, np.ndarray]) -> Solid:
    """See `AbstractShape.strokes`."""
    kind, *names = stroke
    frames = [poses[f"{body}.{name}"] for name in names]
    points = np.stack([frame[:-1, -1] for frame in frames])
    if kind == "line":
        return Solid([], [], [points])
    if kind == "loop":
        return polygon(points)
    if kind == "prism":
        return prism(*np.split(points, 2))
    radii = np.linalg.norm(points - points[0], axis=1).tolist()
    solids = {"disk": disk, "tube": tube, "sphere": sphere}
    return solids[kind](frames[0], *radii[1:])


def _body_points(
    linkage: AbstractLinkage, numbers: Numbers, all_connections: list[Connection], named_points: bool
) -> list[np.ndarray]:
    """Of the ground and each body its joints, of a knife edge or a rolling contact on body B only, and its points."""
    points_of_bodies: list[list[np.ndarray]] = [[] for _ in range(len(linkage.bodies) + 1)]
    for link in all_connections:
        for end in (1,) if link.kind.nonholonomic else (0, 1):
            points_of_bodies[link.bodies[end]].append(link.frames[end][:-1, -1])
    if named_points:
        for name, local in zip(linkage.connectivity.points, np.asarray(numbers.points), strict=True):
            points_of_bodies[("ground", *linkage.bodies).index(name.partition(".")[0])].append(local[:-1, -1])
    for each, inertia in zip(points_of_bodies[1:], np.asarray(numbers.inertia), strict=True):
        if len(each) < 2:  # at least its centre of mass
            each.append(inertia[:-1, -1] / max(inertia[-1, -1], 1e-30))
    # Joints and points often coincide, up to rounding of the poses.
    return [np.unique(np.round(x, 9), axis=0) if x else np.zeros((0, linkage.dim)) for x in points_of_bodies]


def _isolated_points(points: np.ndarray) -> Solid:
    return Solid([], [], [point[None] for point in points])


def _outline(points: np.ndarray) -> Solid:
    """The outline of points in a plane, all lines between others."""
    if len(points) < 2:
        return _isolated_points(points)
    middle = points.mean(axis=0)
    # Singular values are the extents along the principal axes: the third is a plane's thickness, the second a line's.
    _, sizes, axes = np.linalg.svd(points - middle)
    thickness = np.append(sizes, 0.0)[: points.shape[1]] / sizes[0]
    if (thickness[2:] <= FLAT).all() and thickness[1] > FLAT:
        return polygon(points[ConvexHull((points - middle) @ axes[:2].T).vertices])
    if thickness[1] <= FLAT:  # the two ends of a line
        order = np.argsort((points - middle) @ axes[0])
        return Solid([], [], [points[order[[0, -1]]]])
    pairs = [points[[i, j]] for i in range(len(points)) for j in range(i)]
    return Solid([], [], pairs) if len(points) <= FEW else Solid([], pairs, [])
