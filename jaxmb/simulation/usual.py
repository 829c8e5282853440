"""Runs in which nothing special happens.

Most of what would be compiled for a run is the step that can do everything: decides about rows, passes singular poses, finds what is wrong.
Few runs come to need it. So a run is first tried by usual steps, and made again where any was special, by a program that is compiled
then; with `XLA(singular=False)` it ends there.
"""

import dataclasses

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..deferral import defers, with_fallback
from .engine import laid_out, not_regular_alone, step_of
from .flow import Flow
from .method import Method
from .native import NativeStep
from .problem import Problem, Usual
from .sparse import sparse_at


def usually(method: Method, problem: Problem, t: Array, y: Flow) -> Problem:
    """The problem, to be tried from here on by usual steps, if there are quick ones, before all others.

    At first with all rows in use that act; where those are dependent here already, with those that the rank rule keeps.
    """
    silent = isinstance(method.progress_meter, dfx.NoProgressMeter)  # a run that is made again would be shown twice
    if not defers() or not silent or not_regular_alone(method, problem) is not None:
        return problem
    by_layout = laid_out(method, problem, y)
    still, step, at = lax.stop_gradient((by_layout, step_of(method, by_layout, y), (t, y)))
    if not isinstance(step, NativeStep) and by_layout.system.layout is None:
        return problem
    acting = problem.system.acting
    doubtful = step.doubtful(*at, acting) if isinstance(step, NativeStep) else sparse_at(still, *at, acting)[1]
    keep = with_fallback(doubtful & problem.sound, rows_at_start, (still, *at), acting)
    return dataclasses.replace(problem, usual=Usual(keep))


def rows_at_start(problem: Problem, t: Array, y: Flow) -> Bool[Array, " m"]:
    """The rows that the rank rule keeps; all that act where usual steps cannot do with those."""
    rows = problem.prepare(t, y, None)
    special = jnp.any(rows.lost | rows.open) | rows.unfit | rows.contradictory
    return jnp.where(special, problem.system.acting, rows.keep)


def usual_states(
    method: Method, problem: Problem, keep: Bool[Array, " m"], ts: Float[Array, " T"], ys: Flow, start: Flow
) -> tuple[Flow, Array | None, Bool[Array, ""]]:
    """Saved states, which are interpolated, corrected, the inputs there, and whether rows were certain at all of them.

    NaN if they were not reached.
    """
    by_layout = dataclasses.replace(laid_out(method, problem, ys), smooth=True)
    still, step = lax.stop_gradient((by_layout, step_of(method, by_layout, ys)))

    def each(state: tuple[Array, Flow]) -> tuple[Flow, Array | None, Array]:
        t, y = state
        reached = problem.sound & y.finite
        y = y.where(reached, start)
        at = lax.stop_gradient((t, y))
        found, doubtful = sparse_at(still, *at, keep) if step is None else step.at(*at, keep)[1:]
        closed = jnp.all(still.relative(found) <= still.drift.tolerance(t.dtype))
        y = by_layout.ended(t, y, found)
        out = jax.tree.map(lambda x: jnp.where(reached, x, jnp.nan), (y, problem.inputs(t, y)))
        return *out, closed & ~doubtful & y.finite | ~reached

    saved, u, good = lax.map(each, (ts, ys))  # by the function of which the steps are made
    return saved, u, jnp.all(good)
