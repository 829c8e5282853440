"""What an experiment can tell."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .start import pivots

# Directions in which residuals change by less than this part of the strongest are unknown; in parameters over their scales.
TOLD = 1e-7
# Coefficients of a combination below this part of its largest are left out of sentences.
SHOWN = 1e-3


def eliminated(jacobian: Float[Array, "R N"], parameters: int) -> Float[Array, "R n"]:
    """What is left of the first columns when the others are free to follow: (I − Q Qᵀ) J."""
    rest = jacobian[:, parameters:]
    sizes = jnp.linalg.norm(rest, axis=0)
    rest = rest / jnp.where(sizes > 0, sizes, 1.0)
    found = jacobian[:, :parameters]
    if not rest.shape[1]:
        return found
    left, values, _ = jnp.linalg.svd(rest, full_matrices=False)
    left = jnp.where(values > TOLD * jnp.max(values), left, 0.0)
    found = found - left @ (left.T @ found)
    return found - left @ (left.T @ found)


class Identifiability(eqx.Module):
    """Which parameters, or combinations of them, an experiment tells; print it for sentences.

    The singular values s and directions w of the residuals' Jacobian by the parameters, each over its scale (that is relative changes,
    where nothing else is said), biases and starts eliminated. Along w with s = 0 nothing changes in any sample; else w·Δp is known
    with the standard error 1/s, for noise as given by σ.

    Attributes:
        labels: names of the parameters' entries.
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
    def of(cls, jacobian: Any, labels: tuple[str, ...], parameters: int, scales: Any) -> "Identifiability":
        """From a Jacobian (R, N) by parameters and others, over their scales."""
        rows = np.asarray(eliminated(jnp.asarray(jacobian), parameters))
        _, values, directions = np.linalg.svd(rows, full_matrices=rows.shape[0] < parameters)
        values = np.concatenate([values, np.zeros(parameters - len(values))])
        lost = values <= TOLD * max(values.max(initial=0), np.finfo(float).tiny)
        return cls(labels[:parameters], np.asarray(scales)[:parameters], values, directions, _sparse(directions[lost]))

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Names of the parameters of which the experiment alone tells no value."""
        touched = np.any(np.abs(self.null) > SHOWN, axis=0) if len(self.null) else np.zeros(len(self.labels), bool)
        return tuple(label for label, is_touched in zip(self.labels, touched, strict=True) if is_touched)

    @property
    def standard_errors(self) -> dict[str, float]:
        """By name, in the parameters' units, the standard errors for noise as given by σ; infinite for what is undetermined."""
        s = np.where(self.values > 0, self.values, 1.0)
        known = self.values > TOLD * self.values.max(initial=0)
        errors = np.sqrt(np.sum((self.directions[known] / s[known, None]) ** 2, axis=0)) * self.scales
        lost = set(self.undetermined)
        return {x: float("inf") if x in lost else float(e) for x, e in zip(self.labels, errors, strict=True)}

    def sentences(self) -> list[str]:
        """What is not told, and what is told worst."""
        found = []
        for row in self.null:
            if np.sum(np.abs(row) > SHOWN) == 1:
                found.append(f"Nothing measured depends on {self.labels[int(np.argmax(np.abs(row)))]}.")
            else:
                found.append(f"Nothing measured changes along {self._combination(row)}.")
        known = int(np.sum(self.values > TOLD * self.values.max(initial=0)))
        if known:
            worst = self.directions[known - 1]
            found.append(
                f"Known worst, to {1 / self.values[known - 1]:.2g} of its scale, is {self._combination(worst / np.abs(worst).max())}."
            )
        return found

    def _combination(self, row: np.ndarray) -> str:
        """Changes by name in the parameters' units, as a sum."""
        text = ""
        changes = row * self.scales
        for label, x, share in zip(self.labels, changes, row, strict=True):
            if abs(share) > SHOWN * np.abs(row).max():
                sign = "-" if x < 0 else "+" if text else ""
                text += f" {sign} {abs(x):.3g} Δ{label}" if text else f"{sign}{abs(x):.3g} Δ{label}"
        return text

    def __str__(self) -> str:
        errors = self.standard_errors
        width = max(map(len, self.labels))
        lines = [f"{'parameter':<{width}}  standard error"]
        for label in self.labels:
            e = errors[label]
            lines.append(f"{label:<{width}}  {f'{e:.3g}' if np.isfinite(e) else 'not determined'}")
        return "\n".join([*lines, *self.sentences()])


def _sparse(basis: np.ndarray) -> np.ndarray:
    """Another basis of the same space with few entries: reduced by elimination with pivots."""
    if not len(basis):
        return basis
    found = np.linalg.solve(basis[:, pivots(basis)[: len(basis)]], basis)
    return np.where(np.abs(found) > SHOWN * np.abs(found).max(axis=1, keepdims=True), found, 0.0)
