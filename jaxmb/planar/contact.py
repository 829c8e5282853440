"""Constraints in the plane that are no lower pairs."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import Direction, Positive, as_floats, contract
from ..mechanism import (
    AbstractConnection,
    AbstractRolling,
    Marker,
    MarkerLike,
    direction,
    ends,
    marker,
    position_of,
    rotation_of,
    velocity_in,
)
from .joint import x_rotation

Pose = Float[Array, "3 3"]


class KnifeEdge(AbstractConnection):
    """A blade, or a wheel seen from above: a point moves along its axis only.

    Args:
        name: its name.
        at: the marker of the blade.
        axis: its direction (2,) in the frame of that marker.
        on: a marker on the body that carries the plane; ground by default.
    """

    axis: Float[Array, "2"]
    holonomic: ClassVar[int] = 0
    nonholonomic: ClassVar[int] = 1

    @contract
    def __init__(self, name: str, at: MarkerLike, axis: Direction = (1.0, 0.0), on: MarkerLike = "ground"):
        self.name = name
        self.a, self.b = marker(on, f"on of joint '{name}'"), marker(at, f"at of joint '{name}'")
        self.axis = direction(name, axis, 2)

    @property
    def at(self) -> Marker:
        """The marker of the blade."""
        return self.b

    @property
    def on(self) -> Marker:
        """The marker of the body that carries the plane."""
        return self.a

    def frame_rotations(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """B's x along the blade."""
        return jnp.eye(2), x_rotation(self.axis)

    @classmethod
    def slip(cls, a: Pose, b: Pose, da: Pose, db: Pose, data: Float[Array, " k"]) -> Array:
        """The velocity across the blade."""
        # One nonholonomic row: the blade may turn in place and go ahead (Neimark and Fufaev 1972), and no position is
        # lost.
        return jnp.dot(velocity_in(a, b, da, db, position_of(b)), rotation_of(b)[:, 1])[None]


class RollingWheel(AbstractRolling):
    """A wheel, seen from the side, that rolls on a line without slipping: contact, and zero velocity of the contact point.

    Args:
        name: its name; the row that forbids slipping is called "name rolling".
        a: a marker on the line.
        b: the centre of the wheel.
        radius: in m; the wheel is to the left of the line's direction.
        axis: direction (2,) of the line in a's frame.
    """

    axis: Float[Array, "2"]
    nonholonomic: ClassVar[int] = 1

    @contract
    def __init__(self, name: str, a: MarkerLike, b: MarkerLike, radius: Positive, axis: Direction = (1.0, 0.0)):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.radius = as_floats(radius)
        self.axis = direction(name, axis, 2)

    def frame_rotations(self) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"]]:
        """A's x along the line."""
        # With the line along x its normal is y, and the wheel's own frame needs no direction.
        return x_rotation(self.axis), jnp.eye(2)
