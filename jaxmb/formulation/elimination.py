"""Elimination of dependent rows."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..linalg import RANK_TOL, ConstrainedFactor, independent_rows
from ..system import System, Terms
from .base import AbstractFormulation


class Elimination(AbstractFormulation):
    """Dependent rows are left out, and their multipliers are zero; the others are solved by Gauss's principle.

    Frączek and Wojtyra, section 3.1. The motion does not depend on the rows that are left out, but the multipliers of those
    that stay do, except where they are uniquely determined: what is left out is carried by the others.

    Args:
        eliminated: indices of the rows to leave out, see also `of`. If None they are found by pivoting, the row with the
            largest remainder staying first, at the first state and again where those that stay lose rank.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.

    Limits: a choice by the user that leaves fewer independent rows than there are is refused
    (`RESULTS.unfit_choice`), at the start and at every accepted state of a run. M must be positive definite.
    """

    eliminated: tuple[int, ...] | None = eqx.field(static=True, default=None)
    rank_tol: float = eqx.field(static=True, default=RANK_TOL)
    choice: Bool[Array, " m"] | None = None

    @classmethod
    def of(
        cls, system: System, rows: Mapping[str, Sequence[int]] | Sequence[str], rank_tol: float = RANK_TOL
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
        for name in rows:
            if name not in system.rows:
                raise ValueError(
                    f"Argument `rows` must name constraints out of {list(system.rows)}, but names {name!r}."
                )
            part = range(system.m)[system.rows[name]]
            numbers = rows[name] if isinstance(rows, Mapping) else range(len(part))
            for number in numbers:
                if not 0 <= number < len(part):
                    raise ValueError(
                        f"Argument `rows` must hold row numbers below {len(part)} for constraint '{name}', but holds {number}."
                    )
                chosen.append(part[number])
        return cls(eliminated=tuple(sorted(set(chosen))), rank_tol=rank_tol)

    def choose(self, terms: Terms, present: Bool[Array, " m"] | None = None) -> Bool[Array, " m"]:
        """The given rows; or rows by pivoting, where the present choice loses rank."""
        m = terms.scale.shape[0]
        if self.eliminated is not None:
            if any(not 0 <= i < m for i in self.eliminated):
                raise ValueError(f"Argument `eliminated` must hold row indices below {m}, but holds {self.eliminated}.")
            return jnp.asarray(np.isin(np.arange(m), self.eliminated))
        pivots = ~self._independent(terms)
        if present is None:
            return pivots
        mine = self.holding(present)
        fits = (jnp.sum(present) == jnp.sum(pivots)) & ~mine.unfit(terms, mine.prepare(terms))
        return jnp.where(fits, present, pivots)

    def holding(self, choice: Bool[Array, " m"] | None) -> "Elimination":
        """The formulation with the mask of the rows to leave out."""
        return eqx.tree_at(lambda f: f.choice, self, choice, is_leaf=lambda x: x is None)

    def left_out(self, m: int) -> Bool[Array, " m"] | None:
        """The eliminated rows."""
        return self.choice

    def unfit(self, terms: Terms, keep: Bool[Array, " m"]) -> Bool[Array, ""]:
        """Whether fewer rows are left than are independent."""
        return jnp.sum(keep) < jnp.sum(self._independent(terms))

    def metric(self, terms: Terms) -> Float[Array, "nv nv"]:
        """M."""
        return terms.mass

    def motion(self, terms: Terms, factor: ConstrainedFactor) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """v̇ and λ of the rows that are left."""
        return factor.solve(terms.force, terms.gamma)

    def _independent(self, terms: Terms) -> Bool[Array, " m"]:
        return independent_rows(terms.mass, terms.jacobian, terms.scale, self.rank_tol, terms.holonomic)
