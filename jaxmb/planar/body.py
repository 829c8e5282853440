"""Bodies in the plane."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import (
    Finite,
    NonNegative,
    Positive,
    arrays_of,
    as_floats,
    as_jax,
    contract,
    in_numpy,
)
from ..mechanism import (
    AbstractBody,
    as_pose,
    as_vector,
    compound,
    pose,
    rotation_of,
)
from .shape import Rod


@contract
def frame(position: Finite = (0.0, 0.0), angle: Finite = 0.0) -> Float[Array, "3 3"]:
    """The pose [[R, p], [0, 1]] with a position in m and an angle in rad, or a rotation matrix (2, 2)."""
    rotation = as_vector(angle, "angle", (), (2, 2))
    if not rotation.ndim:
        # In NumPy where the angle is concrete: mechanisms of many bodies would else compile a program for each shape.
        xp = arrays_of(rotation)
        c, s = xp.cos(rotation), xp.sin(rotation)
        rotation = as_jax(xp.array([[c, -s], [s, c]]))
    return pose(rotation, as_vector(position, "position", (2,)))


def angle_of(rotation: Float[Array, "2 2"]) -> Float[Array, ""]:
    """The angle of a rotation matrix, between −π and π."""
    return jnp.arctan2(rotation[1, 0], rotation[0, 0])


class Body(AbstractBody):
    """A rigid body in the plane.

    Args:
        name: a name, unique in its mechanism.
        mass: in kg.
        inertia: moment of inertia about the centre of mass, in kg m²; that of the shape by default.
        com: centre of mass (2,) in the body's frame, in m; that of the shape, or the origin, by default.
        points: positions (2,), or poses made by `frame`, in the body's frame, by name; referred to as "body.point".
        point_masses: pairs of mass and position (2,) that are added.
        position, angle: a first guess of the pose, for `assemble`, as in `frame`.
        shape: what the body fills evenly, for example `Rod(0.3)`; its points are the body's too.
        density: instead of the mass, where there is a shape: in kg/m for a rod, in kg/m² for the others.

    Example:
        >>> import jaxmb as jm
        >>> disk = jm.planar.Body("disk", shape=jm.planar.Disk(0.2), mass=5.0)
        >>> round(float(disk.inertia), 3), list(disk.points)
        (0.1, ['rim', 'bore', 'centre'])
    """

    dim: ClassVar[int] = 2

    @contract
    def __init__(
        self,
        name: str,
        mass: NonNegative | None = None,
        inertia: NonNegative | None = None,
        com: Finite | None = None,
        points: Mapping[str, Any] | None = None,
        point_masses: Sequence[tuple[Any, Any]] = (),
        position: Finite = (0.0, 0.0),
        angle: Finite = 0.0,
        shape: object = None,
        density: Positive | None = None,
    ):
        position = as_vector(position, f"position of body '{name}'", (2,))
        angle = as_vector(angle, f"angle of body '{name}'", (), (2, 2))
        pose = as_pose(frame(position, angle), f"angle of body '{name}'")
        super().__init__(name, (mass, inertia, com), points, point_masses, pose, shape, density)

    @classmethod
    @contract
    def rod(cls, name: str, mass: NonNegative, length: Positive, **arguments: Any) -> "Body":
        """A body with the shape `Rod(length)`: slender, along x from its point "a", at the origin, to its point "b".

        Args:
            name: a name.
            mass: in kg.
            length: in m.
            **arguments: further arguments of `Body`.
        """
        # Through the shape, not by formulas here: a fit of the length then moves mass properties and points together.
        return cls(name, mass, shape=Rod(length), **arguments)

    @classmethod
    @contract
    def joined(cls, name: str, parts: Sequence[Any], **arguments: Any) -> "Body":
        """Bodies joined rigidly to one, with mass and inertia of all by the parallel-axis theorem.

        Args:
            name: a name.
            parts: bodies, or pairs of a body and its position (2,) or pose in the frame of the whole, made by `frame`. The frame
                of a part becomes a point with the part's name, its points are called "part_point".
            **arguments: further arguments of `Body`, except `shape`.
        """
        return cls(name, shape=compound(parts, 2), **arguments)

    @staticmethod
    def as_inertia(inertia: Any, name: str) -> Float[Array, ""]:
        """The number as an array."""
        return as_floats(inertia)

    @staticmethod
    def moments(spread: Float[Array | np.ndarray, "2 2"]) -> Any:
        """The moment of inertia, the trace of the second moments."""
        return in_numpy(spread).trace()

    @property
    def angle(self) -> Float[Array, ""]:
        """The angle of the first guess of the pose, between −π and π."""
        return angle_of(rotation_of(self.pose))

    def about_com(self) -> Float[Array, "2 2"]:
        """Spread evenly over both directions: only its trace, the moment of inertia, counts in the plane."""
        # A scalar does not tell how mass is spread over x and y, and motion in the plane does not depend on it.
        return as_jax(0.5 * in_numpy(self.inertia) * np.eye(2))
