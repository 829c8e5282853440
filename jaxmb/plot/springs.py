"""Springs, dampers, friction and forces by tables."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..mechanism import (
    BearingFriction,
    JointCharacteristic,
    JointFriction,
    JointSpring,
    LineCharacteristic,
    SpringDamper,
)
from .colour import BROWN, GREEN, RED, WHITE
from .instant import Instant
from .piece import Piece, of_solid
from .solid import along
from .symbols import arc, beside, chart, damper, spiral, spring

SPRING, FRICTION, LOAD = GREEN, RED, BROWN


def passive(now: Instant, force: Any) -> Iterable[Piece]:
    """What is drawn of a force element besides its arrow; nothing of other elements."""
    if isinstance(force, SpringDamper):
        return _elastic(now, force, now.at(force.a)[:-1, -1], now.at(force.b)[:-1, -1])
    if isinstance(force, JointSpring):
        return _joint_spring(now, force)
    if isinstance(force, JointFriction | BearingFriction):
        return _friction(now, force)
    return _table(now, force) if isinstance(force, JointCharacteristic | LineCharacteristic) else []


def _joint_spring(now: Instant, force: JointSpring) -> Iterable[Piece]:
    """Beside a slider, or a spiral about a hinge."""
    a, b = now.ends(now.link(now.linkage.index(force.joint, "coordinates")[0]))
    pose, shifts = now.axis(force.joint, "coordinates")
    if shifts:
        return _elastic(now, force, a[:-1, -1], b[:-1, -1], 2.4 * now.size)
    x, y = (np.linalg.inv(pose) @ b)[:2, 0]
    return [Piece(force.name, (spiral(pose, float(np.arctan2(y, x)), now.size),), SPRING, width=1.2)]


def _elastic(now: Instant, force: Any, a: np.ndarray, b: np.ndarray, gap: float = 0.0) -> Iterable[Piece]:
    """Spring and damper beside each other, or the one of them that there is."""
    both, u = bool(force.stiffness) and bool(force.damping), now.size
    gaps = {"stiffness": gap + (1.2 * u if both else 0.0), "damping": gap - (1.2 * u if both else 0.0)}
    for kind, shift in gaps.items():
        if not bool(getattr(force, kind)):
            continue
        one, other, lines = beside(a, b, shift) if shift else (a, b, [])
        for line in lines:
            yield Piece(force.name, (line,), SPRING)
        if kind == "stiffness":
            yield Piece(force.name, (spring(one, other, u),), SPRING, width=1.3)
        else:
            yield from of_solid(now.dim, force.name, damper(one, other, u), SPRING, 1.3)


def _friction(now: Instant, force: Any) -> Iterable[Piece]:
    """A brake shoe: a thick line beside a slider, a thick arc about a hinge."""
    (pose, shifts), u = now.axes(force.joint)[0], now.size
    if shifts:
        forth, across = now.along(pose)
        shoe = pose[:-1, -1] + 1.5 * u * across + 1.4 * u * np.array([[-1.0], [1.0]]) * forth
    else:
        shoe = arc(pose, 1.5 * u, 0.9, 2.2)
    yield Piece(force.name, (shoe,), FRICTION, width=5.0)


def _table(now: Instant, force: Any) -> Iterable[Piece]:
    """A box with the curve of the table: on the line between the places, or beside the arrow along the joint."""
    u = now.size
    if isinstance(force, LineCharacteristic):
        a, b = now.at(force.a)[:-1, -1], now.at(force.b)[:-1, -1]
        forth, across = now.along(along((a + b) / 2, b - a))
        yield Piece(force.name, (np.stack([a, b]),), LOAD, width=1.3)
        middle = (a + b) / 2
    else:
        pose, shifts = now.axes(force.joint)[0]
        forth, across = now.along(pose) if shifts else (pose[:-1, 0], pose[:-1, 1])
        middle = pose[:-1, -1] + 4.4 * u * (across if shifts else forth)
    box, curve = chart(np.asarray(force.x), np.asarray(force.y), 1.3 * u)
    placed = lambda points: middle + points[:, :1] * forth + points[:, 1:] * across
    yield Piece(force.name, (placed(box),), WHITE, fills=True, rim=LOAD, layer=1)
    yield Piece(force.name, (placed(box[[0, 1, 2, 3, 0]]),), LOAD, width=1.2, layer=1)
    yield Piece(force.name, (placed(curve),), LOAD, width=1.6, layer=1)
