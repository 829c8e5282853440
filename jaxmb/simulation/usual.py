"""Runs in which nothing special happens.

Most of what is compiled for a run is the step that can do everything: decides about rows, passes singular poses, finds what is wrong.
Few runs come to need it. So a run whose numbers are known is first tried by a program without it, and made again by the whole
program where any step was special. Under a transformation nothing can be made again: there `special=False` asks for a program without it.
"""

import dataclasses
from typing import Literal

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..foundations import program
from ..kinematics import choose_rows
from ..system import Scale, State, System, settled
from .flow import Flow
from .leg import Method
from .loop import Loop
from .problem import Problem
from .sparse import sparse_at


def only_special(method: Method, problem: Problem) -> str | None:
    """Why there are no steps besides the one that can do everything, for this problem; None if there are."""
    solver, formulation = method.solver.solver, problem.formulation
    if not isinstance(solver, dfx.AbstractERK):
        return f"`{type(solver).__name__}` is not an explicit Runge–Kutta method"
    if not isinstance(method.adjoint, dfx.ForwardMode | None):
        return f"`{type(method.adjoint).__name__}` is neither the default adjoint nor `ForwardMode`"
    if type(formulation).choose is not AbstractFormulation.choose:
        return f"`{type(formulation).__name__}` may choose anew at each accepted state"
    if formulation.left_out(problem.system.m) is not None:
        return f"`{type(formulation).__name__}` leaves rows out, which must fit each accepted state"
    if not _simply(problem.loop):
        return "the controller acts at samples, or asks for matrices of the plant"
    return None


def usual_kind(method: Method, problem: Problem, y0: Flow) -> Literal["compiled", "sparse", "plain"]:
    """Of which kind the steps are besides the one that can do everything, where there are any."""
    problem = method.laid_out(problem, y0)
    if method.step_of(problem, y0) is not None:
        return "compiled"
    return "plain" if problem.system.layout is None else "sparse"


def _simply(loop: Loop | None) -> bool:
    """Whether inputs follow from the state alone."""
    return loop is None or (loop.clock is None and not loop.needs_plant)


def usual_states(
    method: Method, problem: Problem, keep: Bool[Array, " m"], ts: Float[Array, " T"], ys: Flow, start: Flow
) -> tuple[Flow, Array | None, Bool[Array, ""]]:
    """Saved states, which are interpolated, corrected, the inputs there, and whether rows were certain at all of them.

    NaN if they were not reached.
    """
    laid_out = method.laid_out(problem, ys)
    laid_out = dataclasses.replace(laid_out, smooth=True)
    still, step = lax.stop_gradient((laid_out, method.step_of(laid_out, ys)))

    def each(state: tuple[Array, Flow]) -> tuple[Flow, Array | None, Array]:
        t, y = state
        reached = problem.sound & y.finite
        y = y.where(reached, start)
        at = lax.stop_gradient((t, y))
        if step is not None:
            _, found, doubtful = step.at(*at, keep)
        else:
            found, doubtful = sparse_at(still, *at, keep)
        closed = jnp.all(still.relative(found) <= still.drift.tolerance(t.dtype))
        y = laid_out.ended(t, y, found)
        out = jax.tree.map(lambda x: jnp.where(reached, x, jnp.nan), (y, problem.inputs(t, y)))
        return *out, closed & ~doubtful & y.finite | ~reached

    saved, u, good = lax.map(each, (ts, ys))  # by the function of which the steps are made
    return saved, u, jnp.all(good)


@program
def rows_at_start(
    system: System, formulation: AbstractFormulation, state: State, scale: Scale
) -> tuple[Bool[Array, " m"], Bool[Array, ""]]:
    """The rows in use at the start of a run of these sizes, and whether usual steps can do with them and could not with all that act."""
    system, bare = settled(system, state)
    rows = choose_rows(system, formulation, State(bare.t, bare.q, bare.v, scale))
    special = jnp.any(rows.lost | rows.open) | rows.unfit | rows.contradictory
    return rows.keep, ~special & jnp.any(rows.keep != system.acting)
