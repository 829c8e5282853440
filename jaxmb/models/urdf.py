"""URDF, with the ways in which it writes loops."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from ..foundations import listing
from .document import Element
from .folder import Folder
from .graph import WORLD, Coupling, Graph, Joint, Link, from_quaternion, pose
from .inertia import checked_mass

EARTH = (0.0, 0.0, -9.81)
# Types of <joint>, and the kind of joint that each means.
TYPES = {
    "fixed": "fixed",
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "planar": "planar",
    "floating": "free",
}
# Those of the elements that close loops.
CLOSING = {
    "fixed": "fixed",
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "planar": "planar",
    "cylindrical": "cylindrical",
    "universal": "universal",
    "spherical": "spherical",
    "ball": "spherical",
}
LOOPS = ("loop", "loop_joint", "loop_constraint", "constraint")
# Elements that are read, by the one they stand in; those that are listed, and why they belong to no mechanism.
READ = {
    "robot": ("link", "joint", "coupling", *LOOPS),
    "link": ("inertial",),
    "inertial": ("origin", "mass", "inertia"),
    "joint": ("parent", "child", "origin", "axis", "dynamics", "limit", "mimic"),
    "loop_joint": ("axis", "link1", "link2", "dynamics"),
    "loop": ("predecessor", "successor", "sucessor", "axis", "dynamics"),
    "loop_constraint": ("parent", "parent_origin", "parent_axis", "child", "child_origin", "child_axis"),
    "constraint": ("parent", "parent_origin", "parent_axis", "child", "child_origin", "child_axis"),
    "coupling": ("predecessor", "successor", "ratio"),
    "predecessor": ("origin",),
    "successor": ("origin",),
    "sucessor": ("origin",),
}
LISTED = {
    "visual": "shapes are not read",
    "collision": "contacts are not read",
    "material": "shapes are not read",
    "transmission": "transmissions are not read",
    "gazebo": "extensions of simulators are not read",
    "ros2_control": "extensions of simulators are not read",
    "sensor": "sensors are not read",
    "calibration": "calibration is not read",
    "safety_controller": "controllers are not read",
    "joint_properties": "properties of other programs are not read",
}
# Quaternions may be so far from unit length: what four digits leave.
UNIT = 1e-3


def urdf_graph(root: Element, folder: Folder, base: str, left_out: Sequence[str]) -> Graph:
    """The graph of a <robot>.

    Args:
        root: the element.
        folder: where files may lie.
        base: "fixed" or "free", how the root link is held.
        left_out: names of elements that are not read.

    Raises:
        ValueError: with file, line and element.
    """
    for element in root.walk():
        if ":" in element.tag and element.tag.startswith("xacro"):
            raise element.refusal("must be expanded first, by `xacro model.xacro > model.urdf`, but is not.")
    graph = Graph(root.attributes.get("name", folder.root.name), np.array(EARTH))
    parts = [e for e in root.children if not _is_left_out(e, left_out, graph)]
    _expect_names(parts)
    for element in parts:
        if element.tag == "link":
            graph.links.append(_link(element, graph, folder))
    for element in parts:
        if element.tag == "joint":
            graph.joints.append(_tree_joint(element, graph))
    _hold_root(graph, base, root)
    for element in parts:
        if element.tag in LOOPS:
            graph.joints.append(_LOOPS[element.tag](element))
        elif element.tag == "coupling":
            graph.couplings.append(_coupling(element, graph))
        elif element.tag == "joint":
            _mimic(element, graph)
    _tell_others(root, parts, graph)
    return graph


def _is_left_out(element: Element, left_out: Sequence[str], graph: Graph) -> bool:
    """Whether an element is one of those, or a joint at such a link."""
    name = element.attributes.get("name", "")
    ends = [end.attributes.get("link") for end in element.children if "link" in end.attributes]
    found = name in left_out or any(end in left_out for end in ends)
    if found:
        graph.note("left out", element, "as was asked for")
    return found


def _expect_names(parts: list[Element]) -> None:
    """Links differ in names, and so do joints of all kinds."""
    for tags in (("link",), ("joint", "coupling", *LOOPS)):
        seen: dict[str, Element] = {}
        for element in parts:
            if element.tag in tags:
                name = element.text("name")
                if name in seen:
                    raise element.refusal(f"must have a name of its own, but one on line {seen[name].line} has it too.")
                seen[name] = element


def _tell_others(root: Element, parts: list[Element], graph: Graph) -> None:
    """Notes of what is not read."""
    for element in [root, *(inner for part in parts for inner in part.walk())]:
        known = READ.get(element.tag, ())
        for child in element.children if known else ():
            if child.tag in LISTED:
                graph.note("listed", f"<{child.tag}> of {element}", LISTED[child.tag])
            elif child.tag not in known and not (element is root and child not in parts):
                graph.note("left out", f"{child} on line {child.line}", "is not known")


# Frames and numbers


def origin(element: Element | None) -> np.ndarray:
    """The pose of attributes `xyz` in m and `rpy` in rad, turns about x, then y, then z of the frame outside; or `quat_xyzw`."""
    if element is None:
        return np.eye(4)
    position = element.numbers("xyz", 3, (0.0, 0.0, 0.0))
    if "quat_xyzw" in element.attributes:
        quaternion = element.numbers("quat_xyzw", 4)
        if abs(np.linalg.norm(quaternion) - 1) > UNIT:
            raise element.refusal(
                f"must have a quaternion of unit length as `quat_xyzw`, but its length is {np.linalg.norm(quaternion):g}."
            )
        return pose(position, from_quaternion(np.roll(quaternion, 1)))
    rotation = Rotation.from_euler("xyz", element.numbers("rpy", 3, (0.0, 0.0, 0.0)))
    return pose(position, rotation.as_matrix())


def _axis(element: Element | None, default: np.ndarray) -> np.ndarray:
    """A direction, brought to unit length."""
    if element is None:
        return default
    found = element.numbers("xyz", 3, default.tolist())
    if not found.any():
        raise element.refusal("must have a direction as `xyz`, but has zeros.")
    return found / np.linalg.norm(found)


def _not_negative(element: Element, attribute: str) -> float:
    found = element.number(attribute, 0.0)
    if found < 0:
        raise element.refusal(f"must not have a negative `{attribute}`, but has {found:g}.")
    return found


# Links


def _link(element: Element, graph: Graph, folder: Folder) -> Link:
    """A link with its inertial; meshes are looked at by name only."""
    for inner in element.walk():
        if "filename" in inner.attributes:
            folder.locate(inner.attributes["filename"], inner.where)
    inertial, name = element.one("inertial"), element.text("name")
    if name == WORLD:
        raise element.refusal(f"must not be called '{WORLD}', which is what stands still, but is.")
    if inertial is None:
        return Link(name, 0.0, np.zeros(3), np.zeros((3, 3)), element.where)
    at, moments = origin(inertial.one("origin")), inertial.needed("inertia")
    xx, yy, zz = (moments.number(key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (moments.number(key, 0.0) for key in ("ixy", "ixz", "iyz"))
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    mass = inertial.needed("mass").number("value")
    checked_mass(mass, inertia, element.where)
    rotation = at[:3, :3]
    return Link(name, mass, at[:3, 3], rotation @ inertia @ rotation.T, element.where)


def _hold_root(graph: Graph, base: str, root: Element) -> None:
    """Joins the root link to the ground."""
    children = {joint.child for joint in graph.joints}
    roots = [link for link in graph.links if link.name not in children]
    if not graph.links:
        raise root.refusal("must hold a <link>, but holds none.")
    if len(roots) > 1:
        names = listing(link.name for link in roots)
        raise root.refusal(f"must have one link that hangs on no other, but has {names}; join them by a <joint>.")
    axis = np.array([0.0, 0.0, 1.0])
    for link in roots:
        joint = Joint(f"{link.name}_base", base, WORLD, link.name, np.eye(4), np.eye(4), axis, axis, link.where)
        graph.joints.insert(0, joint)
    if roots and base == "fixed":
        graph.note("merged", f"link '{roots[0].name}'", "is the root, and stands still; `base='free'` lets it move")


# Joints


def _tree_joint(element: Element, graph: Graph) -> Joint:
    kind = element.text("type")
    if kind not in TYPES:
        raise element.refusal(f"must have a `type` out of {listing(TYPES)}, but has {kind!r}.")
    parent, child = (element.needed(tag).text("link") for tag in ("parent", "child"))
    known = {link.name for link in graph.links}
    for end in (parent, child):
        if end not in known:
            raise element.refusal(f"must join links out of {listing(known)}, but names '{end}'.")
    axis = np.array([1.0, 0.0, 0.0])
    if TYPES[kind] not in ("fixed", "free"):
        axis = _axis(element.one("axis"), axis)
    viscous, coulomb = _dynamics(element)
    limits = _limits(element, graph) if kind in ("revolute", "prismatic") else None
    if TYPES[kind] == "free" and (viscous or coulomb):
        graph.note("left out", element, "friction of a floating joint has no element")
    if kind == "planar":
        graph.note("approximated", element, "the format does not say which way x and y of a planar joint point")
    frame = origin(element.one("origin"))
    return Joint(
        *(element.text("name"), TYPES[kind], parent, child, frame, np.eye(4), axis, axis, element.where),
        viscous=viscous,
        coulomb=coulomb,
        limits=limits,
    )


def _dynamics(element: Element) -> tuple[float, float]:
    """Damping and friction."""
    found = element.one("dynamics")
    return (0.0, 0.0) if found is None else (_not_negative(found, "damping"), _not_negative(found, "friction"))


def _limits(element: Element, graph: Graph) -> tuple[float, float] | None:
    """Those of the position, where one is given."""
    found = element.one("limit")
    if found is None:
        return None
    for attribute in ("effort", "velocity"):
        if attribute in found.attributes:
            found.number(attribute)
            graph.note("listed", f"{element}", f"its limit of {attribute} is not part of a mechanism")
    if not {"lower", "upper"} & set(found.attributes):
        return None
    low, high = found.number("lower", 0.0), found.number("upper", 0.0)
    if low > high:
        raise found.refusal(f"of {element} must have `lower` below `upper`, but has {low:g} and {high:g}.")
    return low, high


def _mimic(element: Element, graph: Graph) -> None:
    found = element.one("mimic")
    if found is None:
        return
    leader, ratio = found.text("joint"), found.number("multiplier", 1.0)
    joints = [graph.joint(name) for name in (leader, element.text("name"))]
    if joints[0] is None or joints[0] is joints[1]:
        names = listing(joint.name for joint in graph.joints)
        raise found.refusal(f"of {element} must name another joint out of {names}, but names '{leader}'.")
    if any(joint is not None and joint.kind not in ("revolute", "prismatic") for joint in joints):
        raise found.refusal(f"of {element} must relate joints with one coordinate, but does not.")
    if ratio == 0:
        raise found.refusal(f"of {element} must not have the `multiplier` 0, but has; make the joint fixed.")
    name = f"{element.text('name')}_mimic"
    graph.couplings.append(
        Coupling(name, (leader, element.text("name")), ratio, found.number("offset", 0.0), found.where)
    )


# Loops


def _closing(element: Element, ends: Sequence[tuple[str, np.ndarray]], axes: Sequence[Element | None]) -> Joint:
    kind = element.attributes.get("type", "spherical" if element.tag == "loop_constraint" else "")
    if kind not in CLOSING:
        raise element.refusal(f"must have a `type` out of {listing(CLOSING)}, but has {kind!r}.")
    z = np.array([0.0, 0.0, 1.0])
    first = np.array([1.0, 0.0, 0.0]) if CLOSING[kind] != "universal" else z
    axis = _axis(axes[0], first)
    axis_b = _axis(axes[1], np.array([1.0, 0.0, 0.0]) if CLOSING[kind] == "universal" else axis)
    viscous, coulomb = _dynamics(element)
    (parent, outer), (child, inner) = ends
    return Joint(
        *(element.text("name"), CLOSING[kind], parent, child, outer, inner, axis, axis_b, element.where),
        closes=True,
        viscous=viscous,
        coulomb=coulomb,
    )


def _loop_joint(element: Element) -> Joint:
    """<link1 link xyz rpy/>, <link2 …/> and one <axis>."""
    ends = [element.needed(tag) for tag in ("link1", "link2")]
    axis = element.one("axis")
    return _closing(element, [(end.text("link"), origin(end)) for end in ends], (axis, axis))


def _loop(element: Element) -> Joint:
    """<predecessor link><origin/></predecessor>, <successor …> and one <axis>, as URDF+ has it."""
    ends = [element.needed("predecessor"), element.one("sucessor") or element.needed("successor")]
    axis = element.one("axis")
    named = [end.attributes.get("link") or end.text("name") for end in ends]
    frames = [origin(end.one("origin")) for end in ends]
    return _closing(element, list(zip(named, frames, strict=True)), (axis, axis))


def _constraint(element: Element) -> Joint:
    """<parent/>, <parent_origin/>, <parent_axis/> and those of the child."""
    sides = ("parent", "child")
    ends = [(element.needed(side).text("link"), origin(element.one(f"{side}_origin"))) for side in sides]
    return _closing(element, ends, [element.one(f"{side}_axis") for side in sides])


_LOOPS: dict[str, Callable[[Element], Joint]] = {
    "loop_joint": _loop_joint,
    "loop": _loop,
    "loop_constraint": _constraint,
    "constraint": _constraint,
}


def _coupling(element: Element, graph: Graph) -> Coupling:
    """Ratio times the turn of the predecessor is that of the successor, both seen from what carries both."""
    ends = [element.needed(tag).text("link") for tag in ("predecessor", "successor")]
    ratio = element.needed("ratio").number("value")
    if element.attributes.get("type", "rolling") != "rolling" or ratio == 0:
        raise element.refusal("must have the `type` 'rolling' and a ratio other than zero, but has not.")
    above = [_above(graph, end, element) for end in ends]
    common = [joint for joint in above[0] if joint in above[1]]
    own = [[joint for joint in chain if joint not in common and joint.kind != "fixed"] for chain in above]
    for end, chain in zip(ends, own, strict=True):
        if len(chain) != 1 or chain[0].kind not in ("revolute", "prismatic"):
            raise element.refusal(
                f"must relate links that one joint with one coordinate moves, seen from what carries both, but '{end}' is moved by "
                f"{listing(joint.name for joint in chain)}."
            )
    return Coupling(element.text("name"), (own[0][0].name, own[1][0].name), ratio, 0.0, element.where)


def _above(graph: Graph, link: str, element: Element) -> list[Joint]:
    """The joints from a link up to the ground."""
    hung = {joint.child: joint for joint in graph.joints if not joint.closes}
    if link not in hung:
        raise element.refusal(f"must relate links out of {listing(hung)}, but names '{link}'.")
    found: list[Joint] = []
    while link != WORLD and hung[link] not in found:
        found.append(hung[link])
        link = hung[link].parent
    return found
