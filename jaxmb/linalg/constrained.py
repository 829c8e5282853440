"""The constrained linear problem of dynamics, solved by orthogonal rows in the metric of the mass matrix."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from .elimination import BLOCK, MANY, PASSES
from .factor import AbstractFactor
from .layout import Layout
from .rank import RANK_TOL, cutoff
from .root import inverse_root, is_unrolled, slice_at, solve_spd
from .small import small
from .sparse import BlockMatrix, SparseRows, lowered

# A row that follows from others has a remainder of rounding, one that is nearly lost has one near the cut-off: this part of it lies between.
ROUNDING = 1e-3


class ConstrainedFactor(AbstractFactor):
    """The equations M x − C_kᵀ λ = f, C_k x = γ_k of the independent rows k, factorised once for many right-hand sides.

    With R M Rᵀ = I and the orthonormal rows Q = W diag(1/σ) C_k Rᵀ, W lower triangular, the solution is

        x = Rᵀ (y + Qᵀ z),   z = W γ/σ − Q y,   y = R f,   λ = diag(1/σ) Wᵀ z.

    Forward and reverse derivatives of any order are those of the equations, not of the factors. A row of k that lies in
    the span of those before it, to within `rank_tol`, is left out: it is lost at a singular pose.

    Args:
        mass: M (nv, nv), positive definite.
        jacobian: C (m, nv).
        scale: reference sizes σ (m,) of the rows.
        in_use: mask (m,) of rows in use.
        rank_tol: smallest remainder, relative to σ, of a row that is not lost.
        quick: whether code is made to run fast, at the cost of compilation.
        root: R, where it is known.
        layout: which entries of M and C may not be zero, where that is known: rows are then looked at in its order.

    Attributes:
        in_use: the rows k without the lost ones.
        remainders: distance (m,) of each row of k from the span of those before it, relative to σ; infinite in other rows.
        weights: W, lower triangular in the order in which rows are looked at; in a lost row the combination z of the scaled rows that vanishes there.
        basis: Q; zero in rows outside `in_use`.
    """

    metric: Float[Array, "nv nv"]
    rows: Float[Array, "m nv"]
    scale: Float[Array, " m"]
    in_use: Bool[Array, " m"]
    root: Float[Array, "nv nv"]
    remainders: Float[Array, " m"]
    weights: Float[Array, "m m"]
    basis: Float[Array, "m nv"]

    def __init__(
        self,
        mass: Float[Array, "nv nv"],
        jacobian: Float[Array, "m nv"],
        scale: Float[Array, " m"],
        in_use: Bool[Array, " m"],
        rank_tol: float = RANK_TOL,
        quick: bool = False,
        root: Float[Array, "nv nv"] | None = None,
        layout: Layout | None = None,
    ):
        self.metric = mass
        self.scale = scale
        # Rows that are not in use become zero and are never independent: shapes are static, whatever the rank.
        rows = jnp.where(in_use[:, None], jacobian / scale[:, None], 0)
        tol = jnp.where(in_use, cutoff(rank_tol, mass.dtype), jnp.inf)
        if layout is None:
            self.root = inverse_root(self.metric, quick) if root is None else root
            # Orthonormal rows of C Rᵀ, not a factor of C M⁻¹Cᵀ, which would square the condition number and with it the cut-off.
            factors = orthonormal_rows(lax.stop_gradient(rows) @ self.root.T, tol, quick=quick)
        else:
            parts = lowered(BlockMatrix.from_dense(layout, mass), SparseRows.from_dense(layout, rows).values)
            self.root = BlockMatrix(parts[0], layout).dense()
            factors = _by_neighbourhoods(layout, SparseRows(parts[1], layout).dense(), tol)
        self.weights, self.basis, remainders = factors
        self.remainders = jnp.where(in_use, remainders, jnp.inf)
        # A remainder within the cut-off: the row is lost here, its row of W holds the combination of rows that vanishes (`vanishing`).
        self.in_use = remainders > tol
        self.rows = jnp.where(self.in_use[:, None], rows, 0)

    @property
    def gap(self) -> Float[Array, ""]:
        """The smallest remainder: how far the rows in use are from being dependent."""
        return jnp.min(self.remainders, initial=jnp.inf)

    @property
    def vanishing(self) -> Float[Array, "m m"]:
        """Zᵀ: the combinations of scaled rows whose lengths are the remainders."""
        return jnp.where(self.in_use, self.remainders, 1)[:, None] * self.weights

    def by_lengths(
        self, reach: Float[Array, " nv"], scale: Float[Array, " m"], quick: bool = False
    ) -> "ConstrainedFactor":
        """The factors of the same rows in the metric diag(1/ℓ²), in which no mass has a part, and relative to sizes in it."""
        root, rows = jnp.diag(reach), self.rows * self.scale[:, None]
        return ConstrainedFactor(
            mass=root, jacobian=rows, scale=scale, in_use=self.in_use, rank_tol=0.0, quick=quick, root=root
        )

    def speeds(self, rates: Float[Array, "m nv"]) -> Float[Array, " m"]:
        """How fast rows turn, ‖Ċ_i M^(−1/2)‖/σ_i, from the derivatives of all rows."""
        return jnp.linalg.norm((rates / self.scale[:, None]) @ self.root.T, axis=1)

    def particular(self, gamma: Float[Array, " m"]) -> Float[Array, " nv"]:
        """The smallest x in the metric with C_k x = γ_k, without derivatives; γ of other rows is not read."""
        return self.root.T @ ((self.weights @ jnp.where(self.in_use, gamma / self.scale, 0)) @ self.basis)

    def solve(
        self, force: Float[Array, " nv"], gamma: Float[Array, " m"]
    ) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """Returns x (nv,) and λ (m,), which is zero in rows that are not in use; γ of those rows is not read."""
        in_use, n = self.in_use, self.metric.shape[0]
        if not in_use.shape[0]:
            # Without rows: XLA loses the attributes of LAPACK calls of implicit solvers where arrays without entries are joined and cut.
            by_root = lambda _, b: self.root.T @ (self.root @ b)
            x = lax.custom_linear_solve(lambda x: self.metric @ x, force, by_root, by_root, symmetric=True)
            return x, jnp.zeros_like(gamma)

        # Rows that are not in use are zero, and so are their multipliers, of which these equations say nothing: only derivatives read them.
        def equations(unknown: Array) -> Array:
            x, mu = unknown[:n], unknown[n:]
            return jnp.concatenate([self.metric @ x + self.rows.T @ mu, self.rows @ x])

        def solve(_: object, rhs: Array) -> Array:
            f, g = rhs[:n], rhs[n:]
            y = self.root @ f
            z = jnp.where(in_use, self.weights @ jnp.where(in_use, g, 0) - self.basis @ y, 0)
            return jnp.concatenate([self.root.T @ (y + z @ self.basis), -(z @ self.weights)])

        # One vector: with a pair, a derivative that touches one half only would fail.
        rhs = jnp.concatenate([force, jnp.where(in_use, gamma / self.scale, 0)])
        x = lax.custom_linear_solve(equations, rhs, solve, solve, symmetric=True)
        return x[:n], -x[n:] / self.scale


def independent_factor(
    mass: Float[Array, "nv nv"],
    jacobian: Float[Array, "m nv"],
    scale: Float[Array, " m"],
    in_use: Bool[Array, " m"],
    rank_tol: float,
    layout: Layout,
) -> tuple[ConstrainedFactor, Bool[Array, ""]]:
    """The factor of rows, and whether the rank rule certainly keeps so many of them.

    With k rows chosen in the order of the layout, all others in their span but for rounding, no singular value of them is below 1/‖W‖. In
    whatever order rows are chosen, a remainder is at least 1/(√k ‖W‖) until there are k. If some of few rows must go, which ones is
    left to elimination, as without a layout: derivatives by parameters that end a redundancy are those of the rows in use.
    """
    factor = ConstrainedFactor(mass, jacobian, scale, in_use, rank_tol, layout=layout)
    cut = cutoff(rank_tol, mass.dtype)
    weight = jnp.sum(jnp.where(factor.in_use[:, None], factor.weights, 0) ** 2)
    rest = in_use & ~factor.in_use
    follow = ~rest if in_use.shape[0] <= MANY else jnp.where(rest, factor.remainders, 0) < ROUNDING * cut
    # ‖W‖² by the Frobenius norm, which is not smaller; the factor 2 is a margin against rounding.
    return factor, jnp.all(follow) & (jnp.sum(factor.in_use) * weight < (0.5 / cut) ** 2)


@small
def orthonormal_rows(rows: Array, tol: Array, quick: bool = False) -> Sequence[Array]:
    """W lower triangular and Q = W `rows` with orthonormal rows, and the remainders.

    Modified Gram–Schmidt on [rows, I]: what turns the rows into Q turns I into W. Where the remainder does not exceed
    `tol`, the row of Q is zero and that of W is not divided by the remainder.
    """
    m, n = rows.shape
    if not m:  # see `ConstrainedFactor.solve`
        return jnp.zeros((0, 0), rows.dtype), rows, jnp.zeros(0, rows.dtype)
    if m > MANY:
        return _by_blocks(rows, tol)
    rest = jnp.concatenate([rows, np.eye(m, dtype=rows.dtype)], axis=1)
    if not is_unrolled(m, quick):
        # A loop from a certain number of rows on: unrolled, the code grows with the square of it.
        rest, remainders = lax.fori_loop(
            0, m, lambda i, carry: _orthonormalise(i, carry, n, tol), (rest, np.zeros(m, rows.dtype))
        )
        return rest[:, n:], rest[:, :n], remainders
    out: list[Array] = []
    remainders = []
    for i in range(m):
        row = rest[i]
        for _ in range(PASSES):
            for other in out:
                # The second n entries, which began as I, go through the same operations and become W.
                row = row - jnp.sum(row[:n] * other[:n]) * other
        row, _, remainder = _unit(row, jnp.sum(row[:n] ** 2), n, tol[i])
        out.append(row)
        remainders.append(remainder)
    done = jnp.stack(out)
    return done[:, n:], done[:, :n], jnp.stack(remainders)


def _by_blocks(rows: Array, tol: Array) -> tuple[Array, Array, Array]:
    """The same, `BLOCK` rows at a time: twice off all rows that are done, then one by one off each other."""
    m, n = rows.shape
    size = -(-m // BLOCK) * BLOCK
    rest = jnp.concatenate([jnp.pad(rows, ((0, size - m), (0, 0))), np.eye(size, dtype=rows.dtype)], axis=1)
    tol = jnp.pad(tol, (0, size - m), constant_values=np.inf)  # rows that fill up are never independent

    def add(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, remainders = carry
        start = j * BLOCK
        done = (np.arange(size) < start)[:, None]
        block, own = (lax.dynamic_slice_in_dim(x, start, BLOCK) for x in (rest, tol))
        for _ in range(PASSES):
            block = block - jnp.where(done, rest[:, :n] @ block[:, :n].T, 0).T @ rest
        block, lengths = lax.fori_loop(
            0, BLOCK, lambda i, c: _orthonormalise(i, c, n, own), (block, jnp.zeros_like(own))
        )
        put = lambda x, part: lax.dynamic_update_slice_in_dim(x, part, start, axis=0)
        return put(rest, block), put(remainders, lengths)

    rest, remainders = lax.fori_loop(0, size // BLOCK, add, (rest, jnp.zeros_like(tol)))
    return rest[:m, n : n + m], rest[:m, :n], remainders[:m]


def _by_neighbourhoods(layout: Layout, rows: Array, tol: Array) -> tuple[Array, Array, Array]:
    """The same in the order of a layout: the rows of a neighbourhood are orthogonal to all that are done but those of the one before."""
    m, n = rows.shape
    padded = jnp.pad(jnp.concatenate([rows, np.eye(m, dtype=rows.dtype)], axis=1), ((0, 1), (0, 0)))
    tols = jnp.append(tol, np.inf)[layout.order]

    def add(before: Array, part: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        block, own = part
        for _ in range(PASSES):
            block = block - (block[:, :n] @ before[:, :n].T) @ before
        block, lengths = lax.fori_loop(
            0, own.shape[0], lambda i, c: _orthonormalise(i, c, n, own), (block, jnp.zeros_like(own))
        )
        return block, (block, lengths)

    start = jnp.zeros((layout.order.shape[1], n + m), rows.dtype)
    done, remainders = lax.scan(add, start, (padded[layout.order], tols))[1]
    # Row m fills up the neighbourhoods: it sorts behind all that exist.
    position = np.argsort(layout.order.ravel())[:m]
    done = done.reshape(-1, n + m)[position]
    return done[:, n:], done[:, :n], remainders.ravel()[position]


def _unit(row: Array, square: Array, n: int, tol: Array) -> tuple[Array, Array, Array]:
    """The row divided by its length, of which the square is given, the divisor's inverse and the length.

    Where that does not exceed `tol`, the first n entries vanish and the others stay.
    """
    length = jnp.sqrt(square)
    independent = length > tol
    factor = 1 / jnp.where(independent, length, 1)
    return row * jnp.where((np.arange(row.shape[0]) < n) & ~independent, 0, factor), factor, length


def _orthonormalise(i: Array, carry: tuple[Array, Array], n: int, tol: Array) -> tuple[Array, Array]:
    """Brings row i, which is orthogonal to those above it but for rounding, to unit length and those below off it."""
    rest, remainders = carry
    number = np.arange(rest.shape[0])
    here, row = number == i, slice_at(rest, i).ravel()
    row = row - jnp.where(number < i, rest[:, :n] @ row[:n], 0) @ rest  # the second one of the `PASSES`
    rest = jnp.where(here[:, None], row, rest)
    # Of the row with itself too, so that one product gives its length and what the others have along it.
    products = rest[:, :n] @ row[:n]
    tol = slice_at(tol, i)
    row, factor, length = _unit(row, slice_at(products, i), n, tol)
    parts = jnp.where((number > i) & (length > tol), products * factor, 0)
    return jnp.where(here[:, None], row, rest - parts[:, None] * row), jnp.where(here, length, remainders)


def minimum_norm_multipliers(
    factor: ConstrainedFactor, jacobian: Float[Array, "m nv"], multipliers: Float[Array, " m"]
) -> Float[Array, " m"]:
    """The multipliers of least Euclidean norm with the same Cᵀλ, from those of the independent rows.

    All rows are combinations C = E C_k of the independent ones, so Cᵀλ = C_kᵀ λ_k means Eᵀλ = λ_k, whose solution of
    least norm is λ = E (EᵀE)⁻¹ λ_k.
    """
    zero = jnp.zeros_like(factor.scale)
    expressed = jax.vmap(lambda row: -factor.solve(row, zero)[1])(jacobian)
    # One on the diagonal of rows that are not in use keeps the matrix regular without a change of shape.
    gram = expressed.T @ expressed + jnp.diag(jnp.where(factor.in_use, 0, 1).astype(jacobian.dtype))
    return expressed @ solve_spd(gram, multipliers)


def projector(factor: ConstrainedFactor) -> Float[Array, "nv nv"]:
    """The projector on null(C) that is orthogonal in the factor's metric W.

    P² = P, C P = 0, W P = Pᵀ W; with W = I it is P = I − C⁺C (Aghili's projection matrix).
    """
    zero = jnp.zeros_like(factor.scale)
    return jax.vmap(lambda f: factor.solve(f, zero)[0], out_axes=1)(factor.metric)


def null_space(factor: ConstrainedFactor) -> Float[Array, "nv nv"]:
    """A basis N of null(C_k) in its first or any other columns, orthonormal in the factor's metric W and zero elsewhere.

    C_k N = 0, NᵀW N = I on the columns that are not zero, whose number is nv less the rank. The basis has no derivative of
    its own; projected onto the null space it has one that is right for everything that does not depend on the choice of a
    basis.
    """
    m, n = factor.rows.shape
    # The squared remainders of all unit vectors sum to the dimensions still missing: one is above this until none is.
    tol = jnp.concatenate([jnp.where(factor.in_use, 0, jnp.inf), jnp.full(n, 0.5 / n**0.5)])
    rows = jnp.concatenate([factor.basis, jnp.eye(n, dtype=factor.rows.dtype)])
    _, basis, _ = orthonormal_rows(lax.stop_gradient(rows), tol)
    # Projected once more, the frozen basis has the derivative of the null space, of which `svd(full_matrices=True)` has none.
    return projector(factor) @ lax.stop_gradient((basis[m:] @ factor.root).T)
