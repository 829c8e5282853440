"""Steps in plain JAX far from singular configurations."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..kinematics import Correction
from .certificate import corrected_end, correction_by
from .compiled_step import Found, basis_shape
from .problem import Problem
from .stages import Tableau, all_stages
from .state_vector import StateVector


class UncompiledStep(eqx.Module):
    """A step far from singular poses, used as `CompiledStep` is.

    Attributes:
        problem: the problem.
        solver: of Diffrax, explicit.
    """

    problem: Problem
    solver: dfx.AbstractERK

    def __call__(
        self, t0: Array, t1: Array, y0: StateVector, slope: StateVector, in_use: Bool[Array, " m"], basis: Array
    ) -> Found:
        """One step from a state at which the rows in use are certain, and the slope known if the method has use for it."""
        problem, tableau = self.problem, Tableau.of(self.solver, t0.dtype)
        stages = all_stages(problem, tableau, t0, t1, y0, in_use, slope, tableau.fsal)
        raw, last = stages.raw, stages.last
        end, doubtful = correction_by(problem, t1, raw, last.flow, last.terms, last.factor, basis)
        return Found(raw, stages.slopes, problem.ended(t1, raw, end), end, jnp.any(stages.near) | doubtful)

    def at(
        self, t: Array, y: StateVector, in_use: Bool[Array, " m"]
    ) -> tuple[StateVector, Correction, Bool[Array, ""]]:
        """The vector field at a state, its correction, and whether rows in use are not certain there."""
        nothing: Any = jnp.zeros(basis_shape(self.problem.system), y.packed.dtype)
        return corrected_end(self.problem, t, y, in_use, nothing)
