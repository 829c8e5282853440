"""Mechanisms in the plane and in space alike: bodies, joints, drivers, forces, and the systems built from them."""

from .body import AbstractBody, body_points, moments_of_inertia, second_moments
from .characteristic import JointCharacteristic, LineCharacteristic, Table
from .checks import check
from .compose import replace_fields
from .compound import Compound, compound
from .connection import (
    ROLLING,
    AbstractConnection,
    AbstractFrameJoint,
    AbstractJoint,
    AbstractRelation,
    AbstractRolling,
    Distance,
    direction,
    ends,
)
from .convert import convert
from .cut import loop_cuts
from .driver import AbstractDriver, DrivenAngle, DrivenDistance, DrivenSpeed, Driver
from .force import (
    FRICTION_SPEED,
    AbstractActuator,
    AbstractForce,
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
from .friction import joint_loads
from .joint_inertia import JointInertia
from .joint_rows import acceleration_of_bodies, connection_slot, joint_terms, wrench_map
from .joints import CoordinateFunction, absolute
from .linkage import AbstractLinkage, linkage_of
from .marker import Marker, MarkerLike, as_pose, as_vector, marker
from .mechanism import AbstractMechanism
from .mirror import BOX, PLATE, SAME, Image, Rule, directions, reflection, unchanged
from .motion import Motion
from .pair import AbstractPair, Helix, Pair
from .polygon import polygon, polygon_moments
from .pose import axis_rotation, inverse, pose, position_of, product, rotation_of, velocity_in
from .relation import Gear, Rack
from .rotation import Ball, Cardan, Locked, Turning, matrix_quaternion, quaternion_matrix
from .shape import AbstractBox, AbstractDisk, AbstractRod, AbstractShape, Stroke, bore, dimension
from .stop import JointStop
from .structure import Numbers, names_of
from .text import ELEMENTS, Language

# What users and classes of theirs meet; other names are for the packages above.
__all__ = ["Motion", "convert", "loop_cuts"]
