"""The operations of scalar programs: all that is known of each, in one row of one table."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .derivatives import CotangentRule, of_choice, of_extreme, of_product, of_quotient, of_reciprocal


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation on scalars.

    Attributes:
        fold: what it does to known numbers, in NumPy.
        array: what it does to arrays, in JAX.
        text: its instruction of LLVM, with `{T}` for the type of numbers, `{B}` for that of truth values, `{0}`, `{1}`, … for the arguments; empty where it is a function.
        intrinsic: the name of LLVM's function; empty where it is one of the C library, of the operation's name.
        c: its expression in C, with `{f}` for what ends the names of functions of the program's precision, `{one}` and `{zero}` for numbers; empty where
            it is a function of the C library, of the operation's name.
        partial: whether it may be infinite or undefined for finite arguments.
        truth: whether its result is a truth value.
        hands_on: whether it is not finite where one of its arguments is not: ∞ + x, ∞·x and √∞ are not, 1/∞ and atan ∞ are.
        flat: whether its derivative is zero, or not looked for.
        rule: its reverse derivative; None where that is JAX's.
    """

    fold: Callable[..., Any]
    array: Callable[..., Array]
    text: str = ""
    intrinsic: str = ""
    c: str = ""
    partial: bool = False
    truth: bool = False
    hands_on: bool = False
    flat: bool = False
    rule: CotangentRule | None = None


def _comparison(fold: Callable[..., Any], array: Callable[..., Array], condition: str, sign: str) -> Operation:
    return Operation(fold, array, f"fcmp {condition} {{T}} {{0}}, {{1}}", c=f"{{0}} {sign} {{1}}", truth=True)


def _table_entry(which: Array, *table: Array) -> Array:
    """An entry of a table, the nearest one if there is none of that number; the first one for NaN."""
    index = jnp.where(which > 0, jnp.minimum(which, len(table) - 1), 0)
    return jnp.stack(table)[index.astype(jnp.int32)]


# `contract`: products may be fused with sums, which rounds once less.
OPERATIONS: dict[str, Operation] = {
    "add": Operation(
        np.add,
        jnp.add,
        "fadd contract {T} {0}, {1}",
        c="{0} + {1}",
        hands_on=True,
        rule=lambda graph, bar, i, xs: (bar, bar),
    ),
    "sub": Operation(
        np.subtract,
        jnp.subtract,
        "fsub contract {T} {0}, {1}",
        c="{0} - {1}",
        hands_on=True,
        rule=lambda graph, bar, i, xs: (bar, graph.apply("neg", bar)),
    ),
    "mul": Operation(
        np.multiply,
        jnp.multiply,
        "fmul contract {T} {0}, {1}",
        c="{0} * {1}",
        hands_on=True,
        rule=of_product,
    ),
    "neg": Operation(
        np.negative,
        jnp.negative,
        "fneg {T} {0}",
        c="-{0}",
        hands_on=True,
        rule=lambda graph, bar, i, xs: (graph.apply("neg", bar),),
    ),
    # ∞/x is not finite, x/∞ is: see `finite.py`.
    "div": Operation(np.divide, jnp.divide, "fdiv {T} {0}, {1}", c="{0} / {1}", partial=True, rule=of_quotient),
    "reciprocal": Operation(
        np.reciprocal,
        lambda x: 1 / x,
        "fdiv {T} {one}, {0}",
        c="{one} / {0}",
        partial=True,
        rule=of_reciprocal,
    ),
    "sqrt": Operation(np.sqrt, jnp.sqrt, intrinsic="sqrt", partial=True, hands_on=True),
    "abs": Operation(np.abs, jnp.abs, intrinsic="fabs", c="fabs{f}({0})", hands_on=True),
    "floor": Operation(np.floor, jnp.floor, intrinsic="floor", hands_on=True, flat=True),
    "ceil": Operation(np.ceil, jnp.ceil, intrinsic="ceil", hands_on=True, flat=True),
    "round": Operation(
        np.rint,
        lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        intrinsic="roundeven",
        c="rint{f}({0})",  # to the nearest even number, unless a program has changed the direction of rounding
        hands_on=True,
        flat=True,
    ),
    # Not fmax and fmin of C, which pass over NaN.
    "max": Operation(
        np.maximum,
        jnp.maximum,
        intrinsic="maximum",
        c="({0} > {1} || {0} != {0}) ? {0} : {1}",
        rule=of_extreme("gt"),
    ),
    "min": Operation(
        np.minimum,
        jnp.minimum,
        intrinsic="minimum",
        c="({0} < {1} || {0} != {0}) ? {0} : {1}",
        rule=of_extreme("lt"),
    ),
    "rem": Operation(np.fmod, jnp.fmod, "frem {T} {0}, {1}", c="fmod{f}({0}, {1})", partial=True),
    # Functions of the C library
    "exp": Operation(np.exp, jnp.exp, partial=True),
    "exp2": Operation(np.exp2, jnp.exp2, partial=True),
    "expm1": Operation(np.expm1, jnp.expm1, partial=True),
    "log": Operation(np.log, jnp.log, partial=True),
    "log1p": Operation(np.log1p, jnp.log1p, partial=True),
    "pow": Operation(np.power, jnp.power, partial=True),
    "cbrt": Operation(np.cbrt, jnp.cbrt),
    # Sine and cosine become sums and products, see `sincos.py`, and are differentiated as a pair, see `reverse.py`;
    # as operations they stand in exact programs and in those that are written in C.
    "sin": Operation(np.sin, jnp.sin, partial=True),
    "cos": Operation(np.cos, jnp.cos, partial=True),
    "tan": Operation(np.tan, jnp.tan),
    "asin": Operation(np.arcsin, jnp.arcsin, partial=True),
    "acos": Operation(np.arccos, jnp.arccos, partial=True),
    "atan": Operation(np.arctan, jnp.arctan),
    "atan2": Operation(np.arctan2, jnp.arctan2),
    "sinh": Operation(np.sinh, jnp.sinh, partial=True),
    "cosh": Operation(np.cosh, jnp.cosh, partial=True),
    "tanh": Operation(np.tanh, jnp.tanh),
    "asinh": Operation(np.arcsinh, jnp.arcsinh),
    "acosh": Operation(np.arccosh, jnp.arccosh, partial=True),
    "atanh": Operation(np.arctanh, jnp.arctanh, partial=True),
    # Truth values. Ordered comparisons are false of NaN; `une` is true of it, as in Python.
    "gt": _comparison(np.greater, jnp.greater, "ogt", ">"),
    "lt": _comparison(np.less, jnp.less, "olt", "<"),
    "ge": _comparison(np.greater_equal, jnp.greater_equal, "oge", ">="),
    "le": _comparison(np.less_equal, jnp.less_equal, "ole", "<="),
    "eq": _comparison(np.equal, jnp.equal, "oeq", "=="),
    "ne": _comparison(np.not_equal, jnp.not_equal, "une", "!="),
    "and": Operation(np.logical_and, jnp.logical_and, "and {B} {0}, {1}", c="{0} & {1}", truth=True),
    "or": Operation(np.logical_or, jnp.logical_or, "or {B} {0}, {1}", c="{0} | {1}", truth=True),
    "xor": Operation(np.logical_xor, jnp.logical_xor, "xor {B} {0}, {1}", c="{0} ^ {1}", truth=True),
    "not": Operation(np.logical_not, jnp.logical_not, "xor {B} {0}, {true}", c="!{0}", truth=True),
    # The others have no primitive of JAX of that name, or more than one.
    # (predicate, where it holds, where not)
    "select": Operation(
        lambda p, x, y: x if p else y,
        jnp.where,
        "select {B} {0}, {T} {1}, {T} {2}",
        c="{0} ? {1} : {2}",
        rule=of_choice,
    ),
    # (which, numbers); its instructions see `FunctionText.lookup`, and in C `c99.LOOKUP`
    "lookup": Operation(
        lambda i, *table: table[int(np.clip(i, 0, len(table) - 1)) if i == i else 0],
        _table_entry,
        partial=True,
    ),
    # A number of a table that stands in memory. The sum makes it an instruction of its own, whose result can be stored.
    "stored": Operation(lambda x: x, lambda x: x, "fadd {T} {0}, {zero}", c="{0}", hands_on=True),
    # 1 or 0 of a predicate, of the type of the program's numbers
    "to_number": Operation(
        float,
        jnp.asarray,
        "select {B} {0}, {T} {one}, {T} {zero}",
        c="{0} ? {one} : {zero}",
        flat=True,
    ),
    # 0, or NaN of what is not finite; not 0·x, which is −0 of what is negative
    "zero_or_nan": Operation(
        lambda x: x - x,
        lambda x: x - x,
        "fsub {T} {0}, {0}",
        c="{0} - {0}",
        hands_on=True,
        flat=True,
    ),
}
