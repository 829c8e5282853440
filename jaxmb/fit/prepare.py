"""From experiments to shots and unknowns."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from ..control import AbstractController, Sampled
from ..formulation import formulation_at
from ..foundations import as_parameters, expect_different, is_concrete, listing, strong
from ..lanes import WRITING
from ..lanes.jaxpr import arguments_used
from ..system import State, System, check_state, position_residual, velocity_residual
from .experiment import OPTIONS, Experiment, Signal
from .parameter import Parameter, Unknowns
from .problem import DerivativeMode, Problem, Runs, build_system
from .reading import Reading, reading, wraps
from .shot import Channel, Shot, grouped
from .start import Indices, independent
from .target import Setup
from .windows import Window, windows

# A pass of reverse mode costs about four runs, whatever the number of unknowns: the runs of docs/measured.md took so much.
REVERSE_PASS = 4


class Nuisance(NamedTuple):
    """An unknown that belongs to an experiment.

    Attributes:
        label: its name.
        value: where the search starts.
    """

    label: str
    value: ArrayLike


class Prepared(eqx.Module):
    """A problem, its start and the names of its unknowns.

    Attributes:
        problem: the residuals.
        start: of the search (N,).
        labels: names of the unknowns.
        experiments: names of the experiments.
        shots: of each one the number of its experiment, and how many of its samples count.
        members: the numbers of the shots of each group.
    """

    problem: Problem
    start: Float[Array, " N"]
    labels: tuple[str, ...] = eqx.field(static=True)
    experiments: tuple[str, ...] = eqx.field(static=True)
    shots: tuple[tuple[int, int], ...] = eqx.field(static=True)
    members: tuple[tuple[int, ...], ...] = eqx.field(static=True)


def prepare(
    model: PyTree,
    parameters: Sequence[Parameter],
    experiments: Sequence[Experiment],
    build: Callable[[PyTree], System] | None,
    jacobian: DerivativeMode | None,
    options: Mapping[str, PyTree],
) -> Prepared:
    """All arguments of a search, checked.

    Raises:
        TypeError, ValueError: naming the argument, the parameter, the experiment or the signal.
    """
    names = _check_arguments(experiments, options)
    model, build = strong(as_parameters(model)), build or build_system
    setups = [Setup(model, e.control, e.events) for e in experiments]
    unknowns = [Unknowns.of(parameters, setup) for setup in setups]
    runs = Runs(model, build, unknowns[0], dict(options))
    nuisances: list[Nuisance] = []
    shots: list[Shot] = []
    origins: list[tuple[int, int]] = []
    for i, (experiment, setup, own) in enumerate(zip(experiments, setups, unknowns, strict=True)):
        own_shots = _shots(names[i], experiment, setup, own, runs, nuisances)
        shots += own_shots
        # The last sample of a window is the first of the next one, and counts there.
        origins += [(i, x.ts.shape[0] - (x is not own_shots[-1])) for x in own_shots]
    # Decided here, by known numbers: runs see traced ones, which do not tell of bodies without inertia.
    nominal = runs.system(unknowns[0].applied(setups[0], unknowns[0].nominal))
    formulation = formulation_at(options.get("formulation"), nominal, strong(experiments[0].start))
    runs = dataclasses.replace(runs, options=runs.options | {"formulation": formulation})
    if not unknowns[0].free and not nuisances:
        raise ValueError(
            "Argument `parameters` must hold one at least that is not frozen, where no start or bias is unknown."
        )
    groups, members = grouped(shots)
    forward = jacobian != "reverse" if jacobian else _prefers_forward(unknowns[0].start.shape[0], groups)
    problem, start = _problem(runs, groups, nuisances, forward=forward, bounded=_any_bound(parameters))
    return Prepared(
        problem=problem,
        start=start,
        labels=(*unknowns[0].labels, *(nuisance.label for nuisance in nuisances)),
        experiments=names,
        shots=tuple(origins),
        members=members,
    )


def _check_arguments(experiments: Sequence[Experiment], options: Mapping[str, PyTree]) -> tuple[str, ...]:
    """Refuses what needs no model to be wrong; the names of the experiments."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise TypeError(
            f"Arguments beyond those named must be of `simulate` out of {listing(OPTIONS)}, but are {listing(unknown)}."
        )
    names = tuple(e.name or str(i) for i, e in enumerate(experiments))
    expect_different("`experiments`", names)
    return names


def _problem(
    runs: Runs, groups: tuple[Shot, ...], nuisances: Sequence[Nuisance], *, forward: bool, bounded: bool
) -> tuple[Problem, Float[Array, " N"]]:
    """The residuals, and where the search starts; parameters come first, and have scales of their own."""
    unknowns = runs.unknowns
    values = jnp.concatenate([unknowns.start, *(jnp.atleast_1d(jnp.asarray(x.value, float)) for x in nuisances)])
    count = unknowns.start.shape[0]
    rest = values[count:]
    # Without derivatives: a scale is a unit, and the start itself may be what is differentiated.
    scale = jnp.concatenate([jnp.ones(count), jax.lax.stop_gradient(jnp.where(rest != 0, jnp.abs(rest), 1.0))])
    free = jnp.full(len(nuisances), jnp.inf)
    problem = Problem(
        runs=runs,
        groups=groups,
        scale=scale,
        low=jnp.concatenate([unknowns.low, -free]),
        high=jnp.concatenate([unknowns.high, free]),
        forward=forward,
        bounded=bounded,
    )
    return problem, values / scale


def _any_bound(parameters: Sequence[Parameter]) -> bool:
    """Whether any unknown may be bounded; a traced bound counts as one, since its value is not known."""
    ends = [x for p in parameters if not p.frozen for x in (p.min_value, p.max_value)]
    return any(not is_concrete(x) or bool(np.any(np.isfinite(x))) for x in ends)


def _prefers_forward(count: int, groups: Sequence[Shot]) -> bool:
    """Whether tangents of all parameters cost less than a pass back for each sample."""
    passes = max(sum(math.prod(x.values.shape[1:]) for x in group.channels) for group in groups)
    tangents = count + max(group.slots.shape[1] for group in groups)
    return tangents <= REVERSE_PASS * passes


def _shots(
    name: str, experiment: Experiment, setup: Setup, unknowns: Unknowns, runs: Runs, nuisances: list[Nuisance]
) -> list[Shot]:
    """The windows of an experiment; what it adds to the unknowns is appended to `nuisances`."""
    system = runs.system(unknowns.applied(setup, unknowns.nominal))
    state = strong(experiment.start)
    _check_experiment(name, experiment, system, state)
    readings = tuple(reading(s.of, system, f"signal '{s.name}' of experiment '{name}'") for s in experiment.signals)
    choice = _start_choice(experiment, setup, unknowns, runs, system, state)

    count = runs.unknowns.start.shape[0]
    biases = tuple(_bias_slots(name, signal, count, nuisances) for signal in experiment.signals)
    parts = windows(experiment, system, choice.independents)
    titles = [name] if len(parts) == 1 else [f"{name}, window {k}" for k in range(len(parts))]
    slots = [_start_slots(title, part, choice, count, nuisances) for title, part in zip(titles, parts, strict=True)]
    none = jnp.zeros(0, int)

    def channel(signal: Signal, values: Array, weights: Array, read: Reading, bias: Array | None) -> Channel:
        return Channel(
            name=signal.name,
            values=values,
            weights=weights,
            read=read,
            wraps=wraps(read, system),
            width=signal.width if signal.bias or signal.values is not None else None,
            bias=bias,
        )

    following = [*slots[1:], jnp.full_like(slots[-1], -1)] if len(parts) > 1 else [none]
    return [
        Shot(
            ts=part.ts,
            start=part.start,
            control=experiment.control,
            events=experiment.events,
            about=experiment.about,
            channels=tuple(map(channel, experiment.signals, part.values_of_signals, part.weights, readings, biases)),
            slots=own,
            following=following_own,
            gap=part.gap,
            independents=choice.independents,
            reassembled=choice.reassembled,
        )
        for part, own, following_own in zip(parts, slots, following, strict=True)
    ]


def _check_experiment(name: str, experiment: Experiment, system: System, state: State) -> None:
    """The system fits the start, and windows the controller."""
    try:
        check_state(system, state)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Experiment '{name}': {error}") from None
    if experiment.windows > 1 and _has_memory(experiment.control, system):
        raise ValueError(
            f"Argument `windows` of experiment '{name}' must be 1 with a controller that remembers or is sampled: what it remembers "
            f"where a window starts is not known; it is {experiment.windows}."
        )


class StartChoice(NamedTuple):
    """Which coordinates and velocities of a start stand for all, and which of these are fitted.

    Attributes:
        independents: indices of coordinates, and of velocities; none where the start stays as it is.
        labels: their names.
        is_fitted: which of them are unknowns.
        reassembled: whether all others are found anew at each evaluation.
    """

    independents: tuple[Indices, Indices]
    labels: tuple[str, ...]
    is_fitted: np.ndarray
    reassembled: bool


def _start_choice(
    experiment: Experiment, setup: Setup, unknowns: Unknowns, runs: Runs, system: System, state: State
) -> StartChoice:
    # With windows all starts are unknown: they are what multiple shooting solves for (Bock 1983).
    fitted = experiment.fit_start if experiment.windows == 1 else True
    reassembled = bool(fitted) or _start_depends(setup, unknowns, runs, state)
    first = fitted if isinstance(fitted, tuple) else ()
    # Measured coordinates are independent ones where they can be, since the starts of windows are read off the record.
    measured = [f"{s.of}{end}" for s in experiment.signals if isinstance(s.of, str) for end in ("", "'")]
    independents: tuple[Indices, Indices] = independent(system, state, first, measured) if reassembled else ((), ())
    labels = (*(system.coordinates[i] for i in independents[0]), *(f"{system.velocities[i]}'" for i in independents[1]))
    is_fitted = np.array([fitted is True or label in first for label in labels], bool)
    return StartChoice(independents, labels, is_fitted, reassembled)


def _start_slots(
    title: str, part: Window, choice: StartChoice, count: int, nuisances: list[Nuisance]
) -> Int[Array, " s"]:
    """Which unknowns are the start of a window, which are appended to `nuisances`; −1 for what is not fitted."""
    slots = np.full(len(choice.labels), -1)
    for i in np.flatnonzero(choice.is_fitted):
        slots[i] = count + len(nuisances)
        nuisances.append(Nuisance(f"{title}: start of {choice.labels[i]}", part.values[i]))
    return jnp.asarray(slots)


def _bias_slots(name: str, signal: Signal, count: int, nuisances: list[Nuisance]) -> Int[Array, " k"] | None:
    """Which unknowns are the biases of a signal, which are appended to `nuisances`; None where it has none."""
    if not signal.bias:
        return None
    slots = jnp.asarray(count + len(nuisances) + np.arange(signal.width))
    tags = [f"[{i}]" for i in range(signal.width)] if signal.width > 1 else [""]
    nuisances += [Nuisance(f"{name}: bias of {signal.name}{tag}", 0.0) for tag in tags]
    return slots


def _has_memory(control: object, system: System) -> bool:
    """Whether what a controller does depends on more than the instant."""
    if not isinstance(control, AbstractController):
        return isinstance(control, Sampled)
    return any(np.size(x) for x in jax.tree.leaves(control.init(system.acting_at(control.acts_at))))


def _start_depends(setup: Setup, unknowns: Unknowns, runs: Runs, state: State) -> bool:
    """Whether what constraints say of the start depends on a parameter that is looked for."""

    def residuals(values: dict[str, Array]) -> tuple[Array, Array]:
        system = runs.system(unknowns.applied(setup, {**unknowns.nominal, **values})).in_mode(state.mode)
        return position_residual(system, state.t, state.q), velocity_residual(system, state.t, state.q, state.v)

    free = {name: unknowns.nominal[name] for name in unknowns.free}
    with WRITING:  # in full: of a call of compiled code nobody sees what it depends on
        return any(arguments_used(jax.make_jaxpr(residuals)(free)))
