"""Mirror images in space: what joints and shapes change besides markers.

A joint's frames are turned by the smallest rotations that carry z, or x, to its axes; these turn into each other's images with the axes.
"""

from itertools import product

import jax.numpy as jnp

from ..mechanism import Rule, directions, replace_fields, unchanged
from .contact import RollingDisk, RollingSphere
from .joint import (
    Cylindrical,
    Fixed,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    Universal,
)
from .shape import Box, Cylinder, Disk, Plate, Rod, Sphere

# Directions change the sign of y like all vectors of a body's frame; signs of angles follow from the pair.
AXES = directions("axis", "axis_b")

RULES: dict[type, Rule] = {
    **dict.fromkeys((Spherical, Fixed), unchanged),
    **dict.fromkeys((Revolute, Prismatic, Cylindrical, Planar, Universal, PointOnLine, PointOnPlane), AXES),
    Screw: lambda one, image: AXES(one, image) | {"pitch": -one.pitch},  # right-handed becomes left-handed
    RollingSphere: directions("normal"),
    RollingDisk: directions("axis", "normal"),
}

SHAPES = {
    **dict.fromkeys((Rod, Cylinder, Disk, Sphere), (lambda shape: shape, lambda shape: {})),
    Box: (
        lambda shape: shape,
        # A box is its own image, but its lower corners along y lie where the upper ones of the image are.
        lambda shape: {f"c{i}{j}{k}": f"c{i}{1 - j}{k}" for i, j, k in product((0, 1), repeat=3)},
    ),
    Plate: (lambda shape: replace_fields(shape, corners=shape.corners * jnp.array([1.0, -1.0])), lambda shape: {}),
}
