"""Faults of fits that were found in use."""

import jax.numpy as jnp
import numpy as np

import jaxmb as jm

fit = jm.fit
TS = jnp.linspace(0.0, 2.0, 41)
SPRING = jm.System(
    ("x",),
    mass=lambda t, q, p: jnp.eye(1),
    potential=lambda t, q, p: 0.5 * p["k"] * q[0] ** 2,
    params={"k": 4.0},
)


def test_starts_are_found_without_windows():
    seen = fit.Signal("x", 1.2 * np.cos(3.0 * TS))
    experiment = fit.Experiment(TS, jm.assemble(SPRING, [1.0], [0.1]), seen, fit_start=True, name="swing")
    found = fit.identify(SPRING, [fit.Parameter("k")], experiment)
    assert abs(found.estimates["k"] - 9.0) < 1e-6
    assert abs(found.nuisances["swing: start of x"] - 1.2) < 1e-6
    assert abs(found.nuisances["swing: start of x'"]) < 1e-6
