"""Accelerations beside singular poses: of states that assembly has moved there, and of velocities that are given."""

import dataclasses
import functools
import itertools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.formulation import OFFSETS, WEIGHTS, growth
from jaxmb.formulation.interpolation import _interpolated, _onto, away_from_pose
from jaxmb.kinematics import CLOSE, NEAR, correction
from jaxmb.kinematics.closing import Guess, solve_guess
from jaxmb.kinematics.correction import (
    Correction,
    at_rest,
    by_lengths,
    correct,
    correct_by,
    directions,
    distance_to_dependence,
    linearise_correction,
)
from jaxmb.kinematics.refinement import refined
from jaxmb.simulation import vector_field
from jaxmb.simulation.certificate import certify, certify_dense, certify_sparse
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.vector_field import VectorField
from jaxmb.system import rows_at

RATE, ACCELERATION = 1.3, 0.7


@functools.cache
def elbow(smooth):
    """Two links of 1 m, the outer end driven along a line through the base, so that the first turns by θ + 1.3 t + 0.35 t², or at a constant speed."""

    def mass(t, q, p):
        c = jnp.cos(q[1])
        return jnp.array([[3 + 2 * c, 1 + c], [1 + c, 1.0]])

    def path(t, p):
        start = p["angle"]
        turned = start + RATE * t + ACCELERATION * t**2 / 2
        along = 2 * jnp.cos(start) - 2 * jnp.sin(start) * RATE * t
        return jnp.where(p["smooth"], 2 * jnp.cos(turned), along)

    def end(t, q, p):
        outer = q[0] + q[1]
        return jnp.stack([jnp.cos(q[0]) + jnp.cos(outer) - path(t, p), jnp.sin(q[0]) + jnp.sin(outer)])

    potential = lambda t, q, p: 9.81 * (2 * jnp.sin(q[0]) + jnp.sin(q[0] + q[1]))
    params = {"angle": 1.0, "smooth": smooth, "error": 0.0, "at": False}
    return jm.System(
        ("inner", "outer"), mass, potential=potential, constraints=[jm.Holonomic("end", end)], params=params
    )


@functools.cache
def four_bars(coordinates):
    """Four bars of 1 m; the crank of the parallelogram alone gives their acceleration."""
    P = jm.planar
    bars = [P.Body.rod(name, mass, 1.0) for name, mass in (("crank", 1.0), ("coupler", 0.7), ("rocker", 0.5))]
    pairs = ["ground crank.a", "crank.b coupler.a", "coupler.b rocker.b", "ground.d rocker.a"]
    joints = [P.Revolute(name, *pair.split()) for name, pair in zip("ABCD", pairs, strict=True)]
    mechanism = P.Mechanism(bars, joints, gravity=(0.0, -9.81), points={"d": (1.0, 0.0)})
    return mechanism.build("absolute") if coordinates == "absolute" else mechanism.build(cut=["C"])


@eqx.filter_jit
def accelerations(system, angles, q, v, hold):
    """Of states that assembly makes of guesses."""

    @jax.vmap
    def of(angle, q, v):
        here = system.with_params({**system.params, "angle": angle}) if isinstance(system.params, dict) else system
        state = jm.assemble(here, q, v, hold=hold, hold_velocity=hold, throw=False)
        out = jm.formulation.GaussProjection().acceleration(jm.evaluate(here, state))
        return state, out

    return of(angles, q, v)


def four_bar_accelerates(d):
    return -9.81 * np.cos(d) * (0.5 + 0.7 + 0.25) / (1.5 / 3 + 0.7)


def parallelogram_state(coordinates, d, rate):
    """Exact coordinates and velocities, and which of them is the crank's."""
    none = np.zeros_like(d)
    if coordinates == "relative":
        return np.stack([d, -d, d], 1), rate * np.stack([none + 1, none - 1, none + 1], 1), 0
    q = np.stack([none, none, d, np.cos(d), np.sin(d), none, none + 1, none, d], 1)
    v = rate * np.stack([none, none, none + 1, -np.sin(d), np.cos(d), none, none, none, none + 1], 1)
    return q, v, 2


@pytest.mark.slow
def test_a_driven_elbow_near_its_stretched_pose():
    """Moved there by assembly, it accelerates as its end is driven, whatever its masses."""
    angles = np.array([1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    q, v = np.outer(angles, [1, -2]), np.tile([RATE, -2 * RATE], (5, 1))
    state, out = accelerations(elbow(True), angles, q * 1.0001, v * 1.0001, ())
    assert bool(jnp.all(out.result == jm.RESULTS.successful))
    np.testing.assert_allclose(state.v, v, rtol=1e-10)
    np.testing.assert_allclose(out.vdot, np.tile([ACCELERATION, -2 * ACCELERATION], (5, 1)), rtol=1e-8)
    assert float(jnp.max(out.uncertainty)) < 1e-10


@pytest.mark.slow
def test_an_elbow_near_a_dead_centre_tells_how_well_it_is_determined():
    """Driven at constant speed it has no motion through the pose; v̇ = −ω² cot θ is lost to rounding of θ."""
    angles = np.array([1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    q, v = np.outer(angles, [1, -2]), np.tile([RATE, -2 * RATE], (5, 1))
    _, out = accelerations(elbow(False), angles, q * 1.0001, v * 1.0001, ())
    exact = -(np.longdouble(RATE) ** 2) / np.tan(angles.astype(np.longdouble))
    error = np.abs(np.asarray(out.vdot[:, 0]) / exact - 1)
    assert (error <= 10 * np.asarray(out.uncertainty) + 1e-9).all()
    assert [bool(x) for x in out.result == jm.RESULTS.ill_conditioned_state] == [True, True, False, False, False]


def test_where_no_motion_leads_through_a_dead_centre_nothing_is_interpolated():
    """v̇ = −ω² cot θ of an elbow that is driven at constant speed, of which rounding leaves 1e-8 open."""
    angle = 1e-4
    system = elbow(False)
    system = system.with_params({**system.params, "angle": angle})

    @jax.jit
    def acceleration():
        state = jm.as_state(system, angle * jnp.array([1.0, -2.0]), RATE * jnp.array([1.0, -2.0]))
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state))

    out = acceleration()
    np.testing.assert_allclose(out.vdot[0], -(RATE**2) / np.tan(angle), rtol=1e-7)
    assert 1e-9 < out.uncertainty < 1e-7


def test_beside_a_pose_an_acceleration_is_that_between_states_of_the_motion():
    """Of (1 + 3 t) x y = 0 along y = 0, ẍ a polynomial of fifth degree, which samples give exactly; else rounding leaves ε/g² open, or ε/g³ of a row that turns fast."""
    masses, held, v, eps = np.array([0.2, 0.3]), np.array([0.7, -0.4]), np.array([1.3, 2e-4]), np.finfo(float).eps
    usual = {"x": 1e-3, "everywhere": True, "size": 1.0, "across": 0.0, "rough": 0.0, "turns": True, "pace": 3.0}

    def force(t, q, v, p):
        along = jnp.where(v[0] > 0, jnp.abs(q[0] - p["x"] - v[0] * t) < 1e-3, t == 0)
        defined = jnp.where(along & (p["everywhere"] | (t == 0)), p["size"], jnp.nan)
        return defined * jnp.array([40 * v[0] * (1 + t) * (1 + (9 * q[0]) ** 4), p["across"]])

    def rows(t, q, p):
        noise = p["rough"] * jax.lax.stop_gradient(jnp.sin(1e14 * q[1]))
        return jnp.stack([jnp.where(p["turns"], (1 + p["pace"] * t) * q[0], p["x"]) * q[1] + noise, 1.0])

    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.diag(jnp.array(masses)),
        force=force,
        potential=lambda t, q, p: p["size"] * 90 * q[0] * (1 + q[0]),
        constraints=[jm.Holonomic("axes", rows)],
        params=usual,
    )
    scale = jm.system.Scale(*map(jnp.array, ([2.5, 1.0], [0.01, 1.0], [1.2, 0.8], [0.9, 1.0], 4.0)))

    @jax.jit
    def beside(v, direct, params):
        state = jm.State(jnp.zeros(()), jnp.stack([params["x"], 0.0]), v, scale)
        terms = jm.evaluate(system.with_params(params), state)
        terms = dataclasses.replace(terms, force=terms.force + held * params["size"])
        out = _interpolated(jm.formulation.GaussProjection(), terms, jnp.array([True, False]), direct)
        return out.vdot, out.uncertainty

    size = lambda x: np.sqrt(x @ (masses * x))
    near, agreeing = 0.01 * 0.9 / 0.8, eps**0.65 * 1e6 / np.sqrt(masses[0] * masses[1])
    sampled = [
        (100.0, {"rough": 4e-16}),
        (1.2 * 177.4 * eps**0.55, {}),
        (1.1 * agreeing, {"across": 1e6}),
        (1.0, {"x": 0.99 * near}),
    ]
    agree = [(0.9 * 177.4 * eps**0.55, {}), (0.9 * agreeing, {"across": 1e6})]
    unknown = [
        {"everywhere": False},
        {"rough": 1e-13},
        {"rough": 1e-13, "size": 0.0},
        {"rough": 1e-13, "size": 1e-3},
        {"rough": 1e-13, "across": 1e3},
    ]
    unknown, far = [*unknown, {"turns": False}], [(1.0, {"x": 1.01 * near})]
    for off, params in (*sampled, *agree, *far, *((p.get("size", 1.0), p) for p in unknown)):
        p = usual | params
        along = 40 * v[0] * (1 + (9 * p["x"]) ** 4) - 90 * (1 + 2 * p["x"])
        total = p["size"] * (np.array([along, p["across"]]) + held)
        exact = np.array([total[0] / masses[0], 0.0])
        direct = exact + np.array([off, 0.0])
        vdot, uncertainty = beside(*jax.tree.map(jnp.asarray, (v, direct, p)))
        if (off, params) in sampled:
            np.testing.assert_allclose(vdot, exact, rtol=5e-9, atol=1e-10)
        else:
            np.testing.assert_array_equal(vdot, direct)
        g = 0.8 * p["x"] / 0.9
        typical = max(size(direct), np.linalg.norm(total / np.sqrt(masses)))
        turning = p["turns"] * size((v[::-1] + np.array([0.0, 3 * p["x"]])) / masses) / 2.5
        left = eps / g**2 * max(1, size(v) * turning / (g * (typical or 1)))
        expected = left if params in unknown else 0.0 if (off, params) in far else size(v * [0, 1]) / size(v)
        np.testing.assert_allclose(uncertainty, expected, rtol=1e-9)
    found = beside(jnp.zeros(2), jnp.array([1.0, 0.0]), jax.tree.map(jnp.asarray, usual | {"pace": 0.0}))
    np.testing.assert_allclose(found[0], [(0.7 - 90 * (1 + 2e-3)) / 0.2, 0.0], rtol=1e-9, atol=1e-12)
    assert found[1] == 0


@pytest.mark.parametrize("fixed", [(), (0,)])
def test_a_state_beside_a_pose_is_refined_by_states_further_along_the_motion(fixed):
    """To 1e-11 of velocities that rounding leaves open by 1e-8; held ones stay, and so do states that are far from it or without such a motion.

    Or where one row is off by more than rounding, at the state or at those further along.
    """
    ways, end = jnp.array([1.0, -2.0]), elbow(True).constraints[0].fn

    def noisy(t, q, p):
        noise = jnp.where(p["at"], t == 0, (t != 0) * jnp.sin(1e14 * q[0]))
        return end(t, q, p) + jnp.array([1.0, 0.0]) * jax.lax.stop_gradient(p["error"] * noise)

    system = elbow(True).with_constraints([jm.Holonomic("end", noisy)], [2])

    @jax.jit
    @jax.vmap
    def found(angle, off, smooth, error, at):
        here = system.with_params({"angle": angle, "smooth": smooth, "error": error, "at": at})
        state = jm.as_state(here, (angle + 1e-3 * off) * ways, (RATE + off) * ways)
        return *refined(here, Guess(state.t, state.q, state.v, fixed, fixed), state), state.q, state.v

    usual = (1e-3, 1e-8, True, 0.0, False)
    refined_ones = [
        (1e-4, *usual[1:]),
        usual,
        (1e-3, 0.0, *usual[2:]),
        (*usual[:3], 2e-15, False),
        (*usual[:3], 2e-15, True),
    ]
    # The smallest remainder is about 1.7 times the angle, and counts from a two-hundredth on.
    refined_ones += [(2.85e-3, *usual[1:])]
    others = [
        (6e-3, *usual[1:]),
        (0.3, *usual[1:]),
        (1e-3, 1e-8, False, 0.0, False),
        (*usual[:3], 1e-11, False),
        (*usual[:3], 1e-11, True),
    ]
    cases, count = [np.array(x) for x in zip(*refined_ones, *others, strict=True)], len(refined_ones)
    q, v, given_q, given_v = map(np.asarray, found(*map(jnp.asarray, cases)))
    angles, error = cases[0][:count, None], cases[3][:count, None]
    if fixed:  # exactly; the other one follows it
        np.testing.assert_array_equal([q[:, 0], v[:, 0]], [given_q[:, 0], given_v[:, 0]])
        np.testing.assert_allclose(v[:count, 1], -2 * v[:count, 0], atol=1e-10)
    else:
        # Where samples are the row that is off is a fiftieth of what it is elsewhere.
        assert (np.abs(q[:count] - angles * ways) <= 1e-13 + 200 * error).all()
        np.testing.assert_allclose(v[:count], [RATE * ways] * count, rtol=0, atol=1e-10)
    np.testing.assert_array_equal([q[count:], v[count:]], [given_q[count:], given_v[count:]])


def test_a_guess_that_was_moved_beside_a_pose_says_so():
    """Also where only its velocities were; one that was not, or that is far from the pose, does not."""
    ways = jnp.array([1.0, -2.0])

    @jax.jit
    @jax.vmap
    def beside(angle, off):
        here = elbow(True).with_params({**elbow(True).params, "angle": angle})
        return solve_guess(here, Guess(jnp.zeros(()), angle * ways, RATE * ways + off)).beside

    assert beside(*map(jnp.array, ([1e-3, 1e-3, 0.3], [1e-3, 0.0, 1e-3]))).tolist() == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["relative", "absolute"])
@pytest.mark.parametrize("rate", [-3.0, 0.0])
def test_four_bars_moved_by_assembly_beside_their_flat_pose(coordinates, rate):
    """The crank's angle and rate are held, the others come from rough guesses."""
    angles = np.array([1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    q, v, crank = parallelogram_state(coordinates, angles, rate)
    rough = np.random.default_rng(2).uniform(-1e-4, 1e-4, (2, *q.shape))
    rough[:, :, crank] = 0
    state, out = accelerations(four_bars(coordinates), angles, q + rough[0], v + rate * rough[1], (crank,))
    assert bool(jnp.all(out.result == jm.RESULTS.successful))
    np.testing.assert_allclose(state.q[:, crank], angles, rtol=1e-12)
    # Rounding of poses is eps/angle across the flat pose, and turns the coupler by the rate times that over the angle.
    across = np.where(angles >= 1e-3, abs(rate) * np.finfo(float).eps / angles**2, 0)
    assert (abs(state.v - v) <= (1e-10 + across)[:, None]).all()
    np.testing.assert_allclose(out.vdot[:, crank], four_bar_accelerates(angles), rtol=1e-8)


@pytest.mark.parametrize("off", [1e-9, pytest.param(1e-4, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_velocities_that_are_off_the_motion(off):
    """Within 1e-6 v̇ is that of the motion, with what v is off by; beyond, the state is told not to determine it."""
    system, angles = four_bars("relative"), np.array([1e-6, 1e-5, 1e-4, 1e-3])
    q, v, _ = parallelogram_state("relative", angles, -3.0)
    scale = jm.as_state(system, q[0], v[0]).scale
    of = lambda q, v: jm.formulation.GaussProjection().acceleration(
        jm.evaluate(system, jm.State(jnp.zeros(()), q, v, scale))
    )
    out = jax.jit(jax.vmap(of))(jnp.asarray(q), jnp.asarray(v * np.array([1.0, 1 + off, 1 - off])))
    np.testing.assert_allclose(out.vdot[:, 0], four_bar_accelerates(angles), rtol=1e-8 if off < 1e-6 else off)
    good = jm.RESULTS.successful if off < 1e-6 else jm.RESULTS.ill_conditioned_state
    assert bool(jnp.all(out.result == good))
    assert ((out.uncertainty > off / 10) & (out.uncertainty < 10 * off)).all()


@pytest.mark.slow
def test_derivatives_beside_the_flat_pose():
    """By gravity, to which the acceleration is proportional, and by the crank's angle d, where rounding over d² leaves it known."""
    system = four_bars("relative")

    def crank(scale, angle):
        here = system.with_params(jax.tree.map(lambda x: x, system.params))
        here = eqx.tree_at(lambda s: s.params.gravity, here, scale * system.params.gravity)
        q, v = angle * jnp.array([1.0, -1.0, 1.0]), jnp.array([-3.0, 3.0, -3.0])
        state = jm.assemble(here, q, v, hold=["A"], hold_velocity=["A"])
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(here, state)).vdot[0]

    slopes = jax.jit(jax.grad(crank, argnums=(0, 1)))
    for angle in (1e-5, 1e-3, 1e-2):
        by_gravity, by_angle = slopes(jnp.array(1.0), jnp.array(angle))
        np.testing.assert_allclose(by_gravity, four_bar_accelerates(angle), rtol=1e-8)
        if angle > 1e-4:
            np.testing.assert_allclose(by_angle, -four_bar_accelerates(np.pi / 2 - angle), atol=1e-7)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e6])
def test_how_fast_a_remainder_grows_is_that_of_what_the_row_has_beside_the_others(unit):
    """φ₂ − φ₁ = δ y: along the directions of rows that are not close to being dependent it may turn as it likes; the third row has a unit of its own."""
    delta, scale, rates = (
        1e-6,
        jnp.array([1.0, 1.0, unit]),
        jnp.array([[0.0, 2.0, 3.0, 5.0], [7.0, 8.0, 7.0, 9.0], [0.0, 0.0, 0.0, 1.0]]),
    )
    rows = jnp.array([[1.0, 0.0, 0.0, 0.0], [1.0, delta, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    rows, rates = scale[:, None] * rows, scale[:, None] * rates
    factor = jm.linalg.ConstrainedFactor(jnp.eye(4), rows, scale, jnp.ones(3, bool), rank_tol=1e-9)
    speeds, growing = growth(factor, rates, factor.remainders < 1e-3)
    np.testing.assert_allclose(speeds[1], np.hypot(8.0 - 2.0, 7.0 - 3.0), rtol=1e-9)
    assert growing.tolist() == [False, True, False]


def test_rows_in_use_are_certain_where_they_are_far_from_dependent_and_the_others_follow():
    ones = jnp.ones(3)
    scale = jm.system.Scale(ones, ones, ones, ones, jnp.ones(()))

    @jax.jit
    def certain(in_use, off):
        rows = jnp.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [1.0, 0.0, 0.0]]).at[2, 2].set(off)
        terms = jm.system.Terms(jnp.eye(3), jnp.zeros(3), rows, 0 * ones, 0 * ones, ones)
        return certify_dense(scale, jm.linalg.ConstrainedFactor(jnp.eye(3), rows, ones, in_use), terms, 2.5e-7)

    both, cut = (True, True, False), 2.5e-7
    cases = {(both, 0.9 * cut): True, (both, 1.1 * cut): False}
    cases |= {((True, False, False), 0.0): False, ((True, False, True), 1e-6): False}
    assert {(rows, off): bool(certain(jnp.array(rows), off)) for rows, off in cases} == cases


def test_rows_are_certain_if_they_are_far_from_dependent_in_the_metric_of_the_mass_or_by_lengths():
    """Two rows that share a coordinate: nearly parallel where all the others count little beside that one."""
    rows, ones = jnp.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]), jnp.ones(2)
    size = lambda root: jnp.linalg.norm(rows @ root, axis=1)

    @jax.jit
    def certain(light, long):
        mass, reach = jnp.array([light**2, 1.0, 1.0]), jnp.array([long, 1.0, 1.0])
        root = jnp.diag(1 / jnp.sqrt(mass))
        scale = jm.system.Scale(size(root), ones, reach, size(jnp.diag(reach)), jnp.ones(()))
        terms = jm.system.Terms(jnp.diag(mass), jnp.zeros(3), rows, 0 * ones, 0 * ones, scale.row)
        factor = jm.linalg.ConstrainedFactor(jnp.diag(mass), rows, scale.row, jnp.ones(2, bool))
        return certify_dense(scale, factor, terms, 2.5e-7)

    cases = {(1.0, 1.0): True, (1e-4, 1.0): True, (1.0, 1e4): True, (1e-4, 1e4): False}
    assert {case: bool(certain(*case)) for case in cases} == cases


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e6])
def test_rows_close_to_being_dependent_are_at_rest_where_their_combination_holds_to_rounding(unit):
    """φ₁ = x and φ₂ = x + δ y in units of their own: what rounding leaves of φ₂ − φ₁ a correction would divide by δ."""
    delta, units, spans, rate = 1e-6, jnp.array([1.0, unit]), jnp.array([0.3, 0.5]), 0.7
    rows = units[:, None] * jnp.array([[1.0, 0.0], [1.0, delta]])
    scale = jm.system.Scale(units, units * spans, jnp.ones(2), units, jnp.array(rate))
    factor = jm.linalg.ConstrainedFactor(jnp.eye(2), rows, units, jnp.ones(2, bool))
    eps = jnp.finfo(float).eps
    least = eps**0.75 * 0.5  # relative to the span of the row, however large those of others are
    # Not quite as close to being dependent, a row is off by what a correction would make four units of rounding of.
    apart = units[:, None] * jnp.array([[1.0, 0.0], [1.0, 9e-4]])
    near, units_of = jm.linalg.ConstrainedFactor(jnp.eye(2), apart, units, jnp.ones(2, bool)), 0.8 * eps / 9e-4
    for part, held in ((3.9, True), (4.1, False)):
        off = units * jnp.array([0.0, part * units_of])
        assert at_rest(scale, near, off, 0 * off).tolist() == [False, held]
    for part, held in ((0.9, True), (1.1, False)):
        # Of residuals that all rows share nothing is left in their combination.
        off = units * (1e-3 + jnp.array([0.0, part * least]))
        for residuals in ((off, 0 * off), (0 * off, rate * off)):
            assert at_rest(scale, factor, *residuals).tolist() == [False, held]
    assert at_rest(scale, factor, 0 * off, 0 * off).tolist() == [False, True]
    # At rest without forces there is no rate: a velocity of any size is one, in any unit of time.
    resting = dataclasses.replace(scale, rate=jnp.zeros(()))
    for size in (1e-30, 1e-3, 1e30):
        assert not at_rest(resting, factor, 0 * off, size * jnp.array([0.0, 1.0])).any()
    assert at_rest(resting, factor, 0 * off, 0 * off).tolist() == [False, True]
    # A body so light makes all rows parallel in the metric of M: rows that lengths keep apart are not close to being dependent.
    apart, light = units[:, None] * jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.diag(jnp.array([1e-10, 1.0]))
    factor = jm.linalg.ConstrainedFactor(light, apart, units * 1e5, jnp.ones(2, bool))
    assert not at_rest(scale, factor, 0 * off, 0 * off).any()


def light_and_far(left, light):
    """Two rows x and x + `left` y of a plane and their factor; `light` shrinks what is left in the metric of M, and not by lengths."""
    ones, rows = jnp.ones(2), jnp.array([[1.0, 0.0], [1.0, left]])
    scale = jm.system.Scale(ones, ones, ones, ones, jnp.ones(()))
    return scale, jm.linalg.ConstrainedFactor(jnp.diag(jnp.array([1.0, light])), rows, ones, jnp.ones(2, bool), 0.0)


def test_states_of_an_interpolation_are_apart_by_what_rows_get_further_by(monkeypatch):
    """A part of the nearness that counts, by the speed of the slowest that grows; that is thirty times what the state is off, within bounds."""
    spans, scale = jnp.array([2.0, 4.0]), light_and_far(1.0, 1.0)[0]
    field = SimpleNamespace(system=None, scale=dataclasses.replace(scale, span=spans))
    y, speeds = StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(())), jnp.array([3.0, 5.0])
    monkeypatch.setattr(vector_field, "jacobian_rate", lambda *_: None)

    def spacing(left, light, off, grows=(True, True)):
        monkeypatch.setattr(vector_field, "position_residual", lambda *_: off * spans * jnp.array([0.5, -1.0]))
        monkeypatch.setattr(vector_field, "growth", lambda factor, rate, near: (speeds, near & jnp.array(grows)))
        return float(VectorField._spacing(field, jnp.zeros(()), y, light_and_far(left, light)[1]))

    part, off = vector_field.SPACING, 0.3 * NEAR / 30
    for case, expected in (
        ((0.99 * CLOSE, 1.0, 0.0), part * CLOSE / 5),
        ((1.01 * CLOSE, 1.0, 0.0), 0),
        ((0.99 * 30 * off, 1.0, off), part * 30 * off / 5),
        ((1.01 * 30 * off, 1.0, off), 0),
        ((0.33 * NEAR, 1.0, 1.0), part * NEAR / 3 / 5),
        ((0.34 * NEAR, 1.0, 1.0), 0),
        ((0.3, 1e8, 0.0), 0),  # near in one metric only
        ((0.5 * CLOSE, 1e-8, 0.0), 0),
        ((0.5 * CLOSE, 1.0, 0.0, (True, False)), 0),  # the one that is near does not grow
    ):
        np.testing.assert_allclose(spacing(*case), expected, rtol=1e-12)


def test_rows_are_as_far_from_being_dependent_as_the_kinder_of_two_metrics_says():
    for left, light, distance in ((0.3, 1.0, 0.3), (0.3, 1e4, 0.3), (0.003, 1e-4, 0.3)):
        scale, factor = light_and_far(left, light)
        np.testing.assert_allclose(distance_to_dependence(scale, factor), distance, rtol=1e-12)
        np.testing.assert_allclose(factor.gap, left / np.sqrt(light), rtol=1e-12)
        np.testing.assert_allclose(by_lengths(scale, factor).remainders, [1.0, left], rtol=1e-12)
        np.testing.assert_allclose(directions(scale, factor), np.eye(2), atol=1e-12)
    ones = jnp.ones(2)
    lost = jm.linalg.ConstrainedFactor(jnp.eye(2), jnp.array([[1.0, 0.0], [1.0, 0.0]]), ones, jnp.ones(2, bool))
    assert by_lengths(scale, lost).gap == lost.gap == 0  # dependent whatever measures lengths


def plain_field(rank_tol=2.5e-7):
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("x", lambda t, q, p: q[:2])])
    ones = jnp.ones(2)
    scale, formulation = jm.system.Scale(ones, ones, ones, ones, jnp.ones(())), jm.formulation.GaussProjection(rank_tol)
    return VectorField(system, formulation, jm.Projection(), None, scale, consistent=jnp.array(True), choice=None)


def sparse_pair(left, dtype=float):
    """The factor of the same rows, x and x + `left` y, by a layout: ‖W‖² = 2/left² + 1."""
    layout = jm.linalg.Layout.of(np.eye(2, dtype=bool), np.array([[1, 0], [1, 1]], bool))
    rows = jm.linalg.SparseRows.from_dense(layout, jnp.array([[1.0, 0.0], [1.0, left]], dtype))
    mass, ones = jm.linalg.BlockMatrix.from_dense(layout, jnp.eye(2, dtype=dtype)), jnp.ones(2, dtype)
    return jm.linalg.SparseFactor(mass, rows, ones, jnp.ones(2, bool))


def test_rows_of_many_bodies_are_certain_by_remainders_and_by_the_norm_that_makes_them_orthonormal():
    """The norm is bounded by half the inverse of the cut-off too, and by what the precision of its square allows."""
    norm, bound = float(np.sqrt(2 / 0.01**2 + 1)), 0.3 / np.sqrt(np.finfo(np.float32).eps)

    @jax.jit
    def found():
        field, factor = plain_field(), sparse_pair(0.01)
        of = lambda left: certify_sparse(field, sparse_pair(left, jnp.float32), 0.0, 1e9)
        bounds = (0.0099, 1.01 * norm), (0.0101, 1.01 * norm), (0.0099, 0.99 * norm)
        single = [of(np.sqrt(2) / (part * bound)) for part in (0.9, 1.1)]
        loose = [certify_sparse(plain_field(part / norm), factor, 0.0, 1e9) for part in (0.49, 0.51)]
        terms = jm.system.Terms(jnp.eye(2), jnp.zeros(2), jnp.eye(2), *[jnp.ones(2)] * 3)
        few = [certify(field, sparse_pair(left), terms) for left in (0.03, 0.01)]  # near below 0.02, of few rows
        # At a norm of a thousand of few rows, in either algebra, and of ten thousand of many.
        apart = lambda norm: float(np.sqrt(2 / (norm**2 - 1)))
        pairs = [[apart(0.9995 * norm), apart(1.00005 * norm)] for norm in (1e3, 1e4)]
        bounded = [certify_sparse(field, sparse_pair(left), 0.0) for left in pairs[1]]
        rows = [terms.jacobian.at[1].set(jnp.array([1.0, left])) for left in pairs[0]]
        for own in (dataclasses.replace(terms, jacobian=x) for x in rows):
            factor_of = jm.linalg.ConstrainedFactor(own.mass, own.jacobian, jnp.ones(2), jnp.ones(2, bool), 0.0)
            bounded.append(certify_dense(field.scale, factor_of, own, 2.5e-7, 1e-4))
        lost = [field.loses_rows(sparse_pair(left)) for left in (0.03, 0.01)]
        lost += [field.loses_rows(light_and_far(part * 2.5e-7, 1.0)[1]) for part in (4.1, 3.9)]
        return [certify_sparse(field, factor, *x) for x in bounds], single, loose, few, bounded, lost

    two = [True, False]
    assert jax.tree.map(bool, found()) == ([True, False, False], two, two, two, two * 2, [False, True, False, True])


def crossing():
    """φ = x, x + y z, of which at y = 0 the second one is z away from following from the first, with all sizes of one."""
    rows = jm.Holonomic("rows", lambda t, q, p: jnp.stack([q[0], q[0] + q[1] * q[2]]))
    ones = jnp.ones(2)
    scale = jm.system.Scale(ones, 2 * ones, jnp.ones(3), ones, jnp.array(4.0))
    return jm.System(3, mass=lambda t, q, p: jnp.eye(3), constraints=[rows]), scale


def test_the_way_away_from_a_pose_is_that_of_the_motion_or_another_one_where_the_motion_leads_along_poses():
    """Of φ = x, x + y z what is left of the second row grows by ż."""
    (system, _), near, left = crossing(), 0.02, 1e-3

    @jax.jit
    def away(left, v):
        state = jm.as_state(system, jnp.stack([0.0, 0.0, left]), v, length=1.0)
        terms = jm.evaluate(system, state)
        factor = jm.linalg.ConstrainedFactor(terms.mass, terms.jacobian, jnp.ones(2), jnp.ones(2, bool), 0.0)
        return away_from_pose(terms.nearby, factor, near)

    for speed in (5.0, -5.0, 0.01):
        direction, steps = away(left, jnp.array([0.0, 0.0, speed]))
        np.testing.assert_allclose(direction, [0.0, 0.0, speed])
        np.testing.assert_allclose(steps, [2 * near / abs(speed)] * 2, rtol=1e-9)
    direction, (time, step) = away(left, jnp.zeros(3))
    np.testing.assert_allclose(direction[:2], 0, atol=1e-9)
    np.testing.assert_allclose([time, step * abs(direction[2])], [0, 2 * near], rtol=1e-9)
    assert away(1.1 * near, jnp.array([0.0, 0.0, 5.0]))[1] == (0, 0)  # no row is near


def test_a_row_that_is_off_where_a_correction_begins_is_corrected_and_one_at_rest_has_no_part_in_it():
    """Of x and x + y z at z = 1e-4: y is brought to zero, and where it is that already a change of it stays, as of a row that is not in use."""
    (system, scale), method, both = crossing(), jm.formulation.GaussProjection(), jnp.ones(2, bool)

    @jax.jit
    def corrected(q):
        state = jm.State(jnp.zeros(()), q, jnp.zeros(3), scale)
        terms = rows_at(system, state.t, q, scale.row)
        return correct_by(method.factorise(terms, both), system, method, state, terms, 2)

    found, rest = corrected(jnp.array([1e-6, 1e-6, 1e-4]))
    np.testing.assert_allclose(found.q, [0.0, 0.0, 1e-4], rtol=0, atol=2e-8)
    np.testing.assert_allclose(found.position, 0, atol=1e-14)
    assert found.in_use.all() and not rest.any()
    found, rest = corrected(jnp.array([0.0, 0.0, 1e-4]))
    assert rest.tolist() == [False, True] and found.in_use.tolist() == [True, False]
    # Where a row is found at rest nothing is moved yet, whatever the other is off by.
    found, _ = corrected(jnp.array([1e-6, 0.0, 1e-4]))
    np.testing.assert_allclose([*found.q, *found.position], [1e-6, 0.0, 1e-4, 1e-6, 1e-6], rtol=1e-12)

    @jax.jit
    def slope(q, in_use):
        state = jm.State(jnp.zeros(()), q, jnp.zeros(3), scale)
        moved = lambda q: (
            linearise_correction(system, method, state, state, in_use)(system, dataclasses.replace(state, q=q)).q
        )
        return jax.jvp(moved, (q,), (jnp.array([1.0, 1.0, 1.0]),))[1]

    np.testing.assert_allclose(slope(jnp.array([0.0, 0.0, 1e-4]), both), [0.0, 1.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(slope(jnp.array([0.0, 0.0, 0.5]), both.at[1].set(False)), [0.0, 1.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(slope(jnp.array([0.0, 0.0, 0.5]), both), [0.0, 0.0, 1.0], atol=1e-12)


def test_a_correction_solves_its_equations_and_has_their_derivative():
    """q − M⁻¹Cᵀλ on the arc and v − M⁻¹Cᵀμ along the blade there, M and C at the given state, which is 1e-3 off: so is the derivative, at most."""
    mass = lambda q: jnp.diag(2 + q**2) + 0.5 * jnp.cos(q[0])
    slips = lambda q: jnp.stack([-1.0, q[0], 0.3 * q[2]])
    arc = jm.Holonomic("arc", lambda t, q, p: 7 * (q @ q - p**2))
    blade = jm.Pfaffian("blade", lambda t, q, v, p: slips(q) @ v + 0.2)
    system = jm.System(3, mass=lambda t, q, p: mass(q), constraints=[arc, blade], params=1.0)
    method, both = jm.formulation.GaussProjection(), jnp.ones(2, bool)
    scale = jm.system.Scale(jnp.ones(2), jnp.ones(2), jnp.ones(3), jnp.ones(2), jnp.array(4.0))

    @jax.jit
    def found(q, v, size):
        here, state = system.with_params(size), jm.State(jnp.zeros(()), q, v, scale)
        end = correct(here, method, state, both, 2)
        there = dataclasses.replace(state, q=end.q, v=end.v)

        def moved(q, v, size):
            linear_map = linearise_correction(here, method, state, there, both)
            state_there = linear_map(system.with_params(size), dataclasses.replace(state, q=q, v=v))
            return jnp.concatenate([state_there.q, state_there.v])

        ends = jnp.concatenate([end.q, end.v]), jnp.concatenate([end.position, end.velocity])
        return *ends, *jax.jvp(moved, (q, v, size), tuple(ways))

    def exact(q, v, size):
        ways, multiplier = jnp.linalg.solve(mass(q), jnp.stack([14 * q, slips(q)], axis=1)), 0.0
        for _ in range(6):
            there = q - ways[:, 0] * multiplier
            multiplier += 7 * (there @ there - size**2) / (14 * there @ ways[:, 0])
        there = q - ways[:, 0] * multiplier
        rows = jnp.stack([14 * there, slips(there)])
        return jnp.concatenate([there, v - ways @ jnp.linalg.solve(rows @ ways, rows @ v + jnp.array([0.0, 0.2]))])

    q, v = np.array([0.6, 0.64, 0.48]) + 1e-3 * np.array([1.0, -0.3, 0.7]), np.array([0.3, -0.8, 0.5])
    at, ways = (
        [jnp.asarray(x) for x in (q, v, 1.0)],
        [jnp.asarray(x) for x in ([0.7, -0.4, 1.1], [0.3, 0.8, -0.6], 0.9)],
    )
    value, left, again, slope = found(*at)
    np.testing.assert_allclose(
        [value, again], [exact(*at)] * 2, rtol=0, atol=1e-7
    )  # two steps: each leaves a thousandth
    there, rate = value[:3], value[3:]
    off = [7 * (there @ there - 1), 0.0, 14 * there @ rate, slips(there) @ rate + 0.2]
    np.testing.assert_allclose(left, off, rtol=0, atol=1e-14)
    np.testing.assert_allclose(slope, jax.jvp(exact, tuple(at), tuple(ways))[1], rtol=0, atol=3e-4)


def test_a_sample_lies_on_the_constraints_of_positions_by_the_shortest_way_and_its_velocity_along_all():
    """The nearest point of a circle, whatever a blade allows; the speed round it that the blade prescribes."""
    circle = jm.Holonomic("circle", lambda t, q, p: q @ q - 1.0)
    blade = jm.Pfaffian("blade", lambda t, q, v, p: v[0] - 0.3)
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[circle, blade])

    @jax.jit
    def found(q):
        state = jm.as_state(system, jnp.array([0.6, 0.8]), jnp.array([0.3, -0.2]), length=1.0)
        both = jnp.ones(2, bool)
        return _onto(jm.formulation.GaussProjection(), jm.evaluate(system, state), both, state.t, q)

    q, v = found(jnp.array([0.63, 0.79]))
    nearest = np.array([0.63, 0.79]) / np.hypot(0.63, 0.79)
    np.testing.assert_allclose(q, nearest, rtol=0, atol=1e-12)
    np.testing.assert_allclose(v, [0.3, -0.3 * nearest[0] / nearest[1]], rtol=0, atol=1e-12)


def test_a_correction_is_made_again_while_rows_are_left_alone_and_until_it_has_begun_on_the_constraints(monkeypatch):
    """The latter close to dependent rows, or once it is made again at all; four times at most. Rows that were left alone once stay so."""
    (system, scale), method, calls = crossing(), jm.formulation.GaussProjection(), 5
    scale = dataclasses.replace(scale, span=jnp.array([0.01, 0.02]))
    monkeypatch.setattr(correction, "rows_at", lambda *_: None)
    monkeypatch.setattr(jm.formulation.GaussProjection, "factorise", lambda self, terms, in_use: in_use)

    @jax.jit
    @jax.vmap
    def made(near, off, rests):
        count = lambda q: q[0].astype(int)
        state = jm.State(jnp.zeros(()), jnp.zeros(3), jnp.zeros(3), scale)
        monkeypatch.setattr(correction, "distance_to_dependence", lambda *_: jnp.where(near, 0.019, 0.021))
        monkeypatch.setattr(correction, "position_residual", lambda system, t, q: scale.span * off[count(q)])

        def by(factor, system, method, state, terms, iterations):
            rest = rests[count(state.q)]
            return Correction.none(state.q + 1, state.v, factor & ~rest, jnp.zeros((2, 3))), rest

        monkeypatch.setattr(correction, "correct_by", by)
        end = correct(system, method, state, jnp.ones(2, bool), 1)
        return end.q[0], end.in_use

    # What holds to 3e-13 of its size, at both rows, is on the constraints.
    on, off, once = np.array([2e-13, 2e-13]), np.array([0.0, 4e-13]), np.eye(calls, dtype=bool)
    never = np.zeros((calls, 2), bool)
    tables = [[on] * calls, [off] * calls, [off, on, on, on, on], [off, off, on, on, on], [on, off, on, on, on]]
    rests = [never, once[:, [0, 4]], once[:, :2], once[:, [1, 1]], once[:, [3, 2]], once[:, [0, 1]] | once[:, [2, 0]]]
    cases = [*itertools.product((True, False), tables, rests)]
    found = made(*(jnp.asarray(np.array(x)) for x in zip(*cases, strict=True)))
    for (near, off, rest), count, in_use in zip(cases, *map(np.asarray, found), strict=True):
        expected, again = 0, True
        while again and expected < 4:
            again = rest[expected].any() or ((near or expected > 0) and np.max(off[expected]) > 3e-13)
            expected += 1
        assert count == expected and in_use.tolist() == (~rest[:expected].any(axis=0)).tolist()
    assert {int(x) for x in found[0]} == {1, 2, 3, 4}


def test_a_vector_field_beside_a_pose_is_that_of_corrected_states_along_the_motion(monkeypatch):
    """At ±τ, ±2τ and ±3τ, not at the state itself; where τ is zero that of the corrected state. A velocity turns that differs by a tenth from theirs."""
    field, t0, q, v = plain_field(), 0.7, np.array([0.3, -0.2]), np.array([1.0, 0.0])
    factor = jm.linalg.ConstrainedFactor(jnp.diag(jnp.array([1.0, 4.0])), jnp.eye(2), jnp.ones(2), jnp.ones(2, bool))
    flow = lambda t, q, v: np.array([1, 2, 3, 4, 5]) * np.sin(t + q[0]) + q[1] * v[1]

    @jax.jit
    def beside(tau, aside, ends):
        def corrected(self, t, y, in_use):
            along = jnp.abs(y.q[0] - q[0] - (t - t0)) < 1e-14
            moved = y.with_qv(2 * y.q, jnp.where(along, y.v + jnp.stack([0.0, aside]), jnp.nan))
            return moved, Correction.none(100 * t + y.q, y.v, in_use, end.basis)

        def evaluated(self, t, y, in_use, quick=False):
            there = jnp.where((t == t0) & (tau > 0), jnp.nan, jnp.sin(t + y.q[0]))
            return y.like(jnp.arange(1.0, 6.0) * there + y.q[1] * y.v[1]), None, None

        for name, piece in (("_spacing", lambda *_: tau), ("corrected", corrected), ("evaluate_regular", evaluated)):
            monkeypatch.setattr(VectorField, name, piece)
        y, in_use = StateVector.of(jnp.asarray(q), jnp.asarray(v), jnp.zeros(())), jnp.ones(2, bool)
        end = Correction.none(y.q, y.v, in_use, jnp.zeros((2, 2)))
        found = field.evaluate_near_singular(jnp.asarray(t0), y, in_use, factor, ends, end)
        return found[0].packed, found[1], found[2], found[3].q

    for tau, aside, ends in itertools.product((0.0, 0.02), (0.049, -0.051), (False, True)):
        found = beside(*map(jnp.array, (tau, aside, ends)))
        at = [(tau * x, w) for x, w in zip(OFFSETS, WEIGHTS, strict=True)] if tau else [(0.0, 1.0)]
        expected = sum(w * flow(t0 + x, 2 * (q + x * v), v + np.array([0, aside])) for x, w in at)
        np.testing.assert_allclose(found[0], expected, rtol=1e-12)
        assert found[1] == tau and bool(found[2]) == (tau > 0 and abs(aside) > 0.05)
        np.testing.assert_allclose(found[3], 100 * t0 + q if ends else q, rtol=1e-14)


def test_between_samples_any_polynomial_of_fifth_degree_has_its_value():
    np.testing.assert_allclose(np.array(WEIGHTS) @ np.vander(OFFSETS, 6, increasing=True), np.eye(6)[0], atol=1e-15)


def test_samples_of_a_stage_lie_as_far_along_the_motion_as_the_state_asks_for_that_is_off():
    """2.5 times to where what is left of a row is 30 times what the state is off by, or a thousandth at least and a fiftieth of a third at most."""
    system, scale = crossing()
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, scale, jnp.array(True), None
    field = VectorField(system, *parts)

    @jax.jit
    @jax.vmap
    def spacing(left, off, speed):
        q, v = jnp.stack([2 * off, 0.0, left]), jnp.stack([0.0, 0.0, speed])
        y = StateVector.of(q, v, jnp.zeros(()))
        factor = field.formulation.factorise(rows_at(system, jnp.zeros(()), q, scale.row), jnp.ones(2, bool))
        return field._spacing(jnp.zeros(()), y, factor)

    cases = {
        (1e-4, 0.0, 5.0): 2.5e-3 / 5,
        (1e-4, 1e-4, -5.0): 2.5 * 3e-3 / 5,
        (1e-4, 0.1, 5.0): 2.5 * 0.02 / 3 / 5,
        (2e-3, 0.0, 5.0): 0.0,
        (2e-3, 1e-4, 5.0): 2.5 * 3e-3 / 5,
        (1e-4, 0.0, 0.0): 0.0,
    }
    found = spacing(*map(jnp.array, zip(*cases, strict=True)))
    np.testing.assert_allclose(found, list(cases.values()), rtol=1e-9)
    correction = dataclasses.replace(
        Correction.none(jnp.zeros(3), jnp.zeros(3), jnp.ones(2, bool), jnp.zeros((2, 0))),
        position=jnp.array([-1e-11, 1e-12]),
        velocity=jnp.array([1e-12, -1e-10]),
    )
    np.testing.assert_allclose(field.relative_residuals(correction), [0.5e-11, 1e-10 / 4 / 2], rtol=1e-12)
    # Velocities relative to how fast the motion goes there, where that is faster than at its start.
    correction = dataclasses.replace(correction, v=-80 * scale.reach)
    np.testing.assert_allclose(field.relative_residuals(correction), [0.5e-11, 1e-10 / 80 / 2], rtol=1e-12)


def test_where_no_motion_leads_away_from_a_pose_rounding_leaves_that_part_of_an_acceleration_open():
    """ε/g² of rows x + 10 z² and the same with g y, which no motion parts; ε/g² · |v| turning/(g |v̇|) where that is more."""
    gap = 2e-3
    rows = jm.Holonomic("rows", lambda t, q, p: q[0] + 10 * q[2] ** 2 + jnp.array([0.0, gap]) * q[1])
    push = lambda t, q, v, p: jnp.stack([0.0, 0.0, p])
    system = jm.System(3, mass=lambda t, q, p: jnp.eye(3), force=push, constraints=[rows], params=1.0)

    @jax.jit
    def found(force):
        ones, reach = jnp.ones(2), jnp.ones(3)
        scale = jm.system.Scale(ones, ones, reach, ones, jnp.ones(()))
        state = jm.State(jnp.zeros(()), jnp.zeros(3), jnp.array([0.0, 0.0, 4.0]), scale)
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(system.with_params(force), state))

    for force in (3.0, 1e9):
        out = found(force)
        typical = max(float(np.linalg.norm(out.vdot)), force)
        expected = np.finfo(float).eps / gap**2 * max(1.0, 4.0 * (20 * 4.0) / (gap * typical))
        np.testing.assert_allclose(out.uncertainty, expected, rtol=1e-6)


def test_samples_that_are_not_on_the_constraints_give_no_acceleration():
    """Rows x − z²/2 and that with y z, of which the first one is noise of 1e-11 but at the state: its own acceleration stays. Noise of 1e-14 is rounding."""

    def rows(t, q, p):
        noise = jnp.where(q[2] == 1e-3, 0.0, p * jnp.sin(1e14 * q[0]))
        return q[0] - q[2] ** 2 / 2 + jnp.stack([jax.lax.stop_gradient(noise), q[1] * q[2]])

    push = lambda t, q, v, p: jnp.array([0.0, 0.0, 3.0])
    noisy = jm.System(
        3, mass=lambda t, q, p: jnp.eye(3), force=push, constraints=[jm.Holonomic("rows", rows)], params=0.0
    )
    q, v = jnp.array([5e-7, 0.0, 1e-3]), jnp.array([5e-3, 0.0, 5.0])

    @jax.jit
    def accelerations(noise):
        terms = jm.evaluate(noisy.with_params(noise), jm.State(jnp.zeros(()), q, v, crossing()[1]))
        own = jm.formulation.GaussProjection().acceleration
        return own(terms), own(dataclasses.replace(terms, nearby=None)).vdot

    found, direct = accelerations(1e-11)
    np.testing.assert_array_equal(found.vdot, direct)
    assert found.uncertainty >= np.finfo(float).eps / 1e-6
    assert accelerations(1e-14)[0].uncertainty < 0.1 * found.uncertainty


def test_beside_a_pose_forces_of_inputs_are_held():
    """Of rows x and x + y z at z = 1e-3, along which the motion goes: z̈ is all that pushes there, of weights, springs and inputs."""
    system, scale = crossing()
    system = jm.System(
        3, mass=lambda t, q, p: jnp.eye(3), potential=lambda t, q, p: 7 * q[2], force=lambda t, q, v, p: jnp.eye(3)[2] * 3.0,
        constraints=system.constraints, actuation=lambda t, q, p: jnp.eye(3)[:, 2:],
    )  # fmt: skip

    @jax.jit
    def found():
        state = jm.State(jnp.zeros(()), jnp.array([0.0, 0.0, 1e-3]), jnp.array([0.0, 0.0, 5.0]), scale)
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state, u=jnp.array([20.0]))).vdot

    np.testing.assert_allclose(found(), [0.0, 0.0, 3 + 20 - 7], atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("inclination", [0.0, 0.0325, 0.07])
def test_a_parallelogram_turns_through_its_flat_poses_at_any_inclination(inclination):
    """In absolute coordinates, without loads: θ = θ₀ + ω t. Where all bars lie next to one axis the rows that become dependent do so by a small part of the last one."""
    P, rate, far, long = jm.planar, 7.0, 1.2, 0.8
    rods = [P.Body.rod("one", 1.0, long), P.Body.rod("coupler", 2.0, far), P.Body.rod("two", 0.7, long)]
    pins = ("ground.a", "one.a"), ("one.b", "coupler.a"), ("coupler.b", "two.b"), ("ground.d", "two.a")
    foot = far * np.array([np.cos(inclination), np.sin(inclination)])
    points = {"a": (0.0, 0.0), "d": tuple(foot)}
    system = P.Mechanism(rods, [P.Revolute(f"pin{k}", *pin) for k, pin in enumerate(pins)], points=points).build(
        "absolute"
    )
    angle = inclination + 1.0
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    one, coupler, two = [*(0.0, 0.0), angle], [*(long * along), inclination], [*foot, angle]
    still, turning = [0.0, 0.0, rate], [*(rate * long * across), 0.0]
    state = jm.assemble(system, jnp.array([*one, *coupler, *two]), jnp.array([*still, *turning, *still]))
    np.testing.assert_allclose(state.q, [*one, *coupler, *two], atol=1e-12)
    solution = jm.simulate(system, state, jnp.linspace(0.0, 2.0, 3))
    np.testing.assert_allclose(solution.q[:, 2], angle + rate * solution.ts, atol=1e-6)
