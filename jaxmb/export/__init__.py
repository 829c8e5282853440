"""Mechanisms taken elsewhere: as C."""

from .c import c as c
from .c import CFiles as CFiles

__all__ = ["CFiles", "c"]
