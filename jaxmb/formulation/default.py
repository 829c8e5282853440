"""The default formulation, and the inertia that a chosen one needs."""

import jax.numpy as jnp

from ..foundations import is_concrete
from ..linalg import inverse_root
from ..system import State, System, first_state, massless, rows_at
from .base import AbstractFormulation
from .gauss import GaussProjection
from .kkt import KKT

# Gauss's principle, as accurate as the others and at the least cost but for `Elimination`.
DEFAULT = GaussProjection()


def formulation_at(formulation: AbstractFormulation | None, system: System, state: State) -> AbstractFormulation:
    """The formulation itself; where it is None, `GaussProjection()`, or `KKT()` for bodies without inertia that constraints hold.

    With traced numbers the inertia is unknown: then it is `GaussProjection()`, and a result is not finite where M is singular.

    Args:
        formulation: that of the user, or None.
        system: the system.
        state: one state, or several, of which the first one decides.

    Raises:
        ValueError: naming the velocities, and of a mechanism the bodies, without inertia: where no constraint holds them, and where a given
            formulation needs it.
    """
    lacking = massless(system, state)
    if lacking is None:
        return formulation or DEFAULT
    if lacking.unconstrained and is_concrete(state):
        raise ValueError(lacking.refusal)
    if formulation is None:
        return KKT()
    if is_concrete(state):
        first = first_state(state)
        # The formulation's own metric decides: one that adds the constraint rows to M is positive definite here, M alone is not.
        terms = rows_at(system.in_mode(first.mode), first.t, first.q, first.scale.row)
        if not bool(jnp.all(jnp.isfinite(inverse_root(formulation.metric(terms))))):
            raise ValueError(
                f"Argument `mass` must be positive definite for `{type(formulation).__name__}`, but is singular along {lacking}; constraints hold "
                "it, which `formulation=KKT()` takes."
            )
    return formulation
