"""Positions and velocities on the constraints."""

from .assemble import assemble as assemble
from .attempt import Attempt as Attempt
from .attempt import try_assemble as try_assemble
from .branches import branches as branches
from .closing import belongs_to_motion as belongs_to_motion
from .closing import consistency as consistency
from .closing import Guess as Guess
from .closing import solve_guess as solve_guess
from .closure import Closure as Closure
from .closure import closure_kinematics as closure_kinematics
from .closure import embed as embed
from .closure import Kinematics as Kinematics
from .closure import reduce as reduce
from .closure import restrict as restrict
from .correction import BESIDE as BESIDE
from .correction import by_lengths as by_lengths
from .correction import CLOSE as CLOSE
from .correction import correct as correct
from .correction import correct_by as correct_by
from .correction import Correction as Correction
from .correction import factors_at as factors_at
from .correction import directions as directions
from .correction import distance_to_dependence as distance_to_dependence
from .correction import linearise_correction as linearise_correction
from .correction import NEAR as NEAR
from .correction import with_derivative as with_derivative
from .curve import CurveEvent as CurveEvent
from .curve import MotionCurve as MotionCurve
from .diagnosis import DependentRows as DependentRows
from .diagnosis import diagnose as diagnose
from .diagnosis import spectral_gap as spectral_gap
from .diagnosis import Diagnosis as Diagnosis
from .rows import choose_rows as choose_rows
from .rows import Rows as Rows
from .shortest_move import nearest as nearest
from .trace import trace_motion as trace_motion

# What users and classes of theirs meet; other names are for the packages above.
__all__ = [
    "Attempt",
    "Closure",
    "CurveEvent",
    "DependentRows",
    "Diagnosis",
    "Kinematics",
    "MotionCurve",
    "assemble",
    "branches",
    "closure_kinematics",
    "diagnose",
    "embed",
    "reduce",
    "restrict",
    "trace_motion",
    "try_assemble",
]
