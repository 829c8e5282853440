"""How a run is integrated: data only."""

import diffrax as dfx
import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import check_fields
from .solver import ConstrainedSolver


class AbstractEngine(eqx.Module):
    """What makes the steps of a run."""

    sparse: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_fields(self)


class Compiled(AbstractEngine):
    """Code compiled for this system alone, by llvmlite; on devices other than CPUs, operations on single numbers.

    Args:
        sparse: whether linear algebra exploits that M and C are sparse, so that its cost grows with the number of bodies and not with its
            cube; by default if that pays.

    Raises:
        ValueError: by `simulate`, where steps cannot be made so; the message says why.
    """


class XLA(AbstractEngine):
    """Operations on arrays, in Diffrax's loop.

    Args:
        sparse: as in `Compiled`.

    Raises:
        ValueError: by `simulate`, where steps cannot be made so; the message says why.
    """


class Method(eqx.Module):
    """How a run is integrated; nothing of it has a derivative.

    Attributes:
        solver: what makes steps.
        controller: of their size; None where it follows from the sizes of the run, like the first step `dt0`.
        adjoint: Diffrax's; None for the reverse derivative over a tape of the accepted steps.
        progress_meter: Diffrax's.
        max_steps: largest number of steps.
        engine: what is asked for; None leaves the choice open.
    """

    solver: ConstrainedSolver
    controller: dfx.AbstractStepSizeController | None
    dt0: Float[Array, ""] | None
    adjoint: dfx.AbstractAdjoint | None
    progress_meter: dfx.AbstractProgressMeter
    max_steps: int | None = eqx.field(static=True)
    engine: AbstractEngine | None = eqx.field(static=True)
