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
from ..kinematics import corrected
from ..system import Mode, Scale, State, System, position_residual, rows_at
from .change import Change
from .event import AbstractEvent, Happening
from .jump import Jump, impulse_terms, jump_result
from .loads import Loads, accelerated
from .situation import Situation, rounding

Scalar = Float[Array, ""]


class Plan(eqx.Module):
    """The events of a run of a system.

    Attributes:
        system: without modes.
        formulation: of the run; impulses and the reactions that guards read are found by it.
        events: the events.
        instant: time within which events happen at one instant; guards are looked at so much before and after.
        creep: speeds (k,) of locks that are none, but rounding.
        names: of the happenings.
        reads: for each happening the constraints whose reactions its guard reads.
    """

    system: System
    formulation: AbstractFormulation
    events: tuple[AbstractEvent, ...]
    instant: Scalar
    creep: Float[Array, " k"]
    names: tuple[str, ...] = eqx.field(static=True, default=())
    reads: tuple[tuple[str, ...], ...] = eqx.field(static=True, default=())

    @property
    def happenings(self) -> list[tuple[AbstractEvent, Happening]]:
        """All that may happen, with its event: first the events themselves, then what they bring about besides."""
        each = [[(e, h) for h in (Happening("", e.guard, e.apply), *e.further)] for e in self.events]
        return [pair for nth in itertools.zip_longest(*each) for pair in nth if pair is not None]

    @property
    def guarded(self) -> bool:
        """Whether anything happens otherwise than at a known time."""
        return any(e.when is not None or e.further for e in self.events)

    @property
    def waits(self) -> tuple[bool, ...]:
        """Which of the events, when they have happened, wait until their guard has left zero before they may happen again."""
        return tuple(e.waits for e in self.events)

    def here(self, mode: Mode, state: State, u: Array | None) -> Situation:
        """What events see, of a state without mode."""
        system = self.system.in_mode(mode)
        motion = functools.cache(lambda: accelerated(self.formulation, system, state, u))
        reaction = Loads(system.rows, lambda: motion()[1])
        yielding = tuple(name for e in self.events if e.further for name in e.acts_on)
        more = lambda: motion()[0], reaction, self.creep, yielding
        return Situation(system, self.formulation, mode, state, self.instant, *more)

    def sized(self, state: State, speeds: Float[Array, " nv"]) -> "Plan":
        """The plan of a run from a state, whose velocities have such sizes."""
        plan, state, speeds = lax.stop_gradient((self, state, speeds))
        assert state.mode is not None
        here = plan.here(state.mode, dataclasses.replace(state, mode=None), None)
        rows = jax.jacfwd(lambda v: dataclasses.replace(here, state=dataclasses.replace(here.state, v=v)).rates)(
            state.v
        )
        return dataclasses.replace(self, creep=rounding(speeds.dtype) * jnp.abs(rows) @ speeds)

    # When

    def next_time(self, t: Scalar, mode: Mode, end: Scalar) -> Scalar:
        """The next known time, or the end."""
        for i, event in enumerate(self.events):
            if event.at is not None:
                end = jnp.where(mode.armed[i] & (event.at > t) & (event.at <= end), event.at, end)
        return end

    def guards(self, here: Situation) -> Float[Array, " g"]:
        """The guards of all happenings, which happen where these rise to zero; −1 for those that cannot."""
        dtype = here.state.q.dtype
        values = jnp.stack([jnp.asarray(happening.guard(here), dtype) for _, happening in self.happenings])
        count = len(self.events)
        return values.at[:count].set(jnp.where(self._able(here), values[:count], -1))

    def watched(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, u: Array | None
    ) -> tuple[Float[Array, " g"], Bool[Array, ""]]:
        """The guards, with −1 for events that wait, and whether one of these has left zero."""
        here, count = self.here(mode, State(t, q, v, scale), u), len(self.events)
        values, waiting = self.guards(here), jnp.array(self.waits) & self._able(here) & ~mode.armed
        left = jnp.any(waiting & (values[:count] < 0))
        return values.at[:count].set(jnp.where(waiting, -1, values[:count])), left

    def due(
        self,
        mode: Mode,
        state: State,
        u: Array | None,
        flow: tuple[Array, Array],
        fresh: Bool[Array, " m"],
        moved: Bool[Array, ""],
    ) -> tuple[Bool[Array, " g"], Mode]:
        """What happens now, and the mode with the events that are armed again.

        Known times that have come, and guards that are at zero and do not fall, or are beyond it; see `at_zero` of an event.

        Args:
            mode: the mode.
            state: time, coordinates and velocities.
            u: inputs.
            flow: their rates (q̇, v̇).
            fresh: rows that have just begun to act.
            moved: whether the state was reached by a motion.
        """
        count, happenings = len(self.events), self.happenings
        timed = [
            jnp.array(False) if e.at is None else mode.armed[i] & (e.at <= state.t) for i, e in enumerate(self.events)
        ]
        found = jnp.stack(timed + [jnp.array(False)] * (len(happenings) - count))
        if not self.guarded:
            return found, mode
        near = lambda h: State(state.t + h, state.q + h * flow[0], state.v + h * flow[1], state.scale)
        before, after = (self.guards(self.here(mode, near(h), u)) for h in (-self.instant, self.instant))
        ready = jnp.ones_like(found)
        if any(self.waits):
            here = self.here(mode, state, u)
            left = ((after < 0) | (moved & (before < 0)))[:count] | self._read_anew(here, fresh)
            armed = jnp.where(jnp.array(self.waits), self._able(here) & (mode.armed | left), mode.armed)
            mode, ready = dataclasses.replace(mode, armed=armed), ready.at[:count].set(armed)
        zero = jnp.array([i >= count or e.at_zero for i, (e, _) in enumerate(happenings)])
        there = (after > 0) | (zero & (after >= 0))
        return found | (ready & there & ((after >= before) | (before > 0))), mode

    def _able(self, here: Situation) -> Bool[Array, " e"]:
        """Which events may happen: those that are armed, and those that wait or may, if they would change anything."""
        armed = here.mode.armed
        return jnp.stack([e.able(here) if e.waits else armed[i] for i, e in enumerate(self.events)])

    def _read_anew(self, here: Situation, fresh: Bool[Array, " m"]) -> Bool[Array, " e"]:
        """Which guards read the reactions of constraints that have just begun to act."""
        return jnp.stack([jnp.any(fresh & here.rows(names)) for names in self.reads[: len(self.events)]])

    # What

    def happen(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, due: Bool[Array, " g"], u: Array | None
    ) -> Jump:
        """The mode and the state after what is due, all of which is one transition."""
        here = self.here(mode, State(t, q, v, scale), u)
        change = self.change(here, due)
        q, off = self.fitted(change, here)
        acting, state = change.acting, State(t, q, v, scale)
        terms = impulse_terms(self.system.in_mode(acting), state, change.impulse, change.restitution, change.consistent)
        found = self.formulation.acceleration(terms)
        after = v + found.vdot
        there = self.here(change.mode, State(t, q, after, scale), u)
        for event in self.events:
            change = event.settle(change, there)
        return Jump(
            mode=change.mode,
            q=q,
            v=after,
            impulses=jnp.where(acting.active, found.multipliers, 0),
            loss=self.system.energies(t, q, v)[0] - self.system.energies(t, q, after)[0],
            mismatch=jnp.max(off, initial=0),
            doubtful=change.doubtful,
            result=jump_result(terms, v, found.vdot, found.result),
        )

    def fitted(self, change: Change, here: Situation) -> tuple[Float[Array, " nq"], Float[Array, " m"]]:
        """The positions, moved onto constraints that are to be assembled, and |φ/Φ| of those that begin to act."""
        acting, formulation, state = change.acting, self.formulation, here.state
        system, q = self.system.in_mode(acting), state.q

        def once(q: Array, _: None) -> tuple[Array, None]:
            in_use = formulation.prepare(rows_at(system, state.t, q, state.scale.row))
            return corrected(system, formulation, dataclasses.replace(state, q=q), in_use, 3).q, None

        if any(event.assembles for event in self.events):
            moved = lax.scan(once, q, None, length=8)[0]
            q = jnp.where(jnp.any(change.assembled), moved, q)
        new = acting.active & ~here.mode.active
        return q, jnp.where(new, jnp.abs(position_residual(system, state.t, q)) / state.scale.span, 0)

    def change(self, here: Situation, due: Bool[Array, " g"]) -> Change:
        """What all that is due does to the mode, in its order."""
        change = Change.none(here.mode, here.state)
        for i, (event, happening) in enumerate(self.happenings):
            new = happening.apply(change, here).doubt(here.arbitrary(self.reads[i]))
            new = dataclasses.replace(new, consistent=new.consistent & event.consistent)
            change = new.where(due[i], change)
        for event in self.events:
            change = event.adapt(change, here)
        change = change.hold(change.stuck, here.values)
        rebounds = change.hit & (change.restitution > 0)
        again = [e.repeat & (~jnp.array(e.waits) | jnp.any(rebounds & here.rows(e.acts_on))) for e in self.events]
        mode = dataclasses.replace(
            change.mode, armed=change.mode.armed & ~(due[: len(self.events)] & ~jnp.stack(again))
        )
        return dataclasses.replace(change, mode=mode)
