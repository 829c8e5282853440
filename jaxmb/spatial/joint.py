"""Joints in space."""

from typing import ClassVar

from jaxtyping import Array, Float

from ..foundations import Direction, NonZero, as_floats, contract
from ..mechanism import (
    AbstractFrameJoint,
    AbstractJoint,
    AbstractPair,
    Ball,
    Cardan,
    Helix,
    Locked,
    MarkerLike,
    Pair,
    Turning,
    axis_rotation,
    direction,
    ends,
)

# The rotations of both frames of a joint in their markers.
Turns = tuple[Float[Array, "3 3"], Float[Array, "3 3"]]


class AbstractSpatialAxisJoint(AbstractJoint):
    """A joint with an axis: z of both frames, the same components by default."""

    axis: Float[Array, "3"]
    axis_b: Float[Array, "3"]

    @contract
    def __init__(
        self,
        name: str,
        a: MarkerLike,
        b: MarkerLike,
        axis: Direction = (0.0, 0.0, 1.0),
        axis_b: Direction | None = None,
    ):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.axis = direction(name, axis, 3)
        self.axis_b = self.axis if axis_b is None else direction(name, axis_b, 3, "axis_b")

    def frame_rotations(self) -> Turns:
        """The rotations of both frames that bring z along the axis."""
        return axis_rotation(2, self.axis), axis_rotation(2, self.axis_b)


class Revolute(AbstractSpatialAxisJoint, init=False):
    """A hinge. Coordinate: the angle of b's frame in a's about the axis, in rad.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: direction (3,) of the hinge in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    # Three rows of the shift and two of the axis; no row sees the angle.
    pair: ClassVar[AbstractPair] = Pair((), Turning())
    holonomic: ClassVar[int] = 5


class Prismatic(AbstractSpatialAxisJoint, init=False):
    """A slider. Coordinate: the shift of b along the axis, in m.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: direction (3,) of the guide in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    pair: ClassVar[AbstractPair] = Pair((2,), Locked())
    holonomic: ClassVar[int] = 5


class Cylindrical(AbstractSpatialAxisJoint, init=False):
    """A cylindrical joint: shift along and rotation about an axis. Coordinates: z in m and angle in rad.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: direction (3,) in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    # A lower pair by two primitives: which axes are free to shift along, and which rotations are allowed.
    pair: ClassVar[AbstractPair] = Pair((2,), Turning())
    holonomic: ClassVar[int] = 4


class Screw(AbstractSpatialAxisJoint):
    """A screw: the shift along an axis is proportional to the rotation about it. Coordinate: the angle in rad.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        pitch: shift for each turn, in m; not zero.
        axis: direction (3,) in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    pitch: Float[Array, ""]
    # One coordinate, the angle; the shift is no free axis, but follows from the pitch.
    pair: ClassVar[AbstractPair] = Helix((), Turning())
    holonomic: ClassVar[int] = 5

    @contract
    def __init__(
        self,
        name: str,
        a: MarkerLike,
        b: MarkerLike,
        pitch: NonZero,
        axis: Direction = (0.0, 0.0, 1.0),
        axis_b: Direction | None = None,
    ):
        super().__init__(name, a, b, axis, axis_b)
        self.pitch = as_floats(pitch)

    def data(self) -> Float[Array, " k"]:
        """The pitch."""
        return self.pitch[None]


class Planar(AbstractSpatialAxisJoint, init=False):
    """A plane of b slides on a plane of a. Coordinates: the shifts x and y in m and the angle in rad.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: normal (3,) of the plane in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    # Shifts across the axis and the turn about it.
    pair: ClassVar[AbstractPair] = Pair((0, 1), Turning())
    holonomic: ClassVar[int] = 3


class Spherical(AbstractFrameJoint, init=False):
    """A ball joint. Coordinates: the unit quaternion (w, x, y, z) of b's frame in a's; velocities: ω in b's frame.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
    """

    # Quaternions have no singular orientation; three angles would have one, in the middle of a robot's range.
    pair: ClassVar[AbstractPair] = Pair((), Ball())
    holonomic: ClassVar[int] = 3


class Universal(AbstractSpatialAxisJoint):
    """A Cardan joint: rotation about a first axis on a, then about a second one on b, at a right angle to the first. Coordinates: both angles in rad.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: direction (3,) of the first axis in a's frame; z by default.
        axis_b: direction (3,) of the second axis in b's frame; x by default.
    """

    pair: ClassVar[AbstractPair] = Pair((), Cardan())
    holonomic: ClassVar[int] = 4

    @contract
    def __init__(
        self,
        name: str,
        a: MarkerLike,
        b: MarkerLike,
        axis: Direction = (0.0, 0.0, 1.0),
        axis_b: Direction = (1.0, 0.0, 0.0),
    ):
        super().__init__(name, a, b, axis, axis_b)

    def frame_rotations(self) -> Turns:
        """A's z along the first axis, b's x along the second."""
        # The first axis belongs to a and the second to b, so that the cross between them has no frame, and no body,
        # of its own.
        return axis_rotation(2, self.axis), axis_rotation(0, self.axis_b)


class Fixed(AbstractFrameJoint, init=False):
    """Two frames coincide; no coordinate.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
    """

    pair: ClassVar[AbstractPair] = Pair((), Locked())
    holonomic: ClassVar[int] = 6


class PointOnLine(AbstractSpatialAxisJoint, init=False):
    """A point of b stays on a line of a. Coordinates: the shift z in m and b's orientation.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: direction (3,) of the line in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    pair: ClassVar[AbstractPair] = Pair((2,), Ball())
    holonomic: ClassVar[int] = 2


class PointOnPlane(AbstractSpatialAxisJoint, init=False):
    """A point of b stays on a plane of a. Coordinates: the shifts x and y in m and b's orientation.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        axis: normal (3,) of the plane in a's frame; z by default.
        axis_b: the same direction in b's frame; equal components by default.
    """

    # The rotation is free: only one row is left, the distance from the plane.
    pair: ClassVar[AbstractPair] = Pair((0, 1), Ball())
    holonomic: ClassVar[int] = 1
