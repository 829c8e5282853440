"""Sparse linear algebra does what dense does: where entries may not be zero, the factors, the steps."""

import dataclasses
import functools
from types import SimpleNamespace

import diffrax as dfx
import jax
import jax.numpy as jnp
import many_bodies
import nfourbar
import numpy as np
import parallelogram
import pytest
from jax.flatten_util import ravel_pytree
from systems import sleigh, top

import jaxmb as jm
from jaxmb.dependence import decision
from jaxmb.kinematics import NEAR, Correction, Rows, choose_rows
from jaxmb.lanes import NotScalarError, Shaped, sparsity, unavailable
from jaxmb.linalg import BlockMatrix, ConstrainedFactor, Layout, SparseFactor, SparseRows
from jaxmb.linalg.sparse import negative_determinant
from jaxmb.simulation import sparse as sparse_module
from jaxmb.simulation.solver import ConstrainedSolver, _carried_basis
from jaxmb.simulation.stages import Stages, Tableau
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.step_records import StepStart
from jaxmb.simulation.vector_field import VectorField
from jaxmb.system import SparseTerms, layout_of, linear_algebra

SEED = 3


def shaped(*shape):
    return Shaped(shape, jnp.float64)


# Where entries may not be zero


def test_a_result_depends_on_what_is_read_for_it():
    def fn(x, y):
        chosen = jnp.where(np.array([True, False, True]), x[:3], x[1:])
        return [x[::-1] * y, jnp.zeros(4) * x, jnp.cumsum(x)[:2], chosen, jnp.full(3, y[0])]

    found = sparsity(fn, shaped(4), shaped(4))
    np.testing.assert_array_equal(found[0], np.eye(4, dtype=bool)[::-1])
    assert not found[1].any() and not found[4].any()
    np.testing.assert_array_equal(found[2], [[1, 0, 0, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(found[3], [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]])


def test_what_cannot_be_read_off_says_so():
    with pytest.raises(NotScalarError, match="places that depend on the state"):
        sparsity(lambda x: [x[jnp.argmax(x)[None]]], shaped(3))


def patterns(seed):
    """M in blocks of two to four velocities, and two rows for each of them, one of which touches an earlier one too."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, rng.integers(5, 12))
    block = np.repeat(np.arange(len(sizes)), sizes)
    order = rng.permutation(len(block))
    mass = (block[:, None] == block)[order][:, order]
    rows = []
    for k in range(2 * len(sizes)):
        touched = np.isin(block[order], [k // 2, rng.integers(max(k // 2 - 2, 0), k // 2 + 1)][: 1 + k % 2])
        rows.append(touched)
    return mass, np.array(rows)[rng.permutation(len(rows))]


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("seed", range(8))
def test_a_layout_holds_all_entries(seed):
    mass, rows = patterns(seed)
    layout = Layout.of(mass, rows)
    rng = np.random.default_rng(seed)
    m, c = mass * rng.standard_normal(mass.shape), rows * rng.standard_normal(rows.shape)
    m = m + m.T
    for matrix in (BlockMatrix.from_dense(layout, jnp.array(m)), BlockMatrix.of(layout, jnp.array(layout.seeds @ m))):
        np.testing.assert_array_equal(matrix.dense(), m)
    for matrix in (SparseRows.from_dense(layout, jnp.array(c)), SparseRows.of(layout, jnp.array(layout.seeds @ c.T))):
        np.testing.assert_array_equal(matrix.dense(), c)
    np.testing.assert_array_equal(Layout.of(np.triu(mass), rows).blocks, layout.blocks)
    at = {row: k for k, group in enumerate(layout.order) for row in group.tolist() if row < layout.m}
    assert sorted(at) == list(range(layout.m))
    shared = np.argwhere((rows.astype(int) @ mass.astype(int) @ rows.T) > 0)
    assert all(abs(at[i] - at[j]) <= 1 for i, j in shared.tolist())


@pytest.mark.parametrize("seed", range(3))
def test_neighbourhoods_of_a_chain_are_its_joints(seed):
    """Five rows for each of six hinges between seven bodies, of which the first and the last do not move, in any order."""
    body = np.repeat(np.arange(5), 6)
    rows = [np.isin(body, [joint - 1, joint]) for joint in range(6) for _ in range(5)]
    order = np.random.default_rng(seed).permutation(30)
    layout = Layout.of(body[:, None] == body, np.array(rows)[order])
    assert sorted(map(sorted, (order[layout.order] // 5).tolist())) == [[joint] * 5 for joint in range(6)]
    # Two colours of six velocities; roots of five bodies, and ten rows of a joint and the next by each other, which touch three of these.
    assert layout.seeds.shape == (2 * 6, 30) and layout.work == 5 * 6**3 + 6 * (10**2 * 3 * 6 + 2 * 10**3)


def test_without_rows_all_blocks_have_one_colour():
    layout = Layout.of(np.eye(3, dtype=bool), np.zeros((0, 3), bool))
    np.testing.assert_array_equal(layout.seeds, np.ones((1, 3)))


def test_a_general_step_hands_on_its_rows_by_the_layout_if_a_quick_one_has_use_for_them():
    """A = diag(1/σ) C Rᵀ."""
    layout = Layout.of(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], bool))
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    scale = jm.as_state(system, jnp.zeros(2), length=1.0).scale
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, scale, jnp.array(True), None
    field = VectorField(system.with_layout(layout), *parts)
    rows, mass, scale = jnp.array([[3.0, 0.0], [1.0, 5.0]]), jnp.diag(jnp.array([4.0, 25.0])), jnp.array([2.0, 10.0])
    terms = jm.system.Terms(mass, jnp.zeros(2), rows, *[jnp.zeros(2)] * 2, scale)
    found = _carried_basis(field, terms, jnp.zeros((2, 2)))
    np.testing.assert_allclose(found, [[3 / 2 / 2, 0], [1 / 10 / 2, 5 / 10 / 5]], rtol=1e-14)
    for other, like in ((field, jnp.ones((2, 0))), (field.dense, jnp.ones((2, 2)))):
        assert _carried_basis(other, terms, like) is like


# Factors


@functools.cache
def factors(seed):
    """Random M and C of a pattern in a few lanes, one row of them a combination of two others and left out."""
    mass, rows = patterns(seed)
    layout, (m, n) = Layout.of(mass, rows), rows.shape
    m = min(m, n - 1)
    layout, rows = Layout.of(mass, rows[:m]), rows[:m]
    rng = np.random.default_rng(seed)
    roots = mass * rng.standard_normal((6, n, n))
    matrices = np.einsum("lij,lkj->lik", roots, roots) + 2 * np.eye(n)
    jacobians = rows * rng.standard_normal((6, m, n))
    scale = jnp.array(rng.uniform(0.5, 2.0, m))
    in_use = jnp.array(np.arange(m) % 5 != 4)
    f, g = jnp.array(rng.standard_normal((6, n))), jnp.array(rng.standard_normal((6, m)))

    @jax.jit
    @jax.vmap
    def found(mass, jacobian, f, g):
        sparse = SparseFactor(
            BlockMatrix.from_dense(layout, mass), SparseRows.from_dense(layout, jacobian), scale, in_use
        )
        banded = ConstrainedFactor(mass, jacobian, scale, in_use, layout=layout)
        dense = ConstrainedFactor(mass, jacobian, scale, in_use)
        weight = jnp.sum(jnp.where(in_use[:, None], dense.weights, 0) ** 2)
        out = [(x.solve(f, g), x.particular(g)) for x in (dense, sparse, banded)]
        flipped = SparseFactor(sparse.mass, SparseRows.from_dense(layout, jacobian.at[1].multiply(-1.0)), scale, in_use)
        signs = sparse.orientation_changed(sparse.lowered), sparse.orientation_changed(flipped.lowered)
        exact = jnp.linalg.det((dense.basis + jnp.diag(1.0 - in_use) @ jnp.eye(m, n)) @ dense.basis.T)
        products = banded.basis.T @ banded.basis - dense.basis.T @ dense.basis
        widest = jnp.max(jnp.abs(dense.root.T @ products @ dense.root))
        return out, weight, sparse.uncertainty, signs, (sparse.gap, banded.gap), exact, widest

    return jax.device_get(found(jnp.array(matrices), jnp.array(jacobians), f, g))


@pytest.mark.slow_except("1")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_factors_agree(seed):
    (dense, sparse, banded), weight, uncertainty, signs, gaps, _, widest = factors(seed)
    for other in (sparse, banded):
        for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(dense), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * np.abs(b).max())
    np.testing.assert_allclose(uncertainty, weight, rtol=1e-8)
    np.testing.assert_allclose(gaps[0], gaps[1], rtol=1e-8)
    assert not signs[0].any() and signs[1].all()
    assert widest.max() < 1e-11


@pytest.mark.parametrize("m", [64, 65])
def test_rows_are_certainly_independent_or_so_are_those_that_others_follow_from(m):
    """All of them; with one stated twice only where there are many; with one that is nearly another none, be it lost or not."""
    n = m + 1
    layout = Layout.of(np.eye(n, dtype=bool), np.eye(m, n, dtype=bool) | (np.arange(n) == 0))

    @jax.jit
    def certain(rows, holonomic):
        zeros, ones = jnp.zeros(m), jnp.ones(m)
        terms = jm.system.Terms(jnp.eye(n), jnp.zeros(n), rows, zeros, zeros, ones, holonomic, layout=layout)
        return decision._by_layout(terms, jnp.eye(n), jnp.ones(m, bool), 1e-9)[1]

    rows = np.eye(m, n) + 0.1 * (np.arange(n) == 0)
    # Which of two is left out depends on whether they have positions.
    for holonomic in (None, np.ones(m, bool)):
        found = []
        for apart in (0.0, 5e-10, 2e-9):
            nearly = rows.copy()
            nearly[1] = rows[0] + apart * rows[1]
            found.append(bool(certain(nearly, holonomic)))
        assert bool(certain(rows, holonomic)) and found == [m > 64 and holonomic is None, False, False]


def test_many_rows_are_near_where_a_remainder_has_fallen_by_half_or_nothing_is_left_of_one():
    """Of rows x and x + g y it is g, and was another one when the step began."""
    layout = Layout.of(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], bool))

    @jax.jit
    def near(left, before):
        rows = SparseRows.from_dense(layout, jnp.array([[1.0, 0.0], [1.0, left]]))
        factor = SparseFactor(BlockMatrix.from_dense(layout, jnp.eye(2)), rows, jnp.ones(2), jnp.ones(2, bool))
        begun = SimpleNamespace(initial_remainders=jnp.full_like(factor.remainders, before))
        return VectorField.is_near(begun, factor, jnp.array(NEAR))

    cases = {(0.05, 0.15): False, (0.015, 0.05): True, (0.015, 0.025): False, (5e-4, 5e-4): True, (5e-4, 0.01): True}
    assert {case: bool(near(*case)) for case in cases} == cases


def test_derivatives_are_those_of_the_equations():
    mass, rows = patterns(SEED)
    n = len(mass)
    rows = rows[: n - 1]
    layout, m = Layout.of(mass, rows), len(rows)
    rng = np.random.default_rng(1)
    root = mass * rng.standard_normal((n, n))
    arguments = (
        root @ root.T + 2 * np.eye(n),
        rows * rng.standard_normal((m, n)),
        *(rng.standard_normal(k) for k in (n, m)),
    )
    direction = tuple(jnp.array(rng.standard_normal(x.shape) * (x != 0)) for x in arguments)
    arguments = tuple(map(jnp.array, arguments))
    in_use = jnp.ones(m, bool).at[2].set(False)

    def solved(sparse, mass, jacobian, f, g):
        if sparse:
            parts = BlockMatrix.from_dense(layout, mass), SparseRows.from_dense(layout, jacobian)
            x, z = SparseFactor(*parts, jnp.ones(m), in_use).solve(f, g)
        else:
            x, z = ConstrainedFactor(mass, jacobian, jnp.ones(m), in_use).solve(f, g)
        return jnp.sum(jnp.sin(x)) + jnp.sum(jnp.cos(z))

    both = []
    for sparse in (True, False):
        fn = functools.partial(solved, sparse)
        forward = jax.jit(lambda *x, fn=fn: jax.jvp(fn, x, direction)[1])(*arguments)
        slopes = jax.jit(jax.grad(fn, (0, 1, 2, 3)))(*arguments)
        reverse = sum(jnp.vdot(a, b) for a, b in zip(slopes, direction, strict=True))
        both += [float(forward), float(reverse)]
    np.testing.assert_allclose(both, both[-1], rtol=1e-9)


def test_the_sign_of_a_determinant_of_blocks():
    for diagonal, below, above in np.random.default_rng(0).normal(size=(20, 3, 4, 2, 2)):
        matrix = np.zeros((8, 8))
        for k in range(4):
            here, following = slice(2 * k, 2 * k + 2), slice(2 * k + 2, 2 * k + 4)
            matrix[here, here] = diagonal[k]
            if k < 3:
                matrix[following, here], matrix[here, following] = below[k], above[k]
        found = lambda: bool(negative_determinant(*map(jnp.asarray, (diagonal, below, above))))
        assert found() == (np.linalg.det(matrix) < 0)
        # A row and a column of zeros count for nothing.
        diagonal[1, 0], diagonal[1, :, 0], below[1, :, 0], below[0, 0], above[1, 0], above[0, :, 0] = (0.0,) * 6
        rest = np.delete(np.delete(matrix, 2, 0), 2, 1)
        assert found() == (np.linalg.det(rest) < 0)


# Steps


compiled = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
KINDS = [jm.XLA, pytest.param(jm.Compiled, marks=compiled)]


def run(system, state, end, sparse, engine=jm.XLA, **settings):
    settings = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": end / 40} | settings
    return jm.simulate(system, state, jnp.array([end / 2, end]), engine=engine(sparse=sparse), **settings)


def of(kind, **fields):
    """A record with some of its fields only."""
    record = object.__new__(kind)
    for name, x in fields.items():
        object.__setattr__(record, name, x)
    return record


def test_a_sparse_step_is_left_to_the_general_program_where_anything_is_not_certain(monkeypatch):
    """Rows that are carried to it certified are taken as they are, others are all that act."""
    layout = Layout.of(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], bool))
    system = jm.System(
        2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("both", lambda t, q, p: jnp.cumsum(q))]
    )
    scale = jm.system.Scale(*map(jnp.ones, (2, 2, 2, 2, ())))
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, scale, jnp.array(True), None
    field, zero = VectorField(system.with_layout(layout), *parts), jnp.zeros(())
    y, one = StateVector.of(*jnp.zeros((2, 2)), zero), jnp.array([True, False])
    before = ConstrainedSolver(dfx.Bosh3()).init(None, zero, zero + 1, y, (field, one))
    end, terms, last = Correction.none(y.q, y.v, one, jnp.zeros((2, 0))), of(SparseTerms), of(SparseFactor)
    band = SimpleNamespace(remainders=jnp.array([[3.0, 4.0]]))
    first = of(SparseFactor, lowered=7.0, band=band, in_use=jnp.ones(2, bool), mass=SimpleNamespace(layout=layout))
    monkeypatch.setattr(VectorField, "correction_by", lambda *_: end)
    monkeypatch.setattr(VectorField, "with_correction", lambda self, t, raw, _: raw)

    def found(case):
        """Whether the step is irregular and which rows it takes; whether its stages are good, and a state alone."""
        used = []
        certain = lambda field, factor: jnp.array(case["start" if factor is first else "end"])

        def stages(field, tableau, t0, t1, y0, in_use, slope):
            used.append(in_use.tolist())
            assert field.smooth
            at = SimpleNamespace(factor=last, terms=terms, flow=y)
            near, slopes = jnp.array([False, case["near"]]), y.like(jnp.zeros((4, 5)))
            np.testing.assert_array_equal(field.initial_remainders, first.remainders)
            return of(Stages, raw=y, slopes=slopes, last=at, near=near)

        monkeypatch.setattr(sparse_module, "all_stages", stages)
        monkeypatch.setattr(sparse_module, "certify_sparse", certain)
        monkeypatch.setattr(sparse_module, "followed", lambda *_: jnp.array(case["follows"]))
        monkeypatch.setattr(sparse_module, "factors_at", lambda *_, sparse: (terms, first) if sparse else None)
        monkeypatch.setattr(SparseFactor, "orientation_changed", lambda self, x: jnp.array(x == 7 and case["turned"]))
        own = dataclasses.replace(before, rows=Rows.independent(one, float), certified=jnp.array(case["certified"]))
        start = StepStart(field, zero, zero + 1, y, own, jnp.array(False))
        step, rows = sparse_module.sparse_step(start, Tableau.of(dfx.Bosh3(), float))
        assert used == [rows.in_use.tolist()]
        return bool(step.irregular), used[0]

    usual = {"start": True, "end": True, "near": False, "turned": False, "follows": True, "certified": False}
    some, both = [True, False], [True, True]
    assert found(usual) == (False, both)
    assert found(usual | {"certified": True}) == (False, some)
    assert found(usual | {"certified": True, "start": False}) == (False, some)
    for change in ({"start": False}, {"end": False}, {"turned": True}, {"follows": False}, {"near": True}):
        assert found(usual | change) == (True, both)
    for certain in (True, False):
        monkeypatch.setattr(sparse_module, "certify_sparse", lambda *_, certain=certain: jnp.array(certain))
        assert bool(sparse_module.sparse_at(field, zero, y, jnp.ones(2, bool))[1]) == (not certain)


@pytest.mark.slow
def test_sparse_steps_are_those_of_dense_ones_whatever_makes_them():
    """A chain of four links in absolute coordinates, by arrays in Diffrax's loop and by default."""
    places = ["ground", *(f"link{i}.b" for i in range(3))]
    hinges = [jm.planar.Revolute(f"hinge{i}", place, f"link{i}.a") for i, place in enumerate(places)]
    links = [jm.planar.Body.rod(f"link{i}", 1.0, 0.5) for i in range(4)]
    system = jm.planar.Mechanism(links, hinges, gravity=(0.0, -9.81)).build("absolute")
    state, settings = jm.assemble(system), {"solver": dfx.Bosh3(), "dt0": 0.01}
    sparse = run(system, state, 0.1, True, **settings)
    dense = run(system, state, 0.1, False, jm.Compiled if unavailable() is None else jm.XLA, **settings)
    assert int(sparse.stats["sparse_steps"]) == 10 and not dense.stats["sparse_steps"]
    np.testing.assert_allclose(sparse.q, dense.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(sparse.v, dense.v, rtol=0, atol=1e-12)


def assert_alike(system, state, end, engine, tol=1e-11):
    """The same motion, decisions and steps; returns the sparse run."""
    sparse, dense = run(system, state, end, True, engine), run(system, state, end, False)
    np.testing.assert_allclose(sparse.q, dense.q, rtol=0, atol=tol)
    np.testing.assert_allclose(sparse.v, dense.v, rtol=0, atol=10 * tol)
    for name in ("num_steps", "lowest_rank", "highest_rank"):
        assert int(sparse.stats[name]) == int(dense.stats[name])
    assert int(dense.stats["sparse_steps"]) == 0
    assert int(sparse.stats["compiled_steps"]) == (int(sparse.stats["sparse_steps"]) if engine is jm.Compiled else 0)
    return sparse


@pytest.mark.slow_except("Compiled")
@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.slow
def test_independent_rows_are_used_from_the_first_step(engine):
    system = nfourbar.nfourbar(3)
    state = jm.assemble(system, *nfourbar.pose(3, jnp.array(1.2), jnp.array(-1.0)))
    found = assert_alike(system, state, 0.1, engine)
    assert int(found.stats["sparse_steps"]) == 40


@pytest.mark.slow_except("Compiled")
@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.slow
def test_redundant_rows_are_left_out(engine):
    system = parallelogram.parallelogram()
    state = jm.assemble(system, *parallelogram.pose(jnp.array(1.2), jnp.array(-1.0)))
    found = assert_alike(system, state, 0.1, engine)
    assert int(found.stats["highest_rank"]) < system.m
    assert int(found.stats["sparse_steps"]) >= 38  # the first ones decide which


def lift(stages):
    system = many_bodies.lift(stages).build("absolute")
    return system, jm.assemble(system)


def flat(loops):
    system = nfourbar.nfourbar(loops)
    return system, jm.assemble(system, *nfourbar.pose(loops, jnp.array(0.0), jnp.array(-4.0)))


@pytest.mark.parametrize(
    "model, redundant, degenerate",
    [pytest.param(lambda: lift(6), 11, 0, marks=pytest.mark.slow), (lambda: flat(12), 0, 12)],
    ids=["lift", "flat"],
)
@pytest.mark.slow
def test_decisions_by_the_layout_are_those_of_elimination(model, redundant, degenerate):
    """Which rows go and which stay may differ, what they allow and ask for does not."""
    system, state = model()
    spread = system.with_layout(layout_of(system, True))
    one, other = (choose_rows(s, jm.formulation.GaussProjection(), state) for s in (system, spread))
    for rows in (one, other):
        assert int(rows.rank) == int(rows.in_use.sum()) - degenerate == system.m - redundant - degenerate
        assert int(rows.degenerate.sum()) == degenerate and not bool(rows.indeterminate.any() | rows.contradictory)
    one, other = (jm.formulation.GaussProjection().acceleration(jm.evaluate(s, state)) for s in (system, spread))
    np.testing.assert_allclose(other.vdot, one.vdot, atol=1e-9 * float(jnp.abs(one.vdot).max()))
    np.testing.assert_allclose(other.reaction, one.reaction, atol=1e-9 * float(jnp.abs(one.reaction).max()))
    assert bool(one.result == jm.RESULTS.successful) and bool(other.result == one.result)


@pytest.mark.slow
def test_small_remainders_are_usual_in_a_high_lift():
    """The last rows of a lift are close to following from the others all the time; steps are sparse nevertheless."""
    system, state = lift(16)
    settings = dict(stepsize_controller=dfx.PIDController(rtol=1e-11, atol=1e-11), dt0=None)
    sparse, dense = (run(system, state, 0.3, flag, **settings) for flag in (True, False))
    assert int(dense.stats["highest_rank"]) == int(sparse.stats["highest_rank"]) == system.nv - 1
    assert int(sparse.stats["sparse_steps"]) >= int(sparse.stats["num_accepted_steps"]) - 1
    np.testing.assert_allclose(sparse.q, dense.q, rtol=0, atol=1e-8)
    np.testing.assert_allclose(sparse.v, dense.v, rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("engine", KINDS)
def test_velocity_rows_and_rates(engine):
    system, start = sleigh(3)
    found = assert_alike(system, jm.assemble(system, *start), 0.1, engine)
    assert int(found.stats["sparse_steps"]) >= 38


@pytest.mark.slow
@pytest.mark.parametrize("engine", KINDS)
def test_quaternions(engine):
    system, start = top(2)
    found = assert_alike(system, jm.assemble(system, *start), 0.05, engine)
    assert int(found.stats["sparse_steps"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", KINDS)
def test_singular_poses_take_the_general_step(engine):
    system = nfourbar.nfourbar(3)
    state = jm.assemble(system, *nfourbar.pose(3, jnp.array(0.6), jnp.array(-4.0)))
    end = 0.3  # the flat pose is passed at about 0.13 s
    sparse = run(
        system, state, end, True, engine, stepsize_controller=dfx.PIDController(rtol=1e-9, atol=1e-9), dt0=1e-3
    )
    angle = nfourbar.reduced_motion(3, jnp.array(0.6), jnp.array(-4.0), jnp.array([0.0, end]), system.params)[-1]
    assert float(angle) < 0
    steps = sparse.stats
    assert 0 < int(steps["sparse_steps"]) < int(steps["num_accepted_steps"])
    np.testing.assert_allclose(sparse.q[-1, 2], angle, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("engine", KINDS)
def test_a_batch_and_its_rows(engine):
    system = nfourbar.nfourbar(3)
    angles = jnp.array([0.05, 1.2, 0.4, 2.0])  # the first one passes the flat pose
    states = jax.vmap(lambda a: jm.assemble(system, *nfourbar.pose(3, a, jnp.array(-2.0))))(angles)
    one = lambda state: run(system, state, 0.1, True, engine, throw=False)
    together = jax.jit(jax.vmap(one))(states)
    for i in range(4):
        alone = run(system, jax.tree.map(lambda x, i=i: x[i], states), 0.1, True, engine)
        np.testing.assert_allclose(together.q[i], alone.q, rtol=0, atol=1e-9 if i == 0 else 1e-12)
        assert int(alone.stats["sparse_steps"]) == int(together.stats["sparse_steps"][i])


GRADIENTS = {
    "four-bars": lambda: (nfourbar.nfourbar(3), nfourbar.pose(3, jnp.array(0.6), jnp.array(-4.0))),
    "parallelogram": lambda: (parallelogram.parallelogram(), parallelogram.pose(jnp.array(1.2), jnp.array(-1.0))),
    "sleigh": lambda: sleigh(3),
    "top": lambda: top(2),
}


@pytest.mark.slow_except("sleigh-Compiled")
@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_same(name, engine):
    """By the velocities at the start and by all numbers of the system, redundant rows and quaternions included."""
    system, start = GRADIENTS[name]()
    state = jm.assemble(system, *start)
    weights = jnp.asarray(np.random.default_rng(3).normal(size=(2, system.nq)))

    def last(numbers, sparse):
        params, v = numbers
        found = run(
            system.with_params(params), dataclasses.replace(state, v=v), 0.05, sparse, engine if sparse else jm.XLA
        )
        return jnp.sum(weights * found.q)

    numbers = (jax.tree.map(jnp.asarray, system.params), state.v)
    slopes = [ravel_pytree(jax.jit(jax.grad(functools.partial(last, sparse=s)))(numbers))[0] for s in (True, False)]
    np.testing.assert_allclose(*slopes, rtol=0, atol=1e-9 * float(jnp.abs(slopes[1]).max()))


# When


def test_the_rule():
    few, many = nfourbar.nfourbar(2), nfourbar.nfourbar(12)
    assert layout_of(few, False) == "15 velocities and 14 rows are too few"
    found = layout_of(many, False)
    assert isinstance(found, Layout)
    assert layout_of(many, False) is found  # read off once
    assert found.blocks.shape == (75, 1) and found.order.size >= many.m
    state = jm.assemble(few, *nfourbar.pose(2, jnp.array(1.2), jnp.array(-1.0)))
    assert jm.choose_engine(few, state, formulation=jm.formulation.KKT()).not_sparse == "`KKT` is not `GaussProjection`"
    assert "explicit" in str(jm.choose_engine(few, state, solver=dfx.Kvaerno5()).not_sparse)


def test_the_work_of_blocks_without_rows_is_that_of_their_factors():
    """The cube of the size of each."""
    for size, count in ((2, 5), (6, 3)):
        blocks = np.kron(np.eye(count), np.ones((size, size))) != 0
        assert Layout.of(blocks, np.zeros((0, count * size), bool)).work == count * size**3


@pytest.mark.slow
def test_a_chain_in_relative_coordinates_is_dense():
    links = [jm.planar.Body.rod(f"link{i}", 1.0, 0.1, position=(0.1 * i, 0.0)) for i in range(60)]
    ends = [("ground", (0.0, 0.0)), *(f"link{i}.b" for i in range(60))]
    joints = [jm.planar.Revolute(f"pin{i}", ends[i], f"link{i}.a") for i in range(60)]
    joints.append(jm.planar.Revolute("last", ends[60], ("ground", (6.0, 0.0))))
    system = jm.planar.Mechanism(links, joints).build(cut=["last"])
    assert layout_of(system, False) == "M and C have too many entries that may not be zero"


def test_what_cannot_be_had_says_why():
    system = nfourbar.nfourbar(2)
    state = jm.assemble(system, *nfourbar.pose(2, jnp.array(1.2), jnp.array(-1.0)))
    with pytest.raises(ValueError, match="Argument `engine` must not be sparse here: `KKT` is not"):
        jm.simulate(system, state, jnp.array([0.1]), formulation=jm.formulation.KKT(), engine=jm.XLA(sparse=True))


@compiled
@pytest.mark.slow
def test_compiled_steps_use_it_sooner():
    """Between what dense code is good for and what plain sparse steps are, compiled sparse ones are."""
    system = nfourbar.nfourbar(3)
    state = jm.assemble(system, *nfourbar.pose(3, jnp.array(1.2), jnp.array(-1.0)))
    assert jm.choose_engine(system, state).engine == jm.Compiled(sparse=True)
    assert jm.choose_engine(system, state, engine=jm.XLA()).engine == jm.XLA(sparse=False)
    assert jm.choose_engine(system, state, engine=jm.Compiled(sparse=False)).not_sparse == "`sparse` is False"
    assert linear_algebra(system) == "sparse in compiled code: 21 blocks of M, rows in 4 neighbourhoods of 5"
