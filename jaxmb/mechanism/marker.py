"""References to places on bodies."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import default_float
from .pose import pose

GROUND = "ground"


class Marker(eqx.Module):
    """A frame on a body: its own, that of a named point, or a local pose.

    Attributes:
        body: name of the body, or "ground".
        point: name of a point of that body, or None.
        local: pose (D, D) in the body's frame, or None.
    """

    body: str = eqx.field(static=True)
    point: str | None = eqx.field(static=True)
    local: Float[Array, "D D"] | None

    def __str__(self) -> str:
        return self.body if self.point is None else f"{self.body}.{self.point}"


def marker(place: Any, argument: str) -> Marker:
    """A marker from "body", "body.point", (body, position) or (body, pose matrix)."""
    if isinstance(place, Marker):
        return place
    if isinstance(place, str):
        body, _, point = place.partition(".")
        return Marker(body, point or None, None)
    if isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], str):
        return Marker(place[0], None, as_pose(place[1], argument))
    raise TypeError(
        f"Argument `{argument}` must be 'body', 'body.point', or a pair of a body's name and a position, but is {place!r}."
    )


def as_pose(value: Any, argument: str) -> Float[Array, "D D"]:
    """A pose matrix from a position (d,) or a pose matrix (D, D), in the plane or in space."""
    value = as_vector(value, argument, (2,), (3,), (3, 3), (4, 4))
    return value if value.ndim == 2 else pose(jnp.eye(value.shape[0], dtype=value.dtype), value)


def as_vector(value: Any, argument: str, *shapes: tuple[int, ...]) -> Float[Array, "..."]:
    """An array of floating-point numbers of one of the given shapes."""
    try:
        array = jnp.asarray(value, default_float())
    except (TypeError, ValueError) as error:
        raise TypeError(f"Argument `{argument}` must be an array of numbers, but is {value!r}.") from error
    if array.shape not in shapes:
        allowed = " or ".join(str(s) for s in shapes)
        raise ValueError(f"Argument `{argument}` must have shape {allowed}, but has shape {array.shape}.")
    return array
