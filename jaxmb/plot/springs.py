"""Springs, dampers, friction and forces by tables."""

from collections.abc import Iterable

import numpy as np

from ..mechanism import (
    AbstractForce,
    BearingFriction,
    JointCharacteristic,
    JointFriction,
    JointSpring,
    LineCharacteristic,
    SpringDamper,
)
from .colour import BROWN, GREEN, RED, WHITE
from .primitive import Primitive, of_solid
from .snapshot import Snapshot
from .solid import pose_along
from .symbols import arc, beside, chart, damper, spiral, spring

SPRING, FRICTION, LOAD = GREEN, RED, BROWN


def passive(now: Snapshot, force: AbstractForce) -> Iterable[Primitive]:
    """What is drawn of a force element besides its arrow; nothing of other elements."""
    if isinstance(force, SpringDamper):
        return _elastic(now, force, now.at(force.a)[:-1, -1], now.at(force.b)[:-1, -1])
    if isinstance(force, JointSpring):
        return _joint_spring(now, force)
    if isinstance(force, JointFriction | BearingFriction):
        return _friction(now, force)
    return _table(now, force) if isinstance(force, JointCharacteristic | LineCharacteristic) else []


def _joint_spring(now: Snapshot, force: JointSpring) -> Iterable[Primitive]:
    """Beside a slider, or a spiral about a hinge."""
    a, b = now.ends(now.link(now.linkage.index(force.joint, "coordinates")[0]))
    pose, shifts = now.axis(force.joint, "coordinates")
    if shifts:
        return _elastic(now, force, a[:-1, -1], b[:-1, -1], 2.4 * now.size)
    # The angle of the joint is read off the poses, whatever its coordinate is called.
    x, y = (np.linalg.inv(pose) @ b)[:2, 0]
    return [Primitive(force.name, (spiral(pose, float(np.arctan2(y, x)), now.size),), SPRING, width=1.2)]


def _elastic(
    now: Snapshot, force: SpringDamper | JointSpring, a: np.ndarray, b: np.ndarray, gap: float = 0.0
) -> Iterable[Primitive]:
    """Spring and damper beside each other, or the one of them that there is."""
    both, u = bool(force.stiffness) and bool(force.damping), now.size
    # Side by side as they are drawn in books; alone, on the line itself.
    gaps = {"stiffness": gap + (1.2 * u if both else 0.0), "damping": gap - (1.2 * u if both else 0.0)}
    for kind, shift in gaps.items():
        if not bool(getattr(force, kind)):
            continue
        one, other, lines = beside(a, b, shift) if shift else (a, b, [])
        for line in lines:
            yield Primitive(force.name, (line,), SPRING)
        if kind == "stiffness":
            yield Primitive(force.name, (spring(one, other, u),), SPRING, width=1.3)
        else:
            yield from of_solid(now.dim, force.name, damper(one, other, u), SPRING, 1.3)


def _friction(now: Snapshot, force: JointFriction | BearingFriction) -> Iterable[Primitive]:
    """A brake shoe: a thick line beside a slider, a thick arc about a hinge."""
    (pose, shifts), u = now.axes(force.joint)[0], now.size
    if shifts:
        forth, across = now.shift_directions(pose)
        shoe = pose[:-1, -1] + 1.5 * u * across + 1.4 * u * np.array([[-1.0], [1.0]]) * forth
    else:
        shoe = arc(pose, 1.5 * u, 0.9, 2.2)
    yield Primitive(force.name, (shoe,), FRICTION, width=5.0)


def _table(now: Snapshot, force: JointCharacteristic | LineCharacteristic) -> Iterable[Primitive]:
    """A box with the curve of the table: on the line between the markers, or beside the arrow along the joint."""
    u = now.size
    if isinstance(force, LineCharacteristic):
        a, b = now.at(force.a)[:-1, -1], now.at(force.b)[:-1, -1]
        forth, across = now.shift_directions(pose_along((a + b) / 2, b - a))
        yield Primitive(force.name, (np.stack([a, b]),), LOAD, width=1.3)
        middle = (a + b) / 2
    else:
        pose, shifts = now.axes(force.joint)[0]
        forth, across = now.shift_directions(pose) if shifts else (pose[:-1, 0], pose[:-1, 1])
        middle = pose[:-1, -1] + 4.4 * u * (across if shifts else forth)
    box, curve = chart(np.asarray(force.x), np.asarray(force.y), 1.3 * u)
    in_chart = lambda points: middle + points[:, :1] * forth + points[:, 1:] * across
    yield Primitive(force.name, (in_chart(box),), WHITE, fills=True, rim=LOAD, layer=1)
    yield Primitive(force.name, (in_chart(box[[0, 1, 2, 3, 0]]),), LOAD, width=1.2, layer=1)
    yield Primitive(force.name, (in_chart(curve),), LOAD, width=1.6, layer=1)
