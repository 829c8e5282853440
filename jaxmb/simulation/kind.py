"""Which way the steps of a run are made."""

import dataclasses
from typing import Any, Literal

import diffrax as dfx
import jax
import jax.numpy as jnp

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import as_parameters, contract, strong
from ..system import State, System, Values, check_state, rows_at, settled
from .arguments import checked_control, checked_solver
from .drift import AbstractDrift, Projection
from .leg import Method
from .loop import beginning
from .problem import Problem
from .solver import ConstrainedSolver
from .step_size import own_sizes


@dataclasses.dataclass(frozen=True)
class StepKind:
    """How steps are made where nothing special happens; all others are plain, right near singular poses too.

    Attributes:
        name: "compiled", code of its own (`docs/native.md`), "sparse", by the entries of M and C that may not be zero
            (`docs/many_bodies.md`), "compiled sparse", or "plain".
        not_compiled: why not compiled, None if they are.
        not_sparse: why not sparse, None if they are.
    """

    name: Literal["compiled", "sparse", "compiled sparse", "plain"]
    not_compiled: str | None
    not_sparse: str | None

    def __str__(self) -> str:
        reasons = [f"not compiled: {self.not_compiled}"] if self.not_compiled else []
        reasons += [f"not sparse: {self.not_sparse}"] if self.not_sparse else []
        return "; ".join([f"{self.name} steps", *reasons])


@contract
def step_kind(
    system: System,
    state: State,
    *,
    formulation: AbstractFormulation | None = None,
    drift: AbstractDrift | None = None,
    control: Any = None,
    solver: dfx.AbstractSolver | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    native: bool | None = None,
    sparse: bool | None = None,
) -> StepKind:
    """Which way `simulate` makes steps where nothing special happens, and why not another; nothing is integrated.

    Args:
        system: the system.
        state: where the run starts.
        formulation: this and all that follow as in `simulate`, of a run without events and without `dense`.
        drift: how the constraints are kept.
        control: a controller.
        solver: of Diffrax.
        adjoint: Diffrax's way to differentiate.
        native: whether steps may be compiled.
        sparse: whether they may be sparse.

    Returns:
        A `StepKind`, which prints as one line.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> found = jm.step_kind(system, jm.assemble(system, [0.6, 0.8]), native=False)
        >>> print(found)
        plain steps; not compiled: `native` is False; not sparse: 2 velocities and 1 rows are too few
    """
    check_state(system, state)
    system, loop = checked_control(system, state, control)
    solver, formulation = checked_solver(solver or dfx.Tsit5()), formulation_at(formulation, system, state)
    if adjoint is None and not isinstance(solver, dfx.AbstractERK):
        adjoint = dfx.RecursiveCheckpointAdjoint()
    steps = ConstrainedSolver(solver), dfx.ConstantStepSize(), None, adjoint, dfx.NoProgressMeter(), None
    method, keeping, found = Method(*steps, native, sparse), as_parameters(drift or Projection()), []

    def look(system: System, state: State, loop: Any) -> None:
        system, bare = settled(system, state)
        scale, _ = own_sizes(system, bare, bare.t, Values.of(system, bare))
        choice = formulation.choose(rows_at(system, bare.t, bare.q, scale.row))
        problem = Problem(system, formulation, keeping, loop, scale, jnp.array(True), choice)
        found.append(_kind(method, problem, beginning(loop, bare)))

    jax.eval_shape(look, strong(system).knowing(), strong(state), loop)
    return found[0]


def _kind(method: Method, problem: Problem, y0: Any) -> StepKind:
    layout, step = method.layout(problem, y0), method.compiled(method.laid_out(problem, y0), y0)
    not_compiled, not_sparse = (x if isinstance(x, str) else None for x in (step, layout))
    words = [word for word, reason in (("compiled", not_compiled), ("sparse", not_sparse)) if reason is None]
    name: Any = " ".join(words) or "plain"
    return StepKind(name, not_compiled, not_sparse)
