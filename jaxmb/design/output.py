"""What designers ask of a mechanism, as functions of its states over a cycle."""

import abc
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ..foundations import Finite, as_floats, check_fields, contract, function_of, listing, positive_or_one, square_root
from ..mechanism import Marker, as_vector, connection_slot, linkage_of, marker
from ..output import angle_between, coordinate, position, velocity
from ..system import State, System, in_turn
from .cycle import INPUT, state_beside
from .dynamics import joint_forces, multipliers

# Steps to the point of a path that is nearest to a wanted one; on a path that is bent by half the distance to it each halves the error,
# from a quarter of the distance of neighbours.
NEAREST = 10
# Rounds in which the vertex of a parabola through three values is sought, each with a `FINER` part of their distance.
VERTICES, FINER = 3, 16.0
# So many maxima are looked at in full.
CANDIDATES = 3


class AbstractOutput(eqx.Module):
    """A function of a system and its states over a cycle, (n,) of them."""

    def __check_init__(self) -> None:
        check_fields(self)

    def check(self, system: System) -> None:
        """Raises a ValueError for a name that the system does not have, before anything is compiled."""

    @abc.abstractmethod
    def __call__(self, system: System, states: State) -> Float[Array, "..."]:
        """The values."""


def _check_points(system: System, *points: Marker) -> None:
    for point in points:
        linkage_of(system).locate(point, system.params)


class Path(AbstractOutput):
    """The positions (n, d) of a point, in m: with a target a path with given timing.

    Args:
        point: "body", "body.point" or (body, position).
    """

    point: Marker

    @contract
    def __init__(self, point: object):
        self.point = marker(point, "point")

    def check(self, system: System) -> None:
        """Refuses a point that there is not."""
        _check_points(system, self.point)

    def __call__(self, system: System, states: State) -> Float[Array, "n d"]:
        """The positions."""
        return position(system, states, self.point)


class PathDeviation(AbstractOutput):
    """The vectors (k, d) from wanted points to the nearest points on the path of a point, in m: a path without timing.

    The nearest pose lies between those of the cycle. Its derivative is that of the distance across the path, since along it the pose
    is free to move.

    Args:
        point: the point that moves, as in `Path`.
        through: the wanted points (k, d), in m.
    """

    point: Marker
    through: Float[Array, "k d"]

    @contract
    def __init__(self, point: object, through: Finite):
        self.point = marker(point, "point")
        self.through = as_floats(through)
        if self.through.ndim != 2 or self.through.shape[1] not in (2, 3):
            raise ValueError(
                f"Argument `through` must have shape (k, 2) or (k, 3), but has shape {self.through.shape}."
            )

    def check(self, system: System) -> None:
        """Refuses a point that there is not, and wanted points of another space."""
        _check_points(system, self.point)
        if self.through.shape[1] != linkage_of(system).dim:
            raise ValueError(
                f"Argument `through` must have shape (k, {linkage_of(system).dim}), but has shape {self.through.shape}."
            )

    def __call__(self, system: System, states: State) -> Float[Array, "k d"]:
        """The ways."""
        points = lax.stop_gradient(position(system, states, self.point))
        return jax.vmap(lambda target: self._gap(system, states, points, target))(self.through)

    def _gap(self, system: System, states: State, points: Array, target: Array) -> Float[Array, " d"]:
        index = jnp.argmin(jnp.sum((points - target) ** 2, axis=1))
        fixed, fixed_states = lax.stop_gradient((system, states))
        lowest, highest = _room(fixed_states.t, index)

        def closer(_: Array, t: Array) -> Array:
            state = state_beside(fixed, fixed_states, index, t)
            speed = velocity(fixed, state, self.point)
            way = (target - position(fixed, state, self.point)) @ speed / jnp.sum(speed**2)
            return jnp.clip(t + way, lowest, highest)

        t = lax.fori_loop(0, NEAREST, closer, fixed_states.t[index])
        state = state_beside(system, states, index, t)
        gap, direction = (
            position(system, state, self.point) - target,
            lax.stop_gradient(velocity(system, state, self.point)),
        )
        # At the ends of the cycle the pose cannot follow.
        follows = (t > lowest) & (t < highest)
        slip = direction * ((gap - lax.stop_gradient(gap)) @ direction) / jnp.sum(direction**2)
        return gap - jnp.where(follows, slip, 0)


class AbstractCoordinateOutput(AbstractOutput):
    """A function of a joint coordinate."""

    name: str = eqx.field(static=True)

    def check(self, system: System) -> None:
        """Refuses a joint coordinate that there is not."""
        linkage_of(system).wraps(self.name)


class Coordinate(AbstractCoordinateOutput):
    """A joint coordinate (n,), in m or rad, angles without jumps from pose to pose.

    Args:
        name: "joint", or "joint.coordinate" where it has several.
    """

    def __call__(self, system: System, states: State) -> Float[Array, " n"]:
        """The values."""
        values = coordinate(system, states, self.name)
        return jnp.unwrap(values) if linkage_of(system).wraps(self.name) else values


class Stroke(AbstractCoordinateOutput):
    """How far a joint coordinate goes over the cycle, in m or rad, from its least to its largest value, between poses too.

    Args:
        name: as in `Coordinate`.
    """

    def __call__(self, system: System, states: State) -> Float[Array, ""]:
        """The way."""
        read = Coordinate(self.name)
        return _extreme(read, system, states, 1.0) - _extreme(read, system, states, -1.0)


class Dwell(AbstractCoordinateOutput):
    """How far (n,) a joint coordinate is from its mean while it should stand still, in m or rad; zero at other times.

    Args:
        name: as in `Coordinate`.
        between: values (2,) of the input, or times, between which it should stand still.
    """

    between: Float[Array, "2"]

    @contract
    def __init__(self, name: str, between: Finite):
        self.name, self.between = name, as_vector(between, "between", (2,))

    def __call__(self, system: System, states: State) -> Float[Array, " n"]:
        """The differences."""
        values, at = Coordinate(self.name)(system, states), input_values(system, states)
        mask = (at >= self.between[0]) & (at <= self.between[1])
        mean = jnp.sum(jnp.where(mask, values, 0)) / jnp.maximum(jnp.sum(mask), 1)
        return jnp.where(mask, values - mean, 0.0)


class TransmissionAngle(AbstractOutput):
    """The acute angle (n,) in rad between the lines from one point to two others: π/2 is best, and at zero no force is transmitted.

    Args:
        one: a point on the first line; of a four-bar the joint of crank and coupler.
        at: where the lines meet; the joint of coupler and rocker.
        other: a point on the second line; the joint of rocker and ground.
    """

    one: Marker
    at: Marker
    other: Marker

    @contract
    def __init__(self, one: object, at: object, other: object):
        self.one, self.at, self.other = marker(one, "one"), marker(at, "at"), marker(other, "other")

    def check(self, system: System) -> None:
        """Refuses points that there are not."""
        _check_points(system, self.one, self.at, self.other)

    def __call__(self, system: System, states: State) -> Float[Array, " n"]:
        """The angles."""
        angle = angle_between(system, states, self.one, self.at, self.other)
        return jnp.pi / 2 - jnp.abs(angle - jnp.pi / 2)


class BearingLoad(AbstractOutput):
    """The size (n,) of the force in a joint, in N, at the speed of the input.

    Args:
        joint: name of the joint.
    """

    joint: str = eqx.field(static=True)

    def check(self, system: System) -> None:
        """Refuses a joint that there is not."""
        connection_slot(linkage_of(system), self.joint)

    def __call__(self, system: System, states: State) -> Float[Array, " n"]:
        """The forces."""
        force = joint_forces(system, states, self.joint)
        return square_root(jnp.sum(force**2, axis=-1))


class Effort(AbstractOutput):
    """The torque or force (n,) of a driver, in N m or N, along its coordinate: what the motor must do at the speed of the input.

    Args:
        driver: name of the driver; that of the input by default.
    """

    driver: str = eqx.field(static=True, default=INPUT)

    def check(self, system: System) -> None:
        """Refuses a driver that there is not."""
        drivers = linkage_of(system).drivers(system.params)
        if self.driver not in drivers:
            raise ValueError(f"Argument `driver` must be a driver out of {listing(drivers)}, but is '{self.driver}'.")

    def __call__(self, system: System, states: State) -> Float[Array, " n"]:
        """The efforts."""
        self.check(system)
        return multipliers(system, states)[:, system.rows[self.driver].start]


class Peak(AbstractOutput):
    """The largest absolute value of another output over the cycle, between poses too.

    Args:
        of: the other output, `of(system, states)` → (n,), of each state by itself.
    """

    of: Annotated[Any, function_of("system, states")]

    def check(self, system: System) -> None:
        """Refuses what the other output does."""
        if isinstance(self.of, AbstractOutput):
            self.of.check(system)

    def __call__(self, system: System, states: State) -> Float[Array, ""]:
        """The value."""
        return _extreme(lambda system, states: jnp.abs(self.of(system, states)), system, states, 1.0)


def input_values(system: System, states: State) -> Float[Array, " n"]:
    """The values of the input at some states; their times where drivers of the mechanism prescribe the motion."""
    speeds = [driver.fn.speed for driver in system.params.drivers if driver.name == INPUT]
    return states.t * speeds[0] if speeds else states.t


def _room(ts: Float[Array, " n"], index: Int[Array, ""]) -> tuple[Array, Array]:
    """The times between which the pose nearest to one of several lies: up to its neighbours."""
    last = ts.shape[0] - 1
    ends = jnp.stack([ts[jnp.maximum(index - 1, 0)], ts[jnp.minimum(index + 1, last)]])
    return jnp.min(ends), jnp.max(ends)


def _extreme(read: Callable[[System, State], Array], system: System, states: State, sign: float) -> Float[Array, ""]:
    """The largest value over the cycle, or the least for a negative sign.

    At the pose where a parabola through three values about one of all has its vertex, and again with smaller distances. There the
    derivative by time vanishes, and that by all else is that of the value at this pose.
    """
    fixed, fixed_states = lax.stop_gradient((system, states))
    values = read(fixed, fixed_states)

    def refined(index: Array) -> tuple[Array, Array]:
        lowest, highest = _room(fixed_states.t, index)

        def closer(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            step = 0.25 * (highest - lowest) / FINER**i
            # Three times within the room: at the ends of the cycle on one side only.
            middle = jnp.clip(carry[0], lowest + step, highest - step)
            ts = middle + step * jnp.arange(-1.0, 2.0)
            around = jax.vmap(lambda t: state_beside(fixed, fixed_states, index, t))(ts)
            a, b, c = sign * read(fixed, around)
            # The vertex, or the higher end of three values that have none, in steps from the middle; within the room.
            bend, ends = 2 * b - a - c, jnp.where(c > a, 1.0, -1.0)
            way = jnp.where(bend > 0, 0.5 * (c - a) / positive_or_one(bend), ends)
            way = jnp.clip(way, (lowest - middle) / step, (highest - middle) / step)
            return middle + way * step, b + 0.5 * (c - a) * way - 0.5 * bend * way**2

        return lax.fori_loop(0, VERTICES, closer, (fixed_states.t[index], values[index]))

    # Between poses the largest of several maxima may be another one than at the poses.
    indices = lax.top_k(_heights(sign * values), min(CANDIDATES, values.shape[0]))[1]
    ts, heights = jax.vmap(refined)(indices)
    best = jnp.argmax(heights)
    state = jax.tree.map(lambda x: x[None], state_beside(system, states, indices[best], ts[best]))
    return _in_turn(read(system, state)[0], values[indices[best]], read, system)


def _heights(values: Float[Array, " n"]) -> Float[Array, " n"]:
    """About how high a maximum near each of several values is; less than all of them where there is none."""
    before, after = (jnp.append(values[:1], values[:-1]), jnp.append(values[1:], values[-1:]))
    bend = 2 * values - before - after
    vertex = values + 0.125 * (after - before) ** 2 / positive_or_one(bend)
    return jnp.where((values >= before) & (values >= after), vertex, jnp.min(values) - 1)


def _in_turn(value: Array, other: Array, read: object, system: System) -> Array:
    """An angle in the turn of another value of it, other values as they are."""
    wraps = isinstance(read, Coordinate) and linkage_of(system).wraps(read.name)
    return in_turn(value, other) if wraps else value
