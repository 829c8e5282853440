"""How cost grows with the number of bodies: the N-four-bar (A02) in relative coordinates, from rods and joints.

    python benchmarks/growth.py [--small | --full]

Each N in a process of its own: first call, time per step, what XLA sets aside for temporaries, and the process's peak of memory above
what it took before the call. 200 steps of 1 ms by Tsit5, before the first singular passage.
"""

import functools
import resource
import time
from typing import Any

import common
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

NUMBERS = {"small": (2,), "default": (2, 5, 10, 20, 40), "full": (2, 5, 10, 20, 40, 80)}
ROUNDS = 3
STEP, END = 1e-3, 0.2  # s


def measured(n: int) -> dict[str, Any]:
    """One row."""
    import problems

    jax.config.update("jax_enable_x64", True)
    building, (system, state) = common.seconds(lambda: problems.nfourbar_relative(n))
    before = peak_mb()
    ts = jnp.array([END])
    settings = dict(stepsize_controller=dfx.ConstantStepSize(), dt0=STEP, throw=False)
    run = functools.partial(jm.simulate, system, state, ts, **settings)
    timing = common.in_alternation({"run": run}, ROUNDS)["run"]
    peak = peak_mb() - before
    program = jax.jit(lambda state: jm.simulate(system, state, ts, **settings).q)
    memory = program.lower(state).compile(compiler_options=jm.compiler_options()).memory_analysis()
    steps = int(timing.value.stats["num_steps"])
    away = np.abs(jm.position(system, timing.value, "up0.b")[-1] - exact(n)).max()
    return {
        "n": n,
        "bodies": 2 * n + 1,
        "rows": system.m,
        "assemble_s": building,
        "steps": steps,
        "us_per_step": 1e6 * timing.median / steps,
        "error_m": float(away),
        "temporary_mb": memory.temp_size_in_bytes / 1e6,
        "peak_mb": peak,
    } | timing.row()


def exact(n: int) -> np.ndarray:
    """The place of B₀ from the one equation that is left, since the couplers only translate."""
    from problems import nfourbar, nfourbar_joints

    start = jnp.array(np.pi / 2), jnp.array(-1.0)
    angle = float(nfourbar.reduced_motion(n, *start, jnp.array([0.0, END]), nfourbar_joints.PARAMS)[-1])
    return np.array([np.cos(angle), np.sin(angle)])


def peak_mb() -> float:
    """The largest memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    given = common.arguments("growth", __doc__)
    started, rows = time.perf_counter(), []
    for n in NUMBERS[given.size]:
        rows.append(common.in_own_process(measured, n))
        print(common.table(rows[-1:]), flush=True)
    print(f"\n{common.table(rows)}")
    common.write(given.output, rows, started, given.size)


if __name__ == "__main__":
    main()
