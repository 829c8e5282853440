"""Control laws: what inputs do, and the inputs for given motions and forces, against least squares without a projector."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxmb as jm
from jaxmb import control
from jaxmb.linalg import invert, pseudoinverse, singular_values, spectral_norm

NV, M, NU, OUTPUTS, FORCES, COUNT = 6, 5, 5, 2, 2, 1000
GAUSS = jm.GaussProjection()


# The pseudo-inverse


def matrices():
    """By name, matrices of one shape after another, with exact or known singular values."""
    rng = np.random.default_rng(0)
    for k, n in [(1, 1), (1, 5), (5, 1), (2, 2), (3, 3), (4, 7), (7, 4), (5, 5), (12, 9)]:
        least = min(k, n)
        full = rng.normal(size=(20, k, n))
        low = max(least - 2, 1)
        yield "random", full
        yield "deficient", rng.normal(size=(20, k, low)) @ rng.normal(size=(20, low, n))
        yield "repeated", np.linalg.qr(rng.normal(size=(20, max(k, n), max(k, n))))[0][:, :k, :n]
        yield "zero", np.zeros((1, k, n))
        yield "graded", full * np.logspace(-12, 0, n)
        yield "graded rows", full * np.logspace(-12, 0, k)[:, None]


def test_pseudo_inverse_is_that_of_numpy():
    found_for = jax.jit(jax.vmap(lambda a: invert(a, 1e-9)))
    for name, batch in matrices():
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


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2)])
@pytest.mark.parametrize("least", [0.0, 0.03, 0.07])
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


def test_sizes_of_matrices():
    a = np.random.default_rng(5).normal(size=(4, 6))
    np.testing.assert_allclose(singular_values(jnp.asarray(a)), np.linalg.svd(a, compute_uv=False), rtol=1e-13)
    assert abs(float(spectral_norm(jnp.asarray(a))) / np.linalg.norm(a, 2) - 1) < 0.01
    assert float(spectral_norm(jnp.zeros((2, 3)))) == 0 and singular_values(jnp.zeros((0, 3))).shape == (0,)
    assert pseudoinverse(jnp.zeros((0, 3)), 1e-9).shape == (3, 0)


# Random systems


class Chosen(control.AbstractForces):
    """y = E Cᵀλ, with E among the parameters of the test."""

    directions: jax.Array

    def labels(self, system):
        return tuple(f"y{i}" for i in range(FORCES))

    def weights(self, plant):
        return self.directions @ plant.terms.jacobian.T

    def read(self, response):
        return self.directions @ (response.plant.terms.jacobian.T @ response.multipliers)


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
    terms = jm.Terms(case["mass"], case["force"], case["rows"], jnp.zeros(M), case["gamma"], lengths)
    factor = formulation.factorise(terms, formulation.prepare(terms), 0.0)
    system = MATRICES.with_params({name: case[name] for name in MATRICES.params})
    return control.Plant(system, none, zero, zero, terms, case["actuation"], formulation, factor)


def rows_of(case):
    zero = jnp.zeros(OUTPUTS)
    return control.OutputRows(zero, zero, case["outputs"], case["turn"], (False,) * OUTPUTS, (False,) * OUTPUTS)


def laws(case):
    plant, rows, forces = plant_of(case), rows_of(case), Chosen(case["directions"])
    moving = control.motion_law(plant, rows, case["w"], limits=case["limits"])
    hybrid = control.hybrid_law(plant, rows, case["w"], forces, case["y"], limits=case["limits"])
    maps = control.affine(plant)
    potent, impotent = control.split_input(plant, moving.u + jnp.where(case["limits"] > 0, 1.0, 0))
    respond = lambda u: (lambda r: (r.vdot, r.reaction, r.multipliers))(plant.respond(u))
    answers = [respond(u) for u in (moving.u, hybrid.u, jnp.zeros(NU), potent, impotent)]
    return moving, hybrid, maps, answers, plant.freedoms, control.drive(plant).basis


@functools.cache
def solved():
    rng = np.random.default_rng(7)
    cases = [random_case(rng) for _ in range(COUNT)]
    batch = {name: jnp.asarray(np.stack([case[name] for case in cases])) for name in cases[0]}
    return cases, jax.tree.map(np.asarray, jax.jit(jax.vmap(laws))(batch))


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
        orthonormal, _, rank = independent(base)
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


def test_inputs_of_random_systems_are_those_of_least_squares():
    cases, (moving, hybrid, _, answers, freedoms, _) = solved()
    worst, seen, mismatches = {"motion": 0.0, "hybrid": 0.0, "law": 0.0, "kept": 0.0, "force": 0.0}, {}, []
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
        good = rank == OUTPUTS and min(moving.actuation[i], moving.chart[i]) > 1e-3
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
            reached = case["directions"] @ (case["rows"].T @ answers[1][2][i])
            worst["force"] = max(worst["force"], relative(reached, case["y"]))
    print(worst, sorted(seen.items()))
    assert not mismatches
    assert worst["motion"] < 1e-8 and worst["hybrid"] < 1e-8, worst
    assert worst["law"] < 1e-9 and worst["kept"] < 1e-9 and worst["force"] < 1e-8, worst
    assert all(any(key[:2] == kind for key in seen) for kind in ((True, True), (True, False), (False, False)))
