"""Whether a decision about rows still holds."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..formulation import contradiction, contradiction_tol
from ..kinematics import CLOSE, NEAR, Correction
from ..linalg import AbstractFactor, ConstrainedFactor, SparseFactor, cutoff
from ..system import Scale, SparseTerms, Terms
from .state_vector import StateVector
from .vector_field import VectorField

# Rows in use are surely independent where the norm of W, by which they become orthonormal, is below this: no singular value
# of them is smaller than its inverse. Of many bodies more is usual, see `certify_sparse`.
LARGEST_NORM, LARGEST_NORM_OF_MANY = 1e3, 1e4


def certify_dense(
    scale: Scale, factor: AbstractFactor, terms: Terms | SparseTerms, rank_tol: float, least: float = NEAR
) -> Bool[Array, ""]:
    """Whether the rows in use are far from being dependent, in whatever order they are looked at, and the others follow from them.

    Far in the metric of M or by the lengths ℓ, see `distance_to_dependence`: no remainder is less than `least`.
    """
    assert isinstance(factor, ConstrainedFactor) and isinstance(terms, Terms)
    rows = (terms.jacobian / terms.scale[:, None]) @ factor.root.T
    # What remains of the rows left out beside the span of Q: above the cut-off the rank rule would choose anew.
    rest = rows - (rows @ factor.basis.T) @ factor.basis
    follow = factor.in_use | (jnp.sum(rest**2, axis=1) <= cutoff(rank_tol, rows.dtype) ** 2)
    # 1/‖W‖ bounds all singular values from below, whatever the order of rows; the gap keeps stages from where they would be corrected first.
    far = [
        (jnp.sum(x.weights**2) < LARGEST_NORM**2) & (x.gap >= least)
        for x in (factor, factor.by_lengths(scale.reach, scale.row_by_length, quick=True))
    ]
    return (far[0] | far[1]) & jnp.all(follow)


def certify_sparse(
    field: VectorField, factor: SparseFactor, least: float = CLOSE, most: float = LARGEST_NORM_OF_MANY
) -> Bool[Array, ""]:
    """Whether rows in use are far from being dependent: no remainder is less than `least`, and ‖W‖ is less than `most`.

    In long structures small remainders and large norms are usual, but the precision must allow for S, which squares the latter.
    """
    dtype = factor.scale.dtype
    # S is known to eps ‖S‖ only, so that ‖W‖ beyond eps^(−1/2) would be rounding; by the last bound no singular value is below twice the
    # cut-off.
    most = min(most, 0.3 * float(jnp.finfo(dtype).eps) ** -0.5, 0.5 / cutoff(field.formulation.rank_tol, dtype))
    return (factor.gap >= least) & (factor.uncertainty < most**2)


def certify(field: VectorField, factor: AbstractFactor, terms: Terms | SparseTerms) -> Bool[Array, ""]:
    """Whether rows in use are far from being dependent, by whichever linear algebra."""
    if isinstance(factor, SparseFactor):
        return certify_sparse(field, factor, NEAR, LARGEST_NORM)
    return certify_dense(field.scale, factor, terms, field.formulation.rank_tol)


def followed(
    field: VectorField, factor: SparseFactor, terms: SparseTerms, raw: StateVector, flow: StateVector
) -> Bool[Array, ""]:
    """Whether rows that are left out hold on the levels of position, velocity and acceleration where a step ends.

    They ask for no force then: the motion is that of all rows.
    """
    expected = field.scale.rate * jnp.abs(raw.v)
    off = contradiction(terms.jacobian, terms.gamma, terms.scale, flow.v, expected)
    return ~jnp.any(field.system.acting & ~factor.in_use & (off > contradiction_tol(off.dtype)))


def corrected_end(
    field: VectorField, t: Array, raw: StateVector, in_use: Bool[Array, " m"], before: Float[Array, "m n"]
) -> tuple[StateVector, Correction, Bool[Array, ""]]:
    """The vector field where a step ends, its correction, and whether rows in use are not certain there.

    `before` as `Correction.basis`: without a layout that holds Q, with one A (`SparseFactor.lowered`).
    """
    flow, terms, factor = field.evaluate_regular(t, raw, in_use, quick=True)
    # The derivative of a correction is that of the equations it solves (`VectorField.correction_map`), not that of its iterations.
    end = field.correction_by(factor, terms, t, raw)
    # Both ends of a step may be far from a singular pose that lies between them: a remainder that has changed its sign tells of it.
    good = certify(field, factor, terms)
    if isinstance(factor, SparseFactor):
        assert isinstance(terms, SparseTerms)
        good &= followed(field, factor, terms, raw, flow) & ~factor.orientation_changed(
            before.reshape(factor.lowered.shape)
        )
        end = dataclasses.replace(end, basis=factor.lowered.reshape(before.shape))
    else:
        good &= ~jnp.any(jnp.sum(before * end.basis, axis=1) < 0)
    return flow, end, ~good
