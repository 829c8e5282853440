"""Foundations: what every layer above shares and what knows nothing of mechanics."""

from .arrays import (
    as_floats,
    as_jax,
    as_parameters,
    default_float,
    floats_or_none,
    in_numpy,
    index_among,
    lower_limits,
    positive_or_one,
    quotient,
    square_root,
    stacked,
    strong,
)
from .batching import FEWEST, PART, over_leading_axes, tree_where, where_any, where_needed
from .blank import Blank, shapes_of
from .both_ways import both_ways
from .check import (
    Check,
    aligned,
    all_hold,
    arrays_of,
    counted,
    enforce,
    expect_available,
    expect_concrete,
    expect_different,
    expect_numbers,
    expect_returned,
    expect_shape,
    is_concrete,
    listing,
    shape_of,
    table,
)
from .contract import (
    AllNonNegative,
    AllPositive,
    Count,
    Direction,
    Finite,
    Fraction,
    FunctionOfForce,
    FunctionOfMotion,
    FunctionOfState,
    FunctionOfTime,
    Guard,
    Indices,
    Key,
    Limits,
    Matrix,
    NoNaN,
    NonNegative,
    NonZero,
    Number,
    Numbers,
    Positive,
    PositiveOrInfinite,
    Rule,
    Share,
    Text,
    Vector,
    Whole,
    check_argument,
    check_fields,
    contract,
    function_of,
    refusal,
)
from .display import TextInNotebooks, outline, summary
from .explicit import AbstractExplicit
from .files import folder_there, replacing, toml_table
from .function import Function, as_function, calling, text_digest
from .nan_derivatives import with_nan_derivatives
from .optional import installed, optional, version
from .program import compiler_options, is_outermost, lasting, program, quickest_options
from .remembered import remembered
from .result import RESULTS, SUCCESS, announce, codes, result_of, verdicts
from .silent import silent
from .terminal import show_progress, shows_progress, working
from .warning import warn
