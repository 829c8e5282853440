"""From what a mechanism should do to its dimensions, and what their tolerances do to it."""

from .goal import Goal as Goal
from .optimise import optimise as optimise
from .output import AbstractOutput as AbstractOutput
from .output import BearingLoad as BearingLoad
from .output import Coordinate as Coordinate
from .output import Dwell as Dwell
from .output import Effort as Effort
from .output import Path as Path
from .output import PathGap as PathGap
from .output import Peak as Peak
from .output import Stroke as Stroke
from .output import TransmissionAngle as TransmissionAngle
from .pareto import pareto as pareto
from .pareto import ParetoFront as ParetoFront
from .problem import Outcome as Outcome
from .report import Design as Design
from .tolerances import tolerances as tolerances
from .tolerances import Tolerances as Tolerances

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
    "PathGap",
    "Peak",
    "Stroke",
    "Tolerances",
    "TransmissionAngle",
    "optimise",
    "pareto",
    "tolerances",
]
