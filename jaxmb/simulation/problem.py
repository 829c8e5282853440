"""The differential equation that Diffrax integrates."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..system import State, System, evaluate_at
from .drift import AbstractDrift

Flow = tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, ""]]


class Problem(eqx.Module):
    """Everything that a step needs besides time and state: (q, v, work)' = (N v, v̇, power).

    `sound` is false for a start that must not be integrated: its first step then ends the run.
    """

    system: System
    formulation: AbstractFormulation
    drift: AbstractDrift
    control: Any
    scale: Float[Array, " m"]
    sound: Bool[Array, ""]

    def inputs(self, t: Array, q: Array, v: Array) -> Array | None:
        """U of the control law, None without one."""
        return None if self.control is None else self.control(t, q, v, self.system.params)

    @eqx.filter_jit
    def derivative(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> Flow:
        """The vector field, with the rows found independent at the last accepted state.

        Power is that of applied forces and inputs, of moving constraints, −bᵀλ, and of explicit time dependence: the
        total energy minus the work stays constant.
        """
        q, v, _ = y
        system = self.system
        applied = system.applied_force(t, q, v, self.inputs(t, q, v))
        terms = evaluate_at(system, t, q, v, self.scale, applied)
        feedback = self.drift.feedback(system, State(t, q, v, self.scale))
        if feedback is not None:
            terms = eqx.tree_at(lambda x: x.gamma, terms, terms.gamma + feedback)
        factor = self.formulation.factorise(terms, keep)
        vdot, multipliers = self.formulation.motion(terms, factor)
        power = jnp.dot(v, applied) - jnp.dot(terms.offset, multipliers) + system.explicit_power(t, q, v)
        return system.qdot(q, v), vdot, power

    @eqx.filter_jit
    def prepare(self, t: Array, y: Flow) -> Bool[Array, " m"]:
        """Decides at an accepted state which rows are independent."""
        problem, t, (q, v, _) = lax.stop_gradient((self, t, y))
        terms = evaluate_at(problem.system, t, q, v, problem.scale, jnp.zeros_like(v))
        return problem.formulation.prepare(terms)

    @eqx.filter_jit
    def correct(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> Flow:
        """The state with its drift corrected."""
        q, v, work = y
        state = self.drift.correct(self.system, self.formulation, State(t, q, v, self.scale), keep)
        return state.q, state.v, work
