"""The inverse root of a positive definite matrix."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# A compromise: unrolled code runs faster in a batch and takes longer to compile than the library calls.
UNROLLED = 10


def inverse_root(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular R with R A Rᵀ = I, the inverse of Cholesky's factor; NaN if A is not positive definite.

    Cholesky's factor L by columns, and beside it R = L⁻¹ by rows.
    """
    n = matrix.shape[0]
    if n > UNROLLED:
        lower = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        return lax.linalg.triangular_solve(lower, jnp.eye(n, dtype=matrix.dtype), left_side=True, lower=True)
    columns, rows = [], []
    for j in range(n):
        column, row = matrix[j:, j], jnp.zeros(n, matrix.dtype).at[j].set(1)
        for k in range(j):
            column = column - columns[k][j - k :] * columns[k][j - k]
            row = row - columns[k][j - k] * rows[k]
        size = jnp.sqrt(column[0])
        columns.append(column / size)
        rows.append(row / size)
    return jnp.stack(rows) if n else matrix


def solve_spd(matrix: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves A x = `rhs` for a symmetric positive definite A, with the derivatives of the equation."""
    root = inverse_root(lax.stop_gradient(matrix))

    def solve(_, b: Array) -> Array:
        return root.T @ (root @ b)

    return lax.custom_linear_solve(lambda x: matrix @ x, rhs, solve, solve, symmetric=True)
