"""The structure of a built mechanism, which is static, and its numbers."""

import dataclasses
from collections import defaultdict
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import positive_or_one
from ..linalg import SINGULAR
from ..system import AbstractJoints, Topology, in_turn
from .connection import AbstractJoint
from .marker import GROUND, Marker
from .pose import take
from .tree import Connectivity, ConstraintGroup, JointSlot, TreeEdge, TreeJoints

S = TypeVar("S", bound="AbstractStructure")
# The name of a coordinate that counts full turns is that of the joint coordinate with this.
TURNS = ".turns"


class Frames(eqx.Module):
    """The frames of a group of joints or connections.

    Attributes:
        a: poses of A in their bodies (n, D, D).
        b: poses of B in their bodies (n, D, D).
        numbers: further numbers of the connections (n, k), such as lengths and pitches.
    """

    a: Float[Array, "n D D"]
    b: Float[Array, "n D D"]
    numbers: Float[Array, "n k"]

    def of(self, entries: tuple[int, ...]) -> "Frames":
        """The frames of some connections of the group."""
        return Frames(*(take(x, np.array(entries, int)) for x in (self.a, self.b, self.numbers)))


class Numbers(eqx.Module):
    """All numbers of a built mechanism: the `params` of its system.

    Attributes:
        inertia: ∫ x̃ x̃ᵀ dm of each body in its frame (n, D, D), x̃ = (x, 1).
        gravity: acceleration of gravity (d,) in m/s².
        frames: those of the connections, by group.
        points: local poses (k, D, D) of the named points.
        relations: factors and offsets (r, 3) of the relations between joint coordinates.
        drivers, forces, actuators: the elements themselves.
        params: the user's, which user functions get.
    """

    inertia: Float[Array, "n D D"]
    gravity: Float[Array, " d"]
    frames: tuple[Frames, ...]
    points: Float[Array, "k D D"]
    relations: Float[Array, "r 3"]
    drivers: tuple[Any, ...]
    forces: tuple[Any, ...]
    actuators: tuple[Any, ...]
    params: PyTree


class AbstractStructure(AbstractJoints):
    """The structure of a built mechanism, without numbers; equal structures share compiled programs.

    Attributes:
        connectivity: what all builds of the mechanism have in common.
        parents: number of each body's parent, −1 for ground.
        tree_joints: the joints of the tree.
        constraint_groups: the connections that are constraints.
        joints: the slot of each joint.
        turns: coordinates that count full turns of joints outside the tree: (joint, its coordinate).
        rows: names and numbers of the holonomic rows, in the order of the mechanism.
        slips: names and numbers of the nonholonomic rows.
        coordinates, velocities: their names.
        recursive: whether bodies are evaluated one after the other (`recursion.py`), not all by products of whole arrays.
        by_angles: whether rows hold angles in place of their sines.
    """

    connectivity: Connectivity = eqx.field(static=True)
    parents: tuple[int, ...] = eqx.field(static=True)
    tree_joints: tuple[TreeJoints, ...] = eqx.field(static=True)
    constraint_groups: tuple[ConstraintGroup, ...] = eqx.field(static=True)
    joints: tuple[tuple[str, JointSlot], ...] = eqx.field(static=True)
    turns: tuple[tuple[str, int], ...] = eqx.field(static=True)
    rows: tuple[tuple[str, int], ...] = eqx.field(static=True)
    slips: tuple[tuple[str, int], ...] = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)
    recursive: bool = eqx.field(static=True, default=False)
    by_angles: bool = eqx.field(static=True, default=False)

    def unrolled(self: S) -> S:
        """The structure whose bodies are evaluated one after the other."""
        return dataclasses.replace(self, recursive=True)

    def for_search(self: S) -> S:
        """The structure with rows of angles in place of their sines."""
        return dataclasses.replace(self, by_angles=True)

    @classmethod
    def of(cls: type[S], connectivity: Connectivity, edges: tuple[TreeEdge, ...]) -> S:
        """The structure of a build with a given tree."""
        tree_joints, coordinates, velocities, slots = _tree_joints(connectivity, edges)
        constraint_groups, closing = _constraint_groups(connectivity, {edge.joint for edge in edges})
        turns = []
        for name in connectivity.multi_turn:
            joint, _, part = name.partition(".")
            if joint in closing:
                pair, q = closing[joint].pair, list(closing[joint].q)
                for index, own in enumerate(pair.coordinates):
                    if pair.angles[index] and part in ("", own) and q[index] < 0:
                        # A joint that closes a loop has no coordinate that could hold full turns: one is added, without a
                        # velocity of its own, whose rate is that of the angle.
                        q[index] = len(coordinates)
                        coordinates.append(names_of(joint, pair.coordinates)[index] + TURNS)
                        turns.append((joint, index))
                closing[joint] = dataclasses.replace(closing[joint], q=tuple(q))
        return cls(
            connectivity=connectivity,
            parents=tuple(edge.parent for edge in edges),
            tree_joints=tree_joints,
            constraint_groups=constraint_groups,
            joints=tuple((slots | closing).items()),
            turns=tuple(turns),
            rows=tuple(row for row in connectivity.rows if row[0] not in slots),
            slips=connectivity.slips,
            coordinates=tuple(coordinates),
            velocities=tuple(velocities),
        )

    @property
    def absolute(self: S) -> S:
        """The structure in absolute coordinates."""
        return self.of(self.connectivity, tuple(TreeEdge(-1, None, False) for _ in self.bodies))

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.connectivity.dim

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies."""
        return self.connectivity.bodies

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return len(self.velocities)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the joints."""
        return tuple(name for name, _ in self.joints)

    @property
    def topology(self) -> Topology:
        """The skeleton's."""
        return self.connectivity.topology

    def drivers(self, params: Numbers) -> dict[str, str | None]:
        """The joint coordinate of each driver, by its name."""
        return {driver.name: getattr(driver, "joint", None) for driver in params.drivers}

    def effort_units(self, params: Numbers) -> dict[str, str]:
        """N or N m by name of each driver."""
        units = {driver.name: driver.effort_unit(self) for driver in params.drivers}
        return {name: unit for name, unit in units.items() if unit is not None}

    def without_inertia(self, params: Numbers) -> tuple[str, ...]:
        """Names of the bodies without mass, or whose smallest moment of inertia vanishes beside the largest."""
        spread = np.asarray(params.inertia)
        mass, first = spread[:, -1, -1], spread[:, :-1, -1]
        at = first / positive_or_one(mass)[:, None]
        about = spread[:, :-1, :-1] - mass[:, None, None] * at[:, :, None] * at[:, None, :]
        moments = np.linalg.eigvalsh(about)
        total = moments.sum(axis=1)
        # The moment about the axis of the largest spread is what is left of the others: in the plane there is one moment only.
        least = total if self.dim == 2 else total - moments[:, -1]
        size = np.trace(spread[:, :-1, :-1], axis1=1, axis2=2)
        # Beside the moments about the frame's origin, since a centre of mass far away is subtracted with rounding of
        # that size.
        limit = SINGULAR * np.finfo(spread.dtype).eps * size
        return tuple(np.array(self.bodies)[(mass <= 0) | (least <= limit)].tolist())

    def slot(self, joint: str) -> JointSlot:
        """The slot of a joint."""
        slots = dict(self.joints)
        if joint not in slots:
            raise ValueError(f"There is no joint '{joint}'; there are {', '.join(slots) or 'none'}.")
        return slots[joint]

    def locate(self, at: Marker, numbers: Numbers) -> tuple[int, Float[Array, "D D"]]:
        """The number of a marker's body, 0 for ground, and its pose there."""
        bodies = (GROUND, *self.bodies)
        if at.body not in bodies:
            raise ValueError(f"There is no body '{at.body}'; there are {', '.join(bodies)}.")
        if at.point is None:
            local = jnp.eye(self.dim + 1, dtype=numbers.inertia.dtype) if at.local is None else at.local
            return bodies.index(at.body), local
        if str(at) not in self.connectivity.points:
            names = [p for p in self.connectivity.points if p.startswith(at.body + ".")]
            raise ValueError(f"There is no point '{at}'; '{at.body}' has {', '.join(names) or 'none'}.")
        return bodies.index(at.body), numbers.points[self.connectivity.points.index(str(at))]

    def index(self, name: str, what: str) -> tuple[str, int]:
        """Joint and number of the coordinate, or velocity, called "joint" or "joint.part"."""
        joint, _, part = name.partition(".")
        pair = self.slot(joint).pair
        names = pair.coordinates if what == "coordinates" else pair.velocities
        if len(names) == 1 and part in ("", names[0]):
            return joint, 0
        if part not in names:
            asked = (
                f"but not '{part}'" if part or not names else f"so that one must be named, such as '{joint}.{names[0]}'"
            )
            raise ValueError(f"Joint '{joint}' has the {what} {', '.join(names) or 'none'}, {asked}.")
        return joint, names.index(part)

    @property
    def angles(self) -> set[int]:
        """The coordinates that are angles."""
        indices = set(range(self.nq - len(self.turns), self.nq))
        for group in self.tree_joints:
            indices |= {q[i] for q in group.q for i, is_angle in enumerate(group.pair.angles) if is_angle}
        return indices

    def with_turns(
        self, q: Float[Array, " nq"], other: "AbstractStructure", had: Float[Array, " k"]
    ) -> Float[Array, " nq"]:
        """Coordinates with the full turns that the same angles have in another build, whose coordinates are `had`."""
        # Angles are measured between −π and π; gears, springs and drivers read them with their turns, which the other build has in
        # its tree or counts.
        angles = self.angles
        ours, theirs = ({name.removesuffix(TURNS): i for i, name in enumerate(x.coordinates)} for x in (self, other))
        both = sorted((i, theirs[name]) for name, i in ours.items() if name in theirs and i in angles)
        here, there = np.array(both, int).reshape(-1, 2).T
        return q.at[here].set(in_turn(take(q, here), take(had, there)))

    @property
    def units(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """SI units of coordinates and velocities."""
        q = {i: unit for h in self.tree_joints for at in h.q for i, unit in zip(at, h.pair.units, strict=True)}
        v = {i: unit for h in self.tree_joints for at in h.v for i, unit in zip(at, h.pair.rate_units, strict=True)}
        return tuple(q.get(i, "rad") for i in range(self.nq)), tuple(v[i] for i in range(self.nv))

    @property
    def angular_rows(self) -> dict[str, tuple[bool, ...]]:
        """By name of each joint outside the tree, which of its rows are in rad."""
        angular = {}
        for group in self.constraint_groups:
            pair = getattr(group.kind, "pair", None)
            if pair is not None:
                angular |= dict.fromkeys(group.names, pair.angular(self.dim, group.kind.holonomic))
        return angular

    @property
    def moves(self) -> np.ndarray:
        """For each body (n,) and velocity (nv,) whether the velocity moves the body."""
        above = np.zeros((len(self.bodies), self.nv), bool)
        own: list[list[int]] = [[] for _ in self.bodies]
        for group in self.tree_joints:
            for body, v in zip(group.bodies, group.v, strict=True):
                own[body] = list(v)
        for body in range(len(self.bodies)):
            at = body
            while at >= 0:
                above[body, own[at]] = True
                at = self.parents[at]
        return above

    @property
    def loops(self) -> dict[str, tuple[str, ...]]:
        """The joints of each loop in order, by the name of the connection that closes it."""
        names = [group.names for group in self.connectivity.groups]
        own = {
            b: names[h.group][e]
            for h in self.tree_joints
            if h.group is not None
            for b, e in zip(h.bodies, h.entries, strict=True)
        }

        def below(body: int) -> list[int]:
            return [] if body < 0 else [*below(self.parents[body]), body]

        joints_by_closure = {}
        for tie in self.constraint_groups:
            for name, a, b in zip(tie.names, tie.a, tie.b, strict=True):
                # Paths to the ground of both ends; what they share, from the common ancestor on, is no part of the
                # loop.
                one, other = below(a - 1), below(b - 1)
                up = [own[x] for x in one if x not in other and x in own]
                down = [own[x] for x in reversed(other) if x not in one and x in own]
                if up or down:
                    joints_by_closure[name] = (*up, name, *down)
        return joints_by_closure


def _tree_joints(
    connectivity: Connectivity, edges: tuple[TreeEdge, ...]
) -> tuple[tuple[TreeJoints, ...], list[str], list[str], dict[str, JointSlot]]:
    """The joints of the tree by class, names of coordinates and velocities, and the slots of these joints."""
    where = {name: (g, i) for g, group in enumerate(connectivity.groups) for i, name in enumerate(group.names)}
    coordinates: list[str] = []
    velocities: list[str] = []
    groups: dict[int | None, list] = defaultdict(list)
    slots: dict[str, JointSlot] = {}
    for body, edge in enumerate(edges):
        group, entry = (None, 0) if edge.joint is None else where[edge.joint]
        pair = connectivity.free if group is None else connectivity.groups[group].kind.pair
        name = edge.joint or connectivity.bodies[body]
        q = tuple(range(len(coordinates), len(coordinates) + len(pair.coordinates)))
        v = tuple(range(len(velocities), len(velocities) + len(pair.velocities)))
        coordinates += names_of(name, pair.coordinates)
        velocities += names_of(name, pair.velocities)
        groups[group].append((pair, body, edge.flipped, q, v, entry))
        if group is not None:
            ends = connectivity.groups[group].a[entry], connectivity.groups[group].b[entry]
            slots[name] = JointSlot(pair=pair, in_tree=True, a=ends[0], b=ends[1], group=group, entry=entry, q=q, v=v)
    tree_joints = []
    for group, members in groups.items():
        pairs, bodies, flipped, q, v, entries = (tuple(x) for x in zip(*members, strict=True))
        tree_joints.append(
            TreeJoints(pair=pairs[0], bodies=bodies, flipped=flipped, q=q, v=v, group=group, entries=entries)
        )
    return tuple(tree_joints), coordinates, velocities, slots


def names_of(name: str, parts: tuple[str, ...]) -> list[str]:
    """The names of an element's coordinates, or velocities, in a build: its own, or "name.part" where there are several."""
    return [name] if len(parts) == 1 else [f"{name}.{part}" for part in parts]


def _constraint_groups(
    connectivity: Connectivity, in_tree: set[str | None]
) -> tuple[tuple[ConstraintGroup, ...], dict[str, JointSlot]]:
    """The connections that are constraints by class, and the slots of joints among them."""
    constraint_groups, slots = [], {}
    for g, group in enumerate(connectivity.groups):
        members = [
            (i, name, a, b)
            for i, (name, a, b) in enumerate(zip(group.names, group.a, group.b, strict=True))
            if name not in in_tree
        ]
        if members:
            entries, names, a, b = (tuple(x) for x in zip(*members, strict=True))
            constraint_groups.append(ConstraintGroup(kind=group.kind, names=names, a=a, b=b, group=g, entries=entries))
            if issubclass(group.kind, AbstractJoint):
                pair = group.kind.pair
                none = (-1,) * len(pair.coordinates)
                slots |= {
                    name: JointSlot(pair=pair, in_tree=False, a=x, b=y, group=g, entry=i, q=none, v=())
                    for i, name, x, y in members
                }
    return tuple(constraint_groups), slots
