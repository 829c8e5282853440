"""Two bodies on knife edges beside their closed forms: one on an incline that does not slide down, and Chaplygin's sleigh."""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from jaxmb.planar import Body, KnifeEdge, Mechanism

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "chaplygin_sleigh.npz"
PULL, TURNING = 9.81 * np.sin(np.pi / 6), 1.5  # gravity along the incline in m/s², angular velocity in rad/s


def edged(mass, inertia, ahead, pull):
    """A body on a knife edge at its origin, its centre of mass ahead of that along x, in a plane with gravity along x."""
    body = Body("body", mass, inertia, com=(ahead, 0.0))
    return Mechanism([body], [KnifeEdge("edge", "body")], gravity=(pull, 0.0))


def incline():
    """A plate that turns at a constant rate on an incline of 30°, x downhill; it starts at rest at the origin."""
    system = edged(1.0, 0.1, 0.0, PULL).build()
    return system, jm.assemble(system, v={"body.angle": TURNING})


def on_incline(t):
    """Its x, y, angle, and the force of the edge on it, to its left.

    The speed along the edge grows by g sin β cos ωt, so it is g sin β sin(ωt)/ω, along (cos ωt, sin ωt); across the edge the
    force balances gravity and turns the velocity.
    """
    angle = TURNING * t
    size = PULL / (2 * TURNING**2)
    x, y = size * jnp.sin(angle) ** 2, size * (angle - jnp.sin(2 * angle) / 2)
    return jnp.stack([x, y, angle, 2 * PULL * jnp.sin(angle)], axis=-1)


def sleigh():
    """Chaplygin's sleigh, moving backwards and turning."""
    system = edged(2.0, 0.5, 0.25, 0.0).build()
    return system, jm.assemble(system, v={"body.x": -1.0, "body.angle": 0.4})


def run(system, state, ts):
    """Position, angle and the force of the edge along the motion; steps end at the saved times."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=ts)
    solution = jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)
    force = jm.reactions(system, solution).multipliers["edge"]
    return solution, jnp.concatenate([solution.q, force], axis=-1)


def main():
    reference = np.load(REFERENCE)
    ts = jnp.linspace(0.0, 8.0, reference["t"].size)  # as many, so that both cases run the same program
    exact = np.stack([reference[name] for name in ("x", "y", "theta", "lam")], axis=-1)
    cases = (
        ("Knife edge on an incline", incline(), ts, on_incline(ts)),
        ("Chaplygin's sleigh", sleigh(), reference["t"], exact),
    )
    for title, (system, state), ts, wanted in cases:
        solution, found = run(system, state, ts)
        error = jnp.abs(found - wanted).max(axis=0)
        rows = (
            ("largest error of x and y, m", error[:2].max(), 1e-9),
            ("largest error of the angle, rad", error[2], 1e-9),
            ("largest error of the edge's force, N", error[3], 1e-9),
            ("largest energy drift, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-9),
            ("largest speed across the edge, m/s", jnp.abs(jm.residuals(system, solution).velocity).max(), 1e-13),
        )
        print(f"{title}, {ts[-1]:.0f} s, {solution.stats['num_accepted_steps']} steps")
        for label, value, limit in rows:
            print(f"  {label:<38}{float(value):>10.1e}   at most {limit:.0e}")
            assert value <= limit, f"{label} is {float(value):.1e}, more than {limit:.0e}."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
