"""Functions of small arrays as scalar programs over many lanes."""

from .back import BackProgram as BackProgram
from .code import Shaped as Shaped
from .native import missing as missing
from .program import Program as Program
from .scalarise import NotScalarError as NotScalarError
from .step import StepProgram as StepProgram
