"""Design by gradients: laws of `tune`, of the information of an experiment, and of recorded inputs."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize

import jaxmb as jm
from jaxmb.fit.checkpoint import Checkpoint
from jaxmb.fit.descent import descend
from jaxmb.fit.quasi_newton import Iterate, Memory, line_search
from jaxmb.fit.target import Setup
from jaxmb.verification import SearchCheck

fit = jm.fit
Parameter, Signal, Experiment = fit.Parameter, fit.Signal, fit.Experiment
TS = np.linspace(0.0, 2.0, 41)


def mass(t, q, p):
    return p["m"] * jnp.eye(1)


def drag(t, q, v, p):
    return -p["c"] * v


def push(t, q, p):
    return jnp.ones((1, 1))


CART = jm.System(("x",), mass=mass, force=drag, actuation=push, params={"m": 2.0, "c": 0.3})


class Feedback(eqx.Module):
    """u = k (1 − x) − d v."""

    k: jax.Array
    d: jax.Array

    def __call__(self, t, q, v, p):
        return self.k * (1.0 - q) - self.d * v


class Waves(eqx.Module):
    """A Fourier series."""

    sines: jax.Array

    def __call__(self, t, q, v, p):
        return jnp.sum(self.sines * jnp.sin(jnp.arange(1, 4) * t))[None]


def miss(system, motion):
    return jnp.mean((motion.q[:, 0] - 1.0) ** 2) + 1e-3 * jnp.mean(motion.u**2)


def miss_of(system, motion, about):
    return jnp.mean((motion.q[:, 0] - about["goal"]) ** 2)


def scenarios(control, starts=(0.0, 0.5, 2.0), **more):
    return [Experiment(TS, jm.assemble(CART, [x]), control=control, name=f"from {x}", **more) for x in starts]


FEEDBACK = Feedback(jnp.array(2.0), jnp.array(0.5))
GAINS = [Parameter("control.k", min_value=0.0), Parameter("control.d", min_value=0.0, max_value=50.0)]


def by_hand(k, d):
    """The mean objective of the scenarios, by plain calls."""
    law = Feedback(k, d)
    return jnp.mean(
        jnp.stack([miss(CART, jm.simulate(CART, e.start, TS, control=law, throw=False)) for e in scenarios(law)])
    )


@pytest.mark.slow_cases("quasi-Newton")
@pytest.mark.parametrize("optimiser", [None, optax.adam(0.1)], ids=["quasi-Newton", "Adam"])
def test_no_steps_give_the_cost_at_the_start(optimiser):
    found = fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, steps=0, optimiser=optimiser)
    np.testing.assert_allclose([found.cost, *found.history], float(by_hand(2.0, 0.5)), rtol=1e-10)
    assert found.history.shape == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_the_objective_falls_along_its_gradient(mode):
    sgd = optax.sgd(1.0)
    found = fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, steps=1, optimiser=sgd, gradient=mode)
    step = 1e-5
    slopes = [
        (by_hand(2.0 + 2.0 * a, 0.5 + 0.5 * b) - by_hand(2.0 - 2.0 * a, 0.5 - 0.5 * b)) / (2 * step)
        for a, b in ((step, 0.0), (0.0, step))
    ]
    moved = [float(found.estimates["control.k"]) / 2.0 - 1.0, float(found.estimates["control.d"]) / 0.5 - 1.0]
    np.testing.assert_allclose(moved, -np.array(slopes), rtol=1e-6)
    assert float(found.history[0]) == pytest.approx(float(by_hand(2.0, 0.5)), rel=1e-10)


@pytest.mark.slow
def test_gains_for_several_starts_at_once(tmp_path):
    call = dict(steps=60, optimiser=optax.adam(0.05))
    found = fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, **call)
    assert float(found.cost) < 0.8 * float(found.history[0])
    assert float(found.cost) == float(jnp.nanmin(found.history))
    assert [*found.costs] == ["from 0.0", "from 0.5", "from 2.0"]
    assert float(jnp.mean(jnp.stack(list(found.costs.values())))) == pytest.approx(float(found.cost))
    assert float(found.control.k) == float(found.estimates["control.k"])
    assert "after 60 steps" in str(found) and not any(int(n) for n in found.failures.values())

    def stop(progress):
        if progress.iteration == 20:
            raise KeyboardInterrupt

    path = tmp_path / "gains"
    with pytest.raises(KeyboardInterrupt):
        fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, checkpoint=path, progress=stop, **call)
    again = fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, checkpoint=path, **call)
    np.testing.assert_array_equal(again.history, found.history)


@pytest.mark.slow_except("gains0")
@pytest.mark.parametrize("gains", [(2.0, 0.5), (0.1, 0.01)])
@pytest.mark.slow
def test_gains_are_those_of_scipy_from_the_same_start_and_other_steps_say_that_they_ended_before(gains):
    law = Feedback(*map(jnp.asarray, gains))
    found = fit.tune(CART, GAINS, scenarios(law), miss)
    sloped = jax.jit(jax.value_and_grad(lambda x: by_hand(*x)))
    value = lambda x: tuple(np.asarray(y) for y in sloped(jnp.asarray(x)))
    best = scipy.optimize.minimize(value, gains, jac=True, method="L-BFGS-B", bounds=[(0, None), (0, 50)])
    assert float(found.cost) == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_allclose([found.estimates["control.k"], found.estimates["control.d"]], best.x, rtol=1e-3)
    assert bool(found.result == jm.RESULTS.successful) and int(np.isfinite(found.history).sum()) < 30
    assert np.all(np.diff(found.history[np.isfinite(found.history)]) < 0)

    short = fit.tune(CART, GAINS, scenarios(law), miss, optimiser=optax.adam(0.03))
    assert float(short.cost) > 1.4 * float(found.cost)
    assert bool(short.result == jm.RESULTS.search_unfinished) and "did not converge" in str(short)
    few = fit.tune(CART, GAINS, scenarios(law), miss, steps=3)
    assert bool(few.result == jm.RESULTS.search_unfinished) and float(few.cost) < float(few.history[0])


@pytest.mark.slow_except("0")
@pytest.mark.parametrize("seed", range(3))
def test_quasi_newton_steps_within_bounds_are_as_good_as_those_of_scipy(seed):
    """Rosenbrock's function in six unknowns, some of which end at bounds; without numbers in a part of the space."""
    rng = np.random.default_rng(seed)
    low, high = rng.uniform(-2.0, 0.5, 6), rng.uniform(0.6, 2.0, 6)

    def cost(y):
        return jnp.sum(100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2)

    sloped = jax.jit(jax.value_and_grad(cost))
    failing = jax.jit(jax.value_and_grad(lambda y: jnp.where(jnp.sum(y**2) < 9.0, cost(y), jnp.nan)))
    ok = jax.tree.map(lambda x: jnp.asarray(x)[None], jm.RESULTS.successful)

    def objective(y):
        value, slope = failing(y)
        return value, slope, value[None], ok

    start = jnp.asarray(np.clip(np.zeros(6), low, high))
    bounds = jnp.asarray(low), jnp.asarray(high)
    found = descend(objective, start, bounds, None, 200, Checkpoint(None, None), lambda *_: None)
    value = lambda y: tuple(np.asarray(x) for x in sloped(jnp.asarray(y)))
    best = scipy.optimize.minimize(
        value, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)), options={"ftol": 1e-14}
    )
    assert bool(found.result == jm.RESULTS.successful)
    assert float(found.cost) <= best.fun * (1 + 1e-5) + 1e-9
    assert np.all((low <= found.best) & (found.best <= high))


OK = jax.tree.map(lambda x: jnp.asarray(x)[None], jm.RESULTS.successful)
FREE = jnp.full(1, -jnp.inf), jnp.full(1, jnp.inf)


def descent(objective, start, optimiser=None, most=30, bounds=FREE):
    """The descent of `objective(y)` → cost and slope, of one unknown."""

    def evaluated(y):
        cost, slope = (jnp.asarray(x, float) for x in objective(float(y[0])))
        return cost, slope[None], cost[None], OK

    return descend(evaluated, jnp.array([start]), bounds, optimiser, most, Checkpoint(None, None), lambda *_: None)


def barrier(y):
    """y − ln y, which there is only right of zero and is least at 1."""
    return (y - np.log(y), 1 - 1 / y) if y > 0 else (np.nan, np.nan)


def test_steps_into_what_is_no_number_are_counted_and_shortened():
    found = descent(barrier, 30.0, bounds=(jnp.full(1, -1e3), FREE[1]))
    assert bool(found.result == jm.RESULTS.successful) and float(found.best[0]) == pytest.approx(1.0, abs=1e-3)
    assert int(found.halved.sum()) == int(found.failures[0]) > 0
    down = descent(barrier, 3.0, optax.sgd(8.0), most=1)  # by −16/3, and by half of it
    assert int(down.halved[0]) == int(down.failures[0]) == 1
    np.testing.assert_allclose(down.y, 3.0 - 8.0 / 3.0)


@pytest.mark.parametrize("optimiser", [None, optax.sgd(1.0)], ids=["quasi-Newton", "gradient"])
def test_a_search_that_finds_no_number_beside_its_start_is_stuck(optimiser):
    alone = descent(lambda y: (4.0, 1.0) if y == 1.0 else (np.nan, np.nan), 1.0, optimiser)
    assert bool(alone.result == jm.RESULTS.search_stuck) and float(alone.best[0]) == 1.0 and int(alone.steps) == 0
    assert int(alone.failures[0]) == (40 if optimiser is None else 11)


def test_a_fall_that_rounding_of_the_runs_may_hide_is_none():
    """Of a cost that shows no more than three digits the slope leads nowhere; with a slope to match it is stuck."""
    flat = lambda slope: lambda y: (5.0, slope)
    assert bool(descent(flat(1e-4), 1.0).result == jm.RESULTS.successful)
    assert bool(descent(flat(1.0), 1.0).result == jm.RESULTS.search_stuck)


def test_steps_of_optax_that_end_where_it_is_flat_have_converged():
    square = lambda y: (1.0 + 0.5 * (y - 2.0) ** 2, y - 2.0)
    assert bool(descent(square, 5.0, optax.sgd(0.5), most=30).result == jm.RESULTS.successful)
    assert bool(descent(square, 5.0, optax.sgd(0.5), most=3).result == jm.RESULTS.search_unfinished)
    bounded = descent(square, 5.0, optax.sgd(0.5), bounds=(jnp.array([3.0]), FREE[1]))
    assert bool(bounded.result == jm.RESULTS.successful) and float(bounded.best[0]) == 3.0


def test_pairs_along_which_the_slope_falls_are_forgotten():
    memory, step = Memory.of(jnp.zeros(2)), np.array([1.0, 2.0])
    kept = memory.with_pair(step, 3.0 * step)
    assert kept.with_pair(step, -step) is kept and kept.with_pair(step, np.array([2.0, -1.0])) is kept
    np.testing.assert_allclose(kept.direction(6.0 * step), -2.0 * step)  # Newton's, of the curvature 3
    np.testing.assert_array_equal(kept.steps[0], step)


def test_a_line_search_ends_at_bounds_and_after_some_trials():
    seen = []

    def falling(y):
        seen.append(float(y[0]))
        return Iterate(y, -float(y[0]), np.array([-1.0]), ())

    origin, one = Iterate(np.zeros(1), 0.0, np.array([-1.0]), ()), np.ones(1)
    point = line_search(origin, one, falling, np.array([-3.0]), np.array([3.0]))
    assert float(point.y[0]) == 3.0 and seen == [1.0, 2.0, 3.0]
    seen.clear()
    assert float(line_search(origin, one, falling, -np.inf * one, np.inf * one).y[0]) == 2.0 ** (len(seen) - 1)


def told_by(**changes):
    """The report of a search that was made up."""
    values = {"control.k": jnp.array(2.5), "control.network": jnp.zeros(9)}
    given = dict(
        estimates=values,
        nominal=values | {"control.k": jnp.array(2.0)},
        setup=Setup(CART, FEEDBACK),
        cost=jnp.array(0.25),
        costs={"near": jnp.array(0.2), "far": jnp.array(0.3)},
        history=jnp.array([1.5, 0.5, 0.25, jnp.nan]),
        failures={"near": jnp.array(0), "far": jnp.array(3)},
        halved=jnp.array([0, 1, 2]),
        result=jm.RESULTS.search_unfinished,
        at_bound=("control.k",),
    )
    return str(fit.Tuned(**given | changes)).splitlines()


def test_what_was_tuned_prints_in_a_few_lines():
    """Without the numbers of large arrays, and without what is well."""
    result = jm.RESULTS[jm.RESULTS.search_unfinished].splitlines()
    assert told_by() == [
        "Cost 0.25, 1.5 at the start, after 2 steps",
        *result,
        "parameter        value      start",
        "control.k        2.5        2      at its bound",
        "control.network  9 numbers",
        "Trials that failed and were shortened: 'far in 3'.",
    ]
    check = SearchCheck((), (), None)
    well = told_by(result=jm.RESULTS.successful, failures={"near": jnp.array(0)}, check=check)
    assert well[4:] == str(check).splitlines()
    still = told_by(result=jm.RESULTS.successful, history=jnp.array([1.5]))
    assert still[1] == "The start is a minimum, or no parameter changes the objective."


def nothing(system, motion):
    return jnp.nan * motion.q[-1, 0]


def test_an_objective_that_is_no_number_at_the_start_is_told():
    with pytest.raises(
        RuntimeError, match="A run fails where the search starts, or its residuals or derivatives are not"
    ):
        fit.tune(CART, GAINS, scenarios(FEEDBACK), nothing, steps=3)
    quiet = fit.tune(CART, GAINS, scenarios(FEEDBACK), nothing, steps=3, throw=False)
    assert bool(quiet.result == jm.RESULTS.search_failed) and np.isnan(quiet.history).all()
    assert float(quiet.estimates["control.k"]) == 2.0 and float(quiet.control.d) == 0.5


def test_the_evidence_is_asked_for_the_cost_at_the_best(monkeypatch):
    asked = []
    monkeypatch.setattr(sys.modules["jaxmb.fit.tune"], "evidence", lambda *what: asked.append(what))
    found = fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, steps=0, check=True)
    ((prepared, best, value),) = asked
    assert float(value(prepared.problem, best)) == pytest.approx(float(found.cost), rel=1e-12)
    np.testing.assert_array_equal(best, [1.0, 1.0])  # over the scales


@pytest.mark.slow
def test_the_worst_of_all_and_what_a_scenario_is_about():
    cases = [
        Experiment(TS, jm.assemble(CART, [0.0]), control=FEEDBACK, about={"goal": goal}, name=str(goal))
        for goal in (0.8, 1.5)
    ]
    found = fit.tune(CART, GAINS, cases, miss_of, steps=5, over=jnp.max)
    assert float(found.cost) == max(float(x) for x in found.costs.values())


def test_bounds_hold():
    tight = [Parameter("control.k", min_value=0.0, max_value=2.1), GAINS[1]]
    found = fit.tune(CART, tight, scenarios(FEEDBACK), miss, steps=20, optimiser=optax.adam(0.05))
    assert float(found.estimates["control.k"]) == pytest.approx(2.1)
    with pytest.raises(TypeError, match="Argument `optimiser` must make a step of the gradient and the unknowns alone"):
        fit.tune(CART, tight, scenarios(FEEDBACK), miss, optimiser=optax.lbfgs())
    assert found.at_bound == ("control.k",) and list(found.estimates) == ["control.k", "control.d"]


@jax.custom_vjp
def careless(u):
    return u


careless.defvjp(lambda u: (u, None), lambda _, bar: (2.0 * bar,))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_a_derivative_that_is_not_that_of_the_values_is_told_at_the_result(wrong):
    """Of a controller of two gains, one of which has a rule of its own."""

    class Careless(Feedback):
        def __call__(self, t, q, v, p):
            return (careless(self.k) if wrong else self.k) * (1.0 - q) - self.d * v

    law = Careless(jnp.array(2.0), jnp.array(0.5))
    found = fit.tune(CART, GAINS, scenarios(law), miss, steps=2, gradient="reverse", check=True)
    agrees = {x.name: x.agrees for x in found.check.gradient.directions}
    assert agrees["['control.d']"] and agrees["['control.k']"] != wrong and found.check.ok != wrong
    assert ("DISAGREES" if wrong else "agrees with values") in str(found)
    assert found.check.runs[0].ok and found.check.experiments == (("from 0.0", "from 0.5", "from 2.0"),)


@pytest.mark.slow
def test_a_step_after_which_a_run_fails_is_halved_and_told():
    """The objective asks for a small mass; the long step leads to a negative one."""
    found = fit.tune(CART, [Parameter("m")], scenarios(FEEDBACK), weight, steps=2, optimiser=optax.sgd(1.5))
    assert int(found.halved[0]) >= 1 and all(int(n) >= 1 for n in found.failures.values())
    assert "were shortened" in str(found) and "from 0.5 in" in str(found)
    assert float(found.estimates["m"]) > 0 and float(found.cost) < float(found.history[0])
    with pytest.raises(RuntimeError, match=r"Experiment 'from 2\.0'"):
        fit.tune(CART, [Parameter("m", -1.0)], scenarios(FEEDBACK), weight, steps=1)


def weight(system, motion):
    return system.params["m"] + 0.0 * motion.q[-1, 0]


@pytest.mark.slow
def test_a_network_is_one_parameter():
    network = eqx.nn.MLP(2, 1, 4, 1, activation=jnp.tanh, key=jax.random.PRNGKey(0))
    policy = Policy(network)
    found = fit.tune(
        CART, [Parameter("control.network", scale=1.0)], scenarios(policy), miss, steps=15, optimiser=optax.adam(0.1)
    )
    assert found.estimates["control.network"].shape == (4 * 2 + 4 + 4 + 1,)
    assert float(found.cost) < 0.7 * float(found.history[0])
    again = by_policy(found.control)
    assert float(again) == pytest.approx(float(found.costs["from 0.5"]), rel=1e-9)


def by_policy(policy):
    return miss(CART, jm.simulate(CART, jm.assemble(CART, [0.5]), TS, control=policy))


class Policy(eqx.Module):
    network: eqx.nn.MLP

    def __call__(self, t, q, v, p):
        return self.network(jnp.concatenate([q, v]))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, gradient="both"), "'forward' or 'reverse' or None"),
        (lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK, fit_start=True), miss), "must have a given start"),
        (
            lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK, signals=fit.Signal("x", 0 * TS, bias=True)), miss),
            "no bias to be tuned for",
        ),
        (lambda: fit.tune(CART, [Parameter("control.p")], scenarios(FEEDBACK), miss), "'p' is not one of 'k' and 'd'"),
        (lambda: fit.tune(CART, GAINS, [], miss), "`experiments` must be"),
        (lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK), 3.0), "objective"),
        (
            lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK), lambda system, motion: motion.q),
            r"`objective` must return an array of shape \(\), but returns shape \(",
        ),
        (
            lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, over=lambda x: 2 * x),
            r"`over` must return an array of shape \(\), but returns shape \(",
        ),
        (
            lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK), miss, over=lambda x: "worst"),
            r"`over` must return an array of shape \(\), but returns a str",
        ),
        (
            lambda: fit.tune(CART, GAINS, scenarios(FEEDBACK), lambda system, motion: float(motion.q[-1, 0])),
            r"`objective` must compute with `jax.numpy` alone, .*; it raised ConcretizationTypeError",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call()


# Inputs that tell more

EVERY = [Parameter("m"), Parameter("c")]


def told(sines):
    experiment = Experiment(TS, jm.assemble(CART, [0.0]), Signal("x", sigma=0.01), control=Waves(sines))
    return fit.information(CART, EVERY, experiment)


@pytest.mark.slow
def test_information_and_its_gradient():
    sines = jnp.array([1.0, 0.5, 0.0])
    info = told(sines)
    experiment = Experiment(TS, jm.assemble(CART, [0.0]), Signal("x", sigma=0.01), control=Waves(sines))
    report = fit.identifiability(CART, EVERY, experiment)
    np.testing.assert_allclose(np.linalg.eigvalsh(info), np.sort(report.values**2), rtol=1e-9)
    errors = np.sqrt(np.diag(np.linalg.inv(info))) * np.array([2.0, 0.3])
    np.testing.assert_allclose([report.standard_errors[name] for name in ("m", "c")], errors, rtol=1e-8)
    worst = lambda x: jnp.linalg.eigvalsh(told(x))[0]
    slope = jax.jit(jax.jacfwd(worst))(sines)
    step = 1e-4
    for i in range(3):
        ends = [worst(sines.at[i].add(s * step)) for s in (1, -1)]
        assert float(slope[i]) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-4)


def test_unknown_starts_cost_information():
    sines = jnp.array([1.0, 0.5, 0.0])
    more = dict(control=Waves(sines), fit_start=True)
    free = fit.information(CART, EVERY, Experiment(TS, jm.assemble(CART, [0.0]), Signal("x", sigma=0.01), **more))
    assert np.all(np.linalg.eigvalsh(told(sines) - free) > -1e-9)
    assert float(jnp.linalg.eigvalsh(free)[0]) < 0.9 * float(jnp.linalg.eigvalsh(told(sines))[0])


# Recorded inputs


@pytest.mark.slow
def test_recorded_inputs_are_those_of_the_table():
    start, times = jm.assemble(CART, [0.0]), np.linspace(0.0, 2.0, 9)
    table = jm.control.Recorded(times, np.sin(times))
    motion = jm.simulate(CART, start, times, control=table)
    np.testing.assert_allclose(motion.u[:, 0], np.sin(times), atol=1e-12)
    between = jm.simulate(CART, start, [0.125, 0.375, 2.5], control=table).u[:, 0]
    np.testing.assert_allclose(between, np.interp([0.125, 0.375, 2.5], times, np.sin(times)), atol=1e-12)
    held = jm.simulate(CART, start, [0.125, 0.375], control=jm.control.Recorded(times, np.sin(times), hold=True))
    np.testing.assert_allclose(held.u[:, 0], np.sin([0.0, 0.25]), atol=1e-12)
    # m v̇ = u − c v with u = t on [0, 1]: v = (t − m/c (1 − e^(−ct/m)))/c.
    ramp = jm.simulate(CART, start, [1.0], control=jm.control.Recorded([0.0, 1.0], [0.0, 1.0]))
    m, c = 2.0, 0.3
    assert float(ramp.v[0, 0]) == pytest.approx((1 - m / c * (1 - np.exp(-c / m))) / c, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0.0, 1.0], [1.0]), "a row for each of the times"),
        (([0.0, 0.0], [1.0, 2.0]), "`ts` must increase"),
        (([0.0, 1.0], [1.0, np.nan]), "must be an array of finite numbers"),
        (([0.0, 1.0], [1.0, 2.0], ("a", "b")), "a column for each of 2 joints"),
    ],
)
def test_tables_that_do_not_fit(arguments, text):
    with pytest.raises(ValueError, match=text):
        jm.control.Recorded(*arguments)
