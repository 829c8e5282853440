"""Runs that are alike, side by side."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..control import AbstractController, Sampled
from ..system import State
from ..topology import AbstractEvent
from .reading import Reading
from .start import Indices


class Channel(eqx.Module):
    """A signal of a shot: what was measured, and how the model's values are read.

    Attributes:
        name: of the signal.
        values, weights: of the samples (T, k).
        read: from a run to the signal.
        wraps: whether it is an angle whose turns are not counted.
        width: the number of its components; None where nothing tells.
        bias: which of all unknowns are its biases (k,); None where it has none.
    """

    name: str = eqx.field(static=True)
    values: Float[Array, "..."]
    weights: Float[Array, "..."]
    read: Reading
    wraps: bool = eqx.field(static=True)
    width: int | None = eqx.field(static=True)
    bias: Int[Array, "..."] | None


class Shot(eqx.Module):
    """An experiment, or a window of one, as a run of a program; with a leading axis several that are alike.

    Attributes:
        ts: times (T,), the last one repeated where others of the group have more; with windows that of the next one's start is the last.
        start: the start with the nominal parameters.
        control, events: of the experiment.
        about: of the experiment.
        channels: its signals.
        slots: which entries of all unknowns are the independent coordinates and velocities of the start; −1 for those that are known.
        following: which are the start of the next window; −1 where there is none.
        gap: standard deviations that the gap to it may have; inf where there is none.
        independents: indices of the independent coordinates, and velocities, of the start.
        reassembled: whether the start is assembled anew.
    """

    ts: Float[Array, "..."]
    start: State
    control: AbstractController | Sampled | Callable[..., Array] | None
    events: tuple[AbstractEvent, ...]
    about: PyTree
    channels: tuple[Channel, ...]
    slots: Int[Array, "..."]
    following: Int[Array, "..."]
    gap: Float[Array, "..."]
    independents: tuple[Indices, Indices] = eqx.field(static=True)
    reassembled: bool = eqx.field(static=True)

    def __getitem__(self, index: int) -> "Shot":
        """One of several."""
        return jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, self)


def padded(shot: Shot, times: int) -> Shot:
    """The shot with its last time repeated, without samples there."""
    # Repeated times take no step; runs of a group are of one shape.
    more = times - shot.ts.shape[0]
    longer = lambda x: jnp.concatenate([x, jnp.zeros((more, *x.shape[1:]), x.dtype)])
    return dataclasses.replace(
        shot,
        ts=jnp.concatenate([shot.ts, jnp.broadcast_to(shot.ts[-1], (more,))]),
        channels=tuple(
            dataclasses.replace(x, values=longer(x.values), weights=longer(x.weights)) for x in shot.channels
        ),
    )


def grouped(shots: Sequence[Shot]) -> tuple[tuple[Shot, ...], tuple[tuple[int, ...], ...]]:
    """Shots that share a program, stacked, shorter ones padded; and the numbers of the shots of each group."""
    groups: dict[Any, list[int]] = {}
    for number, shot in enumerate(shots):
        arrays, rest = eqx.partition(shot, eqx.is_array)
        leaves, structure = jax.tree.flatten(rest)
        # Everything counts but the number of times.
        biases = [channel.bias for channel in shot.channels]
        fixed = (arrays.start, arrays.control, arrays.events, arrays.about, arrays.slots, biases)
        shapes = (*(x.shape for x in jax.tree.leaves(fixed)), *(x.values.shape[1:] for x in shot.channels))
        key = (structure, tuple(map(id, leaves)), shapes, jax.tree.structure(arrays))
        groups.setdefault(key, []).append(number)
    stacks = tuple(_stacked([shots[i] for i in members]) for members in groups.values())
    return stacks, tuple(map(tuple, groups.values()))


def _stacked(shots: Sequence[Shot]) -> Shot:
    longest = max(shot.ts.shape[0] for shot in shots)
    parts = [eqx.partition(padded(shot, longest), eqx.is_array) for shot in shots]
    return eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *(arrays for arrays, _ in parts)), parts[0][1])


def over_shots(fn: Callable[..., PyTree], group: Shot, *others: Array) -> PyTree:
    """`fn(shot, *others)` for each shot of a group, and each row of `others`; a single shot is no batch."""
    if group.ts.shape[0] == 1:
        return jax.tree.map(lambda x: x[None], fn(group[0], *(x[0] for x in others)))
    arrays, rest = eqx.partition(group, eqx.is_array)
    return jax.vmap(lambda arrays, *others: fn(eqx.combine(arrays, rest), *others))(arrays, *others)
