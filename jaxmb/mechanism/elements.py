"""The elements of a mechanism."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import (
    AbstractExplicit,
    Finite,
    as_jax,
    check_argument,
    contract,
    counted,
    enforce,
    is_concrete,
    listing,
    table,
)
from .body import AbstractBody, inertia_checks
from .connection import AbstractConnection, AbstractRelation
from .driver import AbstractDriver
from .force import AbstractActuator, AbstractForce
from .marker import GROUND, Marker, MarkerLike, as_pose, as_vector, marker
from .pair import AbstractPair

MechanismElement = (
    AbstractBody | AbstractConnection | AbstractRelation | AbstractDriver | AbstractForce | AbstractActuator
)
# The arguments of a mechanism that hold elements.
KINDS = ("bodies", "joints", "drivers", "forces", "actuators")


class AbstractElements(AbstractExplicit):
    """Bodies and what acts between them, as a pytree of numbers.

    Attributes:
        bodies: the bodies.
        joints: joints, and what else constrains the bodies.
        drivers: motions prescribed in time.
        forces: force elements; gravity apart.
        actuators: forces by inputs u, in this order.
        gravity: its acceleration (d,) in m/s².
        points: local poses of points of the ground, by name.
        params: any pytree that the functions of elements receive.
        free: the pair of a body that moves freely.
    """

    bodies: tuple[AbstractBody, ...]
    joints: tuple[AbstractConnection | AbstractRelation, ...]
    drivers: tuple[AbstractDriver, ...]
    forces: tuple[AbstractForce, ...]
    actuators: tuple[AbstractActuator, ...]
    gravity: Float[Array, " d"]
    points: dict[str, Float[Array, "D D"]]
    params: PyTree
    free: ClassVar[AbstractPair]

    @property
    def elements(self) -> dict[str, Any]:
        """All elements by name."""
        return {e.name: e for e in (*self.bodies, *self.joints, *self.drivers, *self.forces, *self.actuators)}

    def __str__(self) -> str:
        one = lambda kind: "body" if kind == "bodies" else kind.removesuffix("s")
        counts = ", ".join(counted(len(getattr(self, kind)), one(kind), kind) for kind in KINDS)
        where = "the plane" if self.gravity.shape[0] == 2 else "space"
        typed = lambda e: e.name if isinstance(e, AbstractBody) else f"{e.name} ({type(e).__name__})"
        return table(f"Mechanism in {where}: {counts}", {kind: map(typed, getattr(self, kind)) for kind in KINDS})

    def position(self, at: MarkerLike) -> Float[Array, " d"]:
        """The position of a marker, in m, with the bodies at the poses they were made with: the guess of an assembly.

        Args:
            at: "body", "body.point", "ground.point", or a pair of a body's name and a position in its frame.

        Example:
            >>> import jaxmb as jm
            >>> rod = jm.planar.Body.rod("rod", mass=1.0, length=2.0, position=(0.5, 0.0))
            >>> jm.planar.Mechanism([rod]).position("rod.b").tolist()
            [2.5, 0.0]
        """
        reference = marker(at, "at")
        local, dim = local_pose(self, reference, "Argument `at`"), self.gravity.shape[0]
        return local[:dim, dim] if reference.body == GROUND else (self.elements[reference.body].pose @ local)[:dim, dim]

    @contract
    def replace(self, name: str, **fields: Finite) -> "AbstractElements":
        """The mechanism with other numbers in one element, as a copy.

        Args:
            name: name of the element.
            **fields: new values of its fields, which keep their shapes. If you change those of a body's shape, or its `density`, then
                mass, centre of mass, inertia and points follow; `mass` and the like change alone.

        Example:
            >>> import jaxmb as jm
            >>> rod = jm.planar.Body("rod", mass=1.0, inertia=0.1, com=(0.5, 0.0))
            >>> pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("pivot", "ground", "rod")])
            >>> float(pendulum.replace("rod", mass=2.0).elements["rod"].mass)
            2.0
        """
        if name not in self.elements:
            raise ValueError(f"Argument `name` must be one of {listing(self.elements)}, but is '{name}'.")
        element = self.elements[name]
        sizes = element.dimensions if isinstance(element, AbstractBody) else {}
        values = {}
        for field, value in fields.items():
            old = sizes.get(field, vars(element).get(field))
            if not isinstance(old, jax.Array):
                raise ValueError(f"Element '{name}' has no number `{field}`; it has {_numbers_of(element)}.")
            check_argument(element, field, value)
            values[field] = as_vector(value, f"{field} of '{name}'", old.shape)
            if field == "pose":
                as_pose(value, f"{field} of '{name}'")
        sized = {field: values.pop(field) for field in fields if field in sizes}
        # Own values of what follows from a dimension would be overwritten, or not, by the order of two replacements:
        # refused.
        following = ("com", "inertia", *(["mass"] if "density" in sizes else []))
        if sized and (conflicts := [field for field in following if field in values]):
            raise ValueError(
                f"Of body '{name}' {listing(conflicts)} must not be given with {listing(sized)}, from which it follows."
            )
        changed = eqx.tree_at(lambda e: [getattr(e, field) for field in values], element, list(values.values()))
        if sized:
            changed = changed.resized(**sized)
        _check_numbers(changed)
        # Replaced inside of the pytree, not by a new mechanism: this works on traced numbers, and spares all checks
        # of the others, since a fit replaces at each evaluation.
        kind, index = next((k, i) for k in KINDS for i, e in enumerate(getattr(self, k)) if e.name == name)
        return eqx.tree_at(lambda m: getattr(m, kind)[index], self, changed)


def _numbers_of(element: eqx.Module) -> str:
    """The names of its numbers, those of a body's shape first."""
    sizes = element.dimensions if isinstance(element, AbstractBody) else {}
    return listing(
        [*sizes, *(name for name, x in vars(element).items() if isinstance(x, jax.Array) and name not in sizes)]
    )


def _check_numbers(element: object) -> None:
    """Refuses numbers of one element that do not fit each other."""
    if isinstance(element, AbstractForce):
        element.check()
    if isinstance(element, AbstractBody) and is_concrete(element):
        enforce(element, inertia_checks(element))


def local_pose(mechanism: AbstractElements, at: Marker, subject: str) -> Float[Array, "D D"]:
    """The pose of a marker in its body; `subject` begins the message of an error."""
    size = mechanism.gravity.shape[0] + 1
    points = {GROUND: mechanism.points} | {b.name: b.points for b in mechanism.bodies}
    if at.body not in points:
        raise ValueError(f"{subject} must refer to a body out of {listing(points)}, but refers to '{at.body}'.")
    if at.point is not None:
        own = points[at.body]
        if at.point not in own:
            raise ValueError(
                f"{subject} must refer to a point of '{at.body}' out of {listing(own)}, but refers to '{at.point}'."
            )
        return own[at.point]
    if at.local is None:
        return as_jax(np.eye(size))
    if at.local.shape[0] != size:
        raise ValueError(f"{subject} must refer to points with {size - 1} components.")
    return at.local
