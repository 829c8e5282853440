"""What writers of models have in common: the tree of a mechanism, with links whose frames stand at their joints."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Array

from .. import spatial
from ..foundations import expect_available, listing
from ..mechanism import FRICTION_SPEED, AbstractBody, AbstractJoint, Marker
from ..mechanism.elements import local_pose
from ..mechanism.tree import TreeEdge, spanning_tree
from .graph import WORLD, inverse, pose
from .inertia import inertial

# What the ground is called in files.
ROOT = "world"


class TreeWriter:
    """A mechanism with the tree of its build, to be written.

    A link has its frame at the joint that carries it, whatever the frame of the body: all poses on it are written from there.

    Args:
        mechanism: in space.
        name: of the model.
        cut: names of joints that must close loops.
        format_name: the format, for messages.

    Attributes:
        joints: by name.
        bodies: their names.
        edges: the edge of each body to its parent, by name.
        in_tree: names of the joints of the tree.
        frames: by body, the pose of its link's frame on it.
    """

    def __init__(self, mechanism: spatial.Mechanism, name: str, cut: Sequence[str], format_name: str):
        self.mechanism, self.name, self.format_name = mechanism, name, format_name
        if not name.strip():
            raise ValueError(f"Argument `name` must not be empty, but is {name!r}.")
        names = [joint.name for joint in mechanism.joints]
        expect_available("Argument `cut` must hold names of joints", cut, names)
        joints = [joint for joint in mechanism.joints if isinstance(joint, AbstractJoint)]
        self.joints = {joint.name: joint for joint in joints}
        self.bodies = [body.name for body in mechanism.bodies]
        edges = spanning_tree(self.bodies, joints, tuple(cut), WORLD)
        self.edges = dict(zip(self.bodies, edges, strict=True))
        self.in_tree = {edge.joint for edge in edges}
        if ROOT in self.bodies:
            raise ValueError(
                f"Body '{ROOT}' must have another name to be written as {format_name}, in which the ground is called so."
            )
        self.frames: dict[str, np.ndarray] = {WORLD: np.eye(4)}
        for body, edge in self.edges.items():
            self.frames[body] = np.eye(4) if edge.joint is None else self.ends(edge)[1]

    def refuse(self, unsupported: Sequence[str]) -> None:
        """Refuses elements that the format cannot hold, if there are any.

        Raises:
            ValueError: naming them.
        """
        if unsupported:
            raise ValueError(
                f"{self.format_name} cannot express {listing(unsupported)}; write the mechanism `without` them, or, for joints, with others "
                "in the tree, by `cut`."
            )

    def is_single(self, joint: str) -> bool:
        """Whether a joint has one velocity."""
        return joint in self.joints and len(self.joints[joint].pair.velocities) == 1

    def is_expressible(self, friction: spatial.JointFriction) -> bool:
        """Whether friction is one of those that a reader of ours makes: files have no field for its speed."""
        return float(friction.coulomb) == 0 or float(friction.speed) == FRICTION_SPEED

    def friction(self, joint: str) -> tuple[float, float]:
        """Viscous and dry friction of a joint: several elements add up, as in the equations."""
        own = [f for f in self.mechanism.forces if isinstance(f, spatial.JointFriction) and f.joint == joint]
        return sum((float(f.viscous) for f in own), 0.0), sum((float(f.coulomb) for f in own), 0.0)

    # Frames

    def local(self, marker: Marker, rotation: Array | None = None) -> np.ndarray:
        """The pose of a marker, or of a joint's frame at it, on its body."""
        at = np.asarray(local_pose(self.mechanism, marker, "The mechanism"), float)
        return at if rotation is None else at @ pose(np.zeros(3), np.asarray(rotation, float))

    def sides(self, joint: AbstractJoint) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]:
        """The bodies, and the joint's frames on them."""
        a, b = joint.frame_rotations() or (None, None)
        return (joint.a.body, self.local(joint.a, a)), (joint.b.body, self.local(joint.b, b))

    def ends(self, edge: TreeEdge) -> tuple[np.ndarray, np.ndarray]:
        """The joint's frames on the parent and on the child."""
        assert edge.joint is not None
        (_, a), (_, b) = self.sides(self.joints[edge.joint])
        return (b, a) if edge.flipped else (a, b)

    def parent(self, body: str) -> str:
        """The body that carries a body."""
        return WORLD if self.edges[body].parent < 0 else self.bodies[self.edges[body].parent]

    def start(self, body: str) -> np.ndarray:
        """The pose of a link in its parent at zero coordinates; of one that moves freely, where it is drawn."""
        edge = self.edges[body]
        if edge.joint is None:
            return np.asarray(self.mechanism.elements[body].pose, float)
        return self.on_link(self.parent(body), self.ends(edge)[0])

    def on_link(self, body: str, local: np.ndarray) -> np.ndarray:
        """A pose on a body, seen from its link's frame."""
        return inverse(self.frames[body]) @ local

    # Elements

    def inertial(self, body: AbstractBody) -> tuple[float, np.ndarray, np.ndarray]:
        """Mass, centre of mass and inertia about it, mass points included, in the body's frame; zeros for a body without mass."""
        return inertial(np.asarray(body.spread(), float))

    def points(self, reserved: Sequence[str]) -> Iterator[tuple[str, str, np.ndarray]]:
        """Body, name and pose on the link of each named point; names differ from each other and from the reserved ones."""
        names = set(reserved)
        points = {WORLD: self.mechanism.points} | {body.name: body.points for body in self.mechanism.bodies}
        for body, frames in points.items():
            for point, local in frames.items():
                # The point's own name where it is free, since users of the file look for it; else with its body in
                # front.
                candidates = (point, *(f"{body}_{point}{i or ''}" for i in range(len(names) + 1)))
                name = next(n for n in candidates if n not in names)
                names.add(name)
                yield body, name, self.on_link(body, np.asarray(local, float))
