"""The N-four-bar mechanism (IFToMM benchmark A02): loses N rows of rank whenever all links lie in line."""

import dataclasses
import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm


def rod_end(rod, s):
    """The point at s of each rod (..., 3) in (x, y, angle), s along the rod from its centre."""
    return rod[..., :2] + s * jnp.stack([jnp.cos(rod[..., 2]), jnp.sin(rod[..., 2])], axis=-1)


def joints(t, q, p):
    """Feet of the N + 1 uprights on the ground, and couplers between the heads of neighbours."""
    rods = q.reshape(-1, 3)
    n = rods.shape[0] // 2
    up, across, half = rods[: n + 1], rods[n + 1 :], p["l"] / 2
    ground = jnp.stack([p["l"] * jnp.arange(n + 1.0), jnp.zeros(n + 1)], axis=1)
    heads = rod_end(up, half)
    return jnp.concatenate(
        [
            (rod_end(up, -half) - ground).ravel(),
            (heads[:-1] - rod_end(across, -half)).ravel(),
            (heads[1:] - rod_end(across, half)).ravel(),
        ]
    )


def nfourbar(n):
    """2n + 1 uniform rods of length l and mass m each."""
    rods = 2 * n + 1
    return jm.System(
        [f"{c}{i}" for i in range(rods) for c in ("x", "y", "angle")],
        mass=lambda t, q, p: jnp.diag(jnp.tile(p["m"] * jnp.stack([1.0, 1.0, p["l"] ** 2 / 12]), rods)),
        potential=lambda t, q, p: p["m"] * p["g"] * jnp.sum(q[1::3]),
        constraints=[jm.Holonomic("joints", joints)],
        params={"l": 1.0, "m": 1.0, "g": 9.81},
    )


def pose(n, angle, rate):
    """Coordinates and velocities with all uprights at an angle from horizontal, turning at a rate."""
    direction = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    normal = rate * jnp.stack([-direction[1], direction[0]])
    one = jnp.ones((), direction.dtype)
    feet = jnp.stack([jnp.arange(n + 1.0), jnp.zeros(n + 1)], axis=1)
    up = jnp.concatenate([feet + direction / 2, jnp.full((n + 1, 1), angle)], axis=1)
    across = jnp.concatenate([feet[:n] + direction + jnp.array([0.5, 0.0]), jnp.zeros((n, 1))], axis=1)
    up_v = jnp.concatenate([jnp.tile(normal / 2, (n + 1, 1)), jnp.full((n + 1, 1), rate * one)], axis=1)
    across_v = jnp.concatenate([jnp.tile(normal, (n, 1)), jnp.zeros((n, 1))], axis=1)
    return jnp.concatenate([up, across]).ravel(), jnp.concatenate([up_v, across_v]).ravel()


def reduced_motion(n, angle, rate, ts, params):
    """The angle of the uprights from the one equation that is left, since the couplers only translate."""
    factor = params["g"] / params["l"] * 3 * (3 * n + 1) / (2 * (4 * n + 1))
    found = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -factor * jnp.cos(y[0])])),
        dfx.Dopri8(),
        0.0,
        ts[-1],
        None,
        jnp.stack([angle, rate]),
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=ts),
    )
    return found.ys[:, 0]


def main(n):
    system = nfourbar(n)
    state = jm.assemble(system, *pose(n, jnp.array(np.pi / 2), jnp.array(-1.0)))
    ts = jnp.linspace(0.0, 10.0, 501)
    # Steps that end at the saved times need no interpolation there.
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-10, atol=1e-10), step_ts=ts)
    solution = jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)
    angle = reduced_motion(n, jnp.array(np.pi / 2), jnp.array(-1.0), ts, system.params)
    head = rod_end(solution.q[:, :3], 0.5)
    passages = int(jnp.sum(jnp.diff(jnp.sign(jnp.sin(angle))) != 0))

    flat = jm.assemble(system, *pose(n, jnp.array(0.0), jnp.array(-4.0)))
    found = jm.diagnose(system, flat)
    terms = jm.evaluate(system, flat)
    bare = dataclasses.replace(terms, nearby=None)  # without what rows say beside the pose
    at_flat, least_norm = (jm.formulation.GaussProjection().acceleration(known).vdot[2] for known in (terms, bare))
    exact = -9.81 * 3 * (3 * n + 1) / (2 * (4 * n + 1))

    print(
        f"N-four-bar, N = {n}, 10 s, {passages} passages of the flat pose, {solution.stats['num_accepted_steps']} steps"
    )
    print(found)
    print(
        f"  acceleration of the uprights there {float(at_flat):.6f} rad/s², the one of least norm {float(least_norm):.6f} rad/s²"
    )
    rows = (
        ("largest error of B0, m", jnp.abs(head - jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)).max(), 1e-8),
        ("largest energy drift, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-8 * n),
        ("largest residual, m", jnp.abs(jm.residuals(system, solution).position).max(), 1e-12),
        ("error of the acceleration at the flat pose", jnp.abs(at_flat - exact), 1e-9),
    )
    for label, value, limit in rows:
        print(f"  {label:<44}{float(value):>10.1e}   at most {limit:.0e}")
        assert value <= limit, f"{label} is {float(value):.1e}, more than {limit:.0e}."
    assert found.rank_nearby - found.rank == n, "The flat pose must lose N rows."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
