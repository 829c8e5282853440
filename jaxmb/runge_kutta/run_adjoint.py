"""The reverse sweep over a whole run as one program."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from ..lanes import Call, Program, Shaped, Subprogram, VJPProgram, compiled, vector_bytes
from .method import RungeKuttaProgram, explicit_step, row, with_row
from .step_adjoint import sweep

# So many bytes may be kept of the stages of a step for the reverse sweep over it.
LARGEST_RESIDUALS = 2**18


@dataclasses.dataclass(frozen=True, eq=False)
class RunAdjoint(RungeKuttaProgram):
    """The reverse sweep over all steps of a run, from the last to the first, each of which is made again.

    Operands are the tape's times and states, how many steps there are, when the last one ended and where, the times at which states
    were saved, with the end, their cotangents, in which step each lies, how many of them were reached (the end apart), and the
    parameters; results the cotangents of the start and of its time, the parameters that move and of
    the saved times, and whether anything about a step was irregular.

    Attributes:
        stage, end, a, c: of the step, see `RungeKuttaProgram`; the first slope is evaluated anew.
        stage_vjp, end_vjp: those of `StepAdjoint`; the values of the former are the rate, and what a stage and an end are doubtful by.
        start: see `RunProgram`.
        start_vjp: (t, y, cotangent of what it returns, parameters) ↦ cotangents of (t, y, parameters that move).
        read: (t, t₀, t₁, y₀, y₁, k, what the interpolation needs besides, cotangent of the state at t) ↦ cotangents of all of them but
            t₀ and t₁.
        times: how many states were saved, with the end.
        taped: how many states the tape has room for.
        reuses: whether the first slope of a step is the last one of the step before.
    """

    stage_vjp: VJPProgram
    end_vjp: Program
    start: Program | None
    start_vjp: VJPProgram | None
    read: Program
    times: int
    taped: int
    reuses: bool

    @property
    def own(self) -> int:
        """How many operands, the first ones, belong to a run; the others are parameters."""
        return 9

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        n, number = self.state.shape[0], self.number
        integers = lambda *shape: Shaped(shape, jnp.int32)
        saved = number(self.times), number(self.times, n), integers(self.times), integers()
        tape = number(self.taped), number(self.taped, n), integers()
        return (*tape, number(), number(n), *saved, *self.stage.operands[2:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return (
            self.state,
            self.number(),
            *self.stage_vjp.results[1:],
            self.number(self.times),
            Shaped((), jnp.bool_),
        )

    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""
        (ts, ys, count, last, end, times, bars, steps_of_saved, reached), parameters = operands[:9], operands[9:]
        stage, final, pull = self._rates(call, parameters)
        read, pull_end = call(self.read), call(self.end_vjp)
        end_pull = lambda t, y, *bars_of_step: pull_end(t, y, *bars_of_step, *parameters)

        # Saved times increase, as the tape does: one pointer that moves backwards finds those of a step without a search.
        def step_of(index: Array) -> Array:
            """In which step a saved state lies, the end in the last one; −2 of none, where runs that are over never get to."""
            here = jnp.where(index == self.times - 1, count - 1, row(steps_of_saved, jnp.maximum(index, 0)))
            return jnp.where(index < 0, -2, here)

        def step(carry: PyTree) -> Any:
            k, index, due, end_bar, slope_bar, active_bars, times_bar, _, irregular = carry
            ends = k == count - 1
            t0, t1, before = row(ts, k), jnp.where(ends, last, row(ts, k + 1)), row(ys, k)
            y0 = before if self.start is None else call(self.start)(t0, before, *parameters)[0]
            y1, h = jnp.where(ends, end, row(ys, k + 1)), t1 - t0
            # Made again from its start, with the length that it had: only states are on the tape, and no step is chosen anew (Hager 2000).
            raw, ks, (irregular_stages, residuals), (irregular_end, end_residuals) = explicit_step(
                self.coefficients, stage, final, t0, t1, y0
            )
            if len(self.a) == len(self.a[0]):  # the end is the last stage
                residuals = jnp.concatenate([residuals, end_residuals[None]])
            finite = jnp.all(jnp.isfinite(raw)) & jnp.all(jnp.isfinite(ks))

            def add(state: PyTree) -> Any:
                index, _, dense_bar, times_bar = state
                own, *bars_of_step = read(row(times, index), t0, t1, y0, raw, ks, y1 - raw, row(bars, index))
                dense_bar = [a + x for a, x in zip(dense_bar, bars_of_step, strict=True)]
                before = jnp.where(index == self.times - 1, reached, index) - 1
                return before, step_of(before), dense_bar, with_row(times_bar, index, own)

            zero = jnp.zeros_like(end)
            begin = index, due, [zero, zero, jnp.zeros_like(ks), zero], times_bar
            # How many states were saved within a step is known at run time only.
            index, due, dense_bar, times_bar = lax.while_loop(lambda c: c[1] == k, add, begin)
            y0_bar, raw_bar, ks_bar, shift_bar = dense_bar
            # No jumps lie between these steps, so that only the first one has a first slope of its own.
            reused = (k > 0) & self.reuses
            # The slope that the next step has taken over is k_s/h.
            ks_bar = ks_bar.at[-1].add(slope_bar / h)
            # shift = y₁ − raw end: its cotangent belongs to the former, and with the opposite sign to the latter.
            step_data = t0, t1, y0, ks, y1, end_bar + shift_bar, raw_bar - shift_bar, y0_bar, ks_bar, reused
            state, slope_bar, *active_bars = sweep(
                self.coefficients, functools.partial(pull, residuals), end_pull, active_bars, *step_data
            )
            # ∂y/∂t₀ = −∂y/∂y₀ f(t₀, y₀); the value that stays is that of the first step, which is visited last.
            begin_bar = -jnp.dot(state, ks[0] / h)
            if self.start_vjp is not None:
                time_bar, state, *more = call(self.start_vjp)(t0, before, state, *parameters)
                begin_bar = begin_bar + time_bar
                active_bars = [a + x for a, x in zip(active_bars, more, strict=True)]
            return (
                k - 1,
                index,
                due,
                state,
                slope_bar,
                active_bars,
                times_bar,
                begin_bar,
                irregular | jnp.any(irregular_stages) | irregular_end | ~finite,
            )

        none = [jnp.zeros(s.shape, s.dtype) for s in self.stage_vjp.results[1:]]
        index, zero = jnp.array(self.times - 1, jnp.int32), jnp.zeros(self.state.shape, self.dtype)
        times_bar, nothing = jnp.zeros(self.times, self.dtype), jnp.zeros((), self.dtype)
        start = count - 1, index, count - 1, zero, zero, none, times_bar, nothing, jnp.array(False)
        carry = lax.while_loop(lambda c: c[0] >= 0, step, start)
        return [carry[3], carry[7], *carry[5], carry[6], carry[8]]

    @functools.cached_property
    def _halves(self) -> Any:
        """A stage and an end, and the reverse sweep over a rate, in halves; None where what these exchange takes too much memory."""
        (stage, end), back = self.stage_vjp.halves((0, 1), (0, 2))
        room = len(self.a[0]) * len(stage.code.outputs) * vector_bytes()
        # Beyond that a stage is evaluated twice instead, forwards and within its reverse sweep, and nothing is kept of it.
        return (stage, end, back) if room <= LARGEST_RESIDUALS else None

    def _rates(
        self, call: Call, fixed: Sequence[Array]
    ) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """(t, y) ↦ (rate, (doubtful, what is kept for the reverse sweep)) of stages, and of the end; that sweep, see `sweep`, with all that was kept."""
        halves = self._halves if call is compiled else None
        if halves is not None:
            n = self.state.shape[0]

            def first(piece: Subprogram) -> Callable[..., Any]:
                def rate(t: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
                    (residuals,) = compiled(piece)(t, y, *fixed)
                    return residuals[:n], (residuals[n] != 0, residuals)

                return rate

            back = lambda residuals, i, t, y, bar: call(halves[2])(t, y, bar, *fixed, row(residuals, i))
            return first(halves[0]), first(halves[1]), back
        nothing, stage_vjp = jnp.zeros(0, self.dtype), call(self.stage_vjp)

        def unsplit(program: Program, *more: Array) -> Callable[..., Any]:
            def rate(t: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
                value, doubtful = call(program)(t, y, *more, *fixed)
                return value, (doubtful, nothing)

            return rate

        return (
            unsplit(self.stage),
            unsplit(self.end, nothing),
            lambda residuals, i, t, y, bar: stage_vjp(t, y, bar, *fixed),
        )
