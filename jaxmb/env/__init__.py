"""Environments of learning control: episodes of mechanisms, ready-made tasks, and gymnasium."""

from .environment import Environment, State
from .gymnasium import to_gymnasium, to_gymnasium_vector
from .tasks import TASKS, make
from .wrappers import AutoReset

__all__ = ["TASKS", "AutoReset", "Environment", "State", "make", "to_gymnasium", "to_gymnasium_vector"]
