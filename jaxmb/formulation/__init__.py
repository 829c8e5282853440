"""Formulations: from the arrays of `Terms` to the acceleration and the reaction."""

from .base import AbstractFormulation as AbstractFormulation
from .base import Acceleration as Acceleration
from .base import contradiction as contradiction
from .base import contradiction_tol as contradiction_tol
from .default import formulation_at as formulation_at
from .elimination import Elimination as Elimination
from .gauss import gauss_residual as gauss_residual
from .gauss import GaussProjection as GaussProjection
from .kkt import KKT as KKT
from .metric import length_metric as length_metric
from .null_space import Minimal as Minimal
from .null_space import NullSpace as NullSpace
from .orthogonal import decoupling as decoupling
from .orthogonal import inertia_conditioning as inertia_conditioning
from .orthogonal import OrthogonalProjection as OrthogonalProjection
from .orthogonal import Projected as Projected
from .partition import CoordinatePartition as CoordinatePartition
from .partition import Criterion as Criterion
from .partition import Partition as Partition
from .partition import projective_criterion as projective_criterion
from .proximal import Proximal as Proximal
from .restored import RestoredRows as RestoredRows
from .interpolation import away_from_pose as away_from_pose
from .interpolation import BESIDE as BESIDE
from .interpolation import EXACT as EXACT
from .interpolation import growth as growth
from .interpolation import ITERATIONS as ITERATIONS
from .interpolation import OFFSETS as OFFSETS
from .interpolation import WEIGHTS as WEIGHTS

# What users and classes of theirs meet; other names are for the packages above.
__all__ = [
    "KKT",
    "AbstractFormulation",
    "Acceleration",
    "CoordinatePartition",
    "Criterion",
    "Elimination",
    "GaussProjection",
    "Minimal",
    "NullSpace",
    "OrthogonalProjection",
    "Partition",
    "Projected",
    "Proximal",
    "decoupling",
    "gauss_residual",
    "inertia_conditioning",
    "length_metric",
    "projective_criterion",
]
