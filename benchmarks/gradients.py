"""What derivatives of a run cost: forward and reverse mode beside the run itself, by numbers of parameters and of runs at once.

    python benchmarks/gradients.py

A two-link arm swings for 2 s; the cost is the mean square of its angles at 101 times. Later calls, medians, in alternation; memory is
what XLA sets aside for temporaries.
"""

import functools
import statistics
import time

import diffrax as dfx
import jax
import jax.numpy as jnp

import jaxmb as jm
from jaxmb.fit.target import Setup, place

P = jm.planar
NAMES = [f"{body}.{field}" for body in ("upper", "lower") for field in ("mass", "inertia", "com.x", "com.y")]
NAMES += ["gravity.x", "gravity.y"]
TS = jnp.linspace(0.0, 2.0, 101)


def arm():
    return P.Mechanism(
        [P.Body.rod("upper", mass=1.0, length=1.0), P.Body.rod("lower", mass=0.5, length=0.8)],
        [P.Revolute("shoulder", "ground", "upper.a"), P.Revolute("elbow", "upper.b", "lower.a")],
        gravity=(0.0, -9.81),
    )


def cost(start, values, adjoint):
    setup = Setup(arm())
    for name, value in zip(NAMES, values, strict=False):
        at = place(setup, name)
        setup = at.written(setup, at.read(setup) + value)
    found = jm.simulate(setup.model.build(), start, TS, adjoint=adjoint, throw=False)
    return jnp.mean(found.q**2)


def alone_or_many(fn, runs):
    return jax.vmap(fn) if runs > 1 else lambda x: fn(x[0])


def main():
    jax.config.update("jax_enable_x64", True)
    start = jm.assemble(arm().build(), {"shoulder": 0.3, "elbow": 0.5})
    print(
        f"{'runs':>5} {'numbers':>8} {'run':>10} {'forward':>18} {'reverse':>18} {'first calls, s':>22} {'memory, MB':>22}"
    )
    for runs in (1, 64):
        for count in (1, 4, 10):
            x = 0.01 * jax.random.normal(jax.random.PRNGKey(0), (runs, count))
            reverse, forward = (functools.partial(cost, start, adjoint=a) for a in (None, dfx.ForwardMode()))
            kinds = [alone_or_many(fn, runs) for fn in (reverse, jax.jacfwd(forward), jax.jacrev(reverse))]
            calls, first, memory = [], [], []
            for kind in kinds:
                clock = time.perf_counter()
                call = jax.jit(kind).lower(x).compile(compiler_options=jm.compiler_options())
                first.append(time.perf_counter() - clock)
                memory.append(call.memory_analysis().temp_size_in_bytes / 1e6)
                calls.append(call)
            times = [[] for _ in calls]
            for _ in range(7):
                for call, spent in zip(calls, times, strict=True):
                    clock = time.perf_counter()
                    jax.block_until_ready(call(x))
                    spent.append(time.perf_counter() - clock)
            run, forward, reverse = map(statistics.median, times)
            told = " / ".join(f"{s:.1f}" for s in first), " / ".join(f"{m:.2f}" for m in memory)
            print(
                f"{runs:5} {count:8} {1e3 * run:7.2f} ms {1e3 * forward:8.2f} ms ({forward / run:4.1f})"
                f" {1e3 * reverse:8.2f} ms ({reverse / run:4.1f}) {told[0]:>22} {told[1]:>22}",
                flush=True,
            )


if __name__ == "__main__":
    main()
