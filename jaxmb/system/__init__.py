"""Mechanical systems as pure functions and their evaluation to arrays."""

from .constraint import AbstractConstraint as AbstractConstraint
from .constraint import Holonomic as Holonomic
from .constraint import Pfaffian as Pfaffian
from .inertia import AbstractInertia as AbstractInertia
from .inertia import jacobi_energy as jacobi_energy
from .inertia import LagrangianInertia as LagrangianInertia
from .inertia import MassInertia as MassInertia
from .inertia import Rate as Rate
from .inertia import rate_matrix as rate_matrix
from .state import State as State
from .system import System as System
from .terms import constraint_jacobian as constraint_jacobian
from .terms import curvature as curvature
from .terms import evaluate as evaluate
from .terms import evaluate_at as evaluate_at
from .terms import jacobian_rate as jacobian_rate
from .terms import Lost as Lost
from .terms import position_residual as position_residual
from .terms import gamma as gamma
from .terms import rows_at as rows_at
from .terms import scaled_residuals as scaled_residuals
from .terms import Terms as Terms
from .terms import velocity_residual as velocity_residual
from .validate import check_rows as check_rows
from .validate import check_values as check_values
from .validate import row_sizes as row_sizes
