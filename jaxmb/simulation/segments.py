"""A run through events: from one to the next, and a transition there."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..foundations import RESULTS, TextInNotebooks, counted, tree_where
from ..system import Mode, Scale, State, rows_at
from ..topology import Plan, fitting
from .adjoint import integrate
from .drift import AbstractDrift
from .engine import compiled_step_of
from .feedback import FeedbackLoop, breaks_of, initial_state
from .guard import Guard, guards_at
from .judgement import verdict
from .method import Method
from .phase import Phase, PhaseInputs, Phases
from .regular import regular_if_possible
from .state_vector import StateVector
from .vector_field import VectorField

# The stages of a segment in their order; the last one only where there are guards.
TRANSITION, MOTION, LOCATION = range(3)
# So many instants an event may be off that was found on the interpolation of a step.
LOCATED = 100


class Events(TextInNotebooks, eqx.Module):
    """What happened during a run, in order; entries beyond `count` have t = NaN.

    Attributes:
        names: of all that may happen.
        count: number of instants (at most N = `max_events`).
        t: times (N,) in s.
        happened: mask (N, g): what happened at each.
        before: states just before (N,).
        after: states just after (N,).
        impulses: impulsive multipliers Λ by constraint name (N, k), zero where a constraint does not act.
        loss: kinetic energy lost (N,), in J.
        doubtful: whether (N,) a guard or a brake decided by a reaction that a rigid model does not determine.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    count: Int[Array, "..."]
    t: Float[Array, "... N"]
    happened: Bool[Array, "... N g"]
    before: State
    after: State
    impulses: dict[str, Float[Array, "... N k"]]
    loss: Float[Array, "... N"]
    doubtful: Bool[Array, "... N"]

    def what(self, i: int) -> tuple[str, ...]:
        """Names of what happened at one instant of a single run."""
        return tuple(name for name, happened in zip(self.names, self.happened[i], strict=True) if happened)

    def __str__(self) -> str:
        if self.count.ndim:
            counts = np.asarray(self.count)
            return f"from {counts.min()} to {counts.max()} instants of events in each of {counted(counts.size, 'run')}"
        lines = ["t in s        energy lost in J   what"]
        losses = np.asarray(self.loss)[: int(self.count)]
        # Beside the largest one rounding is no loss, and a zero has no sign.
        losses = np.where(np.abs(losses) > np.finfo(losses.dtype).eps * np.abs(losses).max(initial=0), losses, 0.0)
        for i, loss in enumerate(losses):
            doubt = "   (by a reaction that is not determined)" if self.doubtful[i] else ""
            lines.append(f"{float(self.t[i]):<14.9g}{loss:>16.6g}   {', '.join(self.what(i))}{doubt}")
        return "\n".join(lines)


class Sight(eqx.Module):
    """What is seen at a state, by which events are located and found to be due.

    Attributes:
        in_use: the independent rows (m,).
        y: the state on the constraints.
        flow: its rates, like all that follow without derivatives.
        guards: all guards (4, g) a little before it and a little after, at y, and at the state as the motion has left it.
        in_run: the same with −1 for events that wait.
    """

    in_use: Bool[Array, " m"]
    y: StateVector
    flow: StateVector
    guards: Float[Array, "4 g"]
    in_run: Float[Array, "4 g"]


class Segment(eqx.Module):
    """The record carried from one stage of a run to the next.

    Attributes:
        t: the time that has been reached.
        y: the state there.
        mode: which rows act.
        since: the time at which the last motion began; t itself after a transition.
        fresh: the rows (m,) that began to act with this stage.
        displaced: whether this stage has changed the state otherwise than by a motion, so that it must be corrected.
        due: mask (g,) of the events that act next.
        by_guard: whether a guard has ended the last motion.
        result: of the run so far.
        count: how many transitions there were.
        done: whether the run is over.
        saved: the states at all given times; those that have been reached have the mode of their segment.
        modes: these modes.
        sight: what was seen after the stage before; None without guards.
    """

    t: Array
    y: StateVector
    mode: Mode
    since: Array
    fresh: Bool[Array, " m"]
    displaced: Bool[Array, ""]
    due: Bool[Array, " g"]
    by_guard: Bool[Array, ""]
    result: RESULTS
    count: Array
    done: Array
    saved: StateVector
    modes: Mode
    sight: Sight | None

    @property
    def consistent(self) -> Bool[Array, ""]:
        """Whether nothing has gone wrong so far."""
        return self.result == RESULTS.successful


class Run(eqx.Module):
    """A run through events: stages, in turn a transition, the motion to the next one, and the location of that.

    After each of them the state is looked at in the same way. Guards and corrections are large: so they stand in a program once.
    """

    plan: Plan
    drift: AbstractDrift
    loop: FeedbackLoop | None
    scale: Scale
    method: Method
    max_events: int = eqx.field(static=True)
    ts: Float[Array, " T"]
    end: Float[Array, ""]

    @property
    def stages(self) -> list[Callable[[Segment], tuple[Segment, Any]]]:
        """The stages of a segment, each of which returns a record besides."""
        return [self.transition, self.motion, *([self.location] if self.plan.guarded else [])]

    def field(self, segment: Segment) -> VectorField:
        """The problem in the mode of a segment."""
        system = self.plan.system.in_mode(segment.mode)
        terms = lax.stop_gradient(rows_at(system, segment.t, segment.y.q, self.scale.row))
        formulation = self.plan.formulation
        choice = formulation.choose(terms)
        return VectorField(
            system=system,
            formulation=formulation,
            drift=self.drift,
            loop=self.loop,
            scale=self.scale,
            consistent=segment.consistent,
            choice=choice,
            interrupted=bool(breaks_of(system, self.loop)),
        )

    def flow(self, field: VectorField, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> StateVector:
        """The vector field, without derivative: for decisions."""
        field, t, y = lax.stop_gradient((field, t, y))
        step = compiled_step_of(self.method, field, y)
        if step is not None:
            return step.rate(t, y, in_use)
        return field.with_choice(field.choice).evaluate_regular(t, y, in_use)[0]

    def look(self, segment: Segment, stage: Array) -> Segment:
        """The segment after a stage: its state on the constraints, and what is due there."""
        t, mode, last = segment.t, segment.mode, stage == (LOCATION if self.plan.guarded else MOTION)
        # Before an event is located it is seen from the constraints, while the state stays as the motion has left it.
        unlocated = (stage == MOTION) & ~last
        field = self.field(segment)
        in_use = field.independent(t, segment.y)
        # By the rows of the mode after a transition: those that begin to act hold to the tolerance of `fitting` only.
        y = tree_where(segment.displaced | unlocated, field.correct(t, segment.y, in_use), segment.y)
        if field.takes_samples:
            y = lax.cond(stage == TRANSITION, lambda: field.after_sample(t, y, in_use), lambda: y)
        sight = self._sight(field, segment, y, in_use, unlocated) if self.plan.guarded else None
        before, after = (None, None) if sight is None else sight.guards[:2]
        plan, state = lax.stop_gradient((self.plan, State(t, y.q, y.v, self.scale)))
        in_motion = t - segment.since > 2 * self.plan.instant
        due, armed = plan.due(mode, state, field.inputs(t, y, in_use), before, after, segment.fresh, in_motion)
        due |= segment.due
        # What is due at the very end is seen to by one more segment.
        over = last & (((t >= self.end) & ~jnp.any(due)) | ~segment.consistent)
        y, armed, due = tree_where(unlocated, (segment.y, mode.armed, segment.due), (y, armed.armed, due))
        mode = dataclasses.replace(mode, armed=armed)
        return dataclasses.replace(segment, y=y, mode=mode, due=due, done=segment.done | over, sight=sight)

    def _sight(
        self,
        field: VectorField,
        segment: Segment,
        y: StateVector,
        in_use: Bool[Array, " m"],
        unlocated: Bool[Array, ""],
    ) -> Sight:
        t, flow = segment.t, self.flow(field, segment.t, y, in_use)
        # At an event guards are zero but for rounding of either sign: they are looked at on both sides.
        width = jnp.where(unlocated, LOCATED, 1) * self.plan.instant
        states = [(t + h, y.plus(flow, h)) for h in (-width, width)]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *states, (t, y), (t, segment.y))
        plan, field, stacked = lax.stop_gradient((self.plan, field, stacked))

        guards = lambda here: guards_at(plan, field, segment.mode, here[0], here[1], in_use)[:2]
        return Sight(in_use, y, flow, *lax.map(guards, stacked))  # a loop: guards are large

    def transition(self, segment: Segment) -> tuple[Segment, Any]:
        """The transition that is due, if any."""
        t, y, old = segment.t, segment.y, segment.mode
        due = segment.due & ~segment.done
        # The record has room for so many; a transition that could not be recorded is not made.
        exhausted = jnp.any(due) & (segment.count >= self.max_events)
        due &= ~exhausted
        acts = jnp.any(due)
        jump = self.plan.jump(old, t, y.q, y.v, self.scale, due, self.field(segment).inputs(t, y))
        control = None if self.loop is None else y.control
        # What an impact takes is work done by the system: T + V minus the work stays constant.
        new, mode = tree_where(acts, (StateVector.of(jump.q, jump.v, y.work - jump.loss, control), jump.mode), (y, old))
        fits = jump.mismatch <= fitting(t.dtype)
        result: PyTree = segment.result
        for happened, what in (
            (exhausted, RESULTS.events_exhausted),
            (acts & (jump.result != RESULTS.successful), jump.result),
            (acts & ~fits, RESULTS.position_mismatch),
        ):
            result = RESULTS.where(happened, what, result)
        before = State(t=t, q=y.q, v=y.v, scale=self.scale, mode=old, control=control)
        segment = dataclasses.replace(
            segment,
            y=new,
            mode=mode,
            since=t,
            fresh=mode.active & ~old.active,
            displaced=acts,
            due=jnp.zeros_like(due),
            result=result,
            count=segment.count + acts,
        )
        return segment, (acts, t, due, before, jump.impulses, jump.loss, jump.doubtful)

    def motion(self, segment: Segment) -> tuple[Segment, Any]:
        """The motion to the next known time or event, and the state in which it begins."""
        t, y, mode, ts, consistent = segment.t, segment.y, segment.mode, self.ts, segment.consistent
        # A scan has a fixed number of turns: one with nothing to do, or with a transition due at once, is a motion of no length.
        idle = segment.done | jnp.any(segment.due) | ~consistent
        until = jnp.where(idle, t, self.plan.next_time(t, mode, self.end))
        motion = self._motion(self.field(segment), mode, t, until, y)
        by_guard = motion.result == dfx.RESULTS.event_occurred
        completed = by_guard | (motion.result == dfx.RESULTS.successful)
        reached = jnp.where(by_guard, motion.t, until)
        # Times from here on; later segments overwrite what they reach.
        remaining = (ts >= t) & ~segment.done
        fill = lambda new, old: jnp.where(remaining.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)
        valid = lambda x: jnp.isfinite(x) & consistent & ((ts <= reached).reshape((-1,) + (1,) * (x.ndim - 1)))
        # Diffrax leaves infinity at times that were not reached: it is masked before anything is differentiated.
        reached_states = jax.tree.map(lambda x: jnp.where(valid(x), x, jnp.nan), motion.ys)
        control = None if self.loop is None else y.control
        start = State(t=t, q=y.q, v=y.v, scale=self.scale, mode=mode, control=control)
        segment = dataclasses.replace(
            segment,
            t=reached,
            y=tree_where(completed, motion.y, y),
            since=t,
            fresh=jnp.zeros_like(segment.fresh),
            displaced=jnp.array(False),
            due=jnp.zeros_like(segment.due),
            by_guard=by_guard,
            result=RESULTS.where(~completed & consistent, verdict(motion, consistent), segment.result),
            saved=jax.tree.map(fill, reached_states, segment.saved),
            modes=jax.tree.map(fill, mode, segment.modes),
        )
        return segment, (start, motion.record)

    def _motion(self, field: VectorField, mode: Mode, t: Array, until: Array, y: StateVector) -> Phase:
        """The motion in one mode, ended by a guard that reaches zero; all times within it are saved."""
        guard = None
        if self.plan.guarded:
            guard = Guard(eqx.tree_at(lambda p: p.system, self.plan, None), mode, t + 2 * self.plan.instant)
        field = regular_if_possible(self.method, field, t, y)
        # Derivatives are those of `ts` at both ends.
        within = jnp.where(self.ts < t, t, jnp.where(self.ts > until, until, self.ts))
        return integrate(PhaseInputs(field, t, until, y, within), self.method, guard, one_of_many=True)

    def location(self, segment: Segment) -> tuple[Segment, None]:
        """The time and state of an event, without the error of the interpolation on which it was found: a Newton step along the motion.

        No event if the motion has ended only because a guard has left zero.
        """
        sight = segment.sight
        assert sight is not None
        behind, ahead, here, uncorrected = sight.in_run
        t, y = segment.t, sight.y
        # Here alone guards are differentiated: elsewhere they may have no finite derivative, as a speed at rest.
        here = _with_derivative(here, (self.plan, self.field(segment), segment.mode, t, y, sight.in_use))
        first = jnp.argmax(here)
        step = LOCATED * self.plan.instant
        speed = (ahead - behind)[first] / (2 * step)
        # A guard that does not rise leads nowhere: infinity makes the move zero, where a quotient by zero would be NaN in derivatives.
        pace = lax.stop_gradient(jnp.where(speed > 0, speed, jnp.inf))
        wait, short = -here[first] / pace, lax.stop_gradient(jnp.clip(-here[first] / pace, -step, step))
        move = short + wait - lax.stop_gradient(wait)  # the event's time has its derivative from here
        which = segment.by_guard & (jnp.arange(here.shape[0]) == first)
        if any(self.plan.waits):
            which &= uncorrected[first] >= -jnp.abs(speed) * self.plan.instant
        occurs = jnp.any(which)
        t, y = tree_where(occurs, (t + move, y.plus(sight.flow, move)), (t, segment.y))
        return dataclasses.replace(segment, t=t, y=y, displaced=occurs, due=which), None


@eqx.filter_custom_jvp
def _with_derivative(guards: Float[Array, " g"], arguments: tuple[Any, ...]) -> Float[Array, " g"]:
    """The second result of `guards_at(*arguments)`, which is known, with its derivative: only programs of derivatives evaluate guards for it."""
    return guards


@_with_derivative.def_jvp
def _guard_rates(primals: PyTree, tangents: PyTree) -> tuple[Array, Array]:
    (_, arguments), (_, dots) = primals, tangents
    return _with_derivative(*primals), eqx.filter_jvp(lambda x: guards_at(*x)[1], (arguments,), (dots,))[1]


def finished(field: VectorField, t: Array, y: StateVector, start: StateVector) -> tuple[StateVector, Array | None]:
    """A saved state, which is interpolated, corrected, and the inputs there; NaN if it was not reached."""
    reached = field.consistent & y.finite
    # States that were not reached are NaN: evaluated there, even a branch that is not taken would make derivatives NaN.
    y = y.where(reached, start)
    in_use = field.independent(t, y)
    y = field.after_sample(t, field.correct(t, y, in_use), in_use)
    return jax.tree.map(lambda x: jnp.where(reached, x, jnp.nan), (y, field.inputs(t, y, in_use)))


def at_each(loop: FeedbackLoop | None, fn: Callable[..., Any], *saved: PyTree) -> Any:
    """`fn` at each saved time: one after the other where a controller needs the plant, whose program is smaller then."""
    if loop is not None and loop.controller.uses_plant:
        return lax.map(lambda each: fn(*each), saved)
    return jax.vmap(fn)(*saved)


def _turns(run: Run, first: Segment) -> Callable[[Segment, Array], tuple[Segment, Any]]:
    """The body of a scan over the stages of all segments, which costs nothing once all runs of a batch are over.

    All stages return the records of each of them, zero but for their own.
    """
    # Traced once, for the structure of their results too.
    traced: list[Any] = [eqx.filter_closure_convert(stage, first) for stage in run.stages]
    zeros = lambda structure: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), structure)
    records = [zeros(stage.out_struct[1]) for stage in traced]

    def branch(k: int, segment: Segment) -> tuple[Segment, list[Any]]:
        segment, record = traced[k](segment)
        return segment, [*records[:k], record, *records[k + 1 :]]

    branches = [functools.partial(branch, k) for k in range(len(traced))] + [lambda segment: (segment, records)]

    def turn(segment: Segment, stage: Array) -> tuple[Segment, list[Any]]:
        # Both are the same for all runs of a batch, so that there too one branch only is taken.
        over = eqxi.unvmap_all(segment.done)
        segment, all_records = lax.switch(jnp.where(over, len(traced), stage), branches, segment)
        # Beside the other choice and not in it: derivatives of choices within choices take long to trace.
        return lax.cond(over, lambda s: s, lambda s: run.look(s, stage), segment), all_records

    return turn


def run_through(run: Run, state: State, consistent: Bool[Array, ""]) -> tuple[Segment, Events, Phases, Array | None]:
    """All segments: the last one, the events, the records of the phases, and the inputs (T, nu) at saved times.

    The saved states of the last segment are corrected, and NaN at times that were not reached.
    """
    mode: PyTree = state.mode
    ts = run.ts
    # A start that is refused takes no step, but is evaluated: made finite, it cannot spoil the derivatives of other rows of a batch.
    start: PyTree = jax.tree.map(lambda x: jnp.where(consistent, x, 0), initial_state(run.loop, state))
    everywhere = lambda x: jnp.broadcast_to(x, (ts.shape[0], *x.shape))
    nowhere = jax.tree.map(lambda x: jnp.full((ts.shape[0], *x.shape), jnp.nan, x.dtype), start)
    successful: PyTree = RESULTS.successful
    result: PyTree = RESULTS.where(consistent, successful, RESULTS.inconsistent_state)
    no_event, false, max_events = jnp.zeros(len(run.plan.names), bool), jnp.array(False), run.max_events
    nothing = jnp.zeros((4, len(run.plan.names)), ts.dtype)
    first = Segment(
        t=state.t,
        y=start,
        mode=mode,
        since=state.t,
        fresh=jnp.zeros_like(mode.active),
        displaced=false,
        due=no_event,
        by_guard=false,
        result=result,
        count=jnp.array(0),
        done=~consistent,
        saved=nowhere,
        modes=jax.tree.map(everywhere, mode),
        sight=Sight(jnp.zeros_like(mode.active), start, start, nothing, nothing) if run.plan.guarded else None,
    )
    # Beside one for each instant at which anything happens: the first, the last, and those in which a guard leaves zero.
    count = (2 if any(run.plan.waits) else 1) * max_events + 2
    stages = jnp.tile(jnp.arange(len(run.stages)), count)
    last, records = lax.scan(_turns(run, first), first, stages)
    of_stage = lambda k: jax.tree.map(lambda x: x[k :: len(run.stages)], records[k])
    (occurred, t, due, before, *jumps), (after, phases) = of_stage(TRANSITION), of_stage(MOTION)
    unfinished = ~last.done & (last.result == RESULTS.successful)
    last = dataclasses.replace(last, result=RESULTS.where(unfinished, RESULTS.events_exhausted, last.result))

    def corrected(t: Array, y: StateVector, mode: Mode) -> tuple[StateVector, Array | None]:
        there = dataclasses.replace(first, t=t, y=y.where(y.finite, start), mode=mode)
        return finished(run.field(there), t, y, start)

    saved, u = at_each(run.loop, corrected, ts, last.saved, last.modes)
    # Turns without an event have records too: they are sent beyond the end.
    slots = jnp.where(occurred, jnp.cumsum(occurred) - 1, max_events)  # in order, the others dropped
    entry = lambda x, none: jnp.full((max_events, *x.shape[1:]), none, x.dtype).at[slots].set(x, mode="drop")
    blank = lambda x: entry(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else False)
    t, due, before, after, impulses, loss, doubtful = jax.tree.map(blank, (t, due, before, after, *jumps))
    rows = run.plan.system.in_mode(mode).rows
    events = Events(
        names=run.plan.names,
        count=last.count,
        t=t,
        happened=due,
        before=before,
        after=after,
        impulses={name: impulses[:, part] for name, part in rows.items()},
        loss=loss,
        doubtful=doubtful,
    )
    return dataclasses.replace(last, saved=saved), events, phases, u
