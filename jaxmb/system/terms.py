"""Evaluation of a system to the arrays of which all linear algebra is made."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..foundations import Vector, contract, program
from ..linalg import BlockMatrix, Layout, SparseRows
from .constraint import Holonomic
from .mode import LockResidual, PoseFunctions
from .scalar import scalar
from .state import State
from .system import System, apply_mode

Scalar = Float[Array, ""]


class Nearby(eqx.Module):
    """The rows of a system around a state, by which formulations decide whether dependent rows are redundant or lost.

    The time derivative of C v̇ = Γ is K v̇ + C v̈ = k: with zᵀC = 0, zᵀK v̇ = zᵀk. Nothing is evaluated before a method is called.
    """

    system: System
    state: State

    def jacobian_derivative(self, direction: Float[Array, " nv"], tdot: Scalar | float) -> Float[Array, "m nv"]:
        """The derivative of C along a direction and time: Ċ = ∂C/∂q · N v + ∂C/∂t along v with ṫ = 1."""
        return jacobian_rate(self.system, self.state.t, self.state.q, direction, tdot)

    def gamma_by_velocity(self) -> Float[Array, "m nv"]:
        """∂Γ/∂v, of which K = Ċ − ∂Γ/∂v is made."""
        return jax.jacfwd(lambda v: gamma(self.system, self.state.t, self.state.q, v))(self.state.v)

    def right_hand_side(self) -> Float[Array, " m"]:
        """The right-hand side k = ∂Γ/∂q · N v + ∂Γ/∂t."""
        t, q, v = self.state.t, self.state.q, self.state.v
        return jax.jvp(lambda t, q: gamma(self.system, t, q, v), (t, q), (jnp.ones_like(t), self.system.qdot(q, v)))[1]


class Terms(eqx.Module):
    """The equations M v̇ = F + reaction, C v + b = 0, C v̇ = Γ at one state as arrays: all that formulations know of a system.

    Attributes:
        mass: M (nv, nv).
        force: F (nv,), applied, potential, input and inertia forces.
        jacobian: C (m, nv) of the velocity residual [dφ/dt; ψ] = C v + b, rows in the order of the constraints.
        offset: b (m,).
        gamma: Γ (m,), minus the total time derivative of the velocity residual with v held fixed.
        scale: σ (m,), the reference size of each row.
        holonomic: mask (m,) of the holonomic rows, which are chosen before others where rows are dependent.
        nearby: the rows around the state, from which the acceleration at singular poses is computed; None inside a run, which has special
            steps for such poses.
        layout: which entries of M and C may not be zero, where that is known.
    """

    mass: Float[Array, "nv nv"]
    force: Float[Array, " nv"]
    jacobian: Float[Array, "m nv"]
    offset: Float[Array, " m"]
    gamma: Float[Array, " m"]
    scale: Float[Array, " m"]
    holonomic: Bool[Array, " m"] | None = None
    nearby: Nearby | None = None
    layout: Layout | None = eqx.field(static=True, default=None)

    @classmethod
    def rows(
        cls, system: System, mass: Float[Array, "nv nv"], jacobian: Float[Array, "m nv"], scale: Float[Array, " m"]
    ) -> "Terms":
        """As far as rank, metric and corrections depend on them; forces, b and Γ are zero."""
        none, force = jnp.asarray(np.zeros(system.m), mass.dtype), jnp.zeros(system.nv, mass.dtype)
        return cls(
            mass=mass,
            force=force,
            jacobian=jacobian,
            offset=none,
            gamma=none,
            scale=scale,
            holonomic=system.holonomic,
            layout=system.layout,
        )


class SparseTerms(eqx.Module):
    """`Terms` inside a run with M and C by the entries that may not be zero."""

    mass: BlockMatrix
    force: Float[Array, " nv"]
    jacobian: SparseRows
    offset: Float[Array, " m"]
    gamma: Float[Array, " m"]
    scale: Float[Array, " m"]
    holonomic: Bool[Array, " m"] | None


@scalar
def position_residual(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """φ(t, q) in the holonomic rows, zero in the others."""
    parts = [
        jnp.reshape(c.fn(t, q, system.params), (count,)) if isinstance(c, Holonomic) else jnp.zeros(count, q.dtype)
        for c, count in zip(system.constraints, system.row_counts, strict=True)
    ]
    return _active(system, parts, q)


def velocity_residual(system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
    """[dφ/dt; ψ] = C v + b, the one residual from which C, b and Γ follow."""
    return residuals(system, t, q, v)[1]


@scalar
def residuals(
    system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """`position_residual` and `velocity_residual` by one pass over the constraints."""
    positions, velocities = [], []
    for constraint, count in zip(system.constraints, system.row_counts, strict=True):
        position = jnp.zeros(count, q.dtype)
        if isinstance(constraint, Holonomic):
            fn = constraint.fn
            tangent = (jnp.ones_like(t), system.qdot(q, v))
            # φ and φ̇ by one pass: the velocity residual is the derivative along (1, N v), from which C, b and Γ follow without a formula
            # of their own.
            position, velocity = jax.jvp(lambda t, q, fn=fn: fn(t, q, system.params), (t, q), tangent)
        else:
            velocity = constraint.fn(t, q, v, system.params)
        positions.append(jnp.reshape(position, (count,)))
        velocities.append(jnp.reshape(velocity, (count,)))
    return _active(system, positions, q), _active(system, velocities, q)


@scalar
def lock_coordinates(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " k"]:
    """The functions s(t, q) of the locks, whether these hold or not."""
    values = PoseFunctions(tuple(c.fn.fn for c in system.constraints if isinstance(c.fn, LockResidual)))
    return values(t, q, system.params)


@scalar
def lock_rates(system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " k"]:
    """ṡ of the locks."""
    return jax.jvp(lambda t, q: lock_coordinates(system, t, q), (t, q), (jnp.ones_like(t), system.qdot(q, v)))[1]


@scalar
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


@scalar
def constraint_jacobian(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
    """C = ∂(velocity residual)/∂v."""
    if system.layout is not None:
        return sparse_jacobian(system, system.layout, t, q).dense()
    return jax.jacfwd(lambda v: velocity_residual(system, t, q, v))(jnp.asarray(np.zeros(system.nv), q.dtype))


def sparse_jacobian(system: System, layout: Layout, t: Scalar, q: Float[Array, " nq"]) -> SparseRows:
    """C, from its products with few vectors."""
    seeds = jnp.asarray(layout.seeds, q.dtype)
    # The residual is affine in v: C seed = residual(seed) − residual(0).
    offset = velocity_residual(system, t, q, jnp.zeros_like(seeds[0]))
    return SparseRows.of(layout, jax.vmap(lambda seed: velocity_residual(system, t, q, seed) - offset)(seeds))


def jacobian_rate(
    system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], tdot: Scalar | float = 1.0
) -> Float[Array, "m nv"]:
    """∂C/∂q · N v + ∂C/∂t ṫ: with ṫ = 1 the time derivative Ċ, with ṫ = 0 the derivative along v."""
    direction = (jnp.asarray(tdot, t.dtype), system.qdot(q, v))
    return jax.jvp(lambda t, q: constraint_jacobian(system, t, q), (t, q), direction)[1]


def gamma(system: System, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
    """Γ, minus the time derivative of the velocity residual with v held."""
    direction = (jnp.ones_like(t), system.qdot(q, v))
    # One second derivative along the motion instead of Ċ v, whose Ċ would cost nv of them.
    return -jax.jvp(lambda t, q: velocity_residual(system, t, q, v), (t, q), direction)[1]


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
        layout=system.layout,
    )


def sparse_evaluate_at(
    system: System,
    layout: Layout,
    t: Scalar,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    scale: Float[Array, " m"],
    applied: Float[Array, " nv"],
) -> SparseTerms:
    """`evaluate_at` for a system with few entries in M and C."""
    terms = sparse_rows_at(system, layout, t, q, scale)
    force, moving = system.intrinsic_force(t, q, v) + applied, gamma(system, t, q, v)
    fields = lambda x: (x.force, x.offset, x.gamma)
    return eqx.tree_at(fields, terms, (force, velocity_offset(system, t, q), moving))


def sparse_rows_at(
    system: System, layout: Layout, t: Scalar, q: Float[Array, " nq"], scale: Float[Array, " m"]
) -> SparseTerms:
    """`rows_at` for a system with few entries in M and C: by products with few vectors."""
    mass, jacobian = system.sparse_mass(layout, t, q), sparse_jacobian(system, layout, t, q)
    force, none = jnp.zeros(system.nv, q.dtype), jnp.asarray(np.zeros(system.m), q.dtype)
    return SparseTerms(
        mass=mass, force=force, jacobian=jacobian, offset=none, gamma=none, scale=scale, holonomic=system.holonomic
    )


def rows_at(system: System, t: Scalar, q: Float[Array, " nq"], scale: Float[Array, " m"]) -> Terms:
    """`Terms.rows` at a pose."""
    return Terms.rows(system, system.mass(t, q), constraint_jacobian(system, t, q), scale)


@contract
@program
def evaluate(system: System, state: State, *, u: Vector | None = None) -> Terms:
    """Evaluates M, F, C, b and Γ at a state.

    Args:
        system: the system.
        state: an assembled state.
        u: inputs (nu,), which act as B u; none by default.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> terms = jm.evaluate(system, jm.assemble(system, [0.6, 0.8], [-0.8, 0.6]))
        >>> [round(float(x), 6) for x in (*terms.jacobian[0], terms.gamma[0])]
        [1.2, 1.6, -2.0]
    """
    system, state = apply_mode(system, state)
    t, q, v = state.t, state.q, state.v
    terms = evaluate_at(system, t, q, v, state.scale.row, system.applied_force(t, q, v, u))
    # With the rows around the state an acceleration is right at singular poses too, without a flag to remember; without rows there is
    # none.
    return dataclasses.replace(terms, nearby=Nearby(system, state) if system.m else None)


def scaled_residuals(system: System, state: State) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """φ/Φ and (C v + b)/Φ: the first without a unit, the second in 1/s."""
    position, velocity = residuals(system, state.t, state.q, state.v)
    return position / state.scale.span, velocity / state.scale.span
