"""Quadratic functions of a few unknowns, least within bounds."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from .root import solve_spd

# Parts of a way that are tried in each round; the last one stands still.
PARTS = (*(2.0**-k for k in range(12)), 0.0)
# Rounds at most; most boxes of a few inputs take two or three.
ROUNDS = 40
# Changes of an unknown by less than this part of it are rounding.
ROUNDING = 1e-12


def bounded_round(
    matrix: Float[Array, "n n"],
    slope: Float[Array, " n"],
    low: Float[Array, "*n"] | float,
    high: Float[Array, "*n"] | float,
    d: Float[Array, " n"],
    live: Bool[Array, " n"] | bool = True,
) -> Float[Array, " n"]:
    """Of d, within its bounds, a better one: Newton's step of what no bound holds, or one down the slope, as far along its projection as is best.

    For dᵀA d/2 + dᵀb with A positive definite. What is not `live` stays.
    """
    rest = slope + matrix @ d
    fixed = at_bounds(d, rest, low, high) | ~jnp.asarray(live)
    # Unit rows and columns for what a bound holds: the matrix keeps its shape, and stays positive definite.
    both = ~fixed[:, None] & ~fixed
    newton = solve_spd(jnp.where(both, matrix, np.eye(d.shape[0])), jnp.where(fixed, 0.0, -rest))
    # Newton's step may be cut off by a bound so that it leads up; the gradient, scaled by a diagonal matrix, never is (Bertsekas
    # 1982): by that of A, so that unknowns may be in any units.
    ways = jnp.stack([newton, jnp.where(fixed, 0.0, -rest / jnp.diagonal(matrix))])
    trials = jnp.clip(d + (jnp.array(PARTS, d.dtype)[:, None, None] * ways).reshape(-1, d.shape[0]), low, high)
    # Compared by what they gain on d: values themselves agree to rounding from some √eps of the least one on.
    moves = trials - d
    return trials[jnp.argmin(moves @ rest + 0.5 * jnp.sum(moves * (moves @ matrix), axis=1))]


def at_bounds(x: Any, slope: Any, low: Any, high: Any) -> Any:
    """Which unknowns x, of JAX or NumPy, are at a bound beyond which a function of this slope would be less."""
    return ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))


def bounded_minimum(
    matrix: Float[Array, "n n"], slope: Float[Array, " n"], low: Float[Array, " n"], high: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """Where dᵀA d/2 + dᵀb is least within bounds that hold zero, by Bertsekas' projected Newton method (1982), and which unknowns a bound holds.

    A must be positive definite. The loop ends when nothing changes: it has no derivative in reverse.
    """

    def better(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, _, d = carry
        return count + 1, d, bounded_round(matrix, slope, low, high, d)

    def changed(carry: tuple[Array, Array, Array]) -> Array:
        count, before, d = carry
        return (count < ROUNDS) & ((count == 0) | jnp.any(jnp.abs(d - before) > ROUNDING * jnp.abs(d)))

    zero = jnp.zeros_like(slope)
    _, _, d = lax.while_loop(changed, better, (jnp.zeros((), int), zero, zero))
    return d, at_bounds(d, slope + matrix @ d, low, high)
