"""Constraints as plain functions."""

from typing import Any

import equinox as eqx

from ..foundations import as_function


class AbstractConstraint(eqx.Module):
    """A named group of rows."""

    name: eqx.AbstractVar[str]
    fn: eqx.AbstractVar[Any]


class Holonomic(AbstractConstraint):
    """A constraint on positions, φ(t, q) = 0.

    Args:
        name: a name, unique in its system, that messages and results use.
        fn: `fn(t, q, params)` returns φ of shape (k,); a scalar counts as one row. Rows may be redundant.
    """

    name: str = eqx.field(static=True)
    fn: Any

    def __init__(self, name: str, fn: Any):
        self.name = name
        self.fn = as_function(fn, f"fn of constraint '{name}'")


class Pfaffian(AbstractConstraint):
    """A constraint on velocities, ψ(t, q, v) = 0, affine in v (knife edge, rolling wheel, driven speed).

    Args:
        name: a name, unique in its system, that messages and results use.
        fn: `fn(t, q, v, params)` returns ψ of shape (k,); a scalar counts as one row.
    """

    name: str = eqx.field(static=True)
    fn: Any

    def __init__(self, name: str, fn: Any):
        self.name = name
        self.fn = as_function(fn, f"fn of constraint '{name}'")
