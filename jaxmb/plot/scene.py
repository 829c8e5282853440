"""A mechanism in the world, as faces and lines: bodies, joints, springs, drivers and the ground."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from ..mechanism import (
    AbstractLinkage,
    DrivenAngle,
    DrivenDistance,
    DrivenSpeed,
    Driver,
    JointSpring,
    Load,
    Motor,
    Numbers,
    SpringDamper,
    Thruster,
    linkage_of,
)
from ..system import System
from .outline import Link, links, place, solids
from .solid import Solid, along, circle, closed, moved, sphere, turned
from .symbols import anchor, arc, beside, block, damper, floor, hatched, hinge, spiral, spring
from .view import Piece

GROUND, JOINT, SPRING, GUIDE, DRIVE, LOAD = "0.35", "0.25", "tab:green", "0.45", "tab:purple", "tab:brown"
SIZE = 0.02  # of symbols, in sizes of the mechanism


class Scene:
    """What is drawn of a mechanism; `frame` must be called first.

    Attributes:
        links: its connections.
        centre, radius: of what is seen.
        size: of the symbols, in m.
        colours: of joints, by name; others are drawn in `JOINT`.
    """

    def __init__(self, system: System, points: bool):
        self.linkage: AbstractLinkage = linkage_of(system)
        self.numbers: Numbers = system.params
        self.dim = self.linkage.dim
        self.solids = solids(self.linkage, self.numbers, points)
        self.links = links(self.linkage, self.numbers)
        self.colours: dict[str, Any] = {}
        self._poses = jax.jit(jax.vmap(self.linkage.poses, (0, None)))

    def poses(self, q: Any) -> np.ndarray:
        """World poses of ground and bodies (k, m, D, D) at several instants (k, nq)."""
        return np.asarray(self._poses(q, self.numbers))

    def frame(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper ends of all that is seen at several instants; sets the size of symbols."""
        found = [
            moved(pose, solid.points)
            for all_ in poses
            for pose, solid in zip(all_, self.solids, strict=True)
            if solid.edges or solid.rods
        ]
        ends = [frame[:-1, -1][None] for all_ in poses for link in self.links for frame in self._ends(all_, link)]
        springs = [force for force in self.numbers.forces if isinstance(force, SpringDamper)]
        distances = [driver for driver in self.numbers.drivers if isinstance(driver, DrivenDistance)]
        marks = [
            self._at(all_, at)[:-1, -1][None] for all_ in poses for e in (*springs, *distances) for at in (e.a, e.b)
        ]
        contacts = [
            (*self._ends(all_, link), float(link.numbers[0])) for all_ in poses for link in self.links if link.rolls
        ]
        grounds = [moved(a, _under(a, b, radius)) for a, b, radius in contacts]
        seen = np.concatenate([*found, *ends, *marks, *grounds])
        low, high = seen.min(axis=0), seen.max(axis=0)
        self.extent(low, high)
        self.size = SIZE * (float(np.linalg.norm(high - low)) or 1.0)
        return low, high

    def extent(self, low: np.ndarray, high: np.ndarray) -> None:
        """What is seen."""
        self.centre, self.radius = (low + high) / 2, 0.5 * float(np.linalg.norm(high - low)) or 0.5

    def pieces(self, poses: np.ndarray) -> list[Piece]:
        """Everything at an instant, what is drawn first in the plane first."""
        parts: Iterable[Iterable[Piece]] = (
            *(self._contact(poses, link) for link in self.links if link.rolls),
            *(self._anchor(at, name) for at, name in self._anchors(poses)),
            *(self._body(poses, i) for i in range(len(self.solids))),
            *(self._guide(poses, link) for link in self.links if link.slides),
            *(self._rod(*self._ends(poses, link), link.name) for link in self.links if link.is_rod),
            *(self._force(poses, force) for force in self.numbers.forces),
            *(self._joint(poses, link) for link in self.links),
            *(self._drive(poses, element) for element in (*self.numbers.drivers, *self.numbers.actuators)),
        )
        return [piece for part in parts for piece in part]

    def arrows(self, poses: np.ndarray) -> dict[str, np.ndarray]:
        """By name of what moves the mechanism or loads it."""
        elements = (*self.numbers.drivers, *self.numbers.actuators, *self.numbers.forces)
        found = {element.name: self._arrow(poses, element) for element in elements}
        return {name: arrow for name, arrow in found.items() if arrow is not None}

    # Where things are

    def _ends(self, poses: np.ndarray, link: Link) -> tuple[np.ndarray, np.ndarray]:
        a, b = (poses[body] @ frame for body, frame in zip(link.bodies, link.frames, strict=True))
        return a, b

    def _at(self, poses: np.ndarray, at: Any) -> np.ndarray:
        body, local = place(self.linkage, self.numbers, at)
        return poses[body] @ local

    def _link(self, name: str) -> Link:
        return next(link for link in self.links if link.name == name)

    def _axis(self, poses: np.ndarray, name: str, what: str) -> tuple[np.ndarray, bool]:
        """The pose whose z (in the plane: x of a slider) is the axis of a joint coordinate or velocity, and whether that is a shift."""
        joint, index = self.linkage.index(name, what)
        link = self._link(joint)
        a, b = self._ends(poses, link)
        at = a.copy()
        at[:-1, -1] = b[:-1, -1]
        shifts = link.pair.axes
        if index < len(shifts):
            return at if self.dim == 2 else turned(at, shifts[index]), True
        axes = _turning(link)
        if self.dim == 2 or not axes:
            return at, False
        number = min(index - len(shifts), len(axes) - 1)
        return turned(b if number else at, axes[number]), False

    # Bodies and ground

    def _solid(self, name: str, solid: Solid, colour: Any, width: float = 1.0, fill: Any = None) -> Iterable[Piece]:
        for loops in solid.faces:
            rim = _dark(colour) if self.dim == 3 and len(loops[0]) > 4 else None
            yield Piece(name, loops, fill or ((colour, 0.3) if self.dim == 2 else colour), fills=True, rim=rim)
        for line in solid.edges:
            yield Piece(name, (line,), colour if self.dim == 2 or fill else _dark(colour), width=width)
        for line in solid.rods:  # in the plane as bars
            yield Piece(name, (line,), colour, width=6.5 if self.dim == 2 else 4.0)
            if self.dim == 2 and len(line) > 1:
                yield Piece(name, (line,), _light(colour), width=4.5)

    def _body(self, poses: np.ndarray, body: int) -> Iterable[Piece]:
        name = ("ground", *self.linkage.bodies)[body]
        return self._solid(name, self.solids[body].moved(poses[body]), colour_of(body))

    def _anchors(self, poses: np.ndarray) -> list[tuple[np.ndarray, str]]:
        """Places where something is pinned to the ground."""
        found: dict[str, np.ndarray] = {}
        for link in self.links:
            if link.is_grounded and not link.slides and not link.kind.nonholonomic:
                found[link.name] = self._ends(poses, link)[0 if link.bodies[0] == 0 else 1]
        for element in (*self.numbers.forces, *self.numbers.drivers):
            for at in (getattr(element, "a", None), getattr(element, "b", None)):
                if at is not None and at.body == "ground":
                    found[element.name] = self._at(poses, at)
        places = {tuple(np.round(pose[:-1, -1] / self.size, 3)): (pose[:-1, -1], name) for name, pose in found.items()}
        return list(places.values())

    def _anchor(self, at: np.ndarray, name: str) -> Iterable[Piece]:
        return self._solid(f"{name} ground", anchor(at, self.size), GROUND, fill="0.85")

    def _contact(self, poses: np.ndarray, link: Link) -> Iterable[Piece]:
        """The ground that something rolls on."""
        a, b = self._ends(poses, link)
        colour = self.colours.get(link.name, GROUND)
        low, high = _under(a, b, float(link.numbers[0]))
        if self.dim == 3:
            ground = self._solid(f"{link.name} ground", floor(a, low[:2], high[:2], self.size), colour, 0.7, "0.93")
            return [piece._replace(layer=-1) for piece in ground]
        return self._solid(f"{link.name} ground", Solid([], hatched(a, low[0], high[0], self.size), []), colour)

    # Joints

    def _joint(self, poses: np.ndarray, link: Link) -> Iterable[Piece]:
        a, b = self._ends(poses, link)
        colour = self.colours.get(link.name, JOINT)
        if link.rolls or link.slides:
            return
        if self.dim == 3:
            axes, at = _turning(link), b[:3, 3]
            if link.pair is not None and len(axes) == 2:  # first axis on A, second one on B
                first, second = (hinge(x, (axis,), self.size) for x, axis in zip((a, b), axes, strict=True))
                solids = [first, second]
            elif link.pair is not None and len(axes) == 1:
                solids = [hinge(b, axes, self.size)]
            else:
                solids = [Solid(sphere(_shift(b, at), 0.8 * self.size).faces, [], [])]
            for solid in solids:
                yield from self._solid(link.name, solid, colour)
            return
        for x in (a, b) if link.is_rod else (b,):
            ring = circle(_shift(np.eye(3), x[:2, 2]), 0.6 * self.size)
            if link.kind.nonholonomic:
                ring = moved(x, self.size * np.array([[-2.0, 0.0], [2.0, 0.0]]))
            yield Piece(link.name, (ring,), "white", fills=len(ring) > 2, width=0.0)
            yield Piece(link.name, (closed(ring),), colour, width=1.8)

    def _guide(self, poses: np.ndarray, link: Link) -> Iterable[Piece]:
        """A rod and what slides on it: the body of A as a sleeve where that lies along the axis, else a block at B."""
        a, b = self._ends(poses, link)
        pose = a if self.dim == 2 else turned(a, link.pair.axes[0])
        axis, u = 0 if self.dim == 2 else 2, self.size
        colour, shift = self.colours.get(link.name, GUIDE), float((np.linalg.inv(pose) @ b)[axis, -1])
        sleeve = self._sleeve(poses, link, pose, axis)
        over = 0.0 if sleeve else 4 * u if link.is_grounded else 2 * u
        low, high = min(0.0, shift) - over, max(0.0, shift) + over
        rod = np.zeros((2, self.dim))
        rod[:, axis] = low, high
        if link.is_grounded and self.dim == 2:
            ground = _shift(pose, pose[:-1, -1] - u * pose[:-1, 1])
            yield from self._solid(f"{link.name} ground", Solid([], hatched(ground, low, high, u), []), GROUND)
        yield Piece(link.name, (moved(pose, rod),), colour, width=2.5)
        start, end, thickness = sleeve or (shift - 1.6 * u, shift + 1.6 * u, 0.0)
        if thickness <= 0.1 * u:  # else the body's shape is its sleeve
            fill = "0.85" if self.dim == 2 else None
            yield from self._solid(link.name, block(pose, start, end, u), colour, 1.5, fill)

    def _sleeve(self, poses: np.ndarray, link: Link, pose: np.ndarray, axis: int) -> tuple[float, float, float] | None:
        """Where A's body begins and ends on the axis, and how far it reaches beside it; None if it does not lie along it."""
        body = link.bodies[0]
        if body == 0:
            return None
        seen = moved(np.linalg.inv(pose), self.solids[body].moved(poses[body]).points)
        low, high = seen[:, axis].min(), seen[:, axis].max()
        beside = np.abs(np.delete(seen, axis, axis=1)).max()
        return (float(low), float(high), float(beside)) if high - low > 4 * beside + self.size else None

    def _rod(self, a: np.ndarray, b: np.ndarray, name: str) -> Iterable[Piece]:
        yield Piece(name, (np.stack([a[:-1, -1], b[:-1, -1]]),), self.colours.get(name, "0.45"), width=3.0)

    # Springs, dampers and what moves the mechanism

    def _force(self, poses: np.ndarray, force: Any) -> Iterable[Piece]:
        if isinstance(force, SpringDamper):
            yield from self._elastic(force, self._at(poses, force.a)[:-1, -1], self._at(poses, force.b)[:-1, -1])
        if isinstance(force, JointSpring):
            link = self._link(self.linkage.index(force.joint, "coordinates")[0])
            a, b = self._ends(poses, link)
            pose, shifts = self._axis(poses, force.joint, "coordinates")
            if shifts:
                yield from self._elastic(force, a[:-1, -1], b[:-1, -1], 2.4 * self.size)
            else:
                x, y = (np.linalg.inv(pose) @ b)[:2, 0]
                yield Piece(force.name, (spiral(pose, float(np.arctan2(y, x)), self.size),), SPRING, width=1.2)
        if isinstance(force, Load):
            yield from self._drive(poses, force)

    def _elastic(self, force: Any, a: np.ndarray, b: np.ndarray, gap: float = 0.0) -> Iterable[Piece]:
        """Spring and damper beside each other, or the one of them that there is."""
        both, u = bool(force.stiffness) and bool(force.damping), self.size
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
                yield from self._solid(force.name, damper(one, other, u), SPRING, 1.3)

    def _drive(self, poses: np.ndarray, element: Any) -> Iterable[Piece]:
        if isinstance(element, DrivenDistance):
            yield from self._rod(self._at(poses, element.a), self._at(poses, element.b), element.name)
        arrow = self._arrow(poses, element)
        if arrow is not None:
            colour = LOAD if isinstance(element, Load) else DRIVE
            yield Piece(element.name, (arrow,), colour, width=1.8, heads=1, layer=1)

    def _arrow(self, poses: np.ndarray, element: Any) -> np.ndarray | None:
        """Along or about what an element drives: straight for shifts, forces and distances, curved for angles."""
        u = self.size
        if isinstance(element, Driver | DrivenSpeed | Motor):
            pose, shifts = self._axis(
                poses, element.joint, "coordinates" if isinstance(element, Driver) else "velocities"
            )
            if not shifts:
                return arc(pose, 2.6 * u)
            along_, across = pose[:-1, 0 if self.dim == 2 else 2], pose[:-1, 1 if self.dim == 2 else 0]
            return pose[:-1, -1] + 2.4 * u * across + u * np.array([[-3.0], [3.0]]) * along_
        if isinstance(element, DrivenAngle):
            return arc(self._at(poses, element.b), 2.6 * u)
        if isinstance(element, DrivenDistance):
            a, b = (self._at(poses, at)[:-1, -1] for at in (element.a, element.b))
            pose = along(a, (b - a) / np.linalg.norm(b - a))
            return (
                (a + b) / 2
                + 2 * u * pose[:-1, 1]
                + u * np.array([[-3.0], [3.0]]) * pose[:-1, 0 if self.dim == 2 else 2]
            )
        if isinstance(element, Thruster):
            at = self._at(poses, element.at)
            return _towards(at[:-1, -1], at[:-1, :-1] @ np.asarray(element.direction), 6 * u)
        if isinstance(element, Load):
            return self._load(self._at(poses, element.at), element)
        return None

    def _load(self, at: np.ndarray, load: Load) -> np.ndarray:
        turn = at[:-1, :-1] if load.follows else np.eye(self.dim)
        if load.force is not None:
            return _towards(at[:-1, -1], turn @ np.asarray(load.force), 6 * self.size)
        torque = np.asarray(load.torque)
        if self.dim == 3:
            return arc(along(at[:-1, -1], turn @ torque), 2.6 * self.size)
        return arc(_shift(np.eye(3), at[:-1, -1]), 2.6 * self.size)[:: 1 if torque[0] >= 0 else -1]


def _under(a: np.ndarray, b: np.ndarray, radius: float) -> np.ndarray:
    """Two corners, in A's frame, of the ground that is drawn under something that rolls about B."""
    local = (np.linalg.inv(a) @ b)[:-1, -1]
    corners = np.stack([local - 2 * radius, local + 2 * radius])
    corners[:, -1] = 0.0
    return corners


def colour_of(body: int) -> str:
    """Of ground and bodies."""
    return GROUND if body == 0 else f"C{(body - 1) % 10}"


def _turning(link: Link) -> tuple[int, ...]:
    """The axes that B turns about: of A's frame the first, of B's a second one; none for a ball."""
    angles = getattr(getattr(link.pair, "rotation", None), "angles", ())
    return {1: (2,), 2: (2, 0)}.get(len(angles), ())


def _shift(pose: np.ndarray, at: np.ndarray) -> np.ndarray:
    """A pose at another place."""
    pose = pose.copy()
    pose[:-1, -1] = at
    return pose


def _lowered(pose: np.ndarray, size: float) -> np.ndarray:
    return _shift(pose, pose[:-1, -1] - size * pose[:-1, 1])


def _towards(at: np.ndarray, direction: np.ndarray, length: float) -> np.ndarray:
    """An arrow that ends at a place."""
    return at + length * np.array([[-1.0], [0.0]]) * direction / max(float(np.linalg.norm(direction)), 1e-300)


def _dark(colour: Any) -> Any:
    return _mixed(colour, 0.45, 0.0)


def _light(colour: Any) -> Any:
    return _mixed(colour, 0.4, 0.6)


def _mixed(colour: Any, factor: float, white: float) -> Any:
    import matplotlib.colors

    return tuple((factor * np.array(matplotlib.colors.to_rgb(colour)) + white).tolist())
