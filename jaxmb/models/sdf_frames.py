"""The frames of a model in SDFormat and of the models in it, each seen from another one."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from scipy.spatial.transform import Rotation

from ..foundations import listing
from .document import XmlElement
from .graph import WORLD, inverse, pose
from .urdf import unit_quaternion

# Names of the format for what stands still, and for the model itself.
SDF_WORLD, MODEL = "world", "__model__"
# What stands between the name of a model and that of what is in it.
SCOPE = "::"


@dataclasses.dataclass(frozen=True)
class SdfPart:
    """A link, joint, frame or model.

    Attributes:
        name: seen from the outermost model, "arm::wrist" for "wrist" in its model "arm"; `MODEL` for the outermost one.
        element: the element.
        scope: the name of the model that it stands in, in which its own words are understood.
        is_static: whether it stands still, as all in a static model does.
    """

    name: str
    element: XmlElement
    scope: str
    is_static: bool


def parts_of(model: XmlElement, name: str = MODEL, scope: str = MODEL, is_static: bool = False) -> Iterator[SdfPart]:
    """A model and all in it."""
    is_static = is_static or truth(model.optional_child("static"), False)
    yield SdfPart(name, model, scope, is_static)
    for element in model.children_of("link", "joint", "frame", "model"):
        own = element.text("name")
        if own in (SDF_WORLD, MODEL):
            raise element.refusal(f"must have another name than '{own}', which the format uses itself.")
        if element.tag == "model":
            yield from parts_of(element, inside(name, own), name, is_static)
        else:
            yield SdfPart(inside(name, own), element, name, is_static)


def inside(scope: str, name: str) -> str:
    """The name, seen from the outermost model, of what has a name in a model."""
    full = name if scope == MODEL else f"{scope}{SCOPE}{name}"
    return full.removesuffix(f"{SCOPE}{MODEL}")


class SdfFrames:
    """Poses of links, joints, frames and models as they are drawn, and the link that each belongs to.

    Args:
        parts: the outermost model and all in it.

    Raises:
        ValueError: for two elements of one name.
    """

    def __init__(self, parts: list[SdfPart]):
        self.named: dict[str, SdfPart] = {}
        for part in parts:
            if part.name in self.named:
                first = self.named[part.name].element
                raise part.element.refusal(f"must have a name of its own, but one on line {first.line} has it too.")
            self.named[part.name] = part
        self._poses: dict[tuple[str, str], np.ndarray] = {}

    def find(self, name: str, scope: str, where: XmlElement) -> str:
        """The name, seen from the outermost model, of what an element in a model names.

        Raises:
            ValueError: for a name that there is not.
        """
        full = scope if name == MODEL else inside(scope, name)
        if name != SDF_WORLD and full not in self.named:
            raise where.refusal(
                f"must name a link, a joint, a frame or a model out of {listing(self.named)}, but names '{name}'."
            )
        return SDF_WORLD if name == SDF_WORLD else full

    def pose(self, name: str, outer: str = SDF_WORLD, chain: tuple[str, ...] = ()) -> np.ndarray:
        """The pose (4, 4) of a frame in an outer one, by default in the world.

        Raises:
            ValueError: for frames that refer to each other in a circle, or not to the outer one.
        """
        if name == outer:
            return np.eye(4)
        if name == SDF_WORLD or name in chain:
            raise self.named[chain[-1]].element.refusal(
                f"must have a pose, but the frames {listing(chain)} refer to each other in a circle."
                if name in chain
                else f"must have a pose in {self.named[outer].element} as its `placement_frame`, but has none."
            )
        if (name, outer) not in self._poses:
            base, step = self._step(self.named[name])
            self._poses[name, outer] = self.pose(base, outer, (*chain, name)) @ step
        return self._poses[name, outer]

    def _step(self, part: SdfPart) -> tuple[str, np.ndarray]:
        """The frame that the pose of a part is relative to, and the pose in it."""
        element, at = part.element, pose_of(part.element)
        posed = element.optional_child("pose")
        relative = None if posed is None else posed.attributes.get("relative_to")
        base = self._base(part) if posed is None or not relative else self.find(relative, part.scope, posed)
        placed = element.attributes.get("placement_frame") if element.tag == "model" else None
        if placed:
            # The pose is that of a frame in the model.
            at = at @ inverse(self.pose(self.find(placed, part.name, element), part.name))
        return base, at

    def _base(self, part: SdfPart) -> str:
        """The frame that a pose is relative to by default."""
        if part.name == MODEL:
            return SDF_WORLD
        if part.element.tag == "joint":
            child = part.element.required_child("child")
            return self.find(child.content, part.scope, child)
        return self.find(part.element.attributes.get("attached_to") or MODEL, part.scope, part.element)

    def link(self, end: XmlElement, scope: str) -> str:
        """The link that a <parent> or <child> in a model names, or the ground.

        Raises:
            ValueError: for a name that there is not.
        """
        name, chain = self.find(end.content, scope, end), ()
        while name != SDF_WORLD:
            if name in chain:
                raise end.refusal(
                    f"must belong to a link, but {listing(chain)} are attached to each other in a circle."
                )
            chain, part = (*chain, name), self.named[name]
            if part.element.tag == "link":
                return name
            name = self._canonical(part) if part.element.tag == "model" else self._base(part)
        return WORLD

    def _canonical(self, part: SdfPart) -> str:
        """The link, or the model, that the frame of a model belongs to."""
        if part.is_static:
            return SDF_WORLD
        own = [
            x.name
            for tag in ("link", "model")
            for x in self.named.values()
            if x.scope == part.name and x.element.tag == tag and x is not part
        ]
        named = part.element.attributes.get("canonical_link") or None
        if named is None and not own:
            raise part.element.refusal("must hold a <link>, but holds none.")
        return own[0] if named is None else self.find(named, part.name, part.element)


def pose_of(element: XmlElement | None) -> np.ndarray:
    """The <pose> of an element: position in m, then turns about x, y and z of the frame outside in rad, or a quaternion.

    Raises:
        ValueError: for other numbers, and a quaternion that is not of unit length.
    """
    child = None if element is None else element.optional_child("pose")
    if child is None or not child.content:
        return np.eye(4)
    style = child.attributes.get("rotation_format", "euler_rpy")
    if style == "quat_xyzw":
        values = child.content_numbers(7)
        return pose(values[:3], unit_quaternion(values[3:], child))
    if style != "euler_rpy":
        raise child.refusal(f"must have 'euler_rpy' or 'quat_xyzw' as `rotation_format`, but has {style!r}.")
    values = child.content_numbers(6)
    in_degrees = is_true(child, "degrees")
    # Lower case: turns about fixed axes, R = Rz Ry Rx, as in URDF.
    return pose(values[:3], Rotation.from_euler("xyz", values[3:], degrees=in_degrees).as_matrix())


def truth(element: XmlElement | None, default: bool) -> bool:
    """Whether an element holds "true".

    Raises:
        ValueError: if it holds neither that nor "false".
    """
    if element is None:
        return default
    if element.content not in ("0", "1", "true", "false"):
        raise element.refusal(f"must hold 'true' or 'false', but holds {element.content!r}.")
    return element.content in ("1", "true")


def is_true(element: XmlElement, attribute: str) -> bool:
    """Whether an attribute is "true"; not, if there is none."""
    return element.attributes.get(attribute, "false") in ("1", "true")
