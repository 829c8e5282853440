"""The derivative of a step along a direction, as a step of twice as many numbers."""

import jax.numpy as jnp
from jaxtyping import Array

from ..lanes import LARGEST_DERIVATIVE, NotScalarError, Program, Shaped, entries, jvp, latest


@latest
def augmented(parts: tuple[Program, ...], timed: bool, moving: tuple[int, ...]) -> tuple[Program, ...] | str:
    """Stage, end, and what else is done to states, of (y, ẏ), a dot being the derivative along a direction, or why they are no programs.

    k_i = h f(t_i, y_i) changes by k̇_i = h (ḟ_i + η f_i), η = ḣ/h, at times that change by ṫ_i = ṫ₀ + (t_i − t₀) η. Beside its rates the
    end returns the derivatives of its other results, as far as these are numbers.

    Args:
        parts: stage and end, see `StepProgram`, and the start of `RunProgram`, if there is one.
        timed: whether t₀ or t₁ changes; t₀, ṫ₀ and η are then operands behind the parameters.
        moving: which parameters change; their derivatives are the last operands.
    """
    t, y, *parameters = parts[0].operands
    size, clock = entries(y.shape), (t,) * (3 if timed else 0)

    def with_tangent(of: Program) -> Program:
        ahead = len(of.operands) - len(parameters)  # operands before the parameters
        first, last = len(of.operands), len(of.operands) + len(clock)
        varying = (0, 1, *(ahead + k for k in moving))

        def fn(*operands: Array) -> list[Array]:
            (t, y), dots = operands[:2], operands[last:]
            t0, t0_dot, eta = operands[first:last] if timed else (t, jnp.zeros_like(t), jnp.zeros_like(t))

            at, ways = (t, y[:size], *operands[2:first]), (t0_dot + (t - t0) * eta, y[size:], *dots)
            # One evaluation of the function for value and tangent: scalar programs share what both need.
            values, dots_of_values = jvp(of, at, varying, ways)
            rate = jnp.concatenate([values[0], dots_of_values[0] + eta * values[0]])
            # Of the end's truth values there are no derivatives, and its other values are known from the step itself.
            return [rate, *(values[1:] if of is parts[0] else dots_of_values[1:])]

        wide = Shaped((2 * size,), y.dtype)
        return Program.of(
            fn, t, wide, *of.operands[2:], *clock, *(parameters[k] for k in moving), largest=LARGEST_DERIVATIVE
        )

    try:
        return tuple(map(with_tangent, parts))
    # The reason is returned, not raised: results are remembered, and the caller has another way.
    except NotScalarError as error:
        return str(error)
