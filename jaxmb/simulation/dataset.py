"""A motion as a data set, with names and units."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PyTree

from ..foundations import RESULTS, codes, optional, verdicts
from ..system import Names
from .columns import concrete_data, names_of_results

if TYPE_CHECKING:
    from .solution import Solution

Variables = dict[str, Any]


def dataset(solution: "Solution", runs: Sequence[str] | None, shared_times: bool | None) -> Any:
    """See `Solution.to_xarray`."""
    xarray = optional("xarray", "data")
    solution, names, batch = concrete_data(solution, runs)
    shared = _shared(solution.ts, shared_times)
    time = "time" if shared else "sample"
    times = solution.ts.reshape(-1, solution.ts.shape[-1])[0] if shared else solution.ts
    coordinates = {
        "time": (("time",) if shared else (*batch, time), times, {"units": "s"}),
        **{what: (what, _words(words)) for what, words in _labels(solution, names).items()},
        **{f"{what}_units": (what, _words(units)) for what, units in _units(solution, names).items()},
    }
    variables = {
        **_motion(solution, names, batch, time),
        **verdict_variables(solution.result, batch),
        **_numbers_of_the_run(solution, batch),
        **_modes(solution, batch, time),
        **_controller(solution, batch, time),
        **_events(solution, batch),
        **_switches(solution, batch),
    }
    return xarray.Dataset(variables, coordinates)


def _shared(ts: PyTree, demanded: bool | None) -> bool:
    """Whether all runs have the same times."""
    equal = bool((ts == ts.reshape(-1, ts.shape[-1])[:1]).all())
    if demanded and not equal:
        raise ValueError("Argument `shared_times` must not be True, as the runs have different times.")
    return equal if demanded is None else demanded or ts.ndim == 1


def _labels(solution: "Solution", names: Names) -> dict[str, Sequence[str]]:
    """The names along each axis that has some."""
    labels: dict[str, Sequence[str]] = {"coordinate": names.coordinates, "velocity": names.velocities}
    labels["constraint"] = names.rows_in(solution.modes)
    if solution.u is not None:
        labels["input"] = names.inputs
    if solution.modes is not None and solution.modes.locks:
        labels["lock"] = [lock.name for lock in solution.modes.locks]
    if solution.events is not None:
        labels["happening"] = solution.events.names
    return labels


def _units(solution: "Solution", names: Names) -> Mapping[str, Sequence[str | None]]:
    units = {"coordinate": names.coordinate_units, "velocity": names.velocity_units}
    return units if solution.u is None else units | {"input": names.input_units}


def _words(words: Sequence[str | None]) -> np.ndarray:
    return np.array([word or "" for word in words], dtype=object)


def _common(units: Sequence[str | None]) -> dict[str, str]:
    """The unit of a variable, if all that it holds have the same."""
    kinds = set(units)
    return {"units": str(units[0])} if len(kinds) == 1 and None not in kinds else {}


def _motion(solution: "Solution", names: Names, batch: tuple[str, ...], time: str) -> Variables:
    each = (*batch, time)
    variables = {
        "q": ((*each, "coordinate"), solution.q, _common(names.coordinate_units)),
        "v": ((*each, "velocity"), solution.v, _common(names.velocity_units)),
        "work": (each, solution.work, {"units": "J"}),
    }
    if solution.u is not None:
        variables["u"] = ((*each, "input"), solution.u, _common(names.input_units))
    return variables


def verdict_variables(result: RESULTS, dims: Sequence[str]) -> Variables:
    """Codes of results, with what they mean, and their names, along given dimensions."""
    results = verdicts()
    flags = {
        "flag_values": np.array(list(results), np.int32),
        "flag_meanings": " ".join(name for name, _ in results.values()),
        "flag_texts": "\n".join(" ".join(text.split()) for _, text in results.values()),
    }
    return {"result": (dims, codes(result).astype(np.int32), flags), "verdict": (dims, names_of_results(result))}


def _numbers_of_the_run(solution: "Solution", batch: tuple[str, ...]) -> Variables:
    """Counts and sizes."""
    variables = {
        f"stats_{name}": ((*batch, "constraint") if name == "row_residuals" else batch, values)
        for name, values in solution.stats.items()
    }
    scale = solution.scale
    rows = (*batch, "constraint")
    variables |= {f"scale_{name}": (rows, getattr(scale, name)) for name in ("row", "span", "row_by_length")}
    return variables | {
        "scale_reach": ((*batch, "velocity"), scale.reach),
        "scale_rate": (batch, scale.rate, {"units": "1/s"}),
    }


def _modes(solution: "Solution", batch: tuple[str, ...], time: str) -> Variables:
    """Which constraints act, and what locks hold."""
    modes, each = solution.modes, (*batch, time)
    if modes is None:
        return {}
    variables = {"active": ((*each, "constraint"), modes.active)}
    if modes.locks:
        variables |= {"lock_values": ((*each, "lock"), modes.lock_values), "drag": ((*each, "lock"), modes.drag)}
    return variables


def _controller(solution: "Solution", batch: tuple[str, ...], time: str) -> Variables:
    """What a controller remembers, as one vector, and its own state where that is an array."""
    variables, each = {}, (*batch, time)
    if solution.control is not None and solution.control.size:
        variables["control"] = ((*each, "memory"), solution.control)
    z = solution.z
    if isinstance(z, np.ndarray) and z.size:
        variables["z"] = ((*each, *(f"z_{i}" for i in range(z.ndim - len(each)))), z)
    return variables


def _events(solution: "Solution", batch: tuple[str, ...]) -> Variables:
    """What happened; entries beyond the count are NaN, False or empty."""
    events, each = solution.events, (*batch, "event")
    if events is None:
        return {}
    names = np.array(events.names, object)
    what = [", ".join(names[happened]) for happened in events.happened.reshape(-1, len(names))]
    states = {"before": events.before, "after": events.after}
    used = np.arange(events.t.shape[-1]) < events.count[..., None]
    impulses = list(events.impulses.values())
    return {
        "event_count": (batch, events.count),
        "event_time": (each, events.t, {"units": "s"}),
        "event_what": (each, np.array(what, object).reshape(events.t.shape)),
        "event_happened": ((*each, "happening"), events.happened),
        "event_loss": (each, np.where(used, events.loss, np.nan), {"units": "J"}),
        "event_doubtful": (each, events.doubtful),
        **{f"event_q_{when}": ((*each, "coordinate"), state.q) for when, state in states.items()},
        **{f"event_v_{when}": ((*each, "velocity"), state.v) for when, state in states.items()},
        **({"event_impulse": ((*each, "constraint"), np.concatenate(impulses, axis=-1))} if impulses else {}),
    }


def _switches(solution: "Solution", batch: tuple[str, ...]) -> Variables:
    """When the formulation chose other coordinates."""
    switches, each = solution.switches, (*batch, "switch")
    if switches is None:
        return {}
    return {
        "switch_count": (batch, switches.count),
        "switch_time": (each, switches.t, {"units": "s"}),
        "switch_before": ((*each, "choice"), switches.before),
        "switch_after": ((*each, "choice"), switches.after),
    }
