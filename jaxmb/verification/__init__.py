"""Evidence for results: whether a gradient is that of the values."""

from .gradient import AlongDirection as AlongDirection
from .gradient import check_gradient as check_gradient
from .gradient import GradientCheck as GradientCheck

__all__ = ["AlongDirection", "GradientCheck", "check_gradient"]
