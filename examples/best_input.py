"""The most informative motor torques of an arm, to identify masses, inertias and friction of two links from noisy angles.

The torques are Fourier series that are kept below a limit. The combination of the six parameters that is determined worst is the
eigenvector of Fisher's information with the least eigenvalue. Steps along the gradient of this eigenvalue raise it; the gradient goes through
the run and its derivatives by the parameters. No measurements are needed for that.
"""

import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxmb as jm

TRUE = {"m1": 2.0, "m2": 1.2, "i1": 0.05, "i2": 0.02, "d1": 0.4, "d2": 0.2}  # kg, kg m², N m s
LENGTH, LIMIT = 0.5, jnp.array([4.0, 1.5])  # m, N m
NOISE, PERIOD, HARMONICS = 2e-3, 4.0, 4  # rad, s
TS = jnp.linspace(0.0, PERIOD, 201)
STEPS = {"solver": dfx.Dopri5(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.02, "max_steps": 256}


def centres(q):
    """Centres of the links (2, 2); the second angle is one against the first link, and both are zero where the arm hangs."""
    angle = jnp.cumsum(q)
    links = LENGTH * jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1)
    return jnp.cumsum(links, axis=0) - links / 2


def mass(t, q, p):
    jac, spin = jax.jacfwd(centres)(q), jnp.tril(jnp.ones((2, 2)))
    pair = lambda key: jnp.stack([p[f"{key}1"], p[f"{key}2"]])
    return jnp.einsum("i,iab,iac->bc", pair("m"), jac, jac) + jnp.einsum("i,ia,ib->ab", pair("i"), spin, spin)


def arm():
    return jm.System(
        ("shoulder", "elbow"),
        mass=mass,
        potential=lambda t, q, p: 9.81 * (jnp.stack([p["m1"], p["m2"]]) @ centres(q)[:, 1]),
        force=lambda t, q, v, p: -jnp.stack([p["d1"], p["d2"]]) * v,
        actuation=lambda t, q, p: jnp.eye(2),
        params=TRUE,
    )


class Torques(eqx.Module):
    """LIMIT tanh(Fourier series), with coefficients (2, 2 HARMONICS)."""

    coefficients: jax.Array

    def __call__(self, t, q, v, params):
        """The torques of shoulder and elbow."""
        phases = 2 * jnp.pi * t / PERIOD * jnp.arange(1, HARMONICS + 1)
        return LIMIT * jnp.tanh(self.coefficients @ jnp.concatenate([jnp.sin(phases), jnp.cos(phases)]))


def experiment(system, coefficients, values=(None, None)):
    """From rest below, with torques; nothing need have been measured."""
    signals = [jm.fit.Signal(name, x, NOISE) for name, x in zip(system.coordinates, values, strict=True)]
    return jm.fit.Experiment(TS, jm.assemble(system), signals, control=Torques(coefficients), name="run")


def improved(system, parameters, coefficients, steps):
    """The best coefficients of some steps of Adam: those with the least standard error of the worst direction, relative to the parameters."""

    def worst(c):
        told = jm.fit.information(system, parameters, experiment(system, c), **STEPS)
        error = -0.5 * jnp.log(jnp.linalg.eigvalsh(told)[0])
        return error, error

    slope, optimiser = jax.jit(jax.jacfwd(worst, has_aux=True)), optax.adam(0.1)
    tried, memory = [], optimiser.init(coefficients)
    for i in range(steps):
        begin = time.perf_counter()
        change, error = slope(coefficients)
        tried.append((float(jnp.exp(error)), coefficients))
        if i < 2:
            print(
                f"{('first', 'second')[i]} gradient by {coefficients.size} coefficients {time.perf_counter() - begin:.2f} s"
            )
        change, memory = optimiser.update(change, memory)
        coefficients = optax.apply_updates(coefficients, change)
    return min(tried, key=lambda x: x[0])[1]


def trial(system, parameters, coefficients, draws=20):
    """The error of fits to noisy records in the direction that is determined worst: as predicted, and as found (rms); the last fit."""
    seen = experiment(system, coefficients)
    told = jm.fit.identifiability(system, parameters, seen, **STEPS)
    exact, coarse = (
        jm.simulate(system, seen.start, TS, control=seen.control, **STEPS | {"dt0": h, "max_steps": 1024})
        for h in (0.005, 0.02)
    )
    error = float(jnp.abs(exact.q - coarse.q).max())
    start = [jm.fit.Parameter(name, 1.2 * x, min_value=0.0) for name, x in TRUE.items()]
    misses = []
    for key in jax.random.split(jax.random.key(1), draws):
        record = exact.q + NOISE * jax.random.normal(key, exact.q.shape)
        fit = jm.fit.identify(system, start, experiment(system, coefficients, tuple(record.T)), **STEPS)
        assert fit.result == jm.RESULTS.successful
        misses.append(told.directions[-1] @ np.array([fit.estimates[name] / x - 1 for name, x in TRUE.items()]))
    print(
        f"  largest torques {np.round(jnp.abs(exact.u).max(axis=0), 2)} N m, angles {np.round(jnp.abs(exact.q).max(axis=0), 2)} rad, error of the steps {error:.1e} rad"
    )
    return 1 / told.values[-1], np.sqrt(np.mean(np.square(misses))), fit


def main(steps=60):
    system = arm()
    parameters = [jm.fit.Parameter(name, min_value=0.0) for name in TRUE]
    first = jnp.zeros((2, 2 * HARMONICS)).at[:, 0].set(1.5)  # slow swings of both joints, nearly as strong as allowed
    best = improved(system, parameters, first, steps)
    found = {}
    for name, coefficients in {"first": first, "best": best}.items():
        print(f"{name} input")
        foretold, missed, fit = found[name] = trial(system, parameters, coefficients)
        print(f"  worst direction: standard error {foretold:.2e}, missed by {missed:.2e}, relative\n{fit}")
        assert 0.6 < missed / foretold < 1.5
    ratios = [float(found["first"][i] / found["best"][i]) for i in (0, 1)]
    print(f"worst direction known better by {ratios[0]:.1f} in theory, by {ratios[1]:.1f} in fits, after {steps} steps")
    assert min(ratios) > 3
    before, after = (found[name][2].standard_errors() for name in ("first", "best"))
    assert all(after[name] < before[name] for name in TRUE)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
