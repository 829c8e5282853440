"""Equations that compute with entries, as operations on nodes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from .code import entries
from .errors import NotScalarError
from .jaxpr import Params, shaped

if TYPE_CHECKING:
    from .scalarise import Reader


def _convert_element_type(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    old, new = shaped(equation.invars[0]).dtype, np.dtype(p["new_dtype"])
    if new == np.bool_ and old != np.bool_:
        return reader.each("ne", x, reader.graph.constant(0.0))
    if old == np.bool_ and new != np.bool_:
        return reader.each("to_number", x)
    if new.kind == old.kind == "f" and new != old and x.size:
        raise NotScalarError("it has numbers of several precisions")
    if new.kind in "iu" and old.kind == "f":
        numbers = reader.constants(x)
        if numbers is None:
            raise NotScalarError("it makes whole numbers of others")
        return reader.lifted(np.trunc(numbers))
    return x


def _logistic(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    one = reader.graph.constant(1.0)
    return reader.each("reciprocal", reader.each("add", one, reader.each("exp", reader.each("neg", x))))


def _sign(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    number, zero = reader.graph.constant, reader.graph.constant(0.0)
    # Zero and NaN are their own sign.
    negative = reader.each("select", reader.each("lt", x, zero), number(-1.0), x)
    return reader.each("select", reader.each("gt", x, zero), number(1.0), negative)


def _lt_to(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """X < y in an order of all numbers, NaN behind all others: searches in sorted tables use it."""
    behind = reader.each("and", reader.each("eq", x, x), reader.each("ne", y, y))
    return reader.each("or", reader.each("lt", x, y), behind)


def _round(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    if p["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return reader.each("round", x)
    number, size = reader.graph.constant, reader.each("abs", x)
    # Not the floor of |x| + ½: that sum rounds up to 1 for the largest number below ½.
    below = reader.each("floor", size)
    far = reader.each("ge", reader.each("sub", size, below), number(0.5))
    away = reader.each("select", far, reader.each("add", below, number(1.0)), below)
    return reader.each("select", reader.each("lt", x, number(0.0)), reader.each("neg", away), away)


def _polynomial(
    reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray, *coefficients: np.ndarray
) -> np.ndarray:
    out = coefficients[-1]
    for c in coefficients[-2::-1]:
        out = reader.each("add", reader.each("mul", out, x), c)
    return out


def _one_minus_square(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    # (1 + x)(1 − x) and not 1 − x·x, which cancels near |x| = 1.
    one = reader.graph.constant(1.0)
    return reader.each("mul", reader.each("add", one, x), reader.each("sub", one, x))


def _integer_pow(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    # By squares: about 2·log₂ y products.
    power, base, out = abs(p["y"]), x, None
    while power:
        if power & 1:
            out = base if out is None else reader.each("mul", out, base)
        power >>= 1
        base = reader.each("mul", base, base) if power else base
    out = np.full(x.shape, reader.graph.constant(1.0)) if out is None else out
    return reader.each("reciprocal", out) if p["y"] < 0 else out


def _select_n(reader: "Reader", equation: JaxprEqn, p: Params, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if shaped(equation.invars[0]).dtype == bool:
        return reader.each("select", which, cases[1], cases[0])
    out = cases[0]
    for k, case in enumerate(cases[1:], 1):
        out = reader.each("select", reader.each("eq", which, reader.graph.constant(k)), case, out)
    return out


def divided(reader: "Reader", name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotient or remainder of whole numbers, towards zero: by powers of two, or of constants."""
    # By another divisor the rounded quotient may be the next whole number.
    b = reader.indices(y, name)
    if reader.constants(x) is None and np.all(np.frexp(np.abs(b))[0] == 0.5):
        share = reader.each("mul", x, reader.lifted(1 / b))
        low, high = reader.each("floor", share), reader.each("ceil", share)
        quotient = reader.each("select", reader.each("lt", share, reader.graph.constant(0.0)), high, low)
        return quotient if name == "div" else reader.each("sub", x, reader.each("mul", quotient, y))
    a = reader.indices(x, name)
    quotient = np.trunc(a / b)
    return reader.lifted(quotient if name == "div" else a - quotient * b)


def reduced(reader: "Reader", operation: str, start: float | bool, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """All entries along some axes in one, from the first to the last: JAX leaves the order open, derivatives need one."""
    others = [d for d in range(x.ndim) if d not in axes]
    shape = [x.shape[d] for d in others]
    rows = x.transpose(others + list(axes)).reshape(entries(shape), entries([x.shape[d] for d in axes]))
    out = []
    for row in rows.tolist():
        total = reader.graph.constant(start)
        for i in row:
            total = reader.graph.apply(operation, total, i)
        out.append(total)
    return np.array(out, np.int64).reshape(shape)


def _cumsum(reader: "Reader", equation: JaxprEqn, p: Params, x: np.ndarray) -> np.ndarray:
    x = np.moveaxis(x, p["axis"], 0)
    rows = list(x[::-1] if p["reverse"] else x)
    for k in range(1, len(rows)):
        rows[k] = reader.each("add", rows[k - 1], rows[k])
    out = np.stack(rows[::-1] if p["reverse"] else rows) if rows else x
    return np.moveaxis(out, 0, p["axis"])


def _extreme(reader: "Reader", x: np.ndarray, axis: int, better: str) -> np.ndarray:
    rows = np.moveaxis(x, axis, 0)
    best, index = rows[0], np.full(rows[0].shape, reader.graph.constant(0))
    for k, row in enumerate(rows[1:], 1):
        # As in NumPy, the first NaN is both the largest and the smallest entry.
        first_nan = reader.each("and", reader.each("ne", row, row), reader.each("eq", best, best))
        ahead = reader.each("or", reader.each(better, row, best), first_nan)
        best = reader.each("select", ahead, row, best)
        index = reader.each("select", ahead, reader.graph.constant(k), index)
    return index


def _dot_general(reader: "Reader", equation: JaxprEqn, p: Params, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # As rows (batch, free axes of a, inner) and columns (batch, free axes of b, inner).
    (ca, cb), (ba, bb) = p["dimension_numbers"]
    fa = [d for d in range(a.ndim) if d not in (*ca, *ba)]
    fb = [d for d in range(b.ndim) if d not in (*cb, *bb)]
    size = lambda x, axes: entries([x.shape[d] for d in axes])
    batch, inner = size(a, ba), size(a, ca)
    shape = [a.shape[d] for d in (*ba, *fa)] + [b.shape[d] for d in fb]
    rows = a.transpose([*ba, *fa, *ca]).reshape(batch, size(a, fa), inner)
    columns = b.transpose([*bb, *fb, *cb]).reshape(batch, size(b, fb), inner)
    out = [
        _inner(reader, row, column)
        for block, others in zip(rows.tolist(), columns.tolist(), strict=True)
        for row in block
        for column in others
    ]
    return np.array(out, np.int64).reshape(shape)


def _inner(reader: "Reader", row: list[int], column: list[int]) -> int:
    apply = reader.graph.apply
    # The zero costs nothing: a sum with a known zero is no operation.
    total = reader.graph.constant(0.0)
    for x, y in zip(row, column, strict=True):
        total = apply("add", total, apply("mul", x, y))
    return total


# Names of JAX's primitives.
ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "convert_element_type": _convert_element_type,
    "rsqrt": lambda reader, equation, p, x: reader.each("reciprocal", reader.each("sqrt", x)),
    "logistic": _logistic,
    "sign": _sign,
    "is_finite": lambda reader, equation, p, x: reader.each("lt", reader.each("abs", x), reader.graph.constant(np.inf)),
    "lt_to": _lt_to,
    "le_to": lambda reader, equation, p, x, y: reader.each("or", reader.each("le", x, y), reader.each("ne", y, y)),
    "square": lambda reader, equation, p, x: reader.each("mul", x, x),
    "round": _round,
    "polynomial": _polynomial,
    "one_minus_square": _one_minus_square,
    "log2": lambda reader, equation, p, x: reader.each(
        "mul", reader.each("log", x), reader.graph.constant(1 / np.log(2))
    ),
    "integer_pow": _integer_pow,
    "select_n": _select_n,
    "clamp": lambda reader, equation, p, low, x, high: reader.each("min", reader.each("max", x, low), high),
    "cumsum": _cumsum,
    "argmax": lambda reader, equation, p, x: _extreme(reader, x, p["axes"][0], "gt"),
    "argmin": lambda reader, equation, p, x: _extreme(reader, x, p["axes"][0], "lt"),
    "dot_general": _dot_general,
}
