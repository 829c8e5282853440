"""jaxmb: differentiable dynamics of constrained mechanical systems in JAX.

At the top is what most programs need; the rest is in rooms, `jm.formulation.KKT`: what is public there is in their `__all__`.
"""

import importlib
from typing import TYPE_CHECKING

from . import control as control
from . import formulation as formulation
from . import kinematics as kinematics
from . import mechanism as mechanism
from . import output as output
from . import reaction as reaction
from . import records as records
from . import simulation as simulation
from . import system as system
from . import topology as topology
from . import verification as verification
from .batch import batched as batched
from .control import equilibrium as equilibrium
from .control import linearise as linearise
from .foundations import compiler_options as compiler_options
from .foundations import RESULTS as RESULTS
from .foundations import show_progress as show_progress
from .foundations import version as _version
from .kinematics import assemble as assemble
from .kinematics import diagnose as diagnose
from .kinematics import trace_motion as trace_motion
from .kinematics import try_assemble as try_assemble
from .mechanism import convert as convert
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
from .topology import Activate as Activate
from .topology import Brake as Brake
from .topology import Lock as Lock
from .topology import Release as Release
from .topology import transition as transition
from .system import as_state as as_state
from .system import evaluate as evaluate
from .system import Holonomic as Holonomic
from .system import Pfaffian as Pfaffian
from .system import State as State
from .system import System as System
from .verification import check as check
from .verification import check_gradient as check_gradient
from .verification import RunCheck as RunCheck

__version__ = _version("jaxmb")

if TYPE_CHECKING:
    from . import design as design
    from . import env as env
    from . import export as export
    from . import fit as fit
    from . import models as models
    from .models import load as load
    from . import planar as planar
    from . import plot as plot
    from . import spatial as spatial
    from . import sweep as sweep

# Packages that not every program needs are imported where they are first used: optax alone takes 0.4 s.
_LATER = ("design", "env", "export", "fit", "models", "planar", "plot", "spatial", "sweep")


def __getattr__(name: str) -> object:
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    if name == "load":
        return importlib.import_module(".models", __name__).load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "load"})
