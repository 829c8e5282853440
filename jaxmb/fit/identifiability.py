"""What an experiment can tell."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..foundations import TextInNotebooks, aligned, positive_or_one
from .start import pivots

# Directions in which residuals change by less than this part of the strongest are unknown: errors of runs with tolerances to 1e-6 look so.
RANK_TOL = 1e-6
# In sentences those below this part are left out: 2 % of the largest would not change what a reader does.
PRINTED = 0.02
# Coefficients of a combination below this part of its largest are taken for zero.
ZERO = 1e-3


def eliminated(jacobian: Float[Array, "R N"], parameters: int) -> Float[Array, "R n"]:
    """The first columns without their parts along the others: (I − Q Qᵀ) J."""
    rest = jacobian[:, parameters:]
    sizes = jnp.linalg.norm(rest, axis=0)
    # Columns of biases and of starts have units of their own; of unit length their rank is that of directions.
    rest = rest / positive_or_one(sizes)
    columns = jacobian[:, :parameters]
    if not rest.shape[1]:
        return columns
    basis, values, _ = jnp.linalg.svd(rest, full_matrices=False)
    basis = jnp.where(values > RANK_TOL * jnp.max(values), basis, 0.0)
    columns = columns - basis @ (basis.T @ columns)
    # Twice is enough (Kahan; Parlett 1980): the first pass leaves rounding of the part that was removed, which may
    # exceed what remains.
    return columns - basis @ (basis.T @ columns)


class Identifiability(TextInNotebooks, eqx.Module):
    """Which parameters, or combinations of them, an experiment determines; `print` shows it in sentences.

    The singular values s and directions w are those of the residuals' Jacobian by the parameters, each over its scale (relative changes by
    default), with biases and starts eliminated. Along w with s = 0 no sample changes; otherwise w·Δp is known
    with the standard error 1/s, for noise as given by σ.

    Attributes:
        labels: names of the entries of the parameters.
        scales: theirs (n,).
        values: s (n,), falling.
        directions: w (n, n), one in each row.
        null: a basis of the directions without effect (k, n), each with few entries.
    """

    labels: tuple[str, ...] = eqx.field(static=True)
    scales: np.ndarray
    values: np.ndarray
    directions: np.ndarray
    null: np.ndarray

    @classmethod
    def of(cls, jacobian: ArrayLike, labels: tuple[str, ...], parameters: int, scales: ArrayLike) -> "Identifiability":
        """From a Jacobian (R, N) by parameters and others, over their scales."""
        rows = np.asarray(eliminated(jnp.asarray(jacobian), parameters))
        # All directions, also with fewer samples than parameters: the missing ones have s = 0.
        _, values, directions = np.linalg.svd(rows, full_matrices=rows.shape[0] < parameters)
        values = np.concatenate([values, np.zeros(parameters - len(values))])
        is_null = values <= RANK_TOL * max(values.max(initial=0), np.finfo(float).tiny)
        return cls(
            labels[:parameters], np.asarray(scales)[:parameters], values, directions, _sparse_basis(directions[is_null])
        )

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Names of the parameters whose values the experiment alone does not determine."""
        touched = np.any(np.abs(self.null) > ZERO, axis=0) if len(self.null) else np.zeros(len(self.labels), bool)
        return tuple(label for label, is_touched in zip(self.labels, touched, strict=True) if is_touched)

    @property
    def standard_errors(self) -> dict[str, float]:
        """By name, in the parameters' units, the standard errors for noise as given by σ; infinite for what is undetermined."""
        s = positive_or_one(self.values)
        determined = self.values > RANK_TOL * self.values.max(initial=0)
        errors = np.sqrt(np.sum((self.directions[determined] / s[determined, None]) ** 2, axis=0)) * self.scales
        undetermined = set(self.undetermined)
        return {x: float("inf") if x in undetermined else float(e) for x, e in zip(self.labels, errors, strict=True)}

    def sentences(self) -> list[str]:
        """Which directions are not determined, and which is determined worst."""
        texts = []
        for row in self.null:
            if np.sum(np.abs(row) > ZERO) == 1:
                texts.append(f"Nothing measured depends on {self.labels[int(np.argmax(np.abs(row)))]}.")
            else:
                texts.append(f"Nothing measured changes along {self._combination(row)}.")
        rank = int(np.sum(self.values > RANK_TOL * self.values.max(initial=0)))
        if rank:
            worst = self.directions[rank - 1]
            texts.append(
                f"Least certain, to {100 / self.values[rank - 1]:.2g} % for the given σ: {self._combination(worst)}."
            )
        return texts

    def _combination(self, row: np.ndarray) -> str:
        """Changes by name in parts of the scales, the largest first."""
        row = row / np.abs(row).max()
        order = [i for i in np.argsort(-np.abs(row), kind="stable") if abs(row[i]) > PRINTED]
        row = row * np.sign(row[order[0]])
        return ", ".join(f"{100 * row[i]:+.3g} % {self.labels[i]}" for i in order)

    def __str__(self) -> str:
        errors = self.standard_errors
        cells = [f"{errors[x]:.3g}" if np.isfinite(errors[x]) else "not determined" for x in self.labels]
        rows = [("parameter", "standard error"), *zip(self.labels, cells, strict=True)]
        return "\n".join([*aligned(rows), *self.sentences()])


def _sparse_basis(basis: np.ndarray) -> np.ndarray:
    """Another basis of the same space with few entries: reduced by elimination with pivots."""
    if not len(basis):
        return basis
    reduced = np.linalg.solve(basis[:, pivots(basis)[: len(basis)]], basis)
    return np.where(np.abs(reduced) > ZERO * np.abs(reduced).max(axis=1, keepdims=True), reduced, 0.0)
