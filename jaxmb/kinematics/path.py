"""The path of all poses of a mechanism with one degree of freedom: a step along it, and what happens on the way."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..formulation import AbstractFormulation
from ..foundations import default_float, listing
from ..linalg import decomposed, inverse_root
from ..system import Coordinate, Holonomic, Mode, Scale, State, System, in_turn, jacobian_rate, rows_at
from .correction import correct

Scalar = Float[Array, ""]

# Iterations of each correction; the residual, relative to the mechanism, that it must leave, as a power of the rounding.
ITERATIONS, EXACT = 10, 0.7
# The most, in rad in the metric of M, by which the direction turns in a step; the largest part of a step that a correction may take.
MOST, ASIDE = 0.35, 0.3
# Rates up to this part of the steepest are rounding.
STATIONARY = 1e-12


class AtTime(eqx.Module):
    """A constraint as it is at one instant."""

    fn: Callable[..., Array]
    t: Scalar

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> Array:
        """The residual of the constraint at a pose, at its own time instead of `t`."""
        return self.fn(self.t, q, params)


class CurvePoint(eqx.Module):
    """A pose of the curve, with the quantities whose changes of sign are events.

    Attributes:
        q, v: the pose and the unit tangent.
        metric: in which it is of unit length.
        values: the coordinates that are watched (k,), angles without jumps.
        rates, steepest: how fast they change along the curve, and along the steepest way off it (k,).
        gap, closing: the singular value that vanishes at branch points, and its derivative along the curve.
        image, image_rate: what the pose looks like, and the derivative of that.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    metric: Float[Array, "nv nv"]
    values: Float[Array, " k"]
    rates: Float[Array, " k"]
    steepest: Float[Array, " k"]
    gap: Scalar
    closing: Scalar
    image: Array
    image_rate: Array

    @property
    def sense(self) -> Float[Array, " k"]:
        """Whether the coordinates grow, fall, or stand still but for rounding (k,): 1, −1, 0."""
        return jnp.where(jnp.abs(self.rates) <= STATIONARY * self.steepest, 0, jnp.sign(self.rates))


class TracedMechanism(eqx.Module):
    """The mechanism whose poses are followed: at one instant, without the driver of the input.

    Attributes:
        system, formulation, t, scale: what they are called.
        watched: functions of the coordinates that are watched, the input first.
        wraps: which of these are angles without their full turns.
        limits: of the input (2,).
        step: the largest step, in parts of what coordinates reach.
    """

    system: System
    formulation: AbstractFormulation
    t: Scalar
    scale: Scale
    watched: tuple[Callable[..., Array], ...]
    wraps: tuple[bool, ...] = eqx.field(static=True)
    limits: Float[Array, "2"]
    step: Scalar

    def point(self, q: Float[Array, " nq"], v: Float[Array, " nv"], last: Float[Array, " k"]) -> CurvePoint:
        """The point of the curve at a pose, with a tangent (nv,) of any length; angles are taken in the turn closest to the last values."""
        system = self.system
        terms = rows_at(system, self.t, q, self.scale.row)
        metric = self.formulation.metric(terms)
        # Of unit length in the metric of M: the curve's length has no other meaning, and units do not matter.
        root, v = inverse_root(metric), v / jnp.sqrt(v @ metric @ v)
        slopes, values = self.slopes(q), self.read(q)
        values = jnp.where(np.array(self.wraps), in_turn(values, last), values)
        # The sign of the smallest singular value is lost, that of its derivative is not: it changes where the value touches zero.
        gap, closing = self._gap(terms.jacobian, root, q, v)
        image, image_rate = jax.jvp(self._image, (q,), (system.qdot(q, v),))
        steepest = jnp.linalg.norm(slopes @ root.T, axis=1)
        return CurvePoint(
            q=q,
            v=v,
            metric=metric,
            values=values,
            rates=slopes @ v,
            steepest=steepest,
            gap=gap,
            closing=closing,
            image=image,
            image_rate=image_rate,
        )

    def read(self, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """The values (k,) of the watched coordinates."""
        return jnp.stack([fn(self.t, q, self.system.params) for fn in self.watched])

    def slopes(self, q: Float[Array, " nq"]) -> Float[Array, "k nv"]:
        """The derivatives (k, nv) of the watched coordinates along each velocity."""
        slope = lambda d: jax.jvp(self.read, (q,), (self.system.qdot(q, d),))[1]
        return jax.vmap(slope, out_axes=1)(jnp.eye(self.system.nv, dtype=q.dtype))

    def _image(self, q: Float[Array, " nq"]) -> Array:
        joints = self.system.joints
        return q if joints is None else jnp.ravel(joints.poses(q, self.system.params))

    def _gap(self, jacobian: Array, root: Array, q: Array, v: Array) -> tuple[Scalar, Scalar]:
        """The smallest singular value of nv − 1 independent scaled rows, and its derivative along v: uᵀ Ȧ w."""
        # One degree of freedom: nv − 1 rows are independent. The last of so many singular values vanishes at branch points, those beyond it
        # always do.
        last = self.system.nv - 2
        if last < 0 or not self.system.m:
            return jnp.ones((), q.dtype), jnp.ones((), q.dtype)
        scaled = lambda rows: (rows / self.scale.row[:, None]) @ root.T
        values, left, right = decomposed(scaled(jacobian))
        rate = jacobian_rate(self.system, self.t, q, v, 0.0)
        return values[last], left[last] @ scaled(rate) @ right[last]

    def advance(self, at: CurvePoint, length: Scalar) -> tuple[CurvePoint, Bool[Array, ""], Scalar]:
        """A step along the tangent and the shortest move back onto the constraints; whether the step is acceptable, and the angle by which it turns."""
        system, formulation, scale = self.system, self.formulation, self.scale
        # Predictor and corrector (Allgower and Georg 1990, ch. 2 and 6).
        guess = system.displaced(at.q, length * at.v)
        in_use = formulation.prepare(rows_at(system, self.t, guess, scale.row))
        # Velocities are those along the curve, in no unit of time: what is rounding in them is told by them alone.
        own = dataclasses.replace(scale, rate=scale.passing(at.v))
        correction = correct(system, formulation, State(self.t, guess, at.v, own), in_use, ITERATIONS)
        trial = self.point(correction.q, correction.v, at.values)
        inner, square = trial.v @ trial.metric @ at.v, at.v @ trial.metric @ at.v
        turned = jnp.arccos(jnp.clip(inner / jnp.sqrt(square), -1, 1))
        change, planned = trial.image - at.image, length * at.image_rate
        # The correction may end on another branch nearby: a step that it has changed by much is no step along this one.
        aside = jnp.linalg.norm(change - planned) <= ASIDE * jnp.linalg.norm(planned)
        off = jnp.max(jnp.abs(correction.position) / scale.span, initial=0)
        # NaN compares as false: a step to where functions are not defined is refused.
        exact = off <= jnp.finfo(off.dtype).eps ** EXACT
        return trial, exact & aside & (turned <= MOST), turned

    def longest_step(self, at: CurvePoint) -> Scalar:
        """The longest step, in which no coordinate moves by more than its part, nor the input by a twentieth of its range."""
        sized, speed = self.scale.reach > 0, jnp.abs(at.v)
        parts = jnp.where(sized, speed / jnp.where(sized, self.scale.reach, 1), 0 if self.system.m else speed)
        by_range = (self.limits[1] - self.limits[0]) / 20 / jnp.abs(at.rates[0])
        return jnp.minimum(self.step / jnp.max(parts), by_range)

    def events(self, start: CurvePoint, at: CurvePoint, trial: CurvePoint) -> Bool[Array, " e"]:
        """Mask (k + 3,) of the events between two points: coordinates that turn back, a branch point, a limit, the return to the start."""
        # Standing still but for rounding counts as neither: a coordinate that never moves has no limit position.
        turning = (at.sense != 0) & (trial.sense != at.sense)
        # The value touches zero and grows again, without a change of sign: its slope has one.
        branch = (at.closing < 0) & (trial.closing >= 0)
        inside = lambda x: jnp.all((x >= self.limits[0]) & (x <= self.limits[1]))
        limit = inside(at.values[0]) & ~inside(trial.values[0])
        ahead = lambda x: jnp.dot(x.image - start.image, start.image_rate)
        # A curve may cross itself: it is closed where it comes by the start near to it and with its direction.
        near = jnp.linalg.norm(trial.image - start.image) <= 1.5 * jnp.linalg.norm(trial.image - at.image)
        size = jnp.linalg.norm(trial.image_rate) * jnp.linalg.norm(start.image_rate)
        alike = jnp.dot(trial.image_rate, start.image_rate) >= 0.7 * size
        closed = (ahead(at) < 0) & (ahead(trial) >= 0) & near & alike
        return jnp.concatenate([turning, jnp.stack([branch, limit, closed])])


def release_input(system: System, input: str) -> tuple[np.ndarray, str]:
    """The rows (m,) that stay when the input is not driven, and the coordinate that the input is."""
    drivers = {} if system.joints is None else system.joints.drivers(system.params)
    coordinate = drivers.get(input, input)
    if coordinate is None:
        raise ValueError(
            f"Argument `input` must name a coordinate, or a driver of one, but '{input}' drives none: leave it out of the "
            "mechanism, and name a joint coordinate."
        )
    active = np.ones(system.m, bool)
    for name, driven in drivers.items():
        if name == input or driven == coordinate:
            active[system.rows[name]] = False
    if system.active is not None:
        active &= np.asarray(system.active)
    if system.holonomic is not None:
        slips = active & ~np.asarray(system.holonomic)
        rolling = [name for name, part in system.rows.items() if slips[part].any()]
        if rolling:
            raise ValueError(
                f"Argument `system` must have holonomic constraints only, but {listing(rolling)} constrain velocities: the pose "
                "depends on the way that leads there."
            )
    return active, coordinate


def coordinate_of(system: System, name: str) -> tuple[Callable[..., Array], bool]:
    """A coordinate as a function of t, q and params, and whether it is an angle without its full turns."""
    if name in system.coordinates:
        return Coordinate(system.coordinates.index(name)), False
    if system.joints is None:
        raise ValueError(
            f"Arguments `input` and `watch` must hold coordinates out of {listing(system.coordinates)}, but hold '{name}'."
        )
    return system.joints.coordinate(name), system.joints.wraps(name)


def at_instant(system: System, t: Scalar, active: np.ndarray) -> System:
    """The system with only some rows, as they are at one time."""
    constraints = [Holonomic(c.name, AtTime(c.fn, t)) if isinstance(c, Holonomic) else c for c in system.constraints]
    none = jnp.zeros(0, default_float())
    mode = Mode((), jnp.asarray(active), none, none, jnp.zeros(0, bool))
    return system.with_constraints(constraints, system.row_counts).in_mode(mode)
