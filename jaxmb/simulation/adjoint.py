"""The motion of a phase, and its reverse derivative from a tape of the accepted steps."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..deferral import with_fallback
from .compiled_adjoint import compiled_run_adjoint
from .engine import adjoint_of, with_layout
from .method import Method
from .phase import Phase, PhaseInputs, Tape, solve
from .reverse_step import ReverseStep, added, zeros_like
from .state_vector import StateVector
from .vector_field import VectorField

Scalar = Float[Array, ""]
# The sweep is a loop of unknown length.
TWICE_BACK = (
    "A reverse derivative of a reverse derivative through `simulate` needs `adjoint=diffrax.DirectAdjoint()`, at a cost that grows with "
    "`max_steps`; forward over forward mode needs `adjoint=diffrax.ForwardMode()`."
)


def integrate(
    method: Method,
    field: VectorField,
    t0: Scalar,
    t1: Scalar,
    y0: StateVector,
    ts: Float[Array, " T"],
    event: dfx.Event | None = None,
    dense: bool = False,
) -> Phase:
    """The motion from t0 to t1, or to an event, saved at times in between."""
    moving = PhaseInputs(with_layout(method, field, y0), t0, t1, y0, ts)
    if method.adjoint is not None:
        return solve(moving, method, event, method.adjoint, dense)[0]
    # The rule below differentiates by its first argument only: nothing that a solver or a guard holds may be perturbed.
    detached = lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x
    return _taped(moving, *jax.tree.map(detached, (method, event)))


@eqx.filter_custom_vjp
def _taped(moving: PhaseInputs, method: Method, event: dfx.Event | None) -> Phase:
    # Diffrax's loop without checkpoints: nothing is differentiated through it, the rule below has the tape.
    return solve(moving, method, event, dfx.ForwardMode())[0]


@_taped.def_fwd
def _forward(_: PyTree, moving: PhaseInputs, method: Method, event: dfx.Event | None) -> tuple[Phase, Any]:
    # Before the loops are: what some versions of JAX say of these names no adjoint.
    moving = eqxi.nondifferentiable(moving, msg=TWICE_BACK)
    phase, tape = solve(moving, method, event, dfx.ForwardMode(), tape=True)
    accepted = phase.accepted
    return phase, (tape, phase.t, accepted.rows.in_use, accepted.steady)


@_taped.def_bwd
def _backward(
    residuals: tuple[Tape, Scalar, Any, Any],
    cotangents: Phase,
    perturbed: PhaseInputs,
    moving: PhaseInputs,
    method: Method,
    event: dfx.Event | None,
) -> PhaseInputs:
    """Back over the steps as they were taken: their times are given, each is made again from where it began.

    A saved state is read off the interpolation of its step, and so is the last one. The time of an event is held; the
    derivative by the start is that of the flow, −∂y/∂y₀ f(t₀, y₀).
    """
    tape, reached, *others = residuals
    in_use, steady = map(jnp.asarray, others)  # JAX hands on as numbers what it knows
    field = moving.field
    # The rows in use are a mask and have no cotangent: they stay out of what is differentiated.
    without = lambda p, regular_only=None: eqx.tree_at(
        lambda p: p.regular_only, p, regular_only, is_leaf=lambda x: x is None
    )
    moves, rest = map(without, eqx.partition(field, perturbed.field))
    compiled = adjoint_of(method, moves, rest, moving.y0)
    reverse = ReverseStep(rest=rest, method=method, tape=tape, compiled=compiled, in_use=in_use, steady=steady)
    # The last state, too, is one that is saved.
    times = jnp.append(moving.ts, reached)
    saved_bar, end_bar = _cotangents(cotangents.ys, _copies(moving.y0, moving.ts)), _cotangents(cotangents.y, moving.y0)
    bars = jax.tree.map(lambda saved_bar, end_bar: jnp.concatenate([saved_bar, end_bar[None]]), saved_bar, end_bar)
    within = times <= reached
    bars = jax.tree.map(lambda b: jnp.where(within.reshape((-1,) + (1,) * (b.ndim - 1)), b, 0), bars)
    # The step in which each lies, the first that ends at or after it; none beyond what was reached.
    ends = jnp.where(jnp.arange(tape.ends.shape[0]) < tape.count, tape.ends, jnp.inf)
    indices = jnp.minimum(jnp.searchsorted(ends, moving.ts), jnp.maximum(tape.count - 1, 0))
    # Entries that were not reached lie beyond the tape, so that no step reads them.
    indices = jnp.where(within[:-1], indices, tape.ts.shape[0])
    # The compiled sweep knows no samples that are no program: then it goes step by step.
    sampled = rest.loop is not None and rest.loop.clock is not None and (compiled is None or compiled.sample is None)
    if compiled is not None and not sampled:
        compiled_sweep = compiled_run_adjoint(compiled, moves, rest, method.solver, tape, in_use, times, bars, indices)
    else:
        compiled_sweep = None
    if compiled_sweep is None:
        sweep = _step_by_step(reverse, moves, times, bars, indices)
    else:
        # A fallback is a program of its own: without the compiled step, which has turned out not to fit.
        alone = dataclasses.replace(reverse, compiled=None)
        sweep = with_fallback(
            compiled_sweep[1] | ~steady, _step_by_step, (alone, moves, times, bars, indices), compiled_sweep[0]
        )
    state_bar, moves_bar, times_bar, start_bar = sweep
    # Without an accepted step all saved states are the start itself; the sweep over no steps does not see their cotangents.
    total = jax.tree.map(lambda b: jnp.sum(b, axis=0), bars)
    empty = tape.count == 0  # all is the start
    state_bar = jax.tree.map(lambda a, b: jnp.where(empty, b, a), state_bar, total)
    moves_bar, times_bar, start_bar = jax.tree.map(lambda x: jnp.where(empty, 0, x), (moves_bar, times_bar, start_bar))
    # Where an event has ended the run its end does not depend on t₁.
    end_bar = jnp.where(reached < moving.t1, 0, times_bar[-1])
    moves_bar = without(moves_bar, eqx.filter(field.regular_only, False))
    bars_of_inputs = PhaseInputs(moves_bar, start_bar, end_bar, state_bar, times_bar[:-1])
    return eqxi.nondifferentiable_backward(bars_of_inputs, msg=TWICE_BACK)


def _step_by_step(
    reverse: ReverseStep, moves: PyTree, times: Array, bars: StateVector, indices: Array
) -> tuple[StateVector, Any, Array, Array]:
    """Cotangents of the start, of the problem, of the saved times and of the time at the start."""
    tape = reverse.tape

    def step(carry: PyTree) -> Any:
        k, end_bar, slope_bar, moves_bar, times_bar, _ = carry
        replay = reverse.replay(moves, k)
        dense_bar, times_bar = reverse.read(k, replay.dense, times, bars, times_bar, indices)
        state_bar, slope_bar, bars_of_step, start_bar = reverse.step(moves, k, replay, end_bar, slope_bar, dense_bar)
        # The last entry that stays is that of the first step.
        return k - 1, state_bar, slope_bar, added(moves_bar, bars_of_step), times_bar, start_bar

    none = jax.tree.map(jnp.zeros_like, tape.end)
    start = (tape.count - 1, none, none, zeros_like(moves), jnp.zeros_like(times), jnp.zeros_like(times[0]))
    _, state_bar, _, moves_bar, times_bar, start_bar = lax.while_loop(lambda c: c[0] >= 0, step, start)
    return state_bar, moves_bar, times_bar, start_bar


def _copies(y: StateVector, like: Array) -> Any:
    return jax.tree.map(lambda x: jnp.zeros((like.shape[0], *x.shape), x.dtype), y)


def _cotangents(bar: PyTree, like: PyTree) -> Any:
    """The cotangent with zeros where there is none."""
    bar = jax.tree.map(lambda _: None, like) if bar is None else bar
    return jax.tree.map(lambda x, b: jnp.zeros_like(x) if b is None else b, like, bar)
