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


def test_beyond_the_last_time_nothing_is_due():
    times = jnp.array([1.0, 2.0])
    assert [float(time_at(times, k)) for k in jnp.arange(3)] == [1.0, 2.0, np.inf]


@functools.cache
def cart():
    """A mass of 1 kg without any force but the input."""
    return jm.System(1, mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))


def after_samples(gain, adjoint=None):
    """The place after two samples, a second apart: each holds −k (s + t), exact in any method of second order."""
    law = jm.control.Sampled(jax.tree_util.Partial(lambda k, t, q, v, p: -k * (q + t), gain), 1.0)
    steps = {"dt0": 0.5, "stepsize_controller": dfx.ConstantStepSize(), "solver": dfx.Heun(), "max_steps": 8}
    return jm.simulate(cart(), jm.assemble(cart(), [1.0]), [2.0], control=law, adjoint=adjoint, **steps).q[-1, 0]


@pytest.mark.slow_except("none")
@pytest.mark.parametrize("room", ["all", "none"])
def test_derivatives_through_samples_on_the_way_back(room, monkeypatch):
    """s₁ = 1 − k/2, v₁ = −k, s₂ = s₁ + v₁ − k (s₁ + 1)/2; what stages keep for the way back may be too large to be kept."""
    if room == "none":
        monkeypatch.setattr("jaxmb.runge_kutta.run_adjoint.LARGEST_RESIDUALS", 0)
    place, slope = jax.value_and_grad(after_samples)(0.4)
    np.testing.assert_allclose([place, slope], [1 - 2.5 * 0.4 + 0.4**2 / 4, -2.5 + 0.4 / 2], rtol=1e-12)


def test_derivatives_through_samples_on_the_way():
    slope = jax.jvp(lambda k: after_samples(k, dfx.ForwardMode()), (0.4,), (1.0,))[1]
    np.testing.assert_allclose(slope, -2.5 + 0.4 / 2, rtol=1e-12)
