"""The reward of tasks in which a point follows a target."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def tracking_reward(error: Float[Array, " d"], near: float, action: Float[Array, " nu"]) -> dict[str, Float[Array, ""]]:
    """Nearness 1/(1 + |error|²/near²), between 0 and 1, and effort, −0.02 |action|²."""
    return {"nearness": 1 / (1 + jnp.sum(error**2) / near**2), "effort": -0.02 * jnp.sum(action**2)}
