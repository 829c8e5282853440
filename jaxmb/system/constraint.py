"""Constraints as plain functions."""

from collections.abc import Callable, Mapping

import equinox as eqx
from jaxtyping import Array

from ..foundations import (
    Count,
    FunctionOfMotion,
    FunctionOfState,
    as_function,
    contract,
)


class AbstractConstraint(eqx.Module):
    """A named group of rows, or several such groups that one function evaluates."""

    name: str = eqx.field(static=True)
    fn: Callable[..., Array]
    parts: tuple[tuple[str, int], ...] | None = eqx.field(static=True)

    def __init__(self, name: str, fn: object, parts: Mapping[str, Count] | None):
        self.name = name
        self.parts = None if parts is None else tuple(parts.items())
        self.fn = as_function(fn, f"fn of constraint '{name}'")


class Holonomic(AbstractConstraint):
    """A constraint on positions, φ(t, q) = 0.

    Args:
        name: a name, unique in its system, that messages and results use.
        fn: `fn(t, q, params)` returns φ of shape (k,); a scalar counts as one row. Rows may be redundant.
        parts: names and numbers of rows, if `fn` returns the rows of several constraints, one after another; messages and results then use
            these names.
    """

    @contract
    def __init__(self, name: str, fn: FunctionOfState, parts: Mapping[str, Count] | None = None):
        super().__init__(name, fn, parts)


class Pfaffian(AbstractConstraint):
    """A constraint on velocities, ψ(t, q, v) = 0, affine in v (knife edge, rolling wheel, driven speed).

    Args:
        name: a name, unique in its system, that messages and results use.
        fn: `fn(t, q, v, params)` returns ψ of shape (k,); a scalar counts as one row.
        parts: as in `Holonomic`.
    """

    @contract
    def __init__(self, name: str, fn: FunctionOfMotion, parts: Mapping[str, Count] | None = None):
        super().__init__(name, fn, parts)
