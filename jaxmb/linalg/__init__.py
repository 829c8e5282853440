"""Linear algebra, dense and sparse, by plain array operations; the rank rule has its only home here.

Nothing in this package calls LAPACK's LU, QR or SVD: batched over many systems inside a time loop those calls are slow
and, on some CPU builds of JAX, do not return. Derivatives are those of the linear equations that are solved, not of the
factorisation, so that they are exact wherever the rank is locally constant.
"""

from .bounded import at_bounds, bounded_minimum, bounded_round
from .constrained import ConstrainedFactor, independent_factor, minimum_norm_multipliers, null_space, projector
from .elimination import Eliminated
from .factor import AbstractFactor
from .layout import Layout
from .pseudoinverse import PseudoInverse, decomposed, invert, pseudoinverse, singular_values, spectral_norm
from .rank import (
    RANK_TOL,
    SINGULAR,
    cutoff,
    independent_rows,
    metric_root,
    metric_rows,
    regular_metric,
    row_norms,
    stiffened,
)
from .root import inverse_root, orthonormaliser, solve_spd
from .sparse import BlockMatrix, SparseFactor, SparseRows, lowered
from .square import SquareSolver, determinant, solve_square, without_lapack
