"""Formulations: from the arrays of `Terms` to the acceleration and the reaction."""

from .base import AbstractFormulation as AbstractFormulation
from .base import Acceleration as Acceleration
from .base import contradiction as contradiction
from .base import contradiction_tol as contradiction_tol
from .gauss import GaussProjection as GaussProjection
from .kkt import KKT as KKT
