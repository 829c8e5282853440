"""A brake slides, rests and comes loose."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import (
    Check,
    FunctionOfState,
    Guard,
    Number,
    Positive,
    PositiveOrInfinite,
    Whole,
    as_floats,
    contract,
    floats_or_none,
    is_concrete,
)
from ..system import LockRow, System
from .change import Change
from .context import EventContext, rounding
from .event import AbstractEvent, Occurrence
from .lock import lock_row, lock_target

Scalar = Float[Array, ""]


class Brake(AbstractEvent):
    """Applies a brake: it slides with a force against the motion, and holds where the motion ends.

    While it slides it exerts −`sliding` sign(ṡ) along s. When ṡ reaches zero it holds s as long as the force that this needs does
    not exceed `holding`, which is checked at that instant too; when it does, the brake slides again, in the direction of the load. If
    constraints or locks determine s, as a driver does, there is nothing to hold: the force changes its sign with ṡ. The brake bears
    no impulse unless `holding` is infinite: after an impact elsewhere it slides against the remaining motion.

    Args:
        what: the coordinate or function on which it acts, as in `Lock`.
        sliding: force in N, or torque in N m, while it slides.
        holding: the largest force or torque while it holds; by default that of sliding, even if that changes later; not less than that of sliding.
        at: time in s at which it is applied; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        name: of the brake and its row; "brake " and the coordinate by default.
    """

    what: str | Whole | FunctionOfState = eqx.field(static=True)
    sliding: Scalar
    holding: Scalar | None

    @contract
    def __init__(
        self,
        what: str | Whole | FunctionOfState,
        sliding: Positive,
        holding: PositiveOrInfinite | None = None,
        *,
        at: Number | None = None,
        when: Guard | None = None,
        direction: int = 1,
        name: str | None = None,
    ):
        name, self.what = lock_target(what, name, "Brake")
        self.sliding = as_floats(sliding)
        self.holding = floats_or_none(holding)
        super().__init__(name, at=at, when=when, direction=direction)
        if is_concrete(self.sliding, self.limit) and self.limit < self.sliding:
            raise ValueError(
                f"Argument `holding` of '{name}' must not be below `sliding`, but is {float(self.limit):g} below "
                f"{float(self.sliding):g}."
            )

    @property
    def limit(self) -> Scalar:
        """The largest force while it holds."""
        return self.sliding if self.holding is None else self.holding

    @property
    def acts_on(self) -> tuple[str, ...]:
        """Its row."""
        return (self.name,)

    @property
    def secondary(self) -> tuple[Occurrence, ...]:
        """It comes to rest, and comes loose."""
        return (
            Occurrence("rests", self._motion, self._rest),
            Occurrence("comes loose", self._overload, self._loosen),
        )

    def row(self, system: System) -> LockRow:
        """The row by which it holds."""
        return lock_row(self.name, self.what, system)

    def apply(self, change: Change, context: EventContext) -> Change:
        """Slides against the motion, or rests where the force would end the motion within an instant."""
        rows, r = context.rows(self.acts_on), context.number(self.name)
        # Slower than that, sliding friction ends the motion within the resolution of event times: sliding and coming to rest would be two
        # events at one time.
        moving = jnp.abs(context.rates[r]) > self.sliding * (context.instant * context.mobility[r])
        return change.slide(rows & moving, -jnp.sign(context.rates[r]) * self.sliding).rest(rows & ~moving)

    def reconcile(self, change: Change, context: EventContext) -> Change:
        """Slides, against the motion, where other rows determine what it would hold; if it has turned round, the other way."""
        rows, r = context.rows(self.acts_on), context.number(self.name)
        holds = jnp.any(rows & (change.mode.active | change.stuck))
        # The drag is against the motion so far. Where the motion turns round, ṡ is zero but for rounding, whereas the sign of the drag is
        # certain and is the direction from here on.
        forward = jnp.where(context.mode.drag[r] == 0, context.rates[r], context.mode.drag[r]) > 0
        slides = change.release(rows).slide(rows, jnp.where(forward, -self.sliding, self.sliding))
        change = slides.where(holds & context.determined(self.acts_on, change.mode.active), change)
        return change.limit(rows & jnp.isfinite(self.limit))

    def resolve(self, change: Change, before: EventContext, after: EventContext) -> Change:
        """Slides against a motion that an impact has changed; and in the direction of its load if it has come to rest and cannot hold that load."""
        rows, r = after.rows(self.acts_on), after.number(self.name)
        acts, rate = (change.mode.drag[r] != 0) | jnp.any(rows & change.mode.active), after.rates[r]
        struck = acts & (jnp.minimum(jnp.abs(rate), jnp.abs(rate - before.rates[r])) > after.creep[r])
        slides = change.release(rows).slide(rows, -jnp.sign(rate) * self.sliding)
        # Decided after the jump and not in `apply`: what holding takes is the reaction for the velocities and rows that all events of the
        # instant leave. A load shared among dependent rows is that of least norm, one of many, hence the doubt.
        slips = jnp.any(change.loose & rows) | (jnp.any(change.stuck & rows) & (self._excess(after) > 0))
        # ṡ is zero here and has no sign. The holding force opposes the motion that is about to begin, as sliding friction will, so that
        # it gives the direction.
        loose = change.release(rows).slide(rows, jnp.sign(self._load(after)) * self.sliding)
        loose = loose.doubt(after.arbitrary(self.acts_on))
        return slides.where(struck, loose.where(slips, change))

    def checks(self) -> tuple[Check, ...]:
        """That it brakes, and holds what it brakes."""
        text = "Brake '{name}' must slide with a positive force, and hold at least that."
        # A force that is not positive violates it by 1, so that one check covers both conditions.
        amount = jnp.where(self.sliding > 0, self.sliding - self.limit, 1)
        return (Check(amount[None], 0.0, text, (self.name,)),)

    def _motion(self, context: EventContext) -> Scalar:
        """The velocity, positive when it has turned round; −1 unless it slides."""
        r = context.number(self.name)
        drag = context.mode.drag[r]
        # Beyond `creep` only: at zero itself rounding has either sign, and the brake would stop and slide by turns. −1 stands for no
        # event, as events happen where a guard rises to zero.
        return jnp.where(drag != 0, jnp.sign(drag) * context.rates[r] - context.creep[r], -1)

    def _rest(self, change: Change, context: EventContext) -> Change:
        return change.rest(context.rows(self.acts_on))

    def _overload(self, context: EventContext) -> Scalar:
        """How far the load is above what it holds; −1 unless it holds."""
        holds = jnp.any(context.mode.active & context.rows(self.acts_on))
        return jnp.where(holds, self._excess(context), -1)

    def _loosen(self, change: Change, context: EventContext) -> Change:
        return change.loosen(context.rows(self.acts_on))

    def _excess(self, context: EventContext) -> Scalar:
        """The load above the largest holding force, relative to that force and less rounding; positive where the brake comes loose."""
        # Relative, and more than rounding: a brake that holds as much as it exerts while sliding would come loose and rest again without
        # end.
        load = jnp.abs(self._load(context))
        return load / self.limit - (1 + rounding(load.dtype))

    def _load(self, context: EventContext) -> Scalar:
        return context.reaction[self.name][0]
