"""The reverse sweep over one step of a tape."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ..deferral import with_fallback
from ..formulation import OFFSETS, WEIGHTS
from ..foundations import tree_where, where_any
from ..runge_kutta import time_of_stage
from .certificate import certify
from .compiled_step import CompiledStepAdjoint
from .method import Method
from .phase import Tape
from .sparse import sparse_stages
from .stages import Tableau, all_stages, combine
from .state_vector import StateVector
from .step_records import Interpolant
from .vector_field import VectorField


class ReverseStep(eqx.Module):
    """The reverse sweep over one step of an explicit Runge–Kutta method, y_i = y₀ + Σ a_ij k_j, k_i = h f(t₀ + c_i h, y_i)."""

    rest: VectorField
    method: Method
    tape: Tape
    compiled: CompiledStepAdjoint | None
    in_use: Bool[Array, " m"]
    steady: Bool[Array, ""]
    smooth: bool = eqx.field(static=True, default=False)

    def field(self, active: PyTree) -> VectorField:
        """The problem."""
        return dataclasses.replace(eqx.combine(active, self.rest), smooth=self.smooth)

    @property
    def smooth_sweep(self) -> "ReverseStep":
        """The reverse sweep far from singular poses, by the system's layout if it has one."""
        return dataclasses.replace(self, smooth=True)

    @property
    def is_general(self) -> bool:
        """Whether the general step is the only one: neither compiled code nor a layout is at hand."""
        return self.compiled is None and self.rest.system.layout is None

    def span(self, k: Array) -> tuple[Array, Array]:
        """The times at which a step starts and ends."""
        return self.tape.ts[k], self.tape.ends[k]

    def reuses(self, k: Array) -> Bool[Array, ""]:
        """Whether the first slope of a step is the last one of the step before."""
        if self.rest.begins_anew and self.compiled is not None:
            return jnp.array(False)
        # Behind a jump of the vector field a step begins later than the one before it has ended.
        fresh = (k == 0) | (self.tape.ends[k - 1] != self.tape.ts[k])
        if self.rest.loop is not None:
            # A sample changes what the vector field depends on: the slope from before it is that of another field.
            fresh |= self.rest.loop.due(self.tape.ts[k], entry_of(self.tape.ys, k).control)
        return ~fresh & self.tableau.fsal

    @property
    def tableau(self) -> Tableau:
        """The tableau of the solver."""
        return Tableau.of(self.method.solver.solver, self.tape.ts.dtype)

    def ends(self, k: Array) -> tuple[Array, Array, StateVector, StateVector]:
        """The times at which a step starts and ends, and the states there."""
        # Where an event ended the last step the tape holds the state at the event, and `end` that at the end of the step as it was made.
        y1 = self.tape.end.where(k == self.tape.count - 1, entry_of(self.tape.ys, k + 1))
        return *self.span(k), entry_of(self.tape.ys, k), y1

    def replay(self, active: PyTree, k: Array) -> "Replay":
        """A step made again: by compiled code or sparse linear algebra, and by the general program where that is irregular."""
        if self.is_general:
            return self._replay_general(active, k)
        t0, t1, y0, y1 = self.ends(k)
        if self.compiled is None:
            raw, slopes, irregular = self.smooth_sweep.replay_smooth(active, t0, t1, y0)
        else:
            if self.rest.takes_samples:
                y0 = self.field(active).after_sample(t0, y0, self.in_use)
            raw, slopes, irregular = self.compiled.replay(active, self.rest, self.in_use, t0, t1, y0)
        # The rows in use at the end of the run were those of all steps only if they never changed.
        irregular |= ~self.steady
        if self.rest.loop is not None:
            irregular |= self.rest.loop.due(t0, y0.control)
        irregular &= k >= 0  # in a batch a row that is back at its start waits for the others
        none = jnp.zeros(self.tableau.c.shape, bool)
        replay = Replay(
            dense=_dense(y0, raw, slopes, y1),
            in_use=self.in_use,
            choice=self.rest.choice,
            near=none,
            tau=none.astype(t0.dtype),
            regular=~irregular,
        )
        return with_fallback(irregular, ReverseStep._replay_general, (self, active, k), replay)

    def replay_smooth(
        self, active: PyTree, t0: Array, t1: Array, y0: StateVector
    ) -> tuple[StateVector, StateVector, Array]:
        """The end of a step before its correction, its slopes, and whether the step is irregular."""
        field = self.field(active)
        arguments = (field, self.tableau, t0, t1, y0, self.in_use)
        if field.sparse:
            stages, _, good = sparse_stages(*arguments)
        else:
            stages = all_stages(*arguments)
            good = ~jnp.any(stages.near) & certify(field, stages.last.factor, stages.last.terms)
        return stages.raw, stages.slopes, ~good | ~stages.raw.finite

    def _replay_general(self, active: PyTree, k: Array) -> "Replay":
        t0, t1, y0, y1 = self.ends(k)
        field = self.field(active)
        # The decision about rows is made again and not stored: few steps come here.
        rows = field.prepare(t0, y0, None)
        field = field.with_choice(rows.choice)
        y0 = field.after_sample(t0, y0, rows.in_use)
        stages = all_stages(field, self.tableau, t0, t1, y0, rows.in_use)
        dense = _dense(y0, stages.raw, stages.slopes, y1)
        return Replay(
            dense=dense,
            in_use=rows.in_use,
            choice=rows.choice,
            near=stages.near,
            tau=stages.tau,
            regular=jnp.array(False),
        )

    def read(
        self, k: Array, dense: Interpolant, times: Array, bars: PyTree, times_bar: Array, reached: Array
    ) -> tuple[Interpolant, Array]:
        """Cotangents of the interpolation and of the times, from those of the states that are read off it, the first `reached` and the end."""
        t0, t1 = self.span(k)
        at = lambda dense, t: dense.at(self.method.solver.interpolation_cls, t0, t1, t)

        def read_one(n: Array, carry: PyTree) -> Any:
            i = jnp.where(first + n < beyond, first + n, times.shape[0] - 1)  # the last one of the last step is the end
            interpolation_bar, time_bar = jax.vjp(at, dense, times[i])[1](entry_of(bars, i))
            return added(carry[0], interpolation_bar), carry[1].at[i].set(time_bar)

        is_last = lambda k: k == self.tape.count - 1
        # A state lies in the first step that ends at or after it, or in the last one.
        until = lambda k: jnp.where(k < 0, -jnp.inf, jnp.where(is_last(k), jnp.inf, self.tape.ends[k]))
        up_to = lambda k: jnp.minimum(jnp.searchsorted(times[:-1], until(k), side="right"), reached)
        first, beyond = up_to(k - 1), up_to(k)
        count = beyond - first + is_last(k)
        return lax.fori_loop(0, count, read_one, (zeros_like(dense), times_bar))

    def step(
        self,
        active: PyTree,
        k: Array,
        replay: "Replay",
        end_bar: StateVector,
        slope_bar: StateVector,
        dense_bar: Interpolant,
    ) -> tuple[StateVector, StateVector, Any, Array]:
        """Cotangents of the step's start, of the slope that it takes from the step before, of the problem, and of the time at the start.

        Args:
            active: what of the problem moves.
            k: which step.
            replay: the step made again by `replay`.
            end_bar: cotangent of where the step ends.
            slope_bar: of its last slope, which the next step takes; that is at the end before the correction.
            dense_bar: of the interpolation.
        """
        t0, t1 = self.span(k)
        # shift = corrected end − raw end: its cotangent belongs to the former, and with the opposite sign to the latter.
        end_bar = added(end_bar, dense_bar.shift)
        raw_bar = jax.tree.map(jnp.subtract, dense_bar.raw, dense_bar.shift)
        h = t1 - t0
        # The slope that the next step takes over is k_s/h.
        ks_bar = jax.tree.map(lambda b, slope: b.at[-1].add(slope / h), dense_bar.slopes, slope_bar)
        bars = StepBars(end=end_bar, raw=raw_bar, start=dense_bar.y0, slopes=ks_bar)
        arguments = (self, active, k, replay, bars)
        if self.is_general:
            cotangents = ReverseStep._general_step(*arguments)
        else:
            cotangents = self._regular_step(*arguments[1:])
            cotangents = with_fallback(~replay.regular, ReverseStep._general_step, arguments, cotangents)
        state_bar, slope_bar, active_bar = cotangents
        # ∂y/∂t₀ = −∂y/∂y₀ f(t₀, y₀), y₀ being the state after a sample, and what is put out then may depend on t₀ itself.
        time_bar = -jnp.vdot(state_bar.packed, replay.dense.slopes.packed[0] / h)
        sample_bar, state_bar, active_bar = self.pull_sample(active, k, replay, (time_bar, state_bar, active_bar))
        return state_bar, slope_bar, active_bar, sample_bar

    def _regular_step(
        self, active: PyTree, k: Array, replay: "Replay", bars: "StepBars"
    ) -> tuple[StateVector, StateVector, Any]:
        """The cotangents of a regular step, by compiled code or by the equations far from singular poses."""
        if self.compiled is None:
            return ReverseStep._general_step(self.smooth_sweep, active, k, replay, bars)
        dense, y1 = replay.dense, added(replay.dense.raw, replay.dense.shift)
        operands = (*self.span(k), dense.y0.packed, dense.slopes.packed, y1.packed)
        cotangents = (bars.end.packed, bars.raw.packed, bars.start.packed, bars.slopes.packed, self.reuses(k))
        state_bar, slope_bar, active_bar = self.compiled.pull(active, self.rest, self.in_use, *operands, *cotangents)
        return bars.end.like(state_bar), bars.end.like(slope_bar), active_bar

    def _general_step(
        self, active: PyTree, k: Array, replay: "Replay", bars: "StepBars"
    ) -> tuple[StateVector, StateVector, Any]:
        (t0, t1), y0, ks = self.span(k), replay.dense.y0, replay.dense.slopes
        y1 = added(replay.dense.raw, replay.dense.shift)
        a, c = self.tableau.with_end
        s = c.shape[0] - 1
        # Tasks: the correction of the end, then the stages from the last to the first.
        near, tau = jnp.append(replay.near[:s], True), jnp.append(replay.tau[:s], 0)

        def task(n: Array, carry: PyTree) -> Any:
            y0_bar, ks_bar, active_bar = carry
            i = s - n
            flow_bar = jax.tree.map(lambda b: (t1 - t0) * b[i], ks_bar)  # not read where the step ends
            y_bar, active_bars = self.pull(
                active,
                replay,
                time_of_stage(t0, t1, c[i]),
                combine(y0, a[i], ks),
                near[i],
                tau[i],
                flow_bar,
                i == s,
                y1,
                bars.end,
            )
            y_bar = jax.tree.map(lambda b, raw: b + jnp.where(i == s, raw, 0), y_bar, bars.raw)
            # y_i = y₀ + Σ a_ij k_j: its cotangent goes to y₀ as it is and to k_j by a_ij.
            spread = y_bar.like(a[i][:, None] * y_bar.packed)
            return added(y0_bar, y_bar), added(ks_bar, spread), added(active_bar, active_bars)

        h, reused = t1 - t0, self.reuses(k)
        start = (bars.start, bars.slopes, zeros_like(active))
        # The correction and s stages, without the first one if the step before has evaluated it: that step gets its cotangent (Hager 2000).
        y0_bar, ks_bar, active_bar = lax.fori_loop(0, jnp.where(reused, s, s + 1), task, start)
        slope_bar = jax.tree.map(lambda b: jnp.where(reused, h * b[0], 0), ks_bar)
        return y0_bar, slope_bar, active_bar

    def pull_sample(
        self, active: PyTree, k: Array, replay: "Replay", bars: tuple[Array, StateVector, Any]
    ) -> tuple[Array, StateVector, Any]:
        """Cotangents of the time, of the state before the sample of a controller with which the step began, if it did, and of the problem."""
        loop, t, y = self.rest.loop, self.tape.ts[k], entry_of(self.tape.ys, k)
        if loop is None or loop.clock is None:
            return bars

        def pull() -> tuple[Array, StateVector, Any]:
            sample = lambda t, active, y: self.field(active).with_choice(replay.choice).sample(t, y, replay.in_use)
            time_bar, field_bar, state_bar = jax.vjp(sample, t, active, y)[1](bars[1])
            return bars[0] + time_bar, state_bar, added(bars[2], field_bar)

        return where_any(loop.due(t, y.control), pull, bars)

    def pull(
        self,
        active: PyTree,
        replay: "Replay",
        t: Array,
        y: StateVector,
        near: Array,
        tau: Array,
        flow_bar: StateVector,
        ends: Array,
        y1: StateVector,
        end_bar: StateVector,
    ) -> tuple[StateVector, Any]:
        """Cotangents of a state and the problem, from those of the vector field there, or of where the state is corrected to.

        Where the vector field is interpolated between samples (`VectorField.evaluate_near_singular`), one after the other.
        """
        in_use, interpolated = replay.in_use, tau > 0
        field = self.field(active).with_choice(replay.choice)

        def sample(carry: PyTree) -> Any:
            j, y_bar, active_bar = carry
            offset, weight = tau * jnp.asarray(OFFSETS)[j], jnp.where(interpolated, jnp.asarray(WEIGHTS)[j], 1)
            shifted, shift_vjp = jax.vjp(lambda y: y.with_qv(y.q + offset * field.system.qdot(y.q, y.v), y.v), y)
            # The state is corrected anew, as it is not on the tape; that of the end is.
            corrected = shifted
            if not self.smooth:  # far from singular poses no stage is corrected
                corrected = where_any(near & ~ends, lambda: field.correct(t + offset, shifted, in_use), shifted)
            corrected = tree_where(ends, y1, corrected)

            def by_flow() -> Any:
                rate = lambda active, y: (
                    self.field(active).with_choice(replay.choice).evaluate_regular(t + offset, y, in_use)[0]
                )
                return jax.vjp(rate, active, corrected)[1](jax.tree.map(lambda b: weight * b, flow_bar))

            field_bar, corrected_bar = where_any(~ends, by_flow, (zeros_like(active), zeros_like(y)))
            corrected_bar = tree_where(ends, end_bar, corrected_bar)

            def by_correction() -> Any:
                correct = field.correction_map(t + offset, shifted, corrected, in_use)
                return jax.vjp(lambda active, y: correct(self.field(active), y), active, shifted)[1](corrected_bar)

            correction_bar, shifted_bar = where_any(near, by_correction, (zeros_like(active), corrected_bar))
            return j + 1, added(y_bar, shift_vjp(shifted_bar)[0]), added(active_bar, added(field_bar, correction_bar))

        # One copy of both transposed pieces for any number of samples: the loop is not differentiated in reverse, so it may end early.
        count = jnp.where(interpolated, len(OFFSETS), 1)
        return lax.while_loop(lambda c: c[0] < count, sample, (0, zeros_like(y), zeros_like(active)))[1:]


class StepBars(eqx.Module):
    """Cotangents of a step: of where it ends, of that before the correction, of where it starts as that is read elsewhere, and of its slopes k."""

    end: StateVector
    raw: StateVector
    start: StateVector
    slopes: StateVector


class Replay(eqx.Module):
    """A step that was made again.

    Attributes:
        dense: the data of its interpolation.
        in_use: the rows in use.
        choice: that of the formulation.
        near, tau: of the stages (r,), see `Stages`.
        regular: whether the step is regular, so that the reverse sweep over it may be.
    """

    dense: Interpolant
    in_use: Bool[Array, " m"]
    choice: Bool[Array, " n"] | None
    near: Bool[Array, " r"]
    tau: Float[Array, " r"]
    regular: Bool[Array, ""]


def _dense(y0: StateVector, raw: StateVector, slopes: StateVector, y1: StateVector) -> Interpolant:
    """The data of a step's interpolation."""
    return Interpolant(slopes, y0, raw, jax.tree.map(jnp.subtract, y1, raw))


def entry_of(tree: PyTree, i: Array) -> Any:
    """One row of all arrays."""
    return jax.tree.map(lambda x: x[i], tree)


def zeros_like(tree: PyTree) -> Any:
    """Zeros in place of all numbers."""
    return jax.tree.map(jnp.zeros_like, tree)


def added(a: PyTree, b: PyTree) -> Any:
    """The sum, entry by entry."""
    return jax.tree.map(jnp.add, a, b)
