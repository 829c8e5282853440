"""Joints, guides, rods and the ground under them."""

from collections.abc import Iterable

import numpy as np

from ..mechanism import Helix
from .colour import GROUND, GUIDE, JOINT, LIGHT, PALE, WHITE
from .primitive import Primitive, of_solid
from .shapes import Connection
from .snapshot import Snapshot, at_position, turning
from .solid import COARSE, Solid, circle, polygon, transform, tube, with_axis_as_z
from .symbols import anchor, ball, bar, block, floor, hatched, hinge, thread

BAR = 0.35  # radius of bars in space, in sizes of symbols
OVERHANG = 2.5  # of a plane that something slides on, in sizes of symbols


def anchors(now: Snapshot) -> Iterable[Primitive]:
    """The ground where something is pinned to it, once at each position."""
    poses: dict[str, np.ndarray] = {}
    for link in now.links:
        rail = now.dim == 3 and link.slides and len(link.pair.axes) == 1  # others have ground of their own
        if link.is_grounded and (rail or not link.slides) and not link.kind.nonholonomic:
            poses[link.name] = now.ends(link)[0 if link.bodies[0] == 0 else 1]
    for element in (*now.numbers.forces, *now.numbers.drivers):
        for at in (getattr(element, "a", None), getattr(element, "b", None)):
            if at is not None and at.body == "ground":
                poses[element.name] = now.at(at)
    # Several joints on one pin have one foot; in units of symbols, since those are what would overlap.
    distinct = {tuple(np.round(pose[:-1, -1] / now.size, 3)): (name, pose[:-1, -1]) for name, pose in poses.items()}
    for name, position in distinct.values():
        yield from of_solid(now.dim, f"{name} ground", anchor(position, now.size), GROUND, fill=LIGHT)


def contact(now: Snapshot, link: Connection) -> Iterable[Primitive]:
    """The ground that something rolls on."""
    a, _ = now.ends(link)
    colour = now.colours.get(link.name, GROUND)
    low, high = under(now.reach(link), float(link.numbers[0]))
    if now.dim == 3:
        ground = of_solid(now.dim, f"{link.name} ground", floor(a, low[:2], high[:2], now.size), colour, 0.7, PALE)
        # A floor is large: sorted by its middle it might hide what stands on it.
        return [piece._replace(layer=-1) for piece in ground]
    return of_solid(now.dim, f"{link.name} ground", Solid([], hatched(a, low[0], high[0], now.size), []), colour)


def joint_symbol(now: Snapshot, link: Connection) -> Iterable[Primitive]:
    """A ring in the plane, short cylinders about its axes in space, a ball where it has none; a square or cube if nothing turns."""
    if link.rolls or link.slides:
        return []
    ends, colour, u = now.ends(link), now.colours.get(link.name, JOINT), now.size
    if link.kind.nonholonomic:
        blade = transform(ends[1], u * np.array([[-2.0, 0.0], [2.0, 0.0]]))
        return [Primitive(link.name, (blade,), colour, width=4.0)]
    solids = _joint_solids(link, ends, u)
    if isinstance(link.pair, Helix):
        solids.append(Solid([], [thread(ends[1], float(link.numbers[0]), u)], []))
    fill = WHITE if now.dim == 2 else None
    return [piece for solid in solids for piece in of_solid(now.dim, link.name, solid, colour, 1.8, fill)]


def _joint_solids(link: Connection, ends: tuple[np.ndarray, np.ndarray], u: float) -> list[Solid]:
    """What stands for the rotation that a joint leaves."""
    axes, in_space = turning(link), len(ends[1]) == 4
    if len(axes) == 2:  # the first axis on A, the second one on B
        return [hinge(end, axis, u) for end, axis in zip(ends, axes, strict=True)]
    if link.pair is not None and not link.pair.rotation.coordinates:
        return [block(ends[1], -0.7 * u, 0.7 * u, 0.7 * u)]
    if in_space and axes:
        return [hinge(ends[1], axes[0], u)]
    pins = ends if link.is_rod else ends[1:]
    if in_space:
        return [ball(end, 0.8 * u) for end in pins]
    return [polygon(circle(end, 0.6 * u)) for end in pins]


def guide_symbol(now: Snapshot, link: Connection) -> Iterable[Primitive]:
    """A rod and what slides on it: the body of A as a sleeve where that lies along the axis, else a block at B; or a plane."""
    a, b = now.ends(link)
    if len(link.pair.axes) > 1:
        yield from _plane(now, link, a, b)
        return
    pose = a if now.dim == 2 else with_axis_as_z(a, link.pair.axes[0])
    axis, u = 0 if now.dim == 2 else 2, now.size
    colour, shift = now.colours.get(link.name, GUIDE), float((np.linalg.inv(pose) @ b)[axis, -1])
    sleeve = _sleeve(now, link, pose, axis)
    start, end, thickness = sleeve or (shift - 1.6 * u, shift + 1.6 * u, 0.0)
    low, high = _rod_ends(now, link, shift, sleeve)
    ends = np.zeros((2, now.dim))
    ends[:, axis] = low, high
    if link.is_grounded and now.dim == 2:
        ground = at_position(pose, pose[:-1, -1] - u * pose[:-1, 1])
        yield from of_solid(now.dim, f"{link.name} ground", Solid([], hatched(ground, low, high, u), []), GROUND)
    yield from _bar(now, link.name, transform(pose, ends), colour, 2.5)
    if thickness <= 0.1 * u:  # else the body's shape is its sleeve
        fill = LIGHT if now.dim == 2 else None
        for solid in _slider(now, link, pose, b, (start, end)):
            yield from of_solid(now.dim, link.name, solid, colour, 1.5, fill)


def _rod_ends(
    now: Snapshot, link: Connection, shift: float, sleeve: tuple[float, float, float] | None
) -> tuple[float, float]:
    """Where the rod of a guide begins and ends on its axis: out of a sleeve up to B, else as far as B goes and a little more."""
    if sleeve is None:
        overhang = 4 * now.size if link.is_grounded else 2 * now.size
        least, most = now.reach(link)[:, link.pair.axes[0]].tolist()
        return min(0.0, least) - overhang, max(0.0, most) + overhang
    start, end, _ = sleeve
    low, high = min(0.0, shift), max(0.0, shift)
    if now.dim == 2:
        return low, high
    # In space the part inside the sleeve is hidden.
    return (min(end, high), high) if shift > 0 else (low, max(start, low))


def _slider(now: Snapshot, link: Connection, pose: np.ndarray, b: np.ndarray, ends: tuple[float, float]) -> list[Solid]:
    """A block on the axis of a pose; round if it may turn, with a pin in the plane; a ball if it may turn in any way."""
    u, rotation = now.size, link.pair.rotation
    if not rotation.coordinates:
        return [block(pose, *ends, u)]
    if now.dim == 2:
        return [block(pose, *ends, u), polygon(circle(b, 0.6 * u))]
    if not turning(link):
        return [ball(b, u)]
    return [tube(at_position(pose, pose[:-1, -1] + ends[0] * pose[:-1, 2]), ends[1] - ends[0], u, corners=COARSE)]


def _plane(now: Snapshot, link: Connection, a: np.ndarray, b: np.ndarray) -> Iterable[Primitive]:
    """The plane of A under the position of B."""
    u, (low, high) = now.size, plane_under(now, link)[:, :2]
    low, high = low - OVERHANG * u, high + OVERHANG * u
    colour = now.colours.get(link.name, GUIDE)
    yield from of_solid(3, link.name, floor(a, low, high, u), colour, 0.7, PALE)
    yield from of_solid(3, link.name, ball(b, 0.8 * u), colour)


def plane_under(now: Snapshot, link: Connection) -> np.ndarray:
    """Least and largest position (2, 3) on the plane of A that B slides on, its origin among them."""
    reach = now.reach(link) * [1.0, 1.0, 0.0]
    return np.stack([np.minimum(reach[0], 0.0), np.maximum(reach[1], 0.0)])


def _sleeve(now: Snapshot, link: Connection, pose: np.ndarray, axis: int) -> tuple[float, float, float] | None:
    """Where A's body begins and ends on the axis, and how far it reaches beside it; None if it does not lie along it."""
    body = link.bodies[0]
    if body == 0:
        return None
    points = transform(np.linalg.inv(pose), now.solids[body].transform(now.poses[body]).points)
    low, high = points[:, axis].min(), points[:, axis].max()
    beside = np.abs(np.delete(points, axis, axis=1)).max()
    return (float(low), float(high), float(beside)) if high - low > 4 * beside + now.size else None


def rod(now: Snapshot, a: np.ndarray, b: np.ndarray, name: str) -> Iterable[Primitive]:
    """From one point to another."""
    return _bar(now, name, np.stack([a[:-1, -1], b[:-1, -1]]), now.colours.get(name, GUIDE), 3.0)


def _bar(now: Snapshot, name: str, ends: np.ndarray, colour: str, width: float) -> Iterable[Primitive]:
    """A line of a width in the plane, a round bar in space."""
    if now.dim == 2:
        return [Primitive(name, (ends,), colour, width=width)]
    return of_solid(3, name, bar(ends[0], ends[1], BAR * now.size), colour)


def under(reach: np.ndarray, radius: float) -> np.ndarray:
    """Two corners (2, d), in A's frame, of the ground that is drawn under something that rolls where B reaches."""
    corners = reach + 2 * radius * np.array([[-1.0], [1.0]])
    corners[:, -1] = 0.0
    return corners
