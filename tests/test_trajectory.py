"""Inputs over a horizon: the discrete Riccati equation, a bounded minimiser, and what fails."""

import dataclasses
import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from systems import normalise, quaternion_rate, rotation

import jaxmb as jm

P = jm.planar
DT, STEPS, LIMIT = 0.05, 30, 3.0


def reading(state):
    return jnp.concatenate([state.q, state.v])


def coupled():
    """Two coupled masses with dampers, moved at one of them: a linear system."""
    stiffness = jnp.array([[2.0, -1.0], [-1.0, 1.0]])
    return jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        force=lambda t, q, v, p: -stiffness @ q - 0.1 * v,
        actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]),
    )


@pytest.mark.slow
def test_a_linear_problem_has_the_solution_of_riccatis_equation_after_one_change():
    system = coupled()
    start = jm.assemble(system, [1.0, 0.5])
    step = jm.stepper(system, start, 0.1, solver=dfx.Midpoint())
    after = lambda z: reading(step(dataclasses.replace(start, q=z[:2], v=z[2:4]), z[4:]))
    steps = np.asarray(jax.jacfwd(after)(jnp.zeros(5)))
    a, b = steps[:, :4], steps[:, 4:]
    weights, effort = np.diag([1.0, 2.0, 0.3, 0.4]), np.array([[0.1]])
    cost = lambda s, u: 0.5 * (reading(s) @ weights @ reading(s) + u @ effort @ u)
    plan = jm.control.trajectory(step, start, cost, 300, max_iterations=1)
    p = scipy.linalg.solve_discrete_are(a, b, weights, effort)
    gain = np.linalg.solve(effort + b.T @ p @ b, b.T @ p @ a)
    x = np.concatenate([plan.states.q, plan.states.v], axis=1)[:-1]
    assert plan.result == jm.RESULTS.successful and plan.iterations == 1
    assert np.abs(plan.gain[0] + gain).max() < 1e-9
    assert np.abs(plan.u + x @ gain.T)[:100].max() < 1e-9
    assert abs(plan.cost - 0.5 * x[0] @ p @ x[0]) < 1e-9


@functools.cache
def pendulum():
    """A point on a rod with a torque about its pivot, and what a swing to one side costs."""
    system = jm.System(
        ("angle",),
        mass=lambda t, q, p: jnp.eye(1),
        potential=lambda t, q, p: -9.81 * jnp.cos(q[0]),
        actuation=lambda t, q, p: jnp.eye(1),
    )
    start = jm.assemble(system, [0.2])
    cost = lambda s, u: DT * (jnp.sum((s.q - 1.0) ** 2) + 0.05 * u @ u)
    final = lambda s: 5 * jnp.sum((s.q - 1.0) ** 2) + jnp.sum(s.v**2)
    return jm.stepper(system, start, DT, solver=dfx.Midpoint()), start, cost, final


def planned(**options):
    step, start, cost, final = pendulum()
    options = {"rtol": 1e-8, "upper": LIMIT, "lower": jnp.array([-0.5]), **options}
    return jm.control.trajectory(step, options.pop("start", start), cost, STEPS, final=final, **options)


@pytest.mark.slow
def test_limits_are_kept_as_a_bounded_minimiser_does():
    step, start, cost, final = pendulum()

    @jax.jit
    @jax.value_and_grad
    def total(u):
        def one(state, u):
            return step(state, u), cost(state, u)

        end, costs = jax.lax.scan(one, start, u)
        return jnp.sum(costs) + final(end)

    plan = planned()
    assert plan.result == jm.RESULTS.successful
    value, slope = total(plan.u)
    slope, low, high = np.asarray(slope), np.asarray(plan.u == -0.5), np.asarray(plan.u == LIMIT)
    assert low.any() and high.any() and not (low | high).all()
    assert abs(value - plan.cost) < 1e-12 * plan.cost
    # Karush, Kuhn and Tucker: no slope between the limits, outwards at them.
    assert np.abs(slope[~low & ~high]).max() < 1e-6 and slope[low].min() > 0 and slope[high].max() < 0
    flat = lambda u: [np.asarray(x, float).ravel() for x in total(jnp.asarray(u).reshape(STEPS, 1))]
    bounded = scipy.optimize.minimize(
        lambda u: (flat(u)[0][0], flat(u)[1]),
        np.zeros(STEPS),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-0.5, LIMIT)] * STEPS,
        options={"ftol": 1e-16, "gtol": 1e-9, "maxiter": 2000},
    )
    assert np.abs(bounded.x - np.asarray(plan.u)[:, 0]).max() < 1e-6 and abs(bounded.fun - plan.cost) < 1e-12


def test_a_plan_begins_from_the_one_before():
    plan = planned()
    later = plan.states.q[1], plan.states.v[1]
    start = dataclasses.replace(pendulum()[1], t=plan.states.t[1], q=later[0] + 0.01, v=later[1])
    cold, warm = planned(start=start), planned(start=start, guess=plan.shifted())
    assert warm.iterations < cold.iterations
    assert np.abs(warm.u - cold.u).max() < 1e-6
    again = planned(guess=plan.shifted(0))
    assert again.iterations == 0 and np.array_equal(again.u, plan.u)
    assert np.array_equal(plan.shifted(2).u[:-2], plan.u[2:]) and np.all(plan.shifted(2).u[-2:] == plan.u[-1])
    # It has no derivative, by its start or by what it begins with, and is no function of what is held.
    first = lambda q, hold=lambda x: x: planned(start=hold(dataclasses.replace(start, q=q))).u[0, 0] + q[0]
    assert float(jax.grad(first)(start.q, jax.lax.stop_gradient)[0]) == 1.0
    for slope in (lambda: jax.grad(first)(start.q), lambda: jax.jacfwd(lambda u: planned(guess=u).cost)(plan.u)):
        with pytest.raises(RuntimeError, match="answer of `trajectory` has no derivative: give it"):
            slope()


def test_what_ends_a_search_is_told():
    unfinished = planned(max_iterations=1)
    assert unfinished.result == jm.RESULTS.search_unfinished and "did not converge" in str(unfinished)
    assert "angle" not in str(planned()) and "u0 -0.5 to 3" in str(planned())
    nowhere = dataclasses.replace(pendulum()[1], q=jnp.array([jnp.nan]))
    failed = planned(start=nowhere)
    assert failed.result == jm.RESULTS.inconsistent_state and np.isinf(failed.cost) and failed.iterations == 0
    assert np.all(np.isnan(failed.states.q[1:]))


@pytest.mark.slow
def test_a_cost_that_is_no_number_is_told():
    step, start, cost, _ = pendulum()
    plan = jm.control.trajectory(step, start, cost, 5, final=lambda s: jnp.sqrt(-1 - s.q[0] ** 2))
    assert plan.result == jm.RESULTS.search_failed and np.isinf(plan.cost)


@pytest.mark.slow
def test_a_start_that_fails_leaves_the_others_of_a_batch_alone():
    starts = [dataclasses.replace(pendulum()[1], q=jnp.array([q])) for q in (0.2, jnp.nan, -0.4)]
    batch = jax.vmap(lambda start: planned(start=start))(jax.tree.map(lambda *x: jnp.stack(x), *starts))
    assert list(np.asarray(batch.result == jm.RESULTS.inconsistent_state)) == [False, True, False]
    assert np.isinf(batch.cost[1]) and str(batch) == "Trajectories, (3,), of 30 steps"
    for i in (0, 2):
        alone = planned(start=starts[i])
        assert batch.iterations[i] == alone.iterations
        assert np.abs(batch.u[i] - alone.u).max() < 1e-9


def rod(copies):
    """A point on a rod that is stated several times, pushed by two inputs."""
    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: 2 * jnp.eye(2),
        potential=lambda t, q, p: 2 * 9.81 * q[1],
        constraints=[jm.Holonomic(f"rod {k}", lambda t, q, p, k=k: 10.0**k * (q @ q - 1)) for k in range(copies)],
        actuation=lambda t, q, p: jnp.eye(2),
    )


def reached(system, start, target, **options):
    """The plan to a place of the first two coordinates, at rest."""
    step = jm.stepper(system, start, DT, solver=dfx.Midpoint())
    cost = lambda s, u: DT * 1e-3 * u @ u
    final = lambda s: 50 * jnp.sum((s.q[:2] - target) ** 2) + s.v @ s.v
    return jm.control.trajectory(step, start, cost, STEPS, final=final, rtol=1e-9, **options)


@pytest.mark.slow
def test_redundant_rows_change_nothing():
    once, thrice = (reached(rod(k), jm.assemble(rod(k), [-0.6, -0.8]), jnp.array([0.6, -0.8])) for k in (1, 3))
    assert once.result == thrice.result == jm.RESULTS.successful
    assert abs(once.cost - thrice.cost) < 1e-9 * once.cost and np.abs(once.u - thrice.u).max() < 1e-6
    assert np.abs(once.gain - thrice.gain).max() < 1e-6 * np.abs(once.gain).max()


def fourbar():
    """A four-bar with a motor at its crank."""
    rods = {"crank": 0.3, "coupler": 0.8, "rocker": 0.6}
    return P.Mechanism(
        [P.Body.rod(name, 1.0, length) for name, length in rods.items()],
        [
            P.Revolute("O", "ground", "crank.a"),
            P.Revolute("A", "crank.b", "coupler.a"),
            P.Revolute("B", "coupler.b", "rocker.b"),
            P.Revolute("C", ("ground", (0.7, 0.0)), "rocker.a"),
        ],
        actuators=[P.Motor("motor", "O")],
        gravity=(0.0, -9.81),
    ).build()


@pytest.mark.slow
def test_a_fourbar_reaches_a_pose():
    system = fourbar()
    start = jm.assemble(system, {"O": 0.5}, hold=["O"])
    step = jm.stepper(system, start, 0.02, solver=dfx.Midpoint())
    crank = system.coordinates.index("O")
    final = lambda s: 100 * (s.q[crank] - 1.0) ** 2 + 5 * s.v[crank] ** 2
    plan = jm.control.trajectory(step, start, lambda s, u: 1e-4 * u @ u, 20, final=final, upper=20.0, rtol=1e-8)
    assert plan.result == jm.RESULTS.successful and abs(plan.states.q[-1, crank] - 1.0) < 0.02
    assert np.abs(jm.residuals(system, plan.states).position).max() < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 2])
def test_quaternions_are_coordinates_like_others(copies):
    """A body on a spherical joint, whose rows repeat, is turned by torques: the slope of the cost is zero at the end."""
    system = jm.System(
        7,
        velocities=6,
        mass=lambda t, q, p: jnp.diag(jnp.array([1.3, 1.3, 1.3, 0.2, 0.3, 0.45])),
        potential=lambda t, q, p: 1.3 * 9.81 * q[2],
        constraints=[jm.Holonomic("pivot", lambda t, q, p: jnp.tile(q[:3] + rotation(q[3:])[:, 2] * 0.6, copies))],
        rate=lambda q, v, p: quaternion_rate(q, v),
        normalise=normalise,
        actuation=lambda t, q, p: jnp.eye(6)[:, 3:],
    )
    start = jm.assemble(system, [0.0, 0.0, -0.5, 0.9, 0.1, -0.3, 0.2])
    step = jm.stepper(system, start, DT, solver=dfx.Midpoint())
    cost = lambda s, u: DT * (0.01 * u @ u + 0.1 * s.v[3:] @ s.v[3:])
    final = lambda s: 20 * jnp.sum(s.q[4:] ** 2) + s.v[3:] @ s.v[3:]
    plan = jm.control.trajectory(step, start, cost, 20, final=final, rtol=1e-8)

    def total(u):
        def one(state, u):
            return step(state, u), cost(state, u)

        end, costs = jax.lax.scan(one, start, u)
        return jnp.sum(costs) + final(end)

    assert plan.result == jm.RESULTS.successful and plan.gain.shape == (20, 3, 13)
    assert np.abs(jax.jit(jax.grad(total))(plan.u)).max() < 1e-6 * plan.cost
    assert np.abs(jm.residuals(system, plan.states).position).max() < 1e-12


def wrong(**options):
    step, start, cost, _ = pendulum()
    options = {"step": step, "start": start, "cost": cost, "steps": 5, **options}
    return jm.control.trajectory(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            lambda: {"upper": jnp.ones(2)},
            r"Argument `upper` must be a number or have shape \(1,\), but has shape \(2,\)",
        ),
        (lambda: {"upper": -1.0, "lower": 1.0}, "Argument `upper` must not be below `lower`"),
        (lambda: {"upper": -1.0}, "Argument `upper` must not be negative where no `lower` is given, but is -1"),
        (lambda: {"guess": jnp.zeros((4, 1))}, r"Argument `guess`, the inputs of each step, must have shape \(5, 1\)"),
        (lambda: {"cost": lambda s, u: u}, r"Argument `cost` must return an array of shape \(\)"),
        (lambda: {"final": lambda s: s.q}, r"Argument `final` must return an array of shape \(\)"),
        (lambda: {"step": controlled()}, "Argument `step` must take inputs, but has a controller"),
        (lambda: {"step": 3.0}, "Argument `step` must be an AbstractStepper"),
        (lambda: {"cost": lambda s: 0.0}, r"Argument `cost` must be a function \(state, u\)"),
    ],
    ids=["upper", "limits", "one limit", "guess", "cost", "final", "controller", "step", "arguments"],
)
def test_wrong_arguments_are_refused_by_name(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        wrong(**options())


def controlled():
    step, start, _, _ = pendulum()
    return jm.stepper(step.system, start, DT, control=lambda t, q, v, p: -q)
