"""Environments' steps: of a five-bar beside MuJoCo, MJX and Brax, with the gap of its loop and the error of its tip; of ready-made tasks.

    python benchmarks/environments.py [--small | --full]

A step of the five-bar's environment takes one action, held over ten steps of 2 ms, and returns what is observed and a reward. All engines take the same
starts and actions, and are asked action by action, as a policy would. Gap and error are the largest at the observations of lane 0 over one second; the reference
takes steps of a hundredth of the length. Tasks take random actions and begin anew where an episode ends.
"""

import dataclasses
import functools
import importlib
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import common
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from fivebar_control import fivebar

import jaxmb as jm

TASKS = {"small": (), "default": ("five_bar_hopper",), "full": jm.env.TASKS}
TASK_LANES = (1, 64, 1024)
LANES = {"small": (1,), "default": (1, 16, 256, 4096), "full": (1, 16, 256, 4096)}
ON_A_GPU = (1, 256, 4096, 65_536)
# Steps of all lanes together: with few lanes a loop must be long enough to be timed.
WORK = {"small": 4, "default": 10_000, "full": 100_000}
LEAST, MOST, ROUNDS = 5, 500, 3
STEP, SUBSTEPS, CHECKED, FINER = 0.002, 10, 50, 100
TORQUE, GOAL = 4.0, (0.1, -0.6)
# Hanging, with elbows outwards: far from the poses in which the linkage is singular.
HANGING = {"base1": -2.2, "elbow1": 1.4, "base2": -0.9, "elbow2": -1.4}
# The ratios of stiff loops, see mujoco_models.py, that give the least error at this step.
STIFF, STIFF_MJX = 0.3, 1.4


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An engine of a number of lanes: its name, and what plays actions (count, lanes, 2) and returns observations (count, lanes, 8) and rewards."""

    name: str
    play: Callable[[np.ndarray], tuple[Any, Any]]


def tips(q: Any, xp: ModuleType) -> Any:
    """Where both arms end (…, arm, 2), by the angles (…, 4)."""
    upper = xp.stack([q[..., 0], q[..., 2]], -1)
    lower = upper + xp.stack([q[..., 1], q[..., 3]], -1)
    base = xp.asarray([-0.15, 0.15])
    return xp.stack([base + 0.4 * xp.cos(upper) + 0.5 * xp.cos(lower), 0.4 * xp.sin(upper) + 0.5 * xp.sin(lower)], -1)


def reward(q: Any, xp: ModuleType) -> Any:
    """How near the tip is to a place."""
    return -((tips(q, xp)[..., 0, :] - xp.asarray(GOAL)) ** 2).sum(-1)


def actions(lanes: int, count: int) -> np.ndarray:
    """Waves (count, lanes, 2), each lane with one of its own."""
    t, phase = STEP * SUBSTEPS * np.arange(count)[:, None], np.linspace(0, 2, lanes)
    return 0.5 * np.stack([np.sin(6 * t + phase), np.sin(9 * t - phase)], -1)


@functools.cache
def hanging() -> tuple[jm.System, jm.State]:
    """The five-bar at its start."""
    system = fivebar().build()
    return system, jm.assemble(system, HANGING)


def environment(solver: dfx.AbstractSolver, substeps: int = SUBSTEPS) -> jm.env.Environment:
    """The five-bar's."""
    system, state = hanging()
    step = jm.stepper(system, state, STEP * SUBSTEPS, substeps=substeps, solver=solver)
    observe = lambda system, state: jnp.concatenate([state.q, state.v])
    rewarded = lambda system, state, action: reward(state.q, jnp)
    return jm.env.Environment(step, observe, rewarded, TORQUE, spread=0.0, episode_length=None)


def scanned(step: Callable[[Any, Any], tuple[Any, Any]], start: Any, lanes: int) -> Callable[[np.ndarray], Any]:
    """Plays actions by a pure function of one lane, a batch of them in one program."""
    starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (lanes, *jnp.shape(x))), start)
    run = jax.jit(lambda states, given: jax.lax.scan(jax.vmap(step), states, given)[1])
    return lambda given: run(starts, given)


def jaxmb(lanes: int) -> Iterator[Candidate]:
    """Two methods with projection."""
    for solver in (dfx.Midpoint(), dfx.Tsit5()):
        env = environment(solver)
        step = lambda state, action, env=env: ((after := env.step(state, action)), (after.obs, after.reward))
        start = env.reset(jax.random.key(0))
        yield Candidate(f"jaxmb, {type(solver).__name__}", scanned(step, start, lanes))


def mujoco(lanes: int) -> Iterator[Candidate]:
    """MuJoCo's batches, on all cores."""
    batches = importlib.import_module("mujoco.batch")
    for name, integrator, ratio in (
        ("Euler", "Euler", None),
        ("RK4", "RK4", None),
        ("RK4, stiff loop", "RK4", STIFF),
    ):
        yield Candidate(f"MuJoCo, {name}", threaded(batches.Batch(model(integrator, ratio), lanes)))


def threaded(batch: Any) -> Callable[[np.ndarray], Any]:
    """Plays actions by a batch of MuJoCo's."""
    state = hanging()[1]

    def play(given: np.ndarray) -> Any:
        batch.reset()
        batch.qpos, batch.qvel = np.asarray(state.q), np.asarray(state.v)
        seen, rewards = [], []
        for u in given:
            batch.ctrl = u
            batch.step(nstep=SUBSTEPS)
            seen.append(np.concatenate([batch.qpos, batch.qvel], -1))
            rewards.append(reward(batch.qpos, np))
        return np.stack(seen), np.stack(rewards)

    return play


def mjx(lanes: int) -> Iterator[Candidate]:
    """MJX with JAX, under `vmap`."""
    engine = importlib.import_module("mujoco.mjx")
    for name, integrator, ratio in (("Euler", "Euler", None), ("RK4, stiff loop", "RK4", STIFF_MJX)):
        known = model(integrator, ratio)
        device = engine.put_model(known)
        state = hanging()[1]
        first = engine.make_data(known).replace(qpos=jnp.asarray(state.q), qvel=jnp.asarray(state.v))

        # In double precision MJX changes the types of some integers.
        def substep(_, data, device=device):
            return jax.tree.map(lambda new, old: new.astype(jnp.asarray(old).dtype), engine.step(device, data), data)

        def step(data, action, substep=substep):
            data = jax.lax.fori_loop(0, SUBSTEPS, substep, data.replace(ctrl=action))
            return data, (jnp.concatenate([data.qpos, data.qvel]), reward(data.qpos, jnp))

        yield Candidate(f"MJX, {name}", scanned(step, first, lanes))


def brax(lanes: int) -> Iterator[Candidate]:
    """The generalised pipeline of Brax, which reads over the loop: it has no constraints but contacts and limits."""
    pipeline = importlib.import_module("brax.generalized.pipeline")
    system, state = importlib.import_module("brax.io.mjcf").load_model(model("Euler", None)), hanging()[1]
    first = pipeline.init(system, jnp.asarray(state.q), jnp.asarray(state.v))

    def step(state, action):
        state = jax.lax.fori_loop(0, SUBSTEPS, lambda _, x: pipeline.step(system, x, action), state)
        return state, (jnp.concatenate([state.q, state.qd]), reward(state.q, jnp))

    yield Candidate("Brax, generalised, without its loop", scanned(step, first, lanes))


def model(integrator: str, ratio: float | None) -> Any:
    """MuJoCo's model."""
    return importlib.import_module("mujoco_models").fivebar(hanging()[1], TORQUE).compile(STEP, ratio, integrator)


def engines() -> list[Callable[[int], Iterator[Candidate]]]:
    """Those that are installed."""
    peers = {mujoco: "mujoco", mjx: "mujoco-mjx", brax: "brax"}
    return [jaxmb] + [engine for engine, package in peers.items() if common.installed(package)]


def beside_peers(size: str) -> list[dict[str, Any]]:
    """One row for each engine and number of lanes; what all engines are compared with is found first."""
    env, given = environment(dfx.Tsit5(), SUBSTEPS * FINER), actions(1, CHECKED)
    step = lambda state, action: ((after := env.step(state, action)), (after.obs, after.reward))
    exact = np.asarray(scanned(step, env.reset(jax.random.key(0)), 1)(given)[0])
    rows, found = [], {}
    for lanes in ON_A_GPU if jax.default_backend() == "gpu" and size != "small" else LANES[size]:
        count = int(np.clip(WORK[size] // lanes, LEAST, MOST))
        candidates = [candidate for engine in engines() for candidate in engine(lanes)]
        if not found:
            found = {candidate.name: against(np.asarray(candidate.play(given)[0]), exact) for candidate in candidates}
        calls = {c.name: functools.partial(c.play, actions(lanes, count)) for c in candidates}
        for name, timing in common.in_alternation(calls, ROUNDS).items():
            finite = bool(np.isfinite(np.asarray(timing.value[0])).all())
            rate = lanes * count / timing.minimum
            rows.append(dict(engine=name, lanes=lanes, steps=count, steps_per_s=rate, finite=finite) | found[name] | timing.row())  # fmt: skip
        print(common.table(rows[-len(candidates) :]), flush=True)
    return rows


def against(seen: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """The largest gap of the loop, and error of the tip, in m."""
    places, right = tips(seen[:, 0, :4], np), tips(exact[:, 0, :4], np)
    size = lambda x: float(np.linalg.norm(x, axis=-1).max())
    return {"gap_m": size(places[:, 0] - places[:, 1]), "error_m": size(places[:, 0] - right[:, 0])}


def rollout(auto: jm.env.AutoReset, count: int, state: jm.env.State) -> tuple[jax.Array, jax.Array]:
    """The mean reward, and how many episodes end."""

    def one(state, rng):
        after = auto.step(state, 0.5 * jax.random.uniform(rng, (auto.action_size,), minval=-1))
        return after, (after.reward, after.done)

    rewards, done = jax.lax.scan(one, state, jax.random.split(state.info["rng"], count))[1]
    return rewards.mean(), done.sum()


def of_tasks(size: str) -> list[dict[str, Any]]:
    """First calls, and time per lane and step, of ready-made tasks."""
    rows = []
    for task in TASKS[size]:
        begin = time.perf_counter()
        auto = jm.env.AutoReset(jm.env.make(task))
        made = time.perf_counter() - begin
        for lanes in TASK_LANES:
            count = max(4 * LEAST, WORK[size] // lanes)
            keys = jax.random.split(jax.random.key(0), lanes)
            reset_s, states = common.seconds(functools.partial(jax.jit(jax.vmap(auto.reset)), keys))
            loop = jax.jit(jax.vmap(functools.partial(rollout, auto, count)))
            timing = common.in_alternation({task: functools.partial(loop, states)}, ROUNDS)[task]
            each = timing.minimum / (lanes * count) * 1e6
            ends = float(timing.value[1].sum())
            rows.append({"task": task, "lanes": lanes, "steps": count, "made_s": made, "reset_first_s": reset_s, "first_s": timing.first, "us_per_step": each, "episodes": ends})  # fmt: skip
            print(common.table(rows[-1:]), flush=True)
    return rows


def main() -> None:
    """Prints tables and keeps them."""
    options, started = common.arguments("environments", __doc__ or ""), time.perf_counter()
    rows = beside_peers(options.size)
    common.write(options.output, rows, started, options.size, tasks=of_tasks(options.size))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
