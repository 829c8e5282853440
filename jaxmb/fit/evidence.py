"""The evidence for what a search found."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..foundations import is_concrete, program
from ..simulation import Solution
from ..system import System
from ..verification import SearchCheck, check, check_gradient
from .prepare import Prepared
from .problem import Problem
from .shot import Shot

OTHERS = "starts and biases"


def evidence(prepared: Prepared, y: Float[Array, " N"], value: Callable[[Problem, Array], Array]) -> SearchCheck:
    """The checks of all runs with the unknowns y, and of the derivative of a value by those of them that no bound holds.

    Args:
        prepared: the search.
        y: the unknowns, over their scales.
        value: `value(problem, y)`, a number that depends on all runs.

    Raises:
        TypeError: under a transformation of JAX.
    """
    if not is_concrete(prepared, y):
        raise TypeError("Argument `check` must be False inside of `jit` or `vmap`, where numbers are not known.")
    problem = prepared.problem
    runs = [check(*_runs(problem, group, y)) for group in problem.groups]
    parts = _free(prepared, y)

    in_both_modes = dataclasses.replace(problem, forward=False)

    def of_parts(at: dict[str, Array]) -> Array:
        return value(in_both_modes, y.at[np.concatenate([*parts.values()])].set(jnp.concatenate([*at.values()])))

    at = {name: y[where] for name, where in parts.items()}
    gradient = check_gradient(of_parts, at) if at else None
    experiments = [tuple(prepared.experiments[prepared.shots[i][0]] for i in members) for members in prepared.members]
    return SearchCheck(tuple(tuple(dict.fromkeys(names)) for names in experiments), tuple(runs), gradient)


@program
def _runs(problem: Problem, group: Shot, y: Float[Array, " N"]) -> tuple[System, Solution]:
    return problem.solutions(group, y)


def _free(prepared: Prepared, y: Float[Array, " N"]) -> dict[str, Int[np.ndarray, " k"]]:
    """Which unknowns no bound holds, by parameter; starts and biases are one."""
    problem = prepared.problem
    low, at, high = map(np.asarray, (problem.low, y, problem.high))
    names = [x.partition("[")[0] if i < problem.count else OTHERS for i, x in enumerate(prepared.labels)]
    return {
        name: where
        for name in sorted(set(names))
        if (where := np.flatnonzero((np.array(names) == name) & (low < at) & (at < high))).size
    }
