"""Throughput of one device, most of all a GPU, beside the two floors that the device sets: bytes and operations.

    python benchmarks/gpu.py [--small | --full]

Runs wherever jaxmb does. The four-bar in batches, 100 constant steps of Tsit5 with projection, in double and in single precision.

    floor by bytes       state read and written once per step, over the measured bandwidth of a copy
    floor by operations  operations of one right-hand side, as XLA counts them, × stages, over the measured peak of multiply–adds

But for `--small` steps of small arrays, `engine=XLA()`, run beside those of single numbers, in double precision, and MJX where it is installed, whose floors are those of jaxmb's right-hand side. The end states are compared with those of the CPU in double precision, which JAX has beside any device.
A first call of jaxmb is that of a program that is compiled already, as its memory is asked for before it runs.
"""

import dataclasses
import functools
import os
import time
from typing import Any

import common
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import throughput
from lanes import CASES, Batch, Case, constant_steps

import jaxmb as jm

LANES = {"small": (1, 256), "default": (1, 16, 256, 4096), "full": (1, 16, 256, 4096)}
ON_A_GPU = {"small": (1, 1000), "default": (1000, 100_000), "full": (1, 1000, 10_000, 100_000, 1_000_000)}
STEPS, STAGES = 100, 7  # of Tsit5 with the factor at the end of a step
CHECKED = 256  # lanes
AWAY = {"float64": 1e-9, "float32": 1e-3}  # of the angles after 100 steps, in rad
PART = 0.8  # of the device's memory that a batch may take
ROUNDS = 3


def end_state(found: jm.Solution) -> jax.Array:
    """Coordinates and velocities at the end."""
    return jnp.concatenate([found.q[-1], found.v[-1]])


def batch(case: Case, lanes: int, **settings: Any) -> Batch:
    return Batch(case, lanes, constant_steps(case.step) | settings, end_state)


def bandwidth(dtype: str) -> float:
    """Bytes per second of a copy: an array read once and written once."""
    held = [jnp.ones(50_000_000, dtype)]
    copy = jax.jit(lambda x: x + 1, donate_argnums=0)  # in place: new memory would be counted too

    def call():
        held[0] = copy(held[0])
        return held[0]

    return 2 * held[0].nbytes / common.in_alternation({"copy": call}, 9)["copy"].minimum


def peak(dtype: str) -> float:
    """Operations per second of multiply–adds on the elements of an array that stays in registers."""
    x = jnp.linspace(0.0, 1.0, 4_000_000 if jax.default_backend() == "gpu" else 65_536, dtype=dtype)
    repeats, chains = 256, 8

    @jax.jit
    def work(x):
        many = [x + i for i in range(chains)]
        for _ in range(repeats // chains):
            many = [y * x + x for y in many]
        return functools.reduce(jnp.add, many)

    return 2 * repeats * x.size / common.in_alternation({"peak": lambda: work(x)}, 9)["peak"].minimum


def operations(case: Case) -> float:
    """Of one right-hand side with all rows independent: M, C, Γ, F and the acceleration; a sine counts as one."""
    system, state = case.build()
    in_use = jnp.ones(system.m, bool)

    def right_side(q, v):
        terms = jm.evaluate(system, eqx.tree_at(lambda s: (s.q, s.v), state, (q, v)))
        return jm.formulation.GaussProjection().acceleration(dataclasses.replace(terms, nearby=None), in_use).vdot

    cost = jax.jit(right_side).lower(state.q, state.v).compile().cost_analysis()
    return float(cost["flops"] + cost.get("transcendentals", 0.0))


def cpu_states(name: str) -> np.ndarray:
    """End states of `CHECKED` lanes by the CPU in double precision."""
    jax.config.update("jax_enable_x64", True)
    case = CASES[name]
    with jax.default_device(jax.devices("cpu")[0]):
        return np.asarray(batch(case, CHECKED)(STEPS * case.step))


def measured(name: str, dtype: str, size: str, expected: np.ndarray) -> list[dict[str, Any]]:
    """One row for each batch in one precision."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    case, on_gpu = CASES[name], jax.default_backend() == "gpu"
    system, _ = case.build()
    away = float(np.abs(np.asarray(batch(case, CHECKED)(STEPS * case.step)) - expected)[:, : system.nq].max())
    assert away <= AWAY[dtype], f"End states in {dtype} are {away:.1e} rad from the CPU's, more than {AWAY[dtype]:.0e}."
    state_bytes = 2 * (system.nq + system.nv) * np.dtype(dtype).itemsize
    speeds = dict(copy_gb_per_s=bandwidth(dtype) / 1e9, peak_gflops=peak(dtype) / 1e9, operations=operations(case))
    floors = {
        "floor_bytes_us": 1e-3 * state_bytes / speeds["copy_gb_per_s"],
        "floor_operations_us": 1e-3 * STAGES * speeds["operations"] / speeds["peak_gflops"],
    }
    rows = []
    for lanes in (ON_A_GPU if on_gpu else LANES)[size]:
        labels = dict(mechanism=name, dtype=dtype, lanes=lanes)
        run = batch(case, lanes)
        if run.bytes > PART * memory():
            rows.append(labels | dict(engine="jaxmb", skipped=f"needs {run.bytes / 1e9:.1f} GB"))
            continue
        calls = {"jaxmb": functools.partial(run, STEPS * case.step)}
        if size != "small" and dtype == "float64":
            calls["jaxmb, XLA()"] = functools.partial(batch(case, lanes, engine=jm.XLA()), STEPS * case.step)
        if size != "small" and common.installed("mujoco-mjx"):
            calls |= {peer.name: functools.partial(peer.call, STEPS) for peer in throughput.mjx(case, name, lanes)}
        for engine, timing in common.in_alternation(calls, ROUNDS).items():
            each = 1e6 * timing.median / STEPS / lanes
            distances = {f"times_{key.removesuffix('_us')}": each / floor for key, floor in floors.items()}
            first_lane = float(np.ravel(timing.value)[0])
            figures = dict(engine=engine, us_per_step_and_lane=each, from_cpu_rad=abs(first_lane - expected[0, 0]))
            rows.append(labels | figures | distances | floors | speeds | dict(program_bytes=run.bytes) | timing.row())
            print(common.table(rows[-1:]), flush=True)
    return rows


def memory() -> float:
    """Bytes that the device has."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def main() -> None:
    given = common.arguments("gpu", __doc__)
    started, rows = time.perf_counter(), []
    for name in ("four-bar",) if given.size != "full" else tuple(CASES):
        expected = common.in_own_process(cpu_states, name)
        for dtype in ("float64", "float32"):
            rows += common.in_own_process(measured, name, dtype, given.size, expected)
    print(f"\n{jax.devices()[0].device_kind}\n{common.table(rows)}")
    common.write(given.output, rows, started, given.size)


if __name__ == "__main__":
    main()
