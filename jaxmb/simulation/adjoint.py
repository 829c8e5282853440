"""The motion of a phase, and its derivatives: forwards, or back over a tape of the accepted steps."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..deferral import with_fallback
from ..foundations import Blank, both_ways, shapes_of, tree_where
from ..lanes import of_some
from .compiled_adjoint import compiled_run_adjoint
from .engine import adjoint_of, compiled_step_of, with_layout
from .guard import Guard
from .integration import solve
from .method import Method
from .phase import Phase, PhaseInputs, Tape
from .reverse_step import ReverseStep, added, zeros_like
from .stages import is_explicit
from .state_vector import StateVector

Scalar = Float[Array, ""]
# What goes back holds the tape, and is no function of it.
TWICE = (
    "A second derivative through a run or a step is found in forward over forward mode; in all others through `simulate` by "
    "`adjoint=diffrax.DirectAdjoint()`, at a cost that grows with `max_steps`."
)


def integrate(
    inputs: PhaseInputs, method: Method, guard: Guard | None = None, dense: bool = False, one_of_many: bool = False
) -> Phase:
    """The motion from t₀ to t₁, or to an event, saved at times in between.

    Of `one_of_many` in a loop the tape is made anew on the way back, if compiled code makes it: the loop would keep them all, each with room
    for the largest number of steps.
    """
    inputs = dataclasses.replace(inputs, field=with_layout(method, inputs.field, inputs.y0))
    if method.adjoint is not None:
        return solve(inputs, method, guard, dense)[0]
    # Nothing that a solver or a guard holds may be perturbed.
    detached = lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x
    blank, arrays = Blank.of((inputs, *jax.tree.map(detached, (method, guard)), dense))
    # A tape has the slopes of an explicit method only at its states, and a size.
    taped = is_explicit(method.solver.solver) and method.max_steps is not None and not dense
    compiled = inputs.field.regular_only is not None and compiled_step_of(method, inputs.field, inputs.y0) is not None
    return _motion(arrays, blank, taped, not (one_of_many and compiled))


@eqx.filter_custom_jvp
def _motion(arrays: list[Array], blank: Blank, taped: bool, residual: bool) -> Phase:
    return solve(*blank.filled(arrays))[0]


@eqx.filter_custom_jvp
def _with_tape(arrays: list[Array], blank: Blank, taped: bool) -> tuple[Phase, Any]:
    """The motion, and for the way back its tape, the time that was reached, the rows in use at the end, and whether they always were."""
    phase, tape = solve(*blank.filled(arrays), tape=taped)
    accepted = phase.accepted
    record = (tape, phase.t, accepted.rows.in_use, accepted.steady) if taped else None
    return phase, jax.tree.map(lambda x: lax.stop_gradient(jnp.asarray(x)), record)


def _with_derivative(
    arrays: list[Array], blank: Blank, taped: bool, residual: bool, dots: PyTree
) -> tuple[tuple[Phase, Any], tuple[Any, Any]]:
    """The motion and what `_with_tape` returns besides if that is a residual, and their derivatives."""
    # With a tape even if it is not kept, so that there is one program of the motion.
    phase, record = _with_tape(arrays, blank, taped)
    record = record if residual else None
    tape_blank, tape_arrays = Blank.of(record)
    moving = tuple(k for k, dot in enumerate(dots) if dot is not None)
    derivative = _Derivative(blank, len(arrays), moving, tape_blank)
    reverse = derivative.by_tape if taped else derivative.by_checkpoints
    results, structure = jax.tree.flatten(_differentiable(phase))
    dots = both_ways(
        derivative.forward, reverse, [*arrays, *tape_arrays], [dots[k] for k in moving], shapes_of(results), TWICE
    )
    none, moves = jax.tree.map(lambda _: None, (phase, record)), jax.tree.unflatten(structure, dots)
    differentiable = lambda both: (both[0].ys, both[0].y, both[0].interpolation)
    return (phase, record), eqx.tree_at(differentiable, none, moves, is_leaf=lambda x: x is None)


@_with_tape.def_jvp
def _of_higher_order(primals: PyTree, tangents: PyTree) -> tuple[tuple[Phase, Any], tuple[Any, Any]]:
    """The motion that belongs to a derivative has that derivative too."""
    (arrays, blank, taped), (dots, *_) = primals, tangents
    return _with_derivative(arrays, blank, taped, True, dots)


@_motion.def_jvp
def _motion_and_derivative(primals: PyTree, tangents: PyTree) -> tuple[Phase, Any]:
    (arrays, blank, taped, residual), (dots, *_) = primals, tangents
    (phase, _), (dots, _) = _with_derivative(arrays, blank, taped, residual, dots)
    return phase, dots


def _differentiable(phase: Phase) -> Any:
    """What has derivatives: states that are saved, and the last one; the time of an event is held."""
    return eqx.filter((phase.ys, phase.y, phase.interpolation), eqx.is_inexact_array)


# In the place of an array that moves.
_MOVES = object()


@dataclasses.dataclass(frozen=True, eq=False)
class _Derivative:
    """The derivative of a motion.

    Attributes:
        blank: inputs, method, guard and whether the motion is dense, without their arrays.
        count: how many these are.
        moving: which of them move.
        tape: what `_with_tape` has returned besides the motion, without its arrays; None if it is made anew on the way back.
    """

    blank: Blank
    count: int
    moving: tuple[int, ...]
    tape: Blank

    def _run(self, residuals: list[Array], adjoint: dfx.AbstractAdjoint) -> Any:
        """The results as a function of what moves, and that."""

        def run(*arrays: Array) -> list[Array]:
            inputs, method, guard, dense = self.blank.filled(arrays)
            phase, _ = solve(inputs, dataclasses.replace(method, adjoint=adjoint), guard, dense)
            return jax.tree.leaves(_differentiable(phase))

        arrays = residuals[: self.count]
        return of_some(run, dict(enumerate(arrays)), self.moving), *(arrays[k] for k in self.moving)

    def forward(self, residuals: list[Array], dots: list[Array]) -> list[Array]:
        """The tangents of the results, found along with the motion."""
        run, *moving = self._run(residuals, dfx.ForwardMode())
        return jax.jvp(run, moving, dots)[1]

    def by_checkpoints(self, residuals: list[Array], bars: list[Array]) -> list[Array]:
        """The cotangents of what moves, by stretches of the motion that are made again."""
        _, method, *_ = self.blank.filled(residuals[: self.count])
        run, *moving = self._run(residuals, dfx.RecursiveCheckpointAdjoint(checkpoints=method.max_steps))
        return list(jax.vjp(run, *moving)[1](bars))

    def by_tape(self, residuals: list[Array], bars: list[Array]) -> list[Array]:
        """The cotangents of what moves, back over the tape."""
        inputs, method, *_ = self.blank.filled(residuals[: self.count])
        marks = self.blank.filled([_MOVES if k in self.moving else None for k in range(self.count)])[0]
        moves = jax.tree.map(lambda x: x is _MOVES, marks, is_leaf=lambda x: x is None)
        saved_bar, end_bar = map(inputs.y0.like, bars)
        taped = self.tape.filled(residuals[self.count :])
        if taped is None:
            taped = _with_tape(residuals[: self.count], self.blank, True)[1]
        field_bar, *others = _backward(inputs, method, moves.field, taped, saved_bar, end_bar)
        own = moves.t0, moves.t1, moves.y0.packed, moves.ts
        return [*jax.tree.leaves(field_bar), *(bar for bar, moves in zip(others, own, strict=True) if moves)]


def _backward(
    inputs: PhaseInputs,
    method: Method,
    moving: PyTree,
    taped: tuple[Tape, Scalar, Array, Array],
    saved_bar: StateVector,
    end_bar: StateVector,
) -> tuple[Any, Array, Array, Array, Array]:
    """Back over the steps as they were taken: their times are given, each is made again from where it began.

    A saved state is read off the interpolation of its step, and so is the last one. The time of an event is held; the
    derivative by the start is that of the flow, −∂y/∂y₀ f(t₀, y₀).

    Args:
        inputs: of the motion.
        method: that made it.
        moving: which of the problem's arrays move.
        taped: the tape, the time that was reached, the rows in use at the end, and whether they always were.
        saved_bar: cotangents of the saved states,
        end_bar: and of the last one.

    Returns:
        Cotangents of what moves of the problem, of t₀, t₁, y₀ and the times of saved states.
    """
    tape, reached, in_use, steady = taped
    # The rows in use are a mask and have no cotangent: they stay out of what is differentiated.
    without = lambda field: eqx.tree_at(lambda f: f.regular_only, field, None, is_leaf=lambda x: x is None)
    moves, rest = map(without, eqx.partition(inputs.field, moving))
    compiled = adjoint_of(method, moves, rest, inputs.y0)
    reverse = ReverseStep(rest=rest, method=method, tape=tape, compiled=compiled, in_use=in_use, steady=steady)
    # The last state, too, is one that is saved.
    times = jnp.append(inputs.ts, reached)
    bars = jax.tree.map(lambda saved_bar, end_bar: jnp.concatenate([saved_bar, end_bar[None]]), saved_bar, end_bar)
    within = times <= reached
    bars = jax.tree.map(lambda b: jnp.where(within.reshape((-1,) + (1,) * (b.ndim - 1)), b, 0), bars)
    read = times, bars, jnp.sum(within[:-1])
    compiled_sweep = compiled_run_adjoint(reverse, moves, *read)
    if compiled_sweep is None:
        sweep = _step_by_step(reverse, moves, *read)
    else:
        # A fallback is a program of its own: without the compiled step, which has turned out not to fit.
        alone = dataclasses.replace(reverse, compiled=None)
        sweep = with_fallback(compiled_sweep[1] | ~steady, _step_by_step, (alone, moves, *read), compiled_sweep[0])
    state_bar, field_bar, times_bar, t0_bar = sweep
    # Without an accepted step all saved states are the start itself; the sweep over no steps does not see their cotangents.
    total = jax.tree.map(lambda b: jnp.sum(b, axis=0), bars)
    empty = tape.count == 0  # all is the start
    state_bar = tree_where(empty, total, state_bar)
    field_bar, times_bar, t0_bar = jax.tree.map(lambda x: jnp.where(empty, 0, x), (field_bar, times_bar, t0_bar))
    # Where an event has ended the run its end does not depend on t₁.
    t1_bar = jnp.where(reached < inputs.t1, 0, times_bar[-1])
    return field_bar, t0_bar, t1_bar, state_bar.packed, times_bar[:-1]


def _step_by_step(
    reverse: ReverseStep, moves: PyTree, times: Array, bars: StateVector, reached: Array
) -> tuple[StateVector, Any, Array, Array]:
    """Cotangents of the start, of the problem, of the saved times and of the time at the start."""
    tape = reverse.tape

    def step(carry: PyTree) -> Any:
        k, end_bar, slope_bar, moves_bar, times_bar, _ = carry
        replay = reverse.replay(moves, k)
        dense_bar, times_bar = reverse.read(k, replay.dense, times, bars, times_bar, reached)
        state_bar, slope_bar, bars_of_step, start_bar = reverse.step(moves, k, replay, end_bar, slope_bar, dense_bar)
        # The last entry that stays is that of the first step.
        return k - 1, state_bar, slope_bar, added(moves_bar, bars_of_step), times_bar, start_bar

    none = jax.tree.map(jnp.zeros_like, tape.end)
    start = (tape.count - 1, none, none, zeros_like(moves), jnp.zeros_like(times), jnp.zeros_like(times[0]))
    _, state_bar, _, moves_bar, times_bar, start_bar = lax.while_loop(lambda c: c[0] >= 0, step, start)
    return state_bar, moves_bar, times_bar, start_bar
