"""The reverse sweep over a step as one program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from ..lanes import Call, Shaped, VJPProgram
from .method import RungeKuttaProgram, time_of_stage


@dataclasses.dataclass(frozen=True, eq=False)
class StepAdjoint(RungeKuttaProgram):
    """The reverse sweep over a step: cotangents of its start and of what its functions depend on.

    Operands are t₀, t₁, y₀, k, where the end was moved to, the cotangents of that, of the end before, of y₀ and of k, whether k₁ was
    taken from the step before, and the parameters; results the cotangents of y₀, of f₀ where it was taken, and of the parameters
    that move.

    Attributes:
        stage: (t, y, cotangent of the rate, parameters) ↦ cotangents of (y, parameters that move).
        end: (t, y₁, where it was moved to, cotangent of that, parameters) ↦ cotangents of (y₁, parameters that move).
        a, c: see `RungeKuttaProgram`.
    """

    stage: VJPProgram

    @property
    def own(self) -> int:
        """How many operands, the first ones, belong to a run; the others are parameters."""
        return 10

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        t, y, k = self.stage.operands[0], self.state, self.slopes
        return (t, t, y, k, y, y, y, y, k, Shaped((), jnp.bool_), *self.stage.operands[3:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return (self.state, self.state, *self.stage.results[1:])

    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""
        none = [jnp.zeros(s.shape, s.dtype) for s in self.stage.results[1:]]
        stage, end, parameters = call(self.stage), call(self.end), operands[10:]
        rate = lambda i, t, y, bar: stage(t, y, bar, *parameters)
        end_pull = lambda t, y, *more: end(t, y, *more, *parameters)
        return sweep(self.coefficients, rate, end_pull, none, *operands[:10])


def sweep(
    coefficients: tuple[Array, Array],
    rate: Callable[..., Sequence[Array]],
    end: Callable[..., Sequence[Array]],
    active_bars: list[Array],
    t0: Array,
    t1: Array,
    y0: Array,
    ks: Array,
    y1: Array,
    y1_bar: Array,
    raw_bar: Array,
    y0_bar: Array,
    ks_bar: Array,
    reused: Array,
) -> list[Array]:
    """The cotangents of y₀, of f₀ where it was taken over from the step before, and of the parameters that move (Hager 2000).

    With y_i = y₀ + Σ_j a_ij k_j and k_i = h f(y_i), from the last stage to the first:
    ȳ_i = (∂f/∂y)ᵀ h k̄_i, ȳ₀ += ȳ_i, k̄_j += a_ij ȳ_i.

    Args:
        coefficients: a, c.
        rate: (i, t, y, cotangent) ↦ cotangents of y and of what moves, of stage i.
        end: (t, y₁, where it was moved to, cotangent of that) ↦ likewise.
        active_bars: cotangents of what moves, to which all are added.
        t0: when the step begins,
        t1: when it ends,
        y0: where it begins.
        ks: all k.
        y1: where the end was moved to.
        y1_bar: the cotangent of that,
        raw_bar: of the end before,
        y0_bar: of y₀ and
        ks_bar: of k, as they are read elsewhere.
        reused: whether k₁ was taken from the step before.
    """
    h, (a, c) = t1 - t0, coefficients
    # The correction comes last in a step and so first on the way back; a cotangent of the end before it is added behind it.
    bar, *more = end(t1, y0 + a[-1] @ ks, y1, y1_bar)
    bar = bar + raw_bar
    # y₁ = y₀ + Σ b_j k_j, b being the last row of a.
    carry = y0_bar + bar, ks_bar + a[-1][:, None] * bar, [x + m for x, m in zip(active_bars, more, strict=True)]

    def stage(carry: PyTree, i: Array) -> tuple[Any, None]:
        start, bars, active_bars = carry
        pull = lambda: list(rate(i, time_of_stage(t0, t1, c[i]), y0 + a[i] @ ks, h * bars[i]))
        none = lambda: [jnp.zeros_like(x) for x in (start, *active_bars)]
        # A first slope that was taken from the step before was not evaluated here: its cotangent h k̄₁ goes back to that step instead.
        bar, *more = lax.cond(reused & (i == 0), none, pull)
        return (start + bar, bars + a[i][:, None] * bar, [x + m for x, m in zip(active_bars, more, strict=True)]), None

    # From the last stage to the first: k̄_i is complete once all later stages have added to it.
    (start, bars, active_bars), _ = lax.scan(stage, carry, jnp.arange(a.shape[1]), reverse=True)
    return [start, jnp.where(reused, h * bars[0], 0), *active_bars]
