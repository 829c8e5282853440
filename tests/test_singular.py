"""Redundant rows and singular poses: accelerations, motions and gradients through them, and what is said about them."""

import dataclasses
import functools
from types import SimpleNamespace

import bricard as bricard_model
import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import nfourbar as nfourbar_model
import nfourbar_joints
import numpy as np
import parallelogram
import pytest
import slider_crank as slider_crank_model
from bricard import p3
from nfourbar import pose, reduced_motion
from scipy.integrate import solve_ivp
from slider_crank import acceleration as crank_acceleration
from slider_crank import height, mass
from systems import FORMULATIONS, contradictory

import jaxmb as jm
from jaxmb.foundations import enforce
from jaxmb.kinematics import BESIDE, CLOSE, NEAR, Correction, Rows, choose_rows, correct
from jaxmb.simulation import compiled_run, integration, judgement, passage
from jaxmb.simulation import solver as solver_module
from jaxmb.simulation.compiled_step import StepResult
from jaxmb.simulation.guard import Guard
from jaxmb.simulation.method import Method
from jaxmb.simulation.passage import TRIALS, Path, _SignBracket, _Trial
from jaxmb.simulation.phase import PhaseInputs, Phases
from jaxmb.simulation.regular import regular_states
from jaxmb.simulation.simulate import _check_motion
from jaxmb.simulation.solver import ConstrainedSolver, _certify_end, regular_derivative
from jaxmb.simulation.stages import Stages, Tableau, all_stages
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.step_records import StepAttempt, StepStart, Switches
from jaxmb.simulation.vector_field import RegularOnly, Sample, VectorField
from jaxmb.system import position_residual, residuals

# Built once: programs are compiled for the functions of a system.
bricard, nfourbar, slider_crank = map(
    functools.cache, (bricard_model.bricard, nfourbar_model.nfourbar, slider_crank_model.slider_crank)
)
USUAL = {name: FORMULATIONS[name] for name in ("GaussProjection", "KKT")}


def at(system, scale, t=0.0, formulation=jm.formulation.GaussProjection()):
    """A compiled function from exact coordinates and velocities to the acceleration."""

    @jax.jit
    def found(q, v):
        state = jm.State(jnp.asarray(t), q, v, scale)
        return formulation.acceleration(jm.evaluate(system, state))

    return found


@pytest.mark.parametrize("method", USUAL)
@pytest.mark.parametrize("n", [1, 2, 10])
@pytest.mark.slow_cases("1-KKT")
@pytest.mark.slow
def test_acceleration_at_and_near_the_flat_nfourbar(n, method):
    """That of the smooth motion; the one of least norm is off by 0.6 rad/s² for N = 2."""
    system = nfourbar(n)
    scale = jm.assemble(system, *pose(n, jnp.array(np.pi / 2), jnp.array(-1.0))).scale
    found = at(system, scale, formulation=USUAL[method])
    factor = 9.81 * 3 * (3 * n + 1) / (2 * (4 * n + 1))
    for distance in (0, 1e-12, 1e-10, 1e-8, 1e-7, 3e-7, 4e-7, 5e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        for side in (1, -1):
            out = found(*pose(n, jnp.array(side * distance), jnp.array(-4.0)))
            assert out.result == jm.RESULTS.successful
            np.testing.assert_allclose(out.vdot[2], -factor * np.cos(distance), atol=1e-7)
    exact = found(*pose(n, jnp.array(0.0), jnp.array(-4.0)))
    assert int(exact.rank) == 5 * n + 2 and bool(jnp.any(jnp.isnan(exact.multipliers)))
    np.testing.assert_allclose(exact.vdot[2], -factor, atol=1e-11)


@pytest.mark.slow
def test_least_norm_is_another_acceleration_at_a_singular_pose():
    """What terms know of the rows nearby is for; there is no way to an acceleration of the motion without it."""
    state = jm.assemble(nfourbar(2), *pose(2, jnp.array(0.0), jnp.array(-4.0)))
    bare = dataclasses.replace(jm.evaluate(nfourbar(2), state), nearby=None)
    assert abs(float(jm.formulation.GaussProjection().acceleration(bare).vdot[2]) + 9.81 * 7 / 6) > 0.5


def test_a_row_that_vanishes_without_telling_a_length_is_refused():
    with pytest.raises(ValueError, match=r"Constraint .row. vanishes at this pose.*give `length`"):
        jm.assemble(vanishing(), np.zeros(4), [1.0, 0.0, 0.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5])
def test_acceleration_of_assembled_states_at_and_near_the_flat_nfourbar(n):
    """States that hold to rounding are left as they are: a correction would amplify the rounding."""
    system = nfourbar(n)
    distance = np.concatenate([[0.0], np.logspace(-12, -3, 37)])
    distance = jnp.asarray(np.concatenate([distance, -distance]))

    @jax.jit
    @jax.vmap
    def found(distance):
        q, v = pose(n, distance, jnp.array(-4.0))
        state = jm.assemble(system, q, v)
        return (
            jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state)).vdot[2],
            state.q - q,
            state.v - v,
        )

    vdot, moved, faster = found(distance)
    factor = 9.81 * 3 * (3 * n + 1) / (2 * (4 * n + 1))
    assert not moved.any() and not faster.any()
    np.testing.assert_allclose(vdot, -factor * np.cos(distance), atol=1e-7)


@functools.cache
def beside_the_pose():
    system = slider_crank()
    return jax.jit(jax.vmap(at(system, jm.assemble(system, [0.0, 0.0], [0.0, 0.0]).scale)))


@pytest.mark.parametrize("disturbance", [0.0, 3e-13, -3e-13])
@pytest.mark.slow
def test_slider_crank_near_its_singular_pose(disturbance):
    """At every distance from the pose, with a velocity that is not exact."""
    distance = np.concatenate([[0.0], np.logspace(-13, -3, 101)])
    angle = np.pi / 2 + np.concatenate([distance, -distance])
    q = np.stack([angle, 2 * np.pi - 2 * angle], axis=1)
    v = np.tile([5.0, -10.0 + disturbance], (len(q), 1))
    out = beside_the_pose()(jnp.asarray(q), jnp.asarray(v))
    np.testing.assert_allclose(out.vdot[:, 0], crank_acceleration(angle, 5.0), atol=1e-5)


def curve(t):
    """A motion through the singular pose at t = 0, for a line that moves with it."""
    return jnp.stack([jnp.pi / 2 + 5 * t + t**2 - 2 * t**3, jnp.pi - 9 * t - t**2 / 2 + 3 * t**3])


def velocity(t):
    return jax.jvp(curve, (t,), (jnp.ones_like(t),))[1]


def curve_acceleration(t):
    return jax.jvp(velocity, (t,), (jnp.ones_like(t),))[1]


@functools.cache
def rheonomic():
    """The slider's line moves, and the force drives the links along `curve` without any reaction."""
    free = slider_crank()

    def force(t, q, v, p):
        return mass(t, curve(t), p) @ curve_acceleration(t) - free.intrinsic_force(t, curve(t), velocity(t))

    return slider_crank(lambda t: height(curve(t)), force)


@pytest.mark.slow
def test_rows_that_depend_on_time_are_lost_and_restored():
    system = rheonomic()
    scale = jm.assemble(system, [0.0, 0.0], [0.0, 0.0]).scale

    @jax.jit
    @jax.vmap
    def found(t):
        state = jm.State(t, curve(t), velocity(t), scale)
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state))

    distance = np.concatenate([[0.0], np.logspace(-13, -3, 41)])
    times = jnp.asarray(np.concatenate([distance, -distance]))
    out = found(times)
    exact = jax.vmap(curve_acceleration)(times)
    np.testing.assert_allclose(out.vdot, exact, atol=1e-5)
    assert int(out.rank[0]) == 0


def test_the_vector_field_beside_a_singular_pose_is_interpolated_along_the_motion():
    """By states on the line as it moves, from one that lies off it. A velocity that is not that of the samples tells of a turn; elsewhere there are none.

    The state at which a step ends is brought onto the line, others stay.
    """
    system = rheonomic()

    @jax.jit
    def near(t, part, ends):
        state = jm.assemble(system, curve(t), velocity(t), t=t)
        parts = jm.formulation.GaussProjection(), jm.Projection(), None, state.scale, jnp.array(True), None
        field, in_use = VectorField(system, *parts), jnp.ones(system.m, bool)
        y = StateVector.of(state.q + jnp.array([1e-7, 0.0]), part * state.v, jnp.zeros(()))
        factor = field.evaluate_regular(t, y, in_use)[2]
        end = Correction.none(y.q, y.v, in_use, factor.basis)
        interpolated, tau, turns, end = field.evaluate_near_singular(t, y, in_use, factor, ends, end)
        return interpolated.v, tau, turns, jnp.max(jnp.abs(position_residual(system, t, end.q)))

    t = jnp.array(3e-5)
    for ends in (False, True):
        interpolated, tau, turns, _ = near(t, 1.0, ends)
        np.testing.assert_allclose(interpolated, curve_acceleration(t), rtol=0, atol=1e-5)
        assert tau > 1e-4
        assert not turns and near(t, 0.5, ends)[2]
    far = jnp.array(0.3)
    np.testing.assert_allclose(near(far, 1.0, False)[0], curve_acceleration(far), rtol=0, atol=1e-5)
    assert near(far, 0.5, False)[1:3] == (0, False)
    assert near(far, 1.0, False)[3] > 1e-9 and near(far, 1.0, True)[3] < 1e-15


@pytest.mark.parametrize(("distance", "least", "most"), [(1e-4, 0.0, 1e-14), (3e-3, 0.0, 1e-14), (1.0, 1e-8, 1e-6)])
def test_beside_a_singular_pose_a_correction_is_repeated(distance, least, most):
    """Until it has begun on the constraints; elsewhere a step by the rows where the state is leaves an error of second order."""
    system = slider_crank()
    angle = np.pi / 2 + distance

    @jax.jit
    def corrected():
        state = jm.as_state(system, [angle, 2 * np.pi - 2 * angle], [1.0, -2.0])
        formulation = jm.formulation.GaussProjection()
        in_use = formulation.prepare(jm.evaluate(system, state))
        size = jnp.minimum(1e-3, distance / 3)
        off = dataclasses.replace(state, q=state.q + size * jnp.array([1.0, -0.5]))
        end = correct(system, formulation, off, in_use, 1)
        return (end.position, end.velocity), residuals(system, state.t, end.q, end.v)

    told, left = corrected()
    assert least <= float(jnp.max(jnp.abs(told[0]))) <= most
    np.testing.assert_allclose(told, left, rtol=0, atol=1e-14)  # what a correction tells is what it has left


def test_saved_states_are_regular_where_their_rows_are_certain():
    """One that was not reached is nobody's; beside a singular pose the general program corrects what was saved."""
    system, poses = slider_crank(), np.pi / 2 + np.array([0.5, 1e-3])
    states = [jm.as_state(system, [angle, 2 * np.pi - 2 * angle], [1.0, -2.0]) for angle in poses]
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, states[0].scale, jnp.array(True), None
    field, in_use, zero = VectorField(system, *parts), jnp.ones(system.m, bool), jnp.zeros(())
    method = Method(
        ConstrainedSolver(dfx.Bosh3()), dfx.ConstantStepSize(), None, None, dfx.NoProgressMeter(), None, None
    )
    usual, near = (StateVector.of(state.q, state.v, zero) for state in states)
    absent = usual.like(jnp.inf + usual.packed)
    saved = lambda y: jax.tree.map(lambda *x: jnp.stack(x), usual, y)
    regular = lambda y: regular_states(method, field, in_use, jnp.zeros(2), y, usual)
    found = [regular(saved(y)) for y in (usual, near, absent)]
    assert [bool(good) for *_, good in found] == [True, False, True]
    assert jnp.isnan(found[2][0].packed[1]).all() and jnp.isfinite(found[2][0].packed[0]).all()


def test_an_acceleration_that_interpolation_confirms_stays_as_it_is():
    """Beside a singular pose, where the terms alone give it to rounding; between samples it is exact to 1e-10."""
    angle = np.pi / 2 + np.array([3e-4, 1e-3, 3e-3])
    q, v = np.stack([angle, 2 * np.pi - 2 * angle], axis=1), np.tile([5.0, -10.0], (3, 1))
    out = beside_the_pose()(jnp.asarray(q), jnp.asarray(v))
    np.testing.assert_allclose(out.vdot[:, 0], crank_acceleration(angle, 5.0), rtol=0, atol=1e-13)


@pytest.mark.slow
def test_motion_through_a_singular_pose_of_a_moving_line():
    system, start = rheonomic(), jnp.array(-0.2)
    state = jm.assemble(system, curve(start), velocity(start), t=start)
    controller = dfx.PIDController(rtol=1e-10, atol=1e-10)
    sol = jm.simulate(system, state, [0.2], solver=dfx.Dopri8(), stepsize_controller=controller)
    np.testing.assert_allclose(sol.q[0], curve(jnp.array(0.2)), atol=1e-7)


@functools.cache
def vanishing(force=(0.0, 1.0, 1.0, 0.0)):
    """x ż + y ẇ = 0 in (x, y, z, w): the row is zero at the origin."""
    return jm.System(
        ("x", "y", "z", "w"),
        mass=lambda t, q, p: jnp.eye(4),
        force=lambda t, q, v, p: p,
        constraints=[jm.Pfaffian("row", lambda t, q, v, p: q[0] * v[2] + q[1] * v[3])],
        params=np.array(force),
    )


@pytest.mark.parametrize("method", USUAL)
@pytest.mark.slow
def test_nonholonomic_row_that_vanishes(method):
    """v̇ from the derivative of the row; the reaction along ZᵀĊ, which is not that derivative's direction."""
    state = jm.assemble(vanishing(), np.zeros(4), [1.0, 0.0, 0.0, 1.0], length=1.0)
    out = USUAL[method].acceleration(jm.evaluate(vanishing(), state))
    np.testing.assert_allclose(out.vdot, [0, 1, -0.5, 0], atol=1e-14)
    np.testing.assert_allclose(out.reaction, [0, 0, -1.5, 0], atol=1e-14)
    assert out.result == jm.RESULTS.successful and int(out.rank) == 0 and bool(jnp.isnan(out.multipliers[0]))


@pytest.mark.slow
def test_motion_from_a_pose_where_a_nonholonomic_row_vanishes():
    """That of a start d later on the same motion, known there to O(d³) in q and O(d²) in v."""
    controller = dfx.PIDController(rtol=1e-10, atol=1e-10)

    def end(t, q, v):
        state = jm.assemble(vanishing(), q, v, t=t, length=1.0)
        sol = jm.simulate(vanishing(), state, [0.5], solver=dfx.Dopri8(), stepsize_controller=controller)
        return sol.q[0]

    d = 1e-4
    beside = end(d, [d, d**2 / 2, -(d**2) / 4, d], [1.0, d, -d / 2, 1.0])
    np.testing.assert_allclose(end(0.0, np.zeros(4), [1.0, 0.0, 0.0, 1.0]), beside, atol=1e-6)


def test_what_may_move_is_looked_for_at_one_time():
    """x, z − t and x + y (z − t): the third row follows from the others wherever y goes, and would not if time went on without z."""
    rows = jm.Holonomic("rows", lambda t, q, p: jnp.stack([q[0], q[2] - t, q[0] + q[1] * (q[2] - t)]))
    system = jm.System(3, mass=lambda t, q, p: jnp.eye(3), constraints=[rows])

    @jax.jit
    def chosen():
        state = jm.as_state(system, jnp.zeros(3), jnp.array([0.0, 0.0, 1.0]), length=1.0)
        return choose_rows(system, jm.formulation.GaussProjection(), state)

    found = chosen()
    assert found.in_use.tolist() == [True, True, False] and not (found.degenerate | found.indeterminate).any()


def test_rows_contradict_each_other_where_one_follows_from_others_at_a_sound_state():
    """x = t² and x = 2 t²: half of 2 and 4 m/s² is left in each. y = t contradicts neither."""
    rows = jm.Holonomic("rows", lambda t, q, p: jnp.stack([q[0] - t**2, q[0] - 2 * t**2, q[1] - t]))
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[rows])
    state = jm.as_state(system, jnp.zeros(2), jnp.array([0.0, 1.0]), length=1.0)
    found = jax.jit(lambda sound: choose_rows(system, jm.formulation.GaussProjection(), state, sound))
    rows = found(True)
    assert rows.contradictory and rows.rank == 2
    assert (rows.contradiction > 0.1).tolist() == [False, True, False] and rows.in_use.tolist() == [True, False, True]
    rows = found(False)
    assert not rows.contradiction.any() and not rows.contradictory


class RK4(dfx.AbstractERK):
    """The classical method of order four."""

    tableau = dfx.ButcherTableau(
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1, 2, 2, 1]) / 6,
        b_error=np.array([1, -1, 1, -1]) / 6,
        c=np.array([0.5, 0.5, 1.0]),
    )
    interpolation_cls = dfx.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms):
        return 4


def _path(first, last):
    return Path(jnp.zeros(()), jnp.ones(()), jnp.asarray(first), jnp.asarray(last), jnp.zeros((2, 2)))


@pytest.mark.parametrize("k", [2, 3])
def test_a_path_between_two_states_is_the_polynomial_of_their_values_and_slopes(k):
    """Any cubic is known by its values and slopes at both ends, any quintic by those and its second derivatives."""
    curve = np.polynomial.Polynomial(np.random.default_rng(k).normal(size=2 * k))
    q, v, vdot = (jnp.array([[curve.deriv(j)(t), 0.0] for t in (2.0, 5.0)]) for j in range(3))
    ends, rates = (StateVector.of(*pair, jnp.zeros(2)) for pair in ((q, v), (v, vdot)))
    first_and_last = lambda both: tuple(both.like(x) for x in both.packed)
    path = Path.of(
        _passing()[0].system, *jnp.array([2.0, 5.0]), first_and_last(ends), first_and_last(rates) if k == 3 else None
    )
    for x in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(path.at(jnp.asarray(x))[0], curve(2 + 3 * x), rtol=1e-11)


def test_where_a_remainder_changes_its_sign_is_found_in_few_trials():
    """Of 0.3 − x⁵, by which secants alone would keep one end for ever."""
    zero, remainder = jnp.zeros(()), lambda x: 0.3 - x**5
    bracket = _SignBracket(zero, zero + 1, zero, zero, jnp.array(False))
    for n in range(TRIALS):
        x = jnp.asarray(float(n)) if n < 2 else bracket.middle
        none = dict.fromkeys(("rate", "length", "off_manifold", "miss"), zero)
        trial = _Trial(x=x, shift=zero[None], ahead=remainder(x), across=zero[None], **none)
        bracket = bracket.narrowed(jnp.array(n), trial)
    assert bool(bracket.holds)
    np.testing.assert_allclose(x, 0.3**0.2, atol=1e-12)


def test_the_ends_of_a_bracket_move_to_where_a_trial_was():
    """The first two trials are its ends, whatever is found there; later the value at an end that stays once more is halved."""
    number, no = lambda x: jnp.asarray(x, float), jnp.array(False)
    none = {name: number(0) for name in ("rate", "length", "off_manifold")}
    bracket = _SignBracket(*[number(0)] * 4, no)
    assert float(bracket.middle) == 0 and not bool(bracket.holds)  # nothing is known, and nothing is no number
    for n, (x, s, expected) in enumerate(
        [
            (0.0, 2.0, (0.0, 0.0, 2.0, 0.0)),
            (1.0, -2.0, (0.0, 1.0, 2.0, -2.0)),
            (0.5, -0.5, (0.0, 0.5, 2.0, -0.5)),
            (0.25, -0.25, (0.0, 0.25, 1.0, -0.25)),
            (0.1, 0.3, (0.1, 0.25, 0.3, -0.25)),
            (0.2, 0.1, (0.2, 0.25, 0.1, -0.125)),
            (0.22, -0.05, (0.2, 0.22, 0.1, -0.05)),
        ]
    ):
        trial = _Trial(number(x), jnp.zeros(1), number(s), miss=number(0), across=jnp.zeros(1), **none)
        bracket = bracket.narrowed(jnp.array(n), trial)
        assert [float(y) for y in (bracket.a, bracket.b, bracket.sa, bracket.sb)] == list(expected)
    np.testing.assert_allclose(bracket.middle, 0.2 + 0.02 * 0.1 / 0.15, rtol=1e-14)
    for sa, sb, holds in ((1, -1, True), (1, 0, True), (0, -1, False), (1, 0.5, False), (-1, -1, False)):
        assert bool(_SignBracket(number(0), number(1), number(sa), number(sb), no).holds) == holds


def _passing():
    """A vector field of two rows in the plane, x and x + y, and a step."""
    both = jm.Holonomic("both", lambda t, q, p: jnp.cumsum(q))
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[both])
    scale = dataclasses.replace(jm.as_state(system, jnp.zeros(2), length=1.0).scale, rate=jnp.ones(()))
    method = jm.formulation.GaussProjection()
    field = VectorField(system, method, jm.Projection(), None, scale, consistent=jnp.array(True), choice=None)
    return field, jnp.ones(2, bool), _path([[0.0, 0.0]] * 3, [[0.0, 0.0]] * 3)


def test_how_far_branches_miss_each_other_is_found_from_a_step_beside_them(monkeypatch):
    """φ = δ + f(u) w + b w²/2 of u along the motion and w across it, s = f + b w, f = a u + c u³: at w = 0, where φ is δ, whatever w the step is at.

    They miss each other where the remainder vanishes with s: where most of it lies across the direction the row only turns.
    """
    a, b, (field, in_use, path) = -20.0, 3.0, _passing()

    @jax.jit
    @jax.vmap
    def found(apart, across, c, start, beside):
        def trial(field, in_use, row, path, direction, x, shift, rounding):
            u, w = x - start, beside + shift @ direction
            f, slope, zero = a * u + c * u**3, a + 3 * c * u**2, jnp.zeros(())
            s, phi = f + b * w, apart + f * w + b * w**2 / 2
            length = jnp.hypot(s, across)
            phi = jnp.where(jnp.abs(phi) > 1e-12, phi, 0)
            return _Trial(
                x, shift, ahead=s, rate=slope * w, length=length, off_manifold=zero, miss=phi, across=direction
            )

        monkeypatch.setattr(passage, "_trial_at", trial)
        return passage._at_sign_change(field, in_use, jnp.array(0), path, jnp.array([0.6, 0.8]))

    many = [1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]
    apart, across = [0.0, 1e-5, 1e-5, 0.0, *many, 1e-5, 1e-5, 1e-5], [0.0, 0.1, 1.0, *[0.0] * 11]
    c, start = [0, 0, 0, *[-200.0] * 8, -2000.0, 0, -2e9], [0.4] * 12 + [1.0, 0.4]
    # Secants alone would not find that before the last two, of which the first vanishes where the step ends, and the other one too suddenly.
    missed, distance, unknown = found(*map(jnp.array, (apart, across, c, start, [0.02] * 12 + [0.0, 0.02])))
    assert missed.tolist()[:-1] == [False, True, False, False, *[True] * 9]
    assert unknown.tolist() == [False] * 13 + [True]
    distance = distance[:-1]
    apart = np.array(apart)[:-1]
    np.testing.assert_allclose(distance[:3], apart[:3], atol=1e-14)
    np.testing.assert_allclose(distance[3:], apart[3:], atol=1e-11)  # what is less counts as zero


def test_beside_a_step_all_rows_but_one_are_satisfied():
    """φ₁ = (x − ½) + (x − ½)² + (t − 3/2)/10 is closed in a few corrections, and of φ₂ = x + y + 3 t is told how far it is off at 3/2 s, and how fast."""
    rows = lambda t, q, p: jnp.stack([q[0] - 0.5 + (q[0] - 0.5) ** 2 + 0.1 * (t - 1.5), q[0] + q[1] + 3 * t])
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("rows", rows)])
    (field, in_use, _), number = _passing(), lambda x: jnp.asarray(x, float)
    scale = jm.system.Scale(*map(jnp.array, ([1.0, 1.0], [0.7, 1.7], [0.8, 0.6], [3.0, 4.0], 1.0)))
    field, direction = dataclasses.replace(field, system=system, scale=scale), jnp.array([0.6, 0.8])
    ends = jnp.array([[0.9, 0.3], [0.0, 0.0]])
    path = Path(number(1.0), number(3.0), ends, ends, jnp.array([[0.2, 0.4], [1.0, 2.0]]))
    rounding = number(1e-15)
    look = jax.jit(lambda x, shift: passage._trial_at(field, in_use, jnp.array(1), path, direction, x, shift, rounding))
    found = look(number(0.25), jnp.array([0.1, 0.2]))
    # ℓ/size of the second row across the first one.
    across = 0.6 / 4.0
    np.testing.assert_allclose(
        [found.miss, found.off_manifold], [(0.5 + 0.5 + 4.5) / 1.7, (1.0 + 0.5 + 4.5) / 1.7], rtol=1e-12
    )
    np.testing.assert_allclose([found.ahead, found.length], [0.8 * across, across], rtol=1e-12)
    np.testing.assert_allclose(found.rate, 2 * ((0.4 + 0.8 + 3) - (0.4 + 0.1)) / 4.0, rtol=1e-12)
    np.testing.assert_allclose(found.across, [0.8 * 0.6, 0.6 * 0.8], rtol=1e-12)
    np.testing.assert_array_equal([found.x, *found.shift], [0.25, 0.1, 0.2])


def test_a_pose_that_cannot_be_closed_is_left_after_eight_corrections():
    """φ₁ = x², of which each correction halves x, and φ₂ = x + y."""
    rows = lambda t, q, p: jnp.stack([q[0] ** 2, q[0] + q[1]])
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("rows", rows)])
    (field, in_use, _), ends = _passing(), jnp.array([[1.0, 0.5], [0.0, 0.0]])
    field, zero = dataclasses.replace(field, system=system), jnp.zeros(())
    path = Path(zero, zero + 1, ends, ends, jnp.zeros((2, 2)))
    look = jax.jit(
        lambda: passage._trial_at(field, in_use, jnp.array(1), path, jnp.eye(2)[0], zero, jnp.zeros(2), zero)
    )
    np.testing.assert_allclose(look().miss * field.scale.span[1], 2.0**-7 + 0.5, rtol=1e-12)


def test_a_pose_is_missed_by_more_than_what_rounding_leaves():
    """φ₁ = x, closed to 2e-13, is closed once more, for φ₂ = k x + 1.7 δ, of which rounding leaves its own and k times that of φ₁."""
    rows = lambda t, q, p: jnp.stack([q[0], p["k"] * q[0] + p["miss"]])
    params = {"k": 1.0, "miss": 0.0}
    system = jm.System(2, lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("rows", rows)], params=params)
    (field, in_use, _), zero = _passing(), jnp.zeros(())
    scale = jm.system.Scale(*map(jnp.array, ([1.0, 1.0], [0.7, 1.7], [0.8, 0.5], [3.0, 5.0], 1.0)))
    ends = jnp.array([[1.4e-13, 0.3], [0.0, 0.0]])
    path = Path(zero, zero + 1, ends, ends, jnp.zeros((2, 2)))

    @jax.jit
    @jax.vmap
    def found(k, miss):
        turned = dataclasses.replace(field, system=system.with_params({"k": k, "miss": 1.7 * miss}), scale=scale)
        trial = passage._trial_at(
            turned, in_use, jnp.array(1), path, jnp.eye(2)[0], zero, jnp.zeros(2), jnp.array(1e-14)
        )
        return trial.missed, trial.miss

    for k in (1.0, -20.0):
        least = 1e-14 * (1 + abs(k) * 0.7 / 1.7)
        miss = np.array([0.99, 1.01, -0.99, -1.01]) * least
        missed, distance = found(jnp.full(4, k), jnp.array(miss))
        assert missed.tolist() == [False, True] * 2
        np.testing.assert_allclose(distance, np.where(missed, miss, 0), rtol=1e-12)


@pytest.mark.parametrize("turns, far", [(0, 0.0), (1e5, 0.0), (0, 1e3)])
def test_what_rounding_leaves_of_rows_is_found_by_trying(turns, far):
    """Of an angle after 1e5 turns, or a place 1e3 m away, some units of these; of others of what is near."""
    rows = lambda t, q, p: jnp.stack([p + jnp.sin(q[0]) - (p + 0.3), q[1] * jnp.cos(q[0]) - 0.2])
    system = jm.System(2, lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("rows", rows)], params=far)
    state = jm.as_state(system, [0.3 + 2 * np.pi * turns, 0.2])
    found, eps = float(jm.system.rounding_nearby(system, state)), np.finfo(float).eps
    expected = eps * max(1.0, 2 * np.pi * turns, far)
    assert 0.1 * expected < found < 10 * expected


def test_a_pose_is_looked_for_where_a_row_in_use_has_turned_by_more_than_a_right_angle(monkeypatch):
    look = lambda field, in_use, row, path, direction: (row >= 0, direction @ jnp.array([3.0, 5.0]), row == 1)
    monkeypatch.setattr(passage, "_at_sign_change", look)
    field, in_use, path = _passing()
    before = jnp.array([[0.8, -0.6], [0.6, 0.8]])
    after = lambda x, y: jnp.array([[0.6, -0.8], [x, y]])
    found = jax.jit(lambda x, y, used: passage.distance_missed(field, used, path, before, after(x, y)))
    assert [x.tolist() for x in found(1.0, -1.0, in_use)] == [True, 5.8, True]
    for case in ((1.0, -0.5, in_use), (0.8, -0.6, in_use), (1.0, -1.0, in_use.at[1].set(False))):
        assert [x.tolist() for x in found(*case)] == [False, 0.0, False]


def test_an_attempt_is_accepted_or_tried_shorter_or_ends_the_run(monkeypatch):
    """The estimate of the error stays, is infinite, or zero where no shorter step would help."""
    field, in_use, _ = _passing()
    monkeypatch.setattr(judgement, "_start_directions", lambda *_: jnp.eye(2))
    no, y = jnp.array(False), StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(()))
    sound, end = Rows.independent(in_use, float), Correction.none(y.q, y.v, in_use, jnp.eye(2))
    before = ConstrainedSolver(dfx.Tsit5()).init(None, 0.0, 1.0, y, (field, in_use))
    assert bool(before.first) and not bool(before.inner[1])  # where a run starts no slope is known
    before = dataclasses.replace(before, rows=sound, basis=jnp.eye(2))

    @jax.jit
    @jax.vmap
    def found(case):
        monkeypatch.setattr(judgement, "distance_missed", lambda *_: (case["jump"], case["miss"], case["unknown"]))
        own = dataclasses.replace(field, consistent=case["consistent"])
        latest = dataclasses.replace(before, highest_rank=jnp.where(case["first"], 0, 2))
        start = StepStart(own, case["begin"], case["end"], y, latest, no)
        rows = dataclasses.replace(
            sound,
            indeterminate=in_use & case["indeterminate"],
            unfit=case["unfit"],
            contradiction=jnp.ones(2) * case["contradictory"],
        )
        off = dataclasses.replace(end, position=jnp.ones(2) * case["off"])
        slopes = y.like(jnp.where(case["undefined"], jnp.nan, y.packed)), y
        attempt = StepAttempt(y, y.like(y.packed + 1), None, None, None, y, off, no, end.basis, case["turns"], slopes)
        judged = judgement.judge(start, rows, attempt)
        return judged.accept, judged.error.packed[0]

    flags = "jump", "unknown", "first", "indeterminate", "unfit", "contradictory", "undefined", "turns"
    usual = dict.fromkeys(flags, False)
    usual |= {"consistent": True, "miss": 1.0, "begin": 1.0, "end": 2.0, "off": 0.0}
    shorter, over, eps = (False, np.inf), (False, 0.0), float(np.finfo(float).eps)
    cases = {
        (): (True, 1.0),
        (("off", 1e-3),): shorter,
        (("jump", True),): shorter,
        (("turns", True),): shorter,
        (
            ("turns", True),
            ("miss", 0.0),
        ): shorter,  # of a step along one branch nobody knows by how much it misses another
        (("turns", True), ("end", 1 + 2e-15)): over,
        (("turns", True), ("begin", -1.0), ("end", -1 + 16 * eps)): over,
        (("turns", True), ("begin", -1.0), ("end", -1 + 17 * eps)): shorter,
        (("jump", True), ("miss", 1e-9)): over,  # branches that come so close no step is short enough to tell apart
        (("jump", True), ("miss", 0.4 * CLOSE**2)): over,
        (("jump", True), ("miss", 0.6 * CLOSE**2)): shorter,
        (("jump", True), ("miss", 1e-9), ("unknown", True)): shorter,
        (("off", 1e-3), ("miss", 0.0)): shorter,
        (("off", 1e-3), ("end", 1 + 2e-15)): over,
        (("off", 1e-3), ("undefined", True)): over,
        (("consistent", False),): over,
        (("indeterminate", True),): over,
        (("unfit", True),): over,
        (("contradictory", True),): (True, 1.0),
        (("contradictory", True), ("first", True)): over,
    }
    each = [usual | dict(case) for case in cases]
    accept, error = found({name: jnp.asarray([case[name] for case in each]) for name in usual})
    assert list(zip(accept.tolist(), error.tolist(), strict=True)) == list(cases.values())


def test_directions_of_rows_are_carried_from_step_to_step_as_long_as_the_same_ones_are_in_use(monkeypatch):
    field, in_use, _ = _passing()
    monkeypatch.setattr(judgement, "_start_directions", lambda *_: jnp.full((2, 2), 7.0))
    told, no = [], jnp.array(False)
    keep = lambda field, in_use, path, before, after: told.append((before[0, 0], after[0, 0])) or (no, jnp.ones(()), no)
    monkeypatch.setattr(judgement, "distance_missed", keep)
    y = StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(()))
    before = ConstrainedSolver(dfx.Bosh3()).init(None, 0.0, 1.0, y, (field, in_use))
    end = Correction.none(y.q, y.v, in_use, jnp.full((2, 2), 5.0))
    attempt = StepAttempt(y, y, None, None, None, y, end, no, end.basis, no, None)

    @jax.jit
    def found(used):
        latest = dataclasses.replace(before, rows=Rows.independent(used, float), basis=jnp.full((2, 2), 3.0))
        start = StepStart(field, jnp.zeros(()), jnp.ones(()), y, latest, no)
        judgement.judge(start, Rows.independent(in_use, float), attempt)
        return told.pop()

    assert found(in_use) == (3, 5) and found(in_use.at[0].set(False)) == (7, 5)


def test_a_quick_step_is_left_to_the_general_program_where_anything_is_not_certain():
    """Rows, the slope that it begins with, its numbers. One that is not closed is tried shorter, unless it is as short as time is resolved."""
    field, in_use, _ = _passing()
    solver, y = ConstrainedSolver(dfx.Bosh3()), StateVector.of(*jnp.ones((2, 2)), jnp.zeros(()))
    before = dataclasses.replace(solver.init(None, 0.0, 1.0, y, (field, in_use)), residual=jnp.array([0.0, 9.0]))
    numbers = np.array([1.0, 2.0, 4.0, 8.0])

    @jax.jit
    @jax.vmap
    def found(case):
        own = dataclasses.replace(field, consistent=case["consistent"])
        begun = dataclasses.replace(before, certified=case["certified"], inner=(y, case["slope"]))
        start = StepStart(own, case["begin"], case["end"], y, begun, case["jumped"])
        end = Correction.none(y.q, y.v, in_use, 2 * jnp.eye(2))
        end = dataclasses.replace(end, position=case["off"] * field.scale.span)
        slopes = y.like(case["slopes"] * numbers[:, None] * jnp.ones(5))
        step = StepResult(y.like(y.packed + 1), slopes, y.like(y.packed + case["move"]), end, case["irregular"])
        irregular, (y1, error, dense, kept, result) = solver._judged_step(step, start)
        told = y1.packed[0], error.packed[0], dense["shift"].packed[0], result == dfx.RESULTS.successful
        return irregular, told, (kept.inner[0].packed[0], kept.inner[1], *kept.residual, kept.end[0], kept.basis[0, 0])

    usual = {"consistent": True, "certified": True, "slope": True, "begin": 1.0, "end": 3.0, "jumped": False}
    usual |= {"off": 0.0, "slopes": 1.0, "move": 3.0, "irregular": False}
    changes = [
        ("consistent", False),
        ("certified", False),
        ("slope", False),
        ("jumped", True),
        ("irregular", True),
        ("move", np.nan),
        ("slopes", np.inf),
    ]
    cases = [{}, *({name: value} for name, value in changes), {"off": 1e-3}, {"off": 1e-3, "end": 1 + 2e-15}]
    shortest = {"begin": -1.0, "end": -1 + 16 * np.finfo(float).eps}
    cases += [shortest | {"off": 1e-3}, shortest]
    each = [usual | case for case in cases]
    irregular, told, kept = found({name: jnp.asarray([case[name] for case in each]) for name in usual})
    assert irregular.tolist() == [False, *[True] * 7, False, True, True, False]
    error = float(Tableau.of(solver.solver, float).error @ numbers)
    # y was one; the end before the correction 2, and the corrected one 4.
    np.testing.assert_allclose([x[0] for x in told], [4.0, error, 2.0, 1.0], rtol=1e-14)
    np.testing.assert_allclose([x[8] for x in told], [1.0, np.inf, 0.0, 0.0])
    np.testing.assert_allclose([x[0] for x in kept], [8.0 / 2, 1, 0.0, 9.0, 3.0, 2.0])
    np.testing.assert_allclose([kept[2][8], kept[3][8]], [1e-3, 9.0])


def test_the_general_program_makes_what_no_quick_step_can_and_decides_about_rows_anew(monkeypatch):
    """Unless the run has failed, or is over and waits for others."""
    (field, in_use, _), y = _passing(), StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(()))
    solver, field = ConstrainedSolver(dfx.Bosh3()), dataclasses.replace(field, step=Quick(True), until=jnp.array(2.0))
    before = dataclasses.replace(solver.init(None, 0.0, 1.0, y, (dataclasses.replace(field, step=None), in_use)))
    told = lambda general, at: (jnp.array(general), at.before.certified, at.t0)

    @jax.jit
    @jax.vmap
    def found(irregular, failed, begin):
        quick = lambda self, step, at: (irregular, told(False, at))
        monkeypatch.setattr(ConstrainedSolver, "_regular_step", quick)
        monkeypatch.setattr(ConstrainedSolver, "_general_step", lambda self, terms, at: told(True, at))
        latest = dataclasses.replace(before, certified=jnp.array(True), failed=failed)
        return solver._step(None, StepStart(field, begin, begin + 1, y, latest, failed))

    cases = [(True, False, 1.0), (False, False, 1.0), (True, True, 1.0), (True, False, 2.0), (True, False, 2.5)]
    general, certified, begin = found(*map(jnp.array, zip(*cases, strict=True)))
    assert general.tolist() == [True, *[False] * 4] and certified.tolist() == [False, *[True] * 4]
    np.testing.assert_array_equal(begin, [case[2] for case in cases])


def test_a_general_step_hands_on_the_slope_where_it_ends_and_what_is_certain_of_its_rows(monkeypatch):
    (field, in_use, _), no = _passing(), jnp.array(False)
    y = StateVector.of(jnp.array([0.6, 0.8]), jnp.array([-0.8, 0.6]), jnp.zeros(()))
    solver, rows = ConstrainedSolver(dfx.Bosh3()), Rows.independent(in_use, float)
    before = solver.init(None, 2.0, 2.5, y, (field, in_use))
    start = StepStart(field, jnp.array(2.0), jnp.array(2.5), y, before, no)
    attempt = jax.jit(solver._explicit_step)(start, rows)
    slope, known = attempt.inner
    np.testing.assert_allclose(slope.packed, attempt.slopes[1].packed, rtol=1e-14)
    assert known and np.abs(slope.packed).max() > 0.1
    # Of the stages of a solver that is not our own nothing is known.
    monkeypatch.setattr(dfx.Bosh3, "step", lambda self, *given: (y, y, {}, attempt.inner, dfx.RESULTS.successful))
    attempt = jax.jit(lambda start: solver._inner_step(None, start, rows))(start)
    assert not attempt.certified and not attempt.turns


def test_a_compiled_run_begins_at_its_start_by_a_step_that_ends_within_it():
    """Nothing has happened yet; steps that would end 100 units in the last place before the end of the run, or later, end with it."""
    field, in_use, _ = _passing()
    field, t0 = dataclasses.replace(field, regular_only=RegularOnly(in_use)), jnp.ones(())
    solver, y0 = ConstrainedSolver(dfx.Bosh3()), StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(()))
    method = Method(solver, dfx.ConstantStepSize(), jnp.asarray(0.25), None, dfx.NoProgressMeter(), 7, None)
    for t1, end in ((1.5, 1.25), (1.125, 1.125)):
        inputs = PhaseInputs(field, t0, jnp.asarray(t1), y0, jnp.ones(1))
        start = solver.init(None, t0, inputs.t1, y0, (field, in_use))
        carry, settings = compiled_run._at_start(inputs, method, start, None)
        assert (carry.t0, carry.t1, settings.until) == (1.0, end, t1)
        assert not any((carry.jumped, carry.failed, carry.steps, carry.accepted))
        assert (t1 - settings.snap_time) == 100 * np.finfo(float).eps and carry.result == dfx.RESULTS.successful


class Quick(eqx.Module):
    """A step of which only the start is asked for."""

    unsure: jax.Array

    def uncertified(self, t, y, in_use):
        return self.unsure

    def at(self, t, y, in_use):
        return y.like(7 * y.packed), Correction.none(y.q, y.v, in_use, 3 * jnp.eye(2)), self.unsure


class Runs(Quick):
    """One of whose programs no more is known than that they are there."""

    program: str = eqx.field(static=True, default="step")
    sample: str | None = eqx.field(static=True, default=None)


class Reads(eqx.Module):
    """Which guards read reactions."""

    reads: tuple[bool, ...] = eqx.field(static=True)


class Watch(Guard):
    """A guard of which only that is asked."""

    def __init__(self, *reads):
        self.plan, self.mode, self.since = Reads(reads), None, jnp.zeros(())


def test_a_compiled_run_tells_what_its_program_has_made(monkeypatch):
    """The end, why it is one, how many steps there were, saved states, and on request the tape, of which a failed step is no part; the start of a run of no duration."""
    (field, in_use, _), y0 = _passing(), StateVector.of(*jnp.ones((2, 2)), jnp.zeros(()))
    field = dataclasses.replace(field, regular_only=RegularOnly(in_use))
    steps = dfx.ConstantStepSize(), jnp.asarray(0.25), None, dfx.NoProgressMeter()
    method = Method(ConstrainedSolver(dfx.Bosh3()), *steps, 7, None)
    successful, failed = dfx.RESULTS.successful, dfx.RESULTS.breakdown
    known, asked, last = Runs(jnp.array(False)), [], {}
    monkeypatch.setattr(compiled_run, "compiled_step_of", lambda *_: known)
    monkeypatch.setattr(compiled_run, "_program", lambda *given: asked.append(given) or "run")

    def made(operands, program, kind):
        carry = jax.tree.unflatten(kind.structure, operands[: len(kind.leaves)])
        moved = dataclasses.replace(carry, y0=4 * y0.packed, slope=5 * y0.packed, steps=jnp.array(6), **last)
        tape = [jnp.arange(8.0), 3 * jnp.ones((8, 5)), jnp.arange(1, 9.0)]
        event = [jnp.array(last["t0"] < 1.9), 8 * y0.packed] if "guarded" in kept else []
        return [*jax.tree.leaves(moved), 2 * jnp.ones((3, 5)), *event, *tape]

    monkeypatch.setattr(compiled_run, "_run", made)

    def run(guard=None, tape=True, t1=2.0, **changes):
        inputs = PhaseInputs(field, jnp.ones(()), jnp.asarray(t1), y0, jnp.ones(3))
        kept[:] = ["guarded"] * (guard is not None)
        return compiled_run.compiled_run(inputs, dataclasses.replace(method, **changes), guard, tape)

    kept = []
    for reached, result, guard, told in (
        (2.0, successful, None, successful),
        (1.8, successful, None, dfx.RESULTS.max_steps_reached),
        (1.8, failed, None, failed),
        (1.8, successful, Watch(), dfx.RESULTS.event_occurred),
        (2.0, successful, Watch(), successful),
    ):
        last |= {
            "t0": jnp.asarray(reached),
            "result": result,
            "accepted": jnp.array(5),
            "failed": jnp.array(result == failed),
        }
        phase, tape = run(guard)
        assert phase.result == told and phase.t == phase.accepted.reached == reached and not phase.irregular
        assert phase.accepted.ended == (told == dfx.RESULTS.event_occurred)
        assert list(phase.stats.values()) == [6, 5, 1] and phase.accepted.compiled == 5 and phase.accepted.sparse == 0
        assert phase.accepted.rows.in_use.all() and phase.accepted.failed == (result == failed)
        for found, factor in (
            (phase.y, 4),
            (phase.accepted.inner[0], 5),
            (phase.accepted.end[1], 4),
            (tape.end, 4 if guard is None else 8),
        ):
            np.testing.assert_array_equal(found.packed, factor * y0.packed)
        np.testing.assert_array_equal(phase.ys.packed, 2 * np.ones((3, 5)))
        np.testing.assert_array_equal(tape.ys.packed, 3 * np.ones((8, 5)))
        assert tape.count == (4 if result == failed else 5) and (tape.ts[1], tape.ends[1]) == (1, 2)
    phase, tape = run(Watch(), t1=1.0)
    assert phase.t == 1 and phase.result == successful and phase.stats["num_steps"] == tape.count == 0
    np.testing.assert_array_equal(phase.ys.packed, np.tile(y0.packed, (3, 1)))
    np.testing.assert_array_equal([phase.y.packed, tape.end.packed], [y0.packed] * 2)
    # The tangent in forward mode needs the tape, too.
    assert run(tape=False)[1] is None and run(tape=False, adjoint=dfx.ForwardMode())[1] is None
    assert [given[-1] for given in asked[-3:]] == [True, False, True]
    assert asked[-1][:2] == ("step", None) and asked[-1][3] == 3
    # None where something is no program, or not worth one.
    most = compiled_run.LARGEST_WORK
    for reads, size, worth in (
        ((False, True), most + 1, False),
        ((False, True), most, True),
        ((False,), most + 1, True),
    ):
        monkeypatch.setattr(compiled_run, "dense_work", lambda system, size=size: size)
        assert (run(Watch(*reads)) is not None) == worth
    assert run(max_steps=None) is None
    assert run(controller=Noted()) is None and run(solver=ConstrainedSolver(NotedBosh3())) is None
    monkeypatch.setattr(VectorField, "takes_samples", True)
    assert run() is None
    known = None
    assert run() is None


def test_a_run_in_diffraxs_loop_tells_what_that_has_made(monkeypatch):
    """As a compiled run does: the end, saved states, counts, and on request the tape, of which a last step that has failed is no part."""
    (field, in_use, _), y0 = _passing(), StateVector.of(*jnp.ones((2, 2)), jnp.zeros(()))
    steps = dfx.ConstantStepSize(), jnp.asarray(0.25), None, dfx.NoProgressMeter()
    method, asked = Method(ConstrainedSolver(dfx.Bosh3()), *steps, 7, None), []
    times = jnp.ones(3), jnp.array([1.8]), jnp.append(jnp.arange(5.0), jnp.full(3, jnp.inf))
    states = [y0.like(k * jnp.arange(1.0, n + 1)[:, None] * jnp.ones(5)) for k, n in ((2, 3), (4, 1), (3, 8))]
    accepted = method.solver.init(None, 0.0, 1.0, y0, (field, in_use))
    accepted = dataclasses.replace(accepted, end=(jnp.array(3.9), y0), reached=jnp.array(1.8))
    counts = dict(num_steps=6, num_accepted_steps=4, num_rejected_steps=2, max_steps=7)

    def made(*given, **options):
        asked.append((given, options))
        told = dict(ts=list(times), ys=states, solver_state=record, stats=counts, interpolation="whole")
        return SimpleNamespace(**told, result=result)

    monkeypatch.setattr(integration, "compiled_step_of", lambda *_: "step")
    monkeypatch.setattr(integration, "silent", lambda run: run())
    monkeypatch.setattr(dfx, "diffeqsolve", made)
    for own, result, ended, failed, tape in (
        (field, dfx.RESULTS.successful, False, False, True),
        (dataclasses.replace(field, regular_only=RegularOnly(in_use)), dfx.RESULTS.breakdown, False, True, True),
        (field, dfx.RESULTS.nonfinite, False, True, True),
        (field, dfx.RESULTS.breakdown, True, False, True),  # by a guard: no failure
        (field, dfx.RESULTS.successful, False, False, False),
    ):
        record = dataclasses.replace(accepted, ended=jnp.array(ended))
        inputs = PhaseInputs(own, jnp.zeros(()), jnp.array(2.0), y0, jnp.ones(3))
        phase, kept = integration._by_diffrax(inputs, method, None, not tape, tape)
        assert phase.t == 1.8 and phase.result == (dfx.RESULTS.event_occurred if ended else result)
        assert list(phase.stats.values()) == [6, 4, 2]
        assert phase.ys is states[0] and phase.interpolation == "whole" and phase.accepted is record
        np.testing.assert_array_equal(phase.y.packed, 4 * np.ones(5))
        assert phase.irregular == (own.regular_only is None)
        (term, _, t0, t1, first, start, (run, rows)), options = asked.pop()
        assert term.vector_field is regular_derivative and (t0, t1, first) == (0, 2, 0.25) and start is y0
        assert run.step == "step" and run.until == 2 and run.guard is None and rows.all()
        saved = options["saveat"]
        assert len(saved.subs) == 2 + tape and saved.dense == (not tape) and saved.solver_state
        assert saved.subs[1].t1 and (not tape or (saved.subs[2].t0 and saved.subs[2].steps))
        assert isinstance(options["adjoint"], dfx.ForwardMode) and options["max_steps"] == 7
        assert not options["throw"]  # whoever asked is told at the end of the run
        if tape:
            assert kept.ts is times[2] and kept.ys is states[2] and kept.count == 4 - failed and kept.end is y0
            ends = [1.0, 2.0, 3.9, 4.0] if failed else [1.0, 2.0, 3.0, 3.9]
            np.testing.assert_array_equal(kept.ends, [*ends, *[np.inf] * 4])
        else:
            assert kept is None


class Noted(dfx.ConstantStepSize):
    """With a set, which is no key of a program."""

    notes: object = eqx.field(default_factory=set)


class NotedBosh3(dfx.Bosh3):
    """With a set, which is no key of a program."""

    notes: object = eqx.field(default_factory=set)


class Controlled(dfx.ConstantStepSize):
    """Accepts errors up to one, with a known verdict on the step that follows."""

    begin: jax.Array
    end: jax.Array
    jumped: jax.Array
    fails: jax.Array

    def adapt_step_size(self, t0, t1, y0, y1, args, error, order, state):
        accept, infinite = jnp.all(error.packed <= 1), jnp.any(jnp.isinf(error.packed))
        result = dfx.RESULTS.where(self.fails, dfx.RESULTS.dt_min_reached, dfx.RESULTS.successful)
        begin = jnp.where(accept, self.begin, t0)
        return accept, begin, self.end, self.jumped, state + jnp.where(infinite, 100, order), result


def test_an_attempt_of_a_compiled_run_is_judged_as_in_diffraxs_loop(monkeypatch):
    """What is carried on, whether it is accepted and whether another one follows, from 1 to 2 s of a run that lasts until 2.5 s.

    A step that would end just before that ends then; after a rejection half of the rest is tried there. The first failure is told, but none of
    an attempt that is rejected.
    """
    field, in_use, _ = _passing()
    solver, y = ConstrainedSolver(dfx.Bosh3()), StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(()))
    kind, zero = object.__new__(compiled_run._RunKind), jnp.zeros(())
    kind.__dict__.update(nq=2, nv=2, max_steps=7)
    reasons = dfx.RESULTS.successful, dfx.RESULTS.breakdown, dfx.RESULTS.nonfinite, dfx.RESULTS.dt_min_reached

    @jax.jit
    @jax.vmap
    def found(case):
        def judged(self, step, start):
            before = start.before
            sure = before.certified & jnp.all(before.rows.in_use == in_use) & start.jumped
            after = dataclasses.replace(
                before,
                inner=(y.like(before.inner[0].packed + sure), jnp.array(True)),
                basis=before.basis + start.t1 - start.t0,
                residual=before.residual + 0.5,
                failed=case["failed"],
            )
            y1, error = y.like(start.y0.packed + step.raw.packed), y.like(y.packed + case["error"])
            told = dfx.RESULTS.where(case["broken"], reasons[1], reasons[0])
            return y1, error, {"shift": y.like(y.packed + 6)}, after, told

        monkeypatch.setattr(ConstrainedSolver, "judged", judged)
        carry = compiled_run.Carry(
            t0=zero + 1, t1=zero + 2, y0=y.packed + 1, slope=y.packed + 2, basis=jnp.ones((2, 2)), jumped=jnp.array(True),
            residual=3 * jnp.ones(2), failed=jnp.array(False), controller=zero + 10, steps=case["steps"],
            accepted=jnp.array(3), result=dfx.RESULTS.where(case["over"], reasons[2], reasons[0]),
        )  # fmt: skip
        controller = Controlled(case["begin"], case["end"], case["jumped"], case["fails"])
        settings = compiled_run._RunSettings(controller, zero + 2.5, zero + 2.4, None, jnp.array(True))
        made = [y.packed + 4, jnp.ones((4, 5)), False, y.q, y.v, *jnp.zeros((2, 2)), jnp.zeros((2, 2)), False]
        given = carry, list(map(jnp.asarray, made)), case["too_long"], in_use, solver, field, settings, kind
        after, accepted, proceed, shift = compiled_run._judge_attempt(*given)
        numbers = (
            after.y0[0],
            after.slope[0],
            after.basis[0, 0],
            after.residual[0],
            after.jumped,
            after.failed,
            after.t0,
            after.t1,
        )
        numbers += after.controller, after.steps, after.accepted, accepted, proceed, shift[0]
        told = [k * (after.result == reason) for k, reason in enumerate(reasons)]
        return jnp.stack([jnp.asarray(x, float) for x in (*numbers, sum(told))])

    usual = {"error": 0.5, "begin": 2.0, "end": 2.3, "steps": 5}
    usual |= dict.fromkeys(("failed", "broken", "over", "fails", "jumped", "too_long"), False)
    cases = [{}, {"end": 2.4}, {"end": 2.45}, {"end": 2.6}, {"begin": 2.5, "end": 3.0}, {"begin": 2.6, "end": 3.0}]
    cases += [{name: True} for name in ("failed", "broken", "over", "fails", "jumped", "too_long")]
    cases += [
        {"error": 2.0} | more
        for more in ({}, {"end": 2.45}, {"failed": True}, {"broken": True}, {"over": True}, {"fails": True})
    ]
    cases += [{"error": np.nan}, {"steps": 6}, {"broken": True, "fails": True}, {"broken": True, "too_long": True}]
    cases += [{"broken": True, "over": True}, {"error": 2.0, "jumped": True}]
    cases = [usual | case for case in cases]
    for case, told in zip(
        cases, found({name: jnp.asarray([case[name] for case in cases]) for name in usual}), strict=True
    ):
        infinite = np.isnan(case["error"]) or (case["too_long"] and not case["broken"])
        good = not infinite and case["error"] <= 1
        accept, begin = good or case["failed"], min(case["begin"], 2.5) if good else 1.0
        end = case["end"] if case["end"] <= 2.4 else 2.5 if accept else (begin + 2.5) / 2
        kept = (5, 3, 2, 3.5, case["jumped"], case["failed"]) if accept else (1, 2, 1, 3, True, False)
        reason = 2 if case["over"] else 1 if case["broken"] and accept else 3 if case["fails"] else 0
        more = begin < 2.5 and not reason and case["steps"] < 6
        expected = *kept, begin, end, 110 if infinite else 13, case["steps"] + 1, 3 + accept, accept, more, 6, reason
        np.testing.assert_allclose(told, expected, rtol=1e-14, err_msg=str(case))


def test_a_run_begins_with_what_is_certain_where_it_starts():
    """All rows that act and their slope, or those that are given; nothing where that is not sure, or the start refused."""
    (field, in_use, _), y = _passing(), StateVector.of(*jnp.ones((2, 2)), jnp.zeros(()))
    solver, changed = ConstrainedSolver(dfx.Bosh3()), dataclasses.replace
    start = lambda **more: solver.init(None, 0.0, 1.0, y, (changed(field, **more), in_use))
    for unsure, consistent in ((False, True), (True, True), (False, False)):
        found, sure = start(step=Quick(jnp.array(unsure)), consistent=jnp.array(consistent)), consistent and not unsure
        assert bool(found.certified) == bool(found.inner[1]) == bool(found.rows.in_use.all()) == sure
        assert (int(found.lowest_rank), int(found.highest_rank), int(found.rows.rank)) == (
            (2, 2, 2) if sure else (2, 0, 0)
        )
        assert found.inner[0].packed[0] == (7 if sure else 0) and found.basis[0, 0] == (3 if sure else 0)
        assert not found.failed and bool(found.steady) and not found.compiled + found.sparse
    one = in_use.at[1].set(False)
    given = start(step=Quick(jnp.array(False)), regular_only=RegularOnly(one))
    assert given.rows.in_use.tolist() == [True, False] and bool(given.certified) and int(given.lowest_rank) == 1
    # A sparse step looks at all rows that act itself.
    assert [bool(start(regular_only=RegularOnly(rows)).certified) for rows in (in_use, one)] == [False, True]


def test_rows_are_decided_about_anew_where_a_step_ends_unless_they_are_usual(monkeypatch):
    field, in_use, _ = _passing()
    sound, stages = Rows.independent(in_use, float), object.__new__(Stages)
    object.__setattr__(stages, "last", SimpleNamespace(factor=None, terms=None))
    own = dataclasses.replace
    second = jnp.array([False, True])
    for certain in (True, False):
        monkeypatch.setattr(solver_module, "certify_dense", lambda *_, certain=certain: jnp.array(certain))
        assert bool(solver_module._certify_end(field, sound, stages)) == certain
        for at, rows in (
            (own(field, consistent=jnp.array(False)), sound),
            (own(field, choice=second), sound),
            (own(field, formulation=jm.formulation.Elimination((0,))), sound),
            (field, own(sound, degenerate=second)),
            (field, own(sound, unfit=jnp.array(True))),
        ):
            assert not solver_module._certify_end(at, rows, stages)


def test_a_step_that_has_failed_stays_where_it_began_and_has_no_states_between():
    """A step as short as time is resolved is not made shorter by a guard."""
    field, in_use, _ = _passing()
    y = StateVector.of(*jnp.zeros((2, 2)), jnp.zeros(()))
    accepted = ConstrainedSolver(dfx.Tsit5()).init(None, 0.0, 1.0, y, (field, in_use))
    end, error, dense = y.like(y.packed + 1), y.like(y.packed + 2), {"shift": y.like(y.packed + 3), "inner": 4.0}
    good, bad = dfx.RESULTS.successful, dfx.RESULTS.breakdown
    for irregular in (False, True):
        attempt = end, error, dense, accepted, good
        y1, wrong, kept, record, result = judgement.or_stop(jnp.array(irregular), y, attempt)
        assert (float(y1.packed[0]), float(wrong.packed[0])) == ((0.0, 0.0) if irregular else (1.0, 2.0))
        assert kept is dense and bool(record.failed) == irregular and bool(result == (bad if irregular else good))
        y1, wrong, kept, record, told = judgement.with_verdict(end, error, dense, accepted, result)
        assert y1 is end and wrong is error and record is accepted and told is result and kept["inner"] == 4.0
        assert float(kept["shift"].packed[0]) == 3 or (irregular and np.isnan(kept["shift"].packed).all())
    eps = np.finfo(float).eps
    for t in (-8.0, 8.0):
        for units, possible in ((15.0, False), (16.0, False), (18.0, True)):
            times = jnp.asarray(t), jnp.asarray(t + units * eps * 8)
            assert bool(judgement.may_be_rejected(good, *times)) == possible
            assert not judgement.may_be_rejected(bad, *times)


def test_a_decision_is_carried_on_where_it_is_certified_and_was_of_sound_rows(monkeypatch):
    """Not where some are degenerate or do not fit, nor where a formulation makes a choice, which is looked at anew."""
    field, in_use, _ = _passing()
    asked = []
    monkeypatch.setattr(solver_module, "certify_dense", lambda *given: asked.append(given[-1]) or jnp.array(True))
    stages = object.__new__(Stages)
    object.__setattr__(stages, "last", SimpleNamespace(factor=0.0, terms=0.0))
    sound = Rows.independent(in_use, float)
    certified = lambda field, **rows: bool(_certify_end(field, dataclasses.replace(sound, **rows), stages))
    assert certified(field) and asked == [2 * NEAR]
    assert not certified(dataclasses.replace(field, consistent=jnp.array(False)))
    assert not certified(field, unfit=jnp.array(True))
    assert not certified(field, degenerate=jnp.array([False, True]))
    assert len(asked) == 4 and not certified(dataclasses.replace(field, choice=in_use)) and len(asked) == 4


def test_of_a_failure_the_most_particular_reason_is_told():
    """Rows that contradict each other are one where the run starts; of a run that has succeeded none is told."""
    fine = dict.fromkeys(("contradiction", "indeterminate", "unfit", "jump", "inconsistent"), False)
    broken, more = dfx.RESULTS.breakdown, jm.RESULTS

    def told(result, steps, *what):
        case = fine | dict.fromkeys(what, True)
        rows = dataclasses.replace(
            Rows.independent(jnp.ones(2, bool), float),
            contradiction=jnp.array([0.0, float(case["contradiction"])]),
            indeterminate=jnp.array([False, case["indeterminate"]]),
            unfit=jnp.array(case["unfit"]),
        )
        accepted = SimpleNamespace(rows=rows, branch_jump=jnp.array(case["jump"]))
        motion = SimpleNamespace(accepted=accepted, result=result, stats={"num_steps": jnp.array(steps)})
        return judgement.verdict(motion, jnp.array(not case["inconsistent"]))

    assert bool(told(dfx.RESULTS.successful, 1, *fine) == more.successful)
    assert bool(told(dfx.RESULTS.max_steps_reached, 9) == more.promote(dfx.RESULTS.max_steps_reached))
    assert bool(told(broken, 2, "contradiction") == more.projection_failed)
    reasons = [more.projection_failed, more.contradictory_constraints, more.undetermined_motion, more.unfit_choice]
    for count, reason in enumerate([*reasons, more.unresolved_passage, more.inconsistent_state]):
        assert bool(told(broken, 1, *list(fine)[:count]) == reason)


def test_a_run_that_fails_where_it_starts_says_why(monkeypatch):
    """Of one that goes on the amounts mean nothing."""
    field, in_use, _ = _passing()
    sound, phases = Rows.independent(in_use, float), object.__new__(Phases)
    second = jnp.array([False, True])
    cases = {
        "The choice of `GaussProjection` does not fit": dataclasses.replace(sound, unfit=jnp.array(True)),
        "Constraint 'both' must not contradict": dataclasses.replace(sound, contradiction=1e-4 * second),
        "The motion is not determined at the start: rows of constraint 'both'": dataclasses.replace(
            sound, indeterminate=second
        ),
    }
    for text, rows in cases.items():
        monkeypatch.setattr(Phases, "of_start", lambda self, rows=rows: (jnp.array(True), rows))
        with pytest.raises(ValueError, match=f"^{text}[^\n]*$"):
            enforce(None, _check_motion(field, phases))
        monkeypatch.setattr(Phases, "of_start", lambda self, rows=rows: (jnp.array(False), rows))
        enforce(None, _check_motion(field, phases))
    monkeypatch.setattr(Phases, "of_start", lambda self: (jnp.array(True), sound))
    enforce(None, _check_motion(field, phases))


def test_statistics_of_a_run_are_those_of_all_phases_that_took_a_step():
    """Two took none; of the others the first one began by a step that may have failed."""
    one = Rows.independent(jnp.ones(2, bool), float)
    each = [dataclasses.replace(one, rank=jnp.array(k)) for k in (0, 1, 0, 2)]
    rows = jax.tree.map(lambda *x: jnp.stack(x), *each)
    residual = jnp.array([[0.0, 0.0], [1e-14, 4e-13], [0.0, 0.0], [3e-13, 2e-14]])
    ranks = {"lowest_rank": jnp.array([2, 2, 0, 1]), "highest_rank": jnp.array([0, 2, 0, 1])}
    counts = {"compiled": jnp.array([0, 3, 0, 1]), "sparse": jnp.array([0, 0, 0, 5])}
    switches = Switches(jnp.array([0, 1, 1, 2]), 0.1 + jnp.arange(8.0).reshape(4, 2), *[jnp.zeros((4, 2, 3), bool)] * 2)

    def phases(steps, failed, residual=residual):
        accepted = SimpleNamespace(rows=rows, residual=residual, switches=switches, **ranks, **counts)
        return SimpleNamespace(accepted=accepted, stats={"num_steps": jnp.array(steps)}, failed=jnp.array(failed))

    run = phases([0, 7, 0, 1], [True, False, True, True])
    found = Phases.statistics(run)
    expected = {"num_steps": 8, "compiled_steps": 4, "sparse_steps": 5, "lowest_rank": 1, "highest_rank": 2}
    assert {name: int(found[name]) for name in expected} == expected and found["largest_residual"] == 4e-13
    np.testing.assert_array_equal(found["row_residuals"], [3e-13, 4e-13])
    none = Phases.statistics(phases([0] * 4, [False] * 4, jnp.zeros((4, 0))))
    assert none["lowest_rank"] == none["largest_residual"] == 0
    changes = Phases.switches(run)
    np.testing.assert_array_equal(changes.t, [np.nan, np.nan, 2.1, 3.1, np.nan, np.nan, 6.1, 7.1])
    assert changes.count == 4 and changes.before.shape == (8, 3)
    for steps, failed, told in ((1, True, True), (2, True, False), (1, False, False)):
        found, own = Phases.of_start(phases([0, steps, 0, 1], [True, failed, True, True]))
        assert found == told and own.rank == 1


def test_stages_of_a_step_that_comes_near_to_a_pose_are_made_once_more_from_further_away():
    """And only those: by a vector field whose rate is the limit, near where the state is closer to zero than that. A slope that is known is that of no stage."""

    class Looked(VectorField):
        def evaluate(self, t, y, in_use, ends, limit):
            _, terms, factor = self.evaluate_regular(t, y, in_use)
            near, end = y.packed[0] < limit, Correction.none(y.q, y.v, in_use, factor.basis)
            flow, tau = y.like(limit + 0 * y.packed), jnp.where(near, t + 1, 0)
            return Sample(flow, terms, factor, near=near, tau=tau, turns=near, end=end)

    field, in_use, _ = _passing()
    look = Looked(**{f.name: getattr(field, f.name) for f in dataclasses.fields(field)})
    alone = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    free = dataclasses.replace(look, system=alone, scale=jm.as_state(alone, jnp.zeros(2)).scale)
    at = lambda x: StateVector(jnp.full(5, x), 2, 2)

    def made(x, known, field=look, in_use=in_use):
        times, first = (jnp.zeros(()), jnp.ones(())), (at(7.0), jnp.array(known))
        stages = all_stages(field, Tableau.of(dfx.Bosh3(), float), *times, at(x), in_use, first)
        assert stages.turns.tolist() == stages.near.tolist()
        return stages.slopes.packed[:, 0].tolist(), stages.near.tolist(), (stages.tau > 0).tolist()

    for x in (1.0, NEAR + 1e-3):
        assert made(x, False) == ([NEAR] * 4, [False] * 4, [False] * 4)
    for known in (False, True):
        near = [not known, True, True, True]
        assert made(-9.0, known) == ([7.0 if known else BESIDE] + [BESIDE] * 3, near, near)
    for field, used in ((free, in_use[:0]), (dataclasses.replace(look, smooth=True), in_use)):
        assert made(-1.0, False, field, used)[0] == [NEAR] * 4


def _where_two_curves_cross(x, **options):
    """A particle on y = sin x, whose row y² − sin² x vanishes where −sin x meets it, from x with ẋ = 2 by constant steps."""
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        potential=lambda t, q, p: 9.81 * q[1],
        constraints=[jm.Holonomic("curves", lambda t, q, p: q[1] ** 2 - jnp.sin(q[0]) ** 2)],
    )
    start = jm.as_state(system, jnp.stack([x, jnp.sin(x)]), 2 * jnp.stack([1.0, jnp.cos(x)]), length=1.0)
    steps = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=0.01, max_steps=32)
    return jm.simulate(system, start, [0.3], throw=False, **steps, **options)


EIGHT_WAYS = -0.2 - 0.02 * np.arange(8) / 8  # steps land at the crossing in so many ways


@pytest.mark.slow
def test_a_particle_stays_on_its_curve_and_keeps_its_energy_where_two_curves_cross():
    found = jax.jit(jax.vmap(_where_two_curves_cross))(EIGHT_WAYS)
    x, y, v = found.q[:, -1, 0], found.q[:, -1, 1], found.v[:, -1]
    energy = lambda x, v: 0.5 * v**2 * (1 + jnp.cos(x) ** 2) + 9.81 * jnp.sin(x)
    assert bool(jnp.all(found.result == jm.RESULTS.successful)) and bool(jnp.all(x > 0.1))
    compiled = found.stats["compiled_steps"]
    assert bool(jnp.all((compiled > 0) & (compiled < found.stats["num_steps"])))
    np.testing.assert_allclose(y, np.sin(x), atol=1e-14)
    np.testing.assert_allclose(v[:, 1], np.cos(x) * v[:, 0], atol=1e-13)
    np.testing.assert_allclose(energy(x, v[:, 0]), energy(EIGHT_WAYS, 2.0), atol=3e-8)


@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Bosh3(), dfx.Dopri5(), dfx.Midpoint(), dfx.Heun()])
def test_a_step_ends_by_the_weights_of_its_stages_at_its_end(solver):
    """Whether its last stage is there or none is."""
    (a, c), own = Tableau.of(solver, float).with_end, solver.tableau
    count = own.c.size + 1
    assert a.shape == (count + 1, count)
    for i in range(count - 1):
        np.testing.assert_array_equal(a[i + 1], [*own.a_lower[i], *[0] * (count - 1 - i)])
    np.testing.assert_array_equal(a[-1], own.b_sol)
    np.testing.assert_array_equal(c, [0, *own.c, 1])


@pytest.mark.slow
@pytest.mark.parametrize("engine", (None, jm.XLA()))
def test_derivatives_where_two_curves_cross(engine):
    """Of both modes, and of the motion along the curve alone."""
    end = lambda x, adjoint=None: _where_two_curves_cross(x, engine=engine, adjoint=adjoint).q[-1, 0]
    backwards = jax.jit(jax.vmap(jax.grad(end)))(EIGHT_WAYS)
    along = lambda x: jax.jvp(lambda x: end(x, dfx.ForwardMode()), (x,), (1.0,))[1]
    forwards = jax.jit(jax.vmap(along))(EIGHT_WAYS)
    rate = lambda t, y: [y[1], np.cos(y[0]) * (np.sin(y[0]) * y[1] ** 2 - 9.81) / (1 + np.cos(y[0]) ** 2)]
    exact = lambda x: solve_ivp(rate, (0, 0.3), [x, 2.0], method="DOP853", rtol=1e-13, atol=1e-13).y[0, -1]
    differences = [(exact(x + 1e-4) - exact(x - 1e-4)) / 2e-4 for x in EIGHT_WAYS]
    np.testing.assert_allclose(forwards, backwards, atol=6e-8)
    np.testing.assert_allclose(backwards, differences, atol=5e-7)


@pytest.mark.slow
def test_order_through_a_crossing_without_symmetry():
    """(y − x²)(y + x) = 0, crossed at the origin along the parabola."""
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.eye(2),
        force=lambda t, q, v, p: jnp.stack([jnp.cos(3 * q[0]) + 0.3, -9.81]),
        constraints=[jm.Holonomic("node", lambda t, q, p: (q[1] - q[0] ** 2) * (q[1] + q[0]))],
    )
    along = lambda t, y: [
        y[1],
        (np.cos(3 * y[0]) + 0.3 - 9.81 * 2 * y[0] - 4 * y[0] * y[1] ** 2) / (1 + 4 * y[0] ** 2),
    ]
    exact = solve_ivp(along, (0, 0.8), [-0.3, 1.0], method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    state = jm.assemble(system, [-0.3, 0.09], [1.0, -0.6])
    run = jax.jit(
        lambda step: jm.simulate(
            system, state, [0.8], solver=RK4(), stepsize_controller=dfx.ConstantStepSize(), dt0=step
        )
    )
    counts = np.array([80, 160, 320, 640])
    sols = [run(jnp.array(0.8 / n)) for n in counts]
    errors = [abs(float(s.q[0, 0]) - exact[0]) + abs(float(s.v[0, 0]) - exact[1]) for s in sols]
    assert -np.polyfit(np.log(counts), np.log(errors), 1)[0] > 3, errors
    assert all(abs(float(s.q[0, 1] - s.q[0, 0] ** 2)) < 1e-12 for s in sols)


@pytest.mark.parametrize("start, rate", [("rest", 0.0), ("spin", 5.0)])
@pytest.mark.slow_cases("rest-0.0")
def test_slider_crank_of_the_reference(start, rate):
    reference = np.load("tests/data/slidercrank_singular.npz")
    system, ts = slider_crank(), jnp.asarray(reference["t"])
    state = jm.assemble(system, [0.0, 0.0], [rate, -2 * rate])
    sol = jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=dfx.ConstantStepSize(), dt0=0.01)
    np.testing.assert_allclose(sol.q[:, 0], reference[f"q1_{start}"], atol=1e-9)
    found = jm.reactions(system, sol)
    np.testing.assert_allclose(found.vdot[:, 0], crank_acceleration(sol.q[:, 0], sol.v[:, 0]), atol=1e-8)
    # C, of the size of the distance to the pose, takes λ to the force; of λ itself an error of v̇ leaves the more open the closer it is.
    force, near = found.multipliers["slider"][:, 0] - reference[f"lam_{start}"], np.abs(np.cos(sol.q[:, 0]))
    assert np.abs(force * near).max() < 1e-7 and np.abs(force[near > 0.01]).max() < 1e-7
    # Beside the pose v̇ is that of the motion, though an error of the velocity that is divided by the distance would show.
    angles = np.geomspace(1e-6, 1e-3, len(ts)) - np.pi / 2
    motion, off = np.array([1.0, -2.0]), np.array([5.0, 5.0 + 5e-9])
    beside = dataclasses.replace(sol, q=jnp.array(np.outer(angles, motion)), v=jnp.tile(off * motion, (len(ts), 1)))
    found = jm.reactions(system, beside)
    np.testing.assert_allclose(found.vdot[:, 0], crank_acceleration(angles, 5.0), atol=1e-7)


@pytest.mark.slow
def test_nfourbar_of_the_reference():
    """A02, N = 2, ten passages: B₀ within 1e-8 m."""
    reference = np.load("tests/data/A02_nfourbar.npz")
    system = nfourbar(2)
    state = jm.assemble(system, *pose(2, jnp.array(np.pi / 2), jnp.array(-1.0)))
    ts = jnp.asarray(reference["t"])
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-10, atol=1e-10), step_ts=ts)
    sol = jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)
    np.testing.assert_allclose(2 * sol.q[:, 0], reference["B0x_N2"], atol=1e-8)
    np.testing.assert_allclose(2 * sol.q[:, 1], reference["B0y_N2"], atol=1e-8)
    assert float(jnp.abs(jm.energy(system, sol).balance).max()) < 1e-8


METHODS = [
    pytest.param(
        formulation, id=name, marks=() if name in ("parameterised", "CoordinatePartition") else pytest.mark.slow
    )
    for name, formulation in FORMULATIONS.items()
]


@pytest.mark.slow_except("CoordinatePartition")
@pytest.mark.parametrize("formulation", METHODS)
@pytest.mark.slow
def test_every_formulation_at_the_flat_pose(formulation):
    """That of the motion with what degenerate rows say, that of Gauss's principle without."""
    system = nfourbar(2)
    flat = jm.assemble(system, *pose(2, jnp.array(0.0), jnp.array(-4.0)))
    terms = jm.evaluate(system, flat)
    np.testing.assert_allclose(formulation.acceleration(terms).vdot[2], -9.81 * 7 / 6, atol=1e-9)
    bare = dataclasses.replace(terms, nearby=None)
    np.testing.assert_allclose(
        formulation.acceleration(bare).vdot, jm.formulation.GaussProjection().acceleration(bare).vdot, atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "formulation",
    [
        pytest.param(jm.formulation.GaussProjection(), id="GaussProjection"),
        # An angle of an upright stays a fit choice where more velocities look free than are.
        pytest.param(jm.formulation.CoordinatePartition((2,)), id="one coordinate"),
        pytest.param(jm.formulation.CoordinatePartition(), id="CoordinatePartition"),
    ],
)
def test_a_run_from_a_singular_pose_begins_with_the_motion(formulation):
    """From its very first stage, whose rows are lost: states within rounding of those of the one equation that is left."""
    system, ts = nfourbar(2), 1e-4 * jnp.arange(1, 4)
    flat = jm.assemble(system, *pose(2, jnp.array(0.0), jnp.array(-4.0)))
    found = jm.simulate(system, flat, ts, dt0=1e-4, formulation=formulation)
    motion = lambda t: reduced_motion(2, jnp.array(0.0), jnp.array(-4.0), t, nfourbar_joints.PARAMS)
    p = system.params
    rate = -4 - p["g"] / p["l"] * 3 * 7 / (2 * 9) * ts  # cos of the angle is 1 to 1e-6: an error of 4e-9 at the end
    np.testing.assert_allclose(found.q[:, 2], motion(ts), atol=1e-12)
    np.testing.assert_allclose(found.v[:, [2, 5, 8]], rate[:, None].repeat(3, 1), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", METHODS)
def test_every_formulation_through_singular_poses(formulation):
    """The spinning slider-crank for two seconds, through its first passage."""
    reference = np.load("tests/data/slidercrank_singular.npz")
    system, ts = slider_crank(), jnp.asarray(reference["t"][:101])
    state = jm.assemble(system, [0.0, 0.0], [5.0, -10.0])
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-10, atol=1e-10), step_ts=ts)
    sol = jm.simulate(system, state, ts, formulation=formulation, solver=dfx.Dopri8(), stepsize_controller=controller)
    assert int(jnp.sum(jnp.diff(jnp.sign(jnp.cos(sol.q[:, 0]))) != 0)) >= 1
    np.testing.assert_allclose(sol.q[:, 0], reference["q1_spin"][:101], atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("loops", [2, 4])
def test_long_steps_of_several_loops_pass_as_well(loops):
    """Many passages in absolute coordinates, where a step of high order leaves the constraints between its ends."""
    system = nfourbar_joints.nfourbar(loops).build("absolute")
    v = {f"up{i}.angle": -1.0 for i in range(loops + 1)} | {f"across{i}.x": 1.0 for i in range(loops)}
    ts, controller = jnp.linspace(0, 10.0, 11), dfx.PIDController(rtol=1e-8, atol=1e-8)
    sol = jm.simulate(system, jm.assemble(system, v=v), ts, solver=dfx.Dopri8(), stepsize_controller=controller)
    angle = reduced_motion(loops, jnp.array(np.pi / 2), jnp.array(-1.0), ts, nfourbar_joints.PARAMS)
    exact = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    np.testing.assert_allclose(jm.position(system, sol, "up0.b"), exact, atol=1e-5)


@pytest.mark.slow
def test_wherever_a_stage_lies_beside_a_pose_at_which_two_rows_vanish():
    """Steps of all lengths over one passage: samples of an interpolated stage fall where one row counts as near and the other hardly does."""
    system = nfourbar(2)
    state = jm.assemble(system, *pose(2, 1.61705321, -7.62081772))

    @jax.jit
    @jax.vmap
    def ends(step):
        constant = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=step, max_steps=17)
        sol = jm.simulate(system, state, 17 * step[None], solver=dfx.Dopri8(), **constant)
        return sol.q[0], sol.v[0]

    steps = 0.01293223 * np.concatenate([np.linspace(0.96, 1.03, 141), np.linspace(0.9991, 0.9993, 21)])
    q, v = ends(jnp.asarray(steps))
    exact = solve_ivp(
        lambda t, y: [y[1], -9.81 * 7 / 6 * np.cos(y[0])],
        (0, 17 * steps.max()),
        [1.61705321, -7.62081772],
        method="DOP853",
        rtol=1e-13,
        atol=1e-13,
        dense_output=True,
    ).sol(17 * steps)
    expected = jax.vmap(pose, in_axes=(None, 0, 0))(2, *jnp.asarray(exact))
    np.testing.assert_allclose(jnp.cos(q[:, 2::3]), jnp.cos(expected[0][:, 2::3]), atol=1e-11)
    np.testing.assert_allclose(v, expected[1], atol=1e-9)


@pytest.mark.slow
def test_a_thousand_phases_and_step_sizes_of_the_nfourbar():
    """One batch of constant steps, ten seconds and many passages each, all within 1e-7 of the one equation left."""
    system = nfourbar(2)

    @jax.jit
    @jax.vmap
    def runs(step, angle, rate):
        state = jm.assemble(system, *pose(2, angle, rate))
        constant = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=step, max_steps=1024)
        return jm.simulate(system, state, [10.0], solver=dfx.Dopri8(), throw=False, **constant)

    rng = np.random.default_rng(0)
    angle, rate = rng.uniform(-np.pi, np.pi, 1000), rng.uniform(-8.0, -7.0, 1000)
    sol = runs(jnp.asarray(rng.uniform(0.010, 0.016, 1000)), jnp.asarray(angle), jnp.asarray(rate))
    assert bool(jnp.all(sol.result == jm.RESULTS.successful))
    exact = solve_ivp(
        lambda t, y: np.concatenate([y[1000:], -9.81 * 7 / 6 * np.cos(y[:1000])]),
        (0, 10),
        np.concatenate([angle, rate]),
        method="DOP853",
        rtol=1e-13,
        atol=1e-13,
    ).y[:1000, -1]
    error = np.hypot(2 * sol.q[:, 0, 0] - np.cos(exact), 2 * sol.q[:, 0, 1] - np.sin(exact))
    assert error.max() < 1e-7, error.max()


@pytest.mark.slow  # an example shows it, too
def test_bricard_moves_by_its_only_degree_of_freedom():
    """A04: 30 rows of rank 29 at every accepted step, also with large steps; P₃ and energy converge."""
    system, state = bricard()

    @jax.jit
    def run(tol):
        return jm.simulate(
            system,
            state,
            [10.0],
            solver=dfx.Dopri8(),
            stepsize_controller=dfx.PIDController(rtol=tol, atol=tol),
        )

    exact = run(jnp.array(1e-13))
    initial = float(jm.energy(system, state).total)
    accepted = jm.Projection().tolerance(
        float
    )  # of steps as long as the first tolerance allows three corrections leave more than rounding
    for tol, distance, drift in ((1e-3, 1e-2, 1e-1), (1e-6, 1e-5, 1e-4), (1e-9, 1e-8, 1e-7), (1e-11, 1e-10, 1e-8)):
        sol = run(jnp.array(tol))
        assert int(sol.stats["lowest_rank"]) == int(sol.stats["highest_rank"]) == 29
        assert float(sol.stats["largest_residual"]) < (accepted if tol == 1e-3 else 1e-13)
        assert float(jnp.linalg.norm(p3(sol.q[0]) - p3(exact.q[0]))) < distance
        assert abs(float(jm.energy(system, sol).total[0]) - initial) < drift
        assert float(sol.stats["num_rejected_steps"]) < 0.5 * float(sol.stats["num_accepted_steps"])


@pytest.mark.slow
def test_steps_that_land_at_a_singular_pose_go_on():
    """The fifth step ends there, or beside it: one row is lost, and left alone."""
    system, rate = nfourbar(1), lambda t, y: [y[1], -1.2 * 9.81 * np.cos(y[0])]
    constant = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.02, "max_steps": 32}
    scale = jm.assemble(system, *pose(1, jnp.array(0.5), jnp.array(-4.0))).scale
    for distance in (0.0, 1e-9, 1e-7, -1e-7):
        start = solve_ivp(rate, (0.1, 0.0), [distance, -4.0], method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
        exact = solve_ivp(rate, (0.0, 0.4), start, method="DOP853", rtol=1e-13, atol=1e-13).y[0, -1]
        state = jm.State(jnp.zeros(()), *pose(1, *jnp.asarray(start)), scale)
        np.testing.assert_allclose(jm.simulate(system, state, [0.4], **constant).q[0, 2], exact, atol=1e-6)


@functools.cache
def flat_landing():
    """Value and gradient of the angle after a run with constant steps of a parallelogram, by gravity and start, which is exact."""
    system = nfourbar(1)
    scale = jm.assemble(system, *pose(1, jnp.array(0.5), jnp.array(-4.0))).scale

    def end(gravity, angle, rate):
        changed = eqx.tree_at(lambda s: s.params["g"], system, gravity)
        state = jm.State(jnp.zeros(()), *pose(1, angle, rate), scale)
        sol = jm.simulate(
            changed, state, [0.4], stepsize_controller=dfx.ConstantStepSize(), dt0=0.02, max_steps=32, throw=False
        )
        return sol.q[0, 2]

    return jax.jit(jax.value_and_grad(end, argnums=(0, 1, 2)))


@pytest.mark.slow_except("1e-05")
@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-7, 1e-5, 1e-3])
@pytest.mark.slow
def test_gradients_with_a_step_that_lands_near_a_singular_pose(distance):
    """The fifth step lands there; derivatives of the later position against those of the reduced equation."""

    def reduced(y, span, gravity=9.81):
        rhs = lambda t, y: [y[1], -1.2 * gravity * np.cos(y[0])]
        return solve_ivp(rhs, span, y, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]

    for side in (1, -1):
        start = reduced([side * distance, -4.0], (0.1, 0.0))
        base = np.array([9.81, *start])
        value, gradient = flat_landing()(*(jnp.asarray(x) for x in base))
        np.testing.assert_allclose(value, reduced(start, (0, 0.4))[0], atol=1e-6)
        for i in range(3):
            step = 1e-5 * np.eye(3)[i]
            ends = [reduced((base + s * step)[1:], (0, 0.4), (base + s * step)[0])[0] for s in (1, -1)]
            np.testing.assert_allclose(gradient[i], (ends[0] - ends[1]) / 2e-5, rtol=1e-5)


@pytest.mark.slow
def test_at_rest_on_a_bifurcation_the_motion_is_not_determined():
    system = nfourbar(1)
    state = jm.assemble(system, *pose(1, jnp.array(0.0), jnp.array(0.0)))
    out = jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state))
    assert out.result == jm.RESULTS.undetermined_motion
    with pytest.raises(ValueError, match="not determined at the start: rows of constraint 'joints'"):
        jm.simulate(system, state, [1.0])
    sol = jm.simulate(system, state, [1.0], throw=False)
    assert sol.result == jm.RESULTS.undetermined_motion and bool(jnp.all(jnp.isnan(sol.q)))
    assert "The motion is not determined" in str(jm.diagnose(system, state))


@pytest.mark.slow
def test_redundant_rows_at_rest_are_not_taken_for_a_bifurcation():
    system, state = bricard()
    out = jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state))
    assert out.result == jm.RESULTS.successful and int(out.rank) == 29
    assert not bool(jnp.any(jnp.isnan(out.multipliers)))


def test_diagnosis_of_a_singular_pose():
    system = nfourbar(2)
    found = jm.diagnose(system, jm.assemble(system, *pose(2, jnp.array(0.0), jnp.array(-4.0))))
    assert (found.rank, found.rank_nearby, found.freedom, found.freedom_nearby) == (12, 14, 3, 1)
    (group,) = found.dependent
    assert (group.redundant, group.degenerate, group.indeterminate) == (0, 2, 0)
    assert group.rows == {"joints": (0, 2, 4, 6, 8, 10, 12)}
    assert found.gap[0] > 0.01 and found.gap[1] < 1e-14
    assert "singular pose" in str(found) and "this pose and velocity only" in str(found)
    assert found.to_dict()["dependent"][0]["degenerate"] == 2


@pytest.mark.slow
def test_a_redundant_row_beside_a_lost_one():
    """Three parallel cranks in line: of two dependent rows one is degenerate, the other superfluous everywhere."""
    system = parallelogram.parallelogram()
    moving = jm.assemble(system, *parallelogram.pose(jnp.array(0.0), jnp.array(-3.0)))
    found = jm.diagnose(system, moving)
    assert (found.rank, found.rank_nearby, found.freedom_nearby) == (10, 11, 1)
    (group,) = found.dependent
    assert (group.redundant, group.degenerate, group.indeterminate) == (1, 1, 0)
    out = jm.formulation.GaussProjection().acceleration(jm.evaluate(system, moving))
    assert out.result == jm.RESULTS.successful
    np.testing.assert_allclose(out.vdot[2], -9.81 * (1.5 + 4) / (1 + 4), rtol=1e-12)
    at_rest = jm.assemble(system, *parallelogram.pose(jnp.array(0.0), jnp.array(0.0)))
    assert jm.diagnose(system, at_rest).dependent[0].indeterminate > 0


@pytest.mark.slow
def test_accelerations_beside_the_flat_pose_of_four_equal_bars():
    """Those of the crank alone, in absolute coordinates; a row that nearly vanishes contradicts none."""
    P, points = jm.planar, {"d": (1.0, 0.0)}
    bars = [P.Body.rod(name, mass, 1.0) for name, mass in (("crank", 1.0), ("coupler", 0.7), ("rocker", 0.5))]
    hinges = (
        ("A", "ground", "crank.a"),
        ("B", "crank.b", "coupler.a"),
        ("C", "coupler.b", "rocker.b"),
        ("D", "ground.d", "rocker.a"),
    )
    system = P.Mechanism(bars, [P.Revolute(*x) for x in hinges], gravity=(0.0, -9.81), points=points).build("absolute")
    w = -3.0
    for d in (0.0, 1e-9, 1e-8, 1e-7, 3e-7, 5e-7, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3):
        q = [0, 0, d, np.cos(d), np.sin(d), 0, 1, 0, d]
        v = [0, 0, w, -w * np.sin(d), w * np.cos(d), 0, 0, 0, w]
        out = jm.formulation.GaussProjection().acceleration(
            jm.evaluate(system, jm.assemble(system, np.array(q), np.array(v)))
        )
        assert out.result == jm.RESULTS.successful
        np.testing.assert_allclose(out.vdot[2], -9.81 * np.cos(d) * (0.5 + 0.7 + 0.25) / (1.5 / 3 + 0.7), rtol=1e-8)


def test_a_copy_of_a_row_is_superfluous_where_both_vanish():
    """x y + z (w − 3 z²/2) = 0, twice, beside x = 2 y: along z one leads on to w = 3 z²/2, and the other follows from it, where x and y begin to move too.

    Of both the multipliers are undefined or zero there; those of u = 0, twice, are what they are.
    """
    both = lambda t, q, p: (q[0] * q[1] + q[2] * (q[3] - 1.5 * q[2] ** 2)) * jnp.array([1.0, 2.0])
    line = jm.Holonomic("line", lambda t, q, p: q[0] - 2 * q[1])
    apart = jm.Holonomic("apart", lambda t, q, p: q[4] * jnp.array([1.0, 3.0]))
    force = lambda t, q, v, p: jnp.array([0.0, 0.0, 0.0, 0.0, 6.0])
    system = jm.System(
        5, mass=lambda t, q, p: jnp.eye(5), force=force, constraints=[jm.Holonomic("both", both), line, apart]
    )
    start, method = jm.as_state(system, jnp.zeros(5), length=1.0), jm.formulation.GaussProjection()

    @jax.jit
    def sorts(v, consistent, z=0.0):
        terms = jm.evaluate(
            system, dataclasses.replace(start, q=jnp.stack([0.0, 0.0, z, 1.5 * z**2, 0.0]), v=jnp.append(v, 0))
        )
        found = method.decide(terms, terms.nearby, consistent)
        counts = jnp.stack([jnp.sum(x) for x in (found.in_use, found.degenerate, found.indeterminate)])
        there = method.acceleration(terms)
        return counts, there.vdot[:4], there.uncertainty, there.multipliers

    counts, vdot, _, multipliers = sorts(jnp.array([0, 0, 2.0, 0]), True)
    assert counts.tolist() == [2, 1, 0]
    np.testing.assert_allclose(vdot, [0, 0, 0, 3 * 2.0**2], atol=1e-12)
    assert np.isnan(multipliers[:2]).any() and np.isfinite(multipliers[2:]).all()
    np.testing.assert_allclose(multipliers[3:] @ np.array([1.0, 3.0]), -6.0, rtol=1e-12)
    # Of a velocity that is off the motion beside the pose it is told by how much, relative to it.
    _, vdot, off, _ = sorts(jnp.array([0, 0, 2.0, 3 * 1e-4 * 2.0 + 1e-6]), True, 1e-4)
    np.testing.assert_allclose(vdot, [0, 0, -9 * 1e-4 * 2.0**2, 3 * 2.0**2], atol=2e-5)
    np.testing.assert_allclose(off, 1e-6 / 2, rtol=1e-3)
    assert sorts(jnp.zeros(4), True)[0].tolist() == [2, 0, 1]
    assert sorts(jnp.array([0, 0, 2.0, 0]), False)[0].tolist() == [0, 0, 0]  # a state off the constraints uses no rows


@eqx.filter_jit
def restored_motions(system, state, force):
    """v̇ by rows that are restored, under the forces of a system and under others, and what was restored."""
    terms, method = jm.evaluate(system, state), jm.formulation.GaussProjection()
    restored = method.restore(terms, method.decide(terms, terms.nearby), terms.nearby)
    factor = method.factorise(restored.terms, restored.in_use, 0.0)
    other = restored.terms_for(method, factor, force, restored.terms.gamma, restored.condition.drift)
    return [method.motion(x, factor)[0] for x in (restored.terms, other)], restored


def test_rows_that_are_degenerate_together_lead_where_the_factors_of_their_branch_do():
    """x = a y²/2 beside y (z − c y²/2 − s t²/2) = 0 in two z, in rows of any units: as x = a y²/2 and z = c y²/2 + s t²/2 by Newton and d'Alembert, for any force."""
    rng = np.random.default_rng(0)
    root, forces = rng.normal(size=(5, 5)), rng.normal(size=(2, 5))
    mass, a, c, s, speed = root @ root.T + np.eye(5), 0.7, np.array([1.5, -0.6]), np.array([2.0, -3.0]), 1.3

    def rows(t, q, p):
        x, off = q[0] - a * q[1] ** 2 / 2, q[1] * (q[2:4] - c * q[1] ** 2 / 2 - s * t**2 / 2)
        apart = q[4] - t**2
        return jnp.stack([3 * x, 0.5 * (x + off[0]), 40 * (2 * x - off[1]), apart, 2 * apart])

    system = jm.System(
        5,
        mass=lambda t, q, p: jnp.asarray(mass),
        force=lambda t, q, v, p: jnp.asarray(forces[0]),
        constraints=[jm.Holonomic("rows", rows)],
    )
    sizes = jnp.array([3.0, 1.0, 100.0, 0.5, 1.1])
    scale = jm.system.Scale(sizes, sizes, jnp.ones(5), sizes, jnp.array(2.0))
    state = jm.State(jnp.zeros(()), jnp.zeros(5), speed * jnp.eye(5)[1], scale)

    found, restored = restored_motions(system, state, jnp.asarray(forces[1]))
    branch, gamma = np.eye(5)[[0, 2, 3, 4]], np.array([a * speed**2, *(c * speed**2 + s), 2.0])
    free = np.linalg.solve(mass, np.c_[forces.T, branch.T])
    for vdot, at in zip(found, free.T, strict=False):
        pull = np.linalg.solve(branch @ free[:, 2:], gamma - branch @ at)
        np.testing.assert_allclose(vdot, at + free[:, 2:] @ pull, rtol=1e-9)
    assert restored.undefined.tolist() == [True] * 3 + [False] * 2
    assert restored.in_use.tolist() == [True] * 4 + [False]
    # ZᵀĊ has the size that it has in the metric: y' along each z.
    lengths = speed * np.array([0.5, 40.0]) * np.sqrt(np.diag(np.linalg.inv(mass))[2:4]) / sizes[1:3]
    np.testing.assert_allclose(restored.terms.scale[1:3], lengths, rtol=1e-9)


def test_rows_on_velocities_that_vanish_together_act_along_their_derivatives_and_keep_to_second_order():
    """qᵀA v = 0 at q = 0, in two A: Aᵀv is the direction of the reaction, and (v̇ᵀA + 2 vᵀA v̇) vanishes along v."""
    rng = np.random.default_rng(0)
    root, forms, forces = rng.normal(size=(4, 4)), rng.normal(size=(2, 4, 4)), rng.normal(size=(2, 4))
    mass, v = root @ root.T + np.eye(4), 1.3 * np.eye(4)[0]
    forms[:, 0, 0] = 0  # the velocity stays allowed
    units = np.array([1.0, 1e3])
    rows = jm.Pfaffian("rows", lambda t, q, v, p: units * jnp.einsum("i,kij,j->k", q, forms, v))
    load = lambda t, q, v, p: jnp.asarray(forces[0])
    system = jm.System(4, mass=lambda t, q, p: jnp.asarray(mass), force=load, constraints=[rows])
    sizes = jnp.asarray(units)
    scale = jm.system.Scale(sizes, sizes, jnp.ones(4), sizes, jnp.array(2.0))
    state = jm.State(jnp.zeros(()), jnp.zeros(4), jnp.asarray(v), scale)

    found, restored = restored_motions(system, state, jnp.asarray(forces[1]))
    assert restored.condition.mask.all()
    along, second = np.stack([a.T @ v for a in forms]), np.stack([(a + 2 * a.T) @ v for a in forms])
    for vdot, force in zip(found, forces, strict=True):
        free, each = np.linalg.solve(mass, force), np.linalg.solve(mass, along.T)
        np.testing.assert_allclose(vdot, free - each @ np.linalg.solve(second @ each, second @ free), rtol=1e-9)


def test_diagnosis_groups_rows_by_what_depends_on_what():
    rod = lambda i, f: lambda t, q, p: f * (q[i] ** 2 + q[i + 1] ** 2 - 1)
    system = jm.System(
        4,
        mass=lambda t, q, p: jnp.eye(4),
        constraints=[
            jm.Holonomic("first", rod(0, 1.0)),
            jm.Holonomic("second", rod(2, 1.0)),
            jm.Holonomic("first in mm", rod(0, 1e6)),
            jm.Holonomic("second in km", rod(2, 1e-6)),
        ],
    )
    found = jm.diagnose(system, jm.assemble(system, [0.6, 0.8, 0.0, 1.0]))
    assert [set(group.rows) for group in found.dependent] == [{"first", "first in mm"}, {"second", "second in km"}]
    assert [group.redundant for group in found.dependent] == [1, 1] and found.redundancy == 2
    batch = jax.vmap(lambda v: jm.assemble(system, [0.6, 0.8, 0.0, 1.0], v))(jnp.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"must be a single state, but has leading axes \(3,\)"):
        jm.diagnose(system, batch)
    with pytest.raises(TypeError, match="`state` must hold known numbers"):
        jax.vmap(lambda state: jm.diagnose(system, state).rank)(batch)


@pytest.mark.slow
def test_contradictory_rows_are_named():
    system = contradictory()
    state = jm.assemble(system, [0.0, 0.0])
    assert jm.diagnose(system, state).contradictions.keys() == {"fast"}
    with pytest.raises(ValueError, match=r"Constraint 'fast' must not contradict others.*by 0.333"):
        jm.simulate(system, state, [1.0])
    assert jm.simulate(system, state, [1.0], throw=False).result == jm.RESULTS.contradictory_constraints


@pytest.mark.slow
def test_constraints_that_come_to_contradict_each_other_are_named():
    """Two drivers that agree until t = 0.5."""
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        constraints=[
            jm.Holonomic("steady", lambda t, q, p: q[0] - t),
            jm.Holonomic("late", lambda t, q, p: q[0] - t - jnp.where(t > 0.5, (t - 0.5) ** 2, 0)),
        ],
    )
    state = jm.assemble(system, [0.0, 0.0], [1.0, 0.0])
    with pytest.raises(RuntimeError, match=r"Furthest off is constraint 'late', by"):
        jm.simulate(system, state, [1.0])


@pytest.mark.slow
def test_a_lane_near_a_singular_pose_leaves_the_others_alone():
    """Bit for bit the same as without it, and right itself."""
    system = slider_crank()
    run = jax.jit(
        jax.vmap(
            lambda angle: jm.simulate(
                system,
                jm.assemble(system, jnp.stack([angle, 2 * jnp.pi - 2 * angle]), [5.0, -10.0]),
                [0.05],
                stepsize_controller=dfx.ConstantStepSize(),
                dt0=0.005,
            ).q[0]
        )
    )
    calm = jnp.array([0.1, 0.3, 0.5])
    near = run(jnp.array([0.1, np.pi / 2, 0.5]))
    np.testing.assert_array_equal(run(calm)[jnp.array([0, 2])], near[jnp.array([0, 2])])
    rhs = lambda t, y: [y[1], crank_acceleration(y[0], y[1])]
    exact = solve_ivp(rhs, (0, 0.05), [np.pi / 2, 5.0], method="DOP853", rtol=1e-12, atol=1e-12).y[0, -1]
    np.testing.assert_allclose(near[1, 0], exact, atol=1e-8)


@pytest.mark.slow
def test_order_on_bricard():
    """Third-order steps of constant length, rank 29 throughout: stages would see rank 30."""
    system, state = bricard()

    @jax.jit
    def run(step):
        return jm.simulate(
            system,
            state,
            [1.0],
            solver=dfx.Bosh3(),
            stepsize_controller=dfx.ConstantStepSize(),
            dt0=step,
        )

    sols = {n: run(jnp.array(1.0 / n)) for n in (20, 40, 80, 160, 640)}
    points = {n: p3(sol.q[0]) for n, sol in sols.items()}
    errors = [float(jnp.linalg.norm(points[n] - points[640])) for n in (20, 40, 80, 160)]
    order = -np.polyfit(np.log([20, 40, 80, 160]), np.log(errors), 1)[0]
    assert abs(order - 3) < 0.3, (order, errors)
    assert all(int(s.stats["lowest_rank"]) == int(s.stats["highest_rank"]) == 29 for s in sols.values())


# Poses that are missed by little


def nearly_parallelogram():
    """Crank and rocker of 1 m and 1 + δ, coupler and ground of 2 m, by absolute angles: flat, C is singular if δ = 0."""

    def loop(t, q, p):
        a, b, c = q
        across = jnp.cos(a) + 2 * jnp.cos(b) - 2 - (1 + p) * jnp.cos(c)
        return jnp.stack([across, jnp.sin(a) + 2 * jnp.sin(b) - (1 + p) * jnp.sin(c)])

    def mass(t, q, p):
        coupled = 2 * jnp.cos(q[0] - q[1])
        return jnp.diag(jnp.array([7 / 3, 8 / 3, 1 / 3])) + coupled * jnp.array([[0, 1.0, 0], [1, 0, 0], [0, 0, 0]])

    potential = lambda t, q, p: 9.81 * (2.5 * jnp.sin(q[0]) + 2 * jnp.sin(q[1]) + 0.5 * (1 + p) * jnp.sin(q[2]))
    return jm.System(
        ("a", "b", "c"), mass=mass, potential=potential, constraints=[jm.Holonomic("loop", loop)], params=0.0
    )


@functools.partial(jax.jit, static_argnames="constant")
@functools.partial(jax.vmap, in_axes=(0, 0, None))
def past_the_flat_pose(excess, rtol, constant=False):
    system = nearly_parallelogram().with_params(excess)
    state = jm.assemble(system, jnp.array([0.4, 0.0, 0.4]), jnp.array([-4.0, 0, -4.0]), hold=["a"], hold_velocity=["a"])
    controller = dfx.ConstantStepSize() if constant else dfx.PIDController(rtol=rtol, atol=rtol)
    solution = jm.simulate(
        system, state, jnp.array([0.3]), stepsize_controller=controller, dt0=0.05 if constant else None, throw=False
    )
    return solution.q[-1], solution.result, jm.energy(system, solution).total[-1] - jm.energy(system, state).total


@pytest.mark.slow_except("1e-08")
@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
@pytest.mark.slow
def test_a_pose_that_is_missed_is_turned_away_from_or_told(rtol):
    """Branches that miss each other by δ turn off within √δ rad: straight on is a motion for δ = 0 only, but for rounding."""
    excess = jnp.array([0.0, 2e-16, 3e-14, 1e-12, 1e-8, 1e-7, 3.5e-7, 1e-6, 1e-5, 1e-4])
    q, result, energy = past_the_flat_pose(excess, jnp.full(10, rtol), False)
    well = np.asarray(result == jm.RESULTS.successful)
    assert well.tolist() == [True] * 2 + [False] * 5 + [True] * 3
    assert bool(jnp.all((result == jm.RESULTS.unresolved_passage)[2:7]))
    np.testing.assert_allclose(energy[well], 0, atol=300 * rtol)
    np.testing.assert_allclose(q[:2, 1], 0, atol=1e-11)  # the coupler does not turn
    exact = past_the_flat_pose(jnp.resize(excess[7:], 10), jnp.full(10, 1e-11), False)[0][:3]  # by the same program
    np.testing.assert_allclose(q[7:], exact, atol=100 * rtol)
    assert float(exact[:, 1].min()) > 0.5


@pytest.mark.slow
def test_steps_of_given_length_tell_of_a_pose_that_is_missed():
    excess = jnp.array([0.0, 1e-8, 1e-4])
    _, result, _ = past_the_flat_pose(excess, jnp.ones(3), True)
    assert (result == jm.RESULTS.successful).tolist() == [True, False, False]
    assert (result == jm.RESULTS.unresolved_passage).tolist()[1]


# Driven through poses where the drives lose their hold


def wanted(t, p):
    """The pose of a platform on three rods from sliders on rails, 3-PRR, that turns while it shifts."""
    return p["start"] + p["stroke"] * jnp.sin(p["rate"] * t)


def corners(pose, p):
    c, s = jnp.cos(pose[2]), jnp.sin(pose[2])
    return pose[:2] + p["corners"] @ jnp.array([[c, s], [-s, c]])


def sliders(t, p):
    """Where the rods of 1 m end on the rails in the pose that is wanted."""
    gap = corners(wanted(t, p), p) - p["rails"]
    along = jnp.sum(gap * p["axes"], axis=1)
    return p["rails"] + (along - jnp.sqrt(along**2 - jnp.sum(gap**2, axis=1) + 1))[:, None] * p["axes"]


def rods(t, q, p):
    return (jnp.sum((corners(q, p) - sliders(t, p)) ** 2, axis=1) - 1) / 2


def platform(seed):
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi / 3 * np.arange(3) + 0.1 * rng.normal(size=3)
    around = lambda radius, angle: radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return {
        "rails": around(rng.uniform(0.8, 1.2), angle),
        "axes": around(1.0, angle + np.pi / 2 + 0.3 * rng.normal(size=3)),
        "corners": around(rng.uniform(0.2, 0.4), angle + 0.2 * rng.normal(size=3)),
        "start": np.array([0.05, 0.05, 0.2]) * rng.normal(size=3),
        "stroke": np.append(rng.uniform(0.02, 0.1, 2), rng.uniform(0.6, 1.2)),
        "rate": rng.uniform(0.5, 3.0, 3),
    }


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None))
def turned_and_shifted(p, rtol):
    system = jm.System(
        3,
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 2.0, 0.05])),
        constraints=[jm.Holonomic("rods", rods)],
        params=p,
    )
    start, ts = jnp.array(0.0), jnp.linspace(0, 3, 61)
    along = lambda t: wanted(t, p)
    state = jm.assemble(system, along(start), jax.jvp(along, (start,), (start + 1,))[1], throw=False)
    controller = dfx.PIDController(rtol=rtol, atol=rtol)
    solution = jm.simulate(system, state, ts, stepsize_controller=controller, throw=False)
    hold = jax.vmap(lambda t: jnp.linalg.det(jax.jacfwd(rods, 1)(t, along(t), p)))(ts)
    share = solution.stats["num_rejected_steps"] / solution.stats["num_steps"]
    off = jnp.abs(solution.q - jax.vmap(along)(ts)).max()
    return solution.result, off, share, jnp.sum(hold[1:] * hold[:-1] < 0), jnp.all(jnp.isfinite(hold))


@pytest.mark.slow
def test_a_platform_is_driven_through_poses_where_its_drives_lose_their_hold():
    """At any tolerance: an interpolation beside the motion is not taken for a pose that is missed."""
    platforms = jax.tree.map(lambda *x: jnp.stack(x), *map(platform, range(48)))
    for rtol in (1e-4, 1e-5, 1e-6, 1e-7, 1e-9):
        result, off, share, passages, reachable = turned_and_shifted(platforms, rtol)
        assert int(jnp.sum(passages[reachable])) >= 20
        assert bool(jnp.all((result == jm.RESULTS.successful)[reachable]))
        assert float(off[reachable].max()) < 1e-10
        assert float(share[reachable].max()) < 0.5


@pytest.mark.slow_except("1.0")
@pytest.mark.parametrize("unit", [1.0, 1e3])
@pytest.mark.slow
def test_a_mechanism_that_only_exact_lengths_let_move_is_diagnosed(unit):
    """A bar as long as its two parallel rails are apart: wherever it is its pose is singular; longer by 1 % it is regular."""

    def between_rails(length):
        up = lambda x: ("ground", jm.planar.frame((x * unit, 0.0), jnp.pi / 2))
        sliders = [jm.planar.Body(name, 1.0, 0.01 * unit**2) for name in ("left", "right")]
        bar = jm.planar.Body.rod("bar", 1.0, length * unit)
        prismatic, revolute = jm.planar.Prismatic, jm.planar.Revolute
        joints = [prismatic("L", up(0.0), "left"), prismatic("R", up(0.5), "right")]
        joints += [revolute("a", "left", "bar.a"), revolute("b", "bar.b", "right")]
        return jm.planar.Mechanism([*sliders, bar], joints, gravity=(0.0, -9.81 * unit)).build(cut=["b"])

    exact, longer = between_rails(0.5), between_rails(0.505)
    start = jm.assemble(exact)
    found, other = jm.diagnose(exact, start), jm.diagnose(longer, jm.assemble(longer, {"a": 0.1}))
    assert found.singular_around and (found.rank, found.rank_nearby) == (1, 2)
    assert "can move only because its lengths are exact" in str(found)
    assert not other.singular_around and other.rank == other.rank_nearby == 2
    with pytest.raises((ValueError, RuntimeError), match="all poses around are singular too, change a length"):
        jm.simulate(exact, start, [0.1])


@pytest.mark.slow
def test_a_pose_where_branches_meet_is_singular_by_itself():
    system = parallelogram.parallelogram()
    found = jm.diagnose(system, jm.assemble(system, *parallelogram.pose(jnp.array(0.0), jnp.array(0.0))))
    assert found.rank < found.rank_nearby and not found.singular_around
