"""What programs of Runge–Kutta steps, and of derivatives of those, have in common."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ..lanes import LoopProgram, Program, Shaped


@dataclasses.dataclass(frozen=True, eq=False)
class RungeKuttaProgram(LoopProgram, abc.ABC):
    """A program that calls those of a stage and of an end, with the coefficients of a method.

    Attributes:
        stage: of the stages.
        end: of the end of a step.
        a: (r, s), r being s or s + 1 where a row for the end is added that counts for nothing.
        c: (r,).
    """

    stage: Program
    end: Program
    a: tuple[tuple[float, ...], ...]
    c: tuple[float, ...]

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.stage.dtype

    @property
    def thorough(self) -> bool:
        """See `Program`."""
        return self.stage.thorough

    @property
    def state(self) -> Shaped:
        """Shape and type of y."""
        return self.stage.operands[1]

    @property
    def slopes(self) -> Shaped:
        """Shape and type of all k."""
        return Shaped((len(self.a[0]), *self.state.shape), self.state.dtype)

    @property
    def coefficients(self) -> tuple[Array, Array]:
        """(a, c) as arrays."""
        return jnp.asarray(self.a, self.dtype), jnp.asarray(self.c, self.dtype)

    def number(self, *shape: int) -> Shaped:
        """Shape and type of numbers."""
        return Shaped(shape, self.dtype)


def explicit_step(
    coefficients: tuple[Array, Array],
    stage: Callable[[Array, Array], Sequence[Any]],
    end: Callable[[Array, Array], Sequence[Any]],
    t0: Array,
    t1: Array,
    y0: Array,
    f0: Array | None = None,
) -> tuple[Array, Array, Any, Any]:
    """A step of an explicit Runge–Kutta method: y_i = y₀ + Σ_j a_ij k_j, k_i = h f(t₀ + c_i h, y_i), the last one being y₁.

    Args:
        coefficients: a, c, see `RungeKuttaProgram`.
        stage: (t, y) ↦ (rate, something besides).
        end: likewise, of (t₁, y₁); its rate counts if there is a k for it.
        t0: when the step begins,
        t1: when it ends, and
        y0: where it begins.
        f0: the rate there, if it is known.

    Returns:
        y₁; k; what the stages have returned besides, one behind the other; what the end has.
    """
    h, (a, c) = t1 - t0, coefficients

    def slope(slopes: Array, i: Array) -> tuple[Array, Any]:
        # An explicit method has a_ij = 0 for j ≥ i: slopes that are not made yet, zero here, do not count.
        rate, more = stage(time_of_stage(t0, t1, c[i]), y0 + a[i] @ slopes)
        return slopes.at[i].set(h * rate), more

    slopes, first, last = jnp.zeros((a.shape[1], *y0.shape), y0.dtype), 0, len(a) - 1
    if f0 is not None:
        slopes, first = slopes.at[0].set(h * f0), 1
    # A loop, so that there is one copy of the stage's program whatever the number of stages.
    slopes, more = lax.scan(slope, slopes, jnp.arange(first, last))
    y1 = y0 + a[-1] @ slopes
    rate, rest = end(t1, y1)
    # Where the row for the end counts for nothing (r = s + 1) the slice is empty: what is wanted of the end is the rest.
    return y1, slopes.at[last:].set(h * rate), more, rest


def time_of_stage(t0: Array, t1: Array, c: Array) -> Array:
    """t₀ + c h, and t₁ itself for c = 1: a sum that is rounded up may be behind a jump of the vector field, just before which a step ends."""
    return jnp.where(c == 1, t1, t0 + c * (t1 - t0))


def guarded(guard: Callable[[Array], Sequence[Array]], t0: Array, t1: Array, parts: int) -> tuple[Array, Array, Array]:
    """A step looked at by a guard, t ↦ (whether it holds, whether a run is to end where it begins to hold and not with the step).

    Args:
        guard: without derivatives.
        t0: when the step begins,
        t1: and ends.
        parts: into how many parts it is divided, at whose ends the guard is looked at.

    Returns:
        Whether the step is too long, since the guard ceases to hold in it; whether it holds at the end; and when a run ends that ends by that:
        with the step, or where the guard begins to hold, to the resolution of time.
    """
    t0, t1 = lax.stop_gradient((t0, t1))
    resolution = jnp.finfo(t0.dtype).eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
    no = jnp.array(False)

    def look(state: Any) -> Any:
        begin, end, _, too_long, first = state

        def part(state: Any, where: Array) -> Any:
            lower, upper, begun, before, ceased = state
            t = time_of_stage(begin, end, where)
            holds, begins = guard(t)
            lower, upper = jnp.where(begun | begins, lower, t), jnp.where(begun, upper, t)
            return (lower, upper, begun | begins, holds, ceased | (before & ~holds)), begins

        ends = jnp.arange(1, parts + 1, dtype=t0.dtype) / parts
        (lower, upper, _, holds, ceased), begins = lax.scan(part, (begin, end, no, no, no), ends)
        # It is looked for and not interpolated: a guard may have kinks and jumps, and must hold at the time that is returned.
        within = begins[-1]
        lower, upper = jnp.where(within, lower, end), jnp.where(within, upper, end)
        return lower, upper, holds, jnp.where(first, ceased, too_long), no

    searching = lambda state: state[-1] | (state[1] - state[0] > resolution)
    _, reached, at_end, too_long, _ = lax.while_loop(searching, look, (t0, t1, no, no, ~no))
    return too_long, at_end, reached


def row(x: Array, k: Array) -> Array:
    """A row of an array, the nearest one if there is none."""
    # A dynamic index is clamped to the array: a loop that looks one row beyond the last need not ask.
    return lax.dynamic_index_in_dim(x, k, 0, keepdims=False)


def time_at(times: Array, index: Array) -> Array:
    """The time of a given index; ∞ beyond the last one."""
    # Infinity is never due: loops over saved times end by one comparison, without a count.
    return jnp.where(index < times.shape[0], row(times, index), jnp.inf)


def with_row(x: Array, k: Array, new: Array, where: Array | bool = True) -> Array:
    """The array with row k replaced by a new one, where `where` holds."""
    # An index beyond the end is dropped, so that no branch with a copy of the array is needed.
    return x.at[jnp.where(where, k, x.shape[0])].set(new, mode="drop")
