"""Gram and Schmidt's elimination with the largest remainder first, which can be continued with other rows.

With the largest remainder first (rank-revealing, as QR with column pivoting: Businger and Golub 1965) the remainder at which it stops
bounds all others. It is a loop of array operations: LAPACK is not called, see `jaxmb.linalg`.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

# Beyond so many rows, up to `BLOCK` are chosen or made orthonormal at a time: products of matrices in place of as many turns of a loop. None of those
# that are chosen is smaller than this share of the largest one that is left. A share of one half keeps the rows chosen within a factor of two of the greedy choice.
MANY, BLOCK, SHARE = 64, 16, 0.5
# Passes of orthogonalisation: "twice is enough" (Kahan and Parlett; Giraud, Langou and Rozložník 2005). Beside a light body rows are
# nearly parallel in the metric of M, and one pass leaves them far from orthogonal.
PASSES = 2


class Eliminated(eqx.Module):
    """Rows of which some are chosen, of unit length and orthogonal, and the others are what remains off these.

    Attributes:
        rows: (m, n).
        combined: W (m, m), by which the rows have been made of those at the start, W A.
        chosen: mask (m,).
    """

    rows: Float[Array, "m n"]
    combined: Float[Array, "m m"]
    chosen: Bool[Array, " m"]

    @classmethod
    def of(cls, rows: Float[Array, "m n"]) -> "Eliminated":
        """The rows A, none of them chosen."""
        m = rows.shape[0]
        return cls(rows, jnp.asarray(np.eye(m), rows.dtype), jnp.asarray(np.zeros(m, bool)))

    @property
    def basis(self) -> Float[Array, "m n"]:
        """The chosen rows, zero elsewhere."""
        return jnp.where(self.chosen[:, None], self.rows, 0)

    def off_basis(self, rows: Float[Array, "m n"]) -> "Eliminated":
        """The same with these rows in place of those that are not chosen, less their parts along the basis."""
        for _ in range(PASSES):
            rows = rows - (rows @ self.basis.T) @ self.basis
        return Eliminated(jnp.where(self.chosen[:, None], self.rows, rows), self.combined, self.chosen)

    def eliminate(
        self,
        tol: Float[Array, ""] | float,
        first: Bool[Array, " m"] | None = None,
        among: Bool[Array, " m"] | None = None,
    ) -> "Eliminated":
        """Chooses the row with the largest remainder in turn, as long as that is above `tol`; those of `first` before the others.

        Of many rows one whose remainder is at least half of the largest may come first. If `among` is given, only rows of that mask are chosen.
        """
        if not min(self.rows.shape):
            return self
        few = self.chosen.shape[0] <= MANY
        pick = _pick_one if few else _pick_block

        def more(carry: tuple[Eliminated, Array]) -> tuple[Eliminated, Array]:
            now, _ = carry
            # Chosen rows have unit length by now, and would be chosen for ever.
            barred = now.chosen if among is None else now.chosen | ~among
            size = jnp.where(barred, 0, jnp.sum(now.rows**2, axis=1))
            if first is not None:
                ahead = first & (size > tol**2)
                size = jnp.where(jnp.any(ahead) & ~ahead, 0, size)
            return pick(now, size, tol)

        start = self, jnp.array(True)
        if (
            few
        ):  # turns of known number, which scalar programs take; those beyond the last row that is chosen are left out
            turn = lambda _, carry: lax.cond(carry[1], more, lambda carry: carry, carry)
            return lax.fori_loop(0, min(self.rows.shape), turn, start)[0]
        return lax.while_loop(lambda carry: carry[1], more, start)[0]


def _pick_one(now: Eliminated, size: Array, tol: Array | float) -> tuple[Eliminated, Array]:
    """The row of the largest square `size` is chosen if that is above the tolerance; whether it is."""
    largest = jnp.max(size)
    above = largest > tol**2
    here = (np.arange(size.shape[0]) == jnp.argmax(size)) & above
    inverse = lax.rsqrt(jnp.where(above, largest, 1))  # zero has none, and where no row is chosen zeros are scaled
    row, combination = (jnp.sum(jnp.where(here[:, None], x, 0), axis=0) * inverse for x in (now.rows, now.combined))
    rows, combined = now.rows, now.combined
    for _ in range(PASSES):
        components = jnp.where(here | now.chosen, 0, jnp.sum(rows * row, axis=1))[:, None]
        rows, combined = rows - components * row, combined - components * combination
    rows, combined = (jnp.where(here[:, None], x, rest) for x, rest in ((row, rows), (combination, combined)))
    return Eliminated(rows, combined, now.chosen | here), above


def _pick_block(now: Eliminated, size: Array, tol: Array | float) -> tuple[Eliminated, Array]:
    """Of the `BLOCK` largest rows those are chosen whose remainder, the largest first, stays above the tolerance and above `SHARE` of the largest."""
    m, n = now.rows.shape
    candidates = lax.top_k(size, BLOCK)[1]
    combined_rows = jnp.concatenate([now.rows, now.combined], axis=1)
    block, done = combined_rows[candidates], jnp.where(now.chosen[:, None], combined_rows, 0)
    block = block - (block[:, :n] @ done[:, :n].T) @ done  # against the rounding of all blocks before
    least = jnp.maximum(tol, SHARE * jnp.sqrt(jnp.max(size)))
    number = np.arange(BLOCK)

    def choose(_step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        block, selected = carry
        length = jnp.sqrt(jnp.where(selected | (size[candidates] == 0), 0, jnp.sum(block[:, :n] ** 2, axis=1)))
        best = jnp.argmax(length)
        here = (number == best) & (length > least)
        row = block[best] / jnp.where(length[best] > least, length[best], jnp.inf)
        for _ in range(PASSES):
            block = block - (block[:, :n] @ row[:n])[:, None] * row
        return jnp.where(here[:, None], row, block), selected | here

    block, selected = lax.fori_loop(0, BLOCK, choose, (block, jnp.zeros(BLOCK, bool)))
    picked = jnp.where(selected[:, None], block, 0)
    for _ in range(PASSES):
        components = jnp.where(now.chosen[:, None], 0, combined_rows[:, :n] @ picked[:, :n].T)
        combined_rows = combined_rows - components @ picked
    put = jnp.where(selected, candidates, m)  # the others beyond the end, where nothing is set
    combined_rows = combined_rows.at[put].set(picked, mode="drop")
    return Eliminated(combined_rows[:, :n], combined_rows[:, n:], now.chosen.at[put].set(True, mode="drop")), jnp.any(
        selected
    )
