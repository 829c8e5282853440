"""Mechanisms in space."""

from typing import ClassVar

from ..foundations import Direction, Finite, contract
from ..mechanism import (
    ELEMENTS,
    AbstractMechanism,
    AbstractPair,
    Ball,
    Compound,
    Image,
    Language,
    Pair,
    as_vector,
    matrix_quaternion,
    reflection,
)
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
from .mirror import RULES, SHAPES
from .shape import Box, Cylinder, Disk, Plate, Rod, Sphere

# The classes that a text may name: all others are refused, since a text must not choose what is run.
KINDS = (
    *(Body, Rod, Box, Cylinder, Disk, Plate, Sphere, Compound),
    *(Revolute, Prismatic, Cylindrical, Screw, Planar, Spherical, Universal, Fixed, PointOnLine, PointOnPlane),
    *(RollingDisk, RollingSphere, *ELEMENTS),
)


class Mechanism(AbstractMechanism, init=False):
    """Bodies in space and what acts between them.

    Args:
        bodies: the bodies; the fixed one is called "ground".
        joints: joints and other constraints.
        drivers: motions prescribed in time.
        forces: force elements.
        actuators: forces by inputs u, in this order.
        gravity: its acceleration (3,) in m/s²; none by default.
        points: positions on the ground, by name.
        params: any pytree that the functions of elements receive.

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

    # A body that moves freely has its position and a quaternion as coordinates; its velocities are ẋ in the world and
    # ω in its own axes, in which its inertia is constant.
    free: ClassVar[AbstractPair] = Pair((0, 1, 2), Ball())
    language: ClassVar[Language] = Language(
        space="space",
        kinds={kind.__name__: kind for kind in KINDS},
        frame=frame,
        turn="orientation",
        turn_of=matrix_quaternion,
    )

    @contract
    def mirrored(self, point: Finite = (0.0, 0.0, 0.0), normal: Direction = (0.0, 1.0, 0.0)) -> "Mechanism":
        """The mirror image across a plane in the world, by default y = 0: left for right where x points ahead and z up.

        x' = x − 2 n nᵀ (x − p) for all markers. In bodies' own frames y changes its sign. So do the shift of joints along y and angles about x and
        z, those of all joints with one angle or two; with them change the torques, gains of motors, springs' angles at rest and prescribed
        angles that go with them: equal inputs drive both images alike. Other shifts keep their sign, screws become left-handed. Loads are mirrored; gravity
        and `params` stay. Corners of a `Box` are called as those of any box.

        Args:
            point: p (3,) in m.
            normal: n (3,), of any length.

        Raises:
            ValueError: for an element or shape whose mirror image is not known, such as a `Force` with a function of its own.

        Example:
            >>> import jaxmb as jm
            >>> rod = jm.spatial.Body("rod", shape=jm.spatial.Rod(1.0), mass=1.0, position=(0.0, 0.5, 0.0))
            >>> hinge = jm.spatial.Revolute("hinge", ("ground", (0.0, 0.5, 0.0)), "rod.a", axis=(1.0, 0.2, 0.0))
            >>> leg = jm.spatial.Mechanism([rod], [hinge])
            >>> both = leg.renamed("left_").joined(leg.mirrored().renamed("right_"))
            >>> [(joint.name, joint.a.local[:3, 3].tolist(), round(float(joint.axis[1]), 3)) for joint in both.joints]
            [('left_hinge', [0.0, 0.5, 0.0], 0.2), ('right_hinge', [0.0, -0.5, 0.0], -0.2)]
        """
        point, normal = as_vector(point, "point", (3,)), as_vector(normal, "normal", (3,))
        return type(self)(**Image(self, reflection(point, normal), RULES, SHAPES).parts())
