"""SDFormat, whose joints may close loops by themselves."""

from collections.abc import Sequence

import numpy as np

from ..foundations import listing
from .document import XmlElement
from .folder import Folder
from .graph import WORLD, Z_AXIS, Coupling, ModelGraph, ModelJoint, ModelLink, inverse
from .inertia import expect_mass
from .sdf_files import SdfFiles, expect_version
from .sdf_frames import SDF_WORLD, SdfFrames, SdfPart, inside, is_true, parts_of, pose_of, truth

# Gravity where no <world> says otherwise, as the format has it.
GRAVITY = (0.0, 0.0, -9.8)
TYPES = {
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "fixed": "fixed",
    "ball": "spherical",
    "universal": "universal",
    "revolute2": "universal",
    "screw": "screw",
}
# No joint, but a relation between two of them.
GEARBOX = "gearbox"
# The shift of a screw for each turn in m where the file does not say it, as the format has it.
DEFAULT_PITCH = 1.0
# Beyond this size a limit is none, as the format has it.
UNLIMITED = 1e16
# What stands for an <inertial> that is not there.
DEFAULT_MASS, DEFAULT_MOMENT = 1.0, 1.0
# How far two axes may be from a right angle, or from parallel, as the cosine, or the sine: numbers with four digits.
DIRECTION_TOLERANCE = 1e-3
# Elements that are read, by the one they stand in; those that are listed, and why they belong to no mechanism.
READ = {
    "sdf": ("world", "model"),
    "world": ("model", "gravity"),
    "model": ("pose", "link", "joint", "frame", "model", "static"),
    "link": ("pose", "inertial", "gravity"),
    "inertial": ("pose", "mass", "inertia"),
    "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"),
    "joint": (
        *("pose", "parent", "child", "axis", "axis2", "thread_pitch", "screw_thread_pitch"),
        *("gearbox_ratio", "gearbox_reference_body"),
    ),
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
    expect_version(root)
    graph = ModelGraph("", np.array(GRAVITY))
    files = SdfFiles(folder, excluded, graph)
    root = files.expanded(root)
    files.expect_excluded()
    for element in root.walk():
        if element.tag in REFUSED:
            raise element.refusal(f"cannot be read: {REFUSED[element.tag]}.")
        if element.tag == "uri" and element.content:
            # Not opened, but checked: a model that points outside of its folder is refused whether its shapes are read or not.
            folder.locate(element.content, element.where, str(element.file.resolve().parent))
    worlds = root.children_of("world")
    models = [m for e in (root, *worlds) for m in e.children_of("model")]
    if len(models) != 1:
        raise root.refusal(
            f"must hold one <model>, but holds {len(models)}; `exclude=[name]` reads it without one of them."
        )
    graph.name = models[0].text("name")
    for world in worlds[:1]:
        gravity = world.optional_child("gravity")
        graph.gravity = graph.gravity if gravity is None else gravity.content_numbers(3)
    SdfReader(models[0], graph).read()
    graph.note_unread(root, READ, LISTED)
    return graph


class SdfReader:
    """The links and joints of a model and of the models in it.

    Args:
        model: the element.
        graph: what is added to.
    """

    def __init__(self, model: XmlElement, graph: ModelGraph):
        self.model, self.graph = model, graph
        parts = list(parts_of(model))
        self.frames = SdfFrames(parts)
        self.links = [part for part in parts if part.element.tag == "link"]
        joints = [part for part in parts if part.element.tag == "joint"]
        self.gearboxes = [part for part in joints if part.element.text("type") == GEARBOX]
        self.joints = [part for part in joints if part.element.text("type") != GEARBOX]
        self.fixed = {WORLD, *(part.name for part in self.links if part.is_static)}

    def read(self) -> None:
        """Adds all."""
        for part in self.links:
            self.graph.links.append(self._link(part))
        for part in self.joints:
            if joint := self._joint(part):
                self.graph.joints.append(joint)
        for part in self.joints:
            self._mimic(part)
        for part in self.gearboxes:
            self.graph.couplings.append(self._gearbox(part))
        self._hold_roots()

    def _link(self, part: SdfPart) -> ModelLink:
        element, name = part.element, part.name
        inertial = element.optional_child("inertial")
        if name == WORLD:
            raise element.refusal(f"must not be called '{WORLD}', which is what stands still, but is.")
        if not truth(element.optional_child("gravity"), True):
            self.graph.note("left out", f"<gravity> of {element}", "gravity acts on all bodies alike")
        if inertial is None:
            self.graph.note(
                "approximated",
                element,
                f"has no <inertial>: {DEFAULT_MASS:g} kg and {DEFAULT_MOMENT:g} kg m², as the format has it",
            )
        elif is_true(inertial, "auto"):
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

    def _joint(self, part: SdfPart) -> ModelJoint | None:
        """A joint; None between links that stand still."""
        element, kind = part.element, part.element.text("type")
        if kind not in TYPES:
            raise element.refusal(f"must have a `type` out of {listing((*TYPES, GEARBOX))}, but has {kind!r}.")
        parent, child = self._ends(part)
        if child == WORLD:
            raise element.refusal("must not have what stands still as its <child>, but has.")
        if {parent, child} <= self.fixed:
            self.graph.note("left out", element, "both its links stand still")
            return None
        here = self.frames.pose(part.name)
        outer, inner = (inverse(self._link_pose(end)) @ here for end in (parent, child))
        axis = axis_b = Z_AXIS
        numbers: dict[str, float] = {}
        if TYPES[kind] in ("revolute", "prismatic", "screw", "universal"):
            first = element.required_child("axis")
            axis = axis_b = self._axis(first, part)
            numbers = self._dynamics(first)
        if TYPES[kind] == "universal":
            second = element.required_child("axis2")
            axis_b = self._axis(second, part)
            if abs(axis @ axis_b) > DIRECTION_TOLERANCE:
                raise second.refusal(
                    f"of {element} must be at a right angle to <axis>, but is not; two joints of type 'revolute' with a link between turn about any axes."
                )
            if any(numbers.values()) or any(self._dynamics(second).values()):
                self.graph.note("left out", element, "friction and springs of universal joints have no element")
            numbers = {}
        if kind == "screw":
            numbers["pitch"] = self._pitch(element)
        return ModelJoint(
            name=part.name,
            kind=TYPES[kind],
            parent=parent,
            child=child,
            where=element.where,
            outer=outer,
            inner=inner,
            axis=axis,
            axis_b=axis_b,
            closes=self._closes(parent, child),
            limits=self._limits(element, kind),
            **numbers,
        )

    def _ends(self, part: SdfPart) -> tuple[str, str]:
        """The links that a joint names."""
        parent, child = (self.frames.link(part.element.required_child(tag), part.scope) for tag in ("parent", "child"))
        return parent, child

    def _link_pose(self, link: str) -> np.ndarray:
        """The pose of a link in the world as the model is drawn."""
        return self.frames.pose(SDF_WORLD if link == WORLD else link)

    def _closes(self, parent: str, child: str) -> bool:
        """Whether the child hangs on a joint already, stands still, or carries the parent."""
        above = {joint.child: joint.parent for joint in self.graph.joints if not joint.closes}
        at = parent
        while at in above and at != child:
            at = above[at]
        return child in above or child in self.fixed or at == child

    def _axis(self, element: XmlElement, part: SdfPart) -> np.ndarray:
        """A direction of unit length in the frame of the joint."""
        xyz = element.optional_child("xyz")
        direction = Z_AXIS if xyz is None else xyz.content_numbers(3)
        if not direction.any():
            raise element.refusal("must have a direction as <xyz>, but has zeros.")
        frame = part.name
        if xyz is not None and xyz.attributes.get("expressed_in"):
            frame = self.frames.find(xyz.text("expressed_in"), part.scope, xyz)
        elif truth(element.optional_child("use_parent_model_frame"), False):
            frame = part.scope
        turn = self.frames.pose(part.name)[:3, :3].T @ self.frames.pose(frame)[:3, :3]
        return turn @ direction / np.linalg.norm(direction)

    def _pitch(self, element: XmlElement) -> float:
        """The shift of a screw along its axis for each turn, of a right-handed thread positive."""
        pitch, older = (element.optional_child(tag) for tag in ("screw_thread_pitch", "thread_pitch"))
        source = older if pitch is None else pitch
        if source is None:
            self.graph.note(
                "approximated", element, f"has no <screw_thread_pitch>: {DEFAULT_PITCH:g} m, as the format has it"
            )
            return DEFAULT_PITCH
        value = float(source.content_numbers(1)[0])
        if value == 0:
            raise source.refusal(f"of {element} must not be zero, but is.")
        # The older one is in rad/m, and of a left-handed thread positive.
        return value if source is pitch else -2 * np.pi / value

    # Relations

    def _gearbox(self, part: SdfPart) -> Coupling:
        """θ₂ = −ratio θ₁ of the turns θ₁ of the parent about <axis> and θ₂ of the child about <axis2>, seen from the reference body."""
        element = part.element
        reference, ratio = element.required_child("gearbox_reference_body"), _number(element, "gearbox_ratio", 1.0)
        if ratio == 0:
            raise element.refusal("must have a <gearbox_ratio> other than zero, but has not.")
        body = self.frames.link(reference, part.scope)
        axes = (element.required_child(tag) for tag in ("axis", "axis2"))
        (first, sign), (second, sign_b) = (
            self._turn(part, body, link, axis) for link, axis in zip(self._ends(part), axes, strict=True)
        )
        if first == second:
            raise element.refusal("must relate two links, but has one as <parent> and <child>.")
        ratio *= -sign * sign_b
        return Coupling(name=part.name, joints=(first, second), ratio=ratio, offset=0.0, where=element.where)

    def _turn(self, part: SdfPart, body: str, link: str, axis: XmlElement) -> tuple[str, float]:
        """The joint by which a link turns on a body about an axis, and the sign of its angle."""
        direction = self.frames.pose(part.name)[:3, :3] @ self._axis(axis, part)
        for joint in self.graph.joints:
            own = self.frames.pose(joint.name)[:3, :3] @ joint.axis
            is_parallel = np.linalg.norm(np.cross(own, direction)) < DIRECTION_TOLERANCE
            if (
                joint.kind == "revolute"
                and not joint.closes
                and {joint.parent, joint.child} == {body, link}
                and is_parallel
            ):
                return joint.name, float(np.sign(own @ direction)) * (1.0 if joint.child == link else -1.0)
        raise axis.refusal(
            f"of {part.element} must be that of a joint by which '{link}' turns on '{body}', its <gearbox_reference_body>, but there is none."
        )

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
        axes = [axis for axis in map(element.optional_child, ("axis", "axis2")) if axis is not None]
        limit = next((x for axis in axes if (x := axis.optional_child("limit")) is not None), None)
        if limit is None or kind not in ("revolute", "prismatic"):
            if limit is not None and kind != "continuous":
                self.graph.note("listed", element, f"limits of the type '{kind}' are not part of a mechanism")
            return None
        low, high = (_bound(limit, key) for key in ("lower", "upper"))
        if low is None or high is None:
            if low is not None or high is not None:
                self.graph.note("listed", element, "has a limit on one side only")
            return None
        if low > high:
            raise limit.refusal(f"of {element} must have <lower> below <upper>, but has {low:g} and {high:g}.")
        return low, high

    def _mimic(self, part: SdfPart) -> None:
        element, name = part.element, part.name
        axis = element.optional_child("axis")
        mimic = None if axis is None else axis.optional_child("mimic")
        if mimic is None:
            return
        leader, ratio = inside(part.scope, mimic.text("joint")), _number(mimic, "multiplier", 1.0)
        joints = [self.graph.joint(x) for x in (leader, name)]
        if joints[0] is None or leader == name:
            raise mimic.refusal(f"of {element} must name another joint, but names '{leader}'.")
        if any(j is not None and j.kind not in ("revolute", "prismatic", "screw") for j in joints) or ratio == 0:
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
        for link in reversed(self.graph.roots(self.model)):
            self.graph.hold(link, "fixed" if link.name in self.fixed else "free", self._link_pose(link.name))


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
