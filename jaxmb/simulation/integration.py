"""The motion of a phase, by compiled code or in Diffrax's loop."""

import dataclasses

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..deferral import with_fallback
from ..foundations import silent
from .clipping import ends_of_steps
from .compiled_run import compiled_run
from .engine import compiled_step_of
from .guard import Guard
from .method import Method
from .phase import Phase, PhaseInputs, Tape
from .solver import derivative, regular_derivative
from .stages import is_explicit


def solve(
    inputs: PhaseInputs, method: Method, guard: Guard | None, dense: bool = False, tape: bool = False
) -> tuple[Phase, Tape | None]:
    """The motion; with `tape` also the accepted steps.

    Where all steps are regular compiled code may make the motion as a whole. If a step turns out to be irregular, or if there is no such
    code, Diffrax's loop makes it.
    """
    field, options = inputs.field, (method, guard, dense, tape)
    motion = None if field.regular_only is None else compiled_run(inputs, method, guard, tape)
    if motion is None:
        motion = _by_diffrax(inputs, *options)
    if field.regular_only is None:
        return motion
    # From a start that is refused no step leads on, of whatever kind.
    needed = motion[0].accepted.failed & field.consistent
    # From the start and not from the step that failed: tape and saved states are then those of one run.
    general = dataclasses.replace(inputs, field=field.general)
    return with_fallback(needed, _by_diffrax, (general, *options), motion)


def _by_diffrax(
    inputs: PhaseInputs, method: Method, guard: Guard | None, dense: bool, tape: bool
) -> tuple[Phase, Tape | None]:
    # Found here and not handed over: as a fallback this is kept for ever, and the step's programs are large.
    step = compiled_step_of(method, inputs.field, inputs.y0)
    field, steps = inputs.field, dfx.SubSaveAt(t0=True, steps=True) if tape else None
    controller = method.controller
    assert controller is not None
    field = dataclasses.replace(field, step=step, until=jax.lax.stop_gradient(inputs.t1), guard=guard)
    # The end is saved apart: where a guard ends the motion it is none of the given times.
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
    occurred: PyTree = dfx.RESULTS.event_occurred
    result = dfx.RESULTS.where(accepted.ended, occurred, solution.result)
    # The counts that compiled runs have too: both must return the same structure.
    counts = ("num_steps", "num_accepted_steps", "num_rejected_steps")
    stats = {name: jnp.asarray(solution.stats[name]) for name in counts}
    last = jax.tree.map(lambda x: x[0], states[1])
    # Known when the program is traced: steps of the loop are all regular, or may be any.
    irregular = jnp.array(field.regular_only is None)
    phase = Phase(
        ys=states[0],
        t=accepted.reached,
        y=last,
        result=result,
        stats=stats,
        accepted=accepted,
        irregular=irregular,
        interpolation=solution.interpolation,
    )
    if not tape:
        return phase, None
    failed = (result == dfx.RESULTS.breakdown) | (result == dfx.RESULTS.nonfinite)
    count = stats["num_accepted_steps"] - failed
    last, end = accepted.end
    ends = jnp.append(ends_of_steps(controller, times[2][1:]), jnp.inf)
    ends = jnp.where(jnp.arange(ends.shape[0]) == count - 1, last, ends)
    return phase, Tape(times[2], states[2], count, ends, end)
