"""Functions of small arrays as scalar programs over many lanes."""

from .along import doubled as doubled
from .along_run import AlongRunProgram as AlongRunProgram
from .available import COST as COST
from .available import available as available
from .available import unavailable as unavailable
from .back import BackProgram as BackProgram
from .back_run import BackRunProgram as BackRunProgram
from .code import Shaped as Shaped
from .fallback import defers as defers
from .fallback import with_fallback as with_fallback
from .influence import influence as influence
from .loops import LoopProgram as LoopProgram
from .program import Program as Program
from .program import WRITING as WRITING
from .pulled import PulledProgram as PulledProgram
from .run import RunProgram as RunProgram
from .scalarise import NotScalarError as NotScalarError
from .step import StepProgram as StepProgram
