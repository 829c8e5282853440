"""The reactions that guards read."""

import functools
from collections.abc import Callable, Iterator, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..foundations import listing
from ..system import State, System, evaluate_at


class ConstraintReactions(Mapping):  # without types of its items: a program that checked these would read one
    """The multipliers of constraints by name, computed when the first of them is read.

    Args:
        rows: the rows of each constraint.
        solve: computes the multipliers (m,) of all rows.
    """

    def __init__(self, rows: Mapping[str, slice], solve: Callable[[], Array]):
        # Guards are called often and most of them read no reaction, so that nothing is solved before one does, and then once.
        self._rows, self._solve = rows, functools.cache(solve)

    def __getitem__(self, name: str) -> Array:
        if name not in self._rows:
            raise KeyError(f"There is no constraint '{name}'; there are {listing(self._rows)}.")
        return self._solve()[self._rows[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class RecordedReads(ConstraintReactions):
    """Zeros in place of multipliers, and the names of those that were read."""

    def __init__(self, system: System):
        super().__init__(system.rows, lambda: jnp.zeros(system.m))
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        value = super().__getitem__(name)
        self.names.add(name)
        return value


def acceleration_and_multipliers(
    formulation: AbstractFormulation,
    system: System,
    state: State,
    u: Array | None,
    in_use: Bool[Array, " m"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """v̇, and λ of all rows, zero where a row does not act; by the independent rows, if these are known."""
    t, q, v = state.t, state.q, state.v
    terms = evaluate_at(system, t, q, v, state.scale.row, system.applied_force(t, q, v, u))
    solution = formulation.acceleration(terms, in_use)
    return solution.vdot, solution.multipliers if system.active is None else jnp.where(
        system.active, solution.multipliers, 0
    )
