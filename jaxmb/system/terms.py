"""Evaluation of a system to the arrays of which all linear algebra is made."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..linalg import ConstrainedFactor, independent_rows, lost_rows, regular_metric
from .constraint import Holonomic
from .state import State
from .system import System, settled

Scalar = Float[Array, ""]


class Lost(eqx.Module):
    """What the rows say where they become dependent: the time derivative of C v̇ = Γ, which is K v̇ + C v̈ = k.

    With zᵀC = 0, zᵀK v̇ = zᵀk.

    Attributes:
        matrix: K = Ċ − ∂Γ/∂v (m, nv).
        vector: k = ∂Γ/∂q · N v + ∂Γ/∂t (m,).
        rate: Ċ = ∂C/∂q · N v + ∂C/∂t (m, nv).
        bend: derivative of C (m, nv) along a direction that all rows allow: which are dependent at this pose only.
    """

    matrix: Float[Array, "m nv"]
    vector: Float[Array, " m"]
    rate: Float[Array, "m nv"]
    bend: Float[Array, "m nv"]


class Terms(eqx.Module):
    """The waist between modelling and linear algebra: M v̇ = F + reaction, C v + b = 0, C v̇ = Γ.

    Attributes:
        mass: M (nv, nv).
        force: F (nv,), applied, potential, input and inertia forces.
        jacobian: C (m, nv) of the velocity residual [dφ/dt; ψ] = C v + b, rows in the order of the constraints.
        offset: b (m,).
        gamma: Γ (m,), minus the total time derivative of the velocity residual with v held fixed.
        scale: σ (m,), the reference size of each row.
        holonomic: mask (m,) of the holonomic rows; where rows are dependent these are kept.
        lost: what rows say that are lost at a singular pose, when asked for.
    """

    mass: Float[Array, "nv nv"]
    force: Float[Array, " nv"]
    jacobian: Float[Array, "m nv"]
    offset: Float[Array, " m"]
    gamma: Float[Array, " m"]
    scale: Float[Array, " m"]
    holonomic: Bool[Array, " m"] | None = None
    lost: Lost | None = None


def position_residual(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """φ(t, q) in the holonomic rows, zero in the others."""
    parts = [
        jnp.reshape(c.fn(t, q, system.params), (count,)) if isinstance(c, Holonomic) else jnp.zeros(count, q.dtype)
        for c, count in zip(system.constraints, system.row_counts, strict=True)
    ]
    return _active(system, parts, q)


def velocity_residual(system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
    """[dφ/dt; ψ] = C v + b, the one residual from which C, b and Γ follow."""
    parts = []
    for constraint, count in zip(system.constraints, system.row_counts, strict=True):
        if isinstance(constraint, Holonomic):
            fn = constraint.fn
            tangent = (jnp.ones_like(t), system.qdot(q, v))
            part = jax.jvp(lambda t, q, fn=fn: fn(t, q, system.params), (t, q), tangent)[1]
        else:
            part = constraint.fn(t, q, v, system.params)
        parts.append(jnp.reshape(part, (count,)))
    return _active(system, parts, q)


def velocity_offset(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """b, the velocity residual at v = 0: ∂φ/∂t, which is exactly zero where φ does not read t, or ψ(t, q, 0)."""
    parts = []
    for constraint, count in zip(system.constraints, system.row_counts, strict=True):
        if isinstance(constraint, Holonomic):
            fn = constraint.fn
            part = jax.jvp(lambda t, fn=fn: fn(t, q, system.params), (t,), (jnp.ones_like(t),))[1]
        else:
            part = constraint.fn(t, q, jnp.zeros(system.nv, q.dtype), system.params)
        parts.append(jnp.reshape(part, (count,)))
    return _active(system, parts, q)


def _active(system: System, parts: list[Array], q: Array) -> Float[Array, " m"]:
    """All rows, with zeros, which say nothing, in those that do not act."""
    rows = jnp.concatenate(parts) if parts else jnp.zeros(0, q.dtype)
    return rows if system.active is None else jnp.where(system.active, rows, 0)


def constraint_jacobian(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
    """C = ∂(velocity residual)/∂v."""
    return jax.jacfwd(lambda v: velocity_residual(system, t, q, v))(jnp.zeros(system.nv, q.dtype))


def jacobian_rate(
    system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], tdot: Scalar | float = 1.0
) -> Float[Array, "m nv"]:
    """∂C/∂q · N v + ∂C/∂t ṫ: with ṫ = 1 the time derivative Ċ, with ṫ = 0 the derivative along v."""
    direction = (jnp.asarray(tdot, t.dtype), system.qdot(q, v))
    return jax.jvp(lambda t, q: constraint_jacobian(system, t, q), (t, q), direction)[1]


def curvature(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv nv"]:
    """∂C/∂q · N: the derivative of C along each velocity, in the last axis."""
    along = lambda direction: jacobian_rate(system, t, q, direction, 0.0)
    return jax.vmap(along, out_axes=-1)(jnp.eye(system.nv, dtype=q.dtype))


def gamma(system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
    """Γ, minus the time derivative of the velocity residual with v held."""
    direction = (jnp.ones_like(t), system.qdot(q, v))
    return -jax.jvp(lambda t, q: velocity_residual(system, t, q, v), (t, q), direction)[1]


def derivative_of_rows(system: System, terms: Terms, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Lost:
    """The time derivative of C v̇ = Γ."""
    metric = regular_metric(terms.mass, terms.jacobian)
    keep = independent_rows(metric, terms.jacobian, terms.scale)
    rate = jacobian_rate(system, t, q, v)
    _, free = lost_rows(ConstrainedFactor(metric, terms.jacobian, terms.scale, keep), terms.jacobian, rate)
    return Lost(
        matrix=rate - jax.jacfwd(lambda v: gamma(system, t, q, v))(v),
        vector=jax.jvp(lambda t, q: gamma(system, t, q, v), (t, q), (jnp.ones_like(t), system.qdot(q, v)))[1],
        rate=rate,
        bend=jacobian_rate(system, t, q, free, 0.0),
    )


def evaluate_at(
    system: System,
    t: Scalar,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    scale: Float[Array, " m"],
    applied: Float[Array, " nv"],
) -> Terms:
    """`evaluate` for loose arguments and given applied forces."""
    return Terms(
        mass=system.mass(t, q),
        force=system.intrinsic_force(t, q, v) + applied,
        jacobian=constraint_jacobian(system, t, q),
        offset=velocity_offset(system, t, q),
        gamma=gamma(system, t, q, v),
        scale=scale,
        holonomic=system.holonomic,
    )


def rows_at(system: System, t: Scalar, q: Float[Array, " nq"], scale: Float[Array, " m"]) -> Terms:
    """The terms as far as rank, metric and corrections depend on them; forces, b and Γ are zero."""
    none = jnp.zeros(system.m, q.dtype)
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    return Terms(mass, jnp.zeros(system.nv, q.dtype), jacobian, none, none, scale, system.holonomic)


@eqx.filter_jit
def evaluate(system: System, state: State, *, u: Float[Array, " nu"] | None = None, lost: bool = False) -> Terms:
    """Evaluates M, F, C, b and Γ at a state.

    Args:
        system: the system.
        state: an assembled state.
        u: inputs (nu,), which act as B u; none by default.
        lost: whether to add the derivatives that a formulation needs where rows become dependent for an instant. Without
            them an acceleration at a singular pose is that of least norm, as a rule not that of the motion.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> terms = jm.evaluate(system, jm.assemble(system, [0.6, 0.8], [-0.8, 0.6]))
        >>> [round(float(x), 6) for x in (*terms.jacobian[0], terms.gamma[0])]
        [1.2, 1.6, -2.0]
    """
    system, state = settled(system, state)
    t, q, v = state.t, state.q, state.v
    terms = evaluate_at(system, t, q, v, state.scale, system.applied_force(t, q, v, u))
    if not lost:
        return terms
    return eqx.tree_at(lambda x: x.lost, terms, derivative_of_rows(system, terms, t, q, v), is_leaf=lambda x: x is None)


def scaled_residuals(system: System, state: State) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """φ/σ and (C v + b)/σ.

    σ is in units of C, so that φ/σ reads as a displacement and the other as a velocity.
    """
    return (
        position_residual(system, state.t, state.q) / state.scale,
        velocity_residual(system, state.t, state.q, state.v) / state.scale,
    )
