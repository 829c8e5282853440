"""Steps of large systems with few entries in M and C far from singular configurations."""

import dataclasses

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from ..kinematics import Correction, Rows
from ..linalg import SparseFactor
from ..system import SparseTerms, sparse_rows_at
from .certificate import followed, independent
from .compiled_step import Found
from .problem import Problem
from .stages import Stages, Tableau, all_stages
from .state_vector import StateVector


def sparse_step(
    problem: Problem,
    tableau: Tableau,
    t0: Array,
    t1: Array,
    y0: StateVector,
    slope: StateVector,
    reuse: Bool[Array, ""] | bool,
    rows: Rows,
    certain: Bool[Array, ""],
) -> tuple[Found, Rows]:
    """One step by the problem's layout, and the rows in use.

    Where those given are not `certain`, they are all that act, if these are certainly independent.
    """
    system, layout = problem.system, problem.system.layout
    assert layout is not None
    acting = system.acting
    rows = lax.cond(certain, lambda: rows, lambda: Rows.independent(acting, t0.dtype))
    stages, before, good = sparse_stages(problem, tableau, t0, t1, y0, rows.in_use, slope, reuse)
    last, raw, factor, terms = stages.last, stages.raw, stages.last.factor, stages.last.terms
    assert isinstance(factor, SparseFactor) and isinstance(terms, SparseTerms)
    state = lax.stop_gradient(problem.state(t1, raw))
    end = problem.drift.correct_by(factor, system, problem.formulation, state, terms)
    regular = (
        good
        & (certain | independent(problem, before))
        & ~factor.orientation_changed(before.lowered)
        & followed(problem, factor, terms, raw, last.flow)
    )
    return Found(raw, stages.slopes, problem.ended(t1, raw, end), end, ~regular), rows


def sparse_stages(
    problem: Problem,
    tableau: Tableau,
    t0: Array,
    t1: Array,
    y0: StateVector,
    in_use: Bool[Array, " m"],
    slope: StateVector,
    reuse: Bool[Array, ""] | bool,
) -> tuple[Stages, SparseFactor, Bool[Array, ""]]:
    """The stages of a step by the problem's layout, the factor where it begins, and whether rows in use are far from being dependent all along."""
    system, layout = problem.system, problem.system.layout
    assert layout is not None
    start = sparse_rows_at(system, layout, t0, y0.q, problem.scale.row)
    before = SparseFactor(start.mass, start.jacobian, start.scale, in_use)
    started = dataclasses.replace(problem, before=before.remainders)
    stages = all_stages(started, tableau, t0, t1, y0, in_use, slope, reuse)
    assert isinstance(stages.last.factor, SparseFactor)
    return stages, before, ~jnp.any(stages.near) & independent(problem, stages.last.factor)


def sparse_at(
    problem: Problem, t: Array, y: StateVector, in_use: Bool[Array, " m"]
) -> tuple[Correction, Bool[Array, ""]]:
    """The correction of a state by the problem's layout, and whether rows in use are not certain there."""
    system, layout = problem.system, problem.system.layout
    assert layout is not None
    terms = sparse_rows_at(system, layout, t, y.q, problem.scale.row)
    factor = SparseFactor(terms.mass, terms.jacobian, terms.scale, in_use)
    found = problem.drift.correct_by(factor, system, problem.formulation, problem.state(t, y), terms)
    return found, ~independent(problem, factor)
