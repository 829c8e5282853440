"""Gears, belts and racks, by what their relations tell: ratios, and radii where axles are at a distance."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .colour import GUIDE
from .primitive import Primitive
from .snapshot import Snapshot, turning
from .solid import circle, close, with_axis_as_z
from .symbols import toothed, toothed_line

PARALLEL = 1e-6  # 1 − cos of the angle between axes that count as parallel, which is 0.08°
PULLEY = 0.2  # radius of the larger pulley, in distances of the axles
FEWEST = 8  # teeth of a wheel: with fewer it looks like a polygon


class _Side(NamedTuple):
    """A joint of a relation: the pose whose z (in space) is the axis, on the body that moves, and the sense in which it moves."""

    joint: str
    pose: np.ndarray
    sense: int
    shifts: bool


def relation(now: Snapshot, name: str, joints: tuple[str, str], factors: np.ndarray) -> Iterable[Primitive]:
    """Toothed wheels, a belt, a rack with its pinion, or a dashed line where none of these fits."""
    ratio = -float(factors[0])
    # The body that carries both axles: what turns is what each joint has besides.
    carrier = set.intersection(*({*now.link(_joint(now, joint)).bodies} for joint in joints))
    sides = [_side(now, joint, carrier) for joint in joints]
    one, other = (side.pose[:-1, -1] for side in sides)
    lines = _lines(now, sides, ratio)
    yield from (Primitive(name, (line,), GUIDE, width=1.3) for line in lines or [np.stack([one, other])])


def _joint(now: Snapshot, name: str) -> str:
    return now.linkage.index(name, "coordinates")[0]


def _side(now: Snapshot, name: str, carrier: set[int]) -> _Side:
    """The body that is not the carrier moves; B where both might."""
    joint, index = now.linkage.index(name, "coordinates")
    link = now.link(joint)
    on_a = link.bodies[1] in carrier and link.bodies[0] not in carrier
    end = now.ends(link)[0 if on_a else 1]
    shifts = index < len(link.pair.axes)
    if shifts:
        pose = end if now.dim == 2 else with_axis_as_z(end, link.pair.axes[index])
    else:
        axes = turning(link)
        number = min(index - len(link.pair.axes), len(axes) - 1)
        pose = with_axis_as_z(end, axes[number]) if now.dim == 3 and axes else end
    return _Side(joint, pose, -1 if on_a else 1, shifts)


def _lines(now: Snapshot, sides: list[_Side], ratio: float) -> list[np.ndarray]:
    """What fits the relation; nothing if its axes lie in no usual way."""
    first, second = sides
    sense = first.sense * second.sense
    if first.shifts and second.shifts:
        return []
    if second.shifts:
        return _rack(now, first, second, ratio * sense)
    if first.shifts:
        return _rack(now, second, first, sense / ratio) if ratio else []
    # Radii are free but for their ratio; wheels that mesh share the distance of their axles.
    gap, align = _across(first.pose, second.pose)
    if not ratio or align is None or np.linalg.norm(gap) < now.size:
        return []
    d, ratio = float(np.linalg.norm(gap)), ratio * sense * align
    if ratio > 0:  # a belt; only the ratio of its pulleys is known
        radii = np.array([ratio, 1.0]) / max(ratio, 1.0) * PULLEY * d
        return _belt(first.pose, second.pose, gap, radii, now.size)
    # r₁ + r₂ = d and r₁/r₂ = −ratio: outside gears turn against each other.
    radii = d * np.array([-ratio, 1.0]) / (1 - ratio)
    pitch = min(1.6 * now.size, 2 * np.pi * radii.min() / FEWEST)
    return [
        toothed(side.pose, radius, max(FEWEST, round(2 * np.pi * radius / pitch)))
        for side, radius in zip(sides, radii.tolist(), strict=True)
    ]


def _across(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, int | None]:
    """The way from axis to axis across them, and whether they look the same way (1, −1); None if they are not parallel."""
    gap = other[:-1, -1] - one[:-1, -1]
    if len(one) == 3:
        return gap, 1
    z = one[:-1, 2]
    align = float(z @ other[:-1, 2])
    if 1 - abs(align) > PARALLEL:
        return gap, None
    return gap - (gap @ z) * z, 1 if align > 0 else -1


def _belt(one: np.ndarray, other: np.ndarray, gap: np.ndarray, radii: np.ndarray, size: float) -> list[np.ndarray]:
    """Two circles, a spoke of each, and the tangents outside."""
    d = float(np.linalg.norm(gap))
    forth = gap / d
    side = np.array([-forth[1], forth[0]]) if len(gap) == 2 else np.cross(one[:-1, 2], forth)
    centres = one[:-1, -1], one[:-1, -1] + gap
    poses = one, np.concatenate([other[:, :-1], np.append(centres[1], 1.0)[:, None]], axis=1)
    lines = [close(circle(pose, radius)) for pose, radius in zip(poses, radii.tolist(), strict=True)]
    lines += [np.stack([c, c + r * pose[:-1, 0]]) for c, r, pose in zip(centres, radii, poses, strict=True)]
    sine = (radii[0] - radii[1]) / d
    for way in (1, -1):
        # Outer tangents touch both circles at the same angle, sin α = (r₁ − r₂)/d.
        normal = sine * forth + way * np.sqrt(1 - sine**2) * side
        lines.append(np.stack([c + r * normal for c, r in zip(centres, radii, strict=True)]))
    return lines


def _rack(now: Snapshot, pinion: _Side, rack: _Side, radius: float) -> list[np.ndarray]:
    """A toothed wheel on a toothed line, as long as the motion asks for."""
    if not radius:
        return []
    centre, origin, u = pinion.pose[:-1, -1], rack.pose[:-1, -1], now.size
    forth, _ = now.shift_directions(rack.pose)
    normal = np.array([-forth[1], forth[0]]) if now.dim == 2 else np.cross(pinion.pose[:-1, 2], forth)
    pitch = min(1.6 * u, 2 * np.pi * abs(radius) / FEWEST)
    link = now.link(rack.joint)
    axis = 0 if now.dim == 2 else link.pair.axes[0]
    shift = float((np.linalg.inv(now.ends(link)[0]) @ now.ends(link)[1])[axis, -1])
    low, high = now.reach(link)[:, axis] - shift
    contact = float((centre - origin) @ forth)
    ends = (contact - high, contact - low) if rack.sense > 0 else (contact + low, contact + high)
    # The pitch line passes the pinion at its radius, on the side on which the rack's joint lies.
    start, overhang = origin + ((centre - origin) @ normal - radius) * normal, 3 * u + abs(radius)
    line = toothed_line(ends[0] - overhang, ends[1] + overhang, pitch)
    teeth = start + line[:, :1] * forth - line[:, 1:] * np.sign(radius) * normal
    wheel = toothed(pinion.pose, abs(radius), max(FEWEST, round(2 * np.pi * abs(radius) / pitch)))
    contact_point = start + np.clip(0.0, line[0, 0], line[-1, 0]) * forth
    return [wheel, teeth, np.stack([contact_point, origin])]
