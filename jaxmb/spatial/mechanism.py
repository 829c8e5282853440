"""Mechanisms in space."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..foundations import as_parameters
from ..mechanism import (
    AbstractActuator,
    AbstractBody,
    AbstractDriver,
    AbstractForce,
    AbstractMechanism,
    AbstractPair,
    Ball,
    Pair,
    as_vector,
    body_points,
    check,
)
from .body import Body


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

    bodies: tuple[AbstractBody, ...]
    joints: tuple[Any, ...]
    drivers: tuple[AbstractDriver, ...]
    forces: tuple[AbstractForce, ...]
    actuators: tuple[AbstractActuator, ...]
    gravity: Float[Array, "3"]
    points: dict[str, Float[Array, "4 4"]]
    params: Any
    free: ClassVar[AbstractPair] = Pair((0, 1, 2), Ball())

    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[Any] = (),
        drivers: Sequence[AbstractDriver] = (),
        forces: Sequence[AbstractForce] = (),
        actuators: Sequence[AbstractActuator] = (),
        gravity: Any = (0.0, 0.0, 0.0),
        points: Mapping[str, Any] | None = None,
        params: Any = None,
    ):
        self.bodies, self.joints, self.drivers = tuple(bodies), tuple(joints), tuple(drivers)
        self.forces, self.actuators = tuple(forces), tuple(actuators)
        self.gravity = as_vector(gravity, "gravity", (3,))
        self.points = body_points(points, "ground", 3)
        self.params = as_parameters(params)
        check(self)
