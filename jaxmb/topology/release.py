"""Constraints cease to act."""

from collections.abc import Sequence

import equinox as eqx

from ..foundations import Guard, Number, contract
from .change import Change
from .context import EventContext
from .event import AbstractEvent


class Release(AbstractEvent):
    """Makes constraints, or locks, cease to act. Velocities do not jump.

    Args:
        names: names of constraints of the system, or of locks.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        repeat: whether it may happen again, see `AbstractEvent`.
        name: of the event; made of the names by default.
    """

    names: tuple[str, ...] = eqx.field(static=True)

    @contract
    def __init__(
        self,
        names: str | Sequence[str],
        *,
        at: Number | None = None,
        when: Guard | None = None,
        direction: int = 1,
        repeat: bool = False,
        name: str | None = None,
    ):
        self.names = (names,) if isinstance(names, str) else tuple(names)
        name = name or f"release {', '.join(self.names)}"
        super().__init__(name, at=at, when=when, direction=direction, repeat=repeat)

    @property
    def acts_on(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    @property
    def at_zero(self) -> bool:
        """False: a constraint that does not bear a load yet is not released."""
        return False

    def apply(self, change: Change, context: EventContext) -> Change:
        """Releases the rows."""
        return change.release(context.rows(self.names))
