"""From the elements of a mechanism to the structure and the numbers of its system."""

from collections import defaultdict
from typing import Any

import jax.numpy as jnp
from jax.tree_util import Partial

from ..foundations import as_parameters
from ..system import Holonomic, Pfaffian, System
from .connection import AbstractConnection, AbstractJoint, AbstractRelation
from .elements import AbstractElements, local_pose
from .inertia import LinkageInertia
from .linkage import Linkage
from .marker import GROUND
from .pair import AbstractPair
from .pose import pose
from .structure import Frames, Numbers
from .tree import Hinges, JointPlace, Limb, Ties


def build(mechanism: AbstractElements, limbs: tuple[Limb, ...]) -> System:
    """The system of a mechanism with a given tree."""
    hinges, coordinates, velocities, hinge_frames, places = _hinges(mechanism, limbs)
    ties, tie_frames, closing = _ties(mechanism, [limb.joint for limb in limbs])
    turns = _turns(mechanism, closing)
    for i, (joint, index) in enumerate(turns):
        q = list(closing[joint].q)
        q[index] = len(coordinates) + i
        closing[joint] = JointPlace(
            closing[joint].pair, False, closing[joint].group, closing[joint].entry, tuple(q), ()
        )
    points = {f"{GROUND}.{k}": v for k, v in mechanism.points.items()}
    points |= {f"{b.name}.{k}": v for b in mechanism.bodies for k, v in b.points.items()}
    relations = [r for r in mechanism.joints if isinstance(r, AbstractRelation)]
    rows, slips = _rows(mechanism, [limb.joint for limb in limbs])
    size = mechanism.gravity.shape[0] + 1
    linkage = Linkage(
        dim=size - 1,
        bodies=tuple(b.name for b in mechanism.bodies),
        parents=tuple(limb.parent for limb in limbs),
        hinges=hinges,
        ties=ties,
        points=tuple(points),
        joints=tuple((places | closing).items()),
        turns=turns,
        relations=tuple((r.name, r.joints) for r in relations),
        rows=rows,
        slips=slips,
        nq=len(coordinates) + len(turns),
        nv=len(velocities),
    )
    numbers = Numbers(
        inertia=jnp.stack([b.spread() for b in mechanism.bodies]),
        gravity=mechanism.gravity,
        hinges=hinge_frames,
        ties=tie_frames,
        points=jnp.stack(list(points.values())) if points else jnp.zeros((0, size, size)),
        relations=jnp.stack([r.factors() for r in relations]) if relations else jnp.zeros((0, 3)),
        drivers=mechanism.drivers,
        forces=mechanism.forces,
        actuators=mechanism.actuators,
        params=as_parameters(mechanism.params),
    )
    coordinates += [f"{joint}.turns" for joint, _ in turns]
    return _system(mechanism, linkage, numbers, coordinates, velocities)


def _system(
    mechanism: AbstractElements, linkage: Linkage, numbers: Numbers, coordinates: list[str], velocities: list[str]
) -> System:
    constraints = []
    if linkage.rows:
        constraints.append(Holonomic("positions", Partial(Linkage.residual, linkage), parts=dict(linkage.rows)))
    if linkage.slips:
        constraints.append(Pfaffian("velocities", Partial(Linkage.slip, linkage), parts=dict(linkage.slips)))
    plain = not linkage.turns and all(h.pair.coordinates == h.pair.velocities for h in linkage.hinges)
    poses = jnp.concatenate([jnp.eye(linkage.dim + 1)[None], jnp.stack([b.pose for b in mechanism.bodies])])
    breaks = [driver.breaks for driver in mechanism.drivers if driver.breaks.size]
    return System(
        coordinates,
        inertia=LinkageInertia(linkage),
        force=Partial(Linkage.applied_force, linkage) if mechanism.forces else None,
        constraints=constraints,
        params=numbers,
        velocities=velocities,
        rate=None if plain else Partial(Linkage.rate, linkage),
        normalise=None if plain else Partial(Linkage.normalise, linkage),
        actuation=Partial(Linkage.actuation, linkage) if mechanism.actuators else None,
        guess=linkage.measure(poses, numbers),
        breaks=jnp.sort(jnp.concatenate(breaks)) if breaks else None,
        joints=linkage,
    )


def _frames(mechanism: AbstractElements, connections: list[AbstractConnection]) -> Frames:
    """The frames of connections of one class."""
    a, b = [], []
    for c in connections:
        for frames, marker, turn in zip((a, b), (c.a, c.b), c.turns(), strict=True):
            frames.append(local_pose(mechanism, marker, c.name) @ pose(turn, jnp.zeros(turn.shape[0])))
    return Frames(jnp.stack(a), jnp.stack(b), jnp.stack([c.data() for c in connections]))


def _free_frames(mechanism: AbstractElements, count: int) -> Frames:
    frames = jnp.broadcast_to(jnp.eye(mechanism.gravity.shape[0] + 1), (count, *2 * (mechanism.gravity.shape[0] + 1,)))
    return Frames(frames, frames, jnp.zeros((count, 0)))


def _hinges(mechanism: AbstractElements, limbs: tuple[Limb, ...]) -> tuple[Any, list[str], list[str], Any, dict]:
    """The joints of the tree by pair, names of coordinates and velocities, frames, and where the joints are found."""
    joints = {j.name: j for j in mechanism.joints}
    coordinates: list[str] = []
    velocities: list[str] = []
    groups: dict[tuple[AbstractPair, bool], list] = defaultdict(list)
    for body, limb in enumerate(limbs):
        joint = None if limb.joint is None else joints[limb.joint]
        pair = mechanism.free if joint is None else joint.pair
        name = mechanism.bodies[body].name if joint is None else joint.name
        q = tuple(range(len(coordinates), len(coordinates) + len(pair.coordinates)))
        v = tuple(range(len(velocities), len(velocities) + len(pair.velocities)))
        coordinates += _names(name, pair.coordinates)
        velocities += _names(name, pair.velocities)
        groups[pair, joint is None].append((body, limb.flipped, q, v, joint))
    hinges, frames, places = [], [], {}
    for i, ((pair, free), members) in enumerate(groups.items()):
        bodies, flipped, q, v, connections = (tuple(x) for x in zip(*members, strict=True))
        hinges.append(Hinges(pair, bodies, flipped, q, v, free))
        frames.append(_free_frames(mechanism, len(members)) if free else _frames(mechanism, list(connections)))
        places |= {c.name: JointPlace(pair, True, i, k, q[k], v[k]) for k, c in enumerate(connections) if not free}
    return tuple(hinges), coordinates, velocities, tuple(frames), places


def _names(name: str, parts: tuple[str, ...]) -> list[str]:
    return [name] if len(parts) == 1 else [f"{name}.{part}" for part in parts]


def _ties(mechanism: AbstractElements, in_tree: list[str | None]) -> tuple[Any, Any, dict[str, JointPlace]]:
    """The connections that are constraints by class, their frames, and where joints among them are found."""
    number = {GROUND: 0} | {b.name: i + 1 for i, b in enumerate(mechanism.bodies)}
    groups: dict[type, list] = defaultdict(list)
    for c in mechanism.joints:
        if isinstance(c, AbstractConnection) and c.name not in in_tree:
            groups[type(c)].append(c)
    ties, frames, places = [], [], {}
    for i, (kind, members) in enumerate(groups.items()):
        a, b = (tuple(number[getattr(c, end).body] for c in members) for end in ("a", "b"))
        ties.append(Ties(kind, tuple(c.name for c in members), a, b))
        frames.append(_frames(mechanism, members))
        if issubclass(kind, AbstractJoint):
            none = (-1,) * len(kind.pair.coordinates)
            places |= {c.name: JointPlace(kind.pair, False, i, k, none, ()) for k, c in enumerate(members)}
    return tuple(ties), tuple(frames), places


def _turns(mechanism: AbstractElements, closing: dict[str, JointPlace]) -> tuple[tuple[str, int], ...]:
    """The angles of joints outside the tree whose full turns matter, since relations or springs read them."""
    asked = [name for r in mechanism.joints if isinstance(r, AbstractRelation) for name in r.joints]
    asked += [name for f in mechanism.forces for name in f.coordinates()]
    found = []
    for name in asked:
        joint, _, part = name.partition(".")
        if joint in closing:
            pair = closing[joint].pair
            index = pair.coordinates.index(part) if part in pair.coordinates else 0
            if pair.angles and pair.angles[index]:
                found.append((joint, index))
    return tuple(dict.fromkeys(found))


def _rows(mechanism: AbstractElements, in_tree: list[str | None]) -> tuple[Any, Any]:
    """Names and numbers of holonomic and nonholonomic rows, in the order of joints and drivers."""
    rows: list[tuple[str, int]] = []
    slips: list[tuple[str, int]] = []
    for element in mechanism.joints:
        if element.name in in_tree:
            continue
        if element.holonomic:
            rows.append((element.name, element.holonomic))
        if isinstance(element, AbstractConnection) and element.nonholonomic:
            slips.append((element.slip_name(element.name), element.nonholonomic))
    for driver in mechanism.drivers:
        (rows if driver.holonomic else slips).append((driver.name, 1))
    return tuple(rows), tuple(slips)
