"""The operations of scalar programs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation on scalars.

    Attributes:
        fold: what it does to numbers.
        text: its instruction of LLVM, with `{T}` for the type of numbers, `{B}` for that of truth values, `{0}`, `{1}`, … for the arguments; empty where it is a function.
        intrinsic: the name of LLVM's function; empty where it is one of the C library, of the operation's name.
        partial: whether it may be infinite or undefined for finite arguments.
        truth: whether its result is a truth value.
    """

    fold: Callable[..., Any]
    text: str = ""
    intrinsic: str = ""
    partial: bool = False
    truth: bool = False


def _compared(fold: Callable[..., Any], condition: str) -> Operation:
    return Operation(fold, f"fcmp {condition} {{T}} {{0}}, {{1}}", truth=True)


def _intrinsic(fold: Callable[..., Any], name: str, partial: bool = False) -> Operation:
    return Operation(fold, intrinsic=name, partial=partial)


def _library(fold: Callable[..., Any], partial: bool = True) -> Operation:
    return Operation(fold, partial=partial)


# Products may be fused with sums, which rounds once less.
OPERATIONS: dict[str, Operation] = {
    "add": Operation(np.add, "fadd contract {T} {0}, {1}"),
    "sub": Operation(np.subtract, "fsub contract {T} {0}, {1}"),
    "mul": Operation(np.multiply, "fmul contract {T} {0}, {1}"),
    "neg": Operation(np.negative, "fneg {T} {0}"),
    "div": Operation(np.divide, "fdiv {T} {0}, {1}", partial=True),
    "reciprocal": Operation(np.reciprocal, "fdiv {T} {one}, {0}", partial=True),
    "sqrt": _intrinsic(np.sqrt, "sqrt", partial=True),
    "abs": _intrinsic(np.abs, "fabs"),
    "floor": _intrinsic(np.floor, "floor"),
    "ceil": _intrinsic(np.ceil, "ceil"),
    "round": _intrinsic(np.rint, "roundeven"),
    "max": _intrinsic(np.maximum, "maximum"),
    "min": _intrinsic(np.minimum, "minimum"),
    "rem": Operation(np.fmod, "frem {T} {0}, {1}", partial=True),
    "exp": _library(np.exp),
    "exp2": _library(np.exp2),
    "expm1": _library(np.expm1),
    "log": _library(np.log),
    "log1p": _library(np.log1p),
    "pow": _library(np.power),
    "cbrt": _library(np.cbrt, partial=False),
    "sin": _library(np.sin),
    "cos": _library(np.cos),
    "tan": _library(np.tan, partial=False),
    "asin": _library(np.arcsin),
    "acos": _library(np.arccos),
    "atan": _library(np.arctan, partial=False),
    "atan2": _library(np.arctan2, partial=False),
    "sinh": _library(np.sinh),
    "cosh": _library(np.cosh),
    "tanh": _library(np.tanh, partial=False),
    "asinh": _library(np.arcsinh, partial=False),
    "acosh": _library(np.arccosh),
    "atanh": _library(np.arctanh),
    "gt": _compared(np.greater, "ogt"),
    "lt": _compared(np.less, "olt"),
    "ge": _compared(np.greater_equal, "oge"),
    "le": _compared(np.less_equal, "ole"),
    "eq": _compared(np.equal, "oeq"),
    "ne": _compared(np.not_equal, "une"),
    "and": Operation(np.logical_and, "and {B} {0}, {1}", truth=True),
    "or": Operation(np.logical_or, "or {B} {0}, {1}", truth=True),
    "xor": Operation(np.logical_xor, "xor {B} {0}, {1}", truth=True),
    "not": Operation(np.logical_not, "xor {B} {0}, {true}", truth=True),
    # The others have no primitive of JAX of that name, or more than one.
    "select": Operation(
        lambda p, x, y: x if p else y, "select {B} {0}, {T} {1}, {T} {2}"
    ),  # (predicate, where it holds, where not)
    "lookup": Operation(
        lambda i, *table: table[int(np.clip(i, 0, len(table) - 1)) if i == i else 0], partial=True
    ),  # (which, numbers); its instructions see `Function.lookup`
    "held": Operation(lambda x: x, "fadd {T} {0}, {zero}"),  # a number of a table that stands in memory
    "number": Operation(float, "select {B} {0}, {T} {one}, {T} {zero}"),  # 1 or 0 of a predicate
    "nothing": Operation(lambda x: x * 0, "fmul {T} {0}, {zero}"),  # 0, or NaN of what is not finite
}
