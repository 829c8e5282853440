"""How a measured quantity is read off a motion."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import listing
from ..mechanism import linkage_of
from ..output import Encoder, coordinate, position, rate
from ..simulation import Solution
from ..system import State, System

# The samples of a quantity over a motion, (T,) or (T, k); the built-in ones also take a state.
Reading = Callable[[System, Solution], Array]


class CoordinateSignal(eqx.Module):
    """A coordinate, or a velocity, of the system."""

    field: str = eqx.field(static=True)
    index: int = eqx.field(static=True)

    def __call__(self, system: System, motion: Solution | State) -> Float[Array, "..."]:
        """It, over time along a solution."""
        return getattr(motion, self.field)[..., self.index]


class JointSignal(eqx.Module):
    """A joint coordinate of a mechanism, or its rate."""

    name: str = eqx.field(static=True)
    rate: bool = eqx.field(static=True)

    def __call__(self, system: System, motion: Solution | State) -> Float[Array, "..."]:
        """It, over time along a solution."""
        return (rate if self.rate else coordinate)(system, motion, self.name)


class PositionSignal(eqx.Module):
    """The position of a point of a mechanism."""

    point: str = eqx.field(static=True)

    def __call__(self, system: System, motion: Solution | State) -> Float[Array, "... d"]:
        """It, over time along a solution."""
        return position(system, motion, self.point)


def reading(of: str | Reading, system: System, argument: str) -> Reading:
    """A function (system, solution) → (T,) or (T, k) for what a signal names.

    Raises:
        ValueError: naming what there is, for a name that is not known.
    """
    if not isinstance(of, str):
        return of
    base = of.removesuffix("'")
    if of in system.coordinates:
        return CoordinateSignal("q", system.coordinates.index(of))
    if of in system.velocities:
        return CoordinateSignal("v", system.velocities.index(of))
    if base != of and base in system.velocities:
        return CoordinateSignal("v", system.velocities.index(base))
    names = [*system.coordinates, *(f"{name}'" for name in system.velocities)]
    if system.joints is None:
        raise ValueError(f"Argument `of` of {argument} must be one of {listing(names)}, or a function, but is '{of}'.")
    if base.partition(".")[0] in system.joints.names:
        system.joints.coordinate(base)  # an error names its coordinates
        return JointSignal(base, base != of)
    bodies = linkage_of(system).connectivity.bodies
    if of.partition(".")[0] not in bodies:
        names = dict.fromkeys((*names, *system.joints.names, *bodies))
        raise ValueError(f"Argument `of` of {argument} must be one of {listing(names)}, or a function, but is '{of}'.")
    return PositionSignal(of)


def wraps(read: Reading, system: System) -> bool:
    """Whether what is read is an angle whose turns are not counted."""
    if isinstance(read, Encoder):
        read = reading(read.joint, system, f"encoder '{read.name}'")
    if not isinstance(read, JointSignal) or read.rate or system.joints is None:
        return False
    return system.joints.wraps(read.name)
