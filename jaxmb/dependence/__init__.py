"""Dependent rows: the decision which are independent, redundant, or degenerate at a pose only."""

from .decision import decide as decide
from .decision import Decision as Decision
from .decision import generic_direction as generic_direction
from .decision import GROWTH as GROWTH
