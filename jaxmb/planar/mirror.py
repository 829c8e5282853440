"""Mirror images in the plane: what joints and shapes change besides markers."""

from ..mechanism import BOX, PLATE, SAME, Rule, directions, unchanged
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

SHAPES = {Rod: SAME, Disk: SAME, Box: BOX, Plate: PLATE}
