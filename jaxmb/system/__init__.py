"""Mechanical systems as pure functions and their evaluation to arrays."""

from .actuation import JointDirections, joint_names
from .constraint import AbstractConstraint, Holonomic, Pfaffian
from .implicit import imbalance, solve_by_factor
from .inertia import AbstractInertia, LagrangianInertia, MassInertia, Rate, jacobi_energy, rate_matrix
from .joints import AbstractJoints, BodyRows, Topology
from .massless import Massless, first_state, massless, massless_at
from .measure import Values, angles, as_state, extent, free_acceleration, measure, rounding_nearby, with_rate
from .mode import BrakeForce, Coordinate, LockResidual, LockRow, Mode, PoseFunctions, in_turn
from .names import Names, rows_of
from .sparsity import dense_work, layout_of, linear_algebra, with_layout
from .state import Scale, State
from .system import System, apply_mode, canonical, check_state
from .terms import (
    Nearby,
    SparseTerms,
    Terms,
    constraint_jacobian,
    evaluate,
    evaluate_at,
    gamma,
    jacobian_rate,
    lock_coordinates,
    lock_rates,
    position_residual,
    residuals,
    rows_at,
    scaled_residuals,
    sparse_evaluate_at,
    sparse_rows_at,
    velocity_offset,
    velocity_residual,
)
from .validate import check_rows, check_values, undefined

# What users and classes of theirs meet; other names are for the packages above.
__all__ = ["Holonomic", "Mode", "Pfaffian", "Scale", "State", "System", "Terms", "as_state", "evaluate"]
