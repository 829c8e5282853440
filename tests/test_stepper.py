"""Steps of one length: those of `simulate`, in loops, batches and derivatives."""

import dataclasses
import importlib
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import parallelogram
import pytest
from systems import make

import jaxmb as jm
from jaxmb.foundations import Blank
from jaxmb.simulation import regular, regular_end, segments
from jaxmb.simulation.method import Method
from jaxmb.simulation.solver import ConstrainedSolver
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.stepper import _program_of, problem_of
from jaxmb.simulation.vector_field import VectorField

DT, COUNT = 0.01, 20


def motor(copies):
    """A point on a rod that is stated several times, pushed by two inputs."""
    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * 9.81 * q[1],
        constraints=[
            jm.Holonomic(f"rod {k}", lambda t, q, p, k=k: 10.0**k * (q @ q - p["l"] ** 2)) for k in range(copies)
        ],
        actuation=lambda t, q, p: jnp.eye(2),
        params={"m": 2.0, "l": 1.0},
    )


def rollout(step, state, us=None, length=COUNT):
    """All states of a loop."""

    def one(state, u):
        after = step(state, u)
        return after, after

    return jax.lax.scan(one, state, us, length=length)[1]


def simulated(system, state, control=None, substeps=1, **options):
    ts = state.t + DT * jnp.arange(1, COUNT + 1)
    steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": DT / substeps, **options}
    return jm.simulate(system, state, ts, control=control, **steps)


@pytest.mark.parametrize(("copies", "substeps"), [(1, 2), (3, 1)])
@pytest.mark.slow_cases("3-1")
def test_steps_are_those_of_simulate(copies, substeps):
    system = motor(copies)
    start = jm.assemble(system, [-0.8, -0.6])
    step = jm.stepper(system, start, DT, substeps=substeps)
    u = jnp.array([3.0, -1.0])
    states = rollout(step, step.start(), jnp.broadcast_to(u, (COUNT, 2)))
    run = simulated(system, start, lambda t, q, v, p: u, substeps)
    assert np.allclose(states.q, run.q, rtol=0, atol=1e-12)
    assert np.allclose(states.v, run.v, rtol=0, atol=1e-12)
    assert np.abs(jm.residuals(system, states).position).max() < 1e-12


def test_a_step_does_not_depend_on_how_its_times_are_rounded():
    """From 0.032 s to 0.036 s it takes 4 ms and a few units of rounding, which is no reason for one substep more."""
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), potential=lambda t, q, p: 50 * q[0] ** 2)
    start = jm.assemble(system, [0.1])
    step = eqx.filter_jit(jm.stepper(system, start, 0.004, substeps=2, solver=dfx.Midpoint()))
    ends = [step(dataclasses.replace(start, t=jnp.array(t))).q for t in (0.0, 0.028, 0.032, 0.036000000000000004, 1.1)]
    assert np.ptp(ends) < 1e-13


@pytest.mark.slow
def test_implicit_steps_are_those_of_simulate():
    system = motor(1)
    start = jm.assemble(system, [-0.8, -0.6])
    chord = dfx.VeryChord(rtol=1e-6, atol=1e-9, norm=optx.max_norm)  # constant steps have no tolerances of their own
    solver = dfx.ImplicitEuler(root_finder=chord)
    step = jm.stepper(system, start, DT, solver=solver)
    states = rollout(step, step.start())
    run = simulated(system, start, solver=solver)
    assert np.allclose(states.q, run.q, rtol=0, atol=1e-10) and np.allclose(states.v, run.v, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"formulation": jm.formulation.KKT()}], ids=["explicit", "KKT"])
def test_steps_of_a_fourbar_are_those_of_simulate(options):
    """Tsit5's last stage, which simulate hands to the next step, belongs to the state before its correction: a step has none."""
    options = {"solver": dfx.Ralston(), **options}
    system, start = make("four-bar")
    step = jm.stepper(system, start, DT, **options)
    states = rollout(step, step.start())
    run = simulated(system, start, **options)
    assert np.allclose(states.q, run.q, rtol=0, atol=1e-12) and np.allclose(states.v, run.v, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_inputs_that_are_held_are_those_of_a_record_that_is_held():
    system = motor(1)
    start, us = jm.assemble(system, [-0.8, -0.6]), 5 * jnp.sin(jnp.arange(2.0 * COUNT).reshape(COUNT, 2))
    step = jm.stepper(system, start, DT, substeps=4)
    states = rollout(step, step.start(), us)
    record = jm.control.Recorded(DT * jnp.arange(COUNT), us, hold=True)
    precise = dfx.PIDController(rtol=1e-12, atol=1e-13)  # steps find the jumps of the record by their errors alone
    run = jm.simulate(system, start, DT * jnp.arange(1, COUNT + 1), control=record, stepsize_controller=precise)
    assert np.allclose(states.q, run.q, rtol=0, atol=1e-10) and np.allclose(states.v, run.v, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_steps_lead_through_a_singular_pose():
    """A parallelogram of equal bars, folded flat on its way: at that pose its rows are dependent."""
    system = parallelogram.parallelogram()
    start = jm.assemble(system, *parallelogram.pose(jnp.array(0.1), jnp.array(-3.0)))
    step = jm.stepper(system, start, DT)
    states = rollout(step, step.start())
    run = simulated(system, start)
    assert states.q[-1, 2] < -0.1 and run.stats["compiled_steps"] < COUNT
    assert np.allclose(states.q, run.q, rtol=0, atol=1e-10) and np.allclose(states.v, run.v, rtol=0, atol=1e-9)
    assert np.abs(jm.residuals(system, states).position).max() < 1e-12


class Lag(jm.control.AbstractController):
    """A push that follows the speed late."""

    gain: jax.Array
    uses_plant = False

    def init(self, system):
        return jnp.zeros(2)

    def output(self, plant, z):
        return -self.gain * z

    def rate(self, plant, z, response):
        return (plant.v - z) / 0.1


@pytest.mark.slow
def test_what_a_controller_remembers_is_part_of_the_state():
    system, law = motor(1), Lag(jnp.array(4.0))
    start = jm.assemble(system, [-0.8, -0.6])
    step = jm.stepper(system, start, DT, control=law)
    with pytest.raises(ValueError, match=r"begin with `step.start\(state\)`"):
        step(start)
    states, run = rollout(step, step.start()), simulated(system, start, law)
    assert np.allclose(states.q, run.q, rtol=0, atol=1e-12)
    assert np.allclose(states.control, run.control, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="`u` must be None where `control`"):
        step(step.start(), jnp.zeros(2))


@pytest.fixture(scope="module")
def swing():
    system = motor(2)
    start = jm.assemble(system, [-0.8, -0.6])
    step = jm.stepper(system, start, DT, solver=dfx.Midpoint())
    return step, step.start(), 5 * jnp.sin(jnp.arange(2.0 * COUNT).reshape(COUNT, 2))


@pytest.mark.slow
def test_derivatives_in_both_modes(swing):
    step, start, us = swing
    along = jnp.array([0.6, -0.8])  # a speed on the constraint

    def cost(us, speed, mass):
        own = eqx.tree_at(lambda s: s.system.params["m"], step, mass)
        state = dataclasses.replace(start, v=start.v + speed * along)
        end = jax.tree.map(lambda x: x[-1], rollout(own, state, us))
        return end.q @ jnp.array([1.0, 2.0]) + end.v @ end.v

    at = us, jnp.array(0.3), jnp.array(2.0)
    back = jax.jit(jax.grad(cost, (0, 1, 2)))(*at)
    forth = jax.jit(jax.jacfwd(cost, (0, 1, 2)))(*at)
    for a, b in zip(back, forth, strict=True):
        assert np.allclose(a, b, rtol=1e-10, atol=1e-10)
    value, h = jax.jit(cost), 1e-5
    for k, slope in ((1, back[1]), (2, back[2])):
        moved = lambda x, k=k: value(*(a + x if i == k else a for i, a in enumerate(at)))
        assert abs((moved(h) - moved(-h)) / (2 * h) - slope) < 1e-6 * max(1.0, abs(slope))
    moved = lambda x: value(us.at[3, 1].add(x), *at[1:])
    assert abs((moved(h) - moved(-h)) / (2 * h) - back[0][3, 1]) < 1e-6


def test_lanes_are_single_runs_and_do_not_spoil_each_other(swing):
    step, _, us = swing
    draw = lambda key: step.reset(key, {"x": 0.3})
    states = jax.vmap(draw)(jax.random.split(jax.random.key(0), 3))
    assert np.ptp(states.q[:, 0]) > 0.01 and np.abs(jm.residuals(step.system, states).position).max() < 1e-12
    many = jax.jit(jax.vmap(lambda state: rollout(step, state, us)))
    assert step.start().q is not step.state.q  # it may be donated
    runs = many(states)
    one = jax.jit(lambda state: rollout(step, state, us))(jax.tree.map(lambda x: x[1], states))
    assert np.allclose(runs.q[1], one.q, rtol=0, atol=1e-13)
    spoilt = many(eqx.tree_at(lambda s: s.q, states, states.q.at[1].set(jnp.nan)))
    assert np.isnan(spoilt.q[1]).all() and np.isnan(spoilt.v[1]).all()
    assert (spoilt.q[::2] == runs.q[::2]).all() and (spoilt.v[::2] == runs.v[::2]).all()


def sliding():
    """A point on a rod whose length is a parameter."""
    system = jm.System(
        ("x", "y"), mass=lambda t, q, p: jnp.eye(2), params=1.0,
        constraints=[jm.Holonomic("rod", lambda t, q, p: (q @ q - p**2) / (2 * p))],
    )  # fmt: skip
    return jm.stepper(system, jm.assemble(system, [0.6, -0.8]), 0.01)


@pytest.mark.slow
def test_starts_are_uniform_in_ranges_as_far_as_the_mechanism_can_be_assembled():
    """By the largest gap between both distributions, which Kolmogorov's law has above 1.95/√n once in a thousand; and they have derivatives in both modes."""
    step, count = sliding(), 2000
    starts = jax.jit(jax.vmap(lambda key: step.reset(key, {"x": (-1.5, 2.5)})))(
        jax.random.split(jax.random.key(3), count)
    )
    x, y = np.array(starts.q).T
    gap = np.abs(np.sort(x) - np.linspace(-1, 1, count)).max() / 2
    assert gap < 1.95 / np.sqrt(count) and (y <= 0).all()
    np.testing.assert_allclose(x**2 + y**2, 1.0, rtol=0, atol=1e-12)
    y_of = lambda length: (
        dataclasses.replace(step, system=step.system.with_params(length))
        .reset(jax.random.key(0), {"x": (-1.5, 2.5)})
        .q[1]
    )
    for slope in (jax.grad(y_of), jax.jacfwd(y_of)):
        np.testing.assert_allclose(slope(1.0), 1 / y_of(1.0), rtol=1e-8)  # of −√(l² − x²)


def test_components_of_quaternions_have_no_range():
    box, ball = jm.spatial.Body("top", 1.0, (0.1, 0.1, 0.1)), jm.spatial.Spherical("ball", "ground", "top")
    system = jm.spatial.Mechanism([box], [ball]).build()
    step = jm.stepper(system, jm.as_state(system, system.guess), 0.01)
    with pytest.raises(ValueError, match=r"`spread` must have numbers for components .* ranges for 'ball\.qx'"):
        step.reset(jax.random.key(0), {"ball.qx": (0.1, 0.2)})


@pytest.mark.slow
def test_starts_that_cannot_be_assembled_are_told():
    """After so many draws."""
    step = sliding()
    far = step.reset(jax.random.key(0), {"x": (2.0, 3.0)})
    assert np.isnan(far.q).all() and np.isnan(far.v).all()


def test_what_becomes_of_a_step(swing):
    step, start, us = swing
    after, result = step.with_result(start, us[0])
    assert result == jm.RESULTS.successful and np.isfinite(after.q).all()
    bad, end = jnp.array([jnp.nan, 0.0]), lambda u: step(start, u).q[0]
    slope, along = jax.grad(end), jnp.array([0.1, 0.2])
    np.testing.assert_allclose(slope(us[1]) @ along, (end(us[1] + along) - end(us[1] - along)) / 2, rtol=1e-6)
    after, result = step.with_result(start, bad)
    assert result == jm.RESULTS.nonfinite and np.isnan(after.q).all()
    assert np.isnan(slope(bad)).all()


@pytest.mark.slow
def test_a_stepper_that_throws_says_when_and_why_a_step_fails(swing):
    silent, start, us = swing
    step = jm.stepper(silent.system, silent.state, DT, solver=silent.solver, throw=True)
    assert _program_of(step)[0] is _program_of(silent)[0]
    after = step(step(start, us[0]), us[1])
    with pytest.raises(RuntimeError, match=r"^The step from t = 0.02 s on fails: Numbers are not finite"):
        step(after, jnp.array([jnp.nan, 0.0]))
    # Within a program nothing is known, and nothing is raised.
    assert jnp.isnan(jax.jit(step)(after, jnp.array([jnp.nan, 0.0])).q).all()


def test_a_failed_step_whose_end_nobody_uses_spoils_no_gradient():
    """A force that is not a number beyond 1: the step of one lane fails within, from a start that is finite."""
    system = jm.System(
        1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: -p["c"] * jnp.sqrt(1 - q), params={"c": 0.1}
    )
    step = jm.stepper(system, jm.assemble(system, [0.0]), DT)
    starts = jax.vmap(lambda q: dataclasses.replace(step.start(), q=q))(jnp.array([[0.5], [2.0]]))

    def ends(c):
        return jax.vmap(eqx.tree_at(lambda s: s.system.params["c"], step, c))(starts).v[:, 0]

    used = lambda c: jnp.sum(jnp.where(jnp.isfinite(ends(c)), ends(c), 0))
    assert np.isfinite(ends(0.1)).tolist() == [True, False]
    assert np.allclose(jax.grad(used)(0.1), -np.sqrt(0.5) * DT, rtol=1e-3, atol=0)
    assert np.isnan(jax.grad(lambda c: ends(c).sum())(0.1))


def midpoint_rule(system, state):
    """How it is integrated, and what."""
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, state.scale, jnp.array(True), None
    steps = dict(controller=dfx.ConstantStepSize(), dt0=None, adjoint=None, max_steps=16, engine=None)
    method = Method(ConstrainedSolver(dfx.Midpoint()), progress_meter=dfx.NoProgressMeter(), **steps)
    return method, VectorField(system, *parts)


def test_a_run_is_tried_by_regular_steps_where_it_may_have_no_others(monkeypatch):
    """With all rows that act, or those that are expected to be independent; where these are, the rank rule is not asked."""
    monkeypatch.setattr(regular, "rows_at_start", lambda field, t, y: jnp.zeros(2, bool))
    system = motor(2)
    state = jm.assemble(system, [-0.8, -0.6])
    (method, field), y = midpoint_rule(system, state), StateVector.of(state.q, state.v, jnp.zeros(()))

    def rows(expected=None, **changes):
        other = dataclasses.replace(method, **changes)
        found = regular.regular_if_possible(other, field, state.t, y, expected).regular_only
        return None if found is None else found.in_use.tolist()

    assert rows(jnp.array([True, False])) == [True, False]
    assert rows() == [False, False]
    for changes in (
        {"adjoint": dfx.DirectAdjoint()},
        {"progress_meter": dfx.TextProgressMeter()},
        {"engine": jm.XLA()},
    ):
        assert rows(**changes) is None


class Scripted(eqx.Module):
    """A problem with a layout, and its compiled step, of which a regular run asks what its numbers say."""

    system: SimpleNamespace | None = eqx.field(static=True, default=None)
    smooth: bool = eqx.field(static=True, default=False)

    def at(self, t, y, in_use):
        return None, t, t == 2

    def relative_residuals(self, correction):
        return correction

    def closed(self, off):
        return off < 4

    def with_correction(self, t, y, correction):
        return y.like(jnp.where(t == 3, jnp.inf, y.packed + correction))

    def after_sample(self, t, y, in_use):
        return y.like(y.packed + 10 * in_use[0])

    def inputs(self, t, y, in_use):
        return 2 * y.v


def test_rows_of_a_sparse_run_are_those_that_act_where_they_are_certified(monkeypatch):
    """Without a compiled step one by a layout, if it takes no samples."""
    monkeypatch.setattr(regular, "compiled_step_of", lambda *_: None)
    monkeypatch.setattr(regular, "rows_at_start", lambda field, t, y: jnp.zeros(2, bool))
    monkeypatch.setattr(regular, "sparse_at", lambda field, t, y, in_use: (t, t > 1))
    system = motor(2)
    method, field = midpoint_rule(system, jm.as_state(system, [-0.8, -0.6]))

    def rows(t, layout="sparse", samples=False):
        monkeypatch.setattr(regular, "with_layout", lambda *_: Scripted(SimpleNamespace(layout=layout)))
        monkeypatch.setattr(VectorField, "takes_samples", samples)
        y = StateVector.of(jnp.zeros(2), jnp.zeros(2), jnp.zeros(()))
        found = regular.regular_if_possible(method, field, jnp.array(t), y)
        return None if found.regular_only is None else found.regular_only.in_use.tolist()

    assert (rows(1.0), rows(2.0)) == ([True, True], [False, False])
    assert rows(1.0, None) is rows(1.0, samples=True) is None


def test_saved_states_of_regular_steps_are_good_where_they_are_closed_certain_and_finite_or_not_reached(monkeypatch):
    system, (step, in_use) = motor(1), (Scripted(), jnp.array([True]))
    method, field = midpoint_rule(system, jm.as_state(system, [-0.8, -0.6]))
    monkeypatch.setattr(regular, "with_layout", lambda *_: step)
    monkeypatch.setattr(regular, "sparse_at", lambda field, *at: step.at(*at)[1:])
    cases = [
        ((1.0, 0.0, True), 11.0, True),
        ((2.0, 0.0, True), 12.0, False),
        ((3.0, 0.0, True), np.inf, False),
        ((5.0, 0.0, True), 15.0, False),
        ((2.0, np.inf, True), np.nan, True),
        ((1.0, 0.0, False), np.nan, True),
    ]
    for compiled in (step, None):
        monkeypatch.setattr(regular, "compiled_step_of", lambda *_, compiled=compiled: compiled)

        @jax.jit
        @jax.vmap
        def found(t, off, consistent):
            own, start = dataclasses.replace(field, consistent=consistent), StateVector(jnp.zeros(5), 2, 2)
            ys, u, good = regular.regular_states(method, own, in_use, t[None], start.like(jnp.full((1, 5), off)), start)
            return ys.packed[0], u[0], good

        y, u, good = found(*map(jnp.array, zip(*[case for case, *_ in cases], strict=True)))
        assert good.tolist() == [good for *_, good in cases]
        np.testing.assert_array_equal(y[:, 0], [size for _, size, _ in cases])
        np.testing.assert_array_equal(u[:, 0], [2 * size for _, size, _ in cases])


def test_a_step_integrates_its_length_from_what_is_finite_and_nothing_else():
    """In equal substeps, at one motion in its time or more; inputs are held."""
    system, most = motor(1), []
    start = jm.as_state(system, [0.6, -0.8])
    step = jm.stepper(system, start, 0.25, substeps=2)

    @jax.jit
    @jax.vmap
    def found(t, speed, push, rate):
        scale = dataclasses.replace(start.scale, rate=rate)
        state = dataclasses.replace(start, t=t, v=start.v + speed, scale=scale)
        inputs, method = problem_of(step, state, jnp.stack([3.0, push]))
        most.append(method.max_steps)
        field, end = inputs.field, inputs.ts[0]
        times = jnp.stack([inputs.t0, inputs.t1, end, method.dt0, field.scale.rate])
        return times, field.consistent, inputs.y0.packed, field.inputs(inputs.t0, inputs.y0)

    nan = np.nan
    cases = [
        (2.0, 7.0, 4.0, 0.0),
        (2.0, 7.0, 4.0, 50.0),
        (nan, 7.0, 4.0, 0.0),
        (2.0, nan, 4.0, 0.0),
        (2.0, 7.0, nan, 0.0),
    ]
    times, consistent, y0, u = found(*map(jnp.array, zip(*cases, strict=True)))
    still = [0.0, 0.0, 0.0, 0.125, 4.0]
    np.testing.assert_array_equal(times, [[2, 2.25, 2.25, 0.125, 4], [2, 2.25, 2.25, 0.125, 50], *[still] * 3])
    assert consistent.tolist() == [True, True, False, False, False] and most == [3]
    np.testing.assert_array_equal(y0, [[0.6, -0.8, 7, 7, 0]] * 2 + [[0] * 5] * 3)
    np.testing.assert_array_equal(u, [[3, 4]] * 4 + [[0, 0]])


def test_a_loop_traces_a_step_once():
    traced = []

    def push(t, q, v, p):
        traced.append(t)
        return -p["c"] * v

    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=push, params={"c": 0.1})
    start = jm.assemble(system, [0.0], [1.0])
    step = jm.stepper(system, start, DT)
    loop = jax.jit(lambda state, length: rollout(step, state, length=length).q[-1, 0], static_argnums=1)
    loop(step.start(), 2)
    before = len(traced)
    end = loop(step.start(), 200)  # another length is another loop of the same step
    assert len(traced) == before
    assert abs(end - (1 - np.exp(-0.2)) / 0.1) < 1e-9


@pytest.mark.parametrize(
    ("make_it", "error", "text"),
    [
        (lambda s, x: jm.stepper(s, x, jnp.nan), ValueError, "`dt` must be a positive number"),
        (lambda s, x: jm.stepper(s, x, -0.1), ValueError, "`dt` must be a positive number"),
        (lambda s, x: jm.stepper(s, x, 0.1, substeps=0), ValueError, "`substeps` must be a positive integer"),
        (lambda s, x: jm.stepper(s, x, 0.1)(x, jnp.zeros(3)), ValueError, r"`u` must have shape \(2,\)"),
        (
            lambda s, x: jm.stepper(s, x, 0.1).reset(jax.random.key(0), [0.1, 0.2, 0.3]),
            ValueError,
            r"`spread` must be a number or have shape \(2,\), but has shape \(3,\)",
        ),
        (
            lambda s, x: jm.stepper(s, x, 0.1, control=lambda t, q, v, p: jnp.zeros(2))(x, jnp.zeros(2)),
            ValueError,
            "`u` must be None where `control` makes the inputs",
        ),
        (
            lambda s, x: jm.stepper(s, x, 0.1, control=lambda t, q, v, p: jnp.zeros(3)),
            ValueError,
            r"`control` must return an array of shape \(2,\), but returns shape \(3,\)",
        ),
        (
            lambda s, x: jm.stepper(s, x, 0.1).reset(jax.random.key(0), {"z": 1.0}),
            ValueError,
            "'x' and 'y', but names 'z'",
        ),
        (lambda s, x: jm.stepper(s, x, 0.1).reset(0), TypeError, "`key` must be a key of `jax.random`, but is 0"),
        *(
            (lambda s, x, of=of: jm.stepper(s, x, 0.1).reset(jax.random.key(0), {"x": of}), ValueError, text)
            for of, text in (
                (-1.0, "for 'x' a number that is not negative, or a finite range"),
                ((1.0, 0.5), "for 'x' .* a finite range from its least to its largest value"),
                ((0.0, np.inf), "for 'x' .* a finite range"),
                ((0.0, 1.0, 2.0), r"for 'x', but has shape \(3,\)"),
            )
        ),
        (
            lambda s, x: jm.stepper(s, x, 0.1).start(dataclasses.replace(x, q=2 * x.q)),
            ValueError,
            "violated at the start",
        ),
        (
            lambda s, x: jm.stepper(s, x, 0.1, control=jm.control.Sampled(Lag(jnp.ones(())), 0.1)),
            ValueError,
            "continuous time",
        ),
    ],
)
def test_wrong_arguments(make_it, error, text):
    system = motor(1)
    with pytest.raises(error, match=text):
        make_it(system, jm.assemble(system, [-0.8, -0.6]))


def test_inputs_need_actuators():
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    with pytest.raises(ValueError, match="without actuators"):
        start = jm.assemble(system, [0.0])
        jm.stepper(system, start, DT)(start, jnp.zeros(1))


@pytest.mark.slow
def test_float32():
    with jax.enable_x64(False):
        system = motor(1)
        step = jm.stepper(system, jm.assemble(system, [-0.8, -0.6]), DT)
        after = step(step.start(), jnp.ones(2))
        assert after.q.dtype == jnp.float32 and abs(float(after.q @ after.q) - 1) < 1e-5


def test_steppers_that_differ_in_their_numbers_share_a_program(monkeypatch):
    """As long as that can be told: what has no hash gets one of its own."""
    system = motor(1)
    start = jm.as_state(system, [-0.8, -0.6])
    step = jm.stepper(system, start, DT)
    program_of = lambda k: _program_of(dataclasses.replace(step, system=system.with_params({"m": k, "l": 1.0})))[0]
    assert program_of(2.0) is program_of(3.0)
    monkeypatch.setattr(Blank, "hashable", False)
    assert program_of(4.0) is not program_of(5.0)


def test_what_cannot_be_assembled_is_drawn_anew(monkeypatch):
    """A point on a rod of 1 m whose x is drawn between 0.5 and 3; where none of 32 draws will do there is no state."""

    def start(key, system, around, deviation, ranges):
        x = jax.random.uniform(key, (), float, *ranges["x"])
        result = jm.RESULTS.where(x <= 1, jm.RESULTS.successful, jm.RESULTS.no_assembly)
        return SimpleNamespace(state=dataclasses.replace(around, q=jnp.stack([x, deviation[1]])), result=result)

    monkeypatch.setattr(importlib.import_module("jaxmb.simulation.stepper"), "_start", start)
    system = motor(1)
    step = jm.stepper(system, jm.as_state(system, [-0.8, -0.6]), DT)
    reset = lambda key, low: step.reset(key, {"x": jnp.stack([low, jnp.array(3.0)]), "y": 0.3}).q
    q = jax.jit(jax.vmap(reset))(
        jax.random.split(jax.random.key(0), 40), jnp.repeat(jnp.array([0.5, 0.96, 1.5]), 20)[:40]
    )
    found = np.isfinite(q[:, 0])
    assert found[:20].all() and 0 < found[20:].sum() < 20  # 1 in 51 draws will do there: almost one half of 32
    assert ((q[found, 0] >= 0.5) & (q[found, 0] <= 1)).all() and np.ptp(q[:20, 0]) > 0.3 and (q[found, 1] == 0.3).all()


def test_coordinates_with_ranges_are_drawn_within_them_and_held(monkeypatch):
    stepper = importlib.import_module("jaxmb.simulation.stepper")
    given, attempt = [], object.__new__(stepper.Attempt)
    monkeypatch.setattr(stepper, "try_assemble", lambda system, q, v, **more: given.append((q, v, more)) or attempt)
    system = jm.System(("x", "y", "z"), mass=lambda t, q, p: jnp.eye(3))
    around, none = jm.as_state(system, jnp.array([1.0, 2.0, 3.0]), jnp.ones(3), length=1.0), jnp.zeros(3)
    ranges = {"z": jnp.array([10.0, 20.0]), "x": jnp.array([-0.2, -0.1])}
    for seed in range(4):
        stepper._start(jax.random.key(seed), system, around, none, ranges)
        q, v, more = given[-1]
        assert 10 <= q[2] <= 20 and -0.2 <= q[0] <= -0.1 and q[1] == 2 and more["hold"] == ("z", "x")
        np.testing.assert_array_equal(v, around.v)
    assert len({float(q[0]) for q, *_ in given}) == 4


def test_a_regular_step_says_that_it_is_one():
    """And ends where any step does; from numbers that are not finite none is one."""
    system = motor(1)
    start = jm.assemble(system, [0.6, -0.8])
    step, made = jm.stepper(system, start, DT), jax.jit(regular_end)
    end, regular = made(step, start, jnp.zeros(2))
    after = step(start, jnp.zeros(2))
    np.testing.assert_allclose(end, [*after.q, *after.v], rtol=1e-12)
    assert regular and not made(step, start, jnp.full(2, jnp.nan))[1]


def test_a_step_is_a_regular_one_if_its_start_is_sound_and_its_motion_tells_nothing_else(monkeypatch):
    module, system = importlib.import_module("jaxmb.simulation.regular_step"), motor(1)
    start = jm.as_state(system, [0.6, -0.8])
    step = jm.stepper(system, start, DT)
    monkeypatch.setattr(module, "regular_if_possible", lambda method, field, *_: field)

    @jax.jit
    @jax.vmap
    def regular(irregular, failed, size, u):
        result = dfx.RESULTS.where(failed, dfx.RESULTS.max_steps_reached, dfx.RESULTS.successful)
        told = lambda inputs, method: SimpleNamespace(
            irregular=irregular, result=result, y=inputs.y0.like(inputs.y0.packed + size)
        )
        monkeypatch.setattr(module, "integrate", told)
        return regular_end(step, start, jnp.stack([0.0, u]))[1]

    cases = [(False, False, 1.0, 1.0), (True, False, 1.0, 1.0), (False, True, 1.0, 1.0), (True, False, 1.0, np.nan)]
    cases += [(False, False, np.inf, 1.0), (False, False, 1.0, np.nan)]
    assert regular(*map(jnp.array, zip(*cases, strict=True))).tolist() == [True, *[False] * 5]


@pytest.mark.parametrize("u", ["2", {"drive": 2.0}])
def test_inputs_of_the_wrong_kind_are_refused_by_name(u):
    system = motor(0)
    step = jm.stepper(system, jm.assemble(system), DT)
    for call in (step, step.with_result):
        with pytest.raises(TypeError, match="Argument `u` must be an array of numbers"):
            call(step.start(), u)


def test_the_vector_field_at_a_state_by_plain_operations(monkeypatch):
    monkeypatch.setattr(segments, "compiled_step_of", lambda *_: None)
    system = motor(1)
    state = jm.as_state(system, jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6]), length=1.0)
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, state.scale, jnp.array(True), None
    field, y = VectorField(system, *parts), StateVector.of(state.q, state.v, jnp.zeros(()))
    one = segments.Run.flow(SimpleNamespace(method=None), field, state.t, y, jnp.array([True]))
    other = ConstrainedSolver(dfx.Midpoint()).func(None, state.t, y, (field, jnp.array([True])))
    pull = np.array([0.0, -9.81])
    expected = pull - (pull @ state.q + state.v @ state.v) * state.q
    for found in (one, other):
        np.testing.assert_allclose([*found.q, *found.v, found.work], [*state.v, *expected, 0], atol=1e-12)
    assert dataclasses.replace(field, interrupted=True).begins_anew and not field.begins_anew
    # Where an inertia knows a way to M⁻¹F of its own it is gone without rows only; the work takes what its energy gains by time alone.
    monkeypatch.setattr(type(system.inertia), "explicit_power", lambda self, *_: jnp.array(3.0))
    monkeypatch.setattr(type(system.inertia), "solve", lambda self, t, q, force, params: 7.0 * force)
    loose = motor(0)
    free = dataclasses.replace(field, system=loose, scale=jm.as_state(loose, state.q, state.v).scale)
    for problem, vdot, power in ((field, expected, 0.0), (free, 7 * 2 * pull, 3.0)):
        in_use = jnp.ones(problem.system.m, bool)
        found = problem.evaluate_regular(state.t, y, in_use)[0]
        np.testing.assert_allclose([*found.v, found.work], [*vdot, power], atol=1e-12)
