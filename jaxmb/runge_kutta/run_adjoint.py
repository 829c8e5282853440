"""The reverse sweep over a whole run as one program."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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

    Operands are the times at which steps begin and end, the tape's states, how many steps there are and where the last one ended, the times at which states
    were saved, with the end, their cotangents, how many of them were reached (the end apart), and the parameters; results the
    cotangents of the start and of its time, the parameters that move and of the saved times, and whether anything about a step
    was irregular.

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
        return 8

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        n, number = self.state.shape[0], self.number
        integer = Shaped((), jnp.int32)
        saved = number(self.times), number(self.times, n), integer
        tape = number(self.taped), number(self.taped), number(self.taped, n), integer
        return (*tape, number(n), *saved, *self.stage.operands[2:])

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
        (ts, ends, ys, count, end, *more), parameters = operands[:8], operands[8:]
        saved = _SavedStates(call(self.read), *more)
        replay, pull = self._replay(call, parameters), self._pull(call, parameters)

        def step(after: _Sweep) -> _Sweep:
            k = after.k
            t0, t1, before = row(ts, k), row(ends, k), row(ys, k)
            y1, h = jnp.where(k == count - 1, end, row(ys, k + 1)), t1 - t0
            again = replay(t0, t1, before)
            y0, raw, ks = again.y0, again.raw, again.slopes
            previous_end = jnp.where(k > 0, row(ends, jnp.maximum(k - 1, 0)), -jnp.inf)
            (y0_bar, raw_bar, ks_bar, shift_bar), after = saved.read(after, previous_end, t0, t1, y0, raw, ks, y1 - raw)
            # The first step has a first slope of its own, and so has one that begins behind a jump, later than the one before it has ended.
            reused = self.reuses & (previous_end == t0)
            # The slope that the next step has taken over is k_s/h.
            ks_bar = ks_bar.at[-1].add(after.slope_bar / h)
            # shift = y₁ − raw end: its cotangent belongs to the former, and with the opposite sign to the latter.
            step_data = t0, t1, y0, ks, y1, after.bar + shift_bar, raw_bar - shift_bar, y0_bar, ks_bar, reused
            bar, slope_bar, *active_bars = pull(again.residuals, after.active_bars, step_data)
            # ∂y/∂t₀ = −∂y/∂y₀ f(t₀, y₀); the value that stays is that of the first step, which is visited last.
            start_bar = -jnp.dot(bar, ks[0] / h)
            if self.start_vjp is not None:
                time_bar, bar, *more = call(self.start_vjp)(t0, before, bar, *parameters)
                start_bar = start_bar + time_bar
                active_bars = [a + x for a, x in zip(active_bars, more, strict=True)]
            irregular = after.irregular | again.irregular
            return after._replace(
                k=k - 1, bar=bar, slope_bar=slope_bar, active_bars=active_bars, start_bar=start_bar, irregular=irregular
            )

        zero = jnp.zeros(self.state.shape, self.dtype)
        start = _Sweep(
            k=count - 1,
            unread=jnp.array(self.times - 1, jnp.int32),
            due=jnp.full((), jnp.inf, self.dtype),
            bar=zero,
            slope_bar=zero,
            active_bars=[jnp.zeros(s.shape, s.dtype) for s in self.stage_vjp.results[1:]],
            times_bar=jnp.zeros(self.times, self.dtype),
            start_bar=jnp.zeros((), self.dtype),
            irregular=jnp.array(False),
        )
        total = lax.while_loop(lambda at: at.k >= 0, step, start)
        return [total.bar, total.start_bar, *total.active_bars, total.times_bar, total.irregular]

    def _replay(self, call: Call, parameters: Sequence[Array]) -> Callable[[Array, Array, Array], "_Replay"]:
        """(t₀, t₁, y where the step before has ended) ↦ the step made again."""
        stage, final = self._rates(call, parameters)

        def replay(t0: Array, t1: Array, before: Array) -> _Replay:
            y0 = before if self.start is None else call(self.start)(t0, before, *parameters)[0]
            # Made again from its start, with the length that it had: only states are on the tape, and no step is chosen anew (Hager 2000).
            raw, ks, (irregular_stages, residuals), (irregular_end, end_residuals) = explicit_step(
                self.coefficients, stage, final, t0, t1, y0
            )
            if len(self.a) == len(self.a[0]):  # the end is the last stage
                residuals = jnp.concatenate([residuals, end_residuals[None]])
            finite = jnp.all(jnp.isfinite(raw)) & jnp.all(jnp.isfinite(ks))
            return _Replay(y0, raw, ks, residuals, jnp.any(irregular_stages) | irregular_end | ~finite)

        return replay

    def _pull(self, call: Call, parameters: Sequence[Array]) -> Callable[..., list[Array]]:
        """(what was kept of the stages, cotangents of the parameters, arguments of `sweep`) ↦ the results of `sweep`."""
        halves, pull_end = self._halves_for(call), call(self.end_vjp)
        end = lambda t, y, *bars_of_step: pull_end(t, y, *bars_of_step, *parameters)

        def pull(residuals: Array, active_bars: list[Array], step_data: tuple[Array, ...]) -> list[Array]:
            if halves is None:
                rate = lambda i, t, y, bar: call(self.stage_vjp)(t, y, bar, *parameters)
            else:
                rate = lambda i, t, y, bar: call(halves[2])(t, y, bar, *parameters, row(residuals, i))
            return sweep(self.coefficients, rate, end, active_bars, *step_data)

        return pull

    @functools.cached_property
    def _halves(self) -> Any:
        """A stage and an end, and the reverse sweep over a rate, in halves; None where what these exchange takes too much memory."""
        (stage, end), back = self.stage_vjp.halves((0, 1), (0, 2))
        room = len(self.a[0]) * len(stage.code.outputs) * vector_bytes()
        # Beyond that a stage is evaluated twice instead, forwards and within its reverse sweep, and nothing is kept of it.
        return (stage, end, back) if room <= LARGEST_RESIDUALS else None

    def _halves_for(self, call: Call) -> Any:
        """`_halves` for compiled code; None for all else, where nothing is gained by them."""
        return self._halves if call is compiled else None

    def _rates(self, call: Call, fixed: Sequence[Array]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """(t, y) ↦ (rate, (doubtful, what is kept for the reverse sweep)) of stages, and of the end."""
        halves = self._halves_for(call)
        if halves is not None:
            n = self.state.shape[0]

            def first(piece: Subprogram) -> Callable[..., Any]:
                def rate(t: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
                    (residuals,) = compiled(piece)(t, y, *fixed)
                    return residuals[:n], (residuals[n] != 0, residuals)

                return rate

            return first(halves[0]), first(halves[1])
        nothing = jnp.zeros(0, self.dtype)

        def unsplit(program: Program, *more: Array) -> Callable[..., Any]:
            def rate(t: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
                value, doubtful = call(program)(t, y, *more, *fixed)
                return value, (doubtful, nothing)

            return rate

        return unsplit(self.stage), unsplit(self.end, nothing)


class _Sweep(NamedTuple):
    """What goes from one step to the step before it.

    Attributes:
        k: which step is next.
        unread: the last saved state that was not read yet, and
        due: its time; ∞ for the end, −∞ if all were read.
        bar: the cotangent of where step k ends,
        slope_bar: of its last slope as the step after it has taken that over,
        active_bars: of the parameters that move,
        times_bar: of the saved times, and
        start_bar: of the time at which the step after it begins.
        irregular: whether anything about a step was irregular.
    """

    k: Array
    unread: Array
    due: Array
    bar: Array
    slope_bar: Array
    active_bars: list[Array]
    times_bar: Array
    start_bar: Array
    irregular: Array


class _Replay(NamedTuple):
    """A step made again: where it begins, its end before the correction, its slopes, what is kept of stages, and whether it is irregular."""

    y0: Array
    raw: Array
    slopes: Array
    residuals: Array
    irregular: Array


@dataclasses.dataclass(frozen=True)
class _SavedStates:
    """The saved states, which are read off the interpolations of their steps; the last one is the end.

    Attributes:
        pull: see `RunAdjoint.read`.
        times: at which states were saved.
        bars: their cotangents.
        reached: how many of them were reached, the end apart.
    """

    pull: Callable[..., Sequence[Array]]
    times: Array
    bars: Array
    reached: Array

    def read(
        self, after: _Sweep, previous_end: Array, t0: Array, t1: Array, *dense: Array
    ) -> tuple[list[Array], _Sweep]:
        """Cotangents of the interpolation of a step, (y₀, y₁, k, shift), and what goes on; the step before has ended at `previous_end`."""

        def add(state: PyTree) -> Any:
            index, _, dense_bar, times_bar = state
            own, *bars_of_step = self.pull(row(self.times, index), t0, t1, *dense, row(self.bars, index))
            dense_bar = [a + x for a, x in zip(dense_bar, bars_of_step, strict=True)]
            before = jnp.where(index == self.times.shape[0] - 1, self.reached, index) - 1
            due = jnp.where(before < 0, -jnp.inf, row(self.times, jnp.maximum(before, 0)))
            return before, due, dense_bar, with_row(times_bar, index, own)

        begin = after.unread, after.due, [jnp.zeros_like(x) for x in dense], after.times_bar
        # Saved times increase, as the tape does: one pointer that moves backwards finds those of a step without a search. How many states
        # were saved within a step is known at run time only.
        index, due, dense_bar, times_bar = lax.while_loop(lambda c: c[1] > previous_end, add, begin)
        return dense_bar, after._replace(unread=index, due=due, times_bar=times_bar)
