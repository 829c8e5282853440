"""The inverse root of a positive definite matrix."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

# A compromise: unrolled code runs faster in a batch and takes longer to compile than the library calls.
UNROLLED = 10


def inverse_root(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular R with R A Rᵀ = I, the inverse of Cholesky's factor; NaN if A is not positive definite.

    Cholesky's factor L by columns, and beside it R = L⁻¹ by rows. It has no derivative: those of solutions come from their
    equations.
    """
    matrix = lax.stop_gradient(matrix)
    n = matrix.shape[0]
    if n > UNROLLED:
        return _large(matrix)
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


@custom_vmap
def _large(matrix: Array) -> Array:
    """By LAPACK, which is fast for one matrix; called for a batch inside a loop it may never return."""
    lower = jnp.linalg.cholesky(matrix, symmetrize_input=False)
    return lax.linalg.triangular_solve(lower, jnp.eye(matrix.shape[0], dtype=matrix.dtype), left_side=True, lower=True)


@_large.def_vmap
def _large_batch(size: int, batched: list[bool], matrices: Array) -> tuple[Array, bool]:
    return jax.vmap(_by_columns)(matrices), True


def _by_columns(matrix: Array) -> Array:
    """By elimination: what turns A into Lᵀ turns I into L⁻¹."""
    n = matrix.shape[0]

    def eliminate(j: Array, rest: Array) -> Array:
        row = rest[j] / jnp.sqrt(rest[j, j])
        below = jnp.where(jnp.arange(n) > j, row[:n], 0)
        return (rest - below[:, None] * row).at[j].set(row)

    done = lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, jnp.eye(n, dtype=matrix.dtype)], axis=1))
    return done[:, n:]


def solve_spd(matrix: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves A x = `rhs` for a symmetric positive definite A, with the derivatives of the equation."""
    root = inverse_root(matrix)

    def solve(_, b: Array) -> Array:
        return root.T @ (root @ b)

    return lax.custom_linear_solve(lambda x: matrix @ x, rhs, solve, solve, symmetric=True)
