"""How a measured quantity is read off a motion."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import listing
from ..mechanism import linkage_of
from ..output import coordinate, position, rate
from ..simulation import Solution
from ..system import System


class Entry(eqx.Module):
    """A coordinate, or a velocity, of the system."""

    field: str = eqx.field(static=True)
    index: int = eqx.field(static=True)

    def __call__(self, system: System, motion: Solution) -> Float[Array, " T"]:
        """It over time."""
        return getattr(motion, self.field)[..., self.index]


class JointCoordinate(eqx.Module):
    """A joint coordinate of a mechanism, or its rate."""

    name: str = eqx.field(static=True)
    rate: bool = eqx.field(static=True)

    def __call__(self, system: System, motion: Solution) -> Float[Array, " T"]:
        """It over time."""
        return (rate if self.rate else coordinate)(system, motion, self.name)


class Position(eqx.Module):
    """The position of a place of a mechanism."""

    place: str = eqx.field(static=True)

    def __call__(self, system: System, motion: Solution) -> Float[Array, "T d"]:
        """It over time."""
        return position(system, motion, self.place)


def reading(of: Any, system: System, argument: str) -> Any:
    """A function (system, solution) → (T,) or (T, k) for what a signal names.

    Raises:
        ValueError: naming what there is, for a name that is not known.
    """
    if not isinstance(of, str):
        return of
    plain = of.removesuffix("'")
    if of in system.coordinates:
        return Entry("q", system.coordinates.index(of))
    if of in system.velocities:
        return Entry("v", system.velocities.index(of))
    if plain != of and plain in system.velocities:
        return Entry("v", system.velocities.index(plain))
    known = [*system.coordinates, *(f"{name}'" for name in system.velocities)]
    if system.joints is None:
        raise ValueError(f"Argument `of` of {argument} must be one of {listing(known)}, or a function, but is '{of}'.")
    if plain.partition(".")[0] in system.joints.names:
        system.joints.coordinate(plain)  # an error names its coordinates
        return JointCoordinate(plain, plain != of)
    bodies = linkage_of(system).connectivity.bodies
    if of.partition(".")[0] not in bodies:
        known = [*known, *system.joints.names, *bodies]
        raise ValueError(f"Argument `of` of {argument} must be one of {listing(known)}, or a function, but is '{of}'.")
    return Position(of)
