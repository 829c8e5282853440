"""Design by gradients: gains, springs, motions, policies."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from ..foundations import (
    RESULTS,
    TextInNotebooks,
    Whole,
    as_function,
    as_parameters,
    calling,
    contract,
    expect_returned,
    function_of,
    lasting,
    listing,
)
from ..linalg import at_bounds
from ..verification import SearchCheck
from .checkpoint import Checkpoint
from .descent import Descent, descend
from .evidence import evidence
from .experiment import Experiment, listed
from .parameter import Parameter, values_table
from .prepare import Prepared, prepare
from .problem import DerivativeMode, Problem, concatenated, nominal_start
from .progress import Progress, reporting
from .report import failures
from .shot import Shot, over_shots
from .target import Setup


class Tuned(TextInNotebooks, eqx.Module):
    """The result of `tune`; `print` shows it as a table.

    Attributes:
        estimates: values of all parameters by name, the frozen ones included.
        nominal: where the search started.
        setup: model, control and events of the first experiment, with the estimates.
        cost: the objective over all experiments.
        costs: that of each experiment, by name.
        history: the cost after each step (steps + 1,), the start first; NaN for steps that were not made.
        failures: by name, in how many trials an experiment failed, which made their steps shorter.
        halved: how often each step was halved for that reason (steps,).
        result: how the search ended, see `jaxmb.RESULTS`: `search_unfinished` if all steps are made and the slope is not small yet.
        at_bound: names of the parameters held by a bound, entries of arrays as "name[0]".
        check: the evidence for the runs and the gradient, if `check` was set.
    """

    estimates: dict[str, Array]
    nominal: dict[str, Array]
    setup: Setup
    cost: Float[Array, ""]
    costs: dict[str, Array]
    history: Float[Array, " costs"]
    failures: dict[str, Int[Array, ""]]
    halved: Int[Array, " steps"]
    result: RESULTS
    at_bound: tuple[str, ...] = eqx.field(static=True, default=())
    check: SearchCheck | None = eqx.field(static=True, default=None)

    @property
    def model(self) -> Any:
        """The model with the estimates."""
        return self.setup.model

    @property
    def control(self) -> Any:
        """The controller with the estimates, of the first experiment."""
        return self.setup.control

    def __str__(self) -> str:
        count = int(jnp.sum(jnp.isfinite(self.history))) - 1
        lines = [f"Cost {float(self.cost):.6g}, {float(self.history[0]):.6g} at the start, after {count} steps"]
        if bool(self.result != RESULTS.successful):
            lines.append(RESULTS[self.result])
        elif count == 0:
            lines.append("The start is a minimum, or no parameter changes the objective.")
        lines += values_table("parameter", self.estimates, self.nominal, self.at_bound)
        failed = [f"{name} in {int(n)}" for name, n in self.failures.items() if int(n)]
        if failed:
            lines.append(f"Trials that failed and were shortened: {listing(failed)}.")
        if self.check is not None:
            lines.append(str(self.check))
        return "\n".join(lines)


@contract
def tune(
    model: PyTree,
    parameters: Sequence[Parameter],
    experiments: Sequence[Experiment] | Experiment,
    objective: Annotated[Any, function_of("system, solution")] | Annotated[Any, function_of("system, solution, about")],
    *,
    steps: Whole = 100,
    optimiser: optax.GradientTransformation | None = None,
    over: Annotated[Any, function_of("values")] = jnp.mean,
    build: Annotated[Any, function_of("model")] | None = None,
    gradient: DerivativeMode | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    check: bool = False,
    throw: bool = True,
    **options: PyTree,
) -> Tuned:
    """Tunes parameters so that an objective of the runs becomes least.

    The objectives of all runs are reduced step by step along their gradient, within the bounds. Steps are taken in the parameters over
    their scales. A step after which a run fails, or its objective is not finite, is halved until none does; the failures are
    reported.

    Args:
        model: a mechanism or a system.
        parameters: the unknowns: in the model, in the controllers ("control…") or the events ("events.name…") of the experiments.
        experiments: the runs; those that differ in numbers only run side by side.
        objective: `objective(system, solution)` → a number, differentiable; with an experiment's `about` as a third argument if that is given.
        steps: number of steps; zero for the costs at the start.
        optimiser: a transformation of optax; None for quasi-Newton steps within the bounds, each of which lowers the objective, and which end
            when no more than 1e-8 of it can be gained. Transformations of optax make all steps.
        over: how the objectives of all runs (k,) become one number.
        build: from a model to a system, as in `identify`.
        gradient: "forward" or "reverse" mode; by default forward for up to four unknown numbers.
        checkpoint: a file in which the search is saved after each step, and from which it continues if the file exists.
        progress: a function that receives a `Progress` after each step; on a terminal a progress line is shown in any case, see `show_progress`.
        check: whether to add the evidence of `jaxmb.check` for the runs with the estimates, and of `jaxmb.check_gradient` for the objective
            there: `Tuned.check`, printed with the result.
        throw: whether to raise an error if a run fails at the start of the search.
        **options: of `simulate`, as in `identify`.

    Returns:
        A `Tuned` for the parameters with the least objective of all that were tried; its `result` tells whether the search has converged.

    Raises:
        TypeError, ValueError: for arguments that do not fit; the message names the parameter or the experiment.
        RuntimeError: if a run fails with the parameters of the start.
    """
    experiments = listed(experiments)
    for i, experiment in enumerate(experiments):
        if experiment.windows != 1 or experiment.fit_start or any(signal.bias for signal in experiment.signals):
            raise ValueError(
                f"Experiment '{experiment.name or i}' must have a given start, one window and no bias to be tuned for."
            )
    # There are no samples to choose a mode by; the mode is set below by the number of parameters.
    prepared = prepare(model, parameters, experiments, build, gradient or "reverse", options)
    problem = prepared.problem.for_gradient(gradient)
    aim = as_parameters(as_function(objective, "objective"))
    with reporting(progress) as report:
        descent = descend(
            lambda x: _objective(problem, aim, over, x),
            prepared.start,
            (problem.low, problem.high),
            optimiser,
            steps,
            Checkpoint(checkpoint, (prepared, aim, steps)),
            report,
        )
    if throw and bool(descent.result == RESULTS.search_failed):
        raise RuntimeError(RESULTS[RESULTS.search_failed] + failures(prepared, descent.results))
    tuned = _result(prepared, descent)
    if not check:
        return tuned
    value = lambda problem, x: over(_each(problem, aim, x))
    return dataclasses.replace(tuned, check=evidence(prepared, descent.best, value))


def _result(prepared: Prepared, descent: Descent) -> Tuned:
    problem, unknowns = prepared.problem, prepared.problem.runs.unknowns
    order = [prepared.experiments[i] for members in prepared.members for i in members]
    return Tuned(
        estimates=unknowns.values(descent.best),
        nominal=unknowns.nominal,
        setup=problem.runs.setup(problem.groups[0][0], descent.best),
        cost=descent.cost,
        costs=dict(zip(order, descent.each, strict=True)),
        history=descent.history,
        failures=dict(zip(order, descent.failures, strict=True)),
        halved=descent.halved,
        result=descent.result,
        at_bound=unknowns.picked(at_bounds(descent.best, descent.slope, problem.low, problem.high)),
    )


@lasting
def _objective(
    problem: Problem,
    objective: Callable[..., ArrayLike],
    over: Annotated[Any, function_of("values")],
    x: Float[Array, " n"],
) -> tuple[Array, Array, Array, RESULTS]:
    """The objective, its gradient, that of each run and what the runs report."""
    cost = functools.partial(_of_shot, problem, objective)
    slope = (jax.jacfwd if problem.forward else jax.jacrev)(cost, argnums=1, has_aux=True)
    each, slopes, results = [], [], []
    for group in problem.groups:
        rows, (values, result) = over_shots(slope, group, _repeated(group, x))
        each, slopes, results = [*each, values], [*slopes, rows], [*results, result]
    values = jnp.concatenate(each)
    # The chain rule by hand: `over` mixes runs of all groups, whose own slopes are found shot by shot.
    with calling("over"):
        total, weights = jax.value_and_grad(lambda values: _number("over", over(values), values.dtype))(values)
    return total, weights @ jnp.concatenate(slopes), values, concatenated(results)


def _each(problem: Problem, objective: Callable[..., ArrayLike], x: Float[Array, " n"]) -> Float[Array, " runs"]:
    """The objective of each run."""
    cost = functools.partial(_of_shot, problem, objective)
    return jnp.concatenate([over_shots(cost, group, _repeated(group, x))[0] for group in problem.groups])


def _of_shot(
    problem: Problem, objective: Callable[..., ArrayLike], shot: Shot, x: Float[Array, " n"]
) -> tuple[Array, tuple[Array, RESULTS]]:
    """The objective of a run, NaN where that fails; once more, and what the run reports, for transformations that return them beside a derivative."""
    system, motion = problem.runs.run(shot, x, nominal_start(shot), problem.forward)
    about = () if shot.about is None else (shot.about,)
    with calling("objective"):
        value = _number("objective", objective(system, motion, *about), x.dtype)
    value = jnp.where(motion.result == RESULTS.successful, value, jnp.nan)
    return value, (value, motion.result)


def _number(argument: str, value: object, dtype: DTypeLike) -> Array:
    expect_returned(argument, value, ())
    return jnp.asarray(value, dtype)


def _repeated(group: Shot, x: Float[Array, " n"]) -> Float[Array, "shots n"]:
    return jnp.broadcast_to(x, (group.ts.shape[0], *x.shape))
