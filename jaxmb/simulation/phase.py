"""One phase of a run, in one mode."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..deferral import with_fallback
from ..foundations import silent
from ..kinematics import Rows
from .clipping import ends_of_steps
from .compiled_run import compiled_run
from .compiled_step import CompiledStep
from .engine import compiled_step_of
from .method import Method
from .solver import derivative, regular_derivative
from .stages import is_explicit
from .state_vector import StateVector
from .step_records import Accepted, Switches
from .vector_field import VectorField

Scalar = Float[Array, ""]


class Phase(eqx.Module):
    """The motion in one mode.

    Attributes:
        ys: the states (T, …) at the given times, infinite at times that were not reached.
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
        accepted, m = self.accepted, self.accepted.residual.shape[-1]
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
    """The accepted steps.

    Attributes:
        ts: times (K,) at which they begin and end; where an event has ended the last one, that time.
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


def solve(
    inputs: PhaseInputs,
    method: Method,
    event: dfx.Event | None,
    dense: bool = False,
    tape: bool = False,
) -> tuple[Phase, Tape | None]:
    """The motion; with `tape` also the accepted steps.

    Where all steps are regular compiled code may make the motion as a whole. If a step turns out to be irregular, or if there is no such
    code, Diffrax's loop makes it.
    """
    field, options = inputs.field, (event, dense, tape)
    step = compiled_step_of(method, field, inputs.y0)
    motion = None
    if field.regular_only is not None and step is not None:
        motion = _by_compiled_run(inputs, method, step, tape)
    if motion is None:
        motion = _by_diffrax(inputs, method, step, *options)
    if field.regular_only is None:
        return motion
    # From a start that is refused no step leads on, of whatever kind.
    needed = motion[0].accepted.failed & field.consistent
    return with_fallback(needed, _in_general, (inputs, method, *options), motion)


def _in_general(
    inputs: PhaseInputs,
    method: Method,
    event: dfx.Event | None,
    dense: bool,
    tape: bool,
) -> tuple[Phase, Tape | None]:
    """The motion again, from the start and not from the step that failed: tape and saved states are then those of one run."""
    # Found again and not handed over: a fallback is kept for ever, and the step's programs are large.
    step = compiled_step_of(method, inputs.field, inputs.y0)
    inputs = dataclasses.replace(inputs, field=inputs.field.general)
    return _by_diffrax(inputs, method, step, event, dense, tape)


def _by_compiled_run(
    inputs: PhaseInputs, method: Method, step: CompiledStep, tape: bool
) -> tuple[Phase, Tape | None] | None:
    """The motion by regular steps only, as far as they go; None if it is not made so."""
    field, controller = inputs.field, method.controller
    silent_run = isinstance(method.progress_meter, dfx.NoProgressMeter)
    forward = isinstance(method.adjoint, dfx.ForwardMode)
    other = method.adjoint is not None and not forward
    # No progress is shown from within, and without a bound on the steps the tape has no size; derivatives are over that
    # tape or forwards.
    if other or method.max_steps is None or controller is None or not silent_run:
        return None
    span = inputs.t0, inputs.t1
    run_data = field, step, method.solver, controller, method.dt0, span, inputs.y0, inputs.ts, method.max_steps
    # The tangent in forward mode goes along the accepted steps, which are on the tape.
    run = compiled_run(*run_data, tape or forward)
    if run is None:
        return None
    phase = Phase(
        ys=run.ys,
        t=run.t,
        y=run.y,
        result=run.result,
        stats=run.stats,
        accepted=run.accepted,
        irregular=jnp.array(False),
    )
    if run.tape is None or not tape:
        return phase, None
    # A failed last step counts as accepted, since its error estimate is zero; as a step it is none.
    ts, ys, ends = run.tape
    return phase, Tape(ts, ys, run.stats["num_accepted_steps"] - run.accepted.failed, ends, run.accepted.end[1])


def _by_diffrax(
    inputs: PhaseInputs,
    method: Method,
    step: CompiledStep | None,
    event: dfx.Event | None,
    dense: bool,
    tape: bool,
) -> tuple[Phase, Tape | None]:
    field, steps = inputs.field, dfx.SubSaveAt(t0=True, steps=True) if tape else None
    controller = method.controller
    assert controller is not None
    guard = None if event is None else event.cond_fn
    field = dataclasses.replace(field, step=step, until=jax.lax.stop_gradient(inputs.t1), guard=guard)
    # The end is saved apart: where an event ends the motion it is none of the given times.
    subs = [dfx.SubSaveAt(ts=inputs.ts), dfx.SubSaveAt(t1=True), steps]
    # Diffrax's errors of times and of the first step are checks of ours, see `simulate`.
    run = lambda: dfx.diffeqsolve(
        dfx.ODETerm(regular_derivative if is_explicit(method.solver.solver) else derivative),
        method.solver,
        inputs.t0,
        inputs.t1,
        method.dt0,
        inputs.y0,
        (field, jnp.ones(field.system.m, bool)),
        saveat=dfx.SaveAt(subs=subs[: 3 if tape else 2], dense=dense, solver_state=True),
        event=event,
        stepsize_controller=controller,
        # Without an adjoint nothing is differentiated through the loop.
        adjoint=method.adjoint or dfx.ForwardMode(),
        progress_meter=method.progress_meter,
        max_steps=method.max_steps,
        throw=False,
    )
    solution = silent(run)
    times: PyTree = solution.ts
    states: PyTree = solution.ys
    accepted: PyTree = solution.solver_state
    # The counts that compiled runs have too: both must return the same structure.
    counts = ("num_steps", "num_accepted_steps", "num_rejected_steps")
    stats = {name: jnp.asarray(solution.stats[name]) for name in counts}
    last = jax.tree.map(lambda x: x[0], states[1])
    # Known when the program is traced: steps of the loop are all regular, or may be any.
    irregular = jnp.array(field.regular_only is None)
    interpolation = solution.interpolation if dense else None
    phase = Phase(
        ys=states[0],
        t=times[1][0],
        y=last,
        result=solution.result,
        stats=stats,
        accepted=accepted,
        irregular=irregular,
        interpolation=interpolation,
    )
    if not tape:
        return phase, None
    failed = (solution.result == dfx.RESULTS.breakdown) | (solution.result == dfx.RESULTS.nonfinite)
    count = stats["num_accepted_steps"] - failed
    last, end = accepted.end
    ends = jnp.append(ends_of_steps(controller, times[2][1:]), jnp.inf)
    ends = jnp.where(jnp.arange(ends.shape[0]) == count - 1, last, ends)
    return phase, Tape(times[2], states[2], count, ends, end)
