"""Aghili's projection matrix, constraint inertia matrices and constraint force; null space, elimination, proximal point."""

import dataclasses
import functools
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slider_crank import slider_crank
from systems import evaluated, make, slow_but

import jaxmb as jm
from jaxmb.formulation import orthogonal
from jaxmb.kinematics import correct
from jaxmb.system import rows_at

# A particle on a circle of radius 2 by the constraint of Aghili's example; the parameter is its mass matrix.
PARTICLE = jm.System(
    2,
    mass=lambda t, q, p: p,
    force=lambda t, q, v, p: jnp.array([0.7, -1.9]),
    constraints=[jm.Holonomic("circle", lambda t, q, p: jnp.sqrt(q @ q) - 2.0)],
    params=np.eye(2),
)


def first(name):
    """The terms at a state, as arrays only."""
    return jax.tree.map(lambda x: x[0], evaluated(name))


conditioning, decoupling = jax.jit(jm.formulation.inertia_conditioning), jax.jit(jm.formulation.decoupling)
accelerations = eqx.filter_jit(lambda formulation, terms: formulation.acceleration(terms))
minimal_equations = eqx.filter_jit(lambda formulation, terms: formulation.minimal(terms))


@eqx.filter_jit
def projection(formulation, terms):
    """The parts of an orthogonal projection, v̇ and the constraint force."""
    return formulation.projected(terms), formulation.acceleration(terms).vdot, formulation.constraint_force(terms)


def test_particle_on_a_circle():
    """P, the centripetal acceleration and the constraint force of Aghili, eqs. (33)–(37) and the two after."""
    theta, rate, mass = 0.8, 1.7, 1.3
    normal, tangent = np.array([np.cos(theta), np.sin(theta)]), np.array([-np.sin(theta), np.cos(theta)])
    system = PARTICLE.with_params(mass * jnp.eye(2))
    terms = jm.evaluate(system, jm.assemble(system, 2 * normal, 2 * rate * tangent))
    force = np.array([0.7, -1.9])
    for kind in ("skew", "symmetric", "parameterised"):
        parts, found, reaction = projection(jm.formulation.OrthogonalProjection(inertia=kind), terms)
        np.testing.assert_allclose(np.trace(parts.inertia), 2 * mass, rtol=1e-12)
        np.testing.assert_allclose(parts.projector, np.outer(tangent, tangent), atol=1e-12)
        np.testing.assert_allclose(parts.particular, -2 * rate**2 * normal, atol=1e-12)
        vdot = (force @ tangent) / mass * tangent - 2 * rate**2 * normal
        np.testing.assert_allclose(found, vdot, atol=1e-12)
        pull = (force @ normal + mass * 2 * rate**2) * normal  # with the opposite sign in the paper
        np.testing.assert_allclose(reaction, -pull, atol=1e-12)
    assert float(decoupling(terms)) < 1e-15


def test_slider_crank():
    """P and M_c'' of Aghili, eqs. (70)–(71), whose cases are swapped in print, and the determinant below them."""
    system = slider_crank()
    angle = 0.4
    state = jm.assemble(system, [angle, 2 * np.pi - 2 * angle], [1.0, -2.0])
    terms = jm.evaluate(system, state)
    parts, _, _ = projection(jm.formulation.OrthogonalProjection(gamma=jnp.array(1.0)), terms)
    c2 = np.cos(2 * angle)
    np.testing.assert_allclose(parts.projector, np.array([[1, -2], [-2, 4]]) / 5, atol=1e-12)
    np.testing.assert_allclose(parts.inertia, [[1, (1 + c2) / 5], [0, (3 - 2 * c2) / 5]], atol=1e-12)
    np.testing.assert_allclose(jnp.linalg.det(parts.inertia), (3 - 2 * c2) / 5, atol=1e-12)
    np.testing.assert_allclose(parts.particular, 0, atol=1e-12)  # "C ≡ 0 for this example"


@pytest.mark.parametrize(
    ("name", "weighted"),
    [
        pytest.param("driven cart", True, marks=pytest.mark.slow),
        pytest.param("four-bar, 3 loops", False, marks=pytest.mark.slow),
        pytest.param("driven cart", False, marks=pytest.mark.slow),
        pytest.param("top, 2 pivots", True, marks=pytest.mark.slow),
    ],
)
def test_laws_of_the_projector(name, weighted):
    """P² = P, C P = 0, W P = PᵀW; properties of the three matrices; (32) is M v̇ − F; any W and γ give the same v̇."""
    system, terms = make(name)[0], first(name)
    rng = np.random.default_rng(1)
    half = rng.normal(size=(system.nv, system.nv)) + 3 * np.eye(system.nv)
    weight = jnp.asarray(half @ half.T) if weighted else None
    w = np.eye(system.nv) if weight is None else np.asarray(weight)
    exact = accelerations(jm.formulation.GaussProjection(), terms)
    numbers = conditioning(terms, jnp.array([0.3, 2.0]), weight)
    for kind, gamma in (("skew", None), ("symmetric", None), ("parameterised", 0.3), ("parameterised", 2.0)):
        value = None if gamma is None else jnp.array(gamma)
        formulation = jm.formulation.OrthogonalProjection(inertia=kind, gamma=value, weight=weight)
        parts, vdot, reaction = projection(formulation, terms)
        p, m_c = np.asarray(parts.projector), np.asarray(parts.inertia)
        np.testing.assert_allclose(p @ p, p, atol=1e-12)
        np.testing.assert_allclose(np.asarray(terms.jacobian) @ p / terms.scale[:, None], 0, atol=1e-12)
        np.testing.assert_allclose(w @ p, p.T @ w, atol=1e-11)
        assert round(np.trace(p)) == system.nv - int(exact.rank)
        if kind == "symmetric":
            np.testing.assert_allclose(m_c, m_c.T, atol=1e-12)
        if kind != "parameterised":
            assert np.linalg.eigvalsh(m_c + m_c.T).min() > 0
        number = numbers[kind] if gamma is None else numbers[kind][[0.3, 2.0].index(gamma)]
        np.testing.assert_allclose(number, np.linalg.cond(m_c), rtol=1e-8)
        size = np.abs(exact.vdot).max()
        np.testing.assert_allclose(vdot, exact.vdot, atol=1e-10 * size)
        np.testing.assert_allclose(reaction, exact.reaction, atol=1e-10 * max(np.abs(exact.reaction).max(), 1))


def test_condition_numbers_are_those_of_the_inertia_that_is_inverted(monkeypatch):
    def made(inertia, gamma, **_):
        matrix = {"skew": [2.0, -8.0, 4.0], "symmetric": [3.0, 1.0, 2.0]}.get(inertia, [gamma, 6.0, 3.0])
        return SimpleNamespace(projected=lambda terms: SimpleNamespace(inertia=jnp.diag(jnp.stack(matrix))))

    monkeypatch.setattr(orthogonal, "OrthogonalProjection", made)
    terms = jm.system.Terms(jnp.eye(2), jnp.zeros(2), jnp.eye(2), *[jnp.ones(2)] * 3)
    found = jax.jit(lambda gammas: jm.formulation.inertia_conditioning(terms, gammas))(jnp.array([0.3, 2.0]))
    np.testing.assert_allclose([found["skew"], found["symmetric"], *found["parameterised"]], [4, 3, 20, 3], rtol=1e-14)


def test_decoupling():
    """Proposition 3: zero exactly where the null space is invariant under M, and then μP = 0."""
    direction, across = np.array([3.0, 4.0]) / 5, np.array([-4.0, 3.0]) / 5
    for mass, invariant in (
        (2 * np.outer(direction, direction) + 5 * np.outer(across, across), True),
        (np.array([[2.0, 0.5], [0.5, 1.0]]), False),
    ):
        system = PARTICLE.with_params(jnp.asarray(mass))
        terms = jm.evaluate(system, jm.assemble(system, 2 * direction))
        parts, _, _ = projection(jm.formulation.OrthogonalProjection(inertia="skew"), terms)
        coupling = (jnp.eye(2) - parts.projector) @ mass @ np.linalg.inv(parts.inertia) @ parts.projector
        assert (float(decoupling(terms)) < 1e-14) == invariant == bool(jnp.abs(coupling).max() < 1e-14)
    # (I − Pᵀ) M P = [[0, 1], [0, 0]] beside all of M.
    parts = jnp.array([[2.0, 1.0], [1.0, 3.0]]), jnp.zeros(2), jnp.array([[1.0, 0.0]]), *[jnp.zeros(1)] * 2, jnp.ones(1)
    np.testing.assert_allclose(decoupling(jm.system.Terms(*parts)), 1 / np.sqrt(15), rtol=1e-14)


def test_length_metric():
    """Angles count as lengths; the choice changes P, not the motion."""
    system, terms = make("driven cart")[0], first("driven cart")
    weight = jm.formulation.length_metric(system, ["q2"], 0.5)
    np.testing.assert_allclose(weight, np.diag([1, 1, 0.25, 1]))
    vdot = accelerations(jm.formulation.OrthogonalProjection(weight=weight), terms).vdot
    np.testing.assert_allclose(vdot, accelerations(jm.formulation.GaussProjection(), terms).vdot, atol=1e-13)
    with pytest.raises(
        ValueError, match=r"`rotations` must name velocities out of 'q0', 'q1', 'q2' and 'q3', but names 'phi'"
    ):
        jm.formulation.length_metric(system, ["phi"], 0.5)
    with pytest.raises(ValueError, match=r"`weight` must have shape \(4, 4\), but has shape \(2, 2\)"):
        jm.formulation.OrthogonalProjection(weight=jnp.eye(2)).acceleration(terms)
    with pytest.raises((TypeError, ValueError), match=r"'skew', 'symmetric'.*'parameterised'"):
        jm.formulation.OrthogonalProjection(inertia="round")


@pytest.mark.parametrize(
    "name", slow_but(("driven cart", "unconstrained"), ["four-bar, 3 loops", "driven cart", "unconstrained"])
)
def test_null_space(name):
    """C N = 0, NᵀN = I, the minimal equations; Nᵀ(M v̇ − F) vanishes for the motion only."""
    system, terms = make(name)[0], first(name)
    parts = minimal_equations(jm.formulation.NullSpace(), terms)
    exact = accelerations(jm.formulation.GaussProjection(), terms)
    free = system.nv - int(exact.rank)
    columns = np.flatnonzero(np.abs(parts.basis).max(axis=0))
    basis = np.asarray(parts.basis)[:, columns]
    assert len(columns) == free
    np.testing.assert_allclose(basis.T @ basis, np.eye(free), atol=1e-13)
    np.testing.assert_allclose(np.asarray(terms.jacobian) @ basis / terms.scale[:, None], 0, atol=1e-13)
    minimal = np.linalg.solve(parts.mass, parts.force)
    np.testing.assert_allclose(parts.particular + parts.basis @ minimal, exact.vdot, atol=1e-11)
    size = float(jnp.abs(terms.mass @ exact.vdot).max()) + 1
    np.testing.assert_allclose(jm.formulation.gauss_residual(terms, exact.vdot), 0, atol=1e-12 * size)
    moved = exact.vdot + basis @ np.ones(free)
    assert float(jnp.abs(jm.formulation.gauss_residual(terms, moved)).max()) > 0.1


def test_proximal_converges_with_its_refinements():
    """By μ/(μ + s²) each, six times by default: of a row of size σ in the metric of M it is s² = σ²/(1 + σ²)."""
    terms = jm.system.Terms(
        mass=jnp.eye(2),
        force=jnp.array([1.0, 2.0]),
        jacobian=jnp.array([[0.0, 0.05]]),
        offset=jnp.zeros(1),
        gamma=jnp.array([-0.2]),
        scale=jnp.ones(1),
    )
    off = [
        jm.formulation.Proximal(mu=mu, **options).acceleration(terms).vdot[1] + 0.2 / 0.05
        for mu, options in ((2.5e-3, {"refinements": 1}), (2.5e-3, {"refinements": 2}), (2.5e-3, {}), (1e-6, {}))
    ]
    rate = 2.5e-3 / (2.5e-3 + 0.05**2 / (1 + 0.05**2))
    np.testing.assert_allclose([off[1] / off[0], off[2] / off[0], off[3]], [rate, rate**5, 0.0], rtol=1e-9, atol=1e-12)


def test_rows_that_were_decided_here_stay_and_those_of_another_state_are_tried_anew():
    """Of three rows the first two, at a right angle, leave less of the third than it leaves of them when it comes first: above and below the cut-off."""
    tol, method = 1e-3, jm.formulation.GaussProjection(rank_tol=1e-3)
    near = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.75, 0.75, 0.93 * tol]])
    copy = near.at[2].set(jnp.array([0.75, 0.75, 0.0]))
    gamma, decided = jnp.array([0.3, -0.2, 0.0]), jnp.ones(3, bool)
    gamma = gamma.at[2].set(copy[2] @ gamma)

    @functools.partial(jax.jit, static_argnums=1)
    def solved(rows, carry):
        terms = jm.system.Terms(jnp.eye(3), jnp.arange(3.0), rows, jnp.zeros(3), gamma, jnp.ones(3))
        found = method.acceleration(terms, decided if carry else None)
        return found.vdot, found.rank, found.result == jm.RESULTS.successful

    vdot, rank, fine = solved(near, False)
    assert int(rank) == 3 and bool(fine)
    np.testing.assert_allclose(near @ vdot, gamma, atol=1e-12)
    vdot, _, fine = solved(copy, True)
    assert bool(fine)
    np.testing.assert_allclose(vdot, [0.3, -0.2, 2.0], atol=1e-12)


def test_elimination_by_name_and_by_pivoting():
    """Zero and marked multipliers; the same motion; what is left carries the rest."""
    system, terms = make("four-bar, 3 loops")[0], first("four-bar, 3 loops")
    exact = accelerations(jm.formulation.GaussProjection(), terms)
    for formulation, rows in (
        (jm.formulation.Elimination.of(system, ["loop 0", "loop 1"]), [2, 3, 4, 5]),
        (jm.formulation.Elimination.of(system, {"loop": [0], "loop 0": [0], "loop 1": [0, 1]}), [0, 2, 4, 5]),
        (jm.formulation.Elimination(eliminated=(0, 1, 2, 3)), [0, 1, 2, 3]),
        (jm.formulation.Elimination(), None),
    ):
        found = formulation.acceleration(terms)
        assert found.result == jm.RESULTS.successful and int(found.rank) == 2
        eliminated = np.flatnonzero(found.eliminated)
        assert len(eliminated) == 4 and (rows is None or list(eliminated) == rows)
        assert not np.any(np.asarray(found.multipliers)[eliminated])
        np.testing.assert_allclose(found.vdot, exact.vdot, atol=1e-11 * np.abs(exact.vdot).max())
        np.testing.assert_allclose(terms.jacobian.T @ found.multipliers, exact.reaction, atol=1e-10)


@pytest.mark.slow
def test_elimination_that_loses_rank_is_refused():
    system, state = make("four-bar, 3 loops")
    wrong = jm.formulation.Elimination.of(
        system, {"loop": [0], "loop 0": [1], "loop 1": [1]}
    )  # all rows of one direction
    assert wrong.acceleration(jm.evaluate(system, state)).result == jm.RESULTS.unfit_choice
    with pytest.raises(ValueError, match=r"`Elimination` does not fit the start: the rows that are left"):
        jm.simulate(system, state, [0.3], formulation=wrong)


def test_rows_and_coordinates_that_there_are_not_are_refused():
    system, terms = make("four-bar, 3 loops")[0], first("four-bar, 3 loops")
    F = jm.formulation
    with pytest.raises(ValueError, match=r"`rows` must name constraints out of .*'loop 1'.*, but names 'lop'"):
        F.Elimination.of(system, ["lop"])
    with pytest.raises(ValueError, match=r"row numbers below 2 for constraint 'loop', but holds 2"):
        F.Elimination.of(system, {"loop": [2]})
    with pytest.raises(ValueError, match=r"`eliminated` must hold row indices below 6, but holds \(7,\)"):
        F.Elimination(eliminated=(7,)).excluded(6)
    with pytest.raises(ValueError, match=r"`independent` must hold indices of velocities below 3, but holds \(3,\)"):
        F.CoordinatePartition((3,)).choose(terms)
    with pytest.raises(ValueError, match=r"`gammas` must have shape \(k,\), but has shape \(\)"):
        F.inertia_conditioning(terms, 2.0)


def late():
    """Two rows that agree until t = 0.5 and hold another coordinate after that."""
    both = lambda t, q, p: q[1] + jnp.maximum(t - 0.5, 0.0) ** 3 * q[0]
    system = jm.System(
        3,
        mass=lambda t, q, p: jnp.eye(3),
        constraints=[jm.Holonomic("first", lambda t, q, p: q[1]), jm.Holonomic("second", both)],
    )
    return system, jm.assemble(system, [0.0, 0.0, 0.0], [0.0, 0.0, 1.0])


def test_rows_that_the_dynamics_leave_out_are_corrected_on_position_level():
    """At t = 1 the row that is left out holds a coordinate that no other row holds; it stays left out."""
    system, state = late()
    formulation = jm.formulation.Elimination.of(system, ["second"])
    state = dataclasses.replace(state, t=state.t + 1.0, q=jnp.array([0.3, 0.1, 0.2]))

    @jax.jit
    def corrected(state):
        in_use = formulation.prepare(rows_at(system, state.t, state.q, state.scale.row))
        return correct(system, formulation, state, in_use, 2)

    found = corrected(state)
    np.testing.assert_allclose(found.q, [0.0, 0.0, 0.2], atol=1e-14)
    assert found.in_use.tolist() == [True, False]


@pytest.mark.slow
def test_elimination_that_loses_rank_during_a_run():
    """A given choice ends the run, pivoting goes on with more rows."""
    system, state = late()
    short = dfx.PIDController(rtol=1e-8, atol=1e-10, dtmax=0.1)
    run = lambda formulation: jm.simulate(
        system, state, [0.4, 1.0], formulation=formulation, stepsize_controller=short, throw=False
    )
    fixed = run(jm.formulation.Elimination.of(system, ["second"]))
    assert fixed.result == jm.RESULTS.unfit_choice
    np.testing.assert_allclose(fixed.q[0], [0, 0, 0.4], atol=1e-12)
    assert bool(jnp.all(jnp.isnan(fixed.q[1])))
    sol = run(jm.formulation.Elimination())
    assert sol.result == jm.RESULTS.successful
    assert int(sol.stats["lowest_rank"]) == 1 and int(sol.stats["highest_rank"]) == 2


@functools.partial(jax.jit, static_argnums=0)
def slope_by_weight(make_one, weight, terms):
    return jax.jacfwd(lambda w: make_one(weight=w + w.T).acceleration(terms).vdot)(weight)


@pytest.mark.parametrize("weight", ["identity", "given"])
@pytest.mark.slow
def test_derivatives_of_the_weight_vanish(weight):
    """v̇ does not depend on W, and its derivative with respect to W is zero."""
    start = jnp.eye(3) if weight == "identity" else jnp.diag(jnp.array([1.0, 2.0, 0.3]))
    for make_one in (jm.formulation.NullSpace, jm.formulation.OrthogonalProjection):
        slope = slope_by_weight(make_one, start, first("four-bar, 3 loops"))
        np.testing.assert_allclose(slope, 0, atol=1e-9)
