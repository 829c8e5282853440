"""A pendulum in the redundant coordinates x and y (IFToMM benchmark A01), beside its closed form."""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

jax.config.update("jax_enable_x64", True)

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "A01_pendulum.npz"


def build():
    """A point mass on a rod without mass, and its state of rest beside the pivot."""
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * p["g"] * q[1],
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - p["l"] ** 2)],
        params={"m": 1.0, "l": 1.0, "g": 9.81},
    )
    return system, jm.assemble(system, [-1.0, 0.0])


def main():
    reference = np.load(REFERENCE)
    system, state = build()
    # Steps that end at the saved times need no interpolation there.
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=reference["t"])
    solution = jm.simulate(system, state, reference["t"], solver=dfx.Dopri8(), stepsize_controller=controller)
    energy, residuals = jm.energy(system, solution), jm.residuals(system, solution)
    # The rod pulls towards the pivot: its tension is minus the outward component of the reaction.
    tension = -jnp.sum(jm.reactions(system, solution).reaction * solution.q, axis=1) / system.params["l"]

    exact = np.stack([reference["x"], reference["y"]], axis=1)
    table = (
        ("largest error of x and y, m", solution.q - exact, 1e-9),
        ("largest error of the rod's tension, N", tension - reference["tension"], 1e-8),
        ("largest energy drift, J", energy.balance, 1e-9),
        ("largest position residual, m", residuals.position, 1e-12),
        ("largest velocity residual, m/s", residuals.velocity, 1e-12),
    )
    print(f"Pendulum, {solution.ts[-1]:.0f} s, {solution.stats['num_accepted_steps']} steps")
    for label, values, limit in table:
        largest = float(abs(values).max())
        print(f"  {label:<40}{largest:>10.1e}   at most {limit:.0e}")
        assert largest <= limit, f"{label} is {largest:.1e}, more than {limit:.0e}."


if __name__ == "__main__":
    main()
