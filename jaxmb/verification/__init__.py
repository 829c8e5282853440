"""Evidence for results: whether a gradient is that of the values, and whether a run can be trusted."""

from .evidence import Evidence as Evidence
from .evidence import RunCheck as RunCheck
from .gradient import DirectionalDerivative as DirectionalDerivative
from .gradient import check_gradient as check_gradient
from .gradient import GradientCheck as GradientCheck
from .run import check as check
from .search import SearchCheck as SearchCheck

__all__ = ["DirectionalDerivative", "Evidence", "GradientCheck", "RunCheck", "SearchCheck", "check", "check_gradient"]
