"""Brax's PPO learns to let the plate of a Delta robot follow a target, from rewards alone.

`pip install brax` beside the library. `jm.env.AutoReset` around a task, and Brax's `VmapWrapper` around that, are what its training takes: episodes that
follow each other, each with masses and an ellipse of its own. It runs in float32, as JAX does by default. `hopper_policy.py` learns by gradients through the
mechanics instead.
"""

import functools
import importlib
import importlib.util
import pathlib
import time

import jax
import jax.numpy as jnp

import jaxmb as jm

TASK, LENGTH, LANES, UNROLL, EVALUATIONS = "delta_tracking", 250, 256, 10, 16
# Of the training: batches of so many unrolls of all lanes together, and how many batches lie between two evaluations.
BATCH, MINIBATCHES, ITERATIONS = 128, 8, 4


def lanes(env, episode_length, action_repeat, randomization_fn=None):
    """What Brax trains and evaluates: the environment counts its steps and draws its systems itself."""
    training = importlib.import_module("brax.envs.wrappers.training")
    assert (episode_length, action_repeat, randomization_fn) == (LENGTH, 1, None)
    return training.VmapWrapper(jm.env.AutoReset(env))


def train(seed=0):
    """Rows of steps, seconds, mean reward of an episode and its deviation, and the parameters."""
    networks, ppo = (importlib.import_module(f"brax.training.agents.ppo.{name}") for name in ("networks", "train"))
    # Brax 0.14.2 calls it, and JAX 0.10 has it no more.
    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = lambda tree, devices: jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)
    begin, rows = time.perf_counter(), []

    def tell(steps, found):
        value, deviation = float(found["eval/episode_reward"]), float(found["eval/episode_reward_std"])
        rows.append((steps, time.perf_counter() - begin, value, deviation))
        print(
            f"{steps:>8} steps, {rows[-1][1]:4.0f} s: reward of an episode {value:6.1f} ± {deviation:.1f}", flush=True
        )

    small = functools.partial(
        networks.make_ppo_networks, policy_hidden_layer_sizes=(64, 64), value_hidden_layer_sizes=(64, 64)
    )
    _, parameters, _ = ppo.train(
        jm.env.make(TASK, episode_length=LENGTH),
        num_timesteps=(EVALUATIONS - 1) * ITERATIONS * BATCH * MINIBATCHES * UNROLL,
        episode_length=LENGTH,
        wrap_env_fn=lanes,
        num_envs=LANES,
        unroll_length=UNROLL,
        batch_size=BATCH,
        num_minibatches=MINIBATCHES,
        num_updates_per_batch=4,
        learning_rate=1e-3,
        entropy_cost=1e-3,
        discounting=0.97,
        normalize_observations=True,
        num_evals=EVALUATIONS,
        num_eval_envs=64,
        deterministic_eval=True,
        network_factory=small,
        progress_fn=tell,
        seed=seed,
    )
    return rows, parameters


def draw(rows, path):
    """The mean reward and its deviation against steps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps, _, mean, deviation = jnp.array(rows).T
    fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
    ax.plot(steps / 1000, mean, marker=".")
    ax.fill_between(steps / 1000, mean - deviation, mean + deviation, alpha=0.2, linewidth=0)
    ax.axhline(LENGTH, color="grey", linewidth=0.8, linestyle="--")
    ax.set(xlabel="steps of all lanes together, in thousands", ylabel="reward of an episode", ylim=(0, 1.05 * LENGTH))
    ax.grid(alpha=0.3)
    fig.savefig(path / "ppo.png", dpi=110)
    plt.close(fig)


def main():
    if importlib.util.find_spec("brax") is None:
        print("Brax is not there: `pip install brax` for this example.")
        return
    with jax.enable_x64(False):
        rows, _ = train()
    path = pathlib.Path("output")
    path.mkdir(exist_ok=True)
    draw(rows, path)
    first, last = rows[0], rows[-1]
    print(
        f"reward of an episode of {LENGTH} steps, 64 new ones: {first[2]:.0f} before, {last[2]:.0f} after, with {last[1]:.0f} s"
    )
    assert last[2] > 200 > 2 * first[2]


if __name__ == "__main__":
    main()
