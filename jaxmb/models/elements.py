"""The elements of a mechanism, from the graph of a model."""

from collections.abc import Callable, Mapping
from itertools import chain, count
from typing import Any

import numpy as np

from .. import spatial
from ..foundations import Number, expect_available
from ..mechanism import AbstractMechanism, names_of
from .graph import WORLD, ModelGraph
from .inertia import admissible, inertial
from .names import NameTable
from .rigid_bodies import RigidBodies, rigid_bodies

AXES: dict[str, Callable[..., Any]] = {
    "revolute": spatial.Revolute,
    "prismatic": spatial.Prismatic,
    "cylindrical": spatial.Cylindrical,
    "screw": spatial.Screw,
    "planar": spatial.Planar,
    "universal": spatial.Universal,
}
FRAMES: dict[str, Callable[..., Any]] = {"spherical": spatial.Spherical, "fixed": spatial.Fixed}
# Poses closer to the identity than this are written as none: products of frames with 15 digits leave some 1e-16.
IDENTITY_TOLERANCE = 1e-15


class MechanismBuilder:
    """A mechanism of a graph.

    Args:
        graph: the model.
        repair: whether inertias that no body can have are changed.
        stops: stiffness and damping of stops at the limits of joints, as in `load`.

    Attributes:
        bodies: of fixed links.
        names: what elements are called.
    """

    def __init__(self, graph: ModelGraph, repair: bool, stops: Mapping[str, tuple[Number, Number]]):
        self.graph, self.repair, self.stops = graph, repair, stops
        self.bodies: RigidBodies = rigid_bodies(graph)
        self.names = NameTable()
        self.shown = [joint for joint in graph.joints if joint in self.bodies.moving or joint.closes]
        for joint in self.shown:
            # A free joint is no element: the body that it carries is one that no joint reaches.
            if joint.kind != "free" or joint.closes:
                self.names.new("joint", joint.name)
        # Joints get names first, since coordinates are called by them; in many files a link has the name of its
        # joint, and its body is renamed.
        for coupling in graph.couplings:
            self.names.new("coupling", coupling.name)
        for name in self.bodies.spread:
            if name != WORLD:
                self.names.new("body", name)
        self.points, self.link_markers = self._points()

    def mechanism(self) -> AbstractMechanism:
        """The mechanism.

        Raises:
            ValueError: naming the element of the file.
        """
        if len(self.bodies.spread) == 1:
            raise ValueError(f"Model '{self.graph.name}' must have a joint that moves, but has none.")
        self._expect_stops()
        bodies = [self._body(name) for name in self.bodies.spread if name != WORLD]
        parts: dict[str, Any] = {
            "joints": [*self._joints(), *self._couplings(), *self._rods()],
            "forces": [*self._joint_forces(), *self._springs()],
            "actuators": self._actuators(),
            "gravity": self.graph.gravity,
            "points": self.points[WORLD],
        }
        return spatial.Mechanism(tuple(bodies), **parts)

    # Bodies and markers

    def _points(self) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str]]:
        """The poses of the points of each body, and the marker of each link."""
        points: dict[str, dict[str, np.ndarray]] = {name: {} for name in self.bodies.spread}
        link_markers = {}
        for link in self.graph.links:
            body, local = self.bodies.carrier[link.name]
            shown = WORLD if body == WORLD else self.names.of("body", body)
            link_markers[link.name] = shown
            if body != link.name:
                link_markers[link.name] = f"{shown}.{_add(points[body], link.name, local)}"
            for name, at in link.points.items():
                _add(points[body], name, local @ at)
        return points, link_markers

    def _body(self, name: str) -> spatial.Body:
        # Bodies without mass are legitimate between two joints.
        mass, com, inertia = inertial(self.bodies.spread[name])
        where = next(link.where for link in self.graph.links if link.name == name)
        inertia, changed = admissible(inertia, where, self.repair)
        if changed:
            self.graph.note("approximated", f"link '{name}'", changed)
        pose = self.bodies.poses[name]
        return spatial.Body(
            self.names.of("body", name),
            mass,
            inertia,
            com,
            points=self.points[name],
            position=pose[:3, 3],
            orientation=pose[:3, :3],
        )

    def _marker(self, link: str, local: np.ndarray) -> Any:
        """A marker on a body."""
        body, at = self.bodies.at(link, local)
        name = WORLD if body == WORLD else self.names.of("body", body)
        return name if np.abs(at - np.eye(4)).max() < IDENTITY_TOLERANCE else (name, at)

    # Joints

    def _joints(self) -> list[Any]:
        joints = []
        for joint in self.shown:
            if joint.kind == "free":
                continue
            carriers = {self.bodies.carrier[end][0] for end in (joint.parent, joint.child)}
            if len(carriers) == 1:
                raise ValueError(f"{joint.where} must tie two bodies, but both its links belong to '{carriers.pop()}'.")
            ends = self._marker(joint.parent, joint.zero), self._marker(joint.child, joint.inner)
            name = self.names.of("joint", joint.name)
            if joint.kind in FRAMES:
                joints.append(FRAMES[joint.kind](name, *ends))
            else:
                pitch = {"pitch": joint.pitch} if joint.kind == "screw" else {}
                joints.append(AXES[joint.kind](name, *ends, axis=joint.axis, axis_b=joint.axis_b, **pitch))
        return joints

    def _couplings(self) -> list[Any]:
        return [
            spatial.Gear(
                self.names.of("coupling", c.name), [self.names.of("joint", j) for j in c.joints], c.ratio, c.offset
            )
            for c in self.graph.couplings
        ]

    def _rods(self) -> list[Any]:
        return [
            spatial.Distance(self.names.new("rod", c.name), self._marker(*c.a), self._marker(*c.b), c.length)
            for c in self.graph.cords
            if c.fixed
        ]

    # Forces

    def _joint_forces(self) -> list[Any]:
        forces = []
        for joint in self.shown:
            if joint.kind in ("free", "fixed"):
                continue
            name = self.names.of("joint", joint.name)
            if joint.viscous or joint.coulomb:
                friction = self.names.new("friction", f"{joint.name}_friction")
                element = spatial.JointFriction(friction, name, joint.viscous, joint.coulomb)
                forces.append(element)
                if joint.coulomb:
                    speed = float(element.speed)
                    text = f"dry friction is −f tanh(v/v₀) with v₀ = {speed:g} m/s or rad/s: it creeps where it should stick"
                    self.graph.note("approximated", f"joint '{joint.name}'", text)
            if joint.stiffness:
                spring = self.names.new("spring", f"{joint.name}_spring")
                forces.append(spatial.JointSpring(spring, name, joint.stiffness, rest=joint.rest))
            if joint.armature:
                armature = self.names.new("inertia", f"{joint.name}_armature")
                forces.append(spatial.JointInertia(armature, name, joint.armature))
            # By its name before by its kind: one stiffer stop among many alike.
            constants = self.stops.get(joint.name, self.stops.get(joint.kind))
            if joint.limits is not None and constants is not None:
                stiffness, damping = constants
                stop = self.names.new("stop", f"{joint.name}_stop")
                forces.append(spatial.JointStop(stop, name, *joint.limits, stiffness=stiffness, damping=damping))
        return forces

    def _expect_stops(self) -> None:
        """Refuses stops of joints without limits."""
        limited = [joint for joint in self.shown if joint.limits is not None]
        known = {joint.name for joint in limited} | {joint.kind for joint in limited}
        expect_available("Argument `stops` must name joints with limits, or their kinds,", self.stops, sorted(known))

    def _springs(self) -> list[Any]:
        return [
            spatial.SpringDamper(
                self.names.new("spring", c.name),
                self._marker(*c.a),
                self._marker(*c.b),
                c.stiffness,
                c.damping,
                c.length,
            )
            for c in self.graph.cords
            if not c.fixed
        ]

    def _actuators(self) -> list[Any]:
        actuators = []
        for drive in self.graph.actuators:
            name = self.names.new("motor", drive.name)
            if drive.at is None:
                actuators.append(spatial.Motor(name, self.names.of("joint", drive.joint), drive.gain))
            else:
                actuators.append(spatial.Thruster(name, self._marker(*drive.at), drive.direction))
        return actuators

    # What a mechanism does not hold

    def coordinates(self, values: dict[str, np.ndarray]) -> dict[str, float]:
        """Values of coordinates by their names in a build."""
        values_by_name: dict[str, float] = {}
        for joint in self.shown:
            if joint.name in values and not joint.closes:
                free = joint.kind == "free"
                name = self.names.of("body", joint.child) if free else self.names.of("joint", joint.name)
                # Values of a file are listed by joint.
                pair = spatial.Mechanism.free if free else (AXES | FRAMES)[joint.kind].pair  # pyright: ignore
                labels = names_of(name, pair.coordinates)
                values_by_name |= dict(zip(labels, map(float, values[joint.name]), strict=True))
        return values_by_name

    def of_joints(self, field: str) -> dict[str, Any]:
        """A field of joints by their names in the mechanism, where it is set."""
        return {
            self.names.of("joint", joint.name): getattr(joint, field)
            for joint in self.shown
            if getattr(joint, field) and joint.kind not in ("free", "fixed")
        }


def _add(points: dict[str, np.ndarray], name: str, at: np.ndarray) -> str:
    """Adds a point under a new name without dots, and returns the name."""
    base = name.replace(".", "_")
    unique = next(x for x in chain([base], (f"{base}_{i}" for i in count(2))) if x not in points)
    points[unique] = at
    return unique
