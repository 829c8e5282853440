"""Steps of one length, one call each: for loops that are written elsewhere."""

import dataclasses
from collections.abc import Callable, Mapping

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ..control import AbstractController, AbstractInstant, AbstractStepper, Sampled, as_controller
from ..formulation import AbstractFormulation, formulation_at
from ..foundations import (
    RESULTS,
    Blank,
    Count,
    Key,
    Numbers,
    Positive,
    announce,
    as_parameters,
    contract,
    default_float,
    enforce,
    is_concrete,
    listing,
    remembered,
    strong,
    with_nan_derivatives,
)
from ..kinematics import Attempt, consistency, try_assemble
from ..lanes import latest
from ..system import State, System, apply_mode, canonical, check_state, rows_at
from .adjoint import integrate
from .arguments import DRIFT, checked_control, checked_solver
from .drift import AbstractDrift
from .feedback import initial_state
from .judgement import verdict
from .method import AbstractEngine, Method
from .phase import PhaseInputs
from .regular import regular_if_possible
from .solver import ConstrainedSolver
from .vector_field import VectorField

# How often a start is drawn from ranges until one can be assembled.
DRAWS = 32
# Steps beside the substeps: one that rounding may leave at the end.
SPARE_STEPS = 1


class HeldInputs(AbstractController):
    """Inputs that do not change during a step."""

    u: Float[Array, " nu"]

    @property
    def uses_plant(self) -> bool:
        """False."""
        return False

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs."""
        return self.u


class Stepper(AbstractStepper):
    """`state = step(state, u)`, made by `jaxmb.stepper`; a pytree, whose floating-point numbers can be differentiated and batched.

    Attributes:
        system: the system.
        state: the one that it was made with; None within programs.
        dt: length of a step in s; it has no derivative.
        control: the controller; None where inputs are arguments of the step.
        formulation: how accelerations are found.
        drift: how the constraints are kept.
        solver: of Diffrax.
        independent: the rows that the rank rule keeps at `state`, which each step tries first.
        substeps: steps of the integrator in one step.
        engine: what makes them.
        throw: whether a call that fails raises where its numbers are known.
    """

    system: System
    state: State | None
    dt: Float[Array, ""]
    control: AbstractController | None
    formulation: AbstractFormulation
    drift: AbstractDrift
    solver: dfx.AbstractSolver
    independent: Bool[Array, " m"]
    substeps: int = eqx.field(static=True)
    engine: AbstractEngine | None = eqx.field(static=True)
    throw: bool = eqx.field(static=True)

    def __call__(self, state: State, u: Numbers | None = None) -> State:
        """The state after a step; its coordinates and velocities are NaN, and so are derivatives, where there is none, unless `throw` says to raise.

        Args:
            state: where the step begins: a single state, see `start`; batches by `jax.vmap`.
            u: inputs (nu,) in the order of the system's actuators, held over the step; none by default. Without a `control` only.

        Raises:
            ValueError: for shapes that do not fit. Numbers are not looked at: see `with_result`.
            RuntimeError: where a step fails, with `throw` and where numbers are known: the time and the text of its result.
        """
        after, result = _step(self, state, u)
        if self.throw and is_concrete(state):
            announce(result, f"The step from t = {float(state.t):g} s on fails: ")
        return after

    def with_result(self, state: State, u: Numbers | None = None) -> tuple[State, RESULTS]:
        """The state after a step, as from a call, and its result as in `Solution.result`."""
        return _step(self, state, u)

    def start(self, state: State | None = None) -> State:
        """The state from which steps begin: a checked state, with room for what the controller remembers.

        Args:
            state: made by `assemble`, or taken from a `Solution`; that of `stepper` by default.

        Raises:
            ValueError: for a state of another system, and one that violates its constraints.
        """
        # A copy: what is returned may be donated to a program.
        state = jax.tree.map(jnp.copy, self.state) if state is None else state
        assert state is not None
        check_state(self.system, state)
        return enforce(
            self._with_memory(state), consistency(*apply_mode(self.system, state), "is violated at the start")
        )

    @contract
    def reset(self, key: Key, spread: Numbers | Mapping[str, Numbers] = 0.1, around: State | None = None) -> State:
        """A random state to begin with: the coordinates of another state plus noise, or drawn from ranges, assembled with its velocities.

        Coordinates with a range are uniform in it, independently of each other, and keep the drawn values; the others
        follow by assembling from their values in `around`. If that fails, all are drawn again, up to 32 times: starts
        are uniform in these coordinates on the part of their ranges where the mechanism can be assembled, which is not
        uniform in a volume of its poses.

        Args:
            key: of `jax.random`; equal keys give equal states.
            spread: standard deviation of the noise, in the units of the coordinates: a number, one for each (nq,), or by name,
                zero for those not named; by name also (least, largest), a range, but for components of unit quaternions.
            around: a state; that of `stepper` by default.

        Returns:
            The state; NaN if the drawn coordinates cannot be assembled.

        Raises:
            ValueError: for a `spread` that does not fit.
        """
        around = self.state if around is None else around
        assert around is not None
        check_state(self.system, around, "around")
        system, bare = apply_mode(self.system, around)
        numbers = (system, bare, *start_spread(system, spread))
        if numbers[-1]:
            # The draw is found without derivatives, which no loop of unknown length has in reverse mode; the start itself has them.
            constant = jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_array(x) else x, numbers)

            def anew(search: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                trial = jax.random.fold_in(key, search[0])
                return search[0] + 1, trial, _start(trial, *constant).result == RESULTS.successful

            begin = (jnp.zeros((), jnp.int32), key, jnp.zeros((), bool))
            key = lax.while_loop(lambda search: ~search[2] & (search[0] < DRAWS), anew, begin)[1]
        attempt = _start(key, *numbers)
        assembled, good = attempt.state, attempt.result == RESULTS.successful
        q, v = (jnp.where(good, x, jnp.nan) for x in (assembled.q, assembled.v))
        return self._with_memory(dataclasses.replace(assembled, q=q, v=v, mode=around.mode))

    def _with_memory(self, state: State) -> State:
        """The state as a step returns it."""
        state = strong(jax.tree.map(jnp.asarray, state))
        _, loop = checked_control(self.system, state, self.control)
        memory = None if loop is None else loop.initial_control(state.t)
        if memory is None or not memory.size or state.control is not None:
            return state
        return dataclasses.replace(state, control=memory)


@contract
def stepper(
    system: System,
    state: State,
    dt: Positive,
    *,
    substeps: Count = 1,
    solver: dfx.AbstractSolver | None = None,
    formulation: AbstractFormulation | None = None,
    drift: AbstractDrift | None = None,
    control: object = None,
    engine: AbstractEngine | None = None,
    throw: bool = False,
) -> Stepper:
    """Steps of fixed length, one call each, for your own loops: `state = step(state, u)`.

    A step returns the state that `simulate` would reach by constant steps of dt/substeps. It works under `jit`, `vmap`, `lax.scan`
    and derivatives in both modes. There are no events. The state of a failed step is NaN, and `step.with_result` tells why; with
    `throw=True` a call from Python raises an error instead.

    Args:
        system: the system.
        state: a typical state of the motion, made by `assemble` or taken from a `Solution`. Rows that are independent there are tried first
            at each step, and it determines which bodies have no inertia; steps may begin at any state.
        dt: length of a step in s.
        substeps: number of steps of the integrator in one step.
        solver: of Diffrax, as in `simulate`; `Tsit5()` by default. A method of lower order costs less per step.
        formulation: how accelerations are found; that of `simulate` by default.
        drift: how the constraints are kept; `Projection()` by default.
        control: a controller in continuous time, instead of inputs as arguments of the step; what it remembers is part of the state. Held
            inputs of a table change where a substep begins.
        engine: what makes the steps, as in `simulate`.
        throw: whether a call from Python raises where its step fails, which waits for the step to end; within programs nothing is raised.

    Returns:
        A `Stepper`.

    Raises:
        ValueError: for arguments that do not fit.

    Example:
        >>> import jax, jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> step = jm.stepper(system, jm.assemble(system, [-1.0, 0.0]), 0.01)
        >>> end, qs = jax.lax.scan(lambda state, _: (step(state), state.q), step.start(), length=100)
        >>> print(qs.shape, bool(jnp.abs(end.q @ end.q - 1) < 1e-12))
        (100, 2) True
    """
    if isinstance(control, Sampled):
        raise ValueError(
            "Argument `control` must act in continuous time, but is `Sampled`: give the law itself, or what it puts out as `u` of each step."
        )
    check_state(system, state)
    law = None if control is None else as_controller(control, "control")
    checked_control(system, state, law)
    formulation = formulation_at(formulation, system, state)
    in_mode, bare = apply_mode(system, lax.stop_gradient(state))
    return Stepper(
        system=system,
        state=state,
        dt=jnp.asarray(dt, default_float()),
        control=law,
        formulation=formulation,
        drift=as_parameters(drift or DRIFT),
        solver=checked_solver(solver),
        independent=formulation.prepare(rows_at(in_mode, bare.t, bare.q, bare.scale.row)),
        substeps=int(substeps),
        engine=engine,
        throw=throw,
    )


def start_spread(
    system: System, spread: Numbers | Mapping[str, Numbers]
) -> tuple[Float[Array, "*nq"], dict[str, Float[Array, "2"]]]:
    """The standard deviation of each coordinate, or one number for all, and the ranges of those that have one.

    Raises:
        ValueError: for a `spread` that does not fit.
    """
    if not isinstance(spread, Mapping):
        values = jnp.asarray(spread, default_float())
        if values.shape not in ((), (system.nq,)):
            raise ValueError(
                f"Argument `spread` must be a number or have shape ({system.nq},), but has shape {values.shape}."
            )
        return values, {}
    unknown = [name for name in spread if name not in system.coordinates]
    if unknown:
        raise ValueError(
            f"Argument `spread` must name coordinates of the system, {listing(system.coordinates)}, but names {listing(unknown)}."
        )
    numbers = {name: jnp.asarray(x, default_float()) for name, x in spread.items()}
    _check_spread(system, numbers)
    zero = jnp.zeros((), default_float())
    deviation = [x if (x := numbers.get(name, zero)).ndim == 0 else zero for name in system.coordinates]
    # In the order of the coordinates: a mapping that has been through a program comes back in another one.
    return jnp.stack(deviation), {name: numbers[name] for name in system.coordinates if numbers.get(name, zero).ndim}


def _check_spread(system: System, numbers: dict[str, Array]) -> None:
    """Refuses what is neither a deviation nor a range, and ranges that coordinates cannot have."""
    for name, x in numbers.items():
        if x.shape not in ((), (2,)):
            raise ValueError(
                f"Argument `spread` must have a number or a range (least, largest) for '{name}', but has shape {x.shape}."
            )
        # With NumPy: within a program JAX would trace it.
        if is_concrete(x) and not _is_spread(np.asarray(x)):
            raise ValueError(
                f"Argument `spread` must have for '{name}' a number that is not negative, or a finite range from its least to its largest value, but has {x}."
            )
    ranges = {name for name, x in numbers.items() if x.ndim}
    impossible = [name for name in _normalised(system) if name in ranges] if ranges else []
    if impossible:
        raise ValueError(
            "Argument `spread` must have numbers for components of unit quaternions and the like, which keep no value of a range, "
            f"but has ranges for {listing(impossible)}."
        )


def _normalised(system: System) -> list[str]:
    """The coordinates that do not keep their values, as the others are changed along with them."""
    with jax.ensure_compile_time_eval():
        values = jax.vmap(system.normalise)(1 + jnp.eye(system.nq, dtype=default_float()))
        return [name for name, x in zip(system.coordinates, np.diagonal(values), strict=True) if x != 2]


def _is_spread(x: np.ndarray) -> bool:
    """Whether numbers are a deviation or a range."""
    return bool(np.isfinite(x).all() and (x >= 0 if x.ndim == 0 else x[0] <= x[1]))


def _start(
    key: Array, system: System, around: State, deviation: Float[Array, "*nq"], ranges: dict[str, Float[Array, "2"]]
) -> Attempt:
    """What is drawn, assembled; coordinates with ranges keep their values."""
    q = around.q + deviation * jax.random.normal(key, around.q.shape, around.q.dtype)
    if ranges:
        at = np.array([system.coordinates.index(name) for name in ranges])
        low, high = jnp.stack([*ranges.values()], axis=1)
        q = q.at[at].set(jax.random.uniform(jax.random.fold_in(key, DRAWS), at.shape, q.dtype, low, high))
    return try_assemble(system, q, around.v, t=around.t, hold=tuple(ranges))


# Programs: one for all steppers that differ in their numbers only

StepEnd = tuple[Array, Array, Array, Array | None]  # time, coordinates, velocities, what the controller remembers
Advance = Callable[[list[Array], State, Numbers | None], tuple[StepEnd, RESULTS]]


@contract
def _check_kinds(state: State, u: Numbers | None) -> None:
    """Refuses arguments of the wrong kind by name: asked where a call has failed, as it takes a tenth of a call."""


def _step(step: Stepper, state: State, u: Numbers | None) -> tuple[State, RESULTS]:
    """The state after a step, and the result of the step.

    A call of a loop in Python waits for all that is done here: shapes are looked at where the program is traced, which returns what
    has changed only, and the state is made without `dataclasses.replace`, which takes as long as a step.
    """
    advance, arrays = _program_of(step)
    try:
        (t, q, v, control), result = advance(arrays, state, u)
    except TypeError:
        _check_kinds(state, u)
        raise
    fields, structure = jax.tree.flatten(state, is_leaf=lambda x: x is not state)
    names = [field.name for field in dataclasses.fields(state)]
    changed = {"t": t, "q": q, "v": v, "control": control}
    return jax.tree.unflatten(structure, [changed.get(name, x) for name, x in zip(names, fields, strict=True)]), result


@remembered
def _program_of(step: Stepper) -> tuple[Advance, list[Array]]:
    """The compiled program of a call, and the arrays of the stepper."""
    step = eqx.tree_at(lambda s: s.state, step, None)
    blank, arrays = Blank.of(strong(dataclasses.replace(step, system=canonical(step.system), throw=False)))
    return (_program if blank.hashable else _compile)(blank), arrays


def _compile(blank: Blank) -> Advance:
    def advance(arrays: list[Array], state: State, u: Numbers | None) -> tuple[StepEnd, RESULTS]:
        return _advance(blank.filled(arrays), state, u)

    return jax.jit(advance)


_program = latest(_compile)


def _checked_inputs(step: Stepper, u: Numbers | None) -> Array | None:
    """The inputs of a step, of the right shape."""
    if u is None:
        return None
    if step.control is not None:
        raise ValueError("Argument `u` must be None where `control` makes the inputs, but is not.")
    if not step.system.nu:
        raise ValueError("Argument `u` must be None for a system without actuators, but is not.")
    u, nu = jnp.asarray(u, default_float()), step.system.nu
    if u.shape != (nu,):
        raise ValueError(f"Argument `u` must have shape ({nu},), one input for each actuator, but has shape {u.shape}.")
    return u


def _advance(step: Stepper, state: State, u: Numbers | None) -> tuple[StepEnd, RESULTS]:
    check_state(step.system, state)
    u = _checked_inputs(step, u)
    state = strong(jax.tree.map(jnp.asarray, state))
    inputs, method = problem_of(step, state, u)
    field, finite = inputs.field, inputs.field.consistent
    # Rows that were independent at the stepper's state are tried first: the rank rule is a fallback then, which may never be compiled.
    regular = regular_if_possible(method, field, inputs.t0, inputs.y0, step.independent)
    phase = integrate(dataclasses.replace(inputs, field=regular), method)
    result = RESULTS.where(finite, verdict(phase, finite), RESULTS.inconsistent_state)
    if u is not None:
        result = RESULTS.where(jnp.all(jnp.isfinite(u)), result, RESULTS.nonfinite)  # pyright: ignore[reportArgumentType]
    y1 = jax.tree.map(lambda x: jnp.where(result == RESULTS.successful, x, jnp.nan), phase.y)
    y1 = with_nan_derivatives(y1, field.system, state, field.loop, u)
    dt = lax.stop_gradient(step.dt)
    return (state.t + dt, y1.q, y1.v, None if state.control is None else y1.control), result


def problem_of(step: Stepper, state: State, u: Float[Array, " nu"] | None) -> tuple[PhaseInputs, Method]:
    """What a step from a state integrates, of which `consistent` is whether all numbers are finite; and how."""
    finite_inputs = jnp.array(True) if u is None else jnp.all(jnp.isfinite(u))
    law = step.control if u is None else HeldInputs(jnp.where(finite_inputs, u, 0))
    actuated, loop = checked_control(step.system, state, law)
    system, bare = apply_mode(actuated, state)
    if loop is not None and state.control is None and loop.initial_control(state.t).size:
        raise ValueError(
            "Argument `state` must hold what the controller remembers, but does not: begin with `step.start(state)`."
        )
    y0 = initial_state(loop, bare)
    finite = y0.finite & jnp.isfinite(state.t) & finite_inputs
    # From numbers that are not finite a step has no length and no rows are decided: no fallback is compiled for it.
    y0 = jax.tree.map(lambda x: jnp.where(finite, x, 0), y0)
    dt = lax.stop_gradient(step.dt)
    t0 = jnp.where(finite, state.t, 0)
    t1 = t0 + jnp.where(finite, dt, 0)
    scale = lax.stop_gradient(bare.scale)
    # At least one motion in the time of a step, as `simulate` takes it in that of the run: at rest Ω would be zero.
    scale = dataclasses.replace(scale, rate=jnp.maximum(scale.rate, 1 / dt))
    method = Method(
        solver=ConstrainedSolver(step.solver),
        controller=dfx.ConstantStepSize(),
        # By the times as they are rounded: of a length that is longer by rounding Diffrax makes one substep more, all of them shorter.
        dt0=lax.stop_gradient(jnp.where(finite, t1 - t0, dt)) / step.substeps,
        adjoint=None,
        progress_meter=dfx.NoProgressMeter(),
        max_steps=step.substeps + SPARE_STEPS,
        engine=step.engine,
    )
    choice = step.formulation.choose(rows_at(*lax.stop_gradient((system, t0, y0.q)), scale.row))
    field = VectorField(
        system=system,
        formulation=step.formulation,
        drift=step.drift,
        loop=loop,
        scale=scale,
        consistent=finite,
        choice=choice,
    )
    return PhaseInputs(field, t0, t1, y0, lax.stop_gradient(t1)[None]), method
