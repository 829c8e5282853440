"""Which rows act at a state, and how: independent, redundant, or lost here and nowhere near."""

import equinox as eqx
import equinox.internal as eqxi
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..formulation import AbstractFormulation, contradiction
from ..linalg import lost_rows, open_rows
from ..system import State, System, evaluate_at, jacobian_rate


class Rows(eqx.Module):
    """The rows of a system at a state on the constraints.

    Attributes:
        keep: mask (m,) of the rows in use: those that are independent here, and those that are lost here only.
        lost: mask (m,) of the latter: the motion leads to poses where they are independent again.
        open: mask (m,) of rows that are dependent here and independent nearby, though not along the velocity, so that the
            motion is not determined.
        rank: the numerical rank of C here.
        unfit: whether a choice of the formulation does not fit this pose.
        contradiction: by how much (m,) each row of C v̇ = Γ must be violated here, relative to the sizes of its terms.
    """

    keep: Bool[Array, " m"]
    lost: Bool[Array, " m"]
    open: Bool[Array, " m"]
    rank: Int[Array, ""]
    unfit: Bool[Array, ""]
    contradiction: Float[Array, " m"]


def choose_rows(
    system: System, formulation: AbstractFormulation, state: State, sound: Bool[Array, ""] | bool = True
) -> Rows:
    """Sorts the rows at a state on the constraints, see `lost_rows` and `open_rows` of `jaxmb.linalg`.

    Nothing of it has a derivative. A state that is not sound uses no rows, and costs a batch nothing.
    """
    system, formulation, state = lax.stop_gradient((system, formulation, state))
    t, q, v = state.t, state.q, state.v
    terms = evaluate_at(system, t, q, v, state.scale, jnp.zeros_like(v))
    keep = formulation.prepare(terms) & sound
    rank, none = jnp.sum(keep), jnp.zeros_like(keep)
    unfit = sound & formulation.unfit(terms, keep)
    if not system.m:
        return Rows(keep, none, none, rank, unfit, terms.gamma)
    used = formulation.used(terms)

    def sort() -> tuple[Array, Array, Array]:
        factor = formulation.factorise(used, keep)
        tol, jacobian = formulation.rank_tol, used.jacobian
        along = lambda v, tdot: formulation.in_use(jacobian_rate(system, t, q, v, tdot))
        rate = along(v, 1.0)
        lost, free = lost_rows(factor, jacobian, rate, tol)
        open = open_rows(factor, jacobian, rate, along(free, 0.0), lost, tol)
        return lost, open, contradiction(terms, factor.solve(jnp.zeros_like(v), terms.gamma)[0])

    independent = (none, none, jnp.zeros_like(terms.gamma))
    lost, open, amount = lax.cond(eqxi.unvmap_any((rank < system.m) & sound), sort, lambda: independent)
    return Rows(keep | lost, lost, open, rank, unfit, amount)
