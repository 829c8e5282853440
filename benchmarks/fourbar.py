"""The four-bar in three relative coordinates, at 1 ms steps: jaxmb with Tsit5 and projection against MuJoCo C with RK4.

Run on one core, after `pip install .[benchmarks]`:

    taskset -c 0 python benchmarks/fourbar.py

Both integrate the same mechanism from rest. jaxmb decides the rank and projects at every step; its loop is closed to
rounding, MuJoCo's to its soft constraint. Times are the best of several runs, second and later calls.
"""

import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxmb as jm

L0, L1, L2, L3 = 1.0, 0.4, 0.9, 0.8
M1, M2, M3 = 1.0, 2.0, 1.5
G = 9.81
START = (0.0, 1.1941, 1.4636)

# Mass matrix of a chain of rods: constants times cosines of differences of the absolute angles.
A, B, C = M1 * L1**2 / 3 + (M2 + M3) * L1**2, M2 * L2**2 / 3 + M3 * L2**2, M3 * L3**2 / 3
AB, AC, BC = (M2 / 2 + M3) * L1 * L2, M3 / 2 * L1 * L3, M3 / 2 * L2 * L3
CONSTANT = np.array([[A + B + C, B + C, C], [B + C, B + C, C], [C, C, C]])
COS_12 = AB * np.array([[2.0, 1, 0], [1, 0, 0], [0, 0, 0]])
COS_13 = AC * np.array([[2.0, 1, 1], [1, 0, 0], [1, 0, 0]])
COS_23 = BC * np.array([[2.0, 2, 1], [2, 2, 1], [1, 1, 0]])


def mass(t, q, p):
    return CONSTANT + COS_12 * jnp.cos(q[1]) + COS_13 * jnp.cos(q[1] + q[2]) + COS_23 * jnp.cos(q[2])


def directions(q):
    angles = (q[0], q[0] + q[1], q[0] + q[1] + q[2])
    return [(jnp.sin(a), jnp.cos(a)) for a in angles]


def potential(t, q, p):
    (_, c1), (_, c2), (_, c3) = directions(q)
    return G * ((M1 / 2 + M2 + M3) * L1 * c1 + (M2 / 2 + M3) * L2 * c2 + M3 / 2 * L3 * c3)


def loop(t, q, p):
    (s1, c1), (s2, c2), (s3, c3) = directions(q)
    return jnp.stack([L1 * s1 + L2 * s2 + L3 * s3 - L0, L1 * c1 + L2 * c2 + L3 * c3])


MJCF = f"""<mujoco><option timestep="0.001" integrator="RK4" gravity="0 0 -{G}"/><worldbody>
<body name="b1"><joint type="hinge" axis="0 1 0"/>
<inertial pos="0 0 {L1 / 2}" mass="{M1}" diaginertia="{M1 * L1**2 / 12} {M1 * L1**2 / 12} 1e-4"/>
<body name="b2" pos="0 0 {L1}"><joint type="hinge" axis="0 1 0"/>
<inertial pos="0 0 {L2 / 2}" mass="{M2}" diaginertia="{M2 * L2**2 / 12} {M2 * L2**2 / 12} 1e-4"/>
<body name="b3" pos="0 0 {L2}"><joint type="hinge" axis="0 1 0"/>
<inertial pos="0 0 {L3 / 2}" mass="{M3}" diaginertia="{M3 * L3**2 / 12} {M3 * L3**2 / 12} 1e-4"/>
</body></body></body></worldbody>
<equality><connect body1="b3" body2="world" anchor="0 0 {L3}"/></equality></mujoco>"""


def best(run, repeats=7):
    """Shortest time of a call, in s."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return min(times)


def mujoco_step(q, steps=20_000):
    """Seconds per RK4 step of MuJoCo C."""
    model = mujoco.MjModel.from_xml_string(MJCF)
    model.eq_data[0, 3:6] = (L0, 0, 0)
    data = mujoco.MjData(model)

    def run():
        mujoco.mj_resetData(model, data)
        data.qpos[:] = q
        mujoco.mj_step(model, data, nstep=steps)
        return data.qpos

    return best(run, 5) / steps


def main():
    jax.config.update("jax_enable_x64", True)
    constraint = jm.Holonomic("loop", loop)
    system = jm.System(("a1", "a2", "a3"), mass=mass, potential=potential, constraints=[constraint])
    state = jm.assemble(system, START, hold=["a1"])
    # At 1 ms one correction brings the residual to rounding; the default of three is for steps as long as they can be.
    drift = jm.Projection(iterations=1)
    method = {"drift": drift, "dt0": 1e-3, "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 100_000}

    start = time.perf_counter()
    jax.block_until_ready(jm.simulate(system, state, jnp.array([2.0]), **method).q)
    first = time.perf_counter() - start
    alone = best(lambda: jm.simulate(system, state, jnp.array([2.0]), **method).q) / 2000

    lanes, steps = 4096, 100
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (lanes, *x.shape)), state)
    run = eqx.filter_jit(jax.vmap(lambda s: jm.simulate(system, s, jnp.array([steps * 1e-3]), throw=False, **method).q))
    run(states)
    lane = best(lambda: run(states), 5) / steps / lanes
    residual = float(jm.simulate(system, state, jnp.array([2.0]), **method).stats["largest_residual"])
    peer = mujoco_step(np.asarray(state.q))

    print(f"first call of simulate (trace, compile, run 2000 steps)   {first:8.2f} s")
    print(f"MuJoCo C, RK4                                             {peer * 1e6:8.2f} µs per step")
    print(f"jaxmb alone, Tsit5 + projection + rank                    {alone * 1e6:8.2f} µs per step")
    print(f"jaxmb, batch of {lanes}                                     {lane * 1e6:8.2f} µs per step and lane")
    print(f"jaxmb, largest residual of loop and its speed, scaled     {residual:8.1e}")
    print(f"MuJoCo / jaxmb: alone {peer / alone:.2f}, per lane {peer / lane:.2f}")


if __name__ == "__main__":
    main()
