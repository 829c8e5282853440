"""The search for dimensions: least squares within bounds, and limits by multipliers."""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..fit.checkpoint import Checkpoint
from ..fit.least_squares import Search, advance_all, all_advanced, begin, reopened
from ..fit.points import starting_points
from ..fit.progress import Report
from ..foundations import RESULTS, program
from ..system import State
from .problem import DesignProblem, Start, evaluated, rows_of

# A limit is kept where it is passed by no more than this part of its size; penalties grow by `GROWTH` while that falls by less than to
# `FALL` of it, in so many rounds at most (Nocedal and Wright 2006, framework 17.3).
LIMIT_TOL, GROWTH, FALL, ROUNDS = 1e-8, 10.0, 0.25, 30
# The first penalty weighs an excess by the size of a limit as much as so many times all goals at the start.
FIRST = 10.0
# A search whose steps were shortened begins anew from where it is, as long as that makes the cost less than this part.
NEARER = 0.999
# So many searches are one call of a program; of more starts each first makes `TRIALS` evaluations, and the best of them go on.
TOGETHER, TRIALS = 128, 4
# One search makes some dozens of evaluations, of milliseconds each: to compile it takes longer than to run it.
_advance_one = program(all_advanced)
T = TypeVar("T")


class DesignSearch(eqx.Module):
    """The state of a search.

    Attributes:
        searches: by least squares, one.
        multipliers, penalty: of the limits.
        excess: the largest excess over a limit at the end of the last round.
        rounds: how many rounds there were.
        iterations: evaluations in them.
        start, reference: the state from which first poses are sought, and the rows there.
        base: the cost where the search began from these.
        shortened: how many trials have failed since.
        open, changed: at each pose on the way (k,), in how many trials loops did not close first there, or the branch changed.
        starts, turning: how many starts there were, and how many go through the cycle.
        costs: what the searches from the best starts have reached.
        done: whether the search has ended.
    """

    searches: Search
    multipliers: Float[Array, " L"]
    penalty: Float[Array, ""]
    excess: Float[Array, ""]
    rounds: Int[Array, ""]
    iterations: Int[Array, ""]
    start: State
    reference: Float[Array, "m nv"]
    base: Float[Array, ""]
    shortened: Int[Array, ""]
    open: Int[Array, " k"]
    changed: Int[Array, " k"]
    starts: Int[Array, ""]
    turning: Int[Array, ""]
    costs: Float[Array, " s"]
    done: Array

    @property
    def exceeds(self) -> bool:
        """Whether a limit is not kept yet."""
        return bool(self.multipliers.size) and not float(self.excess) <= LIMIT_TOL

    def problem(self, problem: DesignProblem) -> DesignProblem:
        """The problem with these multipliers, and this start."""
        return dataclasses.replace(
            problem,
            multipliers=self.multipliers,
            penalty=self.penalty,
            start=self.start,
            reference=self.reference,
        )


def search(
    start: Start,
    limits: tuple[float, int],
    starts: int,
    key: PRNGKeyArray | None,
    checkpoint: str | os.PathLike[str] | None,
    report: Report,
) -> DesignSearch:
    """The search from the nominal dimensions, or from the best of several starts.

    Args:
        start: the problem.
        limits: the least change that counts, and the largest number of evaluations.
        starts: number of starts.
        key: for them.
        checkpoint: a file for the search.
        report: what is told how far it is.
    """
    problem = start.problem
    points = starting_points(start.y, (problem.low, problem.high), problem.unknowns.labels, starts, key)
    rtol, most = jnp.asarray(limits[0], points.dtype), jnp.asarray(limits[1])
    first = problem.cost(start.outputs)
    penalty = jnp.where(first > 0, 2 * FIRST * first, 1.0)
    problem = dataclasses.replace(problem, penalty=penalty)
    file = Checkpoint(checkpoint, (problem, points, limits[0]))
    exact = jnp.finfo(points.dtype).eps * first  # a sum of squares that is rounding beside the first one
    state = _initial(problem, start.y, min(starts, TOGETHER))
    resumed = file.load(state)
    if resumed is state:
        state = _with_starts(problem, points, (rtol, most), exact, state)
    else:
        state = _reopened(resumed, limits[1])
    while not bool(state.done):
        state = _step(state, problem, rtol, most, limits[1])
        file.save(state)
        cost = state.searches.cost[0]
        report(int(state.iterations), limits[1], cost, state.searches.trial_cost[0], bool(state.done))
    return state


def _reopened(state: DesignSearch, most: int) -> DesignSearch:
    """A search that may go on where only the number of evaluations had ended it."""
    unfinished = bool(state.searches.result == RESULTS.search_unfinished) or state.exceeds
    if int(state.iterations) >= most or not unfinished:
        return state
    searches = jax.vmap(lambda s: reopened(s, most))(state.searches)
    return dataclasses.replace(state, searches=searches, done=jnp.zeros((), bool))


def _fresh(problem: DesignProblem, points: Float[Array, "S N"]) -> Search:
    return jax.vmap(lambda y: begin(problem, y))(points)


def _initial(problem: DesignProblem, y: Float[Array, " N"], count: int) -> DesignSearch:
    zero, none = jnp.zeros((), int), jnp.zeros(problem.cycle.ts.shape, int)
    return DesignSearch(
        searches=_fresh(problem, y[None]),
        multipliers=problem.multipliers,
        penalty=problem.penalty,
        excess=jnp.asarray(jnp.inf, y.dtype),
        rounds=zero,
        iterations=zero,
        start=problem.start,
        reference=problem.reference,
        base=jnp.asarray(jnp.inf, y.dtype),
        shortened=zero,
        open=none,
        changed=none,
        starts=zero + 1,
        turning=zero + 1,
        costs=jnp.full(count, jnp.nan, y.dtype),
        done=jnp.zeros((), bool),
    )


def _with_starts(
    problem: DesignProblem,
    points: Float[Array, "S N"],
    limits: tuple[Array, Array],
    exact: Float[Array, ""],
    state: DesignSearch,
) -> DesignSearch:
    """The search that has come furthest of those from several points; one that has come to a cost that is `exact` ends the others."""
    if len(points) == 1:
        return state
    costs, group = _best(problem, points, limits)
    while not bool(jnp.all(group.done) | jnp.any(group.done & (group.cost <= exact))):
        group = advance_all(problem, group, *limits)
    winner: Search = jax.tree.map(
        lambda x: x[jnp.argmin(jnp.where(group.done & jnp.isfinite(group.cost), group.cost, jnp.inf))][None], group
    )
    # Limits have no multipliers yet: with these the search begins anew from there.
    goes_on = bool(problem.sizes.size)
    return dataclasses.replace(
        state,
        searches=_fresh(problem, winner.y) if goes_on else winner,
        iterations=winner.iterations[0],
        starts=jnp.asarray(len(points)),
        turning=jnp.sum(jnp.isfinite(costs)),
        costs=jnp.where(jnp.isfinite(group.cost), group.cost, jnp.nan),
        done=winner.done[0] & (not goes_on),
    )


def _best(
    problem: DesignProblem, points: Float[Array, "S N"], limits: tuple[Array, Array]
) -> tuple[Float[Array, " S"], Search]:
    """The costs after some evaluations from each point, infinite where the mechanism does not go through its cycle, and the best searches."""

    def advanced(group: Float[Array, "s N"]) -> Search:
        searches = _fresh(problem, group)
        for _ in range(TRIALS):
            searches = advance_all(problem, searches, *limits)
        return searches

    every: Search = by_groups(advanced, points)
    costs = jnp.where(jnp.isfinite(every.cost), every.cost, jnp.inf)
    best = jnp.argsort(costs)[:TOGETHER]
    return costs, jax.tree.map(lambda x: x[best], every)


def by_groups(fn: Callable[[Float[Array, "s N"]], T], points: Float[Array, "S N"]) -> T:
    """A function of several points, of all points: by groups, at once on all cores."""
    size = min(len(points), TOGETHER)
    # All groups are alike, so that one program serves them; the last one is filled up.
    count = -(-len(points) // size)
    filled = jnp.concatenate([points, jnp.broadcast_to(points[:1], (count * size - len(points), points.shape[1]))])
    first, *others = jnp.split(filled, count)
    results = [fn(first)]  # which compiles it
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results += pool.map(fn, others)
    return jax.tree.map(lambda *x: jnp.concatenate(x)[: len(points)], *results)


def _step(state: DesignSearch, problem: DesignProblem, rtol: Array, most: Array, count: int) -> DesignSearch:
    """After one evaluation; where the search has converged, from a nearer start if steps were shortened, or with other multipliers."""
    problem, trial = state.problem(problem), state.searches.trial[0]
    searches = _advance_one(problem, state.searches, rtol, most)
    opened, changed, failed = state.open, state.changed, not bool(jnp.isfinite(searches.trial_cost[0]))
    if failed:
        opened, changed = _tallied(problem, trial, opened, changed)
    iterations = state.iterations + 1
    ended = bool(searches.done[0]) or int(iterations) >= count
    state = dataclasses.replace(
        state,
        searches=searches,
        open=opened,
        changed=changed,
        iterations=iterations,
        shortened=state.shortened + failed,
        done=jnp.asarray(ended),
    )
    if not ended or int(iterations) >= count:
        return state
    # A first pose is sought from that of another design: the nearer it is, the less keeps it from being found.
    if int(state.shortened) and float(searches.cost[0]) < NEARER * float(state.base):
        nearer = _nearer(state, problem)
        # Beside a dead centre rounding may decide whether the next pose is found from the first one.
        if bool(evaluated(nearer.problem(problem), nearer.searches.y[0])[1].complete):
            return nearer
    return _after_round(state, problem) if problem.sizes.size else state


def _nearer(state: DesignSearch, problem: DesignProblem) -> DesignSearch:
    """The search anew, with first poses that are sought from that of the present design; it is on the branch of the start."""
    y = state.searches.y[0]
    first: State = jax.tree.map(lambda x: x[0], evaluated(problem, y)[1].states)
    return dataclasses.replace(
        state,
        start=first,
        reference=rows_of(problem.system(y), first),
        base=state.searches.cost[0],
        shortened=jnp.zeros((), int),
        searches=_fresh(problem, y[None]),
        done=jnp.zeros((), bool),
    )


def _tallied(problem: DesignProblem, trial: Array, opened: Array, changed: Array) -> tuple[Array, Array]:
    """The counts of what held steps back, with that of one more trial."""
    poses = evaluated(problem, trial)[1]
    index = poses.first_failure
    if bool(poses.complete):
        return opened, changed
    if bool(poses.closed[index]):
        return opened, changed.at[index].add(1)
    return opened.at[index].add(1), changed


def _after_round(state: DesignSearch, problem: DesignProblem) -> DesignSearch:
    """The next round, unless all limits are kept: λ ← max(0, λ + μ g)."""
    y = state.searches.y[0]
    excess = problem.excess(evaluated(problem, y)[0])
    multipliers = jnp.maximum(0.0, state.multipliers + state.penalty * excess)
    # A limit that is not passed and has a multiplier is not yet where it should be, either.
    off = jnp.max(jnp.abs(jnp.maximum(excess, -state.multipliers / state.penalty)), initial=0)
    last = bool((off <= LIMIT_TOL) | (state.rounds + 1 >= ROUNDS))
    penalty = jnp.where(off > FALL * state.excess, GROWTH * state.penalty, state.penalty)
    state = dataclasses.replace(state, excess=off, rounds=state.rounds + 1, done=jnp.asarray(last))
    if last:
        return state
    return dataclasses.replace(
        state,
        multipliers=multipliers,
        penalty=penalty,
        base=jnp.full_like(state.base, jnp.inf),
        searches=_fresh(problem, y[None]),
    )
