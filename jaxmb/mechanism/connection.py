"""Connections of two bodies, and relations between two joints."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import AbstractExplicit, Direction, Positive, TextInNotebooks, as_floats, contract
from .marker import Marker, MarkerLike, as_vector, marker
from .pair import AbstractPair
from .pose import inverse, position_of, product, rotation_of, velocity_in

# The name of the rows that forbid slipping ends with this where the same connection has holonomic rows too.
ROLLING = " rolling"


class AbstractConnection(TextInNotebooks, AbstractExplicit):
    """A relation between a frame A on one body and a frame B on another.

    Attributes:
        name: a name, unique in its mechanism, that coordinates, messages and results use.
        a: the marker of A, on the body that counts as fixed.
        b: the marker of B.
        holonomic: number of rows of `residual`.
        nonholonomic: number of rows of `slip`.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    holonomic: ClassVar[int]
    nonholonomic: ClassVar[int]

    @classmethod
    def slip_name(cls, name: str) -> str:
        """The name of the nonholonomic rows."""
        return name + ROLLING if cls.holonomic else name

    def frame_rotations(self) -> tuple[Float[Array, "d d"], Float[Array, "d d"]] | None:
        """Rotations of A and B in their markers; None where both are the markers' own frames."""
        return None

    def data(self) -> Float[Array, " k"]:
        """The numbers that `residual` and `slip` read; none by default."""
        return as_floats(())

    @classmethod
    def residual(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """φ of the poses A and B, (holonomic,); no rows by default."""
        return jnp.zeros(0, a.dtype)

    @classmethod
    def gap(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """φ with angles in place of their sines: it grows up to half a turn, where `residual` turns back at a quarter."""
        return cls.residual(a, b, data)

    @classmethod
    def slip(
        cls,
        a: Float[Array, "D D"],
        b: Float[Array, "D D"],
        da: Float[Array, "D D"],
        db: Float[Array, "D D"],
        data: Float[Array, " k"],
    ) -> Array:
        """ψ of the poses and their derivatives, linear in these, (nonholonomic,); no rows by default."""
        return jnp.zeros(0, a.dtype)


def ends(name: str, a: MarkerLike, b: MarkerLike) -> tuple[Marker, Marker]:
    """The two markers of a connection."""
    return marker(a, f"a of joint '{name}'"), marker(b, f"b of joint '{name}'")


def direction(name: str, axis: Direction, dim: int, argument: str = "axis") -> Float[Array, " d"]:
    """A direction, not brought to unit length: a fit may vary it, and a unit vector has a constraint that its numbers would not know of."""
    return as_vector(axis, f"{argument} of joint '{name}'", (dim,))


class AbstractJoint(AbstractConnection):
    """A connection by a lower pair, or one like it, that can be a joint of the tree or the closure of a loop.

    Its coordinates describe B in A.
    """

    pair: ClassVar[AbstractPair]
    nonholonomic: ClassVar[int] = 0

    @classmethod
    def residual(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """The residual of the pair, of the pose of B in A."""
        return cls.pair.residual(product(inverse(a), b), data)

    @classmethod
    def gap(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """The gap of the pair, of the pose of B in A."""
        return cls.pair.gap(product(inverse(a), b), data)


class AbstractFrameJoint(AbstractJoint):
    """A joint that needs no axis."""

    @contract
    def __init__(self, name: str, a: MarkerLike, b: MarkerLike):
        self.name, (self.a, self.b) = name, ends(name, a, b)


class AbstractRolling(AbstractConnection):
    """Something round that rolls without slipping on a line or a plane of A, across its last axis: contact, and no velocity of the contact point."""

    radius: Float[Array, ""]
    holonomic: ClassVar[int] = 1

    def data(self) -> Float[Array, " k"]:
        """The radius."""
        return self.radius[None]

    @classmethod
    def contact(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " d"]:
        """The contact point, below the centre."""
        return position_of(b) - data * rotation_of(a)[:, -1]

    @classmethod
    def residual(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """The distance of the centre, less the radius."""
        return jnp.dot(rotation_of(a)[:, -1], position_of(b) - position_of(a)) - data

    @classmethod
    def slip(
        cls,
        a: Float[Array, "D D"],
        b: Float[Array, "D D"],
        da: Float[Array, "D D"],
        db: Float[Array, "D D"],
        data: Float[Array, " k"],
    ) -> Array:
        """The velocity of the contact point along the line or plane."""
        # The contact point as one of B's body: its velocity against A vanishes, while the position of contact moves on. Linear in the rates of
        # poses, as `Pfaffian` rows must be; across the line or plane it is the derivative of `residual`, and would be redundant.
        return rotation_of(a)[:, :-1].T @ velocity_in(a, b, da, db, cls.contact(a, b, data))


class Distance(AbstractConnection):
    """Two points keep their distance, (|p|² − l²)/(2l) = 0: a massless rod.

    Args:
        name: its name.
        a: a marker on one body.
        b: a marker on the other.
        length: l in m, positive.
    """

    length: Float[Array, ""]
    holonomic: ClassVar[int] = 1
    nonholonomic: ClassVar[int] = 0

    @contract
    def __init__(self, name: str, a: MarkerLike, b: MarkerLike, length: Positive):
        self.name, (self.a, self.b) = name, ends(name, a, b)
        self.length = as_vector(length, f"length of joint '{name}'", ())

    def data(self) -> Float[Array, " k"]:
        """The length l."""
        return self.length[None]

    @classmethod
    def residual(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """(|p|² − l²)/(2l)."""
        # Squares need no root, so that the row has derivatives where the points meet. Over 2 l its gradient is the
        # unit vector along the rod on φ = 0, and its multiplier the force in the rod in N.
        gap = position_of(b) - position_of(a)
        return (jnp.sum(gap**2) - data**2) / (2 * data)


class AbstractRelation(TextInNotebooks, eqx.Module):
    """A linear relation between joint coordinates, Σ factor_i s_i = offset.

    Attributes:
        name: its name.
        joints: names of the joints, or "joint.coordinate" for those with several.
        units: of either coordinate the units that it may have.
    """

    name: str = eqx.field(static=True)
    joints: tuple[str, str] = eqx.field(static=True)
    units: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]]
    holonomic: ClassVar[int] = 1

    @abc.abstractmethod
    def factors(self) -> Float[Array, "3"]:
        """factor₁, factor₂ and offset."""
