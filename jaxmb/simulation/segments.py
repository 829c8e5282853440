"""A run through events: from one to the next, and a transition there."""

import dataclasses
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
from .guard import Bisection, Guard
from .judgement import verdict
from .method import Method
from .phase import Phase, PhaseInputs, Phases
from .regular import regular_if_possible
from .state_vector import StateVector
from .vector_field import VectorField


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


class Segment(eqx.Module):
    """The record carried from one segment to the next.

    `due` is the mask (g,) of the events that act next. The saved states of all times that have been reached have the mode of their segment.
    """

    t: Array
    y: StateVector
    mode: Mode
    due: Bool[Array, " g"]
    result: RESULTS
    count: Array
    done: Array
    saved: StateVector
    modes: Mode


class Run(eqx.Module):
    """The parts of a run that do not change at events."""

    plan: Plan
    drift: AbstractDrift
    loop: FeedbackLoop | None
    scale: Scale
    method: Method
    max_events: int = eqx.field(static=True)

    def field(self, mode: Mode, consistent: Bool[Array, ""], t: Array, y: StateVector) -> VectorField:
        """The problem in a mode."""
        system = self.plan.system.in_mode(mode)
        terms = lax.stop_gradient(rows_at(system, t, y.q, self.scale.row))
        formulation = self.plan.formulation
        choice = formulation.choose(terms)
        return VectorField(
            system=system,
            formulation=formulation,
            drift=self.drift,
            loop=self.loop,
            scale=self.scale,
            consistent=consistent,
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

    def due(
        self,
        field: VectorField,
        mode: Mode,
        t: Array,
        y: StateVector,
        fresh: Bool[Array, " m"],
        advanced: Bool[Array, ""],
    ) -> tuple[Bool[Array, " g"], Mode]:
        """Mask (g,) of the events that act now, and the mode with the events that are armed again."""
        # Without guards nobody reads the rates: the vector field is not part of the program then.
        in_use, flow = None, y
        if self.plan.guarded:
            in_use = field.independent(t, y)
            flow = self.flow(field, t, y, in_use)
        plan, mode, t, y, scale = lax.stop_gradient((self.plan, mode, t, y, self.scale))
        state, u = State(t, y.q, y.v, scale), field.inputs(t, y, in_use)
        due, again = plan.due(mode, state, u, (flow.q, flow.v), in_use, fresh, advanced)
        return due, dataclasses.replace(mode, armed=again.armed)

    def body(self, segment: Segment, ts: Array, end: Array) -> tuple[Segment, Any]:
        """The transition that is due, and the motion to the next one."""
        before = segment.mode.active
        segment, record = self._transition(segment)
        t, y, mode = segment.t, segment.y, segment.mode
        consistent = segment.result == RESULTS.successful
        field = self.field(mode, consistent, t, y)
        y = field.after_sample(t, y, field.independent(t, y))
        due, armed = self.due(field, mode, t, y, mode.active & ~before, jnp.array(False))
        mode = dataclasses.replace(mode, armed=armed.armed)
        # A scan has a fixed number of turns: one with nothing to do, or with a transition due at once, is a motion of no length.
        until = jnp.where(segment.done | jnp.any(due) | ~consistent, t, self.plan.next_time(t, mode, end))
        motion = self._motion(field, mode, t, until, y, ts)
        by_guard = motion.result == dfx.RESULTS.event_occurred
        completed = by_guard | (motion.result == dfx.RESULTS.successful)
        reached = jnp.where(by_guard, motion.t, until)
        last = tree_where(completed, motion.y, y)
        guard_due = jnp.zeros_like(due)
        if self.plan.guarded:
            # Diffrax finds the time on the interpolation, which errs by more than the steps do.
            located_time, located_state, which = self._locate(field, mode, reached, last)
            by_guard &= jnp.any(which)
            reached, guard_due = jnp.where(by_guard, located_time, reached), by_guard & which
            last = tree_where(by_guard, located_state, last)
        result: PyTree = RESULTS.where(~completed & consistent, verdict(motion, consistent), segment.result)
        # Times from here on; later segments overwrite what they reach.
        remaining = (ts >= t) & ~segment.done
        fill = lambda new, old: jnp.where(remaining.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)
        valid = lambda x: jnp.isfinite(x) & consistent & ((ts <= reached).reshape((-1,) + (1,) * (x.ndim - 1)))
        # Diffrax leaves infinity at times that were not reached: it is masked before anything is differentiated.
        reached_states = jax.tree.map(lambda x: jnp.where(valid(x), x, jnp.nan), motion.ys)
        due, armed = self.due(field, mode, reached, last, jnp.zeros_like(before), reached - t > 2 * self.plan.instant)
        due |= guard_due
        # What is due at the very end is seen to by one more segment.
        at_end = (reached >= end) & ~jnp.any(due)
        segment = dataclasses.replace(
            segment,
            t=reached,
            y=last,
            mode=dataclasses.replace(mode, armed=armed.armed),
            due=due,
            result=result,
            done=segment.done | at_end | (result != RESULTS.successful),
            saved=jax.tree.map(fill, reached_states, segment.saved),
            modes=jax.tree.map(fill, mode, segment.modes),
        )
        return segment, (record, motion.record)

    def _transition(self, segment: Segment) -> tuple[Segment, Any]:
        """The transition that is due, if any, and its record."""
        t, y, old = segment.t, segment.y, segment.mode
        consistent = segment.result == RESULTS.successful
        field = self.field(old, consistent, t, y)
        due = segment.due & ~segment.done
        # The record has room for so many; a transition that could not be recorded is not made.
        exhausted = jnp.any(due) & (segment.count >= self.max_events)
        due &= ~exhausted
        acts = jnp.any(due)
        jump = self.plan.jump(old, t, y.q, y.v, self.scale, due, field.inputs(t, y))
        chosen = lambda a, b: tree_where(acts, a, b)
        mode = chosen(jump.mode, old)
        control = None if self.loop is None else y.control
        # What an impact takes is work done by the system: T + V minus the work stays constant.
        new, after = StateVector.of(jump.q, jump.v, y.work - jump.loss, control), self.field(mode, consistent, t, y)
        # By the rows of the mode after: those that begin to act hold to the tolerance of `fitting` only.
        new = after.correct(t, new, after.independent(t, new))
        before, y = State(t=t, q=y.q, v=y.v, scale=self.scale, mode=old, control=control), chosen(new, y)
        fits = jump.mismatch <= fitting(t.dtype)
        result: PyTree = segment.result
        for happened, what in (
            (exhausted, RESULTS.events_exhausted),
            (acts & (jump.result != RESULTS.successful), jump.result),
            (acts & ~fits, RESULTS.position_mismatch),
        ):
            result = RESULTS.where(happened, what, result)
        after = State(t=t, q=y.q, v=y.v, scale=self.scale, mode=mode, control=control)
        record = (acts, t, due, before, after, jump.impulses, jump.loss, jump.doubtful)
        return dataclasses.replace(segment, y=y, mode=mode, result=result, count=segment.count + acts), record

    def _motion(self, field: VectorField, mode: Mode, t: Array, until: Array, y: StateVector, ts: Array) -> Phase:
        """The motion in one mode, ended by a guard that reaches zero; all times within it are saved."""
        event = None
        if self.plan.guarded:
            instant = self.plan.instant
            guard = Guard(eqx.tree_at(lambda p: p.system, self.plan, None), mode, t + 2 * instant)
            # Rising zeros only: with either direction a guard would act again as it leaves zero after its transition.
            event = dfx.Event(guard, Bisection(1e-15, 1e-6 * instant), direction=True)
        field = regular_if_possible(self.method, field, t, y)
        within = jnp.where(ts < t, t, jnp.where(ts > until, until, ts))  # derivatives are those of `ts` at both ends
        return integrate(PhaseInputs(field, t, until, y, within), self.method, event, one_of_many=True)

    def _locate(
        self, field: VectorField, mode: Mode, t: Array, y: StateVector
    ) -> tuple[Array, StateVector, Bool[Array, " g"]]:
        """Time and state of an event, without the interpolation's error, by a Newton step along the motion; which guard.

        No guard if the motion has ended only because one has left zero.
        """
        in_use = field.independent(t, y)
        raw, y = y, field.correct(t, y, in_use)
        flow = self.flow(field, t, y, in_use)
        step = 100 * self.plan.instant
        perturbed = lambda h: (t + h, y.plus(flow, h))
        # A central difference for the speed, a plain number: guards are differentiated through `here` alone.
        states = (t, y), perturbed(step), perturbed(-step), (t, raw)
        guards = lambda s: self.plan.guards_in_run(
            field.system, mode, field.state(*s), field.inputs(s[0], s[1], in_use), in_use
        )[0]
        # A loop: guards are large.
        here, ahead, behind, uncorrected = lax.map(guards, jax.tree.map(lambda *x: jnp.stack(x), *states))
        first = jnp.argmax(here)
        speed = (ahead - behind)[first] / (2 * step)
        # A guard that does not rise leads nowhere: infinity makes the move zero, where a quotient by zero would be NaN in derivatives.
        pace = lax.stop_gradient(jnp.where(speed > 0, speed, jnp.inf))
        wait, short = -here[first] / pace, lax.stop_gradient(jnp.clip(-here[first] / pace, -step, step))
        t, y = perturbed(short + wait - lax.stop_gradient(wait))  # the event's time has its derivative from here
        which = jnp.arange(here.shape[0]) == first
        if any(self.plan.waits):
            which &= uncorrected[first] >= -jnp.abs(speed) * self.plan.instant
        return t, field.correct(t, y, in_use), which


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


def _unless_done(body: Callable[[Segment], tuple[Segment, Any]], like: Segment) -> Callable[..., tuple[Segment, Any]]:
    """The body of a scan over segments that costs nothing once all runs of a batch are over; records are zero then."""
    # Traced once, for the structure of its results too.
    traced: Any = eqx.filter_closure_convert(body, like)
    records = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), traced.out_struct[1])
    return lambda segment, _: lax.cond(
        eqxi.unvmap_all(segment.done), lambda s: (s, records), lambda s: traced(s), segment
    )


def run_through(
    run: Run, state: State, ts: Float[Array, " T"], end: Float[Array, ""], consistent: Bool[Array, ""]
) -> tuple[Segment, Events, Phases, Array | None]:
    """All segments: the last one, the events, the records of the phases, and the inputs (T, nu) at saved times.

    The saved states of the last segment are corrected, and NaN at times that were not reached.
    """
    mode: PyTree = state.mode
    # A start that is refused takes no step, but is evaluated: made finite, it cannot spoil the derivatives of other rows of a batch.
    start: PyTree = jax.tree.map(lambda x: jnp.where(consistent, x, 0), initial_state(run.loop, state))
    everywhere = lambda x: jnp.broadcast_to(x, (ts.shape[0], *x.shape))
    nowhere = jax.tree.map(lambda x: jnp.full((ts.shape[0], *x.shape), jnp.nan, x.dtype), start)
    successful: PyTree = RESULTS.successful
    result: PyTree = RESULTS.where(consistent, successful, RESULTS.inconsistent_state)
    no_event, max_events = jnp.zeros(len(run.plan.names), bool), run.max_events
    first = Segment(
        t=state.t,
        y=start,
        mode=mode,
        due=no_event,
        result=result,
        count=jnp.array(0),
        done=~consistent,
        saved=nowhere,
        modes=jax.tree.map(everywhere, mode),
    )
    # Beside one for each instant at which anything happens: the first, the last, and those in which a guard leaves zero.
    count = (2 if any(run.plan.waits) else 1) * max_events + 2
    last, (record, phases) = lax.scan(_unless_done(lambda s: run.body(s, ts, end), first), first, None, length=count)
    unfinished = ~last.done & (last.result == RESULTS.successful)
    last = dataclasses.replace(last, result=RESULTS.where(unfinished, RESULTS.events_exhausted, last.result))

    corrected = lambda t, y, mode: finished(run.field(mode, consistent, t, y.where(y.finite, start)), t, y, start)
    saved, u = at_each(run.loop, corrected, ts, last.saved, last.modes)
    occurred, *record = record
    # Turns without an event have records too: they are sent beyond the end.
    slots = jnp.where(occurred, jnp.cumsum(occurred) - 1, max_events)  # in order, the others dropped
    entry = lambda x, none: jnp.full((max_events, *x.shape[1:]), none, x.dtype).at[slots].set(x, mode="drop")
    blank = lambda x: entry(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else False)
    t, due, before, after, impulses, loss, doubtful = jax.tree.map(blank, tuple(record))
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
