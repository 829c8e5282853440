"""Joints in the plane."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..mechanism import AbstractJoint, AbstractPair, Locked, Marker, Pair, Turning, as_vector, marker


def ends(name: str, a: Any, b: Any) -> tuple[Marker, Marker]:
    """The two places of a joint."""
    return marker(a, f"a of joint '{name}'"), marker(b, f"b of joint '{name}'")


def directions(name: str, axis: Any, axis_b: Any) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """The axis on both bodies; the same components by default."""
    axis = as_vector(axis, f"axis of joint '{name}'", (2,))
    return axis, axis if axis_b is None else as_vector(axis_b, f"axis_b of joint '{name}'", (2,))


def along(axis: Float[Array, "2"]) -> Float[Array, "2 2"]:
    """The rotation that carries x to the direction of `axis`."""
    c, s = axis / jnp.linalg.norm(axis)
    return jnp.array([[c, -s], [s, c]])


class Revolute(AbstractJoint):
    """A hinge: two points coincide. Coordinate: the angle of b's frame in a's, in rad.

    Args:
        name: its name.
        a: a place on one body.
        b: a place on the other.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    pair: ClassVar[AbstractPair] = Pair((), Turning(dim=2))
    holonomic: ClassVar[int] = 2
    nonholonomic: ClassVar[int] = 0

    def __init__(self, name: str, a: Any, b: Any):
        self.name, (self.a, self.b) = name, ends(name, a, b)

    def turns(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """None."""
        return jnp.eye(2), jnp.eye(2)


class Fixed(AbstractJoint):
    """Two frames coincide; no coordinate.

    Args:
        name: its name.
        a: a place on one body.
        b: a place on the other.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    pair: ClassVar[AbstractPair] = Pair((), Locked(dim=2))
    holonomic: ClassVar[int] = 3
    nonholonomic: ClassVar[int] = 0

    def __init__(self, name: str, a: Any, b: Any):
        self.name, (self.a, self.b) = name, ends(name, a, b)

    def turns(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """None."""
        return jnp.eye(2), jnp.eye(2)


class Prismatic(AbstractJoint):
    """A slider. Coordinate: the shift of b along the axis, in m.

    Args:
        name: its name.
        a: a place on the body with the guide.
        b: a place on the slider.
        axis: direction (2,) of the guide in a's frame.
        axis_b: the same direction in b's frame; equal components by default.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    axis: Float[Array, "2"]
    axis_b: Float[Array, "2"]
    pair: ClassVar[AbstractPair] = Pair((0,), Locked(dim=2))
    holonomic: ClassVar[int] = 2
    nonholonomic: ClassVar[int] = 0

    def __init__(self, name: str, a: Any, b: Any, axis: Any = (1.0, 0.0), axis_b: Any = None):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.axis, self.axis_b = directions(name, axis, axis_b)

    def turns(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """X along the axis."""
        return along(self.axis), along(self.axis_b)


class PointOnLine(AbstractJoint):
    """A pin in a slot: a point of b stays on a line of a. Coordinates: the shift along the line, x, and b's angle.

    Args:
        name: its name.
        a: a place on the line.
        b: the point.
        axis: direction (2,) of the line in a's frame.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    axis: Float[Array, "2"]
    pair: ClassVar[AbstractPair] = Pair((0,), Turning(dim=2))
    holonomic: ClassVar[int] = 1
    nonholonomic: ClassVar[int] = 0

    def __init__(self, name: str, a: Any, b: Any, axis: Any = (1.0, 0.0)):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.axis, _ = directions(name, axis, None)

    def turns(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """X along the line; b's frame is that which lies along it where the angle is zero."""
        return along(self.axis), along(self.axis)
