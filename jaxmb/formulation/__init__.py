"""Formulations: from the arrays of `Terms` to the acceleration and the reaction."""

from .base import AbstractFormulation, Acceleration, contradiction, contradiction_tol
from .default import formulation_at
from .elimination import Elimination
from .gauss import GaussProjection, gauss_residual
from .interpolation import BESIDE, EXACT, ITERATIONS, OFFSETS, WEIGHTS, away_from_pose, growth
from .kkt import KKT
from .metric import length_metric
from .null_space import Minimal, NullSpace
from .orthogonal import OrthogonalProjection, Projected, decoupling, inertia_conditioning
from .partition import CoordinatePartition, Criterion, Partition, projective_criterion
from .proximal import Proximal
from .restored import RestoredRows

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
