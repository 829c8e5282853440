"""Levenberg and Marquardt's method within bounds, one iteration after the other.

Of optimistix' solvers none keeps bounds, goes on from a file, or measures the damping by what the unknowns do, so that units
do not matter; nothing here calls LAPACK, since many searches may go on side by side.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..foundations import RESULTS, SUCCESS, lasting, positive_or_one, tree_where
from ..linalg import bounded_round
from .residuals import AbstractResiduals

# The first damping, relative to the diagonal of JᵀJ (1e-6 for good starts, 1e-3 or 1 for others: Madsen, Nielsen and Tingleff 2004), and its
# least, which changes a step by less than the default `rtol`.
FIRST_DAMPING, LEAST_DAMPING = 1e-3, 1e-10
# What columns of J were longer counts so much less after each step, else the damping of a search that starts where the motion depends
# strongly on a parameter, as near a bound at zero, is too large ever after.
FADE = 0.1
# Up to this damping a step goes at least half the way to the minimum of the linear problem.
MILD = 1.0
# Beyond this damping steps are rounding: 1e-12 of an unknown's scale.
LARGEST_DAMPING = 1e12
# A step is taken if the cost falls by this part of what was predicted (Nocedal and Wright 2006, algorithm 4.1, allows any below 1/4).
ACCEPTANCE = 1e-4
# Columns of J that are shorter, relative to the longest, are rounding: their unknowns stay.
ZERO_COLUMN = 1e-11
# Rounds in which a step within bounds is improved: a fixed number, so that it can be differentiated.
ROUNDS = 40
# Part of the cost that errors of the runs, which have tolerances, may make up: a smaller change may be theirs.
HIDDEN = 1e-5
# Once a run has failed bounds may be where none can be made, such as masses of zero: steps go this part of the way to them.
CAUTION = 0.9


class Search(eqx.Module):
    """The state of a search.

    Attributes:
        y: the unknowns (N,), over their scales, with the least cost so far.
        trial: what is tried next.
        predicted: by how much the cost falls there if residuals are linear.
        r: residuals (R,) at `y`.
        jacobian: theirs (R, N).
        cost: r·r/2.
        trial_cost: that of the last trial.
        sizes: diagonal of JᵀJ (N,), the largest so far.
        damping: relative to `sizes`.
        growth: by which it grows when a step is refused.
        share: how much of the way to a bound a step may go: all of it until a run failed, then a part.
        iterations: evaluations so far.
        results: what the runs of the shots report at `y`, and at the first trial.
        done: whether the search has ended.
        result: how.
    """

    y: Float[Array, " N"]
    trial: Float[Array, " N"]
    predicted: Float[Array, ""]
    r: Float[Array, " R"]
    jacobian: Float[Array, "R N"]
    cost: Float[Array, ""]
    trial_cost: Float[Array, ""]
    sizes: Float[Array, " N"]
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    share: Float[Array, ""]
    iterations: Int[Array, ""]
    results: RESULTS
    done: Bool[Array, ""]
    result: RESULTS


def begin(problem: AbstractResiduals, y: Float[Array, " N"]) -> Search:
    """A search that starts at y; nothing is evaluated yet."""
    count = problem.rows
    one = jnp.ones((), y.dtype)
    results = jax.tree.map(lambda x: jnp.broadcast_to(x, (problem.shots, *x.shape)), SUCCESS)
    zero = jnp.zeros_like(y)
    return Search(
        y=y,
        trial=y,
        predicted=0 * one,
        r=jnp.zeros(count, y.dtype),
        jacobian=jnp.zeros((count, y.shape[0]), y.dtype),
        cost=jnp.inf * one,
        trial_cost=jnp.inf * one,
        sizes=zero,
        damping=FIRST_DAMPING * one,
        growth=2 * one,
        share=one,
        iterations=jnp.zeros((), int),
        results=results,
        done=jnp.zeros((), bool),
        result=jax.tree.map(jnp.asarray, SUCCESS),
    )


def reopened(search: Search, most: int) -> Search:
    """A search that may go on where only the number of iterations had ended it."""
    unfinished = (search.result == RESULTS.search_unfinished) & (search.iterations < most)
    return eqx.tree_at(lambda s: s.done, search, search.done & ~unfinished)


def advance(problem: AbstractResiduals, search: Search, rtol: Float[Array, ""], most: Int[Array, ""]) -> Search:
    """One evaluation, at the trial, and the next trial; a search that is done stays as it is.

    Moré's scaling (1978), Nielsen's damping (1999). It ends where the step, relative to the unknowns, or the predicted fall of
    the cost, relative to it, is below `rtol`.
    """
    r, jacobian, results = problem.linear(search.trial)
    cost = trial_cost = 0.5 * jnp.sum(r**2)
    first = search.iterations == 0
    is_finite = jnp.isfinite(cost) & jnp.all(jnp.isfinite(jacobian))
    # Nielsen's ratio ρ of the fall that came to the fall that was predicted.
    gain = (search.cost - cost) / positive_or_one(search.predicted)
    accepted = is_finite & (first | ((gain > ACCEPTANCE) & (cost < search.cost)))
    better = lambda new, old: tree_where(accepted, new, old)
    y, r, jacobian, cost = better((search.trial, r, jacobian, cost), (search.y, search.r, search.jacobian, search.cost))
    fall = jnp.where(jnp.isfinite(gain), gain, 0.0)
    damping = jnp.where(
        accepted, search.damping * jnp.maximum(1 / 3, 1 - (2 * fall - 1) ** 3), search.damping * search.growth
    )
    damping = jnp.where(first, search.damping, jnp.maximum(damping, LEAST_DAMPING))
    # Moré (1978) keeps the largest column norms for ever; here they fade.
    faded = jnp.where(accepted, FADE, 1.0) * search.sizes
    sizes = jnp.maximum(faded, jnp.sum(jacobian**2, axis=0))
    share = jnp.where(is_finite, search.share, CAUTION)
    room = (share * (problem.low - y), share * (problem.high - y)) if problem.bounded else None
    step, predicted = bounded_step(room, r, jacobian, sizes, damping)

    small = jnp.all(jnp.abs(step) <= rtol * (jnp.abs(y) + rtol)) & jnp.isfinite(predicted)
    # A fall that is small because its step is damped says nothing.
    small = small | ((predicted <= rtol * cost) & (damping <= MILD))
    # A fall that was predicted and did not come, so small that errors of the runs hide it.
    hidden = jnp.maximum(search.predicted, trial_cost - search.cost) <= HIDDEN * search.cost
    small = small | (is_finite & ~accepted & hidden)
    stuck = damping > LARGEST_DAMPING
    exhausted = search.iterations + 1 >= most
    failed = first & ~is_finite
    result = RESULTS.where(small, SUCCESS, RESULTS.where(stuck, RESULTS.search_stuck, RESULTS.search_unfinished))
    following = Search(
        y=y,
        trial=y + step,
        predicted=predicted,
        r=r,
        jacobian=jacobian,
        cost=cost,
        trial_cost=trial_cost,
        sizes=sizes,
        damping=damping,
        growth=jnp.where(accepted, 2.0, 2 * search.growth),
        share=share,
        iterations=search.iterations + 1,
        results=RESULTS.where(accepted | first, results, search.results),
        done=small | stuck | exhausted | failed,
        result=RESULTS.where(failed, RESULTS.search_failed, result),
    )
    # In a batch others may still go on: what is done is put back as it was.
    return tree_where(search.done, search, following)


def all_advanced(problem: AbstractResiduals, searches: Search, rtol: Float[Array, ""], most: Int[Array, ""]) -> Search:
    """One iteration of each; one alone is no batch."""
    if searches.cost.shape[0] > 1:
        return jax.vmap(lambda search: advance(problem, search, rtol, most))(searches)
    # Under `vmap` both branches of every condition run; a batch of one would pay for that.
    alone = advance(problem, jax.tree.map(lambda x: x[0], searches), rtol, most)
    return jax.tree.map(lambda x: x[None], alone)


advance_all = lasting(all_advanced)


def bounded_step(
    room: tuple[Array, Array] | None, r: Array, jacobian: Array, sizes: Array, damping: Array
) -> tuple[Float[Array, " N"], Float[Array, ""]]:
    """The step d that minimises ‖r + J d‖²/2 + damping ‖d‖²_sizes/2 within its room, nearly, and how much the cost falls."""
    live = sizes > ZERO_COLUMN**2 * jnp.max(sizes)
    unit = jnp.where(live, jnp.sqrt(jnp.where(live, sizes, 1.0)), 1.0)
    rows = jnp.where(live, jacobian / unit, 0.0)
    matrix, slope = rows.T @ rows, rows.T @ r
    unity = jnp.eye(unit.shape[0])
    damped = matrix + damping * unity
    low, high = (-jnp.inf, jnp.inf) if room is None else (x * unit for x in room)

    better = lambda _, d: bounded_round(damped, slope, low, high, d, live)
    d = lax.fori_loop(0, 1 if room is None else ROUNDS, better, jnp.zeros_like(unit))
    predicted = -(slope @ d + 0.5 * d @ (matrix @ d))
    fine = jnp.isfinite(predicted)  # else more damping is needed
    return jnp.where(fine, d / unit, 0.0), jnp.where(fine, predicted, jnp.inf)
