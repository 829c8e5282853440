"""What tasks share: what is drawn at the start of an episode, and the reward of what follows a target."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...foundations import Key
from ...system import System


def between(rng: Key, low: float, high: float, shape: tuple[int, ...] = ()) -> Array:
    """Numbers, all equally likely."""
    return jax.random.uniform(rng, shape, minval=low, maxval=high)


def with_heavier_bodies(rng: Key, system: System) -> System:
    """Each body of a mechanism heavier or lighter by up to a fifth, inertia included."""
    inertia = system.params.inertia
    factors = between(rng, 0.8, 1.2, (len(inertia), 1, 1))
    return eqx.tree_at(lambda s: s.params.inertia, system, inertia * factors)


def with_params(system: System, **values: PyTree) -> System:
    """The system of a mechanism with other values of the user's parameters."""
    return eqx.tree_at(lambda s: s.params.params, system, system.params.params | values)


def tracking_reward(error: Float[Array, " d"], near: float, action: Float[Array, " nu"]) -> dict[str, Float[Array, ""]]:
    """Nearness 1/(1 + |error|²/near²), between 0 and 1, and effort, −0.02 |action|²."""
    return {"nearness": 1 / (1 + jnp.sum(error**2) / near**2), "effort": -0.02 * jnp.sum(action**2)}
