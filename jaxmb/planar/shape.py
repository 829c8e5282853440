"""Shapes in the plane. Densities are masses per length of a rod, per area of all others."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import (
    AllPositive,
    Finite,
    NonNegative,
    Positive,
    contract,
)
from ..mechanism import AbstractShape, Stroke, bore, dimension, polygon, polygon_moments

Scalar = Float[Array, ""]


class Rod(AbstractShape):
    """A slender rod along x, from its point "a" at the origin to its point "b".

    Args:
        length: in m.
    """

    length: Scalar

    @contract
    def __init__(self, length: Positive):
        self.length = dimension(length, "length of a Rod")

    def size(self) -> Scalar:
        """The length."""
        return self.length

    def centre(self) -> Float[Array, "2"]:
        """The middle of the rod."""
        return self.length * jnp.array([0.5, 0.0])

    def spread(self) -> Float[Array, "2 2"]:
        """L²/12 along x."""
        # Slender: what the rod has across its axis is neglected.
        return self.length**2 / 12 * jnp.diag(jnp.array([1.0, 0.0]))

    def points(self) -> dict[str, Any]:
        """The ends a and b."""
        return {"a": jnp.zeros(2), "b": self.length * jnp.array([1.0, 0.0])}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """A line."""
        return (("line", "a", "b"),)


class Box(AbstractShape):
    """A rectangle with its centre at the origin and sides along x and y.

    Its points "c00", "c10", "c11" and "c01" are the corners, 0 for the lower and 1 for the upper end along x and y.

    Args:
        sides: lengths (2,) along x and y in m.
    """

    sides: Float[Array, "2"]

    @contract
    def __init__(self, sides: AllPositive):
        self.sides = dimension(sides, "sides of a Box", 2)

    def size(self) -> Scalar:
        """The area."""
        return jnp.prod(self.sides)

    def centre(self) -> Float[Array, "2"]:
        """The origin."""
        return jnp.zeros(2)

    def spread(self) -> Float[Array, "2 2"]:
        """Squares of the sides, over 12."""
        return jnp.diag(self.sides**2 / 12)

    def points(self) -> dict[str, Any]:
        """The corners."""
        return {f"c{i}{j}": self.sides * jnp.array([i - 0.5, j - 0.5]) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The outline."""
        return (("loop", "c00", "c10", "c11", "c01"),)


class Disk(AbstractShape):
    """A disk with its centre at the origin, or a ring. Its points "rim" and "bore" are on x.

    Args:
        radius: in m.
        inner: radius of a hole in m; none by default.
    """

    radius: Scalar
    inner: Scalar

    @contract
    def __init__(self, radius: Positive, inner: NonNegative = 0.0):
        self.radius = dimension(radius, "radius of a Disk")
        self.inner = bore(inner, self.radius, "inner of a Disk")

    def size(self) -> Scalar:
        """The area."""
        return jnp.pi * (self.radius**2 - self.inner**2)

    def centre(self) -> Float[Array, "2"]:
        """The origin."""
        return jnp.zeros(2)

    def spread(self) -> Float[Array, "2 2"]:
        """(R² + r²)/4 in both directions."""
        return (self.radius**2 + self.inner**2) / 4 * jnp.eye(2)

    def points(self) -> dict[str, Any]:
        """Points of both circles."""
        x_axis = jnp.array([1.0, 0.0])
        # Points turn with the disk, so that a drawing shows its rotation.
        return {"rim": self.radius * x_axis, "bore": self.inner * x_axis}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """Both circles and what is between them."""
        return (("disk", "centre", "rim", "bore"),)


class Plate(AbstractShape):
    """A polygon in the body's frame, with its corners as points "c0", "c1" and so on.

    Args:
        corners: (n, 2) in m, in order, either way round; sides must not cross.
    """

    corners: Float[Array, "n 2"]

    @contract
    def __init__(self, corners: Finite):
        self.corners = polygon(corners, "corners of a Plate")

    def size(self) -> Scalar:
        """The area."""
        return polygon_moments(self.corners)[0]

    def centre(self) -> Float[Array, "2"]:
        """The centroid."""
        return polygon_moments(self.corners)[1]

    def spread(self) -> Float[Array, "2 2"]:
        """By Green's theorem."""
        return polygon_moments(self.corners)[2]

    def points(self) -> dict[str, Any]:
        """The corners."""
        return {f"c{i}": corner for i, corner in enumerate(self.corners)}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The outline."""
        return (("loop", *(f"c{i}" for i in range(self.corners.shape[0]))),)
