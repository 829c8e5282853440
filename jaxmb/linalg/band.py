"""Positive definite matrices in blocks next to their diagonal."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .root import inverse_root


class BandFactor(eqx.Module):
    """Cholesky's factor of S, whose blocks are zero but for D_k on the diagonal and E_k below it.

    L has the blocks L_k, with R_k = L_k⁻¹, and F_k = E_k R_kᵀ below them, L_k L_kᵀ = D_k − F_{k−1} F_{k−1}ᵀ. Not a number
    from where S is not positive definite. It has no derivative.

    Args:
        diagonal: D (K, b, b).
        below: E (K, b, b); the last one is not read.
    """

    roots: Float[Array, "k b b"]
    below: Float[Array, "k b b"]

    def __init__(self, diagonal: Float[Array, "k b b"], below: Float[Array, "k b b"]):
        def eliminate(rest: Array, blocks: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            # R_k = L_k⁻¹ in place of L_k: all that follows are products, no triangular solves by LAPACK.
            root = inverse_root(blocks[0] - rest, quick=True)
            below = blocks[1] @ root.T
            return below @ below.T, (root, below)

        # Derivatives are those of the equations that are solved by it (`SparseFactor.solve`), not of the elimination.
        blocks = lax.stop_gradient((diagonal, below))
        self.roots, self.below = lax.scan(eliminate, jnp.zeros_like(diagonal[0]), blocks)[1]

    def solve(self, rhs: Float[Array, "k b"]) -> Float[Array, "k b"]:
        """S⁻¹ times a vector."""

        def forth(above: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
            root, below, x = row
            x = root @ (x - above)
            return below @ x, x

        def back(under: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
            root, below, x = row
            x = root.T @ (x - below.T @ under)
            return x, x

        none = jnp.zeros_like(rhs[0])
        half = lax.scan(forth, none, (self.roots, self.below, rhs))[1]
        return lax.scan(back, none, (self.roots, self.below, half), reverse=True)[1]

    def inverse_diagonal(self) -> Float[Array, "k b"]:
        """The diagonal of S⁻¹, from the last block to the first: Z_k = R_kᵀ (I + F_kᵀ Z_{k+1} F_k) R_k."""

        def back(under: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
            root, below = row
            # Entries of the inverse within the band follow from those of the factor alone (Takahashi, Fagan and Chin 1973): S⁻¹, which is
            # full, is never made.
            own = root.T @ root + root.T @ (below.T @ under @ below) @ root
            return own, jnp.diagonal(own)

        return lax.scan(back, jnp.zeros_like(self.roots[0]), (self.roots, self.below), reverse=True)[1]

    @property
    def remainders(self) -> Float[Array, "k b"]:
        """The diagonal of L."""
        return 1 / jax.vmap(jnp.diagonal)(self.roots)
