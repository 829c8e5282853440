"""From the events of a user to the plan of a run."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..formulation import AbstractFormulation
from ..foundations import Check, expect_available, in_numpy, listing, program
from ..system import LockRow, Mode, State, System, measure
from .event import AbstractEvent
from .lock import Lock
from .plan import Plan
from .reactions import RecordedReads

Scalar = Float[Array, ""]


def plan_events(
    system: System, formulation: AbstractFormulation, events: Sequence[Any], state: State, end: Scalar
) -> tuple[Plan, State, tuple[Check, ...], tuple[Check, ...]]:
    """The plan of a run until `end`, the state with its mode, the check that no event was due before, and those of the events' numbers.

    Locks of the state stay, and events that have happened before it do not happen again.

    Raises:
        ValueError: for unknown or repeated names, and two rows for one coordinate.
    """
    locks: dict[str, LockRow] = {} if state.mode is None else {lock.name: lock for lock in state.mode.locks}
    names: list[str] = []
    for i, event in enumerate(events):
        row = event.row(system)
        if row is not None:
            _check_row(system, event, row, events[:i], locks)
            locks[row.name] = row
        # Results tell events apart by name, so that further ones of a name are numbered.
        count = sum(name.partition(" #")[0] == event.name for name in names)
        names.append(f"{event.name} #{count + 1}" if count else event.name)
    _check_names(events, [*system.rows, *locks])
    start = _start(system, formulation, tuple(events), state, end, tuple(locks.values()), tuple(names))
    plan, state, late, own = start
    secondary = [f"{event.name} {occurrence.what}" for event, occurrence in plan.occurrences[len(names) :]]
    # By shapes: which reactions a guard reads is seen when it is traced, and other numbers need not trace it again.
    leaves, structure = jax.tree.flatten((plan, state))
    reads = _reads(structure, tuple(map(_shape, leaves)))
    return dataclasses.replace(plan, names=(*names, *secondary), reads=reads), state, late, own


@program
def _start(
    system: System,
    formulation: AbstractFormulation,
    events: tuple[AbstractEvent, ...],
    state: State,
    end: Scalar,
    locks: tuple[LockRow, ...],
    names: tuple[str, ...],
) -> tuple[Plan, State, tuple[Check, ...], tuple[Check, ...]]:
    state = _with_mode(system, state, locks, names)
    unknown = jnp.zeros(len(locks), state.q.dtype)
    plan = Plan(
        system=system,
        formulation=formulation,
        events=events,
        instant=resolution(state.t, end),
        creep=unknown,
        mobility=unknown,
        names=names,
    )
    return plan, state, _check_due(plan, state), tuple(check for event in events for check in event.checks())


def _shape(x: PyTree) -> PyTree:
    return jax.ShapeDtypeStruct(x.shape, x.dtype) if eqx.is_array(x) else x


@functools.lru_cache(maxsize=256)
def _reads(structure: Any, leaves: tuple[object, ...]) -> tuple[tuple[str, ...], ...]:
    """For each occurrence the constraints whose reactions its guard reads, by the shapes of a plan and a state."""

    def names(plan: Plan, state: State) -> tuple[tuple[str, ...], ...]:
        reads = []
        for _, occurrence in plan.occurrences:
            context = plan.context(state.mode, dataclasses.replace(state, mode=None), None)  # pyright: ignore[reportArgumentType]
            reaction = RecordedReads(context.system)
            occurrence.guard(dataclasses.replace(context, reaction=reaction))
            reads.append(tuple(sorted(reaction.names)))
        return tuple(reads)

    # Traced without being run: the names come out as static results.
    return eqx.filter_eval_shape(names, *jax.tree.unflatten(structure, leaves))


def _check_row(
    system: System, event: AbstractEvent, row: LockRow, before: Sequence[AbstractEvent], locks: dict[str, LockRow]
) -> None:
    """Refuses a row with the name of another one, and two locks of one coordinate by different rows."""
    if row.name in system.rows or not eqx.tree_equal(locks.get(row.name, row), row):
        raise ValueError(f"Argument `events` must hold different names, but '{row.name}' is used twice.")
    others = [x.name for x in before if isinstance(x, Lock) and x.name != row.name]
    same = [name for name in others if eqx.tree_equal(locks[name].fn, row.fn)]
    if isinstance(event, Lock) and same:  # brakes may share a coordinate, as two of a wheel do
        raise ValueError(
            f"Argument `events` must lock a coordinate by one row, but '{same[0]}' and '{row.name}' lock the same; give "
            "them one `name`."
        )


def _check_names(events: Sequence[AbstractEvent], available: Sequence[str]) -> None:
    for event in events:
        expect_available(f"Event '{event.name}' must name constraints or locks", event.acts_on, available)
    persistent = [event for event in events if event.secondary]
    names = [event.name for event in persistent]
    if len(set(names)) < len(names):
        kinds = " or ".join(f"`{kind}`" for kind in dict.fromkeys(type(event).__name__ for event in persistent))
        raise ValueError(f"Argument `events` must hold one {kinds} of a name, but holds {listing(names)}.")


def resolution(start: Scalar, end: Scalar) -> Scalar:
    """The time within which events of a run happen at one instant: 1e-9 of its duration, or what times can resolve."""
    start, end = lax.stop_gradient((start, end))
    # A run of no duration must have an instant too.
    span = jnp.where(end > start, end - start, 1)
    # 64 units of rounding of the times themselves: t ± instant must differ from t.
    return jnp.maximum(1e-9 * span, 64 * jnp.finfo(span.dtype).eps * jnp.maximum(jnp.abs(start), jnp.abs(end)))


def _check_due(plan: Plan, state: State) -> tuple[Check, ...]:
    """A check that no event was due before the start."""
    mode, timed = state.mode, [(i, e.at) for i, e in enumerate(plan.events) if e.at is not None]
    if mode is None or not timed:
        return ()
    text = "Argument `at` of event '{name}' must not lie before the start, but does, by {} s."
    amount = jnp.stack([jnp.where(mode.armed[i], state.t - at, 0) for i, at in timed])
    return (Check(amount, 0.0, text, tuple(plan.names[i] for i, _ in timed)),)


def check_unattended(events: Sequence[Any], state: State) -> tuple[Check, ...]:
    """A check that no brake slides in a state without its event, by which it would come to rest."""
    locks = () if state.mode is None else state.mode.locks
    attended = [event.name for event in events if event.secondary]
    unattended = [i for i, lock in enumerate(locks) if lock.name not in attended]
    if state.mode is None or not unattended:
        return ()
    text = "Brake '{name}' slides in the state, so that `events` must hold it."
    drag = in_numpy(state.mode.drag)[np.array(unattended)]
    return (Check(abs(drag), 0.0, text, tuple(locks[i].name for i in unattended)),)


def _with_mode(system: System, state: State, locks: tuple[LockRow, ...], names: tuple[str, ...]) -> State:
    """The state with rows for all locks."""
    old, k, m = state.mode, len(locks), system.m
    # Rows of new locks are appended: those that the state brings keep their numbers, and their held values and drags with them.
    count = 0 if old is None else len(old.locks)
    active = jnp.ones(m, bool) if old is None else old.active
    none = jnp.zeros(k - count, state.q.dtype)
    lock_values, drag = (none, none) if old is None else (jnp.append(old.lock_values, none), jnp.append(old.drag, none))
    armed = jnp.ones(len(names), bool)
    if old is not None:
        # By name: a run that goes on from a saved state may have its events in another order, or further ones.
        index = dict(zip(old.events, range(len(old.events)), strict=True))
        armed = jnp.stack([old.armed[index[n]] if n in index else jnp.array(True) for n in names]) if names else armed
    mode = Mode(
        locks=locks,
        active=jnp.append(active, jnp.zeros(k - count, bool)),
        lock_values=lock_values,
        drag=drag,
        armed=armed,
        events=names,
    )
    scale = state.scale
    if k > count:
        # Sizes of rows that the state has are kept, as rank decisions along a motion must not depend on when a lock was added.
        every = dataclasses.replace(mode, active=jnp.ones_like(mode.active))
        new = measure(system.in_mode(every), state.t, state.q)[0]
        joined = lambda a, b: jnp.append(a, b[m + count :])
        rows = ("row", "span", "row_by_length")
        scale = dataclasses.replace(scale, **{name: joined(getattr(scale, name), getattr(new, name)) for name in rows})
    return dataclasses.replace(state, scale=scale, mode=mode)
