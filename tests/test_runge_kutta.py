"""Steps and runs of explicit Runge–Kutta methods as programs: their derivatives against formulas."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.lanes import Program, Shaped
from jaxmb.runge_kutta import StepProgram
from jaxmb.runge_kutta.method import time_at


def heun():
    """A step of y' = −a y by Heun's method."""
    number, pair = (Shaped(shape, jnp.dtype("float64")) for shape in ((), (2,)))
    stage = Program.of(lambda t, y, a: [-a * y, t > 1e9], number, pair, number)
    end = Program.of(lambda t, y, x, a: [-a * y, x + a, jnp.sum(y) > 1e9], number, pair, number, number)
    return StepProgram(stage, end, ((0.0, 0.0), (1.0, 0.0), (0.5, 0.5)), (0.0, 1.0, 1.0), False)


@pytest.mark.parametrize("timed", [False, True], ids=["times stay", "times change"])
@pytest.mark.parametrize("how", ["a program", "too large"])
def test_the_derivative_of_a_step_by_hand(how, timed, monkeypatch):
    """y₁ = y₀ (1 − z + z²/2), z = a h: as a program of its own, and of a step that is too large for one."""
    if how == "too large":
        monkeypatch.setattr("jaxmb.runge_kutta.tangent.LARGEST_DERIVATIVE", 1)
    program, h, a, y = heun(), 0.3, 1.7, np.array([2.0, -1.0])
    z = a * h

    def step(t1, y, a):
        y1, _, _, after, _ = program(jnp.array(0.0), t1, y, jnp.zeros(2), jnp.array(1.0), a)
        return y1, after

    at, ways = (jnp.array(h), jnp.asarray(y), jnp.array(a)), (jnp.array(0.5), jnp.array([1.0, 3.0]), jnp.array(2.0))
    if timed:
        found, dots = jax.jit(lambda: jax.jvp(step, at, ways))()
    else:
        found, dots = jax.jit(lambda: jax.jvp(functools.partial(step, at[0]), at[1:], ways[1:]))()
    np.testing.assert_allclose(found[0], y * (1 - z + z**2 / 2), rtol=1e-14)
    change = 2.0 * h + (0.5 * a if timed else 0.0)  # of z
    np.testing.assert_allclose(dots[0], np.array([1.0, 3.0]) * (1 - z + z**2 / 2) + y * (z - 1) * change, rtol=1e-13)
    np.testing.assert_allclose([found[1], dots[1]], [1.0 + a, 2.0], rtol=1e-15)


@pytest.mark.parametrize("lanes", [1, 37])
def test_what_a_step_calls_is_compiled_once(lanes):
    """Called by itself, at the start of a run, a function is the one that the step calls, its long operands too."""
    number, pair, long = (Shaped(shape, jnp.dtype("float64")) for shape in ((), (2,), (20,)))
    stage = Program.of(lambda t, y, a: [-a * y, t > 1e9], number, pair, number)
    end = Program.of(lambda t, y, x, a: [-a * y, x + a, jnp.sum(y) > 1e9], number, pair, long, number)
    step = StepProgram(stage, end, ((0.0, 0.0), (1.0, 0.0), (0.5, 0.5)), (0.0, 1.0, 1.0), False)
    names = lambda program: {unit.name for unit in program.module([True] * len(program.operands), lanes).units}
    assert names(stage) | names(end) == names(step) and len(names(step)) == 3


def test_beyond_the_last_time_nothing_is_due():
    times = jnp.array([1.0, 2.0])
    assert [float(time_at(times, k)) for k in jnp.arange(3)] == [1.0, 2.0, np.inf]


@functools.cache
def cart():
    """A mass of 1 kg under a force w t and the input."""
    force = lambda t, q, v, p: p["w"] * t * jnp.ones(1)
    return jm.System(
        1, mass=lambda t, q, p: jnp.eye(1), force=force, actuation=lambda t, q, p: jnp.eye(1), params={"w": 0.0}
    )


def after_samples(gain, force, adjoint=None):
    """The place after two samples, a second apart, each of which holds −k (s + t), by two steps of Heun's method a second."""
    law = jm.control.Sampled(jax.tree_util.Partial(lambda k, t, q, v, p: -k * (q + t), gain), 1.0)
    steps = {"dt0": 0.5, "stepsize_controller": dfx.ConstantStepSize(), "solver": dfx.Heun(), "max_steps": 8}
    system = cart().with_params({"w": force})
    return jm.simulate(system, jm.assemble(system, [1.0]), [2.0], control=law, adjoint=adjoint, **steps).q[-1, 0]


def by_hand(gain, force):
    """The same, by one sum for each step."""
    s, v, h = 1.0, 0.0, 0.5
    for t in np.arange(0.0, 2.0, h):
        held = -gain * (s + t) if t % 1.0 == 0 else held
        begin, end = held + force * t, held + force * (t + h)
        s, v = s + h * v + h**2 * begin / 2, v + h * (begin + end) / 2
    return s


POINT, STEP = (0.4, 0.7), 1e-30
SLOPES = [by_hand(0.4 + 1j * STEP, 0.7).imag / STEP, by_hand(0.4, 0.7 + 1j * STEP).imag / STEP]


@pytest.mark.slow_except("none")
@pytest.mark.parametrize("room", ["all", "none"])
def test_derivatives_through_samples_on_the_way_back(room, monkeypatch):
    """What stages keep for the way back may be too large to be kept."""
    if room == "none":
        monkeypatch.setattr("jaxmb.runge_kutta.run_adjoint.LARGEST_RESIDUALS", 0)
    place, slopes = jax.value_and_grad(after_samples, (0, 1))(*POINT)
    np.testing.assert_allclose([place, *slopes], [by_hand(*POINT), *SLOPES], rtol=1e-12)


def test_derivatives_through_samples_on_the_way():
    slope = jax.jvp(lambda *at: after_samples(*at, dfx.ForwardMode()), POINT, (1.0, 2.0))[1]
    np.testing.assert_allclose(slope, SLOPES[0] + 2 * SLOPES[1], rtol=1e-12)
