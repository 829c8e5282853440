"""Arguments of `simulate` that are refused before anything is integrated."""

from typing import Any

import diffrax as dfx

from ..foundations import as_function, shape_of
from ..system import State, System

FORWARD = (
    "A derivative in forward mode (`jvp`, `jacfwd`, forward over reverse) through `simulate` needs "
    "`adjoint=diffrax.ForwardMode()`, or `adjoint=diffrax.DirectAdjoint()` along with reverse mode."
)


def checked_control(system: System, state: State, control: Any) -> Any:
    """The control law as a field of a module."""
    if control is None:
        return None
    if not system.nu:
        raise ValueError("Argument `control` needs a system with `actuation`, but it has none.")
    control = as_function(control, "control")
    shape_of("control", control, (state.t, state.q, state.v, system.params), (system.nu,))
    return control


def checked_solver(solver: Any) -> dfx.AbstractSolver:
    """The solver, if it can be used."""
    if not isinstance(solver, dfx.AbstractSolver):
        raise TypeError(f"Argument `solver` must be a solver of Diffrax, such as `diffrax.Tsit5()`, but is {solver!r}.")
    inner = solver.solver if isinstance(solver, dfx.AbstractWrappedSolver) else solver
    why = ""
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
    return solver
