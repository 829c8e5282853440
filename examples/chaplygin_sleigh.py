"""Chaplygin's sleigh: a body on a knife edge, one constraint on velocities, beside its closed form."""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

jax.config.update("jax_enable_x64", True)

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "chaplygin_sleigh.npz"


def blade(t, q, v, p):
    """The velocity of the edge across itself; the edge lies at a distance a behind the centre of mass."""
    return v[1] * jnp.cos(q[2]) - v[0] * jnp.sin(q[2]) - p["a"] * v[2]


def build():
    """The sleigh in the coordinates of its centre of mass, moving backwards and turning."""
    system = jm.System(
        ("x", "y", "theta"),
        mass=lambda t, q, p: jnp.diag(jnp.stack([p["m"], p["m"], p["J"]])),
        constraints=[jm.Pfaffian("blade", blade)],
        params={"m": 2.0, "J": 0.5, "a": 0.25},
    )
    return system, jm.assemble(system, [0.25, 0.0, 0.0], [-1.0, 0.1, 0.4])


def main():
    reference = np.load(REFERENCE)
    system, state = build()
    # Steps that end at the saved times need no interpolation there.
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=reference["t"])
    solution = jm.simulate(system, state, reference["t"], solver=dfx.Dopri8(), stepsize_controller=controller)
    # The row is a velocity along (-sin theta, cos theta), so its multiplier is the force in that direction.
    force = jm.reactions(system, solution).multipliers["blade"][:, 0]
    speed = jnp.cos(solution.q[:, 2]) * solution.v[:, 0] + jnp.sin(solution.q[:, 2]) * solution.v[:, 1]

    table = (
        ("largest error of x and y, m", solution.q[:, :2] - np.stack([reference["xG"], reference["yG"]], axis=1), 1e-9),
        ("largest error of theta, rad", solution.q[:, 2] - reference["theta"], 1e-9),
        ("largest error of the speed, m/s", speed - reference["v"], 1e-9),
        ("largest error of the turning rate, rad/s", solution.v[:, 2] - reference["omega"], 1e-9),
        ("largest error of the blade's force, N", force - reference["lam"], 1e-9),
        ("largest energy drift, J", jm.energy(system, solution).balance, 1e-9),
    )
    print(f"Chaplygin's sleigh, {solution.ts[-1]:.0f} s, {solution.stats['num_accepted_steps']} steps")
    for label, values, limit in table:
        largest = float(abs(values).max())
        print(f"  {label:<42}{largest:>10.1e}   at most {limit:.0e}")
        assert largest <= limit, f"{label} is {largest:.1e}, more than {limit:.0e}."


if __name__ == "__main__":
    main()
