"""What tasks draw at the start of an episode."""

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

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
