"""A step of an explicit Runge–Kutta method as one program."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

from ..lanes import LARGEST_DERIVATIVE, Call, Shaped
from .method import RungeKuttaProgram, explicit_step
from .tangent import augmented


@dataclasses.dataclass(frozen=True, eq=False)
class StepProgram(RungeKuttaProgram):
    """The step (t₀, t₁, y₀, f₀, x, parameters) ↦ (y₁, k, doubtful, …), of functions that are scalar programs.

    y_i = y₀ + Σ a_ij k_j, k_i = h f(t₀ + c_i h, y_i), the last one being y₁. f₀ is the rate at the start, if it is known. A step of no
    length returns zeros.

    Attributes:
        stage: (t, y, parameters) ↦ (rate, doubtful), doubtful being one truth value.
        end: (t, y₁, x, parameters) ↦ (rate, …); the rate counts if there is a k for it.
        a, c: see `RungeKuttaProgram`.
        knows_start: whether f₀ is known.
    """

    knows_start: bool

    @property
    def doubles(self) -> bool:
        """Whether its derivative in forward mode will be a program too, of some three times as many operations."""
        return all(3 * len(part.code.graph.operations) <= LARGEST_DERIVATIVE for part in (self.stage, self.end))

    def __call__(self, *operands: ArrayLike) -> list[Array]:
        """The results; derivatives in forward mode are those of a program too, where it is not too large."""
        return _call(operands, self)

    @property
    def own(self) -> int:
        """How many operands, the first ones, belong to a run, the first one behind x among them; the others are parameters."""
        return 6

    @property
    def operands(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it is given."""
        t = self.stage.operands[0]
        return (t, t, self.state, self.state, *self.end.operands[2:])

    @property
    def results(self) -> tuple[Shaped, ...]:
        """Shapes and types of what it returns."""
        return (self.state, self.slopes, self.stage.results[1], *self.end.results[1:])

    def definition(self, call: Call, *operands: Array) -> list[Array]:
        """What it does, by the functions that `call` makes of scalar programs."""
        none = lambda: [jnp.zeros(s.shape, s.dtype) for s in self.results]
        # In a batch a lane that is over waits by steps of no length, which must neither cost anything nor divide by zero.
        return lax.cond(operands[0] == operands[1], none, lambda: self.advance(call, *operands))

    def advance(
        self, call: Call, t0: Array, t1: Array, y0: Array, f0: Array, x: Array, *parameters: Array
    ) -> list[Array]:
        """The results (y₁, k, doubtful, …) of a step whose length is not zero."""
        stage, last = call(self.stage), call(self.end)

        def end(t: Array, y: Array) -> tuple[Array, list[Array]]:
            rate, *rest = last(t, y, x, *parameters)
            return rate, rest

        start_rate = f0 if self.knows_start else None
        rate = lambda t, y: stage(t, y, *parameters)
        y1, slopes, doubtful, rest = explicit_step(self.coefficients, rate, end, t0, t1, y0, start_rate)
        return [y1, slopes, jnp.any(doubtful), *rest]


@eqx.filter_custom_jvp
def _call(operands: tuple[Array, ...], program: StepProgram) -> list[Array]:
    return RungeKuttaProgram.__call__(program, *operands)


@_call.def_jvp
def _step_tangent(primals: PyTree, tangents: PyTree) -> tuple[list[Array], list[Any]]:
    """By a step of twice as many numbers; of truth values there are no derivatives."""
    (operands, program), dots = primals, tangents[0]
    results = _call(operands, program)
    timed, moving = dots[:2] != (None, None), tuple(k for k, dot in enumerate(dots[5:]) if dot is not None)
    # Times that do not change cost no operations: most derivatives are by states and parameters only.
    parts = augmented((program.stage, program.end), timed, moving)
    if isinstance(parts, str):
        # Too large for one program, or not scalar: each of its functions is differentiated by XLA instead.
        return results, list(eqx.filter_jvp(program.fn, operands, dots)[1])
    t0, t1, y0, f0, x, *parameters = operands
    ends = zip(operands[:4], dots, strict=False)
    t0_dot, t1_dot, y0_dot, f0_dot = (jnp.zeros_like(x) if dot is None else dot for x, dot in ends)
    # k = h f changes with h too: k̇ = h (ḟ + η f), and so does the slope at the start, if it is known.
    eta = (t1_dot - t0_dot) / (t1 - t0)
    # State and tangent as one vector of twice the size: stages of both share all intermediate results.
    both = jnp.concatenate([y0, y0_dot]), jnp.concatenate([f0, f0_dot + eta * f0 if timed else f0_dot])
    more = (*((t0, t0_dot, eta) if timed else ()), *(dots[5 + k] for k in moving))
    step = dataclasses.replace(program, stage=parts[0], end=parts[1])
    y1, slopes, _, *rest = step(t0, t1, *both, x, *parameters, *more)
    n, remaining = program.state.shape[0], iter(rest)
    others = (next(remaining) if jnp.issubdtype(x.dtype, jnp.floating) else None for x in results[3:])
    return results, [y1[n:], slopes[:, n:], None, *others]
