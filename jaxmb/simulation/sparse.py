"""Steps of large systems with few entries in M and C where nothing special happens."""

import functools
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from ..formulation import GaussProjection, contradiction_tol
from ..foundations import default_float
from ..kernels import NotScalarError, Shaped, influence
from ..kinematics import NEAR, Rows
from ..linalg import Layout, SparseFactor
from ..system import SparseTerms, sparse_rows_at, velocity_residual
from .blank import Blank, shapes_of
from .certificate import CERTAIN
from .explicit import Tableau, take_stages
from .flow import Flow
from .native import Found, dense_work
from .problem import Problem

# Dense linear algebra of so many operations is as quick as sparse one of none, and so much quicker one by one.
LEAST, FASTER = 60_000, 6


def layout_of(problem: Problem, solver: Any, anyway: bool) -> Layout | str:
    """Which entries of M and C may not be zero, or why steps of a problem do not use that; `anyway` also where it does not pay."""
    n, m = problem.system.nv, problem.system.m
    if not isinstance(solver, dfx.AbstractERK):
        return f"`{type(solver).__name__}` is not an explicit Runge–Kutta method"
    if not isinstance(problem.formulation, GaussProjection):
        return f"`{type(problem.formulation).__name__}` is not `GaussProjection`"
    if problem.loop is not None and problem.loop.needs_plant:
        return "a controller asks for matrices of the plant"
    dense = dense_work(problem.system)
    if not m or (dense < LEAST and not anyway):
        return f"{n} velocities and {m} rows are too few"
    blank, parameters = Blank.of(problem)
    if not blank.known:
        return "part of the problem is neither an array nor hashable"
    found = _layout(blank, shapes_of(parameters), problem.system.nq, n)
    if isinstance(found, str) or anyway or LEAST + FASTER * found.work < dense:
        return found
    return "M and C have too many entries that may not be zero"


def sparse_step(
    problem: Problem,
    tableau: Tableau,
    t0: Array,
    t1: Array,
    y0: Flow,
    slope: Flow,
    reuse: Bool[Array, ""] | bool,
    rows: Rows,
    certain: Bool[Array, ""],
) -> tuple[Found, Rows]:
    """One step by the problem's layout, and the rows in use.

    Where those given are not `certain`, they are all that act, if these are certainly independent.
    """
    system, layout = problem.system, problem.system.layout
    assert layout is not None
    acting = jnp.ones(system.m, bool) if system.active is None else system.active
    none = jnp.zeros_like(acting)
    every = Rows(acting, none, none, jnp.sum(acting), None, jnp.array(False), jnp.zeros_like(problem.scale.row))
    rows = lax.cond(certain, lambda: rows, lambda: every)
    start = sparse_rows_at(system, layout, t0, y0.q, problem.scale.row)
    before = SparseFactor(start.mass, start.jacobian, start.scale, rows.keep)
    stages = take_stages(problem, tableau, t0, t1, y0, rows.keep, slope, reuse)
    last, raw, factor, terms = stages.last, stages.raw, stages.last.factor, stages.last.terms
    assert isinstance(factor, SparseFactor) and isinstance(terms, SparseTerms)
    state = lax.stop_gradient(problem.state(t1, raw))
    end = problem.drift.correct_by(factor, system, problem.formulation, state, terms)
    independent = certain | ((before.gap >= NEAR) & (before.uncertainty < CERTAIN**2))
    usual = independent & ~jnp.any(stages.near) & (factor.uncertainty < CERTAIN**2) & ~factor.turned(before)
    usual &= ~jnp.any(acting & ~rows.keep & violated(terms, last.flow.v))
    return Found(raw, stages.slopes, problem.ended(t1, raw, end), end, ~usual), rows


def violated(terms: SparseTerms, vdot: Array) -> Bool[Array, " m"]:
    """Rows of which C v̇ = Γ does not hold, to the precision of a state before its correction.

    A row that was left out and holds on the levels of position, velocity and acceleration asks for no force: the motion is that of
    all rows.
    """
    size = (abs(terms.jacobian) @ jnp.abs(vdot) + jnp.abs(terms.gamma)) / terms.scale
    size = jnp.maximum(size, 1e-6 * jnp.max(size, initial=0))
    return jnp.abs(terms.jacobian @ vdot - terms.gamma) / terms.scale > contradiction_tol(vdot.dtype) * size


@functools.lru_cache(maxsize=64)
def _layout(blank: Blank, parameters: tuple[Shaped, ...], nq: int, nv: int) -> Layout | str:
    def rows(v: Array, t: Array, q: Array, *arrays: Array) -> Array:
        return velocity_residual(blank.filled(arrays).system, t, q, v)

    def momenta(v: Array, t: Array, q: Array, *arrays: Array) -> Array:
        return blank.filled(arrays).system.mass_products(t, q, v[None])[0]

    t, q, v = (Shaped(shape, default_float()) for shape in ((), (nq,), (nv,)))
    try:
        jacobian, mass = (influence(fn, v, t, q, *parameters)[0] for fn in (rows, momenta))
    except NotScalarError as error:
        return str(error)
    return Layout.of(mass, jacobian)
