"""Mechanisms in the plane."""

from ..mechanism import DrivenAngle as DrivenAngle
from ..mechanism import BearingFriction as BearingFriction
from ..mechanism import Distance as Distance
from ..mechanism import DrivenDistance as DrivenDistance
from ..mechanism import DrivenSpeed as DrivenSpeed
from ..mechanism import Driver as Driver
from ..mechanism import Force as Force
from ..mechanism import Gear as Gear
from ..mechanism import JointForce as JointForce
from ..mechanism import JointFriction as JointFriction
from ..mechanism import JointSpring as JointSpring
from ..mechanism import Load as Load
from ..mechanism import Motor as Motor
from ..mechanism import Rack as Rack
from ..mechanism import SpringDamper as SpringDamper
from ..mechanism import Thruster as Thruster
from .body import Body as Body
from .body import frame as frame
from .contact import KnifeEdge as KnifeEdge
from .contact import RollingWheel as RollingWheel
from .joint import Fixed as Fixed
from .joint import PointOnLine as PointOnLine
from .joint import Prismatic as Prismatic
from .joint import Revolute as Revolute
from .mechanism import Mechanism as Mechanism
