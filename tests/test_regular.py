"""Programs without steps near singular configurations: the same motion and derivatives away from these, and a verdict near them."""

import dataclasses
import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import nfourbar
import numpy as np
import parallelogram
import pytest
from jax.flatten_util import ravel_pytree
from systems import fourbar, sleigh, top

import jaxmb as jm

SYSTEMS = {
    "four-bar": lambda: fourbar(1),
    "parallelogram": lambda: (parallelogram.parallelogram(), parallelogram.pose(jnp.array(1.2), jnp.array(-1.0))),
    "sleigh": lambda: sleigh(3),
    "top": lambda: top(2),
}
TS = jnp.linspace(0.0, 0.1, 4)


@functools.cache
def case(name):
    system, start = SYSTEMS[name]()
    return system, jm.assemble(system, *start)


def motion(system, state, numbers, engine=None, **settings):
    params, v = numbers
    settings = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 2e-3, "throw": False} | settings
    return jm.simulate(system.with_params(params), dataclasses.replace(state, v=v), TS, engine=engine, **settings)


REGULAR = jm.XLA(singular=False)
FEW = [name if name == "four-bar" else pytest.param(name, marks=pytest.mark.slow) for name in SYSTEMS]


@pytest.mark.parametrize("name", FEW)
def test_motion_and_derivatives_are_the_same(name):
    """By the velocities at the start and by all numbers of the system, redundant rows and quaternions included."""
    system, state = case(name)
    weights = jnp.asarray(np.random.default_rng(3).normal(size=(4, system.nq)))
    numbers = (jax.tree.map(jnp.asarray, system.params), state.v)

    def last(numbers, engine):
        found = motion(system, state, numbers, engine)
        return jnp.sum(weights * found.q), (found.q, found.v, found.work, found.result == jm.RESULTS.successful)

    with_it, without = (
        jax.jit(jax.value_and_grad(functools.partial(last, engine=e), has_aux=True))(numbers) for e in (None, REGULAR)
    )
    assert bool(without[0][1][3])
    for a, b in zip(with_it[0][1][:3], without[0][1][:3], strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-12)
    slope, other = (ravel_pytree(x[1])[0] for x in (with_it, without))
    np.testing.assert_allclose(other, slope, rtol=0, atol=1e-10 * float(jnp.abs(slope).max()))


def test_forward_mode():
    system, state = case("four-bar")
    numbers = (jax.tree.map(jnp.asarray, system.params), state.v)
    along = jax.tree.map(jnp.ones_like, numbers)
    fn = lambda numbers, engine: motion(system, state, numbers, engine, adjoint=dfx.ForwardMode()).q
    moved = [
        jax.jit(lambda e=e: jax.jvp(functools.partial(fn, engine=e), (numbers,), (along,))[1])()
        for e in (None, REGULAR)
    ]
    np.testing.assert_allclose(*moved, rtol=0, atol=1e-11 * float(jnp.abs(moved[0]).max()))


def test_a_step_near_a_singular_configuration_ends_the_run_of_its_row_alone():
    """The first row passes the flat pose."""
    system = nfourbar.nfourbar(1)
    states = jax.vmap(lambda a: jm.assemble(system, *nfourbar.pose(1, a, jnp.array(-2.0))))(jnp.array([0.05, 1.2]))
    controller = dfx.PIDController(rtol=1e-8, atol=1e-8)

    def fn(v, state):
        state = dataclasses.replace(state, v=v)
        found = motion(system, state, (system.params, v), REGULAR, stepsize_controller=controller, dt0=None)
        return jnp.sum(found.q[-1]), (found.result == jm.RESULTS.near_singular, found.q)

    both = jax.jit(jax.vmap(jax.value_and_grad(fn, has_aux=True)))
    (_, (ended, q)), slopes = both(states.v, states)
    first, second = (jax.tree.map(lambda x, i=i: x[i], states) for i in (0, 1))
    alone = motion(system, second, (system.params, second.v), stepsize_controller=controller, dt0=None)
    assert ended.tolist() == [True, False]
    assert bool(jnp.isfinite(q[0, 0]).all()) and bool(jnp.isnan(q[0, -1]).all()) and bool(jnp.isnan(slopes[0]).all())
    assert bool(jnp.isfinite(slopes[1]).all())
    np.testing.assert_allclose(q[1], alone.q, rtol=0, atol=1e-12)
    with pytest.raises(RuntimeError, match="leaves no way to make that step"):
        motion(system, first, (system.params, first.v), REGULAR, throw=True)


TO_THE_FLAT_POSE = jnp.linspace(0.1, 0.14, 9)  # that is passed at about 0.13 s


def to_the_flat_pose(engine=REGULAR, **settings):
    system = nfourbar.nfourbar(1)
    state = jm.assemble(system, *nfourbar.pose(1, jnp.array(0.6), jnp.array(-4.0)))
    return jm.simulate(system, state, TO_THE_FLAT_POSE, engine=engine, throw=False, **settings)


def test_a_step_near_a_singular_configuration_is_made_shorter():
    """A first step over the flat pose is refused until it ends well before."""
    controller = dfx.PIDController(rtol=1e-8, atol=1e-8)
    found = to_the_flat_pose(stepsize_controller=controller, dt0=0.14)
    usual = to_the_flat_pose(None, stepsize_controller=controller, dt0=1e-3)
    assert bool(found.result == jm.RESULTS.near_singular)
    assert bool(jnp.isfinite(found.q[:4]).all()) and bool(jnp.isnan(found.q[-1]).all())
    np.testing.assert_allclose(found.q[:4], usual.q[:4], atol=1e-7)


def test_states_within_a_step_that_failed_are_not_reached():
    found = to_the_flat_pose(stepsize_controller=dfx.ConstantStepSize(), dt0=0.028)
    assert bool(found.result == jm.RESULTS.near_singular) and int(found.stats["num_steps"]) == 5
    np.testing.assert_array_equal(jnp.isnan(found.q).all(axis=1), TO_THE_FLAT_POSE > 4 * 0.028)


def test_rows_that_are_dependent_from_the_start_are_left_out():
    system, state = case("parallelogram")
    found = motion(system, state, (system.params, state.v), REGULAR, throw=True)
    assert int(found.stats["highest_rank"]) < system.m


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"dense": True}, "`dense` is True"),
        ({"events": [jm.Release("loop", at=0.05)]}, "a run with `events`"),
        (
            {"solver": dfx.Kvaerno5(), "stepsize_controller": dfx.PIDController(rtol=1e-8, atol=1e-8)},
            "`Kvaerno5` is not",
        ),
        ({"formulation": jm.CoordinatePartition()}, "`CoordinatePartition` may choose"),
        ({"formulation": jm.Elimination(eliminated=(0,))}, "`Elimination` leaves rows out"),
        ({"adjoint": dfx.RecursiveCheckpointAdjoint()}, "`RecursiveCheckpointAdjoint` is neither"),
    ],
)
def test_where_there_are_no_other_steps(settings, reason):
    system, state = case("four-bar")
    with pytest.raises(ValueError, match=f"Argument `engine` must not be `XLA\\(singular=False\\)` here: {reason}"):
        motion(system, state, (system.params, state.v), REGULAR, **settings)
