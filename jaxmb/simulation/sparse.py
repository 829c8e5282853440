"""Steps of large systems with few entries in M and C far from singular configurations."""

import dataclasses

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from ..kinematics import Correction, Rows, factors_at
from ..linalg import SparseFactor
from ..system import SparseTerms
from .certificate import certify_sparse, followed
from .compiled_step import StepResult
from .stages import Stages, Tableau, all_stages
from .state_vector import StateVector
from .step_records import StepStart
from .vector_field import VectorField


def sparse_step(start: StepStart, tableau: Tableau) -> tuple[StepResult, Rows]:
    """One step by the problem's layout, and the rows in use.

    Where those carried to it are not certified, they are all that act, if these are certainly independent.
    """
    t0, t1, before, certified = start.t0, start.t1, start.before, start.before.certified
    # Far from singular poses, or it is not taken: stages need not ask whether to correct first.
    field = dataclasses.replace(start.field, smooth=True)
    # No rank rule here: rows are taken to be independent, and where their certificate fails the step is an irregular one.
    rows = lax.cond(certified, lambda: before.rows, lambda: Rows.independent(field.system.acting, t0.dtype))
    stages, start_factor, good = sparse_stages(field, tableau, t0, t1, start.y0, rows.in_use, start.first_slope)
    last, raw, factor, terms = stages.last, stages.raw, stages.last.factor, stages.last.terms
    assert isinstance(factor, SparseFactor) and isinstance(terms, SparseTerms)
    # The factor of the last stage lies at the end of the step: the correction needs none of its own.
    end = field.correction_by(factor, terms, t1, raw)
    regular = (
        good
        & (certified | certify_sparse(field, start_factor))
        & ~factor.orientation_changed(start_factor.lowered)
        & followed(field, factor, terms, raw, last.flow)
    )
    return StepResult(raw, stages.slopes, field.with_correction(t1, raw, end), end, ~regular), rows


def sparse_stages(
    field: VectorField,
    tableau: Tableau,
    t0: Array,
    t1: Array,
    y0: StateVector,
    in_use: Bool[Array, " m"],
    first: tuple[StateVector, Bool[Array, ""]] | None = None,
) -> tuple[Stages, SparseFactor, Bool[Array, ""]]:
    """The stages of a step by the problem's layout, the factor where it begins, and whether rows in use are far from being dependent all along."""
    _, start_factor = factors_at(field.system, field.formulation, field.state(t0, y0), in_use, sparse=True)
    # In long structures small remainders are usual: stages compare theirs with these (`VectorField.is_near`).
    started = dataclasses.replace(field, initial_remainders=start_factor.remainders)
    stages = all_stages(started, tableau, t0, t1, y0, in_use, first)
    assert isinstance(stages.last.factor, SparseFactor)
    return stages, start_factor, ~jnp.any(stages.near) & certify_sparse(field, stages.last.factor)


def sparse_at(
    field: VectorField, t: Array, y: StateVector, in_use: Bool[Array, " m"]
) -> tuple[Correction, Bool[Array, ""]]:
    """The correction of a state by the problem's layout, and whether rows in use are not certain there."""
    terms, factor = factors_at(field.system, field.formulation, field.state(t, y), in_use, sparse=True)
    return field.correction_by(factor, terms, t, y), ~certify_sparse(field, factor)
