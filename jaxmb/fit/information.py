"""What an experiment would tell, before it is made."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import RESULTS, contract, function_of, is_concrete, program
from ..linalg import solve_spd
from .experiment import Experiment, listed
from .identifiability import Identifiability
from .parameter import Parameter
from .prepare import Prepared, prepare
from .problem import DerivativeMode, Problem
from .report import failures


@contract
def identifiability(
    model: PyTree,
    parameters: Sequence[Parameter],
    experiments: Sequence[Experiment] | Experiment,
    *,
    build: Annotated[Any, function_of("model")] | None = None,
    jacobian: DerivativeMode | None = None,
    **options: PyTree,
) -> Identifiability:
    """Which parameters the experiments determine, near the nominal ones. No measurements are needed.

    Signals without values count as measured at all times. Arguments and errors as in `identify`.
    """
    prepared = prepare(model, parameters, listed(experiments), build, jacobian, options)
    problem, unknowns = prepared.problem, prepared.problem.runs.unknowns
    return Identifiability.of(_rows(prepared), prepared.labels, problem.count, unknowns.scale)


@contract
def information(
    model: PyTree,
    parameters: Sequence[Parameter],
    experiments: Sequence[Experiment] | Experiment,
    *,
    build: Annotated[Any, function_of("model")] | None = None,
    jacobian: DerivativeMode | None = None,
    **options: PyTree,
) -> Float[Array, "n n"]:
    """Fisher's information of the parameters over their scales, with biases and starts eliminated; its inverse bounds their covariance.

    You can differentiate it in forward mode with respect to anything in the experiments, such as the numbers of their
    controllers, to find the most informative inputs. Arguments and errors as in `identify`.
    """
    prepared = prepare(model, parameters, listed(experiments), build, jacobian, options)
    rows = _rows(prepared)
    full, n = rows.T @ rows, prepared.problem.count
    if full.shape[0] == n:
        return full
    across = full[:n, n:]
    return full[:n, :n] - across @ solve_spd(full[n:, n:], across.T)


def _rows(prepared: Prepared) -> Float[Array, "R N"]:
    """The Jacobian at the start; runs that fail there are named, where that is known."""
    _, rows, results = linear(prepared.problem, prepared.start)
    failed = results != RESULTS.successful
    if is_concrete(failed) and np.any(np.asarray(failed)):
        raise RuntimeError(RESULTS[RESULTS.search_failed] + failures(prepared, results))
    return rows


@program
def linear(problem: Problem, y: Float[Array, " N"]) -> tuple[Array, Array, Any]:
    """Residuals, Jacobian and results, as one program."""
    return problem.linear(y)
