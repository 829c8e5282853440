"""Why a run has failed, in words."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..foundations import RESULTS, listing, program
from ..system import State, System, rounding_nearby, undefined
from .drift import AbstractDrift
from .solution import Solution

# At so many times of an interval constraints are looked at, and so often in the part of it where they cease to be defined.
TIMES, ROUNDS = 33, 4
# What rounding leaves in constraints is of consequence from this part of the tolerance on.
NOTABLE = 0.1


def reason(system: System, drift: AbstractDrift, start: State, solution: Solution) -> str:
    """From when on which constraints are not defined; else the result's text, and whether places are too far from the origin."""
    reached = int(np.isfinite(np.asarray(solution.q)).all(axis=-1).sum())
    last = solution.state(reached - 1) if reached else start
    acting = system.in_mode(last.mode)
    # One saved time further than it should have come: the last step may end a little before what it cannot pass.
    if cause := _undefined_from(acting, last, solution.ts[min(reached + 1, len(solution.ts) - 1)]):
        return cause
    text = text_of_result(system, solution)
    if bool(solution.result == RESULTS.max_steps_reached):
        text += _how_far(float(start.t), float(last.t), float(solution.ts[-1]), int(solution.stats["num_steps"]))
    rounding, tolerance = float(program(rounding_nearby)(acting, last)), drift.tolerance(last.q.dtype)
    if rounding > NOTABLE * tolerance:
        text += (
            f" Rounding alone leaves residuals of {rounding:.1g} of the mechanism's size, but the drift correction admits {tolerance:.1g}: places are far from the "
            "origin compared with that size. Place the mechanism nearer, or give `jaxmb.Projection` a larger `tol`."
        )
    return text


def text_of_result(system: System, solution: Solution) -> str:
    """The result's text; of a failed correction, the constraint that is furthest off and by how much; the last of many events."""
    result, text = solution.result, RESULTS[solution.result]
    by_event = (result == RESULTS.events_exhausted) | (result == RESULTS.position_mismatch)
    if bool(by_event) and solution.events is not None and int(solution.events.count):
        last = int(solution.events.count) - 1
        text += f" The last, at t = {float(solution.events.t[last]):g}, was {listing(solution.events.what(last))}."
    if bool(result == RESULTS.projection_failed):
        rows = system.in_mode(solution.modes).rows
        off = {name: float(jnp.max(solution.stats["row_residuals"][part])) for name, part in rows.items()}
        # Residuals are relative to the span of each row, so that constraints of different units compare.
        worst = max(off, key=lambda name: off[name])
        text += f" Furthest off is constraint '{worst}', by {off[worst]:.3g} relative to the size of the mechanism."
    return text


def _undefined_from(system: System, last: State, until: Array) -> str:
    """Which constraints are not defined any more after a state, and from when on; empty if all are."""
    begin, end, text = last.t, until, ""
    for _ in range(ROUNDS):
        ts = jnp.linspace(begin, end, TIMES)
        index, text = undefined(system, ts, last.q, last.v)
        begin, end = ts[max(index - 1, 0)], ts[index]
    return text


def _how_far(begin: float, reached: float, end: float, steps: int) -> str:
    """What so many steps have led to, and what helps."""
    way = f"have led beyond t = {reached:g} s" if reached > begin else "have not led to the first time after the start"
    return (
        f" So far {steps} steps {way}, of {end:g} s. Where the motion is not as fast as that, forces are stiff, for which an implicit solver is made, such as "
        "`solver=diffrax.Kvaerno5()`, or a function jumps: tell the times by `breaks`."
    )
