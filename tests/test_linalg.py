"""Factorisations, rank and projectors against NumPy, and their derivatives."""

import functools

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxmb import linalg as la
from jaxmb.foundations import positive_or_one, quotient, square_root
from jaxmb.linalg.constrained import orthonormal_rows
from jaxmb.linalg.pseudoinverse import decomposed


def problem(seed, n, m, copies):
    """Random M, C with `copies` scaled copies of its first row, and consistent right-hand sides."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    mass = root @ root.T + 0.5 * np.eye(n)
    rows, gamma = rng.normal(size=(m, n)), rng.normal(size=m)
    factors = np.array([1e6, -1e-6, 3.0])[:copies]
    jacobian = np.vstack([rows, factors[:, None] * rows[0]])
    values = mass, jacobian, rng.normal(size=n), np.concatenate([gamma, factors * gamma[0]])
    return tuple(jnp.asarray(x) for x in values)


@jax.jit
def solve(mass, jacobian, force, gamma):
    mass, jacobian = jnp.asarray(mass), jnp.asarray(jacobian)
    scale = la.row_norms(mass, jacobian)
    in_use = la.independent_rows(mass, jacobian, scale)
    factor = la.ConstrainedFactor(mass, jacobian, scale, in_use)
    x, multipliers = factor.solve(force, gamma)
    return x, la.minimum_norm_multipliers(factor, jacobian, multipliers), in_use, factor


@jax.jit
def independent(metric, jacobian):
    return la.independent_rows(metric, jacobian, la.row_norms(metric, jacobian))


@jax.jit
def projector(metric, jacobian):
    scale = la.row_norms(metric, jacobian)
    in_use = la.independent_rows(metric, jacobian, scale)
    return la.projector(la.ConstrainedFactor(metric, jacobian, scale, in_use))


def test_a_solver_of_square_equations_refuses_others():
    solver, matrix = la.SquareSolver(), jnp.array([[2.0, 1.0], [0.0, 4.0]])
    solve = lambda a: lx.linear_solve(lx.MatrixLinearOperator(a), jnp.array([4.0, 4.0]), solver)
    np.testing.assert_allclose(solve(matrix).value, [1.5, 1.0], rtol=1e-14)
    assert solver.assume_full_rank()  # no derivative of a rank that may change
    with pytest.raises(ValueError, match="`operator` must lead from vectors of one structure to such vectors"):
        solver.init(lx.MatrixLinearOperator(matrix[:, :1]), {})


SIZES = [(1, 1, 0), (3, 2, 0), (5, 3, 3), (9, 9, 1), (12, 4, 1), (24, 17, 3)]


@pytest.mark.parametrize("n, k", [(1, 1), (4, 3), (10, 2), (11, 5), (30, 1)])
def test_inverse_root(n, k):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n))
    matrix, rhs = jnp.array(root @ root.T + np.eye(n)), jnp.array(rng.normal(size=(n, k)))
    found = jax.jit(lambda m, x: (la.inverse_root(m), la.inverse_root(m, quick=True), la.solve_spd(m, x)))
    *roots, solved = found(matrix, rhs)
    for root in roots:
        np.testing.assert_allclose(root, np.linalg.inv(np.linalg.cholesky(matrix)), atol=1e-13)
    np.testing.assert_allclose(matrix @ solved, rhs, atol=1e-11)


def test_inverse_root_of_an_indefinite_matrix_is_not_a_number():
    for n in (2, 20):
        assert not np.all(np.isfinite(la.inverse_root(jnp.eye(n).at[n - 1, n - 1].set(-1.0))))


@pytest.mark.slow_cases("9-7-1", "8-6-0")
@pytest.mark.parametrize("n, m, copies", [(5, 3, 3), (9, 7, 1), (8, 6, 0)])
def test_programs_hold_calls_in_place_of_loops_over_few_rows(n, m, copies, monkeypatch):
    """Compiled functions of small matrices give what array operations give, and rows without a number are told."""
    mass, jacobian, *_ = problem(1, n, m, copies)

    def factors(mass, jacobian):
        scale = la.row_norms(mass, jacobian)
        in_use = la.independent_rows(mass, jacobian, scale, first=jnp.arange(len(scale)) == 1)
        factor = la.ConstrainedFactor(mass, jacobian, scale, in_use)
        # Which of rows that are copies is kept is a matter of rounding; what they span is not.
        kept = jnp.sum(in_use), in_use[1], jnp.sum(factor.in_use)
        off = factor.weights @ factor.rows @ factor.root.T - factor.basis
        return *kept, factor.root, factor.basis.T @ factor.basis, off

    found = []
    for reason in None, "asked for":
        monkeypatch.setattr("jaxmb.linalg.small.unavailable", lambda reason=reason: reason)
        fn = jax.jit(lambda *x: factors(*x))
        loops = fn.lower(mass, jacobian).as_text().count("stablehlo.while")
        assert loops == 0 if reason is None else loops > 0
        found.append([*fn(mass, jacobian), *jax.vmap(fn, (None, 0))(mass, jnp.stack([jacobian, 2 * jacobian]))])
        assert np.isnan(fn(mass.at[0, 0].set(jnp.nan), jacobian)[3]).any()
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.slow_cases("24-17-3")
@pytest.mark.parametrize("n, m, copies", SIZES)
def test_solution_rank_and_least_norm(n, m, copies):
    mass, jacobian, force, gamma = problem(n, n, m, copies)
    x, multipliers, in_use, _ = solve(mass, jacobian, force, gamma)
    half = np.linalg.inv(np.linalg.cholesky(mass)).T
    length = np.linalg.norm(jacobian @ half, axis=1)[:, None]
    rows, free = jacobian @ half / length, half.T @ force
    expected = half @ (free + np.linalg.pinv(rows, rcond=1e-10) @ (gamma / length[:, 0] - rows @ free))
    bound = 100 * np.finfo(float).eps * np.linalg.cond(mass) * np.linalg.cond(rows[:m])
    np.testing.assert_allclose(x, expected, atol=bound * np.linalg.norm(expected))
    assert int(in_use.sum()) == m == np.linalg.matrix_rank(rows, tol=1e-9)
    reaction = mass @ expected - force
    np.testing.assert_allclose(jacobian.T @ multipliers, reaction, atol=10 * bound * np.linalg.norm(reaction))
    # least norm: equal physical rows share the load in proportion to their factors
    for i, factor in enumerate(np.array([1e6, -1e-6, 3.0])[:copies]):
        atol = bound * max(1, abs(factor)) * np.abs(multipliers).max()
        np.testing.assert_allclose(multipliers[m + i], factor * multipliers[0], rtol=0, atol=atol)


def test_rank_ignores_units_and_order():
    mass, jacobian, _, _ = problem(3, 8, 5, 3)
    rng = np.random.default_rng(1)
    for _ in range(10):
        factors, order = 10 ** rng.uniform(-6, 6, 8), rng.permutation(8)
        rows = jnp.array(factors[:, None] * jacobian)[order]
        assert int(independent(mass, rows).sum()) == 5


def test_no_cut_off_is_below_a_thousand_units_of_rounding():
    assert la.cutoff(1e-5, np.float32) == 1e3 * 2.0**-23 and la.cutoff(1e-5, np.float64) == 1e-5


@pytest.mark.parametrize("gap, rank", [(1e-3, 2), (1e-5, 2), (1e-7, 1), (0.0, 1)])
def test_rank_tolerance_is_a_distance_relative_to_the_row(gap, rank):
    jacobian = jnp.array([[1.0, 0.0, 0.0], [1.0, gap, 0.0]])
    assert int(independent(jnp.eye(3), jacobian).sum()) == rank


def test_nearly_parallel_rows_do_not_displace_a_better_one():
    jacobian = jnp.array([[1.0, 0.0], [1.0, 1e-5], [0.0, 1.0]])
    assert bool(independent(jnp.eye(2), jacobian)[2])


def test_rows_that_come_first_are_kept():
    jacobian = jnp.array([[5.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    scale, first = jnp.ones(3), jnp.array([False, True, False])
    in_use = la.independent_rows(jnp.eye(3), jacobian, scale, first=first)
    assert bool(in_use[1]) and int(in_use.sum()) == 2


def test_an_elimination_can_be_continued():
    """Rows of a given rank and their combinations; then other rows in place of those that were not chosen."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(7, 3)) @ rng.normal(size=(3, 5))

    @jax.jit
    def found(rows, others):
        first = la.Eliminated.of(rows).eliminate(1e-9)
        zero = jnp.where(first.chosen[:, None], 0, first.combined)
        return first, zero @ rows, first.off_basis(others).eliminate(1e-9)

    others = rng.normal(size=(7, 5))
    first, nothing, second = found(jnp.asarray(rows), jnp.asarray(others))
    chosen = np.asarray(first.basis)[np.asarray(first.chosen)]
    assert int(first.chosen.sum()) == 3 and int(second.chosen.sum()) == 5
    np.testing.assert_allclose(chosen @ chosen.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(np.asarray(first.combined) @ rows, first.rows, atol=1e-13)
    np.testing.assert_allclose(nothing, 0, atol=1e-13)
    both = np.asarray(second.basis)[np.asarray(second.chosen)]
    np.testing.assert_allclose(both @ both.T, np.eye(5), atol=1e-14)
    assert np.array_equal(np.asarray(second.rows)[np.asarray(first.chosen)], chosen)


@pytest.mark.parametrize("count", [60, 90])  # one at a time, and by blocks
def test_many_rows(count):
    """Rank, orthogonal rows, what they were made of and what vanishes, of rows whose lengths span six powers of ten."""
    rng, rank = np.random.default_rng(0), 45
    sizes = 10.0 ** -np.linspace(0, 6, rank)
    rows = rng.normal(size=(count, rank)) @ (sizes[:, None] * np.linalg.qr(rng.normal(size=(70, rank)))[0].T)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    found = jax.jit(lambda rows: la.Eliminated.of(rows).eliminate(1e-10))(jnp.asarray(rows))
    kept = np.asarray(found.chosen)
    assert kept.sum() == rank == np.linalg.matrix_rank(rows, 1e-10)
    np.testing.assert_allclose(found.basis[kept] @ found.basis[kept].T, np.eye(rank), atol=1e-10)
    largest = float(jnp.abs(found.combined).max())
    np.testing.assert_allclose(found.combined @ rows, found.rows, atol=1e-14 * largest)
    np.testing.assert_allclose(found.rows[~kept], 0, atol=1e-14)
    # A good choice: its smallest singular value is not much less than that of all rows, which it cannot exceed.
    of = lambda rows: np.linalg.svd(rows, compute_uv=False)[rank - 1]
    assert of(rows[kept]) > of(rows) / 30


@pytest.mark.parametrize("count", [0, 4, 20, 81])  # none, unrolled, in a loop, and by blocks of rows
def test_rows_are_made_orthonormal_in_their_order(count):
    """Q = W C, W lower triangular, Q orthonormal but for rows that follow from those before them, which are zero: of them W takes the row itself and others."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(count, 90))
    kept = np.arange(count) % 20 != 3
    rows[~kept] = rows[(np.arange(count) - 2)[~kept]] - 3 * rows[(np.arange(count) - 1)[~kept]]
    w, q, remainders = map(np.asarray, jax.jit(orthonormal_rows)(jnp.asarray(rows), jnp.full(count, 1e-9)))
    np.testing.assert_array_equal(remainders > 1e-9, kept)
    np.testing.assert_allclose(q @ q.T, np.diag(kept.astype(float)), atol=1e-13)
    np.testing.assert_allclose(w @ rows, q, atol=1e-12)
    np.testing.assert_array_equal(np.triu(w, 1), 0)
    np.testing.assert_array_equal(np.diag(w)[~kept], 1)


@pytest.mark.parametrize("count", [4, 20, 81])
def test_nearly_parallel_rows_are_made_orthonormal_to_rounding(count):
    """Rows that differ by 1e-5: one pass would leave products of 1e-11 (twice is enough)."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=90) + 1e-5 * rng.normal(size=(count, 90))
    _, q, remainders = map(np.asarray, jax.jit(orthonormal_rows)(jnp.asarray(rows), jnp.full(count, 1e-9)))
    np.testing.assert_allclose(q @ q.T, np.eye(count), atol=1e-14)
    np.testing.assert_allclose(remainders, np.abs(np.diag(np.linalg.qr(rows.T)[1])), rtol=1e-9)


@pytest.mark.parametrize("n", [3, 40])
def test_the_root_of_an_inverse_and_its_derivative(n):
    """R A Rᵀ = I with R lower triangular; dR solves dR A Rᵀ + R dA Rᵀ + R A dRᵀ = 0."""
    rng = np.random.default_rng(5)
    root, change = rng.normal(size=(2, n, n))
    matrix, change = root @ root.T + n * np.eye(n), change + change.T
    r, rate = jax.jit(lambda a, b: jax.jvp(la.orthonormaliser, (a,), (b,)))(jnp.asarray(matrix), jnp.asarray(change))
    np.testing.assert_allclose(r @ matrix @ r.T, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(rate @ matrix @ r.T + r @ change @ r.T + r @ matrix @ rate.T, 0, atol=1e-13)
    np.testing.assert_array_equal(np.triu(r, 1), 0)
    np.testing.assert_array_equal(np.triu(rate, 1), 0)


def test_of_many_rows_some_come_first():
    rng = np.random.default_rng(1)
    rows, first = rng.normal(size=(80, 30)), np.arange(80) >= 60
    rows[first] *= 1e-6
    found = la.Eliminated.of(jnp.asarray(rows)).eliminate(1e-9, jnp.asarray(first))
    assert np.asarray(found.chosen)[first].all() and int(found.chosen.sum()) == 30
    among = la.Eliminated.of(jnp.asarray(rows)).eliminate(1e-9, among=jnp.asarray(first))
    np.testing.assert_array_equal(among.chosen, first)


@pytest.mark.parametrize("count", [6, 70])
def test_rows_that_were_decided_before_are_chosen_and_no_others(count):
    """By a tolerance of zero; one row that vanishes is among them."""
    rows = np.random.default_rng(2).normal(size=(count, count))
    rows[2], among = 0, np.arange(count) < 4
    found = la.Eliminated.of(jnp.asarray(rows)).eliminate(0.0, among=jnp.asarray(among))
    np.testing.assert_array_equal(found.chosen, among & (np.arange(count) != 2))
    np.testing.assert_allclose(found.combined @ rows, found.rows, atol=1e-12)
    off = found.rows[~np.asarray(found.chosen)] @ found.basis.T
    np.testing.assert_allclose(off, 0, atol=1e-12)


def test_only_rows_among_those_given_are_chosen():
    rows, among = jnp.array([[5.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), jnp.array([False, True, True])
    assert la.Eliminated.of(rows).eliminate(1e-9, among=among).chosen.tolist() == [False, True, True]


@functools.cache
def worked_out():
    """M, C, σ, which rows are in use, and in the metric of M what is left of each row beside those before it, by QR; the fourth follows from the first two."""
    rng, n = np.random.default_rng(6), 5
    root = rng.normal(size=(n, n))
    mass, jacobian = root @ root.T + np.eye(n), rng.normal(size=(6, n))
    jacobian[3] = 2 * jacobian[0] - 0.5 * jacobian[1]
    scale, in_use = rng.uniform(0.2, 5.0, 6), np.array([True, True, False, True, True, True])
    rows = np.linalg.solve(np.linalg.cholesky(mass), (jacobian / scale[:, None]).T).T
    rest = np.zeros_like(rows)
    for i, row in enumerate(rows):
        before = rows[:i][in_use[:i]]
        rest[i] = row - np.linalg.lstsq(before.T, row, rcond=1e-9)[0] @ before if i else row
    return mass, jacobian, scale, in_use, rows, rest


def test_what_a_factor_tells_of_its_rows():
    """Remainders, the combinations that they are the lengths of, speeds, sizes by lengths; what is asked of rows that are not in use is not read."""
    mass, jacobian, scale, in_use, rows, rest = worked_out()
    kept, length = in_use & (np.arange(6) != 3), np.linalg.norm(rest, axis=1)
    rates, force, gamma = (np.random.default_rng(7).normal(size=size) for size in ((6, 5), 5, 6))
    gamma[~in_use] = np.nan

    @jax.jit
    def found(rates, force, gamma):
        factor = la.ConstrainedFactor(*map(jnp.asarray, (mass, jacobian, scale, in_use)))
        by_lengths = factor.by_lengths(jnp.arange(1.0, 6.0), 2 * factor.scale)
        told = factor.remainders, factor.gap, factor.vanishing, factor.speeds(rates), by_lengths.remainders
        return factor, told, (factor.particular(gamma), *factor.solve(force, gamma)), la.null_space(factor)

    factor, (remainders, gap, vanishing, speeds, lengths), (least, x, multipliers), free = found(rates, force, gamma)
    np.testing.assert_array_equal(factor.in_use, kept)
    np.testing.assert_allclose(remainders[kept], length[kept], rtol=1e-12)
    assert remainders[3] < 1e-14 and np.isinf(remainders[2]) and gap == remainders[3]
    combined = np.asarray(vanishing)[in_use]
    np.testing.assert_allclose(combined @ rows, rest[in_use], atol=1e-13)
    np.testing.assert_allclose(np.diag(vanishing)[in_use], 1, rtol=1e-13)
    np.testing.assert_array_equal(np.triu(vanishing, 1), 0)
    turns = np.linalg.solve(np.linalg.cholesky(mass), (rates / scale[:, None]).T)
    np.testing.assert_allclose(speeds, np.linalg.norm(turns, axis=0), rtol=1e-12)
    reached = (jacobian / (2 * scale[:, None]) * np.arange(1.0, 6.0))[kept]
    np.testing.assert_allclose(lengths[kept], np.abs(np.diag(np.linalg.qr(reached.T)[1])), rtol=1e-12)
    # The motion of least size with the rates, and that of a force too.
    used, wanted = jacobian[kept], gamma[kept]
    shortest = np.linalg.solve(mass, used.T @ np.linalg.solve(used @ np.linalg.solve(mass, used.T), wanted))
    np.testing.assert_allclose(least, shortest, rtol=1e-10, atol=1e-12)
    both = np.block([[mass, used.T], [used, np.zeros((len(used),) * 2)]])
    exact = np.linalg.solve(both, np.concatenate([force, wanted]))
    np.testing.assert_allclose(x, exact[:5], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(multipliers[kept], -exact[5:], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(multipliers[~kept], 0)
    columns = np.asarray(free)[:, np.abs(free).max(axis=0) > 0]
    np.testing.assert_allclose(columns.T @ mass @ columns, np.eye(5 - kept.sum()), atol=1e-13)
    np.testing.assert_allclose(used @ columns, 0, atol=1e-12)


def test_square_equations_are_solved_to_rounding_of_their_residual():
    """Of a matrix of a condition of 1e10 too, whose rows have any units, and of its transpose."""
    n = 8
    left, right = np.linalg.qr(np.random.default_rng(8).normal(size=(2, n, n)))[0]
    matrix = np.logspace(-3, 3, n)[:, None] * (left * np.logspace(0, -10, n) @ right)
    x = np.random.default_rng(9).normal(size=n)
    solve = jax.jit(la.solve_square)
    back = jax.jit(lambda a, b: jax.linear_transpose(lambda b: la.solve_square(a, b), b)(b)[0])
    for a, found in ((matrix, solve(matrix, matrix @ x)), (matrix.T, back(matrix, matrix.T @ x))):
        assert np.all(np.abs(a @ (found - x)) <= 100 * np.finfo(float).eps * (np.abs(a) @ np.abs(x)))
    for singular in (
        jnp.ones((3, 3)),
        jnp.eye(3).at[1, 1].set(0.0),
        jnp.array([[1e6, 1e6], [1e-6, 1e-6 * (1 + 1e-16)]]),
    ):
        assert np.isnan(la.solve_square(singular, jnp.ones(len(singular)))).any()
    small = jnp.diag(jnp.array([1e-200, 1.0, 1e200]))
    np.testing.assert_allclose(la.solve_square(small, jnp.ones(3)), [1e200, 1.0, 1e-200], rtol=1e-14)


@pytest.mark.parametrize("metric", [False, True])
@pytest.mark.parametrize("n, m, copies", SIZES)
def test_projector_laws(n, m, copies, metric):
    mass, jacobian, _, _ = problem(n, n, m, copies)
    weight = mass if metric else jnp.eye(n)
    p = np.asarray(projector(weight, jacobian))
    bound = 1e-12 * np.linalg.cond(weight) * np.linalg.cond(jacobian[:m])
    np.testing.assert_allclose(p @ p, p, atol=bound)
    np.testing.assert_allclose(weight @ p, (weight @ p).T, atol=bound * np.linalg.norm(weight))
    np.testing.assert_allclose((jacobian / np.asarray(la.row_norms(weight, jacobian))[:, None]) @ p, 0, atol=bound)
    if not metric:
        np.testing.assert_allclose(p, np.eye(n) - np.linalg.pinv(jacobian[:m]) @ jacobian[:m], atol=bound)


@pytest.mark.parametrize("n, m, copies", [(5, 3, 0), (5, 3, 3), (12, 11, 2)])
@pytest.mark.slow_except("5-3-0")
def test_derivatives_through_redundant_rows(n, m, copies):
    """Forward and reverse, in a direction that keeps the copies what they are."""
    mass, jacobian, force, gamma = problem(7, n, m, copies)
    rng = np.random.default_rng(9)
    turn, push = rng.normal(size=(n, n)), rng.normal(size=n)
    weights = np.where(np.abs(jacobian).max(axis=1) > 1e5, 1e-6, 1.0)  # multipliers of like size

    @jax.jit
    def fn(s):
        rows = jacobian @ (jnp.eye(n) + s * turn)  # rotates all rows alike
        x, multipliers, _, factor = solve(mass + s**2 * jnp.eye(n), rows, force + s * push, gamma * (1 + s))
        return jnp.sum(jnp.sin(x)) + jnp.sum((multipliers * weights) ** 2) + jnp.sum(la.projector(factor) ** 3)

    h = 1e-5
    forward, reverse = jax.jit(jax.jacfwd(fn))(0.1), jax.jit(jax.grad(fn))
    np.testing.assert_allclose(forward, reverse(0.1), rtol=1e-11)
    np.testing.assert_allclose(forward, (fn(0.1 + h) - fn(0.1 - h)) / (2 * h), rtol=1e-6)
    second = jax.jit(jax.jacfwd(jax.grad(fn)))(0.1)
    np.testing.assert_allclose(second, (reverse(0.1 + h) - reverse(0.1 - h)) / (2 * h), rtol=1e-6)


def test_derivatives_at_equal_singular_values():
    """A spherical joint: three orthogonal rows of equal length, where derivatives of singular vectors do not exist."""
    weights = jnp.arange(16.0).reshape(4, 4)

    @jax.jit
    def fn(rows):
        x, multipliers, _, factor = solve(jnp.eye(4), rows, jnp.arange(4.0), jnp.ones(3))
        return jnp.sum(x**2) + jnp.sum(multipliers**3) + jnp.sum(la.projector(factor) ** 2 * weights)

    check_grads(fn, (jnp.eye(3, 4),), order=1, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6, eps=1e-5)


def test_batched_in_a_loop_comes_to_an_end():
    """512 systems of 12 and 3 coordinates, 200 solutions each: library calls have been seen to hang here."""
    for n, m, copies in ((3, 2, 1), (12, 11, 1)):
        mass, jacobian, force, gamma = problem(n, n, m, copies)

        @jax.jit
        @jax.vmap
        def run(x, mass=mass, jacobian=jacobian, gamma=gamma):
            step = lambda x, _: (solve(mass, jacobian, x, gamma)[0], None)
            return jax.lax.scan(step, x, None, length=200)[0]

        out = run(np.tile(force, (512, 1)))
        assert np.all(np.isfinite(out)) and np.all(out == out[0])


def test_a_damped_inverse_is_that_of_its_formula_in_any_unit():
    """Aᵀ(AAᵀ + d²I + σ₀²P)⁻¹, d = σ₀ (1 − (σ_min/σ₀)²), P on what A does not reach; damping and cut-off are relative to `scale`."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    both, one = (np.array([[1.0, 0.2, 0.0], row]) @ turn for row in ([0.3, 1e-3, 0.0], [0.0, 0.0, 0.0]))
    tilt = np.array([[0.6, -0.8], [0.8, 0.6]])
    unreached = jnp.asarray(tilt @ np.diag([0.0, 1.0]) @ tilt.T)
    for matrix, damping, outside in ((both, 0.3, None), (tilt @ one, 3.0, unreached)):
        least = np.linalg.svd(matrix, compute_uv=False)[0 if outside is not None else 1]
        square = matrix @ matrix.T + (damping * (1 - (least / damping) ** 2)) ** 2 * np.eye(2)
        exact = matrix.T @ np.linalg.inv(square if outside is None else square + damping**2 * outside)
        inverse = jax.jit(lambda a, unit, d=damping, p=outside: la.invert(a, 1e-9, unit, damping=d, outside=p).inverse)
        for unit in (1e9, 1.0, 1e-9):
            np.testing.assert_allclose(unit * inverse(unit * matrix, unit), exact, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(inverse(0 * matrix, 0.0), 0)
        if outside is None:
            plain = np.linalg.pinv(matrix)
            found = jax.jvp(lambda a: inverse(a, 0.0), (matrix,), (matrix,))
            np.testing.assert_allclose(found, [plain, -plain], rtol=1e-6, atol=1e-6)
    for tol, rank in ((0.05, 2), (0.1, 1)):  # of singular values 1.06 and 0.056
        assert jax.jit(la.invert)(1e3 * both, tol, 1e3).rank == rank


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("p", [2, 3, 4])
def test_few_rows_are_orthogonal_after_a_known_number_of_sweeps(p):
    """Graded over 15 orders of magnitude by rows or columns, nearly orthogonal and nearly equal: singular vectors, and values as NumPy's."""
    rng, count, n = np.random.default_rng(p), 100, 6
    plain = rng.normal(size=(4, count, p, n))
    plain[0] *= 10.0 ** rng.uniform(-15, 0, (count, p, 1))
    plain[1] *= 10.0 ** rng.uniform(-15, 0, (count, 1, n))
    plain[2] = np.eye(p, n) + 1e-8 * plain[2]
    plain[3, :, -1] = plain[3, :, 0] * (1 + 1e-10)
    matrices = plain.reshape(-1, p, n)
    values, left, right = jax.vmap(decomposed)(jnp.asarray(matrices))
    exact, size = np.linalg.svd(matrices, compute_uv=False), np.abs(matrices).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(values / exact[:, :1], exact / exact[:, :1], rtol=0, atol=1e-14)
    np.testing.assert_allclose(jnp.einsum("bpk,bp,bpn->bkn", left, values, right) / size, matrices / size, atol=3e-14)
    sound = np.asarray(values > 1e-12 * values[:, :1])
    gram = np.einsum("bpn,bqn->bpq", right, right) * (sound[:, :, None] & sound[:, None, :])
    np.testing.assert_allclose(gram * (1 - np.eye(p)), 0, atol=1e-13)


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (4, 17)])
def test_within_bounds_no_way_leads_down_from_the_least_value(n, seed):
    """Karush, Kuhn and Tucker: the slope is zero between the bounds and leads out at them; all scales of unknowns."""
    rng = np.random.default_rng(seed)
    roots, units = rng.normal(size=(50, n, n)), 10.0 ** rng.uniform(-3, 3, (50, n))
    matrix = (roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(n)) / units[:, None] / units[:, :, None]
    slope, low, high = (sign * rng.uniform(0.0, 2.0, (50, n)) for sign in (1, -1, 1))
    slope, low, high = slope / units, low * units, high * units
    d, held = (
        np.asarray(x) for x in jax.jit(jax.vmap(la.bounded_minimum))(*map(jnp.asarray, (matrix, slope, low, high)))
    )
    force = slope + (matrix @ d[..., None])[..., 0]
    np.testing.assert_allclose(np.clip(d - force * units**2, low, high) / units, d / units, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(held, (d == low) | (d == high))
    assert held.any() and not held.all()


def test_safe_denominators_quotients_and_roots_have_derivatives_without_nan():
    x = np.array([-2.0, 0.0, 4.0])
    assert isinstance(positive_or_one(x), np.ndarray) and positive_or_one(x).tolist() == [1, 1, 4]
    for fn, values, slopes in (
        (positive_or_one, [1, 1, 4], [0, 0, 1]),
        (lambda x: quotient(3.0, x), [0, 0, 0.75], [0, 0, -3 / 16]),
        (square_root, [0, 0, 2], [0, 0, 0.25]),
    ):
        assert fn(jnp.array(x)).tolist() == values
        assert jax.vmap(jax.grad(fn))(jnp.array(x)).tolist() == slopes
