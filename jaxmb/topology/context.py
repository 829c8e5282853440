"""The state of a run, as events see it."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..linalg import independent_rows
from ..system import Mode, State, System, Terms, lock_coordinates, lock_rates, rows_at, scaled_residuals
from .reactions import ConstraintReactions

Scalar = Float[Array, ""]


def rounding(dtype: DTypeLike) -> float:
    """eps^(3/4): relative rounding of a load or a speed that is the solution of equations.

    A brake that holds as much as it exerts while it slides comes loose, and comes to rest, beyond that only: at equality neither.
    """
    return float(jnp.finfo(dtype).eps) ** 0.75


def fitting(dtype: DTypeLike) -> float:
    """√eps: the largest |φ/Φ| at which a constraint that begins to act fits the position."""
    return float(jnp.finfo(dtype).eps) ** 0.5


# No pytree: closures and cached values belong to one trace and must not cross the border of a `jit`. Cached, since several guards read
# the same locks.
@dataclasses.dataclass(frozen=True, eq=False)
class EventContext:
    """The state of a run at one time, as events see it; costly quantities are computed when they are first read.

    Attributes:
        system: in the mode.
        formulation: of the run.
        mode: which rows act, and what locks do.
        state: time, coordinates and velocities.
        instant: time in s within which events happen at one instant.
        acceleration: finds v̇ (nv,).
        reaction: the multipliers (k,) of constraints and locks by name, zero where one does not act.
        creep: speeds (k,) below which the motion of a lock is rounding.
        mobility: s̈ (k,) of each lock by a unit of force along it, constraints aside, at the start of the run.
        yielding: names of the rows of brakes, which slide where other rows determine their motion.
    """

    system: System
    formulation: AbstractFormulation
    mode: Mode
    state: State
    instant: Scalar
    acceleration: Callable[[], Array]
    reaction: ConstraintReactions
    creep: Float[Array, " k"]
    mobility: Float[Array, " k"]
    yielding: tuple[str, ...]

    def rows(self, names: Sequence[str]) -> Bool[Array, " m"]:
        """The rows of constraints and locks, as a mask."""
        return jnp.asarray(np.isin(np.arange(self.system.m), self._numbers(names)))

    def _numbers(self, names: Sequence[str]) -> list[int]:
        return [i for name in names for i in range(self.system.m)[self.system.rows[name]]]

    def number(self, name: str) -> int:
        """The number of a lock among the locks."""
        return [lock.name for lock in self.mode.locks].index(name)

    @functools.cached_property
    def values(self) -> Float[Array, " k"]:
        """The functions s of all locks."""
        return lock_coordinates(self.system, self.state.t, self.state.q)

    @functools.cached_property
    def rates(self) -> Float[Array, " k"]:
        """ṡ of all locks."""
        return lock_rates(self.system, self.state.t, self.state.q, self.state.v)

    @functools.cached_property
    def residual_rates(self) -> Float[Array, " m"]:
        """(C v + b)/Φ of all rows, in 1/s, as if all of them acted."""
        # A row that does not act is zero in the system of the mode, and it is such a row that is about to be hit.
        return scaled_residuals(self._every_row_acting, self.state)[1]

    def arbitrary(self, names: Sequence[str]) -> Bool[Array, ""]:
        """Whether a multiplier of these constraints is not unique: its row follows from the others."""
        if not names:
            return jnp.array(False)
        # Each row against all others, those of its own constraint included: what one of them bears may be borne by another one.
        each = jnp.asarray(np.eye(self.system.m, dtype=bool)[self._numbers(names)])
        return jnp.any(jax.vmap(lambda row: self._follows(row & self.mode.active, self.mode.active))(each))

    def determined(self, names: Sequence[str], active: Bool[Array, " m"]) -> Bool[Array, ""]:
        """Whether rows of these constraints follow from the other rows of the mask `active` (m,), without those of brakes."""
        rows = self.rows(names)
        # Brakes give way: of two on one coordinate each would be determined by the other, and none would hold.
        return self._follows(rows, (active & ~self.rows(self.yielding)) | rows)

    def _follows(self, rows: Bool[Array, " m"], active: Bool[Array, " m"]) -> Bool[Array, ""]:
        """Whether one of `rows` (m,) follows from the other rows of the mask `active` (m,)."""
        scale = self.state.scale.row
        every = lax.stop_gradient(self._every_row)
        terms = dataclasses.replace(every, jacobian=jnp.where(active[:, None], every.jacobian, 0))
        metric, tol = self.formulation.metric(terms), self.formulation.rank_tol
        # The rows in question come last, so that exactly those are left out that the others span.
        return jnp.any(rows & ~independent_rows(metric, terms.jacobian, scale, tol, ~rows))

    @functools.cached_property
    def _every_row(self) -> Terms:
        """The rows, as if all of them acted."""
        return rows_at(self._every_row_acting, self.state.t, self.state.q, self.state.scale.row)

    @property
    def _every_row_acting(self) -> System:
        return eqx.tree_at(lambda s: s.active, self.system, jnp.ones(self.system.m, bool))
