"""What functions given by the user may close over, and what compiles a program anew."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxmb as jm
from jaxmb.foundations import as_function
from jaxmb.system.scalar import _compiled

PARAMS = {"m": 1.0, "l": 1.0}


def pendulum(constraint=None, force=None, params=PARAMS):
    """A point on a rod in the plane, with a push along y."""
    return jm.System(
        2,
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * 9.81 * q[1],
        force=force,
        constraints=[jm.Holonomic("rod", constraint or (lambda t, q, p: q @ q - p["l"] ** 2))],
        actuation=lambda t, q, p: jnp.array([[0.0], [1.0]]),
        params=params,
    )


def end(k):
    """Where a motion ends whose control law, force and constraint close over a number each."""
    k0, k1, k2 = k
    inner = lambda x: k0 * x
    system = pendulum(force=lambda t, q, v, p: -k1 * v - k1 * q, constraint=lambda t, q, p: q @ q - k2)
    steps = {"dt0": 0.02, "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 16}
    state = jm.assemble(system, [0.6, -0.8])
    return jm.simulate(system, state, [0.2], control=lambda t, q, v, p: inner(q[:1]), **steps).q[0, 0]


@pytest.mark.slow
def test_functions_may_close_over_traced_values():
    """In programs, batches and derivatives of both modes."""
    k, step, run = jnp.array([0.8, 0.5, 1.3]), 1e-4, jax.jit(end)
    differences = [(run(k + step * e) - run(k - step * e)) / (2 * step) for e in jnp.eye(3)]
    assert np.abs(differences).min() > 1e-4
    np.testing.assert_allclose(end(k), run(k), rtol=1e-14)
    together = jax.vmap(jax.value_and_grad(end))(jnp.stack([k, 2 * k]))
    np.testing.assert_allclose(together[0], [run(k), run(2 * k)], rtol=1e-13)
    np.testing.assert_allclose(together[1][0], differences, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(end)(k), differences, rtol=1e-6)


LAWS = {
    "default": lambda k: lambda t, q, v, p, gains={"k": k}: gains["k"] * q[:1],
    "partial": lambda k: functools.partial(lambda k, t, q, v, p: k * q[:1], k),
}


@pytest.mark.parametrize("law", LAWS)
def test_traced_values_are_found_wherever_a_function_keeps_them(law):
    def value(k):
        fn = as_function(LAWS[law](k), "control")
        assert len(jax.tree.leaves(fn)) == 1
        return fn(0.0, jnp.array([3.0, 0.0]), None, None)[0]

    assert jax.grad(value)(1.0) == 3.0


def test_what_cannot_be_called_is_no_function():
    with pytest.raises(TypeError, match=r"`law` must be a function, but is 3"):
        as_function(3, "law")


@pytest.mark.slow
def test_guards_may_close_over_traced_values():
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1))

    def stop(limit):
        lock = jm.Lock(0, when=lambda t, q, v, reaction, p: q[0] - limit)
        return jm.simulate(system, jm.assemble(system, [0.0], [2.0]), [1.0], events=[lock], max_events=1).events.t[0]

    times, slopes = jax.vmap(jax.value_and_grad(stop))(jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(times, [0.25, 0.5], atol=1e-8)
    np.testing.assert_allclose(slopes, 0.5, rtol=1e-8)


def test_functions_without_traced_values_are_compiled_once():
    """A trace of the control law for each program: two equal calls share one."""
    traces, gain = [], jnp.array(2.0)

    def control(t, q, v, p):
        traces.append(1)
        return gain * q[:1]

    system = pendulum()
    state = jm.assemble(system, [0.6, -0.8])
    jm.simulate(system, state, [0.1], control=control)
    count = len(traces)
    jm.simulate(system, state, [0.2], control=control)
    assert len(traces) == count + 1  # its shape is looked at in each call


def test_an_assembly_and_a_run_share_the_functions_of_a_system(monkeypatch):
    """Both know which entries of its parameters are zero; inputs that are left out are the same as none."""
    keys = {}

    def noted(fn, blank, shapes):
        keys.setdefault(fn.__name__, set()).add((blank, shapes))
        return _compiled(fn, blank, shapes)

    monkeypatch.setattr("jaxmb.system.scalar._compiled", noted)
    rod = jm.Holonomic("rod", lambda t, q, p: q @ q - 1.0)
    force = lambda t, q, v, p: p["M"] @ jnp.array([0.0, -9.81])
    system = jm.System(
        2, lambda t, q, p: p["M"], force=force, constraints=[rod], params={"M": jnp.diag(jnp.array([1.0, 2.0]))}
    )
    state = jm.assemble(system, [0.6, -0.8])
    jm.simulate(system, state, [0.1])
    assert [len(keys[name]) for name in ("mass", "intrinsic_force", "applied_force")] == [1, 1, 1]
    zeros = jnp.zeros(()), state.q, state.v
    for more in ((), (None,)):
        jax.jit(lambda *given, more=more: system.applied_force(*given, *more))(*zeros)
    assert len(keys["applied_force"]) == 2  # this one without known entries


def test_parameters_from_anywhere_share_a_program():
    """Arrays, Python numbers, NumPy's and what an optimiser returns."""
    traces = []

    def constraint(t, q, p):
        traces.append(1)
        return q @ q - p["l"] ** 2

    base = pendulum(constraint=constraint)

    def run(params):
        system = base.with_params(params)
        state = jm.assemble(system, [0.6, -0.8])
        jm.energy(system, jm.simulate(system, state, [0.1]))
        jm.evaluate(system, state)

    params = {"m": jnp.array(1.0), "l": jnp.array(1.0)}
    run(params)
    count = len(traces)
    optimiser = optax.adam(1e-2)
    updates, _ = optimiser.update(jax.tree.map(jnp.ones_like, params), optimiser.init(params))
    weak = jax.tree.map(lambda x: jnp.asarray(1.0) * 2, PARAMS)
    assert weak["m"].weak_type
    for other in (PARAMS, {"m": np.float64(2.0), "l": np.array(1.1)}, optax.apply_updates(params, updates), weak):
        run(other)
    assert len(traces) == count


def total(angle, solver=None):
    """Of a short run's coordinates."""
    system = pendulum()
    start = jm.as_state(system, jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
    steps = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=0.05, max_steps=4)
    return jnp.sum(jm.simulate(system, start, [0.1], solver=solver, throw=False, **steps).q)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, dfx.ImplicitEuler(root_finder=dfx.VeryChord(rtol=1e-10, atol=1e-12))])
def test_both_modes_without_an_argument(solver):
    fn, angles = functools.partial(total, solver=solver), jnp.array([0.8, 1.1])
    forwards, backwards = (jax.jit(jax.vmap(mode(fn)))(angles) for mode in (jax.jacfwd, jax.grad))
    np.testing.assert_allclose(forwards, backwards, rtol=1e-9)


@pytest.mark.slow_cases("reverse of forward")
@pytest.mark.parametrize(
    "mode",
    [lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.grad(f)), lambda f: jax.grad(jax.jacfwd(f))],
    ids=["reverse of reverse", "forward of reverse", "reverse of forward"],
)
def test_second_derivatives_in_reverse_name_the_adjoint_that_has_them(mode):
    with pytest.raises((TypeError, RuntimeError), match=r"second derivative .* `adjoint=diffrax.DirectAdjoint\(\)`"):
        jax.eval_shape(mode(total), 0.8)
