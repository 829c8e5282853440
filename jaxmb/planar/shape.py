"""Shapes in the plane. Densities are masses per length of a rod, per area of all others."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..foundations import (
    Finite,
    contract,
)
from ..mechanism import (
    AbstractBox,
    AbstractDisk,
    AbstractRod,
    AbstractShape,
    Stroke,
    polygon,
    polygon_moments,
)

Scalar = Float[Array, ""]


class Rod(AbstractRod, init=False):
    """A slender rod along x, from its point "a" at the origin to its point "b".

    Args:
        length: in m.
    """

    along: ClassVar[tuple[float, ...]] = (1.0, 0.0)


class Box(AbstractBox, init=False):
    """A rectangle with its centre at the origin and sides along x and y.

    Its points "c00", "c10", "c11" and "c01" are the corners, 0 for the lower and 1 for the upper end along x and y.

    Args:
        sides: lengths (2,) along x and y in m.
    """

    ends: ClassVar[tuple[tuple[int, ...], ...]] = ((0, 0), (1, 0), (1, 1), (0, 1))

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The outline."""
        return (("loop", *(f"c{i}{j}" for i, j in self.ends)),)


class Disk(AbstractDisk, init=False):
    """A disk with its centre at the origin, or a ring. Its points "rim" and "bore" are on x.

    Args:
        radius: in m.
        inner: radius of a hole in m; none by default.
    """

    dim: ClassVar[int] = 2


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
