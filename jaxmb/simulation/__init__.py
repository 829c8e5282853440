"""Motion in time and what is read off it."""

from .drift import AbstractDrift as AbstractDrift
from .drift import Baumgarte as Baumgarte
from .drift import NoDrift as NoDrift
from .drift import Projection as Projection
from .output import energy as energy
from .output import over_states as over_states
from .output import Energy as Energy
from .output import reactions as reactions
from .output import Reactions as Reactions
from .output import residuals as residuals
from .output import Residuals as Residuals
from .places import acceleration as acceleration
from .places import angular_velocity as angular_velocity
from .places import coordinate as coordinate
from .places import force as force
from .places import pose as pose
from .places import position as position
from .places import rate as rate
from .places import velocity as velocity
from .segments import Events as Events
from .simulate import simulate as simulate
from .solution import Solution as Solution
from .solver import Switches as Switches
from .wrench import joint_reaction as joint_reaction
from .wrench import joint_reactions as joint_reactions
from .wrench import Wrench as Wrench
