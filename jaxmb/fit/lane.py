"""Runs that are alike, side by side."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..system import State
from .start import Indices


class Lane(eqx.Module):
    """An experiment, or a window of one, as a run of a program; with a leading axis several that are alike.

    Attributes:
        ts: times (T,), the last one repeated where others of the group have more; with windows that of the next one's start is the last.
        start: the start with the nominal parameters.
        control, events: of the experiment.
        about: of the experiment.
        values, weights: of the samples (T, k), by signal.
        slots: which entries of all unknowns are the independent coordinates and velocities of the start; −1 for those that are known.
        biases: which are the biases, by signal (k,).
        following: which are the start of the next window; −1 where there is none.
        gap: standard deviations that the gap to it may have; inf where there is none.
        readings: how the signals are read.
        names: names of the signals.
        widths: numbers of their components; None where nothing tells.
        held, held_velocities: the independent coordinates and velocities.
        moved: whether the start is assembled anew.
    """

    ts: Float[Array, "..."]
    start: State
    control: Any
    events: tuple[Any, ...]
    about: Any
    values: tuple[Float[Array, "..."], ...]
    weights: tuple[Float[Array, "..."], ...]
    slots: Int[Array, "..."]
    biases: tuple[Int[Array, "..."] | None, ...]
    following: Int[Array, "..."]
    gap: Float[Array, "..."]
    readings: tuple[Any, ...]
    names: tuple[str, ...] = eqx.field(static=True)
    widths: tuple[int | None, ...] = eqx.field(static=True)
    held: Indices = eqx.field(static=True)
    held_velocities: Indices = eqx.field(static=True)
    moved: bool = eqx.field(static=True)


def padded(lane: Lane, times: int) -> Lane:
    """The lane with its last time repeated, without samples there."""
    more = times - lane.ts.shape[0]
    longer = lambda x: jnp.concatenate([x, jnp.zeros((more, *x.shape[1:]), x.dtype)])
    found = (
        jnp.concatenate([lane.ts, jnp.broadcast_to(lane.ts[-1], (more,))]),
        tuple(map(longer, lane.values)),
        tuple(map(longer, lane.weights)),
    )
    return eqx.tree_at(lambda x: (x.ts, x.values, x.weights), lane, found)


def grouped(lanes: Sequence[Lane]) -> tuple[tuple[Lane, ...], tuple[tuple[int, ...], ...]]:
    """Lanes that share a program, stacked, shorter ones padded; and the numbers of the lanes of each group."""
    groups: dict[Any, list[int]] = {}
    for number, lane in enumerate(lanes):
        arrays, rest = eqx.partition(lane, eqx.is_array)
        leaves, structure = jax.tree.flatten(rest)
        # Everything counts but the number of times.
        fixed = (arrays.start, arrays.control, arrays.events, arrays.about, arrays.slots, arrays.biases)
        shapes = (*(x.shape for x in jax.tree.leaves(fixed)), *(x.shape[1:] for x in lane.values))
        key = (structure, tuple(map(id, leaves)), shapes, jax.tree.structure(arrays))
        groups.setdefault(key, []).append(number)
    stacks = tuple(_stacked([lanes[i] for i in members]) for members in groups.values())
    return stacks, tuple(map(tuple, groups.values()))


def _stacked(lanes: Sequence[Lane]) -> Lane:
    longest = max(lane.ts.shape[0] for lane in lanes)
    parts = [eqx.partition(padded(lane, longest), eqx.is_array) for lane in lanes]
    return eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *(arrays for arrays, _ in parts)), parts[0][1])


def over_lanes(fn: Callable[..., Any], group: Lane, *others: Any) -> Any:
    """`fn(lane, *others)` for each lane of a group, and each row of `others`; a single lane is no batch."""
    if group.ts.shape[0] == 1:
        first = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, (group, *others))
        return jax.tree.map(lambda x: x[None], fn(*first))
    arrays, rest = eqx.partition(group, eqx.is_array)
    return jax.vmap(lambda arrays, *others: fn(eqx.combine(arrays, rest), *others))(arrays, *others)
