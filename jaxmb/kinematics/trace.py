"""Following all poses of a mechanism with one degree of freedom, through dead centres and branch points."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import Count, Number, Positive, as_floats, contract, expect_concrete, program, strong, tree_where
from ..linalg import null_space
from ..system import State, System, apply_mode, rows_at
from .branches import VANISHING, branches
from .curve import CurveEvent, MotionCurve
from .path import STATIONARY, CurvePoint, TracedMechanism, at_instant, coordinate_of, release_input
from .rows import choose_rows

Scalar = Float[Array, ""]

# The angle in rad in the metric of M by which the direction turns in a step that is aimed at.
AIM = 0.1
# An event is located to this part of a step. Steps smaller than `LEAST` of the usual one lead nowhere. A limit that is closer to the
# start than `AT_LIMIT` of a step, or of the input's range, is at the start: assembled poses are exact to less. What lies behind an event and what
# lies before it are on different branches if they are apart by more than `APART` of a step.
NARROW, LEAST, AT_LIMIT, APART = 1e-12, 1e-7, 1e-9, 1e-5
GOING, CLOSED, LIMIT, STUCK = range(4)
ENDS = ("unfinished", "closed", "limit", "stuck")


class _Walk(eqx.Module):
    """The state of the walk along the curve.

    Attributes:
        at: the last point.
        length: of the next step.
        base, high: the last point before something happens, and the length from there up to which it does; infinite while nothing is known to.
        candidate: the first point that is known to lie behind it, and what happens up to there.
        count: number of points beyond the start.
        status: one of `GOING`, `CLOSED`, `LIMIT`, `STUCK`.
        points, happened: all points and what happens up to each.
    """

    at: CurvePoint
    length: Scalar
    base: CurvePoint
    high: Scalar
    candidate: tuple[CurvePoint, Bool[Array, " e"]]
    count: Int[Array, ""]
    status: Int[Array, ""]
    points: CurvePoint
    happened: Bool[Array, "n e"]


def _follow(path: TracedMechanism, start: CurvePoint, count: int) -> _Walk:
    """The walk from a start, with all its points, events among them."""
    none = jnp.zeros(len(path.watched) + 3, bool)

    def step(walk: _Walk) -> _Walk:
        longest = path.longest_step(walk.at)
        searching = jnp.isfinite(walk.high)
        length = jnp.where(searching, walk.high / 2, jnp.minimum(walk.length, longest))
        # One copy of a step for walking and for bisection. What a step misses the curve by, before it is corrected, falls with the square of
        # its length: bisection goes on from each point before the event, lest beside a branch point it ends on another branch.
        trial, good, turned = path.advance(walk.base, length)
        # Events are changes of sign between two points, so that bisection by length needs no other function.
        happened = path.events(start, walk.at, trial)
        hit = jnp.any(happened)
        before = searching & good & ~hit
        # A step that fails while an event is sought bounds it from above, as one beyond it.
        high = jnp.where(before, walk.high - length, jnp.where((good & hit) | searching, length, jnp.inf))
        candidate = tree_where(good & ~before, (trial, happened), walk.candidate)
        base = tree_where(before, trial, walk.base)
        accepted = jnp.where(jnp.isfinite(high), high <= NARROW * longest, good)
        # Where branches pass close by each other a step may go over to another one. No step leads there from nearby.
        apart = jnp.linalg.norm(candidate[0].image - base.image) > APART * longest * jnp.linalg.norm(base.image_rate)
        over = accepted & searching & apart
        candidate = tree_where(over, (base, none), candidate)
        grown = length * jnp.clip(AIM / jnp.maximum(turned, 1e-9), 0.5, 2)
        after = jnp.where(over, walk.length / 2, jnp.where(searching, walk.length, jnp.where(good, grown, length / 2)))
        number = walk.count + accepted
        # An index beyond the end is dropped: trials that are not accepted are no points.
        put = lambda all, one: all.at[jnp.where(accepted, number, len(all))].set(one, mode="drop")
        what = candidate[1] & accepted
        # Steps shrink for ever where no pose lies further on.
        status = jnp.where(after < LEAST * longest, STUCK, GOING)
        status = jnp.where(what[-2], LIMIT, jnp.where(what[-1], CLOSED, status))
        return _Walk(
            at=tree_where(accepted, candidate[0], walk.at),
            length=after,
            base=tree_where(accepted, candidate[0], base),
            high=jnp.where(accepted, jnp.inf, high),
            candidate=candidate,
            count=number,
            status=status,
            points=jax.tree.map(put, walk.points, candidate[0]),
            happened=put(walk.happened, what),
        )

    room = jax.tree.map(lambda x: jnp.zeros((count, *jnp.shape(x)), x.dtype).at[0].set(x), (start, none))
    longest = path.longest_step(start)
    ahead = jnp.where(start.rates[0] > 0, path.limits[1] - start.values[0], start.values[0] - path.limits[0])
    outward = ahead < AT_LIMIT * longest * jnp.abs(start.rates[0])
    status = jnp.where(outward, LIMIT, GOING)
    begun = _Walk(start, longest, start, longest + jnp.inf, (start, none), jnp.array(0), status, *room)
    return lax.while_loop(lambda w: (w.status == GOING) & (w.count < count - 1), step, begun)


@program
def _trace(
    path: TracedMechanism, state: State, way: Scalar, count: int
) -> tuple[_Walk, Int[Array, "2"], Bool[Array, ""]]:
    """The walk one way, degrees of freedom at its start and nearby, and whether it is known which way that is."""
    system, formulation, q = path.system, path.formulation, state.q
    rows = choose_rows(system, formulation, dataclasses.replace(state, v=jnp.zeros_like(state.v)))
    freedom = (
        system.nv - rows.rank - jnp.stack([jnp.zeros_like(rows.rank), jnp.sum(rows.degenerate | rows.indeterminate)])
    )
    terms = rows_at(system, path.t, q, path.scale.row)
    factor = formulation.factorise(terms, formulation.prepare(terms))
    slope, velocity = path.slopes(q)[0], factor.solve(factor.metric @ state.v, jnp.zeros(system.m, q.dtype))[0]
    size = lambda v: v @ factor.metric @ v
    tangent = jnp.sum(null_space(factor), axis=1)  # of one degree of freedom one column is not zero
    falls = slope @ tangent < -STATIONARY * jnp.linalg.norm(factor.root @ slope)  # not by rounding, at a dead centre
    direction = jnp.where(falls, -tangent, tangent)
    moving = jnp.any(state.v != 0)
    fits = jnp.where(moving, size(velocity) > 0.5 * size(state.v), freedom[0] == 1)
    start = path.point(q, way * jnp.where(moving, velocity, direction), path.read(q))
    singular = start.gap <= VANISHING  # the direction in which it opens is not known then
    start = dataclasses.replace(start, closing=jnp.where(singular, 1, start.closing))
    return _follow(path, start, count), freedom, fits


@contract
def trace_motion(
    system: System,
    state: State,
    input: str,
    *,
    watch: Sequence[str] = (),
    between: tuple[Number, Number] | None = None,
    step: Positive = 0.25,
    max_points: Count = 1000,
    formulation: AbstractFormulation | None = None,
) -> MotionCurve:
    """All poses that a mechanism takes as its input moves: the input–output curve, through dead centres and branch points.

    The curve φ(q) = 0 is followed by its length and not by the input, so that it continues where the input turns back: a step
    along the tangent, v ∈ null(C), and the shortest way back onto the constraints, both in the metric of M (Euler and Newton's
    method, Allgower and Georg 1990, ch. 2 and 6), until it returns to its start, or in both directions as far as it leads. Along the curve it finds

    * dead centres, where ds/dσ of the input vanishes, and limit positions, where that of another coordinate does;
    * branch points, where the smallest singular value of the rows touches zero (Kumar and Pellegrino 2000), with the branches
      that meet there. The curve goes straight on; others are followed from the states in `CurveEvent.branches`.

    Events are located along the curve by bisection to 1e-12 of a step. Step lengths follow the curvature and the reach of the coordinates
    (`State.scale`), so that units do not matter. No forces act, and time is constant.

    Args:
        system: the system, with holonomic constraints and one degree of freedom when the input is not driven.
        state: one assembled pose on the curve. A velocity, if it has one, selects the direction in which to start and, at a branch point, the
            branch; otherwise the curve starts in the direction in which the input grows.
        input: name of a joint coordinate, of a coordinate of the system, or of a driver. A driver of the input is switched off; others keep
            their values at `state.t`.
        watch: names of other coordinates whose values and limit positions you want.
        between: least and largest value of the input, at which the curve ends; if None it is followed as far as it leads.
        step: the largest step, in parts of what coordinates reach while the mechanism turns by some 50°.
        max_points: number of poses after which it ends, each way.
        formulation: gives metric and cut-off; `GaussProjection()` by default.

    Returns:
        A `MotionCurve`. Whether it closes is decided by the poses of bodies for a mechanism, and by the values of the coordinates for a
        system of functions.

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
    expect_concrete(system=system, state=state)
    formulation = formulation_at(formulation, system, state)
    full, pose = apply_mode(system, state)
    active, coordinate = release_input(full, input)
    names = tuple(dict.fromkeys((coordinate, *watch)))
    fns = [coordinate_of(full, name) for name in names]
    path = TracedMechanism(
        system=at_instant(full, pose.t, active),
        formulation=formulation,
        t=pose.t,
        scale=pose.scale,
        watched=tuple(fn for fn, _ in fns),
        wraps=tuple(wraps for _, wraps in fns),
        limits=as_floats((-np.inf, np.inf) if between is None else between),
        step=as_floats(step),
    )
    path = dataclasses.replace(path, limits=_limits(path, pose))
    path, pose = strong(path), strong(pose)
    follow = lambda way: _trace(path, pose, as_floats(way), max_points)
    # A curve that returns to its start has been followed as a whole; an open one is followed the other way, too.
    ahead, freedom, fits = follow(1.0)
    _check_start(freedom, bool(fits), bool(np.any(np.asarray(pose.v))), input)
    walks = [ahead] if int(ahead.status) == CLOSED else [follow(-1.0)[0], ahead]
    return _join_walks(state, path, names, walks)


def _join_walks(state: State, path: TracedMechanism, names: tuple[str, ...], walks: list[_Walk]) -> MotionCurve:
    """The curve of one walk, or of one back, turned round, and one ahead."""
    cut = [jax.tree.map(lambda x, w=w: np.asarray(x)[: int(w.count) + 1], (w.points, w.happened)) for w in walks]
    ends = [ENDS[int(w.status)] for w in walks]
    if len(cut) == 2:
        back = jax.tree.map(lambda x: x[:0:-1], cut[0])
        back = eqx.tree_at(lambda x: x[0].v, back, -back[0].v)
        start, (points, happened) = len(back[1]), jax.tree.map(lambda a, b: np.concatenate([a, b]), back, cut[1])
    else:
        start, (points, happened) = 0, cut[0]
    repeated: State = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(happened), *jnp.shape(x))), state)
    states = dataclasses.replace(repeated, q=jnp.asarray(points.q), v=jnp.asarray(points.v))
    kinds = [("dead centre" if name == names[0] else "limit position", name) for name in names] + [("branch point", "")]
    stationary = np.abs(points.rates) <= STATIONARY * points.steepest
    happened = happened[:, : len(kinds)].copy()
    # Events lie between two points: whether one lies at the start itself no step has told. What never moves does not turn back.
    happened[start] = [*(stationary[start] & ~stationary.all(axis=0)), points.gap[start] <= VANISHING]
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
        _event(curve, kind, name, i, path)
        for i in range(len(happened))
        for (kind, name), here in zip(kinds, happened[i], strict=True)
        if here
    ]
    return dataclasses.replace(curve, events=tuple(events))


def _event(curve: MotionCurve, kind: str, name: str, index: int, path: TracedMechanism) -> CurveEvent:
    state: State = jax.tree.map(lambda x: x[index], curve.states)
    values = {name: x[index] for name, x in curve.values.items()}
    met = None
    if kind == "branch point":
        inner = branches(path.system, dataclasses.replace(state, mode=None))
        repeated: State = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(inner.v), *jnp.shape(x))), state)
        met = dataclasses.replace(repeated, v=inner.v)
    return CurveEvent(kind=kind, name=name, index=index, state=state, values=values, branches=met)


# Refusals


def _limits(path: TracedMechanism, state: State) -> Float[Array, "2"]:
    """The limits of the input (2,), with the start between them or, but for rounding, at one of them."""
    value, (low, high) = float(path.read(state.q)[0]), np.asarray(path.limits)
    slack = AT_LIMIT * max(abs(value), high - low if np.isfinite(high - low) else 0)
    if not low - slack <= value <= high + slack or low == high:
        raise ValueError(
            f"Argument `between` must hold the least and the largest value of the input, with that of the start, {value:.6g}, between "
            f"them, but is {low:.6g} and {high:.6g}."
        )
    return as_floats([min(low, value), max(high, value)])


def _check_start(freedom: Array, fits: bool, moving: bool, input: str) -> None:
    here, nearby = (int(x) for x in freedom)
    if nearby != 1:
        raise ValueError(
            f"Argument `system` must have one degree of freedom when '{input}' is not driven, but has {nearby}: hold the others by "
            "drivers, or release what holds the input. `diagnose` tells more."
        )
    if not fits and moving:
        raise ValueError(
            "Argument `state` must have a velocity along the curve, or none, but has one that leads off it."
        )
    if not fits:
        raise ValueError(
            "Argument `state` must have a velocity along one of the branches that meet at its pose, where the mechanism has "
            f"{here} degrees of freedom, but has none: take one of `jaxmb.kinematics.branches(system, state)`."
        )
