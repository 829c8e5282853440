"""Environments of learning control: episodes of mechanisms, ready-made tasks, and gymnasium."""

from .environment import Environment as Environment
from .environment import State as State
from .wrappers import AutoReset as AutoReset

__all__ = ["AutoReset", "Environment", "State"]
