"""A step of an explicit Runge–Kutta method as one program."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .along import MOST, doubled
from .code import Shaped
from .driver import Driver, Stepping
from .module import EACH, Lane, Period


@dataclasses.dataclass(frozen=True, eq=False)
class StepProgram(Stepping):
    """The step (t₀, t₁, y₀, f₀, x, parameters) ↦ (y₁, k, doubtful, …), of functions that are scalar programs.

    y_i = y₀ + Σ a_ij k_j, k_i = h f(t₀ + c_i h, y_i), the last one being y₁. f₀ is the rate at the start, if it is known. What
    a step of no length returns counts for nothing.

    Attributes:
        stage: (t, y, parameters) ↦ (rate, doubtful), doubtful being one truth value.
        end: (t, y₁, x, parameters) ↦ (rate, …); the rate counts if there is a k for it.
        a, c: see `Stepping`.
        knows_start: whether f₀ is known.
    """

    knows_start: bool

    @property
    def doubles(self) -> bool:
        """Whether its derivative in forward mode will be a program too, of some three times as many operations."""
        return all(3 * len(part.code.graph.operations) <= MOST for part in (self.stage, self.end))

    def __call__(self, *operands: Any) -> list[Array]:
        """The results; derivatives in forward mode are found by programs too."""
        return _stepped(operands, self)

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        t = self.stage.operands[0]
        return (t, t, self.state, self.state, *self.end.operands[2:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return (self.state, self.slopes, self.stage.results[1], *self.end.results[1:])

    @property
    def fn(self) -> Callable[..., list[Array]]:
        """What it does, by the functions as they were given."""
        return self._step

    def _step(self, t0: Array, t1: Array, y0: Array, f0: Array, x: Array, *parameters: Array) -> list[Any]:
        h, last, count = t1 - t0, len(self.a) - 1, len(self.a[0])
        a, c = (jnp.asarray(numbers, self.dtype) for numbers in (self.a, self.c))

        def stage(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            slopes, doubtful = carry
            rate, doubt = self.stage.fn(t0 + c[i] * h, y0 + a[i] @ slopes, *parameters)
            return slopes.at[i].set(h * rate), doubtful | doubt

        first, slopes = int(self.knows_start), jnp.zeros(self.slopes.shape, self.dtype)
        slopes = slopes.at[:first].set(h * f0)
        slopes, doubtful = lax.fori_loop(first, last, stage, (slopes, jnp.array(False)))
        y = y0 + a[last] @ slopes
        rate, *rest = self.end.fn(t1, y, x, *parameters)
        return [y, slopes.at[last:count].set(h * rate), doubtful, *rest]

    def module(self, periods: Sequence[Period], lanes: int) -> Lane:
        """What is compiled for so many lanes."""
        parameters = range(5, len(self.operands))
        read = (0, 1, 2, 3) if self.knows_start else (0, 1, 2)
        if lanes == 1:  # what belongs to the lane is so in any case: its functions are those of several lanes
            periods = (*(EACH for _ in range(5)), *periods[5:])
        functions = (self.stage, (None, None, *parameters)), (self.end, (None, None, 4, *parameters))
        out = Driver(self, functions, read, periods, lanes)
        types = out.types

        def work(numbers: list[str]) -> None:
            t0, t1 = out.gathered(numbers, 0, 0), out.gathered(numbers, 1, 0)
            over = out.let(f"fcmp oeq {types.number} {t0}, {t1}")
            out.either(out.joined(types, "and", over), lambda: out.nothing(numbers), lambda: step(numbers, t0, t1))

        def step(numbers: list[str], t0: str, t1: str) -> None:
            h = out.begin(numbers, t0, t1, 2)
            known = functools.partial(out.gathered, numbers, 3) if self.knows_start else None
            doubtful, found = out.advance(t0, t1, h, known)
            out.give(numbers, 0, out.argument(out.end, 1))
            out.give(numbers, 1, out.ks)
            out.scattered(numbers, out.operate(types, "number", [doubtful]), 2, 0)
            entry = out.n
            for result in range(3, len(self.results)):
                entry = out.give(numbers, result, found, entry)

        out.over_lanes(work)
        return out


@eqx.filter_custom_jvp
def _stepped(operands: tuple[Array, ...], program: StepProgram) -> list[Array]:
    return Stepping.__call__(program, *operands)


@_stepped.def_jvp
def _along(primals: Any, tangents: Any) -> tuple[list[Array], list[Any]]:
    """By a step of twice as many numbers; of truth values there are no derivatives."""
    (operands, program), dots = primals, tangents[0]
    found = _stepped(operands, program)
    timed, moving = dots[:2] != (None, None), tuple(k for k, dot in enumerate(dots[5:]) if dot is not None)
    parts = doubled(program.stage, program.end, timed, moving)
    if isinstance(parts, str):
        return found, list(eqx.filter_jvp(program.fn, operands, dots)[1])
    t0, t1, y0, f0, x, *parameters = operands
    ends = zip(operands[:4], dots, strict=False)
    t0_dot, t1_dot, y0_dot, f0_dot = (jnp.zeros_like(x) if dot is None else dot for x, dot in ends)
    eta = (t1_dot - t0_dot) / (t1 - t0)
    both = jnp.concatenate([y0, y0_dot]), jnp.concatenate([f0, f0_dot + eta * f0 if timed else f0_dot])
    more = (*((t0, t0_dot, eta) if timed else ()), *(dots[5 + k] for k in moving))
    step = dataclasses.replace(program, stage=parts[0], end=parts[1])
    y1, slopes, _, *rest = step(t0, t1, *both, x, *parameters, *more)
    n, left = program.state.shape[0], iter(rest)
    others = (next(left) if jnp.issubdtype(x.dtype, jnp.floating) else None for x in found[3:])
    return found, [y1[n:], slopes[:, n:], None, *others]
