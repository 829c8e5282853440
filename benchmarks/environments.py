"""Steps of ready-made environments under random actions, new starts included: first call, and time per lane and step.

python benchmarks/environments.py [--small | --full]
"""

import functools
import time

import common
import jax

import jaxmb as jm

TASKS = {"small": ("five_bar_hopper",), "default": ("five_bar_hopper",), "full": jm.env.TASKS}
LANES = {"small": (1,), "default": (1, 64, 1024), "full": (1, 64, 1024)}
# Steps of all lanes together: with few lanes a loop must be long enough to be timed.
WORK = {"small": 4, "default": 10_000, "full": 100_000}
LEAST, ROUNDS = 20, 3


def rollout(auto: jm.env.AutoReset, count: int, state: jm.env.State) -> tuple[jax.Array, jax.Array]:
    """The mean reward, and how many episodes end."""

    def one(state, rng):
        after = auto.step(state, 0.5 * jax.random.uniform(rng, (auto.action_size,), minval=-1))
        return after, (after.reward, after.done)

    rewards, done = jax.lax.scan(one, state, jax.random.split(state.info["rng"], count))[1]
    return rewards.mean(), done.sum()


def main() -> None:
    """Prints a table and keeps it."""
    options, started = common.arguments("environments", __doc__), time.perf_counter()
    size, rows = options.size, []
    for task in TASKS[size]:
        begin = time.perf_counter()
        auto = jm.env.AutoReset(jm.env.make(task))
        made = time.perf_counter() - begin
        for lanes in LANES[size]:
            count = max(LEAST, WORK[size] // lanes) if size != "small" else WORK[size]
            keys = jax.random.split(jax.random.key(0), lanes)
            reset_s, states = common.seconds(functools.partial(jax.jit(jax.vmap(auto.reset)), keys))
            loop = jax.jit(jax.vmap(functools.partial(rollout, auto, count)))
            timing = common.in_alternation({task: functools.partial(loop, states)}, ROUNDS)[task]
            each = timing.minimum / (lanes * count) * 1e6
            ends = float(timing.value[1].sum())
            rows.append({"task": task, "lanes": lanes, "steps": count, "made_s": made, "reset_first_s": reset_s, "first_s": timing.first, "us_per_step": each, "episodes": ends})  # fmt: skip
            print(
                f"{task:18s} {lanes:5d} lanes: made {made:5.1f} s, first reset {reset_s:5.1f} s, first {count} steps {timing.first:5.1f} s, "
                f"then {each:8.2f} µs per lane and step, {ends:.0f} episodes end",
                flush=True,
            )
    common.write(options.output, rows, started, size)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
