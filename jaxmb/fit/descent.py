"""Steps along a gradient, by any transformation of optax."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from ..foundations import RESULTS
from .checkpoint import Checkpoint
from .progress import reporter

# How often a step after which a run fails is halved.
HALVINGS = 10
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
    transformation: optax.GradientTransformation,
    most: int,
    checkpoint: Checkpoint,
    progress: Any,
) -> Descent:
    """Steps from y, each put back within the bounds; a step after which a run fails is halved until none does."""
    report = reporter(progress)
    cost, gradient, each, results = objective(y)
    history = jnp.full(most + 1, jnp.nan).at[0].set(cost)
    fine = bool(jnp.isfinite(cost))
    result: Any = RESULTS.search_unfinished if fine else RESULTS.search_failed
    start = Descent(
        y=y,
        gradient=gradient,
        memory=transformation.init(y),
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
        here = _stepped(objective, here, bounds, transformation)
        checkpoint.save(here)
        ended = bool(here.result != RESULTS.search_unfinished) or int(here.steps) == most
        report(int(here.steps), most, here.cost, here.history[here.steps], ended)
    ended: Any = RESULTS.where(here.result == RESULTS.search_unfinished, SUCCESS, here.result)
    return eqx.tree_at(lambda d: d.result, here, ended)


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
        stuck: Any = RESULTS.search_stuck
        return dataclasses.replace(here, failures=failures + _failed(each), result=jax.tree.map(jnp.asarray, stuck))
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
