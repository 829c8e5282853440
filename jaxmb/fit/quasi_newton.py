"""Steps of a quasi-Newton method with limited memory, within bounds (Nocedal and Wright 2006, sections 7.2 and 16.7)."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Pairs of steps and changes of the gradient that are remembered; between 3 and 20 are usual (Nocedal and Wright 2006, section 7.2).
PAIRS = 10
# The first step moves no unknown by more than this, in its scale.
FIRST = 0.1
# A step must lower the cost by this part of what its slope promises, and leave no more of the slope than that part (weak Wolfe conditions).
FALL, SLOPE = 1e-4, 0.9
# Lengths of a step that are tried: after twenty bisections it is a millionth of the model's, and the model is at fault.
TRIALS = 20


class Memory(eqx.Module):
    """What is remembered of the way.

    Attributes:
        steps: the last steps s (k, N), newest first; zero where there are fewer.
        changes: those of the gradient (k, N).
    """

    steps: Float[Array, "k N"]
    changes: Float[Array, "k N"]

    @classmethod
    def of(cls, y: Float[Array, " N"]) -> "Memory":
        """Nothing yet."""
        none = jnp.zeros((PAIRS, *y.shape), y.dtype)
        return cls(none, none)

    def with_pair(self, step: np.ndarray, change: np.ndarray) -> "Memory":
        """With another pair, if the slope has risen along it, so that the model of the cost stays convex."""
        if step @ change <= np.finfo(step.dtype).eps * np.linalg.norm(step) * np.linalg.norm(change):
            return self
        put = lambda old, new: jnp.concatenate([jnp.asarray(new)[None], old[:-1]])
        return Memory(put(self.steps, step), put(self.changes, change))

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """−H g by the two loops; without any pair down the slope."""
        pairs = [(s, c) for s, c in zip(np.asarray(self.steps), np.asarray(self.changes), strict=True) if s @ c > 0]
        if not pairs:
            return -gradient * FIRST / max(np.abs(gradient).max(initial=0), np.finfo(gradient.dtype).tiny)
        d, parts = -gradient, []
        for s, c in pairs:
            parts.append((s @ d) / (s @ c))
            d = d - parts[-1] * c
        s, c = pairs[0]
        # H₀ = γ 1 of the latest pair (Nocedal and Wright 2006, eq. 7.20).
        d = d * (s @ c) / (c @ c)
        for (s, c), part in zip(reversed(pairs), reversed(parts), strict=True):
            d = d + (part - (c @ d) / (s @ c)) * s
        return d


class Iterate(NamedTuple):
    """A point that has been evaluated: the unknowns, the cost, its gradient, and the whole evaluation."""

    y: np.ndarray
    cost: float
    gradient: np.ndarray
    evaluation: tuple[Any, ...]

    @property
    def is_finite(self) -> bool:
        """Whether all is finite."""
        return math.isfinite(self.cost) and bool(np.isfinite(self.gradient).all())


def line_search(
    origin: Iterate, direction: np.ndarray, evaluate: Callable[[np.ndarray], Iterate], low: np.ndarray, high: np.ndarray
) -> Iterate | None:
    """The point that a step along a direction leads to, put back within bounds; None where none lowers the cost.

    Its length is doubled and bisected until the cost has fallen enough and its slope has nearly risen (Lewis and Overton 2013), which holds for
    the largest of several costs too.
    """
    short, long, length, best = 0.0, math.inf, 1.0, None
    for _ in range(TRIALS):
        y = np.clip(origin.y + length * direction, low, high)
        if best is not None and np.array_equal(y, best.y):
            break  # at its bounds
        point, step = evaluate(y), y - origin.y
        slope = origin.gradient @ step
        if not point.is_finite or point.cost > origin.cost + FALL * min(slope, 0.0) or point.cost >= origin.cost:
            long = length
        else:
            short, best = length, point
            if point.gradient @ step >= SLOPE * slope:
                break
        # Bisection brackets a step also where the gradient jumps, as of the largest of several costs; interpolation
        # would not.
        length = 2 * length if math.isinf(long) else (short + long) / 2
    return best
