"""Polygons: corners, and moments of the area."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import is_concrete
from .marker import as_vector

Scalar = Float[Array, ""]
# An area below this part of the square of the extent is rounding of the corners, which area and centroid would be divided by.
FLAT = 1e-12


def polygon(corners: Sequence[object] | Array | np.ndarray, argument: str) -> Float[Array, "n 2"]:
    """The corners of a polygon in order, either way round.

    Raises:
        ValueError: if there are fewer than three, the area vanishes or sides are known to cross.
    """
    if len(corners) < 3:
        raise ValueError(f"Argument `{argument}` must hold at least three corners, but holds {len(corners)}.")
    vertices = as_vector(corners, argument, (len(corners), 2))
    if is_concrete(vertices):
        area = float(polygon_moments(vertices)[0])
        if not area > FLAT * float(np.ptp(np.asarray(vertices), axis=0).max()) ** 2:
            raise ValueError(f"Argument `{argument}` must enclose an area, but encloses {area:.3g} m².")
        if (crossing := _crossing(np.asarray(vertices))) is not None:
            i, j = crossing
            raise ValueError(
                f"Argument `{argument}` must be a polygon whose sides do not cross, but those from corners {i} and {j} do."
            )
    return vertices


def polygon_moments(corners: Float[Array, "n 2"]) -> tuple[Scalar, Float[Array, "2"], Float[Array, "2 2"]]:
    """Area, centroid and mean of (x − c)(x − c)ᵀ of a polygon, by Green's theorem.

    With a first corner as origin the area is Σ a_i, a_i = ½ x_i × x_{i+1}; a triangle from the origin to a side has the mean
    (x_i + x_{i+1})/3 and the second moments (x_i x_iᵀ + x_{i+1} x_{i+1}ᵀ + (x_i + x_{i+1})(x_i + x_{i+1})ᵀ)/12.
    """
    # A corner as origin keeps triangles small: with one far away areas of both signs would cancel digits.
    first, second = corners - corners[0], jnp.roll(corners, -1, axis=0) - corners[0]
    both = first + second
    areas = 0.5 * (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    area = jnp.sum(areas)
    shares = areas / area
    centre = shares @ both / 3
    second_moments = sum((x.T * shares) @ x for x in (first, second, both)) / 12
    # Moments are divided by the signed area, so that the sense in which corners go round cancels; only the area needs
    # a sign.
    return jnp.abs(area), corners[0] + centre, second_moments - jnp.outer(centre, centre)


def _crossing(corners: np.ndarray) -> tuple[int, int] | None:
    """The first two sides without a common corner that meet."""
    n, ends = len(corners), np.roll(corners, -1, axis=0)
    # Sides cross where each has the ends of the other on different sides (orientation test); neighbours share a
    # corner.
    turn = lambda a, b, c: np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
    for i in range(n):
        for j in range(i + 2, n - (i == 0)):
            p, q, r, s = corners[i], ends[i], corners[j], ends[j]
            if turn(p, q, r) != turn(p, q, s) and turn(r, s, p) != turn(r, s, q):
                return i, j
    return None
