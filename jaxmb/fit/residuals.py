"""What a search by least squares asks of a problem."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import RESULTS


class AbstractResiduals(eqx.Module):
    """Residuals (R,) as a function of unknowns y (N,), over their scales.

    Attributes:
        low, high: bounds (N,).
        bounded: whether any unknown has a bound.
    """

    low: eqx.AbstractVar[Float[Array, " N"]]
    high: eqx.AbstractVar[Float[Array, " N"]]
    bounded: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Number of residuals R."""

    @property
    @abc.abstractmethod
    def shots(self) -> int:
        """Number of results that come along with them."""

    @abc.abstractmethod
    def linear(self, y: Float[Array, " N"]) -> tuple[Float[Array, " R"], Float[Array, "R N"], RESULTS]:
        """Residuals, NaN where there are none, their Jacobian, and how each shot came about."""
