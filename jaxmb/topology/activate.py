"""Constraints begin to act, or are hit."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import (
    Fraction,
    Guard,
    Number,
    contract,
    default_float,
)
from .change import Change
from .event import AbstractEvent
from .situation import Situation


class Activate(AbstractEvent):
    """Constraints begin to act.

    Args:
        names: names of constraints of the system, or of locks.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        restitution: e; then the velocity residual of the constraints is reversed, times e, and they do not act afterwards:
            the hit of a unilateral contact.
        assemble: whether positions that do not fit the constraints are moved to them, the shortest way in the metric of M;
            if not, they are refused with their amount.
        repeat: whether it may happen again, see `AbstractEvent`.
        consistent: see `AbstractEvent`.
        name: of the event; made of the names by default.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    restitution: Float[Array, ""] | None
    assemble: bool = eqx.field(static=True)

    @contract
    def __init__(
        self,
        names: str | Sequence[str],
        *,
        at: Number | None = None,
        when: Guard | None = None,
        direction: int = 1,
        restitution: Fraction | None = None,
        assemble: bool = False,
        repeat: bool = False,
        consistent: bool = True,
        name: str | None = None,
    ):
        self.names = (names,) if isinstance(names, str) else tuple(names)
        self.restitution = None if restitution is None else jnp.asarray(restitution, default_float())
        self.assemble = assemble
        name = name or f"activate {', '.join(self.names)}"
        super().__init__(name, at=at, when=when, direction=direction, repeat=repeat, consistent=consistent)

    @property
    def acts_on(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    @property
    def waits(self) -> bool:
        """Whether it repeats; a hit reverses the velocity by which its guard rises, and does not wait."""
        return self.repeat and self.restitution is None

    @property
    def assembles(self) -> bool:
        """Whether positions are moved to the constraints."""
        return self.assemble

    def apply(self, change: Change, here: Situation) -> Change:
        """Makes the rows act, or hits them."""
        rows = here.rows(self.names)
        if self.assemble:
            change = change.assemble(rows)
        return change.activate(rows) if self.restitution is None else change.bounce(rows, self.restitution)
