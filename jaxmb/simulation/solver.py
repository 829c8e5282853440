"""A Diffrax solver that accepts states on the constraints only."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..system import scaled_residuals, State
from .problem import Flow, Problem


Arguments = tuple[Problem, Bool[Array, " m"]]  # the rows of the latest accepted state take the second place


class Blended(dfx.AbstractLocalInterpolation):
    """The inner solver's interpolation, moved smoothly towards the corrected end of the step.

    y(s) + s²(3 − 2s) (y_corrected − y): continuous from step to step, and of the inner order.
    """

    t0: Any
    t1: Any
    inner: dfx.AbstractLocalInterpolation
    shift: Any

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        """The state at `t0`, or the increment from `t0` to `t1`."""
        if t1 is not None:
            return jax.tree.map(lambda a, b: b - a, self.evaluate(t0), self.evaluate(t1))
        span = self.t1 - self.t0
        s = (t0 - self.t0) / jnp.where(span == 0, 1, span)
        weight = s * s * (3 - 2 * s)
        return jax.tree.map(lambda y, d: y + weight * d, self.inner.evaluate(t0), self.shift)


@dataclasses.dataclass(frozen=True)
class _BlendedClass:
    """Makes `Blended` from a step's dense information; compared by value, so that equal solvers share programs."""

    inner: Callable[..., dfx.AbstractLocalInterpolation]

    def __call__(self, *, t0: Any, t1: Any, inner: Any, shift: Any) -> Blended:
        return Blended(t0, t1, self.inner(t0=t0, t1=t1, **inner), shift)


class Accepted(eqx.Module):
    """What is carried from an accepted state to the next.

    Attributes:
        inner: the inner solver's state.
        keep: mask of the rows found independent.
        lowest_rank, highest_rank: over the accepted states so far.
        residual: largest scaled residual left by a correction so far.
    """

    inner: Any
    keep: Bool[Array, " m"]
    lowest_rank: Int[Array, ""]
    highest_rank: Int[Array, ""]
    residual: Float[Array, ""]


class ConstrainedSolver(dfx.AbstractWrappedSolver):
    """Steps with `solver`, corrects the drift, and decides the rank for the next step at the corrected state.

    A step fails whose corrected state is not finite or leaves a scaled residual above the drift's tolerance: its error
    estimate is infinite, so that an adaptive controller rejects it and tries a shorter one. It is final, with
    `RESULTS.breakdown` or `RESULTS.nonfinite` (which `simulate` translates), without an error estimate, from a state that
    is not finite itself, and when the step is down to the resolution of time; so no lane of a batch runs on in vain.
    """

    solver: dfx.AbstractSolver

    # Diffrax's adjoints and controllers look for these on the solver that they are given.
    scan_kind = property(lambda self: self.solver.scan_kind)
    root_finder = property(lambda self: self.solver.root_finder)
    root_find_max_steps = property(lambda self: self.solver.root_find_max_steps)
    term_structure = property(lambda self: self.solver.term_structure)
    term_compatible_contr_kwargs = property(lambda self: self.solver.term_compatible_contr_kwargs)
    interpolation_cls = property(lambda self: _BlendedClass(self.solver.interpolation_cls))

    def order(self, terms: Any) -> Any:
        """The inner solver's order."""
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        """The inner solver's order."""
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        """The inner solver's order."""
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Flow, args: Arguments) -> Accepted:
        """Decides the rank at the start."""
        problem, _ = args
        keep = problem.prepare(t0, y0)
        rank = jnp.sum(keep)
        inner = self.solver.init(terms, t0, t1, y0, (problem, keep))
        return Accepted(inner, keep, rank, rank, jnp.zeros_like(t0))

    def func(self, terms: Any, t0: Any, y0: Flow, args: Arguments) -> Any:
        """The vector field at an accepted state."""
        problem, _ = args
        return self.solver.func(terms, t0, y0, (problem, problem.prepare(t0, y0)))

    def step(self, terms: Any, t0: Any, t1: Any, y0: Flow, args: Arguments, state: Accepted, made_jump: Any) -> Any:
        """One step of the inner solver, its correction and its verdict."""
        problem, _ = args
        raw, error, dense, inner, result = self.solver.step(
            terms, t0, t1, y0, (problem, state.keep), state.inner, made_jump
        )
        y1 = problem.correct(t1, raw, state.keep)
        residual = self._residual(problem, t1, y1)
        finite = _finite(y1)
        ok = finite & (residual <= problem.drift.tolerance(residual.dtype))
        y1 = jax.tree.map(lambda a, b: jnp.where(ok, a, b), y1, raw)
        keep = problem.prepare(t1, y1)
        if error is None:
            final = ~ok
        else:
            error = jax.tree.map(lambda e: jnp.where(ok, e, jnp.inf), error)
            shortest = 16 * jnp.finfo(t1.dtype).eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
            final = ~ok & ~(t1 - t0 > shortest)
        failure = dfx.RESULTS.where(finite, dfx.RESULTS.breakdown, dfx.RESULTS.nonfinite)
        result = dfx.RESULTS.where((final | ~_finite(y0)) & dfx.is_okay(result), failure, result)
        rank = jnp.sum(keep)
        accepted = Accepted(
            inner,
            keep,
            jnp.minimum(state.lowest_rank, rank),
            jnp.maximum(state.highest_rank, rank),
            jnp.maximum(state.residual, jax.lax.stop_gradient(residual)),
        )
        shift = jax.tree.map(lambda a, b: a - b, y1, raw)
        return y1, error, {"inner": dense, "shift": shift}, accepted, result

    def _residual(self, problem: Problem, t: Array, y: Flow) -> Array:
        if not problem.system.m:
            return jnp.zeros_like(t)
        position, velocity = scaled_residuals(problem.system, State(t, y[0], y[1], problem.scale))
        return jnp.max(jnp.abs(jnp.concatenate([position, velocity])))



def _finite(y: Flow) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in y]))
