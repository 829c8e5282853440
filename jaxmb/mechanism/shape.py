"""Shapes of uniform bodies, from which mass, inertia, named points and pictures of a body follow."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..foundations import Finite, TextInNotebooks, is_concrete
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
