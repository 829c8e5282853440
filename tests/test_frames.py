"""The same mechanism elsewhere: turned, moved, and with bodies' own frames turned, it has the same ranks, steps and motion."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm

S = jm.spatial
LENGTHS = {"crank": 0.4, "coupler": 0.9, "rocker": 0.8}


def rotation(key):
    """A random proper rotation."""
    q, _ = jnp.linalg.qr(jax.random.normal(key, (3, 3)))
    return q * jnp.linalg.det(q)


def flat_points():
    """Where the hinges of a four-bar stand that moves in the plane of x and y."""
    a, d = np.zeros(3), np.array([1.0, 0.0, 0.0])
    b = LENGTHS["crank"] * np.array([np.cos(1.2), np.sin(1.2), 0.0])
    apart = np.linalg.norm(d - b)
    along = (LENGTHS["coupler"] ** 2 - LENGTHS["rocker"] ** 2 + apart**2) / (2 * apart)
    e = (d - b) / apart
    c = b + along * e + np.sqrt(LENGTHS["coupler"] ** 2 - along**2) * np.array([-e[1], e[0], 0.0])
    return {"crank": (a, b), "coupler": (b, c), "rocker": (c, d)}


def fourbar(turn, shift, frames, cut):
    """A four-bar of parallel hinges, turned and moved, with bodies' frames turned against the world by `frames` (3, 3, 3)."""
    bodies, axis = [], {"ground": turn[:, 2]}
    for (name, (start, end)), frame in zip(flat_points().items(), frames, strict=True):
        x, _, _ = e = (end - start) / np.linalg.norm(end - start)
        along = turn @ jnp.array([[x, -e[1], 0.0], [e[1], x, 0.0], [0.0, 0.0, 1.0]])
        rod = frame.T @ along  # its axes in the body's frame
        length = LENGTHS[name]
        points = {"a": jnp.zeros(3), "b": length * rod[:, 0]}
        inertia = rod @ jnp.diag(jnp.array([0.01, 0.02, 0.03])) @ rod.T
        com = length / 2 * rod[:, 0]
        bodies.append(S.Body(name, 1.0, inertia, com, points, position=turn @ start + shift, orientation=frame))
        axis[name] = rod[:, 2]
    hinge = lambda name, a, b, i, j: S.Revolute(name, a, b, axis=axis[i], axis_b=axis[j])
    end = ("ground", turn @ np.array([1.0, 0.0, 0.0]) + shift)
    joints = [
        hinge("A", ("ground", shift), "crank.a", "ground", "crank"),
        hinge("B", "crank.b", "coupler.a", "crank", "coupler"),
        hinge("C", "coupler.b", "rocker.a", "coupler", "rocker"),
    ]
    joints.append(
        {
            "hinge": lambda: hinge("D", "rocker.b", end, "rocker", "ground"),
            "cylinder": lambda: S.Cylindrical("D", "rocker.b", end, axis=axis["rocker"], axis_b=axis["ground"]),
            "ball": lambda: S.Spherical("D", "rocker.b", end),
        }[cut]()
    )
    return S.Mechanism(bodies, joints, gravity=turn @ jnp.array([0.0, -9.81, 0.0]))


def frames(count):
    """Turns, shifts and frames of bodies; the first ones are those of the world."""
    keys = jax.random.split(jax.random.PRNGKey(0), (count, 4))
    turns = jax.vmap(jax.vmap(rotation))(keys)
    straight = jnp.broadcast_to(jnp.eye(3), (4, 3, 3))
    turns = jnp.concatenate([straight[None], turns])
    shifts = jnp.concatenate([jnp.zeros((1, 3)), 2 * jax.random.normal(keys[0, 0], (count, 3))])
    return turns[:, 0], shifts, turns[:, 1:]


def built(turn, shift, frames, cut, coordinates):
    mechanism = fourbar(turn, shift, frames, cut)
    return mechanism.build(coordinates, **({"cut": ["D"]} if coordinates == "relative" else {}))


@pytest.mark.parametrize("cut", ["hinge", "cylinder"])
@pytest.mark.slow
def test_a_loop_closes_in_any_frame(cut):
    """Rows that vanish in the plane of a loop are rounding in other directions: they are no rows there either."""

    @eqx.filter_jit
    @jax.vmap
    def start(turn, shift, frames):
        system = built(turn, shift, frames, cut, "relative")
        state = jm.assemble(system, throw=False)
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state)), jm.position(
            system, state, "coupler.b"
        )

    turn, shift, bodies = frames(10)
    found, place = start(turn, shift, bodies)
    assert bool(jnp.all(found.result == jm.RESULTS.successful)) and found.rank.tolist() == [2] * 11
    own = jnp.einsum("kj,kji->ki", place - shift, turn)
    np.testing.assert_allclose(own, jnp.broadcast_to(flat_points()["coupler"][1], own.shape), atol=1e-12)
    np.testing.assert_allclose(found.vdot, jnp.broadcast_to(found.vdot[0], found.vdot.shape), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["hinge", "cylinder", "ball"])
@pytest.mark.parametrize("coordinates", ["relative", "absolute"])
def test_frames_change_no_motion(cut, coordinates):
    """Ranks, steps to a tenth, and places of a pin in the mechanism's own frame."""

    @eqx.filter_jit
    @jax.vmap
    def run(turn, shift, frames):
        system = built(turn, shift, frames, cut, coordinates)
        solution = jm.simulate(system, jm.assemble(system), jnp.array([0.4, 0.8]), throw=False)
        place = (jm.position(system, solution, "coupler.b") - shift) @ turn
        return solution.result == jm.RESULTS.successful, solution.stats, place

    successful, stats, place = run(*frames(10))
    assert bool(jnp.all(successful))
    for rank in (stats["lowest_rank"], stats["highest_rank"]):
        assert bool(jnp.all(rank == rank[0]))
    np.testing.assert_allclose(stats["num_steps"], stats["num_steps"][0], rtol=0.1)
    np.testing.assert_allclose(place, jnp.broadcast_to(place[0], place.shape), atol=1e-8)
