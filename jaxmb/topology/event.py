"""The interface of events."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..foundations import (
    Check,
    Guard,
    Number,
    TextInNotebooks,
    as_function,
    as_parameters,
    calling,
    expect_returned,
    floats_or_none,
)
from ..system import LockRow, System
from .change import Change
from .context import EventContext

Scalar = Float[Array, ""]


class Occurrence(NamedTuple):
    """An effect of an event, with the guard by which it happens.

    Attributes:
        what: text that follows the name of the event in results.
        guard: it happens where this function rises to zero.
        apply: what it does.
    """

    what: str
    guard: Callable[[EventContext], Scalar]
    apply: Callable[[Change, EventContext], Change]


class AbstractEvent(TextInNotebooks, eqx.Module):
    """Something that happens at a time, or when a guard reaches zero.

    To add one, inherit from this class and define `apply`, and `acts_on` if it acts on constraints. One that adds a row also defines
    `row`; one that continues after it has happened, as a brake does, also defines `secondary`, `reconcile`, `resolve` and perhaps `checks`.

    Attributes:
        name: its name.
        at: the time in s.
        when: the guard `when(t, q, v, reaction, params)` → a number; `reaction` gives the multipliers (k,) of constraints by name; reading it
            costs a solution of the equations of motion.
        direction: 1 for a guard that rises to zero, −1 for one that falls. A guard that is beyond zero already when the
            event is armed acts at once; one that only touches zero does not act.
        repeat: whether it may happen again, once its guard has left zero and if it would change anything; a hit, which reverses the velocity
            by which its guard rises, may happen again at once.
        consistent: whether momentum is conserved along the free directions. If not, velocities change as little as possible, without regard
            to masses: a common error, available for comparison.
    """

    name: str = eqx.field(static=True)
    at: Scalar | None
    when: Callable[..., Array] | None
    direction: int = eqx.field(static=True)
    repeat: bool = eqx.field(static=True)
    consistent: bool = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        *,
        at: Number | None = None,
        when: Guard | None = None,
        direction: int = 1,
        repeat: bool = False,
        consistent: bool = True,
    ):
        if (at is None) == (when is None):
            raise TypeError(f"Event '{name}' must have either `at`, a time, or `when`, a guard.")
        if repeat and when is None:
            raise ValueError(f"Argument `repeat` of event '{name}' must be False for a known time, which comes once.")
        if direction not in (1, -1):
            raise ValueError(f"Argument `direction` of event '{name}' must be 1 or -1, but is {direction!r}.")
        self.name, self.direction, self.repeat, self.consistent = name, direction, repeat, consistent
        # Arrays, also within a callable guard: times and thresholds may be batched and differentiated, and new ones compile nothing anew.
        self.at = floats_or_none(at)
        self.when = as_parameters(as_function(when, f"when of event '{name}'"))

    @abc.abstractmethod
    def apply(self, change: Change, context: EventContext) -> Change:
        """Adds its effect to the change made by the events before it at the same instant.

        Called whether or not it happens; the result is used if it does.
        """

    @property
    def acts_on(self) -> tuple[str, ...]:
        """Names of the constraints and locks that it acts on."""
        return ()

    def row(self, system: System) -> LockRow | None:
        """The row of a lock that it adds to the system."""
        return None

    @property
    def waits(self) -> bool:
        """Whether it waits after it has happened until its guard has left zero before it may happen again."""
        return self.repeat

    @property
    def at_zero(self) -> bool:
        """Whether it also happens if its guard stays at zero, or beyond zero only."""
        return True

    @property
    def assembles(self) -> bool:
        """Whether it may move positions."""
        return False

    @property
    def secondary(self) -> tuple[Occurrence, ...]:
        """Further effects that it may have once it has happened."""
        return ()

    def reconcile(self, change: Change, context: EventContext) -> Change:
        """The change after all events of the instant have been applied, before velocities are computed: whether rows can act beside others."""
        return change

    def resolve(self, change: Change, before: EventContext, after: EventContext) -> Change:
        """The change after velocities have been computed: whether rows that have come to rest can hold, and which way others slide.

        What `after` holds has no derivatives, as it serves decisions.
        """
        return change

    def checks(self) -> tuple[Check, ...]:
        """Checks of its numbers."""
        return ()

    def guard(self, context: EventContext) -> Scalar:
        """The quantity that rises to zero when it happens; −1 for a known time."""
        if self.when is None:
            # A run follows the largest of all guards, which happens at zero: −1 never does, and NaN would spoil the others.
            return -jnp.ones((), context.state.q.dtype)
        state = context.state
        with calling("when", f" of event '{self.name}'"):
            value = self.when(state.t, state.q, state.v, context.reaction, context.system.params)
        expect_returned(f"when of event '{self.name}'", value, ())
        return self.direction * value

    def able(self, context: EventContext) -> Bool[Array, ""]:
        """Whether it would change anything."""
        # Tried rather than asked: an event states its effect in `apply` alone, and no condition can contradict it.
        none = Change.none(context.mode, context.state)
        return self.apply(none, context).differs(none)
