"""Parameters from measured motion."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..foundations import (
    RESULTS,
    SUCCESS,
    Count,
    Key,
    NonNegative,
    contract,
    function_of,
    is_concrete,
    lasting,
    listing,
)
from .checkpoint import Checkpoint
from .descent import descend
from .evidence import evidence
from .experiment import Experiment, listed
from .information import linear
from .least_squares import Search, advance_all, all_advanced, begin, reopened
from .parameter import Parameter
from .points import starting_points
from .prepare import Prepared, prepare
from .problem import DerivativeMode, Problem
from .progress import Progress, Report, reporting
from .report import Fit, failures, summarise


@contract
def identify(
    model: PyTree,
    parameters: Sequence[Parameter],
    experiments: Sequence[Experiment] | Experiment,
    *,
    build: Annotated[Any, function_of("model")] | None = None,
    optimiser: object = None,
    jacobian: DerivativeMode | None = None,
    rtol: NonNegative = 1e-8,
    max_iterations: Count = 50,
    starts: Count = 1,
    key: Key | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    check: bool = False,
    throw: bool = True,
    **options: PyTree,
) -> Fit:
    """Identifies the parameters with which runs come closest to measurements.

    Least squares: minimises ½ Σ ((model + bias − measured)/σ)² over all samples that are not missing, within the bounds. Biases of sensors and
    starts are unknowns too, if experiments ask for it; constraints hold at every start. Experiments that differ in numbers only run side by
    side, in one program.

    Args:
        model: a mechanism or a system; its numbers are used where no parameter replaces them.
        parameters: what is looked for.
        experiments: what was measured.
        build: from a model to a system; by default `model.build()` of a mechanism, and a system as it is.
        optimiser: None for Levenberg and Marquardt's method within the bounds; a least-squares solver of optimistix, for parameters without
            bounds; or a transformation of optax, after each step of which the unknowns are clipped to their bounds.
        jacobian: "forward" or "reverse" mode. By default forward where there are at most four times as many unknowns of a run as samples;
            with optax, where there are at most four.
        rtol: the search ends when a step, relative to each unknown, or the predicted decrease of the cost, relative to the cost, is below it.
        max_iterations: largest number of evaluations, each with a Jacobian; with optax, of steps.
        starts: number of searches, side by side, from random points within the bounds; the first starts at the nominal values.
        key: for these points.
        checkpoint: a file in which the search is saved after each iteration, and from which it continues if the file exists.
        progress: a function that receives a `Progress` after each iteration; on a terminal a progress line is shown in any case, see `show_progress`.
        check: whether to add the evidence of `jaxmb.check` for the runs with the estimates, and of `jaxmb.check_gradient` for one random
            combination of the residuals, since search and covariance rely on their Jacobian: `Fit.check`, printed with the fit.
        throw: whether to raise an error if the search fails at its start, for known values. `Fit.result` reports it in any case.
        **options: of `simulate`: `formulation`, `drift`, `solver`, `stepsize_controller`, `dt0`, `max_steps`, `max_events`, `engine`.

    Returns:
        A `Fit`; `print` shows it as a table.

    Raises:
        TypeError, ValueError: for arguments that do not fit; the message names the parameter, the experiment or the signal.
        RuntimeError: if a run fails with the parameters of the start.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> pendulum = jm.System(("x",), mass=lambda t, q, p: p["m"] * jnp.eye(1), potential=lambda t, q, p: p["k"] * q[0] ** 2 / 2,
        ...                      params={"m": 1.0, "k": 4.0})
        >>> start, ts = jm.assemble(pendulum, [1.0]), jnp.linspace(0.0, 2.0, 21)
        >>> seen = jm.fit.Signal("x", jnp.cos(3.0 * ts))
        >>> fit = jm.fit.identify(pendulum, [jm.fit.Parameter("k")], jm.fit.Experiment(ts, start, seen))
        >>> print(f"{float(fit.estimates['k']):.4f}")
        9.0000
    """
    experiments = listed(experiments)
    _check_data(experiments)
    prepared = prepare(model, parameters, experiments, build, jacobian, options)
    file = Checkpoint(checkpoint, (prepared, rtol, starts))
    if optimiser is None:
        count = prepared.problem.count
        bounds = prepared.problem.low[:count], prepared.problem.high[:count]
        points = starting_points(prepared.start, bounds, prepared.labels, starts, key)
        with reporting(progress) as report:
            y, outcome = _search(prepared, points, rtol, max_iterations, file, report)
    elif starts != 1:
        raise ValueError(f"Argument `starts` must be 1 with an `optimiser`, but is {starts}.")
    elif isinstance(optimiser, optax.GradientTransformation):
        with reporting(progress) as report:
            y, outcome = _descent(prepared, optimiser, jacobian, max_iterations, file, report)
    elif isinstance(optimiser, optx.AbstractLeastSquaresSolver):
        y, outcome = _optimistix(prepared, optimiser, max_iterations)
    else:
        raise TypeError(
            "Argument `optimiser` must be a transformation of optax, a least-squares solver of optimistix, or None, but is a "
            f"{type(optimiser).__name__}."
        )
    failed = outcome["result"] == RESULTS.search_failed
    if throw and is_concrete(failed) and bool(failed):
        raise RuntimeError(RESULTS[RESULTS.search_failed] + failures(prepared, outcome["runs"]))
    fit = summarise(prepared, y, **outcome)
    return dataclasses.replace(fit, check=evidence(prepared, y, _combination)) if check else fit


def _combination(problem: Problem, y: Float[Array, " N"]) -> Float[Array, ""]:
    """One random combination of the residuals: unlike the cost it is not stationary where the search ends."""
    r, _ = problem.residuals(y)
    return jax.random.normal(jax.random.key(0), r.shape, r.dtype) @ r


def _search(
    prepared: Prepared,
    points: Float[Array, "S N"],
    rtol: float,
    most: int,
    file: Checkpoint,
    report: Report,
) -> tuple[Array, dict[str, Any]]:
    """Levenberg and Marquardt's method from some points, side by side."""
    problem = prepared.problem
    searches = jax.vmap(lambda y: begin(problem, y))(points)
    limits = jnp.asarray(rtol, points.dtype), jnp.asarray(most)
    if is_concrete(prepared, points):
        searches = reopened(file.load(searches), most)
        while not np.all(np.asarray(searches.done)):
            searches = advance_all(problem, searches, *limits)
            file.save(searches)
            ended = bool(np.all(np.asarray(searches.done)))
            report(int(searches.iterations.max()), most, searches.cost.min(), searches.trial_cost.min(), ended)
    else:
        # Inside of a transformation nothing can be written or reported, and all iterations are one program.
        searches = lax.while_loop(lambda s: ~jnp.all(s.done), lambda s: all_advanced(problem, s, *limits), searches)
    # NaN would be the least for `argmin`.
    costs = jnp.where(jnp.isnan(searches.cost), jnp.inf, searches.cost)
    best: Search = jax.tree.map(lambda x: x[jnp.argmin(costs)], searches)
    outcome = dict(r=best.r, jacobian=best.jacobian, cost=best.cost, iterations=best.iterations)
    return best.y, outcome | dict(result=best.result, runs=best.results, starts=searches.cost)


def _descent(
    prepared: Prepared,
    transformation: optax.GradientTransformation,
    jacobian: DerivativeMode | None,
    most: int,
    file: Checkpoint,
    report: Report,
) -> tuple[Array, dict[str, Any]]:
    """Steps along the gradient of the cost."""
    if not is_concrete(prepared):
        raise TypeError("Argument `optimiser` must be None, or of optimistix, inside of `jit` or `vmap`.")
    problem = prepared.problem.for_gradient(jacobian)
    bounds = (problem.low, problem.high)
    descent = descend(lambda y: _slope(problem, y), prepared.start, bounds, transformation, most, file, report)
    r, rows, _ = linear(prepared.problem, descent.best)
    outcome = dict(r=r, jacobian=rows, cost=descent.cost, iterations=descent.steps, result=descent.result)
    return descent.best, outcome | dict(runs=descent.results, starts=descent.cost[None])


@lasting
def _slope(problem: Problem, y: Float[Array, " N"]) -> tuple[Array, Array, Array, RESULTS]:
    """Cost, its gradient, and what the runs report."""
    if problem.forward:
        r, jacobian, results = problem.linear(y)
        return 0.5 * jnp.sum(r**2), r @ jacobian, 0.5 * jnp.sum(r**2)[None], results

    def cost(y: Array) -> tuple[Array, RESULTS]:
        r, results = problem.residuals(y)
        return 0.5 * jnp.sum(r**2), results

    (value, results), slope = jax.value_and_grad(cost, has_aux=True)(y)
    return value, slope, value[None], results


def _optimistix(prepared: Prepared, solver: optx.AbstractLeastSquaresSolver, most: int) -> tuple[Array, dict[str, Any]]:
    """A solver of optimistix on the same residuals and Jacobian."""
    problem = prepared.problem
    if problem.bounded:
        raise ValueError(
            "Argument `optimiser` must be None, or of optax, for parameters with bounds: optimistix has none."
        )
    y, steps, result = _least_squares(problem, solver, prepared.start, most)
    r, rows, results = linear(problem, y)
    cost = 0.5 * jnp.sum(r**2)
    result = RESULTS.where(result == optx.RESULTS.successful, SUCCESS, RESULTS.search_unfinished)
    outcome = dict(r=r, jacobian=rows, cost=cost, iterations=steps, result=result)
    return y, outcome | dict(runs=results, starts=cost[None])


@lasting
def _least_squares(
    problem: Problem, solver: optx.AbstractLeastSquaresSolver, y: Array, most: int
) -> tuple[Array, Array, Any]:
    # Optimistix asks for one tangent at a time; the Jacobian is found once, by the rule that `jacobian` chose, and
    # multiplied.
    @jax.custom_jvp
    def residuals(y: Array) -> Array:
        return problem.linear(y)[0]

    @residuals.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        r, jacobian, _ = problem.linear(*primals)
        return r, jacobian @ tangents[0]

    solution = optx.least_squares(lambda y, _: residuals(y), solver, y, max_steps=most, throw=False)
    return solution.value, solution.stats["num_steps"], solution.result


def _check_data(experiments: Sequence[Experiment]) -> None:
    """There is something to fit in each experiment."""
    for i, experiment in enumerate(experiments):
        name = experiment.name or str(i)
        without = [signal.name for signal in experiment.signals if signal.values is None]
        if without or not experiment.signals:
            what = f"values of {listing(without)}" if without else "signals"
            raise ValueError(f"Experiment '{name}' must have {what} to identify parameters from, but has none.")
        if is_concrete(experiment.signals) and all(np.all(np.isnan(np.asarray(s.values))) for s in experiment.signals):
            raise ValueError(f"Experiment '{name}' must have a sample, but all are missing.")
