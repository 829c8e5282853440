"""Coordinates with a condition that `rate` conserves need `normalise`; others do not."""

import jax.numpy as jnp
import pytest
from systems import normalise, quaternion_rate

import jaxmb as jm

BODY = {"velocities": 6, "mass": lambda t, q, p: jnp.eye(6), "rate": lambda q, v, p: quaternion_rate(q, v)}
POSE = [1.0, 2.0, 3.0, 0.5, -0.5, 0.5, 0.5]


def rolling(q, v, p):
    """Forward and turning speed of a wheel: three coordinates, nothing conserved."""
    return jnp.stack([v[0] * jnp.cos(q[2]), v[0] * jnp.sin(q[2]), v[1]])


def ball(q, v, p):
    """A ball that rolls on a plane, place and quaternion: the quaternion's length is conserved, the place is not tied to it."""
    return jnp.concatenate(
        [jnp.stack([v[1], -v[0]]), quaternion_rate(jnp.append(jnp.zeros(3), q[2:]), jnp.append(jnp.zeros(3), v))[3:]]
    )


CONSERVING = {
    "quaternion": (7, BODY, POSE),
    "circle": (
        2,
        {
            "velocities": 1,
            "rate": lambda q, v, p: 1e6 * jnp.stack([-q[1], q[0]]) * v[0],
            "mass": lambda t, q, p: jnp.eye(1),
        },
        [3e-6, 4e-6],
    ),
    "ball": (6, {"velocities": 3, "rate": ball, "mass": lambda t, q, p: jnp.eye(3)}, [0.1, 0.2, 0.5, -0.5, 0.5, 0.5]),
}
FREE = {
    "normalised": (7, {**BODY, "normalise": normalise}, POSE),
    "not wanted": (7, {**BODY, "normalise": lambda q: q}, POSE),
    "wheel": (3, {"velocities": 2, "rate": rolling, "mass": lambda t, q, p: jnp.eye(2)}, [0.1, 0.2, 0.3]),
    "linear": (2, {"velocities": 1, "rate": lambda q, v, p: jnp.stack([v[0], 3 * v[0]]), "mass": lambda t, q, p: jnp.eye(1)}, [0.0, 0.1]),
}  # fmt: skip


@pytest.mark.slow_cases("ball")
@pytest.mark.parametrize("case", CONSERVING)
def test_a_condition_that_is_conserved_asks_for_its_function(case):
    count, arguments, q = CONSERVING[case]
    with pytest.raises(
        ValueError, match=r"`normalise` must be given where `rate` conserves a function of the coord.* `lambda q: q`"
    ):
        jm.assemble(jm.System(count, **arguments), q)


@pytest.mark.slow_cases("not wanted")
@pytest.mark.parametrize("case", FREE)
@pytest.mark.slow_except("normalised")
def test_nothing_is_asked_for_where_nothing_is_to_be_restored(case):
    count, arguments, q = FREE[case]
    jm.assemble(jm.System(count, **arguments), q)
