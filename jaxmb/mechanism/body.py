"""Bodies."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .marker import as_pose, as_vector


class AbstractBody(eqx.Module):
    """A rigid body, its points, and where it is about.

    Attributes:
        name: a name, unique in its mechanism; "ground" is taken.
        mass: in kg.
        com: centre of mass (d,) in the body's frame.
        inertia: about the centre of mass, in kg m².
        points: local poses (D, D) of points, by name.
        point_masses: masses (k,) and places (k, d) of further mass points.
        pose: a first guess of its pose (D, D) in the world.
    """

    name: eqx.AbstractVar[str]
    mass: eqx.AbstractVar[Float[Array, ""]]
    com: eqx.AbstractVar[Float[Array, " d"]]
    inertia: eqx.AbstractVar[Float[Array, "*k"]]
    points: eqx.AbstractVar[dict[str, Float[Array, "D D"]]]
    point_masses: eqx.AbstractVar[tuple[Float[Array, " k"], Float[Array, "k d"]]]
    pose: eqx.AbstractVar[Float[Array, "D D"]]

    @abc.abstractmethod
    def about_com(self) -> Float[Array, "d d"]:
        """∫ (x − c)(x − c)ᵀ dm, without the mass points."""

    def spread(self) -> Float[Array, "D D"]:
        """∫ x̃ x̃ᵀ dm in the body's frame, x̃ = (x, 1)."""
        masses, places = self.point_masses
        masses, places = jnp.append(masses, self.mass), jnp.concatenate([places, self.com[None]])
        extended = jnp.concatenate([places, jnp.ones((places.shape[0], 1), places.dtype)], axis=1)
        return ((extended.T * masses) @ extended).at[:-1, :-1].add(self.about_com())


def body_points(points: Mapping[str, Any] | None, name: str, dim: int) -> dict[str, Float[Array, "D D"]]:
    """The named points of a body as poses."""
    found = {key: as_pose(value, f"points['{key}'] of body '{name}'") for key, value in (points or {}).items()}
    for key, value in found.items():
        if value.shape[0] != dim + 1 or "." in key:
            raise ValueError(
                f"Argument `points['{key}'] of body '{name}'` must have {dim} components and no dot in its name."
            )
    return found


def mass_points(masses: Sequence[Any], name: str, dim: int) -> tuple[Float[Array, " k"], Float[Array, "k d"]]:
    """Pairs of mass and place as two arrays."""
    argument = f"point_masses of body '{name}'"
    pairs = [(as_vector(m, argument, ()), as_vector(x, argument, (dim,))) for m, x in masses]
    if not pairs:
        return jnp.zeros(0), jnp.zeros((0, dim))
    return jnp.stack([m for m, _ in pairs]), jnp.stack([x for _, x in pairs])
