"""Assembly that tells how it ended."""

import jax
import jax.numpy as jnp
import numpy as np
from systems import pendulum

import jaxmb as jm


def test_an_attempt_tells_per_row_of_a_batch_what_is_missed_and_by_how_much():
    """A rod of 1 m whose end is held at x: beyond 1 m the nearest pose misses x² + y² = 1 by x² − 1; from y = 0 no slope of the row leads to y = ± 0.8."""
    system = jm.System(
        ("x", "y"), mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)]
    )
    guesses = jnp.array([[0.6, 0.7], [1.5, 0.0], [0.6, 0.0]])
    out = jax.jit(jax.vmap(lambda q: jm.try_assemble(system, q, hold=["x"])))(guesses)
    assert [bool(x) for x in out.result == jm.RESULTS.no_assembly] == [False, True, False]
    np.testing.assert_allclose(out.state.q[0], [0.6, 0.8], rtol=1e-12)
    np.testing.assert_allclose(abs(out.state.q[2]), [0.6, 0.8], rtol=1e-12)
    assert bool(jnp.isfinite(out.state.q).all()) and float(abs(out.position[0, 0])) < 1e-15
    state = jax.tree.map(lambda x: x[1], out.state)
    missed = float(state.q @ state.q - 1)
    assert missed >= 1.25
    np.testing.assert_allclose(out.position[1, 0] * state.scale.span[0], missed, rtol=1e-12)
    np.testing.assert_allclose(out.position[1], jm.residuals(system, state).position, rtol=1e-12)


def test_an_attempt_that_succeeds_is_an_assembly():
    system, (q, v) = pendulum()
    attempt, state = jm.try_assemble(system, q, v), jm.assemble(system, q, v)
    assert attempt.result == jm.RESULTS.successful
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), attempt.state, state))
    same = jm.assemble(system, q, v, throw=False)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), same, state))
    none = jm.assemble(system, [5.0, *q[1:]], v, hold=[0], throw=False)
    assert bool(jnp.isnan(none.q).all()) and bool(jnp.isnan(none.v).all())
