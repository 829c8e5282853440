"""The guards of a run as one function of time."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..system import Mode
from ..topology import Plan
from .state_vector import StateVector
from .vector_field import VectorField

# Into so many steps a run with guards is divided at least, and at so many times of a step they are looked at: what a guard does at rest, or
# by a load that swings, no error estimate knows. One that is above zero for longer than their product's part of the run is seen.
STEPS_PER_RUN, SAMPLES_PER_STEP = 50, 4


def guards_at(
    plan: Plan, field: VectorField, mode: Mode, t: Array, y: StateVector, in_use: Bool[Array, " m"]
) -> tuple[Float[Array, " g"], Float[Array, " g"], Bool[Array, ""]]:
    """`Plan.guards_in_run` at a time and state, by the independent rows."""
    return plan.guards_in_run(field.system, mode, field.state(t, y), field.inputs(t, y, in_use), in_use)


class Guard(eqx.Module):
    """Ends a motion: where the first of all guards rises above zero, or with the step in which one leaves zero whose event waits for that.

    Until `since` there is none: what is above zero when the motion begins, and does not act, leaves zero.
    """

    plan: Plan  # without its system: the vector field has that in this mode
    mode: Mode
    since: Array

    def __call__(
        self, field: VectorField, t: Array, y: StateVector, in_use: Bool[Array, " m"]
    ) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether the motion ends at a time and state, by these rows in use, and whether it does since a guard has risen above zero."""
        # All multipliers are wanted, those of dependent rows too.
        _, values, leaving = guards_at(self.plan, field.dense, self.mode, t, y, in_use)
        rises = jnp.any(values > 0)
        return (rises | leaving) & (t > self.since), rises & (t > self.since)
