"""A coordinate or a function of the pose is held at its value."""

from collections.abc import Callable
from typing import cast

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from ..foundations import (
    FunctionOfState,
    Guard,
    Number,
    Whole,
    as_function,
    contract,
    default_float,
    listing,
    shape_of,
)
from ..system import Coordinate, LockRow, System
from .change import Change
from .context import EventContext
from .event import AbstractEvent

# Name or index of a coordinate, name of a joint coordinate, or a function of the pose.
Target = str | Whole | FunctionOfState


class Lock(AbstractEvent):
    """Freezes a coordinate, a joint coordinate, or any function of the pose at its present value.

    Args:
        what: name or index of a coordinate, name of a joint coordinate of a mechanism, or `fn(t, q, params)`.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        name: name of the lock's row; "lock " and the coordinate by default. Locks that share a name share a row.
        repeat: whether it may happen again, see `AbstractEvent`.
        consistent: see `AbstractEvent`.
    """

    what: Target = eqx.field(static=True)

    @contract
    def __init__(
        self,
        what: str | Whole | FunctionOfState,
        *,
        at: Number | None = None,
        when: Guard | None = None,
        direction: int = 1,
        name: str | None = None,
        repeat: bool = False,
        consistent: bool = True,
    ):
        name, self.what = lock_target(what, name, "Lock")
        super().__init__(name, at=at, when=when, direction=direction, repeat=repeat, consistent=consistent)

    @property
    def acts_on(self) -> tuple[str, ...]:
        """Its row."""
        return (self.name,)

    def row(self, system: System) -> LockRow:
        """The row of the lock."""
        return lock_row(self.name, self.what, system)

    def apply(self, change: Change, context: EventContext) -> Change:
        """Holds the function at its value."""
        return change.hold(context.rows(self.acts_on), context.values)


def lock_target(what: Target, name: str | None, kind: str) -> tuple[str, Target]:
    """The name of a row, and the coordinate or function that it acts on, as a static part of an event."""
    if callable(what):
        if name is None:
            raise TypeError(f"Argument `name` must be given to a `{kind}` of a function.")
        fn = as_function(what, f"what of '{name}'")
        # `what` is static: a number within it would be a constant of the program, without derivative and without batch.
        if jax.tree.leaves(fn):
            raise TypeError(f"Argument `what` of '{name}' must be a function without numbers of its own; use `params`.")
        return name, fn
    # The name is made of the coordinate, so that two locks of one coordinate share a row; two equal rows would be redundant.
    return name or f"{kind.lower()} {what}", what


def lock_row(name: str, what: PyTree, system: System) -> LockRow:
    """The row that holds a coordinate, a joint coordinate or a function."""
    if callable(what):
        t, q = (jax.ShapeDtypeStruct(shape, default_float()) for shape in ((), (system.nq,)))
        shape_of(f"what of '{name}'", what, (t, q, system.params), (), (1,))
        return LockRow(name, cast(Callable[..., Array], what))
    if isinstance(what, int) and 0 <= what < system.nq:
        return LockRow(name, Coordinate(what))
    if what in system.coordinates:
        return LockRow(name, Coordinate(system.coordinates.index(what)))
    available = list(system.coordinates)
    if isinstance(what, str) and system.joints is not None:
        available += [name for name in system.joints.names if name not in available]
        if what.partition(".")[0] in available:
            return LockRow(name, system.joints.coordinate(what), system.joints.wraps(what))
    raise ValueError(
        f"'{name}' must act on a function or a coordinate out of {listing(available)}, but acts on {what!r}."
    )
