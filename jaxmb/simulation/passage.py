"""Passages through poses where rows become dependent, which lie between two accepted states."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import EXACT
from ..foundations import positive_or_one, where_needed
from ..kinematics import CLOSE, by_lengths
from ..system import State, System, residuals, rounding_nearby, rows_at
from .state_vector import StateVector
from .vector_field import VectorField

Scalar = Float[Array, ""]

# At most so many trials along the step, two of them at its ends, and corrections by the other rows in each; most end after five and three.
TRIALS, CORRECTIONS = 14, 8
# A remainder along the step that is so small beside the largest is zero.
ZERO = 1e-6
# φ of a row is exact to so many times what rounding leaves of rows nearby. Measured at 32 exact parallelograms in absolute coordinates: to 0.44.
TIMES = 2
# φ at the pose is known where the last trial has changed it by less than this part.
SETTLED = 0.1
# A row vanishes along the step where its remainder is less than this part of the largest one; else it only turns.
VANISHING = 0.03


class Path(eqx.Module):
    """The coordinates between the ends of a step, by Hermite's polynomial through q and its first two derivatives, or the first alone.

    Attributes:
        t0, t1: when it begins and ends.
        first, last: q, h q̇ and h² q̈ (k, nq) at both ends, k = 3 or 2.
        rates: v (2, nv) at both ends.
    """

    t0: Scalar
    t1: Scalar
    first: Float[Array, "k nq"]
    last: Float[Array, "k nq"]
    rates: Float[Array, "2 nv"]

    @classmethod
    def of(
        cls,
        system: System,
        t0: Scalar,
        t1: Scalar,
        ends: tuple[StateVector, StateVector],
        slopes: tuple[StateVector, StateVector] | None,
    ) -> "Path":
        """From the states at both ends, and the vector field there where that is known."""
        h, ends_data = t1 - t0, []
        for k, y in enumerate(ends):
            qdot, acceleration = system.qdot(y.q, y.v), []
            if slopes is not None:
                acceleration = [h**2 * jax.jvp(system.qdot, (y.q, y.v), (qdot, slopes[k].v))[1]]
            ends_data.append(jnp.stack([y.q, h * qdot, *acceleration]))
        return cls(t0, t1, ends_data[0], ends_data[1], jnp.stack([y.v for y in ends]))

    def at(self, x: Scalar) -> Float[Array, " nq"]:
        """The coordinates at t₀ + x h."""
        weights = QUINTIC if len(self.first) == 3 else CUBIC
        powers = x ** np.arange(weights.shape[1])
        return (weights @ powers) @ jnp.concatenate([self.first, self.last])


# Polynomials in x, from the constant term on, that belong to q, h q̇ and h² q̈ at the start, then at the end.
CUBIC = np.array([[1, 0, -3, 2], [0, 1, -2, 1], [0, 0, 3, -2], [0, 0, -1, 1.0]])
QUINTIC = np.array(
    [
        [1, 0, 0, -10, 15, -6],
        [0, 1, 0, -6, 8, -3],
        [0, 0, 0.5, -1.5, 1.5, -0.5],
        [0, 0, 0, 10, -15, 6],
        [0, 0, 0, -4, 7, -3],
        [0, 0, 0, 0.5, -1, 0.5],
    ]
)


class _Trial(eqx.Module):
    """A pose beside the step where all rows but one are satisfied, and that row there.

    Attributes:
        x: where along the step it is.
        shift: by how much (nv,) it is beside the step.
        ahead: the remainder along its direction where the step began.
        rate: h (C v + b) of the row for a velocity that all others allow, relative to its size.
        length: of the remainder.
        off_manifold: the largest |φ|/Φ before the pose was corrected.
        miss: φ/Φ of the row; zero where that is rounding.
        across: that direction, each coordinate in units of its length ℓ (nv,).
    """

    x: Scalar
    shift: Float[Array, " nv"]
    ahead: Scalar
    rate: Scalar
    length: Scalar
    off_manifold: Scalar
    miss: Scalar
    across: Float[Array, " nv"]

    @property
    def missed(self) -> Bool[Array, ""]:
        """Whether φ is not zero."""
        return self.miss != 0


class _SignBracket(eqx.Module):
    """The method of Illinois: between `a` and `b` the remainder, s there, changes its sign."""

    a: Scalar
    b: Scalar
    sa: Scalar
    sb: Scalar
    was_ahead: Bool[Array, ""]

    @property
    def holds(self) -> Bool[Array, ""]:
        """Whether the remainder has different signs at the ends."""
        return (self.sa > 0) & (self.sb <= 0)

    @property
    def middle(self) -> Scalar:
        """The zero of the line through the values at both ends."""
        return self.a + (self.b - self.a) * self.sa / positive_or_one(self.sa - self.sb)

    def narrowed(self, n: Array, trial: _Trial) -> "_SignBracket":
        """The bracket after trial number n; the first two trials are at its ends."""
        s, x = trial.ahead, trial.x
        ahead = jnp.where(n < 2, n == 0, s > 0)  # the sign change lies beyond
        # The method of Illinois (Dowell and Jarratt 1971): the value at an end that stays twice in turn is halved, else that end might never
        # move.
        half = jnp.where((n > 2) & (ahead == self.was_ahead), 0.5, 1)
        a, b = jnp.where(ahead, x, self.a), jnp.where(ahead, self.b, x)
        return _SignBracket(a, b, jnp.where(ahead, s, half * self.sa), jnp.where(ahead, half * self.sb, s), ahead)


def distance_missed(
    field: VectorField,
    in_use: Bool[Array, " m"],
    path: Path,
    before: Float[Array, "m nv"],
    after: Float[Array, "m nv"],
) -> tuple[Bool[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """Whether a step misses a pose where the remainder of a row changes its sign, by how much, φ/Φ, and whether that is not known.

    `before` and `after` are the bases of the rows in use (`Correction.basis`) at both ends of the step.

    Gram and Schmidt's remainder of a row that becomes dependent grows along the motion from one sign to the other. Where it vanishes,
    all other rows satisfied, either φ of the row is zero: the motion leads through that pose. Or it is not: the branches of the motion miss each
    other there, each turns off, and the step has gone from one to the other.
    """
    zero, no = jnp.zeros_like(path.t0), jnp.array(False)
    if not field.system.m:
        return no, zero, no
    field, path, before, after = lax.stop_gradient((field, path, before, after))
    # Bases relative to the lengths ℓ: in the metric of M rows turn by the motion of a light body alone, at no singular pose.
    turned = in_use & (jnp.sum(before * after, axis=1) < 0)
    row = jnp.argmax(turned)
    arguments = (field, in_use, row, path, before[row])
    return where_needed(jnp.any(turned), _at_sign_change, arguments, (no, zero, no))


def _at_sign_change(
    field: VectorField,
    in_use: Bool[Array, " m"],
    row: Array,
    path: Path,
    direction: Float[Array, " nv"],
) -> tuple[Bool[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """The result of `distance_missed` for one row.

    First the remainder s along its direction is brought to zero along the step, by the method of Illinois. Where φ is zero then, that
    is all. The step lies beside the motion by some w, though: where all rows but one hold, φ is a function δ + a u w + b w²/2 of u along the
    motion and w across it, and s = a u + b w vanishes where φ is δ − b w²/2. What φ changes by along the motion, a w, tells w: the search is
    moved by that, until φ does not change any more.
    """
    zero, no, none = jnp.zeros_like(path.t0), jnp.array(False), jnp.zeros_like(direction)
    middle = State((path.t0 + path.t1) / 2, path.at(jnp.asarray(0.5, zero.dtype)), path.rates[0], field.scale)
    rounding = TIMES * jnp.maximum(rounding_nearby(field.system, middle), jnp.finfo(zero.dtype).eps)

    def trial(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        n, bracket, before, slope, largest, tracking, _ = carry
        x = jnp.where(n < 2, n.astype(zero.dtype), bracket.middle)
        x = jnp.where(tracking, jnp.clip(before.x - before.ahead / slope, 0, 1), x)
        shift = before.shift - jnp.where(tracking, before.rate / slope, 0) * before.across
        now = _trial_at(field, in_use, row, path, direction, x, shift, rounding)
        largest = jnp.maximum(largest, now.length)
        settled = tracking & (jnp.abs(now.miss - before.miss) <= SETTLED * jnp.abs(now.miss))
        converging = (n > 1) & (tracking | (jnp.abs(now.ahead) < ZERO * largest))
        steep = (now.ahead - before.ahead) / jnp.where(now.x == before.x, 1, now.x - before.x)
        # From the sign at the start to the other one the remainder falls; a slope that does not is rounding, and −1 keeps the quotient
        # finite.
        slope = jnp.where(tracking, slope, jnp.where(steep < 0, steep, -1))
        narrower = bracket.narrowed(n, now)
        # Without two signs at the ends there is nothing to be looked for: a row may turn by more than a right angle without vanishing.
        converged = converging & (~now.missed | settled) | (n == 1) & ~narrower.holds
        return n + 1, narrower, now, slope, largest, converging, converged

    start = _Trial(x=zero, shift=none, ahead=zero, rate=zero, length=zero, off_manifold=zero, miss=zero, across=none)
    carry = (jnp.array(0), _SignBracket(zero, zero, zero, zero, no), start, zero, zero, no, no)
    # Bounded: in a batch the slowest row would hold up all others.
    search = lax.while_loop(lambda carry: (carry[0] < TRIALS) & ~carry[-1], trial, carry)
    bracket, last, largest, converged = search[1], search[2], search[4], search[-1]
    missed = last.missed & (last.length < VANISHING * largest) & bracket.holds
    return missed, jnp.abs(last.miss), bracket.holds & (~converged | (last.off_manifold > CLOSE))


def _trial_at(
    field: VectorField,
    in_use: Bool[Array, " m"],
    row: Array,
    path: Path,
    direction: Float[Array, " nv"],
    x: Scalar,
    shift: Float[Array, " nv"],
    rounding: Scalar,
) -> _Trial:
    """A pose at x along the step and `shift` beside it, corrected by all rows but one; up to `rounding` φ/Φ of a row is zero."""
    system, scale, others = field.system, field.scale, in_use & (np.arange(field.system.m) != row)
    h = path.t1 - path.t0
    t = path.t0 + x * h

    def closer(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        count, q, before, closed = carry
        terms = rows_at(system, t, q, scale.row)
        factor = by_lengths(scale, field.formulation.factorise(terms, others))
        v = (1 - x) * path.rates[0] + x * path.rates[1]
        residual, rate = residuals(system, t, q, v)
        own = factor.root @ (terms.jacobian[row] / factor.scale[row])
        # The remainder of the row beside all others, as a vector: its component along the direction at the start has a sign.
        components = factor.basis @ own
        rest = own - components @ factor.basis
        # What the row is without it, as a combination of the others; what rounding leaves of them is found in it too.
        parts = jnp.where(others, components @ factor.weights, 0)
        row_rate = h * (rate[row] / factor.scale[row] - parts @ (rate / factor.scale))
        sizes = scale.span / factor.scale
        exact = rounding * (1 + jnp.abs(parts) @ sizes / sizes[row])
        off, miss = jnp.abs(residual) / scale.span, residual[row] / scale.span[row]
        # The row in question is not closed: what is left of it at this pose is what is asked for.
        closed = jnp.maximum(jnp.finfo(off.dtype).eps ** EXACT, rounding)
        on = jnp.all(jnp.where(others, off, 0) <= closed)
        trial = _Trial(
            x=x,
            shift=shift,
            ahead=rest @ direction,
            rate=row_rate,
            length=jnp.sqrt(rest @ rest),
            off_manifold=jnp.where(count == 0, jnp.max(off), before.off_manifold),
            miss=jnp.where(off[row] > exact, miss, 0),
            across=factor.root.T @ direction,
        )
        return count + 1, system.displaced(q, -factor.particular(residual)), trial, closed + on

    q = path.at(x)
    q = system.displaced(q, shift)
    zero, none = jnp.zeros_like(x), jnp.zeros_like(shift)
    start = (
        jnp.array(0),
        q,
        _Trial(x=x, shift=shift, ahead=zero, rate=zero, length=zero, off_manifold=zero, miss=zero, across=none),
        jnp.array(0),
    )
    # Once more when all others are closed: what they leave of themselves would be the error of what is asked for.
    return lax.while_loop(lambda carry: (carry[0] < CORRECTIONS) & (carry[-1] < 2), closer, start)[2]
