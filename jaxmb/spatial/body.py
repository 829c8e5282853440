"""Bodies in space."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float

from ..foundations import (
    AllPositive,
    Direction,
    Finite,
    NonNegative,
    Positive,
    as_jax,
    contract,
    in_numpy,
)
from ..mechanism import (
    AbstractBody,
    as_pose,
    as_vector,
    compound,
    matrix_quaternion,
    moments_of_inertia,
    pose,
    quaternion_matrix,
    rotation_of,
    second_moments,
)
from .shape import Box


@contract
def frame(position: Finite = (0.0, 0.0, 0.0), orientation: Direction = (1.0, 0.0, 0.0, 0.0)) -> Float[Array, "4 4"]:
    """The pose [[R, p], [0, 1]] with a position in m and an orientation.

    Args:
        position: (3,) in m.
        orientation: quaternion (w, x, y, z), brought to unit length, or rotation matrix (3, 3).
    """
    rotation = as_vector(orientation, "orientation", (4,), (3, 3))
    matrix = rotation if rotation.ndim == 2 else quaternion_matrix(in_numpy(rotation))
    return pose(matrix, as_vector(position, "position", (3,)))


class Body(AbstractBody):
    """A rigid body in space.

    Args:
        name: a name, unique in its mechanism.
        mass: in kg.
        inertia: about the centre of mass in the axes of the body, in kg m²: the matrix (3, 3), or its diagonal (3,); that of the
            shape by default.
        com: centre of mass (3,) in the body's frame, in m; that of the shape, or the origin, by default.
        points: positions (3,), or poses made by `frame`, in the body's frame, by name; referred to as "body.point".
        point_masses: pairs of mass and position (3,) that come on top.
        position, orientation: a first guess of the pose, for `assemble`, as in `frame`.
        shape: what the body fills evenly, for example `Box((0.3, 0.2, 0.1))`; its points are the body's too.
        density: instead of the mass, where there is a shape: in kg/m for a rod, in kg/m² for a disk, in kg/m³ for the others.

    Example:
        >>> import jaxmb as jm
        >>> tube = jm.spatial.Body("tube", shape=jm.spatial.Cylinder(1.0, radius=0.05, inner=0.04), density=7850.0)
        >>> round(float(tube.mass), 3), list(tube.points)
        (22.195, ['a', 'b', 'rim', 'bore', 'centre'])
    """

    dim: ClassVar[int] = 3

    @contract
    def __init__(
        self,
        name: str,
        mass: NonNegative | None = None,
        inertia: Finite | None = None,
        com: Finite | None = None,
        points: Mapping[str, Any] | None = None,
        point_masses: Sequence[tuple[Any, Any]] = (),
        position: Finite = (0.0, 0.0, 0.0),
        orientation: Direction = (1.0, 0.0, 0.0, 0.0),
        shape: object = None,
        density: Positive | None = None,
    ):
        position = as_vector(position, f"position of body '{name}'", (3,))
        orientation = as_vector(orientation, f"orientation of body '{name}'", (4,), (3, 3))
        pose = as_pose(frame(position, orientation), f"orientation of body '{name}'")
        super().__init__(name, (mass, inertia, com), points, point_masses, pose, shape, density)

    @classmethod
    @contract
    def box(cls, name: str, mass: NonNegative, size: AllPositive, **arguments: Any) -> "Body":
        """A body with the shape `Box(size)`: its centre at the origin.

        Args:
            name: a name.
            mass: in kg.
            size: lengths (3,) along x, y and z in m.
            **arguments: further arguments of `Body`.
        """
        size = as_vector(size, f"size of body '{name}'", (3,))
        # Through the shape, not by formulas here: a fit of the sides then moves mass properties and points together.
        return cls(name, mass, shape=Box(size), **arguments)

    @classmethod
    @contract
    def joined(cls, name: str, parts: Sequence[Any], **arguments: Any) -> "Body":
        """Bodies joined rigidly to one, with mass and inertia of all by the parallel-axis theorem.

        Args:
            name: a name.
            parts: bodies, or pairs of a body and its position (3,) or pose in the frame of the whole, made by `frame`. The frame
                of a part becomes a point with the part's name, its points are called "part_point".
            **arguments: further arguments of `Body`, except `shape`.
        """
        return cls(name, shape=compound(parts, 3), **arguments)

    @staticmethod
    def as_inertia(inertia: Any, name: str) -> Float[Array, "3 3"]:
        """The matrix, of principal moments in the axes of the body too, so that both share programs."""
        inertia = as_vector(inertia, f"inertia of body '{name}'", (3,), (3, 3))
        return as_jax(in_numpy(inertia) * np.eye(3)) if inertia.ndim == 1 else inertia

    @staticmethod
    def moments(spread: Float[Array | np.ndarray, "3 3"]) -> Any:
        """The inertia tr(S) 1 − S of second moments S."""
        # In NumPy where numbers are concrete, as all of building: each operation of JAX would compile a program by
        # shape.
        return moments_of_inertia(in_numpy(spread))

    @property
    def orientation(self) -> Float[Array, "4"]:
        """The orientation of the first guess of the pose, a quaternion (w, x, y, z) with w ≥ 0."""
        return matrix_quaternion(rotation_of(self.pose))

    def about_com(self) -> Float[Array, "3 3"]:
        """The second moments ½ tr(I) 1 − I of the inertia I."""
        return as_jax(second_moments(in_numpy(self.inertia)))
