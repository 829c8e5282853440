"""Shapes of uniform bodies, from which mass, inertia, named points and pictures of a body follow."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import (
    AbstractExplicit,
    AllPositive,
    Finite,
    NonNegative,
    Positive,
    TextInNotebooks,
    contract,
    is_concrete,
)
from .marker import as_vector

Scalar = Float[Array, ""]
# A way to draw, and the names of the points that it goes through.
Stroke = tuple[str, ...]


class AbstractShape(TextInNotebooks, eqx.Module):
    """A region that a body fills evenly. To add one, inherit and define all of this; its fields are what `__init__` takes.

    Attributes:
        own_density: the density where neither it nor the mass is given; None where one of them must be.
    """

    own_density: ClassVar[float | None] = None

    @abc.abstractmethod
    def size(self) -> Scalar:
        """Length, area or volume: what a density is multiplied by."""

    @abc.abstractmethod
    def centre(self) -> Float[Array, " d"]:
        """The centre of mass c, in m."""

    @abc.abstractmethod
    def spread(self) -> Float[Array, "d d"]:
        """The mean of (x − c)(x − c)ᵀ over the region, in m²."""

    @abc.abstractmethod
    def points(self) -> dict[str, Any]:
        """Named points, as positions or poses; the centre of mass comes on top, as "centre"."""

    @property
    @abc.abstractmethod
    def strokes(self) -> tuple[Stroke, ...]:
        """The strokes of a drawing, each by named points.

        ("line", p, q, …); ("loop", p, q, …), closed and filled; ("disk", p, r, i), about p in the plane of its x and y, through r,
        with a hole through i; ("tube", p, q, r, i), the same from p along its z to q; ("prism", p, …, q, …), between two ends of as
        many corners; ("sphere", p, r).
        """

    @property
    def dimensions(self) -> dict[str, Array]:
        """The dimensions, by the names of the arguments."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, jax.Array)}

    def resized(self, dimensions: Mapping[str, Finite]) -> "AbstractShape":
        """The shape with other dimensions."""
        return type(self)(**{**self.dimensions, **dimensions})


class AbstractRod(AbstractShape, AbstractExplicit):
    """A slender rod from its point "a" at the origin to its point "b".

    Attributes:
        along: the unit vector of its axis.
    """

    along: ClassVar[tuple[float, ...]]
    length: Scalar

    @contract
    def __init__(self, length: Positive):
        self.length = dimension(length, "length of a Rod")

    def size(self) -> Scalar:
        """The length."""
        return self.length

    def centre(self) -> Float[Array, " d"]:
        """The middle."""
        return 0.5 * self.length * jnp.array(self.along)

    def spread(self) -> Float[Array, "d d"]:
        """L²/12 along the axis."""
        # Slender: nothing across the axis, and no inertia about it; the engine names a rod that may spin about itself.
        return jnp.diag(self.length**2 / 12 * jnp.array(self.along))

    def points(self) -> dict[str, Any]:
        """The ends a and b."""
        return {"a": jnp.zeros(len(self.along)), "b": self.length * jnp.array(self.along)}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """A line."""
        return (("line", "a", "b"),)


class AbstractBox(AbstractShape, AbstractExplicit):
    """A box with its centre at the origin and edges along the axes.

    Attributes:
        ends: the corners in their order, 0 for the lower and 1 for the upper end along each axis.
    """

    ends: ClassVar[tuple[tuple[int, ...], ...]]
    sides: Float[Array, " d"]

    @contract
    def __init__(self, sides: AllPositive):
        self.sides = dimension(sides, "sides of a Box", len(self.ends[0]))

    def size(self) -> Scalar:
        """The area or volume."""
        return jnp.prod(self.sides)

    def centre(self) -> Float[Array, " d"]:
        """The origin."""
        return jnp.zeros(len(self.ends[0]))

    def spread(self) -> Float[Array, "d d"]:
        """Squares of the sides, over 12."""
        return jnp.diag(self.sides**2 / 12)

    def points(self) -> dict[str, Any]:
        """The corners."""
        return {"c" + "".join(map(str, end)): self.sides * (jnp.array(end) - 0.5) for end in self.ends}


class AbstractDisk(AbstractShape, AbstractExplicit):
    """A disk in x and y with its centre at the origin, or a ring. Its points "rim" and "bore" are on x.

    Attributes:
        dim: 2 or 3.
    """

    dim: ClassVar[int]
    radius: Scalar
    inner: Scalar

    @contract
    def __init__(self, radius: Positive, inner: NonNegative = 0.0):
        self.radius = dimension(radius, "radius of a Disk")
        self.inner = bore(inner, self.radius, "inner of a Disk")

    def size(self) -> Scalar:
        """The area."""
        return jnp.pi * (self.radius**2 - self.inner**2)

    def centre(self) -> Float[Array, " d"]:
        """The origin."""
        return jnp.zeros(self.dim)

    def spread(self) -> Float[Array, "d d"]:
        """(R² + r²)/4 in x and y."""
        return (self.radius**2 + self.inner**2) / 4 * jnp.diag(jnp.array([1.0, 1.0, 0.0][: self.dim]))

    def points(self) -> dict[str, Any]:
        """Points of both circles."""
        x_axis = jnp.array([1.0, 0.0, 0.0][: self.dim])
        # Points turn with the disk, so that a drawing shows its rotation.
        return {"rim": self.radius * x_axis, "bore": self.inner * x_axis}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """Both circles and what is between them."""
        return (("disk", "centre", "rim", "bore"),)


def dimension(value: Finite, argument: str, *shape: int) -> Float[Array, "..."]:
    """A length, or an array of lengths, all positive.

    Raises:
        ValueError: if one is known not to be positive.
    """
    lengths = as_vector(value, argument, shape)
    if is_concrete(lengths) and not np.all(np.asarray(lengths) > 0):
        raise ValueError(f"Argument `{argument}` must be positive, but is {np.asarray(lengths).tolist()}.")
    return lengths


def bore(inner: Finite, radius: Scalar, argument: str) -> Scalar:
    """The radius of a hole, from zero to less than the outer radius."""
    inner = as_vector(inner, argument, ())
    if is_concrete(inner, radius) and not 0 <= float(inner) < float(radius):
        raise ValueError(
            f"Argument `{argument}` must lie between zero and the radius {float(radius)}, but is {float(inner)}."
        )
    return inner
