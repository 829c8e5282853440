"""The spanning tree of a mechanism: which joints give coordinates and which close loops."""

import dataclasses
from collections.abc import Sequence

from .connection import AbstractJoint
from .pair import AbstractPair


@dataclasses.dataclass(frozen=True)
class Limb:
    """How a body hangs on its parent.

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
) -> tuple[Limb, ...]:
    """A limb for each body.

    Grown from ground by joints of few degrees of freedom first, so that coordinates are few, then by those close to
    ground, so that the tree is low. A body that is not reached moves freely, and the tree grows on from it.

    Args:
        bodies: names of the bodies.
        joints: the joints that may be used.
        leave: names of those that must close loops instead.
        ground: the name of ground.
    """
    number = {name: i for i, name in enumerate(bodies)} | {ground: -1}
    usable = [j for j in joints if j.name not in leave and j.a.body != j.b.body]
    limbs: dict[int, Limb] = {}
    depth = {-1: 0}
    while len(limbs) < len(bodies):
        candidates = []
        for order, joint in enumerate(usable):
            a, b = number[joint.a.body], number[joint.b.body]
            if (a in depth) != (b in depth):
                parent, child = (a, b) if a in depth else (b, a)
                rank = (len(joint.pair.velocities), depth[parent], order)
                candidates.append((rank, child, Limb(parent, joint.name, parent == b)))
        if candidates:
            _, child, limb = min(candidates, key=lambda c: c[0])
        else:
            child, limb = next(i for i in range(len(bodies)) if i not in limbs), Limb(-1, None, False)
        limbs[child] = limb
        depth[child] = depth[limb.parent] + 1
    return tuple(limbs[i] for i in range(len(bodies)))


@dataclasses.dataclass(frozen=True)
class Hinges:
    """The joints of the tree that share a pair; each entry belongs to one of them.

    Attributes:
        pair: the pair.
        bodies: the bodies that they move.
        flipped: whether B is on the parent.
        q: their coordinates.
        v: their velocities.
        free: whether these bodies move freely, from the world's frame.
    """

    pair: AbstractPair
    bodies: tuple[int, ...]
    flipped: tuple[bool, ...]
    q: tuple[tuple[int, ...], ...]
    v: tuple[tuple[int, ...], ...]
    free: bool


@dataclasses.dataclass(frozen=True)
class Ties:
    """The connections of one kind that are constraints; each entry belongs to one of them.

    Attributes:
        kind: their class.
        names: their names.
        a: numbers of the bodies of A; 0 is ground, body i is i + 1.
        b: numbers of the bodies of B.
    """

    kind: type
    names: tuple[str, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class JointPlace:
    """Where a joint is found.

    Attributes:
        pair: its pair.
        group: number of its group, of hinges if `in_tree`, else of ties.
        entry: number within the group.
        q: its coordinates in the tree; of a joint that closes a loop those that count its full turns, −1 for none.
        v: its velocities in the tree.
    """

    pair: AbstractPair
    in_tree: bool
    group: int
    entry: int
    q: tuple[int, ...]
    v: tuple[int, ...]
