"""The language of texts of mechanisms: names of tables, classes and arguments."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..characteristic import JointCharacteristic, LineCharacteristic
from ..connection import Distance
from ..driver import DrivenDistance, DrivenSpeed, Driver
from ..force import (
    BearingFriction,
    Force,
    JointForce,
    JointFriction,
    JointSpring,
    Load,
    Motor,
    SpringDamper,
    Thruster,
)
from ..joint_inertia import JointInertia
from ..relation import Gear, Rack
from ..stop import JointStop

# What the standard library reads of TOML: strings, numbers, truth values, lists and tables of these. Python has no recursive
# unions that beartype would check, so that it stays open here, and each reader refuses what it cannot use.
TomlValue = Annotated[Any, "str | bool | int | float | list[TomlValue] | Mapping[str, TomlValue]"]
VERSION = 1
# The table of each kind of element.
TABLES = {"bodies": "body", "joints": "joint", "drivers": "driver", "forces": "force", "actuators": "actuator"}
# The elements that the plane and space share.
ELEMENTS = (
    *(Distance, Gear, Rack, Driver, DrivenDistance, DrivenSpeed, Motor, Thruster),
    *(SpringDamper, JointSpring, JointFriction, BearingFriction, Load, Force, JointForce),
    *(JointCharacteristic, LineCharacteristic, JointInertia, JointStop),
)


@dataclasses.dataclass(frozen=True)
class Language:
    """The language of mechanisms in the plane, or in space.

    Attributes:
        space: what it is called.
        kinds: the classes of elements and shapes, by name.
        frame: makes a pose of a position and a turn.
        turn: the name of the turn: an angle, a quaternion or a rotation matrix.
        turn_of: a turn of which `frame` makes this rotation matrix, perhaps but for rounding.
    """

    space: str
    kinds: Mapping[str, type]
    frame: Callable[..., Float[Array, "D D"]]
    turn: str
    turn_of: Callable[[Float[Array, "d d"]], Array]


def arguments(cls: type) -> dict[str, inspect.Parameter]:
    """The arguments that a class is made with, each of which its objects have as an attribute."""
    return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])


def same(one: PyTree, other: PyTree) -> bool:
    """Whether two trees are equal bit for bit."""
    (ours, shape), (theirs, other_shape) = jax.tree.flatten(one), jax.tree.flatten(other)
    # Bytes, not numbers: −0.0 and 0.0 differ, and a NaN is the same as itself.
    equal = lambda a, b: a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return shape == other_shape and all(equal(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True))
