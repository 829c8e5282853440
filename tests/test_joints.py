"""Every joint as part of a tree and as a constraint between free bodies: the same mechanics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import PAIRS, pair, random_states

import jaxmb as jm
from jaxmb.system import constraint_jacobian, position_residual, velocity_residual

FIRST = [("planar", "Prismatic"), ("spatial", "Screw")]
KEYS = [key if key in FIRST else pytest.param(key, marks=pytest.mark.slow) for key in PAIRS]


@pytest.mark.slow_except("planar-Prismatic")
@pytest.mark.parametrize("key", KEYS, ids=lambda key: "-".join(key))
@pytest.mark.slow
def test_relative_and_absolute_builds_agree(key):
    mechanism = pair(key)
    tree, free = mechanism.build(), mechanism.build("absolute")
    joint = PAIRS[key]
    size = 3 if key[0] == "planar" else 6
    freedom = len(joint.pair.velocities)
    assert tree.m == 0 and tree.nv == size + freedom
    assert free.m == size - freedom and free.nv == 2 * size
    q, v = random_states(tree, 5, seed=3)

    @jax.jit
    @jax.vmap
    def compare(q, v):
        t = jnp.zeros(())
        here = tree.joints.motion(t, q, v, tree.params)
        q_free = free.joints.measure(here.poses, free.params)
        v_free = free.joints.measure_rates(here.poses, here.rates, free.params)
        there = free.joints.motion(t, q_free, v_free, free.params)
        applied = tree.applied_force(t, q, v)
        vdot = jnp.linalg.solve(tree.mass(t, q), tree.intrinsic_force(t, q, v) + applied)
        terms = jm.evaluate(free, jm.as_state(free, q_free, v_free))
        found = jm.formulation.GaussProjection().acceleration(terms)

        def bodies(system, q, v, vdot):
            moving = lambda q, v: system.joints.motion(t, q, v, system.params).rates
            return jax.jvp(moving, (q, v), (system.qdot(q, v), vdot))[1]

        return {
            "pose": here.poses - there.poses,
            "rate": here.rates - there.rates,
            "residual": position_residual(free, t, q_free),
            "velocity residual": velocity_residual(free, t, q_free, v_free),
            "free directions": constraint_jacobian(free, t, q_free)
            @ jax.vmap(
                lambda v: free.joints.measure_rates(
                    here.poses, tree.joints.motion(t, q, v, tree.params).rates, free.params
                )
            )(jnp.eye(tree.nv)).T,
            "rank": found.rank - free.m,
            "acceleration": bodies(tree, q, v, vdot) - bodies(free, q_free, v_free, found.vdot),
            "energy": jnp.stack(tree.energies(t, q, v)) - jnp.stack(free.energies(t, q_free, v_free)),
            "power": v @ applied - v_free @ free.applied_force(t, q_free, v_free),
            "measured": here.relative("joint")
            - jnp.where(jnp.array(joint.pair.angles, bool), *_wrapped(there.relative("joint"), here.relative("joint")))
            if joint.pair.coordinates and "qw" not in joint.pair.coordinates
            else 0.0,
            "rates": here.joint_rates("joint") - there.joint_rates("joint"),
        }

    for label, value in compare(q, v).items():
        assert np.abs(value).max(initial=0) < (1e-9 if label == "acceleration" else 1e-11), label


def _wrapped(angle, near):
    return angle + 2 * jnp.pi * jnp.round((near - angle) / (2 * jnp.pi)), angle


@pytest.mark.parametrize("key", PAIRS, ids=lambda key: "-".join(key))
def test_what_acts_along_a_coordinate_acts_along_its_velocity(key):
    """Springs, drivers and what holds a pose act by the coordinate's derivative, motors by the velocity: one force on the bodies, off the joint too."""
    joint, rng = PAIRS[key], np.random.default_rng(1)
    pair, data, dim = joint.pair, joint.data(), 2 if key[0] == "planar" else 3
    q = rng.normal(size=len(pair.coordinates))
    x = pair.pose(pair.normalise(jnp.asarray(q)), data)
    turn = rng.normal(size=(dim, dim))
    twist = jnp.zeros((dim + 1, dim + 1)).at[:dim, :dim].set(turn - turn.T).at[:dim, -1].set(rng.normal(size=dim))
    _, by_coordinate = jax.jvp(lambda x: pair.measure(x, data), (x,), (twist @ x,))
    by_velocity = pair.rates(x, twist @ x)
    for i, name in enumerate(pair.velocities):
        if name in pair.coordinates:
            np.testing.assert_allclose(by_coordinate[pair.coordinates.index(name)], by_velocity[i], atol=1e-12)
