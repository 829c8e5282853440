"""What `to_gymnasium` makes; imported where it is called, since these classes inherit from gymnasium's."""

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, PyTree

from ..foundations import as_floats, codes, default_float, expect_shape, tree_where
from .environment import Environment, State

Options = dict[str, PyTree] | None
Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, PyTree]]


def _spaces(env: Environment) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Of observations and of actions; the latter are float32, as other environments have them."""
    observations = gymnasium.spaces.Box(-np.inf, np.inf, (env.observation_size,), np.dtype(default_float()).type)
    return observations, gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)


def _info(state: State) -> dict[str, np.ndarray]:
    """Metrics, and the code of the step's result."""
    values = {name: np.array(x) for name, x in state.metrics.items()}
    return values | {"result": np.array(codes(state.info["result"]))}


def _ends(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Whether an episode was terminated, and whether it was truncated."""
    done = np.asarray(state.done) > 0
    truncated = np.asarray(state.info.get("truncation", np.zeros(done.shape))) > 0
    return np.asarray(done & ~truncated), np.asarray(truncated)


class _Keys:
    """Keys of one seed, one after the other."""

    def __init__(self, seed: int):
        self.key = jax.random.key(seed)

    def next(self) -> Array:
        """A key that nothing has used."""
        self.key, key = jax.random.split(self.key)
        return key


class GymnasiumEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One lane of an environment."""

    def __init__(self, env: Environment, seed: int):
        self.env, self.state, self.metadata = env, None, {"render_modes": []}
        self.observation_space, self.action_space = _spaces(env)
        self._keys = _Keys(seed)
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)

    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[np.ndarray, dict[str, PyTree]]:
        """The start of an episode; there are no options."""
        super().reset(seed=seed)
        if seed is not None:
            self._keys = _Keys(seed)
        self.state = self._reset(self._keys.next())
        return np.array(self.state.obs), _info(self.state)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, PyTree]]:
        """One step; `reset` comes first."""
        if self.state is None:
            raise gymnasium.error.ResetNeeded("Call `reset` before `step`.")
        self.state = self._step(self.state, as_floats(action))
        terminated, truncated = _ends(self.state)
        return np.array(self.state.obs), float(self.state.reward), bool(terminated), bool(truncated), _info(self.state)


class GymnasiumVectorEnv(VectorEnv):
    """Many lanes of an environment."""

    def __init__(self, env: Environment, num_envs: int, seed: int):
        self.env, self.num_envs, self.state = env, num_envs, None
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = _spaces(env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._keys = _Keys(seed)
        self._reset, self._step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))

    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[np.ndarray, dict[str, PyTree]]:
        """The starts of all lanes; there are no options."""
        super().reset(seed=seed)
        if seed is not None:
            self._keys = _Keys(seed)
        self.state = self._starts()
        return np.array(self.state.obs), self._masked(_info(self.state))

    def step(self, actions: np.ndarray) -> Step:
        """One step of all lanes; of those whose episode was over the start of the next one."""
        if self.state is None:
            raise gymnasium.error.ResetNeeded("Call `reset` before `step`.")
        values, shape = as_floats(actions), self.action_space.shape
        if shape is not None:
            expect_shape("`actions`, one row for each lane,", values, shape)
        over = self.state.done > 0
        self.state = self._step(self.state, values)
        if over.any():
            self.state = _where(over, self._starts(), self.state)
        terminated, truncated = _ends(self.state)
        infos = self._masked(_info(self.state))
        return np.array(self.state.obs), np.array(self.state.reward), terminated, truncated, infos

    def _starts(self) -> State:
        return self._reset(jax.random.split(self._keys.next(), self.num_envs))

    def _masked(self, info: dict[str, np.ndarray]) -> dict[str, PyTree]:
        """As gymnasium has it: beside each entry, which lanes have it."""
        return info | {f"_{name}": np.ones(self.num_envs, bool) for name in info}


@jax.jit
def _where(over: Array, starts: State, states: State) -> State:
    """Lanes of the starts where an episode was over."""
    return jax.vmap(tree_where)(over, starts, states)
