"""Programs over lanes by plain JAX.

Operands may have leading axes: all of `lanes` or the last of them, of which some have length one. Along those, and along the others, they are
the same; the axes along which they are not follow each other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jaxtyping import Array

if TYPE_CHECKING:
    from .loops import LoopProgram
    from .program import Program


def uncompiled(*operands: Array | np.ndarray, program: "Program | LoopProgram", lanes: tuple[int, ...]) -> list[Array]:
    """The results by the function itself."""
    axes = [varying(lead, lanes) for lead in leads(operands, program)]
    without_ones = [
        x.reshape((*(lanes[d] for d in own), *s.shape))
        for x, own, s in zip(operands, axes, program.operands, strict=True)
    ]
    fn = program.fn
    for d in reversed(range(len(lanes))):  # the last axis is the innermost
        fn = jax.vmap(fn, in_axes=[0 if d in own else None for own in axes], axis_size=lanes[d])
    results = fn(*without_ones)
    return [jnp.broadcast_to(x, (*lanes, *s.shape)) for x, s in zip(results, program.results, strict=True)]


def of_some(fn: Callable[..., Any], fixed: Mapping[int, Any], moving: Sequence[int]) -> Callable[..., Any]:
    """A function of the operands at some places, the others being fixed."""

    def of_those(*operands: Any) -> Any:
        values = {**fixed, **dict(zip(moving, operands, strict=True))}
        return fn(*(values[k] for k in range(len(values))))

    return of_those


def leads(
    operands: Sequence[Array | np.ndarray | ShapedArray], program: "Program | LoopProgram"
) -> list[tuple[int, ...]]:
    """The leading axes of each operand."""
    return [x.shape[: x.ndim - len(s.shape)] for x, s in zip(operands, program.operands, strict=True)]


def varying(lead: tuple[int, ...], lanes: tuple[int, ...]) -> list[int]:
    """The axes of lanes along which an operand may differ."""
    missing = len(lanes) - len(lead)
    # An axis of length one differs from nothing; where the lanes have that length too, it counts as one that does.
    return [missing + d for d, size in enumerate(lead) if size != 1 or lanes[missing + d] == 1]
