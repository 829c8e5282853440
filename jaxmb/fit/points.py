"""Random points within bounds, at which searches start."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..foundations import is_concrete, listing

# Random points lie evenly in the logarithm between bounds that are more than two decades apart: evenly between 1e-3 and 1e3, nine in ten
# would lie above 100.
LOGARITHMIC = 100.0


def starting_points(
    start: Float[Array, " N"],
    bounds: tuple[Float[Array, " n"], Float[Array, " n"]],
    labels: Sequence[str],
    starts: int,
    key: PRNGKeyArray | None,
) -> Float[Array, "S N"]:
    """The start itself, and points at random within the bounds, in the logarithm where these are far apart.

    Args:
        start: the first point.
        bounds: of its first entries; others are as in `start` everywhere.
        labels: names of these entries.
        starts: number of points.
        key: for the random ones.

    Raises:
        ValueError: for several points without a key, and naming entries without both bounds.
    """
    if starts < 1 or (starts > 1 and key is None):
        raise ValueError(f"Argument `starts` must be positive, and come with a `key` beyond 1, but is {starts}.")
    if starts == 1:
        return start[None]
    assert key is not None
    low, high = bounds
    n = low.shape[0]
    if is_concrete(low, high):
        unbounded = [x for x, fine in zip(labels, np.isfinite(high - low), strict=False) if not fine]
        if unbounded:
            raise ValueError(
                f"Argument `starts` must come with both bounds of each parameter, but there are none of {listing(unbounded)}."
            )
    share = jax.random.uniform(key, (starts - 1, n), low.dtype)
    far = (low > 0) & (high > LOGARITHMIC * low)
    # Where the bounds are near, low may be zero or negative: the power would be NaN, and its gradient too.
    safe = jnp.where(far, low, 1.0)
    samples = jnp.where(far, safe * (jnp.where(far, high, 1.0) / safe) ** share, low + share * (high - low))
    rest = jnp.broadcast_to(start[n:], (starts - 1, start.shape[0] - n))
    return jnp.concatenate([start[None], jnp.concatenate([samples, rest], axis=1)])
