"""The constrained linear problem of dynamics where M and C have few entries: cost linear in their number."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from .band import BandFactor
from .factor import AbstractFactor
from .layout import Layout
from .root import inverse_root


class BlockMatrix(eqx.Module):
    """M in its blocks (B, s, s), filled up with those of I."""

    blocks: Float[Array, "k s s"]
    layout: Layout = eqx.field(static=True)

    @classmethod
    def of(cls, layout: Layout, products: Float[Array, "c nv"]) -> "BlockMatrix":
        """From M times each of the layout's seeds."""
        size = layout.blocks.shape[1]
        padded = jnp.pad(products, ((0, 0), (0, 1))).reshape(-1, size, layout.nv + 1)
        blocks = padded[layout.colours[:, None, None], np.arange(size)[:, None], layout.blocks[:, None]]
        # Velocities that do not exist have unit mass and no coupling: blocks of one size stay positive definite.
        fill = (layout.blocks == layout.nv)[:, None] * np.eye(size)
        return cls(blocks + jnp.asarray(fill, products.dtype), layout)

    @classmethod
    def from_dense(cls, layout: Layout, matrix: Float[Array, "nv nv"]) -> "BlockMatrix":
        """From a dense matrix."""
        size, exist = layout.blocks.shape[1], layout.blocks < layout.nv
        indices = np.minimum(layout.blocks, layout.nv - 1)
        both = exist[:, :, None] & exist[:, None]
        return cls(jnp.where(both, matrix[indices[:, :, None], indices[:, None]], np.eye(size)), layout)

    def dense(self) -> Float[Array, "nv nv"]:
        """As a dense matrix."""
        n, indices = self.layout.nv, self.layout.blocks
        matrix = jnp.zeros((n + 1, n + 1), self.blocks.dtype)
        return matrix.at[indices[:, :, None], indices[:, None]].set(self.blocks)[:n, :n]

    def __matmul__(self, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return from_blocks(self.layout, batched_product(self.blocks, to_blocks(self.layout, x)))


class SparseRows(eqx.Module):
    """C by the blocks that each row touches (m, w, s)."""

    values: Float[Array, "m w s"]
    layout: Layout = eqx.field(static=True)

    @classmethod
    def of(cls, layout: Layout, products: Float[Array, "c m"]) -> "SparseRows":
        """From C times each of the layout's seeds."""
        size = layout.blocks.shape[1]
        colours = np.append(layout.colours, 0)[layout.touched]
        rows = np.arange(layout.m)[:, None, None]
        values = products.reshape(-1, size, layout.m)[colours[..., None], np.arange(size), rows]
        return cls(jnp.where(layout.columns < layout.nv, values, 0), layout)

    @classmethod
    def from_dense(cls, layout: Layout, matrix: Float[Array, "m nv"]) -> "SparseRows":
        """From a dense matrix."""
        indices = layout.columns
        rows = np.arange(layout.m)[:, None, None]
        exist = indices < layout.nv
        return cls(jnp.where(exist, matrix[rows, np.minimum(indices, layout.nv - 1)], 0), layout)

    def dense(self) -> Float[Array, "m nv"]:
        """As a dense matrix."""
        m, n = self.layout.m, self.layout.nv
        rows = np.arange(m)[:, None, None]
        return jnp.zeros((m, n + 1), self.values.dtype).at[rows, self.layout.columns].set(self.values)[:, :n]

    def __matmul__(self, x: Float[Array, " nv"]) -> Float[Array, " m"]:
        return rows_times(self.layout, self.values, to_blocks(self.layout, x))

    def __abs__(self) -> "SparseRows":
        return SparseRows(jnp.abs(self.values), self.layout)


class SparseFactor(AbstractFactor):
    """The equations M x − C_kᵀ λ = f, C_k x = γ_k of rows k far from being dependent, factorised once for many right-hand sides.

    With R M Rᵀ = I by blocks and A = diag(1/σ) C Rᵀ, S = A_k A_kᵀ has entries only where two rows touch the same block, and

        x = Rᵀ (y + Aᵀ z),   S z = γ/σ − A y,   y = R f,   λ = diag(1/σ) z.

    S squares the condition number; one step of refinement by the residual of C x = γ makes up for it where no singular value of A
    is below 1e-3 (Björck 1987, corrected seminormal equations), which `uncertainty` tells. Derivatives are those of the equations.

    Args:
        mass: M.
        jacobian: C.
        scale: reference sizes σ (m,) of the rows.
        in_use: mask (m,) of rows in use; nothing is lost among them, see `gap`.

    Attributes:
        lowered: A (m, w, s), all rows of it.
    """

    mass: BlockMatrix
    rows: Float[Array, "m w s"]
    scale: Float[Array, " m"]
    in_use: Bool[Array, " m"]
    basis: Float[Array, "m n"]
    root: Float[Array, "k s s"]
    lowered: Float[Array, "m w s"]
    band: BandFactor

    def __init__(self, mass: BlockMatrix, jacobian: SparseRows, scale: Float[Array, " m"], in_use: Bool[Array, " m"]):
        layout = mass.layout
        self.mass, self.scale, self.in_use = mass, scale, in_use
        self.basis = jnp.zeros((layout.m, 0), scale.dtype)  # it has none, see `AbstractFactor.basis`
        scaled = jacobian.values / scale[:, None, None]
        self.rows = jnp.where(in_use[:, None, None], scaled, 0)
        self.root, self.lowered = lowered(mass, scaled)
        self.band = BandFactor(*self._products(self.lowered, self.lowered)[:2])

    @property
    def _used(self) -> Bool[Array, "k b"]:
        """Which rows of each neighbourhood are in use."""
        return jnp.append(self.in_use, False)[self.mass.layout.order]

    def _products(self, a: Float[Array, "m w s"], b: Float[Array, "m w s"]) -> tuple[Array, Array, Array]:
        """The blocks of a bᵀ of the rows in use on the diagonal, below and right of it; those of I in other rows."""
        layout, wide = self.mass.layout, self.mass.layout.order.shape[1]
        a, b = (jnp.where(self.in_use[:, None, None], x, 0) for x in (a, b))
        products = gram(layout, a, b)
        # One on the diagonal of rows that are not in use, whose products are zero: S stays positive definite.
        diagonal = products[:, :wide, :wide] + jax.vmap(jnp.diag)((~self._used).astype(a.dtype))
        return diagonal, products[:, wide:, :wide], products[:, :wide, wide:]

    @property
    def remainders(self) -> Float[Array, "k b"]:
        """Of each row in use off those before it, by neighbourhoods; zero where that is lost in rounding, infinite of other rows."""
        # Cholesky's factor is NaN from the row on that is lost in rounding: such a row is dependent, not unknown.
        remainders = jnp.where(self._used, self.band.remainders, jnp.inf)
        return jnp.where(jnp.isnan(remainders), 0, remainders)

    @property
    def gap(self) -> Float[Array, ""]:
        """The smallest remainder."""
        return jnp.min(self.remainders, initial=jnp.inf)

    @property
    def uncertainty(self) -> Float[Array, ""]:
        """‖W‖² = tr S⁻¹, W A_k being orthonormal: no singular value of A_k is below 1/‖W‖."""
        return jnp.sum(jnp.where(self._used, self.band.inverse_diagonal(), 0))

    def orientation_changed(self, before: Float[Array, "m w s"]) -> Bool[Array, ""]:
        """Whether a remainder has changed its sign since A was `before`: det(Q Q₀ᵀ) < 0, Q and Q₀ being the orthonormal rows."""
        return negative_determinant(*self._products(self.lowered, before))

    def solve_normal(self, rhs: Float[Array, " m"]) -> Float[Array, " m"]:
        """S⁻¹ times a vector, zero in rows that are not in use."""
        layout = self.mass.layout
        solution = self.band.solve(jnp.append(jnp.where(self.in_use, rhs, 0), 0)[layout.order])
        return jnp.zeros(layout.m + 1, rhs.dtype).at[layout.order].set(solution)[: layout.m]

    def transposed_product(self, z: Float[Array, " m"]) -> Float[Array, "k s"]:
        """A_kᵀ z by blocks."""
        return sum_by_block(self.mass.layout, jnp.where(self.in_use, z, 0)[:, None, None] * self.lowered)

    def from_metric(self, y: Float[Array, "k s"]) -> Float[Array, " nv"]:
        """Rᵀ y."""
        return from_blocks(self.mass.layout, batched_product(jnp.swapaxes(self.root, 1, 2), y))

    def free(self, force: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """M⁻¹ f."""
        return self.from_metric(batched_product(self.root, to_blocks(self.mass.layout, force)))

    def particular(self, gamma: Float[Array, " m"]) -> Float[Array, " nv"]:
        """The smallest x in the metric with C_k x = γ_k, without derivatives; γ of other rows is not read."""
        return self.from_metric(self.transposed_product(self.solve_normal(gamma / self.scale)))

    def solve(
        self, force: Float[Array, " nv"], gamma: Float[Array, " m"]
    ) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """Returns x (nv,) and λ (m,), which is zero in rows that are not in use; γ of those rows is not read."""
        in_use, n, layout = self.in_use, force.shape[0], self.mass.layout

        def equations(unknown: Array) -> Array:
            x, mu = unknown[:n], unknown[n:]
            parts = to_blocks(layout, x)
            pull = sum_by_block(layout, mu[:, None, None] * self.rows)
            balance = from_blocks(layout, batched_product(self.mass.blocks, parts) + pull)
            return jnp.concatenate([balance, rows_times(layout, self.rows, parts)])

        def solve(_: object, rhs: Array) -> Array:
            f, g = rhs[:n], rhs[n:]
            y = batched_product(self.root, to_blocks(layout, f))
            z = self.solve_normal(g - rows_times(layout, self.lowered, y))
            x = self.from_metric(y + self.transposed_product(z))
            # One step of refinement of C x = γ against S, which squares the condition number (Björck 1987).
            more = self.solve_normal(g - rows_times(layout, self.rows, to_blocks(layout, x)))
            x = x + self.from_metric(self.transposed_product(more))
            return jnp.concatenate([x, -(z + more)])

        # One vector, see `ConstrainedFactor.solve`; the equations are symmetric, so that their transpose needs no other factor.
        rhs = jnp.concatenate([force, jnp.where(in_use, gamma / self.scale, 0)])
        x = lax.custom_linear_solve(equations, rhs, solve, solve, symmetric=True)
        return x[:n], -x[n:] / self.scale


def lowered(mass: BlockMatrix, rows: Float[Array, "m w s"]) -> tuple[Float[Array, "k s s"], Float[Array, "m w s"]]:
    """R with R M Rᵀ = I by blocks, and rows times Rᵀ; without derivatives."""
    # M does not couple its blocks: each has a root of its own, all of one size and made at once.
    root = jax.vmap(lambda block: inverse_root(block, quick=True))(mass.blocks)
    roots = jnp.pad(root, ((0, 1), (0, 0), (0, 0)))[mass.layout.touched]
    return root, batched_product(roots, lax.stop_gradient(rows))


def to_blocks(layout: Layout, x: Float[Array, " nv"]) -> Float[Array, "k s"]:
    """A vector by blocks."""
    return jnp.append(x, 0)[layout.blocks]


def from_blocks(layout: Layout, parts: Float[Array, "k s"]) -> Float[Array, " nv"]:
    """A vector from its blocks."""
    return parts.ravel()[layout.position]


def batched_product(matrices: Float[Array, "... s s"], vectors: Float[Array, "... s"]) -> Float[Array, "... s"]:
    """The product of each matrix with its vector."""
    return jnp.sum(matrices * vectors[..., None, :], axis=-1)


def rows_times(layout: Layout, rows: Float[Array, "m w s"], parts: Float[Array, "k s"]) -> Float[Array, " m"]:
    """The rows times a vector given by blocks (m,)."""
    return jnp.sum(rows * jnp.pad(parts, ((0, 1), (0, 0)))[layout.touched], axis=(1, 2))


def sum_by_block(layout: Layout, values: Float[Array, "m w s"]) -> Float[Array, "k s"]:
    """For each block (k, s) the sum of the rows' entries in it."""
    flat = jnp.pad(values.reshape(-1, values.shape[-1]), ((0, 1), (0, 0)))
    return jnp.sum(flat[layout.touching], axis=1)


def gram(layout: Layout, a: Float[Array, "m w s"], b: Float[Array, "m w s"]) -> Float[Array, "k r r"]:
    """Products of the rows of each neighbourhood and the next one."""
    windows = []
    for rows in (a, b):
        flat = jnp.pad(rows.reshape(-1, rows.shape[-1]), ((0, 1), (0, 0)))
        windows.append(flat[layout.window].reshape(*layout.window.shape[:2], -1))
    return windows[0] @ jnp.swapaxes(windows[1], 1, 2)


def negative_determinant(
    diagonal: Float[Array, "k b b"], below: Float[Array, "k b b"], above: Float[Array, "k b b"]
) -> Bool[Array, ""]:
    """Whether a matrix of blocks D_k, with E_k below and U_k right of them, has a negative determinant; by elimination without pivots."""
    wide = diagonal.shape[1]

    def eliminate(carry: tuple[Array, Array], blocks: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        rest, negative = carry
        own, lower, upper = blocks
        # [D, U; E, 0] becomes [·, ·; 0, −E D⁻¹ U]; the sign of each pivot counts, and a pivot of zero is passed over as if positive.
        work = jnp.block([[own - rest, upper], [lower, jnp.zeros_like(own)]])
        for _ in range(wide):
            pivot = work[0, 0]
            negative = negative ^ (pivot < 0)
            work = work[1:, 1:] - work[1:, :1] * (work[:1, 1:] / jnp.where(pivot == 0, 1, pivot))
        return (-work, negative), None

    start = (jnp.zeros_like(diagonal[0]), jnp.array(False))
    return lax.scan(eliminate, start, (diagonal, below, above))[0][1]
