"""Runs by regular steps.

Most of what would be compiled for a run is the step that can do everything: decides about rows, passes singular poses, finds what is wrong.
Few runs come to need it. So a run is first tried by regular steps, and made again where any was irregular, by a program that is compiled then.
"""

import dataclasses

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..deferral import defers, with_fallback
from .engine import laid_out, may_be_regular, step_of
from .method import Method
from .problem import Problem, RegularOnly
from .sparse import sparse_at
from .state_vector import StateVector


def regular_if_possible(method: Method, problem: Problem, t: Array, y: StateVector) -> Problem:
    """The problem, to be tried from here on by regular steps, if there are quick ones, before all others.

    At first with all rows in use that act; where those are dependent here already, with those that the rank rule keeps.
    """
    silent = isinstance(method.progress_meter, dfx.NoProgressMeter)  # a run that is made again would be shown twice
    if not defers() or not silent or not may_be_regular(method, problem):
        return problem
    by_layout = laid_out(method, problem, y)
    still, step, at = lax.stop_gradient((by_layout, step_of(method, by_layout, y), (t, y)))
    if step is None and by_layout.system.layout is None:
        return problem
    acting = problem.system.acting
    doubtful = sparse_at(still, *at, acting)[1] if step is None else step.doubtful(*at, acting)
    in_use = with_fallback(doubtful & problem.sound, rows_at_start, (still, *at), acting)
    return dataclasses.replace(problem, regular_only=RegularOnly(in_use))


def rows_at_start(problem: Problem, t: Array, y: StateVector) -> Bool[Array, " m"]:
    """The rows that the rank rule keeps; all that act where regular steps cannot do with those."""
    rows = problem.prepare(t, y, None)
    irregular = jnp.any(rows.lost | rows.open) | rows.unfit | rows.contradictory
    return jnp.where(irregular, problem.system.acting, rows.in_use)


def regular_states(
    method: Method,
    problem: Problem,
    in_use: Bool[Array, " m"],
    ts: Float[Array, " T"],
    ys: StateVector,
    start: StateVector,
) -> tuple[StateVector, Array | None, Bool[Array, ""]]:
    """Saved states, which are interpolated, corrected, the inputs there, and whether rows were certain at all of them.

    NaN if they were not reached.
    """
    by_layout = dataclasses.replace(laid_out(method, problem, ys), smooth=True)
    still, step = lax.stop_gradient((by_layout, step_of(method, by_layout, ys)))

    def each(state: tuple[Array, StateVector]) -> tuple[StateVector, Array | None, Array]:
        t, y = state
        reached = problem.sound & y.finite
        y = y.where(reached, start)
        at = lax.stop_gradient((t, y))
        found, doubtful = sparse_at(still, *at, in_use) if step is None else step.at(*at, in_use)[1:]
        closed = jnp.all(still.relative(found) <= still.drift.tolerance(t.dtype))
        y = by_layout.ended(t, y, found)
        out = jax.tree.map(lambda x: jnp.where(reached, x, jnp.nan), (y, problem.inputs(t, y)))
        return *out, closed & ~doubtful & y.finite | ~reached

    saved, u, good = lax.map(each, (ts, ys))  # by the function of which the steps are made
    return saved, u, jnp.all(good)
