"""jaxmb: differentiable dynamics of constrained mechanical systems in JAX."""

import importlib
from typing import TYPE_CHECKING

from . import control as control
from . import records as records
from .batch import batched as batched
from .control import equilibrium as equilibrium
from .control import Equilibrium as Equilibrium
from .control import linearise as linearise
from .control import Linearisation as Linearisation
from .control import lqr as lqr
from .formulation import AbstractFormulation as AbstractFormulation
from .formulation import Acceleration as Acceleration
from .formulation import CoordinatePartition as CoordinatePartition
from .formulation import Criterion as Criterion
from .formulation import decoupling as decoupling
from .formulation import Elimination as Elimination
from .formulation import gauss_residual as gauss_residual
from .formulation import GaussProjection as GaussProjection
from .formulation import inertia_conditioning as inertia_conditioning
from .formulation import KKT as KKT
from .formulation import length_metric as length_metric
from .formulation import Minimal as Minimal
from .formulation import NullSpace as NullSpace
from .formulation import OrthogonalProjection as OrthogonalProjection
from .formulation import Partition as Partition
from .formulation import Projected as Projected
from .formulation import projective_criterion as projective_criterion
from .formulation import Proximal as Proximal
from .foundations import compiler_options as compiler_options
from .foundations import RESULTS as RESULTS
from .foundations import version as _version
from .kinematics import assemble as assemble
from .kinematics import Attempt as Attempt
from .kinematics import branches as branches
from .kinematics import Closure as Closure
from .kinematics import closure_kinematics as closure_kinematics
from .kinematics import CurveEvent as CurveEvent
from .kinematics import DependentRows as DependentRows
from .kinematics import diagnose as diagnose
from .kinematics import Diagnosis as Diagnosis
from .kinematics import embed as embed
from .kinematics import Kinematics as Kinematics
from .kinematics import MotionCurve as MotionCurve
from .kinematics import reduce as reduce
from .kinematics import restrict as restrict
from .kinematics import trace_motion as trace_motion
from .kinematics import try_assemble as try_assemble
from .mechanism import convert as convert
from .mechanism import loop_cuts as loop_cuts
from .mechanism import Motion as Motion
from .output import acceleration as acceleration
from .output import angle_between as angle_between
from .output import angular_velocity as angular_velocity
from .output import commands as commands
from .output import coordinate as coordinate
from .output import Energy as Energy
from .output import energy as energy
from .output import force as force
from .output import joint_reaction as joint_reaction
from .output import joint_reactions as joint_reactions
from .output import physical_reactions as physical_reactions
from .output import pose as pose
from .output import position as position
from .output import rate as rate
from .output import Reactions as Reactions
from .output import reactions as reactions
from .output import Residuals as Residuals
from .output import residuals as residuals
from .output import Statics as Statics
from .output import statics as statics
from .output import tabulate as tabulate
from .output import velocity as velocity
from .output import Wrench as Wrench
from .reaction import analyse_reactions as analyse_reactions
from .reaction import ReactionReport as ReactionReport
from .reaction import Verdict as Verdict
from .simulation import AbstractDrift as AbstractDrift
from .simulation import AbstractEngine as AbstractEngine
from .simulation import Baumgarte as Baumgarte
from .simulation import choose_engine as choose_engine
from .simulation import Compiled as Compiled
from .simulation import EngineChoice as EngineChoice
from .simulation import Events as Events
from .simulation import NoDrift as NoDrift
from .simulation import Projection as Projection
from .simulation import show_config as show_config
from .simulation import simulate as simulate
from .simulation import Solution as Solution
from .simulation import Switches as Switches
from .simulation import XLA as XLA
from .system import Mode as Mode
from .topology import Activate as Activate
from .topology import Brake as Brake
from .topology import Lock as Lock
from .topology import Release as Release
from .topology import transition as transition
from .topology import Transition as Transition
from .system import as_state as as_state
from .system import evaluate as evaluate
from .system import Holonomic as Holonomic
from .system import Pfaffian as Pfaffian
from .system import Scale as Scale
from .system import State as State
from .system import System as System
from .system import Terms as Terms

__version__ = _version("jaxmb")

if TYPE_CHECKING:
    from . import fit as fit
    from . import models as models
    from .models import load as load
    from . import planar as planar
    from . import plot as plot
    from . import spatial as spatial
    from . import sweep as sweep

# Packages that not every program needs are imported where they are first used: optax alone takes 0.4 s.
_LATER = ("fit", "models", "planar", "plot", "spatial", "sweep")


def __getattr__(name: str) -> object:
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    if name == "load":
        return importlib.import_module(".models", __name__).load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "load"})
