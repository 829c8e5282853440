"""Andrews' squeezer: its spring and its motor found from the path of the crank pin F alone.

The record is the reference of tests/data, made by other software: 301 places of F in 0.03 s. The search starts with a spring that
is 30 % too soft and a motor that is 25 % too strong, with which the pin is up to 6 mm off on a circle of 7 mm.
"""

import pathlib
import time

import andrews_model as andrews
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "A03_andrews_ivp.npz"
TRUE = {name: andrews.PARAMS[name] for name in ("c0", "mom")}
OFF = {"c0": 0.7, "mom": 1.25}
SIGMA = 1e-5  # m, by which residuals are measured
SETTINGS = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(rtol=1e-10, atol=1e-10)}


def pin(system, solution):
    """The path of F (T, 2)."""
    return jax.vmap(andrews.crank_pin, (0, None))(solution.q, system.params)


def changed(system, factors):
    """The system with spring and motor multiplied by factors."""
    return system.with_params(system.params | {name: x * TRUE[name] for name, x in factors.items()})


def gradient(fit, signal):
    """That of the cost by the parameters, in relative changes: Jᵀr."""
    return fit.jacobian.T @ fit.signals["squeezer"][signal].residual.ravel()


def main():
    reference = np.load(REFERENCE)
    system, state = andrews.build()
    path = jm.fit.Signal(pin, np.stack([reference["Fx"], reference["Fy"]], axis=1), SIGMA)
    seen = jm.fit.Experiment(reference["t"], state, path, name="squeezer")
    parameters = [jm.fit.Parameter(name, OFF[name] * value, min_value=0.0) for name, value in TRUE.items()]
    begin = time.perf_counter()
    search = lambda **how: jm.fit.identify(system, parameters, seen, **how, **SETTINGS)
    found = search()
    print(f"{found}\nfirst call {time.perf_counter() - begin:.0f} s, another one ", end="")
    begin = time.perf_counter()
    first = search(max_iterations=1)
    print(f"of one iteration {time.perf_counter() - begin:.1f} s")

    @jax.jit
    def cost(step):
        """½ Σ ((model − measured)/σ)² where both parameters differ from their starts by a relative step."""
        moved = changed(system, {name: x * (1 + step) for name, x in OFF.items()})
        off = pin(moved, jm.simulate(moved, state, seen.ts, **SETTINGS)) - path.values
        return 0.5 * jnp.sum((off / SIGMA) ** 2)

    h = 1e-4
    near, far = ((cost(x) - cost(-x)) / (2 * x) for x in (h, 2 * h))
    difference = float((4 * near - far) / 3)
    rows = [(f"{name}, off by", abs(found.estimates[name] / value - 1)) for name, value in TRUE.items()]
    rows.append(("gradient at the start, from central differences", abs(gradient(first, "pin").sum() / difference - 1)))
    for label, value in rows:
        print(f"  {label:<48}{float(value):>9.1e}   at most 1e-06")
        assert value < 1e-6, label
    largest = float(jnp.abs(first.signals["squeezer"]["pin"].residual).max() * SIGMA)
    print(
        f"at the start the pin is up to {1e3 * largest:.1f} mm off, on a circle of {1e3 * system.params['rr']:.0f} mm"
    )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
