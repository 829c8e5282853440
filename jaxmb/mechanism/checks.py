"""Checks of a mechanism and of a build; errors name the element."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..foundations import Check, arrays_of, counted, default_float, enforce, listing, shape_of, stacked
from .body import AbstractBody, inertia_checks
from .characteristic import JointCharacteristic
from .connection import AbstractConnection, AbstractJoint, AbstractRelation
from .driver import AbstractDriver, AbstractPointDriver, DrivenAngle, DrivenSpeed, Driver
from .elements import AbstractElements, local_pose
from .force import (
    AbstractActuator,
    AbstractForce,
    BearingFriction,
    Force,
    JointForce,
    JointFriction,
    JointSpring,
    Load,
    Motor,
    Thruster,
)
from .linkage import AbstractLinkage
from .marker import GROUND, Marker
from .pair import AbstractPair
from .stop import JointStop
from .structure import Numbers

KINDS = {
    "bodies": AbstractBody,
    "joints": (AbstractConnection, AbstractRelation),
    "drivers": AbstractDriver,
    "forces": AbstractForce,
    "actuators": AbstractActuator,
}
# Units of the coordinates that a function of time, or another coordinate, may prescribe: components of a quaternion depend on each other.
LINEAR = ("m", "rad")
SPACES = {2: "`jaxmb.planar`", 3: "`jaxmb.spatial`"}


def check(mechanism: AbstractElements) -> None:
    """Refuses wrong names, references and numbers of elements.

    Raises:
        ValueError, TypeError: naming the element and what it should be.
    """
    # Names before all else: later messages refer to elements by name.
    names = [GROUND]
    for argument, kind in KINDS.items():
        for element in getattr(mechanism, argument):
            if not isinstance(element, kind):
                raise TypeError(f"Argument `{argument}` must not hold {type(element).__name__} objects, but does.")
            if element.name == GROUND:
                raise ValueError(
                    f"Argument `{argument}` must hold elements with names other than 'ground', which is the ground's own."
                )
            if element.name in names or "." in element.name:
                raise ValueError(
                    f"Argument `{argument}` must hold elements with names that differ from all others and have no dot, but "
                    f"holds '{element.name}'."
                )
            names.append(element.name)
            _check_dimension(argument, element, mechanism.gravity.shape[0])
            _check_vectors(element, mechanism.gravity.shape[0])
    if not mechanism.bodies:
        raise ValueError("Argument `bodies` must hold at least one body.")
    for element in mechanism.elements.values():
        for marker in jax.tree.leaves(element, is_leaf=lambda x: isinstance(x, Marker)):
            if isinstance(marker, Marker):
                local_pose(mechanism, marker, f"Element '{element.name}'")
        if isinstance(element, AbstractConnection | AbstractPointDriver) and element.a.body == element.b.body:
            raise ValueError(
                f"Element '{element.name}' must tie two bodies, but has both its markers on '{element.a.body}'."
            )
    _check_joint_names(mechanism)
    for driver in mechanism.drivers:
        value = _with_floats(driver.fn)
        shape_of(f"fn of driver '{driver.name}'", value, (jnp.zeros((), default_float()), mechanism.params), ())
    enforce(mechanism, _finite(mechanism))
    enforce(mechanism, _inertias(mechanism))


def _with_floats(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`fn` with integers as the numbers that constants such as `lambda t, p: 1` stand for; truth values stay, to be refused."""

    def numbers(*args: PyTree) -> PyTree:
        value = fn(*args)
        if value is None:
            return None
        value = jnp.asarray(value)
        return value.astype(default_float()) if jnp.issubdtype(value.dtype, jnp.integer) else value

    return numbers


def check_forces(linkage: AbstractLinkage, numbers: Numbers) -> None:
    """Refuses functions of forces that return anything but numbers of the right shape; they read the motion of a build."""
    t, q, v = (jax.ShapeDtypeStruct(shape, default_float()) for shape in ((), (linkage.nq,), (linkage.nv,)))
    user_forces = [force for force in numbers.forces if isinstance(force, Force | JointForce)]
    motion = jax.eval_shape(linkage.motion, t, q, v, numbers) if user_forces else None
    for force in user_forces:
        if isinstance(force, Force):
            shapes = [(3 if linkage.dim == 2 else 6,)]
        else:
            shapes = [(len(linkage.slot(force.joint).pair.velocities),), ()]
        shape_of(f"fn of force '{force.name}'", _with_floats(force.fn), (motion,), *shapes)


def _check_dimension(argument: str, element: object, dim: int) -> None:
    """Refuses elements of space in a mechanism of the plane, and the reverse; some elements belong to both."""
    own = dim
    if isinstance(element, AbstractBody):
        own = element.pose.shape[0] - 1
    elif isinstance(element, AbstractJoint):
        # Rows and freedoms of a lower pair add up to the freedoms of a free body: 3 in the plane, 6 in space.
        own = 2 if element.holonomic + len(element.pair.velocities) == 3 else 3
    elif isinstance(element, AbstractConnection):
        rotations = element.frame_rotations()
        own = dim if rotations is None else rotations[0].shape[0]
    elif isinstance(element, DrivenAngle):
        own = 2
    if own != dim:
        name = getattr(element, "name", "")
        raise ValueError(
            f"Argument `{argument}` must hold elements of {SPACES[dim]}, but '{name}' is one of {SPACES[own]}."
        )


def _check_vectors(element: object, dim: int) -> None:
    """Refuses forces, torques and directions that have not as many components as their space."""
    if isinstance(element, Load):
        vectors = {"force": (element.force, dim), "torque": (element.torque, 1 if dim == 2 else 3)}
    elif isinstance(element, Thruster):
        vectors = {"direction": (element.direction, dim)}
    else:
        return
    for field, (vector, count) in vectors.items():
        if vector is not None and vector.shape != (count,):
            raise ValueError(
                f"Argument `{field}` of '{element.name}' must have {counted(count, 'component')} in {SPACES[dim]}, but has {vector.shape[0]}."
            )


def _parts(element: object, pair: AbstractPair, units: Sequence[str]) -> tuple[str, ...]:
    """The coordinates or velocities of a joint of which an element may name one; "" stands for the whole joint."""
    if isinstance(element, JointFriction | BearingFriction | JointForce):
        return ("",)
    if isinstance(element, Driver | AbstractRelation):
        return tuple(name for name, unit in zip(pair.coordinates, pair.units, strict=True) if unit in units)
    if isinstance(element, JointSpring | JointStop | JointCharacteristic) and element.coordinates():
        return tuple(name for name in pair.coordinates if name in pair.velocities)
    if isinstance(element, DrivenSpeed | Motor | JointCharacteristic):
        return pair.velocities
    return (*dict.fromkeys((*pair.coordinates, *pair.velocities)), "")


def _references(element: object) -> list[tuple[str, Sequence[str]]]:
    """The joints, or their coordinates, that an element names, and the units that these may have."""
    if isinstance(element, AbstractRelation):
        return list(zip(element.joints, element.units, strict=True))
    name = getattr(element, "joint", None)
    return [] if name is None else [(name, LINEAR)]


def _check_joint_names(mechanism: AbstractElements) -> None:
    joints = {j.name: j.pair for j in mechanism.joints if isinstance(j, AbstractJoint)}
    for element in mechanism.elements.values():
        for name, units in _references(element):
            joint, _, part = name.partition(".")
            parts = _parts(element, joints[joint], units) if joint in joints else ()
            if joint not in joints or (part and parts == ("",)):
                raise ValueError(
                    f"Element '{element.name}' must name a joint out of {listing(joints)}, but names '{name}'."
                )
            velocities = joints[joint].velocities
            # A joint of one coordinate is named by its own name, too.
            alone = "".join(parts) if len(parts) == len(velocities) == 1 else ""
            if (part or alone) not in parts:
                which = f" in {' or '.join(units)}" if isinstance(element, Driver | AbstractRelation) else ""
                hint = (
                    f"; a `DrivenSpeed` drives one out of {listing(velocities)}" if isinstance(element, Driver) else ""
                )
                raise ValueError(
                    f"Element '{element.name}' must name a coordinate{which} of joint '{joint}' out of {listing(parts)}, but names '{name}'{hint}."
                )


def _finite(mechanism: AbstractElements) -> list[Check]:
    """The check that numbers of elements are finite, those inside of users' functions apart."""
    values = {"gravity": mechanism.gravity, "points of 'ground'": mechanism.points}
    for element in mechanism.elements.values():
        for field in dataclasses.fields(element):
            if field.name != "fn":
                values[f"{field.name} of '{element.name}'"] = getattr(element, field.name)
    leaves = {name: jax.tree.leaves(eqx.filter(value, eqx.is_inexact_array)) for name, value in values.items()}
    arrays = {name: own for name, own in leaves.items() if own}
    # One reduction for all elements together: a check by element would synchronise with the device for each.
    xp = arrays_of(arrays)
    counts = [sum(xp.sum(~xp.isfinite(x)) for x in own) for own in arrays.values()]
    amounts = stacked([x * 1.0 for x in counts])
    return [Check(amounts, 0.0, "Argument `{name}` must hold finite numbers, but does not.", tuple(arrays))]


def _inertias(mechanism: AbstractElements) -> list[Check]:
    return [check for body in mechanism.bodies for check in inertia_checks(body)]
