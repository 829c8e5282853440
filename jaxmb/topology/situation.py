"""What events see of a run."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..linalg import independent_rows, metric_root
from ..system import Mode, State, System, rows_at
from .loads import Loads

Scalar = Float[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class Situation:
    """What events see of a run at one time; what costs something is found where it is first asked for.

    Attributes:
        system: in the mode.
        formulation: of the run.
        mode: which rows act, and what locks do.
        state: time, coordinates and velocities.
        instant: time in s within which events happen at one instant.
        reaction: the multipliers (k,) of constraints and locks by name, zero where one does not act.
    """

    system: System
    formulation: AbstractFormulation
    mode: Mode
    state: State
    instant: Scalar
    reaction: Loads

    def rows(self, names: Sequence[str]) -> Bool[Array, " m"]:
        """The rows of constraints and locks, as a mask."""
        numbers = [i for name in names for i in range(self.system.m)[self.system.rows[name]]]
        return jnp.asarray(np.isin(np.arange(self.system.m), numbers))

    def number(self, name: str) -> int:
        """The number of a lock among the locks."""
        return [lock.name for lock in self.mode.locks].index(name)

    @functools.cached_property
    def values(self) -> Float[Array, " k"]:
        """The functions s of all locks."""
        return self._values(self.state.t, self.state.q)

    @functools.cached_property
    def rates(self) -> Float[Array, " k"]:
        """ṡ of all locks."""
        return self._rates(self.state.v)

    @functools.cached_property
    def mobility(self) -> Float[Array, " k"]:
        """s̈ of each lock by a unit of force along it, constraints aside."""
        system, t, q = self.system, self.state.t, self.state.q
        rows = jax.jacfwd(self._rates)(jnp.zeros(system.nv, q.dtype))
        terms = rows_at(system, t, q, jnp.ones(system.m, q.dtype))
        return jnp.sum((rows @ metric_root(terms.mass, terms.jacobian).T) ** 2, axis=1)

    def arbitrary(self, names: Sequence[str]) -> Bool[Array, ""]:
        """Whether a multiplier of these constraints is not unique: its row follows from the others."""
        found, system, scale = jnp.array(False), self.system, self.state.scale.row
        if not names:
            return found
        terms = rows_at(system, self.state.t, self.state.q, scale)
        metric, tol = self.formulation.metric(terms), self.formulation.rank_tol
        for row in (row for name in names for row in range(system.m)[system.rows[name]]):
            others = jnp.arange(system.m) != row
            alone = independent_rows(metric, terms.jacobian, scale, tol, others)[row]
            found |= self.mode.active[row] & ~alone
        return found

    def _values(self, t: Scalar, q: Array) -> Float[Array, " k"]:
        values = [jnp.reshape(lock.fn(t, q, self.system.params), ()) for lock in self.mode.locks]
        return jnp.stack(values) if values else jnp.zeros(0, q.dtype)

    def _rates(self, v: Array) -> Float[Array, " k"]:
        t, q = self.state.t, self.state.q
        if not self.mode.locks:
            return jnp.zeros(0, q.dtype)
        return jax.jvp(self._values, (t, q), (jnp.ones_like(t), self.system.qdot(q, v)))[1]
