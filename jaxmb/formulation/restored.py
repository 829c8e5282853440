"""Rows that are degenerate at a singular pose, restored by their derivatives."""

import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..deferral import with_fallback
from ..dependence import Decision
from ..linalg import ConstrainedFactor, solve_square
from ..system import Nearby, Terms

if TYPE_CHECKING:
    from .base import AbstractFormulation


class SecondOrderCondition(eqx.Module):
    """The condition of the rows degenerate at a pose, which is of second order: Zᵀ(K v̇ − k) = 0.

    Attributes:
        mask: mask (m,) of the degenerate rows; only these count in what follows.
        matrix: ZᵀK (m, nv).
        drift: Zᵀk (m,).
        square: the change (m, m) of ZᵀK v̇ by values of the degenerate rows in units of their sizes; the identity in the other rows.
    """

    mask: Bool[Array, " m"]
    matrix: Float[Array, "m nv"]
    drift: Float[Array, " m"]
    square: Float[Array, "m m"]


class RestoredRows(eqx.Module):
    """The rows in use at a pose, whether some are degenerate there or not.

    Attributes:
        terms: with the rows ZᵀĊ in place of the degenerate ones.
        in_use: mask (m,) of the rows in use.
        undefined: mask (m,) of the rows whose multipliers are undefined.
        indeterminate: whether several motions are possible.
        condition: the condition of the degenerate rows; None where none can be degenerate.
    """

    terms: Terms
    in_use: Bool[Array, " m"]
    undefined: Bool[Array, " m"]
    indeterminate: Bool[Array, ""]
    condition: SecondOrderCondition | None

    @classmethod
    def unchanged(cls, terms: Terms, in_use: Bool[Array, " m"]) -> "RestoredRows":
        """The rows as they are."""
        return cls(terms, in_use, jnp.zeros_like(in_use), jnp.array(False), None)

    def terms_for(
        self,
        formulation: "AbstractFormulation",
        factor: ConstrainedFactor,
        force: Float[Array, " nv"],
        gamma: Float[Array, " m"],
        drift: Float[Array, " m"],
    ) -> Terms:
        """The terms for a force and values of the rows, those of the degenerate rows such that ZᵀK v̇ is `drift` there."""
        if self.condition is None:
            return dataclasses.replace(self.terms, force=force, gamma=gamma)
        replaced = self.condition.mask
        start = dataclasses.replace(self.terms, force=force, gamma=jnp.where(replaced, 0, gamma))
        free = formulation.motion(start, factor)[0]
        values = solve_square(self.condition.square, jnp.where(replaced, drift - self.condition.matrix @ free, 0))
        return dataclasses.replace(start, gamma=jnp.where(replaced, values * self.terms.scale, gamma))


def restore(formulation: "AbstractFormulation", terms: Terms, decision: Decision, nearby: Nearby) -> RestoredRows:
    """The rows degenerate here replaced by ZᵀĊ, along which their reaction acts, with values by which Zᵀ(K v̇ − k) = 0.

    Derivatives are those of the other rows: where a row is degenerate that of the formula is not that of the motion anyway.
    """
    original = dataclasses.replace(terms, layout=None)  # ZᵀĊ may read any velocity
    # k holds third derivatives of φ: its own derivatives would cost fourth ones, for a formula whose derivative is not that of the
    # motion.
    detached, replaced = lax.stop_gradient((original, decision, nearby)), decision.degenerate
    rates, drift, none = map(jnp.zeros_like, (detached[0].jacobian, detached[0].gamma, replaced))
    condition = SecondOrderCondition(none, rates, drift, jnp.eye(drift.size, dtype=drift.dtype))
    fields = lambda t: (t.jacobian, t.scale, t.gamma)
    # Compiled only where a row is degenerate, as few are.
    (rows, length, gamma), undefined, condition = with_fallback(
        jnp.any(replaced), _by_derivatives, (formulation, *detached), (fields(detached[0]), none, condition)
    )
    # The original terms in all other rows, so that their derivatives are exact.
    rows = jnp.where(replaced[:, None], rows, original.jacobian)
    gamma = jnp.where(replaced, gamma, original.gamma)
    restored = dataclasses.replace(original, jacobian=rows, scale=length, gamma=gamma)
    return RestoredRows(restored, decision.in_use | replaced, undefined, jnp.any(decision.indeterminate), condition)


def _by_derivatives(
    formulation: "AbstractFormulation", terms: Terms, decision: Decision, nearby: Nearby
) -> tuple[tuple[Array, Array, Array], Array, SecondOrderCondition]:
    """C, σ and Γ with the restored rows, the mask of the rows whose multipliers are undefined, and the condition; see `restore`."""
    in_use, replaced = decision.in_use | decision.degenerate, decision.degenerate
    combined = decision.combined / terms.scale
    rows = combined @ decision.rate
    # A row of ZᵀĊ has other units than the row that it replaces: σ of that would say nothing of its size.
    length = jnp.where(replaced, jnp.linalg.norm(rows @ decision.root.T, axis=1), terms.scale)
    restored = dataclasses.replace(terms, jacobian=jnp.where(replaced[:, None], rows, terms.jacobian), scale=length)
    factor = formulation.factorise(restored, in_use, 0.0)

    def vdot(gamma: Array) -> Array:
        return formulation.motion(dataclasses.replace(restored, gamma=gamma), factor)[0]

    # v̇ is affine in the values of the rows: one response for each.
    free = vdot(jnp.zeros_like(terms.gamma))
    responses = jax.vmap(lambda unit: vdot(unit) - free)(jnp.diag(length))
    matrix = combined @ (decision.rate - nearby.gamma_by_velocity())
    both = replaced[:, None] & replaced
    # Rows and columns in units of their own, of which those of the responses are σ.
    square = jnp.where(both, matrix @ responses.T, jnp.eye(in_use.shape[0], dtype=matrix.dtype))
    drift = combined @ nearby.right_hand_side()
    condition = SecondOrderCondition(replaced, matrix, drift, square)
    # Multipliers grow like 1/distance in all rows of a degenerate combination, and so in redundant rows that depend on these.
    involved = jnp.abs(decision.combined) > formulation.rank_tol
    undefined = jnp.any(replaced[:, None] & involved, axis=0)
    undefined |= jnp.any(involved & undefined, axis=1)
    restoration = RestoredRows(restored, in_use, undefined, jnp.any(decision.indeterminate), condition)
    gamma = restoration.terms_for(formulation, factor, terms.force, terms.gamma, drift).gamma
    return (restored.jacobian, length, gamma), undefined, condition
