"""Bodies in space."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..mechanism import AbstractBody, as_vector, body_points, mass_points, number, pose, quaternion_matrix


def frame(position: Any = (0.0, 0.0, 0.0), orientation: Any = (1.0, 0.0, 0.0, 0.0)) -> Float[Array, "4 4"]:
    """The pose [[R, p], [0, 1]] with a position in m and an orientation.

    Args:
        position: (3,) in m.
        orientation: quaternion (w, x, y, z), brought to unit length, or rotation matrix (3, 3).
    """
    turned = as_vector(orientation, "orientation", (4,), (3, 3))
    return pose(turned if turned.ndim == 2 else quaternion_matrix(turned), as_vector(position, "position", (3,)))


class Body(AbstractBody):
    """A rigid body in space.

    Args:
        name: a name, unique in its mechanism.
        mass: in kg.
        inertia: about the centre of mass in the axes of the body, in kg m²: the matrix (3, 3), or its diagonal (3,).
        com: centre of mass (3,) in the body's frame, in m.
        points: places (3,), or poses made by `frame`, in the body's frame, by name; referred to as "body.point".
        point_masses: pairs of mass and place (3,) that come on top.
        position, orientation: a first guess of the pose, for `assemble`, as of `frame`.
    """

    name: str = eqx.field(static=True)
    mass: Float[Array, ""]
    inertia: Float[Array, "3 3"]
    com: Float[Array, "3"]
    points: dict[str, Float[Array, "4 4"]]
    point_masses: tuple[Float[Array, " k"], Float[Array, "k 3"]]
    pose: Float[Array, "4 4"]

    def __init__(
        self,
        name: str,
        mass: Any,
        inertia: Any,
        com: Any = (0.0, 0.0, 0.0),
        points: Mapping[str, Any] | None = None,
        point_masses: Sequence[tuple[Any, Any]] = (),
        position: Any = (0.0, 0.0, 0.0),
        orientation: Any = (1.0, 0.0, 0.0, 0.0),
    ):
        self.name = name
        self.mass = number(mass, f"mass of body '{name}'")
        inertia = as_vector(inertia, f"inertia of body '{name}'", (3,), (3, 3))
        self.inertia = jnp.diag(inertia) if inertia.ndim == 1 else inertia
        self.com = as_vector(com, f"com of body '{name}'", (3,))
        self.points = body_points(points, name, 3)
        self.point_masses = mass_points(point_masses, name, 3)
        self.pose = frame(position, orientation)

    @classmethod
    def box(cls, name: str, mass: Any, size: Any, **arguments: Any) -> "Body":
        """A uniform box with its centre at the origin.

        Args:
            name: a name.
            mass: in kg.
            size: lengths (3,) along x, y and z in m.
            **arguments: further arguments of `Body`, except `inertia` and `com`.
        """
        squared = as_vector(size, f"size of body '{name}'", (3,)) ** 2
        mass = number(mass, f"mass of body '{name}'")
        return cls(name, mass, mass / 12 * (jnp.sum(squared) - squared), **arguments)

    def about_com(self) -> Float[Array, "3 3"]:
        """½ tr(I) 1 − I."""
        return 0.5 * jnp.trace(self.inertia) * jnp.eye(3) - self.inertia
