"""Differential dynamic programming without second derivatives of the steps (iLQR), one iteration after the other.

Steps may fail, and searches go on side by side in a batch: nothing here calls LAPACK, which may never return there.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..foundations import RESULTS, SUCCESS, lasting, positive_or_one, tree_where
from ..linalg import bounded_minimum, inverse_root
from ..system import State
from .steps import AbstractStepper

# The parts of a change that are tried, side by side: a batch waits for the longest of searches that go one after the other.
PARTS = tuple(2.0**-k for k in range(8))
# The first damping, relative to the curvature by each input (1e-3 for starts that are not good: Madsen, Nielsen and Tingleff 2004), by what it
# grows and falls, and below what it is none at all.
FIRST_DAMPING, GROWTH, LEAST_DAMPING = 1e-3, 4.0, 1e-6
# Up to this damping a change goes at least half the way to the minimum of the quadratic problem; beyond the other one changes are rounding.
MILD, LARGEST_DAMPING = 1.0, 1e12
# Part of the cost that rounding of the steps and of their sum may make up.
HIDDEN = 1e-12


class Horizon(eqx.Module):
    """The problem.

    Attributes:
        step: makes the steps.
        cost, final: functions of (state, u) and of (state); None for none at the end.
        start: the first state.
        low, high: limits of the inputs.
    """

    step: AbstractStepper
    cost: Callable[[State, Array], Array]
    final: Callable[[State], Array] | None
    start: State
    low: Float[Array, " nu"]
    high: Float[Array, " nu"]

    def state(self, t: Float[Array, ""], x: Float[Array, " n"]) -> State:
        """The state with coordinates and velocities x."""
        nq = self.start.q.shape[0]
        return dataclasses.replace(self.start, t=t, q=x[:nq], v=x[nq:])

    def after(self, t: Float[Array, ""], x: Float[Array, " n"], u: Float[Array, " nu"]) -> tuple[Array, Array, RESULTS]:
        """Time and x after a step, and its result."""
        state, result = self.step.with_result(self.state(t, x), u)
        return state.t, jnp.concatenate([state.q, state.v]), result

    def running(self, t: Float[Array, ""], z: Float[Array, " w"]) -> Float[Array, ""]:
        """The cost of a step from z = (x, u)."""
        n = z.shape[0] - self.low.shape[0]
        return self.cost(self.state(t, z[:n]), z[n:])

    def ending(self, t: Float[Array, ""], x: Float[Array, " n"]) -> Float[Array, ""]:
        """The cost at the end."""
        return jnp.zeros((), x.dtype) if self.final is None else self.final(self.state(t, x))


class Path(eqx.Module):
    """A motion over the horizon.

    Attributes:
        t, x: times, and coordinates with velocities, at the start and after each step (M = N + 1).
        u: inputs.
        cost: their sum of costs; infinite where a step fails or a cost is not a number.
        size: sum of the sizes of all costs.
        result: of the first step that fails.
    """

    t: Float[Array, " M"]
    x: Float[Array, "M n"]
    u: Float[Array, "N nu"]
    cost: Float[Array, ""]
    size: Float[Array, ""]
    result: RESULTS


class Law(eqx.Module):
    """u = ū + part · change + gain (x − x̄)."""

    change: Float[Array, "N nu"]
    gain: Float[Array, "N nu n"]


class Guess(eqx.Module):
    """The start of a search: inputs that react to deviations, u_k + gain_k (x − x_k), so that they stabilise an unstable motion from another start.

    Attributes:
        x: coordinates and velocities (N, nq + nv).
        u: inputs (N, nu).
        gain: (N, nu, nq + nv).
    """

    x: Float[Array, "... N n"]
    u: Float[Array, "... N nu"]
    gain: Float[Array, "... N nu n"]


class Expansion(eqx.Module):
    """Derivatives along a path: of the steps F (n, w) with w = n + nu, of the costs by (x, u), of the cost at the end by x."""

    steps: Float[Array, "N n w"]
    slopes: Float[Array, "N w"]
    curvatures: Float[Array, "N w w"]
    slope: Float[Array, " n"]
    curvature: Float[Array, "n n"]


class Search(eqx.Module):
    """The state of a search.

    Attributes:
        path: the best one so far.
        law: the change that is tried next.
        predicted: by how much the cost falls by all of it, if steps are linear and costs quadratic.
        damping: relative to the curvature by each input.
        iterations: number of iterations made.
        done: whether the search has ended.
        result: how.
    """

    path: Path
    law: Law
    predicted: Float[Array, ""]
    damping: Float[Array, ""]
    iterations: Int[Array, ""]
    done: Bool[Array, ""]
    result: RESULTS


def rolled(problem: Horizon, path: Path, law: Law, part: Float[Array, ""]) -> Path:
    """The path of a part of a change, within the limits."""

    def one(
        carry: tuple[Array, Array], old: tuple[Array, Array, Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array, Array, Array, RESULTS]]:
        (t, x), (x_old, u_old, change, gain) = carry, old
        # Behind a step that failed inputs stay as they were.
        deviation = jnp.where(jnp.isfinite(x), x - x_old, 0)
        u = jnp.clip(u_old + part * change + gain @ deviation, problem.low, problem.high)
        cost = problem.running(t, jnp.concatenate([x, u]))
        t, x, result = problem.after(t, x, u)
        return (t, x), (t, x, u, cost, result)

    start = (problem.start.t, jnp.concatenate([problem.start.q, problem.start.v]))
    (t, x), (ts, xs, us, costs, results) = lax.scan(one, start, (path.x[:-1], path.u, law.change, law.gain))
    costs = jnp.append(costs, problem.ending(t, x))
    failed = jnp.asarray(results != RESULTS.successful)
    total = jnp.where(jnp.any(failed), jnp.inf, jnp.sum(costs))
    first = jnp.argmax(failed)
    return Path(
        t=jnp.concatenate([start[0][None], ts]),
        x=jnp.concatenate([start[1][None], xs]),
        u=us,
        cost=jnp.where(jnp.isfinite(total), total, jnp.inf),
        size=jnp.sum(jnp.abs(costs)),
        result=jax.tree.map(lambda x: x[first], results),
    )


def expanded(problem: Horizon, path: Path) -> Expansion:
    """The derivatives along a path: each direction of (x, u) at each step is a lane of one forward derivative."""
    n = path.x.shape[1]
    z = jnp.concatenate([path.x[:-1], path.u], axis=1)
    after = lambda t, z: problem.after(t, z[:n], z[n:])[1]
    over = lambda fn: jax.vmap(fn)(path.t[:-1], z)
    return Expansion(
        steps=over(jax.jacfwd(after, argnums=1)),
        slopes=over(jax.grad(problem.running, argnums=1)),
        curvatures=over(jax.hessian(problem.running, argnums=1)),
        slope=jax.grad(problem.ending, argnums=1)(path.t[-1], path.x[-1]),
        curvature=jax.hessian(problem.ending, argnums=1)(path.t[-1], path.x[-1]),
    )


def input_sizes(about: Expansion) -> Float[Array, " nu"]:
    """How much the cost may curve along each input, without signs: by it damping does not depend on units."""
    n = about.slope.shape[0]
    later = jnp.concatenate([about.curvatures[1:, :n, :n], about.curvature[None]])
    later = jnp.cumsum(jnp.abs(jnp.diagonal(later, axis1=1, axis2=2))[::-1], axis=0)[::-1]
    own = jnp.abs(jnp.diagonal(about.curvatures[:, n:, n:], axis1=1, axis2=2))
    sizes = jnp.max(own + jnp.einsum("kij,ki->kj", about.steps[:, :, n:] ** 2, later), axis=0)
    return positive_or_one(sizes)  # an input without cost or effect


def backward(
    problem: Horizon, path: Path, about: Expansion, damping: Float[Array, ""]
) -> tuple[Law, Float[Array, ""], Bool[Array, ""]]:
    """The change that is best for linear steps and quadratic costs, by how much the cost falls, and whether there is a least one.

    Tassa, Mansard and Todorov (2014): of each step the change is the least of a quadratic function within the limits, and
    only inputs that no limit holds answer a deviation.
    """
    n, nu = path.x.shape[1], path.u.shape[1]
    added = damping * jnp.diag(input_sizes(about))

    def one(
        carry: tuple[Array, Array, Array, Array], at: tuple[Array, Array, Array, Array]
    ) -> tuple[tuple[Array, Array, Array, Array], tuple[Array, Array]]:
        (slope, curvature, fall, definite), (step, own_slope, own_curvature, u) = carry, at
        slope, curvature = own_slope + step.T @ slope, own_curvature + step.T @ curvature @ step
        by_u, by_uu, by_ux = slope[n:], curvature[n:, n:], curvature[n:, :n]
        damped = by_uu + added
        definite = definite & jnp.all(jnp.isfinite(inverse_root(damped))) & jnp.all(jnp.isfinite(by_ux))
        damped = jnp.where(definite, damped, np.eye(nu))
        change, bound = bounded_minimum(damped, jnp.where(definite, by_u, 0.0), problem.low - u, problem.high - u)
        free = ~bound
        root = inverse_root(jnp.where(free[:, None] & free, damped, np.eye(nu)))
        gain = -(root.T @ (root @ jnp.where(free[:, None] & definite, by_ux, 0.0)))
        # Exact also for a law that is not the best one: damped, or within limits (Tassa, Erez and Todorov 2012, eq. 11).
        across = gain.T @ by_ux
        after = curvature[:n, :n] + gain.T @ by_uu @ gain + across + across.T
        slope = slope[:n] + gain.T @ (by_uu @ change + by_u) + by_ux.T @ change
        fall = fall - change @ by_u - 0.5 * change @ by_uu @ change
        return (slope, (after + after.T) / 2, fall, definite), (change, gain)

    end = (about.slope, about.curvature, jnp.zeros((), path.x.dtype), jnp.array(True))
    steps = (about.steps, about.slopes, about.curvatures, path.u)
    (_, _, fall, definite), (change, gain) = lax.scan(one, end, steps, reverse=True)
    return Law(change, gain), fall, definite


def best_law(
    problem: Horizon, path: Path, damping: Float[Array, ""]
) -> tuple[Law, Float[Array, ""], Bool[Array, ""], Float[Array, ""]]:
    """The next change, its fall, whether there is one, and the least damping, of those tried from `damping` on, with which there is."""
    about = expanded(problem, path)
    nothing = Law(jnp.zeros_like(path.u), jnp.zeros((*path.u.shape, path.x.shape[1]), path.x.dtype))

    def raised(carry: tuple[Law, Array, Array, Array, Array]) -> tuple[Law, Array, Array, Array, Array]:
        *_, following = carry
        law, fall, definite = backward(problem, path, about, following)
        return law, fall, definite, following, larger(following)

    finite = jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(about)])
    go = lambda carry: ~carry[2] & (carry[4] <= LARGEST_DAMPING) & jnp.all(finite)
    start = (nothing, jnp.zeros((), path.x.dtype), jnp.array(False), damping, damping)
    law, fall, definite, damping, _ = lax.while_loop(go, raised, start)
    law = jax.tree.map(lambda x: jnp.where(definite, x, 0), law)
    return law, fall, definite, damping


def larger(damping: Float[Array, ""]) -> Float[Array, ""]:
    """The damping after a failure."""
    return jnp.maximum(GROWTH * damping, FIRST_DAMPING)


def begin(problem: Horizon, guess: Guess) -> Search:
    """A search from a guess; nothing is evaluated yet."""
    inf, zero = jnp.full((), jnp.inf, guess.x.dtype), jnp.zeros((), guess.x.dtype)
    success = jax.tree.map(jnp.asarray, SUCCESS)
    ts = jnp.broadcast_to(problem.start.t, (guess.u.shape[0] + 1,))
    xs = jnp.concatenate([guess.x, guess.x[-1:]])
    return Search(
        path=Path(t=ts, x=xs, u=guess.u, cost=inf, size=inf, result=success),
        law=Law(jnp.zeros_like(guess.u), guess.gain),
        predicted=zero,
        damping=zero,
        iterations=jnp.full((), -1),
        done=jnp.array(False),
        result=success,
    )


def advance(problem: Horizon, search: Search, rtol: Float[Array, ""], most: Int[Array, ""]) -> Search:
    """One iteration: the best part of the change that is to be tried, and the next change. The first one evaluates the start."""
    first = search.iterations < 0
    trials = jax.vmap(lambda part: rolled(problem, search.path, search.law, part))(
        jnp.array(PARTS, search.path.x.dtype)
    )
    best = jnp.argmin(trials.cost)  # the first of equal ones
    trial = jax.tree.map(lambda x: x[best], trials)
    better = trial.cost < search.path.cost
    path = tree_where(better | first, trial, search.path)
    # A fall that was predicted and did not come, so small that rounding hides it.
    hidden = ~first & ~better & (search.predicted <= HIDDEN * path.size)
    damping = jnp.where(better & (best == 0), search.damping / GROWTH, search.damping)
    damping = jnp.where(better | first, jnp.where(damping < LEAST_DAMPING, 0.0, damping), larger(damping))
    law, predicted, definite, damping = best_law(problem, path, damping)

    # A fall that is small because its change is damped says nothing.
    small = definite & (predicted <= rtol**2 * path.size) & (damping <= MILD)
    failed = ~jnp.isfinite(path.cost)
    steps_failed = path.result != RESULTS.successful
    stuck = ~definite | (damping > LARGEST_DAMPING)
    exhausted = search.iterations + 1 >= most
    result = RESULTS.where(stuck, RESULTS.search_stuck, RESULTS.search_unfinished)
    result = RESULTS.where(small | hidden, SUCCESS, result)
    result = RESULTS.where(failed, RESULTS.where(steps_failed, path.result, RESULTS.search_failed), result)
    following = Search(
        path=path,
        law=law,
        predicted=predicted,
        damping=damping,
        iterations=search.iterations + 1,
        done=small | hidden | failed | stuck | exhausted,
        result=result,
    )
    # In a batch others may still go on: what is done is put back as it was.
    return tree_where(search.done, search, following)


NO_DERIVATIVE = (
    "The answer of `trajectory` has no derivative: give it `jax.lax.stop_gradient` of what depends on the variable, and differentiate "
    "steps with its inputs."
)


@lasting
def solved(problem: Horizon, guess: Guess, rtol: Float[Array, ""], most: Int[Array, ""]) -> Search:
    """The search, to its end."""
    problem, guess = eqxi.nondifferentiable((problem, guess), msg=NO_DERIVATIVE)
    go = lambda search: ~search.done
    return lax.while_loop(go, lambda search: advance(problem, search, rtol, most), begin(problem, guess))
