"""Programs over lanes by plain JAX.

Operands may have leading axes: all of `lanes` or the last of them, of which some have length one. Along those, and along the others, they are
the same; the axes along which they are not follow each other.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def plainly(*operands: Any, program: Any, lanes: tuple[int, ...]) -> list[Array]:
    """By the function itself."""
    places = [varying(lead, lanes) for lead in leads(operands, program)]
    kept = [
        x.reshape(*(lanes[d] for d in own), *s.shape)
        for x, own, s in zip(operands, places, program.operands, strict=True)
    ]
    fn = program.fn
    for d in reversed(range(len(lanes))):  # the last axis is the innermost
        fn = jax.vmap(fn, in_axes=[0 if d in own else None for own in places], axis_size=lanes[d])
    found = fn(*kept)
    return [jnp.broadcast_to(x, (*lanes, *s.shape)) for x, s in zip(found, program.results, strict=True)]


def leads(operands: Sequence[Any], program: Any) -> list[tuple[int, ...]]:
    """The leading axes of each operand."""
    return [x.shape[: x.ndim - len(s.shape)] for x, s in zip(operands, program.operands, strict=True)]


def varying(lead: tuple[int, ...], lanes: tuple[int, ...]) -> list[int]:
    """The axes of lanes along which an operand may differ."""
    ahead = len(lanes) - len(lead)
    return [ahead + d for d, size in enumerate(lead) if size != 1 or lanes[ahead + d] == 1]
