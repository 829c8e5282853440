"""jaxmb: differentiable dynamics of constrained mechanical systems in JAX.

At the top is what most programs need; the rest is in rooms, `jm.formulation.KKT`: what is public there is in their `__all__`. All is imported where it is
first used (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import control as control
    from . import design as design
    from . import env as env
    from . import export as export
    from . import fit as fit
    from . import formulation as formulation
    from . import kinematics as kinematics
    from . import mechanism as mechanism
    from . import models as models
    from . import output as output
    from . import planar as planar
    from . import plot as plot
    from . import reaction as reaction
    from . import records as records
    from . import simulation as simulation
    from . import spatial as spatial
    from . import sweep as sweep
    from . import system as system
    from . import topology as topology
    from . import verification as verification
    from .batch import batched as batched
    from .control import equilibrium as equilibrium
    from .control import linearise as linearise
    from .foundations import compiler_options as compiler_options
    from .foundations import RESULTS as RESULTS
    from .foundations import show_progress as show_progress
    from .kinematics import assemble as assemble
    from .kinematics import diagnose as diagnose
    from .kinematics import trace_motion as trace_motion
    from .kinematics import try_assemble as try_assemble
    from .mechanism import convert as convert
    from .models import load as load
    from .output import acceleration as acceleration
    from .output import angle_between as angle_between
    from .output import angular_velocity as angular_velocity
    from .output import coordinate as coordinate
    from .output import energy as energy
    from .output import force as force
    from .output import joint_reaction as joint_reaction
    from .output import joint_reactions as joint_reactions
    from .output import physical_reactions as physical_reactions
    from .output import pose as pose
    from .output import position as position
    from .output import rate as rate
    from .output import reactions as reactions
    from .output import residuals as residuals
    from .output import statics as statics
    from .output import velocity as velocity
    from .reaction import analyse_reactions as analyse_reactions
    from .simulation import Baumgarte as Baumgarte
    from .simulation import choose_engine as choose_engine
    from .simulation import Compiled as Compiled
    from .simulation import NoDrift as NoDrift
    from .simulation import Projection as Projection
    from .simulation import show_config as show_config
    from .simulation import simulate as simulate
    from .simulation import Solution as Solution
    from .simulation import Stepper as Stepper
    from .simulation import stepper as stepper
    from .simulation import XLA as XLA
    from .system import as_state as as_state
    from .system import evaluate as evaluate
    from .system import Holonomic as Holonomic
    from .system import Pfaffian as Pfaffian
    from .system import State as State
    from .system import System as System
    from .topology import Activate as Activate
    from .topology import Brake as Brake
    from .topology import Lock as Lock
    from .topology import Release as Release
    from .topology import transition as transition
    from .verification import check as check
    from .verification import check_gradient as check_gradient
    from .verification import RunCheck as RunCheck

    __version__: str

# What type checkers read above, for the interpreter: the rooms, and names by the rooms that they are in.
_ROOMS = (
    "control",
    "design",
    "env",
    "export",
    "fit",
    "formulation",
    "kinematics",
    "mechanism",
    "models",
    "output",
    "planar",
    "plot",
    "reaction",
    "records",
    "simulation",
    "spatial",
    "sweep",
    "system",
    "topology",
    "verification",
)
_NAMES = {
    "batch": ("batched",),
    "control": ("equilibrium", "linearise"),
    "foundations": ("compiler_options", "RESULTS", "show_progress"),
    "kinematics": ("assemble", "diagnose", "trace_motion", "try_assemble"),
    "mechanism": ("convert",),
    "models": ("load",),
    "output": (
        "acceleration",
        "angle_between",
        "angular_velocity",
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
        "velocity",
    ),
    "reaction": ("analyse_reactions",),
    "simulation": (
        "Baumgarte",
        "choose_engine",
        "Compiled",
        "NoDrift",
        "Projection",
        "show_config",
        "simulate",
        "Solution",
        "Stepper",
        "stepper",
        "XLA",
    ),
    "system": ("as_state", "evaluate", "Holonomic", "Pfaffian", "State", "System"),
    "topology": ("Activate", "Brake", "Lock", "Release", "transition"),
    "verification": ("check", "check_gradient", "RunCheck"),
}
_ROOM_OF = {name: room for room, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.import_module(".foundations", __name__).version(__name__)
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *_ROOMS, *_ROOM_OF, "__version__"})
