"""The acceleration beside a singular pose, interpolated along the motion.

There a state satisfies the constraints to rounding and may still be off the motion: with a smallest remainder g of the rows, rounding ε of φ leaves ε/g of
q, ε/g² of v and ε/g³ of the acceleration open. Further along the motion nothing is.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..deferral import with_fallback
from ..dependence import generic_direction
from ..foundations import positive_or_one
from ..linalg import ConstrainedFactor
from ..system import Nearby, Terms, evaluate_at, position_residual, rows_at, velocity_residual

if TYPE_CHECKING:
    from .base import AbstractFormulation
    from .restored import RestoredRows

# Below this remainder rounding of φ would be more than 1e-10 of the acceleration (ε/g³); samples are at twice that and more.
BESIDE = 0.01
# Samples at ±τ, ±2τ and ±3τ, and the weights by which they give the value between to O(τ⁶), as in a run.
OFFSETS = (1.0, -1.0, 2.0, -2.0, 3.0, -3.0)
WEIGHTS = (0.75, 0.75, -0.3, -0.3, 0.05, 0.05)
# Remainders must grow along the samples at this part of the speed of the fastest row, else τ would lead out of the neighbourhood.
GROWTH = 0.05
# Newton's steps from the tangent onto the constraints: from 3τ, off by 9 τ²/2 there, they square an error of a fifth of the distance to the pose.
ITERATIONS = 7
# Samples are on the constraints where φ/Φ is no more than this power of eps, 3e-13 in float64.
EXACT = 0.8
# Interpolated accelerations are exact to 1e-9 or so: an acceleration that agrees to the first power of eps, 2.5e-9 in float64, is left as it is, as is one that
# differs by the second, 7e-11, of the larger one of the direct and the free acceleration, which is rounding at equilibrium.
AGREES, VANISHES = 0.55, 0.65


class Beside(eqx.Module):
    """An acceleration beside a singular pose.

    Attributes:
        vdot: v̇ (nv,).
        uncertainty: the relative difference of v from the motion; where no motion could be sampled, the part of v̇ that rounding leaves open.
    """

    vdot: Float[Array, " nv"]
    uncertainty: Float[Array, ""]


def beside_singular_poses(
    formulation: "AbstractFormulation",
    terms: Terms,
    restored: "RestoredRows",
    factor: ConstrainedFactor,
    degenerate: Bool[Array, ""],
    vdot: Float[Array, " nv"],
) -> Beside:
    """The direct acceleration v̇, or beside a singular pose the interpolated one; elsewhere nothing more is evaluated."""
    direct = Beside(vdot, jnp.zeros_like(vdot, shape=()))
    if not restored.in_use.shape[0]:
        return direct
    # An indeterminate motion has no continuation that could be sampled. The fallback is compiled only where a state is beside a pose, as few are.
    near = (degenerate | (lax.stop_gradient(factor.gap) < BESIDE)) & ~restored.indeterminate
    return with_fallback(near, _interpolated, (formulation, terms, restored.in_use, vdot), direct)


def _interpolated(
    formulation: "AbstractFormulation", terms: Terms, in_use: Bool[Array, " m"], direct: Float[Array, " nv"]
) -> Beside:
    """Σ (15 f(±τ) − 6 f(±2τ) + f(±3τ))/20 = f(0) + O(τ⁶) over accelerations f of states on the constraints, τ such that no row is close to being dependent.

    They lie along the velocity, or where this leads along singular poses, as at rest, along another direction that the constraints allow. The
    velocities, interpolated likewise, show how far that of the state is off.
    """
    assert terms.nearby is not None
    system, state = terms.nearby.system, terms.nearby.state
    here = lax.stop_gradient(formulation.factorise(terms, in_use, 0.0))
    # In the metric of lengths: a light body brings rows together in that of M at any pose, which is no singular pose.
    remainder = here.by_lengths(state.scale.reach, state.scale.row_by_length).gap
    direction, step = away_from_pose(terms.nearby, here, BESIDE)
    samples = (remainder < BESIDE) & (step[1] > 0)
    eps = jnp.finfo(direct.dtype).eps
    # Inputs, as of a controller, are part of the force here but not of the system: their force is held over the samples.
    extra = (
        terms.force
        - system.intrinsic_force(state.t, state.q, state.v)
        - system.applied_force(state.t, state.q, state.v)
    )

    def sample(offset: Array) -> tuple[Array, Array, Array]:
        t = state.t + offset * step[0]
        q, v = _onto(formulation, terms, in_use, t, state.q + system.qdot(state.q, offset * step[1] * direction))
        there = formulation.without_excluded(
            evaluate_at(system, t, q, v, terms.scale, system.applied_force(t, q, v) + extra)
        )
        off = jnp.max(jnp.abs(jnp.where(in_use, position_residual(system, t, q) / state.scale.span, 0)))
        return formulation.motion(there, formulation.factorise(there, in_use, 0.0))[0], v, off

    def interpolated() -> tuple[Array, Array, Array]:
        vdots, vs, offs = lax.map(sample, jnp.asarray(OFFSETS, direct.dtype))
        weights = jnp.asarray(WEIGHTS, direct.dtype)
        return weights @ vdots, weights @ vs, jnp.max(offs)

    # Infinite residuals where nothing was sampled: the direct acceleration stays.
    vdot, v, off = lax.cond(samples, interpolated, lambda: (direct, state.v, jnp.zeros_like(remainder) + jnp.inf))
    metric = formulation.metric(terms)
    # Rounding may make a square negative, whose root would be NaN.
    size = lambda x: jnp.sqrt(jnp.maximum(x @ metric @ x, 0))
    speed = size(lax.stop_gradient(state.v))
    closed = (off <= eps**EXACT) & jnp.all(jnp.isfinite(vdot))
    typical = lax.stop_gradient(jnp.maximum(size(direct), jnp.linalg.norm(here.root @ terms.force)))
    # Where both agree the direct one is exact enough, and its derivatives are those of the terms alone.
    agrees = lax.stop_gradient(size(vdot - direct) <= eps**AGREES * size(vdot) + eps**VANISHES * typical)
    apart = size(lax.stop_gradient(v - state.v)) / positive_or_one(speed)
    turning = jnp.max(here.speeds(terms.nearby.jacobian_derivative(state.v, 1.0)), initial=0)
    # Nothing to compare with: rounding ε of φ leaves ε/g² of v open, and ε/g³ of v̇ where the rows turn fast.
    ambiguity = eps / remainder**2 * jnp.maximum(1, speed * turning / (remainder * positive_or_one(typical)))
    uncertainty = jnp.where(closed, apart, jnp.where(remainder < BESIDE, ambiguity, 0))
    return Beside(jnp.where(closed & ~agrees, vdot, direct), lax.stop_gradient(uncertainty))


def growth(
    factor: ConstrainedFactor, rates: Float[Array, "m nv"], close: Bool[Array, " m"]
) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
    """How fast the remainders of rows grow that are `close` to being dependent, by the rates of C, and whether that is fast enough to be followed."""
    rows = factor.vanishing @ (rates / factor.scale[:, None]) @ factor.root.T
    # What grows along rows that are not close to being dependent makes no row more independent.
    others = jnp.where(close[:, None], 0, factor.basis)
    speeds = jnp.linalg.norm(rows - (rows @ others.T) @ others, axis=1)
    return speeds, close & (speeds > GROWTH * jnp.max(factor.speeds(rates), initial=0))


def away_from_pose(
    nearby: Nearby, factor: ConstrainedFactor, near: float
) -> tuple[Float[Array, " nv"], tuple[Array, Array]]:
    """A direction that leads from rows with remainders below `near` to where they have twice that, and how much time, and how much of it, that takes.

    The direction is that of the velocity, or where this leads along singular poses, as at rest, another one that the constraints allow, which takes no time.
    Where the second number is zero neither direction leads away.
    """
    v = nearby.state.v
    free = factor.root.T @ generic_direction(factor.basis)
    close = factor.remainders < near
    spacings = []
    for direction, tdot in ((v, 1.0), (free, 0.0)):
        speeds, away = growth(factor, nearby.jacobian_derivative(direction, tdot), close)
        # The slowest remainder decides: all of them must be at twice the limit.
        least = jnp.min(jnp.where(away, speeds, jnp.inf))
        spacings.append(jnp.where(jnp.all(away == close) & jnp.any(close), 2 * near / least, 0))
    moving = spacings[0] > 0
    spacing = jnp.where(moving, *spacings)
    return lax.stop_gradient((jnp.where(moving, v, free), (jnp.where(moving, spacing, 0), spacing)))


def _onto(
    formulation: "AbstractFormulation", terms: Terms, in_use: Bool[Array, " m"], t: Array, q: Float[Array, " nq"]
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Coordinates on the constraints near others, and the velocities of the state on those there, along the shortest way in the metric."""
    assert terms.nearby is not None
    system, state = terms.nearby.system, terms.nearby.state
    holonomic = in_use if terms.holonomic is None else in_use & terms.holonomic
    zero = jnp.zeros_like(state.v)

    def rows(q: Array) -> Any:
        return formulation.without_excluded(rows_at(system, t, q, terms.scale))

    def closer(q: Array, _: None) -> tuple[Array, None]:
        # Velocity constraints have no position to return to. A cut-off of zero, as the rows were chosen at the state and must be the same
        # at all samples.
        move = formulation.factorise(rows(q), holonomic, 0.0).solve(zero, position_residual(system, t, q))[0]
        return system.displaced(q, -move), None

    q = lax.scan(closer, system.normalise(q), None, length=ITERATIONS)[0]
    factor, v = formulation.factorise(rows(q), in_use, 0.0), state.v
    for _ in range(2):  # the second removes the rounding of the first
        v = v - factor.solve(zero, velocity_residual(system, t, q, v))[0]
    return q, v
