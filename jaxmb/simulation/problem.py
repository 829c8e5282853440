"""The differential equation that Diffrax integrates."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..foundations import where_needed
from ..kinematics import CLOSE, NEAR, Frame, Rows, choose_rows
from ..linalg import ConstrainedFactor
from ..system import Scale, State, System, evaluate_at, jacobian_rate, position_residual, rows_at
from .drift import AbstractDrift

Flow = tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, ""]]


# The states of `Problem.near_singular`, in units of τ, and their weights.
OFFSETS = (1.0, -1.0, 2.0, -2.0, 3.0, -3.0)
WEIGHTS = (0.75, 0.75, -0.3, -0.3, 0.05, 0.05)


class Problem(eqx.Module):
    """Everything that a step needs besides time and state: (q, v, work)' = (N v, v̇, power).

    `sound` is false for a start that must not be integrated: its first step then ends the run. `choice` is the first choice
    of the formulation, which may hold a later one.
    """

    system: System
    formulation: AbstractFormulation
    drift: AbstractDrift
    control: Any
    scale: Scale
    sound: Bool[Array, ""]
    choice: Bool[Array, " n"] | None

    def inputs(self, t: Array, q: Array, v: Array) -> Array | None:
        """U of the control law, None without one."""
        return None if self.control is None else self.control(t, q, v, self.system.params)

    @eqx.filter_jit
    def derivative(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> Flow:
        """The vector field, with the rows that were in use at the last accepted state."""
        return self.sampled(t, y, keep)[0]

    def sampled(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> tuple[Flow, Bool[Array, ""], Array]:
        """The vector field, whether rows in use are close to being dependent there, and the τ of `near_singular`."""
        flow, factor = self.regular(t, y, keep)
        far, zero = jnp.array(False), jnp.zeros_like(t)
        if not self.system.m:
            return flow, far, zero
        near = factor.gap < NEAR
        flow, tau = where_needed(near, Problem.near_singular, (self, t, y, keep, factor), (flow, zero))
        return flow, near, tau

    @eqx.filter_jit
    def regular(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> tuple[Flow, ConstrainedFactor]:
        """The vector field by the rows that are not lost at this very state, and their factors.

        Power is that of applied forces and inputs, of moving constraints, −bᵀλ, and of explicit time dependence: the
        total energy minus the work stays constant.
        """
        q, v, _ = y
        system = self.system
        applied = system.applied_force(t, q, v, self.inputs(t, q, v))
        terms = evaluate_at(system, t, q, v, self.scale.row, applied)
        feedback = self.drift.feedback(system, State(t, q, v, self.scale))
        if feedback is not None:
            terms = eqx.tree_at(lambda x: x.gamma, terms, terms.gamma + feedback)
        factor = self.formulation.factorise(terms, keep, quick=True)
        vdot, multipliers = self.formulation.motion(terms, factor)
        power = jnp.dot(v, applied) - jnp.dot(terms.offset, multipliers) + system.explicit_power(t, q, v)
        return (system.qdot(q, v), vdot, power), lax.stop_gradient(factor)

    def near_singular(
        self, t: Array, y: Flow, keep: Bool[Array, " m"], factor: ConstrainedFactor
    ) -> tuple[Flow, Array]:
        """The vector field where rows in use are close to being dependent, and τ.

        A stage lies off the constraints by some e, and errors of the size of e divided by the gap enter the acceleration
        of a stage that is not corrected first. Where the gap is not large compared with e, the vector field is that at six
        corrected states along the motion, at ±τ, ±2τ and ±3τ, with τ such that the gap is large enough there, interpolated:
        Σ (15 f(±τ) − 6 f(±2τ) + f(±3τ))/20 = f(0) + O(τ⁶). It has the right derivatives too.
        """
        q, v, work = y
        qdot = self.system.qdot(q, v)
        tau = lax.stop_gradient(self._spacing(t, q, v, factor))
        lost = tau > 0
        offsets = tau * jnp.array(OFFSETS)
        weights = jnp.where(lost, jnp.array(WEIGHTS), jnp.eye(6)[0])

        def sample(offset: Array) -> Flow:
            moved = self.correct(t + offset, (q + offset * qdot, v, work), keep)
            return self.regular(t + offset, moved, keep)[0]

        def add(total: Flow, part: tuple[Array, Array, Array]) -> tuple[Flow, None]:
            needed, offset, weight = part
            more = lambda: jax.tree.map(lambda a, b: a + weight * b, total, sample(offset))
            return lax.cond(needed, more, lambda: total), None

        needed = (jnp.arange(6) == 0) | eqxi.unvmap_any(lost)
        return lax.scan(add, jax.tree.map(jnp.zeros_like, y), (needed, offsets, weights))[0], tau

    def _spacing(self, t: Array, q: Array, v: Array, factor: ConstrainedFactor) -> Array:
        """τ in s; zero where the rows are far enough from being dependent, or do not get further by the motion.

        Far enough is a remainder that is not small beside the state's distance from the constraints. It must grow at a
        twentieth of the speed of the fastest row at least, else a τ that makes it large would leave the neighbourhood.
        """
        off = jnp.max(jnp.abs(position_residual(self.system, t, q)) / self.scale.span, initial=0)
        least = jnp.clip(30 * off, CLOSE, NEAR / 3)
        near = factor.remainders < least
        rates = jacobian_rate(self.system, t, q, v)
        growth = factor.vanishing @ (rates / factor.scale[:, None]) @ factor.root.T
        others = jnp.where(near[:, None], 0, factor.basis)
        growth = jnp.linalg.norm(growth - (growth @ others.T) @ others, axis=1)
        lost = near & (growth > 0.05 * jnp.max(factor.speeds(rates), initial=0))
        return jnp.where(jnp.any(lost), 2 * least / jnp.min(jnp.where(lost, growth, jnp.inf)), 0)

    @eqx.filter_jit
    def prepare(self, t: Array, y: Flow, present: Bool[Array, " n"] | None) -> Rows:
        """Decides at an accepted state which rows are in use, and what the formulation chooses."""
        q, v, _ = y
        return choose_rows(self.system, self.formulation, State(t, q, v, self.scale), self.sound, present)

    def holding(self, choice: Bool[Array, " n"] | None) -> "Problem":
        """The problem with a choice of its formulation."""
        return eqx.tree_at(lambda p: p.formulation, self, self.formulation.holding(choice))

    @eqx.filter_jit
    def independent(self, t: Array, y: Flow) -> Bool[Array, " m"]:
        """The rows that are independent at a state near the constraints."""
        problem, t, (q, _, _) = lax.stop_gradient((self, t, y))
        return problem.formulation.prepare(rows_at(problem.system, t, q, problem.scale.row))

    def correct(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> Flow:
        """The state with its drift corrected."""
        return self.framed(t, y, keep)[0]

    @eqx.filter_jit
    def framed(self, t: Array, y: Flow, keep: Bool[Array, " m"]) -> tuple[Flow, Frame | None]:
        """The state with its drift corrected, and the rows as that has found them."""
        q, v, work = y
        state, frame = self.drift.correct(self.system, self.formulation, State(t, q, v, self.scale), keep)
        return (state.q, state.v, work), frame

    def correction(self, t: Array, y: Flow, found: Flow, keep: Bool[Array, " m"]) -> Callable[["Problem", Flow], Flow]:
        """A function of problem and state that has the derivative of `correct`, which has made `found` of `y`."""
        state, there = (State(t, q, v, self.scale) for q, v, _ in (y, found))
        fn = self.drift.linearised(self.system, self.formulation, state, there, keep)

        def correct(problem: Problem, y: Flow) -> Flow:
            found = fn(problem.system, State(t, y[0], y[1], problem.scale))
            return found.q, found.v, y[2]

        return correct
