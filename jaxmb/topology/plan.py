"""The events of a run, resolved for a system."""

import dataclasses
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..kinematics import nearest
from ..system import Mode, Scale, State, System, position_residual
from .change import Change
from .context import EventContext, rounding
from .event import AbstractEvent, Occurrence
from .jump import Jump, energy_loss, impulse_terms, jump_result
from .reactions import ConstraintReactions, acceleration_and_multipliers

Scalar = Float[Array, ""]
# By which positions come onto constraints that begin to act.
MOVES = 12


class Plan(eqx.Module):
    """The events of a run of a system.

    Attributes:
        system: without modes.
        formulation: of the run, which also solves for impulses and for the reactions that guards read.
        events: the events.
        instant: time in s within which events count as simultaneous; guards are evaluated so much before and after.
        creep: speeds (k,) below which the motion of a lock is rounding.
        mobility: s̈ (k,) of each lock by a unit of force along it, constraints aside, at the start.
        names: of all occurrences, those of `occurrences` in order.
        reads: for each occurrence the constraints whose reactions its guard reads.
    """

    system: System
    formulation: AbstractFormulation
    events: tuple[AbstractEvent, ...]
    instant: Scalar
    creep: Float[Array, " k"]
    mobility: Float[Array, " k"]
    names: tuple[str, ...] = eqx.field(static=True, default=())
    reads: tuple[tuple[str, ...], ...] = eqx.field(static=True, default=())

    @property
    def occurrences(self) -> list[tuple[AbstractEvent, Occurrence]]:
        """All that may happen, with its event: first the events themselves, then their further effects."""
        # Events come first, so that masks by event are the first entries of those by occurrence.
        each = [[(e, h) for h in (Occurrence("", e.guard, e.apply), *e.secondary)] for e in self.events]
        return [pair for nth in itertools.zip_longest(*each) for pair in nth if pair is not None]

    @property
    def guarded(self) -> bool:
        """Whether anything happens otherwise than at a known time."""
        return any(e.when is not None or e.secondary for e in self.events)

    @property
    def waits(self) -> tuple[bool, ...]:
        """Which of the events, when they have happened, wait until their guard has left zero before they may happen again."""
        return tuple(e.waits for e in self.events)

    def context(self, mode: Mode, state: State, u: Array | None) -> EventContext:
        """The context of events at a state without mode, with inputs u (nu,)."""
        return self._context(self.system.in_mode(mode), mode, state, u)

    def _context(
        self, system: System, mode: Mode, state: State, u: Array | None, in_use: Bool[Array, " m"] | None = None
    ) -> EventContext:
        # One solution of the equations of motion serves v̇ and all multipliers, and none is made where no guard reads them: it costs as
        # much as a stage.
        motion = functools.cache(lambda: acceleration_and_multipliers(self.formulation, system, state, u, in_use))
        reaction = ConstraintReactions(system.rows, lambda: motion()[1])
        yielding = tuple(name for e in self.events if e.secondary for name in e.acts_on)
        more = lambda: motion()[0], reaction, self.creep, self.mobility, yielding
        return EventContext(system, self.formulation, mode, state, self.instant, *more)

    def sized(self, mode: Mode, state: State, speeds: Float[Array, " nv"], root: Float[Array, "nv nv"]) -> "Plan":
        """The plan with `creep` and `mobility` for a run from a state without mode, whose velocities have the sizes `speeds`; RᵀR = M⁻¹ of `root` R."""
        plan, mode, state, speeds, root = lax.stop_gradient((self, mode, state, speeds, root))
        context = plan.context(mode, state, None)
        # A new context for each v, as one keeps the rates that it has computed. Sizes are by speeds of the run: ṡ itself is zero where
        # rounding is asked about.
        rows = jax.jacfwd(lambda v: dataclasses.replace(context, state=dataclasses.replace(context.state, v=v)).rates)(
            state.v
        )
        creep, mobility = rounding(speeds.dtype) * jnp.abs(rows) @ speeds, jnp.sum((rows @ root.T) ** 2, axis=1)
        return dataclasses.replace(self, creep=creep, mobility=mobility)

    # Times and guards

    def next_time(self, t: Scalar, mode: Mode, end: Scalar) -> Scalar:
        """The next known time, or the end."""
        # A time that is not later than t is due already, and its transition comes first.
        for i, event in enumerate(self.events):
            if event.at is not None:
                end = jnp.where(mode.armed[i] & (event.at > t) & (event.at <= end), event.at, end)
        return end

    def guards(self, context: EventContext) -> Float[Array, " g"]:
        """The guards (g,) of all occurrences, which happen where these rise to zero; −1 for those that cannot happen."""
        dtype = context.state.q.dtype
        values = jnp.stack([jnp.asarray(occurrence.guard(context), dtype) for _, occurrence in self.occurrences])
        count = len(self.events)
        return values.at[:count].set(jnp.where(self._able(context), values[:count], -1))

    def guards_in_run(
        self, system: System, mode: Mode, state: State, u: Array | None, in_use: Bool[Array, " m"]
    ) -> tuple[Float[Array, " g"], Float[Array, " g"], Bool[Array, ""]]:
        """The guards, the same with −1 for events that wait, and whether one of these has left zero.

        Args:
            system: in the mode.
            mode: the mode.
            state: time, coordinates and velocities.
            u: inputs.
            in_use: the independent rows.
        """
        context, count = self._context(system, mode, state, u, in_use), len(self.events)
        values, waiting = self.guards(context), jnp.array(self.waits) & self._able(context) & ~mode.armed
        # An event is armed between two stretches only, as the mode is constant within one: the run is told to end the stretch.
        departed = jnp.any(waiting & (values[:count] < 0))
        return values, values.at[:count].set(jnp.where(waiting, -1, values[:count])), departed

    def due(
        self,
        mode: Mode,
        state: State,
        u: Array | None,
        before: Float[Array, " g"] | None,
        after: Float[Array, " g"] | None,
        fresh: Bool[Array, " m"],
        in_motion: Bool[Array, ""],
    ) -> tuple[Bool[Array, " g"], Mode]:
        """Mask (g,) of the occurrences that are due now, and the mode with the events that are armed again.

        Known times that have come, and guards that are at zero and do not fall, or are beyond it; see `at_zero` of an event.

        Args:
            mode: the mode.
            state: time, coordinates and velocities.
            u: inputs.
            before: guards an instant before: at the time itself they are zero but for rounding of either sign,
            after: and one after; None without guards.
            fresh: rows that have just begun to act.
            in_motion: whether the state was reached by a motion.
        """
        count, occurrences = len(self.events), self.occurrences
        timed = [
            jnp.array(False) if e.at is None else mode.armed[i] & (e.at <= state.t) for i, e in enumerate(self.events)
        ]
        due = jnp.stack(timed + [jnp.array(False)] * (len(occurrences) - count))
        if before is None or after is None:
            return due, mode
        # After a jump the point before the instant is an extrapolation backwards, of a motion that did not take place: a guard has left
        # zero there only if a motion led up to it.
        ready = jnp.ones_like(due)
        if any(self.waits):
            context = self.context(mode, state, u)
            departed = ((after < 0) | (in_motion & (before < 0)))[:count] | self._read_anew(context, fresh)
            armed = jnp.where(jnp.array(self.waits), self._able(context) & (mode.armed | departed), mode.armed)
            mode, ready = dataclasses.replace(mode, armed=armed), ready.at[:count].set(armed)
        # A guard that falls through zero does not happen; one that is beyond zero on both sides does, whichever way it goes.
        zero = jnp.array([i >= count or e.at_zero for i, (e, _) in enumerate(occurrences)])
        there = (after > 0) | (zero & (after >= 0))
        return due | (ready & there & ((after >= before) | (before > 0))), mode

    def _able(self, context: EventContext) -> Bool[Array, " e"]:
        """Which events may happen: those that are armed, and those that wait or may, if they would change anything."""
        armed = context.mode.armed
        return jnp.stack([e.able(context) if e.waits else armed[i] for i, e in enumerate(self.events)])

    def _read_anew(self, context: EventContext, fresh: Bool[Array, " m"]) -> Bool[Array, " e"]:
        """Which guards read the reactions of constraints that have just begun to act."""
        return jnp.stack([jnp.any(fresh & context.rows(names)) for names in self.reads[: len(self.events)]])

    # Transitions

    def jump(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, due: Bool[Array, " g"], u: Array | None
    ) -> Jump:
        """The mode and the state after all occurrences that are due, in one transition."""
        context = self.context(mode, State(t, q, v, scale), u)
        change = self.change(context, due)
        q, off = self.assembled_positions(change, context)
        acting, state = change.impulsive, State(t, q, v, scale)
        terms = impulse_terms(self.system.in_mode(acting), state, change.impulse, change.restitution, change.consistent)
        solution = self.formulation.acceleration(terms)
        after = v + solution.vdot
        # For decisions only: what holds, or slips, has no derivative.
        plan, next_mode, next_state, inputs = lax.stop_gradient((self, change.mode, State(t, q, after, scale), u))
        there = plan.context(next_mode, next_state, inputs)
        # The mode differs from here on, velocities do not.
        for event in self.events:
            change = event.resolve(change, context, there)
        return Jump(
            mode=change.mode,
            q=q,
            v=after,
            impulses=jnp.where(acting.active, solution.multipliers, 0),
            loss=energy_loss(self.system.mass(t, q), v, solution.vdot, scale),
            mismatch=jnp.max(lax.stop_gradient(off), initial=0),
            doubtful=change.doubtful,
            result=jump_result(terms, v, solution.vdot, solution.result),
        )

    def assembled_positions(
        self, change: Change, context: EventContext
    ) -> tuple[Float[Array, " nq"], Float[Array, " m"]]:
        """The positions, moved onto constraints that are to be assembled, and |φ/Φ| of those that begin to act."""
        acting, state = change.acting, context.state
        system, q = self.system.in_mode(acting), state.q
        # Known when the program is traced: without such events it contains no correction.
        if any(event.assembles for event in self.events):
            # Positions may be far off, and rows that are dependent at the start need not be so on the way.
            assembled = nearest(system, state.t, q, state.scale, self.formulation.rank_tol, (), MOVES)
            q = jnp.where(jnp.any(change.assembled), assembled, q)
        # Rows that acted before are kept closed by the run; only new ones can fail to fit.
        new = acting.active & ~context.mode.active
        return q, jnp.where(new, jnp.abs(position_residual(system, state.t, q)) / state.scale.span, 0)

    def change(self, context: EventContext, due: Bool[Array, " g"]) -> Change:
        """The change by all occurrences that are due, in their order."""
        change = Change.none(context.mode, context.state)
        for i, (event, occurrence) in enumerate(self.occurrences):
            new = occurrence.apply(change, context).doubt(context.arbitrary(self.reads[i]))
            new = dataclasses.replace(new, consistent=new.consistent & event.consistent)
            change = new.where(due[i], change)
        for event in self.events:
            change = event.reconcile(change, context)
        # Held at once, so that their rows have a reaction when `resolve` asks for it.
        change = change.hold(change.stuck, context.values)
        # An event that has happened is disarmed, one that repeats until its guard has left zero. A rebound turns its guard round at once:
        # disarming it would miss the next contact.
        rebounds = change.hit & (change.restitution > 0)
        again = [e.repeat & (~jnp.array(e.waits) | jnp.any(rebounds & context.rows(e.acts_on))) for e in self.events]
        mode = dataclasses.replace(
            change.mode, armed=change.mode.armed & ~(due[: len(self.events)] & ~jnp.array(again, bool))
        )
        return dataclasses.replace(change, mode=mode)
