"""Motion in time."""

from .columns import columns_of as columns_of
from .columns import units_of as units_of
from .config import show_config as show_config
from .dataset import verdict_variables as verdict_variables
from .drift import AbstractDrift as AbstractDrift
from .drift import Baumgarte as Baumgarte
from .drift import NoDrift as NoDrift
from .drift import Projection as Projection
from .engine import choose_engine as choose_engine
from .engine import EngineChoice as EngineChoice
from .method import AbstractEngine as AbstractEngine
from .method import Compiled as Compiled
from .method import XLA as XLA
from .regular_step import regular_end as regular_end
from .regular_step import regular_step as regular_step
from .regular_step import RegularStep as RegularStep
from .regular_step import StepMethod as StepMethod
from .segments import Events as Events
from .simulate import simulate as simulate
from .solution import Solution as Solution
from .step_records import Switches as Switches
from .stepper import Stepper as Stepper
from .stepper import start_spread as start_spread
from .stepper import stepper as stepper

# What users and classes of theirs meet; other names are for the packages above.
__all__ = [
    "XLA",
    "AbstractDrift",
    "AbstractEngine",
    "Baumgarte",
    "Compiled",
    "EngineChoice",
    "Events",
    "NoDrift",
    "Projection",
    "Solution",
    "Stepper",
    "Switches",
    "choose_engine",
    "show_config",
    "simulate",
    "stepper",
]
