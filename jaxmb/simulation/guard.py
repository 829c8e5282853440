"""The guards of a run as one function of time, and the end of a motion by it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jaxtyping import Array, Bool, PyTree

from ..system import Mode
from ..topology import Plan
from .state_vector import StateVector
from .vector_field import VectorField

# The value of `Guard` where an event that waits has left zero.
LEAVING = float("inf")
# Into so many steps a run with guards is divided at least, and at so many times of a step they are looked at: what a guard does at rest, or
# by a load that swings, no error estimate knows. One that is above zero for longer than their product's part of the run is seen.
STEPS_PER_RUN, SAMPLES_PER_STEP = 50, 4


def rises(value: Array) -> Any:
    """Whether a guard is above zero and so has risen to it at a time that can be found, unlike one that has left zero."""
    return (value > 0) & (value < LEAVING)


class Guard(eqx.Module):
    """The largest guard of all, which rises to zero where the first of them does.

    Where a guard has left zero whose event waits for that, and no other is above zero, it is `LEAVING`, so that the motion ends
    with the step. Until `since` none is above zero: what is there when the motion begins, and does not act, leaves zero.
    """

    plan: Plan  # without its system: the vector field has that in this mode
    mode: Mode
    since: Array

    def __call__(self, t: Array, y: StateVector, args: PyTree, **_: object) -> Any:
        """The value of the guard at a time and state, as Diffrax asks for it."""
        # A derivative of one by time and of zero by all else: so the time that Diffrax finds has none. `Run.location` gives it its own,
        # of the motion and not of the interpolation.
        return lax.stop_gradient(self.value(args[0], t, y)) + (t - lax.stop_gradient(t))

    def value(self, field: VectorField, t: Array, y: StateVector, in_use: Bool[Array, " m"] | None = None) -> Any:
        """The value at a time and state, by the rows in use if they are known, as they are where all steps are regular."""
        if in_use is None and field.regular_only is not None:
            in_use = field.regular_only.in_use
        field = field.dense  # all multipliers are wanted, those of dependent rows too
        u = field.inputs(t, y, in_use)
        _, values, leaving = self.plan.guards_in_run(field.system, self.mode, field.state(t, y), u, in_use)
        largest = jnp.max(values)
        largest = jnp.where(t > self.since, largest, jnp.minimum(largest, 0))
        if any(self.plan.waits):
            largest = jnp.where(leaving & (t > self.since) & ~(largest > 0), LEAVING, largest)
        return largest


class _Bracket(eqx.Module):
    """An interval at whose upper end the function is positive, once that has been looked at."""

    lower: Array
    upper: Array
    begun: Array


class Bisection(optx.AbstractRootFinder):
    """Bisection, to the resolution of the argument, of a function that is positive at the end; the bound returned is the upper one.

    Where it is `LEAVING` at the end, or not positive since no event has happened in this row of a batch, the end is returned.
    """

    # No faster method: guards may have kinks and jumps, and the time returned must be one at which the guard is positive.
    rtol: PyTree
    atol: PyTree
    norm: Callable[[PyTree], Array] = jnp.abs

    def init(
        self,
        fn: Callable[[Array, PyTree], tuple[Array, PyTree]],
        y: Array,
        args: PyTree,
        options: dict[str, PyTree],
        f_struct: PyTree,
        aux_struct: PyTree,
        tags: frozenset[object],
    ) -> _Bracket:
        """The whole interval."""
        lower, upper = (jnp.asarray(options[end], f_struct.dtype) for end in ("lower", "upper"))
        return _Bracket(lower, upper, jnp.array(False))

    def step(
        self,
        fn: Callable[[Array, PyTree], tuple[Array, PyTree]],
        y: Array,
        args: PyTree,
        options: dict[str, PyTree],
        state: _Bracket,
        tags: frozenset[object],
    ) -> Any:
        """Half the interval; at first the whole of it, or its end alone if the function is not positive there."""
        # The end is looked at here too: functions are large, and each place where one stands is compiled.
        t = jnp.where(state.begun, state.lower + 0.5 * (state.upper - state.lower), state.upper)
        value, aux = fn(t, args)
        above = rises(value)
        upper = jnp.where(above, t, state.upper)
        return upper, _Bracket(jnp.where(above, state.lower, t), upper, jnp.array(True)), aux

    def terminate(
        self,
        fn: Callable[[Array, PyTree], tuple[Array, PyTree]],
        y: Array,
        args: PyTree,
        options: dict[str, PyTree],
        state: _Bracket,
        tags: frozenset[object],
    ) -> Any:
        """When the interval is short."""
        return state.upper - state.lower <= self.atol + self.rtol * jnp.abs(y), optx.RESULTS.successful

    def postprocess(
        self,
        fn: Callable[[Array, PyTree], tuple[Array, PyTree]],
        y: Array,
        aux: PyTree,
        args: PyTree,
        options: dict[str, PyTree],
        state: _Bracket,
        tags: frozenset[object],
        result: optx.RESULTS,
    ) -> Any:
        """Nothing more."""
        return y, aux, {}
