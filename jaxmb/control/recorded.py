"""Inputs from a table."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import Finite, Vector, as_floats, contract, index_among, is_concrete, positive_or_one
from ..system import joint_names
from .clock import Timetable
from .controller import AbstractJointController
from .instant import AbstractInstant


class Recorded(AbstractJointController):
    """Inputs that were measured, or computed elsewhere: u(t) between the entries of a table, and the first or last value beyond.

    Steps of an adaptive step-size controller end at the times of the table.

    Args:
        ts: times (T,) in s, increasing.
        values: u (T,) of one input, or (T, nu).
        joints: names of joint coordinates at which the inputs act; None for the system's own inputs.
        hold: whether each value holds until the next time, at which constant steps end too; by default u is interpolated linearly.

    Raises:
        ValueError: for shapes that do not fit, times that do not increase, and numbers that are not finite.

    Example:
        >>> import jaxmb as jm
        >>> jm.control.Recorded([0.0, 0.5, 1.0], [0.0, 2.0, 2.0], joints="crank").acts_at
        ('crank',)
    """

    ts: Float[Array, " T"]
    values: Float[Array, "T nu"]
    hold: bool = eqx.field(static=True)

    @contract
    def __init__(self, ts: Vector, values: Finite, joints: str | Sequence[str] | None = None, *, hold: bool = False):
        self.ts = as_floats(ts)
        values = as_floats(values)
        self.values = values[:, None] if values.ndim == 1 else values
        self.joints, self.hold = joint_names(joints), hold
        if self.ts.ndim != 1 or self.values.ndim != 2 or self.values.shape[0] != self.ts.shape[0] or not self.ts.size:
            raise ValueError(
                f"Argument `values` must have a row for each of the times {self.ts.shape}, but has shape {values.shape}."
            )
        if self.joints is not None and len(self.joints) != self.values.shape[1]:
            raise ValueError(
                f"Argument `values` must have a column for each of {len(self.joints)} joints, but has {self.values.shape[1]}."
            )
        if is_concrete(self.ts, self.values):
            times = np.asarray(self.ts)
            if not (np.all(np.diff(times) > 0) and np.all(np.isfinite(times)) and np.all(np.isfinite(self.values))):
                raise ValueError("Arguments `ts` and `values` must be finite, and `ts` must increase.")

    @property
    def uses_plant(self) -> bool:
        """False."""
        return False

    @property
    def clock(self) -> Timetable | None:
        """The times of the table where its values are held."""
        return Timetable(ts=self.ts) if self.hold else None

    @property
    def breaks(self) -> Float[Array, " k"]:
        """The times of the table where its values are not held."""
        return self.ts[:0] if self.hold else self.ts

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs u(t) of the table."""
        last = self.ts.shape[0] - 1
        if (clock := self.clock) is not None:
            return self.values[jnp.clip(clock.number(plant.t), 0, last).astype(int)]
        i = jnp.clip(index_among(self.ts, plant.t) - 1, 0, last)
        k = jnp.minimum(i + 1, last)
        width = self.ts[k] - self.ts[i]
        # The inner `where` keeps the quotient finite at the last entry, whose width is zero, and so its gradient.
        share = jnp.clip((plant.t - self.ts[i]) / positive_or_one(width), 0.0, 1.0)
        return self.values[i] + share * (self.values[k] - self.values[i])
