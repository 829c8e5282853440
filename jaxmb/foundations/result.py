"""What a computation can report."""

from typing import Any, cast

import diffrax as dfx
import jax
import numpy as np
from jaxtyping import Array

from .check import is_concrete


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Diffrax's results and those of constrained dynamics; each carries its message."""

    contradictory_constraints = (
        "The constraints contradict each other: no acceleration, or where constraints begin to act no velocity, satisfies all "
        "rows. `diagnose` tells which; check constraints that fix the same motion twice with different values."
    )
    undetermined_motion = (
        "The motion is not determined: at a pose where constraints become dependent, several motions are possible and the velocity "
        "(zero at a bifurcation) selects none of them. `diagnose` names the rows. Start beside the pose, or with a velocity "
        "along the motion that you want; if `diagnose` finds that all poses around are singular too, change a length."
    )
    ill_conditioned_state = (
        "The state does not determine an acceleration: beside a pose where constraints become dependent it satisfies them to rounding, and "
        "its velocity still differs from that of a motion through the pose by more than a millionth, or no motion leads through. Start further away, or "
        "give exact coordinates and velocities, which `assemble` leaves as they are."
    )
    unfit_choice = (
        "A choice of the formulation does not fit this pose: the rows that are left after elimination, or the independent "
        "coordinates, no longer determine the motion. Choose others, or let the formulation choose."
    )
    events_exhausted = (
        "More events happened than `max_events`. If they follow each other ever faster without coming to rest, the model has no motion "
        "beyond that point; otherwise raise `max_events`."
    )
    position_mismatch = (
        "A constraint that is activated does not fit the position then. Activate it where its residual is zero, by a guard, "
        "or have positions assembled by `assemble=True`."
    )
    inconsistent_state = (
        "The state (in a run, the first one) violates its constraints or holds numbers that are not finite. Make it with `jaxmb.assemble`; "
        "`jaxmb.residuals` tells by how much it is off."
    )
    no_assembly = (
        "No state on the constraints was found from this guess, or a joint is the wrong way round there. Start closer, hold fewer "
        "coordinates, or look at the residuals by constraint; `jaxmb.assemble` raises an error that names the constraint."
    )
    unfit_times = (
        "The times do not fit: `ts` and `state.t` must be finite, `ts` must increase and must not start before `state.t`, and no "
        "event may have been due before."
    )
    projection_failed = (
        "The state could not be brought back onto the constraints within the tolerance of the drift correction. Reduce "
        "the step size or the tolerance of the step size controller, or raise `iterations` of `jaxmb.Projection`."
    )
    no_equilibrium = (
        "No equilibrium was found near the start: at the pose where the search ended forces are out of balance. Start closer to "
        "one, solve for more inputs, or hold fewer coordinates."
    )
    search_failed = (
        "A run fails where the search starts, or its residuals or derivatives are not finite there. Start with other parameters; "
        "`simulate` of that run tells more."
    )
    search_stuck = (
        "No step reduces the cost although its derivatives say that one should: runs fail nearby, or loops do not close there, or the motion depends on "
        "the parameters so strongly that its derivatives hold nowhere. Start closer; in a fit use shorter records, or `windows`."
    )
    search_unfinished = "The search did not converge within `max_iterations`, or `steps`; more of them, or another start, may lead further."
    unresolved_passage = (
        "The motion comes so close to a pose at which constraints become dependent, without leading through it, that its continuation is "
        "not determined at this precision: some lengths nearly agree. Make them agree, or differ by more."
    )


# Typed as what a member is at run time; within the class it stands for its text.
SUCCESS = cast(RESULTS, RESULTS.successful)
# What Diffrax says of these is empty, or names nothing that could be looked at.
_TEXTS = {
    "successful": "successful",
    "nonfinite": "Numbers are not finite: those of the state, of an input such as `control` returns, or of a force; or the mass matrix is not positive "
    "definite where the formulation needs it; `KKT` needs that on null(C) only.",
}
for _name, _text in _TEXTS.items():
    RESULTS._index_to_message[int(getattr(RESULTS, _name)._value)] = _text  # pyright: ignore[reportAttributeAccessIssue]


def result_of(*verdicts: tuple[Array, Any]) -> RESULTS:
    """Of several conditions with their results that of the last one that holds; success where none does."""
    result = SUCCESS
    for condition, other in verdicts:
        result = RESULTS.where(condition, other, result)
    return result


def announce(result: RESULTS, where: str = "") -> None:
    """Raises if a result is not a success, where results are not traced; of several it names the first; `where` begins the message.

    Raises:
        RuntimeError: with the message of the result.
    """
    if not is_concrete(result):
        return
    failed = codes(result) != codes(SUCCESS)
    if not failed.any():
        return
    index = tuple(int(i) for i in np.argwhere(failed)[0])
    first = jax.tree.map(lambda x: x[index], result)
    raise RuntimeError(
        where
        + RESULTS[first]
        + (f" This happens at index {', '.join(map(str, index))} of the motion." if index else "")
    )


def verdicts() -> dict[int, tuple[str, str]]:
    """Of each result the code, under which it is stored, its name and its text."""
    items = RESULTS._name_to_item  # pyright: ignore[reportAttributeAccessIssue]
    return {int(item._value): (name, RESULTS[item]) for name, item in items.items()}


def codes(result: RESULTS) -> np.ndarray:
    """The codes of results."""
    return np.asarray(result._value)  # pyright: ignore[reportAttributeAccessIssue]
