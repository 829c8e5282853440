"""Cholesky factors and triangular systems, unrolled while they are small."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Up to this size plain operations beat the library call on a batch (5 to 20 times), from about 16 on they lose.
UNROLLED = 10


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = `matrix`, NaN if the matrix is not positive definite.

    Only the lower triangle is read.
    """
    n = matrix.shape[0]
    if n > UNROLLED:
        return jnp.linalg.cholesky(matrix, symmetrize_input=False)
    columns = []
    for j in range(n):
        column = matrix[j:, j]
        for k in range(j):
            column = column - columns[k][j:] * columns[k][j]
        column = column / jnp.sqrt(column[0])
        columns.append(jnp.concatenate([jnp.zeros(j, matrix.dtype), column]))
    return jnp.stack(columns, axis=1) if n else matrix


def solve_lower(lower: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves L x = `rhs`."""
    n = lower.shape[0]
    if n > UNROLLED:
        return _library_solve(lower, rhs, transpose=False)
    rows: list[Array] = []
    for i in range(n):
        row = rhs[i]
        for j in range(i):
            row = row - lower[i, j] * rows[j]
        rows.append(row / lower[i, i])
    return jnp.stack(rows) if n else rhs


def solve_upper(lower: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves Lᵀ x = `rhs`."""
    n = lower.shape[0]
    if n > UNROLLED:
        return _library_solve(lower, rhs, transpose=True)
    rows: list[Array] = []
    for i in reversed(range(n)):
        row = rhs[i]
        for j in range(i + 1, n):
            row = row - lower[j, i] * rows[n - 1 - j]
        rows.append(row / lower[i, i])
    return jnp.stack(rows[::-1]) if n else rhs


def _library_solve(lower: Array, rhs: Array, transpose: bool) -> Array:
    columns = rhs.reshape(rhs.shape[0], -1)
    x = lax.linalg.triangular_solve(lower, columns, left_side=True, lower=True, transpose_a=transpose)
    return x.reshape(rhs.shape)


def solve_spd(matrix: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves A x = `rhs` for a symmetric positive definite A, with the derivatives of the equation."""

    def solve(_, b: Array) -> Array:
        return solve_upper(factor, solve_lower(factor, b))

    factor = cholesky(lax.stop_gradient(matrix))
    return lax.custom_linear_solve(lambda x: matrix @ x, rhs, solve, solve, symmetric=True)
