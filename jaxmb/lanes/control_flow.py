"""Equations that hold programs of their own: choices, loops, solutions of linear equations."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.extend.core import JaxprEqn

from .errors import NotScalarError
from .jaxpr import Params, scan_counts, shaped

if TYPE_CHECKING:
    from .scalarise import Reader, Value


def custom_linear_solve(reader: "Reader", equation: JaxprEqn, p: Params, *ins: np.ndarray) -> "list[Value]":
    """The solution by the program that finds it; of the constants of four programs those of that one are passed."""
    lengths = p["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    constants, rhs = ins[first : first + lengths.solve], ins[sum(lengths) :]
    return reader.closed(p["jaxprs"].solve, [*constants, *rhs])


def cond(reader: "Reader", equation: JaxprEqn, p: Params, which: np.ndarray, *operands: "Value") -> "Sequence[Value]":
    """The branch of a known number; else all of them, and a choice of each number."""
    branches, index = p["branches"], reader.constants(which)
    if index is not None:
        return reader.closed(branches[int(np.clip(index, 0, len(branches) - 1))], operands)
    results = [[reader.nodes(x) for x in reader.closed(branch, operands)] for branch in branches]
    out = results[0]
    for k, other in enumerate(results[1:], 1):
        out = reader.select(reader.graph.apply("ge", int(which), reader.graph.constant(k)), other, out)
    return out


def _platform_index(reader: "Reader", equation: JaxprEqn, p: Params) -> np.ndarray:
    """Which branch is meant for a CPU, or for any device."""
    branches = [k for k, names in enumerate(p["platforms"]) if names is None or "cpu" in names]
    return reader.lifted(branches[0])


def scan(reader: "Reader", equation: JaxprEqn, p: Params, *ins: "Value") -> "list[Value]":
    """All turns, one after the other."""
    shared, carried = scan_counts(p)
    constants, carry = list(ins[:shared]), list(ins[shared : shared + carried])
    xs = [reader.nodes(x) for x in ins[shared + carried :]]
    rows = []
    order = range(p["length"])
    for k in reversed(order) if p["reverse"] else order:
        out = reader.closed(p["jaxpr"], [*constants, *carry, *(np.asarray(x[k]) for x in xs)])
        carry = out[:carried]
        rows.append([reader.nodes(x) for x in out[carried:]])
    rows = rows[::-1] if p["reverse"] else rows
    shapes = [shaped(v).shape for v in equation.outvars[carried:]]
    ys = [np.array([row[j] for row in rows], np.int64).reshape(shape) for j, shape in enumerate(shapes)]
    return [*carry, *ys]


def _while(reader: "Reader", equation: JaxprEqn, p: Params, *ins: "Value") -> "list[Value]":
    """All turns of a loop whose condition is known before each."""
    a, b = p["cond_nconsts"], p["body_nconsts"]
    carry = list(ins[a + b :])
    while True:
        condition = reader.closed(p["cond_jaxpr"], [*ins[:a], *carry])[0]
        proceed = reader.constants(reader.nodes(condition))
        if proceed is None:
            raise NotScalarError("it has a loop whose length depends on the state")
        if not proceed:
            return carry
        # A loop that never ends adds no operations if its body folds to constants; one that adds some ends here.
        reader.measure()
        carry = reader.closed(p["body_jaxpr"], [*ins[a : a + b], *carry])


# Names of JAX's primitives.
CONTROL_FLOW: "dict[str, Callable[..., np.ndarray | Sequence[Value]]]" = {
    "custom_linear_solve": custom_linear_solve,
    "cond": cond,
    "platform_index": _platform_index,
    "scan": scan,
    "while": _while,
}
