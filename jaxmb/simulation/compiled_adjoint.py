"""The reverse sweep over whole runs by compiled code."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..foundations import Blank
from ..lanes import NotScalarError, Program, Shaped, latest
from ..runge_kutta import RunAdjoint
from .compiled_step import CompiledStepAdjoint, arrays_of_field
from .reverse_step import ReverseStep
from .solver import ConstrainedSolver
from .stages import coefficients
from .state_vector import StateVector
from .step_records import Interpolant


def compiled_run_adjoint(
    reverse: ReverseStep, moves: PyTree, times: Float[Array, " T"], bars: StateVector, reached: Int[Array, ""]
) -> tuple[tuple[StateVector, Any, Array, Array], Array] | None:
    """Over all steps of a tape: what `_step_by_step` of `adjoint.py` returns, and whether anything was irregular; None if it cannot be done so.

    Args:
        reverse: the reverse sweep over one step.
        moves: what moves of the problem.
        times: of the saved states, the end being the last one.
        bars: their cotangents.
        reached: how many of them were reached, the end apart.
    """
    compiled, rest, tape = reverse.compiled, reverse.rest, reverse.tape
    # It knows no samples that are no program.
    if compiled is None or (rest.takes_samples and compiled.sample is None):
        return None
    kind, numbers = Blank.of(reverse.method.solver)
    # Programs are remembered by the solver: one that holds arrays, or cannot be hashed, is no key.
    if numbers or not kind.hashable:
        return None
    like = tape.end
    program = run_adjoint(compiled, kind, (like.nq, like.nv), times.shape[0], tape.ts.shape[0], rest.begins_anew)
    if program is None:
        return None
    integer = lambda x: jnp.asarray(x, jnp.int32)
    # The sweep makes one step at least; where the tape has none its result is not used.
    count = jnp.maximum(tape.count, 1)
    taped = tape.ts, tape.ends, tape.ys.packed, integer(count), tape.end.packed
    saved = times, bars.packed, integer(reached)
    state, start_bar, *active_bars, times_bar, irregular = program(
        *taped, *saved, reverse.in_use, *arrays_of_field(moves, rest)
    )
    moves_bar = jax.tree.unflatten(jax.tree.structure(moves), active_bars)
    return (like.like(state), moves_bar, times_bar, start_bar), irregular


@latest
def run_adjoint(
    compiled: CompiledStepAdjoint, kind: Blank, sizes: tuple[int, int], times: int, taped: int, begins_anew: bool
) -> RunAdjoint | None:
    """The program, None if the interpolation is no scalar program."""
    step, reverse = compiled.step, compiled.program
    solver: ConstrainedSolver = kind.filled(())
    t, y, slopes = Shaped((), step.dtype), step.state, step.slopes

    # The times of steps have no derivative: cotangents are those of the time that is read, and of what the interpolation holds.
    def read(t: Array, t0: Array, t1: Array, *operands: Array) -> list[Array]:
        def at(t: Array, y0: Array, y1: Array, k: Array, shift: Array) -> Array:
            interpolant = Interpolant(*(StateVector(x, *sizes) for x in (k, y0, y1, shift)))
            return interpolant.at(solver.interpolation_cls, t0, t1, t).packed

        return list(jax.vjp(at, t, *operands[:-1])[1](operands[-1]))

    try:
        program = Program.of(read, t, t, t, y, y, slopes, y, y)
    except NotScalarError:
        return None
    fsal = coefficients(solver.solver)[3]
    return RunAdjoint(
        stage=step.stage,
        end=step.end,
        a=step.a,
        c=step.c,
        stage_vjp=reverse.stage,
        end_vjp=reverse.end,
        start=compiled.sample,
        start_vjp=compiled.sample_vjp,
        read=program,
        times=times,
        taped=taped,
        reuses=fsal and not begins_anew,
    )
