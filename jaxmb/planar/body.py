"""Bodies in the plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..mechanism import AbstractBody, as_vector, body_points, mass_points, number, pose


def frame(position: Any = (0.0, 0.0), angle: Any = 0.0) -> Float[Array, "3 3"]:
    """The pose [[R, p], [0, 1]] with a position in m and an angle in rad."""
    angle = number(angle, "angle")
    c, s = jnp.cos(angle), jnp.sin(angle)
    return pose(jnp.array([[c, -s], [s, c]]), as_vector(position, "position", (2,)))


class Body(AbstractBody):
    """A rigid body in the plane.

    Args:
        name: a name, unique in its mechanism.
        mass: in kg.
        inertia: moment of inertia about the centre of mass, in kg m².
        com: centre of mass (2,) in the body's frame, in m.
        points: places (2,), or poses made by `frame`, in the body's frame, by name; referred to as "body.point".
        point_masses: pairs of mass and place (2,) that come on top.
        position, angle: a first guess of the pose, for `assemble`.
    """

    name: str = eqx.field(static=True)
    mass: Float[Array, ""]
    inertia: Float[Array, ""]
    com: Float[Array, "2"]
    points: dict[str, Float[Array, "3 3"]]
    point_masses: tuple[Float[Array, " k"], Float[Array, "k 2"]]
    pose: Float[Array, "3 3"]

    def __init__(
        self,
        name: str,
        mass: Any,
        inertia: Any,
        com: Any = (0.0, 0.0),
        points: Mapping[str, Any] | None = None,
        point_masses: Sequence[tuple[Any, Any]] = (),
        position: Any = (0.0, 0.0),
        angle: Any = 0.0,
    ):
        self.name = name
        self.mass = number(mass, f"mass of body '{name}'")
        self.inertia = number(inertia, f"inertia of body '{name}'")
        self.com = as_vector(com, f"com of body '{name}'", (2,))
        self.points = body_points(points, name, 2)
        self.point_masses = mass_points(point_masses, name, 2)
        self.pose = frame(position, angle)

    @classmethod
    def rod(cls, name: str, mass: Any, length: Any, **arguments: Any) -> "Body":
        """A slender uniform rod along x from its point "a", at the origin, to its point "b".

        Args:
            name: a name.
            mass: in kg.
            length: in m.
            **arguments: further arguments of `Body`, except `inertia` and `com`; points come on top.
        """
        mass, length = number(mass, f"mass of body '{name}'"), number(length, f"length of body '{name}'")
        end = lambda s: jnp.stack([s * length, jnp.zeros(())])
        points = {"a": end(0.0), "b": end(1.0)} | dict(arguments.pop("points", {}))
        return cls(name, mass, mass * length**2 / 12, end(0.5), points, **arguments)

    def about_com(self) -> Float[Array, "2 2"]:
        """Spread evenly over both directions: only its trace, the moment of inertia, counts in the plane."""
        return 0.5 * self.inertia * jnp.eye(2)
