"""The balance of forces at rest, and a step of Newton's method towards it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..foundations import positive_or_one, quotient
from ..kinematics import displacement
from ..linalg import (
    RANK_TOL,
    ConstrainedFactor,
    Eliminated,
    cutoff,
    inverse_root,
    minimum_norm_multipliers,
    regular_metric,
    row_norms,
)
from ..system import Scale, System, constraint_jacobian, extent, position_residual, rows_at

Scalar = Float[Array, ""]

# Smallest stiffness, relative to the largest in the metric of M, that decides where an equilibrium is. Stiffness is the square of a
# frequency: modes 1e5 times as slow as the fastest one still count; below that rounding would decide.
SOFTEST = 1e-10
# Forces on a coordinate are not asked to vanish more exactly than to this part of the largest ones, times the tolerance.
LEAST_FORCE = 1e-3
# Forces and stiffness count beyond so many units of rounding of what acts.
ROUNDING = 64


class Balance(eqx.Module):
    """What is to be at rest.

    Attributes:
        system: in its mode.
        t: time in s.
        u: inputs (nu,), zero for those to be solved for.
        weights: of the latter (nu,), zero for the others; None where there are none.
        scale: sizes.
        start: coordinates (nq,) to start from.
        fixed: indices of those that keep their values.
    """

    system: System
    t: Scalar
    u: Float[Array, " nu"]
    weights: Float[Array, " nu"] | None
    scale: Scale
    start: Float[Array, " nq"]
    fixed: tuple[int, ...] = eqx.field(static=True)

    def force(self, q: Float[Array, " nq"], u: Float[Array, " nu"]) -> Float[Array, " nv"]:
        """F at rest."""
        none = jnp.zeros(self.system.nv, q.dtype)
        applied = self.system.applied_force(self.t, q, none, u if self.system.nu else None)
        return self.system.intrinsic_force(self.t, q, none) + applied

    def rows(self, q: Float[Array, " nq"]) -> tuple[Array, Array, Array]:
        """The metric, the rows of the constraints and of the inputs to be solved for, and their reference sizes."""
        terms = rows_at(self.system, self.t, q, self.scale.row)
        metric = regular_metric(terms.mass, terms.jacobian)
        if self.weights is None:
            return metric, terms.jacobian, terms.scale
        pushes = (self.system.actuation(self.t, q) * self.weights).T
        # Sizes are units: they decide what rows are compared with, and have no derivative.
        sizes = positive_or_one(lax.stop_gradient(row_norms(metric, pushes)))
        return metric, jnp.concatenate([terms.jacobian, pushes]), jnp.concatenate([terms.scale, sizes])

    def ways(self, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
        """Sizes of coordinates: the value or the way so far, and what moves a row of constraints by its span."""
        system = self.system
        way = jnp.maximum(extent(system, q), jnp.abs(displacement(system, q, q - self.start)))
        return jnp.maximum(way, self.scale.reach) if system.m else way


def independent(problem: Balance, q: Float[Array, " nq"]) -> Bool[Array, " r"]:
    """Which rows of the constraints, then of the inputs, are independent; without derivatives."""
    problem, q = lax.stop_gradient((problem, q))
    system = problem.system
    metric, rows, sizes = problem.rows(q)
    constraint = np.arange(rows.shape[0]) < system.m
    # Holonomic rows before others, constraints before inputs: an input that a constraint makes needless takes no
    # force.
    first = None
    if system.holonomic is not None:
        first = jnp.concatenate([system.holonomic, jnp.zeros(rows.shape[0] - system.m, bool)])
    tol = cutoff(RANK_TOL, q.dtype)
    eliminated = Eliminated.of((rows / sizes[:, None]) @ inverse_root(metric).T).eliminate(
        tol, first, jnp.asarray(constraint)
    )
    return eliminated.eliminate(tol).chosen


def balance(problem: Balance, q: Float[Array, " nq"], in_use: Bool[Array, " r"]) -> tuple[Array, Array, Array]:
    """R with R W Rᵀ = I of the metric, W v̇ from rest with the rows in use, and the sizes of the forces that act."""
    metric, rows, sizes = problem.rows(q)
    acting = problem.force(q, problem.u)
    factor = ConstrainedFactor(metric, rows, sizes, in_use, 0.0)
    vdot, multipliers = factor.solve(acting, jnp.zeros(rows.shape[0], q.dtype))
    size = jnp.abs(acting) + jnp.abs(rows).T @ jnp.abs(multipliers)
    return factor.root, metric @ vdot, lax.stop_gradient(size)


def steps(problem: Balance, q: Float[Array, " nq"], in_use: Bool[Array, " r"]) -> tuple[Array, Array, Array]:
    """Newton's step, one along the forces, and how far from balance these are.

    The first (nv,) is the displacement, shortest in the metric, by which positions fit and forces balance to first order. The
    second leads along v̇ as far as some coordinate moves by its own size: on where forces do not change to first order. Forces
    are compared (nv,) with those that act and with what moves of the coordinates' own size would change.
    """
    system = problem.system
    factor, (root, force, acting), slopes = stiffness(problem, q, in_use)
    way, unit = problem.ways(q), jnp.sqrt(jnp.diagonal(factor.metric))  # forces divided by `unit` may be compared
    size = (jnp.abs(slopes) @ way + acting) / unit
    # A coordinate on which nothing acts is compared with what acts elsewhere, or any rounding there were an imbalance.
    size = jnp.maximum(size, LEAST_FORCE * jnp.max(size))
    off = quotient(jnp.abs(force) / unit, size)
    # What is balanced but for rounding leads nowhere.
    imbalance = jnp.where(jnp.max(off) > ROUNDING * jnp.finfo(q.dtype).eps, root @ force, 0)
    step = factor.solve(jnp.zeros(system.nv, q.dtype), -_deficit(problem, q, imbalance))[0]
    # v̇ from rest. Where stiffness vanishes, as of a pendulum upright or a loose body, Newton's step has no length,
    # and this leads on.
    free = root.T @ imbalance
    parts = quotient(jnp.abs(free), way)
    most = jnp.max(parts)
    return step, quotient(free, most), off


def deficit(problem: Balance, q: Float[Array, " nq"], in_use: Bool[Array, " r"]) -> Float[Array, " e"]:
    """What must be zero: φ, the moves of coordinates that are held, and R W v̇ from rest."""
    root, force, _ = balance(problem, q, in_use)
    # R has no derivative here: at the root it stands before what is zero, so that dR drops out of the first order.
    return _deficit(problem, q, lax.stop_gradient(root) @ force)


def _deficit(problem: Balance, q: Array, force: Array) -> Array:
    displaced = (q - problem.start)[np.array(problem.fixed, int)]
    return jnp.concatenate([position_residual(problem.system, problem.t, q), displaced, force])


def stiffness(
    problem: Balance, q: Float[Array, " nq"], in_use: Bool[Array, " r"]
) -> tuple[ConstrainedFactor, Any, Array]:
    """The factors of the derivatives of `deficit` along the velocities, of which independent ones are used.

    Beside them what `balance` finds, and the derivatives of its force.
    """
    system, t = problem.system, problem.t
    # Forward mode, nv tangents of one program: the reverse mode of a factorisation would cost more and need its tape.
    derivative = lambda d: jax.jvp(lambda q: balance(problem, q, in_use), (q,), (system.qdot(q, d),))
    values, (_, slopes, _) = jax.vmap(derivative, out_axes=(None, 1))(jnp.eye(system.nv, dtype=q.dtype))
    metric = problem.rows(q)[0]
    jacobian, fixed = constraint_jacobian(system, t, q), np.array(problem.fixed, int)
    if system.holonomic is not None:
        jacobian = jnp.where(system.holonomic[:, None], jacobian, 0)
    unit_rows = system.by_velocities(q, jnp.eye(system.nq, dtype=q.dtype)[fixed])
    rows = jnp.concatenate([jacobian, unit_rows, lax.stop_gradient(values[0]) @ slopes])

    count = system.m + fixed.size
    lengths = lax.stop_gradient(row_norms(metric, rows))
    # Stiffness in one unit, that of the stiffest direction: each row by itself would make rounding of a soft one
    # count. Where inputs hold any pose all of it is rounding, of the forces that act over the ways of coordinates.
    softest, unit = cutoff(SOFTEST, q.dtype), jnp.sqrt(jnp.diagonal(metric))
    lever = jnp.max(unit * problem.ways(q))
    natural = quotient(jnp.max(values[2] / unit), lever)
    least = ROUNDING * jnp.finfo(q.dtype).eps / softest * natural
    stiffest = jnp.broadcast_to(jnp.maximum(jnp.max(lengths[count:], initial=0), least), (system.nv,))
    sizes = jnp.concatenate([problem.scale.row, lengths[system.m : count], stiffest])
    sizes = positive_or_one(lax.stop_gradient(sizes))
    scaled = lax.stop_gradient(rows / sizes[:, None]) @ inverse_root(metric).T
    # Constraints first, to the cut-off of ranks; then stiffness, to its own.
    chosen = Eliminated.of(scaled).eliminate(
        cutoff(RANK_TOL, q.dtype), None, jnp.asarray(np.arange(rows.shape[0]) < count)
    )
    factor = ConstrainedFactor(metric, rows, sizes, chosen.eliminate(softest).chosen, 0.0)
    return factor, values, slopes


def inputs_of(problem: Balance, q: Float[Array, " nq"], in_use: Bool[Array, " r"]) -> tuple[Array, Array, Array, Array]:
    """The inputs, those solved for being of least norm, v̇ from rest, the reaction and λ of least norm."""
    m = problem.system.m
    metric, rows, sizes = problem.rows(q)
    none = jnp.zeros(m, q.dtype)
    factor = ConstrainedFactor(metric, rows[:m], sizes[:m], in_use[:m], 0.0)
    u = problem.u
    if problem.weights is not None:
        # What of a force the constraints leave: inputs balance that, and need not work against reactions.
        free = lambda force: metric @ factor.solve(force, none)[0]
        pushes = jax.vmap(free)(rows[m:])
        pushing = ConstrainedFactor(metric, pushes, sizes[m:], in_use[m:], 0.0)
        shares = pushing.solve(free(problem.force(q, u)), jnp.zeros_like(sizes[m:]))[1]
        # Inputs are multipliers of their own rows; the weights w twice, once in the rows, make Σ (u_i/w_i)² least.
        u = u + problem.weights * minimum_norm_multipliers(pushing, pushes, shares)
    acting = problem.force(q, u)
    vdot, multipliers = factor.solve(acting, none)
    reaction = metric @ vdot - acting
    return u, vdot, reaction, minimum_norm_multipliers(factor, rows[:m], multipliers)
