"""The decision about the rows at a state: which are independent, degenerate, indeterminate or redundant."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..linalg import ConstrainedFactor, Eliminated, cutoff, independent_factor, inverse_root
from ..system import Nearby, Terms

# Smallest growth of a dependent row's remainder, relative to the fastest change of any row, that counts as growth.
GROWTH = 1e-3
# Below this length the probe has no part in the null space: there is no direction to go in, and its rounding must not become one.
NO_DIRECTION = 1e-6


class Decision(eqx.Module):
    """The rows at a state on the constraints.

    Attributes:
        in_use: mask (m,) of a largest set of rows that are independent here; its sum is the rank.
        degenerate: mask (m,) of rows that are dependent here, and independent where the motion leads.
        indeterminate: mask (m,) of rows that are dependent here and independent nearby, though not along the velocity, so that the
            motion is not determined.
        root: R with R W Rᵀ = I, W the metric.
        basis: orthonormal rows Q (m, nv) of diag(1/σ) C_k Rᵀ; zero in rows outside of `in_use`.
        weights: (m, m) with Q = `weights` diag(1/σ) C Rᵀ.
        combined: Zᵀ (m, m) with Zᵀ diag(1/σ) C = 0; zero in the rows of `in_use`.
        rate: Ċ; zero where all rows are independent.
    """

    in_use: Bool[Array, " m"]
    degenerate: Bool[Array, " m"]
    indeterminate: Bool[Array, " m"]
    root: Float[Array, "nv nv"]
    basis: Float[Array, "m nv"]
    weights: Float[Array, "m m"]
    combined: Float[Array, "m m"]
    rate: Float[Array, "m nv"]

    def particular(self, scaled: Float[Array, " m"]) -> Float[Array, " nv"]:
        """The smallest x in the metric with diag(1/σ) C x = `scaled` in the rows of `in_use`."""
        return self.root.T @ ((self.weights @ scaled) @ self.basis)


class _Level(eqx.Module):
    """The carry of the loop over the levels: number 1 is ZᵀĊ, number 2 is Zᵀ∂C."""

    number: Int[Array, ""]
    eliminated: Eliminated
    degenerate: Bool[Array, " m"]
    rate: Float[Array, "m nv"]


def decide(
    terms: Terms,
    metric: Float[Array, "nv nv"],
    nearby: Nearby,
    rank_tol: float,
    consistent: Bool[Array, ""] | bool = True,
    excluded: Bool[Array, " m"] | None = None,
    in_use: Bool[Array, " m"] | None = None,
) -> Decision:
    """Sorts the rows by one elimination, which is continued where rows are dependent. The decision has no derivative.

    1. A = diag(1/σ) C Rᵀ: which rows are independent (`jaxmb.linalg.independent_rows`), and Zᵀ A = 0 of the others.
    2. Zᵀ Ȧ: what of it adds to the rank belongs to rows that are degenerate at this pose only; the motion leads on to where they act.
    3. Zᵀ ∂A along a direction that all these rows allow, which has no symmetry and so stands for all: what adds to the rank now
       belongs to rows that are independent nearby, though not along the velocity. Rows that add nothing are redundant.

    Growth counts above `GROWTH` of that of the fastest row, and above rounding (`Scale.rounding_rate`).

    Args:
        terms: the rows; zeros in those that are not to be used.
        metric: W (nv, nv), in which they are compared.
        nearby: the rows around the state.
        rank_tol: cut-off, as in `jaxmb.linalg.independent_rows`.
        consistent: whether the state is on the constraints; one that is not uses no rows.
        excluded: mask (m,) of rows that are not to be used.
        in_use: mask (m,) of the independent rows, if they were decided before.
    """
    terms, metric, nearby = lax.stop_gradient((terms, metric, nearby))
    tol, by_layout = cutoff(rank_tol, metric.dtype), None
    if terms.layout is not None and in_use is None and excluded is None:
        by_layout = _by_layout(terms, metric, nearby.system.acting, rank_tol)
    root = inverse_root(metric) if by_layout is None else by_layout[0].root
    scaled = lambda rows: (rows / terms.scale[:, None]) @ root.T

    def by_elimination() -> Eliminated:
        every = Eliminated.of(scaled(terms.jacobian))
        return every.eliminate(tol, terms.holonomic) if in_use is None else every.eliminate(0.0, among=in_use)

    if by_layout is None:
        independent = by_elimination()
    else:
        factor, conclusive = by_layout
        eliminated = Eliminated(rows=factor.basis, combined=factor.weights, chosen=factor.in_use)
        independent = lax.cond(conclusive, lambda: eliminated, by_elimination)
    used = independent.chosen & consistent
    chosen = used[:, None]
    excluded = jnp.zeros_like(used) if excluded is None else excluded
    combined_rest = lambda e: jnp.where((e.chosen | excluded)[:, None], 0, e.combined)

    def next_level(level: _Level) -> _Level:
        is_first, free = level.number == 1, generic_direction(level.eliminated.basis)
        length = jnp.linalg.norm(free)
        free = root.T @ (free / jnp.where(length > NO_DIRECTION, length, jnp.inf))
        # The first level follows the motion, where time goes on too; the second one stands still in time.
        direction = jnp.where(is_first, nearby.state.v, free)
        rate = nearby.jacobian_derivative(direction, jnp.where(is_first, 1.0, 0.0))
        turning = scaled(rate)
        fastest = jnp.max(jnp.linalg.norm(turning, axis=1), initial=0)
        least = GROWTH * jnp.maximum(fastest, nearby.state.scale.rounding_rate(direction))
        # `tol` is above `rank_tol` where the precision is too low for it; what counts as growth rises with it.
        # Zᵀ of the rows that are left: a row that follows from others has no part of their change either, wherever the direction leads.
        turned = combined_rest(level.eliminated) @ turning
        eliminated = level.eliminated.off_basis(turned).eliminate(least * tol / rank_tol)
        degenerate = jnp.where(is_first, eliminated.chosen & ~used, level.degenerate)
        return _Level(
            number=level.number + 1,
            eliminated=eliminated,
            degenerate=degenerate,
            rate=jnp.where(is_first, rate, level.rate),
        )

    active = nearby.system.active
    # Rows of full rank, the rule, skip both levels.
    deficient = consistent & (jnp.sum(used) < (used.shape[0] if active is None else jnp.sum(active)))
    start = _Level(
        number=jnp.array(1),
        eliminated=independent,
        degenerate=jnp.zeros_like(used),
        rate=jnp.zeros_like(terms.jacobian),
    )
    last = lax.while_loop(lambda level: deficient & (level.number < 3), next_level, start)
    return Decision(
        in_use=used,
        degenerate=last.degenerate,
        indeterminate=deficient & last.eliminated.chosen & ~used & ~last.degenerate,
        root=root,
        basis=jnp.where(chosen, independent.rows, 0),
        weights=jnp.where(chosen, independent.combined, 0),
        combined=combined_rest(independent),
        rate=last.rate,
    )


def generic_direction(basis: Float[Array, "m n"]) -> Float[Array, " n"]:
    """A vector without a symmetry, less its part along orthonormal rows: no mechanism's symmetry makes that vanish or special."""
    probe = jnp.asarray(np.cos(1.0 + 2.0 * np.arange(basis.shape[1])), basis.dtype)
    return probe - (basis @ probe) @ basis


def _by_layout(
    terms: Terms, metric: Float[Array, "nv nv"], acting: Bool[Array, " m"], rank_tol: float
) -> tuple[ConstrainedFactor, Bool[Array, ""]]:
    """The factors of the rows that act, and whether the independent ones among them are certain without elimination."""
    assert terms.layout is not None
    factor, conclusive = independent_factor(metric, terms.jacobian, terms.scale, acting, rank_tol, terms.layout)
    # Dependent rows with a position come before those without, which the layout does not know.
    return factor, conclusive if terms.holonomic is None else conclusive & jnp.all(factor.in_use == acting)
