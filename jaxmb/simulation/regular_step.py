"""A regular step as functions of arrays, for code that is made of them elsewhere."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..system import State
from .adjoint import integrate
from .certificate import corrected_end
from .compiled_step import basis_shape, specialised
from .engine import not_regular, with_layout
from .regular import regular_if_possible
from .stages import coefficients
from .state_vector import StateVector
from .stepper import Stepper, problem_of
from .vector_field import VectorField

Scalar = Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class StepMethod:
    """The method of a step: y_i = y₀ + Σ a_ij k_j, k_i = h f(t₀ + c_i h, y_i), the last one being the end.

    Attributes:
        a: (r, s), see `Tableau`.
        c: (r,).
        reuses: whether the rate at the end is the first one of the next substep.
        substeps: how many there are in a step.
    """

    a: np.ndarray
    c: np.ndarray
    reuses: bool
    substeps: int

    @classmethod
    def of(cls, step: Stepper) -> "StepMethod":
        """That of a stepper."""
        a, c, _, reuses = coefficients(step.solver)
        return cls(a, c, reuses, step.substeps)


class RegularStep(eqx.Module):
    """What regular steps of a stepper evaluate, as functions of t and x = (q, v, z), z being what a controller remembers.

    Attributes:
        field: the problem far from singular poses.
        in_use: the rows in use.
    """

    field: VectorField
    in_use: Bool[Array, " m"]

    def rate(self, t: Scalar, x: Float[Array, " n"]) -> tuple[Array, Array]:
        """ẋ (n,), and whether rows are about to be lost there, see `VectorField.loses_rows`."""
        flow, _, factor = self.field.evaluate_regular(t, self._vector(x), self.in_use, quick=True)
        return _packed(flow), self.field.loses_rows(factor)

    def begin(self, t: Scalar, x: Float[Array, " n"]) -> tuple[Array, Array, Array, Array]:
        """At the start of a step ẋ, λ (m,), zero of rows that are not in use, the basis that its end is compared with, and whether rows are not certain there."""
        y, none = self._vector(x), jnp.zeros(basis_shape(self.field.system), x.dtype)
        flow, multipliers, _, factor = self.field.with_multipliers(t, y, self.in_use, quick=True)
        _, correction, uncertified = corrected_end(self.field, t, y, self.in_use, none)
        return _packed(flow), multipliers, correction.basis, uncertified | self.field.loses_rows(factor)

    def end(
        self, t: Scalar, x: Float[Array, " n"], before: Float[Array, "m k"]
    ) -> tuple[Array, Array, Array, Array, Array]:
        """At the end of a step ẋ, x corrected, the basis, whether rows in use are not certain, and whether residuals are left."""
        raw = self._vector(x)
        flow, correction, uncertified = corrected_end(self.field, t, raw, self.in_use, before)
        y1 = self.field.with_correction(t, raw, correction)
        closed = self.field.closed(self.field.relative_residuals(correction))
        return _packed(flow), _packed(y1), correction.basis, uncertified, ~closed

    def inputs(self, t: Scalar, x: Float[Array, " n"]) -> Float[Array, " nu"]:
        """What the controller puts out."""
        u = self.field.inputs(t, self._vector(x), self.in_use)
        assert u is not None
        return u

    def _vector(self, x: Float[Array, " n"]) -> StateVector:
        nq, nv = self.field.system.nq, self.field.system.nv
        return StateVector.of(x[:nq], x[nq : nq + nv], jnp.zeros((), x.dtype), x[nq + nv :])


def regular_step(step: Stepper, state: State, u: Float[Array, " nu"] | None) -> RegularStep:
    """The functions of a stepper's regular steps.

    Args:
        step: its numbers may be traced, but not its `independent` rows.
        state: one of its mode, with what its controller remembers.
        u: inputs (nu,); None of a system without, and with a controller.

    Raises:
        ValueError: where steps are never regular.
    """
    inputs, method = problem_of(step, state, u)
    reason = not_regular(method, inputs.field)
    if reason is not None:
        raise ValueError(f"Argument `step` must make regular steps, but {reason}.")
    if inputs.field.takes_samples:
        raise ValueError(
            f"Argument `step` must act in continuous time, but `{type(step.control).__name__}` holds its outputs between samples: give them as `u` of "
            "each step, or export the program of XLA by `jaxmb.export.stablehlo`."
        )
    field = with_layout(method, inputs.field, inputs.y0)
    return RegularStep(specialised(field), field.system.acting & jax.lax.stop_gradient(step.independent))


def regular_end(
    step: Stepper, state: State, u: Float[Array, " nu"] | None
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """The vector x at the end of a step, and whether it was made by regular steps only."""
    inputs, method = problem_of(step, state, u)
    field = regular_if_possible(method, inputs.field, inputs.t0, inputs.y0, step.independent)
    motion = integrate(dataclasses.replace(inputs, field=field), method)
    good = ~motion.irregular & inputs.field.consistent & (motion.result == dfx.RESULTS.successful)
    return _packed(motion.y), good & motion.y.finite


def _packed(y: StateVector) -> Float[Array, " n"]:
    """(q, v, z), or its rate."""
    return jnp.concatenate([y.q, y.v, y.control])
