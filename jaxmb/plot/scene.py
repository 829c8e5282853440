"""A mechanism in the world, as faces and lines."""

from itertools import product
from typing import Any

import jax
import numpy as np

from ..mechanism import DrivenDistance, Force, LineCharacteristic, Numbers, SpringDamper, linkage_of
from ..system import State, System
from .colour import of_body
from .drives import arrows, drive
from .gears import relation
from .instant import Instant, Moments
from .joints import anchors, contact, guide, joint, rod, under
from .outline import links, solids
from .piece import Piece, of_solid
from .solid import moved
from .springs import passive

SIZE = 0.02  # of symbols, in sizes of the mechanism


class Scene:
    """What is drawn of a mechanism; `frame` must be called before `pieces`.

    Attributes:
        dim: 2 or 3.
        links: its connections.
        solids: of ground and bodies, in their frames.
        centre, radius: of what is seen.
        size: of the symbols, in m.
        colours: of joints, by name; others have their own.
    """

    def __init__(self, system: System, points: bool, symbols: float = SIZE):
        self._linkage, self._numbers = linkage_of(system), system.params
        self.dim = self._linkage.dim
        self.solids = solids(self._linkage, self._numbers, points)
        self.links = links(self._linkage, self._numbers)
        self.colours: dict[str, Any] = {}
        self.centre, self.radius, self.size, self._symbols = np.zeros(self.dim), 0.5, symbols, symbols
        self._reaches: dict[str, np.ndarray] = {}
        self._largest: dict[str, tuple[float, float]] = {}
        self._read = jax.jit(jax.vmap(self._of_state, (0, None)))

    def _of_state(self, state: State, numbers: Numbers) -> Any:
        motion = self._linkage.motion(state.t, state.q, state.v, numbers)
        return motion.poses, {force.name: force.value(motion) for force in numbers.forces if isinstance(force, Force)}

    def moments(self, states: State) -> Moments:
        """What pictures of several states (k,) need."""
        return Moments(*jax.tree.map(np.asarray, self._read(states, self._numbers)))

    def at(self, moments: Moments, i: int) -> Instant:
        """The mechanism at one of them."""
        parts = {name: self._relative(name, wrenches[i]) for name, wrenches in moments.wrenches.items()}
        fixed = (self._linkage, self._numbers, self.links, self.solids, self.colours, self.size)
        return Instant(*fixed, self._reaches, parts, moments.poses[i])

    def _relative(self, name: str, wrench: np.ndarray) -> np.ndarray:
        """Force and torque in parts of their largest sizes; not numbers where these are zero."""
        sizes = np.repeat(self._largest.get(name, (0.0, 0.0)), [self.dim, len(wrench) - self.dim])
        return np.where(sizes > 0, np.nan_to_num(wrench) / np.where(sizes > 0, sizes, 1.0), np.nan)

    def frame(self, moments: Moments) -> np.ndarray:
        """Points (k, d) around all that is seen at several instants; sets the size of symbols and how far parts reach."""
        for link in self.links:
            a, b = (moments.poses[:, body] @ frame for body, frame in zip(link.bodies, link.frames, strict=True))
            places = (np.linalg.inv(a) @ b)[:, :-1, -1]
            self._reaches[link.name] = np.stack([places.min(axis=0), places.max(axis=0)])
        for name, wrenches in moments.wrenches.items():
            sizes = [np.linalg.norm(part, axis=1) for part in np.split(wrenches, [self.dim], axis=1)]
            self._largest[name] = (float(np.nanmax(sizes[0], initial=0.0)), float(np.nanmax(sizes[1], initial=0.0)))
        seen = np.concatenate([points for i in range(len(moments.poses)) for points in self._seen(self.at(moments, i))])
        low, high = seen.min(axis=0), seen.max(axis=0)
        self.centre, self.radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2 or 0.5
        self.size = self._symbols * 2 * self.radius
        return seen

    def _seen(self, now: Instant) -> list[np.ndarray]:
        """Bodies, ends of connections, springs and driven distances, and the ground under what rolls."""
        found = [moved(pose, x.points) for pose, x in zip(now.poses, self.solids, strict=True) if x.edges or x.rods]
        for link in self.links:
            a, b = now.ends(link)
            found += [a[None, :-1, -1], b[None, :-1, -1]]
            if link.rolls:
                corners = under(now.reach(link), float(link.numbers[0]))
                found.append(moved(a, np.array([*product(*corners.T)])))
        for element in (*self._numbers.forces, *self._numbers.drivers):
            if isinstance(element, SpringDamper | LineCharacteristic | DrivenDistance):
                found += [now.at(place)[None, :-1, -1] for place in (element.a, element.b)]
        return [*found, *(piece.loops[0] for piece in self._relations(now))]

    def _relations(self, now: Instant) -> list[Piece]:
        """Gears, belts and racks."""
        named = zip(self._linkage.connectivity.relations, np.asarray(self._numbers.relations), strict=True)
        return [piece for (name, joints, _), factors in named for piece in relation(now, name, joints, factors)]

    def pieces(self, now: Instant) -> list[Piece]:
        """Everything at an instant, in the order in which it is drawn in the plane."""
        before, after = self.symbols(now)
        names = ("ground", *self._linkage.bodies)
        bodies = [
            of_solid(self.dim, name, solid.moved(pose), of_body(i))
            for i, (name, solid, pose) in enumerate(zip(names, self.solids, now.poses, strict=True))
        ]
        return [*before, *(piece for body in bodies for piece in body), *after]

    def symbols(self, now: Instant) -> tuple[list[Piece], list[Piece]]:
        """All but the bodies: what is drawn before them, and what after."""
        numbers = self._numbers
        before = (*(contact(now, link) for link in self.links if link.rolls), anchors(now))
        after = (
            *(guide(now, link) for link in self.links if link.slides),
            [rod(now, *now.ends(link), link.name) for link in self.links if link.is_rod],
            self._relations(now),
            *(passive(now, force) for force in numbers.forces),
            *(joint(now, link) for link in self.links),
            *(drive(now, element) for element in self.elements),
        )
        return [piece for part in before for piece in part], [piece for part in after for piece in part]

    @property
    def elements(self) -> tuple[Any, ...]:
        """What moves the mechanism or loads it."""
        return *self._numbers.drivers, *self._numbers.actuators, *self._numbers.forces

    def arrows(self, now: Instant) -> dict[str, np.ndarray]:
        """By name of what moves the mechanism or loads it."""
        found = {element.name: arrows(now, element) for element in self.elements}
        return {name: points[0] for name, points in found.items() if points}
