"""Lower pairs and their like from two primitives: b's frame is shifted along some axes of a's frame, then turned."""

import abc
import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..system import in_turn
from .pose import pose_of_shifts, position_of, rotation_of
from .rotation import AbstractRotation

AXES = ("x", "y", "z")


@dataclasses.dataclass(frozen=True)
class AbstractPair(abc.ABC):
    """The poses of b's frame in a's that a joint allows: X(q, data) = [[R, p], [0, 1]], p along free axes, R out of a set of rotations.

    Serves as a joint of the tree by `pose` and as the closure of a loop by `residual`.

    Attributes:
        axes: the free axes of the shift.
        rotation: the set of rotations.
    """

    axes: tuple[int, ...]
    rotation: AbstractRotation

    @property
    @abc.abstractmethod
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates q."""

    @property
    @abc.abstractmethod
    def velocities(self) -> tuple[str, ...]:
        """Names of the velocities v."""

    @property
    @abc.abstractmethod
    def angles(self) -> tuple[bool, ...]:
        """For each coordinate whether it is an angle."""

    @property
    @abc.abstractmethod
    def reversed(self) -> tuple[str, ...]:
        """Names of the coordinates and velocities that change their sign when y does in both frames."""

    @property
    @abc.abstractmethod
    def steady(self) -> bool:
        """Whether the twists of the velocities are the same at all q, seen from a."""

    @property
    def units(self) -> tuple[str, ...]:
        """SI unit of each coordinate: shifts first, then angles, or the components of a quaternion."""
        return (*("m" for _ in self.axes), *("rad" if is_angle else "1" for is_angle in self.rotation.angles))

    @property
    def rate_units(self) -> tuple[str, ...]:
        """SI unit of each velocity."""
        return (*("m/s" for _ in self.axes), *("rad/s" for _ in self.rotation.velocities))

    def angular(self, dim: int, count: int) -> tuple[bool, ...]:
        """Which of `count` rows of `residual` are in rad: those behind the rows of the shift."""
        return tuple(i >= dim - len(self.axes) for i in range(count))

    @abc.abstractmethod
    def pose(self, q: Float[Array, " nq"], data: Float[Array, " k"]) -> Float[Array, "D D"]:
        """X(q)."""

    @abc.abstractmethod
    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""

    @abc.abstractmethod
    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """Q with unit quaternions restored."""

    @abc.abstractmethod
    def residual(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " rows"]:
        """Zero, with full rank, for the poses of the pair."""

    @abc.abstractmethod
    def gap(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " rows"]:
        """`residual` with angles in place of their sines: zero for aligned poses only, and growing up to half a turn."""

    @abc.abstractmethod
    def aligned(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, ""]:
        """Positive for aligned poses; `residual` also vanishes for some with opposite axes."""

    @abc.abstractmethod
    def measure(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " nq"]:
        """Q of X, angles between −π and π."""

    @abc.abstractmethod
    def rates(self, x: Float[Array, "D D"], derivative: Float[Array, "D D"]) -> Float[Array, " nv"]:
        """V of X and Ẋ."""


@dataclasses.dataclass(frozen=True)
class Pair(AbstractPair):
    """Shift and rotation independent of each other."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The free axes, then those of the rotation."""
        return (*(AXES[i] for i in self.axes), *self.rotation.coordinates)

    @property
    def velocities(self) -> tuple[str, ...]:
        """The velocities likewise; those of a shift are called vx, vy, vz beside angular velocities."""
        prefix = "v" if self.rotation.coordinates != self.rotation.velocities else ""
        return (*(prefix + AXES[i] for i in self.axes), *self.rotation.velocities)

    @property
    def angles(self) -> tuple[bool, ...]:
        """Whether coordinates are angles: of the rotation only."""
        return (*(False for _ in self.axes), *self.rotation.angles)

    @property
    def reversed(self) -> tuple[str, ...]:
        """The shift along y, and what does so of the rotation."""
        return ("y", "vy", *self.rotation.reversed)

    @property
    def steady(self) -> bool:
        """For shifts alone, and for a turn about z with none or one along z."""
        turns = len(self.rotation.velocities)
        # A twist about z is the same at all angles, and a shift along z does not move that axis; any other shift
        # moves it.
        return not turns or (turns == 1 and self.rotation.coordinates == ("angle",) and set(self.axes) <= {2})

    def pose(self, q: Float[Array, " nq"], data: Float[Array, " k"]) -> Float[Array, "D D"]:
        """Shift along the free axes and rotation."""
        k = len(self.axes)
        matrix = self.rotation.matrix(q[k:])
        return pose_of_shifts(matrix, [(axis, q[i]) for i, axis in enumerate(self.axes)])

    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """v, and the rotation's."""
        k = len(self.axes)
        return jnp.concatenate([v[:k], self.rotation.rate(q[k:], v[k:])])

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The rotation's."""
        k = len(self.axes)
        return jnp.concatenate([q[:k], self.rotation.normalise(q[k:])])

    def residual(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " rows"]:
        """The shift along the other axes, and the rotation's residual."""
        return jnp.concatenate([self._shift(x), self.rotation.residual(rotation_of(x))])

    def gap(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " rows"]:
        """The shift along the other axes, and the rotation's angles."""
        return jnp.concatenate([self._shift(x), self.rotation.angles_off(rotation_of(x))])

    def _shift(self, x: Float[Array, "D D"]) -> Float[Array, " rows"]:
        shift = position_of(x)
        return shift[np.array([i for i in range(shift.shape[0]) if i not in self.axes], int)]

    def aligned(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, ""]:
        """The rotation's."""
        return self.rotation.aligned(rotation_of(x))

    def measure(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " nq"]:
        """The shift along the free axes, and the rotation's coordinates."""
        return jnp.concatenate([position_of(x)[np.array(self.axes, int)], self.rotation.measure(rotation_of(x))])

    def rates(self, x: Float[Array, "D D"], derivative: Float[Array, "D D"]) -> Float[Array, " nv"]:
        """Derivatives of the shift, and the rotation's velocities."""
        turning = self.rotation.rates(rotation_of(x), rotation_of(derivative))
        return jnp.concatenate([position_of(derivative)[np.array(self.axes, int)], turning])


@dataclasses.dataclass(frozen=True)
class Helix(AbstractPair):
    """A shift along z that goes with the angle about it, data[0] m for each turn."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The angle."""
        return ("angle",)

    @property
    def velocities(self) -> tuple[str, ...]:
        """The angular velocity."""
        return ("angle",)

    @property
    def angles(self) -> tuple[bool, ...]:
        """No angle without its full turns: the shift tells these."""
        return (False,)

    @property
    def reversed(self) -> tuple[str, ...]:
        """The angle."""
        return self.rotation.reversed

    @property
    def steady(self) -> bool:
        """About one axis, along which it shifts."""
        return True

    def angular(self, dim: int, count: int) -> tuple[bool, ...]:
        """Those of the axis, between the shift across it and the lag along it, which is in m."""
        return tuple(i in (2, 3) for i in range(count))

    def pose(self, q: Float[Array, " nq"], data: Float[Array, " k"]) -> Float[Array, "D D"]:
        """Turn and shift."""
        return pose_of_shifts(self.rotation.matrix(q), [(2, data[0] * q[0] / (2 * jnp.pi))])

    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """q̇ = v."""
        return v

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The coordinates as they are."""
        return q

    def residual(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " rows"]:
        """Two of the shift, two of the axis, and h/2π sin(2π z/h − θ), which knows no turns."""
        lead, matrix, shift = data[0] / (2 * jnp.pi), rotation_of(x), position_of(x)
        expected = shift[2] / lead
        # sin(expected − θ) with cos θ, sin θ read from R: no arctan2, whose jump at ±π would be one of the residual.
        lag = lead * (jnp.sin(expected) * matrix[0, 0] - jnp.cos(expected) * matrix[1, 0])
        return jnp.concatenate([shift[:2], self.rotation.residual(matrix), lag[None]])

    def gap(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " rows"]:
        """The lag itself, between −h/2 and h/2."""
        lead, off = data[0] / (2 * jnp.pi), self.rotation.angles_off(rotation_of(x))
        return jnp.concatenate([position_of(x)[:2], off, lead * self._lag(x, data)])

    def aligned(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, ""]:
        """The rotation's, and the cosine of the lag."""
        expected, matrix = 2 * jnp.pi * x[2, -1] / data[0], rotation_of(x)
        in_phase = jnp.cos(expected) * matrix[0, 0] + jnp.sin(expected) * matrix[1, 0]
        return jnp.minimum(self.rotation.aligned(matrix), in_phase)

    def measure(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, " nq"]:
        """The angle, in the turn that the shift tells: an effort along it is a torque about the axis, as by `rates`."""
        return x[2:3, -1] * (2 * jnp.pi / data[0]) - self._lag(x, data)

    def _lag(self, x: Float[Array, "D D"], data: Float[Array, " k"]) -> Float[Array, "1"]:
        """By how much the shift's angle is beyond the rotation's, to the nearest turn: a screw is closed again after each pitch."""
        return in_turn(x[2:3, -1] * (2 * jnp.pi / data[0]) - self.rotation.measure(rotation_of(x)))

    def rates(self, x: Float[Array, "D D"], derivative: Float[Array, "D D"]) -> Float[Array, " nv"]:
        """The rotation's."""
        return self.rotation.rates(rotation_of(x), rotation_of(derivative))
