"""The events of a run, resolved for a system."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import KKT, GaussProjection
from ..foundations import Check, listing
from ..kinematics import corrected
from ..linalg import independent_rows, regular_metric
from ..system import LockRow, Mode, State, System, evaluate, position_residual, row_sizes, rows_at
from .event import AbstractEvent, Activate, Brake, Lock, Release
from .jump import impulse_terms, impulses

Scalar = Float[Array, ""]

# Times in s, for t of order one: events within it happen at one instant; guards are looked at so much before and after.
INSTANT = 1e-9


class Jump(eqx.Module):
    """What happened at one instant.

    Attributes:
        mode: the mode from then on.
        q, v: the state from then on.
        impulses: Λ (m + k,), zero where nothing acts.
        loss: T⁻ − T⁺ in J.
        mismatch: largest |φ/σ| of a constraint that begins to act.
        doubtful: whether a guard or a brake decided by a reaction that a rigid model does not determine.
    """

    mode: Mode
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    impulses: Float[Array, " m"]
    loss: Scalar
    mismatch: Scalar
    doubtful: Bool[Array, ""]


class Change(eqx.Module):
    """What events do before velocities are known.

    Attributes:
        mode: the mode from then on.
        acting: the mode at that instant, with the constraints that are hit only.
        stuck: rows (m + k,) of brakes that have come to rest.
        restitution: e of each row.
        assembled: rows to which positions are to be moved.
        consistent: whether momentum is conserved.
        doubtful: whether a guard or a brake decided by a reaction that a rigid model does not determine.
    """

    mode: Mode
    acting: Mode
    stuck: Bool[Array, " m"]
    restitution: Float[Array, " m"]
    assembled: Bool[Array, " m"]
    consistent: Bool[Array, ""]
    doubtful: Bool[Array, ""]


class Plan(eqx.Module):
    """The events of a run with the rows that they act on.

    There are three kinds of happenings, in this order: e events, b brakes that come to rest, b brakes that come loose.

    Attributes:
        system: without modes.
        events: the events.
        locks: the rows of all locks and brakes.
        rows: for each event the numbers of its rows.
        names: of the happenings.
    """

    system: System
    events: tuple[AbstractEvent, ...]
    locks: tuple[LockRow, ...]
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

    def mask(self, i: int) -> Bool[Array, " m"]:
        """The rows of an event."""
        return jnp.asarray(np.isin(np.arange(self.system.m + len(self.locks)), self.rows[i]))

    # When

    def next_time(self, t: Scalar, mode: Mode, end: Scalar) -> Scalar:
        """The next known time, or the end."""
        for i, event in enumerate(self.events):
            if event.at is not None:
                end = jnp.where(mode.armed[i] & (event.at > t), jnp.minimum(end, event.at), end)
        return end

    def guards(self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Array, u: Array | None) -> Float[Array, " g"]:
        """The guards of all happenings, which happen where these rise to zero; −1 for those that cannot."""
        system = self.system.in_mode(mode)
        reaction = Reactions(system, State(t, q, v, scale), u)
        none, values = -jnp.ones((), q.dtype), []
        for i, event in enumerate(self.events):
            if event.when is None:
                values.append(none)
            else:
                value = event.direction * event.when(t, q, v, reaction, system.params)
                values.append(jnp.where(mode.armed[i], value, none))
        rates = self._rates(t, q, v)
        for r, _ in self.brakes:
            values.append(jnp.where(mode.drag[r] != 0, jnp.sign(mode.drag[r]) * rates[r], none))
        for r, brake in self.brakes:
            load = jnp.abs(reaction[brake.name][0])
            values.append(jnp.where(mode.active[self.system.m + r], load / brake.holding - 1, none))
        return jnp.stack(values)

    def due(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Array, u: Array | None, flow: tuple[Array, Array]
    ) -> Bool[Array, " g"]:
        """What happens now: known times that have come, and guards that are at zero and do not fall, or are beyond it."""
        timed = [jnp.array(False) if e.at is None else mode.armed[i] & (e.at <= t) for i, e in enumerate(self.events)]
        timed += [jnp.array(False)] * (2 * len(self.brakes))
        found = jnp.stack(timed)
        if not self.guarded:
            return found
        step = INSTANT * jnp.maximum(1, jnp.abs(t))
        at = lambda h: self.guards(mode, t + h, q + h * flow[0], v + h * flow[1], scale, u)
        before, after = at(-step), at(step)
        return found | ((after >= 0) & ((after >= before) | (before > 0)))

    def _rates(self, t: Scalar, q: Array, v: Array) -> Float[Array, " k"]:
        """ṡ of all locks."""
        if not self.locks:
            return jnp.zeros(0, q.dtype)
        return jax.jvp(self.values, (t, q), (jnp.ones_like(t), self.system.qdot(q, v)))[1]

    def values(self, t: Scalar, q: Array) -> Float[Array, " k"]:
        """S of all locks."""
        if not self.locks:
            return jnp.zeros(0, q.dtype)
        return jnp.stack([jnp.reshape(lock.fn(t, q, self.system.params), ()) for lock in self.locks])

    # What

    def happen(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Array, due: Bool[Array, " g"], u: Array | None
    ) -> Jump:
        """The mode and the state after what is due, all of which is one transition."""
        change = self.change(mode, t, q, v, scale, due, u)
        q, off = self.fitted(change, mode, t, q, v, scale)
        system = self.system.in_mode(change.acting)
        terms = impulse_terms(system, State(t, q, v, scale), jnp.zeros_like(v), change.restitution, change.consistent)
        step, pulses = impulses(terms)
        after = v + step
        loss = self.system.energies(t, q, v)[0] - self.system.energies(t, q, after)[0]
        mode, doubtful = self._holding(change.mode, t, q, after, scale, change.stuck, u)
        return Jump(
            mode=mode,
            q=q,
            v=after,
            impulses=jnp.where(change.acting.active, pulses, 0),
            loss=loss,
            mismatch=jnp.max(off, initial=0),
            doubtful=change.doubtful | doubtful,
        )

    def fitted(
        self, change: "Change", before: Mode, t: Scalar, q: Array, v: Array, scale: Array
    ) -> tuple[Float[Array, " nq"], Float[Array, " m"]]:
        """The positions, moved onto constraints that are to be assembled, and |φ/σ| of those that begin to act."""
        system, formulation = self.system.in_mode(change.acting), GaussProjection()

        def once(q: Array, _: None) -> tuple[Array, None]:
            keep = formulation.prepare(rows_at(system, t, q, scale))
            return corrected(system, formulation, State(t, q, v, scale), keep, 3).q, None

        if any(isinstance(event, Activate) and event.assemble for event in self.events):
            moved = lax.scan(once, q, None, length=8)[0]
            q = jnp.where(jnp.any(change.assembled), moved, q)
        new = change.acting.active & ~before.active
        return q, jnp.where(new, jnp.abs(position_residual(system, t, q)) / scale, 0)

    def change(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Array, due: Bool[Array, " g"], u: Array | None
    ) -> "Change":
        """What the events and brakes that are due do to the mode, in their order."""
        m, count, before = self.system.m, len(self.events), mode
        active, held, drag = mode.active, mode.held, mode.drag
        stuck = assembled = jnp.zeros_like(active)
        bounces, restitution = jnp.zeros_like(active), jnp.zeros_like(scale)
        consistent, doubtful = jnp.array(True), jnp.array(False)
        values, rates = self.values(t, q), self._rates(t, q, v)
        for i, event in enumerate(self.events):
            if event.when is not None:
                seen = Reactions(self.system.in_mode(before), State(t, q, v, scale), u)
                event.when(t, q, v, seen, self.system.params)
                if seen.read:
                    doubtful |= due[i] & self._arbitrary(before, t, q, scale, sorted(seen.read))
            mask = self.mask(i) & due[i]
            consistent &= ~due[i] | event.consistent
            if isinstance(event, Brake):
                r = self.rows[i][0] - m
                moving = jnp.abs(rates[r]) > INSTANT
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
        reaction = Reactions(self.system.in_mode(before), State(t, q, v, scale), u)
        for b, (r, brake) in enumerate(self.brakes):
            rests, loose = due[count + b], due[count + len(self.brakes) + b]
            stuck = stuck.at[m + r].set(stuck[m + r] | rests)
            active = active.at[m + r].set(active[m + r] & ~loose)
            drag = drag.at[r].set(jnp.where(loose, jnp.sign(reaction[brake.name][0]) * brake.sliding, drag[r]))
            doubtful |= loose & self._arbitrary(before, t, q, scale, (brake.name,))
        active, held, drag = active | stuck, jnp.where(stuck[m:], values, held), jnp.where(stuck[m:], 0, drag)
        once = jnp.array([not e.repeat for e in self.events], bool)
        mode = dataclasses.replace(mode, active=active, held=held, drag=drag, armed=mode.armed & ~(due[:count] & once))
        acting = dataclasses.replace(mode, active=active | bounces)
        return Change(mode, acting, stuck, restitution, assembled, consistent, doubtful)

    def _holding(
        self, mode: Mode, t: Scalar, q: Array, v: Array, scale: Array, stuck: Bool[Array, " m"], u: Array | None
    ) -> tuple[Mode, Bool[Array, ""]]:
        """The mode in which those brakes that have come to rest, and cannot hold, slide again the way they are drawn."""
        m, active, drag, doubtful = self.system.m, mode.active, mode.drag, jnp.array(False)
        reaction = Reactions(self.system.in_mode(mode), State(t, q, v, scale), u)
        for r, brake in self.brakes:
            load = reaction[brake.name][0]
            slips = stuck[m + r] & (jnp.abs(load) > brake.holding)
            active = active.at[m + r].set(active[m + r] & ~slips)
            drag = drag.at[r].set(jnp.where(slips, jnp.sign(load) * brake.sliding, drag[r]))
            doubtful |= slips & self._arbitrary(mode, t, q, scale, (brake.name,))
        return dataclasses.replace(mode, active=active, drag=drag), doubtful

    def _arbitrary(self, mode: Mode, t: Scalar, q: Array, scale: Array, names: Sequence[str]) -> Bool[Array, ""]:
        """Whether a multiplier of these constraints is not unique: its row follows from the others."""
        system = self.system.in_mode(mode)
        terms = evaluate(system, State(t, q, jnp.zeros(system.nv, q.dtype), scale))
        metric, found = regular_metric(terms.mass, terms.jacobian), jnp.array(False)
        for row in (row for name in names for row in range(system.m)[system.rows[name]]):
            others = jnp.arange(system.m) != row
            alone = independent_rows(metric, terms.jacobian, scale, first=others)[row]
            found |= mode.active[row] & ~alone
        return found


class Reactions(Mapping[str, Array]):
    """The multipliers of constraints by name, found where one is read; remembers which are."""

    def __init__(self, system: System, state: State, u: Array | None):
        self._arguments = system, state, u
        self._found: Array | None = None
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        system, state, u = self._arguments
        if name not in system.rows:
            raise KeyError(f"There is no constraint '{name}'; there are {listing(system.rows)}.")
        self.read.add(name)
        if self._found is None:
            self._found = KKT().acceleration(evaluate(system, state, u=u)).multipliers
        return self._found[system.rows[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments[0].rows)

    def __len__(self) -> int:
        return len(self._arguments[0].rows)


def planned(system: System, events: Sequence[Any], state: State) -> tuple[Plan, State, tuple[Check, ...]]:
    """The plan of a run, the state with its mode, and checks of times.

    Locks that the state brings along stay, and events that it has seen do not happen again.

    Raises:
        TypeError, ValueError: for what is no event, or names that are not known or used twice.
    """
    mode = state.mode
    locks: dict[str, LockRow] = {} if mode is None else {lock.name: lock for lock in mode.locks}
    names: list[str] = []
    for event in events:
        if not isinstance(event, AbstractEvent):
            raise TypeError(
                f"Argument `events` must hold `Lock`, `Activate`, `Release` or `Brake`, but holds {event!r}."
            )
        if isinstance(event, Lock | Brake):
            row = event.row(system)
            if event.name in system.rows or not eqx.tree_equal(locks.get(event.name, row), row):
                raise ValueError(f"Argument `events` must hold different names, but '{event.name}' is used twice.")
            locks[event.name] = row
        count = sum(name.partition(" #")[0] == event.name for name in names)
        names.append(f"{event.name} #{count + 1}" if count else event.name)
    rows = system.rows | {name: slice(system.m + i, system.m + i + 1) for i, name in enumerate(locks)}
    chosen = tuple(tuple(i for name in _names(e, rows) for i in range(rows[name].stop)[rows[name]]) for e in events)
    brakes = [e.name for e in events if isinstance(e, Brake)]
    if len(set(brakes)) < len(brakes):
        raise ValueError(f"Argument `events` must hold one `Brake` of a name, but holds {listing(brakes)}.")
    happenings = (*names, *(f"{name} rests" for name in brakes), *(f"{name} comes loose" for name in brakes))
    plan = Plan(system, tuple(events), tuple(locks.values()), chosen, happenings)
    state, mode = _with_mode(plan, state, tuple(names))
    late = [(n, e.at, mode.armed[i]) for i, (n, e) in enumerate(zip(names, events, strict=True)) if e.at is not None]
    checks: list[Check] = []
    if late:
        amount = jnp.stack([jnp.where(armed, state.t - at, 0) for _, at, armed in late])
        text = "Argument `at` of event '{name}' must not lie before the start, but does, by {} s."
        checks.append(Check(amount, 0.0, text, tuple(name for name, *_ in late)))
    weak = [(e.name, e.sliding, e.holding) for e in events if isinstance(e, Brake)]
    if weak:
        text = "Brake '{name}' must slide with a positive force, and hold at least that."
        amount = jnp.stack([jnp.where(sliding > 0, sliding - holding, 1) for _, sliding, holding in weak])
        checks.append(Check(amount, 0.0, text, tuple(name for name, *_ in weak)))
    return plan, state, tuple(checks)


def unattended(events: Sequence[Any], state: State) -> tuple[Check, ...]:
    """A check that no brake slides in a state without its event, by which it would come to rest."""
    locks = () if state.mode is None else state.mode.locks
    known = [event.name for event in events if isinstance(event, Brake)]
    left = [i for i, lock in enumerate(locks) if lock.name not in known]
    if state.mode is None or not left:
        return ()
    text = "Brake '{name}' slides in the state, so that `events` must hold it."
    return (Check(jnp.abs(state.mode.drag[jnp.array(left)]), 0.0, text, tuple(locks[i].name for i in left)),)


def _names(event: AbstractEvent, rows: Mapping[str, slice]) -> tuple[str, ...]:
    names = event.names if isinstance(event, Activate | Release) else (event.name,)
    for name in names:
        if name not in rows:
            raise ValueError(
                f"Event '{event.name}' must name constraints or locks out of {listing(rows)}, but names '{name}'."
            )
    return names


def _with_mode(plan: Plan, state: State, names: tuple[str, ...]) -> tuple[State, Mode]:
    """The state with rows for all locks of the plan."""
    old, k, m = state.mode, len(plan.locks), plan.system.m
    known = 0 if old is None else len(old.locks)
    active = jnp.ones(m, bool) if old is None else old.active
    none = jnp.zeros(k - known, state.q.dtype)
    held, drag = (none, none) if old is None else (jnp.append(old.held, none), jnp.append(old.drag, none))
    armed = jnp.ones(len(names), bool)
    if old is not None:
        seen = dict(zip(old.events, range(len(old.events)), strict=True))
        armed = jnp.stack([old.armed[seen[n]] if n in seen else jnp.array(True) for n in names]) if names else armed
    mode = Mode(plan.locks, jnp.append(active, jnp.zeros(k - known, bool)), held, drag, armed, names)
    scale = state.scale
    if k > known:
        every = dataclasses.replace(mode, active=jnp.ones(m + k, bool))
        sizes = row_sizes(plan.system.in_mode(every), state.t, state.q)[m + known :]
        scale = jnp.append(scale, jnp.where(sizes > 0, sizes, 1))
    return State(state.t, state.q, state.v, scale, mode), mode
