"""Many bodies: a chain, a closed loop of links, forty four-bars in a row and a scissor lift with two sides, one cost per body."""

import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from nfourbar import reduced_motion
from nfourbar_joints import PARAMS, nfourbar, turning

import jaxmb as jm
from jaxmb.planar import Body, Mechanism, PointOnLine, Revolute

DOWN = (0.0, -9.81)


def chain(links, length=0.05):
    """Links in a horizontal row, hung up at the left end."""
    bodies = [Body.rod(f"link{i}", 0.1, length, position=(length * i, 0.0)) for i in range(links)]
    ends = [("ground", (0.0, 0.0)), *(f"link{i}.b" for i in range(links))]
    joints = [Revolute(f"pin{i}", ends[i], f"link{i}.a") for i in range(links)]
    return Mechanism(bodies, joints, gravity=DOWN)


def ring(links, length=0.05):
    """Links in a regular polygon, all joined to their neighbours and one to the ground."""
    turn = 2 * np.pi / links
    angles = turn * (np.arange(links) + 0.5)
    corners = np.cumsum(length * np.stack([np.cos(angles), np.sin(angles)], axis=1), axis=0)
    corners = np.concatenate([np.zeros((1, 2)), corners])
    bodies = [Body.rod(f"link{i}", 0.1, length, position=corners[i], angle=angles[i]) for i in range(links)]
    joints = [Revolute("hook", ("ground", (0.0, 0.0)), "link0.a")]
    joints += [Revolute(f"pin{i}", f"link{i}.b", f"link{(i + 1) % links}.a") for i in range(links)]
    return Mechanism(bodies, joints, gravity=DOWN)


def lift(stages, angle=0.6, half=0.5):
    """Crossed bars in two sides, whose crossings are tied to each other: all ties but one row are redundant."""
    step = 2 * half * np.array([np.cos(angle), np.sin(angle)])
    bodies, joints = [], []
    for side in ("front", "rear"):
        rising = [f"{side}_rising{k}" for k in range(stages)]
        falling = [f"{side}_falling{k}" for k in range(stages)]
        for k in range(stages):
            low = np.array([0.0, k * step[1]])
            bodies.append(Body.rod(rising[k], 1.0, 2 * half, position=low, angle=angle))
            bodies.append(Body.rod(falling[k], 1.0, 2 * half, position=(0.0, (k + 1) * step[1]), angle=-angle))
            joints.append(Revolute(f"{side}_cross{k}", (rising[k], (half, 0.0)), (falling[k], (half, 0.0))))
        for k in range(1, stages):
            joints.append(Revolute(f"{side}_left{k}", f"{falling[k - 1]}.a", f"{rising[k]}.a"))
            joints.append(Revolute(f"{side}_right{k}", f"{rising[k - 1]}.b", f"{falling[k]}.b"))
        joints.append(Revolute(f"{side}_foot", ("ground", (0.0, 0.0)), f"{rising[0]}.a"))
        joints.append(PointOnLine(f"{side}_slide", ("ground", (0.0, 0.0)), f"{falling[0]}.b", axis=(1.0, 0.0)))
    joints += [
        Revolute(f"tie{k}", (f"front_rising{k}", (half, 0.0)), (f"rear_rising{k}", (half, 0.0))) for k in range(stages)
    ]
    return Mechanism(bodies, joints, gravity=DOWN)


def motion(system, state, end, **settings):
    """The motion and how long a second call takes."""
    ts = jnp.linspace(0.0, end, 11)
    solution = jm.simulate(system, state, ts, **settings)
    started = time.perf_counter()
    solution = jax.block_until_ready(jm.simulate(system, state, ts, **settings))
    return solution, time.perf_counter() - started


def report(title, system, solution, seconds, checks):
    """A few lines, and whether all is as it must be."""
    steps = int(solution.stats["num_steps"])
    print(
        f"{title}: {system.nv} velocities, {system.m} rows of rank {int(solution.stats['highest_rank'])}\n"
        f"  {steps} steps, {int(solution.stats['sparse_steps'])} of them by sparse linear algebra, "
        f"{1e3 * seconds / steps:.2f} ms each"
    )
    for label, value, most in checks:
        print(f"  {label:<44}{float(value):>10.1e}   at most {most:.0e}")
        assert value <= most, f"{title}: {label} is {float(value):.1e}, more than {most:.0e}."
    assert solution.stats["sparse_steps"] > 0.5 * steps, f"{title}: most steps must be sparse."


def conserved(system, solution):
    """What holds for each of them, in units of the largest kinetic energy and of a length of 1 m."""
    energy = jm.energy(system, solution)
    off = jnp.abs(energy.balance - energy.balance[0]).max() / jnp.abs(energy.kinetic).max()
    return [
        ("largest change of energy, relative", off, 1e-6),
        ("largest residual, m", jnp.abs(jm.residuals(system, solution).position).max(), 1e-11),
    ]


def main():
    system = chain(200).build("absolute")
    found = motion(system, jm.assemble(system), 0.3)
    report("Chain of 200 links", system, *found, conserved(system, found[0]))

    system = ring(60).build("absolute")
    found = motion(system, jm.assemble(system), 0.3)
    report("Loop of 60 links", system, *found, conserved(system, found[0]))

    n = 40
    system = nfourbar(n).build(cut=[f"right{i}" for i in range(n)])
    controller = dfx.PIDController(rtol=1e-8, atol=1e-8)
    found = motion(system, turning(system, n, -1.0), 10.0, solver=dfx.Dopri8(), stepsize_controller=controller)
    angle = reduced_motion(n, jnp.array(np.pi / 2), jnp.array(-1.0), found[0].ts, PARAMS)
    exact = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    error = jnp.abs(jm.position(system, found[0], "up0.b") - exact).max()
    report(f"N-four-bar, N = {n}, ten singular passages", system, *found, [("largest error of B0, m", error, 1e-5)])

    system = lift(40).build("absolute")
    found = motion(system, jm.assemble(system), 0.3)
    rank = int(found[0].stats["highest_rank"])
    assert rank == system.nv - 1, "The lift must have one freedom."
    report("Scissor lift of 40 stages, two sides", system, *found, conserved(system, found[0]))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
