"""Passages through poses where rows become dependent, which lie between two accepted states."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..foundations import where_needed
from ..kinematics import EXACT
from ..system import System, position_residual, rows_at
from .flow import Flow
from .problem import Problem

Scalar = Float[Array, ""]

# At most so many trials along the step, two of them at its ends, and corrections by the other rows in each; most end after five and three.
TRIALS, CORRECTIONS = 9, 8
# A remainder along the step that is so small beside the largest is zero.
ZERO = 1e-6
# Where the path is off the constraints by ε, φ at the pose is known to ε² times a curvature of Φ, which is some ten per step and more
# where a mechanism turns and shifts. Below that a step is too long to tell φ from zero.
CURVATURE = 100
# A row vanishes along the step where its remainder is less than this part of the largest one; else it only turns.
VANISHING = 0.03


class Path(eqx.Module):
    """The coordinates between the ends of a step, by Hermite's polynomial through q and its first two derivatives, or the first alone.

    Attributes:
        t0, t1: when it begins and ends.
        first, last: q, h q̇ and h² q̈ (k, nq) at both ends, k = 3 or 2.
    """

    t0: Scalar
    t1: Scalar
    first: Float[Array, "k nq"]
    last: Float[Array, "k nq"]

    @classmethod
    def of(
        cls, system: System, t0: Scalar, t1: Scalar, ends: tuple[Flow, Flow], slopes: tuple[Flow, Flow] | None
    ) -> "Path":
        """From the states at both ends, and the vector field there where that is known."""
        h, found = t1 - t0, []
        for k, y in enumerate(ends):
            qdot, more = system.qdot(y.q, y.v), []
            if slopes is not None:
                more = [h**2 * jax.jvp(system.qdot, (y.q, y.v), (qdot, slopes[k].v))[1]]
            found.append(jnp.stack([y.q, h * qdot, *more]))
        return cls(t0, t1, *found)

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


def distance_missed(
    problem: Problem,
    keep: Bool[Array, " m"],
    path: Path,
    before: Float[Array, "m nv"],
    after: Float[Array, "m nv"],
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """By how much a step misses a pose, φ/Φ, where the remainder of a row changes its sign; zero if none does.

    And whether the step is too long to tell that from zero.

    `before` and `after` are the bases of the rows in use (`Correction.basis`) at both ends of the step.

    Gram and Schmidt's remainder of a row that becomes dependent grows along the motion from one sign to the other. Where it vanishes,
    all other rows satisfied, either φ of the row is zero: the motion leads through that pose. Or it is not: the branches of the motion miss each
    other there, each turns off, and the step has gone from one to the other.
    """
    if not problem.system.m:
        return jnp.zeros_like(path.t0), jnp.array(False)
    problem, path, before, after = lax.stop_gradient((problem, path, before, after))
    turned = keep & (jnp.sum(before * after, axis=1) < 0)
    row = jnp.argmax(turned)
    arguments = (problem, keep, row, path, before[row])
    return where_needed(jnp.any(turned), _at_sign_change, arguments, (jnp.zeros_like(path.t0), jnp.array(False)))


def _at_sign_change(
    problem: Problem,
    keep: Bool[Array, " m"],
    row: Array,
    path: Path,
    direction: Float[Array, " nv"],
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """|φ|/Φ of a row where its remainder off all others vanishes along the step, corrected by those: by the method of Illinois.

    There φ is stationary: where the interpolation is off the constraints by ε, what is found errs by the order of ε².
    """
    system = problem.system
    others = keep & (np.arange(system.m) != row)
    zero, no = jnp.zeros_like(path.t0), jnp.array(False)

    def remainder(x: Array) -> tuple[Array, ...]:
        t = path.t0 + x * (path.t1 - path.t0)

        def closer(carry: tuple[Array, ...]) -> tuple[Array, ...]:
            count, q, astray, *_ = carry
            terms = rows_at(system, t, q, problem.scale.row)
            factor = problem.formulation.factorise(terms, others)
            residual = position_residual(system, t, q)
            own = factor.root @ (terms.jacobian[row] / problem.scale.row[row])
            rest = own - (factor.basis @ own) @ factor.basis
            step = factor.solve(jnp.zeros_like(direction), residual)[0]
            off = jnp.abs(residual) / problem.scale.span
            on = jnp.all(jnp.where(others, off, 0) <= jnp.finfo(off.dtype).eps ** EXACT)
            q, astray = system.normalise(q - system.qdot(q, step)), jnp.where(count == 0, jnp.max(off), astray)
            return count + 1, q, astray, rest @ direction, jnp.sqrt(rest @ rest), off[row], on

        start = (jnp.array(0), system.normalise(path.at(x)), zero, zero, zero, zero, no)
        return lax.while_loop(lambda carry: (carry[0] < CORRECTIONS) & ~carry[-1], closer, start)[2:6]

    def trial(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        n, xa, sa, xb, sb, was_ahead, largest, best, off, vague, _ = carry
        x = jnp.where(n < 2, n.astype(xa.dtype), xa + (xb - xa) * sa / jnp.where(sa - sb > 0, sa - sb, 1))
        astray, s, length, miss = remainder(x)
        ahead = jnp.where(n < 2, n == 0, s > 0)  # the sign change lies beyond
        half = jnp.where((n > 2) & (ahead == was_ahead), 0.5, 1)
        xa, xb = jnp.where(ahead, x, xa), jnp.where(ahead, xb, x)
        sa, sb = jnp.where(ahead, s, half * sa), jnp.where(ahead, half * sb, s)
        better = length < best
        best, off = jnp.where(better, length, best), jnp.where(better, miss, off)
        vague = jnp.where(better, miss <= CURVATURE * astray**2, vague)
        largest = jnp.maximum(largest, length)
        return n + 1, xa, sa, xb, sb, ahead, largest, best, off, vague, jnp.abs(s) < ZERO * largest

    start = (jnp.array(0), zero, zero, zero + 1, zero, no, zero, zero + jnp.inf, zero, no, no)
    going = lambda carry: (carry[0] < TRIALS) & ((carry[0] < 2) | ~carry[-1])
    *_, largest, best, off, vague, _ = lax.while_loop(going, trial, start)
    return jnp.where(best < VANISHING * largest, off, 0), vague
