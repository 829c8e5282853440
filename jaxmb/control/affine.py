"""What inputs do to motion and reaction: both are affine in them."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..foundations import Limits, contract, positive_or_one, program, quotient
from ..linalg import (
    ConstrainedFactor,
    cutoff,
    metric_root,
    null_space,
    orthonormaliser,
    pseudoinverse,
    row_norms,
    spectral_norm,
)
from .plant import Plant


class Affine(eqx.Module):
    """v̇ = v̇₀ + T u, reaction = R₀ + R' u, λ = λ₀ + λ' u.

    Forces that depend on the inputs in another way than B u are those at u = 0.

    Attributes:
        vdot: v̇₀ (nv,).
        by_input: T = Y B (nv, nu), Y = (P M P)⁺ with Aghili's projector P.
        reaction: R₀ (nv,).
        reaction_by_input: R' = −(I − M Y) B (nv, nu).
        multipliers: λ₀ (m,), as in `jaxmb.formulation.Acceleration`.
        multipliers_by_input: λ' (m, nu), whose Cᵀλ' is R'.
    """

    vdot: Float[Array, " nv"]
    by_input: Float[Array, "nv nu"]
    reaction: Float[Array, " nv"]
    reaction_by_input: Float[Array, "nv nu"]
    multipliers: Float[Array, " m"]
    multipliers_by_input: Float[Array, "m nu"]


@contract
@program
def affine(plant: Plant) -> Affine:
    """Acceleration, reaction and multipliers as affine functions of the inputs.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("wall", lambda t, q, p: q[1])],
        ...                    actuation=lambda t, q, p: jnp.eye(2))
        >>> maps = jm.control.affine(jm.control.Plant.at(system, jm.assemble(system, [0.0, 0.0])))
        >>> [[round(float(x), 6) + 0.0 for x in row] for row in maps.by_input]
        [[1.0, 0.0], [0.0, 0.0]]
        >>> [round(float(x), 6) + 0.0 for x in maps.multipliers_by_input[0]]
        [0.0, -1.0]
    """
    # Not by differentiation: v̇ is affine in the forces, and one factorisation answers for v̇₀ and for all columns of
    # B.
    alone, answer = plant.respond(), plant.respond_to_forces(plant.actuation)
    return Affine(
        vdot=alone.vdot,
        by_input=answer.vdot,
        reaction=alone.reaction,
        reaction_by_input=answer.reaction,
        multipliers=alone.multipliers,
        multipliers_by_input=answer.multipliers,
    )


class Drive(eqx.Module):
    """The accelerations that the constraints allow, v̇ = v̇₀ + Dᵀs, and how inputs make them, s = D B u.

    The coordinates s are homogeneous: D M Dᵀ = I, so that ‖s‖ is the length of v̇ − v̇₀ in the metric of M.

    Attributes:
        basis: D (nv, nv), whose rows span null(C); rows beyond the freedoms are zero.
        by_input: D B W^(1/2) (nv, nu), answers to inputs in units of their limits.
        limits: W^(1/2) (nu,).
        size: ‖M^(−1/2) B W^(1/2)‖, what the inputs would do without constraints.
        rank_tol: cut-off of what is relative to it.
    """

    basis: Float[Array, "nv nv"]
    by_input: Float[Array, "nv nu"]
    limits: Float[Array, " nu"]
    size: Float[Array, ""]
    rank_tol: float = eqx.field(static=True)

    @property
    def live(self) -> Float[Array, "nv nv"]:
        """The projector on the rows of D that are not zero."""
        # Rows beyond the freedoms are exact zeros, and D M Dᵀ = I on the others: so the projector is a diagonal of
        # ones and zeros.
        return jnp.diag(jnp.any(lax.stop_gradient(self.basis) != 0, axis=1).astype(self.basis.dtype))


@contract
def drive(plant: Plant, limits: Limits | None = None) -> Drive:
    """How the inputs accelerate the mechanism.

    At a pose with degenerate rows D spans null([C; ZᵀK]), as the possible motions do.

    Args:
        plant: the mechanism at an instant.
        limits: W^(1/2) (nu,), the largest inputs; 0 for one that must not be used; 1 for each if None.
    """
    weights = input_limits(plant, limits)
    basis, weighted = free_directions(plant), plant.actuation * weights
    # s = D B u holds while rows of D are orthonormal in M on null(C). At a pose of lower rank reactions of degenerate rows
    # act on the motion too, and v̇ itself tells what comes of B u.
    if plant.restored is None or plant.restored.condition is None:
        by_input = basis @ weighted
    else:
        by_input = basis @ (plant.terms.mass @ plant.respond_to_forces(weighted).vdot)
    root = metric_root(plant.terms.mass, plant.terms.jacobian)
    # The cut-off of the rank is relative to what inputs would do without constraints: relative to D B itself rounding
    # would count as an actuator where constraints take up all that inputs do.
    size = spectral_norm(root @ weighted)
    return Drive(
        basis=basis,
        by_input=by_input,
        limits=weights,
        size=positive_or_one(size),
        rank_tol=cutoff(plant.formulation.rank_tol, size.dtype),
    )


def input_limits(plant: Plant, limits: Limits | None) -> Float[Array, " nu"]:
    """W^(1/2), of whatever was given.

    Raises:
        ValueError: for another shape.
    """
    count = plant.actuation.shape[1]
    weights = jnp.ones(count, plant.v.dtype) if limits is None else jnp.asarray(limits, plant.v.dtype)
    if weights.shape != (count,):
        raise ValueError(
            f"Argument `limits` must have a number for each of {count} inputs, but has shape {weights.shape}."
        )
    return weights


def free_directions(plant: Plant) -> Float[Array, "nv nv"]:
    """D with D M Dᵀ = I on the rows that are not zero, which span the accelerations that the constraints allow.

    It may be turned within that span from one instant to the next; what does not depend on the choice has the right derivatives.
    """
    factor, restored = plant.factor, plant.restored
    if restored is not None and restored.condition is not None:
        dropped = restored.condition.mask
        # A row that is degenerate at this pose only says nothing of v̇; what its derivative along the motion demands does.
        rows = jnp.where(dropped[:, None], restored.condition.matrix, plant.terms.jacobian)
        sizes = row_norms(lax.stop_gradient(factor.metric), lax.stop_gradient(rows))
        # The reference sizes of C do not apply to rows of another unit.
        scale = jnp.where(dropped & (sizes > 0), sizes, factor.scale)
        factor = ConstrainedFactor(factor.metric, rows, scale, factor.in_use, 0.0, root=factor.root)
    basis = null_space(factor)
    # Ones on the empty diagonal keep the Cholesky factor, and with it its derivative, finite.
    empty = jnp.diag(jnp.all(lax.stop_gradient(basis) == 0, axis=0).astype(basis.dtype))
    return orthonormaliser(basis.T @ plant.terms.mass @ basis + empty) @ basis.T


@contract
@program
def split_input(
    plant: Plant, u: Float[Array, " nu"], limits: Limits | None = None
) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
    """The potent part of an input, which moves the mechanism, and the impotent part, which changes reactions only.

    With A = D B W^(1/2) they are W^(1/2) A⁺A W^(−1/2) u and the rest (Aghili's potent and impotent forces, as inputs).

    Args:
        plant: the mechanism at an instant.
        u: inputs (nu,); zero where the limit is.
        limits: as in `drive`.
    """
    actuators = drive(plant, limits)
    share = quotient(u, actuators.limits)
    # Aghili (2005), section 4, splits forces; here A⁺A does it with inputs, each in units of its limit.
    potent = actuators.limits * (
        pseudoinverse(actuators.by_input, actuators.rank_tol, actuators.size) @ (actuators.by_input @ share)
    )
    return potent, u - potent


@contract
@program
def split_force(plant: Plant, force: Float[Array, " nv"]) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """The part M Y f of a generalised force that moves the mechanism, and the rest f − M Y f, which the reaction balances."""
    answer = plant.respond_to_forces(force[:, None])
    return force + answer.reaction[:, 0], -answer.reaction[:, 0]
