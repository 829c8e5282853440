"""Mechanisms in the plane."""

from typing import ClassVar

from ..mechanism import ELEMENTS, AbstractMechanism, AbstractPair, Compound, DrivenAngle, Language, Pair, Turning
from .body import Body, angle_of, frame
from .contact import KnifeEdge, RollingWheel
from .joint import Fixed, PointOnLine, Prismatic, Revolute
from .shape import Box, Disk, Plate, Rod

KINDS = (
    *(Body, Rod, Box, Disk, Plate, Compound),
    *(Revolute, Prismatic, Fixed, PointOnLine, KnifeEdge, RollingWheel),
    *(*ELEMENTS, DrivenAngle),
)


class Mechanism(AbstractMechanism):
    """Bodies in the plane and what acts between them.

    Args:
        bodies: the bodies; the fixed one is called "ground".
        joints: joints and other constraints.
        drivers: motions prescribed in time.
        forces: force elements.
        actuators: forces by inputs u, in this order.
        gravity: its acceleration (2,) in m/s²; none by default.
        points: places on the ground, by name.
        params: any pytree that the functions of elements get.

    Raises:
        ValueError, TypeError: naming the element and what it should be.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> rod = jm.planar.Body.rod("rod", mass=1.0, length=1.0)
        >>> pendulum = jm.planar.Mechanism(
        ...     [rod], [jm.planar.Revolute("pivot", "ground", "rod.a")], gravity=(0.0, -9.81))
        >>> system = pendulum.build()
        >>> solution = jm.simulate(system, jm.assemble(system, {"pivot": 0.3}), jnp.linspace(0.0, 1.0, 5))
        >>> system.coordinates, jm.position(system, solution, "rod.b").shape
        (('pivot',), (5, 2))
    """

    free: ClassVar[AbstractPair] = Pair((0, 1), Turning(dim=2))
    language: ClassVar[Language] = Language("plane", {kind.__name__: kind for kind in KINDS}, frame, "angle", angle_of)
