"""Motions against references, orders, drift, saving and refusals."""

import dataclasses
import importlib
import pathlib
import re
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import driven_cart, fourbar, make, moving_line, pendulum

import jaxmb as jm
from jaxmb.control.clock import Clock, Timetable
from jaxmb.foundations import Check
from jaxmb.simulation.clipping import Interrupted, Landing, Limited, ends_of_steps, landing
from jaxmb.simulation.feedback import FeedbackLoop, breaks_of
from jaxmb.simulation.method import Method
from jaxmb.simulation.reason import reason, text_of_result
from jaxmb.simulation.simulate import _most_steps, _step_sizes
from jaxmb.simulation.solution import Solution, _interpolate
from jaxmb.simulation.solver import ConstrainedSolver
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.step_size import RelativeTolerances
from jaxmb.simulation.vector_field import VectorField

DATA = pathlib.Path(__file__).parent / "data"
TIGHT = dfx.PIDController(rtol=1e-11, atol=1e-12)
VERY_TIGHT = dfx.PIDController(rtol=1e-12, atol=1e-13)


def load(name):
    return np.load(DATA / f"{name}.npz")


def check_on_constraints(system, sol, tol=1e-12):
    out = jm.residuals(system, sol)
    assert float(jnp.max(jnp.abs(out.position), initial=0)) <= tol
    assert float(jnp.max(jnp.abs(out.velocity), initial=0)) <= tol


@pytest.mark.slow_except("3-spin")
@pytest.mark.parametrize("case", ["rest", "spin"])
@pytest.mark.parametrize("copies", [1, 3])
def test_fourbar_against_its_reference(case, copies):
    system, _ = fourbar(copies)
    ref = load("fourbar_blajer")
    state = jm.assemble(system, ref[f"alpha_{case}"][0], ref[f"alphad_{case}"][0])
    sol = jm.simulate(system, state, ref["t"], solver=dfx.Dopri8(), stepsize_controller=VERY_TIGHT)
    difference = np.asarray(sol.q) - ref[f"alpha_{case}"]
    difference -= 2 * np.pi * np.round(difference / (2 * np.pi))
    assert np.abs(difference).max() <= 1e-8
    energy = jm.energy(system, sol)
    assert np.abs(energy.balance).max() <= 1e-10 * np.abs(energy.kinetic).max()
    check_on_constraints(system, sol)
    assert int(sol.stats["lowest_rank"]) == int(sol.stats["highest_rank"]) == 2


@pytest.mark.slow
def test_pendulum_with_four_rods():
    ref, (system, _) = load("A01_pendulum"), pendulum(4)
    sol = jm.simulate(
        system, jm.assemble(system, [-1.0, 0.0]), ref["t"], solver=dfx.Dopri8(), stepsize_controller=VERY_TIGHT
    )
    assert max(np.abs(sol.q[:, 0] - ref["x"]).max(), np.abs(sol.q[:, 1] - ref["y"]).max()) <= 1e-9
    assert np.abs(jm.energy(system, sol).balance).max() <= 1e-9
    check_on_constraints(system, sol)
    tension = np.linalg.norm(jm.reactions(system, sol).reaction, axis=1)
    np.testing.assert_allclose(tension, np.abs(ref["tension"]), atol=1e-7)


# solver, its order, the first of three steps (each half the one before) and a velocity for which they are small enough
SOLVERS = {
    "Bosh3": (dfx.Bosh3(), 3, 0.02, [0.3, -0.2]),
    "Tsit5": (dfx.Tsit5(), 5, 0.02, [2.0, -2.0]),
    "Dopri8": (dfx.Dopri8(), 8, 0.16, [0.3, -0.2]),
}


@pytest.mark.slow_except("Tsit5-2", "Dopri8-1")
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.slow_cases("Tsit5-2")
def test_order_with_projection(name, copies):
    """Within 0.3 of nominal for Bosh3, Tsit5 and Dopri8, redundant rows or not."""
    solver, nominal, step, v = SOLVERS[name]

    def end(copies, **method):
        system, (q, _) = pendulum(copies)
        sol = jm.simulate(system, jm.assemble(system, q, v), [0.96], **method)
        return np.concatenate([sol.q[-1], sol.v[-1]])

    precise = dfx.PIDController(rtol=1e-13, atol=1e-14)
    exact = end(1, solver=dfx.Dopri8(), stepsize_controller=precise, max_steps=100_000)  # one program for all
    constant = {"solver": solver, "stepsize_controller": dfx.ConstantStepSize()}
    errors = [np.linalg.norm(end(copies, dt0=step / 2**k, **constant) - exact) for k in range(3)]
    assert abs(np.log2(errors[0] / errors[2]) / 2 - nominal) <= 0.3, errors


@pytest.mark.slow
def test_quaternions_stay_normalised_and_momentum_is_kept():
    """A top about its pivot: energy and the vertical angular momentum about the pivot."""
    system, state = make("top, 2 pivots")
    sol = jm.simulate(system, state, jnp.linspace(0.2, 5.2, 11), stepsize_controller=TIGHT, solver=dfx.Dopri8())
    np.testing.assert_allclose(jnp.linalg.norm(sol.q[:, 3:], axis=1), 1, atol=1e-15)
    assert np.abs(jm.energy(system, sol).balance).max() <= 1e-9
    check_on_constraints(system, sol)
    from systems import rotation

    def vertical(q, v):
        spin = rotation(q[3:]) @ (system.params["J"] * v[3:])
        return (spin + jnp.cross(q[:3], system.params["m"] * v[:3]))[2]

    momentum = jax.vmap(vertical)(sol.q, sol.v)
    np.testing.assert_allclose(momentum, momentum[0], atol=1e-9)


@pytest.mark.slow
def test_moving_constraints_do_work():
    """Rheonomic and driven rows and damping: the energy balance with work closes."""
    for make_system in (moving_line, driven_cart):
        system, (q, v) = make_system()
        sol = jm.simulate(system, jm.assemble(system, q, v), jnp.linspace(0, 4, 9), stepsize_controller=TIGHT)
        energy = jm.energy(system, sol)
        assert np.abs(energy.work).max() > 1e-2
        assert np.abs(energy.balance).max() <= 1e-9
        check_on_constraints(system, sol)


@pytest.mark.slow
def test_moving_line_against_a_reduced_equation():
    """On a line through 0 turning at w: s̈ = F·e/m + w² s …, here against SciPy in the line's coordinate."""
    from scipy.integrate import solve_ivp

    system, (q, v) = moving_line()
    state = jm.assemble(system, q, v)
    w, mass = 0.7, np.array([[2.0, 0.3], [0.3, 1.0]])
    e = lambda t: np.array([np.cos(w * t), np.sin(w * t)])
    n = lambda t: np.array([-np.sin(w * t), np.cos(w * t)])

    def rhs(t, y):
        s, sd = y
        q, qd = s * e(t) + 0.1 * n(t), sd * e(t) + w * (s * n(t) - 0.1 * e(t))
        known = 2 * w * sd * n(t) - w**2 * (s * e(t) + 0.1 * n(t))
        force = np.array([np.sin(3 * q[0]), -qd[1]])
        return [sd, e(t) @ (force - mass @ known) / (e(t) @ mass @ e(t))]

    start = np.asarray(state.q) @ e(0), (np.asarray(state.v) + w * 0.1 * e(0)) @ e(0)
    ref = solve_ivp(rhs, (0, 3), start, method="DOP853", rtol=1e-12, atol=1e-13).y[0, -1]
    sol = jm.simulate(system, state, jnp.linspace(0, 3, 9), stepsize_controller=TIGHT)
    np.testing.assert_allclose(sol.q[-1], ref * e(3.0) + 0.1 * n(3.0), atol=1e-9)


@pytest.mark.slow
def test_inputs_and_their_work():
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        constraints=[jm.Holonomic("line", lambda t, q, p: q[1] - q[0])],
        actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]),
        params={"gain": 2.0},
    )
    sol = jm.simulate(
        system,
        jm.assemble(system, [0.0, 0.0]),
        jnp.linspace(0, 1, 5),
        control=lambda t, q, v, p: p["gain"] * jnp.ones(1),
    )
    np.testing.assert_allclose(sol.q[:, 0], 0.5 * sol.ts**2, atol=1e-9)
    np.testing.assert_allclose(sol.work, 2.0 * sol.q[:, 0], atol=1e-9)
    np.testing.assert_allclose(sol.u, 2.0)
    np.testing.assert_allclose(jm.reactions(system, sol).vdot, 1.0, atol=1e-12)


def test_drift_options():
    """Without correction the residual grows, Baumgarte bounds it, projection removes it."""
    system, (q, _v) = fourbar()
    state, ts = jm.assemble(system, q, [6.0, 0.0, 0.0]), jnp.linspace(0, 5, 6)
    loose = dfx.PIDController(rtol=1e-5, atol=1e-6)
    worst = {}
    for drift in (jm.NoDrift(), jm.Baumgarte(10.0, 10.0), jm.Projection()):
        sol = jm.simulate(system, state, ts, drift=drift, stepsize_controller=loose)
        worst[type(drift).__name__] = np.abs(jm.residuals(system, sol).position).max()
    assert worst["NoDrift"] > 10 * worst["Baumgarte"] > 1e4 * worst["Projection"]
    with pytest.raises(ValueError, match="`iterations` of Projection must be a positive integer, but is 0"):
        jm.Projection(iterations=0)


def test_rows_are_pulled_back_by_what_they_and_their_rates_are_off():
    """By −2α (C v + b) − β² φ, where α = β = 10 by default; of a row that has no position φ is zero."""
    rows = [
        jm.Holonomic("curve", lambda t, q, p: q[0] * q[1] - t),
        jm.Pfaffian("rolls", lambda t, q, v, p: v[0] - 3 * v[1]),
    ]
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=rows)
    scale = jm.system.Scale(*map(jnp.ones, (2, 2, 2, 2, ())))
    state = jm.State(jnp.array(1.5), jnp.array([2.0, 3.0]), jnp.array([0.5, 0.7]), scale)
    for alpha, beta, drift in ((0.3, 4.0, jm.Baumgarte(0.3, 4.0)), (10, 10, jm.Baumgarte())):
        expected = [-2 * alpha * (2 * 0.7 + 3 * 0.5 - 1) - beta**2 * 4.5, -2 * alpha * (0.5 - 3 * 0.7)]
        np.testing.assert_allclose(drift.feedback(system, state), expected, rtol=1e-14)


def test_dense_output_is_continuous_accurate_and_on_the_constraints():
    system, (q, _v) = fourbar()
    state = jm.assemble(system, q, [4.0, 0.0, 0.0])
    sol = jm.simulate(
        system, state, [0.0, 1.0], dense=True, stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8)
    )
    ts = jnp.linspace(0, 1, 301)
    exact = jm.simulate(system, state, ts, stepsize_controller=TIGHT, solver=dfx.Dopri8())
    found = sol.evaluate(ts)
    assert np.abs(found.q - exact.q).max() <= 2e-4
    np.testing.assert_allclose(sol.evaluate(0.3).q, found.q[90], atol=1e-14)
    out = jm.residuals(system, found)
    assert np.abs(out.position).max() <= 1e-12 and np.abs(out.velocity).max() <= 1e-12
    with pytest.raises(ValueError, match="`dense=True`"):
        exact.evaluate(0.5)


def test_a_run_can_be_continued_from_a_saved_state():
    system, (q, v) = fourbar()
    state = jm.assemble(system, q, v)
    run = lambda state, ts: jm.simulate(system, state, ts, stepsize_controller=TIGHT)
    whole = run(state, [0.5, 1.0])
    second = run(whole.state(0), [0.5, 1.0])
    np.testing.assert_allclose(second.q[-1], whole.q[-1], atol=1e-10)
    np.testing.assert_allclose(run(state, [0.0, 0.0]).q, jnp.stack([state.q] * 2), atol=1e-15)


def test_implicit_solver_without_constraints():
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), force=lambda t, q, v, p: -q - v)
    state = jm.assemble(system, [1.0, -2.0])
    found = jm.simulate(
        system, state, [1.0], solver=dfx.Kvaerno5(), stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-10)
    )
    rate = np.sqrt(0.75)
    decay = np.exp(-0.5) * (np.cos(rate) + np.sin(rate) / (2 * rate))
    np.testing.assert_allclose(found.q[0], decay * state.q, atol=1e-7)


@pytest.mark.slow
def test_an_implicit_solver_passes_through_the_wrapper():
    system, (q, v) = pendulum()
    state = jm.assemble(system, q, v)
    explicit = jm.simulate(system, state, [1.0], stepsize_controller=TIGHT).q
    implicit = jm.simulate(
        system, state, [1.0], solver=dfx.Kvaerno5(), stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-10)
    )
    np.testing.assert_allclose(implicit.q, explicit, atol=1e-6)


def test_a_backward_solution_is_refused():
    system, (q, v) = pendulum()
    state = jm.as_state(system, q, v)
    with pytest.raises(ValueError, match="`adjoint` must not be `BacksolveAdjoint`"):
        jm.simulate(system, state, [1.0], adjoint=dfx.BacksolveAdjoint())


def test_progress_is_shown(capsys):
    system, (q, v) = pendulum()
    jm.simulate(system, jm.assemble(system, q, v), [1.0], progress_meter=dfx.TextProgressMeter())
    jax.effects_barrier()
    assert "100.00%" in capsys.readouterr().out


def test_a_start_off_the_constraints_is_refused_by_name_and_amount():
    system, (_q, _v) = pendulum()
    state = jm.assemble(system, [1.0, 0.0])
    off = eqx.tree_at(lambda s: s.q, state, jnp.array([1.1, 0.0]))
    with pytest.raises(ValueError, match=r"Constraint 'rod' is violated at the start: its position residual.* 0\.15"):
        jm.simulate(system, off, [1.0])
    fast = eqx.tree_at(lambda s: s.v, state, jnp.array([0.5, 0.0]))
    with pytest.raises(ValueError, match="Constraint 'rod' is violated at the start: its velocity residual"):
        jm.simulate(system, fast, [1.0])
    flagged = jm.simulate(system, off, [1.0], throw=False)
    assert flagged.result == jm.RESULTS.inconsistent_state and bool(jnp.all(jnp.isnan(flagged.q)))
    with pytest.raises(Exception, match="Constraint 'rod' is violated at the start"):
        jax.block_until_ready(jax.jit(lambda s: jm.simulate(system, s, jnp.array([1.0])).q)(off))


def test_failures_are_raised_or_flagged():
    system, (q, v) = pendulum()
    state = jm.assemble(system, q, v)
    with pytest.raises(
        RuntimeError, match=r"maximum number .* So far 5 steps have led beyond t = 0\.01 s, of 10 s\. .* `breaks`\.$"
    ):
        jm.simulate(system, state, [0.01, 10.0], max_steps=5)
    few = jm.simulate(system, state, [0.01, 10.0], max_steps=5, throw=False)
    assert few.result == jm.RESULTS.max_steps_reached
    assert bool(jnp.all(jnp.isfinite(few.q[0]))) and bool(jnp.all(jnp.isnan(few.q[1])))
    coarse = {"dt0": 0.7, "stepsize_controller": dfx.ConstantStepSize()}
    with pytest.raises(RuntimeError, match="could not be brought back onto the constraints"):
        jm.simulate(system, state, [7.0], drift=jm.Projection(iterations=1), **coarse)
    burst = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: jnp.where(t < 0.5, q, jnp.nan))
    for more in ({}, {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}):
        sol = jm.simulate(burst, jm.assemble(burst, [1.0]), [0.4, 1.0], throw=False, **more)
        assert sol.result == jm.RESULTS.nonfinite and int(sol.stats["num_steps"]) < 300
        assert bool(jnp.isfinite(sol.q[0, 0])) and bool(jnp.isnan(sol.q[1, 0]))
    # Where an input is not finite from the start no shorter step is tried, at t = 0 neither.
    driven = jm.System(1, mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
    none = {"control": lambda t, q, v, p: jnp.full(1, jnp.nan), "throw": False}
    sol = jm.simulate(driven, jm.as_state(driven, [1.0]), [0.4, 1.0], **none)
    assert sol.result == jm.RESULTS.nonfinite and int(sol.stats["num_steps"]) == 1


BAD = {
    r"`ts` must be an array of times of shape \(T,\)": {"ts": 1.0},
    r"`ts` must not start before `state.t`, but does, by 1 s": {"ts": [-1.0, 2.0]},
    r"`ts` must increase, but falls by 0\.5 s": {"ts": [1.0, 0.5]},
    r"`control` needs a system with `actuation`": {"ts": [1.0], "control": lambda t, q, v, p: v},
    r"`dt0` must be given with `ConstantStepSize`": {"ts": [1.0], "stepsize_controller": dfx.ConstantStepSize()},
    r"`stepsize_controller` must be `ConstantStepSize\(\)`, .* for `Euler`": {"ts": [1.0], "solver": dfx.Euler()},
}


@pytest.mark.slow
def test_what_is_not_chosen_may_be_undefined():
    """√x of negative x in the branch that is not taken: compiled code tells nothing of such a step, arrays have its numbers."""
    spring = lambda x: jnp.where(x < 2, -x, -jnp.sqrt(x - 2))
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        force=lambda t, q, v, p: spring(q),
        constraints=[jm.Holonomic("rod", lambda t, q, p: q[0] - q[1])],
    )
    solution = jm.simulate(system, jm.as_state(system, [1.0, 1.0]), [1.0])
    np.testing.assert_allclose(solution.q[0], np.cos(1.0), atol=1e-8)


@pytest.mark.parametrize("message", BAD)
def test_messages(message):
    system, (q, v) = pendulum()
    with pytest.raises(ValueError, match=message):
        jm.simulate(system, jm.assemble(system, q, v), **BAD[message])


def test_what_ended_a_run_is_named():
    """A constraint that is not defined any more, and from when on; places that rounding tells too coarsely for the tolerance."""
    system, (q, v) = pendulum()
    start, result = jm.as_state(system, q, v), jm.RESULTS.max_steps_reached
    q, v = (jnp.stack([x, jnp.full(2, jnp.nan)]) for x in (start.q, start.v))
    ended = Solution(
        jnp.array([0.1, 0.2]), q, v, q[:, 0], None, start.scale, {"num_steps": jnp.array(7)}, None, result, None, None
    )

    def told(end, distance):
        fn = lambda t, q, p: (p["l"] * jnp.exp(q[0] / p["l"]) - p["l"]) * jnp.sqrt(p["m"] - t)
        both = system.with_constraints([*system.constraints, jm.Holonomic("wall", fn)], [1, 1])
        return reason(both.with_params({"m": end, "l": distance}), jm.Projection(), start, ended)

    lost = re.fullmatch(r"Constraint 'wall' must give finite numbers, but does not at t = (.*)\.", told(0.1234, 1.0))
    assert 0.1234 <= float(lost[1]) < 0.123401
    for distance, is_far in ((1.0, False), (1e6, True)):
        text = told(1.0, distance)
        assert text.startswith(jm.RESULTS[result]) and "7 steps have led beyond t = 0.1 s, of 0.2 s" in text
        assert is_far == ("Rounding alone leaves" in text and "places are far from the origin" in text)


def test_a_result_is_told_with_the_last_event_or_the_constraint_that_is_furthest_off_if_that_is_why(monkeypatch):
    rows = SimpleNamespace(rows={"both": slice(0, 2), "one": slice(2, 3)})
    monkeypatch.setattr(jm.System, "in_mode", lambda self, modes: rows)
    events = SimpleNamespace(count=2, t=[0.2, 0.7, 0.0], what=lambda i: ["a", "b", "c"][i : i + 1])
    none, stats = SimpleNamespace(count=0), {"row_residuals": np.array([0.1, 0.3, 0.2])}
    last, worst = " The last, at t = 0.7, was 'b'.", " Furthest off is constraint 'both', by 0.3 relative to the size"
    R = jm.RESULTS
    for result, happened, told in (
        (R.events_exhausted, events, last),
        (R.position_mismatch, events, last),
        (R.position_mismatch, none, ""),
        (R.position_mismatch, None, ""),
        (R.projection_failed, events, worst),
        (R.max_steps_reached, events, ""),
    ):
        solution = object.__new__(jm.Solution)
        solution.__dict__.update(result=result, events=happened, stats=stats, modes=None)
        text = text_of_result(object.__new__(jm.System), solution).removeprefix(R[result])
        assert text.startswith(told) and bool(text) == bool(told)


def test_new_numbers_do_not_compile_again():
    """One trace for other parameters, times of equal length and states."""
    traces = []

    def potential(t, q, p):
        traces.append(1)
        return p["m"] * 9.81 * q[1]

    def build(m, length):
        return eqx.tree_at(lambda s: s.params, base, {"m": jnp.array(m), "l": jnp.array(length)})

    base = jm.System(
        2,
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=potential,
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - p["l"] ** 2)],
        params={"m": 1.0, "l": 1.0},
    )
    jm.simulate(base, jm.assemble(base, [1.0, 0.0]), [0.1, 0.2], dt0=0.01)
    count = len(traces)
    for m, length, ts, dt0 in ((2.0, 1.5, [0.2, 0.3], 0.02), (3.0, 0.5, [0.05, 0.4], 0.03)):
        system = build(m, length)
        sol = jm.simulate(system, jm.assemble(system, [length, 0.0], [0.0, 0.1]), ts, dt0=dt0)
    assert len(traces) == count
    jm.energy(system, sol)
    jm.energy(base, sol)
    assert len(traces) == count + 1


@pytest.mark.slow
def test_a_coordinate_that_moves_by_rounding_only_asks_for_no_precision():
    """The free end of a chain in absolute coordinates: no row reads its angle, and gravity alone does not turn it."""
    links = [jm.planar.Body.rod(f"link{i}", 0.1, 0.05, position=(0.05 * i, 0.0)) for i in range(3)]
    ends = ["ground", "link0.b", "link1.b"]
    joints = [jm.planar.Revolute(f"pin{i}", ends[i], f"link{i}.a") for i in range(3)]
    system = jm.planar.Mechanism(links, joints, gravity=(0.0, -9.81)).build("absolute")
    solution = jm.simulate(system, jm.assemble(system), jnp.array([0.1]), throw=False)
    assert int(solution.stats["num_steps"]) < 150


def test_adaptive_steps_end_at_breaks():
    """The motion is a polynomial on both sides of the break: exact to rounding only if no step lies on both."""
    force = lambda t, q, v, p: jnp.where(t < 0.3, 0.0, 1.0) * jnp.ones(1)
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=force, breaks=[0.3])
    solution = jm.simulate(system, jm.assemble(system, v=[1.0]), [1.0])
    assert abs(float(solution.q[-1, 0]) - (1.0 + 0.7**2 / 2)) < 1e-14


class Next(dfx.PIDController):
    """Accepts all, and goes on by half a second."""

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        return True, t1, t1 + 0.5, jnp.array(False), controller_state, dfx.RESULTS.successful


def decided(controller, start):
    """The begin and the end of the step behind one that ends at `start`, and whether something jumps in between."""
    accepted, begin, end, jumped, kept, result = controller.adapt_step_size(
        0.0, jnp.asarray(start), *[None] * 5, "kept"
    )
    assert accepted is True and kept == "kept" and result is dfx.RESULTS.successful
    return float(begin), float(end), bool(jumped)


def test_steps_end_at_samples_of_a_controller():
    """A step that would leave a short one goes half the way; one that ends a sliver before the sample ends there, as do sums of steps."""
    clock = Clock(period=jnp.asarray(1.0), phase=jnp.asarray(0.0), delay=False)
    adaptive, constant = (landing(c, clock) for c in (Next(rtol=1e-6, atol=1e-6), dfx.ConstantStepSize()))
    cases = {
        (3.0, 3.4): 3.4,
        (3.0, 3.6): 3.5,
        (3.0, 4.0): 4.0,
        (3.0, 7.0): 4.0,
        (3.25, 4 - 5e-7): 4.0,
        (3.25, 4 - 1e-6): 3.625,
    }
    assert {case: float(adaptive.clipped(*map(jnp.asarray, case))) for case in cases} == cases
    assert decided(adaptive, 3.1) == (3.1, 3.55, False) and decided(adaptive, 3.7) == (3.7, 4.0, False)
    first = lambda c, t: float(c.init(None, t, 9.0, jnp.zeros(1), 0.4, None, len, 5.0)[0])
    assert [first(c, t) for c in (adaptive, constant) for t in (3.0, 3.7)] == [3.4, 4.0] * 2
    after = lambda t1, step: constant.adapt_step_size(0.0, jnp.asarray(t1), *[None] * 4, 5.0, jnp.asarray(step))
    for (t1, step), end in {
        (3.0, 0.4): 3.4,
        (3.8, 0.4): 4.0,
        (3.6, 0.4 - 1e-7): 4.0,
        (3.6, 0.4 - 1e-6): 4 - 1e-6,
    }.items():
        accepted, begin, found, jumped, kept, result = after(t1, step)
        assert (accepted, begin, jumped, kept, result) == (True, t1, False, step, dfx.RESULTS.successful)
        assert abs(float(found) - end) < 1e-15 and (end != 4 or found == 4)
    with pytest.raises(ValueError, match="must be adaptive or `ConstantStepSize`"):
        landing(dfx.StepTo(jnp.arange(3.0)), clock)


def test_steps_end_before_jumps_and_begin_behind_them():
    """At the numbers next to the time of a jump; none takes longer than is allowed."""
    jumps = np.array([0.3, 0.7])
    before, behind = np.nextafter(jumps, 0), np.nextafter(jumps, 1)
    usual = Next(rtol=1e-6, atol=1e-6)
    interrupted, limited = Interrupted(usual, jnp.asarray(jumps)), Limited(usual, jnp.asarray(0.25))
    cases = {
        (0.0, 1.0): before[0],
        (0.0, 0.2): 0.2,
        (before[0], 1.0): before[1],
        (behind[0], 0.6): 0.6,
        (0.7, 1.0): 1.0,
    }
    assert {case: float(interrupted.clipped(*map(jnp.asarray, case))) for case in cases} == cases
    assert decided(interrupted, 0.1) == (0.1, before[0], False)
    assert decided(interrupted, before[0]) == (behind[0], before[1], True)
    begin, end, jumped = decided(interrupted, before[1])
    assert (begin, jumped) == (behind[1], True) and end == before[1] + 0.5 + (behind[1] - before[1])
    assert decided(limited, 1.0) == (1.0, 1.25, False) and limited.clipped(jnp.asarray(1.0), jnp.asarray(1.1)) == 1.1
    begins = jnp.array([behind[0], 0.5, behind[1]])
    for controller in (
        interrupted,
        Limited(interrupted, jnp.asarray(1.0)),
        dfx.ClipStepSizeController(usual, jump_ts=jumps),
    ):
        np.testing.assert_array_equal(ends_of_steps(controller, begins), [before[0], 0.5, before[1]])
    for controller in (usual, limited, dfx.ClipStepSizeController(usual, step_ts=jumps)):
        np.testing.assert_array_equal(ends_of_steps(controller, begins), begins)


def test_a_state_vector_has_the_parts_that_it_is_made_of():
    """Of as many coordinates as velocities or of more, with and without a controller, behind leading axes."""
    for nq in (2, 5):
        q, v, work, control = (
            jnp.asarray(np.random.default_rng(k).normal(size=(3, n))) for k, n in enumerate((nq, 2, 1, 4))
        )
        for parts in ((q, v, work[:, 0], control), (q, v, work[:, 0], control[:, :0])):
            y = StateVector.of(*parts)
            moved, other = y.with_qv(2 * q, 3 * v), y.with_control(5 * parts[3])
            for found, factors in ((y, (1, 1, 1, 1)), (moved, (2, 3, 1, 1)), (other, (1, 1, 1, 5))):
                for part, factor, x in zip((found.q, found.v, found.work, found.control), factors, parts, strict=True):
                    np.testing.assert_array_equal(part, factor * x)


class Breaks(jm.control.AbstractController):
    """A law that is not smooth at two times."""

    uses_plant = False
    breaks = property(lambda self: jnp.array([3.0, 5.0]))

    def output(self, plant, z):
        return jnp.zeros(1)


def test_steps_end_where_anything_is_not_smooth_and_are_counted_for_that():
    """At times of the system and of a law, but of one that is sampled at its samples; adaptive ones take no longer than a fiftieth of a run with guards, or
    that rests at first."""
    smooth, rough = (jm.System(1, mass=lambda t, q, p: jnp.eye(1), breaks=ts) for ts in (None, [4.0]))
    scale = jm.system.Scale(*map(jnp.ones, (0, 0, 1, 0)), jnp.array(5.0))
    sizes = StateVector.of(*jnp.ones((2, 1)), jnp.ones(()))
    period = Clock(jnp.array(0.1), jnp.array(0.0), False)
    law, sampled, table = (FeedbackLoop(Breaks(), clock, (), 1) for clock in (None, period, Timetable(jnp.arange(4.0))))
    cases = [(smooth, None), (rough, None), (smooth, law), (rough, law), (rough, sampled), (smooth, table)]
    breaks = [[x.tolist() for x in breaks_of(*case)] for case in cases]
    assert breaks == [[], [[4.0]], [[3.0, 5.0]], [[4.0], [3.0, 5.0]], [[4.0]], []]
    assert [_most_steps(10, *case) for case in cases] == [10, 11, 12, 13, 11, 14] and _most_steps(
        None, rough, law
    ) is None

    def steps(system, loop, controller=None, dt0=None, time=2.0, guarded=False):
        dt0 = None if dt0 is None else jnp.array(dt0)
        method = Method(ConstrainedSolver(dfx.Tsit5()), controller, dt0, None, dfx.NoProgressMeter(), 7, None)
        return _step_sizes(system, scale, sizes, method, loop, jnp.array(time), guarded)

    own, constant = dfx.PIDController(rtol=1e-3, atol=1e-6), dfx.ConstantStepSize()
    usual, first = steps(smooth, None)
    assert isinstance(usual.controller, RelativeTolerances) and usual.controller.sizes is sizes and first == 0.03 / 5
    for guarded, time, longest in ((False, 2.0, np.inf), (True, 2.0, 2 / 50)):
        for dt0, expected in ((None, 0.03 / 5), (0.25, 0.25)):
            limited, first = steps(smooth, None, own, dt0, time, guarded)
            assert isinstance(limited, Limited) and limited.controller is own and first == expected
            np.testing.assert_allclose(limited.longest, longest, rtol=1e-12)
        assert steps(rough, law, constant, 0.25, time, guarded) == (constant, 0.25)
    ended = steps(rough, law, own)[0]
    assert (
        isinstance(ended, Interrupted) and ended.controller.controller is own and np.isfinite(ended.before).sum() == 3
    )
    for loop in (sampled, table):
        landed = steps(rough, loop, own)[0]
        assert isinstance(landed, Landing) and landed.clock is loop.clock and isinstance(landed.controller, Interrupted)
        assert type(steps(rough, loop, constant)[0]).__name__ == "ConstantLanding"


def test_a_force_that_begins_late_is_not_passed_over():
    """At rest the start does not tell of it."""
    pulse = lambda t, q, v, p: jnp.where((t > 4.03) & (t < 4.53), 10.0, 0.0)[None]
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=pulse)
    end = jm.simulate(system, jm.assemble(system), jnp.array([0.0, 10.0])).v[-1, 0]
    np.testing.assert_allclose(end, 5.0, rtol=1e-4)


def test_a_state_between_steps_has_what_a_controller_remembers(monkeypatch):
    monkeypatch.setattr(VectorField, "correct", lambda self, t, y, in_use: y)
    monkeypatch.setattr(VectorField, "independent", lambda self, t, y: None)
    system, zero = jm.System(1, mass=lambda t, q, p: jnp.eye(1)), jnp.zeros(())
    state = jm.as_state(system, [0.0])
    y = StateVector.of(jnp.array([2.0]), jnp.array([3.0]), zero, jnp.array([5.0, 7.0]))
    for loop, memory in ((None, None), (FeedbackLoop(Breaks(), None, (), 1), [5.0, 7.0])):
        parts = jm.formulation.GaussProjection(), jm.Projection(), loop, state.scale, jnp.array(True), None
        at = _interpolate(VectorField(system, *parts), SimpleNamespace(evaluate=lambda t: y), zero + 4)
        assert (at.t, at.q[0], at.v[0]) == (4, 2, 3) and (at.control is memory or at.control.tolist() == memory)


def test_a_run_of_no_duration_takes_an_instant_and_refused_times_are_not_used(monkeypatch):
    """So that its derivative by time is the velocity."""
    module, ended = importlib.import_module("jaxmb.simulation.simulate"), []

    def problem(inputs, system, state, ts, end, timely):
        ended.append((float(state.t), ts.tolist(), float(end), bool(timely)))
        raise LookupError

    monkeypatch.setattr(module, "_problem", problem)
    system, (q, v) = pendulum()
    state = jm.State(jnp.zeros(()), jnp.asarray(q), jnp.asarray(v), jm.system.Scale(*map(jnp.ones, (1, 1, 2, 1, ()))))
    for start, ts, refused, told in (
        (0.5, [1.0, 2.0], 0.0, (0.5, [1.0, 2.0], 2.0, True)),
        (0.5, [0.5], 0.0, (0.5, [0.5], 0.5 + 1e-9, True)),
        (0.5, [np.nan, 3.0], 1.0, (0.0, [0.0, 0.0], 1e-9, False)),
    ):
        at, checks = dataclasses.replace(state, t=jnp.array(start)), (Check(jnp.array(refused), 0.0, "late"),)
        run = module._RunInputs(system, None, at, checks, (), jnp.array(ts), *[None] * 4, 3, False)
        with pytest.raises(LookupError):
            module._simulate(run)
        assert ended[-1] == told
