"""What a control law may know of a mechanism without its dynamics."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..system import System


class Instant(eqx.Module):
    """Time, state and parameters: what laws get that do not use the plant's dynamics.

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

    def with_motion(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> "Instant":
        """The same at another state."""
        return Instant(self.system, self.t, q, v)

    @property
    def params(self) -> Any:
        """Parameters of the system."""
        return self.system.params

    @property
    def motion(self) -> Any:
        """The mechanism's `Motion`: angles and rates of any joint, points and their velocities."""
        return motion_of(self.system, self.t, self.q, self.v)


def motion_of(system: System, t: Array, q: Array, v: Array) -> Any:
    """The `Motion` of the mechanism that a system was built from."""
    if system.joints is None:
        raise ValueError(
            "Argument `system` must be built from a mechanism where a control law reads its motion, but is not."
        )
    return system.joints.motion(t, q, v, system.params)
