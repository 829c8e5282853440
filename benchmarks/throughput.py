"""Batches of trajectories: time per step and lane against the number of lanes, beside MuJoCo and MJX, with each one's error.

    python benchmarks/throughput.py [--small | --full]

All engines take the same mechanism, the same starts and the same constant step (jaxmb Tsit5, MuJoCo and MJX RK4), and use the whole
device, but for MuJoCo on one core; jaxmb also runs with steps of its own choice. The error is that of the crank's angle of lane 0 after
1,000 steps. Last come adaptive trajectories whose numbers of steps differ: their time over what the same steps take where all lanes
need equally many.
"""

import dataclasses
import functools
import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import common
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from lanes import CASES, Batch, Case, constant_steps

import jaxmb as jm

LANES = {"small": (1,), "default": (1, 256), "full": (1, 16, 256, 4096, 65_536)}
MANY = (1, 1000, 100_000, 1_000_000)  # on a GPU
NAMES = {"small": ("four-bar",), "default": tuple(CASES), "full": tuple(CASES)}
UNEVEN = {"small": 16, "default": 1024, "full": 4096}
TIMED = 100  # steps
ROUNDS = 3
DTYPES = {"small": ("float64",), "default": ("float64",), "full": ("float64", "float32")}
# The ratios of stiff loops, see mujoco_models.py, that give the least error at these steps.
STIFF = {"four-bar": 0.2, "Andrews": 0.5, "Puma": None}
STIFF_MJX = 1.4


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to run a batch: its name, and a call that takes a number of steps and returns the cranks' angles.

    An adaptive one takes as many steps as it likes over the same time.
    """

    name: str
    call: Callable[[int], Any]
    adaptive: bool = False


def jaxmb(case: Case, name: str, lanes: int) -> Iterator[Candidate]:
    """Constant and adaptive steps."""
    for kind, settings in (("constant steps", constant_steps(case.step)), ("adaptive", {})):
        run = Batch(case, lanes, settings, lambda found: found.q[-1, 0])
        yield Candidate(f"jaxmb, {kind}", lambda steps, run=run: run(steps * case.step), not settings)


def mujoco(case: Case, name: str, lanes: int) -> Iterator[Candidate]:
    """MuJoCo C, lane after lane on one core, and on all of them by `rollout`."""
    engine, model, pose, speeds = model_of(name, case, lanes, STIFF[name])
    rollout = importlib.import_module("mujoco.rollout")
    data = engine.MjData(model)
    kind = engine.mjtState.mjSTATE_FULLPHYSICS
    states = np.empty((lanes, engine.mj_stateSize(model, kind)))
    for state, v in zip(states, speeds, strict=True):
        data.qpos[:], data.qvel[:] = pose, v
        engine.mj_getState(model, data, state, kind)

    def one_core(steps):
        angles = np.empty(lanes)
        for i, state in enumerate(states):
            engine.mj_resetData(model, data)
            engine.mj_setState(model, data, state, kind)
            engine.mj_step(model, data, nstep=steps)
            angles[i] = data.qpos[0]
        return angles

    threads = [engine.MjData(model) for _ in range(os.cpu_count() or 1)]

    def all_cores(steps):
        found, _ = rollout.rollout(model, threads, states, nstep=steps, persistent_pool=True)
        return found[:, -1, 1]  # after the time

    yield Candidate("MuJoCo C, one core", one_core)
    yield Candidate(f"MuJoCo C, {len(threads)} threads", all_cores)


def mjx(case: Case, name: str, lanes: int) -> Iterator[Candidate]:
    """MJX with JAX, under `vmap`."""
    engine = importlib.import_module("mujoco.mjx")
    _, model, pose, speeds = model_of(name, case, lanes, STIFF_MJX)
    device = engine.put_model(model)
    first = engine.make_data(model).replace(qpos=jnp.asarray(pose))
    v = jnp.asarray(speeds)

    def step(_, data):  # in double precision MJX changes the types of some integers
        return jax.tree.map(lambda new, old: new.astype(jnp.asarray(old).dtype), engine.step(device, data), data)

    def go(v, steps):
        return jax.lax.fori_loop(0, steps, step, first.replace(qvel=v)).qpos[0]

    run = jax.jit(jax.vmap(go, in_axes=(0, None)))
    yield Candidate("MJX, vmap", lambda steps: run(v, steps))


def model_of(name: str, case: Case, lanes: int, ratio: float | None) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """MuJoCo, the stiff model, its coordinates at the start, and velocities (lanes, nv)."""
    models = importlib.import_module("mujoco_models")
    built = {"four-bar": models.fourbar, "Andrews": models.andrews, "Puma": lambda _: models.puma()}[name](
        case.build()[1]
    )
    pose, unit = built.start
    return models.mujoco, built.compile(case.step, ratio), pose, case.velocities(unit, lanes)


def engines(dtype: str) -> list[Callable[..., Iterator[Candidate]]]:
    """Those that are installed; MuJoCo C knows double precision only."""
    peers = {mujoco: "mujoco"} if dtype == "float64" else {}
    peers[mjx] = "mujoco-mjx"
    return [jaxmb] + [engine for engine, package in peers.items() if common.installed(package)]


def measured(name: str, lanes: int, dtype: str, errors: dict[str, float | None]) -> list[dict[str, Any]]:
    """One row for each candidate; a batch of one also finds the errors."""
    case = CASES[name]
    candidates = [candidate for make in engines(dtype) for candidate in make(case, name, lanes)]
    found = common.in_alternation({c.name: functools.partial(c.call, TIMED) for c in candidates}, ROUNDS)
    rows = []
    for candidate in candidates:
        timing = found[candidate.name]
        if lanes == 1:
            errors[candidate.name] = away(float(candidate.call(case.checked)[0]), case.exact)
        each = timing.median / TIMED / lanes
        labels = dict(mechanism=name, engine=candidate.name, dtype=dtype, lanes=lanes)
        failed = int(np.sum(~np.isfinite(timing.value)))
        per_step = None if candidate.adaptive else 1e6 * each
        figures = dict(simulated_s_per_s=case.step / each, us_per_step_and_lane=per_step)
        rows.append(labels | figures | dict(error_rad=errors[candidate.name], failed_lanes=failed) | timing.row())
    return rows


def away(angle: float, exact: float) -> float | None:
    """The error; None if it is not finite."""
    return abs(angle - exact) if np.isfinite(angle) else None


def uneven(lanes: int) -> dict[str, Any]:
    """Adaptive four-bars at speeds from 10 to 70 rad/s in any order, at once and by groups, beside some that are all like the one in the middle."""
    jax.config.update("jax_enable_x64", True)
    system, state = CASES["four-bar"].build()
    speeds = np.random.default_rng(0).permutation(np.linspace(10.0, 70.0, lanes))

    def steps(speed):
        start = eqx.tree_at(lambda s: s.v, state, speed * state.v)
        return jm.simulate(system, start, jnp.ones(1), throw=False).stats["num_steps"]

    groups = jm.batched(steps, cost=lambda speed: speed)
    at_once = jm.batched(steps, size=lanes)
    middle = np.full(lanes, 40.0)
    calls = {
        "even": lambda: groups(middle),
        "groups": lambda: groups(speeds),
        "at once": lambda: at_once(speeds),
    }
    found = common.in_alternation(calls, ROUNDS)
    counts = found["groups"].value
    each = found["even"].median / found["even"].value.sum()
    return {
        "lanes": lanes,
        "steps_least": int(counts.min()),
        "steps_mean": float(counts.mean()),
        "steps_most": int(counts.max()),
        "us_per_step_and_lane_even": 1e6 * each,
        "groups_s": found["groups"].median,
        "at_once_s": found["at once"].median,
        "groups_over_useful_steps": found["groups"].median / (each * counts.sum()),
        "at_once_over_useful_steps": found["at once"].median / (each * counts.sum()),
    }


def in_precision(dtype: str, size: str) -> list[dict[str, Any]]:
    """All mechanisms and sizes in one precision."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    rows = []
    sizes = MANY if jax.default_backend() == "gpu" and size != "small" else LANES[size]
    for name in NAMES[size]:
        errors: dict[str, float | None] = {}
        for lanes in sizes:
            found = measured(name, lanes, dtype, errors)
            print(f"\n{name}, {CASES[name].title}, {dtype}\n{common.table(found)}", flush=True)
            rows += found
    return rows


def main() -> None:
    given = common.arguments("throughput", __doc__)
    started = time.perf_counter()
    rows = [row for dtype in DTYPES[given.size] for row in common.in_own_process(in_precision, dtype, given.size)]
    imbalance = common.in_own_process(uneven, UNEVEN[given.size])
    print(f"\nUneven numbers of steps\n{common.table([imbalance])}")
    common.write(given.output, rows, started, given.size, uneven=imbalance)


if __name__ == "__main__":
    main()
