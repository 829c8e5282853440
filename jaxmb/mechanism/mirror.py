"""Mirror images of mechanisms.

A frame W becomes F W S, F being the reflection in the world and S that of y in the frame. Bodies' frames and all markers on them follow. Seen from
one frame, what is directed along y changes its sign, and so do angles: in the plane all of them, in space those about x and z.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ..foundations import FunctionOfTime
from .body import AbstractBody, body_points
from .characteristic import JointCharacteristic, LineCharacteristic
from .compose import mapped, markers, parts, replace_fields
from .compound import Compound
from .connection import AbstractJoint, Distance
from .driver import DrivenAngle, DrivenDistance, DrivenSpeed, Driver
from .elements import AbstractElements, MechanismElement
from .force import BearingFriction, JointFriction, JointSpring, Load, Motor, SpringDamper, Thruster
from .joint_inertia import JointInertia
from .marker import GROUND, Marker
from .relation import Gear, Rack
from .shape import AbstractShape
from .stop import JointStop


class Negated(eqx.Module):
    """A function of time with the other sign."""

    fn: FunctionOfTime

    def __call__(self, t: ArrayLike, params: PyTree) -> ArrayLike:
        """−f."""
        return -self.fn(t, params)


def _negated(fn: FunctionOfTime) -> FunctionOfTime:
    return fn.fn if isinstance(fn, Negated) else Negated(fn)


def reflection(point: Float[Array, " d"], normal: Float[Array, " d"]) -> Float[Array, "D D"]:
    """X ↦ x − 2 n nᵀ (x − p)."""
    unit = normal / jnp.linalg.norm(normal)
    dim = unit.shape[0]
    across = jnp.eye(dim) - 2 * jnp.outer(unit, unit)
    return jnp.eye(dim + 1).at[:dim, :dim].set(across).at[:dim, dim].set(point - across @ point)


# The image of a shape where y changes its sign, and the names that points have in it whose images go by others.
ShapeRule = tuple[Callable[[Any], Any], Callable[[Any], dict[str, str]]]


def _corner(end: tuple[int, ...]) -> str:
    return "c" + "".join(map(str, end))


SAME: ShapeRule = (lambda shape: shape, lambda shape: {})
# A box is its own image, but its lower corners along y lie where the upper ones of the image are.
BOX: ShapeRule = (SAME[0], lambda box: {_corner(end): _corner((end[0], 1 - end[1], *end[2:])) for end in box.ends})
PLATE: ShapeRule = (lambda plate: replace_fields(plate, corners=plate.corners * jnp.array([1.0, -1.0])), SAME[1])


class Image:
    """The elements of a mechanism after a reflection.

    Args:
        mechanism: the mechanism.
        across: F.
        rules: for each class of element, beyond those of `RULES`, the fields that change besides markers.
        shapes: for each class of shape, beyond `Compound`, what becomes of it.
    """

    def __init__(
        self,
        mechanism: AbstractElements,
        across: Float[Array, "D D"],
        rules: dict[type, "Rule"],
        shapes: dict[type, ShapeRule],
    ):
        self.mechanism, self.across, self.dim = mechanism, across, mechanism.gravity.shape[0]
        # S: the frame of the image is F W S, a rotation again, since two reflections cancel. Any axis would do for S;
        # y keeps x, along which rods lie and vehicles drive.
        self.sides = np.where(np.arange(self.dim) == 1, -1.0, 1.0)
        self.flip = jnp.diag(jnp.array([*self.sides, 1.0]))
        self.rules, self.shapes = RULES | rules, shapes
        self.joints = {joint.name: joint for joint in mechanism.joints if isinstance(joint, AbstractJoint)}
        self.names = {body.name: self.renamed_points(body.shape) for body in mechanism.bodies}

    def parts(self) -> dict[str, Any]:
        """The arguments of the image."""
        points = {name: self.across @ at @ self.flip for name, at in self.mechanism.points.items()}
        return parts(self.mechanism) | mapped(self.mechanism, self.element) | {"points": points}

    def element(self, element: MechanismElement) -> MechanismElement:
        """The image of an element."""
        if isinstance(element, AbstractBody):
            return self.body(element, self.across)
        rule = self.rules.get(type(element))
        if rule is None:
            raise ValueError(
                f"Element '{element.name}' of class `{type(element).__name__}` must not be mirrored, since its image is not known; add it "
                "afterwards by `joined`."
            )
        return replace_fields(element, **markers(element, self.marker), **rule(element, self))

    def body(self, body: AbstractBody, across: Float[Array, "D D"]) -> AbstractBody:
        """The image of a body, whose frame W becomes `across` W S."""
        names, shape = self.renamed_points(body.shape), self.shape(body)
        masses, positions = body.point_masses
        points = {names.get(name, name): self.local(at) for name, at in body.points.items()}
        return replace_fields(
            body,
            com=body.com * self.sides,
            inertia=body.inertia if self.dim == 2 else self.sides[:, None] * body.inertia * self.sides,
            points=points if shape is None else points | body_points(None, body.name, self.dim, shape),
            point_masses=(masses, positions * self.sides),
            pose=across @ body.pose @ self.flip,
            shape=shape,
        )

    def shape(self, body: AbstractBody) -> AbstractShape | None:
        """The image of a body's shape."""
        shape = body.shape
        if shape is None:
            return None
        if isinstance(shape, Compound):
            # Parts live in the frame of their compound, of which S X S is the image, not F X S.
            own = tuple(self.body(part, self.flip) for part in shape.parts)
            return replace_fields(shape, parts=own, poses=tuple(map(self.local, shape.poses)))
        if type(shape) not in self.shapes:
            raise ValueError(
                f"Body '{body.name}' must not be mirrored, since the image of a `{type(shape).__name__}` is not known."
            )
        return self.shapes[type(shape)][0](shape)

    def renamed_points(self, shape: AbstractShape | None) -> dict[str, str]:
        """Names of points whose images have other names."""
        if isinstance(shape, Compound):
            return {
                f"{part.name}_{old}": f"{part.name}_{new}"
                for part in shape.parts
                for old, new in self.renamed_points(part.shape).items()
            }
        return self.shapes[type(shape)][1](shape) if type(shape) in self.shapes else {}

    def local(self, pose: Float[Array, "D D"]) -> Float[Array, "D D"]:
        """The image of a pose on a body, S X S."""
        return self.flip @ pose @ self.flip

    def marker(self, at: Marker) -> Marker:
        """The image of a marker."""
        if at.body == GROUND and at.point is None:
            return replace_fields(
                at, local=self.across @ (np.eye(self.dim + 1) if at.local is None else at.local) @ self.flip
            )
        point = None if at.point is None else self.names.get(at.body, {}).get(at.point, at.point)
        return replace_fields(at, point=point, local=None if at.local is None else self.local(at.local))

    def sign(self, reference: str) -> float:
        """−1 if "joint" or "joint.coordinate" changes its sign, else 1."""
        name, _, part = reference.partition(".")
        pair = self.joints[name].pair
        return -1.0 if (part or pair.velocities[0]) in pair.reversed else 1.0


Rule = Callable[[Any, Image], dict[str, Any]]

# Rules: the fields that change besides markers.


def unchanged(element: MechanismElement, image: Image) -> dict[str, Any]:
    """No field changes besides markers."""
    return {}


def directions(*fields: str) -> Rule:
    """The rule of fields that are directions in the frames of an element's markers."""
    return lambda element, image: {field: getattr(element, field) * image.sides for field in fields}


def _relation(relation: Gear | Rack, image: Image) -> dict[str, Any]:
    # s₂ = ratio s₁ + offset with σ₁ s₁ and σ₂ s₂ in place of s₁ and s₂.
    first, second = map(image.sign, relation.joints)
    factor = "ratio" if isinstance(relation, Gear) else "radius"
    return {factor: first * second * getattr(relation, factor), "offset": second * relation.offset}


def _driver(driver: Driver | DrivenSpeed, image: Image) -> dict[str, Any]:
    return {"fn": _negated(driver.fn)} if image.sign(driver.joint) < 0 else {}


def _characteristic(force: JointCharacteristic, image: Image) -> dict[str, Any]:
    if image.sign(force.joint) > 0:
        return {}
    # f(s) becomes −f(−s) where the coordinate changes its sign, with points in rising order again; of time only f
    # changes.
    return {"y": -force.y} if force.of == "time" else {"x": -force.x[::-1], "y": -force.y[::-1]}


def _stop(stop: JointStop, image: Image) -> dict[str, Any]:
    if image.sign(stop.joint) > 0:
        return {}
    # The least coordinate becomes the largest where it changes its sign.
    lower, upper = (None if x is None else -x for x in (stop.upper, stop.lower))
    return {"lower": lower, "upper": upper}


def _load(load: Load, image: Image) -> dict[str, Any]:
    # A load that follows its body is given in the body's axes, another one in those of the world.
    turned = jnp.diag(jnp.asarray(image.sides)) if load.follows else image.across[:-1, :-1]
    about = lambda torque: -torque if image.dim == 2 else -turned @ torque  # a torque is directed as a turn
    return {
        "force": None if load.force is None else turned @ load.force,
        "torque": None if load.torque is None else about(load.torque),
    }


RULES: dict[type, Rule] = {
    **dict.fromkeys((Distance, DrivenDistance, SpringDamper, LineCharacteristic), unchanged),
    **dict.fromkeys((JointFriction, BearingFriction, JointInertia), unchanged),
    **dict.fromkeys((Gear, Rack), _relation),
    **dict.fromkeys((Driver, DrivenSpeed), _driver),
    DrivenAngle: lambda one, image: {"fn": _negated(one.fn)},
    JointSpring: lambda one, image: {"rest": image.sign(one.joint) * one.rest},
    JointCharacteristic: _characteristic,
    JointStop: _stop,
    Load: _load,
    Motor: lambda one, image: {"gain": image.sign(one.joint) * one.gain},
    Thruster: directions("direction"),
}
