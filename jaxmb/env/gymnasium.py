"""Environments for programs that use gymnasium, one at a time or many in one compiled step."""

from typing import TYPE_CHECKING

from ..foundations import Count, Whole, contract, optional
from .environment import Environment

if TYPE_CHECKING:
    from .gymnasium_classes import GymnasiumEnv, GymnasiumVectorEnv


@contract
def to_gymnasium(env: Environment, seed: Whole = 0) -> "GymnasiumEnv":
    """The environment as a `gymnasium.Env`: NumPy arrays in and out, each step one call of a compiled program.

    Observations are unbounded, actions lie in [−1, 1]. `terminated` is an end that is not a truncation; `info` holds the metrics and `result`,
    the code of the result of the step, zero for success.

    Args:
        env: an `Environment`.
        seed: of the episodes until `reset(seed=…)` gives another one.

    Raises:
        ImportError: without gymnasium, the extra `env`.

    Example:
        >>> import jaxmb as jm
        >>> env = jm.env.to_gymnasium(jm.env.make("five_bar_hopper"))
        >>> env.action_space.shape
        (2,)
    """
    optional("gymnasium", "env")
    from .gymnasium_classes import GymnasiumEnv

    return GymnasiumEnv(env, int(seed))


@contract
def to_gymnasium_vector(env: Environment, num_envs: Count, seed: Whole = 0) -> "GymnasiumVectorEnv":
    """Many lanes of the environment as one `gymnasium.vector.VectorEnv`, all of them in one compiled step.

    After the end of an episode the next step ignores its action and returns the next start (`AutoresetMode.NEXT_STEP`).

    Args:
        env: an `Environment`.
        num_envs: how many lanes.
        seed: of the episodes until `reset(seed=…)` gives another one.

    Raises:
        ImportError: without gymnasium, the extra `env`.
    """
    optional("gymnasium", "env")
    from .gymnasium_classes import GymnasiumVectorEnv

    return GymnasiumVectorEnv(env, int(num_envs), int(seed))
