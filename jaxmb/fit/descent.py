"""Steps along a gradient, by a quasi-Newton method or any transformation of optax."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..foundations import RESULTS, SUCCESS
from ..linalg import at_bounds
from .checkpoint import Checkpoint
from .progress import Report
from .quasi_newton import Iterate, Memory, line_search

# How often a step after which a run fails is halved: to a thousandth, where another gradient would be better than a shorter step.
HALVINGS = 10
# A quasi-Newton search ends where the fall of the cost that it predicts is this part of the cost, or where none comes of what errors of the
# runs may hide.
CLOSE, HIDDEN = 1e-8, 1e-5
# Steps of optax have no criterion of their own. They have converged where a change of each unknown by all its scale would change the cost, by its slope, by no more than this part.
FLAT = 1e-3
# What is to become least, as a function of y: cost, gradient, cost of each run, result of each run.
Evaluation = tuple[Array, Array, Array, RESULTS]
Objective = Callable[[Array], Evaluation]


class Descent(eqx.Module):
    """The state of a descent.

    Attributes:
        y: the unknowns (N,).
        gradient: there.
        memory: of the transformation.
        best, cost, slope: the unknowns with the least cost so far, that, and its gradient there.
        each: the cost of each run at `best`.
        failures: how often each run failed.
        results: what the runs report at `best`.
        history: the cost after each step (K + 1,); NaN where none was made.
        halved: how often each step was halved since a run failed (K,).
        steps: number of steps.
        result: how it ended.
    """

    y: Float[Array, " N"]
    gradient: Float[Array, " N"]
    memory: PyTree
    best: Float[Array, " N"]
    cost: Float[Array, ""]
    slope: Float[Array, " N"]
    each: Float[Array, " runs"]
    failures: Int[Array, " runs"]
    results: RESULTS
    history: Float[Array, " K"]
    halved: Int[Array, " steps"]
    steps: Int[Array, ""]
    result: RESULTS


def descend(
    objective: Objective,
    y: Float[Array, " N"],
    bounds: tuple[Array, Array],
    transformation: optax.GradientTransformation | None,
    most: int,
    checkpoint: Checkpoint,
    report: Report,
) -> Descent:
    """Steps from y, each put back within the bounds; a step after which a run fails is halved until none does.

    Without a transformation they are quasi-Newton's, each of which lowers the cost.
    """
    memory = Memory.of(y) if transformation is None else _memory(transformation, y)
    cost, gradient, each, results = objective(y)
    history = jnp.full(most + 1, jnp.nan).at[0].set(cost)
    is_finite = bool(jnp.isfinite(cost))
    initial = Descent(
        y=y,
        gradient=gradient,
        memory=memory,
        best=y,
        cost=cost,
        slope=gradient,
        each=each,
        failures=_failed(each),
        results=results,
        history=history,
        halved=jnp.zeros(most, int),
        steps=jnp.zeros((), int),
        result=jax.tree.map(jnp.asarray, RESULTS.search_unfinished if is_finite else RESULTS.search_failed),
    )
    # From here a search that was interrupted goes on bit by bit: all that steps depend on is in `Descent`.
    current = checkpoint.load(initial)
    report(int(current.steps), most, current.cost, current.cost, False)
    while bool(current.result == RESULTS.search_unfinished) and int(current.steps) < most:
        if transformation is None:
            current = _quasi_newton_step(objective, current, bounds)
        else:
            current = _gradient_step(objective, current, bounds, transformation)
        checkpoint.save(current)
        ended = bool(current.result != RESULTS.search_unfinished) or int(current.steps) == most
        report(int(current.steps), most, current.cost, current.history[current.steps], ended)
    if transformation is not None and bool(current.result == RESULTS.search_unfinished) and _is_flat(current, bounds):
        current = _with_result(current, SUCCESS)
    return current


def _memory(transformation: optax.GradientTransformation, y: Float[Array, " N"]) -> PyTree:
    """That of a transformation before its first step."""
    memory = transformation.init(y)
    try:
        jax.eval_shape(transformation.update, y, memory, y)
    except TypeError as error:
        raise TypeError(
            "Argument `optimiser` must make a step of the gradient and the unknowns alone, as `optax.adam` does and its line searches do "
            f"not, but raised TypeError: {error}"
        ) from error
    return memory


def _with_result(current: Descent, result: RESULTS) -> Descent:
    return dataclasses.replace(current, result=jax.tree.map(jnp.asarray, result))


def _is_flat(current: Descent, bounds: tuple[Array, Array]) -> bool:
    """Whether the slope where the descent is, without what bounds hold, is small beside the cost."""
    y, gradient = np.asarray(current.y), np.asarray(current.gradient)
    slope = np.where(at_bounds(y, gradient, *map(np.asarray, bounds)), 0.0, gradient)
    return bool(np.abs(slope).max(initial=0) <= FLAT * abs(float(current.cost)))


def _quasi_newton_step(objective: Objective, current: Descent, bounds: tuple[Array, Array]) -> Descent:
    """After a step of the quasi-Newton method; the search has ended where there is none."""
    failures, halved = current.failures, 0

    def evaluate(y: np.ndarray) -> Iterate:
        nonlocal failures, halved
        cost, gradient, each, results = objective(jnp.asarray(y))
        point = Iterate(y, float(cost), np.asarray(gradient), (cost, gradient, each, results))
        # Counted by run, so that the user learns which experiment shortens the steps.
        if not point.is_finite:
            failures, halved = failures + _failed(each), halved + 1
        return point

    low, high = (np.asarray(x) for x in bounds)
    origin = Iterate(np.asarray(current.y), float(current.cost), np.asarray(current.gradient), ())
    fixed = at_bounds(origin.y, origin.gradient, low, high)
    slope = np.where(fixed, 0.0, origin.gradient)
    for memory in (current.memory, Memory.of(current.y)):  # where the model of the cost leads nowhere, down the slope
        direction = np.where(fixed, 0.0, memory.direction(slope))
        # Of the quadratic model: half the slope along Newton's step.
        decrease = -0.5 * float(slope @ direction)
        if decrease <= CLOSE * abs(origin.cost):
            return _with_result(current, SUCCESS)
        point = line_search(origin, direction, evaluate, low, high)
        if point is not None:
            break
        # Runs with tolerances are rough at this scale: no step along the model lowers what their errors hide.
        if decrease <= HIDDEN * abs(origin.cost):
            return dataclasses.replace(_with_result(current, SUCCESS), failures=failures)
    else:
        return dataclasses.replace(_with_result(current, RESULTS.search_stuck), failures=failures)
    memory = memory.with_pair(point.y - origin.y, point.gradient - origin.gradient)
    return _after(current, jnp.asarray(point.y), memory, point.evaluation, failures, halved)


def _gradient_step(
    objective: Objective, current: Descent, bounds: tuple[Array, Array], transformation: optax.GradientTransformation
) -> Descent:
    change: Any
    change, memory = transformation.update(current.gradient, current.memory, current.y)
    # Clipped after the transformation, whose memory does not know of bounds.
    y, failures, halved = jnp.clip(current.y + change, *bounds), current.failures, 0
    evaluation = objective(y)
    while not _is_finite(evaluation) and halved < HALVINGS:
        failures, halved = failures + _failed(evaluation[2]), halved + 1
        y = current.y + (y - current.y) / 2
        evaluation = objective(y)
    if not _is_finite(evaluation):
        failures = failures + _failed(evaluation[2])
        return dataclasses.replace(_with_result(current, RESULTS.search_stuck), failures=failures)
    return _after(current, y, memory, evaluation, failures, halved)


def _after(current: Descent, y: Array, memory: PyTree, evaluation: Evaluation, failures: Array, halved: int) -> Descent:
    """The descent after a step to y."""
    cost, gradient, each, results = evaluation
    after = dataclasses.replace(
        current,
        y=y,
        gradient=gradient,
        memory=memory,
        failures=failures,
        history=current.history.at[current.steps + 1].set(cost),
        halved=current.halved.at[current.steps].set(halved),
        steps=current.steps + 1,
    )
    if cost < current.cost:
        return dataclasses.replace(after, best=y, cost=cost, slope=gradient, each=each, results=results)
    return after


def _is_finite(evaluation: Evaluation) -> bool:
    return bool(jnp.isfinite(evaluation[0]) & jnp.all(jnp.isfinite(evaluation[1])))


def _failed(each: Float[Array, " runs"]) -> Int[Array, " runs"]:
    return (~jnp.isfinite(each)).astype(int)
