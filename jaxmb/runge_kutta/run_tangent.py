"""The derivative of a whole run along a direction as one program, in forward mode."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from ..lanes import Call, Program, Shaped
from .method import RungeKuttaProgram, row, time_at
from .step import StepProgram


@dataclasses.dataclass(frozen=True, eq=False)
class RunTangent(RungeKuttaProgram):
    """The derivative ẏ along the accepted steps of a run, whose times are given, at the saved times and at its end.

    Operands are the tape, see `RunProgram`, how many steps there are, the saved times, ẏ at the start, and the
    parameters with those derivatives that are not zero; results ẏ at the saved times, zero where they were not reached, and at the end.

    Attributes:
        stage, end, a, c: of (y, ẏ), see `augmented`; the end's first results behind the rates are the derivatives of what replaces
            the first numbers of y₁.
        start: likewise of what `RunProgram` does where a step starts, None if nothing.
        between: see `RunProgram`; it is linear in all but the times.
        replaced: how many numbers of y₁ are replaced.
        times: how many saved times there are.
        taped: how many states the tape has room for.
        reuses: whether the first slope of a step is the last one of the step before.
    """

    start: Program | None
    between: Program
    replaced: int
    times: int
    taped: int
    reuses: bool

    @property
    def step(self) -> StepProgram:
        """A step."""
        return StepProgram(self.stage, self.end, self.a, self.c, True)

    @property
    def size(self) -> int:
        """How many numbers y has."""
        return self.state.shape[0] // 2

    @property
    def own(self) -> int:
        """How many operands, the first ones, belong to a run; the others are parameters."""
        return 6

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        n, number = self.size, self.number
        tape = number(self.taped), number(self.taped, n), number(self.taped), Shaped((), jnp.int32)
        return (*tape, number(self.times), number(n), *self.stage.operands[2:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return self.number(self.times, self.size), self.number(self.size)

    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""
        (ts, ys, ends, count, times, dot), parameters = operands[:6], operands[6:]
        n, stage, between = self.size, call(self.stage), call(self.between)
        unused = jnp.zeros(self.end.operands[2].shape, self.dtype)

        def step(carry: PyTree) -> Any:
            k, index, due, dot, slope, dots = carry
            t0, t1 = row(ts, k), row(ends, k)
            # The state is read off the tape at each step: rounding of the repeated steps does not add up.
            y0 = jnp.concatenate([row(ys, k), dot])
            if self.start is not None:
                y0 = call(self.start)(t0, y0, *parameters)[0]
            # A method whose last stage is the next one's first has the slope at hand, with its tangent; the first step has none yet.
            fresh = (k == 0) | (not self.reuses)
            slope = lax.cond(fresh, lambda: stage(t0, y0, *parameters)[0], lambda: slope)
            raw, ks, _, *more = self.step.advance(call, t0, t1, y0, slope, unused, *parameters)
            # The derivative of the end goes through the correction where that moves it (q, v); the rest (work, a controller's state) is as
            # integrated.
            replacement = jnp.concatenate([jnp.ravel(x) for x in more] + [jnp.zeros(n)])[: self.replaced]
            following = raw[n:].at[: self.replaced].set(replacement)

            def save(saved: PyTree) -> Any:
                index, due, dots = saved
                # The interpolation is linear in states and slopes: applied to their tangents it is its own derivative.
                y = between(due, t0, t1, y0[n:], raw[n:], ks[:, n:], following - raw[n:])[0]
                return index + 1, time_at(times, index + 1), dots.at[index].set(y)

            index, due, dots = lax.while_loop(lambda saved: saved[1] <= t1, save, (index, due, dots))
            return k + 1, index, due, following, ks[-1] / (t1 - t0), dots

        first = jnp.array(0, jnp.int32)
        dots = jnp.zeros((self.times, n), self.dtype)
        start = first, first, time_at(times, first), dot, jnp.zeros(2 * n, self.dtype), dots
        carry = lax.while_loop(lambda c: c[0] < count, step, start)
        return [carry[5], carry[3]]
