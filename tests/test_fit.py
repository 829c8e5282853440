"""Parameters from measured motion: laws of the search, the report and the arguments."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
import pytest
import scipy.optimize

import jaxmb as jm
from jaxmb.fit.checkpoint import _fingerprint
from jaxmb.fit.experiment import OPTIONS
from jaxmb.fit.identifiability import Identifiability, eliminated
from jaxmb.fit.least_squares import advance, begin, bounded_step
from jaxmb.fit.parameter import Unknowns
from jaxmb.fit.points import starting_points
from jaxmb.fit.prepare import prepare
from jaxmb.fit.problem import Problem
from jaxmb.fit.reading import CoordinateSignal, JointSignal, PositionSignal, reading, wraps
from jaxmb.fit.report import failures
from jaxmb.fit.start import independent
from jaxmb.fit.target import Setup, locate
from jaxmb.fit.windows import windows

fit, P = jm.fit, jm.planar
Parameter, Signal, Experiment = fit.Parameter, fit.Signal, fit.Experiment

TS = np.linspace(0.0, 2.0, 41)
NOISE = np.random.default_rng(0).normal(size=(200, 41))


def oscillator(unit=1.0):
    """m ẍ = −k x − c ẋ: only k/m and c/m show in x. Masses in 1/unit kg."""
    return jm.System(
        ("x",),
        mass=osc_mass,
        potential=osc_potential,
        force=osc_force,
        params={"m": 2.0 * unit, "k": 20.0 * unit, "c": 0.5 * unit},
    )


def osc_mass(t, q, p):
    return p["m"] * jnp.eye(1)


def osc_potential(t, q, p):
    return 0.5 * p["k"] * q[0] ** 2


def osc_force(t, q, v, p):
    return -p["c"] * v


def exact(ts, k, c, m=2.0, x=1.0, v=0.0):
    """The underdamped motion."""
    decay = c / (2 * m)
    w = np.sqrt(k / m - decay**2)
    return np.exp(-decay * ts) * (x * np.cos(w * ts) + (v + decay * x) / w * np.sin(w * ts))


OSCILLATOR = oscillator()


@functools.cache
def released():
    with jax.ensure_compile_time_eval():  # first asked for inside of a program, it is still a state of numbers
        return jm.assemble(OSCILLATOR, [1.0], [0.0])


BOTH = (Parameter("k"), Parameter("c"))
NOISY = exact(TS, 31.0, 0.8) + 0.02 * NOISE[0]


def measured(values=NOISY, sigma=0.02, **more):
    return Experiment(TS, released(), Signal("x", values, sigma), **more)


@pytest.fixture(scope="module")
def noisy():
    """A fit of noisy data, and SciPy's on the formula."""
    peer = scipy.optimize.curve_fit(exact, TS, NOISY, p0=(20.0, 0.5), sigma=np.full(41, 0.02), ftol=1e-14, xtol=1e-14)
    return fit.identify(OSCILLATOR, BOTH, measured()), peer


def test_finds_what_made_the_motion():
    found = fit.identify(OSCILLATOR, BOTH, measured(exact(TS, 31.0, 0.8)))
    assert abs(found.estimates["k"] - 31.0) < 1e-6 and abs(found.estimates["c"] - 0.8) < 1e-6
    assert bool(found.result == jm.RESULTS.successful)
    assert abs(found.model.params["k"] - 31.0) < 1e-6


def test_options_are_those_of_simulate():
    assert set(OPTIONS) <= set(inspect.signature(jm.simulate).parameters)


@pytest.mark.slow
def test_an_engine_may_be_chosen():
    found = [fit.identify(OSCILLATOR, BOTH, measured(NOISY), engine=engine) for engine in (jm.XLA(), jm.Compiled())]
    for name, value in found[0].estimates.items():
        np.testing.assert_allclose(value, found[1].estimates[name], rtol=1e-12)


def test_a_fit_carries_its_evidence():
    """Both derivatives of the residuals are those of the values; what a bound holds is not moved."""
    bounded = (Parameter("k"), Parameter("c", max_value=0.6))
    found = fit.identify(OSCILLATOR, bounded, measured(exact(TS, 31.0, 0.8), name="swing"), check=True)
    check = found.check
    assert check.ok and check.experiments == (("swing",),) and bool(found.at_bound[1])
    assert [x.name for x in check.gradient.directions] == ["all 1", "all 2", "['k']"]
    assert all(
        x.reverse == pytest.approx(x.forward, rel=1e-11) and abs(x.reverse) > 0.1 for x in check.gradient.directions
    )
    assert str(found).endswith("ok ('swing')\nGradient along 3 directions: agrees with values")
    text = "`check` must be False inside of `jit` or `vmap`"
    with pytest.raises(TypeError, match=text):
        jax.jit(lambda x: fit.identify(OSCILLATOR, BOTH, measured(x), check=True).estimates)(jnp.asarray(NOISY))


def test_estimates_and_covariance_are_those_of_scipy(noisy):
    found, (values, covariance) = noisy
    got = np.array([found.estimates["k"], found.estimates["c"]])
    np.testing.assert_allclose(got, values, rtol=1e-5)
    np.testing.assert_allclose(found.covariance(), covariance, rtol=1e-3)
    _, absolute = scipy.optimize.curve_fit(
        exact, TS, NOISY, p0=(20.0, 0.5), sigma=np.full(41, 0.02), absolute_sigma=True
    )
    np.testing.assert_allclose(found.covariance(absolute_sigma=True), absolute, rtol=1e-3)
    low, high = found.intervals()["k"]
    assert float(high - low) == pytest.approx(2 * scipy.stats.t.ppf(0.975, 39) * covariance[0, 0] ** 0.5, rel=1e-3)


def test_the_report_holds_residuals_and_a_table(noisy):
    found, _ = noisy
    signal = found.signals["0"]["x"]
    model = exact(TS, float(found.estimates["k"]), float(found.estimates["c"]))
    np.testing.assert_allclose(signal.model[:, 0], model, atol=1e-7)
    np.testing.assert_allclose(signal.residual[:, 0], (model - NOISY) / 0.02, atol=1e-5)
    assert float(found.cost) == pytest.approx(0.5 * float(jnp.sum(signal.residual**2)), rel=1e-12)
    text = str(found)
    assert "41 samples" in text and "converged" in text and "Least certain" in text


def test_several_fits_and_failed_ones_print_in_a_line(noisy):
    found, _ = noisy
    several = eqx.tree_at(lambda x: x.cost, found, jnp.ones((2, 3)))
    assert str(several) == "Fits of 'c' and 'k', 6 of them; index one for its table."
    failed = dataclasses.replace(found, result=jm.RESULTS.search_failed)
    assert str(failed).startswith("Fit of 41 samples: A run fails where the search starts")
    with pytest.raises(ValueError, match="`result` must be a single fit, but holds 6; index one"):
        jm.plot.fit(several)


def test_of_many_starts_and_biases_the_first_are_printed(noisy):
    found, _ = noisy
    names = [f"b{i}" for i in range(20)]
    longer = lambda x: jnp.concatenate([x, jnp.zeros((*x.shape[:-1], 20), x.dtype)], axis=-1)
    more = dataclasses.replace(
        found,
        labels=(*found.labels, *names),
        nuisances={name: jnp.asarray(0.5) for name in names},
        unknowns=longer(found.unknowns),
        jacobian=longer(found.jacobian),
        scales=longer(found.scales),
        at_bound=longer(found.at_bound),
    )
    rows = [line.split() for line in str(more).splitlines()]
    shown = [row[0] for row in rows if row[0] in names and row[1] == "0.5"]
    assert shown == names[: len(shown)] and [
        "…", "and", str(20 - len(shown)), "more", "in", "`nuisances`"
    ] in rows  # fmt: skip
    np.testing.assert_allclose(more.covariance(), found.covariance(), rtol=1e-9)


def test_runs_that_failed_are_named_by_experiment():
    prepared = prepare(OSCILLATOR, BOTH, [measured(name="a"), measured(name="b")], None, None, {})
    results = [jm.RESULTS.successful, jm.RESULTS.nonfinite]
    runs = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *results)
    assert failures(prepared, runs) == f"\nExperiment 'b': {jm.RESULTS[jm.RESULTS.nonfinite]}"


def test_a_given_start_stays_as_it_is(noisy):
    start = noisy[0].start()
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(released()), strict=True))


@pytest.mark.slow_except("Dogleg")
@pytest.mark.parametrize("solver", [optx.LevenbergMarquardt, optx.Dogleg], ids=["LevenbergMarquardt", "Dogleg"])
def test_solvers_of_optimistix_find_the_same(noisy, solver):
    found = fit.identify(OSCILLATOR, BOTH, measured(), optimiser=solver(1e-10, 1e-10))
    assert bool(found.result == jm.RESULTS.successful)
    for name, value in noisy[0].estimates.items():
        assert float(found.estimates[name]) == pytest.approx(float(value), rel=1e-5)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_step_of_optax_goes_down_the_slope(noisy, mode):
    """By all of it: relative changes are −∂cost/∂ln p times the rate."""
    rate = 1e-8
    found = fit.identify(OSCILLATOR, BOTH, measured(), optimiser=optax.sgd(rate), max_iterations=1, jacobian=mode)
    for name, index in (("k", 0), ("c", 1)):
        step = 1e-5
        cost = lambda p: 0.5 * np.sum(((exact(TS, *p) - NOISY) / 0.02) ** 2)
        ends = [cost(np.array([20.0, 0.5]) * (1 + s * step * np.eye(2)[index])) for s in (1, -1)]
        moved = float(found.estimates[name] / found.nominal[name]) - 1
        assert moved == pytest.approx(-rate * (ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_steps_of_optax_need_known_numbers():
    with pytest.raises(TypeError, match="`optimiser` must be None, or of optimistix, inside of `jit` or `vmap`"):
        jax.jit(lambda x: fit.identify(OSCILLATOR, BOTH, measured(x), optimiser=optax.sgd(1.0)).estimates)(NOISY)


@pytest.mark.parametrize("search", [fit.identify, fit.identifiability, fit.information])
def test_a_damping_beyond_all_numbers_names_the_experiment(search):
    wild = [Parameter("k", 31.0, scale=20.0), Parameter("c", -1e300, scale=20.0)]
    with pytest.raises(RuntimeError, match=r"A run fails where the search starts.*\nExperiment '0': "):
        search(OSCILLATOR, wild, Experiment(TS, released(), Signal("x", NOISY, 0.02)))


@pytest.mark.slow
def test_steps_of_optax_find_the_same(noisy):
    found = fit.identify(OSCILLATOR, BOTH, measured(), optimiser=optax.lbfgs(linesearch=None), max_iterations=3)
    assert float(found.cost) < 3.1e5
    found = fit.identify(OSCILLATOR, BOTH, measured(), optimiser=optax.adam(0.05), max_iterations=150)
    for name, value in noisy[0].estimates.items():
        assert float(found.estimates[name]) == pytest.approx(float(value), rel=2e-2)


def test_jacobian_in_both_modes_and_by_differences():
    signals = [Signal("x", NOISY, 0.1, bias=True), Signal("x'", np.where(TS > 1.5, np.nan, 0.0), 2.0)]
    experiment = Experiment(TS, released(), signals, windows=3, gap=0.1)
    found = {}
    for mode in ("forward", "reverse"):
        prepared = prepare(OSCILLATOR, BOTH, [experiment], None, mode, {})
        found[mode] = fit_linear(prepared.problem, prepared.start)
    np.testing.assert_allclose(*(found[mode] for mode in found), rtol=1e-9, atol=1e-9)
    for i in range(prepared.problem.size):
        step = jnp.zeros(prepared.problem.size).at[i].set(1e-5)
        ends = [fit_residuals(prepared.problem, prepared.start + s * step) for s in (1, -1)]
        np.testing.assert_allclose(found["forward"][:, i], (ends[0] - ends[1]) / 2e-5, atol=2e-6 * 100)


@eqx.filter_jit
def fit_linear(problem, y):
    return problem.linear(y)[1]


@eqx.filter_jit
def fit_residuals(problem, y):
    return problem.residuals(y)[0]


def test_what_is_not_looked_for_is_eliminated_by_least_squares():
    """Parts along other columns are gone, also where these repeat or are zero."""
    rng = np.random.default_rng(0)
    columns, rest = rng.normal(size=(2, 9, 3))
    rest = np.concatenate([rest, 1e6 * rest[:, :1], np.zeros((9, 1))], axis=1)
    exact = columns - rest @ np.linalg.lstsq(rest, columns, rcond=None)[0]
    np.testing.assert_allclose(eliminated(jnp.asarray(np.hstack([columns, rest])), 3), exact, atol=1e-12)
    np.testing.assert_array_equal(eliminated(jnp.asarray(columns), 3), columns)


def test_what_residuals_tell_is_printed():
    """Of p₀ + 2 p₁ one number is known, p₂ by itself, nothing of p₃."""
    a, b = np.eye(6)[:, :2].T
    jacobian = np.stack([a, 2 * a, 5 * b, 0 * b], axis=1)
    found = Identifiability.of(jacobian, ("p0", "p1", "p2", "p3"), 4, np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(found.values, [5.0, np.sqrt(5), 0.0, 0.0], atol=1e-12)
    assert found.undetermined == ("p0", "p1", "p3") and found.standard_errors["p2"] == pytest.approx(3.0 / 5)
    *rows, one, other, worst = str(found).splitlines()
    assert [row.split(maxsplit=1) for row in rows[1:]] == [
        [name, "0.6" if name == "p2" else "not determined"] for name in ("p0", "p1", "p2", "p3")
    ]
    assert {one, other} == {"Nothing measured depends on p3.", "Nothing measured changes along +100 % p0, -50 % p1."}
    assert worst == "Least certain, to 45 % for the given σ: +100 % p1, +50 % p0."
    blind = Identifiability.of(np.zeros((6, 1)), ("p",), 1, np.ones(1))
    assert str(blind).splitlines()[1:] == ["p          not determined", "Nothing measured depends on p."]


@pytest.mark.slow
def test_what_does_not_show_is_named():
    every = [Parameter("m"), *BOTH]
    before = fit.identifiability(OSCILLATOR, every, Experiment(TS, released(), Signal("x", sigma=0.02)))
    assert before.undetermined == ("m", "k", "c")
    # All forces may grow alike: relative changes of m, k and c are equal.
    np.testing.assert_allclose(before.null / before.null[:, :1], np.ones((1, 3)), atol=1e-6)
    assert "Nothing measured changes along" in str(before)
    found = fit.identify(OSCILLATOR, every, measured())
    assert found.identifiability.undetermined == ("m", "k", "c")
    assert np.all(np.isinf(np.diag(found.covariance())))
    assert float(found.estimates["k"] / found.estimates["m"]) == pytest.approx(15.5, rel=0.02)
    assert "not determined" in str(found)
    idle = fit.identifiability(
        eqx.tree_at(lambda s: s.params, OSCILLATOR, OSCILLATOR.params | {"idle": jnp.ones(())}),
        [Parameter("k"), Parameter("idle")],
        Experiment(TS, released(), Signal("x", sigma=0.02)),
    )
    assert idle.undetermined == ("idle",) and "Nothing measured depends on idle." in str(idle)
    assert idle.standard_errors["k"] > 0 and np.isinf(idle.standard_errors["idle"])


def test_standard_errors_before_data_are_those_of_the_fit(noisy):
    found, _ = noisy
    values = {name: float(x) for name, x in found.estimates.items()}
    planned = [Parameter(name, value, scale=20.0) for name, value in values.items()]
    before = fit.identifiability(OSCILLATOR, planned, Experiment(TS, released(), Signal("x", sigma=0.02)))
    for name, error in found.standard_errors(absolute_sigma=True).items():
        assert before.standard_errors[name] == pytest.approx(float(error), rel=1e-4)


def test_bounds_hold_and_are_told():
    bounded = [Parameter("k", min_value=0.0, max_value=100.0), Parameter("c", max_value=0.6)]
    found = fit.identify(OSCILLATOR, bounded, measured())
    assert float(found.estimates["c"]) == pytest.approx(0.6, abs=1e-12) and list(found.at_bound) == [False, True]
    best = scipy.optimize.least_squares(lambda k: exact(TS, k[0], 0.6) - NOISY, [20.0], xtol=1e-14, ftol=1e-14).x[0]
    assert float(found.estimates["k"]) == pytest.approx(best, rel=1e-5)
    assert float(found.standard_errors()["c"]) == 0.0 and "at its bound" in str(found)


def test_steps_within_bounds_are_the_best_ones():
    """Against SciPy's `lsq_linear` on 100 badly conditioned problems: the fall of the damped cost is nearly its best, nearly always all of it."""
    rng, shares = np.random.default_rng(0), []
    for _ in range(100):
        n = 8
        jacobian = (
            rng.normal(size=(30, n))
            @ np.diag(10.0 ** rng.uniform(-2, 1, n))
            @ (np.eye(n) + 0.9 * rng.normal(size=(n, n)))
        )
        r, y, damping = 10 * rng.normal(size=30), rng.normal(size=n), 10.0 ** rng.uniform(-6, 0)
        low, high = (y + s * 0.5 * rng.uniform(0, 1, n) * (rng.random(n) < 0.8) for s in (-1, 1))
        high = np.where(high <= low, low + 0.3, high)
        sizes = np.sum(jacobian**2, axis=0)
        room = (jnp.asarray(low - y), jnp.asarray(high - y))
        step, predicted = jax.jit(bounded_step)(room, *map(jnp.asarray, (r, jacobian, sizes, damping)))
        rows = np.concatenate([jacobian, np.diag(np.sqrt(damping * sizes))])
        goal = np.concatenate([-r, np.zeros(n)])
        fall = lambda d: 0.5 * np.sum(goal**2) - 0.5 * np.sum((rows @ d - goal) ** 2)
        best = scipy.optimize.lsq_linear(rows, goal, (low - y, high - y + 1e-12), tol=1e-12).x
        shares.append(fall(np.asarray(step)) / fall(best))
        assert shares[-1] > 0.9 and float(predicted) >= 0
        assert np.all((low - 1e-12 <= y + step) & (y + step <= high + 1e-12))
    assert np.quantile(shares, 0.05) > 0.999


def test_a_step_that_cannot_be_found_is_no_end():
    step, predicted = bounded_step(
        None, jnp.ones(2), jnp.array([[1e200, 0.0], [0.0, 1e200]]), jnp.ones(2), jnp.ones(())
    )
    assert np.all(np.asarray(step) == 0) and np.isinf(float(predicted))


class Formula(Problem):
    """Residuals of a formula in place of runs."""

    fn: Callable = eqx.field(static=True)

    def __init__(self, fn, low):
        self.fn, self.low, self.high = fn, low, jnp.full(low.shape, jnp.inf)
        self.runs, self.groups, self.scale, self.forward, self.bounded = None, (), jnp.ones(low.shape), True, True

    rows, lanes = len(TS), 1

    def linear(self, y):
        results = jax.tree.map(lambda x: jnp.asarray(x)[None], jm.RESULTS.successful)
        return self.fn(y), jax.jacfwd(self.fn)(y), results


def searched(fn, start, low, most=200):
    """The search for the least squares of residuals with lower bounds; unknowns are divided by their starts."""
    y, scale = jnp.ones(len(start)), jnp.asarray(start)
    problem = Formula(lambda y: fn(y * scale), jnp.asarray(low) / scale)
    go = lambda s: advance(problem, s, jnp.asarray(1e-8), jnp.asarray(most))
    found = jax.jit(lambda: jax.lax.while_loop(lambda s: ~s.done, go, begin(problem, y)))()
    return found


LONG = np.linspace(0.0, 4.0, 41)
FORMULAS = {
    "stiffness": (lambda p: 1 / (p[0] + p[1] * LONG**2 + 1e-3), [0.5, 0.4], [1e-2, 1e-6]),
    "root": (lambda p: jnp.sqrt(p[0] + 1e-14) * LONG + p[1] * jnp.exp(-LONG), [1.0, 2.0], [1e-8, 1.0]),
    "square": (lambda p: p[0] ** 2 * LONG + p[1] * jnp.exp(-LONG), [1.0, 2.0], [1e-6, 1.0]),
    "rates": (
        lambda p: p[0] * jnp.exp(-p[1] * LONG) + p[2] * jnp.exp(-p[3] * LONG),
        [1.0, 3.0, 0.5, 0.4],
        [1.0, 1.0, 1.0, 1e-6],
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_start_beside_a_bound_at_zero_costs_no_more_steps_than_without_the_bound(name):
    """Where residuals depend strongly, or hardly, on what starts there; SciPy's least squares as the reference of the minimum."""
    fn, truth, start = FORMULAS[name]
    measured = fn(np.array(truth)) + 0.01 * NOISE[1]
    off = lambda p: (fn(p) - measured) / 0.01
    best = scipy.optimize.least_squares(lambda p: np.asarray(off(p)), truth, x_scale="jac", ftol=1e-12, xtol=1e-12)
    found = searched(off, start, np.zeros(len(start)))
    free = searched(off, start, np.full(len(start), -np.inf))
    assert bool(found.result == jm.RESULTS.successful) and float(found.cost) == pytest.approx(best.cost, rel=1e-5)
    assert int(found.iterations) <= min(33, int(free.iterations) + 3)


def test_a_fit_that_did_not_converge_has_no_intervals():
    found = fit.identify(OSCILLATOR, (Parameter("k", 5.0), BOTH[1]), measured(), max_iterations=3)
    assert bool(found.result == jm.RESULTS.search_unfinished)
    assert all(np.isnan(end) for ends in found.intervals().values() for end in ends)
    assert np.isnan(found.covariance()).all() and all(np.isnan(x) for x in found.standard_errors().values())
    assert "did not converge" in str(found) and str(found).count("not converged") == 2 and "±" not in str(found)


def test_missing_samples_and_weights_of_single_samples():
    values, sigma = NOISY.copy(), np.where(np.arange(41) % 3, 0.02, 0.05)
    values[5:20] = np.nan
    found = fit.identify(OSCILLATOR, BOTH, measured(values, sigma))
    there = np.isfinite(values)
    peer = scipy.optimize.curve_fit(exact, TS[there], values[there], p0=(20.0, 0.5), sigma=sigma[there], xtol=1e-12)[0]
    np.testing.assert_allclose([found.estimates["k"], found.estimates["c"]], peer, rtol=1e-4)
    assert int(found.count) == there.sum()
    assert np.all(np.isnan(found.signals["0"]["x"].model[5:20]))


def test_unknown_starts_and_biases():
    values = exact(TS, 31.0, 0.8, x=0.8, v=0.5) + 0.3
    found = fit.identify(
        OSCILLATOR, BOTH, Experiment(TS, released(), Signal("x", values, 0.1, bias=True), fit_start=True, name="swing")
    )
    assert float(found.estimates["k"]) == pytest.approx(31.0, rel=1e-6)
    known = {"swing: bias of x": 0.3, "swing: start of x": 0.8, "swing: start of x'": 0.5}
    assert {name: pytest.approx(float(x), abs=1e-6) for name, x in found.nuisances.items()} == known
    only = fit.identify(
        OSCILLATOR, BOTH, Experiment(TS, released(), Signal("x", exact(TS, 31.0, 0.8, v=0.5)), fit_start=["x'"])
    )
    assert [*only.nuisances] == ["0: start of x'"] and float(only.nuisances["0: start of x'"]) == pytest.approx(0.5)


@pytest.mark.slow
def test_windows_find_what_single_shooting_misses():
    ts = np.linspace(0.0, 10.0, 201)
    values, only = exact(ts, 45.0, 0.5), [Parameter("k")]
    alone = fit.identify(OSCILLATOR, only, Experiment(ts, released(), Signal("x", values, 0.01)))
    parts = fit.identify(OSCILLATOR, only, Experiment(ts, released(), Signal("x", values, 0.01), windows=10))
    assert abs(float(alone.estimates["k"]) - 45.0) > 1.0
    assert float(parts.estimates["k"]) == pytest.approx(45.0, rel=1e-5)
    assert parts.signals["0"]["x"].ts.shape == (201,)
    np.testing.assert_allclose(parts.signals["0"]["x"].model[:, 0], values, atol=1e-4)
    assert "… and 8 more in `nuisances`" in str(parts) and int(parts.freedom) == 201 + 18 - 21


@pytest.mark.slow
def test_many_starts_find_what_one_misses():
    ts = np.linspace(0.0, 10.0, 201)
    experiment = Experiment(ts, released(), Signal("x", exact(ts, 45.0, 0.1), 0.01))
    found = fit.identify(
        OSCILLATOR,
        [Parameter("k", min_value=1.0, max_value=200.0), Parameter("c", min_value=0.0, max_value=1.0)],
        experiment,
        starts=24,
        key=jax.random.PRNGKey(1),
    )
    assert found.starts.shape == (24,) and float(found.starts[0]) > 1.0
    assert float(found.estimates["k"]) == pytest.approx(45.0, rel=1e-5)


def test_units_of_mass_do_not_matter():
    one = fit.identify(OSCILLATOR, BOTH, measured())
    other = fit.identify(oscillator(1e6), BOTH, measured())
    assert int(one.iterations) == int(other.iterations)
    assert float(other.estimates["k"]) == pytest.approx(1e6 * float(one.estimates["k"]), rel=1e-9)


def identified(values):
    """What 200 repetitions share."""
    found = fit.identify(OSCILLATOR, BOTH, measured(values), throw=False)
    return found


@pytest.mark.slow
def test_intervals_of_200_fits_at_once_cover_the_truth():
    fits = jax.jit(jax.vmap(identified))(jnp.asarray(exact(TS, 31.0, 0.8) + 0.02 * NOISE))
    assert bool(jnp.all(fits.result == jm.RESULTS.successful))
    for name, value in (("k", 31.0), ("c", 0.8)):
        low, high = fits.intervals()[name]
        share = float(jnp.mean((low <= value) & (value <= high)))
        assert 0.90 <= share <= 0.98
    alone = fit.identify(OSCILLATOR, BOTH, measured())
    assert float(fits.estimates["k"][0]) == pytest.approx(float(alone.estimates["k"]), rel=1e-7)
    assert "200 of them" in str(fits)


def test_a_search_goes_on_bit_by_bit_as_it_would_have(tmp_path):
    path = tmp_path / "search"
    whole = fit.identify(OSCILLATOR, BOTH, measured(), max_iterations=6, rtol=0.0)

    def stop(progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit.identify(OSCILLATOR, BOTH, measured(), max_iterations=6, rtol=0.0, checkpoint=path, progress=stop)
    seen = []
    again = fit.identify(
        OSCILLATOR, BOTH, measured(), max_iterations=6, rtol=0.0, checkpoint=path, progress=seen.append
    )
    assert [p.iteration for p in seen] == [4, 5, 6] and seen[-1].done
    assert all(bool(jnp.all(again.estimates[name] == whole.estimates[name])) for name in whole.estimates)
    # More iterations are added to a search that was out of them; other data are another search.
    fit.identify(OSCILLATOR, BOTH, measured(), max_iterations=7, rtol=0.0, checkpoint=path, progress=seen.append)
    assert seen[-1].iteration == 7
    with pytest.raises(ValueError, match="belongs to another one"):
        fit.identify(OSCILLATOR, BOTH, measured(NOISY + 1.0), max_iterations=6, rtol=0.0, checkpoint=path)
    assert [*tmp_path.iterdir()] == [path]
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"`checkpoint` must name a whole file, but '.*search' is damaged"):
        fit.identify(OSCILLATOR, BOTH, measured(), max_iterations=6, rtol=0.0, checkpoint=path)


@pytest.mark.slow
def test_experiments_that_are_alike_share_a_program():
    short = Experiment(TS[:30], released(), Signal("x", NOISY[:30], 0.02), name="short")
    long = measured(name="long")
    prepared = prepare(OSCILLATOR, BOTH, [short, long], None, None, {})
    assert len(prepared.problem.groups) == 1
    together = fit.identify(OSCILLATOR, BOTH, [short, long])
    stack = np.concatenate([NOISY[:30], NOISY])
    ts = np.concatenate([TS[:30], TS])
    peer = scipy.optimize.curve_fit(exact, ts, stack, p0=(20.0, 0.5), xtol=1e-12)[0]
    np.testing.assert_allclose([together.estimates["k"], together.estimates["c"]], peer, rtol=1e-4)
    assert together.signals["short"]["x"].model.shape == (30, 1) and int(together.count) == 71
    other = Experiment(TS, released(), Signal(energy_of, np.ones(41), 0.02), name="other")
    assert len(prepare(OSCILLATOR, BOTH, [short, long, other], None, None, {}).problem.groups) == 2


def constant_force(t, q, v, p):
    return jnp.ones(1)


def energy_of(system, motion):
    return jm.energy(system, motion).total


def reaction_of(system, motion):
    return jm.reactions(system, motion, throw=False).multipliers["rod"]


def pendulum_mass(t, q, p):
    return p["m"] * jnp.eye(2)


def pendulum_potential(t, q, p):
    return p["m"] * 9.81 * q[1]


def rod(t, q, p):
    return q @ q - p["l"] ** 2


def pendulum(length=1.0, mass=1.0):
    return jm.System(
        ("x", "y"),
        mass=pendulum_mass,
        potential=pendulum_potential,
        constraints=[jm.Holonomic("rod", rod)],
        params={"m": mass, "l": length},
    )


@pytest.mark.slow
def test_starts_stay_on_constraints_that_parameters_move():
    """The rod's length from the coordinate x, mass from the reaction; x is held at its start and y follows."""
    truth = pendulum(1.3, 2.5)
    first = jm.assemble(truth, [0.5, -1.2], hold=["x"])
    motion = jm.simulate(truth, first, TS)
    guess = pendulum()
    start = jm.assemble(guess, [0.5, -0.8], hold=["x"])
    signals = [Signal("x", motion.q[:, 0], 0.01), Signal(reaction_of, reaction_of(truth, motion), 0.1, name="rod")]
    found = fit.identify(guess, [Parameter("l"), Parameter("m")], Experiment(TS, start, signals))
    assert float(found.estimates["l"]) == pytest.approx(1.3, rel=1e-6)
    assert float(found.estimates["m"]) == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize("name, moves", [("m", False), ("l", True)])
def test_starts_are_assembled_anew_where_parameters_move_constraints(name, moves):
    """A length does, a mass does not."""
    guess = pendulum()
    start = jm.assemble(guess, [0.5, -0.8], hold=["x"])
    experiment = Experiment(TS, start, [Signal("x", jnp.zeros(len(TS)), 0.01)])
    prepared = prepare(guess, [Parameter(name)], [experiment], None, None, {})
    assert prepared.problem.groups[0].reassembled == moves


@pytest.mark.slow
def test_a_trial_that_fails_is_a_shorter_step():
    """Of a mass under a constant force x = f t²/2m: the Gauss–Newton step from 3 kg for 1 kg leads to −3 kg, where nothing runs."""
    thrown = jm.System(("x",), mass=osc_mass, force=constant_force, params={"m": 1.0})
    seen = []
    experiment = Experiment(TS, jm.assemble(thrown, [0.0]), Signal("x", 0.5 * TS**2))
    found = fit.identify(thrown, [Parameter("m", 3.0)], experiment, progress=seen.append)
    assert float(found.estimates["m"]) == pytest.approx(1.0, rel=1e-6)
    assert any(not np.isfinite(p.trial) for p in seen) and all(np.isfinite(p.cost) for p in seen)


@pytest.mark.slow
def test_steps_are_wary_of_a_bound_where_a_run_failed():
    """The same with a bound at zero, where there is no motion either: the search comes back from beside the bound."""
    thrown = jm.System(("x",), mass=osc_mass, force=constant_force, params={"m": 1.0})
    experiment = Experiment(TS, jm.assemble(thrown, [0.0]), Signal("x", 0.5 * TS**2))
    found = fit.identify(thrown, [Parameter("m", 30.0, min_value=0.0)], experiment)
    assert float(found.estimates["m"]) == pytest.approx(1.0, rel=1e-6) and int(found.iterations) < 20


def test_starts_alone_and_where_a_fit_starts():
    values = exact(TS, 20.0, 0.5, x=0.8, v=0.5)
    found = fit.identify(
        OSCILLATOR, [], Experiment(TS, released(), Signal("x", values, 0.1), fit_start=True, name="swing")
    )
    start = found.start("swing")
    np.testing.assert_allclose([start.q[0], start.v[0]], [0.8, 0.5], atol=1e-6)
    np.testing.assert_allclose(jm.simulate(found.model, start, TS).q[:, 0], values, atol=1e-6)
    with pytest.raises(ValueError, match="must be one of 'swing'"):
        found.start("fall")


def test_gradient_of_the_cost():
    found = fit.identify(OSCILLATOR, BOTH, measured(), max_iterations=1)
    cost = lambda k, c: 0.5 * np.sum(((exact(TS, k, c) - NOISY) / 0.02) ** 2)
    slope = (cost(20.0 + 1e-4, 0.5) - cost(20.0 - 1e-4, 0.5)) / 2e-4
    assert float(found.gradient["k"]) == pytest.approx(slope, rel=1e-6)
    assert "did not converge" in str(found)


@pytest.mark.slow
def test_a_start_that_fails_names_the_experiment():
    with pytest.raises(RuntimeError, match="Experiment 'swing'"):
        fit.identify(OSCILLATOR, [Parameter("m", -1.0)], measured(name="swing"))
    with pytest.raises(RuntimeError, match="Experiment 'swing'"):
        fit.identifiability(OSCILLATOR, [Parameter("m", -1.0)], measured(name="swing"))
    quiet = fit.identify(OSCILLATOR, [Parameter("m", -1.0)], measured(name="swing"), throw=False)
    assert bool(quiet.result == jm.RESULTS.search_failed)
    assert quiet.estimates["m"] == -1.0 and "A run fails where the search starts" in str(quiet)


def geared(name):
    """An oscillator whose velocity has a name of its own and is half the rate of its coordinate."""
    return jm.System(("x",), velocities=(name,), mass=lambda t, q, p: jnp.eye(1), rate=lambda q, v, p: 2.0 * v)


def test_angles_whose_turns_nobody_counts_are_those_of_joints_outside_the_tree():
    bodies, encoder = arm().build("absolute"), jm.output.Encoder("shoulder", 1e-3)
    assert wraps(reading("shoulder", bodies, "signal"), bodies) and wraps(encoder, bodies)
    assert not wraps(reading("shoulder'", bodies, "signal"), bodies) and not wraps(encoder, arm().build())


@pytest.mark.slow
def test_a_record_may_go_beyond_half_a_turn():
    """Of a hinge outside the tree, whose angle lies between −π and π, turns are those of the record; a bias finds its own."""
    rod = jm.planar.Body.rod("rod", 1.0, 1.0)
    pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("hinge", "ground", "rod.a")], gravity=(-2.0, 0.0))
    system, ts, angle = pendulum.build("absolute"), jnp.linspace(0.0, 1.0, 11), np.pi + 0.1
    start = jm.as_state(system, [0.0, 0.0, angle])
    counted = jm.simulate(system, start, ts).q[:, 2]
    for bias in (False, True):
        record = fit.Experiment(ts, start, fit.Signal("hinge", counted, sigma=0.01, bias=bias))
        found = fit.identify(system, [Parameter("gravity", jnp.array([-1.4, 0.1]))], record)
        np.testing.assert_allclose(found.estimates["gravity"], (-2.0, 0.0), atol=1e-6)


def test_signals_are_read_by_names_of_coordinates_velocities_joints_and_points():
    assert reading("x", geared("w"), "signal") == CoordinateSignal("q", 0)
    assert reading("w", geared("w"), "signal") == reading("w'", geared("w"), "signal") == CoordinateSignal("v", 0)
    bodies = arm().build("absolute")
    assert reading("elbow", bodies, "signal") == JointSignal("elbow", False)
    assert reading("elbow'", bodies, "signal") == JointSignal("elbow", True)
    assert reading("lower.b", bodies, "signal") == PositionSignal("lower.b")
    with pytest.raises(ValueError, match="Joint 'elbow' has the coordinates angle, but not 'z'"):
        reading("elbow.z", bodies, "signal")


@pytest.mark.parametrize("name", ["x", "w"])
def test_windows_start_where_the_record_is(name):
    """At a cubic through the samples nearby, and at its slope if that is a velocity; where none is measured at the state before."""
    system = geared(name)
    start = jm.assemble(system, [1.0], [0.25])
    values = 1.0 + 2.0 * TS - TS**3
    cut = windows(Experiment(TS, start, Signal("x", values), windows=2), system, ((0,), (0,)))[1]
    np.testing.assert_allclose(cut.start.q, 1.0 + 2.0 - 1.0, rtol=1e-12)
    np.testing.assert_allclose(cut.start.v, 2.0 - 3.0 if name == "x" else 0.25, rtol=1e-9)
    assert float(cut.start.t) == float(cut.ts[0]) == 1.0
    gone = np.where(np.abs(TS - 1.0) < 0.9, np.nan, values)
    after = windows(Experiment(TS, start, Signal("x", gone), windows=2), system, ((0,), (0,)))[1]
    # From sample 5 the last two, 1 and 2, are seen: a line through them.
    np.testing.assert_allclose(after.start.q, 4 * values[2] - 3 * values[1], rtol=1e-12)


def test_what_follows_from_a_wanted_start_is_not_chosen_beside_it():
    start = jm.assemble(pendulum(), [0.5, -0.8], hold=["x"])
    for first, preferred, chosen in ((("y",), ("x", "y'"), (1, 1)), (("x'",), ("y", "x"), (1, 0))):
        assert independent(pendulum(), start, first, preferred) == ((chosen[0],), (chosen[1],))


def test_parameters_that_a_program_does_not_know_have_their_start_as_scale():
    entries = jax.jit(lambda k: Unknowns.of([Parameter("k", k)], Setup(OSCILLATOR)).vector({"k": 3.0 * k}))
    np.testing.assert_allclose(entries(-7.0), [-3.0], rtol=1e-15)


def test_random_starts_are_the_same_in_a_program():
    low, high, key = jnp.array([1e-3, -1.0]), jnp.array([10.0, 2.0]), jax.random.PRNGKey(4)
    points = lambda low: starting_points(jnp.ones(2), (low, high), ("a", "b"), 50, key)
    alone = points(low)
    np.testing.assert_allclose(jax.jit(points)(low), alone, rtol=1e-12)
    assert np.all((low <= alone) & (alone <= high)) and np.array_equal(alone[0], np.ones(2))


def test_a_search_is_told_by_its_numbers_and_its_functions():
    """By their names and texts, those among the static parts of a mechanism too."""
    one = {"law": exact, "k": jnp.ones(2)}
    assert _fingerprint(one) == _fingerprint(dict(one))
    assert len({_fingerprint(x) for x in (one, one | {"law": measured}, one | {"k": 2 * jnp.ones(2)})}) == 3
    push = lambda motion: -1.0
    pull = lambda motion: 1.0
    assert push.__qualname__ == pull.__qualname__
    assert len({_fingerprint(P.JointForce("law", "O", law)) for law in (push, pull)}) == 2
    once = Parameter("k", 1.0, modifier=lambda model, x: model.with_params({"k": x, "c": x}))
    twice = Parameter("k", 1.0, modifier=lambda model, x: model.with_params({"k": 2 * x, "c": x}))
    assert len({_fingerprint(Unknowns.of([p], Setup(OSCILLATOR))) for p in (once, twice)}) == 2


# Names


def arm(**more):
    rods = [P.Body.rod("upper", mass=1.0, length=1.0), P.Body.rod("lower", mass=0.5, length=0.8)]
    return P.Mechanism(
        rods,
        [P.Revolute("shoulder", "ground", "upper.a"), P.Revolute("elbow", "upper.b", "lower.a")],
        forces=[P.JointSpring("bush", "elbow", stiffness=3.0, damping=0.1)],
        gravity=(0.0, -9.81),
        points={"peg": (0.1, 0.2)},
        params={"drag": jnp.array([1.0, 2.0])},
        **more,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("upper.mass", 1.0),
        ("lower.com.x", 0.4),
        ("lower.com", [0.4, 0.0]),
        ("bush.stiffness", 3.0),
        ("gravity.y", -9.81),
        ("lower.points.b.x", 0.8),
        ("points.peg.y", 0.2),
        ("params.drag.1", 2.0),
        ("control.gain", 4.0),
        ("control.layers", [1.0, 2.0, 3.0]),
        ("events.stop.at", 0.5),
        ("events.0.at", 0.5),
    ],
)
def test_names_lead_to_numbers(name, value):
    setup = Setup(
        arm(),
        Controller(jnp.array(4.0), [jnp.ones(1), jnp.array([2.0, 3.0])]),
        (jm.Lock("elbow", at=0.5, name="stop"),),
    )
    there = locate(setup, name)
    np.testing.assert_allclose(there.read(setup), value)
    changed = there.replaced(setup, 2 * jnp.asarray(value))
    np.testing.assert_allclose(there.read(changed), 2 * np.asarray(value))
    assert jax.tree.structure(changed) == jax.tree.structure(setup)
    untouched = sum(int(jnp.sum(a != b)) for a, b in zip(jax.tree.leaves(setup), jax.tree.leaves(changed), strict=True))
    assert untouched == np.count_nonzero(np.asarray(value))


def test_a_modifier_changes_the_model_by_its_value():
    unknowns = Unknowns.of([Parameter("heavy", 1.0, modifier=heavier), Parameter("bush.damping")], Setup(arm()))
    changed = unknowns.applied(Setup(arm()), {"heavy": jnp.asarray(1.4), "bush.damping": jnp.asarray(0.3)}).model
    assert float(changed.elements["upper"].mass) == 1.4 and float(changed.elements["bush"].damping) == 0.3
    assert float(unknowns.nominal["heavy"]) == 1.0 and float(unknowns.nominal["bush.damping"]) == 0.1


class Controller(eqx.Module):
    gain: jax.Array
    layers: list

    def __call__(self, t, q, v, p):
        return -self.gain * v


def test_inertias_that_bodies_can_have():
    rng = np.random.default_rng(3)
    for dim in (2, 3):
        points, masses = rng.normal(size=(7, dim)), rng.uniform(0.5, 2.0, 7)
        mass, com = masses.sum(), masses @ points / masses.sum()
        off = points - com
        if dim == 2:
            body = P.Body("b", mass, float(masses @ np.sum(off**2, axis=1)), com)
            model = P.Mechanism([body], [P.Revolute("j", "ground", "b")])
        else:
            spread = np.einsum("i,ij,ik->jk", masses, off, off)
            body = jm.spatial.Body("b", mass, np.trace(spread) * np.eye(3) - spread, com)
            model = jm.spatial.Mechanism([body], [jm.spatial.Revolute("j", "ground", "b", axis=(0.0, 0.0, 1.0))])
        unknown = fit.inertia_parameter(model, "b")
        same = unknown.modifier(model, unknown.nominal).elements["b"]
        np.testing.assert_allclose(same.spread(), body.spread(), rtol=1e-12, atol=1e-12)
        for _ in range(20):
            other = unknown.modifier(model, unknown.nominal + rng.normal(size=unknown.nominal.shape)).elements["b"]
            values = np.linalg.eigvalsh(np.asarray(other.spread()))
            assert values.min() > 0
    flat = jm.spatial.Body("b", 1.0, (1.0, 1.0, 2.0))
    with pytest.raises(ValueError, match="Body 'b' must have a positive mass"):
        fit.inertia_parameter(jm.spatial.Mechanism([flat], []), "b")


@pytest.mark.slow
def test_a_mechanism_by_names_and_a_modifier():
    truth = arm().replace("upper", mass=1.4).replace("bush", damping=0.25)
    system = truth.build()
    start = jm.assemble(system, {"shoulder": 0.3, "elbow": 0.5})
    motion = jm.simulate(system, start, TS)
    signals = [
        Signal("shoulder", motion.q[:, 0], 0.01),
        Signal("lower.b", jm.position(system, motion, "lower.b"), 0.01),
    ]
    found = fit.identify(
        arm(),
        [Parameter("heavy", 1.0, min_value=0.0, modifier=heavier), Parameter("bush.damping", min_value=0.0)],
        Experiment(TS, start, signals),
    )
    assert float(found.estimates["heavy"]) == pytest.approx(1.4, rel=1e-6)
    assert float(found.estimates["bush.damping"]) == pytest.approx(0.25, rel=1e-6)
    assert float(found.model.elements["upper"].mass) == pytest.approx(1.4, rel=1e-6)


class Integral(jm.control.AbstractController):
    """Pulls by the integral of x."""

    gain: jax.Array
    uses_plant = False

    def init(self, system):
        return jnp.zeros(1)

    def output(self, plant, z):
        return -self.gain * z

    def rate(self, plant, z, response):
        return plant.q


def controlled(gain, **how):
    """A mass on a spring with a sampled controller, and its experiment without values."""
    system = jm.System(
        ("x",),
        mass=lambda t, q, p: 2.0 * jnp.eye(1),
        potential=lambda t, q, p: 0.5 * p["k"] * q[0] ** 2,
        actuation=lambda t, q, p: jnp.eye(1),
        params={"k": 20.0},
    )
    control = jm.control.Sampled(Integral(jnp.asarray(gain)), 0.05)
    return system, Experiment(TS, jm.assemble(system, [1.0]), Signal("x", np.zeros(41)), control=control, **how)


@pytest.mark.slow
def test_the_gain_of_a_sampled_controller():
    system, seen = controlled(4.0)
    record = jm.simulate(system, seen.start, TS, control=seen.control).q[:, 0]
    seen = eqx.tree_at(lambda e: e.signals[0].values, controlled(3.0)[1], record)
    found = fit.identify(system, [Parameter("control.controller.gain")], seen)
    assert float(found.estimates["control.controller.gain"]) == pytest.approx(4.0, rel=1e-5)


def identify_in_windows(sampled):
    system, seen = controlled(4.0, windows=3)
    seen = seen if sampled else dataclasses.replace(seen, control=seen.control.controller)
    return fit.identify(system, [Parameter("k")], seen)


def heavier(model, mass):
    return model.replace("upper", mass=mass)


# Arguments


@pytest.mark.slow_cases("<lambda>-There is no point 'lower.z'")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Parameter("upper.mass", modifier=heavier), "`nominal` of parameter 'upper.mass'"),
        (lambda: fit.identify(arm(), [Parameter("uper.mass")], moved_arm()), "'uper' is not one of 'upper'"),
        (lambda: fit.identify(arm(), [Parameter("upper.weight")], moved_arm()), "'weight' is not one of 'mass'"),
        (
            lambda: fit.identify(arm(), [Parameter("upper")], moved_arm()),
            "must name a number; complete it by one of 'mass'",
        ),
        (
            lambda: fit.identify(arm(), [Parameter("control.gain")], moved_arm()),
            "there is none in the control of an experiment",
        ),
        (
            lambda: fit.identify(arm(), [Parameter("upper.mass", 1.0, 2.0, 3.0)], moved_arm()),
            "must start within its bounds",
        ),
        (
            lambda: Parameter("upper.mass", min_value=2, max_value=1),
            "`min_value` of parameter 'upper.mass' must not be above `max_value`, but is 2.0 above 1.0",
        ),
        (lambda: fit.identify(arm(), [Parameter("upper.com", 1.0)], moved_arm()), r"must have shape \(2,\)"),
        (
            lambda: fit.identify(arm(), [Parameter("upper.mass", frozen=True)], moved_arm()),
            "one at least that is not frozen",
        ),
        (lambda: fit.identify(arm(), [MASS, MASS], moved_arm()), "different names"),
        (lambda: fit.identify(arm().build(), [MASS], moved_arm()), "or give the mechanism itself as `model`"),
        (lambda: fit.identify(arm(), [MASS], moved_arm(), stepsize=1.0), "'stepsize'"),
        (lambda: fit.identify(arm(), [MASS], moved_arm(), starts=3), "come with a `key`"),
        (
            lambda: fit.identify(arm(), [MASS], moved_arm(), starts=3, key=KEY),
            "must come with both bounds of each parameter, but there are none of 'upper.mass'",
        ),
        (lambda: fit.identify(arm(), [MASS], moved_arm(), optimiser="lm"), "`optimiser` must be"),
        (lambda: fit.identify(arm(), [MASS], moved_arm(), jacobian="both"), "'forward' or 'reverse' or None"),
        (lambda: fit.identify(OSCILLATOR, BOTH, [measured(name="a")] * 2), "different names"),
        (lambda: fit.identify(arm(), [MASS], Experiment(TS, moved_arm().start)), "must have signals"),
        (lambda: fit.identify(arm(), [MASS], Experiment(TS, moved_arm().start, Signal("elbow"))), "values of 'elbow'"),
        (
            lambda: fit.identify(arm(), [MASS], with_signal("wrist")),
            "must be one of 'shoulder', 'elbow', \"shoulder'\", \"elbow'\", 'upper' and 'lower', or a function, but is 'wrist'",
        ),
        (lambda: fit.identify(arm(), [MASS], with_signal("lower.z")), "There is no point 'lower.z'"),
        (lambda: fit.identify(OSCILLATOR, BOTH, moved_arm()), "Experiment '0': Argument `state` must have coordinates"),
        (lambda: Experiment(TS, {"x": 1.0}), "`start` of Experiment must be a State"),
        (lambda: Experiment(TS[::-1], released()), "must be finite, increase"),
        (lambda: Experiment(TS, released(), Signal("x", NOISY[:3])), "a value for each of the 41 times"),
        (
            lambda: Experiment(TS, released(), Signal("x", NOISY, np.ones(7))),
            "`sigma` of signal 'x' must be a number or have shape",
        ),
        (lambda: Signal("x", NOISY, 0.0), "must be positive"),
        (lambda: Experiment(TS, released(), [Signal("x", NOISY)] * 2), "different names"),
        (lambda: fit.identify(arm(), [MASS], with_signal("lower.b")), "'lower.b' must have 2 components"),
        (lambda: fit.identify(OSCILLATOR, BOTH, measured(np.full(41, np.nan))), "all are missing"),
        (lambda: Signal("x", np.full(41, np.inf)), "must be finite, or NaN"),
        (
            lambda: Signal("x", np.full((41, 2), np.nan)),
            "`values` of signal 'x' must hold a sample, but all are missing",
        ),
        (lambda: Experiment(TS, released(), windows=0), "`windows` of Experiment must be a positive"),
        (
            lambda: fit.identify(OSCILLATOR, BOTH, measured(windows=60)),
            "`windows` of an experiment must not exceed its number of samples",
        ),
        (lambda: fit.identify(OSCILLATOR, BOTH, measured(fit_start=["y"])), "names out of 'x'"),
        (lambda: identify_in_windows(sampled=True), "must be 1 with a controller that remembers or is sampled"),
        (lambda: identify_in_windows(sampled=False), "must be 1 with a controller that remembers or is sampled"),
        (lambda: fit.inertia_parameter(arm(), "hand"), "must be one of 'upper'"),
        (lambda: Signal("x", np.ones((3, 2, 2))), r"`values` of signal 'x' must have shape \(T,\) or \(T, k\)"),
        (lambda: Experiment(np.ones((3, 2)), released()), r"must be times of shape \(T,\), but has shape \(3, 2\)"),
        (
            lambda: Experiment(TS, released(), windows=2, events=[jm.Lock("x", at=0.5)], name="swing"),
            "`windows` of experiment 'swing' must be 1 with events, but is 2",
        ),
        (
            lambda: fit.identify(arm(), [Parameter("upper.mass", min_value=[0.1, 0.2])], moved_arm()),
            "`min_value` of parameter 'upper.mass' must be a number",
        ),
        (
            lambda: fit.identify(
                arm(),
                [Parameter("upper.mass", 1.0, modifier=lambda arm, m: arm.replace("upper", mass=float(m)))],
                moved_arm(),
            ),
            "`modifier` of parameter 'upper.mass' must compute with `jax.numpy` alone",
        ),
        pytest.param(
            lambda: fit.identify(
                OSCILLATOR, BOTH, Experiment(TS, released(), Signal(lambda system, motion: motion.q[-1, 0], NOISY))
            ),
            r"`of` of signal '<lambda>' must return an array of shape \(41,\) or \(41, k\), but returns shape \(\)",
            marks=pytest.mark.slow,
        ),
        (
            lambda: fit.identify(OSCILLATOR, [Parameter("c", 1.0, modifier=lambda model, c: None)], measured()),
            "`modifier` of parameter 'c' must return a model like the one that it gets, a System, but returns a NoneType",
        ),
        (
            lambda: fit.identify(OSCILLATOR, BOTH, measured(), build=lambda model: model.params),
            "`build` must return a System, but returns a dict",
        ),
        (
            lambda: fit.identify(OSCILLATOR, BOTH, measured(), starts=3, optimiser=optax.sgd(1.0)),
            "`starts` must be 1 with an `optimiser`, but is 3",
        ),
        (
            lambda: fit.identify(OSCILLATOR, BOUNDED, measured(), optimiser=optx.Dogleg(1e-8, 1e-8)),
            "`optimiser` must be None, or of optax, for parameters with bounds",
        ),
        (
            lambda: fit.identify(OSCILLATOR, BOTH, Experiment(TS, released(), Signal("y", NOISY))),
            "`of` of signal 'y' of experiment '0' must be one of 'x' and \"x'\", or a function, but is 'y'",
        ),
        (lambda: fit.identify(pendulum(), [], hung(["x", "y"])), "must hold independent coordinates, but 'x' and 'y'"),
        (
            lambda: fit.identify(weighted(), [Parameter("weights.x")], measured()),
            "'weights.x' must name a number, but 'weights' has none by name; or give it a `modifier`",
        ),
        (
            lambda: fit.identify(arm(), [Parameter("elbow")], moved_arm()),
            "'elbow' must name a number, but 'elbow' has none by name",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call()


def hung(free):
    """A pendulum that starts from coordinates of which one follows from the other."""
    start = jm.assemble(pendulum(), [0.5, -0.8], hold=["x"])
    return Experiment(TS, start, Signal("x", np.zeros(41)), fit_start=free)


def weighted():
    """With a parameter that is a matrix, whose rows have no names."""
    return eqx.tree_at(lambda s: s.params, OSCILLATOR, OSCILLATOR.params | {"weights": jnp.eye(2)})


def with_signal(of):
    return Experiment(TS, moved_arm().start, Signal(of, np.zeros(41)))


MASS, KEY = Parameter("upper.mass"), jax.random.PRNGKey(0)
BOUNDED = (Parameter("k", min_value=0.0), Parameter("c"))


@functools.cache
def moved_arm():
    return Experiment(TS, jm.assemble(arm().build(), {"shoulder": 0.3, "elbow": 0.5}), Signal("elbow", np.zeros(41)))


def test_a_picture_of_a_fit(noisy):
    pytest.importorskip("matplotlib").use("Agg")
    figure = jm.plot.fit(noisy[0])
    upper, lower = figure.axes
    line, dots = upper.lines
    np.testing.assert_allclose(line.get_ydata(), noisy[0].signals["0"]["x"].model[:, 0])
    np.testing.assert_allclose(dots.get_ydata(), NOISY)
    np.testing.assert_allclose(lower.lines[0].get_ydata(), noisy[0].signals["0"]["x"].residual[:, 0])
    with pytest.raises(ValueError, match="must be one of 0"):
        jm.plot.fit(noisy[0], "swing")
