"""Gram and Schmidt's elimination with the largest remainder first, which can be continued with other rows."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float


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

        Only rows `among` those given are chosen, where they are.
        """
        number = np.arange(self.chosen.shape[0])

        def pick(carry: tuple[Eliminated, Array]) -> tuple[Eliminated, Array]:
            now, _ = carry
            barred = now.chosen if among is None else now.chosen | ~among
            size = jnp.where(barred, 0, jnp.sum(now.rows**2, axis=1))
            if first is not None:
                left = first & (size > tol**2)
                size = jnp.where(jnp.any(left) & ~left, 0, size)
            largest = jnp.max(size)
            found = largest > tol**2
            here = (number == jnp.argmax(size)) & found
            inverse = jnp.where(found, lax.rsqrt(jnp.where(found, largest, 1)), 0)
            row, how = (jnp.sum(jnp.where(here[:, None], x, 0), axis=0) * inverse for x in (now.rows, now.combined))
            rows, combined = now.rows, now.combined
            for _ in range(2):
                along = jnp.where(here | now.chosen, 0, jnp.sum(rows * row, axis=1))[:, None]
                rows, combined = rows - along * row, combined - along * how
            rows, combined = (jnp.where(here[:, None], x, rest) for x, rest in ((row, rows), (how, combined)))
            return Eliminated(rows, combined, now.chosen | here), found

        if not min(self.rows.shape):
            return self
        return lax.while_loop(lambda c: c[1], pick, (self, jnp.array(True)))[0]
