"""Motions that are prescribed in time."""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import (
    AbstractExplicit,
    FunctionOfTime,
    TextInNotebooks,
    Vector,
    as_floats,
    as_function,
    contract,
)
from ..system import in_turn
from .marker import Marker, MarkerLike, marker
from .motion import Motion
from .pose import inverse, rotation_of
from .structure import AbstractStructure


class AbstractDriver(TextInNotebooks, AbstractExplicit):
    """One row that follows a function of time.

    Attributes:
        name: its name.
        fn: `fn(t, params)` returns the prescribed value.
        breaks: times (k,) at which a derivative of `fn` jumps; the integrator steps to them and starts anew.
        holonomic: whether a position is prescribed, not a velocity.
    """

    name: str = eqx.field(static=True)
    fn: FunctionOfTime
    breaks: Float[Array, " k"]
    holonomic: ClassVar[bool]

    @abc.abstractmethod
    def residual(self, motion: Motion) -> Float[Array, ""]:
        """φ or ψ."""

    def effort_unit(self, structure: AbstractStructure) -> str | None:
        """Of its multiplier: N or N m; None where that is not known."""
        return None


def _breaks(times: Sequence[float]) -> Float[Array, " k"]:
    return jnp.ravel(as_floats(times))


class AbstractJointDriver(AbstractDriver):
    """A driver of a joint."""

    joint: str = eqx.field(static=True)

    @contract
    def __init__(self, name: str, joint: str, fn: FunctionOfTime, breaks: Vector = ()):
        self.name, self.joint = name, joint
        self.fn, self.breaks = as_function(fn, f"fn of driver '{name}'"), _breaks(breaks)

    def effort_unit(self, structure: AbstractStructure) -> str:
        """N along a shift, N m about an angle."""
        joint, index = structure.index(self.joint, "coordinates" if self.holonomic else "velocities")
        # Shifts are the first of both.
        return "N" if index < len(structure.slot(joint).pair.axes) else "N m"


class AbstractPointDriver(AbstractDriver):
    """A driver between two markers."""

    a: Marker
    b: Marker

    @contract
    def __init__(self, name: str, a: MarkerLike, b: MarkerLike, fn: FunctionOfTime, breaks: Vector = ()):
        self.name, self.a, self.b = name, marker(a, f"a of driver '{name}'"), marker(b, f"b of driver '{name}'")
        self.fn, self.breaks = as_function(fn, f"fn of driver '{name}'"), _breaks(breaks)


class Driver(AbstractJointDriver, init=False):
    """A joint coordinate as a function of time, s = f(t).

    Angles of joints outside the tree are compared up to full turns.

    Args:
        name: its name.
        joint: name of the joint, or "joint.coordinate" where it has several.
        fn: `fn(t, params)` returns the coordinate in m or rad.
        breaks: times at which a derivative of `fn` jumps.
    """

    holonomic: ClassVar[bool] = True

    def residual(self, motion: Motion) -> Float[Array, ""]:
        """φ = s − f(t)."""
        joint, index = motion.linkage.index(self.joint, "coordinates")
        slot = motion.slot(joint)
        gap = motion.relative(joint)[index] - self.fn(motion.t, motion.params)
        # Coordinates of the tree are continuous and may be driven by many turns. What is measured at a closed loop
        # lies between −π and π, so that the residual is only meant up to turns.
        return in_turn(gap) if slot.pair.angles[index] and not slot.in_tree else gap


class DrivenDistance(AbstractPointDriver, init=False):
    """The distance of two points as a function of time, (|p|² − f²)/(2f) = 0.

    Args:
        name: its name.
        a: a marker.
        b: another marker.
        fn: `fn(t, params)` returns the distance in m, positive.
        breaks: times at which a derivative of `fn` jumps.
    """

    holonomic: ClassVar[bool] = True

    def residual(self, motion: Motion) -> Float[Array, ""]:
        """(|p|² − f²)/(2f)."""
        gap, value = motion.position(self.b) - motion.position(self.a), self.fn(motion.t, motion.params)
        # Of a negative one the square is a distance too, and the multiplier would have the wrong sign.
        value = jnp.where(value > 0, value, jnp.nan)
        # Scaled like the row of `Distance`: its multiplier is the force in N.
        return (jnp.sum(gap**2) - value**2) / (2 * value)

    def effort_unit(self, structure: AbstractStructure) -> str:
        """The tension is a force."""
        return "N"


class DrivenAngle(AbstractPointDriver, init=False):
    """In the plane: the angle of one body seen from another as a function of time, up to full turns.

    Args:
        name: its name.
        a: a marker on the body that counts as fixed.
        b: a marker on the other.
        fn: `fn(t, params)` returns the angle in rad.
        breaks: times at which a derivative of `fn` jumps.
    """

    holonomic: ClassVar[bool] = True

    def residual(self, motion: Motion) -> Float[Array, ""]:
        """θ − f(t), between −π and π."""
        turned = rotation_of(inverse(motion.pose(self.a)) @ motion.pose(self.b))
        return in_turn(jnp.arctan2(turned[1, 0], turned[0, 0]) - self.fn(motion.t, motion.params))

    def effort_unit(self, structure: AbstractStructure) -> str:
        """A torque."""
        return "N m"


class DrivenSpeed(AbstractJointDriver, init=False):
    """The velocity of a joint as a function of time, ṡ = f(t); its position is not prescribed.

    Args:
        name: its name.
        joint: name of the joint, or "joint.velocity" where it has several.
        fn: `fn(t, params)` returns the velocity in m/s or rad/s.
        breaks: times at which `fn` or a derivative jumps.
    """

    holonomic: ClassVar[bool] = False

    def residual(self, motion: Motion) -> Float[Array, ""]:
        """ṡ − f(t)."""
        return motion.rate(self.joint) - self.fn(motion.t, motion.params)
