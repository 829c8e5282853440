"""Square systems of equations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..foundations import positive_or_one
from .constrained import orthonormal_rows


class Square(eqx.Module):
    """Two factors of the inverse of a square matrix, A⁻¹ = `outer` `inner`; NaN where A is singular."""

    outer: Float[Array, "n n"]
    inner: Float[Array, "n n"]

    @classmethod
    def of(cls, matrix: Float[Array, "n n"]) -> "Square":
        """By orthonormal rows Q = W A, so that A⁻¹ = Qᵀ W."""
        constant, n = lax.stop_gradient(matrix), matrix.shape[0]
        # Rows of unit size: A is singular by how they lie, whatever units they have.
        size = positive_or_one(jnp.max(jnp.abs(constant), axis=1, keepdims=True))
        # Plain array operations in place of LAPACK's LU, which batched in a time loop may never return.
        weights, basis, remainders = orthonormal_rows(constant / size, jnp.zeros(n))
        singular = jnp.any(remainders <= n * jnp.finfo(matrix.dtype).eps)
        return cls(basis.T, jnp.where(singular, jnp.nan, weights / size.T))

    @property
    def T(self) -> "Square":
        """The transpose."""
        return Square(self.inner.T, self.outer.T)

    def solve(self, rhs: Float[Array, " n"]) -> Float[Array, " n"]:
        """The solution x of A x = `rhs`, without derivatives by A."""
        return self.outer @ (self.inner @ rhs)


def solve_square(matrix: Float[Array, "n n"], rhs: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solves A x = `rhs` by orthonormal rows, with the derivatives of the equation; NaN where A is singular."""
    factors = Square.of(matrix)
    return lax.custom_linear_solve(
        lambda x: matrix @ x, rhs, lambda _, b: factors.solve(b), lambda _, b: factors.T.solve(b)
    )


def determinant(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    """The determinant of A, by elimination with pivots; without derivatives."""
    n = matrix.shape[0]

    def eliminate(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, product = carry
        pivot = jnp.argmax(jnp.where(jnp.arange(n) >= j, jnp.abs(rest[:, j]), -1))
        row = rest[pivot]
        # The row takes the place of row j, which goes to where it was: one exchange, one change of sign.
        rest = rest.at[pivot].set(rest[j]).at[j].set(row)
        size = jnp.where(row[j] == 0, 1, row[j])
        factors = jnp.where(jnp.arange(n) > j, rest[:, j] / size, 0)
        return rest - factors[:, None] * row, product * jnp.where(pivot == j, row[j], -row[j])

    return lax.fori_loop(0, n, eliminate, (lax.stop_gradient(matrix), jnp.ones((), matrix.dtype)))[1]


class SquareSolver(lx.AbstractLinearSolver[Square]):
    """`solve_square` for the root finders of implicit integrators, in place of LAPACK's LU."""

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, object]) -> Square:
        """The factors of an operator from vectors of one structure to such vectors."""
        if operator.in_structure() != operator.out_structure():
            raise ValueError(
                f"Argument `operator` must lead from vectors of one structure to such vectors, but leads from {operator.in_structure()} "
                f"to {operator.out_structure()}."
            )
        return Square.of(operator.as_matrix())

    def compute(
        self, state: Square, vector: PyTree[Array], options: dict[str, object]
    ) -> tuple[PyTree[Array], lx.RESULTS, dict[str, object]]:
        """The solution; not finite where the operator is singular, which integrators take for a step that failed."""
        flat, unravel = ravel_pytree(vector)
        return unravel(state.solve(flat)), lx.RESULTS.successful, {}

    def transpose(self, state: Square, options: dict[str, object]) -> tuple[Square, dict[str, object]]:
        """The factors of the transpose."""
        return state.T, options

    def conj(self, state: Square, options: dict[str, object]) -> tuple[Square, dict[str, object]]:
        """The same: numbers are real."""
        return state, options

    def assume_full_rank(self) -> bool:
        """Operators have full rank."""
        return True


def without_lapack(tree: PyTree) -> PyTree:
    """The tree with `SquareSolver` wherever lineax would choose a solver by itself."""
    automatic = lambda x: isinstance(x, lx.AutoLinearSolver)
    return jax.tree.map(lambda x: SquareSolver() if automatic(x) else x, tree, is_leaf=automatic)
