"""From the elements of a mechanism to the structure and the numbers of its system."""

from collections import defaultdict

import numpy as np
from jaxtyping import Array, Float

from ..foundations import as_jax, as_parameters, program, stacked
from ..system import System
from .checks import check_forces
from .connection import AbstractConnection, AbstractRelation
from .elements import AbstractElements, local_pose
from .friction import complete_system
from .joints import Linkage
from .marker import GROUND
from .pose import pose, product
from .structure import Frames, Numbers
from .tree import Group, Limb, Skeleton


def build(mechanism: AbstractElements, limbs: tuple[Limb, ...]) -> System:
    """The system of a mechanism with a given tree."""
    points = _points(mechanism)
    relations = [r for r in mechanism.joints if isinstance(r, AbstractRelation)]
    size = mechanism.gravity.shape[0] + 1
    numbers = Numbers(
        inertia=stacked([b.spread() for b in mechanism.bodies]),
        gravity=mechanism.gravity,
        frames=tuple(_frames(mechanism, members) for members in _groups(mechanism).values()),
        points=stacked(list(points.values())) if points else as_jax(np.zeros((0, size, size))),
        relations=stacked([r.factors() for r in relations]) if relations else as_jax(np.zeros((0, 3))),
        drivers=mechanism.drivers,
        forces=mechanism.forces,
        actuators=mechanism.actuators,
        params=as_parameters(mechanism.params),
    )
    linkage = Linkage.of(skeleton(mechanism), limbs)
    check_forces(linkage, numbers)
    poses = stacked([np.eye(size), *(b.pose for b in mechanism.bodies)])
    return complete_system(linkage, numbers, _measured(linkage, poses, numbers))


@program
def _measured(linkage: Linkage, poses: Float[Array, "n D D"], numbers: Numbers) -> Float[Array, " nq"]:
    return linkage.measure(poses, numbers)


# Numbers


def _points(mechanism: AbstractElements) -> dict[str, Array]:
    """Local poses of the named points."""
    points = {f"{GROUND}.{k}": v for k, v in mechanism.points.items()}
    return points | {f"{b.name}.{k}": v for b in mechanism.bodies for k, v in b.points.items()}


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
            local = local_pose(mechanism, marker, f"Element '{c.name}'")
            frames.append(local if turn is None else product(local, pose(turn, np.zeros(turn.shape[0]))))
    return Frames(stacked(a), stacked(b), stacked([c.data() for c in connections]))


# Structure


def skeleton(mechanism: AbstractElements) -> Skeleton:
    """What all builds of a mechanism have in common."""
    number = {GROUND: 0} | {b.name: i + 1 for i, b in enumerate(mechanism.bodies)}
    relations = [r for r in mechanism.joints if isinstance(r, AbstractRelation)]
    counted = [name for r in relations for name in r.joints]
    counted += [name for f in mechanism.forces for name in f.coordinates()]
    rows = [(e.name, e.holonomic) for e in mechanism.joints if e.holonomic]
    slips = [(c, c.nonholonomic) for c in mechanism.joints if isinstance(c, AbstractConnection) and c.nonholonomic]
    return Skeleton(
        dim=mechanism.gravity.shape[0],
        bodies=tuple(b.name for b in mechanism.bodies),
        points=tuple(_points(mechanism)),
        strokes=tuple(b.strokes for b in mechanism.bodies),
        free=mechanism.free,
        groups=tuple(
            Group(kind, tuple(c.name for c in m), *(tuple(number[getattr(c, e).body] for c in m) for e in ("a", "b")))
            for kind, m in _groups(mechanism).items()
        ),
        relations=tuple((r.name, r.joints, type(r)) for r in relations),
        counted=tuple(dict.fromkeys(counted)),
        loaded=tuple(dict.fromkeys(name for f in mechanism.forces for name in f.loads())),
        rows=(*rows, *((d.name, 1) for d in mechanism.drivers if d.holonomic)),
        slips=(
            *((c.slip_name(c.name), count) for c, count in slips),
            *((d.name, 1) for d in mechanism.drivers if not d.holonomic),
        ),
    )
