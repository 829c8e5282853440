"""One phase of a run, in one mode: data only."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..kinematics import Rows
from .state_vector import StateVector
from .step_records import Accepted, Switches
from .vector_field import VectorField

Scalar = Float[Array, ""]


class Phase(eqx.Module):
    """The motion in one mode.

    Attributes:
        ys: the states (T, …) at the given times, infinite at times of no step; those behind `t`, where a guard has ended the motion, are on the
            step's interpolation.
        t: the time that was reached.
        y: the state there.
        result: Diffrax's.
        stats: Diffrax's counts of steps.
        accepted: the record carried from step to step, at the end.
        irregular: whether the motion was made by the program that can make any step, regular or not.
        interpolation: over the whole phase, where that was asked for.
    """

    ys: PyTree
    t: Scalar
    y: StateVector
    result: PyTree
    stats: dict[str, Array]
    accepted: Accepted
    irregular: Bool[Array, ""]
    interpolation: PyTree = None

    @property
    def record(self) -> "Phases":
        """Failure, counts and the record at the end, without derivatives and without the axis of phases."""
        failed = (self.result != dfx.RESULTS.successful) & (self.result != dfx.RESULTS.event_occurred)
        return jax.lax.stop_gradient(Phases(failed, self.stats, self.accepted))


class Phases(eqx.Module):
    """The records of all phases of a run; all arrays have a leading axis of phases.

    Attributes:
        failed: whether it failed.
        stats: Diffrax's counts of steps.
        accepted: the record carried from step to step, at the end.
    """

    failed: Bool[Array, "*n"]
    stats: dict[str, Array]
    accepted: Accepted

    def of_start(self) -> tuple[Bool[Array, ""], Rows]:
        """Whether the first phase that took a step failed in that step, and the rows of that phase."""
        steps = self.stats["num_steps"]
        first = jnp.argmax(steps > 0)
        return self.failed[first] & (steps[first] <= 1), jax.tree.map(lambda x: x[first], self.accepted.rows)

    def statistics(self) -> dict[str, Array]:
        """Counts, ranks and residuals of the whole run."""
        accepted, m = self.accepted, self.accepted.residual.shape[1]
        ran = self.stats["num_steps"] > 0  # others have no ranks
        return {
            **{name: jnp.sum(count) for name, count in self.stats.items()},
            "compiled_steps": jnp.sum(accepted.compiled),
            "sparse_steps": jnp.sum(accepted.sparse),
            "lowest_rank": jnp.min(jnp.where(ran, accepted.lowest_rank, m)),
            "highest_rank": jnp.max(accepted.highest_rank),
            "largest_residual": jnp.max(accepted.residual, initial=0),
            "row_residuals": jnp.max(accepted.residual, axis=0),
        }

    def switches(self) -> Switches | None:
        """All changes of the formulation's choice; None if it chooses nothing."""
        switches = self.accepted.switches
        if switches is None:
            return None
        t = jnp.where(self.stats["num_steps"][:, None] > 0, switches.t, jnp.nan)
        flat = [x.reshape(-1, *x.shape[2:]) for x in (t, switches.before, switches.after)]
        return Switches(jnp.sum(switches.count), *flat)


class PhaseInputs(eqx.Module):
    """The inputs with respect to which a phase is differentiated: vector field, times and initial state."""

    field: VectorField
    t0: Scalar
    t1: Scalar
    y0: StateVector
    ts: Float[Array, " T"]


class Tape(eqx.Module):
    """The accepted steps; what lies behind the last one is not used, and holds anything.

    Attributes:
        ts: times (K,) at which they begin, and behind the last one where the motion ends.
        ys: the states there.
        count: how many there are; a last one that has failed is none.
        ends: when each of them has ended (K,), before a jump of the vector field, and events aside.
        end: where the last one has, events aside.
    """

    ts: Float[Array, " k"]
    ys: PyTree
    count: Array
    ends: Float[Array, " k"]
    end: StateVector
