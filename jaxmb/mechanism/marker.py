"""Markers: frames on bodies, and how they are referred to."""

from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..foundations import as_floats, expect_shape, is_concrete
from .pose import pose

GROUND = "ground"
# What users write for a marker on a body. Static checkers take it for anything, and so does `contract`: `marker` refuses all else
# by the name of the argument and with the forms that there are, which no union of types would say as well.
MarkerLike = Annotated[Any, "'body', 'body.point', (body, position (d,)), (body, pose matrix (D, D)) or a `Marker`"]


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


def marker(value: MarkerLike, argument: str) -> Marker:
    """A marker from "body", "body.point", (body, position) or (body, pose matrix)."""
    if isinstance(value, Marker):
        return value
    if isinstance(value, str) and value:
        body, dot, point = value.partition(".")
        return Marker(body, point if dot else None, None)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return Marker(value[0], None, as_pose(value[1], argument))
    raise TypeError(
        f"Argument `{argument}` must be 'body', 'body.point', or a pair of a body's name and a position, but is {value!r}."
    )


def as_pose(value: object, argument: str) -> Float[Array, "D D"]:
    """A pose matrix from a position (d,) or a pose matrix (D, D), in the plane or in space."""
    value = as_vector(value, argument, (2,), (3,), (3, 3), (4, 4))
    if value.ndim == 2 and is_concrete(value) and not _is_rigid(np.asarray(value)):
        raise ValueError(f"Argument `{argument}` must turn and shift only, but is the matrix {value.tolist()}.")
    return value if value.ndim == 2 else pose(np.eye(value.shape[0], dtype=value.dtype), value)


def _is_rigid(pose: np.ndarray) -> bool:
    """Whether a matrix is [[R, p], [0, 1]] with a rotation R, to half the digits: poses are also measured, or typed in."""
    rotation, eye = pose[:-1, :-1], np.eye(pose.shape[0])
    near = lambda a, b: np.allclose(a, b, rtol=0, atol=np.finfo(pose.dtype).eps ** 0.5)
    orthogonal = near(rotation.T @ rotation, eye[:-1, :-1]) and near(pose[-1], eye[-1])
    return bool(orthogonal and np.linalg.det(rotation) > 0)


def as_vector(value: object, argument: str, *shapes: tuple[int, ...]) -> Float[Array, "..."]:
    """An array of floating-point numbers of one of the given shapes."""
    leaves = jax.tree_util.tree_leaves(value)
    if any(isinstance(x, str | bool | np.bool_) for x in leaves):  # which NumPy takes for numbers
        raise TypeError(f"Argument `{argument}` must be an array of numbers, but is {value!r}.")
    try:
        array = as_floats(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Argument `{argument}` must be an array of numbers, but is {value!r}.") from error
    expect_shape(f"`{argument}`", array, *shapes)
    return array
