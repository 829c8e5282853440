"""Gram and Schmidt's elimination with the largest remainder first, which can be continued with other rows."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

# Beyond so many rows, up to `BLOCK` are chosen at a time, none of them smaller than this share of the largest one that is left.
MANY, BLOCK, SHARE = 64, 16, 0.5


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
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            rows = rows - (rows @ self.basis.T) @ self.basis
        return Eliminated(jnp.where(self.chosen[:, None], self.rows, rows), self.combined, self.chosen)

    def eliminate(
        self,
        tol: Float[Array, ""] | float,
        first: Bool[Array, " m"] | None = None,
        among: Bool[Array, " m"] | None = None,
    ) -> "Eliminated":
        """Chooses the row with the largest remainder in turn, as long as that is above `tol`; those of `first` before the others.

        Of many rows one whose remainder is at least half of the largest may come first. Only rows `among` those given are chosen, where they are.
        """
        if not min(self.rows.shape):
            return self
        pick = _pick_one if self.chosen.shape[0] <= MANY else _pick_block

        def more(carry: tuple[Eliminated, Array]) -> tuple[Eliminated, Array]:
            now, _ = carry
            barred = now.chosen if among is None else now.chosen | ~among
            size = jnp.where(barred, 0, jnp.sum(now.rows**2, axis=1))
            if first is not None:
                left = first & (size > tol**2)
                size = jnp.where(jnp.any(left) & ~left, 0, size)
            return pick(now, size, tol)

        return lax.while_loop(lambda c: c[1], more, (self, jnp.array(True)))[0]


def _pick_one(now: Eliminated, size: Array, tol: Array | float) -> tuple[Eliminated, Array]:
    """The row of the largest square `size` is chosen if that is above the tolerance; whether it is."""
    largest = jnp.max(size)
    found = largest > tol**2
    here = (np.arange(size.shape[0]) == jnp.argmax(size)) & found
    inverse = jnp.where(found, lax.rsqrt(jnp.where(found, largest, 1)), 0)
    row, how = (jnp.sum(jnp.where(here[:, None], x, 0), axis=0) * inverse for x in (now.rows, now.combined))
    rows, combined = now.rows, now.combined
    for _ in range(2):
        along = jnp.where(here | now.chosen, 0, jnp.sum(rows * row, axis=1))[:, None]
        rows, combined = rows - along * row, combined - along * how
    rows, combined = (jnp.where(here[:, None], x, rest) for x, rest in ((row, rows), (how, combined)))
    return Eliminated(rows, combined, now.chosen | here), found


def _pick_block(now: Eliminated, size: Array, tol: Array | float) -> tuple[Eliminated, Array]:
    """Of the `BLOCK` largest rows those are chosen whose remainder, the largest first, stays above the tolerance and above `SHARE` of the largest."""
    m, n = now.rows.shape
    places = lax.top_k(size, BLOCK)[1]
    whole = jnp.concatenate([now.rows, now.combined], axis=1)
    block, done = whole[places], jnp.where(now.chosen[:, None], whole, 0)
    block = block - (block[:, :n] @ done[:, :n].T) @ done  # against the rounding of all blocks before
    least = jnp.maximum(tol, SHARE * jnp.sqrt(jnp.max(size)))
    number = np.arange(BLOCK)

    def choose(_step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        block, taken = carry
        length = jnp.sqrt(jnp.where(taken | (size[places] == 0), 0, jnp.sum(block[:, :n] ** 2, axis=1)))
        best = jnp.argmax(length)
        here = (number == best) & (length > least)
        row = block[best] / jnp.where(length[best] > least, length[best], jnp.inf)
        for _ in range(2):
            block = block - jnp.where(here | taken, 0, block[:, :n] @ row[:n])[:, None] * row
        return jnp.where(here[:, None], row, block), taken | here

    block, taken = lax.fori_loop(0, BLOCK, choose, (block, jnp.zeros(BLOCK, bool)))
    picked = jnp.where(taken[:, None], block, 0)
    for _ in range(2):
        along = jnp.where(now.chosen[:, None], 0, whole[:, :n] @ picked[:, :n].T)
        whole = whole - along @ picked
    put = jnp.where(taken, places, m)  # the others beyond the end, where nothing is set
    whole = whole.at[put].set(picked, mode="drop")
    return Eliminated(whole[:, :n], whole[:, n:], now.chosen.at[put].set(True, mode="drop")), jnp.any(taken)
