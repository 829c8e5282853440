"""Dependent rows: the decision which are independent, redundant, or degenerate at a pose only."""

from .decision import GROWTH, Decision, decide, generic_direction
