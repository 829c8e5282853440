"""Foundations: what every layer above shares and what knows nothing of mechanics."""

from .arrays import as_parameters as as_parameters
from .arrays import default_float as default_float
from .arrays import strong as strong
from .blank import Blank as Blank
from .blank import shapes_of as shapes_of
from .check import all_hold as all_hold
from .check import arrays_of as arrays_of
from .check import Check as Check
from .check import counted as counted
from .check import enforce as enforce
from .check import is_concrete as is_concrete
from .check import listing as listing
from .check import shape_of as shape_of
from .check import stacked as stacked
from .check import table as table
from .function import as_function as as_function
from .function import Function as Function
from .lanes import over_leading_axes as over_leading_axes
from .lanes import where_any as where_any
from .lanes import where_needed as where_needed
from .optional import installed as installed, optional as optional, version as version
from .program import compiler_options as compiler_options
from .program import is_outermost as is_outermost
from .program import lasting as lasting
from .program import program as program
from .result import announce as announce
from .result import codes as codes
from .result import RESULTS as RESULTS
from .result import verdicts as verdicts
from .reverse import reverse_only as reverse_only
from .silent import silent as silent
from .unreached import with_nan_derivatives as with_nan_derivatives
