"""What a control law may know of a mechanism without its dynamics."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..system import System


class AbstractInstant(eqx.Module):
    """The mechanism at an instant as a controller sees it: time, state and parameters; a `Plant` knows its dynamics, too.

    Attributes:
        system: the system in its mode.
        t: time in s.
        q: coordinates (nq,).
        v: velocities (nv,).
    """

    system: System
    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]

    @abc.abstractmethod
    def with_motion(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> "AbstractInstant":
        """The same mechanism at another state, such as one that is measured."""

    @property
    def params(self) -> Any:
        """Parameters of the system."""
        return self.system.params

    @property
    def motion(self) -> Any:
        """The mechanism's `Motion`: angles and rates of any joint, named points and their velocities.

        Raises:
            ValueError: if the system was not built from a mechanism.
        """
        if self.system.joints is None:
            raise ValueError(
                "Argument `system` must be built from a mechanism where a control law reads its motion, but is not."
            )
        return self.system.joints.motion(self.t, self.q, self.v, self.params)


class Instant(AbstractInstant):
    """What laws get that do not use the plant's dynamics: nothing more."""

    def with_motion(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> "Instant":
        """The same at another state."""
        return Instant(self.system, self.t, q, v)
