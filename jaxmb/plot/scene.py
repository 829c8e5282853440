"""A mechanism in the world, as faces and lines."""

from itertools import product
from typing import Any

import jax
import numpy as np

from ..mechanism import DrivenDistance, SpringDamper, linkage_of
from ..system import System
from .drives import arrow, drive, spring_of
from .instant import Instant
from .joints import GROUND, anchors, contact, guide, joint, rod, under
from .outline import links, solids
from .piece import Piece, of_solid
from .solid import moved

SIZE = 0.02  # of symbols, in sizes of the mechanism


class Scene:
    """What is drawn of a mechanism; `frame` must be called before `pieces`.

    Attributes:
        dim: 2 or 3.
        links: its connections.
        centre, radius: of what is seen.
        size: of the symbols, in m.
        colours: of joints, by name; others have their own.
    """

    def __init__(self, system: System, points: bool):
        self._linkage, self._numbers = linkage_of(system), system.params
        self.dim = self._linkage.dim
        self._solids = solids(self._linkage, self._numbers, points)
        self.links = links(self._linkage, self._numbers)
        self.colours: dict[str, Any] = {}
        self.centre, self.radius, self.size = np.zeros(self.dim), 0.5, SIZE
        self._poses = jax.jit(jax.vmap(self._linkage.poses, (0, None)))

    def poses(self, q: Any) -> np.ndarray:
        """World poses of ground and bodies (k, m, D, D) at several instants (k, nq)."""
        return np.asarray(self._poses(q, self._numbers))

    def at(self, poses: np.ndarray) -> Instant:
        """The mechanism at given poses."""
        return Instant(self._linkage, self._numbers, self.links, self._solids, self.colours, self.size, poses)

    def frame(self, poses: np.ndarray) -> np.ndarray:
        """Points (k, d) around all that is seen at several instants; sets the size of symbols."""
        seen = np.concatenate([points for each in poses for points in self._seen(self.at(each))])
        low, high = seen.min(axis=0), seen.max(axis=0)
        self.centre, self.radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2 or 0.5
        self.size = SIZE * 2 * self.radius
        return seen

    def _seen(self, now: Instant) -> list[np.ndarray]:
        """Bodies, ends of connections, springs and driven distances, and the ground under what rolls."""
        found = [moved(pose, x.points) for pose, x in zip(now.poses, self._solids, strict=True) if x.edges or x.rods]
        for link in self.links:
            a, b = now.ends(link)
            found += [a[None, :-1, -1], b[None, :-1, -1]]
            if link.rolls:
                found.append(moved(a, np.array([*product(*under(a, b, float(link.numbers[0])).T)])))
        for element in (*self._numbers.forces, *self._numbers.drivers):
            if isinstance(element, SpringDamper | DrivenDistance):
                found += [now.at(place)[None, :-1, -1] for place in (element.a, element.b)]
        return found

    def pieces(self, poses: np.ndarray) -> list[Piece]:
        """Everything at an instant, in the order in which it is drawn in the plane."""
        now, numbers = self.at(poses), self._numbers
        names = ("ground", *self._linkage.bodies)
        bodies = [
            of_solid(self.dim, name, solid.moved(pose), colour_of(i))
            for i, (name, solid, pose) in enumerate(zip(names, self._solids, poses, strict=True))
        ]
        parts = (
            *(contact(now, link) for link in self.links if link.rolls),
            anchors(now),
            *bodies,
            *(guide(now, link) for link in self.links if link.slides),
            [rod(now, *now.ends(link), link.name) for link in self.links if link.is_rod],
            *(spring_of(now, force) for force in numbers.forces),
            *(joint(now, link) for link in self.links),
            *(drive(now, element) for element in (*numbers.drivers, *numbers.actuators, *numbers.forces)),
        )
        return [piece for part in parts for piece in part]

    def arrows(self, poses: np.ndarray) -> dict[str, np.ndarray]:
        """By name of what moves the mechanism or loads it."""
        now, numbers = self.at(poses), self._numbers
        elements = (*numbers.drivers, *numbers.actuators, *numbers.forces)
        found = {element.name: arrow(now, element) for element in elements}
        return {name: points for name, points in found.items() if points is not None}


def colour_of(body: int) -> str:
    """Of ground and bodies."""
    return GROUND if body == 0 else f"C{(body - 1) % 10}"
