"""Passages through poses where rows become dependent, which lie between two accepted states."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..foundations import where_needed
from ..system import position_residual, rows_at
from .flow import Flow
from .problem import Problem

# Trials along the step, two of them at its ends, and corrections by the other rows in each.
TRIALS, CORRECTIONS = 9, 3


def distance_missed(
    problem: Problem,
    keep: Bool[Array, " m"],
    t0: Array,
    y0: Flow,
    t1: Array,
    y1: Flow,
    before: Float[Array, "m nv"],
    after: Float[Array, "m nv"],
) -> Float[Array, ""]:
    """By how much a step misses a pose, φ/Φ, where the remainder of a row changes its sign; zero if none does.

    `before` and `after` are the bases of the rows in use (`Correction.basis`) at both ends of the step.

    Gram and Schmidt's remainder of a row that becomes dependent grows along the motion from one sign to the other. Where it vanishes,
    all other rows satisfied, either φ of the row is zero: the motion leads through that pose. Or it is not: the branches of the motion miss each
    other there, each turns off, and the step has gone from one to the other.
    """
    if not problem.system.m:
        return jnp.zeros_like(t0)
    problem, t0, y0, t1, y1, before, after = lax.stop_gradient((problem, t0, y0, t1, y1, before, after))
    turned = keep & (jnp.sum(before * after, axis=1) < 0)
    row = jnp.argmax(turned)
    arguments = (problem, keep, row, t0, y0, t1, y1, before[row])
    return where_needed(jnp.any(turned), _at_sign_change, arguments, jnp.zeros_like(t0))


def _at_sign_change(
    problem: Problem,
    keep: Bool[Array, " m"],
    row: Array,
    t0: Array,
    y0: Flow,
    t1: Array,
    y1: Flow,
    direction: Float[Array, " nv"],
) -> Float[Array, ""]:
    """|φ|/Φ of a row where its remainder off all others vanishes along the step, corrected by those: by the method of Illinois."""
    system, h = problem.system, t1 - t0
    others = keep & (np.arange(system.m) != row)
    q0, v0, q1, v1 = y0.q, y0.v, y1.q, y1.v
    slopes = h * system.qdot(q0, v0), h * system.qdot(q1, v1)

    def between(x: Array) -> Array:
        bend = x * (x - 1) * ((x - 1) * (slopes[0] - (q1 - q0)) + x * (slopes[1] - (q1 - q0)))
        return system.normalise(q0 + x * (q1 - q0) + bend)

    def remainder(x: Array) -> tuple[Array, Array]:
        def closer(q: Array, _: Any) -> tuple[Array, tuple[Array, Array]]:
            terms = rows_at(system, t0 + x * h, q, problem.scale.row)
            factor = problem.formulation.factorise(terms, others)
            residual = position_residual(system, t0 + x * h, q)
            own = factor.root @ (terms.jacobian[row] / problem.scale.row[row])
            rest = own - (factor.basis @ own) @ factor.basis
            signed = jnp.sign(rest @ direction) * jnp.sqrt(rest @ rest)
            step = factor.solve(jnp.zeros_like(v0), residual)[0]
            return system.normalise(q - system.qdot(q, step)), (
                signed,
                jnp.abs(residual[row]) / problem.scale.span[row],
            )

        found = lax.scan(closer, between(x), None, length=CORRECTIONS)[1]
        return found[0][-1], found[1][-1]

    def trial(n: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        xa, sa, xb, sb, was_ahead, largest, best, off = carry
        x = jnp.where(n < 2, n.astype(xa.dtype), xa + (xb - xa) * sa / jnp.where(sa - sb > 0, sa - sb, 1))
        s, miss = remainder(x)
        ahead = jnp.where(n < 2, n == 0, s > 0)  # the sign change lies beyond
        half = jnp.where((n > 2) & (ahead == was_ahead), 0.5, 1)
        xa, xb = jnp.where(ahead, x, xa), jnp.where(ahead, xb, x)
        sa, sb = jnp.where(ahead, s, half * sa), jnp.where(ahead, half * sb, s)
        better = jnp.abs(s) < best
        best, off = jnp.where(better, jnp.abs(s), best), jnp.where(better, miss, off)
        return xa, sa, xb, sb, ahead, jnp.maximum(largest, jnp.abs(s)), best, off

    zero, one = jnp.zeros_like(t0), jnp.ones_like(t0)
    start = (zero, zero, one, zero, jnp.array(False), zero, jnp.full_like(t0, jnp.inf), zero)
    *_, largest, best, off = lax.fori_loop(0, TRIALS, trial, start)
    return jnp.where(best < 1e-3 * largest, off, 0)  # else the row does not vanish in between
