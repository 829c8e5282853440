"""The projective criterion, coordinate partitioning with switching, and explicit closures."""

import dataclasses
import pathlib
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fourbar_model import CLOSURES, L0
from systems import evaluated, fourbar, moving_line, sleigh, slow_but, states, top

import jaxmb as jm
from jaxmb.simulation.phase import Phases
from jaxmb.simulation.step_records import RECORDED, Switches, with_switch

partition = eqx.filter_jit(lambda formulation, terms: formulation.partition(terms))
criterion = jax.jit(jm.formulation.projective_criterion)
REFERENCE = np.load(pathlib.Path(__file__).parent / "data" / "fourbar_blajer.npz")


def test_criterion_of_a_physical_pendulum():
    """cos²α of Blajer, Schiehlen and Schirm 1994, eq. (26), and which choice of one velocity is kept: that with a root above 0.7 of the largest's, or 0.3 by default."""
    mass, inertia, radius, angle = 1.7, 0.4, 0.8, 0.6
    hinge = lambda t, q, p: q[:2] - radius * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    system = jm.System(
        ("x", "y", "gamma"),
        mass=lambda t, q, p: jnp.diag(jnp.array([mass, mass, inertia])),
        constraints=[jm.Holonomic("hinge", hinge)],
    )
    terms = jm.evaluate(system, jm.assemble(system, [radius * np.cos(angle), radius * np.sin(angle), angle]))
    total = mass * radius**2 + inertia
    exact = np.array([mass * radius**2 * np.sin(angle) ** 2, mass * radius**2 * np.cos(angle) ** 2, inertia]) / total
    found = criterion(terms)
    np.testing.assert_allclose(found.tangent, exact, atol=1e-12)
    np.testing.assert_allclose(found.normal, 1 - exact, atol=1e-12)
    choose = eqx.filter_jit(jm.formulation.CoordinatePartition(switching=0.7).choose)
    x, y, turn = np.eye(3, dtype=bool)
    assert (0.7 < np.sqrt(exact / exact[1])).tolist() == [False, True, True]
    for present, chosen in ((x, y), (y, y), (turn, turn), (x | turn, y), (x & turn, x & turn)):
        np.testing.assert_array_equal(choose(terms, jnp.asarray(present)), chosen)
    by_default = eqx.filter_jit(jm.formulation.CoordinatePartition().choose)
    np.testing.assert_array_equal(by_default(terms, jnp.asarray(x)), x)
    level = jm.evaluate(system, jm.assemble(system, [radius, 0.0, 0.0]))  # where x stands still
    by_x = jm.formulation.CoordinatePartition((0,)).acceleration
    results = [by_x(at).result for at in (terms, level)]
    assert results == [jm.RESULTS.successful, jm.RESULTS.unfit_choice]


@pytest.mark.parametrize("name", ["driven cart", *slow_but((), ["four-bar, 3 loops", "top"])])
def test_criterion_is_that_of_any_choice(name):
    """d_iᵀ M_d⁻¹ d_i/(M⁻¹)_ii and c_iᵀ M_c⁻¹ c_i/(M⁻¹)_ii as printed in eq. (23), and their sum."""
    terms = jax.tree.map(lambda x: x[0], evaluated(name))
    parts = partition(jm.formulation.CoordinatePartition(), terms)
    inverse = np.linalg.inv(terms.mass)
    chosen = np.flatnonzero(parts.independent)
    d, m_d = np.asarray(parts.tangent)[chosen], np.asarray(parts.mass)[np.ix_(chosen, chosen)]
    c = np.asarray(terms.jacobian) @ inverse
    tangent = np.einsum("ai,ab,bi->i", d, np.linalg.inv(m_d), d) / np.diag(inverse)
    gram = np.asarray(terms.jacobian) @ inverse @ np.asarray(terms.jacobian).T
    normal = np.einsum("ai,ab,bi->i", c, np.linalg.pinv(gram, rcond=1e-9, hermitian=True), c) / np.diag(inverse)
    found = criterion(terms)
    np.testing.assert_allclose(found.tangent, tangent, atol=1e-9)
    np.testing.assert_allclose(found.normal, normal, atol=1e-9)
    np.testing.assert_allclose(found.tangent + found.normal, 1, atol=1e-13)


def fourbar_at(angle, masses=(1.0, 2.0, 1.5), rate=1.0):
    """The four-bar and its state at a crank angle."""
    system, _ = fourbar()
    system = system.with_params(system.params | {"m": jnp.asarray(masses)})
    q = jnp.concatenate([jnp.stack([angle]), CLOSURES["crank"].fn(0.0, jnp.stack([angle]), system.params)])
    return system, jm.assemble(system, q, [rate, 0.0, 0.0], hold=["a1"], hold_velocity=["a1"])


@pytest.mark.slow  # an example shows it, too
def test_criterion_of_the_four_bar():
    """α₃ is worst where it is independent at all, and useless at π/2 and 3π/2; masses matter, for the geometry they do not."""

    def along(masses, weight=None):
        def one(angle):
            system, state = fourbar_at(angle, masses)
            return jm.formulation.projective_criterion(jm.evaluate(system, state), weight).tangent

        return np.asarray(jax.jit(jax.vmap(one))(jnp.linspace(0, 2 * np.pi, 41)))

    nominal, heavy = along((1.0, 2.0, 1.5)), along((1.0, 20.0, 1.5))
    assert (
        np.all(nominal[:, 2] <= nominal[:, :2].max(axis=1)) and nominal[:, 2].mean() < nominal[:, :2].mean(axis=0).min()
    )
    np.testing.assert_allclose(nominal[[10, 30], 2], 0, atol=1e-12)
    assert nominal[:, :2].min() > 1e-3
    assert np.abs(nominal - heavy).max() > 0.05
    geometric = along((1.0, 2.0, 1.5), jnp.eye(3)), along((1.0, 20.0, 1.5), jnp.eye(3))
    np.testing.assert_allclose(geometric[0], geometric[1], atol=1e-13)


@pytest.mark.slow
def test_greedy_choice_is_regular():
    """Five sliders tied as x₁ = x₂ and x₃ = x₄ = x₅: the two largest cos²α belong to the first pair, which is no choice."""
    ties = lambda t, q, p: jnp.stack([q[0] - q[1], q[2] - q[3], q[3] - q[4]])
    system = jm.System(5, mass=lambda t, q, p: jnp.eye(5), constraints=[jm.Holonomic("ties", ties)])
    terms = jm.evaluate(system, jm.assemble(system, jnp.zeros(5)))
    best = np.argsort(-np.asarray(criterion(terms).tangent))[:2]
    assert set(best) == {0, 1}
    chosen = np.flatnonzero(partition(jm.formulation.CoordinatePartition(), terms).independent)
    assert len(chosen) == 2 and chosen[0] in (0, 1) and chosen[1] in (2, 3, 4)
    bad = jm.formulation.CoordinatePartition(independent=(0, 1))
    assert bad.acceleration(terms).result == jm.RESULTS.unfit_choice
    with pytest.raises(ValueError, match=r"`CoordinatePartition` does not fit the start.*independent coordinates"):
        jm.simulate(
            system,
            jm.assemble(system, jnp.zeros(5)),
            [1.0],
            formulation=jm.formulation.CoordinatePartition((0, 1), switching=0.0),
        )


@pytest.mark.parametrize("name", ["driven cart", *slow_but((), ["four-bar, 3 loops", "moving line"])])
def test_equations_of_a_partition(name):
    """D Cᵀ = 0, v = Dᵀv_I + [0; η], the blocks of M_d and h_d (eqs. 7–14) from A = −C_D⁻¹C_I."""
    velocities = np.asarray(states(name)[1].v)
    for i in range(5):
        terms = jax.tree.map(lambda x: x[i], evaluated(name))
        parts = partition(jm.formulation.CoordinatePartition(), terms)
        assert bool(parts.regular)
        free, dep = np.flatnonzero(parts.independent), np.flatnonzero(~np.asarray(parts.independent))
        jac, mass, force = (np.asarray(x) for x in (terms.jacobian, terms.mass, terms.force))
        solve = lambda rhs: np.linalg.lstsq(jac[:, dep], rhs, rcond=1e-9)[0]
        a, eta, xi = -solve(jac[:, free]), -solve(np.asarray(terms.offset)), solve(np.asarray(terms.gamma))
        tangent = np.asarray(parts.tangent)[free]
        size = 1 + np.abs(a).max()
        np.testing.assert_allclose(tangent[:, free], np.eye(len(free)), atol=1e-11 * size)
        np.testing.assert_allclose(tangent[:, dep], a.T, atol=1e-10 * size)
        np.testing.assert_allclose(np.asarray(parts.offset)[dep], eta, atol=1e-10 * size)
        np.testing.assert_allclose(np.asarray(parts.xi)[dep], xi, atol=1e-9 * size * (1 + np.abs(xi).max()))
        np.testing.assert_allclose(tangent.T @ velocities[i, free] + parts.offset, velocities[i], atol=1e-10 * size)
        block = lambda x, y: mass[np.ix_(x, y)]
        m_d = block(free, free) + (block(free, dep) @ a).T + block(free, dep) @ a + a.T @ block(dep, dep) @ a
        h_d = force[free] + a.T @ force[dep] - (block(free, dep) + a.T @ block(dep, dep)) @ xi
        np.testing.assert_allclose(np.asarray(parts.mass)[np.ix_(free, free)], m_d, atol=1e-9 * size**2)
        np.testing.assert_allclose(np.asarray(parts.force)[free], h_d, atol=1e-8 * size * (1 + np.abs(h_d).max()))


def paper_d_and_xi(q, v, l):
    """Eqs. (22) and (23) of Blajer, Schiehlen and Schirm 1993; rows α₁ and α₃ independent, in the order α₁, α₂, α₃."""
    (a1, a2, a3), (w1, w2, w3), (l1, l2, l3), l0 = q, v, l, L0
    s, c = np.sin, np.cos
    ratio = l0 * l1 * c(a1) / (l2 * l3 * s(a3))
    d_a = [1, -(l0 * l1 * c(a1) + l0 * l2 * c(a1 + a2)) / (l2 * l3 * s(a3)), ratio]
    d_b = [1 / ratio, -(l2 * c(a1 + a2) / (l1 * c(a1)) + 1), 1]
    k1 = l0 * l1 * (w1 * s(a1) * s(a3) + w3 * c(a1) * c(a3))
    k2 = l0 * l2 * ((w1 + w2) * s(a1 + a2) * s(a3) + w3 * c(a1 + a2) * c(a3))
    k3 = l2 * l3 * (w3 * c(a3) * c(a1) + w1 * s(a3) * s(a1))
    k4 = l0 * l2 * (w1 * s(a2) + w2 * s(a1 + a2) * c(a1))
    lower_a, lower_b = l2 * l3 * s(a3) ** 2, l0 * l1 * c(a1) ** 2
    xi_a = w1 * np.array([0, (k1 + k2) / lower_a, -k1 / lower_a])
    xi_b = w3 * np.array([k3 / lower_b, k4 / lower_b, 0])
    return np.array(d_a), np.array(d_b), xi_a, xi_b


def test_without_constraints_all_velocities_must_be_chosen():
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    state = jm.assemble(system, v=[1.0, 2.0])
    results = []
    for chosen in ((0,), (0, 1)):
        formulation = jm.formulation.CoordinatePartition(chosen)
        results.append(jm.simulate(system, state, [1.0], formulation=formulation, throw=False).result)
    assert results == [jm.RESULTS.unfit_choice, jm.RESULTS.successful]


@pytest.mark.slow
def test_four_bar_by_closure_by_partition_and_as_printed():
    """D and ξ three ways, to 1e-12."""
    system, state = fourbar_at(jnp.array(0.7), rate=1.3)
    terms = jm.evaluate(system, state)
    d_a, d_b, xi_a, xi_b = paper_d_and_xi(np.asarray(state.q), np.asarray(state.v), np.asarray(system.params["l"]))
    for index, name, d, xi in ((0, "crank", d_a, xi_a), (2, "rocker", d_b, xi_b)):
        parts = partition(jm.formulation.CoordinatePartition((index,)), terms)
        np.testing.assert_allclose(parts.tangent[index], d, rtol=1e-12)
        np.testing.assert_allclose(parts.xi, xi, atol=1e-12 * np.abs(xi).max())
        closure = CLOSURES[name]
        reduced = jm.kinematics.restrict(system, closure, state)
        explicit = jm.kinematics.closure_kinematics(system, closure, reduced)
        others = [i for i in range(3) if i != index]
        np.testing.assert_allclose(explicit.matrix[:, 0], d[others], rtol=1e-12)
        np.testing.assert_allclose(explicit.xi, xi[others], atol=1e-12 * np.abs(xi).max())
        np.testing.assert_allclose(explicit.eta, 0)
        equations = jm.evaluate(jm.kinematics.reduce(system, closure), reduced)
        np.testing.assert_allclose(equations.mass[0, 0], parts.mass[index, index], rtol=1e-12)
        np.testing.assert_allclose(equations.force[0], parts.force[index], rtol=1e-11)


def precise(ts, tol=1e-12):
    """Settings whose error is far below 1e-9."""
    return dict(
        solver=dfx.Dopri8(),
        stepsize_controller=dfx.ClipStepSizeController(dfx.PIDController(rtol=tol, atol=tol), step_ts=ts),
    )


TURNS = jnp.asarray(REFERENCE["t"])


def spinning():
    """The four-bar of the reference at its start, turning."""
    system, _ = fourbar()
    return system, jm.assemble(system, REFERENCE["alpha_spin"][0], REFERENCE["alphad_spin"][0], hold=["a1"])


@pytest.mark.slow
def test_switching_changes_no_state():
    """From a bad first choice and with an eager criterion: switches are recorded, and the motion is the reference's to 1e-9."""
    system, state = spinning()
    wrapped = lambda q: (np.asarray(q) + np.pi) % (2 * np.pi) - np.pi
    exact = REFERENCE["alpha_spin"]
    for formulation, least in (
        (jm.formulation.CoordinatePartition((2,), switching=0.99), 3),
        (jm.formulation.CoordinatePartition((2,)), 1),
    ):
        sol = jm.simulate(system, state, TURNS, formulation=formulation, **precise(TURNS))
        assert np.abs(wrapped(sol.q - exact)).max() < 1e-9
        assert float(jnp.abs(jm.energy(system, sol).balance).max()) < 1e-9
        count = int(sol.switches.count)
        assert count >= least
        t, before, after = (np.asarray(x)[:count] for x in (sol.switches.t, sol.switches.before, sol.switches.after))
        assert np.all(np.diff(t) > 0) and t[-1] <= 5.0 and np.all(np.isnan(sol.switches.t[count:]))
        np.testing.assert_array_equal(before[0], [False, False, True])
        np.testing.assert_array_equal(before[1:], after[:-1])
        assert np.all(after.sum(axis=1) == 1) and np.all(np.any(before != after, axis=1))


@pytest.mark.slow
def test_switching_in_a_batch():
    """Each row switches at its own times, as when run alone."""
    system, _ = fourbar()
    q = REFERENCE["alpha_spin"][0]

    def run(rate):
        state = jm.assemble(system, q, [rate, 0.0, 0.0], hold=["a1"], hold_velocity=["a1"])
        settings = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=1e-3, max_steps=1024)
        return jm.simulate(
            system,
            state,
            [0.5],
            formulation=jm.formulation.CoordinatePartition((2,), switching=0.99),
            throw=False,
            **settings,
        )

    rates = jnp.array([3.0, 8.0, 12.0])
    batch = jax.jit(jax.vmap(run))(rates)
    assert len(set(np.asarray(batch.switches.count))) > 1
    for i, rate in enumerate(rates):
        alone = run(rate)
        np.testing.assert_array_equal(batch.switches.t[i], alone.switches.t)
        np.testing.assert_allclose(batch.q[i], alone.q, atol=1e-12)


@pytest.mark.slow  # an example shows it, too
def test_closures_are_free_of_drift():
    """In one coordinate, back in all of them: residuals at rounding, the reference's motion; from one closure to the other."""
    system, state = spinning()
    crank = CLOSURES["crank"]
    sol = jm.simulate(
        jm.kinematics.reduce(system, crank), jm.kinematics.restrict(system, crank, state), TURNS, **precise(TURNS)
    )
    whole = jm.kinematics.embed(system, crank, sol.states)
    wrapped = (np.asarray(whole.q) - REFERENCE["alpha_spin"] + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(wrapped).max() < 1e-9
    off = jm.residuals(system, whole)
    # Relative to the sizes of rows: rounding of φ, 5e-15 m, counts twelve times where a row is small.
    assert float(jnp.abs(off.position).max()) < 1e-13 and float(jnp.abs(off.velocity).max()) < 1e-12
    assert float(jnp.abs(jm.energy(system, whole).total - jm.energy(system, state).total).max()) < 1e-9
    # α₃ decreases from the start; before it turns, at α₁ = π/2, the crank takes over again.
    middle = jax.tree.map(lambda x: x[2], whole)
    rocker = CLOSURES["rocker"]
    part = TURNS[2:5]
    other = jm.simulate(
        jm.kinematics.reduce(system, rocker), jm.kinematics.restrict(system, rocker, middle), part, **precise(part)
    )
    np.testing.assert_allclose(
        jm.kinematics.embed(system, rocker, other.states).q[:, ::2], whole.q[2:5, ::2], atol=1e-9
    )


def test_a_closure_reduces_masses_and_forces():
    """To M_d = D M Dᵀ and h_d = D (h − M [0; ξ]): on y = x² t with D = [1, 2 x t] and ξ = 2 t ẋ² + 4 x ẋ."""
    plane = jm.System(
        ("x", "y"), mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 2.0])), potential=lambda t, q, p: 7 * q[1],
        constraints=[jm.Holonomic("curve", lambda t, q, p: q[1] - q[0] ** 2 * t)],
    )  # fmt: skip
    reduced = jm.kinematics.reduce(plane, jm.kinematics.Closure("curve", ["x"], lambda t, q, p: q**2 * t))
    t, x, v = 0.7, 1.3, -0.4
    at = jnp.array(t), jnp.array([x])
    np.testing.assert_allclose(reduced.mass(*at), [[1 + 2 * (2 * x * t) ** 2]], rtol=1e-14)
    force = 2 * x * t * (-7 - 2 * (2 * t * v**2 + 4 * x * v))
    np.testing.assert_allclose(reduced.intrinsic_force(*at, jnp.array([v])), [force], rtol=1e-13)


@pytest.mark.slow
def test_closure_of_a_moving_constraint():
    """η ≠ 0: the reduced motion is that of the whole system, and Jacobi's energy is conserved with explicit work."""
    system, _ = moving_line()
    state = jm.assemble(system, [0.5, 0.2], [0.1, 0.0], t=0.2, hold=["q0"], hold_velocity=["q0"])
    along = lambda t, q, p: (0.1 + q * jnp.sin(p["w"] * t)) / jnp.cos(p["w"] * t)
    closure = jm.kinematics.Closure("line", ["q0"], along)
    ts = jnp.linspace(0.2, 1.5, 6)
    whole = jm.simulate(system, state, ts, **precise(ts))
    reduced = jm.kinematics.reduce(system, closure)
    sol = jm.simulate(reduced, jm.kinematics.restrict(system, closure, state), ts, **precise(ts))
    np.testing.assert_allclose(jm.kinematics.embed(system, closure, sol.states).q, whole.q, atol=1e-10)
    np.testing.assert_allclose(jm.kinematics.embed(system, closure, sol.states).v, whole.v, atol=1e-9)
    assert float(jnp.abs(jm.energy(reduced, sol).balance).max()) < 1e-10


@pytest.mark.slow
def test_velocity_constraints_stay():
    """A sleigh with its angle tied to a fourth coordinate: the closure removes that, the blade stays."""
    base, (q, v) = sleigh()
    mass = lambda t, q, p: jax.scipy.linalg.block_diag(base.inertia.mass_fn(t, q[:3], p), jnp.eye(1))
    system = jm.System(
        ("x", "y", "theta", "wheel"),
        mass=mass,
        constraints=[
            jm.Pfaffian("blade", lambda t, q, v, p: v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])),
            jm.Holonomic("gear", lambda t, q, p: q[3] - 2 * q[2]),
        ],
        params=base.params,
    )
    closure = jm.kinematics.Closure("gear", ["x", "y", "theta"], lambda t, q, p: 2 * q[2:])
    state = jm.assemble(system, [*q, 0.0], [*v, 2 * v[2]])
    reduced = jm.kinematics.reduce(system, closure)
    assert reduced.m == 1 and reduced.nq == 3
    ts = jnp.array([1.0, 2.0])
    sol = jm.simulate(reduced, jm.kinematics.restrict(system, closure, state), ts, **precise(ts))
    whole = jm.simulate(system, state, ts, **precise(ts))
    np.testing.assert_allclose(jm.kinematics.embed(system, closure, sol.states).q, whole.q, atol=1e-9)


def test_velocity_constraints_of_several_parts_keep_their_names():
    ties = jm.Pfaffian(
        "ties", lambda t, q, v, p: jnp.stack([v[0] - v[1], v[1] - v[2]]), parts={"first": 1, "second": 1}
    )
    gear = jm.Holonomic("gear", lambda t, q, p: q[3] - 2 * q[2])
    system = jm.System(4, mass=lambda t, q, p: jnp.eye(4), constraints=[ties, gear])
    closure = jm.kinematics.Closure("gear", ["q0", "q1", "q2"], lambda t, q, p: 2 * q[2:])
    assert list(jm.kinematics.reduce(system, closure).rows) == ["first", "second"]


def test_closures_that_do_not_fit_are_refused():
    system, state = spinning()
    crank = CLOSURES["crank"]
    mirrored = jm.kinematics.Closure("mirrored", ["a1"], lambda t, q, p: -crank.fn(t, q, p))
    with pytest.raises(ValueError, match=r"Closure 'mirrored' must give coordinate 'a2' of the state, but is off by"):
        jm.kinematics.restrict(system, mirrored, state)
    restricted = jm.kinematics.restrict(system, crank, state)
    turned = dataclasses.replace(state, q=state.q + 2 * jnp.pi * jnp.array([0.0, 1.0, -2.0]))  # the same pose
    np.testing.assert_array_equal(jm.kinematics.restrict(system, crank, turned).q, restricted.q)
    # Off by a part of the tolerance, relative to how far a coordinate reaches and how fast.
    tol, reach = np.finfo(float).eps ** 0.5, state.scale.reach[1]
    for name, size, what in (("q", reach, "coordinate"), ("v", reach * state.scale.rate, "the rate of coordinate")):
        beside = lambda part, n=name, s=size: dataclasses.replace(
            state, **{n: getattr(state, n).at[1].add(part * tol * s)}
        )
        jm.kinematics.restrict(system, crank, beside(0.9))
        with pytest.raises(ValueError, match=f"Closure 'crank' must give {what} 'a2' of the state"):
            jm.kinematics.restrict(system, crank, beside(1.1))
    with pytest.raises(ValueError, match=r"Constraint 'loop' is not satisfied by closure 'mirrored'"):
        jm.kinematics.embed(system, mirrored, restricted)
    with pytest.raises(
        ValueError, match=r"Closure 'c' must name independent coordinates out of 'a1', 'a2' and 'a3', but names 'b"
    ):
        jm.kinematics.reduce(system, jm.kinematics.Closure("c", ["b"], crank.fn))
    with pytest.raises(
        ValueError, match=r"`fn of closure 'c'` must return an array of shape \(1,\), but returns shape \(2,\)"
    ):
        jm.kinematics.reduce(system, jm.kinematics.Closure("c", ["a1", "a2"], lambda t, q, p: q))
    with pytest.raises(ValueError, match=r"`system` must have velocities that are derivatives"):
        jm.kinematics.reduce(top()[0], jm.kinematics.Closure("c", ["x"], lambda t, q, p: q))
    with pytest.raises(ValueError, match=r"`independent` must hold indices of velocities below 3, but holds \(3,\)"):
        jm.simulate(system, state, [0.1], formulation=jm.formulation.CoordinatePartition((3,)))
    with pytest.raises(
        ValueError, match=r"`switching` of CoordinatePartition must be a number from 0 to less than 1, but is 1.5"
    ):
        jm.formulation.CoordinatePartition(switching=1.5)


@pytest.mark.parametrize("length", [1e-9, 1.0, 1e6])
@pytest.mark.slow_except("1.0")
def test_another_branch_is_refused_in_all_units(length):
    """A point on a circle that is lifted at one radius a second: its upper half is not that of the closure, whatever the radius."""
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.eye(2),
        constraints=[jm.Holonomic("rod", lambda t, q, p: q[0] ** 2 + (q[1] - t * p["l"]) ** 2 - p["l"] ** 2)],
        params={"l": length},
    )
    lower = jm.kinematics.Closure("lower", ["x"], lambda t, q, p: t * p["l"] - jnp.sqrt(p["l"] ** 2 - q**2))
    state = lambda sign: jm.assemble(
        system, length * np.array([0.6, sign * 0.8]), length * np.array([0.8, 1 - sign * 0.6])
    )
    below = jm.kinematics.restrict(system, lower, state(-1))
    assert np.allclose(below.q, 0.6 * length, rtol=1e-12)
    rates = jm.kinematics.closure_kinematics(system, lower, below)
    np.testing.assert_allclose(
        [rates.matrix[0, 0], rates.eta[0], rates.xi[0]], [0.6 / 0.8, length, length * 0.8**2 / 0.8**3]
    )
    with pytest.raises(ValueError, match="must give coordinate 'y' of the state"):
        jm.kinematics.restrict(system, lower, state(1))
    good, sized = state(-1), dataclasses.replace
    moved = lambda part: sized(good, v=good.v.at[1].add(part * good.scale.reach[1] * good.scale.rate))
    jm.kinematics.restrict(system, lower, moved(1.4e-8))
    with pytest.raises(ValueError, match="must give the rate of coordinate 'y' of the state"):
        jm.kinematics.restrict(system, lower, moved(1.6e-8))
    # What has no size is compared with one.
    unsized = sized(good.scale, reach=jnp.zeros(2), rate=jnp.zeros(()))
    jm.kinematics.restrict(system, lower, sized(good, scale=unsized))


def test_changes_of_a_choice_are_recorded_in_their_order():
    """As many as there is room for, all of them being counted; phases without a step have none."""
    one, other, none = jnp.array([True, False]), jnp.array([False, True]), jnp.zeros((RECORDED, 2), bool)
    start = Switches(jnp.array(0), jnp.full(RECORDED, jnp.nan), none, none)
    assert with_switch(None, jnp.array(1.0), one, other) is with_switch(start, jnp.array(1.0), None, other) is None
    found = with_switch(start, jnp.array(1.0), one, one)
    assert int(found.count) == 0 and np.isnan(found.t).all()
    for t, before, after in ((2.0, one, other), (3.0, other, other), (4.0, other, one)):
        found = with_switch(found, jnp.array(t), before, after)
    assert int(found.count) == 2 and found.t[:2].tolist() == [2.0, 4.0] and np.isnan(found.t[2:]).all()
    assert found.before[:3].tolist() == [[True, False], [False, True], [False, False]]
    assert found.after[:3].tolist() == [[False, True], [True, False], [False, False]]
    full = with_switch(dataclasses.replace(found, count=jnp.array(RECORDED)), jnp.array(5.0), one, other)
    assert int(full.count) == RECORDED + 1 and 5.0 not in full.t
    phases = jax.tree.map(lambda *x: jnp.stack(x), start, found, found)
    told = Phases.switches(
        SimpleNamespace(accepted=SimpleNamespace(switches=phases), stats={"num_steps": jnp.array([0, 1, 0])})
    )
    assert int(told.count) == 4 and told.before.shape == (3 * RECORDED, 2)
    assert np.flatnonzero(np.isfinite(told.t)).tolist() == [RECORDED, RECORDED + 1]
    np.testing.assert_array_equal(told.after, np.concatenate([none, found.after, found.after]))
