"""Linear algebra, dense and sparse, by plain array operations; the rank rule has its only home here.

Nothing in this package calls LAPACK's LU, QR or SVD: batched over many systems inside a time loop those calls are slow
and, on some CPU builds of JAX, do not return. Derivatives are those of the linear equations that are solved, not of the
factorisation, so that they are exact wherever the rank is locally constant.
"""

from .bounded import at_bounds as at_bounds
from .bounded import bounded_minimum as bounded_minimum
from .bounded import bounded_round as bounded_round
from .constrained import ConstrainedFactor as ConstrainedFactor
from .constrained import independent_factor as independent_factor
from .constrained import minimum_norm_multipliers as minimum_norm_multipliers
from .constrained import null_space as null_space
from .constrained import projector as projector
from .factor import AbstractFactor as AbstractFactor
from .layout import Layout as Layout
from .elimination import Eliminated as Eliminated
from .pseudoinverse import decomposed as decomposed
from .pseudoinverse import invert as invert
from .pseudoinverse import PseudoInverse as PseudoInverse
from .pseudoinverse import pseudoinverse as pseudoinverse
from .pseudoinverse import singular_values as singular_values
from .pseudoinverse import spectral_norm as spectral_norm
from .rank import cutoff as cutoff
from .rank import independent_rows as independent_rows
from .rank import metric_root as metric_root
from .rank import metric_rows as metric_rows
from .rank import RANK_TOL as RANK_TOL
from .rank import regular_metric as regular_metric
from .rank import row_norms as row_norms
from .rank import SINGULAR as SINGULAR
from .rank import stiffened as stiffened
from .root import inverse_root as inverse_root
from .root import orthonormaliser as orthonormaliser
from .root import solve_spd as solve_spd
from .sparse import BlockMatrix as BlockMatrix
from .sparse import lowered as lowered
from .sparse import SparseFactor as SparseFactor
from .sparse import SparseRows as SparseRows
from .square import determinant as determinant
from .square import solve_square as solve_square
from .square import SquareSolver as SquareSolver
from .square import without_lapack as without_lapack
