"""The inverse root of a positive definite matrix."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .small import small

# Unrolled code runs faster and takes longer to compile: up to `SMALL` rows it does neither, up to `UNROLLED` it is for what
# every step needs. LAPACK is not called: in a loop over a batch it may never return, and XLA does not compile its calls in
# functions that take arrays without entries.
# Batched on a CPU it was measured to be 5 to 20 times as fast as LAPACK's Cholesky up to 8 rows.
SMALL, UNROLLED = 4, 10
# Beyond so many rows, `BLOCK` are eliminated at a time. With 30 rows that was measured to take 38 µs in place of 17, 32 matrices side by side
# 1.5 ms in place of 2.0, and twice the operations to compile.
LARGE, BLOCK = 32, 8


def is_unrolled(count: int, quick: bool) -> bool:
    """Whether code over so many rows is unrolled; `quick` where it counts how fast it runs, else how fast it compiles."""
    return count <= (UNROLLED if quick else SMALL)


def slice_at(x: Array, i: Array, axis: int = 0) -> Array:
    """The slice of width one at index i ≥ 0: an index that may count from the end takes four times as many operations."""
    return lax.dynamic_slice_in_dim(x, i, 1, axis, allow_negative_indices=False)


def inverse_root(matrix: Float[Array, "n n"], quick: bool = False) -> Float[Array, "n n"]:
    """The lower triangular R with R A Rᵀ = I, the inverse of Cholesky's factor; NaN if A is not positive definite.

    It has no derivative: those of solutions come from their equations.

    Args:
        matrix: A.
        quick: see `is_unrolled`.
    """
    return _inverse_root(lax.stop_gradient(matrix), quick=quick)[0]


@small
def _inverse_root(matrix: Array, quick: bool) -> list[Array]:
    n = matrix.shape[0]
    if is_unrolled(n, quick):
        return [_by_columns(matrix)]
    return [_by_rows(matrix) if n <= LARGE else _by_blocks(matrix)]


def _by_columns(matrix: Array) -> Array:
    """Cholesky's factor L by columns, and beside it R = L⁻¹ by rows."""
    n = matrix.shape[0]
    columns, rows = [], []
    for j in range(n):
        column, row = matrix[j:, j], jnp.asarray(np.eye(n)[j], matrix.dtype)
        for k in range(j):
            column = column - columns[k][j - k :] * columns[k][j - k]
            row = row - columns[k][j - k] * rows[k]
        size = jnp.sqrt(column[0])
        columns.append(column / size)
        rows.append(row / size)
    return jnp.stack(rows) if n else matrix


def _by_rows(matrix: Array) -> Array:
    """By elimination: what turns A into Lᵀ turns I into L⁻¹."""
    n = matrix.shape[0]
    number = np.arange(n)[:, None]

    def eliminate(j: Array, rest: Array) -> Array:
        row, column = slice_at(rest, j), slice_at(rest, j, 1)
        pivot = slice_at(row, j, 1)
        # Without pivots: a positive definite matrix needs none, and one that is not shows by a NaN from the root.
        below = rest - jnp.where(number > j, column / pivot, 0) * row
        return jnp.where(number == j, row / jnp.sqrt(pivot), below)

    return lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, np.eye(n, dtype=matrix.dtype)], axis=1))[:, n:]


def _by_blocks(matrix: Array) -> Array:
    """As `_by_rows`, `BLOCK` rows at a time, the last ones filled up with those of I."""
    n = matrix.shape[0]
    count = -(-n // BLOCK)
    size = count * BLOCK
    matrix = jnp.eye(size, dtype=matrix.dtype).at[:n, :n].set(matrix)

    def eliminate(j: Array, rest: Array) -> Array:
        start = j * BLOCK
        rows = lax.dynamic_slice_in_dim(rest, start, BLOCK)
        rows = _by_rows(lax.dynamic_slice_in_dim(rows, start, BLOCK, axis=1)) @ rows
        below = jnp.where(np.arange(size) >= start + BLOCK, rows[:, :size], 0)
        return lax.dynamic_update_slice_in_dim(rest - below.T @ rows, rows, start, axis=0)

    done = lax.fori_loop(0, count, eliminate, jnp.concatenate([matrix, np.eye(size, dtype=matrix.dtype)], axis=1))
    return done[:n, size : size + n]


@jax.custom_jvp
def orthonormaliser(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """`inverse_root` with its derivative: dR = −Φ(R dA Rᵀ) R, Φ the lower triangle with half the diagonal."""
    return inverse_root(matrix)


@orthonormaliser.defjvp
def _orthonormaliser_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    root = orthonormaliser(primals[0])
    # From R A Rᵀ = I: dR R⁻¹ + (dR R⁻¹)ᵀ = −R dA Rᵀ, and dR R⁻¹ is lower triangular.
    change = root @ tangents[0] @ root.T
    n = change.shape[0]
    return root, -(change * (np.tril(np.ones((n, n)), -1) + 0.5 * np.eye(n))) @ root


def solve_spd(matrix: Float[Array, "n n"], rhs: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solves A x = `rhs` for a symmetric positive definite A, with the derivatives of the equation."""
    root = inverse_root(matrix)

    def solve(_: object, b: Array) -> Array:
        return root.T @ (root @ b)

    # Derivatives by A come from A x = b, not from the root, which has none.
    return lax.custom_linear_solve(lambda x: matrix @ x, rhs, solve, solve, symmetric=True)
