"""Mirror images in space: what joints and shapes change besides markers.

A joint's frames are turned by the smallest rotations that carry z, or x, to its axes; these turn into each other's images with the axes.
"""

from ..mechanism import BOX, PLATE, SAME, Rule, directions, unchanged
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

SHAPES = {**dict.fromkeys((Rod, Cylinder, Disk, Sphere), SAME), Box: BOX, Plate: PLATE}
