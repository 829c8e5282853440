"""The reference problems in Exudyn: bodies in absolute coordinates with all their joints, A05 also as a tree; and how they are run.

No row is taken out by hand: where rows are redundant, the linear solver is told to resolve singular Jacobians.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import exudyn as exu
import numpy as np
import problems
from exudyn import utilities as items
from problems import andrews_model as squeezer
from problems import bricard as linkage

POSITION = exu.OutputVariableType.Position
COORDINATES = exu.OutputVariableType.Coordinates
ALIGNED = np.eye(3)


@dataclasses.dataclass(frozen=True)
class Model:
    """A problem as Exudyn's items.

    Attributes:
        mbs: the assembled system.
        end: duration in s.
        answer: reads the answer off the system.
        redundant: whether rows are, or become, dependent.
    """

    mbs: exu.MainSystem
    end: float
    answer: Callable[[], Any]
    redundant: bool = False

    def run(self, solver: str, steps: int | None = None, tolerance: float = 1e-10) -> Callable[[], Any]:
        """A function that goes through the motion and gives the answer, None where the solver fails.

        Args:
            solver: name of one of `exu.DynamicSolverType`.
            steps: how many, all of one length; None leaves the length to the solver.
            tolerance: of Newton's method, or of a solver that chooses its steps.
        """
        settings = exu.SimulationSettings()
        settings.solution.file.write = False
        integration = settings.timeIntegration
        integration.verboseMode = 0
        integration.endTime = self.end
        integration.numberOfSteps = steps or 100
        integration.automaticStepSize = steps is None
        integration.absoluteTolerance = integration.relativeTolerance = tolerance
        integration.newton.relativeTolerance = integration.newton.absoluteTolerance = tolerance
        integration.newton.useModifiedNewton = True
        settings.linearSolver.solverType = exu.LinearSolverType.EigenDense
        settings.linearSolver.ignoreSingularJacobian = self.redundant
        kind = getattr(exu.DynamicSolverType, solver)

        def run():
            try:
                self.mbs.SolveDynamic(settings, solverType=kind)
            except (RuntimeError, ValueError):  # the solver gave up, and has said so
                return None
            return np.array(self.answer())

        return run


def new() -> exu.MainSystem:
    """A system that prints nothing."""
    exu.config.printToConsole = False
    return exu.SystemContainer().AddSystem()


@dataclasses.dataclass(frozen=True)
class PlanarBody:
    """A rigid body in the plane, whose points are given in a frame of its own."""

    mbs: exu.MainSystem
    node: int
    number: int
    centre: np.ndarray

    def point(self, *place: float) -> int:
        """A marker at a place (x, y) in the body's frame."""
        local = [*(np.array(place) - self.centre), 0.0]
        return self.mbs.AddMarker(items.MarkerBodyPosition(bodyNumber=self.number, localPosition=local))

    def weight(self, gravity: float) -> None:
        """Gravity along −y, in m/s²."""
        marker = self.mbs.AddMarker(items.MarkerBodyMass(bodyNumber=self.number))
        self.mbs.AddLoad(items.LoadMassProportional(markerNumber=marker, loadVector=[0, -gravity, 0]))


def planar(mbs, mass, moment, centre, origin, angle, velocity=(0.0, 0.0, 0.0)) -> PlanarBody:
    """A body whose frame is at an origin and angle; centre in that frame, velocity of the centre and angular velocity."""
    centre = np.asarray(centre)
    c, s = np.cos(angle), np.sin(angle)
    place = [*(np.asarray(origin) + np.array([[c, -s], [s, c]]) @ centre), angle]
    node = mbs.AddNode(items.NodeRigidBody2D(referenceCoordinates=place, initialVelocities=list(velocity)))
    number = mbs.AddObject(items.ObjectRigidBody2D(physicsMass=mass, physicsInertia=moment, nodeNumber=node))
    return PlanarBody(mbs, node, number, centre)


def fixed(mbs: exu.MainSystem, *place: float) -> int:
    """A marker on the ground."""
    ground = mbs.AddObject(items.ObjectGround(referencePosition=[*place, 0.0]))
    return mbs.AddMarker(items.MarkerBodyPosition(bodyNumber=ground))


def pins(mbs: exu.MainSystem, *pairs: tuple[int, int]) -> None:
    """Revolute joints in the plane between pairs of markers."""
    for pair in pairs:
        mbs.AddObject(items.ObjectJointRevolute2D(markerNumbers=list(pair)))


def pendulum() -> Model:
    """A01: a mass point in x and y at a constant distance from the pivot."""
    mbs = new()
    node = mbs.AddNode(items.NodePoint2D(referenceCoordinates=[-1, 0]))
    mass = mbs.AddObject(items.ObjectMassPoint2D(physicsMass=1, nodeNumber=node))
    marker = mbs.AddMarker(items.MarkerBodyPosition(bodyNumber=mass))
    mbs.AddLoad(items.LoadForceVector(markerNumber=marker, loadVector=[0, -9.81, 0]))
    mbs.AddObject(items.ObjectConnectorDistance(markerNumbers=[fixed(mbs, 0, 0), marker], distance=1))
    mbs.Assemble()
    return Model(mbs, problems.A01.end, lambda: mbs.GetNodeOutput(node, POSITION)[:2])


def nfourbar(n: int = 2) -> Model:
    """A02: 2n + 1 rods, 3n + 1 joints."""
    mbs = new()
    half = (0.5, 0.0)
    up = [planar(mbs, 1.0, 1 / 12, half, (i, 0), np.pi / 2, (0.5, 0, -1)) for i in range(n + 1)]
    across = [planar(mbs, 1.0, 1 / 12, half, (i, 1), 0.0, (1, 0, 0)) for i in range(n)]
    for rod in up + across:
        rod.weight(9.81)
    pins(mbs, *((fixed(mbs, i, 0), rod.point(0, 0)) for i, rod in enumerate(up)))
    for i, rod in enumerate(across):
        pins(mbs, (up[i].point(1, 0), rod.point(0, 0)), (up[i + 1].point(1, 0), rod.point(1, 0)))
    mbs.Assemble()
    head = lambda: mbs.GetObjectOutputBody(up[0].number, POSITION, localPosition=[0.5, 0, 0])[:2]
    return Model(mbs, problems.A02.end, head, redundant=True)


def andrews() -> Model:
    """A03: seven bodies, ten joints."""
    mbs, p = new(), squeezer.PARAMS
    beta, theta, gamma, phi, delta, omega, epsilon = (float(x) for x in problems.A03.built()[1].q)
    at = {k: (p["x" + k.lower()], p["y" + k.lower()]) for k in "ABC"}
    along = lambda angle: np.array([np.cos(angle), np.sin(angle)])
    across = lambda angle: np.array([-np.sin(angle), np.cos(angle)])
    crank = planar(mbs, p["m1"], p["i1"], (p["ra"], 0), (0, 0), beta)
    rod = planar(mbs, p["m2"], p["i2"], (-p["da"], 0), p["rr"] * along(beta), beta + theta)
    plate = planar(mbs, p["m3"], p["i3"], (p["sa"], -p["sb"]), at["B"], gamma)
    arm4 = planar(mbs, p["m4"], p["i4"], (0, p["ea"] - p["e"]), at["A"] + p["zt"] * along(delta), delta + phi)
    rocker5 = planar(mbs, p["m5"], p["i5"], (p["ta"], p["tb"]), at["A"], delta)
    arm6 = planar(mbs, p["m6"], p["i6"], (p["zf"] - p["fa"], 0), at["A"] - p["u"] * across(epsilon), epsilon + omega)
    rocker7 = planar(mbs, p["m7"], p["i7"], (p["ua"], -p["ub"]), at["A"], epsilon)
    pins(
        mbs,
        (fixed(mbs, 0, 0), crank.point(0, 0)),
        (crank.point(p["rr"], 0), rod.point(0, 0)),
        (fixed(mbs, *at["B"]), plate.point(0, 0)),
        (fixed(mbs, *at["A"]), rocker5.point(0, 0)),
        (rocker5.point(p["zt"], 0), arm4.point(0, 0)),
        (fixed(mbs, *at["A"]), rocker7.point(0, 0)),
        (rocker7.point(0, -p["u"]), arm6.point(0, 0)),
        (rod.point(-p["d"], 0), plate.point(0, -p["ss"])),
        (rod.point(-p["d"], 0), arm4.point(0, -p["e"])),
        (rod.point(-p["d"], 0), arm6.point(p["zf"], 0)),
    )
    spring = [fixed(mbs, *at["C"]), plate.point(p["sd"], -p["sc"])]
    mbs.AddObject(items.ObjectConnectorSpringDamper(markerNumbers=spring, referenceLength=p["l0"], stiffness=p["c0"]))
    turned = mbs.AddMarker(items.MarkerNodeRigid(nodeNumber=crank.node))
    mbs.AddLoad(items.LoadTorqueVector(markerNumber=turned, loadVector=[0, 0, p["mom"]]))
    mbs.Assemble()
    return Model(mbs, problems.A03.end, lambda: beta + mbs.GetNodeOutput(crank.node, COORDINATES)[2])


def spatial(
    mbs: exu.MainSystem, mass: float, moments: Any, centre: Any, gravity: Any, spin=0.0, rotation=ALIGNED
) -> int:
    """A rigid body with Euler parameters, its frame in the centre of mass, that turns about the world's z axis at a spin."""
    about = np.array([0, 0, spin])
    return mbs.CreateRigidBody(
        referencePosition=list(centre),
        referenceRotationMatrix=rotation,
        initialVelocity=list(np.cross(about, centre)),
        initialAngularVelocity=list(about),
        inertia=items.RigidBodyInertia(mass=mass, inertiaTensor=np.diag(moments)),
        gravity=list(gravity),
    )


def bricard() -> Model:
    """A04: five rods, six revolute joints."""
    mbs = new()
    ground = mbs.CreateGround()
    inertia = np.where(linkage.ALONG > 0, 1 / 600, 1.01 / 12)
    rods = [
        spatial(mbs, 1.0, J, centre, gravity=(0, -9.81, 0)) for J, centre in zip(inertia, linkage.CENTRES, strict=True)
    ]
    chain = [ground, *rods, ground]
    for i, (point, axis) in enumerate(zip(linkage.POINTS, linkage.AXES, strict=True)):
        mbs.CreateRevoluteJoint(bodyNumbers=chain[i : i + 2], position=list(point), axis=list(axis), show=False)
    mbs.Assemble()
    end = list(linkage.POINTS[2] - linkage.CENTRES[1])
    answer = lambda: mbs.GetObjectOutputBody(rods[1], POSITION, localPosition=end)
    return Model(mbs, problems.A04.end, answer, redundant=True)


ROD, SLIM, LONG, BALL = 0.3, 0.3 * (2 * 0.01**2) / 12, 0.3 * (1 + 0.01**2) / 12, 5.0
CENTRE = (ROD * 0.5 + BALL) / (ROD + BALL)  # of a rod with its ball, from the hinge
ACROSS = LONG + ROD * (CENTRE - 0.5) ** 2 + BALL * (1 - CENTRE) ** 2
TREE_INERTIA = {
    "spin": (ROD, (LONG, LONG, SLIM), (0, 0, 0.5)),
    "slide": (3.0, (3.0 * 0.02 / 12,) * 3, (0, 0, 0)),
    "hinge": (ROD + BALL, (SLIM, ACROSS, ACROSS), (CENTRE, 0, 0)),
}


def governor() -> Model:
    """A05: four bodies, four joints; the springs between points of bodies."""
    mbs, down = new(), np.pi / 6
    about = dict(gravity=(0, 0, -9.81), spin=2 * np.pi)
    ground = mbs.CreateGround()
    shaft = spatial(mbs, *TREE_INERTIA["spin"], **about)
    slider = spatial(mbs, *TREE_INERTIA["slide"][:2], (0, 0, 0.5), **about)
    mbs.CreateRevoluteJoint(bodyNumbers=[ground, shaft], position=[0, 0, 0], axis=[0, 0, 1], show=False)
    mbs.CreatePrismaticJoint(bodyNumbers=[shaft, slider], position=[0, 0, 0.5], axis=[0, 0, 1], show=False)
    for side in (1.0, -1.0):
        ahead, across = np.array([side * np.cos(down), 0, -np.sin(down)]), np.array([0, side, 0])
        rotation = np.stack([ahead, across, np.cross(ahead, across)], axis=1)
        head = np.array([0.05 * side, 0, 1.0])
        rod = spatial(mbs, *TREE_INERTIA["hinge"][:2], head + CENTRE * ahead, **about, rotation=rotation)
        mbs.CreateRevoluteJoint(bodyNumbers=[shaft, rod], position=list(head), axis=[0, side, 0], show=False)
        ends = dict(localPosition0=[0.5 - CENTRE, 0, 0], localPosition1=[0.05 * side, 0, 0])
        mbs.CreateSpringDamper(bodyNumbers=[rod, slider], **ends, referenceLength=0.5, stiffness=8e5, damping=4e4)
    mbs.Assemble()
    return Model(mbs, problems.A05.end, lambda: mbs.GetObjectOutputBody(slider, POSITION, localPosition=[0, 0, 0])[2])


def governor_tree() -> Model:
    """A05 as one tree in four joint coordinates, without rows, which explicit solvers can take."""
    mbs = new()
    turned = np.diag([-1.0, -1.0, 1.0])  # the second rod's frame looks along −x
    links = [TREE_INERTIA[name] for name in ("spin", "slide", "hinge", "hinge")]
    start = [0, 0.5, np.pi / 6, np.pi / 6]
    node = mbs.AddNode(
        items.NodeGenericODE2(
            referenceCoordinates=[0.0] * 4,
            initialCoordinates=start,
            initialCoordinates_t=[2 * np.pi, 0, 0, 0],
            numberOfODE2Coordinates=4,
        )
    )
    kind = exu.JointType
    tree = mbs.AddObject(
        items.ObjectKinematicTree(
            nodeNumber=node,
            gravity=[0, 0, -9.81],
            jointTypes=[kind.RevoluteZ, kind.PrismaticZ, kind.RevoluteY, kind.RevoluteY],
            linkParents=[-1, 0, 0, 0],
            jointTransformations=exu.Matrix3DList([np.eye(3), np.eye(3), np.eye(3), turned]),
            jointOffsets=exu.Vector3DList([[0, 0, 0], [0, 0, 0], [0.05, 0, 1], [-0.05, 0, 1]]),
            linkInertiasCOM=exu.Matrix3DList([np.diag(moments) for _, moments, _ in links]),
            linkCOMs=exu.Vector3DList([list(centre) for _, _, centre in links]),
            linkMasses=[mass for mass, _, _ in links],
        )
    )
    point = lambda link, x: mbs.AddMarker(
        items.MarkerKinematicTreeRigid(objectNumber=tree, linkNumber=link, localPosition=[x, 0, 0])
    )
    for link, side in ((2, 1.0), (3, -1.0)):
        pair = [point(link, 0.5), point(1, 0.05 * side)]
        mbs.AddObject(
            items.ObjectConnectorSpringDamper(markerNumbers=pair, referenceLength=0.5, stiffness=8e5, damping=4e4)
        )
    mbs.Assemble()
    return Model(mbs, problems.A05.end, lambda: mbs.GetNodeOutput(node, COORDINATES)[1])


MODELS = {"A01": pendulum, "A02": nfourbar, "A03": andrews, "A04": bricard, "A05": governor}
