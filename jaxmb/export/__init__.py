"""Mechanisms taken elsewhere: as C, as functional mock-up units, and as programs of StableHLO."""

from .c import c as c
from .c import CFiles as CFiles
from .fmu import FMU as FMU
from .fmu import fmu as fmu
from .stablehlo import StableHLO as StableHLO
from .stablehlo import stablehlo as stablehlo

__all__ = ["FMU", "CFiles", "StableHLO", "c", "fmu", "stablehlo"]
