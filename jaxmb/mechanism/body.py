"""Bodies."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..foundations import (
    Check,
    Finite,
    TextInNotebooks,
    arrays_of,
    as_floats,
    as_jax,
    floats_or_none,
    in_numpy,
    listing,
    program,
    stacked,
)
from .marker import as_pose, as_vector
from .pose import position_of
from .shape import AbstractShape, Stroke

# The smallest eigenvalue of ∫ (x − c)(x − c)ᵀ dm may be negative by this part of the largest: flat bodies have zero there, and
# their inertias come from files and CAD with nine or ten digits. The importers of `models` admit the same.
TRIANGLE_TOLERANCE = 1e-9


class AbstractBody(TextInNotebooks, eqx.Module):
    """A rigid body, its points, and a guess of its pose.

    Attributes:
        dim: 2 or 3.
        name: a name, unique in its mechanism; "ground" is reserved.
        mass: in kg.
        inertia: about the centre of mass, in kg m².
        com: centre of mass (d,) in the body's frame.
        points: local poses (D, D) of points, by name.
        point_masses: masses (k,) and positions (k, d) of further mass points.
        pose: a first guess of its pose (D, D) in the world.
        shape: the region that it fills with uniform density, or None.
        density: the mass over the shape's size, in kg/m, kg/m² or kg/m³; None where the mass is an argument.
    """

    dim: ClassVar[int]
    name: str = eqx.field(static=True)
    mass: Float[Array, ""]
    inertia: Float[Array, "*k"]
    com: Float[Array, " d"]
    points: dict[str, Float[Array, "D D"]]
    point_masses: tuple[Float[Array, " k"], Float[Array, "k d"]]
    pose: Float[Array, "D D"]
    shape: AbstractShape | None
    density: Float[Array, ""] | None

    def __init__(
        self,
        name: str,
        mass_properties: tuple[Any, Any, Any],
        points: Mapping[str, Any] | None,
        point_masses: Sequence[tuple[Any, Any]],
        pose: Float[Array, "D D"],
        shape: object,
        density: float | None,
    ):
        self.name, self.shape, self.pose = name, as_shape(shape, name, self.dim), pose
        self.density = floats_or_none(density)
        mass, inertia, com = _mass_properties(name, mass_properties, self.shape, self.density, type(self))
        self.mass, self.inertia = as_floats(mass), self.as_inertia(inertia, name)
        self.com = as_vector(com, f"com of body '{name}'", (self.dim,))
        self.points = body_points(points, name, self.dim, self.shape)
        self.point_masses = mass_points(point_masses, name, self.dim)

    @staticmethod
    @abc.abstractmethod
    def as_inertia(inertia: Any, name: str) -> Float[Array, "*k"]:
        """An inertia as it is held, from what a user gives."""

    @staticmethod
    @abc.abstractmethod
    def moments(spread: Float[Array | np.ndarray, "d d"]) -> Any:
        """The inertia about the centre of mass that belongs to ∫ (x − c)(x − c)ᵀ dm."""

    @abc.abstractmethod
    def about_com(self) -> Float[Array, "d d"]:
        """∫ (x − c)(x − c)ᵀ dm, without the mass points."""

    @property
    def position(self) -> Float[Array, " d"]:
        """The position of the first guess of the pose."""
        return position_of(self.pose)

    def spread(self) -> Float[Array, "D D"]:
        """∫ x̃ x̃ᵀ dm in the body's frame, x̃ = (x, 1)."""
        # The pseudo-inertia matrix (Wensing, Kim and Slotine 2018): mass, first and second moments in one
        # matrix J, which goes to another frame as X J Xᵀ. With it parallel-axis rule, joined bodies and fits of
        # inertias need no formulas of their own.
        about, (masses, positions) = self.about_com(), self.point_masses
        # In NumPy where all numbers are concrete: each operation of JAX on a new shape compiles a program, and a
        # model of a file has hundreds of bodies.
        xp = arrays_of(self, about)
        masses, positions = xp.append(masses, self.mass), xp.concatenate([positions, xp.asarray(self.com)[None]])
        extended = xp.concatenate([positions, xp.ones((positions.shape[0], 1), positions.dtype)], axis=1)
        return as_jax((extended.T * masses) @ extended + xp.pad(about, (0, 1)))

    @property
    def dimensions(self) -> dict[str, Array]:
        """The dimensions of the shape, and the density: mass, centre of mass, inertia and points follow from them."""
        numbers = {} if self.shape is None else self.shape.dimensions
        return numbers if self.density is None else numbers | {"density": self.density}

    @property
    def strokes(self) -> tuple[Stroke, ...]:
        """The strokes that draw its shape."""
        return () if self.shape is None else self.shape.strokes

    def resized(self, **dimensions: Finite) -> "AbstractBody":
        """The body with other dimensions, and with mass properties and points that follow from them; values of these that were given are dropped.

        The mass follows where the body has a density, and stays where the mass was given.
        """
        shape, density = self.shape, dimensions.pop("density", self.density)
        if shape is None:
            raise ValueError(f"Body '{self.name}' must have a shape to have dimensions, but has none.")
        shape = shape.resized(dimensions)
        mass, inertia, centre = _shape_properties(shape, self.mass, density, type(self))
        points = self.points | body_points(None, self.name, self.com.shape[0], shape)
        values = (shape, density, mass, centre, inertia, points)
        fields = lambda body: (body.shape, body.density, body.mass, body.com, body.inertia, body.points)
        # `density` may be None, which a pytree holds as no leaf at all: `tree_at` finds it only when None counts as
        # one.
        return eqx.tree_at(fields, self, values, is_leaf=lambda x: x is None)


def second_moments(inertia: Float[Array | np.ndarray, "3 3"]) -> Any:
    """Σ = ½ tr(I) 1 − I, ∫ x xᵀ dm of an inertia I."""
    return 0.5 * inertia.trace() * np.eye(3) - inertia


def moments_of_inertia(second: Float[Array | np.ndarray, "3 3"]) -> Any:
    """I = tr(Σ) 1 − Σ of second moments Σ."""
    return second.trace() * np.eye(3) - second


def inertia_checks(body: AbstractBody) -> list[Check]:
    """What the mass and the inertia of a body must obey."""
    # Without mass points, whose own part is a sum of squares and cannot break the inequality, but may hide a body
    # that does.
    about = in_numpy(body.about_com())
    xp = arrays_of(about, body.mass, body.point_masses)
    least = xp.min(xp.append(body.point_masses[0], body.mass))
    moments = xp.linalg.eigvalsh(about)
    size = xp.max(xp.abs(moments))
    relative = lambda x: as_jax(xp.max(x) / xp.where(size > 0, size, 1))
    return [
        Check(as_jax(-least), 0.0, f"Body '{body.name}' must not have a negative mass."),
        Check(
            relative(xp.abs(about - about.T)),
            float(np.finfo(about.dtype).eps ** 0.5),
            f"Body '{body.name}' must have an inertia that is a symmetric matrix.",
        ),
        Check(
            relative(-moments),
            TRIANGLE_TOLERANCE,
            f"Body '{body.name}' must have an inertia whose moments obey the triangle inequality and are not negative.",
        ),
    ]


def as_shape(shape: object, name: str, dim: int) -> AbstractShape | None:
    """The shape of a body, or none.

    Raises:
        TypeError: for anything else, or a shape of another dimension.
    """
    if shape is None:
        return None
    if not isinstance(shape, AbstractShape) or jax.eval_shape(shape.centre).shape != (dim,):
        raise TypeError(f"Argument `shape` of body '{name}' must be a shape with {dim} dimensions, but is {shape!r}.")
    return shape


def _mass_properties(
    name: str,
    arguments: tuple[Any, Any, Any],
    shape: AbstractShape | None,
    density: Float[Array, ""] | float | None,
    kind: type[AbstractBody],
) -> tuple[Any, Any, Any]:
    """Mass, inertia and centre of mass of a body, each from the arguments or else from its shape."""
    mass, inertia, com = arguments
    if shape is None:
        if mass is None or inertia is None or density is not None:
            raise ValueError(f"Body '{name}' must have `mass` and `inertia`, or a `shape` with `mass` or `density`.")
        return mass, inertia, np.zeros(kind.dim) if com is None else com
    if mass is None and density is None:
        density = shape.own_density
    if (mass is None) == (density is None):
        amount = "none" if density is None else "both"
        raise ValueError(f"Body '{name}' must have either `mass` or `density` with its shape, but has {amount}.")
    if density is None:
        mass = as_vector(mass, f"mass of body '{name}'", ())
    mass, moments, centre = _shape_properties(shape, mass, density, kind)
    return mass, moments if inertia is None else inertia, centre if com is None else com


def _shape_properties(
    shape: AbstractShape,
    mass: Float[Array, ""] | None,
    density: Float[Array, ""] | float | None,
    kind: type[AbstractBody],
) -> tuple[Any, Any, Any]:
    """Mass, inertia and centre of mass of a shape with a density, or else with a mass."""
    size, spread, centre, _ = _shape_numbers(shape)
    if density is not None:
        density, size = in_numpy(density, size)
        mass = density * size
    mass, spread = in_numpy(mass, spread)
    return as_jax(mass), as_jax(kind.moments(mass * spread)), centre


@program
def _shape_numbers(shape: AbstractShape) -> tuple[Any, Any, Any, tuple[tuple[str, Any], ...]]:
    """Size, spread, centre of mass and points, in their order, which a dictionary does not keep on its way through JAX."""
    return shape.size(), shape.spread(), shape.centre(), tuple(shape.points().items())


def shape_points(shape: AbstractShape | None) -> dict[str, Any]:
    """The named points of a shape, with its centre of mass."""
    if shape is None:
        return {}
    _, _, centre, points = _shape_numbers(shape)
    return dict(points) | {"centre": centre}


def body_points(
    points: Mapping[str, Any] | None, name: str, dim: int, shape: AbstractShape | None = None
) -> dict[str, Float[Array, "D D"]]:
    """The named points of a body as poses: those of its shape, then others."""
    # Points of the shape first: `Body.rod` has "a" and "b" before those of the user, and a user's point must not
    # shadow them silently.
    own = shape_points(shape)
    clashes = [key for key in points or {} if key in own]
    if clashes:
        raise ValueError(f"Argument `points` of body '{name}' must not hold {listing(clashes)}, which its shape has.")
    poses = {
        key: as_pose(value, f"points['{key}'] of body '{name}'") for key, value in (own | dict(points or {})).items()
    }
    for key, value in poses.items():
        if value.shape[0] != dim + 1 or "." in key:
            raise ValueError(
                f"Argument `points['{key}'] of body '{name}'` must have {dim} components and no dot in its name."
            )
    return poses


def mass_points(masses: Sequence[Any], name: str, dim: int) -> tuple[Float[Array, " k"], Float[Array, "k d"]]:
    """Pairs of mass and position as two arrays."""
    argument = f"point_masses of body '{name}'"
    pairs = [(as_vector(m, argument, ()), as_vector(x, argument, (dim,))) for m, x in masses]
    if not pairs:
        return as_jax(np.zeros(0)), as_jax(np.zeros((0, dim)))
    return stacked([m for m, _ in pairs]), stacked([x for _, x in pairs])
