"""What a first call costs: trace, compile and run, beside a later call with the same shapes.

    python benchmarks/first_call.py [four-bar | andrews ...]

Each row is measured in a process of its own, without a persistent cache.
"""

import pathlib
import subprocess
import sys
import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmb as jm

sys.path.append(str(pathlib.Path(__file__).parent.parent / "examples"))
# Positions and velocities of a four-bar in relative coordinates; its loop is closed by points.
L0, LENGTHS, MASSES, GRAVITY = 1.0, jnp.array([0.4, 0.9, 0.8]), jnp.array([1.0, 2.0, 1.5]), 9.81


def fourbar():
    def centres(q):
        turned = jnp.cumsum(q)
        rods = LENGTHS[:, None] * jnp.stack([jnp.cos(turned), jnp.sin(turned)], axis=1)
        ends = jnp.cumsum(rods, axis=0)
        return ends - rods / 2, turned, ends[-1]

    def mass(t, q, p):
        moves, turns, _ = jax.jacfwd(centres)(q)
        spin = jnp.einsum("i,ij,ik->jk", MASSES * LENGTHS**2 / 12, turns, turns)
        return jnp.einsum("i,idj,idk->jk", MASSES, moves, moves) + spin

    potential = lambda t, q, p: GRAVITY * MASSES @ centres(q)[0][:, 1]
    loop = jm.Holonomic("loop", lambda t, q, p: centres(q)[2] - jnp.array([L0, 0.0]))
    system = jm.System(3, mass=mass, potential=potential, constraints=[loop])
    return system, lambda: jm.assemble(system, [0.0, 1.1941, 1.4636], hold=[0])


def andrews():
    from andrews_model import build

    system, state = build()
    return system, lambda: jm.assemble(system, state.q, state.v)


SYSTEMS = {"four-bar": (fourbar, 0.5), "andrews": (andrews, 0.03)}


def calls(system, start, end):
    """What is measured, by name."""
    state, ts = start(), jnp.linspace(0, end, 11)[1:]
    run = lambda state: jm.simulate(system, state, ts)
    fast = lambda v: jm.simulate(system, eqx.tree_at(lambda s: s.v, state, v), ts, throw=False).q
    options = jm.compiler_options()
    longer = lambda x: jm.simulate(system, state, x * ts, throw=False).q
    batch = jax.jit(jax.vmap(longer), compiler_options=options)
    slope = jax.jit(jax.grad(lambda v: fast(v)[-1, 0]), compiler_options=options)
    stored = dfx.RecursiveCheckpointAdjoint(checkpoints=4096)
    old = lambda v: jm.simulate(system, eqx.tree_at(lambda s: s.v, state, v), ts, adjoint=stored, throw=False).q[-1, 0]
    by_checkpoints = jax.jit(jax.grad(old), compiler_options=options)
    return {
        "assemble": start,
        "simulate": lambda: run(state),
        "reactions": lambda: jm.reactions(system, state),
        "100 at once": lambda: batch(jnp.linspace(0.9, 1.0, 100)),
        "reverse gradient": lambda: slope(state.v),
        "the same by checkpoints": lambda: by_checkpoints(state.v),
    }


def measure(name, what):
    """One row, in this process."""
    jax.config.update("jax_enable_x64", True)
    build, end = SYSTEMS[name]
    system, start = build()
    jax.clear_caches()
    fn = start if what == "assemble" else calls(system, start, end)[what]
    wait = lambda: jax.block_until_ready(eqx.filter(fn(), eqx.is_array))
    cpu, start = time.process_time(), time.perf_counter()
    wait()
    cpu, first, start = time.process_time() - cpu, time.perf_counter() - start, time.perf_counter()
    wait()
    later = 1e3 * (time.perf_counter() - start)
    print(f"| {name} | {what} | {first:.1f} s | {cpu:.1f} s | {later:.1f} ms |", flush=True)


if __name__ == "__main__":
    if "--row" in sys.argv:
        measure(*sys.argv[2:])
    else:
        print("| system | call | first | its CPU time | later |\n|---|---|---|---|---|", flush=True)
        rows = ("assemble", "simulate", "reactions", "100 at once", "reverse gradient", "the same by checkpoints")
        for name in sys.argv[1:] or SYSTEMS:
            for what in rows:
                subprocess.run([sys.executable, __file__, "--row", name, what], check=True)
