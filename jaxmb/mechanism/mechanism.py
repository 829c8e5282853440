"""Mechanisms: bodies, joints, drivers and forces, and the systems built from them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import PyTree

from ..foundations import (
    Finite,
    TextInNotebooks,
    as_parameters,
    contract,
    counted,
    expect_available,
    expect_numbers,
)
from ..system import System
from . import compose
from .body import AbstractBody, body_points
from .build import build, connectivity
from .checks import check
from .connection import AbstractJoint
from .driver import AbstractDriver
from .elements import AbstractElements
from .force import AbstractActuator, AbstractForce
from .marker import GROUND, as_pose, as_vector
from .text import Language, read, write
from .tree import spanning_tree


class AbstractMechanism(AbstractElements, TextInNotebooks):
    """Bodies and what acts between them, as a pytree of numbers, from which systems are built.

    Attributes:
        language: what texts of such mechanisms consist of.
    """

    language: ClassVar[Language]

    @contract
    def __init__(
        self,
        bodies: Sequence[AbstractBody],
        joints: Sequence[Any] = (),
        drivers: Sequence[AbstractDriver] = (),
        forces: Sequence[AbstractForce] = (),
        actuators: Sequence[AbstractActuator] = (),
        gravity: Finite | None = None,
        points: Mapping[str, Any] | None = None,
        params: PyTree = None,
    ):
        dim = len(self.free.axes)
        self.bodies, self.joints, self.drivers = tuple(bodies), tuple(joints), tuple(drivers)
        self.forces, self.actuators = tuple(forces), tuple(actuators)
        self.gravity = as_vector(jnp.zeros(dim) if gravity is None else gravity, "gravity", (dim,))
        self.points = body_points(points, GROUND, dim)
        expect_numbers("params", params)
        self.params = as_parameters(params)
        check(self)

    def __str__(self) -> str:
        topology = connectivity(self).topology
        driven = f", {topology.freedom - len(self.drivers)} with drivers" if self.drivers else ""
        counting = f"{topology.freedom} by counting{driven}; {counted(topology.loops, 'independent loop')}"
        return f"{super().__str__()}\n  mobility      {counting}"

    @contract
    def build(self, coordinates: Literal["relative", "absolute"] = "relative", cut: Sequence[str] = ()) -> System:
        """The system of this mechanism.

        Args:
            coordinates: "relative": those of the joints of a spanning tree, loops closed by the other joints; or
                "absolute": position and orientation of each body, all joints being constraints.
            cut: names of joints that must not belong to the tree.

        Returns:
            A `System`. Coordinates are named "joint", or "joint.x" where a joint has several; of bodies that move freely
            "body.x" and so on. Its `params` hold all numbers; functions of elements get `mechanism.params`.

        Raises:
            ValueError: for an argument that does not fit; elements are checked when a mechanism is made.
        """
        joints = [j for j in self.joints if isinstance(j, AbstractJoint)]
        by_name = {j.name: j for j in joints}
        expect_available("Argument `cut` must hold names of joints", cut, by_name)
        # Absolute coordinates are the tree in which no joint is used: each body moves freely, and all joints are
        # constraints.
        usable = joints if coordinates == "relative" else []
        edges = spanning_tree([b.name for b in self.bodies], usable, cut, GROUND)
        rigid = [edge.joint for edge in edges if edge.joint and not by_name[edge.joint].pair.coordinates]
        # A system without coordinates has no mass matrix to factorise; absolute coordinates have one, and reactions.
        if len(rigid) == len(edges):
            raise ValueError(
                "The mechanism has no coordinates, since fixed joints hold all of it; build it with `coordinates='absolute'`."
            )
        return build(self, edges)

    @contract
    def renamed(self, prefix: str) -> "AbstractMechanism":
        """The mechanism with a prefix added to the names of all elements and points of the ground, and to all references to them.

        Points of bodies keep their names, and so do the keys of `params`: copies share these.

        Raises:
            ValueError: for a `Force` or `JointForce`, whose function may name other elements.

        Example:
            >>> import jaxmb as jm
            >>> rod = jm.planar.Body.rod("rod", mass=1.0, length=1.0)
            >>> pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("pivot", "ground", "rod.a")])
            >>> left, right = pendulum.renamed("left_"), pendulum.renamed("right_").placed((2.0, 0.0))
            >>> list(left.joined(right).elements)
            ['left_rod', 'right_rod', 'left_pivot', 'right_pivot']
        """
        return type(self)(**compose.renamed(self, prefix))

    @contract
    def placed(self, pose: Finite) -> "AbstractMechanism":
        """The mechanism moved rigidly: what is fixed to the ground, and the first guesses of the bodies' poses.

        Directions in the world stay: those of gravity, of loads that do not follow their bodies, and in functions.

        Args:
            pose: a position (d,), or a pose made by `frame`, of the mechanism's old frame in the world.

        Raises:
            ValueError: for a matrix that scales, shears or mirrors.
        """
        pose = as_pose(pose, "pose")
        if pose.shape[0] != self.gravity.shape[0] + 1:
            raise ValueError(
                f"Argument `pose` must have {self.gravity.shape[0]} dimensions, but has {pose.shape[0] - 1}."
            )
        return type(self)(**compose.placed(self, pose))

    @contract
    def joined(
        self,
        *others: "AbstractMechanism",
        joints: Sequence[Any] = (),
        drivers: Sequence[AbstractDriver] = (),
        forces: Sequence[AbstractForce] = (),
        actuators: Sequence[AbstractActuator] = (),
    ) -> "AbstractMechanism":
        """The mechanism and others as one, with further elements.

        Gravity is that of this mechanism; the others must have the same or none. `params` has the entries of all.

        Raises:
            ValueError: naming what two of them share: names, or values of `params` that differ.
        """
        added = {"joints": joints, "drivers": drivers, "forces": forces, "actuators": actuators}
        return type(self)(**compose.joined([self, *others], added))

    @contract
    def without(self, *names: str) -> "AbstractMechanism":
        """The mechanism without some elements, to which no others may refer."""
        return type(self)(**compose.without(self, names))

    def to_text(self) -> str:
        """The mechanism as TOML, with a table for each element, to save, read and edit; `from_text` restores it bit for bit.

        Raises:
            TypeError, ValueError: naming what a text cannot hold: functions, elements of other classes, traced numbers.
        """
        return write(self, self.language)

    @classmethod
    @contract
    def from_text(cls, text: str) -> "AbstractMechanism":
        """The mechanism from a text like those of `to_text`. The text is data only: nothing in it is run.

        Raises:
            TypeError, ValueError: naming the element, and the key that is unknown, missing or wrong.
        """
        return cls(**read(text, cls.language))
