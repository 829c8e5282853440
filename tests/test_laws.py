"""Control laws: what inputs do, and the inputs for given motions and forces, against least squares without a projector."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import slider_crank
from systems import make

import jaxmb as jm
from jaxmb import control
from jaxmb.linalg import PseudoInverse, invert, pseudoinverse, singular_values, spectral_norm

NV, M, NU, OUTPUTS, FORCES, COUNT = 6, 5, 5, 2, 2, 1000
GAUSS = jm.formulation.GaussProjection()


# The pseudo-inverse


SHAPES = [(1, 1), (1, 5), (5, 1), (2, 2), (3, 3), (4, 7), (7, 4), (5, 5), (12, 9)]


def matrices(k, n):
    """By name, matrices of a shape with exact or known singular values."""
    rng = np.random.default_rng(0)
    least = min(k, n)
    full = rng.normal(size=(20, k, n))
    low = max(least - 2, 1)
    yield "random", full
    yield "deficient", rng.normal(size=(20, k, low)) @ rng.normal(size=(20, low, n))
    yield "repeated", np.linalg.qr(rng.normal(size=(20, max(k, n), max(k, n))))[0][:, :k, :n]
    yield "zero", np.zeros((20, k, n))
    yield "graded", full * np.logspace(-12, 0, n)
    yield "graded rows", full * np.logspace(-12, 0, k)[:, None]


@pytest.mark.slow_except("4-7", "7-4", "5-5")
@pytest.mark.parametrize(("k", "n"), SHAPES)
def test_pseudo_inverse_is_that_of_numpy(k, n):
    found_for = jax.jit(jax.vmap(lambda a: invert(a, 1e-9)))
    for name, batch in matrices(k, n):
        found = found_for(jnp.asarray(batch))
        for i, a in enumerate(batch):
            left, values, right = np.linalg.svd(a, full_matrices=False)
            kept = values > 1e-9
            size, condition = (values[0], values[0] / values[kept][-1]) if kept.any() else (1.0, 1.0)
            np.testing.assert_allclose(found.values[i], values, atol=1e-13 * size, err_msg=name)
            expected = (right[kept].T / values[kept]) @ left[:, kept].T
            error = np.linalg.norm(found.inverse[i] - expected)
            assert error <= 1e-13 * condition * max(np.linalg.norm(expected), 1e-300), (name, a.shape)
            assert int(found.rank[i]) == kept.sum()


def differences(fn, x, step, h=1e-4):
    """Central differences of fourth order."""
    near, far = (fn(x + k * h * step) - fn(x - k * h * step) for k in (1, 2))
    return (8 * near - far) / (12 * h)


def check_derivatives(fn, x, tol, second=True):
    """Forward and reverse, of first and second order, against differences."""
    rng = np.random.default_rng(1)
    step, weight = jnp.asarray(rng.normal(size=x.shape)), jnp.asarray(rng.normal(size=fn(x).shape))
    slope = jax.jit(jax.grad(lambda x: jnp.sum(weight * fn(x))))
    forward = jax.jit(lambda x: jax.jvp(fn, (x,), (step,))[1])(x)
    expected = differences(jax.jit(fn), x, step)
    np.testing.assert_allclose(forward, expected, atol=tol * np.abs(expected).max())
    np.testing.assert_allclose(jnp.sum(slope(x) * step), jnp.sum(weight * forward), rtol=1e-9, atol=1e-12)
    if second:
        expected = differences(slope, x, step)
        found = jax.jit(lambda x: jax.jvp(slope, (x,), (step,))[1])(x)
        np.testing.assert_allclose(found, expected, atol=tol * np.abs(expected).max())


@pytest.mark.slow_except("shape1")
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2)])
def test_derivatives_of_the_pseudo_inverse(shape):
    rng = np.random.default_rng(2)
    inverse = lambda a: pseudoinverse(a, 1e-9)
    check_derivatives(inverse, jnp.asarray(rng.normal(size=shape)), 1e-6)
    left, _, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    check_derivatives(inverse, jnp.asarray(left @ right), 1e-6)  # equal singular values


def test_derivative_of_the_pseudo_inverse_of_constant_rank():
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(5, 2)), rng.normal(size=(2, 4))
    fn = lambda x: pseudoinverse((left + jnp.sin(x * left)) @ (right * jnp.exp(x)), 1e-9)
    check_derivatives(fn, jnp.array(0.3), 1e-6)


@pytest.mark.slow_except("0.0-shape0", "0.03-shape1", "0.07-shape2")
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2)])
@pytest.mark.parametrize("least", [0.0, 0.03, 0.07])
@pytest.mark.slow_except("0.07-shape2")
def test_damping_bounds_the_inverse(shape, least):
    rng = np.random.default_rng(4)
    left, _, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    values = np.linspace(1, least, len(right))
    damped = functools.partial(pseudoinverse, tol=1e-9, damping=0.1)
    matrix = jnp.asarray(left * values @ right)
    square = 0.01 * (1 - (least / 0.1) ** 2) ** 2
    np.testing.assert_allclose(damped(matrix), (right.T * (values / (values**2 + square))) @ left.T, atol=1e-12)
    check_derivatives(damped, matrix, 1e-6, second=False)
    # Nothing is changed where the smallest is not below σ₀.
    whole = left * np.linspace(1, 0.2, len(right)) @ right
    np.testing.assert_allclose(damped(jnp.asarray(whole)), np.linalg.pinv(whole), atol=1e-13)
    # A matrix of zeros without a size has a derivative.
    slope = jax.grad(lambda matrix: jnp.sum(damped(matrix, scale=0.0)))(jnp.zeros(shape))
    assert jnp.isfinite(slope).all()


@pytest.mark.parametrize(("k", "n"), [(4, 6), (6, 4)])
def test_sizes_of_matrices(k, n):
    """A size is that of the matrix in any unit; it may have an equal twin, which no fixed number of multiplications tells apart."""
    a = np.random.default_rng(5).normal(size=(k, n))
    left, values, right = np.linalg.svd(a, full_matrices=False)
    values[1:2] = values[0]
    twins = left * values @ right
    for unit in (1e-30, 1.0, 1e30):
        np.testing.assert_allclose(
            singular_values(unit * jnp.asarray(a)) / unit, np.linalg.svd(a, compute_uv=False), rtol=1e-13
        )
        for matrix in (a, twins):
            assert abs(float(spectral_norm(unit * jnp.asarray(matrix))) / (unit * values[0]) - 1) < 0.01
    assert float(spectral_norm(jnp.zeros((k, n)))) == 0
    np.testing.assert_array_equal(singular_values(jnp.zeros((k, n))), np.zeros(min(k, n)))


def test_matrices_without_entries():
    for k, n in ((0, 3), (3, 0)):
        empty = jnp.zeros((k, n))
        found = invert(empty, 1e-9)
        assert found.inverse.shape == (n, k) and found.values.shape == (0,) and int(found.rank) == 0
        assert singular_values(empty).shape == (0,) and float(spectral_norm(empty)) == 0


def test_the_smallest_of_so_many_singular_values():
    """Infinite of none, and zero beyond as many as there are; of a matrix without a size none counts."""
    found = PseudoInverse(jnp.zeros((3, 2)), jnp.array([5.0, 3.0]), jnp.array(2))
    assert [float(found.value(count)) for count in range(5)] == [np.inf, 5.0, 3.0, 0.0, 0.0]
    for damping in (None, 0.1, 0.0):
        nothing = invert(jnp.zeros((2, 3)), 1e-9, 0.0, damping=damping)
        assert int(nothing.rank) == 0 and not nothing.inverse.any()


# Random systems


class Chosen(control.AbstractForces):
    """y = E Cᵀλ, with E among the parameters of the test, read off the multipliers or the reaction."""

    directions: jax.Array
    by_multipliers: bool = eqx.field(static=True, default=True)

    def labels(self, system):
        return tuple(f"y{i}" for i in range(FORCES))

    def weights(self, plant):
        return self.directions @ plant.terms.jacobian.T

    def read(self, response):
        force = response.plant.terms.jacobian.T @ response.multipliers if self.by_multipliers else response.reaction
        return self.directions @ force


def matrix_system():
    """M, F, C, c and B are parameters; the rows are C v + c t."""
    return jm.System(
        NV,
        mass=lambda t, q, p: p["mass"],
        force=lambda t, q, v, p: p["force"],
        constraints=[jm.Pfaffian("rows", lambda t, q, v, p: p["rows"] @ v - p["gamma"] * t)],
        actuation=lambda t, q, p: p["actuation"],
        params={
            "mass": jnp.eye(NV),
            "force": jnp.zeros(NV),
            "rows": jnp.zeros((M, NV)),
            "gamma": jnp.zeros(M),
            "actuation": jnp.zeros((NV, NU)),
        },
    )


MATRICES = matrix_system()


def random_case(rng):
    rank, drive = rng.integers(1, 5), rng.integers(1, NU + 1)
    turn = np.linalg.qr(rng.normal(size=(NV, NV)))[0]
    mass = (turn * np.logspace(0, -rng.uniform(0, 5), NV)) @ turn.T
    rows = rng.normal(size=(rank, NV))
    more = rng.normal(size=(M - rank, rank)) @ rows if rng.random() < 0.5 else rows[rng.integers(0, rank, M - rank)]
    rows = np.concatenate([rows, more * 10.0 ** rng.uniform(-3, 3, (M - rank, 1))])[rng.permutation(M)]
    limits = 10.0 ** rng.uniform(-0.5, 0.5, NU) * (rng.random(NU) > 0.15)
    return {
        "mass": (mass + mass.T) / 2,
        "force": rng.normal(size=NV),
        "rows": rows,
        "gamma": rows @ rng.normal(size=NV),
        "actuation": rng.normal(size=(NV, drive)) @ rng.normal(size=(drive, NU)),
        "limits": limits,
        "outputs": rng.normal(size=(OUTPUTS, NV)),
        "turn": rng.normal(size=OUTPUTS),
        "w": rng.normal(size=OUTPUTS),
        "directions": rng.normal(size=(FORCES, NV)),
        "y": rng.normal(size=FORCES),
    }


def plant_of(case, formulation=GAUSS):
    """The plant built of arrays only."""
    none, zero = jnp.zeros(()), jnp.zeros(NV)
    lengths = jnp.linalg.norm(case["rows"], axis=1)
    terms = jm.system.Terms(case["mass"], case["force"], case["rows"], jnp.zeros(M), case["gamma"], lengths)
    factor = formulation.factorise(terms, formulation.prepare(terms), 0.0)
    system = MATRICES.with_params({name: case[name] for name in MATRICES.params})
    return control.Plant(system, none, zero, zero, terms, case["actuation"], formulation, factor)


def rows_of(case):
    zero = jnp.zeros(OUTPUTS)
    return control.OutputRows(zero, zero, case["outputs"], case["turn"], (False,) * OUTPUTS, (False,) * OUTPUTS)


def laws(case):
    plant, rows = plant_of(case), rows_of(case)
    forces, reaction = Chosen(case["directions"]), Chosen(case["directions"], by_multipliers=False)
    moving = control.motion_law(plant, rows, case["w"], limits=case["limits"])
    hybrid = control.hybrid_law(plant, rows, case["w"], forces, case["y"], limits=case["limits"])
    again = control.hybrid_law(plant, rows, case["w"], reaction, case["y"], limits=case["limits"])
    maps = control.affine(plant)
    potent, impotent = control.split_input(plant, moving.u + jnp.where(case["limits"] > 0, 1.0, 0))
    respond = lambda u: (lambda r: (r.vdot, r.reaction, r.multipliers))(plant.respond(u))
    answers = [respond(u) for u in (moving.u, hybrid.u, jnp.zeros(NU), potent, impotent)]
    return moving, hybrid, maps, answers, plant.freedoms, control.drive(plant).basis, again


@functools.cache
def many():
    return jax.jit(jax.vmap(laws))


@functools.cache
def solved():
    rng = np.random.default_rng(7)
    cases = [random_case(rng) for _ in range(COUNT)]
    batch = {name: jnp.asarray(np.stack([case[name] for case in cases])) for name in cases[0]}
    return cases, jax.tree.map(np.asarray, many()(batch))


def independent(rows, tol=1e-9):
    """An equal system of independent rows [A | b], of orthonormal A, and whether there is none."""
    matrix, rhs = rows[:, :-1], rows[:, -1]
    size = np.linalg.norm(matrix, axis=1)
    size = np.where(size > 0, size, 1)
    left, values, right = np.linalg.svd(matrix / size[:, None], full_matrices=False)
    kept = values > tol * values[0]
    return right[kept], (left[:, kept].T @ (rhs / size)) / values[kept], int(kept.sum())


class Oracle:
    """min ‖x‖ over (x, v̇, λ) subject to M v̇ − B W^(1/2) x − Cᵀλ = F, C v̇ = Γ and whatever more is demanded."""

    def __init__(self, case):
        self.root = np.linalg.inv(np.linalg.cholesky(case["mass"]))
        lengths = np.linalg.norm(case["rows"] @ self.root.T, axis=1)
        self.rows = case["rows"] / lengths[:, None] @ self.root.T
        self.gamma, self.case = case["gamma"] / lengths, case
        inputs = self.root @ case["actuation"] * case["limits"]
        self.size = np.linalg.norm(inputs, 2) or 1.0
        self.inputs = inputs / self.size
        newton = np.concatenate([-self.inputs, np.eye(NV), -self.rows.T, (self.root @ case["force"])[:, None]], axis=1)
        hold = np.concatenate([np.zeros((M, NU)), self.rows, np.zeros((M, M)), self.gamma[:, None]], axis=1)
        self.equations = np.concatenate([newton, hold])

    def moved(self):
        jacobian = self.case["outputs"] @ self.root.T
        size = np.linalg.norm(jacobian, axis=1)[:, None]
        rhs = (self.case["w"] + self.case["turn"])[:, None]
        return np.concatenate([np.zeros((OUTPUTS, NU)), jacobian, np.zeros((OUTPUTS, M)), rhs], axis=1) / size

    def forced(self):
        weights = self.case["directions"] @ np.linalg.inv(self.root) @ self.rows.T
        size = np.linalg.norm(weights, axis=1)[:, None]
        return np.concatenate([np.zeros((FORCES, NU + NV)), weights, self.case["y"][:, None]], axis=1) / size

    def gains(self, more, base=None):
        """By how much the rank rises with more rows, and the smallest singular value that counts."""
        base = self.equations if base is None else base
        orthonormal, *_ = independent(base)
        rest = more[:, :-1] - more[:, :-1] @ orthonormal.T @ orthonormal
        values = np.linalg.svd(rest, compute_uv=False)
        return int((values > 1e-8).sum()), values

    def solve(self, rows):
        matrix, rhs, _ = independent(rows)
        start = matrix.T @ rhs
        free = scipy.linalg.null_space(matrix)
        left, values, right = np.linalg.svd(free[:NU], full_matrices=False)
        kept = values > 1e-9  # absolute: where x is determined all of them are rounding
        return start - free @ (right[kept].T @ ((left[:, kept].T @ start[:NU]) / values[kept]))


def relative(a, b):
    return np.linalg.norm(a - b) / (1 + np.linalg.norm(b))


@pytest.mark.slow
def test_inputs_of_random_systems_are_those_of_least_squares():
    cases, (moving, hybrid, _, answers, freedoms, _, again) = solved()
    worst, seen, mismatches = (
        {"motion": 0.0, "hybrid": 0.0, "again": 0.0, "law": 0.0, "kept": 0.0, "force": 0.0},
        {},
        [],
    )
    for i, case in enumerate(cases):
        oracle, k = Oracle(case), int(freedoms[i])
        rank, values = oracle.gains(oracle.moved())
        reachable = min(moving.actuation[i], moving.chart[i]) > GAUSS.rank_tol and moving.surplus[i] == 0
        if reachable != (rank == OUTPUTS):
            mismatches.append((i, "motion", float(moving.actuation[i]), values))
        both = np.concatenate([oracle.equations, oracle.moved()])
        more, values = oracle.gains(oracle.forced(), both)
        commandable = bool(hybrid.authority[i] > GAUSS.rank_tol)
        if rank == OUTPUTS and commandable != (more == FORCES):
            mismatches.append((i, "force", float(hybrid.authority[i]), values))
        good = bool(rank == OUTPUTS and min(moving.actuation[i], moving.chart[i]) > 1e-3)
        seen[good, commandable, k] = seen.get((good, commandable, k), 0) + 1
        if not good:
            continue
        demanded = case["w"] + case["turn"]
        expected = oracle.solve(both)
        u = case["limits"] * expected[:NU] / oracle.size
        worst["motion"] = max(worst["motion"], relative(moving.u[i], u))
        for j, name in ((0, "law"), (1, "kept")):
            vdot = answers[j][0][i]
            size = np.abs(case["outputs"]) @ np.abs(vdot) + np.abs(demanded)
            worst[name] = max(worst[name], np.abs((case["outputs"] @ vdot - demanded) / size).max())
        if commandable and hybrid.authority[i] > 1e-3:
            expected = oracle.solve(np.concatenate([both, oracle.forced()]))
            worst["hybrid"] = max(worst["hybrid"], relative(hybrid.u[i], case["limits"] * expected[:NU] / oracle.size))
            worst["again"] = max(worst["again"], relative(again.u[i], case["limits"] * expected[:NU] / oracle.size))
            reached = case["directions"] @ (case["rows"].T @ answers[1][2][i])
            worst["force"] = max(worst["force"], relative(reached, case["y"]))
    print(worst, sorted(seen.items()))
    assert not mismatches
    assert worst["motion"] < 1e-8 and max(worst["hybrid"], worst["again"]) < 1e-8, worst
    assert worst["law"] < 1e-9 and worst["kept"] < 1e-9 and worst["force"] < 1e-8, worst
    assert all(any(key[:2] == kind for key in seen) for kind in ((True, True), (True, False), (False, False)))


@pytest.mark.slow
def test_affine_maps_of_random_systems():
    """v̇, reaction and λ, against least squares of the equations; Y = (PMP)⁺ = DᵀD."""
    cases, (moving, _, maps, answers, freedoms, bases, _) = solved()
    for i, case in enumerate(cases):
        oracle, u = Oracle(case), moving.u[i]
        force = np.concatenate([oracle.root @ (case["force"] + case["actuation"] @ u), oracle.gamma])
        matrix = np.block([[np.eye(NV), -oracle.rows.T], [oracle.rows, np.zeros((M, M))]])
        expected = np.linalg.lstsq(matrix, force, rcond=1e-10)[0]
        vdot, reaction = oracle.root.T @ expected[:NV], np.linalg.solve(oracle.root, oracle.rows.T @ expected[NV:])
        found_vdot, found_reaction, multipliers = (x[i] for x in answers[0])
        size = 1 + np.linalg.norm(u)
        for found, wanted in (
            (maps.vdot[i] + maps.by_input[i] @ u, vdot),
            (found_vdot, vdot),
            (maps.reaction[i] + maps.reaction_by_input[i] @ u, reaction),
            (found_reaction, reaction),
            (case["rows"].T @ multipliers, reaction),
            (case["rows"].T @ (maps.multipliers[i] + maps.multipliers_by_input[i] @ u), reaction),
        ):
            assert np.linalg.norm(found - wanted) <= 1e-10 * np.linalg.cond(case["mass"]) ** 0.5 * (
                size + np.linalg.norm(wanted)
            )
        projector = np.eye(NV) - np.linalg.pinv(case["rows"], rcond=1e-9) @ case["rows"]
        inverse = np.linalg.pinv(projector @ case["mass"] @ projector, rcond=1e-10, hermitian=True)
        tol = 1e-10 * np.linalg.cond(case["mass"]) ** 0.5 * np.linalg.norm(inverse)
        np.testing.assert_allclose(maps.by_input[i], inverse @ case["actuation"], atol=tol)
        np.testing.assert_allclose(bases[i].T @ bases[i], inverse, atol=tol)
        assert freedoms[i] == NV - np.linalg.matrix_rank(oracle.rows, tol=1e-8)
        reaction = (case["mass"] @ inverse - np.eye(NV)) @ case["actuation"]
        size = np.linalg.norm(case["actuation"])
        np.testing.assert_allclose(maps.reaction_by_input[i], reaction, atol=1e-7 * size)
        np.testing.assert_allclose(projector @ maps.reaction_by_input[i], 0, atol=1e-8 * size)


@pytest.mark.slow
def test_impotent_inputs_change_reactions_only():
    cases, (moving, _, maps, answers, *_) = solved()
    for i, case in enumerate(cases):
        alone, potent, impotent = (answers[j][0][i] for j in (2, 3, 4))
        whole = maps.by_input[i] @ (moving.u[i] + np.where(case["limits"] > 0, 1.0, 0))
        size = 1 + np.linalg.norm(alone) + np.linalg.norm(maps.by_input[i]) * (1 + np.abs(moving.u[i]).sum())
        np.testing.assert_allclose(impotent, alone, atol=1e-10 * size)
        np.testing.assert_allclose(potent - alone, whole, atol=1e-10 * size)


def transformed(cases, rng):
    """The same systems with rows scaled, copied and permuted, and velocities in other units."""
    out = []
    for case in cases:
        units = 10.0 ** rng.uniform(-2, 2, NV)
        order = rng.permutation(M)
        factors = 10.0 ** rng.uniform(-4, 4, M)
        out.append(
            case
            | {
                "mass": case["mass"] * units[:, None] * units,
                "force": case["force"] * units,
                "rows": (case["rows"] * units * factors[:, None])[order],
                "gamma": (case["gamma"] * factors)[order],
                "actuation": case["actuation"] * units[:, None],
                "outputs": case["outputs"] * units,
                "directions": case["directions"] / units,
            }
        )
    return {name: jnp.asarray(np.stack([case[name] for case in out])) for name in out[0]}


def test_rows_and_units_do_not_matter():
    """Rows × 1e±4, permuted; velocities in other units: the same inputs."""
    cases, (moving, *_, hybrid) = solved()
    moving_too, *_, hybrid_too = many()(transformed(cases, np.random.default_rng(8)))
    plain = np.array([np.linalg.cond(case["mass"]) < 30 for case in cases])
    good = plain & (np.minimum(moving.actuation, moving.chart) > 0.05) & (moving.surplus == 0)
    assert good.sum() > 50
    size = 1 + np.abs(moving.u[good]).max(axis=1)
    worst = (np.abs(moving_too.u[good] - moving.u[good]).max(axis=1) / size).max()
    good &= hybrid.authority > 0.05
    size = 1 + np.abs(hybrid.u[good]).max(axis=1)
    worst_hybrid = (np.abs(hybrid_too.u[good] - hybrid.u[good]).max(axis=1) / size).max()
    print(worst, worst_hybrid, good.sum())
    assert worst < 1e-11 and worst_hybrid < 1e-11


def test_laws_of_the_paper():
    """Aghili's (62) and (64), the corrected (45) with (51), M_θ, and the feed-through of impotent inputs."""
    rng = np.random.default_rng(9)

    @jax.jit
    def evaluated(case, force):
        plant, rows = plant_of(case), rows_of(case)
        found, inertia = control.motion_law(plant, rows, case["w"]), control.operational(plant, rows)
        return found, control.drive(plant).basis, inertia, plant.respond_to_forces(force[:, None]).reaction[:, 0]

    for _ in range(40):
        case = random_case(rng) | {"limits": np.ones(NU), "actuation": np.eye(NV)[:, rng.permutation(NV)[:NU]]}
        arrays = jax.tree.map(jnp.asarray, case)
        mass, force, rows = case["mass"], case["force"], case["rows"]
        nu = rng.normal(size=M)
        found, basis, inertia, fed = evaluated(arrays, jnp.asarray(-rows.T @ nu))
        tol, basis = 1e-12 * np.linalg.cond(mass) * (1 + np.linalg.norm(found.u)), np.asarray(basis)
        basis, matrix = basis[np.any(basis != 0, axis=1)], case["actuation"]
        if len(basis) == OUTPUTS:
            needed = basis @ (mass @ found.vdot - force)
            np.testing.assert_allclose(found.u, np.linalg.pinv(basis @ matrix) @ needed, atol=tol)
            # (62): f = (I + H) f_∥, H = −(…)⁺ …, with B a selection is B (D B)⁺ D f
            projector = np.eye(NV) - np.linalg.pinv(rows, rcond=1e-9) @ rows
            passive = np.eye(NV) - matrix @ matrix.T
            parallel = projector @ (mass @ found.vdot - force)
            normal = np.eye(NV) - projector
            effort = parallel - normal @ np.linalg.pinv(passive @ normal, rcond=1e-9) @ passive @ parallel
            np.testing.assert_allclose(matrix @ found.u, effort, atol=tol)
        if found.surplus == 0:
            lift = np.asarray(inertia.lift)
            size = np.linalg.norm(inertia.mass) + 1
            np.testing.assert_allclose(case["outputs"] @ lift, np.eye(OUTPUTS), atol=1e-8)
            np.testing.assert_allclose(lift.T @ mass @ lift, inertia.mass, atol=1e-9 * size)
            demanded = case["w"] - np.asarray(inertia.bias)
            if found.missed < 1e-9:
                effort = inertia.mass @ demanded
                np.testing.assert_allclose(effort, inertia.by_input @ found.u, atol=1e-8 * (1 + np.abs(effort).max()))
        # feed-through: B u = −Cᵀν adds Cᵀν to the reaction, whatever the mass matrix of the model
        np.testing.assert_allclose(fed, rows.T @ nu, atol=1e-9 * np.linalg.norm(rows.T @ nu))


@pytest.mark.slow
def test_full_actuation_is_one_line():
    """u = M v̇_c − F − Cᵀλ_c, without μ and C_c, has the motion and the forces that are asked for."""
    rng = np.random.default_rng(10)
    system = jm.System(
        3,
        mass=lambda t, q, p: jnp.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]]),
        force=lambda t, q, v, p: jnp.array([1.0, -2.0, 0.5]),
        constraints=[jm.Holonomic("wall", lambda t, q, p: q[2] + 0.5 * q[0] ** 2)],
        actuation=lambda t, q, p: jnp.eye(3),
    )
    plant = control.Plant.at(system, jm.assemble(system, [0.4, 0.2, -0.08], [1.0, 0.5, -0.4]))
    rows = control.output_rows(plant, control.Output(lambda t, q, p: q[:2] ** 3))
    w, pressure = jnp.asarray(rng.normal(size=2)), jnp.array([4.0])
    found = control.hybrid_law(plant, rows, w, control.Multipliers("wall"), pressure)
    answer = plant.respond(found.u)
    np.testing.assert_allclose(answer.multipliers, pressure, atol=1e-12)
    np.testing.assert_allclose(rows.jacobian @ answer.vdot, w + rows.gamma, atol=1e-12)
    expected = plant.terms.mass @ answer.vdot - plant.terms.force - plant.terms.jacobian.T @ pressure
    np.testing.assert_allclose(found.u, expected, atol=1e-12)
    along = control.ReactionAlong(lambda t, q, p: jnp.array([[q[0], 0.0, 1.0]]), ("normal",))
    again = control.hybrid_law(plant, rows, w, along, pressure * (1 + 0.4**2))
    np.testing.assert_allclose(again.u, found.u, atol=1e-12)
    one = control.ConstraintForce("wall", lambda t, q, p: jnp.array([[0.0, 0.0, 1.0]]))
    np.testing.assert_allclose(control.hybrid_law(plant, rows, w, one, pressure).u, found.u, atol=1e-12)


# Systems


class Actuated(eqx.Module):
    """Constant inputs for a system that has none."""

    matrix: jax.Array

    def __call__(self, t, q, params):
        return self.matrix


def actuated(system, matrix):
    changed = system._with({"nu": matrix.shape[1]})
    return eqx.tree_at(lambda s: s.actuation_fn, changed, Actuated(jnp.asarray(matrix)), is_leaf=lambda x: x is None)


OF_ALL_KINDS = ["four-bar, 3 loops", "moving line", "top, 2 pivots", "sleigh, 3 blades"]


@pytest.mark.slow_except("four-bar, 3 loops")
@pytest.mark.parametrize("name", [*OF_ALL_KINDS, pytest.param("driven cart", marks=pytest.mark.slow)])
def test_outputs_get_their_acceleration(name):
    """Redundant rows, moving constraints, quaternions and rolling, one output less than freedoms where there are several."""
    system, state = make(name)
    rng = np.random.default_rng(11)
    system = actuated(system, rng.normal(size=(system.nv, 6)))
    freedoms = system.nv - int(GAUSS.acceleration(jm.evaluate(system, state)).rank)
    weights = jnp.asarray(rng.normal(size=(max(freedoms - 1, 1), system.nq)))
    output = control.Output(lambda t, q, p: weights @ jnp.sin(q) + jnp.cos(t))

    @jax.jit
    def law(state, w):
        plant = control.Plant.at(system, state)
        rows = control.output_rows(plant, output)
        found = control.motion_law(plant, rows, w)
        answer = plant.respond(found.u)
        # θ̈ by one derivative of θ̇ along the motion, without Γ
        step = (jnp.ones(()), system.qdot(state.q, state.v), answer.vdot)
        rate = lambda t, q, v: jax.jvp(
            lambda t, q: output.theta(t, q, None), (t, q), (jnp.ones(()), system.qdot(q, v))
        )[1]
        return rows, found, answer, jax.jvp(rate, (state.t, state.q, state.v), step)[1]

    w = jnp.asarray(rng.normal(size=len(weights)))
    rows, found, answer, acceleration = law(state, w)
    size = 1 + np.abs(rows.gamma).max() + np.abs(w).max()
    np.testing.assert_allclose(acceleration, w, atol=1e-12 * size)
    np.testing.assert_allclose(found.vdot, answer.vdot, atol=1e-12 * (1 + np.abs(answer.vdot).max()))
    assert int(found.zero_dynamics) == max(freedoms - 1, 0) - (len(weights) - 1) and int(found.surplus) == 0


def crank():
    base = slider_crank.slider_crank()
    return actuated(base, np.array([[1.0], [0.0]]))


@pytest.mark.slow
def test_crank_motor_at_the_singular_pose():
    """The pose at which the only row vanishes, against minimal coordinates: (3 − 2 cos 2a) ä = … + u."""
    system = crank()
    scale = jm.assemble(system, [0.3, 0.0], [0.0, 0.0]).scale

    @jax.jit
    def law(q, v):
        plant = control.Plant.at(system, jm.State(jnp.zeros(()), q, v, scale))
        rows = control.output_rows(plant, "q1")
        return control.motion_law(plant, rows, jnp.array([7.0])), plant.freedoms

    for distance, tol in ((0.0, 1e-12), (1e-9, 1e-7), (1e-6, 1e-7), (1e-2, 1e-11), (0.7, 1e-12)):
        a = np.pi / 2 + distance
        found, freedoms = law(jnp.array([a, 2 * np.pi - 2 * a]), jnp.array([5.0, -10.0]))
        expected = (3 - 2 * np.cos(2 * a)) * (7.0 - slider_crank.acceleration(a, 5.0))
        assert int(freedoms) == 1
        np.testing.assert_allclose(found.u[0], expected, atol=tol * abs(expected), err_msg=str(distance))


@pytest.mark.slow
def test_nonholonomic_row_that_is_lost():
    """u = the value at the pose along the motion, to first order; the reaction acts along ZᵀĊ."""
    system = actuated(
        jm.System(
            ("x", "y", "z", "w"),
            mass=lambda t, q, p: jnp.eye(4),
            force=lambda t, q, v, p: jnp.array([0.0, 1.0, 1.0, 0.0]),
            constraints=[jm.Pfaffian("row", lambda t, q, v, p: q[0] * v[2] + q[1] * v[3])],
        ),
        np.eye(4)[:, [0, 1, 3]] + 0.3 * np.eye(4)[:, [2, 0, 1]],
    )
    output = control.Output(lambda t, q, p: jnp.stack([q[0], q[1] + q[2], q[3]]))
    scale = jm.assemble(system, np.zeros(4), [1.0, 0.0, 0.0, 1.0], length=1.0).scale

    @jax.jit
    def law(t, q, v):
        plant = control.Plant.at(system, jm.State(t, q, v, scale))
        rows = control.output_rows(plant, output)
        found = control.motion_law(plant, rows, jnp.array([0.2, -0.4, 0.3]))
        return found.u, plant.respond(found.u).vdot, rows.jacobian, found.missed

    u, vdot, jacobian, missed = law(jnp.zeros(()), jnp.zeros(4), jnp.array([1.0, 0.0, 0.0, 1.0]))
    np.testing.assert_allclose(jacobian @ vdot, [0.2, -0.4, 0.3], atol=1e-13)
    assert missed < 1e-13
    errors = []
    for h in (1e-2, 1e-3, 1e-4):
        # a motion that obeys the row to second order: the velocities are corrected along ż
        q = h * np.array([1.0, 0, 0, 1.0]) + 0.5 * h**2 * np.asarray(vdot)
        v = np.array([1.0, 0, 0, 1.0]) + h * np.asarray(vdot)
        v[2] = -q[1] * v[3] / q[0]
        errors.append(np.abs(law(jnp.asarray(h), jnp.asarray(q), jnp.asarray(v))[0] - u).max())
    assert errors[1] < 0.2 * errors[0] and errors[2] < 0.2 * errors[1], errors


# Mechanisms

P = jm.planar


MOTORS = ("base1", "base2", "elbow1")
ONE, TWO = jnp.array([1.0, 0.0, 0.0]), jnp.array([1.0, 1.0, 0.0])


def fivebar(distance=0.6):
    def link(name, length, mass):
        return P.Body(name, mass, mass * length**2 / 12, com=(length / 2, 0), points={"end": (length, 0)})

    return P.Mechanism(
        [link("crank1", 0.5, 1.0), link("rod1", 0.8, 1.0), link("crank2", 0.5, 1.0), link("rod2", 0.8, 1.0)],
        [
            P.Revolute("base1", "ground.A", "crank1"),
            P.Revolute("elbow1", "crank1.end", "rod1"),
            P.Revolute("base2", "ground.B", "crank2"),
            P.Revolute("elbow2", "crank2.end", "rod2"),
            P.Revolute("tip", "rod1.end", "rod2.end"),
        ],
        actuators=[P.Motor(f"{name} motor", name) for name in MOTORS],
        points={"A": (-distance / 2, 0.0), "B": (distance / 2, 0.0)},
        gravity=(0.0, -9.81),
    )


GUESS = [2.2, -1.2, 1.0, 1.0]


@functools.cache
def driven_fivebar():
    system = fivebar().build()
    return system, jm.assemble(system, GUESS, [1.0, 0.0, 0.5, 0.0], hold_velocity=["base1", "base2"])


def check_shares(system, state, found, motors):
    """What another motor at each joint does where the present ones do not, and that it raises the rank, by NumPy."""
    terms, axes = jm.evaluate(system, state), system.joints.axes(state.t, state.q, system.params)
    mass, free = np.asarray(terms.mass), scipy.linalg.null_space(np.asarray(terms.jacobian))
    lower = np.linalg.cholesky(free.T @ mass @ free)
    moved = lambda name: np.linalg.solve(lower, free.T @ np.asarray(axes[name]))
    basis = scipy.linalg.orth(np.stack([moved(name) for name in motors], axis=1), rcond=1e-9)
    for name, axis in axes.items():
        rest = moved(name) - basis @ (basis.T @ moved(name))
        whole = np.asarray(axis) @ np.linalg.solve(mass, np.asarray(axis))
        np.testing.assert_allclose(found.shares[name], rest @ rest / whole, atol=1e-12)
        more = np.linalg.matrix_rank(np.column_stack([basis, moved(name)]), tol=1e-9) > basis.shape[1]
        assert more == (found.shares[name] > 1e-9)


@pytest.mark.slow
def test_one_motor_for_two_freedoms():
    system, state = driven_fivebar()
    found = control.controllability(system, state, output=["base1", "base2"], limits=ONE)
    check_shares(system, state, found, ["base1"])
    assert (found.freedoms, found.rank, found.controllable) == (2, 1, False)
    assert found.remedy == ("base2",) and list(found.potencies) == [f"{name} motor" for name in MOTORS]
    assert "No actuator acts on the motion of elbow1, base2, elbow2, tip" in str(found)
    assert "1 more actuator at base2 would be enough." in str(found)


@pytest.mark.slow
def test_aligned_distal_links():
    """The motors of both bases cannot move the elbows."""
    system = fivebar(distance=1.0).build()
    a = np.arccos(0.6)
    state = jm.assemble(system, [np.pi - a, a - np.pi, a, np.pi - a], hold=["base1", "base2"])
    found = control.controllability(system, state, output=["base1", "base2"], limits=TWO)
    check_shares(system, state, found, ["base1", "base2"])
    assert found.actuation < 1e-12 and found.freedoms == 2 and found.rank == 1
    shares = [found.shares[name] for name in ("base1", "elbow1", "base2", "elbow2")]
    np.testing.assert_allclose(shares[::2], 0, atol=1e-12)
    assert shares[1] > 0.4 and abs(shares[1] - shares[3]) < 1e-12
    assert found.chart < 1e-12 and any(
        "do not determine the motion of elbow1, elbow2" in text for text in found.verdicts
    )
    again = control.controllability(system, state, output=["elbow1"], limits=jnp.array([1.0, 0.0, 1.0]))
    assert again.controllable and again.potencies["base2 motor"] == 0
    assert len(again.verdicts) == 1 and again.verdicts[0].startswith("1 freedom without output, in the motion of base1")
    surplus = control.controllability(system, state, output=["base1", "base2", "elbow1"])
    assert "There are 3 outputs for 2 freedoms" in str(surplus)


@pytest.mark.slow
def test_tip_of_the_fivebar():
    """A place as output, models with wrong masses, damping and limits; a batch is a loop."""
    system, state = driven_fivebar()
    output = control.MotionOutput(lambda motion: motion.position("rod1.end"))
    reference = lambda t: jnp.stack([0.1 * jnp.sin(t), 0.9 + 0.1 * t**2])

    def law(state, model):
        plant = control.Plant.at(system, state)
        seen = plant.of(model)
        rows = control.output_rows(plant, output)
        gap = control.tracking(plant, rows, reference)
        demand = gap.law(4.0, 3.0)
        found, other = (control.motion_law(p, rows, demand, limits=TWO) for p in (plant, seen))
        damped = control.motion_law(plant, rows, demand, limits=TWO, damping=0.01)
        return found, plant.respond(found.u).vdot, gap, rows, damped.u, other

    heavy = eqx.tree_at(lambda s: s.params.inertia, system, 1.3 * system.params.inertia)
    many_laws = jax.jit(jax.vmap(law, in_axes=(0, None)))
    moved = jax.vmap(lambda v: eqx.tree_at(lambda s: s.v, state, v))(jnp.array([1.0, 0.5, 1.5])[:, None] * state.v)
    batch = many_laws(moved, heavy)
    found, vdot, gap, rows, damped, other = jax.tree.map(lambda x: x[0], batch)
    np.testing.assert_allclose(rows.jacobian @ vdot - rows.gamma, gap.law(4.0, 3.0), atol=1e-12)
    speed = lambda t: jax.jvp(reference, (t,), (jnp.ones_like(t),))[1]
    np.testing.assert_allclose(gap.rate, speed(state.t) - rows.rate, atol=1e-15)
    np.testing.assert_allclose(gap.feedforward, jax.jvp(speed, (state.t,), (jnp.ones(()),))[1], atol=1e-15)
    np.testing.assert_allclose(jm.velocity(system, state, "rod1.end"), rows.rate, atol=1e-14)
    np.testing.assert_allclose(damped, found.u, atol=1e-10)  # far from where it acts
    np.testing.assert_allclose(other.u, 1.3 * found.u, atol=1e-10)  # inertia and weight are all forces there are
    assert found.u[2] == 0
    alone = jax.jit(law)(jax.tree.map(lambda x: x[2], moved), heavy)
    np.testing.assert_allclose(batch[0].u[2], alone[0].u, atol=1e-12 * (1 + np.abs(alone[0].u).max()))


@pytest.mark.slow
def test_derivatives_of_the_law():
    """By state and parameters, forward and reverse, through redundant rows and limits."""
    system, state = make("four-bar, 3 loops")
    rng = np.random.default_rng(12)
    system = actuated(system, rng.normal(size=(3, 2)))
    output = control.Output(lambda t, q, p: p["l"] @ jnp.sin(q))

    def law(x):
        moved = eqx.tree_at(lambda s: s.v, state, x[:3])
        plant = control.Plant.at(system.with_params(system.params | {"m": x[3:]}), moved)
        plant = eqx.tree_at(lambda p: (p.restored, p.terms.nearby), plant, (None, None))
        rows = control.output_rows(plant, output)
        return control.motion_law(plant, rows, jnp.ones(1), limits=jnp.array([2.0, 0.5])).u

    check_derivatives(law, jnp.concatenate([state.v, system.params["m"]]), 1e-6, second=False)


@pytest.mark.slow
def test_angles_outside_the_tree():
    """An error modulo 2π where the angle jumps; with its turns counted it is that of the coordinate."""
    system, state = driven_fivebar()
    assert system.joints.wraps("tip") and not system.joints.wraps("elbow1")
    plant = control.Plant.at(system, state)
    rows = control.output_rows(plant, ("tip", "elbow1"))
    assert rows.wraps == (True, False)
    np.testing.assert_allclose(rows.value, [jm.coordinate(system, state, name) for name in ("tip", "elbow1")])
    gap = control.tracking(plant, rows, rows.value + jnp.array([2 * np.pi + 0.1, 2 * np.pi]))
    np.testing.assert_allclose(gap.error, [0.1, 2 * np.pi], atol=1e-12)
    both = control.Outputs("elbow1", control.VelocityOutput(lambda t, q, v, p: jnp.cos(q[0]) * v[0]))
    rows = control.output_rows(plant, both)
    gap = control.tracking(plant, rows, lambda t: jnp.stack([t, 3 * t + 1]))
    np.testing.assert_allclose(gap.law(1.0, 2.0)[1], 3 + 2 * (1 - jnp.cos(state.q[0]) * state.v[0]), atol=1e-14)
    np.testing.assert_allclose(gap.error[1], 0)


@pytest.mark.slow
def test_inverse_dynamics_is_a_driven_system():
    """Multipliers of drivers are τ_θ = Λᵀ B u, and u reproduces the motion."""
    system, state = driven_fivebar()
    names = ("base1", "base2")
    reference = lambda t: jnp.stack([state.q[0] + jnp.sin(t), state.q[2] + 0.5 * jnp.sin(2 * t)])
    driven = control.with_drivers(system, names, reference)
    assert list(driven.rows) == ["tip", "driver base1", "driver base2"]
    there = jm.assemble(driven, state.q, t=0.0)
    found = GAUSS.acceleration(jm.evaluate(driven, there))
    np.testing.assert_allclose(there.v[jnp.array([0, 2])], [1.0, 1.0], atol=1e-12)
    plant = control.Plant.at(system, jm.assemble(system, there.q, there.v))
    effort = control.inverse_dynamics(plant, found.vdot, TWO)
    np.testing.assert_allclose(effort.u[:2], found.multipliers[-2:], atol=1e-11)
    np.testing.assert_allclose(plant.respond(effort.u).vdot, found.vdot, atol=1e-11)
    np.testing.assert_allclose(effort.reaction, plant.respond(effort.u).reaction, atol=1e-11)
    assert effort.missed < 1e-12
    inertia = control.operational(plant, control.output_rows(plant, names))
    np.testing.assert_allclose(inertia.by_input @ effort.u, found.multipliers[-2:], atol=1e-11)


# What cannot be commanded


@pytest.mark.slow
def test_forces_that_can_be_commanded():
    """Verdicts of many random systems, against ranks of the equations."""
    rng = np.random.default_rng(13)
    scale = jm.assemble(MATRICES.with_params(_params(random_case(rng))), np.zeros(NV)).scale
    output = control.Output(lambda t, q, p: p["outputs"] @ q)
    for _ in range(60):
        case = random_case(rng)
        system = MATRICES.with_params(_params(case))
        lengths = jnp.linalg.norm(jnp.asarray(case["rows"]), axis=1)
        state = jm.State(jnp.zeros(()), jnp.zeros(NV), jnp.zeros(NV), eqx.tree_at(lambda s: s.row, scale, lengths))
        oracle = Oracle(case)
        found = control.analyse_forces(system, state, control.Multipliers("rows"), limits=case["limits"])
        silent = scipy.linalg.null_space(oracle.rows.T, rcond=1e-9)
        for row, share in zip(silent, found.ambiguous.values(), strict=True):
            np.testing.assert_allclose(share, np.linalg.norm(row), atol=1e-7)
        system = eqx.tree_at(lambda s: s.params, system, _params(case) | {"outputs": case["outputs"]})
        chosen = Chosen(jnp.asarray(case["directions"]))
        found = control.analyse_forces(system, state, chosen, limits=case["limits"], output=output)
        assert max(found.ambiguous.values()) < 1e-8
        outputs = oracle.moved()[:, :-1]
        # impotent: the x that leave v̇ of the outputs alone, and what they do to y
        matrix, _, _ = independent(np.c_[oracle.equations[:, :-1], np.zeros(len(oracle.equations))])
        free = scipy.linalg.null_space(np.concatenate([matrix, independent(np.c_[outputs, np.zeros(OUTPUTS)])[0]]))
        commandable = np.linalg.matrix_rank(oracle.forced()[:, :-1] @ free, tol=1e-8)
        assert found.rank == commandable, (found, commandable)
        assert found.commandable == (commandable == FORCES)


def _params(case):
    return {name: jnp.asarray(case[name]) for name in ("mass", "force", "rows", "gamma", "actuation")}


def arm(actuation, copies=1):
    """A particle on a wall, x and y."""
    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 1.0])),
        constraints=[jm.Holonomic(f"wall {i}", lambda t, q, p: q[1]) for i in range(copies)],
        actuation=lambda t, q, p: actuation,
    )


@pytest.mark.slow
def test_refusals_name_what_is_wrong():
    one, two = arm(jnp.array([[1.0], [0.0]])), arm(jnp.eye(2), copies=2)
    found = control.analyse_forces(one, jm.assemble(one, [0.0, 0.0]), control.Multipliers("wall 0"))
    assert (found.spare, found.rank, found.beyond["wall 0"]) == (0, 0, 1.0)
    assert "The actuators cannot command 'wall 0' beside the motion: 0 forces at most" in str(found)
    state = jm.assemble(two, [0.0, 0.0])
    found = control.analyse_forces(two, state, control.Multipliers("wall 0"))
    np.testing.assert_allclose(found.ambiguous["wall 0"], 0.5**0.5)
    assert "does not determine 'wall 0'" in str(found) and "'wall 0' and 'wall 1' trade theirs" in str(found)
    whole = control.ReactionAlong(lambda t, q, p: jnp.array([[0.0, 1.0]]), ("normal",))
    assert control.analyse_forces(two, state, whole).commandable
    system = crank()
    state = jm.assemble(system, [np.pi / 2, np.pi], [5.0, -10.0], hold=["q1", "q2"])
    found = control.analyse_forces(system, state, control.Multipliers("slider"))
    assert found.undefined == ("slider",) and "undefined at this pose" in str(found)
    rest = jm.assemble(system, [np.pi / 2, np.pi], [0.0, 0.0], hold=["q1", "q2"])
    assert "The motion is not determined at this pose" in str(control.controllability(system, rest))


@pytest.mark.slow
def test_motion_is_kept_where_a_force_cannot_be_commanded():
    system = arm(jnp.array([[1.0], [0.3]]))
    plant = control.Plant.at(system, jm.assemble(system, [0.0, 0.0]))
    rows = control.output_rows(plant, "x")
    found = control.hybrid_law(plant, rows, jnp.array([3.0]), control.Multipliers("wall 0"), jnp.array([9.0]))
    np.testing.assert_allclose(plant.respond(found.u).vdot, [3.0, 0.0], atol=1e-14)
    assert found.authority < 1e-14
    np.testing.assert_allclose(found.residual, 9.0 + 6.0 * 0.3, atol=1e-13)
    free = control.hybrid_law(
        plant,
        control.output_rows(plant, control.Outputs()),
        jnp.zeros(0),
        control.Multipliers("wall 0"),
        jnp.array([9.0]),
    )
    np.testing.assert_allclose(free.u, [-30.0], atol=1e-12)


@functools.cache
def walled():
    """A particle on a wall that is pushed both ways, and the row of its place along it."""
    system = arm(jnp.eye(2))
    plant = control.Plant.at(system, jm.assemble(system, [0.0, 0.0]))
    return plant, control.output_rows(plant, "x")


def test_limits():
    first, u, limits = jnp.array([1.0, -0.5]), jnp.array([5.0, 1.0]), jnp.array([2.0, 2.0])
    np.testing.assert_allclose(control.scaled_to_limits(first, u, limits), [2.0, -0.125])
    np.testing.assert_allclose(control.scaled_to_limits(3 * first, u, limits), [2.0, -1.0])
    np.testing.assert_allclose(control.scaled_to_limits(3 * first, u, limits, jnp.array([1.0, 1.0])), [2.0, -0.25])
    np.testing.assert_allclose(control.scaled_to_limits(first, first, limits), first)
    assert bool(control.certifies_infeasible(u, limits)) and not bool(control.certifies_infeasible(first, limits))
    # the certificate: of the smallest input, so that no other one in the box does the same
    row, target = np.array([1.0, 1.0]), 4.5
    smallest = jnp.asarray(row * target / 2)
    assert bool(control.certifies_infeasible(smallest, limits)) and row @ limits < target


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda p, r: control.motion_law(p, r, jnp.ones(3)), r"Argument `w` must have a number for each of 1 rows"),
        (
            lambda p, r: control.motion_law(p, r, jnp.ones(1), limits=jnp.ones(1)),
            r"Argument `limits` must have a number for each of 2",
        ),
        (
            lambda p, r: control.motion_law(p, r, jnp.ones(1), preferred=jnp.ones(3)),
            r"Argument `preferred` must be an array of shape \(nu\) or None, nu = 2, but has shape \(3,\)",
        ),
        (
            lambda p, r: control.inverse_dynamics(p, jnp.ones(3)),
            r"`vdot` must be an array of shape \(nv\), nv = 2, but has shape \(3,\)",
        ),
        (
            lambda p, r: p.respond(jnp.ones(1)),
            r"`u` must be an array of shape \(nu\) or None, nu = 2, but has shape \(1,\)",
        ),
        (
            lambda p, r: p.respond_to_forces(jnp.ones((4, 1))),
            r"`forces` must be an array of shape \(nv, k\), nv = 2, but has shape \(4, 1\)",
        ),
        (
            lambda p, r: control.hybrid_law(p, r, jnp.ones(1), control.Multipliers("wall 0"), jnp.ones(2)),
            r"Argument `y` must have a number for each of 1 forces",
        ),
        (
            lambda p, r: control.hybrid_law(p, r, jnp.ones(1), control.Multipliers("floor"), jnp.ones(1)),
            r"Argument `name` must be a constraint out of 'wall 0', but is 'floor'",
        ),
        (
            lambda p, r: control.tracking(p, r, jnp.array([1.0, 2.0])),
            r"Argument `reference` must have, or return, 1 numbers",
        ),
        (lambda p, r: control.tracking(p, r, lambda t: jnp.ones(4)), r"Argument `reference` must .* shape \(4,\)"),
        (lambda p, r: control.output_rows(p, "z"), r"must hold coordinates out of 'x' and 'y', but holds 'z'"),
        (
            lambda p, r: control.output_rows(p, lambda t, q, p: q[None]),
            r"Argument `theta` must return an array of shape",
        ),
        (
            lambda p, r: control.output_rows(p, control.MotionOutput(lambda m: m)),
            r"built from a mechanism, but this is not",
        ),
        (lambda p, r: p.motion, r"Argument `system` must be built from a mechanism"),
        (lambda p, r: p.of(crank()), r"Argument `model` must be a system with the coordinates, constraints and inputs"),
        (
            lambda p, r: control.ReactionAlong(lambda t, q, p: jnp.eye(2), ("a",)).labels(p.system),
            r"Argument `names` must name each of 2 directions, but names 1",
        ),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call(*walled())


def test_names_of_outputs_are_names():
    with pytest.raises(TypeError, match="Argument `names` must hold names of joint coordinates"):
        control.JointOutput(1)
