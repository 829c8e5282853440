"""Mechanisms in space."""

from typing import ClassVar

from ..mechanism import ELEMENTS, AbstractMechanism, AbstractPair, Ball, Compound, Language, Pair, matrix_quaternion
from .body import Body, frame
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

KINDS = (
    *(Body, Rod, Box, Cylinder, Disk, Plate, Sphere, Compound),
    *(Revolute, Prismatic, Cylindrical, Screw, Planar, Spherical, Universal, Fixed, PointOnLine, PointOnPlane),
    *(RollingDisk, RollingSphere, *ELEMENTS),
)


class Mechanism(AbstractMechanism):
    """Bodies in space and what acts between them.

    Args:
        bodies: the bodies; the fixed one is called "ground".
        joints: joints and other constraints.
        drivers: motions prescribed in time.
        forces: force elements.
        actuators: forces by inputs u, in this order.
        gravity: its acceleration (3,) in m/s²; none by default.
        points: places on the ground, by name.
        params: any pytree that the functions of elements get.

    Raises:
        ValueError, TypeError: naming the element and what it should be.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> rod = jm.spatial.Body.box("rod", 1.0, (0.1, 0.1, 1.0), points={"end": (0.0, 0.0, -0.5)})
        >>> pendulum = jm.spatial.Mechanism(
        ...     [rod], [jm.spatial.Universal("pivot", "ground", ("rod", (0.0, 0.0, 0.5)))], gravity=(0.0, 0.0, -9.81))
        >>> system = pendulum.build()
        >>> state = jm.assemble(system, {"pivot.second": 0.3})
        >>> system.coordinates, [round(float(x), 3) for x in jm.position(system, state, "rod.end")]
        (('pivot.first', 'pivot.second'), [0.0, 0.296, -0.955])
    """

    free: ClassVar[AbstractPair] = Pair((0, 1, 2), Ball())
    language: ClassVar[Language] = Language(
        "space", {kind.__name__: kind for kind in KINDS}, frame, "orientation", matrix_quaternion
    )
