"""One leg of a run, in one mode."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..deferral import with_fallback
from ..foundations import silent
from ..kinematics import Rows
from .compiled_run import compiled_run
from .compiled_step import CompiledStep
from .engine import step_of
from .method import Method
from .problem import Problem
from .solver import Accepted, Switches, derivative, regular_derivative
from .state_vector import StateVector

Scalar = Float[Array, ""]


class Phase(eqx.Module):
    """What was found.

    Attributes:
        ys: the states (T, …) at the given times, inf where it was not reached.
        t: the time that was reached.
        y: the state there.
        result: Diffrax's.
        stats: Diffrax's counts of steps.
        accepted: what was carried to the end.
        irregular: whether steps were made that can do everything.
        interpolation: over the whole leg, where that was asked for.
    """

    ys: Any
    t: Scalar
    y: StateVector
    result: Any
    stats: dict[str, Array]
    accepted: Accepted
    irregular: Bool[Array, ""]
    interpolation: Any = None

    @property
    def record(self) -> "Phases":
        """What is kept of it, without derivatives and without the axis of legs."""
        failed = (self.result != dfx.RESULTS.successful) & (self.result != dfx.RESULTS.event_occurred)
        return jax.lax.stop_gradient(Phases(failed, self.stats, self.accepted))


class Phases(eqx.Module):
    """What is known of each leg of a run; all arrays have a leading axis of legs.

    Attributes:
        failed: whether it failed.
        stats: Diffrax's counts of steps.
        accepted: what was carried to the end.
    """

    failed: Bool[Array, "*n"]
    stats: dict[str, Array]
    accepted: Accepted

    def of_start(self) -> tuple[Bool[Array, ""], Rows]:
        """Of the first leg that took a step: whether that one failed at once, and its rows."""
        steps = self.stats["num_steps"]
        first = jnp.argmax(steps > 0)
        return self.failed[first] & (steps[first] <= 1), jax.tree.map(lambda x: x[first], self.accepted.rows)

    def statistics(self) -> dict[str, Array]:
        """Counts, ranks and residuals of the whole run."""
        accepted, m = self.accepted, self.accepted.residual.shape[-1]
        ran = accepted.lowest_rank <= accepted.highest_rank
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
        found = self.accepted.switches
        if found is None:
            return None
        flat = [x.reshape(-1, *x.shape[2:]) for x in (found.t, found.before, found.after)]
        return Switches(jnp.sum(found.count), *flat)


class Moving(eqx.Module):
    """What a leg may be differentiated by."""

    problem: Problem
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
        last: when the last one ended, and
        end: where, events aside.
    """

    ts: Float[Array, " k"]
    ys: Any
    count: Array
    last: Scalar
    end: StateVector


def solve(
    moving: Moving,
    method: Method,
    event: dfx.Event | None,
    adjoint: dfx.AbstractAdjoint,
    dense: bool = False,
    tape: bool = False,
) -> tuple[Phase, Tape | None]:
    """The motion; with `tape` also the accepted steps.

    Where all steps are regular ones it may be made as a whole by compiled code. If some turn out to be others, and all motions that are not
    made so, are made by Diffrax's loop.
    """
    problem, further = moving.problem, (event, adjoint, dense, tape)
    step = step_of(method, problem, moving.y0)
    found = None
    if problem.regular_only is not None and step is not None:
        found = _as_a_whole(moving, method, step, tape)
    if found is None:
        found = _by_diffrax(moving, method, step, *further)
    if problem.regular_only is None:
        return found
    again = dataclasses.replace(moving, problem=problem.general)
    return with_fallback(found[0].accepted.over, _by_diffrax, (again, method, step, *further), found)


def _as_a_whole(moving: Moving, method: Method, step: CompiledStep, tape: bool) -> tuple[Phase, Tape | None] | None:
    """The motion by regular steps only, as far as they go; None if it is not made so."""
    problem, controller = moving.problem, method.controller
    sampled = problem.loop is not None and problem.loop.clock is not None
    silent_run = isinstance(method.progress_meter, dfx.NoProgressMeter)
    forward = isinstance(method.adjoint, dfx.ForwardMode)
    other = method.adjoint is not None and not forward
    if other or method.max_steps is None or controller is None or sampled or not silent_run:
        return None
    span = moving.t0, moving.t1
    given = problem, step, method.solver, controller, method.dt0, span, moving.y0, moving.ts, method.max_steps
    run = compiled_run(*given, tape or forward)
    if run is None:
        return None
    leg = Phase(run.ys, run.t, run.y, run.result, run.stats, run.accepted, jnp.array(False))
    if run.tape is None or not tape:
        return leg, None
    return leg, Tape(*run.tape, run.stats["num_accepted_steps"] - run.accepted.over, *run.accepted.end)


def _by_diffrax(
    moving: Moving,
    method: Method,
    step: CompiledStep | None,
    event: dfx.Event | None,
    adjoint: dfx.AbstractAdjoint,
    dense: bool,
    tape: bool,
) -> tuple[Phase, Tape | None]:
    problem, steps = moving.problem, dfx.SubSaveAt(t0=True, steps=True) if tape else None
    controller = method.controller
    assert controller is not None
    guard = None if event is None else event.cond_fn
    problem = dataclasses.replace(problem, step=step, until=jax.lax.stop_gradient(moving.t1), guard=guard)
    subs = [dfx.SubSaveAt(ts=moving.ts), dfx.SubSaveAt(t1=True), steps]
    # Diffrax's errors of times and of the first step are checks of ours, see `simulate`.
    run = lambda: dfx.diffeqsolve(
        dfx.ODETerm(regular_derivative if isinstance(method.solver.solver, dfx.AbstractERK) else derivative),
        method.solver,
        moving.t0,
        moving.t1,
        method.dt0,
        moving.y0,
        (problem, jnp.ones(problem.system.m, bool)),
        saveat=dfx.SaveAt(subs=subs[: 3 if tape else 2], dense=dense, solver_state=True),
        event=event,
        stepsize_controller=controller,
        adjoint=adjoint,
        progress_meter=method.progress_meter,
        max_steps=method.max_steps,
        throw=False,
    )
    found = silent(run)
    times: Any = found.ts
    states: Any = found.ys
    accepted: Any = found.solver_state
    counts = ("num_steps", "num_accepted_steps", "num_rejected_steps")
    stats = {name: jnp.asarray(found.stats[name]) for name in counts}
    last = jax.tree.map(lambda x: x[0], states[1])
    irregular = jnp.array(problem.regular_only is None)
    interpolation = found.interpolation if dense else None
    leg = Phase(states[0], times[1][0], last, found.result, stats, accepted, irregular, interpolation)
    if not tape:
        return leg, None
    failed = (found.result == dfx.RESULTS.breakdown) | (found.result == dfx.RESULTS.nonfinite)
    count = stats["num_accepted_steps"] - failed
    return leg, Tape(times[2], states[2], count, *accepted.end)
