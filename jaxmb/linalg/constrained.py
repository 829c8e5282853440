"""The constrained linear problem of dynamics, solved by orthogonal rows in the metric of the mass matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .rank import mean_inertia
from .root import UNROLLED, inverse_root, solve_spd


class ConstrainedFactor(eqx.Module):
    """The equations M x − C_kᵀ λ = f, C_k x = γ_k of the independent rows k, factorised once for many right-hand sides.

    With R M Rᵀ = ρ² I and the orthonormal rows Q = W diag(1/σ) C_k Rᵀ, W lower triangular, the solution is

        x = Rᵀ (y + Qᵀ z),   z = W γ/σ − Q y,   y = R f/ρ²,   λ = ρ² diag(1/σ) Wᵀ z.

    Forward and reverse derivatives of any order are those of the equations, not of the factors.

    Args:
        mass: M (nv, nv), positive definite.
        jacobian: C (m, nv).
        scale: reference sizes σ (m,) of the rows.
        keep: mask (m,) of independent rows.
    """

    metric: Float[Array, "nv nv"]
    rows: Float[Array, "m nv"]
    scale: Float[Array, " m"]
    keep: Bool[Array, " m"]
    unit: Float[Array, ""]
    root: Float[Array, "nv nv"]
    weights: Float[Array, "m m"]
    basis: Float[Array, "m nv"]

    def __init__(
        self,
        mass: Float[Array, "nv nv"],
        jacobian: Float[Array, "m nv"],
        scale: Float[Array, " m"],
        keep: Bool[Array, " m"],
    ):
        self.unit = lax.stop_gradient(mean_inertia(mass))
        self.metric = mass / self.unit
        self.rows = jnp.where(keep[:, None], jacobian / scale[:, None], 0)
        self.scale = scale
        self.keep = keep
        self.root = inverse_root(lax.stop_gradient(self.metric))
        self.weights, self.basis = _orthonormal_rows(lax.stop_gradient(self.rows) @ self.root.T, keep)

    def solve(
        self, force: Float[Array, " nv"], gamma: Float[Array, " m"]
    ) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """Returns x (nv,) and λ (m,), which is zero in rows that are not kept; γ of those rows is not read."""
        keep, n = self.keep, self.metric.shape[0]

        def equations(unknown):
            x, mu = unknown[:n], unknown[n:]
            return jnp.concatenate([self.metric @ x + self.rows.T @ mu, self.rows @ x - jnp.where(keep, 0, mu)])

        def solve(_, rhs):
            f, g = rhs[:n], rhs[n:]
            y = self.root @ f
            z = jnp.where(keep, self.weights @ jnp.where(keep, g, 0) - self.basis @ y, 0)
            return jnp.concatenate([self.root.T @ (y + z @ self.basis), jnp.where(keep, -(z @ self.weights), -g)])

        # One vector: with a pair, a derivative that touches one half only would fail.
        rhs = jnp.concatenate([force / self.unit, jnp.where(keep, gamma / self.scale, 0)])
        x = lax.custom_linear_solve(equations, rhs, solve, solve, symmetric=True)
        return x[:n], -x[n:] * self.unit / self.scale


def _orthonormal_rows(rows: Array, keep: Array) -> tuple[Array, Array]:
    """W lower triangular and Q with orthonormal rows, Q = W `rows`; zero rows of Q where a row is not kept.

    Modified Gram–Schmidt on [rows, I]: what turns the rows into Q turns I into W.
    """
    m, n = rows.shape
    rest = jnp.concatenate([rows, jnp.eye(m, dtype=rows.dtype)], axis=1)
    if m > UNROLLED:
        done = lax.fori_loop(0, m, lambda i, rest: _orthonormalise(i, rest, n, keep), rest)
        return done[:, n:], done[:, :n]
    out: list[Array] = []
    for i in range(m):
        row = rest[i]
        for other in out:
            row = row - jnp.sum(row[:n] * other[:n]) * other
        out.append(row / jnp.sqrt(jnp.where(keep[i], jnp.sum(row[:n] ** 2), 1)))
    done = jnp.stack(out) if m else rest
    return done[:, n:], done[:, :n]


def _orthonormalise(i: Array, rest: Array, n: int, keep: Array) -> Array:
    """Brings row i, which is orthogonal to those above it but for rounding, to unit length and those below off it."""
    above = jnp.arange(rest.shape[0]) < i
    row = rest[i]
    row = row - jnp.where(above, rest[:, :n] @ row[:n], 0) @ rest  # again: twice is enough (Kahan, Parlett)
    row = row / jnp.sqrt(jnp.where(keep[i], jnp.sum(row[:n] ** 2), 1))
    rest = rest.at[i].set(row)
    below = jnp.where(jnp.arange(rest.shape[0]) > i, rest[:, :n] @ row[:n], 0)
    return rest - below[:, None] * row


def minimum_norm_multipliers(
    factor: ConstrainedFactor, jacobian: Float[Array, "m nv"], multipliers: Float[Array, " m"]
) -> Float[Array, " m"]:
    """The multipliers of least Euclidean norm with the same Cᵀλ, from those of the independent rows.

    All rows are combinations C = E C_k of the independent ones, so Cᵀλ = C_kᵀ λ_k means Eᵀλ = λ_k, whose solution of
    least norm is λ = E (EᵀE)⁻¹ λ_k. The columns of E are brought to unit length first, since rows may have any units.
    """
    zero = jnp.zeros_like(multipliers)
    combinations = jax.vmap(lambda row: -factor.solve(row, zero)[1])(jacobian)
    length = jnp.sqrt(jnp.where(factor.keep, jnp.sum(combinations**2, axis=0), 1))
    combinations = combinations / length
    gram = combinations.T @ combinations + jnp.diag(jnp.where(factor.keep, 0, 1).astype(jacobian.dtype))
    return combinations @ solve_spd(gram, multipliers / length)


def projector(factor: ConstrainedFactor) -> Float[Array, "nv nv"]:
    """The projector on null(C) that is orthogonal in the factor's metric W.

    P² = P, C P = 0, W P = Pᵀ W; with W = I it is P = I − C⁺C (Aghili's projection matrix).
    """
    zero = jnp.zeros_like(factor.scale)
    return jax.vmap(lambda f: factor.solve(factor.unit * f, zero)[0], out_axes=1)(factor.metric)
