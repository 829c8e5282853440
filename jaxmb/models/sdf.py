"""SDFormat, whose joints may close loops by themselves."""

from collections.abc import Sequence

import numpy as np

from ..foundations import listing
from .document import XmlElement
from .folder import Folder
from .graph import WORLD, Z_AXIS, Coupling, ModelGraph, ModelJoint, ModelLink, inverse
from .inertia import expect_mass
from .sdf_frames import MODEL, STILL, SdfFrames, pose_of

# Gravity where no <world> says otherwise, as the format has it.
GRAVITY = (0.0, 0.0, -9.8)
# From version 1.5 on an axis is in the frame of its joint; before, in that of the model.
FIRST_VERSION = (1, 5)
TYPES = {
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "fixed": "fixed",
    "ball": "spherical",
    "universal": "universal",
}
# Beyond this size a limit is none, as the format has it.
UNLIMITED = 1e16
# What stands for an <inertial> that is not there.
DEFAULT_MASS, DEFAULT_MOMENT = 1.0, 1.0
# How far two axes of a universal joint may be from a right angle, as the cosine: numbers with four digits.
ACROSS_TOLERANCE = 1e-3
# Elements that are read, by the one they stand in; those that are listed, and why they belong to no mechanism.
READ = {
    "sdf": ("world", "model"),
    "world": ("model", "gravity"),
    "model": ("pose", "link", "joint", "frame", "static"),
    "link": ("pose", "inertial", "gravity"),
    "inertial": ("pose", "mass", "inertia"),
    "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"),
    "joint": ("pose", "parent", "child", "axis", "axis2"),
    "frame": ("pose",),
    "axis": ("xyz", "dynamics", "limit", "mimic", "use_parent_model_frame"),
    "axis2": ("xyz", "dynamics", "limit", "use_parent_model_frame"),
    "dynamics": ("damping", "friction", "spring_stiffness", "spring_reference"),
    "limit": ("lower", "upper"),
    "mimic": ("multiplier", "offset", "reference"),
}
LISTED = {
    **dict.fromkeys(("visual", "light", "material", "scene", "gui", "projector"), "pictures are not read"),
    **dict.fromkeys(("collision", "self_collide", "allow_auto_disable"), "contacts are not read"),
    **dict.fromkeys(("sensor", "audio_sink", "audio_source", "battery"), "sensors are not read"),
    **dict.fromkeys(("plugin", "physics", "state"), "extensions and settings of simulators are not read"),
    **dict.fromkeys(("effort", "velocity", "stiffness", "dissipation"), "these limits are not part of a mechanism"),
    **dict.fromkeys(("spherical_coordinates", "atmosphere", "magnetic_field"), "the surroundings are not read"),
    **dict.fromkeys(
        ("gripper", "kinematic", "must_be_base_link", "enable_wind", "density"), "settings of simulators are not read"
    ),
}
REFUSED = {
    "include": "models in models are not read; write the whole by `gz sdf -p` first",
    "population": "copies are not read",
    "actor": "scripted motion has no element",
    "road": "roads have no element",
}


def sdf_graph(root: XmlElement, folder: Folder, excluded: Sequence[str]) -> ModelGraph:
    """The graph of an <sdf> with one model.

    Args:
        root: the element.
        folder: where files may lie.
        excluded: names of elements that are not read.

    Raises:
        ValueError: with file, line and element.
    """
    _expect_version(root)
    for element in root.walk():
        if element.tag in REFUSED:
            raise element.refusal(f"cannot be read: {REFUSED[element.tag]}.")
        if element.tag == "uri" and element.content:
            # Not opened, but checked: a model that points outside of its folder is refused whether its shapes are read or not.
            folder.locate(element.content, element.where)
    worlds = root.children_of("world")
    models = [m for e in (root, *worlds) for m in e.children_of("model") if m.attributes.get("name") not in excluded]
    if len(models) != 1:
        raise root.refusal(
            f"must hold one <model>, but holds {len(models)}; `exclude=[name]` reads it without one of them."
        )
    graph = ModelGraph(models[0].text("name"), np.array(GRAVITY))
    for world in worlds[:1]:
        gravity = world.optional_child("gravity")
        graph.gravity = graph.gravity if gravity is None else gravity.content_numbers(3)
    SdfReader(models[0], graph, excluded).read()
    for element in root.walk():
        for child in element.children if element.tag in READ else ():
            if child.tag in LISTED:
                graph.note("listed", f"<{child.tag}> of {element}", LISTED[child.tag])
            elif child.tag not in READ[element.tag]:
                graph.note("left out", f"{child} on line {child.line}", "is not known")
    return graph


def _expect_version(root: XmlElement) -> None:
    version = root.text("version")
    parts = version.split(".")
    if not all(part.isdecimal() for part in parts) or tuple(map(int, parts)) < FIRST_VERSION:
        first = ".".join(map(str, FIRST_VERSION))
        raise root.refusal(
            f"must have the `version` {first} or a later one, but has {version!r}; `gz sdf -p` writes it anew."
        )


class SdfReader:
    """The links and joints of a model.

    Args:
        model: the element.
        graph: what is added to.
        excluded: names of elements that are not read.
    """

    def __init__(self, model: XmlElement, graph: ModelGraph, excluded: Sequence[str]):
        self.graph = graph
        named = [e for e in model.children if e.tag in ("link", "joint", "frame")]
        parts = []
        for element in named:
            ends = [end.content for end in element.children_of("parent", "child")]
            if element.text("name") in excluded or any(end in excluded for end in ends):
                graph.note("left out", element, "as was asked for")
            else:
                parts.append(element)
        if nested := model.children_of("model"):
            raise nested[0].refusal("cannot be read: models in models are not read.")
        self.frames = SdfFrames(model, parts)
        self.model, self.parts = model, parts
        self.is_static = _truth(model.optional_child("static"), False)

    def read(self) -> None:
        """Adds all."""
        for element in self.parts:
            if element.tag == "link":
                self.graph.links.append(self._link(element))
        for element in self.parts:
            if element.tag == "joint":
                self.graph.joints.append(self._joint(element))
        for element in self.parts:
            if element.tag == "joint":
                self._mimic(element)
        self._hold_roots()

    def _link(self, element: XmlElement) -> ModelLink:
        name, inertial = element.text("name"), element.optional_child("inertial")
        if name == WORLD:
            raise element.refusal(f"must not be called '{WORLD}', which is what stands still, but is.")
        if not _truth(element.optional_child("gravity"), True):
            self.graph.note("left out", f"<gravity> of {element}", "gravity acts on all bodies alike")
        if inertial is None:
            self.graph.note(
                "approximated",
                element,
                f"has no <inertial>: {DEFAULT_MASS:g} kg and {DEFAULT_MOMENT:g} kg m², as the format has it",
            )
        elif _truth_of(inertial, "auto"):
            raise inertial.refusal(f"of {element} must hold numbers, but is to follow from shapes.")
        at = pose_of(inertial)
        mass = _number(inertial, "mass", DEFAULT_MASS)
        moments = None if inertial is None else inertial.optional_child("inertia")
        xx, yy, zz = (_number(moments, key, DEFAULT_MOMENT) for key in ("ixx", "iyy", "izz"))
        xy, xz, yz = (_number(moments, key, 0.0) for key in ("ixy", "ixz", "iyz"))
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        expect_mass(mass, inertia, element.where)
        turn = at[:3, :3]
        return ModelLink(name=name, mass=mass, com=at[:3, 3], inertia=turn @ inertia @ turn.T, where=element.where)

    # Joints

    def _joint(self, element: XmlElement) -> ModelJoint:
        kind = element.text("type")
        if kind not in TYPES:
            raise element.refusal(f"must have a `type` out of {listing(TYPES)}, but has {kind!r}.")
        ends = [self.frames.link(element.required_child(tag)) for tag in ("parent", "child")]
        here, name = self.frames.pose(element.text("name"), element), element.text("name")
        outer, inner = (inverse(self.frames.pose(STILL if end == WORLD else end, element)) @ here for end in ends)
        axis = axis_b = Z_AXIS
        numbers: dict[str, float] = {}
        if TYPES[kind] in ("revolute", "prismatic", "universal"):
            first = element.required_child("axis")
            axis = axis_b = self._axis(first, here)
            numbers = self._dynamics(first)
        if kind == "universal":
            second = element.required_child("axis2")
            axis_b = self._axis(second, here)
            if abs(axis @ axis_b) > ACROSS_TOLERANCE:
                raise second.refusal(f"of {element} must be at a right angle to <axis>, but is not.")
            if any(numbers.values()) or any(self._dynamics(second).values()):
                self.graph.note("left out", element, "friction and springs of universal joints have no element")
            numbers = {}
        parent, child = ends
        return ModelJoint(
            name=name,
            kind=TYPES[kind],
            parent=parent,
            child=child,
            outer=outer,
            inner=inner,
            axis=axis,
            axis_b=axis_b,
            where=element.where,
            closes=self._closes(parent, child),
            limits=self._limits(element, kind),
            **numbers,
        )

    def _closes(self, parent: str, child: str) -> bool:
        """Whether the child hangs on a joint already, or carries the parent."""
        above = {joint.child: joint.parent for joint in self.graph.joints if not joint.closes}
        at = parent
        while at in above and at != child:
            at = above[at]
        return child in above or at == child

    def _axis(self, element: XmlElement, here: np.ndarray) -> np.ndarray:
        """A direction of unit length in the frame of the joint."""
        xyz = element.optional_child("xyz")
        direction = Z_AXIS if xyz is None else xyz.content_numbers(3)
        if not direction.any():
            raise element.refusal("must have a direction as <xyz>, but has zeros.")
        turn = here[:3, :3]
        if xyz is not None and xyz.attributes.get("expressed_in"):
            direction = turn.T @ self.frames.pose(xyz.text("expressed_in"), xyz)[:3, :3] @ direction
        elif _truth(element.optional_child("use_parent_model_frame"), False):
            direction = turn.T @ self.frames.pose(MODEL, element)[:3, :3] @ direction
        return direction / np.linalg.norm(direction)

    def _dynamics(self, axis: XmlElement) -> dict[str, float]:
        dynamics = axis.optional_child("dynamics")
        keys = {
            "viscous": "damping",
            "coulomb": "friction",
            "stiffness": "spring_stiffness",
            "rest": "spring_reference",
        }
        values = {field: _number(dynamics, key, 0.0) for field, key in keys.items()}
        for field in ("viscous", "coulomb"):
            if dynamics is not None and values[field] < 0:
                raise dynamics.refusal(f"must not have a negative <{keys[field]}>, but has {values[field]:g}.")
        return values

    def _limits(self, element: XmlElement, kind: str) -> tuple[float, float] | None:
        """The limits of the position, where there are two."""
        axis = element.optional_child("axis")
        limit = None if axis is None else axis.optional_child("limit")
        if limit is None or kind not in ("revolute", "prismatic"):
            return None
        low, high = (_bound(limit, key) for key in ("lower", "upper"))
        if low is None or high is None:
            if low is not None or high is not None:
                self.graph.note("listed", element, "has a limit on one side only")
            return None
        if low > high:
            raise limit.refusal(f"of {element} must have <lower> below <upper>, but has {low:g} and {high:g}.")
        return low, high

    def _mimic(self, element: XmlElement) -> None:
        axis = element.optional_child("axis")
        mimic = None if axis is None else axis.optional_child("mimic")
        if mimic is None:
            return
        leader, name, ratio = mimic.text("joint"), element.text("name"), _number(mimic, "multiplier", 1.0)
        joints = [self.graph.joint(x) for x in (leader, name)]
        if joints[0] is None or leader == name:
            raise mimic.refusal(f"of {element} must name another joint, but names '{leader}'.")
        if any(j is not None and j.kind not in ("revolute", "prismatic") for j in joints) or ratio == 0:
            raise mimic.refusal(
                f"of {element} must relate joints with one coordinate by a <multiplier> other than zero, but does not."
            )
        # s₂ = multiplier (s₁ − reference) + offset.
        offset = _number(mimic, "offset", 0.0) - ratio * _number(mimic, "reference", 0.0)
        self.graph.couplings.append(
            Coupling(name=f"{name}_mimic", joints=(leader, name), ratio=ratio, offset=offset, where=mimic.where)
        )

    def _hold_roots(self) -> None:
        """Links that hang on no joint move freely, or stand still in a static model."""
        children = {joint.child for joint in self.graph.joints if not joint.closes}
        roots = [link for link in self.graph.links if link.name not in children]
        if not self.graph.links:
            raise self.model.refusal("must hold a <link>, but holds none.")
        for link in reversed(roots):
            joint = ModelJoint(
                name=f"{link.name}_base",
                kind="fixed" if self.is_static else "free",
                parent=WORLD,
                child=link.name,
                outer=self.frames.pose(link.name, self.model),
                inner=np.eye(4),
                axis=Z_AXIS,
                axis_b=Z_AXIS,
                where=link.where,
            )
            # First, so that coordinates of the base come before those of joints.
            self.graph.joints.insert(0, joint)


def _number(element: XmlElement | None, tag: str, default: float) -> float:
    """The number in the only child of that name."""
    child = None if element is None else element.optional_child(tag)
    return default if child is None else float(child.content_numbers(1)[0])


def _bound(limit: XmlElement, tag: str) -> float | None:
    """A limit; None for none, also where it is written as infinite."""
    child = limit.optional_child(tag)
    if child is None or child.content.lower().lstrip("+-") in ("inf", "infinity"):
        return None
    value = float(child.content_numbers(1)[0])
    return None if abs(value) >= UNLIMITED else value


def _truth(element: XmlElement | None, default: bool) -> bool:
    if element is None:
        return default
    if element.content not in ("0", "1", "true", "false"):
        raise element.refusal(f"must hold 'true' or 'false', but holds {element.content!r}.")
    return element.content in ("1", "true")


def _truth_of(element: XmlElement, attribute: str) -> bool:
    return element.attributes.get(attribute, "false") in ("1", "true")
