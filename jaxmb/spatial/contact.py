"""Constraints in space that are no lower pairs."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import Direction, Positive, as_floats, contract
from ..mechanism import (
    AbstractRolling,
    MarkerLike,
    axis_rotation,
    direction,
    ends,
    position_of,
    rotation_of,
)
from .joint import Turns

Pose = Float[Array, "4 4"]


class RollingSphere(AbstractRolling):
    """A sphere that rolls on a plane without slipping: contact, and zero velocity of the contact point.

    Args:
        name: its name; the rows that forbid slipping are called "name rolling".
        a: a marker on the plane.
        b: the centre of the sphere.
        radius: in m.
        normal: direction (3,) from the plane to the sphere, in a's frame; z by default.
    """

    normal: Float[Array, "3"]
    nonholonomic: ClassVar[int] = 2

    @contract
    def __init__(self, name: str, a: MarkerLike, b: MarkerLike, radius: Positive, normal: Direction = (0.0, 0.0, 1.0)):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.radius = as_floats(radius)
        self.normal = direction(name, normal, 3, "normal")

    def frame_rotations(self) -> Turns:
        """A's z along the normal."""
        # Only the plane has a direction: a sphere looks alike from all sides, and its frame stays that of its marker.
        return axis_rotation(2, self.normal), jnp.eye(3)


class RollingDisk(AbstractRolling):
    """A thin disk that rolls on a plane without slipping: contact of its rim, and zero velocity of the contact point.

    It must not lie flat on the plane, since then the rim has no single lowest point.

    Args:
        name: its name; the rows that forbid slipping are called "name rolling".
        a: a marker on the plane.
        b: the centre of the disk.
        radius: in m.
        axis: direction (3,) of the disk's axis in b's frame; z by default.
        normal: direction (3,) from the plane to the disk, in a's frame; z by default.
    """

    axis: Float[Array, "3"]
    normal: Float[Array, "3"]
    nonholonomic: ClassVar[int] = 2

    @contract
    def __init__(
        self,
        name: str,
        a: MarkerLike,
        b: MarkerLike,
        radius: Positive,
        axis: Direction = (0.0, 0.0, 1.0),
        normal: Direction = (0.0, 0.0, 1.0),
    ):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.radius = as_floats(radius)
        self.normal, self.axis = direction(name, normal, 3, "normal"), direction(name, axis, 3)

    def frame_rotations(self) -> Turns:
        """A's z along the normal, b's z along the axis."""
        return axis_rotation(2, self.normal), axis_rotation(2, self.axis)

    @classmethod
    def contact(cls, a: Pose, b: Pose, data: Float[Array, " k"]) -> Float[Array, "3"]:
        """The point of the rim that is closest to the plane."""
        normal, axis = rotation_of(a)[:, 2], rotation_of(b)[:, 2]
        # The normal's part in the plane of the disk. It vanishes for a disk that lies flat, where the row has no
        # derivative: NaN ends the run there.
        up = normal - jnp.dot(normal, axis) * axis
        return position_of(b) - data * up / jnp.linalg.norm(up)

    @classmethod
    def residual(cls, a: Pose, b: Pose, data: Float[Array, " k"]) -> Array:
        """The height of the lowest point of the rim over the plane."""
        # The height of the lowest point has a derivative by all motions of the disk, although that point runs around
        # the rim: its position is stationary (envelope theorem).
        return jnp.dot(rotation_of(a)[:, 2], cls.contact(a, b, data) - position_of(a))[None]
