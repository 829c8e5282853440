"""A mechanism in the world, as faces and lines."""

from itertools import product
from typing import Any

import jax
import numpy as np

from ..foundations import positive_or_one
from ..mechanism import DrivenDistance, Force, LineCharacteristic, Numbers, SpringDamper, linkage_of
from ..system import State, System
from .colour import of_body
from .drives import arrows, drive
from .gears import relation
from .joints import BAR, anchors, contact, guide_symbol, joint_symbol, plane_under, rod, under
from .primitive import Primitive, of_solid
from .shapes import connections, solids
from .snapshot import Snapshot, Stage, Trajectory
from .solid import transform
from .springs import passive
from .symbols import solidified

SIZE = 0.02  # of symbols, in sizes of the mechanism


class Scene(Stage):
    """What is drawn of a mechanism; `frame` must be called before `pieces`.

    Attributes:
        centre, radius: of what is seen.
    """

    def __init__(self, system: System, points: bool, symbols: float = SIZE):
        linkage, numbers = linkage_of(system), system.params
        self._thin, self._symbols = solids(linkage, numbers, points), symbols
        super().__init__(linkage, numbers, connections(linkage, numbers), self._thin, {}, symbols, {})
        self.centre, self.radius = np.zeros(self.dim), 0.5
        self._largest_wrenches: dict[str, tuple[float, float]] = {}
        # One program for all instants of an animation.
        self._read = jax.jit(jax.vmap(self._of_state, (0, None)))

    def _of_state(self, state: State, numbers: Numbers) -> Any:
        motion = self.linkage.motion(state.t, state.q, state.v, numbers)
        return motion.poses, {force.name: force.value(motion) for force in numbers.forces if isinstance(force, Force)}

    def trajectory(self, states: State) -> Trajectory:
        """What pictures of several states (k,) need."""
        return Trajectory(*jax.tree.map(np.asarray, self._read(states, self.numbers)))

    def at(self, trajectory: Trajectory, i: int) -> Snapshot:
        """The mechanism at one of them."""
        parts = {name: self._relative_wrench(name, wrenches[i]) for name, wrenches in trajectory.wrenches.items()}
        return self.at_instant(trajectory.poses[i], parts)

    def _relative_wrench(self, name: str, wrench: np.ndarray) -> np.ndarray:
        """Force and torque in parts of their largest sizes; not numbers where these are zero."""
        sizes = np.repeat(self._largest_wrenches.get(name, (0.0, 0.0)), [self.dim, len(wrench) - self.dim])
        return np.where(sizes > 0, np.nan_to_num(wrench) / positive_or_one(sizes), np.nan)

    def frame(self, trajectory: Trajectory) -> np.ndarray:
        """Points (k, d) around all that is seen at several instants; sets the size of symbols and bars and how far parts reach."""
        self.solids = self._thin
        for link in self.links:
            a, b = (trajectory.poses[:, body] @ frame for body, frame in zip(link.bodies, link.frames, strict=True))
            positions = (np.linalg.inv(a) @ b)[:, :-1, -1]
            self.reaches[link.name] = np.stack([positions.min(axis=0), positions.max(axis=0)])
        for name, wrenches in trajectory.wrenches.items():
            sizes = [np.linalg.norm(part, axis=1) for part in np.split(wrenches, [self.dim], axis=1)]
            self._largest_wrenches[name] = (
                float(np.nanmax(sizes[0], initial=0.0)),
                float(np.nanmax(sizes[1], initial=0.0)),
            )
        extent = np.concatenate(
            [points for i in range(len(trajectory.poses)) for points in self._extent(self.at(trajectory, i))]
        )
        low, high = extent.min(axis=0), extent.max(axis=0)
        # A single point has no extent; half a metre is as good as any.
        self.centre, self.radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2 or 0.5
        self.size = self._symbols * 2 * self.radius
        if self.dim == 3:
            self.solids = [solidified(x, BAR * self.size) for x in self._thin]
        return extent

    def _extent(self, now: Snapshot) -> list[np.ndarray]:
        """Bodies, ends of connections, springs and driven distances, and what is rolled or slid upon."""
        points = [
            transform(pose, x.points) for pose, x in zip(now.poses, self.solids, strict=True) if x.edges or x.rods
        ]
        for link in self.links:
            a, b = now.ends(link)
            points += [a[None, :-1, -1], b[None, :-1, -1]]
            if link.rolls or (link.slides and len(link.pair.axes) > 1):
                corners = under(now.reach(link), float(link.numbers[0])) if link.rolls else plane_under(now, link)
                points.append(transform(a, np.array([*product(*corners.T)])))
        for element in (*self.numbers.forces, *self.numbers.drivers):
            if isinstance(element, SpringDamper | LineCharacteristic | DrivenDistance):
                points += [now.at(marker)[None, :-1, -1] for marker in (element.a, element.b)]
        return [*points, *(piece.loops[0] for piece in self._relations(now))]

    def _relations(self, now: Snapshot) -> list[Primitive]:
        """Gears, belts and racks."""
        named = zip(self.linkage.connectivity.relations, np.asarray(self.numbers.relations), strict=True)
        return [piece for (name, joints, _), factors in named for piece in relation(now, name, joints, factors)]

    def pieces(self, now: Snapshot) -> list[Primitive]:
        """Everything at an instant, in the order in which it is drawn in the plane."""
        before, after = self.symbols(now)
        return [*before, *(piece for body in self.bodies(now.poses) for piece in body), *after]

    def bodies(self, poses: np.ndarray | None = None) -> list[list[Primitive]]:
        """Ground and bodies at poses (n + 1, D, D), or each in its own frame."""
        poses = np.stack([np.eye(self.dim + 1)] * len(self.solids)) if poses is None else poses
        placed = zip(("ground", *self.linkage.bodies), self.solids, poses, strict=True)
        return [
            [*of_solid(self.dim, name, solid.transform(pose), of_body(i))]
            for i, (name, solid, pose) in enumerate(placed)
        ]

    def symbols(self, now: Snapshot) -> tuple[list[Primitive], list[Primitive]]:
        """All but the bodies: what is drawn before them, and what after."""
        numbers = self.numbers
        before = (*(contact(now, link) for link in self.links if link.rolls), anchors(now))
        after = (
            *(guide_symbol(now, link) for link in self.links if link.slides),
            *(rod(now, *now.ends(link), link.name) for link in self.links if link.is_rod),
            self._relations(now),
            *(passive(now, force) for force in numbers.forces),
            *(joint_symbol(now, link) for link in self.links),
            *(drive(now, element) for element in self.elements),
        )
        return [piece for part in before for piece in part], [piece for part in after for piece in part]

    @property
    def elements(self) -> tuple[Any, ...]:
        """What moves the mechanism or loads it."""
        return *self.numbers.drivers, *self.numbers.actuators, *self.numbers.forces

    def arrows(self, now: Snapshot) -> dict[str, np.ndarray]:
        """By name of what moves the mechanism or loads it."""
        lines = {element.name: arrows(now, element) for element in self.elements}
        return {name: points[0] for name, points in lines.items() if points}
