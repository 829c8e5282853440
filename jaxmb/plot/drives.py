"""Springs, dampers, and what moves a mechanism or loads it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..mechanism import (
    DrivenAngle,
    DrivenDistance,
    DrivenSpeed,
    Driver,
    JointSpring,
    Load,
    Motor,
    SpringDamper,
    Thruster,
)
from .instant import Instant, shifted
from .joints import rod
from .piece import Piece, of_solid
from .solid import along
from .symbols import arc, beside, damper, spiral, spring

SPRING, DRIVE, LOAD = "tab:green", "tab:purple", "tab:brown"


def spring_of(now: Instant, force: Any) -> Iterable[Piece]:
    """A spring, a damper or both; nothing for other forces."""
    if isinstance(force, SpringDamper):
        return _elastic(now, force, now.at(force.a)[:-1, -1], now.at(force.b)[:-1, -1])
    if not isinstance(force, JointSpring):
        return []
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


def drive(now: Instant, element: Any) -> Iterable[Piece]:
    """The arrow of a driver, an input or a load; nothing for other elements."""
    if isinstance(element, DrivenDistance):
        yield rod(now, now.at(element.a), now.at(element.b), element.name)
    points = arrow(now, element)
    if points is not None:
        colour = LOAD if isinstance(element, Load) else DRIVE
        yield Piece(element.name, (points,), colour, width=1.8, heads=1, layer=1)


def arrow(now: Instant, element: Any) -> np.ndarray | None:
    """Along or about what an element drives: straight for shifts, forces and distances, curved for angles."""
    u = now.size
    if isinstance(element, Driver | DrivenSpeed | Motor):
        pose, shifts = now.axis(element.joint, "coordinates" if isinstance(element, Driver) else "velocities")
        return _beside(pose, u) if shifts else arc(pose, 2.6 * u)
    if isinstance(element, DrivenAngle):
        return arc(now.at(element.b), 2.6 * u)
    if isinstance(element, DrivenDistance):
        a, b = now.at(element.a)[:-1, -1], now.at(element.b)[:-1, -1]
        return _beside(along((a + b) / 2, b - a), u)
    if isinstance(element, Thruster):
        at = now.at(element.at)
        return _towards(at[:-1, -1], at[:-1, :-1] @ np.asarray(element.direction), 6 * u)
    return _load(now, now.at(element.at), element) if isinstance(element, Load) else None


def _beside(pose: np.ndarray, size: float) -> np.ndarray:
    """An arrow along the pose's x in the plane, z in space, at some distance from it."""
    forth, across = (pose[:-1, i] for i in ((0, 1) if len(pose) == 3 else (2, 0)))
    return pose[:-1, -1] + 2.4 * size * across + size * np.array([[-3.0], [3.0]]) * forth


def _load(now: Instant, at: np.ndarray, load: Load) -> np.ndarray:
    """Towards its place, or about it where it is a torque alone."""
    turn = at[:-1, :-1] if load.follows else np.eye(now.dim)
    if load.force is not None:
        return _towards(at[:-1, -1], turn @ np.asarray(load.force), 6 * now.size)
    torque = np.asarray(load.torque)
    if now.dim == 3:
        return arc(along(at[:-1, -1], turn @ torque), 2.6 * now.size)
    return arc(shifted(np.eye(3), at[:-1, -1]), 2.6 * now.size)[:: 1 if torque[0] >= 0 else -1]


def _towards(at: np.ndarray, direction: np.ndarray, length: float) -> np.ndarray:
    """An arrow that ends at a place."""
    return at + length * np.array([[-1.0], [0.0]]) * direction / max(float(np.linalg.norm(direction)), 1e-300)
