"""The reactions that guards read."""

from collections.abc import Iterator, Mapping

import jax.numpy as jnp
from jaxtyping import Array

from ..formulation import AbstractFormulation
from ..foundations import listing
from ..system import State, System, evaluate_at


class Loads(Mapping[str, Array]):
    """The multipliers of constraints by name, found where one is read, zero where a constraint does not act.

    Remembers which are read.
    """

    def __init__(self, formulation: AbstractFormulation, system: System, state: State, u: Array | None):
        self._formulation, self._arguments = formulation, (system, state, u)
        self._found: Array | None = None
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Array:
        system, state, u = self._arguments
        if name not in system.rows:
            raise KeyError(f"There is no constraint '{name}'; there are {listing(system.rows)}.")
        self.read.add(name)
        if self._found is None:
            t, q, v = state.t, state.q, state.v
            terms = evaluate_at(system, t, q, v, state.scale.row, system.applied_force(t, q, v, u))
            found = self._formulation.acceleration(terms).multipliers
            self._found = found if system.active is None else jnp.where(system.active, found, 0)
        return self._found[system.rows[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments[0].rows)

    def __len__(self) -> int:
        return len(self._arguments[0].rows)
