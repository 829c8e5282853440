"""The constrained linear problem of dynamics, solved by orthogonal rows in the metric of the mass matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .cholesky import UNROLLED, cholesky, solve_lower, solve_spd, solve_upper
from .rank import mean_inertia


class ConstrainedFactor(eqx.Module):
    """The equations M x − C_kᵀ λ = f, C_k x = γ_k of the independent rows k, factorised once for many right-hand sides.

    With M = ρ² L Lᵀ and the orthonormal rows Q of diag(1/σ) C_k L⁻ᵀ = T Q the solution is

        x = L⁻ᵀ (y + Qᵀ (T⁻¹ γ/σ − Q y)),   y = L⁻¹ f/ρ².

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
    lower: Float[Array, "nv nv"]
    triangle: Float[Array, "m m"]
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
        self.lower = cholesky(lax.stop_gradient(self.metric))
        in_metric = solve_lower(self.lower, lax.stop_gradient(self.rows).T).T
        self.triangle, self.basis = _orthonormal_rows(in_metric, keep)

    def solve(
        self, force: Float[Array, " nv"], gamma: Float[Array, " m"]
    ) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
        """Returns x (nv,) and λ (m,), which is zero in rows that are not kept; γ of those rows is not read."""
        keep = self.keep

        def equations(unknown):
            x, mu = unknown
            return self.metric @ x + self.rows.T @ mu, self.rows @ x - jnp.where(keep, 0, mu)

        def solve(_, rhs):
            f, g = rhs
            y = solve_lower(self.lower, f)
            z = jnp.where(keep, solve_lower(self.triangle, jnp.where(keep, g, 0)) - self.basis @ y, 0)
            x = solve_upper(self.lower, y + z @ self.basis)
            return x, jnp.where(keep, -solve_upper(self.triangle, z), -g)

        rhs = (force / self.unit, jnp.where(keep, gamma / self.scale, 0))
        x, mu = lax.custom_linear_solve(equations, rhs, solve, solve, symmetric=True)
        return x, -mu * self.unit / self.scale


def _orthonormal_rows(rows: Array, keep: Array) -> tuple[Array, Array]:
    """T lower triangular and Q with orthonormal rows, T Q = `rows`; unit and zero rows where a row is not kept."""
    m = rows.shape[0]
    if m > UNROLLED:
        return _orthonormal_rows_loop(rows, keep)
    triangle: list[Array] = []
    basis: list[Array] = []
    for i in range(m):
        rest, entries = rows[i], []
        for q in basis:
            entries.append(jnp.sum(rest * q))
            rest = rest - entries[-1] * q
        size = jnp.sqrt(jnp.where(keep[i], jnp.sum(rest**2), 1))
        basis.append(rest / size)
        triangle.append(jnp.stack([*entries, size] + [jnp.zeros_like(size)] * (m - 1 - i)))
    if m == 0:
        return jnp.zeros((0, 0), rows.dtype), rows
    return jnp.stack(triangle), jnp.stack(basis)


def _orthonormal_rows_loop(rows: Array, keep: Array) -> tuple[Array, Array]:
    m = rows.shape[0]

    def body(i, carry):
        triangle, basis = carry
        first = basis @ rows[i]
        rest = rows[i] - first @ basis
        second = basis @ rest
        rest = rest - second @ basis
        size = jnp.sqrt(jnp.where(keep[i], jnp.sum(rest**2), 1))
        return triangle.at[i].set((first + second).at[i].set(size)), basis.at[i].set(rest / size)

    return lax.fori_loop(0, m, body, (jnp.zeros((m, m), rows.dtype), jnp.zeros_like(rows)))


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
