"""Constraints in space that are no lower pairs."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import Direction, Positive, as_floats, contract
from ..mechanism import (
    AbstractConnection,
    Marker,
    MarkerLike,
    axis_rotation,
    ends,
    position_of,
    rotation_of,
    velocity_in,
)
from .joint import Turns, direction

Pose = Float[Array, "4 4"]


class RollingSphere(AbstractConnection):
    """A sphere that rolls on a plane without slipping: contact, and zero velocity of the contact point.

    Args:
        name: its name; the rows that forbid slipping are called "name rolling".
        a: a marker on the plane.
        b: the centre of the sphere.
        radius: in m.
        normal: direction (3,) from the plane to the sphere, in a's frame; z by default.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    radius: Float[Array, ""]
    normal: Float[Array, "3"]
    holonomic: ClassVar[int] = 1
    nonholonomic: ClassVar[int] = 2

    @contract
    def __init__(self, name: str, a: MarkerLike, b: MarkerLike, radius: Positive, normal: Direction = (0.0, 0.0, 1.0)):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.radius = as_floats(radius)
        self.normal = direction(name, normal, "normal")

    def frame_rotations(self) -> Turns:
        """A's z along the normal."""
        # Only the plane has a direction: a sphere looks alike from all sides, and its frame stays that of its marker.
        return axis_rotation(2, self.normal), jnp.eye(3)

    def data(self) -> Float[Array, " k"]:
        """The radius."""
        return self.radius[None]

    @classmethod
    def residual(cls, a: Pose, b: Pose, data: Float[Array, " k"]) -> Array:
        """The height of the centre over the plane, less the radius."""
        return jnp.dot(rotation_of(a)[:, 2], position_of(b) - position_of(a)) - data

    @classmethod
    def slip(cls, a: Pose, b: Pose, da: Pose, db: Pose, data: Float[Array, " k"]) -> Array:
        """The velocity of the contact point along the plane."""
        # The contact point as one of the sphere's body: its velocity against the plane vanishes, while the position of
        # contact moves on.
        contact = position_of(b) - data * rotation_of(a)[:, 2]
        # Two rows, along x and y of the plane; the third is the derivative of `residual`, and would be redundant.
        return rotation_of(a)[:, :2].T @ velocity_in(a, b, da, db, contact)


class RollingDisk(AbstractConnection):
    """A thin disk that rolls on a plane without slipping: contact of its rim, and zero velocity of the contact point.

    It must not lie flat on the plane, where the lowest point of the rim is not one point.

    Args:
        name: its name; the rows that forbid slipping are called "name rolling".
        a: a marker on the plane.
        b: the centre of the disk.
        radius: in m.
        axis: direction (3,) of the disk's axis in b's frame; z by default.
        normal: direction (3,) from the plane to the disk, in a's frame; z by default.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    radius: Float[Array, ""]
    axis: Float[Array, "3"]
    normal: Float[Array, "3"]
    holonomic: ClassVar[int] = 1
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
        self.normal, self.axis = direction(name, normal, "normal"), direction(name, axis)

    def frame_rotations(self) -> Turns:
        """A's z along the normal, b's z along the axis."""
        return axis_rotation(2, self.normal), axis_rotation(2, self.axis)

    def data(self) -> Float[Array, " k"]:
        """The radius."""
        return self.radius[None]

    @classmethod
    def lowest(cls, a: Pose, b: Pose, data: Float[Array, " k"]) -> Float[Array, "3"]:
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
        return jnp.dot(rotation_of(a)[:, 2], cls.lowest(a, b, data) - position_of(a))[None]

    @classmethod
    def slip(cls, a: Pose, b: Pose, da: Pose, db: Pose, data: Float[Array, " k"]) -> Array:
        """The velocity of the contact point along the plane."""
        # The velocity of the material point that touches, not of the point of contact.
        return rotation_of(a)[:, :2].T @ velocity_in(a, b, da, db, cls.lowest(a, b, data))
