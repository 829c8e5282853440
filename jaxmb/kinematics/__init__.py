"""Positions and velocities on the constraints."""

from .assemble import assemble
from .attempt import Attempt, try_assemble
from .branches import branches
from .closing import Guess, belongs_to_motion, consistency, solve_guess
from .closure import Closure, Kinematics, closure_kinematics, embed, reduce, restrict
from .correction import (
    BESIDE,
    CLOSE,
    NEAR,
    Correction,
    by_lengths,
    correct,
    correct_by,
    directions,
    displacement,
    distance_to_dependence,
    factors_at,
    linearise_correction,
    with_derivative,
)
from .curve import CurveEvent, MotionCurve
from .diagnosis import DependentRows, Diagnosis, diagnose, spectral_gap
from .rows import Rows, choose_rows
from .shortest_move import nearest
from .trace import trace_motion

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
