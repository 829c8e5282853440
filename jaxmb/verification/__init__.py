"""Evidence for results: whether a gradient is that of the values, and whether a run can be trusted."""

from .evidence import Evidence, RunCheck
from .gradient import DirectionalDerivative, GradientCheck, check_gradient
from .run import check
from .search import SearchCheck

__all__ = ["DirectionalDerivative", "Evidence", "GradientCheck", "RunCheck", "SearchCheck", "check", "check_gradient"]
