"""Inputs within limits."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..foundations import quotient


def certifies_infeasible(u: Float[Array, " nu"], limits: Float[Array, " nu"]) -> Bool[Array, ""]:
    """Whether no input within |u_i| ≤ limits_i can have the effect of u, of least W^(−1/2)-norm: ‖W^(−1/2) u‖ > √n, n limits not zero.

    If it is false, there may or may not be one.
    """
    relative = quotient(u, limits)
    # Within a cube of half side 1 no point is farther from the origin than √n, and u is the nearest of all that do
    # the same.
    return jnp.sum(relative**2) > jnp.sum(limits > 0)


def scaled_to_limits(
    first: Float[Array, " nu"],
    u: Float[Array, " nu"],
    limits: Float[Array, " nu"],
    fallback: Float[Array, " nu"] | None = None,
) -> Float[Array, " nu"]:
    """Scales an input to its limits, the secondary part first: u₁ + α (u − u₁) with the largest α ≤ 1 within the limits.

    If u₁ itself is outside, α is zero and u₁ is scaled towards the fallback, which keeps the direction of the acceleration that
    it adds to that of the fallback. Differentiable except where the active limit changes.

    Args:
        first: u₁ (nu,), the input with priority, for example the motion law's.
        u: the whole input (nu,), for example the hybrid law's.
        limits: (nu,).
        fallback: an input (nu,) within the limits; zero by default.
    """
    start = jnp.zeros_like(u) if fallback is None else fallback
    share = _share(start, first - start, limits)
    first_part = start + share * (first - start)
    # Only if the first task is met in full is there room for the second.
    return first_part + jnp.where(share < 1, 0, _share(first_part, u - first, limits)) * (u - first)


def _share(start: Array, step: Array, limits: Array) -> Array:
    """The largest α ≤ 1 for which start + α step is within the limits, never below zero."""
    moving = step != 0
    # The way to the limit that the step goes to; outside already, it is negative and the share zero.
    room = jnp.where(step > 0, limits - start, limits + start)
    share = jnp.where(moving, jnp.maximum(room, 0) / jnp.where(moving, jnp.abs(step), 1), 1)
    return jnp.minimum(jnp.min(share, initial=1), 1)
