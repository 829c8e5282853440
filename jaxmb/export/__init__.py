"""Mechanisms taken elsewhere: as C, and as functional mock-up units."""

from .c import c as c
from .c import CFiles as CFiles
from .fmu import FMU as FMU
from .fmu import fmu as fmu

__all__ = ["FMU", "CFiles", "c", "fmu"]
