"""From the events of a user to the plan of a run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation
from ..foundations import Check, listing
from ..system import LockRow, Mode, State, System, as_state
from .event import AbstractEvent, Activate, Brake, Lock, Release
from .plan import Plan

Scalar = Float[Array, ""]


def planned(
    system: System, formulation: AbstractFormulation, events: Sequence[Any], state: State, end: Scalar
) -> tuple[Plan, State]:
    """The plan of a run until `end`, and the state with its mode.

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
    plan = Plan(
        system,
        formulation,
        tuple(events),
        tuple(locks.values()),
        resolution(state.t, end),
        chosen,
        happenings,
    )
    return plan, _with_mode(plan, state, tuple(names))


def resolution(start: Scalar, end: Scalar) -> Scalar:
    """The time within which events of a run happen at one instant: 1e-9 of its duration, or what times can resolve."""
    start, end = lax.stop_gradient((start, end))
    span = jnp.where(end > start, end - start, 1)
    return jnp.maximum(1e-9 * span, 64 * jnp.finfo(span.dtype).eps * jnp.maximum(jnp.abs(start), jnp.abs(end)))


def missed(plan: Plan, state: State) -> tuple[Check, ...]:
    """A check that no event was due before the start."""
    mode, timed = state.mode, [(i, e.at) for i, e in enumerate(plan.events) if e.at is not None]
    if mode is None or not timed:
        return ()
    text = "Argument `at` of event '{name}' must not lie before the start, but does, by {} s."
    amount = jnp.stack([jnp.where(mode.armed[i], state.t - at, 0) for i, at in timed])
    return (Check(amount, 0.0, text, tuple(plan.names[i] for i, _ in timed)),)


def weak(plan: Plan) -> tuple[Check, ...]:
    """A check that brakes brake, and hold what they brake."""
    brakes = [brake for _, brake in plan.brakes]
    if not brakes:
        return ()
    text = "Brake '{name}' must slide with a positive force, and hold at least that."
    amount = jnp.stack([jnp.where(e.sliding > 0, e.sliding - e.holding, 1) for e in brakes])
    return (Check(amount, 0.0, text, tuple(e.name for e in brakes)),)


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


def _with_mode(plan: Plan, state: State, names: tuple[str, ...]) -> State:
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
        new = as_state(plan.system, state.q, state.v, t=state.t, mode=mode).scale
        joined = lambda a, b: jnp.append(a, b[m + known :])
        scale = dataclasses.replace(scale, row=joined(scale.row, new.row), span=joined(scale.span, new.span))
    return State(state.t, state.q, state.v, scale, mode)
