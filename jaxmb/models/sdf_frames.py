"""The frames of a model in SDFormat, each seen from another one."""

import numpy as np
from scipy.spatial.transform import Rotation

from ..foundations import listing
from .document import XmlElement
from .graph import WORLD, from_quaternion, pose
from .urdf import QUATERNION_TOLERANCE

# Names of the format for what stands still, and for the model itself.
STILL, MODEL = "world", "__model__"


class SdfFrames:
    """Poses of links, joints and frames in the world, as the model is drawn, and the link that each belongs to.

    Args:
        model: the <model>.
        parts: its links, joints and frames.

    Raises:
        ValueError: for two elements of one name.
    """

    def __init__(self, model: XmlElement, parts: list[XmlElement]):
        self.model = model
        self.named: dict[str, XmlElement] = {}
        for element in parts:
            name = element.text("name")
            if name in self.named:
                raise element.refusal(
                    f"must have a name of its own, but one on line {self.named[name].line} has it too."
                )
            if name in (STILL, MODEL):
                raise element.refusal(f"must have another name than '{name}', which the format uses itself.")
            self.named[name] = element
        self._poses: dict[str, np.ndarray] = {STILL: np.eye(4)}

    def pose(self, name: str, where: XmlElement, chain: tuple[str, ...] = ()) -> np.ndarray:
        """The pose (4, 4) of a frame in the world, asked for by an element.

        Raises:
            ValueError: for a name that there is not, and for frames that refer to each other in a circle.
        """
        if name in chain:
            raise where.refusal(f"must have a pose, but the frames {listing(chain)} refer to each other in a circle.")
        if name not in self._poses:
            if name == MODEL:
                element, base = self.model, STILL
            else:
                element = self._element(name, where)
                base = self._base(element)
            posed = element.optional_child("pose")
            if posed is not None:
                base = posed.attributes.get("relative_to") or base
            self._poses[name] = self.pose(base, element, (*chain, name)) @ pose_of(element)
        return self._poses[name]

    def _base(self, element: XmlElement) -> str:
        """The frame that a pose is relative to by default."""
        if element.tag == "joint":
            return element.required_child("child").content
        return element.attributes.get("attached_to") or MODEL

    def link(self, end: XmlElement) -> str:
        """The link that a <parent> or <child> names, or the ground.

        Raises:
            ValueError: for a name that there is not.
        """
        name, chain = end.content, ()
        while name != STILL:
            if name in chain:
                raise end.refusal(
                    f"must belong to a link, but {listing(chain)} are attached to each other in a circle."
                )
            chain = (*chain, name)
            if name == MODEL:
                first = next((e.text("name") for e in self.named.values() if e.tag == "link"), "")
                name = self.model.attributes.get("canonical_link") or first
            element = self._element(name, end)
            if element.tag == "link":
                return name
            name = self._base(element)
        return WORLD

    def _element(self, name: str, where: XmlElement) -> XmlElement:
        if name not in self.named:
            raise where.refusal(
                f"must name a link, a joint or a frame out of {listing(self.named)}, but names '{name}'."
            )
        return self.named[name]


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
        length = float(np.linalg.norm(values[3:]))
        if abs(length - 1) > QUATERNION_TOLERANCE:
            raise child.refusal(f"must have a quaternion of unit length, but its length is {length:g}.")
        return pose(values[:3], from_quaternion(np.roll(values[3:], 1)))
    if style != "euler_rpy":
        raise child.refusal(f"must have 'euler_rpy' or 'quat_xyzw' as `rotation_format`, but has {style!r}.")
    values = child.content_numbers(6)
    in_degrees = child.attributes.get("degrees", "false") in ("1", "true")
    # Lower case: turns about fixed axes, R = Rz Ry Rx, as in URDF.
    return pose(values[:3], Rotation.from_euler("xyz", values[3:], degrees=in_degrees).as_matrix())
