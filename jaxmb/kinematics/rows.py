"""Which rows act at a state, and how: independent, redundant, or lost here and nowhere near."""

import equinox as eqx
import equinox.internal as eqxi
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..formulation import AbstractFormulation, contradiction, contradiction_tol
from ..linalg import lost_rows, open_rows
from ..system import State, System, gamma, jacobian_rate, rows_at


class Rows(eqx.Module):
    """The rows of a system at a state on the constraints.

    Attributes:
        keep: mask (m,) of the rows in use: those that are independent here, and those that are lost here only.
        lost: mask (m,) of the latter: the motion leads to poses where they are independent again.
        open: mask (m,) of rows that are dependent here and independent nearby, though not along the velocity, so that the
            motion is not determined.
        rank: the numerical rank of C here.
        choice: the formulation's choice; None if it chooses nothing.
        unfit: whether it does not fit this pose.
        contradiction: by how much (m,) each row of C v̇ = Γ must be violated here, relative to the sizes of its terms.
    """

    keep: Bool[Array, " m"]
    lost: Bool[Array, " m"]
    open: Bool[Array, " m"]
    rank: Int[Array, ""]
    choice: Bool[Array, " n"] | None
    unfit: Bool[Array, ""]
    contradiction: Float[Array, " m"]

    @property
    def contradictory(self) -> Bool[Array, ""]:
        """Whether no acceleration satisfies all rows."""
        return jnp.any(self.contradiction > contradiction_tol(self.contradiction.dtype))


def choose_rows(
    system: System,
    formulation: AbstractFormulation,
    state: State,
    sound: Bool[Array, ""] | bool = True,
    present: Bool[Array, " n"] | None = None,
) -> Rows:
    """Sorts the rows at a state on the constraints, see `lost_rows` and `open_rows` of `jaxmb.linalg`.

    Nothing of it has a derivative. A state that is not sound uses no rows, and costs a batch nothing.

    Args:
        system: the system.
        formulation: gives metric and cut-off, and makes its choice.
        state: the state.
        sound: whether to look at all.
        present: the formulation's choice so far.
    """
    system, formulation, state = lax.stop_gradient((system, formulation, state))
    t, q, v = state.t, state.q, state.v
    terms = rows_at(system, t, q, state.scale.row)
    choice = formulation.choose(terms, present)
    formulation = formulation.holding(choice)
    keep = formulation.prepare(terms) & sound
    rank, none = jnp.sum(keep), jnp.zeros_like(keep)
    unfit = lambda lost: sound & formulation.unfit(terms, keep, jnp.sum(lost))
    if not system.m:
        return Rows(keep, none, none, rank, choice, unfit(none), terms.gamma)

    def sort() -> tuple[Array, Array, Array]:
        used = formulation.used(terms)
        factor = formulation.factorise(used, keep, 0.0)
        tol, jacobian = formulation.rank_tol, used.jacobian
        along = lambda v, tdot: formulation.in_use(jacobian_rate(system, t, q, v, tdot))
        rate = along(v, 1.0)
        still = state.scale.still
        lost, free = lost_rows(factor, jacobian, rate, still(v), tol)
        open = open_rows(factor, jacobian, rate, along(free, 0.0), lost, (still(v), still(free)), tol)
        moving = gamma(system, t, q, v)
        # Where all of Γ is rounding, what it is made of tells its usual size.
        vdot, usual = factor.solve(jnp.zeros_like(v), moving)[0], jnp.abs(rate) @ jnp.abs(v)
        amount = contradiction(terms.jacobian, moving, terms.scale, vdot, usual)
        return lost, open, amount

    independent = (none, none, jnp.zeros_like(terms.gamma))
    acting = system.m if system.active is None else jnp.sum(system.active)
    lost, open, amount = lax.cond(eqxi.unvmap_any((rank < acting) & sound), sort, lambda: independent)
    return Rows(keep | lost, lost, open, rank, choice, unfit(lost), amount)
