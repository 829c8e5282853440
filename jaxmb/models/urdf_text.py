"""Mechanisms as URDF, with their loops."""

from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

import numpy as np
from jaxtyping import Array

from .. import spatial
from ..foundations import Text, contract, listing
from ..mechanism import AbstractBody, AbstractJoint, Marker
from ..mechanism.elements import local_pose
from ..mechanism.tree import TreeEdge, spanning_tree
from .graph import WORLD, inverse, pose, turn

TREE = {
    spatial.Revolute: "continuous",
    spatial.Prismatic: "prismatic",
    spatial.Fixed: "fixed",
    spatial.Planar: "planar",
}
LOOPS = {
    spatial.Revolute: "revolute",
    spatial.Prismatic: "prismatic",
    spatial.Fixed: "fixed",
    spatial.Planar: "planar",
    spatial.Cylindrical: "cylindrical",
    spatial.Spherical: "spherical",
}
ROOT = "world"
# The default speed of `JointFriction`, which a file has no field for: friction of another speed would not be read back.
FRICTION_SPEED = 1e-2


@contract
def to_urdf(mechanism: spatial.Mechanism, *, name: Text = "mechanism", cut: Sequence[str] = ()) -> str:
    """A mechanism in space as URDF, its loops as <loop> of URDF+; `jaxmb.load` reads the same masses, forces and rows of it.

    Links have their frames where the joints have theirs, as the format wants it, and so others than the bodies; points are links that are
    fixed to these. The format has no gravity: give it to `load`.

    Args:
        mechanism: with joints that the format has, gears, and friction along joints with one coordinate.
        name: of the robot.
        cut: names of joints that must close loops, as of `Mechanism.build`.

    Raises:
        ValueError: naming an element that the format has no words for.

    Example:
        >>> import jaxmb as jm
        >>> rod = jm.spatial.Body("rod", mass=1.0, inertia=(0.1, 0.1, 0.01), com=(0.5, 0.0, 0.0))
        >>> pendulum = jm.spatial.Mechanism([rod], [jm.spatial.Revolute("pivot", "ground", "rod", axis=(0.0, 1.0, 0.0))])
        >>> print(jm.models.to_urdf(pendulum).splitlines()[-2][:56])
          <joint name="pivot" type="continuous"><parent link="wo
    """
    if not name.strip():
        raise ValueError(f"Argument `name` must not be empty, but is {name!r}.")
    names = [joint.name for joint in mechanism.joints]
    if unknown := [joint for joint in cut if joint not in names]:
        raise ValueError(
            f"Argument `cut` must hold names of joints out of {listing(names)}, but holds {listing(unknown)}."
        )
    return UrdfWriter(mechanism, name, tuple(cut)).text()


class UrdfWriter:
    """The text of a mechanism."""

    def __init__(self, mechanism: spatial.Mechanism, name: str, cut: tuple[str, ...]):
        self.mechanism, self.name = mechanism, name
        joints = [joint for joint in mechanism.joints if isinstance(joint, AbstractJoint)]
        self.joints = {joint.name: joint for joint in joints}
        self.bodies = [body.name for body in mechanism.bodies]
        edges = spanning_tree(self.bodies, joints, cut, WORLD)
        self.edges = dict(zip(self.bodies, edges, strict=True))
        self.in_tree = {edge.joint for edge in edges}
        if ROOT in self.bodies:
            raise ValueError(
                f"Body '{ROOT}' must have another name to be written as URDF, in which the ground is called so."
            )
        # A link of URDF has its frame at the joint that carries it, whatever the frame of the body: all poses on it
        # are written from there.
        self.frames: dict[str, np.ndarray] = {WORLD: np.eye(4)}
        for body, edge in self.edges.items():
            self.frames[body] = np.eye(4) if edge.joint is None else self._ends(edge)[1]
        self._expect_words()

    def text(self) -> str:
        """The document."""
        links = [f"<link name={quoteattr(ROOT)}/>", *(self._link(body) for body in self.mechanism.bodies)]
        tree = [self._joint(body, edge) for body, edge in self.edges.items()]
        loops = [self._loop(joint) for name, joint in self.joints.items() if name not in self.in_tree]
        lines = [*links, *self._points(), *tree, *loops]
        return f'<?xml version="1.0"?>\n<robot name={quoteattr(self.name)}>\n  ' + "\n  ".join(lines) + "\n</robot>\n"

    def _expect_words(self) -> None:
        """Refuses elements that the format cannot hold."""
        m = self.mechanism
        unsupported = [j.name for j in m.joints if not isinstance(j, (AbstractJoint, spatial.Gear))]
        unsupported += [e.name for e in (*m.drivers, *m.actuators)]
        unsupported += [
            f.name for f in m.forces if not isinstance(f, spatial.JointFriction) or not self._is_expressible(f)
        ]
        unsupported += [j.name for n, j in self.joints.items() if type(j) not in (TREE if n in self.in_tree else LOOPS)]
        # Seen from the other side, x and y of a planar joint no longer are axes of the parent: the format cannot say
        # so.
        flipped = [edge.joint for edge in self.edges.values() if edge.flipped]
        unsupported += [name for name in flipped if name is not None and isinstance(self.joints[name], spatial.Planar)]
        followers = [g.joints[1] for g in m.joints if isinstance(g, spatial.Gear)]
        gears = [g.name for g in m.joints if isinstance(g, spatial.Gear)]
        unsupported += [
            n for n, f in zip(gears, followers, strict=True) if followers.count(f) > 1 or f not in self.in_tree
        ]
        if unsupported:
            raise ValueError(
                f"URDF has no words for {listing(unsupported)}; write the mechanism `without` them, or, for joints, with others in the tree, by `cut`."
            )

    def _is_expressible(self, friction: spatial.JointFriction) -> bool:
        """Whether friction is one of those that a reader of ours makes."""
        single = len(self.joints[friction.joint].pair.velocities) == 1
        return single and (float(friction.coulomb) == 0 or float(friction.speed) == FRICTION_SPEED)

    # Frames

    def _local(self, marker: Marker, rotation: Array | None) -> np.ndarray:
        """The pose of a joint's frame on a body."""
        local = np.asarray(local_pose(self.mechanism, marker, "The mechanism"), float)
        return local if rotation is None else local @ pose(np.zeros(3), np.asarray(rotation, float))

    def _sides(self, joint: AbstractJoint) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]:
        """The bodies, and the joint's frames on them."""
        a, b = joint.frame_rotations() or (None, None)
        return (joint.a.body, self._local(joint.a, a)), (joint.b.body, self._local(joint.b, b))

    def _ends(self, edge: TreeEdge) -> tuple[np.ndarray, np.ndarray]:
        """The joint's frames on the parent and on the child."""
        assert edge.joint is not None
        (_, a), (_, b) = self._sides(self.joints[edge.joint])
        return (b, a) if edge.flipped else (a, b)

    def _origin(self, body: str, local: np.ndarray) -> str:
        """An <origin> of a pose on a body, seen from its link's frame."""
        return origin(inverse(self.frames[body]) @ local)

    # Elements

    def _link(self, body: AbstractBody) -> str:
        spread = np.asarray(body.spread(), float)
        # The whole body, mass points included, as one inertial: the format has no others.
        mass = spread[3, 3]
        name = f"<link name={quoteattr(body.name)}"
        if mass == 0 and not spread.any():
            return name + "/>"
        com = spread[:3, 3] / mass
        about = spread[:3, :3] - mass * np.outer(com, com)
        i = np.trace(about) * np.eye(3) - about
        moments = [f'{key}="{float(i[at])!r}"' for key, at in MOMENTS.items()]
        inertial = f'{self._origin(body.name, pose(com))}<mass value="{float(mass)!r}"/><inertia {" ".join(moments)}/>'
        return f"{name}><inertial>{inertial}</inertial></link>"

    def _points(self) -> list[str]:
        """Named points as links that are fixed to those of their bodies."""
        elements, names = [], {ROOT, *self.bodies}
        points = {WORLD: self.mechanism.points} | {body.name: body.points for body in self.mechanism.bodies}
        for body, frames in points.items():
            for point, local in frames.items():
                name = next(
                    n for n in (point, *(f"{body}_{point}{i or ''}" for i in range(len(names) + 1))) if n not in names
                )
                # The point's own name where it is free, since users of the URDF look for it; else with its body in
                # front.
                names.add(name)
                at = self._origin(body, np.asarray(local, float))
                ends = f"<parent link={quoteattr(self._link_name(body))}/><child link={quoteattr(name)}/>"
                elements.append(f"<link name={quoteattr(name)}/>")
                elements.append(f'<joint name={quoteattr(f"{name}_point")} type="fixed">{ends}{at}</joint>')
        return elements

    def _link_name(self, body: str) -> str:
        return ROOT if body == WORLD else body

    def _joint(self, body: str, edge: TreeEdge) -> str:
        parent = WORLD if edge.parent < 0 else self.bodies[edge.parent]
        ends = f"<parent link={quoteattr(self._link_name(parent))}/><child link={quoteattr(body)}/>"
        if edge.joint is None:
            pose_in_world = np.asarray(self.mechanism.elements[body].pose, float)
            return f'<joint name={quoteattr(f"{body}_free")} type="floating">{ends}{origin(pose_in_world)}</joint>'
        joint = self.joints[edge.joint]
        at = self._origin(parent, self._ends(edge)[0])
        # A joint that the tree passes from B to A moves the other way about the same axis.
        axis = "" if isinstance(joint, spatial.Fixed) else f'<axis xyz="0 0 {-1 if edge.flipped else 1}"/>'
        inside = self._friction(joint.name) + self._mimic(joint.name)
        return f'<joint name={quoteattr(joint.name)} type="{TREE[type(joint)]}">{ends}{at}{axis}{inside}</joint>'

    def _loop(self, joint: AbstractJoint) -> str:
        ends = zip(("predecessor", "successor"), self._sides(joint), strict=True)
        sides = [
            f"<{tag} link={quoteattr(self._link_name(body))}>{self._origin(body, local)}</{tag}>"
            for tag, (body, local) in ends
        ]
        inside = "".join(sides) + '<axis xyz="0 0 1"/>' + self._friction(joint.name)
        return f'<loop name={quoteattr(joint.name)} type="{LOOPS[type(joint)]}">{inside}</loop>'

    def _friction(self, joint: str) -> str:
        own = [f for f in self.mechanism.forces if getattr(f, "joint", None) == joint]
        # Several friction elements at a joint add up, as in the equations.
        viscous, coulomb = (sum(float(getattr(f, name)) for f in own) for name in ("viscous", "coulomb"))
        return f'<dynamics damping="{viscous!r}" friction="{coulomb!r}"/>' if viscous or coulomb else ""

    def _mimic(self, joint: str) -> str:
        for gear in self.mechanism.joints:
            if isinstance(gear, spatial.Gear) and gear.joints[1] == joint:
                numbers = f'multiplier="{float(gear.ratio)!r}" offset="{float(gear.offset)!r}"'
                return f"<mimic joint={quoteattr(gear.joints[0])} {numbers}/>"
        return ""


MOMENTS = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}


def origin(frame: np.ndarray) -> str:
    """An <origin> with turns about x, y and z, R = Rz Ry Rx, that are exact at any pitch: those about y and x are read off Rzᵀ R."""
    rotation = frame[:3, :3]
    # At a pitch of ±90° yaw and roll turn about one axis, and arctan2(0, 0) gives any split of both; the rest, read
    # off after yaw, is exact for it.
    yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
    remainder = turn(np.array([0.0, 0.0, 1.0]), -yaw) @ rotation
    angles = np.arctan2(-remainder[1, 2], remainder[1, 1]), np.arctan2(-remainder[2, 0], remainder[0, 0]), yaw
    words = lambda values: " ".join(repr(float(x)) for x in values)
    return f'<origin xyz="{words(frame[:3, 3])}" rpy="{words(angles)}"/>'
