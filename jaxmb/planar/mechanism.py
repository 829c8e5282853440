"""Mechanisms in the plane."""

from typing import ClassVar

import jax.numpy as jnp

from ..foundations import Direction, Finite, contract
from ..mechanism import (
    ELEMENTS,
    AbstractMechanism,
    AbstractPair,
    Compound,
    DrivenAngle,
    Image,
    Language,
    Pair,
    Turning,
    as_vector,
    reflection,
)
from .body import Body, angle_of, frame
from .contact import KnifeEdge, RollingWheel
from .joint import Fixed, PointOnLine, Prismatic, Revolute
from .mirror import RULES, SHAPES
from .shape import Box, Disk, Plate, Rod

# The classes that a text may name: all others are refused, since a text must not choose what is run.
KINDS = (
    *(Body, Rod, Box, Disk, Plate, Compound),
    *(Revolute, Prismatic, Fixed, PointOnLine, KnifeEdge, RollingWheel),
    *(*ELEMENTS, DrivenAngle),
)


class Mechanism(AbstractMechanism, init=False):
    """Bodies in the plane, with joints, drivers, forces and actuators.

    Args:
        bodies: the bodies; the fixed one is called "ground".
        joints: joints and other constraints.
        drivers: motions prescribed in time.
        forces: force elements.
        actuators: forces by inputs u, in this order.
        gravity: its acceleration (2,) in m/s²; none by default.
        points: positions on the ground, by name.
        params: any pytree that the functions of elements receive.

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

    # A body that moves freely has the coordinates x, y and angle in the world, whose rates are its velocities.
    free: ClassVar[AbstractPair] = Pair((0, 1), Turning(dim=2))
    language: ClassVar[Language] = Language(
        space="plane", kinds={kind.__name__: kind for kind in KINDS}, frame=frame, turn="angle", turn_of=angle_of
    )

    @contract
    def mirrored(self, point: Finite = (0.0, 0.0), along: Direction = (0.0, 1.0)) -> "Mechanism":
        """The mirror image across a line in the world, by default x = 0.

        x' = p + (2 e eᵀ − 1)(x − p) for all markers, e along the line through p. In bodies' own frames y changes its sign. So do angles of
        joints, and with them the torques, gains of motors, springs' angles at rest and prescribed angles that go with them: equal inputs
        drive both images alike. Shifts keep their sign. Loads are mirrored; gravity and `params` stay. Corners of a `Box` are called as those of any box.

        Args:
            point: p (2,) in m.
            along: direction (2,) of the line.

        Raises:
            ValueError: for an element or shape whose mirror image is not known, such as a `Force` with a function of its own.

        Example:
            >>> import jaxmb as jm
            >>> rod = jm.planar.Body.rod("rod", mass=1.0, length=1.0, angle=-0.3)
            >>> arm = jm.planar.Mechanism([rod], [jm.planar.Revolute("pivot", ("ground", (0.5, 0.0)), "rod.a")])
            >>> both = arm.renamed("right_").joined(arm.mirrored().renamed("left_"))
            >>> [(joint.name, joint.a.local[:2, 2].tolist()) for joint in both.joints]
            [('right_pivot', [0.5, 0.0]), ('left_pivot', [-0.5, 0.0])]
        """
        point, along = as_vector(point, "point", (2,)), as_vector(along, "along", (2,))
        # The normal of the line: its direction turned by a quarter.
        across = reflection(point, along[::-1] * jnp.array([-1.0, 1.0]))
        return type(self)(**Image(self, across, RULES, SHAPES).parts())
