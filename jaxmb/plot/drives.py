"""The arrows of what moves a mechanism or loads it."""

from collections.abc import Iterable

import numpy as np

from ..mechanism import (
    AbstractActuator,
    AbstractDriver,
    AbstractForce,
    DrivenAngle,
    DrivenDistance,
    DrivenSpeed,
    Driver,
    Force,
    JointCharacteristic,
    JointForce,
    Load,
    Motor,
    Thruster,
)
from .colour import PURPLE
from .joints import rod
from .primitive import Primitive
from .snapshot import Snapshot, at_position
from .solid import TINY, pose_along
from .springs import LOAD
from .symbols import ARC_ANGLES, arc

DRIVE = PURPLE
Element = AbstractDriver | AbstractActuator | AbstractForce


def drive(now: Snapshot, element: Element) -> Iterable[Primitive]:
    """The arrows of a driver, an input or a load; nothing for other elements."""
    if isinstance(element, DrivenDistance):
        yield from rod(now, now.at(element.a), now.at(element.b), element.name)
    colour = LOAD if isinstance(element, Load | Force | JointForce | JointCharacteristic) else DRIVE
    for points in arrows(now, element):
        yield Primitive(element.name, (points,), colour, width=1.8, heads=1, layer=1)


def arrows(now: Snapshot, element: Element) -> list[np.ndarray]:
    """Along or about what an element drives or loads: straight for shifts, forces and distances, curved for angles and torques."""
    u = now.size
    if isinstance(element, Driver | DrivenSpeed | Motor):
        return [_joint(now, now.axis(element.joint, "coordinates" if isinstance(element, Driver) else "velocities"))]
    if isinstance(element, JointForce | JointCharacteristic):
        return [_joint(now, axis) for axis in now.axes(element.joint)]
    # Symbols are measured in sizes: 2.6 clears the ring of a joint, 2.4 the rod of a slider.
    if isinstance(element, DrivenAngle):
        return [arc(now.at(element.b), 2.6 * u)]
    if isinstance(element, DrivenDistance):
        a, b = now.at(element.a)[:-1, -1], now.at(element.b)[:-1, -1]
        return [_arrow_beside(now, pose_along((a + b) / 2, b - a))]
    if isinstance(element, Thruster):
        at = now.at(element.at)
        return [_arrow_to(now, at, _unit(at[:-1, :-1] @ np.asarray(element.direction)))]
    if isinstance(element, Load):
        at = now.at(element.at)
        # A load is fixed to the world unless it follows its body.
        turn = at[:-1, :-1] if element.follows else np.eye(now.dim)
        parts = [_unit(np.zeros(0) if x is None else np.asarray(x)) for x in (element.force, element.torque)]
        return _wrench(now, at, *(turn @ x if len(x) == now.dim else x for x in parts))
    if isinstance(element, Force):
        wrench = now.wrenches[element.name]
        return _wrench(now, now.at(element.at), wrench[: now.dim], wrench[now.dim :])
    return []


def _joint(now: Snapshot, axis: tuple[np.ndarray, bool]) -> np.ndarray:
    """Along or about a joint's axis, in the sense of its coordinate."""
    pose, shifts = axis
    return _arrow_beside(now, pose) if shifts else arc(pose, 2.6 * now.size)


def _arrow_beside(now: Snapshot, pose: np.ndarray) -> np.ndarray:
    """An arrow along a pose's axis of shifts, at some distance from it."""
    forth, across = now.shift_directions(pose)
    return pose[:-1, -1] + 2.4 * now.size * across + now.size * np.array([[-3.0], [3.0]]) * forth


def _wrench(now: Snapshot, at: np.ndarray, force: np.ndarray, torque: np.ndarray) -> list[np.ndarray]:
    """An arrow towards the point and one about it, as long as these are of their largest size; none where that is not a number."""
    lines = []
    if len(force) and np.isfinite(force).all():
        lines.append(_arrow_to(now, at, force))
    if len(torque) and np.isfinite(torque).all():
        # Rounding may carry the largest a little beyond 1.
        part = min(float(np.linalg.norm(torque)), 1.0)
        end = ARC_ANGLES[0] + part * (ARC_ANGLES[1] - ARC_ANGLES[0])
        if now.dim == 3:
            axis = torque if part else np.array([0.0, 0.0, 1.0])
            lines.append(arc(pose_along(at[:-1, -1], axis), 2.6 * now.size, end=end))
        else:
            lines.append(
                arc(at_position(np.eye(3), at[:-1, -1]), 2.6 * now.size, end=end)[:: 1 if torque[0] >= 0 else -1]
            )
    return lines


def _arrow_to(now: Snapshot, at: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """An arrow that ends at a point; a vector of length 1 has the length that it has of known size."""
    return at[:-1, -1] + 6 * now.size * np.array([[-1.0], [0.0]]) * vector


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), TINY)
