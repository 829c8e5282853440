"""Records in parts: multiple shooting."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import enforce, positive_or_one
from ..kinematics import Guess, solve_guess
from ..system import State, System
from .experiment import Experiment
from .start import Indices, independent_values

# Samples on either side of a window's start to which a cubic is fitted there: nine for four coefficients halve the noise, and span little of
# a motion that is sampled well.
BESIDE = 4


class Window(eqx.Module):
    """A part of a record.

    Attributes:
        ts: times (T,), the last that at which the next window starts.
        start: a guess of its start.
        values: independent coordinates and velocities there.
        values_of_signals, weights: of the samples, by signal.
        gap: standard deviations of the gap to the next one; none where the window is the whole.
    """

    ts: Float[Array, " T"]
    start: State
    values: np.ndarray | Array
    values_of_signals: tuple[Float[Array, "..."], ...]
    weights: tuple[Float[Array, "..."], ...]
    gap: Float[Array, " s"]


def windows(experiment: Experiment, system: System, independents: tuple[Indices, Indices]) -> list[Window]:
    """The windows of an experiment; one that is the whole, if no more are asked for.

    The starts of later ones are read off the record: a cubic through the samples nearby gives measured coordinates and
    their rates; what is not measured follows from sample to sample.
    """
    ts, tables = experiment.ts, [s.table(experiment.ts.shape[0]) for s in experiment.signals]
    values, weights = tuple(x for x, _ in tables), tuple(w for _, w in tables)
    first = independent_values(experiment.start, independents)
    if experiment.windows == 1:
        return [Window(ts, experiment.start, first, values, weights, gap=jnp.zeros(0))]
    count = ts.shape[0]
    cuts = np.linspace(0, count - 1, experiment.windows + 1).round().astype(int)
    if np.any(np.diff(cuts) < 1):
        raise ValueError(
            f"Argument `windows` of {experiment.where} must not exceed its number of samples less one, {count - 1}, but "
            f"is {experiment.windows}."
        )
    states, state = [experiment.start], experiment.start
    # From sample to sample, since assembly finds the branch that is nearest: from a window's start to the next it
    # might find another.
    for sample in range(1, int(cuts[-2]) + 1):
        state = _state_at(experiment, system, independents, state, sample)
        if sample in cuts:
            states.append(state)
    starts = np.stack([np.asarray(independent_values(s, independents)) for s in states])
    # Gaps are compared with how much the coordinate varies at all.
    spread = np.std(starts, axis=0)
    gap = experiment.gap * positive_or_one(spread)
    parts = []
    for k, state in enumerate(states):
        last = k == len(states) - 1
        part = slice(cuts[k], cuts[k + 1] + 1)
        # The sample at which a window ends belongs to the next one.
        counts = np.ones(cuts[k + 1] + 1 - cuts[k], bool)
        counts[-1] = last
        window_weights = tuple(jnp.where(counts[:, None], w[part], 0.0) for w in weights)
        parts.append(
            Window(
                ts=ts[part],
                start=state,
                values=starts[k],
                values_of_signals=tuple(x[part] for x in values),
                weights=window_weights,
                gap=jnp.asarray(np.where(last, np.inf, gap)),
            )
        )
    return parts


def _state_at(
    experiment: Experiment, system: System, independents: tuple[Indices, Indices], previous: State, sample: int
) -> State:
    """The state at a sample as far as it is measured, beside that of the sample before."""
    ts, q, v = np.asarray(experiment.ts), np.array(previous.q), np.array(previous.v)
    for signal in experiment.signals:
        if signal.of in system.coordinates and signal.values is not None:
            value_and_rate = _fit_cubic(ts, np.asarray(signal.values).ravel(), sample)
            if value_and_rate is not None:
                q[system.coordinates.index(signal.of)] = value_and_rate[0]
                if signal.of in system.velocities:
                    v[system.velocities.index(signal.of)] = value_and_rate[1]
    guess = Guess(experiment.ts[sample], jnp.asarray(q), jnp.asarray(v), *independents, previous.mode)
    near = solve_guess(system, guess)
    try:
        enforce(near.state, near.checks)
    except ValueError as error:
        raise ValueError(
            f"Argument `windows` of experiment '{experiment.name}': no state was found at t = {float(experiment.ts[sample]):g} s from "
            f"the samples nearby; cut into more windows, or let signals name more coordinates. {error}"
        ) from None
    return dataclasses.replace(near.state, mode=previous.mode, scale=experiment.start.scale)


def _fit_cubic(ts: np.ndarray, values: np.ndarray, sample: int) -> tuple[float, float] | None:
    """Value and rate at a sample of the cubic that fits those nearby best; None where too few are there."""
    part = slice(max(sample - BESIDE, 0), sample + BESIDE + 1)
    t, x = ts[part] - ts[sample], values[part]
    is_measured = np.isfinite(x)
    if is_measured.sum() < 2:
        return None
    size = np.max(np.abs(t))
    fitted = np.polyfit(t[is_measured] / size, x[is_measured], min(3, int(is_measured.sum()) - 1))
    return float(fitted[-1]), float(fitted[-2] / size)
