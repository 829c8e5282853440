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
from .engine import compiled_step_of, may_be_regular, with_layout
from .method import Method
from .sparse import sparse_at
from .state_vector import StateVector
from .vector_field import RegularOnly, VectorField


def regular_if_possible(
    method: Method, field: VectorField, t: Array, y: StateVector, expected: Bool[Array, " m"] | None = None
) -> VectorField:
    """The problem, to be tried from here on by regular steps, if there are quick ones, before all others.

    At first with all rows in use that act, or with those of them that are likely independent; where others are to be used here, with
    those that the rank rule keeps.
    """
    silent = isinstance(method.progress_meter, dfx.NoProgressMeter)  # a run that is made again would be shown twice
    if not defers() or not silent or not may_be_regular(method, field):
        return field
    laid_out_field = with_layout(method, field, y)
    detached, step, at = lax.stop_gradient((laid_out_field, compiled_step_of(method, laid_out_field, y), (t, y)))
    # Sparse steps take no samples.
    if step is None and (laid_out_field.system.layout is None or field.takes_samples):
        return field
    acting = field.system.acting if expected is None else field.system.acting & expected
    uncertified = sparse_at(detached, *at, acting)[1] if step is None else step.uncertified(*at, acting)
    # The rank rule is a program of its own, which is compiled only where rows at the start are not certainly independent.
    in_use = with_fallback(uncertified & field.consistent, rows_at_start, (detached, *at), acting)
    return dataclasses.replace(field, regular_only=RegularOnly(in_use))


def rows_at_start(field: VectorField, t: Array, y: StateVector) -> Bool[Array, " m"]:
    """The rows that the rank rule keeps; all that act where regular steps cannot do with those."""
    rows = field.prepare(t, y, None)
    irregular = jnp.any(rows.degenerate | rows.indeterminate) | rows.unfit | rows.contradictory
    return jnp.where(irregular, field.system.acting, rows.in_use)


def regular_states(
    method: Method,
    field: VectorField,
    in_use: Bool[Array, " m"],
    ts: Float[Array, " T"],
    ys: StateVector,
    start: StateVector,
) -> tuple[StateVector, Array | None, Bool[Array, ""]]:
    """Saved states, which are interpolated, corrected, the inputs there, and whether rows were certain at all of them.

    NaN if they were not reached.
    """
    laid_out_field = dataclasses.replace(with_layout(method, field, ys), smooth=True)
    detached, step = lax.stop_gradient((laid_out_field, compiled_step_of(method, laid_out_field, ys)))

    def each(state: tuple[Array, StateVector]) -> tuple[StateVector, Array | None, Array]:
        t, y = state
        reached = field.consistent & y.finite
        # States that were not reached are infinite: evaluated there, even a branch that is not taken would make derivatives NaN.
        y = y.where(reached, start)
        at = lax.stop_gradient((t, y))
        correction, uncertified = sparse_at(detached, *at, in_use) if step is None else step.at(*at, in_use)[1:]
        within_tolerance = detached.closed(detached.relative_residuals(correction))
        y = laid_out_field.after_sample(t, laid_out_field.with_correction(t, y, correction), in_use)
        out = jax.tree.map(lambda x: jnp.where(reached, x, jnp.nan), (y, laid_out_field.inputs(t, y, in_use)))
        return *out, within_tolerance & ~uncertified & y.finite | ~reached

    saved, u, good = lax.map(each, (ts, ys))  # by the function of which the steps are made
    return saved, u, jnp.all(good)
