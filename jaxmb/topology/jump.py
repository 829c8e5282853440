"""Jumps of velocity by impulsive constraint forces."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import KKT, CoordinatePartition, contradiction_tol
from ..foundations import RESULTS, result_of
from ..linalg import ConstrainedFactor, independent_rows, projector, stiffened
from ..system import Mode, Scale, State, System, Terms, rows_at, velocity_residual

Scalar = Float[Array, ""]


class Jump(eqx.Module):
    """The mode and the state after one instant, with impulses and verdicts.

    Attributes:
        mode: the mode from then on.
        q, v: the state from then on.
        impulses: Λ (m + k,), zero where nothing acts.
        loss: T⁻ − T⁺ in J.
        mismatch: largest |φ/Φ| of a constraint that begins to act.
        doubtful: whether a guard or a brake decided by a reaction that a rigid model does not determine.
        result: whether there are velocities that satisfy all constraints that act.
    """

    mode: Mode
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    impulses: Float[Array, " m"]
    loss: Scalar
    mismatch: Scalar
    doubtful: Bool[Array, ""]
    result: RESULTS


# So many units of rounding, of velocities and of sums of energies, are nothing.
ROUNDING = 100


def energy_loss(
    mass: Float[Array, "nv nv"], before: Float[Array, " nv"], step: Float[Array, " nv"], scale: Scale
) -> Scalar:
    """T⁻ − T⁺ = −½ Δvᵀ M (v⁻ + v⁺), zero where that is rounding; its derivative stays."""
    after, rounding = before + step, ROUNDING * jnp.finfo(before.dtype).eps
    loss = -0.5 * jnp.dot(step, mass @ (before + after))
    size = lambda a, b: jnp.abs(a) @ jnp.abs(mass) @ jnp.abs(b)
    cancelled = jnp.abs(loss) <= 0.5 * rounding * (size(step, before) + size(step, after))
    # Velocities that are rounding beside those of the motion, as of what stands still already, jump by rounding.
    moving = jnp.maximum(size(before, before), jnp.diagonal(mass) @ (scale.reach * scale.rate) ** 2)
    none = cancelled | (size(step, step) <= rounding**2 * moving)
    return loss - lax.stop_gradient(jnp.where(none, loss, 0))


def impulse_terms(
    system: System,
    state: State,
    impulse: Float[Array, " nv"],
    restitution: Float[Array, " m"],
    consistent: bool | Bool[Array, ""] = True,
) -> Terms:
    """The equations M Δv = U + CᵀΛ, C Δv = −(1 + e)(C v⁻ + b) of the rows that act (Müller, eqs. 22 and 24), as `Terms`.

    They have the form of the equations of motion, so that any formulation solves them: Δv is its acceleration, Λ its multipliers.
    The system is in the mode in which the impulses act. If not `consistent`, M is replaced by the identity.
    """
    t, q, v = state.t, state.q, state.v
    # Forces and Γ are not evaluated: finite ones have no impulse within an instant.
    terms = rows_at(system, t, q, state.scale.row)
    mass = jnp.where(consistent, terms.mass, jnp.eye(system.nv, dtype=terms.mass.dtype))
    offset = velocity_residual(system, t, q, jnp.zeros_like(v))
    # σ was measured in the metric of M. In that of the identity it would be in other units, so that rows are compared by their own
    # lengths there. The norm of a zero row has a NaN derivative, and sizes need none.
    sizes = jnp.linalg.norm(lax.stop_gradient(terms.jacobian), axis=1)
    scale = jnp.where(consistent | (sizes == 0), terms.scale, sizes)
    # C v⁻ + b is reversed by an impact with restitution e: C v⁺ + b = −e (C v⁻ + b).
    gamma = -(1 + restitution) * (terms.jacobian @ v + offset)
    return dataclasses.replace(terms, mass=mass, force=impulse, offset=offset, gamma=gamma, scale=scale)


def jump_result(terms: Terms, v: Float[Array, " nv"], step: Float[Array, " nv"], outcome: RESULTS) -> RESULTS:
    """Whether v⁺ = v + Δv satisfies all rows, relative to the sizes of C v⁻, C v⁺ and b; with failures of the solution itself."""
    terms, v, step = lax.stop_gradient((terms, v, step))
    jacobian, scale = jnp.abs(terms.jacobian), terms.scale
    # Of the formulation's own verdict only the unfit choice counts: it compares with Γ = −(1 + e)(C v⁻ + b), which is rounding where v⁻
    # satisfies the rows already. The velocities themselves are the measure here.
    size = (jacobian @ (jnp.abs(v) + jnp.abs(v + step)) + jnp.abs(terms.offset)) / scale
    off = jnp.abs(terms.jacobian @ step - terms.gamma) / scale
    # A row along which nothing moves is compared with a millionth of the largest one, as its own size is rounding.
    satisfied = jnp.all(off <= contradiction_tol(v.dtype) * jnp.maximum(size, 1e-6 * jnp.max(size, initial=0)))
    return result_of(
        (~satisfied, RESULTS.contradictory_constraints),
        (~jnp.all(jnp.isfinite(step)) | ~jnp.all(jnp.isfinite(off)), RESULTS.nonfinite),
        (outcome == RESULTS.unfit_choice, RESULTS.unfit_choice),
    )


def _regular(terms: Terms) -> Terms:
    """The same equations with a mass matrix that is positive definite, where M is so on null(C) only."""
    metric, weighted = stiffened(terms.mass, terms.jacobian, terms.scale)
    return dataclasses.replace(terms, mass=metric, force=terms.force + weighted @ terms.gamma)


def projected(
    terms: Terms, persistent: Bool[Array, " m"], rank_tol: float
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Δv and Λ₂ in redundant coordinates, persistent constraints being projected out (Müller, eq. 32).

    With N₁ the M-orthogonal projector on null(C₁): M Δv = N₁ᵀ(U + C₂ᵀΛ₂) + M C₁⁺γ₁ and C₂ Δv = γ₂. The right-hand side has
    N₁ᵀU, and C₁⁺γ₁ where the persistent constraints demand a jump too.
    """
    terms = _regular(terms)
    first = jnp.where(persistent[:, None], terms.jacobian, 0)
    in_use = independent_rows(terms.mass, first, terms.scale, rank_tol)
    factor = ConstrainedFactor(terms.mass, first, terms.scale, in_use, rank_tol)
    onto = projector(factor)
    particular = factor.solve(jnp.zeros_like(terms.force), jnp.where(persistent, terms.gamma, 0))[0]
    # σ stays that of C₂ although the projection shortens rows: one that vanishes follows from the persistent constraints and must count
    # as dependent.
    rows = jnp.where(persistent[:, None], 0, terms.jacobian) @ onto
    gamma = jnp.where(persistent, 0, terms.gamma - terms.jacobian @ particular)
    reduced = dataclasses.replace(terms, jacobian=rows, gamma=gamma, force=onto.T @ terms.force)
    solution = KKT(rank_tol).acceleration(reduced)
    return solution.vdot + particular, solution.multipliers


def minimal(
    terms: Terms, persistent: Bool[Array, " m"], rank_tol: float
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Δv and Λ₂ in independent velocities of the persistent constraints (Müller, eq. 37).

    F₁ᵀM F₁ Δs = F₁ᵀ(U + C₂ᵀΛ₂), C₂F₁ Δs = γ₂, with F₁ = Dᵀ from an independent subset of the persistent rows, chosen, like the
    independent velocities, by the projective criterion.
    """
    terms = _regular(terms)
    first = dataclasses.replace(
        terms,
        jacobian=jnp.where(persistent[:, None], terms.jacobian, 0),
        gamma=jnp.where(persistent, terms.gamma, 0),
    )
    # γ₁ takes the part of Γ: the accelerations of a partition are the jumps here, ξ included.
    parts = CoordinatePartition(rank_tol=rank_tol).partition(first)
    onto, particular = parts.tangent, parts.xi
    rows = jnp.where(persistent[:, None], 0, terms.jacobian)
    gamma = jnp.where(persistent, 0, terms.gamma - terms.jacobian @ particular)
    reduced = dataclasses.replace(terms, mass=parts.mass, force=parts.force, jacobian=rows @ onto.T, gamma=gamma)
    # Dependent velocities have a mass of one and neither force nor rows, so that their entries of Δs are zero: shapes are static, however
    # many are independent.
    solution = KKT(rank_tol).acceleration(reduced)
    return onto.T @ solution.vdot + particular, solution.multipliers
