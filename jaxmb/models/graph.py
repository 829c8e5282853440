"""The graph of a model, common to all formats: links, joints, couplings, cords and actuators.

All numbers are NumPy's, with double precision: reading compiles nothing and does not depend on the configuration of JAX.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from ..foundations import listing
from ..mechanism import second_moments
from .document import XmlElement

# The name of what stands still.
WORLD = "ground"
X_AXIS, Z_AXIS = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def pose(position: np.ndarray, rotation: np.ndarray | None = None) -> np.ndarray:
    """[[R, p], [0, 1]]."""
    matrix = np.eye(4)
    matrix[:3, 3] = position
    if rotation is not None:
        matrix[:3, :3] = rotation
    return matrix


def inverse(x: np.ndarray) -> np.ndarray:
    """[[Rᵀ, −Rᵀp], [0, 1]]."""
    return pose(-x[:3, :3].T @ x[:3, 3], x[:3, :3].T)


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    """The rotation about a unit vector."""
    return Rotation.from_rotvec(angle * axis).as_matrix()


def from_quaternion(q: np.ndarray) -> np.ndarray:
    """The rotation of a quaternion (w, x, y, z) of any length but zero."""
    # SciPy has the scalar last.
    return Rotation.from_quat(np.roll(q, -1)).as_matrix()


@dataclasses.dataclass(frozen=True)
class Note:
    """An element of the file that the mechanism represents in another way, or not at all.

    Attributes:
        kind: "merged", "renamed", "approximated", "listed", which is read but belongs to no mechanism, or "left out".
        what: the element.
        text: how it is represented.
    """

    kind: str
    what: str
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class ModelLink:
    """A rigid part.

    Attributes:
        name: its name.
        mass: in kg.
        com: centre of mass (3,) in its frame.
        inertia: (3, 3) about the centre of mass, in the axes of its frame.
        where: where it stands, with which a refusal begins.
        points: poses of named frames on it.
    """

    name: str
    mass: float
    com: np.ndarray
    inertia: np.ndarray
    where: str
    points: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def spread(self) -> np.ndarray:
        """∫ x̃ x̃ᵀ dm in its frame, x̃ = (x, 1)."""
        x = np.append(self.com, 1.0)
        return self.mass * np.outer(x, x) + np.pad(second_moments(self.inertia), (0, 1))


def massless_link(name: str, where: str) -> ModelLink:
    """A link without mass and inertia."""
    return ModelLink(name=name, mass=0.0, com=np.zeros(3), inertia=np.zeros((3, 3)), where=where)


@dataclasses.dataclass(frozen=True, eq=False)
class ModelJoint:
    """A joint of the tree, or one that closes a loop.

    Attributes:
        name: its name.
        kind: one of "fixed", "free", "revolute", "prismatic", "cylindrical", "screw", "planar", "universal" and
            "spherical".
        parent, child: the links; `WORLD` for what stands still.
        where: where it stands, with which a refusal begins.
        outer, inner: the joint's frame (4, 4) on the parent and on the child.
        axis, axis_b: its direction (3,) in `outer` and in `inner`.
        closes: whether it closes a loop.
        value: the coordinate of the pose in which `outer` and `inner` coincide.
        viscous, coulomb: damping in N s/m or N m s/rad, and dry friction in N or N m.
        stiffness, rest: of a spring along the coordinate.
        armature: inertia in kg or kg m² that moves with the coordinate alone.
        limits: the least and the largest coordinate, or None.
        pitch: of a screw, the shift along the axis for each turn in m.
    """

    name: str
    kind: str
    parent: str
    child: str
    where: str
    outer: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(4))
    inner: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(4))
    axis: np.ndarray = dataclasses.field(default_factory=lambda: Z_AXIS)
    axis_b: np.ndarray = dataclasses.field(default_factory=lambda: Z_AXIS)
    closes: bool = False
    value: float = 0.0
    viscous: float = 0.0
    coulomb: float = 0.0
    stiffness: float = 0.0
    rest: float = 0.0
    armature: float = 0.0
    limits: tuple[float, float] | None = None
    pitch: float = 0.0

    @property
    def zero(self) -> np.ndarray:
        """`outer`, from which the coordinate is counted."""
        # MJCF draws joints at a reference coordinate, from which this frame turns or shifts back to zero.
        if self.value == 0:
            return self.outer
        axis = self.axis / np.linalg.norm(self.axis)
        back = pose(np.zeros(3), turn(axis, -self.value)) if self.kind == "revolute" else pose(-self.value * axis)
        return self.outer @ back


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """s₂ = ratio s₁ + offset of two joints with one coordinate."""

    name: str
    joints: tuple[str, str]
    ratio: float
    offset: float
    where: str


@dataclasses.dataclass(frozen=True, eq=False)
class Cord:
    """A spring and damper, or where its length is fixed a rod, between two markers (link, pose)."""

    name: str
    a: tuple[str, np.ndarray]
    b: tuple[str, np.ndarray]
    length: float
    where: str
    stiffness: float = 0.0
    damping: float = 0.0
    fixed: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class ModelActuator:
    """An input: along a joint, or along a direction (3,) with the gain as its length at a marker (link, pose)."""

    name: str
    gain: float
    joint: str = ""
    at: tuple[str, np.ndarray] | None = None
    direction: np.ndarray | None = None


@dataclasses.dataclass
class ModelGraph:
    """A model.

    Attributes:
        name: its name.
        links, joints, couplings, cords, actuators: its parts; joints of the tree and those that close loops.
        gravity: (3,) in m/s².
        poses: by name, values of coordinates by the name of the joint, or of a link that moves freely.
        notes: what is said of the reading.
    """

    name: str
    gravity: np.ndarray
    links: list[ModelLink] = dataclasses.field(default_factory=list)
    joints: list[ModelJoint] = dataclasses.field(default_factory=list)
    couplings: list[Coupling] = dataclasses.field(default_factory=list)
    cords: list[Cord] = dataclasses.field(default_factory=list)
    actuators: list[ModelActuator] = dataclasses.field(default_factory=list)
    poses: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    notes: list[Note] = dataclasses.field(default_factory=list)

    def note(self, kind: str, what: object, text: str) -> None:
        """Adds a note."""
        self.notes.append(Note(kind, str(what), text))

    def joint(self, name: str) -> ModelJoint | None:
        """The joint of that name."""
        return next((joint for joint in self.joints if joint.name == name), None)

    def roots(self, model: XmlElement) -> list[ModelLink]:
        """The links that hang on no joint but one that closes a loop.

        Raises:
            ValueError: if there are no links.
        """
        if not self.links:
            raise model.refusal("must hold a <link>, but holds none.")
        children = {joint.child for joint in self.joints if not joint.closes}
        return [link for link in self.links if link.name not in children]

    def hold(self, link: ModelLink, kind: str, at: np.ndarray) -> None:
        """Joins a root to the ground, by a joint that is "fixed" or "free"."""
        joint = ModelJoint(
            name=f"{link.name}_base", kind=kind, parent=WORLD, child=link.name, where=link.where, outer=at
        )
        # First, so that coordinates of the base come before those of joints.
        self.joints.insert(0, joint)

    def note_unread(self, root: XmlElement, read: Mapping[str, Collection[str]], listed: Mapping[str, str]) -> None:
        """Notes elements that are not read: what a mechanism has no use for, and what is not known.

        Args:
            root: the document.
            read: names of those that are read, by the element they stand in.
            listed: why others belong to no mechanism, by name.
        """
        for element in root.walk():
            for child in element.children if element.tag in read else ():
                if child.tag in listed:
                    self.note("listed", f"<{child.tag}> of {element}", listed[child.tag])
                elif child.tag not in read[element.tag]:
                    self.note("left out", f"{child} on line {child.line}", "is not known")


def expect_names(excluded: Sequence[str], names: Collection[str | None]) -> None:
    """Refuses to leave out what a file does not name.

    Raises:
        ValueError: with what it does not.
    """
    if unknown := [name for name in excluded if name not in names]:
        raise ValueError(f"Argument `exclude` must name elements of the file, but names {listing(unknown)}.")
