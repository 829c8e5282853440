"""Forward dynamics in time."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..control import Timetable
from ..deferral import with_fallback
from ..formulation import AbstractFormulation, contradiction_tol, formulation_at
from ..foundations import (
    RESULTS,
    Check,
    Count,
    Numbers,
    Positive,
    all_hold,
    arrays_of,
    as_jax,
    as_parameters,
    contract,
    default_float,
    enforce,
    in_numpy,
    is_concrete,
    lasting,
    program,
    strong,
    warn,
    with_nan_derivatives,
    working,
)
from ..kinematics import consistency
from ..linalg import inverse_root
from ..system import Names, Scale, State, System, Terms, Values, apply_mode, canonical, check_state, check_values
from ..topology import AbstractEvent, Plan, check_unattended, plan_events, resolution
from .adjoint import integrate
from .arguments import DRIFT, check_steps, checked_control, checked_solver
from .clipping import Interrupted, Limited, landing
from .drift import AbstractDrift
from .engine import compiles_quickly
from .feedback import FeedbackLoop, breaks_of, initial_state
from .guard import STEPS_PER_RUN
from .judgement import verdict
from .method import AbstractEngine, Method
from .phase import Phase, PhaseInputs, Phases
from .reason import reason
from .regular import regular_if_possible, regular_states
from .segments import Run, at_each, finished, run_through
from .solution import Solution
from .solver import ConstrainedSolver
from .stages import is_explicit
from .state_vector import StateVector
from .step_size import FIRST_STEP, QUIET, RelativeTolerances, default_controller, sizes_of_run
from .vector_field import VectorField

_SILENT = dfx.NoProgressMeter()


@contract
def simulate(
    system: System,
    state: State,
    ts: Numbers,
    *,
    formulation: AbstractFormulation | None = None,
    drift: AbstractDrift | None = None,
    events: Sequence[AbstractEvent] = (),
    max_events: Count = 16,
    control: object = None,
    solver: dfx.AbstractSolver | None = None,
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    dt0: Positive | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    progress_meter: dfx.AbstractProgressMeter | None = None,
    max_steps: Count | None = 4096,
    dense: bool = False,
    engine: AbstractEngine | None = None,
    throw: bool = True,
) -> Solution:
    """Integrates M v̇ = F + Cᵀλ, C v̇ = Γ from a state and keeps it on the constraints.

    Args:
        system: the system.
        state: where to start, made by `assemble` or taken from a `Solution`.
        ts: increasing times (T,) at which to save, none before `state.t`.
        formulation: how accelerations are found; `GaussProjection()` by default, `KKT()` for bodies without inertia that constraints hold.
        drift: how the constraints are kept; `Projection()` by default.
        events: changes of the constraints during the run: `Lock`, `Activate`, `Release`, `Brake`. A state saved at an event's time is the
            state after it. Events within 1e-9 of the run's duration are one transition. A guard that is above zero for less than 1/200 of the
            duration may be passed over; if that matters, limit the step.
        max_events: largest number of instants at which events happen.
        control: a controller: a function `control(t, q, v, params)` → u (nu,), a callable pytree such as an Equinox module, or one of
            `jaxmb.control`; wrapped in `jaxmb.control.Sampled`, one that acts at samples. If a state holds what the controller remembers,
            as those of a `Solution` do, the controller continues from there.
        solver: of Diffrax, `Tsit5()` by default: `Heun`, `Midpoint`, `Ralston`, `Bosh3`, `Tsit5`, `Dopri5`, `Dopri8`, implicit
            `ImplicitEuler`, `Kvaerno3`, `Kvaerno4`, `Kvaerno5`, with constant steps also `Euler`, and `HalfSolver` of an
            explicit one. Solvers for noise and for split vector fields (`KenCarp…`, `Sil3`, `SemiImplicitEuler`), and those
            with a memory (`ReversibleHeun`, `LeapfrogMidpoint`) are refused.
        stepsize_controller: Diffrax's; by default PID with rtol 1e-8 and an atol of 1e-10 times the characteristic size of each variable
            (1e-4 and 1e-6 in float32). Tolerances of a controller that you give are used as they are.
        dt0: first step, or the step of `ConstantStepSize`; by default, for adaptive controllers, 0.03/Ω with the rate Ω of the
            motion at the start (`State.scale`).
        adjoint: Diffrax's method of differentiation. The default supports both modes. Forward mode, also of second order, works as with
            `ForwardMode()` (which makes one run for value and derivative together, where the default makes two). Reverse mode goes back over
            a tape of the accepted steps for explicit Runge–Kutta solvers; for others, and with `dense=True` or `max_steps=None`, it works as
            with `RecursiveCheckpointAdjoint(checkpoints=max_steps)`. Other second derivatives need `DirectAdjoint()`.
        progress_meter: Diffrax's; none by default.
        max_steps: largest number of steps, including rejected ones, plus one for each time of a table at which steps end; with events,
            between two of them.
        dense: whether to keep the interpolation for `Solution.evaluate`.
        engine: what makes the steps: `Compiled()`, code of this system alone, many times faster on a CPU, or `XLA()`; each with `sparse`
            for large systems. By default steps are compiled if possible, and sparse if that pays; `choose_engine` tells which, and why
            not another; `stats["compiled_steps"]` and `stats["sparse_steps"]` count them. XLA always makes irregular steps, such as those
            near singular configurations; on a CPU their program is compiled when it is first needed.
        throw: whether to raise an error if something fails. If False, `Solution.result` says what happened, for each row of a batch, and
            states that were not reached are NaN, with derivatives that are NaN too.

    Returns:
        A `Solution`.

    Raises:
        ValueError: for arguments that do not fit, and for a start that violates its constraints or at which the system's functions return
            invalid values.
        RuntimeError: if the integration fails.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> sol = jm.simulate(system, jm.assemble(system, [-1.0, 0.0]), jnp.linspace(0, 1, 5))
        >>> sol.q.shape
        (5, 2)
    """
    _check_options(adjoint, dense, events)
    check_state(system, state)
    system, loop = checked_control(system, state, control)
    system = canonical(system)
    solver = checked_solver(solver)
    check_steps(solver, stepsize_controller, dt0)
    if adjoint is None and not is_explicit(solver):
        solver = _with_stored_stages(solver)
    formulation = formulation_at(formulation, system, state)
    if system.joints is not None:
        _warn(system.joints.check_run(system, state, bool(events), formulation.rank_tol))
    ts = jnp.asarray(ts, default_float())
    timing, planning, plan, state = _time_checks(state, ts), (), None, strong(state)
    if events:
        plan, state, late, planning = plan_events(system, formulation, events, state, as_jax(in_numpy(ts)[-1]))
        timing = (*timing, *late)
    planning = (*planning, *check_unattended(events, state))
    if throw:
        ts = enforce(ts, timing)
        if loop is not None and is_concrete(system, state, loop):
            _warn(loop.controller.check(system, state, formulation))
    method = Method(
        solver=ConstrainedSolver(solver),
        controller=None if stepsize_controller is None else _with_tolerances_as_arrays(stepsize_controller),
        dt0=None if dt0 is None else jnp.asarray(dt0, ts.dtype),
        adjoint=adjoint,
        progress_meter=progress_meter or _SILENT,
        max_steps=_most_steps(max_steps, system, loop),
        engine=engine,
    )
    inputs = _RunInputs(
        system=system,
        plan=plan,
        state=state,
        timing=timing,
        planning=planning,
        ts=ts,
        formulation=formulation,
        drift=as_parameters(drift or DRIFT),
        loop=loop,
        method=method,
        max_events=max_events,
        dense=dense,
    )
    run = _simulate_quick_compile if compiles_quickly(engine, system) else _simulate_optimised
    # A line of its own would be written into that of Diffrax's meter.
    with contextlib.nullcontext() if progress_meter is None else working(""):
        solution, good, checks = run(inputs)
    return _without_failure(inputs, solution, good, checks) if throw else solution


def _check_options(adjoint: dfx.AbstractAdjoint | None, dense: bool, events: Sequence[AbstractEvent]) -> None:
    if isinstance(adjoint, dfx.BacksolveAdjoint):
        raise ValueError(
            "Argument `adjoint` must not be `BacksolveAdjoint`, which leaves the constraints on its way back; leave it out, or use "
            "`RecursiveCheckpointAdjoint`."
        )
    if dense and events:
        raise ValueError("Argument `dense` must be False for a run with events; save at more times instead.")


def _warn(doubts: Sequence[str]) -> None:
    """Warns where `simulate` was called."""
    for doubt in doubts:
        warn(doubt)


def _without_failure(inputs: "_RunInputs", solution: Solution, good: Array, checks: Sequence[Check]) -> Solution:
    """The solution; raises if it is not good, now or, where numbers are not known, when they are."""
    if is_concrete(good) and bool(good):
        return solution  # one number is looked at, not all checks
    solution = enforce(solution, checks)
    if is_concrete(good):
        raise RuntimeError(reason(inputs.system, inputs.drift, inputs.state, solution))
    return solution.result.error_if(solution, solution.result != RESULTS.successful)


def _with_stored_stages(solver: dfx.AbstractSolver) -> dfx.AbstractSolver:
    """A Runge–Kutta solver whose few stages are stored, not checkpointed, for its reverse derivative."""
    if getattr(solver, "scan_kind", "none") is None:
        return eqx.tree_at(lambda s: s.scan_kind, solver, "bounded", is_leaf=lambda x: x is None)
    return solver


def _with_tolerances_as_arrays(controller: dfx.AbstractStepSizeController) -> Any:
    """The controller with rtol and atol as arrays, also inside another controller: other tolerances do not compile anew."""
    adaptive = lambda x: isinstance(x, dfx.PIDController)
    # `jit` takes Python's numbers for constants of the program.
    as_arrays = lambda c: (
        eqx.tree_at(lambda c: (c.rtol, c.atol), c, as_parameters((c.rtol, c.atol))) if adaptive(c) else c
    )
    return jax.tree.map(as_arrays, controller, is_leaf=adaptive)


def _most_steps(max_steps: int | None, system: System, loop: FeedbackLoop | None) -> int | None:
    """So many, and one more for each time of a table at which steps end; None without a limit."""
    ends = [*breaks_of(system, loop)]
    ends += [loop.clock.ts] if loop is not None and isinstance(loop.clock, Timetable) else []
    return None if max_steps is None else max_steps + sum(times.size for times in ends)


def _stopping(
    system: System, loop: FeedbackLoop | None, controller: dfx.AbstractStepSizeController
) -> dfx.AbstractStepSizeController:
    """The controller, if it is adaptive, with steps that end where a function of the system, or what a control law puts out, is not smooth."""
    if not isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        return controller
    # Apart, not at one instant: derivatives by the times of a table are others on both sides.
    breaks = breaks_of(system, loop)
    return Interrupted(controller, jnp.concatenate(breaks)) if breaks else controller


def _time_checks(state: State, ts: Array) -> tuple[Check, ...]:
    if ts.ndim != 1 or not ts.shape[0]:
        raise ValueError(f"Argument `ts` must be an array of times of shape (T,), but has shape {ts.shape}.")
    numbers = arrays_of(state.t, ts)
    t, ts = numbers.asarray(state.t), numbers.asarray(ts)
    finite = numbers.all(numbers.isfinite(ts)) & numbers.isfinite(t)
    with np.errstate(invalid="ignore"):
        late, falling = t - ts[0], -numbers.min(numbers.diff(ts), initial=0)
    if numbers is np and finite and max(late, falling) <= 0:
        return ()
    amounts = 1.0 - finite, numbers.where(finite, late, 0), numbers.where(finite, falling, 0)
    texts = (
        "Argument `ts`, and `state.t`, must be finite, but are not.",
        "Argument `ts` must not start before `state.t`, but does, by {} s.",
        "Argument `ts` must increase, but falls by {} s.",
    )
    return tuple(Check(numbers.asarray(x, float), 0.0, text) for x, text in zip(amounts, texts, strict=True))


class _RunInputs(NamedTuple):
    """The arguments of a run, after the first checks."""

    system: System
    plan: Plan | None
    state: State
    timing: tuple[Check, ...]
    planning: tuple[Check, ...]
    ts: Array
    formulation: AbstractFormulation
    drift: AbstractDrift
    loop: FeedbackLoop | None
    method: Method
    max_events: int
    dense: bool


def _simulate(inputs: _RunInputs) -> tuple[Solution, Array, tuple[Check, ...]]:
    """The motion, whether it is right, and the checks of its arguments and its start."""
    state, plan, loop = inputs.state, inputs.plan, inputs.loop
    timely = all_hold(inputs.timing)
    ts = jnp.where(timely, inputs.ts, 0)
    # Times that are refused are not used at all: NaN would spread to rows of a batch that are good.
    state = dataclasses.replace(state, t=jnp.where(timely, state.t, 0))
    # A run without duration takes a step too, so that the derivative with respect to its time is the velocity.
    end = jnp.where(ts[-1] > state.t, ts[-1], state.t + resolution(state.t, ts[-1]))
    system, bare = apply_mode(inputs.system, state)
    field, method, plan, checks = _problem(inputs, system, bare, ts, end, timely)
    consistent = field.consistent
    events, interpolation = None, None
    if plan is None:
        # A start that is refused takes no step, but is evaluated all the same: made finite, it leaves no NaN in derivatives.
        start = jax.tree.map(lambda x: jnp.where(consistent, x, 0), initial_state(loop, bare))
        motion, saved, u = _without_events(inputs, method, field, (bare.t, end), ts, start)
        phases: Phases = jax.tree.map(lambda x: x[None], motion.record)
        result, interpolation = verdict(motion, consistent), motion.interpolation
        modes = jax.tree.map(lambda x: jnp.broadcast_to(x, (ts.shape[0], *x.shape)), state.mode)
    else:
        run = Run(
            plan=plan,
            drift=inputs.drift,
            loop=loop,
            scale=field.scale,
            method=method,
            max_events=inputs.max_events,
            ts=ts,
            end=end,
        )
        last, events, phases, u = run_through(run, state, consistent)
        saved, result, modes = last.saved, last.result, last.modes
    saved, u, events = with_nan_derivatives(
        (saved, u, events), system, plan, state, ts, inputs.formulation, inputs.drift, loop
    )
    result = RESULTS.where(timely, result, RESULTS.unfit_times)
    solution = Solution(
        ts=inputs.ts,
        q=saved.q,
        v=saved.v,
        work=saved.work,
        u=u,
        scale=state.scale,
        stats=phases.statistics(),
        switches=phases.switches(),
        result=result,
        field=None if interpolation is None else field,
        dense=interpolation,
        modes=modes,
        events=events,
        z=None if loop is None else jax.vmap(loop.state)(saved.control),
        control=None if loop is None else saved.control,
        joints=None if loop is None else loop.controller.acts_at,
        names=Names.of(system),
    )
    checks = (*checks, *_check_motion(field, phases))
    return solution, all_hold(checks) & (result == RESULTS.successful), checks


def _problem(
    inputs: _RunInputs, system: System, state: State, ts: Array, end: Array, timely: Array
) -> tuple[VectorField, Method, Plan | None, tuple[Check, ...]]:
    """The problem, the method with its steps, the events with their sizes, and the checks of events and of the start."""
    plan, formulation, loop, method = inputs.plan, inputs.formulation, inputs.loop, inputs.method
    values = Values.of(system, state)
    scale, sizes = sizes_of_run(system, state, ts[-1], values)
    if loop is not None:
        sizes = sizes.with_control(loop.sizes(ts.dtype))
    checks, choice = _check_start(system, formulation, dataclasses.replace(state, scale=scale), values)
    checks = (*inputs.planning, *checks)
    # Where all rests the error allows any step: what begins later, a pulse or a driver, must not be passed over.
    time = end - state.t
    limited = bool(plan and plan.guarded) | ((scale.rate * time < QUIET) & jnp.all(state.v == 0))
    controller, dt0 = _step_sizes(system, scale, sizes, method, loop, time, limited)
    field = VectorField(
        system=system,
        formulation=formulation,
        drift=inputs.drift,
        loop=loop,
        scale=scale,
        consistent=timely & all_hold(checks),
        choice=choice,
        interrupted=bool(breaks_of(system, loop)),
    )
    if plan is not None:
        assert inputs.state.mode is not None
        plan = plan.sized(inputs.state.mode, dataclasses.replace(state, scale=scale), sizes.v, values.root)
    return field, dataclasses.replace(method, controller=controller, dt0=dt0), plan, checks


def _without_events(
    inputs: _RunInputs, method: Method, field: VectorField, span: tuple[Array, Array], ts: Array, start: StateVector
) -> tuple[Phase, StateVector, Array | None]:
    """The motion, the saved states and the inputs there."""
    # An interpolation of the whole run is Diffrax's: compiled runs keep no such thing.
    if not inputs.dense:
        field = regular_if_possible(method, field, span[0], start)
    motion = integrate(PhaseInputs(field, *span, start, ts), method, dense=inputs.dense)
    saving = field.general, ts, motion.ys, start
    if field.regular_only is None:
        return motion, *_corrected_states(*saving)
    # Saved states are corrected by the rows of the run: no decision about rank is part of the program.
    saved, u, regular = regular_states(method, field, motion.accepted.rows.in_use, *saving[1:])
    return motion, *with_fallback(motion.irregular | ~regular, _corrected_states, saving, (saved, u))


def _corrected_states(
    field: VectorField, ts: Array, ys: StateVector, start: StateVector
) -> tuple[StateVector, Array | None]:
    """Saved states and inputs, see `finished`."""
    return at_each(field.loop, lambda t, y: finished(field, t, y, start), ts, ys)


_simulate_quick_compile, _simulate_optimised = program(_simulate), lasting(_simulate)


def _step_sizes(
    system: System,
    scale: Scale,
    sizes: StateVector,
    method: Method,
    loop: FeedbackLoop | None,
    time: Array,
    limited: bool | Array,
) -> tuple[dfx.AbstractStepSizeController, Array | None]:
    """The controller and the first step, by default those that follow from the sizes of the run, which takes so much time."""
    controller, dt0 = method.controller, method.dt0
    if controller is None:
        # Relative to the sizes of the run, so that units do not matter.
        default = _with_tolerances_as_arrays(default_controller(scale.rate.dtype))
        controller = RelativeTolerances(controller=default, sizes=sizes)
    if isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        dt0 = FIRST_STEP / scale.rate if dt0 is None else dt0
        longest = jnp.where(limited, jax.lax.stop_gradient(time) / STEPS_PER_RUN, jnp.inf)
        controller = Limited(controller, longest)
    # Samples last: its steps must end at them, whatever limits and jumps the controllers within have chosen.
    controller = _stopping(system, loop, controller)
    return controller if loop is None or loop.clock is None else landing(controller, loop.clock), dt0


def _check_start(
    system: System, formulation: AbstractFormulation, state: State, values: Values
) -> tuple[tuple[Check, ...], Array | None]:
    """The checks of values and constraints, and the formulation's first choice."""
    system, state = jax.lax.stop_gradient((system, state))
    terms = Terms.rows(system, values.mass, values.jacobian, state.scale.row)
    name = type(formulation).__name__
    consistent = consistency(system, state, "is violated at the start", values)
    checks = (*check_values(system, state, values), *consistent)
    # Cholesky's elimination is NaN for an M that is not positive definite: no eigenvalues, and so no LAPACK, are needed.
    regular = jnp.all(jnp.isfinite(inverse_root(formulation.metric(terms))))
    text = f"Argument `mass` must be positive definite for `{name}`, but is not at the start; `KKT` needs that on null(C) only."
    return (*checks, Check(1.0 - regular, 0.0, text)), formulation.choose(terms)


def _check_motion(field: VectorField, phases: Phases) -> tuple[Check, ...]:
    """Accelerations exist and are determined at the start."""
    system, formulation = field.system, type(field.formulation).__name__
    failed, rows = phases.of_start()
    text = (
        f"The choice of `{formulation}` does not fit the start: the rows that are left after elimination, or the independent "
        "coordinates, do not determine the motion."
    )
    names = tuple(system.rows)
    checks = [Check((failed & rows.unfit).astype(float), 0.0, text)]
    text = "Constraint '{name}' must not contradict others, but no acceleration satisfies it; it is off, relatively, by {}."
    # Only where the first step has failed: otherwise the amounts, which are never quite zero, mean nothing.
    amounts = jnp.where(failed, system.largest(rows.contradiction), 0)
    checks.append(Check(amounts, contradiction_tol(amounts.dtype), text, names))
    text = (
        "The motion is not determined at the start: rows of constraint '{name}' are dependent at this pose only, and the "
        "velocity selects none of the possible motions. Start beside the pose or with another velocity; if `diagnose` "
        "finds that all poses around are singular too, change a length."
    )
    checks.append(Check(jnp.where(failed, system.largest(rows.indeterminate.astype(float)), 0), 0.0, text, names))
    return tuple(checks)
