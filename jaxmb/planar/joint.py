"""Joints in the plane."""

from typing import ClassVar

from jaxtyping import Array, Float

from ..foundations import Direction, arrays_of, as_jax, contract, in_numpy
from ..mechanism import (
    AbstractFrameJoint,
    AbstractJoint,
    AbstractPair,
    Locked,
    MarkerLike,
    Pair,
    Turning,
    direction,
    ends,
)


def x_rotation(axis: Float[Array, "2"]) -> Float[Array, "2 2"]:
    """The rotation that carries x to the direction of `axis`."""
    # Components of the unit vector are cosine and sine already: no angle is computed, which would jump at ±π.
    axis = in_numpy(axis)
    xp = arrays_of(axis)
    c, s = axis / xp.linalg.norm(axis)
    return as_jax(xp.array([[c, -s], [s, c]]))


class AbstractPlanarAxisJoint(AbstractJoint):
    """A joint with an axis: x of both frames, the same components by default."""

    axis: Float[Array, "2"]
    axis_b: Float[Array, "2"]

    @contract
    def __init__(
        self, name: str, a: MarkerLike, b: MarkerLike, axis: Direction = (1.0, 0.0), axis_b: Direction | None = None
    ):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.axis = direction(name, axis, 2)
        # Equal components mean that both frames are parallel at coordinate zero, as in most drawings.
        self.axis_b = self.axis if axis_b is None else direction(name, axis_b, 2, "axis_b")

    def frame_rotations(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """The rotations of both frames that bring x along the axis."""
        return x_rotation(self.axis), x_rotation(self.axis_b)


class Revolute(AbstractFrameJoint, init=False):
    """A hinge: two points coincide. Coordinate: the angle of b's frame in a's, in rad.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
    """

    pair: ClassVar[AbstractPair] = Pair((), Turning(dim=2))
    holonomic: ClassVar[int] = 2


class Fixed(AbstractFrameJoint, init=False):
    """Two frames coincide; no coordinate.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
    """

    pair: ClassVar[AbstractPair] = Pair((), Locked(dim=2))
    holonomic: ClassVar[int] = 3


class Prismatic(AbstractPlanarAxisJoint, init=False):
    """A slider. Coordinate: the shift of b along the axis, in m.

    Args:
        name: its name.
        a: a marker on the body with the guide.
        b: a marker on the slider.
        axis: direction (2,) of the guide in a's frame.
        axis_b: the same direction in b's frame; equal components by default.
    """

    pair: ClassVar[AbstractPair] = Pair((0,), Locked(dim=2))
    holonomic: ClassVar[int] = 2


class PointOnLine(AbstractPlanarAxisJoint, init=False):
    """A pin in a slot: a point of b stays on a line of a. Coordinates: the shift along the line, x, and b's angle.

    Args:
        name: its name.
        a: a marker on the line.
        b: the point.
        axis: direction (2,) of the line in a's frame.
        axis_b: direction (2,) in b's frame that lies along the line where the angle is zero; equal components by default.
    """

    pair: ClassVar[AbstractPair] = Pair((0,), Turning(dim=2))
    holonomic: ClassVar[int] = 1
