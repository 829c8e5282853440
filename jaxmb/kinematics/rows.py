"""Which rows act at a state, and how: independent, redundant, or degenerate here and nowhere near."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from ..formulation import AbstractFormulation, contradiction, contradiction_tol
from ..foundations import where_any
from ..system import Nearby, State, System, gamma, rows_at


class Rows(eqx.Module):
    """The rows of a system at a state on the constraints.

    Attributes:
        in_use: mask (m,) of the rows in use: those that are independent here, and those that are degenerate here only.
        degenerate: mask (m,) of the latter: the motion leads to poses where they are independent again.
        indeterminate: mask (m,) of rows that are dependent here and independent nearby, though not along the velocity, so that the
            motion is not determined.
        rank: the numerical rank of C here.
        choice: the formulation's choice; None if it chooses nothing.
        unfit: whether it does not fit this pose.
        contradiction: by how much (m,) each row of C v̇ = Γ must be violated here, relative to the sizes of its terms.
    """

    in_use: Bool[Array, " m"]
    degenerate: Bool[Array, " m"]
    indeterminate: Bool[Array, " m"]
    rank: Int[Array, ""]
    choice: Bool[Array, " n"] | None
    unfit: Bool[Array, ""]
    contradiction: Float[Array, " m"]

    @classmethod
    def independent(cls, in_use: Bool[Array, " m"], dtype: DTypeLike) -> "Rows":
        """Rows in use that are independent, where the others are redundant."""
        none = jnp.zeros_like(in_use)
        return cls(
            in_use=in_use,
            degenerate=none,
            indeterminate=none,
            rank=jnp.sum(in_use),
            choice=None,
            unfit=jnp.array(False),
            contradiction=none.astype(dtype),
        )

    @property
    def contradictory(self) -> Bool[Array, ""]:
        """Whether no acceleration satisfies all rows."""
        return jnp.any(self.contradiction > contradiction_tol(self.contradiction.dtype))


def choose_rows(
    system: System,
    formulation: AbstractFormulation,
    state: State,
    consistent: Bool[Array, ""] | bool = True,
    present: Bool[Array, " n"] | None = None,
) -> Rows:
    """Sorts the rows at a state on the constraints, see `jaxmb.dependence.decide`.

    Nothing of it has a derivative. A state that is not sound uses no rows, and costs a batch nothing.

    Args:
        system: the system.
        formulation: gives metric and cut-off, and makes its choice.
        state: the state.
        consistent: whether to look at all.
        present: the formulation's choice so far.
    """
    system, formulation, state = lax.stop_gradient((system, formulation, state))
    t, q, v = state.t, state.q, state.v
    terms = rows_at(system, t, q, state.scale.row)
    choice = formulation.choose(terms, present)
    formulation = formulation.with_choice(choice)
    # Static: a system without rows has no rank rule in its program.
    if not system.m:
        none = jnp.zeros(0, bool)
        unfit = consistent & formulation.unfit(terms, none, jnp.array(0))
        return dataclasses.replace(Rows.independent(none, q.dtype), choice=choice, unfit=unfit)
    decision = formulation.decide(terms, Nearby(system, state), consistent)
    # Without the degenerate rows, which are in use all the same: their derivative acts here, and they themselves nearby.
    rank = jnp.sum(decision.in_use)

    def contradicted() -> Array:
        moving = gamma(system, t, q, v)
        vdot = decision.particular(formulation.mask_excluded(moving) / terms.scale)
        return contradiction(terms.jacobian, moving, terms.scale, vdot, state.scale.rate * jnp.abs(v))

    acting = system.m if system.active is None else jnp.sum(system.active)
    # Independent rows cannot contradict each other, whatever Γ: most states need no solution for it.
    deficient = (rank < acting) & consistent
    amount = where_any(deficient, contradicted, jnp.zeros_like(terms.gamma))
    unfit = consistent & formulation.unfit(terms, decision.in_use, jnp.sum(decision.degenerate))
    return Rows(
        in_use=decision.in_use | decision.degenerate,
        degenerate=decision.degenerate,
        indeterminate=decision.indeterminate,
        rank=rank,
        choice=choice,
        unfit=unfit,
        contradiction=amount,
    )
