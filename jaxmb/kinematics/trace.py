"""Following all poses of a mechanism with one degree of freedom, through dead centres and branch points."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..formulation import AbstractFormulation, GaussProjection
from ..foundations import default_float, is_concrete, listing, program, strong
from ..linalg import decomposed, inverse_root, null_space
from ..system import Coordinate, Holonomic, Mode, Scale, State, System, jacobian_rate, rows_at, settled
from .branches import VANISHING, branches
from .correction import correct
from .curve import CurveEvent, MotionCurve
from .rows import choose_rows

Scalar = Float[Array, ""]

# Iterations of each correction; the residual, relative to the mechanism, that it must leave, as a power of the rounding.
ITERATIONS, EXACT = 10, 0.7
# Angles in rad in the metric of M by which the direction turns in a step: what is aimed at, and the most; the largest part of a step that
# a correction may take.
AIM, MOST, ASIDE = 0.1, 0.35, 0.3
# An event is located to this part of a step. Steps smaller than `LEAST` of the usual one lead nowhere.
NARROW, LEAST = 1e-12, 1e-7
# Rates up to this part of the steepest are rounding.
STILL = 1e-12
GOING, CLOSED, LIMIT, STUCK = range(4)
ENDS = ("unfinished", "closed", "limit", "stuck")


class _AtTime(eqx.Module):
    """A constraint as it is at one instant."""

    fn: Any
    t: Scalar

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: Any) -> Array:
        return self.fn(self.t, q, params)


class _Point(eqx.Module):
    """A pose of the curve, and what tells events.

    Attributes:
        q, v: the pose and the unit tangent.
        metric: in which it is of unit length.
        values: the coordinates that are watched (k,), angles without jumps.
        rates, steepest: how fast they change along the curve, and along the steepest way off it (k,).
        gap, closing: the singular value that vanishes at branch points, and its derivative along the curve.
        image, along: what the pose looks like, and the derivative of that.
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
    along: Array

    @property
    def sense(self) -> Float[Array, " k"]:
        """Whether the coordinates grow, fall, or stand still but for rounding (k,): 1, −1, 0."""
        return jnp.where(jnp.abs(self.rates) <= STILL * self.steepest, 0, jnp.sign(self.rates))


class _Path(eqx.Module):
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
    watched: tuple[Any, ...]
    wraps: tuple[bool, ...] = eqx.field(static=True)
    limits: Float[Array, "2"]
    step: Scalar

    def point(self, q: Float[Array, " nq"], v: Float[Array, " nv"], last: Float[Array, " k"]) -> _Point:
        """What there is to know of a pose, with a tangent of any length; angles are those closest to the last ones."""
        system = self.system
        terms = rows_at(system, self.t, q, self.scale.row)
        metric = self.formulation.metric(terms)
        root, v = inverse_root(metric), v / jnp.sqrt(v @ metric @ v)
        slopes, values = self.slopes(q), self.read(q)
        turns = jnp.where(np.array(self.wraps), jnp.round((last - values) / (2 * jnp.pi)), 0)
        gap, closing = self._gap(terms.jacobian, root, q, v)
        image, along = jax.jvp(self._image, (q,), (system.qdot(q, v),))
        steepest = jnp.linalg.norm(slopes @ root.T, axis=1)
        return _Point(q, v, metric, values + 2 * jnp.pi * turns, slopes @ v, steepest, gap, closing, image, along)

    def read(self, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """The coordinates that are watched."""
        return jnp.stack([fn(self.t, q, self.system.params) for fn in self.watched])

    def slopes(self, q: Float[Array, " nq"]) -> Float[Array, "k nv"]:
        """Their derivatives along each velocity."""
        along = lambda d: jax.jvp(self.read, (q,), (self.system.qdot(q, d),))[1]
        return jax.vmap(along, out_axes=1)(jnp.eye(self.system.nv, dtype=q.dtype))

    def _image(self, q: Float[Array, " nq"]) -> Array:
        joints = self.system.joints
        return q if joints is None else jnp.ravel(joints.poses(q, self.system.params))

    def _gap(self, jacobian: Array, root: Array, q: Array, v: Array) -> tuple[Scalar, Scalar]:
        """The smallest singular value of nv − 1 independent scaled rows, and its derivative along v: uᵀ Ȧ w."""
        last = self.system.nv - 2
        if last < 0 or not self.system.m:
            return jnp.ones((), q.dtype), jnp.ones((), q.dtype)
        scaled = lambda rows: (rows / self.scale.row[:, None]) @ root.T
        values, left, right = decomposed(scaled(jacobian))
        rate = jacobian_rate(self.system, self.t, q, v, 0.0)
        return values[last], left[last] @ scaled(rate) @ right[last]

    def advance(self, at: _Point, length: Scalar) -> tuple[_Point, Bool[Array, ""], Scalar]:
        """A step along the tangent and the shortest way back onto the constraints; whether that is one, and how far it turns."""
        system, formulation, scale = self.system, self.formulation, self.scale
        guess = system.normalise(at.q + length * system.qdot(at.q, at.v))
        keep = formulation.prepare(rows_at(system, self.t, guess, scale.row))
        found = correct(system, formulation, State(self.t, guess, at.v, scale), keep, ITERATIONS)
        trial = self.point(found.q, found.v, at.values)
        along, across = trial.v @ trial.metric @ at.v, at.v @ trial.metric @ at.v
        turned = jnp.arccos(jnp.clip(along / jnp.sqrt(across), -1, 1))
        moved, planned = trial.image - at.image, length * at.along
        aside = jnp.linalg.norm(moved - planned) <= ASIDE * jnp.linalg.norm(planned)
        off = jnp.max(jnp.abs(found.position) / scale.span, initial=0)
        exact = off <= jnp.finfo(off.dtype).eps ** EXACT
        return trial, exact & aside & (turned <= MOST), turned

    def usual(self, at: _Point) -> Scalar:
        """The longest step, in which no coordinate moves by more than its part, nor the input by a twentieth of its range."""
        known, speed = self.scale.reach > 0, jnp.abs(at.v)
        parts = jnp.where(known, speed / jnp.where(known, self.scale.reach, 1), 0 if self.system.m else speed)
        rate = jnp.abs(at.rates[0])
        by_range = (self.limits[1] - self.limits[0]) / 20 / jnp.where(rate > 0, rate, 1)
        return jnp.minimum(self.step / jnp.max(parts), jnp.where(rate > 0, by_range, jnp.inf))

    def events(self, start: _Point, at: _Point, trial: _Point) -> Bool[Array, " e"]:
        """Which happen between two points: coordinates that turn back, a branch point, a limit, the return to the start."""
        turning = (at.sense != 0) & (trial.sense != at.sense)
        branch = (at.closing < 0) & (trial.closing >= 0)
        inside = lambda x: jnp.all((x >= self.limits[0]) & (x <= self.limits[1]))
        limit = inside(at.values[0]) & ~inside(trial.values[0])
        ahead = lambda x: jnp.dot(x.image - start.image, start.along)
        near = jnp.linalg.norm(trial.image - start.image) <= 1.5 * jnp.linalg.norm(trial.image - at.image)
        size = jnp.linalg.norm(trial.along) * jnp.linalg.norm(start.along)
        alike = jnp.dot(trial.along, start.along) >= 0.7 * size
        closed = (ahead(at) < 0) & (ahead(trial) >= 0) & near & alike
        return jnp.concatenate([turning, jnp.stack([branch, limit, closed])])


class _Walk(eqx.Module):
    """How far it has come.

    Attributes:
        at: the last point.
        length: of the next step.
        low, high: between which lengths from there something happens; `high` is infinite while nothing is known to.
        found: the point at `high`, and what happens up to there.
        count: number of points beyond the start.
        status: one of `GOING`, `CLOSED`, `LIMIT`, `STUCK`.
        points, happened: all points and what happens up to each.
    """

    at: _Point
    length: Scalar
    low: Scalar
    high: Scalar
    found: tuple[_Point, Bool[Array, " e"]]
    count: Int[Array, ""]
    status: Int[Array, ""]
    points: _Point
    happened: Bool[Array, "n e"]


def _select(which: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), one, other)


def _followed(path: _Path, start: _Point, count: int) -> _Walk:
    """All points from the start on, events among them."""

    def step(walk: _Walk) -> _Walk:
        usual = path.usual(walk.at)
        searching = jnp.isfinite(walk.high)
        length = jnp.where(searching, (walk.low + walk.high) / 2, jnp.minimum(walk.length, usual))
        trial, good, turned = path.advance(walk.at, length)
        happened = path.events(start, walk.at, trial)
        hit = jnp.any(happened)
        before = searching & good & ~hit
        high = jnp.where(before, walk.high, jnp.where(good & hit, length, jnp.where(searching, length, jnp.inf)))
        found = _select(good & ~before, (trial, happened), walk.found)
        low = jnp.where(before, length, walk.low)
        accepted = jnp.where(jnp.isfinite(high), high - low <= NARROW * usual, good)
        grown = length * jnp.clip(AIM / jnp.maximum(turned, 1e-9), 0.5, 2)
        after = jnp.where(searching, walk.length, jnp.where(good, grown, length / 2))
        after = jnp.where(accepted & searching, usual, after)
        number = walk.count + accepted
        put = lambda all, one: all.at[jnp.where(accepted, number, len(all))].set(one, mode="drop")
        what = found[1] & accepted
        status = jnp.where(after < LEAST * usual, STUCK, GOING)
        status = jnp.where(what[-2], LIMIT, jnp.where(what[-1], CLOSED, status))
        return _Walk(
            at=_select(accepted, found[0], walk.at),
            length=after,
            low=jnp.where(accepted, 0, low),
            high=jnp.where(accepted, jnp.inf, high),
            found=found,
            count=number,
            status=status,
            points=jax.tree.map(put, walk.points, found[0]),
            happened=put(walk.happened, what),
        )

    none = jnp.zeros(len(path.watched) + 3, bool)
    room = jax.tree.map(lambda x: jnp.zeros((count, *jnp.shape(x)), x.dtype).at[0].set(x), (start, none))
    zero = jnp.zeros_like(path.step)
    begun = _Walk(start, path.usual(start), zero, zero + jnp.inf, (start, none), jnp.array(0), jnp.array(GOING), *room)
    return lax.while_loop(lambda w: (w.status == GOING) & (w.count < count - 1), step, begun)


@program
def _trace(path: _Path, state: State, way: Scalar, count: int) -> tuple[_Walk, Int[Array, "2"], Bool[Array, ""]]:
    """The walk one way, degrees of freedom at its start and nearby, and whether it is known which way that is."""
    system, formulation, q = path.system, path.formulation, state.q
    rows = choose_rows(system, formulation, dataclasses.replace(state, v=jnp.zeros_like(state.v)))
    freedom = system.nv - rows.rank - jnp.stack([jnp.zeros_like(rows.rank), jnp.sum(rows.lost | rows.open)])
    terms = rows_at(system, path.t, q, path.scale.row)
    factor = formulation.factorise(terms, formulation.prepare(terms))
    free = lambda force: factor.solve(force, jnp.zeros(system.m, q.dtype))[0]
    slope, given = path.slopes(q)[0], free(factor.metric @ state.v)
    growing, basis = free(slope), null_space(factor)
    size = lambda v: v @ factor.metric @ v
    steep = slope @ growing > STILL**2 * jnp.sum((factor.root @ slope) ** 2)
    usual = jnp.where(steep, growing, basis[:, jnp.argmax(jnp.sum(basis**2, axis=0))])
    moving = jnp.any(state.v != 0)
    fits = jnp.where(moving, size(given) > 0.5 * size(state.v), freedom[0] == 1)
    start = path.point(q, way * jnp.where(moving, given, usual), path.read(q))
    singular = start.gap <= VANISHING  # the direction in which it opens is not known then
    start = dataclasses.replace(start, closing=jnp.where(singular, 1, start.closing))
    return _followed(path, start, count), freedom, fits


def trace_motion(
    system: System,
    state: State,
    input: str,
    *,
    watch: Sequence[str] = (),
    between: Any = None,
    step: float = 0.25,
    max_points: int = 1000,
    formulation: AbstractFormulation | None = None,
) -> MotionCurve:
    """All poses that a mechanism takes as its input is moved: the input–output curve, through dead centres and branch points.

    The curve φ(q) = 0 is followed by its length and not by the input, so that it goes on where the input turns back: a step
    along the tangent, v ∈ null(C), and the shortest way back onto the constraints, both in the metric of M (Euler and Newton's
    method, Allgower and Georg 1990, ch. 2 and 6), until it returns to its start, or both ways as far as it leads. Along it are found

    * dead centres, where ds/dσ of the input vanishes, and limit positions, where that of another coordinate does;
    * branch points, where the smallest singular value of the rows touches zero (Kumar and Pellegrino 2000), with the branches
      that meet there. The curve goes straight on; others are followed from the states in `CurveEvent.branches`.

    Events are located along the curve by bisection to 1e-12 of a step. Steps follow the curvature and what the mechanism's
    coordinates reach (`State.scale`), so that units do not matter. No forces act, time stands still.

    Args:
        system: the system, with holonomic constraints and one degree of freedom when the input is not driven.
        state: one assembled pose on the curve. A velocity, if it has one, tells which way to go first and, at a branch point,
            along which branch; else it is the way in which the input grows.
        input: name of a joint coordinate, of a coordinate of the system, or of a driver; a driver of it lets go, others stay as they are at `state.t`.
        watch: names of other coordinates whose values and limit positions are wanted.
        between: least and largest value of the input, where the curve ends; as far as it leads if None.
        step: the largest step, in parts of what coordinates reach while the mechanism turns by some 50°.
        max_points: number of poses after which it ends, each way.
        formulation: gives metric and cut-off; `GaussProjection()` by default.

    Returns:
        A `MotionCurve`. Whether it closes is seen of a mechanism of bodies; coordinates of functions must come back to their values.

    Raises:
        ValueError: for names that are not known, constraints on velocities, more or fewer degrees of freedom than one, a start at
            a branch point without a velocity along one of its branches, and an input that is not between its limits.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> circle = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("circle", lambda t, q, p: q @ q - 1)])
        >>> curve = jm.trace_motion(circle, jm.assemble(circle, [0.6, 0.8]), "x", watch=["y"])
        >>> curve.closed, [round(x, 6) for x in curve.ranges["x"]], [(event.kind, event.name) for event in curve.events]
        (True, [-1.0, 1.0], [('dead centre', 'x'), ('limit position', 'y'), ('dead centre', 'x'), ('limit position', 'y')])
    """
    if not is_concrete(system, state):
        raise TypeError("Arguments of `trace_motion` must hold known numbers, but hold traced ones.")
    formulation = formulation or GaussProjection()
    whole, pose = settled(system, state)
    held, coordinate = _released(whole, input)
    names = tuple(dict.fromkeys((coordinate, *_names(watch))))
    fns = [_coordinate(whole, name) for name in names]
    lowest, highest = (-np.inf, np.inf) if between is None else between
    path = _Path(
        system=_at_instant(whole, pose.t, held),
        formulation=formulation,
        t=pose.t,
        scale=pose.scale,
        watched=tuple(fn for fn, _ in fns),
        wraps=tuple(wraps for _, wraps in fns),
        limits=jnp.asarray([lowest, highest], default_float()),
        step=jnp.asarray(step, default_float()),
    )
    _check_input(path, pose, input)
    path, pose = strong(path), strong(pose)
    follow = lambda way: _trace(path, pose, jnp.asarray(way, default_float()), max_points)
    ahead, freedom, fits = follow(1.0)
    _check_start(freedom, bool(fits), bool(np.any(np.asarray(pose.v))), input)
    walks = [ahead] if int(ahead.status) == CLOSED else [follow(-1.0)[0], ahead]
    return _joined(system, state, path, names, walks)


def _joined(system: System, state: State, path: _Path, names: tuple[str, ...], walks: list[_Walk]) -> MotionCurve:
    """The curve of one walk, or of one back, turned round, and one ahead."""
    cut = [jax.tree.map(lambda x, w=w: np.asarray(x)[: int(w.count) + 1], (w.points, w.happened)) for w in walks]
    ends = [ENDS[int(w.status)] for w in walks]
    if len(cut) == 2:
        back = jax.tree.map(lambda x: x[:0:-1], cut[0])
        back = eqx.tree_at(lambda x: x[0].v, back, -back[0].v)
        start, (points, happened) = len(back[1]), jax.tree.map(lambda a, b: np.concatenate([a, b]), back, cut[1])
    else:
        start, (points, happened) = 0, cut[0]
    found: State = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(happened), *jnp.shape(x))), state)
    states = dataclasses.replace(found, q=jnp.asarray(points.q), v=jnp.asarray(points.v))
    kinds = [("dead centre" if name == names[0] else "limit position", name) for name in names] + [("branch point", "")]
    still = np.abs(points.rates[start]) <= STILL * points.steepest[start]
    happened = happened[:, : len(kinds)].copy()
    happened[start] = [*still, points.gap[start] <= VANISHING]
    happened[:, -1] &= points.gap <= VANISHING  # elsewhere the gap is least, but not zero
    if ends == ["closed"]:
        happened[-2:] &= ~happened[start]  # the start again
    curve = MotionCurve(
        input=names[0],
        values={name: jnp.asarray(points.values[:, i]) for i, name in enumerate(names)},
        states=states,
        gap=jnp.asarray(points.gap),
        events=(),
        start=start,
        ends=(ends[0], ends[-1]),
    )
    events = [
        _event(system, curve, kind, name, i, path)
        for i in range(len(happened))
        for (kind, name), here in zip(kinds, happened[i], strict=True)
        if here
    ]
    return dataclasses.replace(curve, events=tuple(events))


def _event(system: System, curve: MotionCurve, kind: str, name: str, index: int, path: _Path) -> CurveEvent:
    state: State = jax.tree.map(lambda x: x[index], curve.states)
    values = {name: x[index] for name, x in curve.values.items()}
    met = None
    if kind == "branch point":
        inner = branches(path.system, dataclasses.replace(state, mode=None))
        repeated: State = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(inner.v), *jnp.shape(x))), state)
        met = dataclasses.replace(repeated, v=inner.v)
    return CurveEvent(kind, name, index, state, values, met)


# What is followed


def _names(watch: Sequence[str]) -> tuple[str, ...]:
    if isinstance(watch, str):
        raise TypeError(f"Argument `watch` must be a sequence of names, but is the string {watch!r}.")
    return tuple(watch)


def _released(system: System, input: str) -> tuple[np.ndarray, str]:
    """The rows (m,) that stay when the input is not driven, and the coordinate that the input is."""
    drivers = {} if system.joints is None else system.joints.drivers(system.params)
    coordinate = drivers.get(input, input)
    if coordinate is None:
        raise ValueError(
            f"Argument `input` must name a coordinate, or a driver of one, but '{input}' drives none: leave it out of the "
            "mechanism, and name a joint coordinate."
        )
    held = np.ones(system.m, bool)
    for name, driven in drivers.items():
        if name == input or driven == coordinate:
            held[system.rows[name]] = False
    if system.active is not None:
        held &= np.asarray(system.active)
    if system.holonomic is not None:
        slips = held & ~np.asarray(system.holonomic)
        rolling = [name for name, part in system.rows.items() if slips[part].any()]
        if rolling:
            raise ValueError(
                f"Argument `system` must have holonomic constraints only, but {listing(rolling)} constrain velocities: the pose "
                "depends on the way that leads there."
            )
    return held, coordinate


def _coordinate(system: System, name: str) -> tuple[Any, bool]:
    """A coordinate as a function of t, q and params, and whether it is an angle without its full turns."""
    if name in system.coordinates:
        return Coordinate(system.coordinates.index(name)), False
    if system.joints is None:
        raise ValueError(
            f"Arguments `input` and `watch` must hold coordinates out of {listing(system.coordinates)}, but hold '{name}'."
        )
    return system.joints.coordinate(name), system.joints.wraps(name)


def _at_instant(system: System, t: Scalar, held: np.ndarray) -> System:
    """The system with only some rows, as they are at one time."""
    constraints = [
        Holonomic(c.name, _AtTime(c.fn, t), None if c.parts is None else dict(c.parts))
        if isinstance(c, Holonomic)
        else c
        for c in system.constraints
    ]
    none = jnp.zeros(0, default_float())
    mode = Mode((), jnp.asarray(held), none, none, jnp.zeros(0, bool))
    return system.with_constraints(constraints, system.row_counts).in_mode(mode)


# Refusals


def _check_input(path: _Path, state: State, input: str) -> None:
    value, (low, high) = float(path.read(state.q)[0]), np.asarray(path.limits)
    if not low <= value <= high or low == high:
        raise ValueError(
            f"Argument `between` must hold the least and the largest value of the input, with that of the start, {value:.6g}, between "
            f"them, but is {low:.6g} and {high:.6g}."
        )


def _check_start(freedom: Array, fits: bool, moving: bool, input: str) -> None:
    here, nearby = (int(x) for x in freedom)
    if nearby != 1:
        raise ValueError(
            f"Argument `system` must have one degree of freedom when '{input}' is not driven, but has {nearby}: hold the others by "
            "drivers, or let go of what holds the input. `diagnose` tells more."
        )
    if not fits and moving:
        raise ValueError(
            "Argument `state` must have a velocity along the curve, or none, but has one that leads off it."
        )
    if not fits:
        raise ValueError(
            "Argument `state` must have a velocity along one of the branches that meet at its pose, where the mechanism has "
            f"{here} degrees of freedom, but has none: take one of `jaxmb.branches(system, state)`."
        )
