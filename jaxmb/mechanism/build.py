"""From the elements of a mechanism to the structure and the numbers of its system."""

from collections import defaultdict

import numpy as np
from jaxtyping import Array, Float

from ..foundations import as_jax, as_parameters, in_numpy, program, stacked
from ..system import System
from .checks import check_forces
from .connection import AbstractConnection, AbstractRelation
from .elements import AbstractElements, local_pose
from .friction import complete_system
from .joints import Linkage
from .marker import GROUND
from .pose import pose
from .structure import Frames, Numbers
from .tree import Connectivity, Group, TreeEdge


def build(mechanism: AbstractElements, edges: tuple[TreeEdge, ...]) -> System:
    """The system of a mechanism with a given tree."""
    points = _points(mechanism)
    relations = _relations(mechanism)
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
    linkage = Linkage.of(connectivity(mechanism), edges)
    check_forces(linkage, numbers)
    # The guess of a build is measured from the poses that the bodies were made with, so that one drawing serves all
    # coordinates.
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
    # All connections of a class are evaluated by one `vmap`, so that programs grow with the number of classes, not of
    # joints.
    groups: dict[type, list[AbstractConnection]] = defaultdict(list)
    for connection in mechanism.joints:
        if isinstance(connection, AbstractConnection):
            groups[type(connection)].append(connection)
    return groups


def _frames(mechanism: AbstractElements, connections: list[AbstractConnection]) -> Frames:
    a, b = [], []
    for c in connections:
        for frames, marker, turn in zip((a, b), (c.a, c.b), c.frame_rotations() or (None, None), strict=True):
            local = local_pose(mechanism, marker, f"Element '{c.name}'")
            if turn is not None:
                local, turned = in_numpy(local, pose(turn, np.zeros(turn.shape[0])))
                local = local @ turned
            frames.append(local)
    return Frames(stacked(a), stacked(b), stacked([c.data() for c in connections]))


# Structure


def connectivity(mechanism: AbstractElements) -> Connectivity:
    """The graph of bodies and connections, common to all builds of a mechanism."""
    number = {GROUND: 0} | {b.name: i + 1 for i, b in enumerate(mechanism.bodies)}
    rows, slips = _row_counts(mechanism)
    return Connectivity(
        dim=mechanism.gravity.shape[0],
        bodies=tuple(b.name for b in mechanism.bodies),
        points=tuple(_points(mechanism)),
        strokes=tuple(b.strokes for b in mechanism.bodies),
        free=mechanism.free,
        groups=tuple(
            Group(
                kind=kind,
                names=tuple(c.name for c in members),
                a=tuple(number[c.a.body] for c in members),
                b=tuple(number[c.b.body] for c in members),
            )
            for kind, members in _groups(mechanism).items()
        ),
        relations=tuple((r.name, r.joints, type(r)) for r in _relations(mechanism)),
        multi_turn=_multi_turn(mechanism),
        load_joints=tuple(dict.fromkeys(name for f in mechanism.forces for name in f.loads())),
        rows=rows,
        slips=slips,
    )


def _relations(mechanism: AbstractElements) -> list[AbstractRelation]:
    return [relation for relation in mechanism.joints if isinstance(relation, AbstractRelation)]


def _multi_turn(mechanism: AbstractElements) -> tuple[str, ...]:
    """Joint coordinates whose full turns matter."""
    # Gears and springs read full turns of an angle, which a pose does not hold: where such a joint closes a loop, they are
    # counted by a coordinate of their own.
    names = [name for relation in _relations(mechanism) for name in relation.joints]
    names += [name for force in mechanism.forces for name in force.coordinates()]
    # Without repetition and in order of appearance: a set of strings has another order in each process, and compiled programs
    # kept on disk would not be found again.
    return tuple(dict.fromkeys(names))


def _row_counts(mechanism: AbstractElements) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Names and numbers of holonomic and of nonholonomic rows: of joints, then of drivers, each in the order of the mechanism."""
    connections = [c for c in mechanism.joints if isinstance(c, AbstractConnection)]
    rows = [(joint.name, joint.holonomic) for joint in mechanism.joints if joint.holonomic]
    slips = [(c.slip_name(c.name), c.nonholonomic) for c in connections if c.nonholonomic]
    for driver in mechanism.drivers:
        (rows if driver.holonomic else slips).append((driver.name, 1))
    return tuple(rows), tuple(slips)
