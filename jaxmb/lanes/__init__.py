"""A compiler: functions of small arrays, with loops, as code of single numbers over many lanes.

It knows nothing of mechanics, and imports nothing else of this package.
"""

from .available import unavailable as unavailable
from .c99 import c_function as c_function
from .c99 import CTypes as CTypes
from .code import entries as entries
from .code import Subprogram as Subprogram
from .code import Shaped as Shaped
from .interface import interface as interface
from .jvp import jvp as jvp
from .jit import missing as missing
from .jit import registered as registered
from .jit import vector_bytes as vector_bytes
from .latest import latest as latest
from .loops import Call as Call
from .loops import compiled as compiled
from .loops import LoopProgram as LoopProgram
from .module import Handler as Handler
from .program import length as length
from .program import Program as Program
from .program import WRITING as WRITING
from .scalarise import LARGEST_DERIVATIVE as LARGEST_DERIVATIVE
from .errors import NotScalarError as NotScalarError
from .sparsity import sparsity as sparsity
from .uncompiled import of_some as of_some
from .uncompiled import over_lanes as over_lanes
from .uncompiled import with_lanes as with_lanes
from .vjp import VJPProgram as VJPProgram
from .within import Within as Within
