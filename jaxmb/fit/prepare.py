"""From experiments to lanes and unknowns."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..control import AbstractController, Sampled
from ..formulation import formulation_at
from ..foundations import as_parameters, is_concrete, listing, strong
from ..lanes.jaxpr import arguments_used
from ..system import State, System, check_state, position_residual, velocity_residual
from .experiment import OPTIONS, Experiment
from .lane import Lane, grouped
from .parameter import Parameter, Unknowns
from .problem import Problem, Runs, built
from .reading import reading
from .start import Indices, independent
from .target import Setup
from .windows import Window, windows

# A pass of reverse mode costs about as much as that many tangents of forward mode.
REVERSE_PASS = 4


class Nuisance(NamedTuple):
    """An unknown that belongs to an experiment.

    Attributes:
        label: its name.
        value: where the search starts.
    """

    label: str
    value: Any


class Prepared(eqx.Module):
    """A problem, its start and the names of its unknowns.

    Attributes:
        problem: the residuals.
        start: of the search (N,).
        labels: names of the unknowns.
        experiments: names of the experiments.
        signals: names of their signals, by experiment.
        lanes: of each lane the number of its experiment, and how many of its samples count.
        members: the numbers of the lanes of each group.
    """

    problem: Problem
    start: Float[Array, " N"]
    labels: tuple[str, ...] = eqx.field(static=True)
    experiments: tuple[str, ...] = eqx.field(static=True)
    signals: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    lanes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    members: tuple[tuple[int, ...], ...] = eqx.field(static=True)


def prepare(
    model: Any,
    parameters: Sequence[Parameter],
    experiments: Sequence[Experiment],
    build: Callable[[Any], System] | None,
    jacobian: str | None,
    options: Mapping[str, Any],
) -> Prepared:
    """All arguments of a search, checked.

    Raises:
        TypeError, ValueError: naming the argument, the parameter, the experiment or the signal.
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise TypeError(
            f"Arguments beyond those named must be of `simulate` out of {listing(OPTIONS)}, but are {listing(unknown)}."
        )
    if jacobian not in (None, "forward", "reverse"):
        raise ValueError(f"Argument `jacobian` must be 'forward', 'reverse' or None, but is {jacobian!r}.")
    names = tuple(e.name or str(i) for i, e in enumerate(experiments))
    if len(set(names)) < len(names):
        raise ValueError(f"Argument `experiments` must hold different names, but holds {listing(names)}.")
    model, build = strong(as_parameters(model)), build or built
    setups = [Setup(model, e.control, e.events) for e in experiments]
    unknowns = [Unknowns.of(parameters, setup) for setup in setups]
    runs = Runs(model, build, unknowns[0], dict(options))
    entries: list[Nuisance] = []
    lanes: list[Lane] = []
    origins: list[tuple[int, int]] = []
    for i, (experiment, setup, own) in enumerate(zip(experiments, setups, unknowns, strict=True)):
        found = _lanes(names[i], experiment, setup, own, runs, entries)
        lanes += found
        origins += [(i, x.ts.shape[0] - (x is not found[-1])) for x in found]
    # Runs see traced numbers, which do not tell of bodies without inertia.
    nominal = build(unknowns[0].applied(setups[0], unknowns[0].nominal).model)
    formulation = formulation_at(options.get("formulation"), nominal, strong(experiments[0].start))
    runs = dataclasses.replace(runs, options=runs.options | {"formulation": formulation})
    if not unknowns[0].free and not entries:
        raise ValueError(
            "Argument `parameters` must hold one at least that is not frozen, where no start or bias is unknown."
        )
    values = jnp.concatenate([unknowns[0].start, *(jnp.atleast_1d(jnp.asarray(e.value, float)) for e in entries)])
    count = unknowns[0].start.shape[0]
    rest = values[count:]
    scale = jnp.concatenate([jnp.ones(count), jax.lax.stop_gradient(jnp.where(rest != 0, jnp.abs(rest), 1.0))])
    free = jnp.full(len(entries), jnp.inf)
    low, high = jnp.concatenate([unknowns[0].low, -free]), jnp.concatenate([unknowns[0].high, free])
    groups, members = grouped(lanes)
    forward = jacobian != "reverse" if jacobian else _prefers_forward(count, groups)
    ends = [x for p in parameters if not p.frozen for x in (p.min_value, p.max_value)]
    bounded = any(not is_concrete(x) or bool(np.any(np.isfinite(x))) for x in ends)
    problem = Problem(runs, groups, scale, low, high, forward, bounded)
    labels = (*unknowns[0].labels, *(e.label for e in entries))
    signals = tuple(tuple(s.name for s in e.signals) for e in experiments)
    return Prepared(problem, values / scale, labels, names, signals, tuple(origins), members)


def _prefers_forward(count: int, groups: Sequence[Lane]) -> bool:
    """Whether tangents of all parameters cost less than a pass back for each sample."""
    passes = max(sum(x.shape[1] * x.shape[2] for x in group.values) for group in groups)
    tangents = count + max(group.slots.shape[1] for group in groups)
    return tangents <= REVERSE_PASS * passes


def _lanes(
    name: str, experiment: Experiment, setup: Setup, unknowns: Unknowns, runs: Runs, entries: list[Nuisance]
) -> list[Lane]:
    """The windows of an experiment; what it adds to the unknowns is appended to `entries`."""
    system = runs.build(unknowns.applied(setup, unknowns.nominal).model)
    if not isinstance(system, System):
        raise TypeError(f"Argument `build` must return a System, but returns a {type(system).__name__}.")
    state = strong(experiment.start)
    try:
        check_state(system, state)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Experiment '{name}': {error}") from None
    if experiment.windows > 1 and _remembers(experiment.control, system):
        raise ValueError(
            f"Argument `windows` of experiment '{name}' must be 1 with a controller that remembers or is sampled: what it remembers "
            f"where a window starts is not known; it is {experiment.windows}."
        )
    readings = tuple(reading(s.of, system, f"signal '{s.name}' of experiment '{name}'") for s in experiment.signals)
    fitted = experiment.fit_start if experiment.windows == 1 else True
    moved = bool(fitted) or _moves(setup, unknowns, runs, state)
    first = fitted if isinstance(fitted, tuple) else ()
    measured = [f"{s.of}{end}" for s in experiment.signals if isinstance(s.of, str) for end in ("", "'")]
    held: tuple[Indices, Indices] = independent(system, state, first, measured) if moved else ((), ())
    count = runs.unknowns.start.shape[0]
    labels = (*(system.coordinates[i] for i in held[0]), *(f"{system.velocities[i]}'" for i in held[1]))
    looked_for = np.array([fitted is True or label in first for label in labels], bool)

    biases = []
    for signal in experiment.signals:
        places = None
        if signal.bias:
            places = jnp.asarray(count + len(entries) + np.arange(signal.width))
            tags = [f"[{i}]" for i in range(signal.width)] if signal.width > 1 else [""]
            entries += [Nuisance(f"{name}: bias of {signal.name}{tag}", 0.0) for tag in tags]
        biases.append(places)

    parts = windows(experiment, system, held)
    slots = []
    for k, part in enumerate(parts):
        places = np.full(len(labels), -1)
        for i in np.flatnonzero(looked_for):
            places[i] = count + len(entries)
            where = name if len(parts) == 1 else f"{name}, window {k}"
            entries.append(Nuisance(f"{where}: start of {labels[i]}", part.values[i]))
        slots.append(jnp.asarray(places))
    return [_lane(part, slots, k, experiment, tuple(biases), readings, held, moved) for k, part in enumerate(parts)]


def _lane(
    part: Window,
    slots: list[Array],
    k: int,
    experiment: Experiment,
    biases: tuple[Any, ...],
    readings: tuple[Any, ...],
    held: tuple[Indices, Indices],
    moved: bool,
) -> Lane:
    many, last = len(slots) > 1, k == len(slots) - 1
    none = jnp.zeros(0, int)
    following = (jnp.full_like(slots[k], -1) if last else slots[k + 1]) if many else none
    return Lane(
        ts=part.ts,
        start=part.start,
        control=experiment.control,
        events=experiment.events,
        about=experiment.about,
        values=part.values_of_signals,
        weights=part.weights,
        slots=slots[k],
        biases=biases,
        following=following,
        gap=part.gap if many else jnp.zeros(0),
        readings=readings,
        names=tuple(s.name for s in experiment.signals),
        widths=tuple(s.width if s.bias or s.values is not None else None for s in experiment.signals),
        held=held[0],
        held_velocities=held[1],
        moved=moved,
    )


def _remembers(control: Any, system: System) -> bool:
    """Whether what a controller does depends on more than the instant."""
    if not isinstance(control, AbstractController):
        return isinstance(control, Sampled)
    return any(np.size(x) for x in jax.tree.leaves(control.init(system.acting_at(control.acts_at))))


def _moves(setup: Setup, unknowns: Unknowns, runs: Runs, state: State) -> bool:
    """Whether what constraints say of the start depends on a parameter that is looked for."""

    def left(values: dict[str, Array]) -> tuple[Array, Array]:
        system = runs.build(unknowns.applied(setup, {**unknowns.nominal, **values}).model).in_mode(state.mode)
        return position_residual(system, state.t, state.q), velocity_residual(system, state.t, state.q, state.v)

    free = {name: unknowns.nominal[name] for name in unknowns.free}
    return any(arguments_used(jax.make_jaxpr(left)(free)))
