"""The search for a pose on the constraints from far away."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..foundations import program
from ..linalg import solve_spd
from ..system import Scale, System, angles, in_turn, position_residual

# Guesses that are tried one after the other, for large systems fewer so that their number times that of the velocities is bounded, and the
# steps from each.
GUESSES, FEWEST, LARGE, STEPS = 64, 4, 2048, 60
# Poses at which the sizes of rows are read.
SAMPLES = 16
# A residual of that part of its size is left to Gauss and Newton; a guess is given up where so many steps in turn gain less than this part.
SOLVED, SLOW, GAIN = 1e-8, 4, 1e-3
# A step is taken that gains more than this part of what the linear model promises (Nielsen 1999); a coordinate by which rows hardly change
# is damped as if they changed by this part of what they change by others.
GOOD, WIDTH = 1e-4, 1e-6
# Damping at first, at least and at most, and by which factor it falls at most after a good step (Nielsen 1999).
DAMPING, LEAST, MOST, FALL = 1e-2, 1e-12, 1e8, 0.1


@program
def search_pose(
    system: System, t: Float[Array, ""], start: Float[Array, " nq"], fixed: tuple[int, ...], scale: Scale
) -> Float[Array, " nq"]:
    """Coordinates on the constraints near a guess, to `SOLVED`, where iterations from the guess itself do not lead there; without derivatives.

    Levenberg and Marquardt's steps in coordinates, −(JᵀJ + μ D)⁻¹ Jᵀ r, D the diagonal of JᵀJ, from the guess, then from guesses around it, the
    nearest first, until one leads to the constraints. Residuals r are relative to their mean square over poses all around, so that no
    unit and no mass counts, and tell which way round a joint is meant. Angles are brought into the turn of the guess where the rows
    allow it. If no guess leads there, the coordinates at which the last descent ended are returned.

    Args:
        system: the system, in its mode.
        t: time.
        start: the guess.
        fixed: indices of coordinates that keep their values.
        scale: sizes at the guess.
    """
    system, t, start, scale = lax.stop_gradient((system.for_search, t, start, scale))
    count = min(GUESSES, max(FEWEST, LARGE // system.nv))
    random = np.random.default_rng(0)
    # By coordinate, so that further ones change nothing.
    draws = np.stack([random.uniform(-np.pi, np.pi, SAMPLES + count) for _ in range(system.nv)], axis=1)
    sizes = jnp.where(angles(system) & (scale.reach > 0), 1, scale.reach)  # of which no row tells stays
    index = np.array(fixed, int)

    def displaced(q: Array, step: Array) -> Array:
        return system.normalise((q + system.qdot(q, sizes * step)).at[index].set(start[index]))

    # Some poses are beyond where functions are defined, hence the mean without NaN.
    around = jax.vmap(lambda draw: position_residual(system, t, displaced(start, draw)))(draws[:SAMPLES])
    spans = jnp.maximum(scale.span, jnp.sqrt(jnp.nanmean(around**2, axis=0)))
    rows = lambda q: position_residual(system, t, q) / spans
    nearest_first = jnp.asarray(draws[SAMPLES:] * np.linspace(0, 1, count)[:, None], start.dtype)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        attempts, _, success = carry
        # Guesses in turn and not all at once, the nearest first: none beyond the first success costs anything.
        return ~success & (attempts < count)

    def attempt(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        attempts, _, _ = carry
        q = _descend(rows, displaced, displaced(start, nearest_first[attempts]), system.nv)
        return attempts + 1, q, _size(rows(q)) < SOLVED

    q = lax.while_loop(unfinished, attempt, (jnp.array(0), start, jnp.array(False)))[1]
    units = (None,) * system.nq if system.joints is None else system.joints.units[0]
    return _unwound(rows, start, q, np.array([unit == "rad" for unit in units]))


def _unwound(rows: Callable[[Array], Array], start: Array, q: Array, turning: np.ndarray) -> Array:
    """The coordinates with angles in the turn of the guess, where the rows allow it."""
    # Steps may have gone round; joints that count turns, such as gears, are asked by their rows whether they may go back.
    unwound = jnp.where(turning, in_turn(q, start), q)
    return jnp.where(_size(rows(unwound)) < SOLVED, unwound, q)


def _size(rows: Array) -> Array:
    """The largest residual, infinite where one is not a number."""
    return jnp.max(jnp.where(jnp.isfinite(rows), jnp.abs(rows), jnp.inf), initial=0)


class _Descent(eqx.Module):
    """The state of a descent by Levenberg and Marquardt's steps.

    Attributes:
        q: coordinates.
        size: the largest residual there.
        damping, growth: μ, and by what it grows if the next step is no good.
        steps, slow: how many have been tried, and how many of the last ones gained little.
    """

    q: Array
    size: Array
    damping: Array
    growth: Array
    steps: Array
    slow: Array


def _descend(
    rows: Callable[[Array], Array], displaced: Callable[[Array, Array], Array], start: Array, count: int
) -> Array:
    """The coordinates to which steps from a guess lead."""
    none = jnp.zeros(count, start.dtype)

    def unfinished(at: _Descent) -> Array:
        return (at.size >= SOLVED) & (at.steps < STEPS) & (at.slow < SLOW) & (at.damping < MOST)

    def step(at: _Descent) -> _Descent:
        residual, jacobian = rows(at.q), jax.jacfwd(lambda step: rows(displaced(at.q, step)))(none)
        normal, slope = jacobian.T @ jacobian, jacobian.T @ residual
        widths = jnp.diag(normal)
        widths = jnp.maximum(widths, WIDTH * jnp.max(widths))
        # JᵀJ squares the condition number, but only a pose to 1e-8 is wanted: Gauss and Newton's iterations by C itself go on from there.
        move = -solve_spd(normal + at.damping * jnp.diag(widths), slope)
        q = displaced(at.q, move)
        there = rows(q)
        before, after = jnp.sum(residual**2), jnp.sum(there**2)
        ratio = (before - after) / (before - jnp.sum((residual + jacobian @ move) ** 2))
        # A pose where functions are not defined gives NaN, which is never good: damping grows until steps stay within.
        good = ratio > GOOD
        falling = at.damping * jnp.maximum(FALL, 1 - (2 * ratio - 1) ** 3)
        return _Descent(
            q=jnp.where(good, q, at.q),
            size=_size(jnp.where(good, there, residual)),
            damping=jnp.maximum(jnp.where(good, falling, at.damping * at.growth), LEAST),
            growth=jnp.where(good, 2.0, 2 * at.growth),
            steps=at.steps + 1,
            slow=jnp.where(good, jnp.where(after > (1 - GAIN) * before, at.slow + 1, 0), at.slow),
        )

    zero = jnp.zeros_like(none[0])
    first = _Descent(
        q=start, size=zero + jnp.inf, damping=zero + DAMPING, growth=zero + 2, steps=jnp.array(0), slow=jnp.array(0)
    )
    return lax.while_loop(unfinished, step, first).q
