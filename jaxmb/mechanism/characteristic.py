"""Forces by tables: characteristics of motors, springs and dampers as they are measured."""

import abc
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..foundations import (
    Finite,
    TextInNotebooks,
    as_floats,
    contract,
    index_among,
    is_concrete,
)
from .force import AbstractForce, AbstractLineForce
from .marker import MarkerLike, marker
from .motion import Motion

Scalar = Float[Array, ""]
Interpolation = Literal["linear", "cubic"]
Beyond = Literal["hold", "refuse"]


class Table(TextInNotebooks, eqx.Module):
    """A function y(x) that interpolates between the points of a table.

    "cubic" is the monotone cubic of Fritsch and Butland (1984), with a continuous derivative: it does not overshoot, so that it rises where
    the points rise and is flat where they are.

    Args:
        x: (n,), increasing, of two points or more.
        y: (n,).
        interpolation: "linear" or "cubic".
        beyond: what y is beyond the points: "hold" for the first or last value, "refuse" for NaN, with which a run ends in a
            failure.

    Raises:
        ValueError: if x and y do not fit these conditions.

    Example:
        >>> import jaxmb as jm
        >>> torque = jm.planar.Table([0.0, 100.0, 300.0], [2.0, 1.5, 0.0])
        >>> float(torque(200.0)), float(torque(400.0))
        (0.75, 0.0)
    """

    x: Float[Array, " n"]
    y: Float[Array, " n"]
    interpolation: Interpolation = eqx.field(static=True)
    beyond: Beyond = eqx.field(static=True)

    @contract
    def __init__(
        self,
        x: Finite,
        y: Finite,
        interpolation: Interpolation = "linear",
        beyond: Beyond = "hold",
        *,
        argument: str = "",
    ):
        self.x, self.y = (as_floats(value) for value in (x, y))
        self.interpolation, self.beyond = interpolation, beyond
        if self.x.ndim != 1 or self.x.shape != self.y.shape or self.x.size < 2:
            raise ValueError(
                f"Arguments `x` and `y`{argument} must have one shape (n,), of two points or more, but have {self.x.shape} and "
                f"{self.y.shape}."
            )
        if is_concrete(self.x) and not np.all(np.diff(np.asarray(self.x)) > 0):
            raise ValueError(f"Argument `x`{argument} must increase, but does not.")

    def __call__(self, x: ArrayLike) -> Scalar:
        """The value at x."""
        x = as_floats(x)
        inside = jnp.clip(x, self.x[0], self.x[-1])
        i = index_among(self.x[1:-1], inside)
        width = self.x[i + 1] - self.x[i]
        s, rise = (inside - self.x[i]) / width, self.y[i + 1] - self.y[i]
        y = self.y[i] + s * rise
        if self.interpolation == "cubic":  # Hermite's, from the line and the slopes' excess over it at both ends
            slopes = _monotone_slopes(self.x, self.y)
            first, last = slopes[i] * width - rise, slopes[i + 1] * width - rise
            y = y + s * (1 - s) * (first * (1 - s) - last * s)
        # A NaN force is the one refusal that works under `jit`: the step is not accepted and the run ends with a
        # message.
        return jnp.where(inside == x, y, jnp.nan) if self.beyond == "refuse" else y


def _monotone_slopes(x: Float[Array, " n"], y: Float[Array, " n"]) -> Float[Array, " n"]:
    """Weighted harmonic means of the slopes on both sides, zero where these differ in sign; at the ends those of a parabola, limited."""
    h = jnp.diff(x)
    d = jnp.diff(y) / h
    if len(x) == 2:
        return jnp.concatenate([d, d])
    a, b, before, after = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1], d[:-1], d[1:]
    same = before * after > 0
    # `where` differentiates both branches: without a safe divisor a slope of zero gives 0 · inf = NaN in the
    # gradient.
    safe = lambda z: jnp.where(same, z, 1)
    inner = jnp.where(same, (a + b) / (a / safe(before) + b / safe(after)), 0)

    # The three-point slope at an end, cut to zero or to three times the secant where it would break monotonicity (the
    # end rule of Fritsch and Carlson 1980, as in PCHIP).
    def end(h0: Scalar, h1: Scalar, d0: Scalar, d1: Scalar) -> Scalar:
        slope = ((2 * h0 + h1) * d0 - h0 * d1) / (h0 + h1)
        slope = jnp.where((d0 * d1 < 0) & (jnp.abs(slope) > 3 * jnp.abs(d0)), 3 * d0, slope)
        return jnp.where(slope * d0 > 0, slope, 0)

    return jnp.concatenate([end(h[0], h[1], d[0], d[1])[None], inner, end(h[-1], h[-2], d[-1], d[-2])[None]])


class AbstractCharacteristic(AbstractForce):
    """A force by a table."""

    of: str = eqx.field(static=True)
    x: Float[Array, " n"]
    y: Float[Array, " n"]
    interpolation: Interpolation = eqx.field(static=True)
    beyond: Beyond = eqx.field(static=True)

    @property
    def table(self) -> Table:
        """y(x), where `of` is x."""
        return Table(self.x, self.y, self.interpolation, self.beyond)

    @property
    def breaks(self) -> Float[Array, " k"]:
        """The points of a table of time; none of others."""
        return self.x if self.of == "time" else self.x[:0]

    @abc.abstractmethod
    def argument(self, motion: Motion) -> Scalar:
        """What the table is read at, where that is not the time."""

    def value(self, motion: Motion) -> Scalar:
        """The force or torque of the table."""
        return self.table(motion.t if self.of == "time" else self.argument(motion))


class JointCharacteristic(AbstractCharacteristic):
    """A force or torque along a joint coordinate by a table of the coordinate, its rate, or time.

    Args:
        name: its name.
        joint: name of the joint, or "joint.coordinate" where it has several; coordinate and velocity must go by one name.
        of: the variable of the table: "coordinate" in m or rad, "rate" in m/s or rad/s, or "time" in s.
        x: points (n,) of it, increasing; adaptive steps end at those of time.
        y: the effort (n,) there in N or N m, positive along the coordinate.
        interpolation: "linear" or "cubic", as in `Table`.
        beyond: "hold" or "refuse", as in `Table`.
    """

    joint: str = eqx.field(static=True)

    @contract
    def __init__(
        self,
        name: str,
        joint: str,
        of: Literal["coordinate", "rate", "time"],
        x: Finite,
        y: Finite,
        interpolation: Interpolation = "linear",
        beyond: Beyond = "hold",
    ):
        table = Table(x, y, interpolation, beyond, argument=f" of force '{name}'")
        self.name, self.joint, self.of = name, joint, of
        self.x, self.y, self.interpolation, self.beyond = table.x, table.y, interpolation, beyond

    def coordinates(self) -> tuple[str, ...]:
        """The joint's, where the table reads it: full turns count."""
        return (self.joint,) if self.of == "coordinate" else ()

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """F ṡ_test."""
        return self.value(motion) * test.rate(self.joint)

    def argument(self, motion: Motion) -> Scalar:
        """The coordinate or its rate."""
        return motion.coordinate(self.joint) if self.of == "coordinate" else motion.rate(self.joint)


class LineCharacteristic(AbstractCharacteristic, AbstractLineForce):
    """A force between two points by a table of their distance, its rate, or time; positive in tension.

    Args:
        name: its name.
        a: a marker.
        b: another marker; the points must not meet where the force is not zero.
        of: the variable of the table: "length" in m, "speed" in m/s, positive while the points move apart, or "time" in s.
        x: points (n,) of it, increasing; adaptive steps end at those of time.
        y: the force (n,) there in N.
        interpolation: "linear" or "cubic", as in `Table`.
        beyond: "hold" or "refuse", as in `Table`.
    """

    @contract
    def __init__(
        self,
        name: str,
        a: MarkerLike,
        b: MarkerLike,
        of: Literal["length", "speed", "time"],
        x: Finite,
        y: Finite,
        interpolation: Interpolation = "linear",
        beyond: Beyond = "hold",
    ):
        table = Table(x, y, interpolation, beyond, argument=f" of force '{name}'")
        self.name, self.of = name, of
        self.a, self.b = marker(a, f"a of force '{name}'"), marker(b, f"b of force '{name}'")
        self.x, self.y, self.interpolation, self.beyond = table.x, table.y, interpolation, beyond

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """−f l̇_test."""
        return -self.value(motion) * self.speed(test)

    def argument(self, motion: Motion) -> Scalar:
        """The distance or its rate."""
        return self.length_of(motion) if self.of == "length" else self.speed(motion)
