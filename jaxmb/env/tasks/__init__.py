"""Ready-made tasks, one module each; a module is imported when its task is made."""

import importlib

from ...foundations import Count, contract, listing
from ..environment import Environment

TASKS = ("delta_tracking", "excavator_digging", "five_bar_hopper", "stewart_balancing")


@contract
def make(name: str, *, episode_length: Count | None = 250, randomise: bool = True) -> Environment:
    """A ready-made task, see docs/environments.md.

    Args:
        name: one of `TASKS`.
        episode_length: steps of an episode; None for no limit.
        randomise: whether masses, friction and targets differ from episode to episode.

    Returns:
        An `Environment`.

    Raises:
        ValueError: for a name that is not in `TASKS`.

    Example:
        >>> import jaxmb as jm
        >>> jm.env.make("five_bar_hopper").observation_size
        14
    """
    if name not in TASKS:
        raise ValueError(f"Argument `name` must be one of {listing(TASKS)}, but is {name!r}.")
    return getattr(importlib.import_module(f".{name}", __name__), name)(episode_length, randomise)
