"""Elimination of dependent rows."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..foundations import Positive, Whole, contract, expect_available
from ..linalg import RANK_TOL, ConstrainedFactor, independent_rows
from ..system import System, Terms
from .base import AbstractFormulation


class Elimination(AbstractFormulation):
    """Dependent rows are left out, and their multipliers are zero; the others are solved by Gauss's principle.

    Frączek and Wojtyra, section 3.1. The motion does not depend on the rows that are left out, but the multipliers of those
    that stay do, except where they are uniquely determined: the others carry the load of rows that are left out.

    Args:
        eliminated: indices of the rows to leave out, see also `of`. If None, they are chosen by pivoting at every state, which keeps the row
            with the largest remainder in turn.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.

    Limits:
        A choice that leaves fewer independent rows is rejected (`RESULTS.unfit_choice`), at the start and at every
        accepted state of a run. Pivoting may leave out other rows at other states, so that multipliers jump; the motion does not jump.
        M must be positive definite.
    """

    eliminated: tuple[Whole, ...] | None = eqx.field(static=True, default=None)
    rank_tol: Positive = eqx.field(static=True, default=RANK_TOL)

    @classmethod
    @contract
    def of(
        cls, system: System, rows: Mapping[str, Sequence[int]] | Sequence[str], rank_tol: Positive = RANK_TOL
    ) -> "Elimination":
        """The elimination of rows given by constraint name.

        Args:
            system: the system.
            rows: names of constraints of which all rows are left out, or a mapping of names to row numbers within the
                constraint.
            rank_tol: as above.

        Raises:
            ValueError: for a name or number that the system does not have.
        """
        chosen: list[int] = []
        expect_available("Argument `rows` must name constraints", rows, system.rows)
        for name in rows:
            part = range(system.m)[system.rows[name]]
            numbers = rows[name] if isinstance(rows, Mapping) else range(len(part))
            for number in numbers:
                if not 0 <= number < len(part):
                    raise ValueError(
                        f"Argument `rows` must hold row numbers below {len(part)} for constraint '{name}', but holds {number}."
                    )
                chosen.append(part[number])
        return cls(eliminated=tuple(sorted(set(chosen))), rank_tol=rank_tol)

    def excluded(self, m: int) -> Bool[Array, " m"] | None:
        """The given rows."""
        if self.eliminated is None:
            return None
        if any(not 0 <= i < m for i in self.eliminated):
            raise ValueError(f"Argument `eliminated` must hold row indices below {m}, but holds {self.eliminated}.")
        return jnp.asarray(np.isin(np.arange(m), self.eliminated))

    def unfit(self, terms: Terms, in_use: Bool[Array, " m"], degenerate: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the remaining rows have a lower rank than all rows."""
        if self.eliminated is None:
            return jnp.array(False)
        # Only the number of rows counts: any largest independent set gives the same motion.
        every = independent_rows(terms.mass, terms.jacobian, terms.scale, self.rank_tol)
        return jnp.sum(in_use) < jnp.sum(every)

    def shares(
        self, factor: ConstrainedFactor, jacobian: Float[Array, "m nv"], multipliers: Float[Array, " m"]
    ) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
        """The multipliers as they are: zero in the rows that are not in use."""
        # No sharing by least norm: that these rows bear nothing is the assumption of the method.
        return multipliers, ~factor.in_use

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M."""
        return terms.mass

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the remaining rows."""
        return factor.solve(terms.force, terms.gamma)
