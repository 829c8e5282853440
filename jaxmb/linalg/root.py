"""The inverse root of a positive definite matrix."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Unrolled code runs faster and takes longer to compile. LAPACK is not called: in a loop over a batch it may never return, and
# XLA does not compile its calls in functions that take arrays without entries.
UNROLLED = 10
BLOCK = 8


def inverse_root(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular R with R A Rᵀ = I, the inverse of Cholesky's factor; NaN if A is not positive definite.

    It has no derivative: those of solutions come from their equations.
    """
    matrix = lax.stop_gradient(matrix)
    return _by_columns(matrix) if matrix.shape[0] <= UNROLLED else _by_blocks(matrix)


def _by_columns(matrix: Array) -> Array:
    """Cholesky's factor L by columns, and beside it R = L⁻¹ by rows."""
    n = matrix.shape[0]
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


def _by_blocks(matrix: Array) -> Array:
    """By elimination: what turns A into Lᵀ turns I into L⁻¹. `BLOCK` rows at a time, the last ones filled up with those of I."""
    n = matrix.shape[0]
    count = -(-n // BLOCK)
    size = count * BLOCK
    matrix = jnp.eye(size, dtype=matrix.dtype).at[:n, :n].set(matrix)

    def eliminate(j: Array, rest: Array) -> Array:
        start = j * BLOCK
        rows = lax.dynamic_slice_in_dim(rest, start, BLOCK)
        rows = _by_columns(lax.dynamic_slice_in_dim(rows, start, BLOCK, axis=1)) @ rows
        below = jnp.where(jnp.arange(size) >= start + BLOCK, rows[:, :size], 0)
        return lax.dynamic_update_slice_in_dim(rest - below.T @ rows, rows, start, axis=0)

    done = lax.fori_loop(0, count, eliminate, jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1))
    return done[:n, size : size + n]


def solve_spd(matrix: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves A x = `rhs` for a symmetric positive definite A, with the derivatives of the equation."""
    root = inverse_root(matrix)

    def solve(_, b: Array) -> Array:
        return root.T @ (root @ b)

    return lax.custom_linear_solve(lambda x: matrix @ x, rhs, solve, solve, symmetric=True)
