"""Controllers in a run: in continuous time, sampled, through wrappers, events, batches and derivatives."""

import dataclasses
import functools
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.control import Instant
from jaxmb.simulation.feedback import FeedbackLoop
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.vector_field import VectorField

C, P = jm.control, jm.planar
STEPS = {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 256}


@functools.cache
def pendulum():
    """A point on a rod in the plane, with a torque about the pivot."""
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        potential=lambda t, q, p: 9.81 * q[1],
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)],
        actuation=lambda t, q, p: jnp.stack([-q[1], q[0]])[:, None],
    )
    return system, jm.assemble(system, [0.6, -0.8])


class AnglePI(C.AbstractController):
    """Feedback of the pendulum's angle and its integral."""

    gains: jax.Array
    uses_plant = False

    def init(self, system):
        return jnp.zeros(1)

    def angle(self, q):
        return jnp.arctan2(q[0], -q[1])

    def output(self, plant, z):
        return self.gains[0] * (0.2 - self.angle(plant.q)) - self.gains[1] * plant.v[:1] + self.gains[2] * z

    def rate(self, plant, z, response):
        return 0.2 - self.angle(plant.q)[None]


class Held(eqx.Module):
    """A constant input."""

    u: jax.Array

    def __call__(self, t, q, v, params):
        return self.u


GAINS = jnp.array([6.0, 1.0, 4.0])


@functools.cache
def advance():
    """The motion over one period under a constant input."""
    system, _ = pendulum()

    def run(state, u, period):
        steps = {**STEPS, "dt0": 0.01, "max_steps": 64}
        found = jm.simulate(system, state, (state.t + period)[None], control=Held(u), **steps).state(0)
        return dataclasses.replace(found, control=None)

    return jax.jit(run)


def by_hand(law, state, z, count, period, after=lambda u, z, n: (u, z)):
    """A loop over samples: states before each, inputs, and the state at the end."""
    states, inputs, memory = [], [], []
    for n in range(count):
        plant = C.Instant(pendulum()[0], state.t, state.q, state.v)
        u = law.output(plant, z)
        u, step = after(u, period * law.rate(plant, z, None), n)
        memory.append(z)
        z = z + step
        states.append(state)
        inputs.append(u)
        state = advance()(state, u, period)
    return states, np.array(inputs), np.array(memory), state


TS = jnp.linspace(0, 0.5, 6)


@functools.cache
def sampled(delay=False):
    system, state = pendulum()
    return jm.simulate(system, state, TS, control=C.Sampled(AnglePI(GAINS), 0.1, delay=delay), **STEPS)


@pytest.mark.slow  # those of a saturated controller are, too
def test_samples_are_those_of_a_loop_by_hand():
    """At samples u is the new one, and z what the controller goes on with."""
    _, state = pendulum()
    states, inputs, memory, end = by_hand(AnglePI(GAINS), state, jnp.zeros(1), 5, 0.1)
    run = sampled()
    np.testing.assert_allclose(run.q[:-1], [s.q for s in states], rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.v[-1], end.v, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.u[:-1], inputs, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.z[:-2], memory[1:], rtol=0, atol=1e-11)
    assert np.ptp(inputs) > 1
    assert run.stats["compiled_steps"] == run.stats["num_accepted_steps"]


@pytest.mark.slow
def test_a_sample_that_is_no_number_ends_the_run_with_its_reason():
    """By adaptive steps, whose errors are relative to the state: no step is tried again and again."""
    system, state = pendulum()
    law = C.Sampled(lambda t, q, v, p: jnp.array([jnp.sqrt(0.15 - t)]), 0.1)
    run = jm.simulate(system, state, [0.1, 0.2, 0.4], control=law, throw=False)
    assert run.result == jm.RESULTS.nonfinite and run.stats["num_steps"] < 50
    assert np.isfinite(run.q[:2]).all() and np.isnan(run.q[2]).all()


def test_inputs_that_hold_stand_behind_all_else_and_before_those_that_come_next():
    loop, packed = object.__new__(FeedbackLoop), jnp.arange(7.0)
    for clock, held in ((None, [5, 6]), (SimpleNamespace(delay=False), [5, 6]), (SimpleNamespace(delay=True), [3, 4])):
        loop.__dict__.update(nu=2, clock=clock)
        np.testing.assert_array_equal(loop.sampled_inputs(packed), held)


@pytest.mark.slow
def test_what_is_put_out_may_come_one_sample_late():
    _, state = pendulum()
    late = [jnp.zeros(1)]

    def after(u, step, n):
        late.append(u)
        return late[n], step

    *_, inputs, _, end = by_hand(AnglePI(GAINS), state, jnp.zeros(1), 5, 0.1, after)
    run = sampled(True)
    np.testing.assert_allclose(run.u[:-1], inputs, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.q[-1], end.q, rtol=0, atol=1e-11)
    assert np.all(run.u[0] == 0) and np.all(run.u[1] != 0)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [False, True])
def test_a_run_goes_on_from_a_saved_state(delay):
    """From a sample, and from between samples, with z and the held inputs."""
    system, _ = pendulum()
    whole, law = sampled(delay), C.Sampled(AnglePI(GAINS), 0.1, delay=delay)
    middle = jm.simulate(system, whole.state(2), jnp.array([0.25]), control=law, **STEPS)
    for start in (whole.state(2), middle.state(0)):
        rest = jm.simulate(system, start, TS[3:], control=law, **STEPS)
        np.testing.assert_allclose(rest.q, whole.q[3:], rtol=0, atol=1e-11)
        np.testing.assert_allclose(rest.u, whole.u[3:], rtol=0, atol=1e-10)
        np.testing.assert_allclose(rest.z, whole.z[3:], rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_no_sample_is_missed_or_taken_twice(dtype):
    """Where steps end is the next sample, whatever rounding does."""
    for period, phase in ((0.1, 0.0), (0.01, 0.03), (1 / 3, -7.0)):
        clock = C.Clock(jnp.asarray(period, dtype), jnp.asarray(phase, dtype), False)
        _, numbers = jax.lax.scan(
            lambda t, _: (clock.next_time(t), clock.number(t)), jnp.asarray(phase, dtype), None, 10_000
        )
        np.testing.assert_array_equal(numbers, np.arange(10_000))


@pytest.mark.slow
def test_steps_end_at_samples():
    """Of constant and of adaptive step sizes; only what is left before a sample is shorter."""
    system, state = pendulum()
    law = C.Sampled(lambda t, q, v, p: jnp.round(30 * t)[None] - 3 * q[:1], 0.1, phase=0.03)
    ts, run = jnp.array([0.03, 0.08, 0.13, 0.5]), functools.partial(jm.simulate, system, state, control=law)
    exact = run(ts)
    steps = {**STEPS, "dt0": 0.04, "solver": dfx.Dopri8()}
    constant = run(ts, **steps)
    np.testing.assert_allclose(constant.q, exact.q, rtol=0, atol=1e-8)
    np.testing.assert_allclose(constant.u, exact.u, rtol=0, atol=1e-8)
    assert constant.stats["num_steps"] == 1 + 4 * 3 + 2  # 0 to 0.03; four periods; 0.43 to 0.5
    np.testing.assert_allclose(exact.u[0], exact.u[1], rtol=1e-14)  # held


@functools.cache
def cart():
    """m v̇ = u − c v."""
    return jm.System(
        ("s",),
        mass=lambda t, q, p: 2.0 * jnp.eye(1),
        force=lambda t, q, v, p: -0.3 * v,
        actuation=lambda t, q, p: jnp.eye(1),
    )


TIMES, VALUES = np.array([0.1, 0.25, 0.3, 0.7, 0.95]), np.array([3.0, -8.0, 20.0, 1.0, 5.0])


def held(values, adjoint=None):
    """A cart that is pushed by inputs of a table, each of which holds until the next."""
    start = jm.assemble(cart(), [0.0], [1.0])
    inputs = C.Recorded(TIMES, values, hold=True)
    return jm.simulate(cart(), start, [0.1, 0.28, 1.0], control=inputs, adjoint=adjoint)


def shares():
    """By each value, that of the speed at t = 1, an exponential between the times; the first value holds before its time, too."""
    edges = np.array([0.0, *TIMES[1:], 1.0])
    return (1 - np.exp(-0.15 * np.diff(edges))) / 0.3 * np.exp(-0.15 * (1.0 - edges[1:]))


def test_inputs_that_hold_are_exact():
    """Steps end at the times of the table, and are compiled code."""
    run = held(VALUES)
    np.testing.assert_allclose(run.v[-1, 0], np.exp(-0.15) + shares() @ VALUES, rtol=1e-8)
    np.testing.assert_array_equal(run.u[:, 0], [3.0, -8.0, 5.0])
    assert run.stats["num_steps"] < 40 and run.stats["compiled_steps"] == run.stats["num_accepted_steps"]


def test_a_short_pulse_of_a_table_is_met():
    """A cart at rest, whose steps would be longer than the pulse: a triangle in a sum, and a step within limits."""
    start, times, width = jm.assemble(cart(), [0.0]), [0.0, 5.0, 5.01, 5.02], 0.01
    decay = lambda t: np.exp(-0.15 * (10.0 - t))
    triangle = 3.0 / 2.0 * decay(5.01) * 2 * (np.cosh(0.15 * width) - 1) / (0.15**2 * width)
    straight, hold = (C.Recorded(times, [0.0, 0.0, 3.0, 0.0], hold=hold) for hold in (False, True))
    step = 3.0 / 0.3 * (decay(5.02) - decay(5.01))
    for law, expected in ((C.Sum(straight, C.Recorded([0.0], [0.0])), triangle), (C.Saturated(hold, 9.0), step)):
        run = jm.simulate(cart(), start, [10.0], control=law)
        np.testing.assert_allclose(run.v[-1, 0], expected, rtol=1e-8)
    with pytest.raises(
        ValueError,
        match=r"`control` must hold .* no part of a `Sum` alone, but does those of `Recorded` .*Sampled\(Sum",
    ):
        jm.simulate(cart(), start, [10.0], control=C.Sum(hold, straight))


@pytest.mark.slow
def test_derivatives_by_the_times_of_a_table():
    """A pulse that comes later acts for less time: a body without friction gets less far by its speed; in both modes."""
    free = jm.System(("s",), mass=lambda t, q, p: 2.0 * jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
    times = jnp.array([0.0, 5.0, 5.01, 5.02])

    def way(shift, adjoint=None):
        law = C.Recorded(times + shift, [0.0, 0.0, 3.0, 0.0])
        return jm.simulate(free, jm.assemble(free), [10.0], control=law, adjoint=adjoint).q[-1, 0]

    speed = 3.0 * 0.01 / 2.0
    np.testing.assert_allclose(jax.grad(way)(0.0), -speed, rtol=1e-8)
    np.testing.assert_allclose(jax.jacfwd(lambda x: way(x, dfx.ForwardMode()))(0.0), -speed, rtol=1e-8)


@pytest.mark.slow
def test_derivatives_by_inputs_that_hold():
    """In both modes; and the same inputs in steps of one's own, whose sums of 0.05 are not exactly the times of the table."""
    np.testing.assert_allclose(jax.grad(lambda x: held(x).v[-1, 0])(jnp.asarray(VALUES)), shares(), rtol=1e-8)
    forward = jax.jacfwd(lambda x: held(x, dfx.ForwardMode()).v[-1, 0])(jnp.asarray(VALUES))
    np.testing.assert_allclose(forward, shares(), rtol=1e-8)
    start = jm.assemble(cart(), [0.0], [1.0])
    step = jm.stepper(cart(), start, 0.05, control=C.Recorded(TIMES, VALUES, hold=True))
    state = step.start()
    for _ in range(20):
        state = step(state)
    np.testing.assert_allclose(state.v[0], np.exp(-0.15) + shares() @ VALUES, rtol=1e-8)


@pytest.mark.slow
def test_derivatives_by_the_time_of_a_first_sample():
    """What is put out at the start depends on when that is: u = 5 t₀ for half a second, then 5 · 0.5."""
    system = cart()
    law, start = C.Sampled(lambda t, q, v, p: 5.0 * t[None], 0.5), jm.assemble(system, [0.0], [1.0])

    def end(t0, adjoint=None):
        return jm.simulate(system, dataclasses.replace(start, t=t0), [0.7], control=law, adjoint=adjoint).v[0, 0]

    def exact(t0):
        middle = jnp.exp(-0.15 * (0.5 - t0)) * (1.0 - 5.0 * t0 / 0.3) + 5.0 * t0 / 0.3
        return jnp.exp(-0.15 * 0.2) * (middle - 2.5 / 0.3) + 2.5 / 0.3

    t0 = jnp.array(0.2)
    np.testing.assert_allclose(end(t0), exact(t0), rtol=1e-9)
    for adjoint, derivative in ((None, jax.grad), (dfx.ForwardMode(), jax.jacfwd), (dfx.DirectAdjoint(), jax.grad)):
        np.testing.assert_allclose(derivative(end)(t0, adjoint), jax.grad(exact)(t0), rtol=1e-8)


def test_a_state_of_its_own_is_integrated():
    """A mass on a line: s̈ = −k s − d ṡ + K_I z, ż = −s is linear, and its solution that of a matrix."""
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))

    class Integrator(C.AbstractController):
        uses_plant = False

        def init(self, system):
            return {"sum": jnp.array(0.3)}

        def output(self, plant, z):
            return -3 * plant.q - 2 * plant.v + 1.5 * z["sum"]

        def rate(self, plant, z, response):
            return {"sum": -plant.q[0]}

        def output_matrix(self):
            return np.array([[0, 1, 0], [-3, -2, 1.5], [-1, 0, 0]])

    ts = jnp.linspace(0, 2, 5)
    run = jm.simulate(system, jm.assemble(system, [1.0], [0.5]), ts, control=Integrator())
    exact = np.array([jax.scipy.linalg.expm(t * Integrator().output_matrix()) @ np.array([1.0, 0.5, 0.3]) for t in ts])
    np.testing.assert_allclose(np.column_stack([run.q, run.v, run.z["sum"]]), exact, rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.u[:, 0], exact @ [-3, -2, 1.5], rtol=0, atol=1e-8)


def test_saturation_stops_integrators():
    """Between limits nothing changes; beyond, u is the limit and ∫e stands still while it drives u further out."""
    _, state = pendulum()
    law = AnglePI(GAINS)

    def after(u, step, n):
        step = jnp.where(((u > 1) & (step > 0)) | ((u < -1) & (step < 0)), 0, step)
        return jnp.clip(u, -1, 1), step

    _, inputs, memory, end = by_hand(law, state, jnp.zeros(1), 5, 0.1, after)
    system, state = pendulum()
    run = jm.simulate(system, state, TS, control=C.Sampled(C.Saturated(law, 1.0), 0.1), **STEPS)
    np.testing.assert_allclose(run.u[:-1], inputs, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.q[-1], end.q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.z[:-2], memory[1:], rtol=0, atol=1e-11)
    assert np.any(np.diff(memory, axis=0) == 0) and np.any(np.diff(memory, axis=0) != 0)


@pytest.mark.slow
def test_rates_of_inputs_are_limited():
    system, state = pendulum()
    law = C.Sampled(C.RateLimited(AnglePI(GAINS), 8.0), 0.1)
    _, inputs, _, _ = by_hand(
        AnglePI(GAINS),
        state,
        jnp.zeros(1),
        5,
        0.1,
        lambda u, step, n, last=[jnp.zeros(1)]: (
            last.append(last[-1] + jnp.clip(u - last[-1], -0.8, 0.8)),
            (last[-1], step),
        )[1],
    )
    run = jm.simulate(system, state, TS, control=law, **STEPS)
    np.testing.assert_allclose(run.u[:-1], inputs, rtol=0, atol=1e-11)
    assert np.isclose(abs(inputs[0]), 0.8) and np.abs(np.diff(inputs, axis=0)).max() < 0.8 + 1e-12


def noisy(key, std=0.05):
    return C.Sampled(C.Noisy(AnglePI(GAINS), key, q=std, v=2 * std), 0.1)


@pytest.mark.slow
def test_noise_is_that_of_its_key():
    """New at each sample, of the right size, and the same again; the plant itself has none."""
    system, state = pendulum()
    run = jax.jit(jax.vmap(lambda key: jm.simulate(system, state, TS[:2], control=noisy(key), **STEPS).u))
    keys = jax.random.split(jax.random.key(1), 2000)
    u = run(keys)[:, 0, 0]
    q = np.asarray(state.q)
    slope = GAINS[0] * np.array([-q[1], q[0]])  # of the angle on the circle
    std = np.sqrt(0.05**2 * slope @ slope + (0.1 * GAINS[1]) ** 2)
    clean = AnglePI(GAINS).output(C.Instant(system, state.t, state.q, state.v), jnp.zeros(1))
    np.testing.assert_allclose(np.mean(u), clean, atol=4 * std / 2000**0.5 + 0.02)  # the angle is not linear
    np.testing.assert_allclose(np.std(u), std, rtol=0.06)
    np.testing.assert_array_equal(run(keys[:4])[:, 0, 0], u[:4])


TUNED = {
    "samples": lambda k: C.Sampled(AnglePI(k), 0.1),
    "late": lambda k: C.Sampled(AnglePI(k), 0.1, delay=True),
    "noise": lambda k: C.Sampled(C.Noisy(AnglePI(k), jax.random.key(3), 0.05, 0.1), 0.1),
    "limits": lambda k: C.Sampled(C.Saturated(AnglePI(k), 1.0), 0.1),
    "continuous": AnglePI,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k if k == "continuous" else pytest.param(k, marks=pytest.mark.slow) for k in TUNED])
def test_gradients_go_through_a_controller(kind):
    """Reverse over the tape and forward mode agree, and are central differences; batches are loops."""
    system, state = pendulum()

    def end(gains, x):
        start = dataclasses.replace(state, v=state.v + x * jnp.array([0.8, 0.6]))
        run = jm.simulate(system, start, TS, control=TUNED[kind](gains), **STEPS)
        return (
            jnp.sum(run.q[-1] * jnp.array([1.0, 0.3])) + 0.1 * jnp.sum(run.u**2) + jnp.sum(jax.tree.leaves(run.z)[0][3])
        )

    value = jax.jit(end)
    found = jax.jit(jax.vmap(jax.grad(end, (0, 1)), (0, None)))(jnp.stack([GAINS, 0.8 * GAINS]), 0.3)
    found = jax.tree.map(lambda x: x[0], found)
    forward = jax.jit(jax.jacfwd(end, (0, 1)))(GAINS, 0.3)
    np.testing.assert_allclose(found[0], forward[0], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found[1], forward[1], rtol=1e-11, atol=1e-11)
    h = 1e-5
    central = [(value(GAINS + h * e, 0.3) - value(GAINS - h * e, 0.3)) / (2 * h) for e in jnp.eye(3)]
    np.testing.assert_allclose(found[0], central, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found[1], (value(GAINS, 0.3 + h) - value(GAINS, 0.3 - h)) / (2 * h), rtol=1e-6)


@functools.cache
def fivebar():
    """Two motors at the ground, two passive elbows, and a tip."""
    length = {"upper": 0.4, "lower": 0.5}
    rod = lambda name: P.Body(
        name, 1.0, 0.02, com=(length[name[:5]] / 2, 0), points={"end": P.frame((length[name[:5]], 0))}
    )
    mechanism = P.Mechanism(
        [rod("upper1"), rod("lower1"), rod("upper2"), rod("lower2")],
        [
            P.Revolute("base1", "ground.a", "upper1"),
            P.Revolute("elbow1", "upper1.end", "lower1"),
            P.Revolute("base2", "ground.b", "upper2"),
            P.Revolute("elbow2", "upper2.end", "lower2"),
            P.Revolute("tip", "lower1.end", "lower2.end"),
        ],
        points={"a": P.frame((0.0, 0.0)), "b": P.frame((0.3, 0.0))},
        gravity=(0.0, -9.81),
    )
    return mechanism, mechanism.build()


START = {"base1": 2.2, "base2": 0.9, "elbow1": -1.2, "elbow2": 1.2}


@pytest.mark.slow
def test_joints_are_addressed_by_name():
    """Torques at joints are those of motors there, of joints outside the tree too, and known to all that reads the solution."""
    mechanism, system = fivebar()
    outside = next(j for j in ("tip", "elbow1", "elbow2") if j not in system.coordinates)
    joints = ["base1", outside]
    with_motors = P.Mechanism(
        mechanism.bodies,
        mechanism.joints,
        actuators=[P.Motor(f"motor {j}", j) for j in joints],
        points=mechanism.points,
        gravity=mechanism.gravity,
    ).build()
    state, ts = jm.assemble(system, START), jnp.linspace(0, 0.3, 4)
    target = jm.coordinate(system, state, outside) + 0.2
    law = C.PD(joints, (20.0, 6.0), (1.0, 0.4), lambda t: jnp.stack([2.2 + 0.5 * t, target]))
    run = jm.simulate(system, state, ts, control=law)

    def same(t, q, v, params):
        motion = with_motors.joints.motion(t, q, v, params)
        error = jnp.stack([2.2 + 0.5 * t - motion.coordinate("base1"), target - motion.coordinate(outside)])
        rate = jnp.stack([0.5 - motion.rate("base1"), -motion.rate(outside)])
        return jnp.array([20.0, 6.0]) * error + jnp.array([1.0, 0.4]) * rate

    motors = jm.simulate(with_motors, state, ts, control=same)
    np.testing.assert_allclose(run.q, motors.q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.u, motors.u, rtol=0, atol=1e-10)
    assert run.joints == tuple(joints)
    ours, theirs = jm.reactions(system, run), jm.reactions(with_motors, motors)
    np.testing.assert_allclose(ours.vdot, theirs.vdot, rtol=0, atol=1e-9)
    assert np.abs(ours.vdot - jm.reactions(system, run.states).vdot).max() > 1  # without inputs
    np.testing.assert_allclose(jm.energy(system, run).balance, 0, atol=1e-7)


@pytest.mark.slow
def test_a_lock_on_the_way():
    """The controller is carried through transitions, and samples are taken once each."""
    _, system = fivebar()
    state, ts = jm.assemble(system, START), jnp.linspace(0, 0.4, 5)
    law = C.Sampled(C.PID(["base1", "base2"], 30.0, 2.0, (2.0, 1.1), integral=10.0), 0.05)
    free = jm.simulate(system, state, ts, control=law)
    for at in (0.2, 0.23):
        run = jm.simulate(system, state, ts, control=law, events=[jm.Lock("base2", at=at)])
        np.testing.assert_allclose(run.u[:2], free.u[:2], rtol=0, atol=1e-7)
        np.testing.assert_allclose(run.control[:, 0], [1, 3, 5, 7, 9])
        held = jm.coordinate(system, run, "base2")
        np.testing.assert_allclose(held[3:], held[-1], rtol=0, atol=1e-9)
        np.testing.assert_allclose(run.z[3:, 1] - run.z[3, 1], np.arange(2) * 0.1 * (1.1 - held[-1]), atol=1e-7)
        assert abs(run.z[-1, 1] - free.z[-1, 1]) > 1e-4


@pytest.mark.slow
def test_bad_controllers_are_refused():
    system, state = pendulum()
    run = functools.partial(jm.simulate, system, state, TS)
    with pytest.raises(TypeError, match=r"Argument `control` must be a controller or a function"):
        run(control=3.0)
    with pytest.raises(ValueError, match=r"`control` must return an array of shape \(1,\), but returns shape \(2,\)"):
        run(control=lambda t, q, v, p: q)
    with pytest.raises(ValueError, match="must be sampled"):
        run(control=C.RateLimited(AnglePI(GAINS), 1.0))
    with pytest.raises(ValueError, match="needs a system built from a mechanism"):
        run(control=C.PD("crank", 1.0, 1.0))
    with pytest.raises(ValueError, match="no joint"):
        jm.simulate(fivebar()[1], jm.assemble(fivebar()[1], START), TS, control=C.PD("knee", 1.0, 1.0))
    with pytest.raises(ValueError, match="Argument `period` of Sampled must be a positive number"):
        C.Sampled(AnglePI(GAINS), 0.0)
    with pytest.raises(ValueError, match="Argument `upper` must not be below `lower`"):
        C.Saturated(AnglePI(GAINS), 1.0, 2.0)
    with pytest.raises(ValueError, match="Argument `limit` of RateLimited must be positive"):
        C.RateLimited(AnglePI(GAINS), 0.0)
    with pytest.raises(ValueError, match=r"Argument `stiffness` must be a number or have shape \(1,\)"):
        C.PD("crank", (1.0, 2.0), 1.0)
    with pytest.raises(ValueError, match=r"must hold what the controller remembers, of shape \(1,\), but holds \(4,\)"):
        jm.simulate(system, sampled(True).state(1), TS[2:], control=AnglePI(GAINS))
    two = type("Two", (AnglePI,), {"rate": lambda self, *args: jnp.zeros(2)})
    with pytest.raises(ValueError, match="as many numbers as `init` of `Two` returns, 1, but `rate` returns 2"):
        run(control=two(GAINS))
    with pytest.raises(ValueError, match="must be adaptive or `ConstantStepSize`"):
        run(control=C.Sampled(AnglePI(GAINS), 0.1), stepsize_controller=dfx.StepTo(TS))


@pytest.mark.slow
def test_networks_are_laws():
    """Activations among the leaves of a callable pytree are no numbers."""
    system, state = pendulum()

    class Policy(eqx.Module):
        network: eqx.nn.MLP

        def __call__(self, t, q, v, params):
            return self.network(jnp.concatenate([q, v]))

    policy = Policy(eqx.nn.MLP(4, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0)))
    run = jm.simulate(system, state, TS, control=policy, **STEPS)
    expected = [policy(None, q, v, None) for q, v in zip(run.q, run.v, strict=True)]
    np.testing.assert_allclose(run.u, expected, rtol=0, atol=1e-12)


# Laws at one instant


@functools.cache
def hinged():
    """A body on a hinge, with an input there."""
    body = P.Body("arm", 2.0, 0.5)
    return P.Mechanism([body], [P.Revolute("hinge", "ground", "arm")]).build().acting_at("hinge")


def at(angle, rate=0.0, system=None):
    return C.Instant(system or hinged(), jnp.array(0.1), jnp.array([angle]), jnp.array([rate]))


def output(law, instant, z=()):
    return law.output(instant, z)


def rate(law, instant, z):
    return law.rate(instant, z, None)


def sample(law, instant, z):
    """Its samples are 0.1 s apart."""
    return law.sample(instant, z, None, jnp.array(0.1))


def test_a_joint_follows_its_target_and_the_integral():
    law = C.PID("hinge", 20.0, 2.0, lambda t: 0.5 + 3.0 * t[None], 4.0)
    z = law.init(hinged())
    np.testing.assert_allclose(output(law, at(0.3, 0.1), z + 0.25), [20.0 * 0.5 + 2.0 * 2.9 + 4.0 * 0.25], atol=1e-13)
    np.testing.assert_allclose(rate(law, at(0.3), z), [0.5], atol=1e-14)
    assert C.PD("hinge", 1.0, 1.0).init(hinged()) == ()
    with pytest.raises(ValueError, match=r"`target` must be a number or have shape \(1,\), but has shape \(2,\)"):
        C.PD("hinge", 1.0, 1.0, (0.0, 1.0))
    with pytest.raises(ValueError, match="must be built from a mechanism where a control law reads joints, but is not"):
        output(C.PD("hinge", 1.0, 1.0), at(0.3, system=cart()))


def test_a_function_of_the_motion_is_a_law():
    law = C.MotionLaw(lambda motion: -5.0 * motion.joint_rates("hinge") - motion.t, joints="hinge")
    assert law.acts_at == ("hinge",) and not law.uses_plant
    np.testing.assert_allclose(output(law, at(0.3, 0.2)), [-1.1], atol=1e-15)


def test_a_sum_is_one_law_with_the_states_of_all():
    """Of two lines of feedback with integrals: gains add up where the memories are the same."""
    system, state = pendulum()
    instant = C.Instant(system, state.t, state.q, jnp.array([0.4, 0.3]))
    both, one = C.Sum(AnglePI(GAINS), AnglePI(2 * GAINS)), AnglePI(3 * GAINS)
    z = both.init(system)
    assert not both.uses_plant and not both.only_sampled and both.check_period(1.0) == []
    z = jax.tree.map(lambda x: x + 0.7, z)
    np.testing.assert_allclose(output(both, instant, z), output(one, instant, z[0]), rtol=1e-14)
    u, after = sample(both, instant, z)
    alone, memory = sample(one, instant, z[0])
    np.testing.assert_allclose(u, alone, rtol=1e-14)
    np.testing.assert_allclose(after, [memory, memory], rtol=1e-14)
    np.testing.assert_allclose(z[0] + 0.1 * rate(both, instant, z)[1], memory, rtol=1e-14)
    assert [x.shape for x in both.sizes(z)] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: C.Sum(C.PD("a", 1.0, 1.0), Held(jnp.zeros(1))), ValueError, r"must act at the same joints, but act at \('a',\), the system's inputs"),
        (lambda: C.Sum(3.0), TypeError, r"`controllers` must be a controller or a function .*, but is 3.0"),
        (lambda: C.Sum(), ValueError, "`controllers` must hold one controller at least, but holds none"),
        (lambda: C.PD("a", 1.0, 1.0, lambda t: jnp.zeros(2)), ValueError, r"`target` must return an array of shape \(1,\) or \(\), but"),
        (lambda: C.Saturated(C.PD("hinge", 1.0, 1.0), [1.0, 2.0]).init(hinged()), ValueError, r"`upper` of Saturated must be a number or have shape \(1,\)"),
        (lambda: C.RateLimited(C.PD("hinge", 1.0, 1.0), [1.0, 2.0]).init(hinged()), ValueError, r"`limit` of RateLimited must be a number or have shape \(1,\)"),
        (lambda: C.Sum(C.PID), TypeError, r"`controllers` must be a controller or a function .*, but is the class PID"),
        (lambda: C.PD(["a", "a"], 1.0, 1.0), ValueError, "`joints` must hold different names, but repeats 'a'"),
        (lambda: hinged().acting_at(["hinge", "hinge"]), ValueError, "`joints` must hold different names, but repeats 'hinge'"),
        (lambda: C.Saturated(Held(jnp.zeros(1)), 1.0, 2.0), ValueError, r"`upper` must not be below `lower`, but is 1\.0 with `lower` 2\.0"),
        (lambda: C.Saturated(Held(jnp.zeros(1)), -1.0), ValueError, r"`upper` must not be negative where no `lower` is given, but is -1\.0\."),
        (lambda: C.Saturated(Held(jnp.zeros(2)), [1.0, 2.0], [0.0, 0.0, 0.0]), ValueError, r"`lower` must be a number or have shape \(2,\)"),
        (lambda: output(C.Track("s", 0.0, 1.0, 1.0), at(0.0)), TypeError, "must have `uses_plant` true"),
    ],
)  # fmt: skip
def test_laws_that_do_not_fit_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_what_saturates_is_cut_off_and_holds_its_integral():
    """Beyond a limit ∫e stands still where it would lead further out; without a memory nothing is held."""
    law = C.Saturated(C.PID("hinge", 20.0, 0.0, 1.0, 4.0), 5.0, -2.0)
    z = jnp.array([0.0])
    assert output(law, at(0.0), z) == 5.0 and rate(law, at(0.0), z) == 0.0
    np.testing.assert_allclose(output(law, at(0.9), z), [2.0], atol=1e-14)
    np.testing.assert_allclose(rate(law, at(0.9), z), [0.1], atol=1e-15)
    assert output(law, at(1.5), z) == -2.0 and rate(law, at(1.5), z) == 0.0
    # Driven out by its memory alone, it comes back.
    np.testing.assert_allclose(rate(law, at(1.1), jnp.array([9.0])), [-0.1], atol=1e-15)
    plain = C.Saturated(C.PD("hinge", 20.0, 0.0, 1.0), 5.0)
    assert sample(plain, at(0.0), ()) == (jnp.array([5.0]), ())


def test_outputs_change_by_no_more_than_their_limit():
    """10 N m/s for 0.1 s are 1 N m from one sample to the next, from zero on."""
    law = C.RateLimited(C.PD("hinge", 20.0, 0.0, 0.12), 10.0)
    z = law.init(hinged())
    outputs = []
    for angle in (0.0, 0.0, 0.0, 0.2):
        u, z = sample(law, at(angle), z)
        outputs.append(float(u[0]))
    np.testing.assert_allclose(outputs, [1.0, 2.0, 2.4, 1.4], atol=1e-14)
    np.testing.assert_allclose(output(law, at(0.0), z), [2.4], atol=1e-14)
    assert (
        law.only_sampled
        and law.acts_at == ("hinge",)
        and [x.tolist() for x in jax.tree.leaves(law.sizes(z))] == [[1.0]]
    )


def test_noise_is_new_at_each_sample_and_the_same_of_one_key():
    key = jax.random.key(4)
    law = C.Noisy(C.PD("hinge", 1.0, 0.0), key, q=0.5)
    z, outputs = law.init(hinged()), []
    for _ in range(2):
        np.testing.assert_array_equal(output(law, at(0.0), z), output(law, at(0.0), z))
        u, z = sample(law, at(0.0), z)
        outputs.append(u)
    expected = [jax.random.normal(jax.random.split(jax.random.fold_in(key, n))[0], (1,)) for n in range(2)]
    np.testing.assert_allclose(outputs, -0.5 * np.array(expected), rtol=1e-14)
    with pytest.raises(ValueError, match=r"`v` of Noisy must be a number or have shape \(1,\), but has shape \(2,\)"):
        C.Noisy(C.PD("hinge", 1.0, 0.0), key, v=[0.1, 0.2]).init(hinged())
    assert z[1] == 2 and law.only_sampled and law.sizes(z)[1] == 1.0
    exact = C.Noisy(C.PD("hinge", 1.0, 0.0), jax.random.key_data(key))
    np.testing.assert_array_equal(output(exact, at(0.3), exact.init(hinged())), [-0.3])


def test_tables_and_periods_may_be_traced():
    """Values of a table are differentiated: between two entries each has its share."""
    value = lambda values: output(C.Recorded(TIMES, values), C.Instant(cart(), jnp.array(0.15), *jnp.zeros((2, 1))))[0]
    np.testing.assert_allclose(jax.jit(jax.grad(value))(jnp.asarray(VALUES)), [2 / 3, 1 / 3, 0, 0, 0], atol=1e-15)
    late = jax.jit(lambda period: C.Sampled(lambda t, q, v, p: -q, period).clock.next_time(jnp.array(0.35)))
    np.testing.assert_allclose(late(0.2), 0.4, rtol=1e-15)


# The plant of a law


def test_forces_that_depend_on_inputs_otherwise_answer_too():
    """Friction that grows with the push: 2 v̇ = u − (0.1 + 0.3 |u|) v."""
    system = jm.System(
        ("s",),
        mass=lambda t, q, p: 2.0 * jnp.eye(1),
        actuation=lambda t, q, p: jnp.eye(1),
        resistance=lambda t, q, v, p, u: -0.1 * v if u is None else -(0.1 + 0.3 * jnp.abs(u)) * v,
    )
    plant = C.Plant.at(system, jm.assemble(system, [0.0], [0.5]))
    np.testing.assert_allclose(plant.respond().vdot, [-0.1 * 0.5 / 2], atol=1e-15)
    np.testing.assert_allclose(plant.respond(jnp.array([4.0])).vdot, [(4.0 - 1.3 * 0.5) / 2], atol=1e-15)
    assert plant.params is system.params
    faster = plant.with_motion(plant.q, jnp.array([1.0]))
    np.testing.assert_allclose(faster.respond(jnp.array([4.0])).vdot, [(4.0 - 1.3) / 2], atol=1e-15)


def test_a_weight_is_held_by_what_a_model_knows_of_it():
    """On a line of slope 3/4, with forces along it: the model is heavier by half."""

    def slide(mass):
        return jm.System(
            ("x", "y"),
            mass=lambda t, q, p: p * jnp.eye(2),
            potential=lambda t, q, p: 10.0 * p * q[1],
            constraints=[jm.Holonomic("line", lambda t, q, p: 3 * q[0] - 4 * q[1])],
            actuation=lambda t, q, p: jnp.array([[0.8], [0.6]]),
            params=mass,
        )

    plant = C.Plant.at(slide(2.0), jm.assemble(slide(2.0), [0.4, 0.3], [0.8, 0.6]))
    moving = (plant, ())
    np.testing.assert_allclose(C.GravityCompensation().output(*moving), [2.0 * 10.0 * 0.6], atol=1e-13)
    heavier = C.GravityCompensation(model=plant.system.with_params(3.0))
    np.testing.assert_allclose(heavier.output(*moving), [3.0 * 10.0 * 0.6], atol=1e-13)
    np.testing.assert_allclose(C.inverse_dynamics(plant, jnp.array([0.8, 0.6])).u, [2.0 + 12.0], atol=1e-13)
    assert plant.in_use.tolist() == plant.with_motion(plant.q, plant.v).in_use.tolist() == [True]
    # Across the line a force is the reaction's alone.
    moves, rest = C.split_force(plant, jnp.array([1.0, 0.0]))
    np.testing.assert_allclose([moves, rest], [[0.64, 0.48], [0.36, -0.48]], atol=1e-14)


def test_drivers_of_an_output_make_its_motion():
    """Their effort moves the mass and its drag: 2 s̈ + 0.3 ṡ."""
    driven = C.with_drivers(cart(), "s", lambda t: jnp.sin(3 * t), "motor")
    assert list(driven.rows) == ["motor s"]
    state = jm.assemble(driven, t=0.2)
    np.testing.assert_allclose([*state.q, *state.v], [np.sin(0.6), 3 * np.cos(0.6)], atol=1e-14)
    found = jm.reactions(driven, state)
    np.testing.assert_allclose(found.multipliers["motor s"], [-18 * np.sin(0.6) + 0.9 * np.cos(0.6)], atol=1e-12)
    turned = C.with_drivers(cart(), C.VelocityOutput(lambda t, q, v, p: 2 * v), jnp.cos)
    (row,) = turned.constraints
    assert row.name == "driver omega" and isinstance(row, jm.Pfaffian)
    np.testing.assert_allclose(row.fn(jnp.array(0.3), jnp.zeros(1), jnp.ones(1), None), [2 - np.cos(0.3)], rtol=1e-15)


def test_an_angle_is_driven_the_short_way():
    """Full turns do not count at a joint that closes a loop."""
    _, system = fivebar()
    outside = next(name for name in ("tip", "elbow1", "elbow2") if name not in system.coordinates)
    assert system.joints.wraps(outside) and not system.joints.wraps("base1")
    apart = lambda name: C.with_drivers(system, name, lambda t: t[None]).constraints[-1].fn
    q, angle = (
        jnp.array([2.2, -1.2, 0.9, 1.2]),
        jm.coordinate(system, jm.as_state(system, [2.2, -1.2, 0.9, 1.2]), outside),
    )
    np.testing.assert_allclose(apart(outside)(angle + 2 * np.pi + 0.1, q, system.params), [-0.1], atol=1e-12)
    np.testing.assert_allclose(apart("base1")(jnp.array(2.2 + 2 * np.pi), q, system.params), [-2 * np.pi], rtol=1e-14)


# Searches


def test_a_guess_must_be_of_the_same_system():
    start = jm.assemble(cart(), [1.0])
    step, other = jm.stepper(cart(), start, 0.1), C.Guess(jnp.zeros((3, 4)), jnp.zeros((3, 1)), jnp.zeros((3, 1, 4)))
    with pytest.raises(ValueError, match=r"gains of shape \(3, 1, 2\), but has \(3, 1, 4\): is it of another system\?"):
        C.trajectory(step, start, lambda state, u: u @ u, 3, guess=other)


def test_several_trajectories_are_told_by_their_number():
    states = jax.tree.map(lambda x: jnp.zeros((4, 2, 8, *x.shape)), jm.assemble(cart()))
    found = C.Trajectory(
        states=states,
        u=jnp.zeros((4, 2, 7, 1)),
        cost=jnp.zeros((4, 2)),
        gain=jnp.zeros((4, 2, 7, 1, 2)),
        change=jnp.zeros((4, 2, 7, 1)),
        iterations=jnp.zeros((4, 2), int),
        result=jm.RESULTS.successful,
        names=("u0",),
    )
    assert str(found) == "Trajectories, (4, 2), of 7 steps"


class CountsRows(C.AbstractController):
    """Puts out how many rows are in use, and ten times that."""

    uses_plant = True

    def output(self, plant, z):
        return jnp.sum(plant.in_use) * jnp.array([1.0, 10.0])


def test_samples_need_the_plant_at_their_times_only():
    """The vector field between them does not, unless it reads what a sample makes."""
    clocks = (None, False), (None, True), ("clock", False), ("clock", True)
    for needs, expected in ((False, [False] * 4), (True, [True, True, False, True])):
        law = SimpleNamespace(uses_plant=needs)
        loops = [SimpleNamespace(controller=law, clock=clock, reading=reading) for clock, reading in clocks]
        assert [FeedbackLoop.needs_plant.fget(loop) for loop in loops] == expected


def test_a_law_that_needs_the_plant_takes_the_rows_that_it_is_given():
    rod = jm.Holonomic("rod", lambda t, q, p: q @ q - 1)
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[rod], actuation=lambda t, q, p: jnp.eye(2))
    state, loop = jm.as_state(system, jnp.array([0.6, 0.8]), length=1.0), FeedbackLoop(CountsRows(), None, (), 2)
    parts = jm.formulation.GaussProjection(), jm.Projection(), loop, state.scale, jnp.array(True), None
    field, y = VectorField(system, *parts), StateVector.of(state.q, state.v, jnp.zeros(()), jnp.zeros(0))
    assert field.inputs(state.t, y).tolist() == [1.0, 10.0]
    assert field.inputs(state.t, y, jnp.array([False])).tolist() == [0.0, 0.0]


def test_of_a_controller_without_samples_its_state_and_its_inputs_are_read():
    plane = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    y = StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(()), jnp.arange(5.0))
    plant = Instant(plane, jnp.zeros(()), y.q, y.v)
    found = FeedbackLoop.read(SimpleNamespace(clock=None, nu=2), plant, y, jnp.array([7.0, 8.0]), None)
    np.testing.assert_array_equal(found, [0.0, 1.0, 2.0, 7.0, 8.0])
