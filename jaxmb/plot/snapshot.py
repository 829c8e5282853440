"""Poses of a mechanism at an instant."""

import dataclasses
from typing import NamedTuple

import numpy as np

from ..mechanism import AbstractLinkage, Marker, Numbers
from ..simulation import Solution
from .shapes import Connection, locate
from .solid import Solid, with_axis_as_z


class Trajectory(NamedTuple):
    """Several instants: poses of ground and bodies (k, m, D, D) in the world, and the wrenches (k, w) of each `Force` by its name."""

    poses: np.ndarray
    wrenches: dict[str, np.ndarray]


def reached_times(solution: Solution) -> np.ndarray:
    """Indices of the saved times (k,) that a single motion reached, at least one.

    Raises:
        ValueError: for a batch, and for a run that did not get beyond its start.
    """
    if solution.ts.ndim != 1:
        raise ValueError(
            f"Argument `solution` must be a single motion, but has leading axes {solution.ts.shape[:-1]}; index it."
        )
    indices = np.flatnonzero(np.isfinite(np.asarray(solution.q)).all(axis=1))
    if not len(indices):
        raise ValueError("Argument `solution` must hold a motion, but no saved time was reached.")
    return indices


@dataclasses.dataclass
class Stage:
    """What all instants of a motion share.

    Attributes:
        linkage: of the mechanism.
        numbers: its numbers.
        links: its connections.
        solids: of ground and bodies, in their frames.
        colours: of joints, by name; others have their own.
        size: of symbols, in m.
        reaches: least and largest position (2, d) of B in A over the motion, by name of the connection.
    """

    linkage: AbstractLinkage
    numbers: Numbers
    links: list[Connection]
    solids: list[Solid]
    colours: dict[str, str]
    size: float
    reaches: dict[str, np.ndarray]

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.linkage.dim

    def at_instant(self, poses: np.ndarray, wrenches: dict[str, np.ndarray]) -> "Snapshot":
        """The mechanism at one of them."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(Stage)}
        return Snapshot(**shared, poses=poses, wrenches=wrenches)


@dataclasses.dataclass
class Snapshot(Stage):
    """A mechanism at an instant.

    Attributes:
        poses: of ground and bodies (n + 1, D, D) in the world.
        wrenches: of each `Force`, both parts relative to their largest size over the motion, by name.
    """

    poses: np.ndarray
    wrenches: dict[str, np.ndarray]

    def ends(self, link: Connection) -> tuple[np.ndarray, np.ndarray]:
        """The frames A and B of a connection."""
        a, b = (self.poses[body] @ frame for body, frame in zip(link.bodies, link.frames, strict=True))
        return a, b

    def at(self, marker: Marker | str) -> np.ndarray:
        """The frame of a marker."""
        body, local = locate(self.linkage, self.numbers, marker)
        return self.poses[body] @ local

    def link(self, name: str) -> Connection:
        """A connection by name."""
        return next(link for link in self.links if link.name == name)

    def axis(self, name: str, what: str) -> tuple[np.ndarray, bool]:
        """The pose whose z (in the plane: x of a slider) is the axis of a joint coordinate or velocity, and whether that is a shift."""
        joint, index = self.linkage.index(name, what)
        link = self.link(joint)
        a, b = self.ends(link)
        # Axes as A has them, but at B: a slider's arrow moves with what slides.
        at = a.copy()
        at[:-1, -1] = b[:-1, -1]
        shifts = link.pair.axes
        if index < len(shifts):
            return at if self.dim == 2 else with_axis_as_z(at, shifts[index]), True
        axes = turning(link)
        if self.dim == 2 or not axes:
            return at, False
        number = min(index - len(shifts), len(axes) - 1)
        return with_axis_as_z(b if number else at, axes[number]), False

    def axes(self, joint: str) -> list[tuple[np.ndarray, bool]]:
        """Of each velocity of a joint, or of the one that is named, see `axis`."""
        name, _, part = joint.partition(".")
        parts = [part] if part else self.link(name).pair.velocities
        return [self.axis(f"{name}.{each}", "velocities") for each in parts]

    def shift_directions(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The direction of a shift, a pose's x in the plane and z in space, and one across it."""
        forth, across = (pose[:-1, i] for i in ((0, 1) if self.dim == 2 else (2, 0)))
        return forth, across

    def reach(self, link: Connection) -> np.ndarray:
        """Least and largest position (2, d) of B in A over the motion."""
        a, b = self.ends(link)
        here = (np.linalg.inv(a) @ b)[:-1, -1]
        return self.reaches.get(link.name, np.stack([here, here]))


def turning(link: Connection) -> tuple[int, ...]:
    """The axes that B turns about: of A's frame the first, of B's a second one; none for a ball."""
    angles = getattr(getattr(link.pair, "rotation", None), "angles", ())
    # One angle turns about z of A; two, of a universal joint, about z of A and x of B; three or a quaternion have no
    # axes to draw.
    return {1: (2,), 2: (2, 0)}.get(len(angles), ())


def at_position(pose: np.ndarray, at: np.ndarray) -> np.ndarray:
    """A pose at another position."""
    pose = pose.copy()
    pose[:-1, -1] = at
    return pose
