"""URDF, with the ways in which it writes loops."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from ..foundations import listing
from .document import XmlElement
from .folder import Folder
from .graph import (
    WORLD,
    X_AXIS,
    Z_AXIS,
    Coupling,
    ModelGraph,
    ModelJoint,
    ModelLink,
    expect_names,
    massless_link,
    pose,
)
from .inertia import expect_mass

# URDF has no gravity; its convention in ROS (REP 103) is z up.
EARTH_GRAVITY = (0.0, 0.0, -9.81)
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
    # The third is a misspelling in the schema of URDF+, which its files follow.
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
# Quaternions may be so far from unit length, as those with four digits are; others are mistyped, and are refused.
QUATERNION_TOLERANCE = 1e-3


def urdf_graph(root: XmlElement, folder: Folder, base: str, excluded: Sequence[str]) -> ModelGraph:
    """The graph of a <robot>.

    Args:
        root: the element.
        folder: where files may lie.
        base: "fixed" or "free", how the root link is held.
        excluded: names of elements that are not read.

    Raises:
        ValueError: with file, line and element.
    """
    for element in root.walk():
        if ":" in element.tag and element.tag.startswith("xacro"):
            raise element.refusal("must be expanded first, by `xacro model.xacro > model.urdf`, but is not.")
    graph = ModelGraph(root.attributes.get("name", folder.root.name), np.array(EARTH_GRAVITY))
    expect_names(excluded, {e.attributes.get("name") for e in root.children})
    parts = [e for e in root.children if not _is_excluded(e, excluded, graph)]
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
            graph.joints.append(CLOSURE_READERS[element.tag](element))
        elif element.tag == "coupling":
            graph.couplings.append(_coupling(element, graph))
        elif element.tag == "joint":
            _mimic(element, graph)
    graph.note_unread(dataclasses.replace(root, children=parts), READ, LISTED)
    return graph


def _is_excluded(element: XmlElement, excluded: Sequence[str], graph: ModelGraph) -> bool:
    """Whether an element is to be left out, by its name or as a joint at such a link."""
    name = element.attributes.get("name", "")
    ends = [end.attributes.get("link") for end in element.children if "link" in end.attributes]
    is_excluded = name in excluded or any(end in excluded for end in ends)
    if is_excluded:
        graph.note("left out", element, "as was asked for")
    return is_excluded


def _expect_names(parts: list[XmlElement]) -> None:
    """Links differ in names, and so do joints of all kinds."""
    # Links and joints may share names, which is common; names of a mechanism are made different later.
    for tags in (("link",), ("joint", "coupling", *LOOPS)):
        first: dict[str, XmlElement] = {}
        for element in parts:
            if element.tag in tags:
                name = element.text("name")
                if name in first:
                    raise element.refusal(
                        f"must have a name of its own, but one on line {first[name].line} has it too."
                    )
                first[name] = element


# Frames and numbers


def origin(element: XmlElement | None) -> np.ndarray:
    """The pose of attributes `xyz` in m and `rpy` in rad, turns about x, then y, then z of the frame outside; or `quat_xyzw`."""
    if element is None:
        return np.eye(4)
    position = element.numbers("xyz", 3, (0.0, 0.0, 0.0))
    if "quat_xyzw" in element.attributes:
        quaternion = element.numbers("quat_xyzw", 4)
        return pose(position, unit_quaternion(quaternion, element, " as `quat_xyzw`"))
    # Lower case: turns about fixed axes, R = Rz Ry Rx.
    rotation = Rotation.from_euler("xyz", element.numbers("rpy", 3, (0.0, 0.0, 0.0)))
    return pose(position, rotation.as_matrix())


def unit_quaternion(quaternion: np.ndarray, element: XmlElement, what: str = "") -> np.ndarray:
    """The rotation of a quaternion (x, y, z, w) that an element has.

    Raises:
        ValueError: if it is not of unit length.
    """
    length = np.linalg.norm(quaternion)
    if abs(length - 1) > QUATERNION_TOLERANCE:
        raise element.refusal(f"must have a quaternion of unit length{what}, but its length is {length:g}.")
    return Rotation.from_quat(quaternion).as_matrix()


def _axis(element: XmlElement | None, default: np.ndarray) -> np.ndarray:
    """A direction, brought to unit length."""
    if element is None:
        return default
    direction = element.numbers("xyz", 3, default.tolist())
    if not direction.any():
        raise element.refusal("must have a direction as `xyz`, but has zeros.")
    return direction / np.linalg.norm(direction)


def _not_negative(element: XmlElement, attribute: str) -> float:
    value = element.number(attribute, 0.0)
    if value < 0:
        raise element.refusal(f"must not have a negative `{attribute}`, but has {value:g}.")
    return value


# Links


def _link(element: XmlElement, graph: ModelGraph, folder: Folder) -> ModelLink:
    """A link with its inertial; meshes are looked at by name only."""
    for inner in element.walk():
        if "filename" in inner.attributes:
            # Not opened, but checked: a model that points outside of its folder is refused whether its shapes are
            # read or not.
            folder.locate(inner.attributes["filename"], inner.where)
    inertial, name = element.optional_child("inertial"), element.text("name")
    if name == WORLD:
        raise element.refusal(f"must not be called '{WORLD}', which is what stands still, but is.")
    if inertial is None:
        return massless_link(name, element.where)
    at, moments = origin(inertial.optional_child("origin")), inertial.required_child("inertia")
    xx, yy, zz = (moments.number(key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (moments.number(key, 0.0) for key in ("ixy", "ixz", "iyz"))
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    mass = inertial.required_child("mass").number("value")
    expect_mass(mass, inertia, element.where)
    rotation = at[:3, :3]
    return ModelLink(name=name, mass=mass, com=at[:3, 3], inertia=rotation @ inertia @ rotation.T, where=element.where)


def _hold_root(graph: ModelGraph, base: str, root: XmlElement) -> None:
    """Joins the root link to the ground."""
    roots = graph.roots(root)
    if len(roots) > 1:
        names = listing(link.name for link in roots)
        raise root.refusal(f"must have one link that hangs on no other, but has {names}; join them by a <joint>.")
    for link in roots:
        graph.hold(link, base, np.eye(4))
    if roots and base == "fixed":
        graph.note("merged", f"link '{roots[0].name}'", "is the root, and stands still; `base='free'` lets it move")


# Joints


def _tree_joint(element: XmlElement, graph: ModelGraph) -> ModelJoint:
    kind = element.text("type")
    if kind not in TYPES:
        raise element.refusal(f"must have a `type` out of {listing(TYPES)}, but has {kind!r}.")
    parent, child = (element.required_child(tag).text("link") for tag in ("parent", "child"))
    links = {link.name for link in graph.links}
    for end in (parent, child):
        if end not in links:
            raise element.refusal(f"must join links out of {listing(links)}, but names '{end}'.")
    axis = X_AXIS if TYPES[kind] in ("fixed", "free") else _axis(element.optional_child("axis"), X_AXIS)
    viscous, coulomb = _dynamics(element)
    limits = _limits(element, graph) if TYPES[kind] in ("revolute", "prismatic") else None
    if TYPES[kind] == "free" and (viscous or coulomb):
        graph.note("left out", element, "friction of a floating joint has no element")
    # Only the normal is defined: coordinates of the file's author may be turned about it.
    if kind == "planar":
        graph.note("approximated", element, "the format does not say which way x and y of a planar joint point")
    return ModelJoint(
        name=element.text("name"),
        kind=TYPES[kind],
        parent=parent,
        child=child,
        where=element.where,
        outer=origin(element.optional_child("origin")),
        axis=axis,
        axis_b=axis,
        viscous=viscous,
        coulomb=coulomb,
        # Of a joint that turns without end only effort and velocity have limits.
        limits=None if kind == "continuous" else limits,
    )


def _dynamics(element: XmlElement) -> tuple[float, float]:
    """Damping and friction."""
    dynamics = element.optional_child("dynamics")
    return (0.0, 0.0) if dynamics is None else (_not_negative(dynamics, "damping"), _not_negative(dynamics, "friction"))


def _limits(element: XmlElement, graph: ModelGraph) -> tuple[float, float] | None:
    """The limits of the position, where there is one."""
    limit = element.optional_child("limit")
    if limit is None:
        return None
    for attribute in ("effort", "velocity"):
        if attribute in limit.attributes:
            limit.number(attribute)
            graph.note("listed", f"{element}", f"its limit of {attribute} is not part of a mechanism")
    if not {"lower", "upper"} & set(limit.attributes):
        return None
    low, high = limit.number("lower", 0.0), limit.number("upper", 0.0)
    if low > high:
        raise limit.refusal(f"of {element} must have `lower` below `upper`, but has {low:g} and {high:g}.")
    return low, high


def _mimic(element: XmlElement, graph: ModelGraph) -> None:
    mimic = element.optional_child("mimic")
    if mimic is None:
        return
    leader, ratio = mimic.text("joint"), mimic.number("multiplier", 1.0)
    joints = [graph.joint(name) for name in (leader, element.text("name"))]
    if joints[0] is None or joints[0] is joints[1]:
        names = listing(joint.name for joint in graph.joints)
        raise mimic.refusal(f"of {element} must name another joint out of {names}, but names '{leader}'.")
    if any(joint is not None and joint.kind not in ("revolute", "prismatic") for joint in joints):
        raise mimic.refusal(f"of {element} must relate joints with one coordinate, but does not.")
    if ratio == 0:
        raise mimic.refusal(f"of {element} must not have the `multiplier` 0, but has; make the joint fixed.")
    name = f"{element.text('name')}_mimic"
    graph.couplings.append(
        Coupling(
            name=name,
            joints=(leader, element.text("name")),
            ratio=ratio,
            offset=mimic.number("offset", 0.0),
            where=mimic.where,
        )
    )


# Loops


def _closing(
    element: XmlElement, ends: Sequence[tuple[str, np.ndarray]], axes: Sequence[XmlElement | None]
) -> ModelJoint:
    kind = element.attributes.get("type", "spherical" if element.tag == "loop_constraint" else "")
    if kind not in CLOSING:
        raise element.refusal(f"must have a `type` out of {listing(CLOSING)}, but has {kind!r}.")
    is_universal = CLOSING[kind] == "universal"
    axis = _axis(axes[0], Z_AXIS if is_universal else X_AXIS)
    axis_b = _axis(axes[1], X_AXIS if is_universal else axis)
    viscous, coulomb = _dynamics(element)
    (parent, outer), (child, inner) = ends
    return ModelJoint(
        name=element.text("name"),
        kind=CLOSING[kind],
        parent=parent,
        child=child,
        where=element.where,
        outer=outer,
        inner=inner,
        axis=axis,
        axis_b=axis_b,
        closes=True,
        viscous=viscous,
        coulomb=coulomb,
    )


def _loop_joint(element: XmlElement) -> ModelJoint:
    """<link1 link xyz rpy/>, <link2 …/> and one <axis>."""
    ends = [element.required_child(tag) for tag in ("link1", "link2")]
    axis = element.optional_child("axis")
    return _closing(element, [(end.text("link"), origin(end)) for end in ends], (axis, axis))


def _loop(element: XmlElement) -> ModelJoint:
    """<predecessor link><origin/></predecessor>, <successor …> and one <axis>, as URDF+ has it."""
    ends = [
        element.required_child("predecessor"),
        element.optional_child("sucessor") or element.required_child("successor"),
    ]
    axis = element.optional_child("axis")
    named = [end.attributes.get("link") or end.text("name") for end in ends]
    frames = [origin(end.optional_child("origin")) for end in ends]
    return _closing(element, list(zip(named, frames, strict=True)), (axis, axis))


def _constraint(element: XmlElement) -> ModelJoint:
    """<parent/>, <parent_origin/>, <parent_axis/> and those of the child."""
    sides = ("parent", "child")
    ends = [
        (element.required_child(side).text("link"), origin(element.optional_child(f"{side}_origin"))) for side in sides
    ]
    return _closing(element, ends, [element.optional_child(f"{side}_axis") for side in sides])


CLOSURE_READERS: dict[str, Callable[[XmlElement], ModelJoint]] = {
    "loop_joint": _loop_joint,
    "loop": _loop,
    "loop_constraint": _constraint,
    "constraint": _constraint,
}


def _coupling(element: XmlElement, graph: ModelGraph) -> Coupling:
    """Ratio times the turn of the predecessor is that of the successor, both seen from what carries both."""
    ends = [element.required_child(tag).text("link") for tag in ("predecessor", "successor")]
    ratio = element.required_child("ratio").number("value")
    if element.attributes.get("type", "rolling") != "rolling" or ratio == 0:
        raise element.refusal("must have the `type` 'rolling' and a ratio other than zero, but has not.")
    above = [_ancestors(graph, end, element) for end in ends]
    common = [joint for joint in above[0] if joint in above[1]]
    # What moves both links alike cancels from the relation between them.
    own = [[joint for joint in chain if joint not in common and joint.kind != "fixed"] for chain in above]
    for end, chain in zip(ends, own, strict=True):
        if len(chain) != 1 or chain[0].kind not in ("revolute", "prismatic"):
            raise element.refusal(
                f"must relate links that one joint with one coordinate moves, seen from what carries both, but '{end}' is moved by "
                f"{listing(joint.name for joint in chain)}."
            )
    joints = (own[0][0].name, own[1][0].name)
    return Coupling(name=element.text("name"), joints=joints, ratio=ratio, offset=0.0, where=element.where)


def _ancestors(graph: ModelGraph, link: str, element: XmlElement) -> list[ModelJoint]:
    """The joints from a link up to the ground."""
    parent_joints = {joint.child: joint for joint in graph.joints if not joint.closes}
    if link not in parent_joints:
        raise element.refusal(f"must relate links out of {listing(parent_joints)}, but names '{link}'.")
    chain: list[ModelJoint] = []
    while link != WORLD and parent_joints[link] not in chain:
        chain.append(parent_joints[link])
        link = parent_joints[link].parent
    return chain
