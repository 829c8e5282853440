"""What a built mechanism consists of: its structure, which is static, and its numbers."""

import dataclasses
from collections import defaultdict
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg import SINGULAR
from ..system import AbstractJoints, Topology
from .connection import AbstractJoint
from .marker import GROUND, Marker
from .pose import taken
from .tree import Hinges, JointPlace, Limb, Skeleton, Ties

S = TypeVar("S", bound="AbstractStructure")


class Frames(eqx.Module):
    """The frames of a group of joints or connections.

    Attributes:
        a: poses of A in their bodies (n, D, D).
        b: poses of B in their bodies (n, D, D).
        numbers: what else the connections read (n, k).
    """

    a: Float[Array, "n D D"]
    b: Float[Array, "n D D"]
    numbers: Float[Array, "n k"]

    def of(self, entries: tuple[int, ...]) -> "Frames":
        """Those of some connections."""
        return Frames(*(taken(x, np.array(entries, int)) for x in (self.a, self.b, self.numbers)))


class Numbers(eqx.Module):
    """All numbers of a built mechanism: the `params` of its system.

    Attributes:
        inertia: ∫ x̃ x̃ᵀ dm of each body in its frame (n, D, D), x̃ = (x, 1).
        gravity: acceleration of gravity (d,) in m/s².
        frames: those of the connections, by group.
        points: local poses (k, D, D) of the named points.
        relations: factors and offsets (r, 3) of the relations between joint coordinates.
        drivers, forces, actuators: the elements themselves.
        params: the user's, which user functions get.
    """

    inertia: Float[Array, "n D D"]
    gravity: Float[Array, " d"]
    frames: tuple[Frames, ...]
    points: Float[Array, "k D D"]
    relations: Float[Array, "r 3"]
    drivers: tuple[Any, ...]
    forces: tuple[Any, ...]
    actuators: tuple[Any, ...]
    params: Any


class AbstractStructure(AbstractJoints):
    """The structure of a built mechanism, without numbers; equal structures share compiled programs.

    Attributes:
        skeleton: what all builds of the mechanism have in common.
        parents: number of each body's parent, −1 for ground.
        hinges: the joints of the tree.
        ties: the connections that are constraints.
        joints: where each joint is found.
        turns: coordinates that count full turns of joints outside the tree: (joint, its coordinate).
        rows: names and numbers of the holonomic rows, in the order of the mechanism.
        slips: names and numbers of the nonholonomic rows.
        coordinates, velocities: their names.
        one_by_one: whether bodies are evaluated one after the other (`recursion.py`), not all at once.
        by_angles: whether rows hold angles in place of their sines.
    """

    skeleton: Skeleton = eqx.field(static=True)
    parents: tuple[int, ...] = eqx.field(static=True)
    hinges: tuple[Hinges, ...] = eqx.field(static=True)
    ties: tuple[Ties, ...] = eqx.field(static=True)
    joints: tuple[tuple[str, JointPlace], ...] = eqx.field(static=True)
    turns: tuple[tuple[str, int], ...] = eqx.field(static=True)
    rows: tuple[tuple[str, int], ...] = eqx.field(static=True)
    slips: tuple[tuple[str, int], ...] = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)
    one_by_one: bool = eqx.field(static=True, default=False)
    by_angles: bool = eqx.field(static=True, default=False)

    def unrolled(self: S) -> S:
        """Bodies one after the other."""
        return dataclasses.replace(self, one_by_one=True)

    def for_search(self: S) -> S:
        """Rows of angles."""
        return dataclasses.replace(self, by_angles=True)

    @classmethod
    def of(cls: type[S], skeleton: Skeleton, limbs: tuple[Limb, ...]) -> S:
        """The structure of a build with a given tree."""
        hinges, coordinates, velocities, places = _hinges(skeleton, limbs)
        ties, closing = _ties(skeleton, {limb.joint for limb in limbs})
        turns = []
        for name in skeleton.counted:
            joint, _, part = name.partition(".")
            if joint in closing:
                place = closing[joint]
                index = place.pair.coordinates.index(part) if part in place.pair.coordinates else 0
                if place.pair.angles[index] and (joint, index) not in turns:
                    q = tuple(len(coordinates) if i == index else k for i, k in enumerate(place.q))
                    closing[joint] = dataclasses.replace(place, q=q)
                    coordinates.append(f"{joint}.turns")
                    turns.append((joint, index))
        return cls(
            skeleton=skeleton,
            parents=tuple(limb.parent for limb in limbs),
            hinges=hinges,
            ties=ties,
            joints=tuple((places | closing).items()),
            turns=tuple(turns),
            rows=tuple(row for row in skeleton.rows if row[0] not in places),
            slips=skeleton.slips,
            coordinates=tuple(coordinates),
            velocities=tuple(velocities),
        )

    @property
    def untied(self: S) -> S:
        """The structure in absolute coordinates."""
        return self.of(self.skeleton, tuple(Limb(-1, None, False) for _ in self.bodies))

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.skeleton.dim

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies."""
        return self.skeleton.bodies

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return len(self.velocities)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the joints."""
        return tuple(name for name, _ in self.joints)

    @property
    def topology(self) -> Topology:
        """The skeleton's."""
        return self.skeleton.topology

    def drivers(self, params: Numbers) -> dict[str, str | None]:
        """The joint coordinate of each driver, by its name."""
        return {driver.name: getattr(driver, "joint", None) for driver in params.drivers}

    def without_inertia(self, params: Numbers) -> tuple[str, ...]:
        """Those without mass, and those of which the smallest moment of inertia vanishes beside the largest."""
        spread = np.asarray(params.inertia)
        mass, first = spread[:, -1, -1], spread[:, :-1, -1]
        at = first / np.where(mass > 0, mass, 1)[:, None]
        about = spread[:, :-1, :-1] - mass[:, None, None] * at[:, :, None] * at[:, None, :]
        moments = np.linalg.eigvalsh(about)
        total = moments.sum(axis=1)
        # The moment about the axis of the largest spread is what is left of the others: in the plane there is one moment only.
        least = total if self.dim == 2 else total - moments[:, -1]
        size = np.trace(spread[:, :-1, :-1], axis1=1, axis2=2)
        limit = SINGULAR * np.finfo(spread.dtype).eps * size
        return tuple(np.array(self.bodies)[(mass <= 0) | (least <= limit)].tolist())

    def place(self, joint: str) -> JointPlace:
        """Where a joint is found."""
        places = dict(self.joints)
        if joint not in places:
            raise ValueError(f"There is no joint '{joint}'; there are {', '.join(places) or 'none'}.")
        return places[joint]

    def locate(self, at: Marker, numbers: Numbers) -> tuple[int, Float[Array, "D D"]]:
        """The number of a marker's body, 0 for ground, and its pose there."""
        bodies = (GROUND, *self.bodies)
        if at.body not in bodies:
            raise ValueError(f"There is no body '{at.body}'; there are {', '.join(bodies)}.")
        if at.point is None:
            local = jnp.eye(self.dim + 1, dtype=numbers.inertia.dtype) if at.local is None else at.local
            return bodies.index(at.body), local
        if str(at) not in self.skeleton.points:
            known = [p for p in self.skeleton.points if p.startswith(at.body + ".")]
            raise ValueError(f"There is no point '{at}'; '{at.body}' has {', '.join(known) or 'none'}.")
        return bodies.index(at.body), numbers.points[self.skeleton.points.index(str(at))]

    def index(self, name: str, what: str) -> tuple[str, int]:
        """Joint and number of the coordinate, or velocity, called "joint" or "joint.part"."""
        joint, _, part = name.partition(".")
        pair = self.place(joint).pair
        known = pair.coordinates if what == "coordinates" else pair.velocities
        if len(known) == 1 and part in ("", known[0]):
            return joint, 0
        if part not in known:
            raise ValueError(f"Joint '{joint}' has the {what} {', '.join(known) or 'none'}, but not '{part}'.")
        return joint, known.index(part)

    @property
    def angles(self) -> set[int]:
        """The coordinates that are angles."""
        found = set(range(self.nq - len(self.turns), self.nq))
        for group in self.hinges:
            found |= {q[i] for q in group.q for i, is_angle in enumerate(group.pair.angles) if is_angle}
        return found

    @property
    def units(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """SI units of coordinates and velocities."""
        q = {i: unit for h in self.hinges for at in h.q for i, unit in zip(at, h.pair.units, strict=True)}
        v = {i: unit for h in self.hinges for at in h.v for i, unit in zip(at, h.pair.rate_units, strict=True)}
        return tuple(q.get(i, "rad") for i in range(self.nq)), tuple(v[i] for i in range(self.nv))

    @property
    def moves(self) -> np.ndarray:
        """For each body (n,) and velocity (nv,) whether the velocity moves the body."""
        above = np.zeros((len(self.bodies), self.nv), bool)
        own: list[list[int]] = [[] for _ in self.bodies]
        for group in self.hinges:
            for body, v in zip(group.bodies, group.v, strict=True):
                own[body] = list(v)
        for body in range(len(self.bodies)):
            at = body
            while at >= 0:
                above[body, own[at]] = True
                at = self.parents[at]
        return above

    @property
    def loops(self) -> dict[str, tuple[str, ...]]:
        """The joints of each loop in order, by the name of the connection that closes it."""
        names = [group.names for group in self.skeleton.groups]
        own = {
            b: names[h.group][e]
            for h in self.hinges
            if h.group is not None
            for b, e in zip(h.bodies, h.entries, strict=True)
        }

        def below(body: int) -> list[int]:
            return [] if body < 0 else [*below(self.parents[body]), body]

        found = {}
        for tie in self.ties:
            for name, a, b in zip(tie.names, tie.a, tie.b, strict=True):
                one, other = below(a - 1), below(b - 1)
                up = [own[x] for x in one if x not in other and x in own]
                down = [own[x] for x in reversed(other) if x not in one and x in own]
                if up or down:
                    found[name] = (*up, name, *down)
        return found


def _hinges(
    skeleton: Skeleton, limbs: tuple[Limb, ...]
) -> tuple[tuple[Hinges, ...], list[str], list[str], dict[str, JointPlace]]:
    """The joints of the tree by class, names of coordinates and velocities, and where these joints are found."""
    where = {name: (g, i) for g, group in enumerate(skeleton.groups) for i, name in enumerate(group.names)}
    coordinates: list[str] = []
    velocities: list[str] = []
    groups: dict[int | None, list] = defaultdict(list)
    places: dict[str, JointPlace] = {}
    for body, limb in enumerate(limbs):
        group, entry = (None, 0) if limb.joint is None else where[limb.joint]
        pair = skeleton.free if group is None else skeleton.groups[group].kind.pair
        name = limb.joint or skeleton.bodies[body]
        q = tuple(range(len(coordinates), len(coordinates) + len(pair.coordinates)))
        v = tuple(range(len(velocities), len(velocities) + len(pair.velocities)))
        coordinates += _names(name, pair.coordinates)
        velocities += _names(name, pair.velocities)
        groups[group].append((pair, body, limb.flipped, q, v, entry))
        if group is not None:
            ends = skeleton.groups[group].a[entry], skeleton.groups[group].b[entry]
            places[name] = JointPlace(pair, True, *ends, group, entry, q, v)
    hinges = []
    for group, members in groups.items():
        pairs, bodies, flipped, q, v, entries = (tuple(x) for x in zip(*members, strict=True))
        hinges.append(Hinges(pairs[0], bodies, flipped, q, v, group, entries))
    return tuple(hinges), coordinates, velocities, places


def _names(name: str, parts: tuple[str, ...]) -> list[str]:
    return [name] if len(parts) == 1 else [f"{name}.{part}" for part in parts]


def _ties(skeleton: Skeleton, in_tree: set[str | None]) -> tuple[tuple[Ties, ...], dict[str, JointPlace]]:
    """The connections that are constraints by class, and where joints among them are found."""
    ties, places = [], {}
    for g, group in enumerate(skeleton.groups):
        members = [
            (i, name, a, b)
            for i, (name, a, b) in enumerate(zip(group.names, group.a, group.b, strict=True))
            if name not in in_tree
        ]
        if members:
            entries, names, a, b = (tuple(x) for x in zip(*members, strict=True))
            ties.append(Ties(group.kind, names, a, b, g, entries))
            if issubclass(group.kind, AbstractJoint):
                pair = group.kind.pair
                none = (-1,) * len(pair.coordinates)
                places |= {name: JointPlace(pair, False, x, y, g, i, none, ()) for i, name, x, y in members}
    return tuple(ties), places
