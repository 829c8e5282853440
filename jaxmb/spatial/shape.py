"""Shapes in space. Densities are masses per length of a rod, per area of a disk, per volume of all others."""

from itertools import product
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import (
    Finite,
    NonNegative,
    Positive,
    contract,
)
from ..mechanism import (
    AbstractBox,
    AbstractDisk,
    AbstractRod,
    AbstractShape,
    Stroke,
    bore,
    dimension,
    polygon,
    polygon_moments,
)

Scalar = Float[Array, ""]
# Corners of the end of a prism in the order of its outline.
ROUND = ("00", "10", "11", "01")


class Rod(AbstractRod, init=False):
    """A slender rod along z, from its point "a" at the origin to its point "b".

    It has no inertia about its own axis: if it may spin about that axis, use a `Cylinder`.

    Args:
        length: in m.
    """

    along: ClassVar[tuple[float, ...]] = (0.0, 0.0, 1.0)


class Box(AbstractBox, init=False):
    """A box with its centre at the origin and edges along x, y and z.

    Its points "c000" to "c111" are the corners, 0 for the lower and 1 for the upper end along x, y and z.

    Args:
        sides: lengths (3,) along x, y and z in m.
    """

    ends: ClassVar[tuple[tuple[int, ...], ...]] = tuple(product((0, 1), repeat=3))

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """Both ends and the sides between them."""
        return (("prism", *(f"c{corner}{level}" for level in "01" for corner in ROUND)),)


class Cylinder(AbstractShape):
    """A cylinder, or a tube, along z from its point "a" at the origin to its point "b"; "rim" and "bore" are beside "a", on x.

    Args:
        length: in m.
        radius: in m.
        inner: radius of a hole along the axis in m; none by default.
    """

    length: Scalar
    radius: Scalar
    inner: Scalar

    @contract
    def __init__(self, length: Positive, radius: Positive, inner: NonNegative = 0.0):
        self.length = dimension(length, "length of a Cylinder")
        self.radius = dimension(radius, "radius of a Cylinder")
        self.inner = bore(inner, self.radius, "inner of a Cylinder")

    def size(self) -> Scalar:
        """The volume."""
        return jnp.pi * (self.radius**2 - self.inner**2) * self.length

    def centre(self) -> Float[Array, "3"]:
        """The middle of the axis."""
        return _up(0.5 * self.length)

    def spread(self) -> Float[Array, "3 3"]:
        """(R² + r²)/4 across, L²/12 along."""
        # For a tube the sum of both squares: the difference of R⁴ and r⁴ over that of R² and r².
        across = (self.radius**2 + self.inner**2) / 4
        return jnp.diag(jnp.stack([across, across, self.length**2 / 12]))

    def points(self) -> dict[str, Any]:
        """Ends, and points of both circles."""
        x_axis = jnp.array([1.0, 0.0, 0.0])
        ends = {"a": jnp.zeros(3), "b": _up(self.length)}
        return ends | {"rim": self.radius * x_axis, "bore": self.inner * x_axis}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """Both ends and what is between them."""
        return (("tube", "a", "b", "rim", "bore"),)


class Disk(AbstractDisk, init=False):
    """A thin disk across z with its centre at the origin, or a ring. Its points "rim" and "bore" are on x.

    Args:
        radius: in m.
        inner: radius of a hole in m; none by default.
    """

    dim: ClassVar[int] = 3


class Plate(AbstractShape):
    """A polygon in the body's x and y, half of its thickness on either side. Points "c0", "c1", … are its corners, "c0-" and "c0+" those of the faces.

    Args:
        corners: (n, 2) in m, in order, either way round; sides must not cross.
        thickness: along z, in m.
    """

    corners: Float[Array, "n 2"]
    thickness: Scalar

    @contract
    def __init__(self, corners: Finite, thickness: Positive):
        self.corners = polygon(corners, "corners of a Plate")
        self.thickness = dimension(thickness, "thickness of a Plate")

    def size(self) -> Scalar:
        """The volume."""
        return polygon_moments(self.corners)[0] * self.thickness

    def centre(self) -> Float[Array, "3"]:
        """The centroid."""
        return jnp.append(polygon_moments(self.corners)[1], 0.0)

    def spread(self) -> Float[Array, "3 3"]:
        """By Green's theorem, and thickness²/12 along z."""
        # Second moments of a prism: those of its section, and those along z by themselves, without products of both.
        flat = jnp.pad(polygon_moments(self.corners)[2], (0, 1))
        return flat.at[2, 2].set(self.thickness**2 / 12)

    def points(self) -> dict[str, Any]:
        """The corners, of the mid-plane as "c0", "c1", …; of both faces with "-" and "+" behind."""
        # Corners of the mid-plane keep the names that the plate has in the plane, so that a drawing can be lifted
        # into space.
        faces = {"": 0.0, "-": -0.5, "+": 0.5}
        return {
            f"c{i}{face}": jnp.append(corner, level * self.thickness)
            for face, level in faces.items()
            for i, corner in enumerate(self.corners)
        }

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """Both faces and the sides between them."""
        return (("prism", *(f"c{i}{face}" for face in "-+" for i in range(self.corners.shape[0]))),)


class Sphere(AbstractShape):
    """A ball with its centre at the origin; its point "rim" is on x.

    Args:
        radius: in m.
    """

    radius: Scalar

    @contract
    def __init__(self, radius: Positive):
        self.radius = dimension(radius, "radius of a Sphere")

    def size(self) -> Scalar:
        """The volume."""
        return 4 / 3 * jnp.pi * self.radius**3

    def centre(self) -> Float[Array, "3"]:
        """The origin."""
        return jnp.zeros(3)

    def spread(self) -> Float[Array, "3 3"]:
        """R²/5 in all directions."""
        return self.radius**2 / 5 * jnp.eye(3)

    def points(self) -> dict[str, Any]:
        """A point of the surface."""
        return {"rim": self.radius * jnp.array([1.0, 0.0, 0.0])}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The ball."""
        return (("sphere", "centre", "rim"),)


def _up(length: Scalar) -> Float[Array, "3"]:
    """A point on the z axis."""
    return length * jnp.array([0.0, 0.0, 1.0])
