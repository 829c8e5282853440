"""The N-four-bar mechanism (A02) from rods and revolute joints, in joint angles: as many loops as wanted, all flat at once."""

import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from nfourbar import reduced_motion

import jaxmb as jm
from jaxmb.planar import Body, Mechanism, Revolute

PARAMS = {"l": 1.0, "m": 1.0, "g": 9.81}


def nfourbar(n, angle=np.pi / 2):
    """Uprights 0 to n on the ground, couplers between the upper ends of neighbours; all uprights at an angle from horizontal."""
    head = np.array([np.cos(angle), np.sin(angle)])
    foot = lambda i: np.array([float(i), 0.0])
    uprights = [Body.rod(f"up{i}", 1.0, 1.0, position=foot(i), angle=angle) for i in range(n + 1)]
    couplers = [Body.rod(f"across{i}", 1.0, 1.0, position=foot(i) + head) for i in range(n)]
    joints = [Revolute(f"foot{i}", ("ground", foot(i)), f"up{i}.a") for i in range(n + 1)]
    joints += [Revolute(f"left{i}", f"up{i}.b", f"across{i}.a") for i in range(n)]
    joints += [Revolute(f"right{i}", f"up{i + 1}.b", f"across{i}.b") for i in range(n)]
    return Mechanism(uprights + couplers, joints, gravity=(0.0, -PARAMS["g"]))


def turning(system, n, rate):
    """The state with the uprights turning at a rate from the pose that the mechanism was made in; couplers only translate."""
    v = {f"foot{i}": rate for i in range(n + 1)} | {f"left{i}": -rate for i in range(n)}
    return jm.assemble(system, v=v)


def run(system, state, ts, tolerance=1e-10):
    """The motion, by steps that end at the saved times and so need no interpolation there."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=tolerance, atol=tolerance), step_ts=ts)
    return jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)


def main(n):
    cut = [f"right{i}" for i in range(n)]
    system = nfourbar(n).build(cut=cut)
    # A step that ends where many rows are nearly lost is dear, so that large mechanisms are compared at few times.
    count, tolerance, limit = (501, 1e-10, 1e-9) if n < 10 else (21, 1e-9, 1e-6)
    ts = jnp.linspace(0.0, 10.0, count)
    solution = run(system, turning(system, n, -1.0), ts, tolerance)
    often = jnp.linspace(0.0, 10.0, 501)
    angle = reduced_motion(n, jnp.array(np.pi / 2), jnp.array(-1.0), often, PARAMS)
    passages = int(jnp.sum(jnp.diff(jnp.sign(jnp.sin(angle))) != 0))
    exact = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)[:: 500 // (count - 1)]

    system_flat = nfourbar(n, 0.0).build(cut=cut)
    flat = turning(system_flat, n, -4.0)
    found = jm.diagnose(system_flat, flat)
    at_flat = jm.reactions(system_flat, flat).vdot[system_flat.velocities.index("foot0")]

    print(
        f"N-four-bar from joints, N = {n}, 10 s, {passages} passages of the flat pose, "
        f"{solution.stats['num_accepted_steps']} steps\n"
        f"  {system.nv} velocities, {system.m} rows; at the flat pose their rank is {found.rank}, nearby {found.rank_nearby}"
    )
    head = jm.position(system, solution, "up0.b")
    last = jm.position(system, solution, f"up{n}.b") - jnp.array([float(n), 0.0])
    slope = -PARAMS["g"] * 3 * (3 * n + 1) / (2 * (4 * n + 1))
    rows = (
        ("largest error of B0, m", jnp.abs(head - exact).max(), limit),
        ("largest error of the last upright's end, m", jnp.abs(last - exact).max(), limit),
        ("largest energy drift, J", jnp.abs(jm.energy(system, solution).balance).max(), 10 * limit * n),
        ("largest residual, m", jnp.abs(jm.residuals(system, solution).position).max(), 1e-12),
        ("error of the acceleration at the flat pose", jnp.abs(at_flat - slope), 1e-9),
    )
    for label, value, most in rows:
        print(f"  {label:<44}{float(value):>10.1e}   at most {most:.0e}")
        assert value <= most, f"{label} is {float(value):.1e}, more than {most:.0e}."
    assert found.rank_nearby - found.rank == n, "The flat pose must lose N rows."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
