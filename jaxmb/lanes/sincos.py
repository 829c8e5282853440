"""Sine and cosine by sums and products alone, which become vector instructions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .graph import OperationGraph

# Of each precision: π/2 in parts of so few bits that k times each but the last is exact; polynomials of sin r and cos r in z = r², the
# highest power first, of least error for |r| ≤ π/4 (Moshier, Methods and Programs for Mathematical Functions, 1989); and the
# largest argument, beyond which there is no result.
_DOUBLE = (
    (1.5707963109016418, 1.5893254712295857e-08, 6.123233932053594e-17, 6.36831716351095e-25),
    (
        1.58962301576546568060e-10,
        -2.50507477628578072866e-8,
        2.75573136213857245213e-6,
        -1.98412698295895385996e-4,
        8.33333333332211858878e-3,
        -1.66666666666666307295e-1,
    ),
    (
        -1.13585365213876817300e-11,
        2.08757008419747316778e-9,
        -2.75573141792967388112e-7,
        2.48015872888517045348e-5,
        -1.38888888888730564116e-3,
        4.16666666666665929218e-2,
    ),
    1e8,
)
_SINGLE = (
    (1.5703125, 4.837512969970703e-04, 7.549533620476723e-08, 2.563344151594519e-12),
    (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    4e3,
)


def sincos(graph: "OperationGraph", x: int) -> tuple[int, int]:
    """The nodes of sine and cosine of an angle in rad, with an error of two units in the last place at most; NaN for huge angles."""
    apply, number = graph.apply, graph.constant
    parts, sine_terms, cosine_terms, largest = _SINGLE if graph.single else _DOUBLE
    # Beyond it k has too many bits for exact products with the parts of π/2.
    x = apply("select", apply("le", apply("abs", x), number(largest)), x, number(np.nan))
    graph.dropped.add(x)
    # Cody and Waite, Software Manual for the Elementary Functions, 1980: x − k·π/2 part by part.
    k = apply("round", apply("mul", x, number(2 / np.pi)))
    r = x
    for part in parts:
        r = apply("sub", r, apply("mul", k, number(part)))
    z = apply("mul", r, r)
    half = apply("mul", z, number(0.5))
    sine = apply("add", r, apply("mul", apply("mul", r, z), _polynomial(graph, sine_terms, z)))
    cosine = apply("mul", apply("mul", z, z), _polynomial(graph, cosine_terms, z))
    cosine = apply("add", apply("sub", number(1), half), cosine)
    # The quadrant k mod 4, without whole numbers: sine and cosine change places in odd ones; the sine is negative where k mod 4 is
    # 2 or 3, the cosine where it is 1 or 2.
    quarters = apply("mul", k, number(0.25))
    quadrant = apply("sub", quarters, apply("floor", quarters))  # in quarters: 0, 0.25, 0.5 or 0.75
    distance = lambda value: apply("abs", apply("sub", quadrant, number(value)))
    odd, sine_negative, cosine_negative = (
        apply("eq", distance(0.5), number(0.25)),
        apply("ge", quadrant, number(0.5)),
        apply("lt", distance(0.375), number(0.25)),
    )
    out = []
    for even_case, odd_case, negative in ((sine, cosine, sine_negative), (cosine, sine, cosine_negative)):
        size = apply("select", odd, odd_case, even_case)
        out.append(apply("select", negative, apply("neg", size), size))
    return out[0], out[1]


def _polynomial(graph: "OperationGraph", coefficients: Sequence[float], z: int) -> int:
    out = graph.constant(coefficients[0])
    for c in coefficients[1:]:
        out = graph.apply("add", graph.apply("mul", out, z), graph.constant(c))
    return out
