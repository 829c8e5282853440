"""Environments of learning control: episodes of mechanisms, ready-made tasks, and gymnasium."""

from .environment import Environment as Environment
from .environment import State as State
from .gymnasium import to_gymnasium as to_gymnasium
from .gymnasium import to_gymnasium_vector as to_gymnasium_vector
from .tasks import make as make
from .tasks import TASKS as TASKS
from .wrappers import AutoReset as AutoReset

__all__ = ["TASKS", "AutoReset", "Environment", "State", "make", "to_gymnasium", "to_gymnasium_vector"]
