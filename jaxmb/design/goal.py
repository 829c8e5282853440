"""What a design is for."""

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import AllPositive, NoNaN, as_floats, contract, floats_or_none, function_of, is_concrete


class Goal(eqx.Module):
    """A goal: values that should be near a target, or within limits, or both.

    Args:
        name: what it is called.
        of: `of(system, states)` → array, of the driven mechanism and its states (n,) over the cycle; one of `jm.design`, or your own function.
        target: the wanted values, of their shape or a number; the sum of the squares of all differences is minimised. None for no target.
        low: the least that values may be; a hard limit. None for none.
        high: the largest that they may be.
        weight: weight of a difference from the target, relative to other goals.
    """

    name: str = eqx.field(static=True)
    of: Any
    target: Float[Array, "..."] | None
    low: Float[Array, "..."] | None
    high: Float[Array, "..."] | None
    weight: Float[Array, "..."]

    @contract
    def __init__(
        self,
        name: str,
        of: Annotated[Any, function_of("system, states")],
        target: NoNaN | None = None,
        *,
        low: NoNaN | None = None,
        high: NoNaN | None = None,
        weight: AllPositive = 1.0,
    ):
        array = lambda x: floats_or_none(x)
        self.name, self.of = name, of
        self.target, self.low, self.high = array(target), array(low), array(high)
        self.weight = as_floats(weight)
        if target is None and low is None and high is None:
            raise ValueError(f"Goal '{name}' must have a `target`, or a limit `low` or `high`, but has none.")
        if self.low is not None and self.high is not None and _any_above(self.low, self.high):
            raise ValueError(f"Argument `low` of goal '{name}' must not be above `high`, but is.")

    def differences(self, values: Float[Array, "..."]) -> Float[Array, " r"]:
        """Weighted differences from the target."""
        return jnp.zeros(0, values.dtype) if self.target is None else jnp.ravel((values - self.target) * self.weight)

    def excess(self, values: Float[Array, "..."]) -> Float[Array, " l"]:
        """By how much values are beyond their limits, negative within."""
        below = [] if self.low is None else [self.low - values]
        above = [] if self.high is None else [values - self.high]
        return jnp.concatenate([jnp.zeros(0, values.dtype), *(jnp.ravel(x) for x in (*below, *above))])


def _any_above(low: Array, high: Array) -> bool:
    """Whether a lower limit is above an upper one, as far as both are known."""
    return is_concrete(low, high) and bool(np.any(np.asarray(low) > np.asarray(high)))
