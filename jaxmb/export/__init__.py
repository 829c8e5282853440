"""Mechanisms taken elsewhere: as C, as functional mock-up units, and as programs of StableHLO."""

from .c import CFiles, c
from .fmu import FMU, fmu
from .stablehlo import StableHLO, stablehlo

__all__ = ["FMU", "CFiles", "StableHLO", "c", "fmu", "stablehlo"]
