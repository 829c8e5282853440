"""The events of a run, resolved for a system."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..kinematics import corrected
from ..linalg import independent_rows, metric_root
from ..system import LockRow, Mode, Scale, State, System, position_residual, rows_at
from .event import AbstractEvent, Activate, Brake, Lock, Release
from .jump import Change, Jump, impulse_terms, jump_result
from .loads import Loads

Scalar = Float[Array, ""]


class Plan(eqx.Module):
    """The events of a run with the rows that they act on.

    There are three kinds of happenings, in this order: e events, b brakes that come to rest, b brakes that come loose.

    Attributes:
        system: without modes.
        formulation: of the run; impulses and the reactions that guards read are found by it.
        events: the events.
        locks: the rows of all locks and brakes.
        instant: time within which events happen at one instant; guards are looked at so much before and after.
        rows: for each event the numbers of its rows.
        names: of the happenings.
    """

    system: System
    formulation: AbstractFormulation
    events: tuple[AbstractEvent, ...]
    locks: tuple[LockRow, ...]
    instant: Scalar
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def brakes(self) -> list[tuple[int, Brake]]:
        """Number among the locks, and the brake."""
        return [(r[0] - self.system.m, e) for r, e in zip(self.rows, self.events, strict=True) if isinstance(e, Brake)]

    @property
    def guarded(self) -> bool:
        """Whether anything happens otherwise than at a known time."""
        return bool(self.brakes) or any(e.when is not None for e in self.events)

    @property
    def waits(self) -> tuple[bool, ...]:
        """Which of the events, when they have happened, wait until their guard has left zero before they may happen again.

        A hit reverses the velocity by which its guard rises, and does not wait.
        """
        hit = lambda e: isinstance(e, Activate) and e.restitution is not None
        return tuple(e.repeat and not hit(e) for e in self.events)

    def mask(self, i: int) -> Bool[Array, " m"]:
        """The rows of an event."""
        return jnp.asarray(np.isin(np.arange(self.system.m + len(self.locks)), self.rows[i]))

    # When

    def next_time(self, t: Scalar, mode: Mode, end: Scalar) -> Scalar:
        """The next known time, or the end."""
        for i, event in enumerate(self.events):
            if event.at is not None:
                end = jnp.where(mode.armed[i] & (event.at > t) & (event.at <= end), event.at, end)
        return end

    def guards(self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, u: Array | None) -> Float[Array, " g"]:
        """The guards of all happenings, which happen where these rise to zero; −1 for those that cannot."""
        system = self.system.in_mode(mode)
        reaction = Loads(self.formulation, system, State(t, q, v, scale), u)
        none, values, able = -jnp.ones((), q.dtype), [], self._able(mode)
        for i, event in enumerate(self.events):
            if event.when is None:
                values.append(none)
            else:
                value = event.direction * event.when(t, q, v, reaction, system.params)
                values.append(jnp.where(able[i], value, none))
        rates = self._rates(t, q, v)
        for r, _ in self.brakes:
            values.append(jnp.where(mode.drag[r] != 0, jnp.sign(mode.drag[r]) * rates[r], none))
        for r, brake in self.brakes:
            load = jnp.abs(reaction[brake.name][0])
            values.append(jnp.where(mode.active[self.system.m + r], load / brake.holding - 1, none))
        return jnp.stack(values)

    def watched(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, u: Array | None
    ) -> tuple[Float[Array, " g"], Bool[Array, ""]]:
        """The guards, with −1 for events that wait, and whether one of these has left zero."""
        values, count = self.guards(mode, t, q, v, scale, u), len(self.events)
        waiting = jnp.array(self.waits) & self._able(mode) & ~mode.armed
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

        Known times that have come, and guards that are at zero and do not fall, or are beyond it; for a release, guards that
        are beyond zero, or at zero and rise.

        Args:
            mode: the mode.
            state: time, coordinates and velocities.
            u: inputs.
            flow: their rates (q̇, v̇).
            fresh: rows that have just begun to act.
            moved: whether the state was reached by a motion.
        """
        count = len(self.events)
        timed = [
            jnp.array(False) if e.at is None else mode.armed[i] & (e.at <= state.t) for i, e in enumerate(self.events)
        ]
        found = jnp.stack(timed + [jnp.array(False)] * (2 * len(self.brakes)))
        if not self.guarded:
            return found, mode
        at = lambda h: self.guards(mode, state.t + h, state.q + h * flow[0], state.v + h * flow[1], state.scale, u)
        before, after = at(-self.instant), at(self.instant)
        ready = jnp.ones_like(found)
        if any(self.waits):
            left = ((after < 0) | (moved & (before < 0)))[:count] | self._read_anew(mode, state, u, fresh)
            armed = jnp.where(jnp.array(self.waits), self._able(mode) & (mode.armed | left), mode.armed)
            mode, ready = dataclasses.replace(mode, armed=armed), ready.at[:count].set(armed)
        zero = jnp.array([not isinstance(e, Release) for e in self.events] + [True] * (2 * len(self.brakes)))
        there = (after > 0) | (zero & (after >= 0))
        return found | (ready & there & ((after >= before) | (before > 0))), mode

    def _able(self, mode: Mode) -> Bool[Array, " e"]:
        """Which events may happen: those that are armed, and those that wait or may, if they would change anything."""
        able = []
        for i, (event, waits) in enumerate(zip(self.events, self.waits, strict=True)):
            mask = self.mask(i)
            if not waits:
                able.append(mode.armed[i])
            elif isinstance(event, Release):
                able.append(jnp.any(mask & mode.active) | jnp.any(mask[self.system.m :] & (mode.drag != 0)))
            else:
                able.append(jnp.any(mask & ~mode.active))
        return jnp.stack(able)

    def _read_anew(self, mode: Mode, state: State, u: Array | None, fresh: Bool[Array, " m"]) -> Bool[Array, " e"]:
        """Which guards read the reactions of constraints that have just begun to act."""
        rows = self.system.in_mode(mode).rows
        anew = lambda i: [jnp.any(fresh[rows[name]]) for name in self._reads(i, mode, state, u)]
        return jnp.stack([jnp.any(jnp.array(anew(i), bool)) for i in range(len(self.events))])

    def _reads(self, i: int, mode: Mode, state: State, u: Array | None) -> tuple[str, ...]:
        """The constraints whose reactions the guard of an event reads."""
        event, system = self.events[i], self.system.in_mode(mode)
        if event.when is None:
            return ()
        seen = Loads(self.formulation, system, state, u)
        jax.eval_shape(lambda: event.when(state.t, state.q, state.v, seen, system.params))
        return tuple(sorted(seen.read))

    def _rates(self, t: Scalar, q: Array, v: Array) -> Float[Array, " k"]:
        """ṡ of all locks."""
        if not self.locks:
            return jnp.zeros(0, q.dtype)
        return jax.jvp(self.values, (t, q), (jnp.ones_like(t), self.system.qdot(q, v)))[1]

    def _mobility(self, mode: Mode, t: Scalar, q: Array) -> Float[Array, " k"]:
        """s̈ of each lock by a unit of force along it, constraints aside."""
        system = self.system.in_mode(mode)
        rows = jax.jacfwd(lambda v: self._rates(t, q, v))(jnp.zeros(system.nv, q.dtype))
        terms = rows_at(system, t, q, jnp.ones(system.m, q.dtype))
        return jnp.sum((rows @ metric_root(terms.mass, terms.jacobian).T) ** 2, axis=1)

    def values(self, t: Scalar, q: Array) -> Float[Array, " k"]:
        """S of all locks."""
        if not self.locks:
            return jnp.zeros(0, q.dtype)
        return jnp.stack([jnp.reshape(lock.fn(t, q, self.system.params), ()) for lock in self.locks])

    # What

    def happen(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, due: Bool[Array, " g"], u: Array | None
    ) -> Jump:
        """The mode and the state after what is due, all of which is one transition."""
        change = self.change(mode, t, q, v, scale, due, u)
        q, off = self.fitted(change, mode, t, q, v, scale)
        system = self.system.in_mode(change.acting)
        terms = impulse_terms(system, State(t, q, v, scale), jnp.zeros_like(v), change.restitution, change.consistent)
        found = self.formulation.acceleration(terms)
        after = v + found.vdot
        loss = self.system.energies(t, q, v)[0] - self.system.energies(t, q, after)[0]
        mode, doubtful = self._holding(change.mode, t, q, after, scale, change.stuck, u)
        return Jump(
            mode=mode,
            q=q,
            v=after,
            impulses=jnp.where(change.acting.active, found.multipliers, 0),
            loss=loss,
            mismatch=jnp.max(off, initial=0),
            doubtful=change.doubtful | doubtful,
            result=jump_result(terms, v, found.vdot, found.result),
        )

    def fitted(
        self, change: Change, before: Mode, t: Scalar, q: Array, v: Array, scale: Scale
    ) -> tuple[Float[Array, " nq"], Float[Array, " m"]]:
        """The positions, moved onto constraints that are to be assembled, and |φ/Φ| of those that begin to act."""
        system, formulation = self.system.in_mode(change.acting), self.formulation

        def once(q: Array, _: None) -> tuple[Array, None]:
            keep = formulation.prepare(rows_at(system, t, q, scale.row))
            return corrected(system, formulation, State(t, q, v, scale), keep, 3).q, None

        if any(isinstance(event, Activate) and event.assemble for event in self.events):
            moved = lax.scan(once, q, None, length=8)[0]
            q = jnp.where(jnp.any(change.assembled), moved, q)
        new = change.acting.active & ~before.active
        return q, jnp.where(new, jnp.abs(position_residual(system, t, q)) / scale.span, 0)

    def change(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, due: Bool[Array, " g"], u: Array | None
    ) -> Change:
        """What the events and brakes that are due do to the mode, in their order."""
        m, count, before = self.system.m, len(self.events), mode
        active, held, drag = mode.active, mode.held, mode.drag
        stuck = assembled = jnp.zeros_like(active)
        bounces, restitution = jnp.zeros_like(active), jnp.zeros_like(scale.row)
        consistent, doubtful = jnp.array(True), jnp.array(False)
        values, rates = self.values(t, q), self._rates(t, q, v)
        slow = self.instant * self._mobility(before, t, q) if self.brakes else rates
        for i, event in enumerate(self.events):
            read = self._reads(i, before, State(t, q, v, scale), u)
            if read:
                doubtful |= due[i] & self._arbitrary(before, t, q, scale, read)
            mask = self.mask(i) & due[i]
            consistent &= ~due[i] | event.consistent
            if isinstance(event, Brake):
                r = self.rows[i][0] - m
                moving = jnp.abs(rates[r]) > event.sliding * slow[r]  # else it rests within that time
                drag = jnp.where(mask[m:] & moving, -jnp.sign(rates) * event.sliding, drag)
                stuck |= mask & ~moving
            elif isinstance(event, Lock):
                active, held, drag = active | mask, jnp.where(mask[m:], values, held), jnp.where(mask[m:], 0, drag)
            elif isinstance(event, Release):
                active, drag = active & ~mask, jnp.where(mask[m:], 0, drag)
            elif isinstance(event, Activate):
                assembled |= mask & event.assemble
                if event.restitution is None:
                    active = active | mask
                else:
                    bounces, restitution = bounces | mask, jnp.where(mask, event.restitution, restitution)
        reaction = Loads(self.formulation, self.system.in_mode(before), State(t, q, v, scale), u)
        for b, (r, brake) in enumerate(self.brakes):
            rests, loose = due[count + b], due[count + len(self.brakes) + b]
            stuck = stuck.at[m + r].set(stuck[m + r] | rests)
            active = active.at[m + r].set(active[m + r] & ~loose)
            drag = drag.at[r].set(jnp.where(loose, jnp.sign(reaction[brake.name][0]) * brake.sliding, drag[r]))
            doubtful |= loose & self._arbitrary(before, t, q, scale, (brake.name,))
        active, held, drag = active | stuck, jnp.where(stuck[m:], values, held), jnp.where(stuck[m:], 0, drag)
        once = jnp.array([waits or not e.repeat for e, waits in zip(self.events, self.waits, strict=True)], bool)
        mode = dataclasses.replace(mode, active=active, held=held, drag=drag, armed=mode.armed & ~(due[:count] & once))
        acting = dataclasses.replace(mode, active=active | bounces)
        return Change(mode, acting, stuck, restitution, assembled, consistent, doubtful)

    def _holding(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Scale, stuck: Bool[Array, " m"], u: Array | None
    ) -> tuple[Mode, Bool[Array, ""]]:
        """The mode in which those brakes that have come to rest, and cannot hold, slide again the way they are drawn."""
        m, active, drag, doubtful = self.system.m, mode.active, mode.drag, jnp.array(False)
        reaction = Loads(self.formulation, self.system.in_mode(mode), State(t, q, v, scale), u)
        for r, brake in self.brakes:
            load = reaction[brake.name][0]
            slips = stuck[m + r] & (jnp.abs(load) > brake.holding)
            active = active.at[m + r].set(active[m + r] & ~slips)
            drag = drag.at[r].set(jnp.where(slips, jnp.sign(load) * brake.sliding, drag[r]))
            doubtful |= slips & self._arbitrary(mode, t, q, scale, (brake.name,))
        return dataclasses.replace(mode, active=active, drag=drag), doubtful

    def _arbitrary(self, mode: Mode, t: Scalar, q: Array, scale: Scale, names: Sequence[str]) -> Bool[Array, ""]:
        """Whether a multiplier of these constraints is not unique: its row follows from the others."""
        system = self.system.in_mode(mode)
        terms = rows_at(system, t, q, scale.row)
        metric, found = self.formulation.metric(terms), jnp.array(False)
        for row in (row for name in names for row in range(system.m)[system.rows[name]]):
            others = jnp.arange(system.m) != row
            alone = independent_rows(metric, terms.jacobian, scale.row, self.formulation.rank_tol, others)[row]
            found |= mode.active[row] & ~alone
        return found
