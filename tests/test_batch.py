"""Batches: equal to single runs, to the end every time, and not spoilt by a bad row."""

import functools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import fourbar, pendulum, top

import jaxmb as jm


def batch_of(system, state, count, v_spread=0.5):
    rng = np.random.default_rng(5)
    velocities = np.asarray(state.v) + v_spread * rng.normal(size=(count, system.nv))
    return jax.vmap(lambda v: jm.assemble(system, state.q, v))(jnp.array(velocities))


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
    system, (q, v) = fourbar(2)
    return system, batch_of(system, jm.assemble(system, q, v), 64)


@functools.partial(jax.jit, static_argnums=1)
def motions(states, controller):
    method = {} if controller == "adaptive" else {"dt0": 0.005, "stepsize_controller": dfx.ConstantStepSize()}
    run = lambda s: jm.simulate(sixty_four()[0], s, jnp.array([0.5, 1.0]), throw=False, **method)
    return jax.vmap(run)(states)


@pytest.mark.parametrize("what", ["NaN", "inconsistent"])
@pytest.mark.parametrize("controller", ["adaptive", "constant"])
def test_a_bad_row_is_flagged_and_disturbs_no_other(what, controller):
    _, states = sixty_four()
    good, bad = motions(states, controller), motions(spoilt(states, 7, what), controller)
    others = np.arange(64) != 7
    np.testing.assert_array_equal(np.asarray(good.q)[others], np.asarray(bad.q)[others])
    assert bool(jnp.all(jnp.isnan(bad.q[7])))
    assert bool(jnp.all((bad.result == jm.RESULTS.successful) == others))
    assert bool((bad.result == jm.RESULTS.inconsistent_state)[7])
    assert int(bad.stats["num_steps"][7]) <= 2


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
