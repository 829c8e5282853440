"""Constraints begin to act, or are hit."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..foundations import Fraction, Guard, Number, contract, floats_or_none
from .change import Change
from .context import EventContext, fitting
from .event import AbstractEvent


class Activate(AbstractEvent):
    """Constraints begin to act.

    Args:
        names: names of constraints of the system, or of locks.
        at: time in s; this or `when`.
        when: guard, see `AbstractEvent`.
        direction: of the guard.
        restitution: e; then the velocity residual of the constraints is reversed, times e, and they do not act afterwards:
            the hit of a unilateral contact. If the contact is pressed together and the rebound would be lower than the tolerance of
            positions, (e ψ⁻)²/(2 |φ̈|) ≤ √eps Φ, rebounds would pile up: then the contact closes, and the constraints act from then on as
            without restitution. A `Release` by the reaction opens it again.
        assemble: whether positions that do not fit the constraints are moved to them, along the shortest way in the metric of M; if not, they
            are rejected with the amount.
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
        self.restitution = floats_or_none(restitution)
        self.assemble = assemble
        name = name or f"activate {', '.join(self.names)}"
        super().__init__(name, at=at, when=when, direction=direction, repeat=repeat, consistent=consistent)

    @property
    def acts_on(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    @property
    def assembles(self) -> bool:
        """Whether positions are moved to the constraints."""
        return self.assemble

    def apply(self, change: Change, context: EventContext) -> Change:
        """Makes the rows act, or hits them."""
        rows = context.rows(self.names)
        if self.assemble:
            change = change.assemble(rows)
        if self.restitution is None:
            return change.activate(rows)
        hit = change.bounce(rows, self.restitution)
        # At a known time the hit is wanted whatever the motion; without a guard nothing could tell whether the contact closes either.
        if self.when is None:
            return hit
        closes, approaches = self._contact(context, rows)
        # Where the guard is at zero without an approach, as just after a rebound, nothing is hit: reversing a velocity that leads away
        # would drive the bodies into each other.
        return change.activate(rows).where(closes, hit.where(approaches, change))

    def able(self, context: EventContext) -> Bool[Array, ""]:
        """Whether any of its rows does not act."""
        return jnp.any(context.rows(self.names) & ~context.mode.active)

    def _contact(self, context: EventContext, rows: Bool[Array, " m"]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether the contact closes for good instead of rebounding, and whether the bodies approach, so that its guard rises."""
        # Verdicts are booleans: derivatives of the guard's second derivative would be traced in vain.
        assert self.restitution is not None and self.when is not None
        when = self.when
        system, state = lax.stop_gradient((context.system, context.state))
        vdot = lax.stop_gradient(context.acceleration())
        one = jnp.ones_like(state.t)

        def rate(t: Array, q: Array, v: Array) -> Array:
            guard = lambda t, q, v: self.direction * when(t, q, v, context.reaction, system.params)
            return jax.jvp(guard, (t, q, v), (one, system.qdot(q, v), vdot))[1]

        at = state.t, state.q, state.v
        # φ̇ and φ̈ along the motion, of the guard and not of the rows, since only the guard tells on which side the bodies are: a row may
        # have either sign. v̇ is held, which is exact for guards of the position, whose φ̈ has no part of v̈.
        speed, pressing = jax.jvp(rate, at, (one, system.qdot(state.q, state.v), vdot))
        hit = jnp.max(jnp.where(rows, jnp.abs(context.residual_rates), 0), initial=0)
        # (e ψ⁻)²/(2 |φ̈|) ≤ √eps Φ, the height of a throw with the speed of the rebound. `hit` is ψ⁻/Φ; the unit of the guard cancels in
        # speed/pressing. Multiplied out, since `pressing` may be zero and a quotient would be NaN.
        low = self.restitution**2 * hit * jnp.maximum(speed, 0) <= 2 * fitting(state.q.dtype) * pressing
        # A guard that does not change cannot tell an approach; any velocity of the rows counts as one there.
        return (pressing >= 0) & low, (speed > 0) | ((speed == 0) & (hit > 0))
