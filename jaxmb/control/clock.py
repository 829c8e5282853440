"""When a controller acts that holds its outputs in between."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ..foundations import index_among

Scalar = Float[Array, ""]


# Part of a period, above rounding, within which a time is that of a sample: steps end at samples only up to the rounding of sums of steps.
SAME = 1e-9


class AbstractClock(eqx.Module):
    """Instants t in s, numbered as they follow each other; they have no derivative.

    Attributes:
        delay: whether the outputs of one act from the next one on.
    """

    delay: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def number(self, t: Scalar) -> Scalar:
        """The number of the latest one."""

    @abc.abstractmethod
    def next_time(self, t: Scalar) -> Scalar:
        """When the next one is, later than t."""

    @abc.abstractmethod
    def interval(self, t: Scalar) -> Scalar:
        """The time from the latest one to the next one."""


class Clock(AbstractClock):
    """Instants phase + n·period."""

    period: Scalar
    phase: Scalar
    delay: bool = eqx.field(static=True)

    def number(self, t: Scalar) -> Scalar:
        """The number n of the latest sample."""
        # `floor` has no useful derivative, and when a sample is taken is no quantity of the motion.
        t, period, phase = lax.stop_gradient((t, self.period, self.phase))
        periods = (t - phase) / period
        # Four units of rounding of the quotient besides: far from the phase these exceed the fixed part.
        return jnp.floor(periods + SAME + 4 * jnp.finfo(periods.dtype).eps * jnp.abs(periods))

    def next_time(self, t: Scalar) -> Scalar:
        """When the next one is, later than t."""
        return lax.stop_gradient(self.phase + (self.number(t) + 1) * self.period)

    def interval(self, t: Scalar) -> Scalar:
        """The period."""
        return self.period


class Timetable(AbstractClock):
    """The instants of a table (T,), in s, increasing."""

    ts: Float[Array, " T"]
    delay: bool = eqx.field(static=True, default=False)

    def number(self, t: Scalar) -> Scalar:
        """The index of the latest one, −1 before the first."""
        return (self._following(t) - 1).astype(t.dtype)

    def next_time(self, t: Scalar) -> Scalar:
        """When the next one is, later than t; ∞ after the last."""
        following, count = self._following(t), self.ts.shape[0]
        return jnp.where(following < count, lax.stop_gradient(self.ts)[jnp.minimum(following, count - 1)], jnp.inf)

    def _following(self, t: Scalar) -> Int[Array, ""]:
        ts, t = lax.stop_gradient((self.ts, t))
        # side="right": at the time of an entry it is that entry.
        following = index_among(ts, t)
        end, begin = ts[jnp.minimum(following, ts.shape[0] - 1)], ts[jnp.maximum(following - 1, 0)]
        # Steps of a fixed length come to a time by a sum, which rounding may leave just before it.
        return following + ((t < end) & (end - t <= SAME * (end - begin)))

    def interval(self, t: Scalar) -> Scalar:
        """The time from the latest one to the next one; ∞ before the first and after the last."""
        i = jnp.asarray(self.number(t), int)
        return jnp.where(i < 0, jnp.inf, self.next_time(t) - self.ts[jnp.maximum(i, 0)])
