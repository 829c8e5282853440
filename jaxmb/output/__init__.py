"""What is read off a state or a solution."""

from .commands import commands
from .points import acceleration, angle_between, angular_velocity, coordinate, force, pose, position, rate, velocity
from .quantities import Energy, Reactions, Residuals, check_motion, energy, physical_reactions, reactions, residuals
from .sensors import IMU, AbstractSensor, Encoder, LoadCell
from .statics import Statics, statics
from .tabulate import tabulate
from .wrench import Wrench, joint_reaction, joint_reactions

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
