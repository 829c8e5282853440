"""Formulations: from the arrays of `Terms` to the acceleration and the reaction."""

from .base import AbstractFormulation as AbstractFormulation
from .base import Acceleration as Acceleration
from .gauss import GaussProjection as GaussProjection
from .kkt import KKT as KKT
