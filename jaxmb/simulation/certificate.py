"""Whether a decision about rows still holds."""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..linalg import AbstractFactor, ConstrainedFactor, cutoff
from ..system import SparseTerms, Terms

# Rows in use are surely independent where the norm of W, by which they become orthonormal, is below this: no singular value
# of them is smaller than its inverse.
CERTAIN = 1e3


def certain(factor: AbstractFactor, terms: Terms | SparseTerms, rank_tol: float) -> Bool[Array, ""]:
    """Whether the rows in use are far from being dependent, in whatever order they are looked at, and the others follow from them."""
    assert isinstance(factor, ConstrainedFactor) and isinstance(terms, Terms)
    rows = (terms.jacobian / terms.scale[:, None]) @ factor.root.T
    rest = rows - (rows @ factor.basis.T) @ factor.basis
    follow = factor.keep | (jnp.sum(rest**2, axis=1) <= cutoff(rank_tol, rows.dtype) ** 2)
    return (jnp.sum(factor.weights**2) < CERTAIN**2) & jnp.all(follow)
