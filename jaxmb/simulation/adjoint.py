"""The motion of a leg, and its reverse derivative from a tape of the accepted steps."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..deferral import with_fallback
from .compiled_adjoint import compiled_run_adjoint
from .engine import back_of, laid_out
from .method import Method
from .phase import Moving, Phase, Tape, solve
from .problem import Problem
from .reverse_step import ReverseStep, added, dot, zeros_like
from .state_vector import StateVector

Scalar = Float[Array, ""]


def integrate(
    method: Method,
    problem: Problem,
    t0: Scalar,
    t1: Scalar,
    y0: StateVector,
    ts: Float[Array, " T"],
    event: dfx.Event | None = None,
    dense: bool = False,
) -> Phase:
    """The motion from t0 to t1, or to an event, saved at times in between."""
    moving = Moving(laid_out(method, problem, y0), t0, t1, y0, ts)
    if method.adjoint is not None:
        return solve(moving, method, event, method.adjoint, dense)[0]
    still = lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x
    return _taped(moving, *jax.tree.map(still, (method, event)))


@eqx.filter_custom_vjp
def _taped(moving: Moving, method: Method, event: dfx.Event | None) -> Phase:
    return solve(moving, method, event, dfx.ForwardMode())[0]


@_taped.def_fwd
def _forward(_: Any, moving: Moving, method: Method, event: dfx.Event | None) -> tuple[Phase, Any]:
    leg, tape = solve(moving, method, event, dfx.ForwardMode(), tape=True)
    accepted = leg.accepted
    return leg, (tape, leg.t, accepted.rows.in_use, accepted.steady)


@_taped.def_bwd
def _backward(
    residuals: tuple[Tape, Scalar, Any, Any],
    cotangents: Phase,
    perturbed: Moving,
    moving: Moving,
    method: Method,
    event: dfx.Event | None,
) -> Moving:
    """Back over the steps as they were taken: their times are given, each is made again from where it began.

    A saved state is read off the interpolation of its step, and so is the last one. The time of an event is held; the
    derivative by the start is that of the flow, −∂y/∂y₀ f(t₀, y₀).
    """
    tape, reached, *others = residuals
    in_use, steady = map(jnp.asarray, others)  # JAX hands on as numbers what it knows
    problem = moving.problem
    # No function depends on the rows in use.
    without = lambda p, regular_only=None: eqx.tree_at(
        lambda p: p.regular_only, p, regular_only, is_leaf=lambda x: x is None
    )
    moves, rest = map(without, eqx.partition(problem, perturbed.problem))
    compiled = back_of(method, moves, rest, moving.y0)
    back = ReverseStep(rest, method, tape, compiled, in_use, steady)
    # The last state, too, is one that is saved.
    times = jnp.append(moving.ts, reached)
    many, one = _given(cotangents.ys, _copies(moving.y0, moving.ts)), _given(cotangents.y, moving.y0)
    bars = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), many, one)
    within = times <= reached
    bars = jax.tree.map(lambda b: jnp.where(within.reshape((-1,) + (1,) * (b.ndim - 1)), b, 0), bars)
    # The step in which each lies, the first that ends at or after it; none beyond what was reached.
    ends = jnp.where(jnp.arange(tape.ts.shape[0] - 1) < tape.count, tape.ts[1:], jnp.inf)
    place = jnp.minimum(jnp.searchsorted(ends, moving.ts), jnp.maximum(tape.count - 1, 0))
    place = jnp.where(within[:-1], place, tape.ts.shape[0])
    if compiled is not None and (rest.loop is None or rest.loop.clock is None) and not _jumps(method.controller):
        quick = compiled_run_adjoint(compiled, moves, rest, method.solver, tape, in_use, times, bars, place)
    else:
        quick = None
    if quick is None:
        found = _one_by_one(back, moves, times, bars, place)
    else:
        alone = dataclasses.replace(back, compiled=None)
        found = with_fallback(quick[1] | ~steady, _one_by_one, (alone, moves, times, bars, place), quick[0])
    state_bar, moves_bar, times_bar, begin_bar = found
    whole = jax.tree.map(lambda b: jnp.sum(b, axis=0), bars)
    nothing = tape.count == 0  # all is the start
    state_bar = jax.tree.map(lambda a, b: jnp.where(nothing, b, a), state_bar, whole)
    moves_bar, times_bar, begin_bar = jax.tree.map(
        lambda x: jnp.where(nothing, 0, x), (moves_bar, times_bar, begin_bar)
    )
    end_bar = jnp.where(reached < moving.t1, 0, times_bar[-1])
    moves_bar = without(moves_bar, eqx.filter(problem.regular_only, False))
    return Moving(moves_bar, begin_bar, end_bar, state_bar, times_bar[:-1])


def _one_by_one(
    back: ReverseStep, moves: Any, times: Array, bars: StateVector, place: Array
) -> tuple[StateVector, Any, Array, Array]:
    """Cotangents of the start, of the problem and of the saved times, and minus the product of the first with the slope at the start."""
    tape = back.tape

    def step(carry: Any) -> Any:
        k, end_bar, slope_bar, moves_bar, times_bar, _ = carry
        made = back.again(moves, k)
        dense_bar, times_bar = back.read(k, made.dense, times, bars, times_bar, place)
        state_bar, slope_bar, more, slope = back.step(moves, k, made, end_bar, slope_bar, dense_bar)
        return k - 1, state_bar, slope_bar, added(moves_bar, more), times_bar, -dot(state_bar, slope)

    none = jax.tree.map(jnp.zeros_like, tape.end)
    start = (tape.count - 1, none, none, zeros_like(moves), jnp.zeros_like(times), jnp.zeros_like(times[0]))
    _, state_bar, _, moves_bar, times_bar, begin_bar = lax.while_loop(lambda c: c[0] >= 0, step, start)
    return state_bar, moves_bar, times_bar, begin_bar


def _jumps(controller: Any) -> bool:
    """Whether steps end at times beyond which the vector field is another one."""
    while hasattr(controller, "controller"):
        if getattr(controller, "jump_ts", None) is not None:
            return True
        controller = controller.controller
    return False


def _copies(y: StateVector, like: Array) -> Any:
    return jax.tree.map(lambda x: jnp.zeros((like.shape[0], *x.shape), x.dtype), y)


def _given(bar: Any, like: Any) -> Any:
    """The cotangent with zeros where there is none."""
    bar = jax.tree.map(lambda _: None, like) if bar is None else bar
    return jax.tree.map(lambda x, b: jnp.zeros_like(x) if b is None else b, like, bar)
