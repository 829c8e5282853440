"""Bodies."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..foundations import arrays_of, as_jax, in_numpy, listing, program, stacked
from .marker import as_pose, as_vector
from .shape import AbstractShape, Stroke


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
        shape: what it fills evenly, or None.
        density: the mass over the shape's size, in kg/m, kg/m² or kg/m³; None where the mass was given.
    """

    name: eqx.AbstractVar[str]
    mass: eqx.AbstractVar[Float[Array, ""]]
    com: eqx.AbstractVar[Float[Array, " d"]]
    inertia: eqx.AbstractVar[Float[Array, "*k"]]
    points: eqx.AbstractVar[dict[str, Float[Array, "D D"]]]
    point_masses: eqx.AbstractVar[tuple[Float[Array, " k"], Float[Array, "k d"]]]
    pose: eqx.AbstractVar[Float[Array, "D D"]]
    shape: eqx.AbstractVar[AbstractShape | None]
    density: eqx.AbstractVar[Float[Array, ""] | None]

    @staticmethod
    @abc.abstractmethod
    def moments(spread: Float[Array | np.ndarray, "d d"]) -> Any:
        """The inertia of which ∫ (x − c)(x − c)ᵀ dm is given."""

    @abc.abstractmethod
    def about_com(self) -> Float[Array, "d d"]:
        """∫ (x − c)(x − c)ᵀ dm, without the mass points."""

    def spread(self) -> Float[Array, "D D"]:
        """∫ x̃ x̃ᵀ dm in the body's frame, x̃ = (x, 1)."""
        about, (masses, places) = self.about_com(), self.point_masses
        xp = arrays_of(self, about)
        masses, places = xp.append(masses, self.mass), xp.concatenate([places, xp.asarray(self.com)[None]])
        extended = xp.concatenate([places, xp.ones((places.shape[0], 1), places.dtype)], axis=1)
        return as_jax((extended.T * masses) @ extended + xp.pad(about, (0, 1)))

    @property
    def dimensions(self) -> dict[str, Array]:
        """The numbers that mass, centre of mass, inertia and points of the shape follow from."""
        found = {} if self.shape is None else self.shape.dimensions
        return found if self.density is None else found | {"density": self.density}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """How its shape is drawn."""
        return () if self.shape is None else self.shape.strokes

    def resized(self, **dimensions: Any) -> "AbstractBody":
        """The body with other dimensions; what follows from them is found anew, what was put in its place is lost.

        The mass follows where the body has a density, and stays where the mass was given.
        """
        shape, density = self.shape, dimensions.pop("density", self.density)
        if shape is None:
            raise ValueError(f"Body '{self.name}' must have a shape to have dimensions, but has none.")
        shape = shape.resized(dimensions)
        mass, inertia, centre = _filled(shape, self.mass, density, type(self))
        points = self.points | body_points(None, self.name, self.com.shape[0], shape)
        found = (shape, density, mass, centre, inertia, points)
        places = lambda body: (body.shape, body.density, body.mass, body.com, body.inertia, body.points)
        return eqx.tree_at(places, self, found, is_leaf=lambda x: x is None)


def filling(
    name: str,
    given: tuple[Any, Any, Any],
    shape: Any,
    density: Any,
    kind: type[AbstractBody],
    dim: int,
) -> tuple[Any, Any, Any]:
    """Mass, inertia and centre of mass of a body, as given or else from its shape."""
    mass, inertia, com = given
    if shape is None:
        if mass is None or inertia is None or density is not None:
            raise ValueError(f"Body '{name}' must have `mass` and `inertia`, or a `shape` with `mass` or `density`.")
        return mass, inertia, np.zeros(dim) if com is None else com
    if not isinstance(shape, AbstractShape) or jax.eval_shape(shape.centre).shape != (dim,):
        raise TypeError(f"Argument `shape` of body '{name}' must be a shape with {dim} dimensions, but is {shape!r}.")
    if mass is None and density is None:
        density = shape.own_density
    if (mass is None) == (density is None):
        found = "none" if density is None else "both"
        raise ValueError(f"Body '{name}' must have either `mass` or `density` with its shape, but has {found}.")
    if density is None:
        mass = as_vector(mass, f"mass of body '{name}'", ())
    mass, moments, centre = _filled(shape, mass, density, kind)
    return mass, moments if inertia is None else inertia, centre if com is None else com


def _filled(shape: AbstractShape, mass: Any, density: Any, kind: type[AbstractBody]) -> tuple[Any, Any, Any]:
    """Mass, inertia and centre of mass of a shape of this density, or else this mass."""
    size, spread, centre, _ = _numbers(shape)
    if density is not None:
        density, size = in_numpy(density, size)
        mass = density * size
    mass, spread = in_numpy(mass, spread)
    return as_jax(mass), as_jax(kind.moments(mass * spread)), centre


@program
def _numbers(shape: AbstractShape) -> tuple[Any, Any, Any, tuple[tuple[str, Any], ...]]:
    """Size, spread, centre of mass and points, in their order, which a dictionary does not keep on its way through JAX."""
    return shape.size(), shape.spread(), shape.centre(), tuple(shape.points().items())


def shape_points(shape: AbstractShape | None) -> dict[str, Any]:
    """The named points of a shape, with its centre of mass."""
    if shape is None:
        return {}
    _, _, centre, points = _numbers(shape)
    return dict(points) | {"centre": centre}


def body_points(
    points: Mapping[str, Any] | None, name: str, dim: int, shape: Any = None
) -> dict[str, Float[Array, "D D"]]:
    """The named points of a body as poses: those of its shape, then others."""
    own = shape_points(shape)
    taken = [key for key in points or {} if key in own]
    if taken:
        raise ValueError(f"Argument `points` of body '{name}' must not hold {listing(taken)}, which its shape has.")
    found = {
        key: as_pose(value, f"points['{key}'] of body '{name}'") for key, value in (own | dict(points or {})).items()
    }
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
        return as_jax(np.zeros(0)), as_jax(np.zeros((0, dim)))
    return stacked([m for m, _ in pairs]), stacked([x for _, x in pairs])
