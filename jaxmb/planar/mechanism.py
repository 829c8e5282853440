"""Mechanisms in the plane."""

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
    Pair,
    Turning,
    as_vector,
    body_points,
    check,
)
from .body import Body


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

    bodies: tuple[AbstractBody, ...]
    joints: tuple[Any, ...]
    drivers: tuple[AbstractDriver, ...]
    forces: tuple[AbstractForce, ...]
    actuators: tuple[AbstractActuator, ...]
    gravity: Float[Array, "2"]
    points: dict[str, Float[Array, "3 3"]]
    params: Any
    free: ClassVar[AbstractPair] = Pair((0, 1), Turning(dim=2))

    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[Any] = (),
        drivers: Sequence[AbstractDriver] = (),
        forces: Sequence[AbstractForce] = (),
        actuators: Sequence[AbstractActuator] = (),
        gravity: Any = (0.0, 0.0),
        points: Mapping[str, Any] | None = None,
        params: Any = None,
    ):
        self.bodies, self.joints, self.drivers = tuple(bodies), tuple(joints), tuple(drivers)
        self.forces, self.actuators = tuple(forces), tuple(actuators)
        self.gravity = as_vector(gravity, "gravity", (2,))
        self.points = body_points(points, "ground", 2)
        self.params = as_parameters(params)
        check(self)
