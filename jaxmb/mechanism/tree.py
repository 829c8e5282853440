"""The spanning tree of a mechanism: which joints give coordinates and which close loops."""

import dataclasses
from collections.abc import Sequence

from ..system import Topology
from .connection import AbstractJoint
from .pair import AbstractPair
from .shape import Stroke


@dataclasses.dataclass(frozen=True)
class TreeEdge:
    """The edge of the spanning tree from a body to its parent.

    Attributes:
        parent: the parent's number, −1 for ground.
        joint: name of the joint; None for free motion.
        flipped: whether the joint's B is on the parent.
    """

    parent: int
    joint: str | None
    flipped: bool


def spanning_tree(
    bodies: Sequence[str], joints: Sequence[AbstractJoint], leave: Sequence[str], ground: str
) -> tuple[TreeEdge, ...]:
    """The edge from each body to its parent.

    It grows from the ground by joints of few degrees of freedom first, then by those close to the ground. A body that no joint
    reaches moves freely, and the tree goes on from it.

    Args:
        bodies: names of the bodies.
        joints: the joints that may be used.
        leave: names of those that must close loops instead.
        ground: the name of ground.
    """
    number = {name: i for i, name in enumerate(bodies)} | {ground: -1}
    usable = [j for j in joints if j.name not in leave and j.a.body != j.b.body]
    edges: dict[int, TreeEdge] = {}
    depth = {-1: 0}
    while len(edges) < len(bodies):
        candidates = []
        for order, joint in enumerate(usable):
            a, b = number[joint.a.body], number[joint.b.body]
            if (a in depth) != (b in depth):
                parent, child = (a, b) if a in depth else (b, a)
                # Few coordinates first (a hinge before a ball joint), then a low tree, whose mass matrix has more
                # zeros; the order of the mechanism last, so that equal mechanisms get equal trees in each process.
                rank = (len(joint.pair.velocities), depth[parent], order)
                candidates.append((rank, child, TreeEdge(parent, joint.name, parent == b)))
        if candidates:
            _, child, edge = min(candidates, key=lambda c: c[0])
        else:
            # No joint reaches the rest from here: one of these bodies moves freely, from the world's frame.
            child, edge = next(i for i in range(len(bodies)) if i not in edges), TreeEdge(-1, None, False)
        edges[child] = edge
        depth[child] = depth[edge.parent] + 1
    return tuple(edges[i] for i in range(len(bodies)))


@dataclasses.dataclass(frozen=True)
class Group:
    """All connections of one class.

    Attributes:
        kind: the class.
        names: their names.
        a: numbers of the bodies of A; 0 is ground, body i is i + 1.
        b: numbers of the bodies of B.
    """

    kind: type
    names: tuple[str, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TreeJoints:
    """The joints of the tree that share a class; each entry belongs to one of them.

    Attributes:
        pair: the pair.
        bodies: the bodies that they move.
        flipped: whether B is on the parent.
        q: their coordinates.
        v: their velocities.
        group: number of the group; None for bodies that move freely, from the world's frame.
        entries: their numbers in the group.
    """

    pair: AbstractPair
    bodies: tuple[int, ...]
    flipped: tuple[bool, ...]
    q: tuple[tuple[int, ...], ...]
    v: tuple[tuple[int, ...], ...]
    group: int | None
    entries: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ConstraintGroup:
    """The connections of one class that are constraints.

    Attributes:
        kind: the class.
        names: their names.
        a, b: numbers of the bodies of A and B, as in `Group`.
        group: number of the group.
        entries: their numbers in the group.
    """

    kind: type
    names: tuple[str, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    group: int
    entries: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class JointSlot:
    """The slot of a joint in the arrays of a build.

    Attributes:
        pair: its pair.
        in_tree: whether it belongs to the tree.
        a, b: numbers of the bodies of A and B, as in `Group`.
        group: number of its group.
        entry: its number in the group.
        q: its coordinates in the tree; of a joint that closes a loop those that count its full turns, −1 for none.
        v: its velocities in the tree.
    """

    pair: AbstractPair
    in_tree: bool
    a: int
    b: int
    group: int
    entry: int
    q: tuple[int, ...]
    v: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Connectivity:
    """The graph of bodies and connections, common to all builds of a mechanism; it holds no numbers.

    Attributes:
        dim: 2 or 3.
        bodies: names of the bodies.
        points: names of the points, "body.point".
        strokes: how each body's shape is drawn; see `AbstractShape.strokes`.
        free: the pair of a body that moves freely.
        groups: the connections by class.
        relations: names of the relations, the two joint coordinates of each, and its class.
        multi_turn: joint coordinates whose full turns matter.
        load_joints: joints whose reaction force a force element is proportional to.
        rows: name and number of holonomic rows of every element, in the order of the mechanism, the tree's joints included.
        slips: name and number of nonholonomic rows, likewise.
    """

    dim: int
    bodies: tuple[str, ...]
    points: tuple[str, ...]
    strokes: tuple[tuple[Stroke, ...], ...]
    free: AbstractPair
    groups: tuple[Group, ...]
    relations: tuple[tuple[str, tuple[str, str], type], ...]
    multi_turn: tuple[str, ...]
    load_joints: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    slips: tuple[tuple[str, int], ...]

    @property
    def topology(self) -> Topology:
        """Bodies, joints and loops; a graph has as many independent loops as edges more than a spanning forest."""
        joints = {group.kind.__name__: group.names for group in self.groups}
        for name, _, kind in self.relations:
            joints[kind.__name__] = (*joints.get(kind.__name__, ()), name)
        rows = sum(len(group.names) * (group.kind.holonomic + group.kind.nonholonomic) for group in self.groups)
        rows += sum(kind.holonomic for *_, kind in self.relations)
        # Each edge either joins two components (union–find by relabelling) or closes an independent loop: the
        # cyclomatic number.
        part, loops = list(range(len(self.bodies) + 1)), 0
        for a, b in (ends for group in self.groups for ends in zip(group.a, group.b, strict=True)):
            loops += part[a] == part[b]
            part = [part[a] if x == part[b] else x for x in part]
        # Grübler and Kutzbach: freedoms of all bodies less all rows, which redundant rows make smaller than the
        # mobility.
        single = 3 if self.dim == 2 else 6
        return Topology(len(self.bodies), joints, loops, single * len(self.bodies) - rows)
