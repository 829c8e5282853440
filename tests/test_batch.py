"""Batches: equal to single runs, to the end every time, and not spoilt by a bad row."""

import dataclasses
import functools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import fourbar, pendulum, top

import jaxmb as jm
from jaxmb.simulation.reverse_step import ReverseStep
from jaxmb.simulation.solver import ConstrainedSolver


def batch_of(system, state, count, v_spread=0.5):
    rng = np.random.default_rng(5)
    velocities = np.asarray(state.v) + v_spread * rng.normal(size=(count, system.nv))
    return jax.vmap(lambda v: jm.assemble(system, state.q, v))(jnp.array(velocities))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [pytest.param(lambda: fourbar(3), id="four-bar"), pytest.param(lambda: top(2), id="top", marks=pytest.mark.slow)],
)
def test_4096_systems_come_to_their_end(make):
    """Adaptive steps and redundant rows; single runs agree to 1e-12."""
    system, (q, v) = make()
    states = batch_of(system, jm.assemble(system, q, v), 4096)
    run = lambda s: jm.simulate(system, s, jnp.array([0.05, 0.1]), throw=False)
    sol = jax.jit(jax.vmap(run))(states)
    assert bool(jnp.all(sol.result == jm.RESULTS.successful)) and bool(jnp.all(jnp.isfinite(sol.q)))
    single = jax.jit(run)
    for i in (0, 17, 4095):
        alone = single(jax.tree.map(lambda x, i=i: x[i], states))
        np.testing.assert_allclose(sol.q[i], alone.q, atol=1e-12)
        np.testing.assert_allclose(sol.v[i], alone.v, atol=1e-11)


def spoilt(states, i, what):
    if what == "NaN":
        return eqx.tree_at(lambda s: s.q, states, states.q.at[i, 0].set(jnp.nan))
    return eqx.tree_at(lambda s: s.q, states, states.q.at[i, 0].add(0.3))


@functools.cache
def sixty_four():
    system, (q, v) = pendulum(2)
    return system, batch_of(system, jm.assemble(system, q, v), 64)


@functools.partial(jax.jit, static_argnums=1)
def motions(states, controller):
    method = {} if controller == "adaptive" else {"dt0": 0.005, "stepsize_controller": dfx.ConstantStepSize()}
    run = lambda s: jm.simulate(sixty_four()[0], s, jnp.array([0.5, 1.0]), throw=False, **method)
    return jax.vmap(run)(states)


@pytest.mark.slow_except("constant-NaN", "constant-inconsistent")
@pytest.mark.parametrize("what", ["NaN", "inconsistent"])
@pytest.mark.parametrize("controller", ["adaptive", "constant"])
@pytest.mark.slow_cases("constant-NaN")
def test_a_bad_row_is_flagged_and_disturbs_no_other(what, controller):
    _, states = sixty_four()
    good, bad = motions(states, controller), motions(spoilt(states, 7, what), controller)
    others = np.arange(64) != 7
    np.testing.assert_array_equal(np.asarray(good.q)[others], np.asarray(bad.q)[others])
    assert bool(jnp.all(jnp.isnan(bad.q[7])))
    assert bool(jnp.all((bad.result == jm.RESULTS.successful) == others))
    assert bool((bad.result == jm.RESULTS.inconsistent_state)[7])
    assert int(bad.stats["num_steps"][7]) <= 2


def swing():
    """A pendulum that is asked for at 1 s, by its speed at the start and by whether it fails after 0.2 s."""
    rod = jm.Holonomic("rod", lambda t, q, p: q @ q - 1)
    force = lambda t, q, v, p: jnp.array([0.0, -9.81]) + jnp.where((t > 0.2) & (p > 0), jnp.nan, 0.0)
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), force=force, constraints=[rod], params=jnp.zeros(()))
    state = jm.assemble(system, [0.6, -0.8], v=[0.8, 0.6])

    def run(speed, fails):
        start = dataclasses.replace(state, v=speed * state.v)
        method = {"stepsize_controller": dfx.PIDController(rtol=1e-9, atol=1e-9)}
        return jm.simulate(system.with_params(fails), start, jnp.array([1.0]), throw=False, **method)

    return run


def groups_of(monkeypatch, kind, name):
    """A list that grows by one for each row of a group that is worked on by a method."""
    method, found = getattr(kind, name), []

    def counted(*arguments):
        jax.debug.callback(lambda *_: found.append(name), jax.tree.leaves(eqx.filter(arguments, eqx.is_array))[0])
        return method(*arguments)

    monkeypatch.setattr(kind, name, counted)
    return found


SPEEDS = jnp.array([0.0, 1.0, 5.0, 30.0])


@pytest.mark.slow
def test_rows_that_are_over_cost_no_general_steps(monkeypatch):
    """A row that has come to its end, or failed, waits for the others: what is special about its last step is not done again and again."""
    groups = groups_of(monkeypatch, ConstrainedSolver, "_general_step")
    found = jax.jit(jax.vmap(swing()))(SPEEDS, jnp.array([0.0, 1.0, 0.0, 0.0]))
    jax.effects_barrier()
    assert (found.result == jm.RESULTS.successful).tolist() == [True, False, True, True]
    steps, rejected = found.stats["num_steps"], found.stats["num_rejected_steps"]
    assert steps[3] > 5 * steps[0] and steps[3] > 3 * steps[1], "The last row must be the longest by far."
    # A group holds all four rows. The first step, and what the failed row tries before it gives up, must be made generally.
    assert len(groups) / 4 <= rejected[1] + 5 < steps[3] / 3


@pytest.mark.slow
def test_rows_that_are_back_at_their_start_cost_no_general_steps(monkeypatch):
    groups = [groups_of(monkeypatch, ReverseStep, name) for name in ("_replay_general", "_general_step")]
    run = swing()
    slope = jax.jit(jax.vmap(jax.grad(lambda speed: run(speed, jnp.zeros(())).q[-1, 0])))
    assert jnp.all(jnp.isfinite(slope(SPEEDS)))
    jax.effects_barrier()
    assert max(map(len, groups)) / 4 <= 1


@pytest.mark.slow
def test_parameters_are_batched_and_differentiated_together():
    """vmap of a gradient equals gradients of single runs."""
    system, (q, v) = pendulum(2)

    def end(mass_and_length):
        m, length = mass_and_length
        changed = eqx.tree_at(lambda s: s.params, system, {"m": m, "l": length})
        return jm.simulate(changed, jm.assemble(changed, q, v), jnp.array([0.3])).q[-1, 0]

    grid = jnp.stack([jnp.linspace(1, 2, 4), jnp.linspace(0.7, 1.5, 4)], axis=1)
    together = jax.jit(jax.vmap(jax.grad(end)))(grid)
    single = jax.jit(jax.grad(end))
    for row, gradient in zip(grid, together, strict=True):
        np.testing.assert_allclose(gradient, single(row), atol=1e-12)
