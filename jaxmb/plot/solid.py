"""Solids as faces and edges, placed by a pose [[R, p], [0, 1]] in the plane or in space."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.spatial import Delaunay

# In place of a length of zero, so that a quotient is zero and not NaN.
TINY = 1e-300
# Faces of less width than this part of their length have no triangles.
SLIVER = 1e-9
# Corners of circles: of bodies, of balls, and of symbols; a multiple of three, for spokes.
FINE, BALL, COARSE = 72, 36, 12


class Solid(NamedTuple):
    """What is drawn of a body: faces (outline and holes), edges, and rods, thick lines; one point is a dot. All points are (n, d).

    In space rods and dots become bars and balls as soon as their thickness is known (`jaxmb.plot.symbols.solidified`).
    """

    faces: list[tuple[np.ndarray, ...]]
    edges: list[np.ndarray]
    rods: list[np.ndarray]

    def transform(self, pose: np.ndarray) -> "Solid":
        """Placed in the world."""
        return Solid(
            [tuple(transform(pose, loop) for loop in loops) for loops in self.faces],
            [transform(pose, points) for points in self.edges],
            [transform(pose, points) for points in self.rods],
        )

    @property
    def points(self) -> np.ndarray:
        """All points (n, d)."""
        return np.concatenate([*(loop for loops in self.faces for loop in loops), *self.edges, *self.rods])


def join(solids: list[Solid]) -> Solid:
    """Several as one."""
    return Solid(
        [face for solid in solids for face in solid.faces],
        [edge for solid in solids for edge in solid.edges],
        [rod for solid in solids for rod in solid.rods],
    )


def transform(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Points of a body in the world."""
    return points @ pose[:-1, :-1].T + pose[:-1, -1]


def close(points: np.ndarray) -> np.ndarray:
    """A loop as a line."""
    return np.concatenate([points, points[:1]])


def polar(pose: np.ndarray, radius: np.ndarray | float, angle: np.ndarray, height: float = 0.0) -> np.ndarray:
    """Points by polar coordinates in the pose's x and y, at a height along its z."""
    local = np.full((len(angle), len(pose) - 1), height)
    local[:, 0], local[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    return transform(pose, local)


def circle(pose: np.ndarray, radius: float, height: float = 0.0, corners: int = FINE) -> np.ndarray:
    """In the pose's x and y, at a height along its z; without the last point, which is the first."""
    return polar(pose, radius, np.linspace(0, 2 * np.pi, corners + 1)[:-1], height)


def polygon(corners: np.ndarray) -> Solid:
    """A flat face."""
    return Solid([(corners,)], [close(corners)], [])


def disk(pose: np.ndarray, radius: float, inner: float = 0.0, height: float = 0.0, corners: int = FINE) -> Solid:
    """A disk in the pose's x and y with a hole, and spokes that show how it turns."""
    rim = circle(pose, radius, height, corners)
    bore = circle(pose, inner, height, corners)
    edges = [
        close(rim),
        *([close(bore)] if inner else []),
        *(np.stack([bore[i], rim[i]]) for i in range(0, corners, corners // 3)),
    ]
    if rim.shape[1] == 3:
        return Solid(_band(rim, bore), edges, [])
    return Solid([(rim, bore) if inner else (rim,)], edges, [])


def tube(pose: np.ndarray, length: float, radius: float, inner: float = 0.0, corners: int = FINE) -> Solid:
    """A cylinder, or a tube, along the pose's z."""
    ends = [disk(pose, radius, inner, height, corners) for height in (0.0, length)]
    walls = [_band(*(circle(pose, r, height, corners) for height in (0.0, length))) for r in (radius, inner) if r]
    return join([*ends, *(Solid(wall, [], []) for wall in walls)])


def prism(low: np.ndarray, high: np.ndarray) -> Solid:
    """Between two ends with the same corners."""
    sides = [np.stack(pair) for pair in zip(low, high, strict=True)]
    return Solid([(low,), (high,), *_band(low, high)], [close(low), close(high), *sides], [])


def sphere(pose: np.ndarray, radius: float, corners: int = BALL) -> Solid:
    """A ball with three great circles."""
    levels = np.linspace(0, np.pi, corners // 3 + 1)
    rings = [circle(pose, radius * np.sin(x), radius * np.cos(x), corners) for x in levels]
    faces = [face for low, high in pairwise(rings) for face in _band(low, high)]
    return Solid(faces, [close(circle(with_axis_as_z(pose, i), radius, 0.0, corners)) for i in range(3)], [])


def with_axis_as_z(pose: np.ndarray, axis: int) -> np.ndarray:
    """The pose in space with its axes in another order, so that the given one is z."""
    order = [(axis + 1) % 3, (axis + 2) % 3, axis, 3]
    return pose[:, order]


def pose_along(start: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """A pose at a point whose x, in space z, has a direction."""
    if len(start) == 2:
        columns = np.stack([direction, [-direction[1], direction[0]]], axis=1)
    else:
        # The axis that is least along the direction: their cross product cannot vanish.
        least = np.eye(3)[np.argmin(np.abs(direction))]
        side = np.cross(least, direction)
        columns = np.stack([side, np.cross(direction, side), direction], axis=1)
    pose = np.eye(len(start) + 1)
    pose[:-1, :-1], pose[:-1, -1] = columns / np.linalg.norm(columns, axis=0), start
    return pose


def triangles(loops: Sequence[np.ndarray]) -> np.ndarray:
    """Triangles (n, 3) of a flat face in space, numbers of the points of its outline and its holes."""
    points = np.concatenate(loops)
    if len(points) < 5:
        return np.array([[0, 1, 2], [0, 2, 3]][: len(points) - 2])
    _, sizes, axes = np.linalg.svd(points - points.mean(axis=0))
    if sizes[1] < SLIVER * sizes[0]:  # a face without an area
        return np.zeros((0, 3), int)
    flat = [loop @ axes[:2].T for loop in loops]
    corners = Delaunay(np.concatenate(flat)).simplices
    middle = np.concatenate(flat)[corners].mean(axis=1)
    # Of the triangles of all corners those that are inside: an odd number of edges lies beside them.
    inside = np.zeros(len(corners), bool)
    for loop in flat:
        for (x0, y0), (x1, y1) in zip(loop, np.roll(loop, -1, axis=0), strict=True):
            beside = (y0 > middle[:, 1]) != (y1 > middle[:, 1])
            height = y1 - y0 or 1.0
            inside ^= beside & (middle[:, 0] < x0 + (middle[:, 1] - y0) * (x1 - x0) / height)
    return corners[inside]


def _band(one: np.ndarray, other: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """The faces between two loops."""
    corners = np.stack([one, np.roll(one, -1, axis=0), np.roll(other, -1, axis=0), other], axis=1)
    return [(corner,) for corner in corners]
