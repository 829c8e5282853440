"""Arguments of `simulate` that are refused before anything is integrated."""

import diffrax as dfx
import jax
import jax.numpy as jnp

from ..control import Sampled, as_controller
from ..linalg import without_lapack
from ..system import State, System
from .drift import Projection
from .feedback import FeedbackLoop

# Made once: to make the defaults anew took a tenth of a call of a known system.
_SOLVER, DRIFT = dfx.Tsit5(), Projection()


def checked_control(system: System, state: State, control: object) -> tuple[System, FeedbackLoop | None]:
    """The system with the inputs of a controller, and the controller in a run."""
    if control is None:
        return system, None
    controller = control.controller if isinstance(control, Sampled) else as_controller(control, "control")
    clock = control.clock if isinstance(control, Sampled) else controller.clock
    if controller.only_sampled and clock is None:
        raise ValueError(
            f"Argument `control` must be sampled, `jaxmb.control.Sampled(…, period)`: `{type(controller).__name__}` has no meaning in "
            "continuous time."
        )
    system = system.acting_at(controller.acts_at)
    if not system.nu:
        raise ValueError(
            "Argument `control` needs a system with `actuation`, but it has none; a controller with `joints` needs only a mechanism."
        )
    # What a controller remembers becomes part of the vector that is integrated, in which an integer would be lost.
    start = controller.init(system)
    if not all(jnp.issubdtype(jnp.result_type(x), jnp.floating) for x in jax.tree.leaves(start)):
        raise TypeError(f"`init` of `{type(controller).__name__}` must return floating-point numbers, but does not.")
    loop = FeedbackLoop(controller, clock, start, system.nu)
    loop.check(system, state)
    return system, loop


def checked_solver(solver: object) -> dfx.AbstractSolver:
    """The solver, `Tsit5` by default, if it can be used; an implicit one without LAPACK, whose calls in a batch may never return."""
    if solver is None:
        return _SOLVER
    if not isinstance(solver, dfx.AbstractSolver):
        raise TypeError(f"Argument `solver` must be a solver of Diffrax, such as `diffrax.Tsit5()`, but is {solver!r}.")
    inner = solver.solver if isinstance(solver, dfx.AbstractWrappedSolver) else solver
    why = ""
    # Every accepted state is moved onto the constraints: a method that takes more than the last one from before would mix both.
    if isinstance(inner, dfx.ReversibleHeun | dfx.LeapfrogMidpoint):
        why = "carries an earlier state on, which the correction of the drift does not reach"
    elif solver.term_structure is not dfx.AbstractTerm:
        why = "needs a vector field in several parts, or noise"
    elif inner is not solver and isinstance(inner, dfx.AbstractImplicitSolver):
        why = "does not wrap implicit solvers"
    if why:
        raise ValueError(
            f"Argument `solver` must be a one-step solver of ordinary differential equations, such as `Tsit5` or `Kvaerno5`, but is "
            f"`{type(solver).__name__}`, which {why}."
        )
    return without_lapack(solver)


def check_steps(solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController | None, dt0: object) -> None:
    """Raises a ValueError if a method cannot be used with a control of step sizes."""
    if isinstance(controller, dfx.ConstantStepSize) and dt0 is None:
        raise ValueError("Argument `dt0` must be given with `ConstantStepSize`, whose step it is.")
    if isinstance(solver, dfx.Euler) and isinstance(controller, dfx.AbstractAdaptiveStepSizeController | None):
        raise ValueError(
            "Argument `stepsize_controller` must be `ConstantStepSize()`, with its step as `dt0`, or `StepTo` for `Euler`, which does not "
            "estimate its error."
        )
