"""Parameters from measured motion: laws of the search, the report and the arguments."""

import jax.numpy as jnp
import numpy as np

import jaxmb as jm

fit, P = jm.fit, jm.planar

TS = jnp.linspace(0.0, 2.0, 41)


def oscillator():
    """m ẍ = −k x − c ẋ: only k/m and c/m show in x."""
    return jm.System(
        ("x",),
        mass=lambda t, q, p: p["m"] * jnp.eye(1),
        potential=lambda t, q, p: 0.5 * p["k"] * q[0] ** 2,
        force=lambda t, q, v, p: -p["c"] * v,
        params={"m": 2.0, "k": 20.0, "c": 0.5},
    )


OSCILLATOR = oscillator()
START = jm.assemble(OSCILLATOR, [1.0], [0.0])


def exact(k, c, m=2.0, x=1.0, ts=np.asarray(TS)):
    """The underdamped motion from rest."""
    decay = c / (2 * m)
    w = np.sqrt(k / m - decay**2)
    return x * np.exp(-decay * ts) * (np.cos(w * ts) + decay / w * np.sin(w * ts))


def test_finds_what_made_the_motion():
    signal = fit.Signal("x", exact(31.0, 0.8))
    found = fit.identify(
        OSCILLATOR, [fit.Parameter("k"), fit.Parameter("c", min_value=0)], fit.Experiment(TS, START, signal)
    )
    assert abs(found.estimates["k"] - 31.0) < 1e-6 and abs(found.estimates["c"] - 0.8) < 1e-6
    assert bool(found.result == jm.RESULTS.successful)
    assert abs(found.model.params["k"] - 31.0) < 1e-6
