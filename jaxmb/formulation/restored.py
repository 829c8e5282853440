"""Rows that are lost at a singular pose, restored by their derivatives."""

import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..dependence import Decision
from ..linalg import ConstrainedFactor, solve_square
from ..system import Nearby, Terms

if TYPE_CHECKING:
    from .base import AbstractFormulation


class Lost(eqx.Module):
    """What the rows lost at a pose demand: Zᵀ(K v̇ − k) = 0.

    Attributes:
        mask: mask (m,) of the lost rows; the others are zero in what follows.
        matrix: ZᵀK (m, nv).
        drift: Zᵀk (m,).
        square: how ZᵀK v̇ answers to values of the lost rows, these in units of their sizes; that of I in the other rows.
    """

    mask: Bool[Array, " m"]
    matrix: Float[Array, "m nv"]
    drift: Float[Array, " m"]
    square: Float[Array, "m m"]


class Restored(eqx.Module):
    """The rows in use at a pose, whether some are lost there or not.

    Attributes:
        terms: with the rows ZᵀĊ in place of the lost ones.
        in_use: mask (m,) of the rows in use.
        undefined: mask (m,) of the rows whose multipliers are undefined.
        open: whether the motion is open.
        lost: what the lost rows demand; None where none can be lost.
    """

    terms: Terms
    in_use: Bool[Array, " m"]
    undefined: Bool[Array, " m"]
    open: Bool[Array, ""]
    lost: Lost | None

    @classmethod
    def nothing(cls, terms: Terms, in_use: Bool[Array, " m"]) -> "Restored":
        """The rows as they are."""
        return cls(terms, in_use, jnp.zeros_like(in_use), jnp.array(False), None)

    def completed(
        self,
        formulation: "AbstractFormulation",
        factor: ConstrainedFactor,
        force: Float[Array, " nv"],
        gamma: Float[Array, " m"],
        drift: Float[Array, " m"],
    ) -> Terms:
        """The terms for a force and values of the rows, those of the lost rows such that ZᵀK v̇ is `drift` there."""
        if self.lost is None:
            return eqx.tree_at(lambda t: (t.force, t.gamma), self.terms, (force, gamma))
        gone = self.lost.mask
        start = eqx.tree_at(lambda t: (t.force, t.gamma), self.terms, (force, jnp.where(gone, 0, gamma)))
        free = formulation.motion(start, factor)[0]
        values = solve_square(self.lost.square, jnp.where(gone, drift - self.lost.matrix @ free, 0))
        return eqx.tree_at(lambda t: t.gamma, start, jnp.where(gone, values * self.terms.scale, gamma))


def restore(formulation: "AbstractFormulation", terms: Terms, decision: Decision, nearby: Nearby) -> Restored:
    """The rows lost here replaced by ZᵀĊ, along which their reaction acts, with values by which Zᵀ(K v̇ − k) = 0.

    Derivatives are those of the other rows: where a row is lost that of the formula is not that of the motion anyway.
    """
    given = dataclasses.replace(terms, layout=None)  # ZᵀĊ may read any velocity
    terms, nearby = lax.stop_gradient((given, nearby))
    in_use, gone = decision.in_use, decision.lost
    combined = decision.combined / terms.scale
    rows = combined @ decision.rate
    length = jnp.where(gone, jnp.linalg.norm(rows @ decision.root.T, axis=1), terms.scale)
    known = lambda t: (t.jacobian, t.scale)
    restored = eqx.tree_at(known, terms, (jnp.where(gone[:, None], rows, terms.jacobian), length))
    factor = formulation.factorise(restored, in_use | gone, 0.0)

    def vdot(gamma: Array) -> Array:
        return formulation.motion(eqx.tree_at(lambda t: t.gamma, restored, gamma), factor)[0]

    start = jnp.where(gone, 0, terms.gamma)
    free = vdot(start)
    responses = jax.vmap(lambda unit: vdot(start + unit) - free)(jnp.diag(length))
    matrix = combined @ (decision.rate - nearby.gamma_by_velocity())
    both = gone[:, None] & gone
    # Rows and columns in units of their own, of which those of the responses are σ.
    square = jnp.where(both, matrix @ responses.T, jnp.eye(in_use.shape[0]))
    drift = jnp.where(gone, combined @ nearby.vector(), 0)
    lost = Lost(gone, jnp.where(gone[:, None], matrix, 0), drift, square)
    involved = jnp.abs(decision.combined) > formulation.rank_tol
    undefined = jnp.any(gone[:, None] & involved, axis=0)
    undefined |= ~(in_use | gone) & jnp.any(involved & undefined, axis=1)
    found = Restored(restored, in_use | gone, undefined, jnp.any(decision.open), lost)
    gamma = found.completed(formulation, factor, terms.force, terms.gamma, drift).gamma
    rows, length = jnp.where(gone[:, None], rows, given.jacobian), jnp.where(gone, length, given.scale)
    gamma = jnp.where(gone, gamma, given.gamma)
    final = eqx.tree_at(lambda t: (*known(t), t.gamma), given, (rows, length, gamma))
    return eqx.tree_at(lambda r: r.terms, found, final)
