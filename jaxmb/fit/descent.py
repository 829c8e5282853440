"""Steps along a gradient, by a quasi-Newton method or any transformation of optax."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ..foundations import RESULTS
from .checkpoint import Checkpoint
from .progress import reporter
from .quasi_newton import Memory, Point, held, searched

# How often a step after which a run fails is halved.
HALVINGS = 10
# A quasi-Newton search ends where the fall of the cost that it predicts is this part of the cost, or where none comes of what errors of the
# runs may hide.
CLOSE, HIDDEN = 1e-8, 1e-5
# Other steps have converged where a change of each unknown by all its scale would change the cost, by its slope, by no more than this part.
FLAT = 1e-3
SUCCESS: Any = RESULTS.successful
# What is to become least: (y) → cost, gradient, cost of each run, result of each run.
Objective = Callable[[Array], tuple[Array, Array, Array, RESULTS]]


class Descent(eqx.Module):
    """Where a descent is.

    Attributes:
        y: the unknowns (N,).
        gradient: there.
        memory: of the transformation.
        best, cost: the unknowns with the least cost so far, and that.
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
    memory: Any
    best: Float[Array, " N"]
    cost: Float[Array, ""]
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
    progress: Any,
) -> Descent:
    """Steps from y, each put back within the bounds; a step after which a run fails is halved until none does.

    Without a transformation they are quasi-Newton's, each of which lowers the cost.
    """
    report = reporter(progress)
    cost, gradient, each, results = objective(y)
    history = jnp.full(most + 1, jnp.nan).at[0].set(cost)
    fine = bool(jnp.isfinite(cost))
    result: Any = RESULTS.search_unfinished if fine else RESULTS.search_failed
    start = Descent(
        y=y,
        gradient=gradient,
        memory=Memory.of(y) if transformation is None else transformation.init(y),
        best=y,
        cost=cost,
        each=each,
        failures=_failed(each),
        results=results,
        history=history,
        halved=jnp.zeros(most, int),
        steps=jnp.zeros((), int),
        result=jax.tree.map(jnp.asarray, result),
    )
    here = checkpoint.load(start)
    report(int(here.steps), most, here.cost, here.cost, False)
    while bool(here.result == RESULTS.search_unfinished) and int(here.steps) < most:
        if transformation is None:
            here = _fallen(objective, here, bounds)
        else:
            here = _stepped(objective, here, bounds, transformation)
        checkpoint.save(here)
        ended = bool(here.result != RESULTS.search_unfinished) or int(here.steps) == most
        report(int(here.steps), most, here.cost, here.history[here.steps], ended)
    if transformation is not None and bool(here.result == RESULTS.search_unfinished) and _is_flat(here, bounds):
        here = _ended(here, SUCCESS)
    return here


def _ended(here: Descent, result: Any) -> Descent:
    return dataclasses.replace(here, result=jax.tree.map(jnp.asarray, result))


def _is_flat(here: Descent, bounds: tuple[Array, Array]) -> bool:
    """Whether the slope where the descent is, without what bounds hold, is small beside the cost."""
    y, gradient = np.asarray(here.y), np.asarray(here.gradient)
    slope = np.where(held(y, gradient, *map(np.asarray, bounds)), 0.0, gradient)
    return bool(np.abs(slope).max(initial=0) <= FLAT * abs(float(here.cost)))


def _fallen(objective: Objective, here: Descent, bounds: tuple[Array, Array]) -> Descent:
    """After a step of the quasi-Newton method; the search has ended where there is none."""
    failures, halved = here.failures, 0

    def evaluate(y: np.ndarray) -> Point:
        nonlocal failures, halved
        cost, gradient, each, results = objective(jnp.asarray(y))
        point = Point(y, float(cost), np.asarray(gradient), (cost, gradient, each, results))
        if not point.sound:
            failures, halved = failures + _failed(each), halved + 1
        return point

    low, high = (np.asarray(x) for x in bounds)
    at = Point(np.asarray(here.y), float(here.cost), np.asarray(here.gradient), ())
    fixed = held(at.y, at.gradient, low, high)
    slope = np.where(fixed, 0.0, at.gradient)
    for memory in (here.memory, Memory.of(here.y)):  # where the model of the cost leads nowhere, down the slope
        direction = np.where(fixed, 0.0, memory.direction(slope))
        fall = -0.5 * float(slope @ direction)
        if fall <= CLOSE * abs(at.cost):
            return _ended(here, SUCCESS)
        point = searched(at, direction, evaluate, low, high)
        if point is not None:
            break
        if fall <= HIDDEN * abs(at.cost):
            return dataclasses.replace(_ended(here, SUCCESS), failures=failures)
    else:
        return dataclasses.replace(_ended(here, RESULTS.search_stuck), failures=failures)
    cost, gradient, each, results = point.found
    return dataclasses.replace(
        here,
        y=jnp.asarray(point.y),
        gradient=gradient,
        memory=memory.with_pair(point.y - at.y, point.gradient - at.gradient),
        best=jnp.asarray(point.y),
        cost=cost,
        each=each,
        failures=failures,
        results=results,
        history=here.history.at[here.steps + 1].set(cost),
        halved=here.halved.at[here.steps].set(halved),
        steps=here.steps + 1,
    )


def _stepped(
    objective: Objective, here: Descent, bounds: tuple[Array, Array], transformation: optax.GradientTransformation
) -> Descent:
    change: Any
    change, memory = transformation.update(here.gradient, here.memory, here.y)
    y, failures, halved = jnp.clip(here.y + change, *bounds), here.failures, 0
    cost, gradient, each, results = objective(y)
    while not _sound(cost, gradient) and halved < HALVINGS:
        failures, halved = failures + _failed(each), halved + 1
        y = here.y + (y - here.y) / 2
        cost, gradient, each, results = objective(y)
    if not _sound(cost, gradient):
        return dataclasses.replace(_ended(here, RESULTS.search_stuck), failures=failures + _failed(each))
    moved = dataclasses.replace(
        here,
        y=y,
        gradient=gradient,
        memory=memory,
        failures=failures,
        history=here.history.at[here.steps + 1].set(cost),
        halved=here.halved.at[here.steps].set(halved),
        steps=here.steps + 1,
    )
    return dataclasses.replace(moved, best=y, cost=cost, each=each, results=results) if cost < here.cost else moved


def _sound(cost: Array, gradient: Array) -> bool:
    return bool(jnp.isfinite(cost) & jnp.all(jnp.isfinite(gradient)))


def _failed(each: Float[Array, " runs"]) -> Int[Array, " runs"]:
    return (~jnp.isfinite(each)).astype(int)
