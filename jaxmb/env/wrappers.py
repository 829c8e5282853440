"""Environments around an environment."""

import equinox as eqx
from jaxtyping import Array, PyTree

from ..foundations import Key, Numbers, contract, where_needed
from .environment import Environment, State


class AutoReset(eqx.Module):
    """An environment whose episodes follow each other: where one is over, the state is the start of the next.

    `reward`, `done`, `metrics` and `info["result"]`, `["steps"]`, `["truncation"]` are those of the step that ended the episode, `data` and `obs`
    those of the next start, drawn anew with a system of its own; `info["final_obs"]` is what was observed at the end. Of a batch only the lanes
    whose episode is over draw a start.

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
        return state.replace(info=state.info | {"final_obs": state.obs})

    def step(self, state: State, action: Numbers) -> State:
        """The state after a step, or the start of the next episode."""
        info = state.info
        if "steps" in info:
            info = info | {"steps": info["steps"] * (state.done == 0)}
        after = self.env.step(state.replace(info=info), action)
        next_start = where_needed(after.done > 0, _start, (self.env, after.info["rng"]), _parts(after))
        data, obs, fresh = next_start
        return after.replace(data=data, obs=obs, info=after.info | fresh | {"final_obs": after.obs})


def _start(env: Environment, rng: Array) -> tuple[PyTree, Array, dict[str, PyTree]]:
    return _parts(env.reset(rng))


def _parts(state: State) -> tuple[PyTree, Array, dict[str, PyTree]]:
    """What an episode brings along."""
    return state.data, state.obs, {name: state.info[name] for name in ("rng", "system") if name in state.info}
