"""Mirror images of mechanisms in the plane.

A frame W becomes F W S, F being the reflection in the world and S that of y in the frame. Bodies' frames and all places on them follow: seen
from one frame, shifts along x stay, along y and angles change their sign.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..mechanism import (
    GROUND,
    AbstractBody,
    AbstractElements,
    AbstractShape,
    BearingFriction,
    Compound,
    Distance,
    DrivenAngle,
    DrivenDistance,
    DrivenSpeed,
    Driver,
    Gear,
    JointCharacteristic,
    JointFriction,
    JointSpring,
    LineCharacteristic,
    Load,
    Marker,
    Motor,
    Rack,
    SpringDamper,
    Thruster,
    body_points,
    changed,
    mapped,
    markers,
    parts,
)
from .contact import KnifeEdge, RollingWheel
from .joint import Fixed, PointOnLine, Prismatic, Revolute
from .shape import Box, Disk, Plate, Rod

FLIP = np.diag([1.0, -1.0, 1.0])
SIDES = np.array([1.0, -1.0])


class Negated(eqx.Module):
    """A function of time with the other sign."""

    fn: Any

    def __call__(self, t: Any, params: Any) -> Any:
        """−f."""
        return -self.fn(t, params)


def negated(fn: Any) -> Any:
    """A function of time with the other sign."""
    return fn.fn if isinstance(fn, Negated) else Negated(fn)


def reflection(point: Float[Array, "2"], along: Float[Array, "2"]) -> Float[Array, "3 3"]:
    """X ↦ p + (2 e eᵀ − 1)(x − p), e along the line through p."""
    unit = along / jnp.linalg.norm(along)
    turned = 2 * jnp.outer(unit, unit) - jnp.eye(2)
    return jnp.eye(3).at[:2, :2].set(turned).at[:2, 2].set(point - turned @ point)


def mirrored(mechanism: AbstractElements, across: Float[Array, "3 3"]) -> dict[str, Any]:
    """What a mechanism is made of after a reflection."""
    image = _Image(mechanism, across)
    points = {name: across @ at @ FLIP for name, at in mechanism.points.items()}
    return parts(mechanism) | mapped(mechanism, image.element) | {"points": points}


class _Image:
    """Elements of a mechanism after a reflection."""

    def __init__(self, mechanism: AbstractElements, across: Float[Array, "3 3"]):
        self.across = across
        self.joints = {joint.name: joint for joint in mechanism.joints}
        self.names = {body.name: renamed_points(body.shape) for body in mechanism.bodies}

    def element(self, one: Any) -> Any:
        if isinstance(one, AbstractBody):
            return self.body(one, self.across)
        rule = RULES.get(type(one))
        if rule is None:
            raise ValueError(
                f"Element '{one.name}' of class `{type(one).__name__}` must not be mirrored, since nothing tells its image; add it "
                "afterwards by `joined`."
            )
        return changed(one, **markers(one, self.marker), **rule(one, self))

    def body(self, one: Any, across: Any) -> Any:
        names, shape = renamed_points(one.shape), self.shape(one)
        masses, places = one.point_masses
        points = {names.get(name, name): FLIP @ at @ FLIP for name, at in one.points.items()}
        return changed(
            one,
            com=one.com * SIDES,
            points=points if shape is None else points | body_points(None, one.name, 2, shape),
            point_masses=(masses, places * SIDES),
            pose=across @ one.pose @ FLIP,
            shape=shape,
        )

    def shape(self, body: AbstractBody) -> AbstractShape | None:
        shape = body.shape
        if shape is None or isinstance(shape, Rod | Box | Disk):
            return shape
        if isinstance(shape, Plate):
            return changed(shape, corners=shape.corners * SIDES)
        if isinstance(shape, Compound):
            own = tuple(self.body(part, FLIP) for part in shape.parts)
            return changed(shape, parts=own, poses=tuple(FLIP @ pose @ FLIP for pose in shape.poses))
        raise ValueError(
            f"Body '{body.name}' must not be mirrored, since nothing tells the image of a `{type(shape).__name__}`."
        )

    def marker(self, at: Marker) -> Marker:
        if at.body == GROUND and at.point is None:
            return changed(at, local=self.across @ (np.eye(3) if at.local is None else at.local) @ FLIP)
        point = None if at.point is None else self.names.get(at.body, {}).get(at.point, at.point)
        return changed(at, point=point, local=None if at.local is None else FLIP @ at.local @ FLIP)

    def sign(self, reference: str) -> float:
        """−1 for an angle, 1 for a shift, of "joint" or "joint.coordinate"."""
        name, _, part = reference.partition(".")
        pair = self.joints[name].pair
        known = pair.coordinates if part in pair.coordinates else pair.velocities
        return -1.0 if pair.angles[known.index(part) if part else 0] else 1.0


def renamed_points(shape: AbstractShape | None) -> dict[str, str]:
    """Points of a shape whose images have other names: a corner of a box is where another one was."""
    if isinstance(shape, Box):
        return {f"c{i}{j}": f"c{i}{1 - j}" for i in (0, 1) for j in (0, 1)}
    if isinstance(shape, Compound):
        return {
            f"{part.name}_{old}": f"{part.name}_{new}"
            for part in shape.parts
            for old, new in renamed_points(part.shape).items()
        }
    return {}


# Rules: the fields that change besides places.


def _nothing(one: Any, image: _Image) -> dict[str, Any]:
    return {}


def _axes(one: Any, image: _Image) -> dict[str, Any]:
    return {"axis": one.axis * SIDES, "axis_b": one.axis_b * SIDES}


def _wheel(one: Any, image: _Image) -> dict[str, Any]:
    return {"axis": -one.axis * SIDES}  # the wheel stays on its left


def _relation(one: Any, image: _Image) -> dict[str, Any]:
    first, second = map(image.sign, one.joints)
    factor = "ratio" if isinstance(one, Gear) else "radius"
    return {factor: first * second * getattr(one, factor), "offset": second * one.offset}


def _driver(one: Any, image: _Image) -> dict[str, Any]:
    return {"fn": negated(one.fn)} if image.sign(one.joint) < 0 else {}


def _characteristic(one: Any, image: _Image) -> dict[str, Any]:
    if image.sign(one.joint) > 0:
        return {}
    return {"y": -one.y} if one.of == "time" else {"x": -one.x[::-1], "y": -one.y[::-1]}


def _load(one: Any, image: _Image) -> dict[str, Any]:
    turned = jnp.diag(jnp.array(SIDES)) if one.follows else image.across[:2, :2]
    return {
        "force": None if one.force is None else turned @ one.force,
        "torque": None if one.torque is None else -one.torque,
    }


RULES: dict[type, Callable[[Any, _Image], dict[str, Any]]] = {
    **dict.fromkeys((Revolute, Fixed, Distance, DrivenDistance, SpringDamper, LineCharacteristic), _nothing),
    **dict.fromkeys((JointFriction, BearingFriction), _nothing),
    **dict.fromkeys((Prismatic, PointOnLine), _axes),
    **dict.fromkeys((Gear, Rack), _relation),
    **dict.fromkeys((Driver, DrivenSpeed), _driver),
    KnifeEdge: lambda one, image: {"axis": one.axis * SIDES},
    RollingWheel: _wheel,
    DrivenAngle: lambda one, image: {"fn": negated(one.fn)},
    JointSpring: lambda one, image: {"rest": image.sign(one.joint) * one.rest},
    JointCharacteristic: _characteristic,
    Load: _load,
    Motor: lambda one, image: {"gain": image.sign(one.joint) * one.gain},
    Thruster: lambda one, image: {"direction": one.direction * SIDES},
}
