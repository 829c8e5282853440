"""From what a mechanism should do to its dimensions, and what their tolerances do to it."""

from .goal import Goal
from .optimise import optimise
from .output import (
    AbstractOutput,
    BearingLoad,
    Coordinate,
    Dwell,
    Effort,
    Path,
    PathDeviation,
    Peak,
    Stroke,
    TransmissionAngle,
)
from .pareto import ParetoFront, pareto
from .problem import Outcome
from .report import Design
from .tolerances import Tolerances, tolerances

__all__ = [
    "AbstractOutput",
    "BearingLoad",
    "Coordinate",
    "Design",
    "Dwell",
    "Effort",
    "Goal",
    "Outcome",
    "ParetoFront",
    "Path",
    "PathDeviation",
    "Peak",
    "Stroke",
    "Tolerances",
    "TransmissionAngle",
    "optimise",
    "pareto",
    "tolerances",
]
