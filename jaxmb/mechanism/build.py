"""From the elements of a mechanism to the structure and the numbers of its system."""

import dataclasses
from collections import defaultdict
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..foundations import as_parameters
from ..system import Dragged, Held, LockRow, Mode, System
from .checks import check_forces
from .connection import AbstractConnection, AbstractJoint, AbstractRelation
from .elements import AbstractElements, local_pose
from .friction import joint_loads, resistance
from .linkage import Linkage
from .marker import GROUND
from .pose import pose
from .structure import Frames, Numbers
from .systems import system_of
from .tree import Group, Hinges, JointPlace, Limb, Skeleton, Ties


def build(mechanism: AbstractElements, limbs: tuple[Limb, ...]) -> System:
    """The system of a mechanism with a given tree."""
    points = {f"{GROUND}.{k}": v for k, v in mechanism.points.items()}
    points |= {f"{b.name}.{k}": v for b in mechanism.bodies for k, v in b.points.items()}
    relations = [r for r in mechanism.joints if isinstance(r, AbstractRelation)]
    size = mechanism.gravity.shape[0] + 1
    groups = _groups(mechanism)
    numbers = Numbers(
        inertia=jnp.stack([b.spread() for b in mechanism.bodies]),
        gravity=mechanism.gravity,
        frames=tuple(_frames(mechanism, members) for members in groups.values()),
        points=jnp.stack(list(points.values())) if points else jnp.zeros((0, size, size)),
        relations=jnp.stack([r.factors() for r in relations]) if relations else jnp.zeros((0, 3)),
        drivers=mechanism.drivers,
        forces=mechanism.forces,
        actuators=mechanism.actuators,
        params=as_parameters(mechanism.params),
    )
    linkage = structure(_skeleton(mechanism, groups, tuple(points)), limbs)
    check_forces(linkage, numbers)
    poses = jnp.concatenate([jnp.eye(size)[None], jnp.stack([b.pose for b in mechanism.bodies])])
    return system_of(linkage, numbers, linkage.measure(poses, numbers), _resistance(linkage))


def absolute(system: System) -> System:
    """The system of the same mechanism in absolute coordinates; `params` stay what they are.

    A system that was not built from a mechanism is returned as it is.
    """
    linkage: Linkage | None = system.joints
    if linkage is None:
        return system
    untied = _untied(linkage)
    free = system_of(untied, system.params, resistance=_resistance(untied))
    return free if system.active is None else free.in_mode(_same_mode(system, free))


class _Seen(eqx.Module):
    """A function of the coordinates of one build as a function of those of another."""

    fn: Any
    own: Linkage
    other: Linkage

    def __call__(self, t: Array, q: Float[Array, " nq"], params: Any) -> Array:
        return self.fn(t, self.own.measure(self.other.poses(q, params), params), params)


def _same_mode(system: System, free: System) -> Mode:
    """The mode that a system is in, for its build in absolute coordinates."""
    assert system.active is not None
    locks = [c for c in system.constraints if isinstance(c.fn, Held)]
    active = [
        jnp.broadcast_to(
            system.active[system.rows[name].start] if name in system.rows else True, part.stop - part.start
        )
        for name, part in free.rows.items()
    ]
    rows = tuple(LockRow(c.name, _Seen(c.fn.fn, system.joints, free.joints)) for c in locks)
    drag = system.resistance_fn.drag if isinstance(system.resistance_fn, Dragged) else jnp.zeros(len(locks))
    held = jnp.stack([c.fn.value for c in locks]) if locks else jnp.zeros(0)
    own = [system.active[system.rows[c.name].start][None] for c in locks]
    return Mode(rows, jnp.concatenate([jnp.zeros(0, bool), *active, *own]), held, drag, jnp.zeros(0, bool))


def loads_at(
    system: System, t: Array, q: Float[Array, " nq"], v: Float[Array, " nv"], u: Float[Array, " nu"] | None
) -> Float[Array, " k"] | None:
    """The sizes of the reaction forces that force elements are proportional to; None where there are none."""
    linkage: Linkage = system.joints
    if not linkage.skeleton.loaded:
        return None
    return joint_loads(linkage, _untied(linkage), t, q, v, system.params, u)


def _untied(linkage: Linkage) -> Linkage:
    """The structure in absolute coordinates."""
    return structure(linkage.skeleton, tuple(Limb(-1, None, False) for _ in linkage.bodies))


def _resistance(linkage: Linkage) -> Partial | None:
    """The forces that depend on reactions, as a function."""
    return Partial(resistance, linkage, _untied(linkage)) if linkage.skeleton.loaded else None


# Numbers


def _groups(mechanism: AbstractElements) -> dict[type, list[AbstractConnection]]:
    """The connections by class."""
    groups: dict[type, list[AbstractConnection]] = defaultdict(list)
    for connection in mechanism.joints:
        if isinstance(connection, AbstractConnection):
            groups[type(connection)].append(connection)
    return groups


def _frames(mechanism: AbstractElements, connections: list[AbstractConnection]) -> Frames:
    a, b = [], []
    for c in connections:
        for frames, marker, turn in zip((a, b), (c.a, c.b), c.turns() or (None, None), strict=True):
            local = local_pose(mechanism, marker, c.name)
            frames.append(local if turn is None else local @ pose(turn, jnp.zeros(turn.shape[0])))
    return Frames(jnp.stack(a), jnp.stack(b), jnp.stack([c.data() for c in connections]))


# Structure


def _skeleton(
    mechanism: AbstractElements, groups: dict[type, list[AbstractConnection]], points: tuple[str, ...]
) -> Skeleton:
    number = {GROUND: 0} | {b.name: i + 1 for i, b in enumerate(mechanism.bodies)}
    relations = [r for r in mechanism.joints if isinstance(r, AbstractRelation)]
    counted = [name for r in relations for name in r.joints]
    counted += [name for f in mechanism.forces for name in f.coordinates()]
    rows = [(e.name, e.holonomic) for e in mechanism.joints if e.holonomic]
    slips = [(c, c.nonholonomic) for c in mechanism.joints if isinstance(c, AbstractConnection) and c.nonholonomic]
    return Skeleton(
        dim=mechanism.gravity.shape[0],
        bodies=tuple(b.name for b in mechanism.bodies),
        points=points,
        free=mechanism.free,
        groups=tuple(
            Group(kind, tuple(c.name for c in m), *(tuple(number[getattr(c, e).body] for c in m) for e in ("a", "b")))
            for kind, m in groups.items()
        ),
        relations=tuple((r.name, r.joints) for r in relations),
        counted=tuple(dict.fromkeys(counted)),
        loaded=tuple(dict.fromkeys(name for f in mechanism.forces for name in f.loads())),
        rows=(*rows, *((d.name, 1) for d in mechanism.drivers if d.holonomic)),
        slips=(
            *((c.slip_name(c.name), count) for c, count in slips),
            *((d.name, 1) for d in mechanism.drivers if not d.holonomic),
        ),
    )


def structure(skeleton: Skeleton, limbs: tuple[Limb, ...]) -> Linkage:
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
    return Linkage(
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
