"""Mirror images in the plane: what joints and shapes change besides markers."""

import jax.numpy as jnp

from ..mechanism import Rule, directions, replace_fields, unchanged
from .contact import KnifeEdge, RollingWheel
from .joint import Fixed, PointOnLine, Prismatic, Revolute
from .shape import Box, Disk, Plate, Rod

RULES: dict[type, Rule] = {
    **dict.fromkeys((Revolute, Fixed), unchanged),
    **dict.fromkeys((Prismatic, PointOnLine), directions("axis", "axis_b")),
    # Directions change the sign of y like all vectors of a body's frame.
    KnifeEdge: directions("axis"),
    RollingWheel: lambda one, image: {"axis": -one.axis * image.sides},  # the wheel stays on its left
}

SHAPES = {
    **dict.fromkeys((Rod, Disk), (lambda shape: shape, lambda shape: {})),
    # A box is its own image, but its lower corners lie where the upper ones of the image are.
    Box: (lambda shape: shape, lambda shape: {f"c{i}{j}": f"c{i}{1 - j}" for i in (0, 1) for j in (0, 1)}),
    Plate: (lambda shape: replace_fields(shape, corners=shape.corners * jnp.array([1.0, -1.0])), lambda shape: {}),
}
