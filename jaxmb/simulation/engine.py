"""Which engine makes the steps of a run, and why not another: all that decides about it."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..formulation import AbstractFormulation, GaussProjection, formulation_at
from ..foundations import TextInNotebooks, as_parameters, contract, strong
from ..lanes import unavailable
from ..linalg import Layout
from ..system import State, System, Values, apply_mode, canonical, check_state, dense_work, layout_of, rows_at
from .arguments import DRIFT, checked_control, checked_solver
from .compiled_step import CompiledStep, CompiledStepAdjoint, compiled_step, compiled_step_adjoint
from .config import available
from .drift import AbstractDrift
from .feedback import FeedbackLoop, initial_state
from .method import XLA, AbstractEngine, Compiled, Method
from .solver import ConstrainedSolver
from .stages import is_explicit
from .state_vector import StateVector
from .step_size import sizes_of_run
from .vector_field import VectorField

# Code for linear algebra of more operations than this, along the band or if nothing were zero, takes longer to compile than it saves.
LARGEST_WORK = 40_000
# What is done once beside the steps, at the start, leaves no zeros out: of that so many pay.
LARGEST_BESIDE = 2 * LARGEST_WORK
# On GPUs XLA compiles code of single numbers in twice the time of small arrays: this is the order of the largest that was measured, Andrews' squeezer (660).
LARGEST_WORK_ON_GPU = 1_000

# Each rule says why not, or None.


def _not_explicit(method: Method) -> str | None:
    solver = method.solver.solver
    return None if is_explicit(solver) else f"`{type(solver).__name__}` is not an explicit Runge–Kutta method"


def _not_fixed_choice(field: VectorField) -> str | None:
    """Rows or coordinates are chosen by the formulation, and must fit each accepted state."""
    formulation = field.formulation
    if type(formulation).choose is not AbstractFormulation.choose:
        return f"`{type(formulation).__name__}` may choose anew at each accepted state"
    if formulation.excluded(field.system.m) is not None:
        return f"`{type(formulation).__name__}` leaves rows out, which must fit each accepted state"
    return None


def _too_large(system: System) -> str | None:
    work = dense_work(system) if system.layout is None else system.layout.work
    largest = LARGEST_WORK_ON_GPU if _on_gpu() else LARGEST_WORK
    return None if work <= largest else f"{system.nv} velocities and {system.m} rows are too many"


def _on_gpu() -> bool:
    """There XLA makes kernels of operations on single numbers, 3 to 10 times as fast as those of small arrays; on other devices nobody has measured it."""
    return jax.default_backend() == "gpu"


def _by_numbers(method: Method) -> bool:
    """Whether steps are of single numbers where it is XLA that compiles them."""
    return _on_gpu() or isinstance(method.engine, Compiled)


def _not_compiled(method: Method, field: VectorField) -> str | None:
    demanded = isinstance(method.engine, Compiled)
    if isinstance(method.engine, XLA):
        return "`engine` is `XLA`"
    if not isinstance(method.adjoint, dfx.ForwardMode | None) and _not_explicit(method) is None:
        return "derivatives are neither over a tape nor in forward mode"
    reason = unavailable(by_xla=_by_numbers(method)) or not_regular(method, field)
    return reason or (None if demanded else _too_large(field.system))


def _not_sparse(method: Method, field: VectorField) -> str | None:
    if method.engine is not None and method.engine.sparse is False:
        return "`sparse` is False"
    if reason := _not_explicit(method):
        return reason
    if not isinstance(field.formulation, GaussProjection):
        return f"`{type(field.formulation).__name__}` is not `GaussProjection`"
    if field.loop is not None and field.loop.needs_plant:
        return "a controller asks for matrices of the plant"
    return None


def may_be_regular(method: Method, field: VectorField) -> bool:
    """Whether all steps of a run may turn out to be regular: none is planned that is not."""
    by_tape = isinstance(method.adjoint, dfx.ForwardMode | None)
    return not_regular(method, field) is None and by_tape


def not_regular(method: Method, field: VectorField) -> str | None:
    """Why a run may have no regular steps, whatever makes them."""
    return _not_explicit(method) or _not_fixed_choice(field)


# The choice


def compiles_quickly(engine: AbstractEngine | None, system: System) -> bool:
    """Whether compiled code will do most of the work, so that what is around it need not be optimised for long."""
    demanded = None if engine is None else isinstance(engine, Compiled)
    if not available(demanded) or (engine is not None and engine.sparse) or dense_work(system) > LARGEST_BESIDE:
        return False
    if _too_large(system) is None:  # at each call of `simulate`: zeros are looked for only where it depends on them
        return True
    layout = layout_of(system, False, compiled=True)
    return not isinstance(layout, str) and _too_large(system.with_layout(layout)) is None


def with_layout(method: Method, field: VectorField, y0: StateVector) -> VectorField:
    """The problem, whose system knows which entries of M and C may not be zero if steps use that."""
    layout = _layout(method, field, y0)
    if not isinstance(layout, str):
        return _with_layout(layout, field)
    if method.engine is not None and method.engine.sparse:
        raise ValueError(f"Argument `engine` must not be sparse here: {layout}.")
    return field


def compiled_step_of(method: Method, field: VectorField, y0: StateVector) -> CompiledStep | None:
    """The step of a problem that is laid out; None for that of `ConstrainedSolver` itself, or by the layout."""
    step = _compiled(method, field, y0)
    if not isinstance(step, str):
        return step
    if isinstance(method.engine, Compiled):
        raise ValueError(f"Argument `engine` must not be `Compiled` here: {step}.")
    return None


def adjoint_of(method: Method, moves: PyTree, rest: VectorField, y0: StateVector) -> CompiledStepAdjoint | None:
    """The reverse sweep over a step as compiled code, if there is one."""
    if _not_compiled(method, eqx.combine(moves, rest)) is not None:
        return None
    adjoint = compiled_step_adjoint(moves, rest, method.solver.solver, y0, _by_numbers(method))
    return None if isinstance(adjoint, str) else adjoint


def _layout(method: Method, field: VectorField, y0: StateVector) -> Layout | str:
    """The layout by which steps are made, or why there is none; compiled steps gain by one from fewer bodies on."""
    reason = _not_sparse(method, field)
    if reason is not None:
        return reason
    demanded = method.engine is not None and method.engine.sparse is True
    layout = layout_of(field.system, demanded)
    if isinstance(layout, str):
        other = layout_of(field.system, demanded, compiled=True)
        if not isinstance(other, str) and not isinstance(_compiled(method, _with_layout(other, field), y0), str):
            return other
    return layout


def _compiled(method: Method, field: VectorField, y0: StateVector) -> CompiledStep | str:
    reason = _not_compiled(method, field)
    if reason is not None:
        return reason
    # Programs are remembered by the problem: runs that are tried by regular steps share them with all others.
    regular = dataclasses.replace(field, regular_only=None, smooth=False)
    step = compiled_step(regular, method.solver.solver, y0, _by_numbers(method))
    if isinstance(method.adjoint, dfx.ForwardMode) and isinstance(step, CompiledStep) and not step.program.doubles:
        return "its derivative in forward mode has too many operations"
    return step


def _with_layout(layout: Layout, field: VectorField) -> VectorField:
    return dataclasses.replace(field, system=field.system.with_layout(layout))


# To be asked


@dataclasses.dataclass(frozen=True)
class EngineChoice(TextInNotebooks):
    """The engine of a run, and why it is not another one.

    Attributes:
        engine: `Compiled(sparse=…)` or `XLA(sparse=…)`.
        not_compiled: why not compiled, None if it is.
        not_sparse: why not sparse, None if it is.
    """

    engine: AbstractEngine
    not_compiled: str | None
    not_sparse: str | None

    def __str__(self) -> str:
        reasons = [f"not compiled: {self.not_compiled}"] if self.not_compiled else []
        reasons += [f"not sparse: {self.not_sparse}"] if self.not_sparse else []
        return "; ".join([f"{type(self.engine).__name__}(sparse={self.engine.sparse})", *reasons])


@contract
def choose_engine(
    system: System,
    state: State,
    *,
    formulation: AbstractFormulation | None = None,
    drift: AbstractDrift | None = None,
    control: object = None,
    solver: dfx.AbstractSolver | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    engine: AbstractEngine | None = None,
) -> EngineChoice:
    """Which engine `simulate` uses for steps away from singular configurations, and why not another. Nothing is integrated.

    Args:
        system: the system.
        state: where the run starts.
        formulation: this and all following arguments as in `simulate`, for a run without events and without `dense`.
        drift: how the constraints are kept.
        control: a controller.
        solver: of Diffrax.
        adjoint: Diffrax's way to differentiate.
        engine: what is asked for.

    Returns:
        An `EngineChoice`, which prints as one line.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> print(jm.choose_engine(system, jm.assemble(system, [0.6, 0.8]), engine=jm.XLA()))
        XLA(sparse=False); not compiled: `engine` is `XLA`; not sparse: 2 velocities and 1 row are too few
    """
    check_state(system, state)
    system, loop = checked_control(system, state, control)
    solver, formulation = checked_solver(solver), formulation_at(formulation, system, state)
    steps = ConstrainedSolver(solver), dfx.ConstantStepSize(), None, adjoint, dfx.NoProgressMeter(), None
    method, keeping, choices = Method(*steps, engine), as_parameters(drift or DRIFT), []

    def look(system: System, state: State, loop: FeedbackLoop | None) -> None:
        system, bare = apply_mode(system, state)
        scale, _ = sizes_of_run(system, bare, bare.t, Values.of(system, bare))
        choice = formulation.choose(rows_at(system, bare.t, bare.q, scale.row))
        field = VectorField(
            system=system,
            formulation=formulation,
            drift=keeping,
            loop=loop,
            scale=scale,
            consistent=jnp.array(True),
            choice=choice,
        )
        choices.append(_choice(method, field, initial_state(loop, bare)))

    jax.eval_shape(look, canonical(system), strong(state), loop)
    return choices[0]


def _choice(method: Method, field: VectorField, y0: StateVector) -> EngineChoice:
    layout = _layout(method, field, y0)
    step = _compiled(method, field if isinstance(layout, str) else _with_layout(layout, field), y0)
    not_compiled, not_sparse = (x if isinstance(x, str) else None for x in (step, layout))
    kind = Compiled if not_compiled is None else XLA
    return EngineChoice(kind(sparse=not_sparse is None), not_compiled, not_sparse)
