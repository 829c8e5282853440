"""What is read off a state or a solution."""

from .commands import commands as commands
from .points import acceleration as acceleration
from .points import angle_between as angle_between
from .points import angular_velocity as angular_velocity
from .points import coordinate as coordinate
from .points import force as force
from .points import pose as pose
from .points import position as position
from .points import rate as rate
from .points import velocity as velocity
from .quantities import check_motion as check_motion
from .quantities import Energy as Energy
from .quantities import energy as energy
from .quantities import physical_reactions as physical_reactions
from .quantities import Reactions as Reactions
from .quantities import reactions as reactions
from .quantities import Residuals as Residuals
from .quantities import residuals as residuals
from .sensors import AbstractSensor as AbstractSensor
from .sensors import Encoder as Encoder
from .sensors import IMU as IMU
from .sensors import LoadCell as LoadCell
from .statics import Statics as Statics
from .statics import statics as statics
from .tabulate import tabulate as tabulate
from .wrench import joint_reaction as joint_reaction
from .wrench import joint_reactions as joint_reactions
from .wrench import Wrench as Wrench

# What users and classes of theirs meet; other names are for the packages above.
__all__ = [
    "IMU",
    "AbstractSensor",
    "Encoder",
    "Energy",
    "LoadCell",
    "Reactions",
    "Residuals",
    "Statics",
    "Wrench",
    "acceleration",
    "angle_between",
    "angular_velocity",
    "commands",
    "coordinate",
    "energy",
    "force",
    "joint_reaction",
    "joint_reactions",
    "physical_reactions",
    "pose",
    "position",
    "rate",
    "reactions",
    "residuals",
    "statics",
    "tabulate",
    "velocity",
]
