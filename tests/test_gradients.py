"""Gradients through whole motions: forward = reverse = central differences."""

import dataclasses
import functools
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from systems import driven_cart, fourbar, pendulum, sleigh, top

import jaxmb as jm
from jaxmb.formulation import OFFSETS, WEIGHTS
from jaxmb.simulation import adjoint, reverse_step
from jaxmb.simulation.adjoint import _Derivative
from jaxmb.simulation.compiled_step import CompiledStepAdjoint
from jaxmb.simulation.engine import adjoint_of
from jaxmb.simulation.method import Method
from jaxmb.simulation.phase import PhaseInputs, Tape
from jaxmb.simulation.reverse_step import Replay, ReverseStep, StepBars
from jaxmb.simulation.solver import ConstrainedSolver
from jaxmb.simulation.stages import Tableau
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.step_records import Blended, Interpolant
from jaxmb.simulation.vector_field import VectorField

TIGHT = dfx.PIDController(rtol=1e-11, atol=1e-12)
CASES = {
    "pendulum, 4 copies": lambda: pendulum(4),
    "four-bar, 3 loops": lambda: fourbar(3),
    "top": lambda: top(2),
    "sleigh, 3 blades": lambda: sleigh(3),
}


CONSTANT = {"dt0": 0.0125, "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 48}


def motion(name, adjoint, **steps):
    """Final state as a function of (params, guess of the velocities)."""
    system, (q, v) = CASES[name]()
    steps = steps or CONSTANT

    def run(arguments):
        params, v = arguments
        changed = eqx.tree_at(lambda s: s.params, system, params)
        state = jm.assemble(changed, q, v)
        sol = jm.simulate(changed, state, jnp.array([0.25, 0.5]), adjoint=adjoint, **steps)
        return jnp.concatenate([sol.q[-1], sol.v[-1], sol.q[0]])

    return run, (system.params, jnp.array(v))


@functools.cache
def jacobian(name, mode="reverse", **steps):
    """A program for all derivatives of a motion in flat arguments."""
    run, arguments = motion(name, dfx.ForwardMode() if mode == "forward" else None, **steps)
    _, unravel = jax.flatten_util.ravel_pytree(arguments)
    return jax.jit((jax.jacfwd if mode == "forward" else jax.jacrev)(lambda x: run(unravel(x))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("top", "sleigh, 3 blades", "four-bar, 3 loops") else n
        for n in CASES
    ],
)
def test_forward_reverse_and_differences(name):
    """Reverse from the tape = forward, to 1e-11 at default tolerances; at coarse steps to their drift, = central differences to 1e-6."""
    run, arguments = motion(name, None)
    flat, unravel = jax.flatten_util.ravel_pytree(arguments)
    rng = np.random.default_rng(0)
    direction, weight = (
        jnp.array(rng.normal(size=flat.size)),
        jnp.array(rng.normal(size=jax.eval_shape(run, arguments).shape)),
    )
    loss = jax.jit(lambda x: weight @ run(unravel(x)))
    reverse, forward = (weight @ jacobian(name, mode)(flat) for mode in ("reverse", "forward"))
    size = float(jnp.linalg.norm(forward))
    np.testing.assert_allclose(reverse, forward, atol=4e-9 * size)
    h = 2e-5
    difference = (
        8 * (loss(flat + h * direction) - loss(flat - h * direction))
        - loss(flat + 2 * h * direction)
        + loss(flat - 2 * h * direction)
    ) / (12 * h)
    np.testing.assert_allclose(reverse @ direction, difference, atol=1e-6 * size)
    reverse, forward = (weight @ jacobian(name, mode, max_steps=128)(flat) for mode in ("reverse", "forward"))
    np.testing.assert_allclose(reverse, forward, atol=1e-11 * size)


@pytest.mark.slow
def test_stored_steps_agree_with_the_tape():
    stored, arguments = motion("pendulum, 4 copies", dfx.RecursiveCheckpointAdjoint())
    flat, unravel = jax.flatten_util.ravel_pytree(arguments)
    expected = jax.jit(jax.jacrev(lambda x: stored(unravel(x))))(flat)
    np.testing.assert_allclose(jacobian("pendulum, 4 copies")(flat), expected, atol=1e-11)


@pytest.mark.slow
def test_the_tape_holds_the_states_only():
    """Half as much again as times and states of `max_steps` steps."""
    system, (q, v) = fourbar(1)
    state = jm.assemble(system, q, v)
    end = lambda v: jm.simulate(system, eqx.tree_at(lambda s: s.v, state, v), jnp.array([0.1]), max_steps=4096).q[-1, 0]
    needed = jax.jit(jax.grad(end)).lower(state.v).compile().memory_analysis().temp_size_in_bytes
    assert needed <= 1.5 * 4097 * 8 * (1 + system.nq + system.nv + 1)


@pytest.mark.slow_except("of the system-first slope from the last")
@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Heun()], ids=["first slope from the last", "all slopes new"])
@pytest.mark.parametrize("told", ["of the system", "by the controller"])
def test_gradient_across_jumps_of_the_force(solver, told):
    """A push a until t = 1/2, and from 3/4 on: x(1/2) = a/8, x(3/4) = a/4, x(1) = 13 a/32, a polynomial that both solvers follow exactly."""
    jumps = np.array([0.75, 0.5])
    push = lambda t, q, v, p: jnp.stack([jnp.where((t < jumps[1]) | (t > jumps[0]), p, 0.0), 0 * p])
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        force=push,
        constraints=[jm.Holonomic("rail", lambda t, q, p: q[1])],
        params=1.0,
        breaks=jumps if told == "of the system" else None,
    )
    state, controller = jm.as_state(system, [0.0, 0.0]), dfx.PIDController(rtol=1e-6, atol=1e-6)
    if told == "by the controller":
        controller = dfx.ClipStepSizeController(controller, jump_ts=jnp.sort(jumps))
    options = dict(solver=solver, stepsize_controller=controller, dt0=0.1, max_steps=1024)

    def run(a, adjoint=None):
        return jm.simulate(system.with_params(a), state, jnp.array([0.5, 0.75, 1.0]), adjoint=adjoint, **options)

    found = run(2.0)
    np.testing.assert_allclose(found.q[:, 0], [2 / 8, 2 / 4, 26 / 32], atol=1e-12)
    assert isinstance(solver, dfx.Heun) or found.stats["num_rejected_steps"] == 0
    assert told == "by the controller" or found.stats["compiled_steps"] == found.stats["num_accepted_steps"]
    ends = {
        "reverse": jax.jit(jax.jacrev(lambda a: run(a).q[:, 0])),
        "forward": jax.jit(jax.jacfwd(lambda a: run(a, dfx.ForwardMode()).q[:, 0])),
    }
    for slope in ends.values():
        np.testing.assert_allclose(slope(2.0), [1 / 8, 1 / 4, 13 / 32], atol=1e-12)


@pytest.mark.parametrize("engine", [None, pytest.param(jm.XLA(), marks=pytest.mark.slow)], ids=["compiled", "general"])
def test_gradient_by_the_time_of_a_bend_of_the_force(engine):
    """A push of 2 that grows from τ on by 3 (t − τ): x(1) = 1 + (1 − τ)³/2. No stage of the step before τ is behind it, wherever that is."""

    def end(tau):
        push = lambda t, q, v, p: jnp.stack([jnp.where(t < tau, 2.0, 2.0 + 3 * (t - p)), 0 * p])
        rail = jm.Holonomic("rail", lambda t, q, p: q[1])
        mass = lambda t, q, p: jnp.eye(2)
        system = jm.System(2, mass=mass, force=push, constraints=[rail], params=tau, breaks=jnp.stack([tau]))
        return jm.simulate(system, jm.as_state(system, [0.0, 0.0]), jnp.array([1.0]), engine=engine).q[-1, 0]

    times = jnp.linspace(0.1, 0.9, 33)
    found = jax.jit(jax.vmap(jax.value_and_grad(end)))(times)
    np.testing.assert_allclose(found, [1 + (1 - times) ** 3 / 2, -1.5 * (1 - times) ** 2], rtol=1e-11)


@pytest.mark.parametrize("engine", [jm.XLA(), pytest.param(None, marks=pytest.mark.slow)], ids=["general", "compiled"])
def test_gradient_through_samples_of_what_is_no_scalar_program(engine):
    """A sort is none: a motor's torque, held for half a second. Steps are coarse and moved back onto the rod; = differences, to what they are moved by.

    By where the run begins and ends it is the derivative of the motion, and that of the steps to their error.
    """
    system, state = on_a_rod(actuation=lambda t, q, p: (1 + t) * jnp.stack([-q[1], q[0]])[:, None])
    weights = np.random.default_rng(0).normal(size=(3, 4))

    def loss(x):
        begin, end, gain, mass, speed, *ts = x
        law = jm.control.Sampled(lambda t, q, v, p: jnp.sort(jnp.stack([gain * q[0] * p, 100.0]))[:1], 0.5)
        start = eqx.tree_at(lambda s: (s.t, s.v), state, (begin, speed * state.v))
        steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.05, "max_steps": 24, "engine": engine}
        found = jm.simulate(system.with_params(mass), start, jnp.stack([*ts, end]), control=law, **steps)
        return jnp.sum(weights * jnp.concatenate([found.q, found.v], axis=1))

    at, h = jnp.array([0.01, 0.93, 2.0, 1.3, 1.1, 0.23, 0.78]), 1e-4
    both = jax.jit(jax.value_and_grad(loss))
    slopes = both(at)[1]
    differences = np.array([(both(at + h * e)[0] - both(at - h * e)[0]) / (2 * h) for e in np.eye(at.size)])
    np.testing.assert_allclose(slopes[:2], differences[:2], rtol=5e-3)
    np.testing.assert_allclose(slopes[2:], differences[2:], rtol=1e-6)


@pytest.mark.slow
def test_gradient_with_adaptive_steps_is_that_of_the_motion():
    """d/d(g-like parameter) of a driven, redundant, nonholonomic motion at a tight tolerance."""
    system, (q, v) = driven_cart()

    def end(turn):
        state = jm.assemble(system, q, jnp.array(v) + turn * jnp.array([0.0, 0.0, 1.0, 0.0]))
        return jm.simulate(system, state, jnp.array([1.0]), stepsize_controller=TIGHT, max_steps=512).q[-1, 1]

    run, h = jax.jit(end), 1e-4
    np.testing.assert_allclose(jax.jit(jax.grad(end))(0.1), (run(0.1 + h) - run(0.1 - h)) / (2 * h), rtol=1e-6)


@pytest.mark.slow
def test_gradient_of_a_parameter_of_the_forces_only():
    """No row, no mass and no start depends on it: half of the linear equations has no derivative."""
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        potential=lambda t, q, p: p * q[1],
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)],
        params=9.81,
    )
    state = jm.assemble(system, [-1.0, 0.0])

    def end(gravity):
        changed = eqx.tree_at(lambda s: s.params, system, gravity)
        return jm.simulate(changed, state, [0.5], stepsize_controller=TIGHT, max_steps=512).q[-1, 0]

    run, h = jax.jit(end), 1e-4
    np.testing.assert_allclose(jax.jit(jax.grad(end))(9.81), (run(9.81 + h) - run(9.81 - h)) / (2 * h), rtol=1e-7)


@pytest.mark.slow
def test_steps_of_the_reverse_pass_are_those_taken():
    """At a tolerance near rounding; steps computed again from a checkpoint gave 2e-3 here."""
    from andrews_model import build

    system, state = build()

    def end(values):
        changed = eqx.tree_at(lambda s: s.params, system, system.params | values)
        controller = dfx.PIDController(rtol=1e-12, atol=1e-12)
        return jm.simulate(
            changed, state, [0.03], solver=dfx.Dopri8(), stepsize_controller=controller, max_steps=512
        ).q[-1, 0]

    values = {name: system.params[name] for name in ("mom", "rr")}
    found = jax.jit(jax.grad(end))(values)["mom"]
    run, h = jax.jit(end), 1e-4 * values["mom"]
    ends = [run(values | {"mom": values["mom"] + s * h}) for s in (1, -1)]
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


@functools.cache
def falling():
    """A mass that falls under a force p − k q, and its state at rest."""
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: p - 40 * q**3, params=1.0)
    return system, jm.as_state(system, [1.0])


@pytest.mark.parametrize("mode", ["reverse", "forward", pytest.param("events", marks=pytest.mark.slow)])
@pytest.mark.slow_cases("reverse")
def test_what_a_failed_run_did_not_reach_has_no_derivative(mode):
    """NaN by all that the run depends on, in the rows of a batch that failed, and only where anybody asks for it."""
    system, start = falling()
    events = [jm.Lock(0, when=lambda t, q, v, reaction, p: 0.5 - q[0])] if mode == "events" else []

    def run(x, end):
        changed, state = system.with_params(x[0]), eqx.tree_at(lambda s: s.v, start, x[1:])
        adjoint = dfx.ForwardMode() if mode == "forward" else None
        ts = jnp.stack([jnp.array(0.01), end])
        # Beside a guard a run takes 50 steps at least.
        count = 64 if events else 24
        steps = {"adjoint": adjoint, "max_steps": count, "throw": False, "events": events, "max_events": 1}
        found = jm.simulate(changed, state, ts, **steps)
        return jnp.append(found.q[:, 0], found.events.t[0] if events else 0.0)

    jacobian = jax.jit(jax.vmap((jax.jacfwd if mode == "forward" else jax.jacrev)(run), (None, 0)))
    slopes = jacobian(jnp.array([1.0, 0.1]), jnp.array([0.02, 2e3 if not events else 0.015]))
    near = slice(0, 1)  # what was reached, in rows that fail too
    assert np.isfinite(slopes[:, near]).all() and np.abs(slopes[:, near]).min() > 0
    assert np.isfinite(slopes[:, 1]).all() == bool(events)
    if events:  # it has not come to the lock
        assert np.isnan(slopes[:, 2]).all()
    else:
        assert np.isnan(slopes[1, 1]).all() and np.isfinite(slopes[0, 1]).all()


def on_a_rod(**more):
    """A damped mass on a rod of 1 m, which is pushed to and fro, and a state of it."""
    rod = jm.Holonomic("rod", lambda t, q, p: q @ q - 1.0)
    force = lambda t, q, v, p: jnp.stack([4.0 * jnp.sin(3.0 * t), -9.81 * p]) - 0.3 * v
    system = jm.System(
        ("x", "y"), mass=lambda t, q, p: p * jnp.eye(2), force=force, params=1.3, constraints=[rod], **more
    )
    return system, jm.assemble(system, [0.6, -0.8], [0.8, 0.6])


def swept_back():
    """The reverse sweep over two steps of a mass on a rod, far from any singular pose, by its parameter, with a state of it."""
    system, state = on_a_rod()
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, state.scale, jnp.array(True), None
    field, y = VectorField(system, *parts), StateVector.of(state.q, state.v, jnp.zeros(()))
    moves = eqx.tree_at(lambda f: f.system.params, jax.tree.map(lambda _: False, field), True)
    steps = dfx.ConstantStepSize(), None, None, dfx.NoProgressMeter(), None, None
    ts = jnp.array([0.0, 1.0, 3.0])
    tape = Tape(ts[:2], jax.tree.map(lambda x: jnp.stack([x, x]), y), jnp.array(2), ts[1:], y)
    active, rest = eqx.partition(field, moves)
    method, in_use = Method(ConstrainedSolver(dfx.Bosh3()), *steps), jnp.ones(1, bool)
    return active, y, ReverseStep(rest, method, tape, None, in_use, jnp.array(True))


def test_saved_states_are_read_off_the_steps_in_which_they_lie_and_the_end_off_the_last():
    """The cotangents are those of Σ x̄ᵀ y(t), y leading from the start of the step to its corrected end."""
    _, y, reverse = swept_back()
    rng = np.random.default_rng(0)
    random = lambda *shape: y.like(jnp.asarray(rng.normal(size=(*shape, 5))))
    dense, bars = Interpolant(random(4), random(), random(), random()), random(5)
    # The last time is where an event has ended the run.
    times = jnp.array([0.2, 0.7, 1.0, 2.2, 2.8])

    @jax.jit
    def both(k, reached, read):
        value = lambda t, dense=dense: dense.at(reverse.method.solver.interpolation_cls, *reverse.span(k), t).packed
        total = lambda dense, times: jnp.sum(read[:, None] * bars.packed * jax.vmap(lambda t: value(t, dense))(times))

        found = reverse.read(k, dense, times, bars, jnp.zeros(5), reached), [value(t) for t in reverse.span(k)]
        ends = dense.y0.packed, dense.raw.packed + dense.shift.packed
        return jax.tree.leaves(found), jax.tree.leaves((jax.grad(total, (0, 1))(dense, times), ends))

    for k, reached, read in ((0, 4, [1, 1, 1, 0, 0]), (1, 4, [0, 0, 0, 1, 1]), (1, 3, [0, 0, 0, 0, 1])):
        for found, expected in zip(*both(k, reached, jnp.array(read)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_step_of_no_length_has_a_state_and_a_derivative():
    """By which a row of a batch waits."""

    def end(y):
        inner = dfx.LocalLinearInterpolation(t0=jnp.array(1.0), t1=jnp.array(1.0), y0=y, y1=y)
        return Blended(t0=jnp.array(1.0), t1=jnp.array(1.0), inner=inner, shift=0 * y).evaluate(jnp.array(1.0))

    value, slope = jax.value_and_grad(end)(jnp.array(2.0))
    assert value == 2 and jnp.isfinite(slope)


def test_a_step_is_made_again_by_the_general_program_where_rows_are_not_certain():
    """And only there: at the centre the row of the rod is lost."""
    active, y, reverse = swept_back()
    again = jax.jit(lambda y: reverse.smooth_sweep.replay_smooth(active, jnp.zeros(()), jnp.array(1e-3), y)[2])
    assert [bool(again(at)) for at in (y, y.with_qv(1e-4 * y.q, y.v), y.like(jnp.inf + y.packed))] == [
        False,
        True,
        True,
    ]


class Compiled(eqx.Module):
    """A step by what it is given, of which the slopes tell the time and the state, and cotangents that tell what they are of."""

    irregular: jax.Array

    def replay(self, moves, rest, in_use, t0, t1, y0):
        slopes = jnp.stack([t0 + y0.packed, t1 + y0.packed, y0.packed, y0.packed])
        return y0.like(y0.packed + 7), y0.like(slopes), self.irregular

    def pull(self, moves, rest, in_use, t0, t1, *operands):
        *rest_of, reused = operands
        y0, slopes, y1, end, raw, start, slopes_bar = rest_of
        return end + raw + start + y1 + y0, slopes_bar[-1] + slopes[-1] + jnp.where(reused, t0, t1), moves


@functools.cache
def with_compiled():
    """The reverse sweep over three steps by compiled code; a jump lies behind the second one, and an event ends the third."""
    active, y, reverse = swept_back()
    ys = y.like(jnp.stack([y.packed, y.packed + 1, y.packed + 2]))
    ts = jnp.array([0.0, 1.0, 2.5, 9.0])
    tape = Tape(ts[:3], ys, jnp.array(3), jnp.array([1.0, 2.0, 4.0]), y.like(y.packed + 3))
    reverse = dataclasses.replace(reverse, tape=tape)
    compiled = Compiled(jnp.array(False))
    return active, y.packed, eqx.tree_at(lambda r: r.compiled, reverse, compiled, is_leaf=lambda x: x is None)


def test_a_compiled_step_is_made_again_and_by_the_general_program_where_it_is_irregular(monkeypatch):
    """Or where rows have not been the same all the time; a row of a batch that is back at its start waits."""
    monkeypatch.setattr(ReverseStep, "_replay_general", lambda self, active, k: "general")
    monkeypatch.setattr(
        reverse_step, "with_fallback", lambda when, fn, arguments, usual: (bool(when), fn(*arguments), usual)
    )
    active, y, reverse = with_compiled()
    for irregular, steady, k, again in (
        (False, True, 0, False),
        (True, True, 0, True),
        (False, False, 1, True),
        (True, True, -1, False),
    ):
        changed = (jnp.array(irregular), jnp.array(steady))
        changed = eqx.tree_at(lambda r: (r.compiled.irregular, r.steady), reverse, changed)
        found, general, usual = changed.replay(active, jnp.array(k))
        assert (found, general, bool(usual.regular)) == (again, "general", not again)
    for k, (t0, t1, end) in enumerate(((0.0, 1.0, 1), (1.0, 2.0, 2), (2.5, 4.0, 3))):  # the last one beyond an event
        _, _, usual = reverse.replay(active, jnp.array(k))
        np.testing.assert_array_equal(usual.dense.y0.packed, y + k)
        np.testing.assert_array_equal(usual.dense.slopes.packed[:2], [t0 + y + k, t1 + y + k])
        np.testing.assert_allclose(usual.dense.raw.packed + usual.dense.shift.packed, y + end, rtol=1e-14)
        np.testing.assert_allclose(usual.dense.raw.packed, y + k + 7, rtol=1e-14)
        assert not usual.near.any() and not usual.tau.any() and usual.in_use.all()
    # Bogacki and Shampine's last slope is the first of the next step, where that begins where this one has ended.
    assert [bool(reverse.reuses(jnp.array(k))) for k in range(3)] == [False, True, False]


def test_cotangents_of_a_step_are_those_of_its_ends_its_slopes_and_its_start(monkeypatch):
    """The corrected end and that before are apart by the shift; the slope that the next step takes is the last one over the step's length."""
    (active, _, reverse), irregular = with_compiled(), []
    usually = lambda when, fn, arguments, usual: irregular.append(bool(when)) or usual
    monkeypatch.setattr(reverse_step, "with_fallback", usually)
    replay = reverse.replay(active, jnp.array(2))
    like, rng = replay.dense.y0.like, np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(*shape, 5)))
    end, slope, slopes, y0, raw, shift = draw(), draw(), draw(4), draw(), draw(), draw()
    bars = Interpolant(*map(like, (slopes, y0, raw, shift)))
    state_bar, slope_bar, moved, time_bar = reverse.step(active, jnp.array(2), replay, like(end), like(slope), bars)
    dense = replay.dense
    y1 = dense.raw.packed + dense.shift.packed
    expected = (end + shift) + (raw - shift) + y0 + y1 + dense.y0.packed
    np.testing.assert_allclose(state_bar.packed, expected, rtol=1e-13)
    np.testing.assert_allclose(slope_bar.packed, slopes[-1] + slope / 1.5 + dense.slopes.packed[-1] + 4.0, rtol=1e-13)
    np.testing.assert_allclose(time_bar, -jnp.vdot(expected, dense.slopes.packed[0]) / 1.5, rtol=1e-13)
    assert jax.tree.structure(moved) == jax.tree.structure(active)
    other = dataclasses.replace(replay, regular=jnp.array(False))
    reverse.step(active, jnp.array(2), other, like(end), like(slope), bars)
    assert irregular[-2:] == [False, True]


def test_a_stage_and_an_end_are_swept_back_far_from_singular_poses_as_anywhere():
    """Along any direction both are what forward mode finds: of the vector field, and of the correction."""
    active, y, reverse = swept_back()
    reverse = dataclasses.replace(reverse, smooth=True)
    rng, t, in_use = np.random.default_rng(0), jnp.zeros(()), reverse.in_use
    dot, bar = (y.like(jnp.asarray(rng.normal(size=5))) for _ in range(2))
    none = jax.tree.map(jnp.zeros_like, y)
    unused = Interpolant(none, none, none, none), jnp.zeros(4, bool), jnp.zeros(4)
    replay = Replay(unused[0], in_use, None, *unused[1:], jnp.array(True))
    flow = lambda active, y: reverse.field(active).evaluate_regular(t, y, in_use)[0]
    corrected = lambda active, y: reverse.field(active).correct(t, y, in_use)

    @jax.jit
    def both(active, y):
        dots = (active, y), (jax.tree.map(jnp.ones_like, active), dot)
        (_, flow_dot), (end, end_dot) = (eqx.filter_jvp(fn, *dots) for fn in (flow, corrected))

        def back(ends):
            bars = bar.where(~ends, none), ends, end, bar.where(ends, none)
            y_bar, active_bar = reverse.pull(active, replay, t, y, ends, t, *bars)
            return jnp.vdot(y_bar.packed, dot.packed) + active_bar.system.params

        return bar.packed @ jnp.stack([flow_dot.packed, end_dot.packed]).T, jax.lax.map(back, jnp.array([False, True]))

    forward, back = both(active, y.like(y.packed.at[1].add(1e-6)))
    np.testing.assert_allclose(back, forward, rtol=1e-9)


def test_a_stage_that_is_interpolated_is_swept_back_over_its_samples():
    """Which are corrected, each at its time: along any direction what forward mode finds."""
    active, y, reverse = swept_back()
    rng, t, tau, in_use = np.random.default_rng(0), jnp.zeros(()), jnp.array(0.05), reverse.in_use
    dot, bar = (y.like(jnp.asarray(rng.normal(size=5))) for _ in range(2))
    none, no = jax.tree.map(jnp.zeros_like, y), jnp.array(False)
    replay = Replay(Interpolant(none, none, none, none), in_use, None, jnp.zeros(4, bool), jnp.zeros(4), no)

    def flow(active, y):
        field = reverse.field(active)

        def add(total, part):
            offset, weight = tau * part[0], part[1]
            shifted = y.with_qv(y.q + offset * field.system.qdot(y.q, y.v), y.v)
            sample = field.evaluate_regular(t + offset, field.correct(t + offset, shifted, in_use), in_use)[0]
            return total.plus(sample, weight), None

        return jax.lax.scan(add, none, (jnp.array(OFFSETS), jnp.array(WEIGHTS)))[0]

    @jax.jit
    def both(active, y):
        _, forward = eqx.filter_jvp(flow, (active, y), (jax.tree.map(jnp.ones_like, active), dot))
        y_bar, active_bar = reverse.pull(active, replay, t, y, ~no, tau, bar, no, y, none)
        return bar.packed @ forward.packed, jnp.vdot(y_bar.packed, dot.packed) + active_bar.system.params

    forward, back = both(active, y)
    np.testing.assert_allclose(back, forward, rtol=1e-9)


def test_a_run_is_swept_back_from_what_it_has_reached(monkeypatch):
    """Where it has ended before its time that does not move the end; without an accepted step all that is saved is the start."""
    active, y, reverse = swept_back()
    field, given, told = eqx.combine(active, reverse.rest), [], None

    def sweep(reverse, moves, times, bars, reached):
        given.append((times.tolist(), bars.packed[:, 0].tolist(), int(reached)))
        return y.like(jnp.full(5, 3.0)), jax.tree.map(lambda x: 0 * x + 7, moves), times + 5, jnp.array(11.0)

    compiled = lambda reverse, moves, times, bars, reached: told and (
        (y, jax.tree.map(lambda x: 0 * x + 70, moves), 0 * times + 50, jnp.array(110.0)), jnp.array(told[0])
    )  # fmt: skip
    monkeypatch.setattr(adjoint, "adjoint_of", lambda *_: None)
    monkeypatch.setattr(adjoint, "compiled_run_adjoint", compiled)
    again = lambda when, fn, arguments, usual: fn(*arguments) if when else usual
    monkeypatch.setattr(adjoint, "with_fallback", again)
    monkeypatch.setattr(adjoint, "_step_by_step", sweep)
    moving = eqx.tree_at(lambda f: f.system.params, jax.tree.map(lambda _: False, field), True)
    inputs = PhaseInputs(field, jnp.zeros(()), jnp.array(3.0), y, jnp.array([1.0, 2.0, 2.5]))
    bars = y.like(jnp.broadcast_to(jnp.array([[1.0], [2.0], [4.0]]), (3, 5)))

    def back(reached, count, steady=True):
        tape = dataclasses.replace(reverse.tape, count=jnp.array(count))
        taped = tape, jnp.array(reached), reverse.in_use, jnp.array(steady)
        found = adjoint._backward(inputs, reverse.method, moving, taped, bars, y.like(jnp.full(5, 8.0)))
        return [float(jnp.max(x)) for x in (found[0].system.params, *found[1:])], len(found[-1])

    assert back(3.0, 2) == ([7, 11, 8, 3, 7.5], 3) and given.pop() == ([1, 2, 2.5, 3], [1, 2, 4, 8], 3)
    assert back(2.25, 2) == ([7, 11, 0, 3, 7.5], 3) and given.pop() == ([1, 2, 2.5, 2.25], [1, 2, 0, 8], 2)
    assert back(3.0, 0) == ([0, 0, 0, 15, 0], 3)
    # By compiled code where no step was irregular and the rows were always the same.
    for irregular, steady, number in ((False, True, 70), (True, True, 7), (False, False, 7)):
        told = (irregular,)
        assert back(3.0, 2, steady)[0][0] == number


@pytest.mark.parametrize("solver", [dfx.Bosh3(), dfx.Midpoint()], ids=["first same as last", "with an end added"])
def test_a_step_is_swept_back_from_its_corrected_end_to_its_first_stage(solver):
    """As reverse mode does it; a first slope that the step before has evaluated has a cotangent of its own."""
    rng, tableau, t0, t1 = np.random.default_rng(0), Tableau.of(solver, float), 1.5, 2.25
    (a, c), h, like = tableau.with_end, t1 - t0, lambda x: StateVector(x, 2, 2)
    s, turn = len(a) - 1, jnp.asarray(rng.normal(size=(5, 5)))
    draw = lambda *shape: jnp.asarray(rng.normal(size=(*shape, 5)))
    y0, slope, number, bars = draw(), draw(), jnp.array(0.7), [draw(), draw(), draw(), draw(s)]
    near, tau = np.arange(s) == 1, 0.1 * np.arange(1.0, s + 1)
    rate = lambda number, t, y, near, tau: jnp.sin(number * t + turn @ y) * (1 + 0.5 * near + tau)
    corrected = lambda number, t, y, near, tau: y + 0.1 * jnp.cos(number * t * y) * (near + tau)

    def made(y0, slope, number, reused):
        k = []
        for i in range(s):
            y = y0 + sum(a[i, j] * k[j] for j in range(i))
            own = rate(number, t0 + c[i] * h, y, near[i], tau[i])
            k.append(h * (jnp.where(reused, slope, own) if i == 0 else own))
        k = jnp.stack(k)
        raw = y0 + a[s] @ k
        return corrected(number, t1, raw, 1, 0), raw, y0, k

    def pull(active, replay, t, y, near, tau, flow_bar, ends, y1, end_bar):
        back = lambda fn, bar: jax.vjp(lambda x, y: fn(x, t, y, near, tau), active, y.packed)[1](bar.packed)
        number_bar, y_bar = jax.tree.map(
            lambda one, other: jnp.where(ends, one, other), back(corrected, end_bar), back(rate, flow_bar)
        )
        return like(y_bar), number_bar

    @jax.jit
    def both(reused):
        told, exact = jax.vjp(lambda *x: made(*x, reused), y0, slope, number)
        end, raw, _, k = told
        dense = Interpolant(*map(like, (k, y0, raw, end - raw)))
        padded = [jnp.append(x, x[:1])[: len(tableau.a)] for x in (near, tau)]
        replay = Replay(dense, jnp.ones(1, bool), None, *padded, jnp.array(True))
        span = lambda k: (jnp.array(t0), jnp.array(t1))
        sweep = SimpleNamespace(span=span, tableau=tableau, reuses=lambda k: reused, pull=pull)
        names = ("end", "raw", "start", "slopes")
        given = StepBars(**{name: like(bar) for name, bar in zip(names, bars, strict=True)})
        found = ReverseStep._general_step(sweep, number, jnp.array(0), replay, given)
        return [found[0].packed, found[1].packed, found[2]], exact(tuple(bars))

    for reused in (False, True):
        for found, expected in zip(*both(jnp.array(reused)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("made", [falling, pytest.param(on_a_rod, marks=pytest.mark.slow)])
def test_second_derivatives_in_forward_mode(made):
    """By what the inner derivative is along, by what it is not, and by both: the states between have tangents too."""
    system, start = made()

    def run(number, speed):
        state, ts = eqx.tree_at(lambda s: s.v, start, speed * start.v), jnp.array([0.2, 0.5])
        # Constant steps, so that central differences are smooth.
        steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
        return jm.simulate(system.with_params(number), state, ts, **steps).q[:, 0]

    start = eqx.tree_at(lambda s: s.v, start, jnp.where(start.v == 0, 0.1, start.v))
    at, h = (jnp.array(1.1), jnp.array(1.0)), 1e-4
    slopes = jax.jit(jax.jacfwd(run, (0, 1)))
    second = jax.jit(jax.jacfwd(jax.jacfwd(run, (0, 1)), (0, 1)))(*at)
    mixed = jax.jit(jax.jacfwd(jax.jacfwd(run, 1), 0))(*at)
    for j in range(2):
        ends = [slopes(*(x + sign * h * (k == j) for k, x in enumerate(at))) for sign in (1, -1)]
        for i in range(2):
            difference = (ends[0][i] - ends[1][i]) / (2 * h)
            assert np.abs(difference).max() > 1e-5
            np.testing.assert_allclose(second[i][j], difference, atol=1e-9)
    np.testing.assert_allclose(mixed, second[1][0], rtol=1e-12)


@pytest.mark.slow
def test_second_derivatives():
    """Forward over reverse with `DirectAdjoint`."""
    run, (params, v) = motion("pendulum, 4 copies", dfx.DirectAdjoint())
    flat = lambda v: jax.flatten_util.ravel_pytree((params, v))[0]
    slope = lambda v: jacobian("pendulum, 4 copies")(flat(v))[0, -2:]
    hessian = jax.jit(jax.jacfwd(jax.grad(lambda v: run((params, v))[0])))(v)
    h = 1e-5
    columns = [(slope(v + h * e) - slope(v - h * e)) / (2 * h) for e in jnp.eye(2)]
    np.testing.assert_allclose(hessian, np.stack(columns, 1), atol=1e-7)


def test_a_compiled_step_is_replayed_where_it_is_as_certain_and_finite_as_when_it_was_made():
    """Its slopes and its end before the correction, from a first slope and a basis that are not known."""
    active, y, reverse = with_compiled()
    rest, like = reverse.rest, StateVector(y, 2, 2)

    def found(near=False, uncertified=False, bad=0.0, bad_slope=0.0):
        def step(t0, t1, y0, slope, basis, in_use, *arrays):
            assert not slope.any() and basis.shape == (0,) and (t0, t1) == (1, 2)
            return y0 + 1 + bad, (y0 + bad_slope)[None], jnp.array(near), jnp.array(uncertified)

        compiled = SimpleNamespace(step=step)
        return CompiledStepAdjoint.replay(
            compiled, active, rest, jnp.ones(rest.system.m, bool), jnp.array(1.0), jnp.array(2.0), like
        )

    raw, slopes, irregular = found()
    np.testing.assert_array_equal(raw.packed, y + 1)
    np.testing.assert_array_equal(slopes.packed, y[None])
    assert not irregular
    wrong = {"near": True}, {"uncertified": True}, {"bad": jnp.zeros(5).at[2].set(jnp.inf)}, {"bad_slope": jnp.nan}
    assert all(found(**case)[2] for case in wrong)


def test_a_step_is_made_again_by_compiled_code_as_by_plain_operations():
    """And swept back as far from singular poses."""
    active, y, reverse = swept_back()
    rest, like, rng = reverse.rest, y.like, np.random.default_rng(0)
    compiled = adjoint_of(reverse.method, active, rest, y)
    bars = StepBars(*(like(jnp.asarray(rng.normal(size=shape))) for shape in (5, 5, 5, (4, 5))))

    ours, first = eqx.tree_at(lambda r: r.compiled, reverse, compiled, is_leaf=lambda x: x is None), jnp.array(0)

    @jax.jit
    def both():
        t0, t1 = reverse.span(first)
        steps = [
            compiled.replay(active, rest, reverse.in_use, t0, t1, y),
            reverse.smooth_sweep.replay_smooth(active, t0, t1, y),
        ]
        (raw, slopes, _), none = steps[1], jnp.zeros(4)
        end = reverse.field(active).correct(t1, raw, reverse.in_use)
        dense = Interpolant(slopes, y, raw, end.plus(raw, -1.0))
        replay = Replay(dense, reverse.in_use, None, none > 0, none, jnp.array(True))
        swept = [sweep._regular_step(active, first, replay, bars) for sweep in (ours, reverse)]
        return [(jax.tree.leaves(x), jax.tree.leaves(z)) for x, z in zip(steps, swept, strict=True)]

    (step, swept), (same, expected) = both()
    assert not step[-1] and not same[-1]
    for one, other in zip(step + swept, same + expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_slope_is_not_taken_over_by_compiled_code_where_a_step_may_begin_anew():
    reverse = SimpleNamespace(rest=SimpleNamespace(begins_anew=True), compiled="code")
    assert not ReverseStep.reuses(reverse, jnp.array(1))


def test_an_increment_within_a_step_is_that_of_its_states():
    inner = dfx.LocalLinearInterpolation(t0=1.0, t1=3.0, y0=jnp.array([2.0]), y1=jnp.array([6.0]))
    blended = Blended(t0=1.0, t1=3.0, inner=inner, shift=jnp.array([8.0]))
    # 2 t, and a quarter of the time in 5/32 of the shift
    np.testing.assert_allclose(blended.evaluate(1.5), 3 + 8 * 5 / 32, rtol=1e-14)
    np.testing.assert_allclose(blended.evaluate(1.5, 3.0), 6 + 8 - (3 + 8 * 5 / 32), rtol=1e-14)


def test_cotangents_by_checkpoints_are_those_of_what_moves():
    """With as many checkpoints as there may be steps."""
    adjoints = []

    def run(residuals, adjoint):
        adjoints.append(adjoint)
        return lambda x, y: [x**2 * y, 3 * x], *residuals

    blank = SimpleNamespace(filled=lambda arrays: (None, SimpleNamespace(max_steps=16), None, None))
    found = _Derivative.by_checkpoints(
        SimpleNamespace(_run=run, blank=blank, count=2), list(jnp.array([2.0, 5.0])), [jnp.array(7.0), jnp.array(11.0)]
    )
    np.testing.assert_allclose(found, [7 * 2 * 2 * 5 + 11 * 3, 7 * 4])
    assert isinstance(adjoints[0], dfx.RecursiveCheckpointAdjoint) and adjoints[0].checkpoints == 16
