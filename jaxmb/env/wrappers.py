"""Environments around an environment."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..foundations import Key, Numbers, TextInNotebooks, contract, where_needed
from .environment import Environment, State


class AutoReset(TextInNotebooks, eqx.Module):
    """An environment that starts the next episode when one is over.

    `reward`, `done`, `metrics` and `info["result"]`, `["steps"]`, `["truncation"]` are those of the step that ended the episode, `data` and `obs`
    those of the next start, drawn again with a system of its own; `info["final_obs"]` is the observation at the end. `info["episode_metrics"]` has
    the sums over the episode so far, and over the whole episode when it is over: `sum_reward`, `length` in steps and
    the terms of the reward; `info["episode_done"]` is `done`. Brax's training reads nothing else. In a batch, only the
    lanes whose episode is over draw a start.

    Args:
        env: an `Environment`.
    """

    env: Environment

    @contract
    def __init__(self, env: Environment):
        self.env = env

    def __getattr__(self, name: str) -> PyTree:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, rng: Key) -> State:
        """The start of the first episode."""
        state = self.env.reset(rng)
        sums = jax.tree.map(jnp.zeros_like, _summed(state))
        more = {"final_obs": state.obs, "episode_metrics": sums, "episode_done": state.done}
        return state.replace(info=state.info | more)

    def step(self, state: State, action: Numbers) -> State:
        """The state after a step, or the start of the next episode."""
        info = state.info
        if "steps" in info:
            info = info | {"steps": info["steps"] * (state.done == 0)}
        after = self.env.step(state.replace(info=info), action)
        next_start = where_needed(after.done > 0, _start, (self.env, after.info["rng"]), _parts(after))
        data, obs, fresh = next_start
        sums = jax.tree.map(lambda x, y: x * (state.done == 0) + y, state.info["episode_metrics"], _summed(after))
        more = {"final_obs": after.obs, "episode_metrics": sums, "episode_done": after.done}
        return after.replace(data=data, obs=obs, info=after.info | fresh | more)


def _start(env: Environment, rng: Array) -> tuple[PyTree, Array, dict[str, PyTree]]:
    return _parts(env.reset(rng))


def _summed(state: State) -> dict[str, Array]:
    """What is summed over an episode, of one step."""
    return {"sum_reward": state.reward, "length": jnp.ones_like(state.reward), **state.metrics}


def _parts(state: State) -> tuple[PyTree, Array, dict[str, PyTree]]:
    """What an episode brings along."""
    return state.data, state.obs, {name: state.info[name] for name in ("rng", "system") if name in state.info}
