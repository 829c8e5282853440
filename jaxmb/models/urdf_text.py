"""Mechanisms as URDF, with their loops."""

from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

import numpy as np

from .. import spatial
from ..foundations import Text, contract
from ..mechanism import AbstractBody, AbstractForce, AbstractJoint
from ..mechanism.tree import TreeEdge
from .graph import WORLD, pose, turn
from .tree_writer import ROOT, TreeWriter

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


@contract
def to_urdf(mechanism: spatial.Mechanism, *, name: Text = "mechanism", cut: Sequence[str] = ()) -> str:
    """A mechanism in space as URDF, its loops as <loop> of URDF+; `jaxmb.load` reads the same masses, forces and rows of it.

    The frame of a link is that of its joint, as the format requires, and so differs from that of the body; points are links that
    are fixed to these. The format has no gravity: pass it to `load`.

    Args:
        mechanism: with joints that the format has, gears, and friction along joints with one coordinate.
        name: of the robot.
        cut: names of joints that must close loops, as in `Mechanism.build`.

    Raises:
        ValueError: naming an element that the format cannot express.

    Example:
        >>> import jaxmb as jm
        >>> rod = jm.spatial.Body("rod", mass=1.0, inertia=(0.1, 0.1, 0.01), com=(0.5, 0.0, 0.0))
        >>> pendulum = jm.spatial.Mechanism([rod], [jm.spatial.Revolute("pivot", "ground", "rod", axis=(0.0, 1.0, 0.0))])
        >>> print(jm.models.to_urdf(pendulum).splitlines()[-2][:56])
          <joint name="pivot" type="continuous"><parent link="wo
    """
    return UrdfWriter(mechanism, name, cut).text()


class UrdfWriter(TreeWriter):
    """The text of a mechanism."""

    def __init__(self, mechanism: spatial.Mechanism, name: str, cut: Sequence[str]):
        super().__init__(mechanism, name, cut, "URDF")
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
        unsupported += [f.name for f in m.forces if not self._has_words(f)]
        unsupported += [j.name for n, j in self.joints.items() if type(j) not in (TREE if n in self.in_tree else LOOPS)]
        # Seen from the other side, x and y of a planar joint no longer are axes of the parent: the format cannot say
        # so.
        flipped = [edge.joint for edge in self.edges.values() if edge.flipped]
        unsupported += [name for name in flipped if name is not None and isinstance(self.joints[name], spatial.Planar)]
        gears = [g for g in m.joints if isinstance(g, spatial.Gear)]
        followers = [g.joints[1] for g in gears]
        unsupported += [
            g.name for g, f in zip(gears, followers, strict=True) if followers.count(f) > 1 or f not in self.in_tree
        ]
        self.refuse(unsupported)

    def _has_words(self, force: AbstractForce) -> bool:
        """Whether the format has the force: friction along one coordinate."""
        if not isinstance(force, spatial.JointFriction):
            return False
        return self.is_single(force.joint) and self.is_expressible(force)

    # Elements

    def _origin(self, body: str, local: np.ndarray) -> str:
        """An <origin> of a pose on a body, seen from its link's frame."""
        return origin(self.on_link(body, local))

    def _link(self, body: AbstractBody) -> str:
        # The whole body, mass points included, as one inertial: the format has no others.
        mass, com, i = self.inertial(body)
        name = f"<link name={quoteattr(body.name)}"
        if mass == 0 and not i.any():
            return name + "/>"
        moments = [f'{key}="{float(i[at])!r}"' for key, at in MOMENTS.items()]
        inertial = f'{self._origin(body.name, pose(com))}<mass value="{mass!r}"/><inertia {" ".join(moments)}/>'
        return f"{name}><inertial>{inertial}</inertial></link>"

    def _points(self) -> list[str]:
        """Named points as links that are fixed to those of their bodies."""
        elements = []
        for body, name, at in self.points((ROOT, *self.bodies)):
            ends = f"<parent link={quoteattr(self._link_name(body))}/><child link={quoteattr(name)}/>"
            elements.append(f"<link name={quoteattr(name)}/>")
            elements.append(f'<joint name={quoteattr(f"{name}_point")} type="fixed">{ends}{origin(at)}</joint>')
        return elements

    def _link_name(self, body: str) -> str:
        return ROOT if body == WORLD else body

    def _joint(self, body: str, edge: TreeEdge) -> str:
        ends = f"<parent link={quoteattr(self._link_name(self.parent(body)))}/><child link={quoteattr(body)}/>"
        at = origin(self.start(body))
        if edge.joint is None:
            return f'<joint name={quoteattr(f"{body}_free")} type="floating">{ends}{at}</joint>'
        joint = self.joints[edge.joint]
        # A joint that the tree passes from B to A moves the other way about the same axis.
        axis = "" if isinstance(joint, spatial.Fixed) else f'<axis xyz="0 0 {-1 if edge.flipped else 1}"/>'
        inside = self._friction(joint.name) + self._mimic(joint.name)
        return f'<joint name={quoteattr(joint.name)} type="{TREE[type(joint)]}">{ends}{at}{axis}{inside}</joint>'

    def _loop(self, joint: AbstractJoint) -> str:
        ends = zip(("predecessor", "successor"), self.sides(joint), strict=True)
        sides = [
            f"<{tag} link={quoteattr(self._link_name(body))}>{self._origin(body, local)}</{tag}>"
            for tag, (body, local) in ends
        ]
        inside = "".join(sides) + '<axis xyz="0 0 1"/>' + self._friction(joint.name)
        return f'<loop name={quoteattr(joint.name)} type="{LOOPS[type(joint)]}">{inside}</loop>'

    def _friction(self, joint: str) -> str:
        viscous, coulomb = self.friction(joint)
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
