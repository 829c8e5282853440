"""What coming closer to one goal costs another."""

import dataclasses
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..fit import Parameter
from ..foundations import (
    RESULTS,
    AllPositive,
    Count,
    NonZero,
    Numbers,
    Positive,
    TextInNotebooks,
    aligned,
    as_floats,
    contract,
    listing,
)
from ..mechanism import AbstractMechanism
from .goal import Goal
from .optimise import optimise
from .report import CLOSE, Design


class ParetoFront(TextInNotebooks, eqx.Module):
    """The result of `pareto`; `print` shows it as a table, `jaxmb.plot.pareto` draws it.

    Attributes:
        names: of the two goals.
        weights: of the second beside the first (k,).
        designs: the design with each weight.
        costs: ½ Σ (weight (value − target))² of both goals (k, 2), with their own weights.
    """

    names: tuple[str, str] = eqx.field(static=True)
    weights: Float[Array, " k"]
    designs: tuple[Design, ...]
    costs: Float[Array, "k 2"]

    @property
    def dominated(self) -> Bool[np.ndarray, " k"]:
        """Whether another design comes closer to one goal, by more than rounding, and no less close to the other."""
        costs = np.asarray(self.costs)
        no_worse = np.all(costs <= (1 + CLOSE) * costs[:, None], axis=-1)
        better = np.any(costs < (1 - CLOSE) * costs[:, None], axis=-1)
        return np.any(no_worse & better, axis=1)

    def __str__(self) -> str:
        names = [name for name, value in self.designs[0].values.items() if value.ndim == 0]
        rows: list[tuple[str, ...]] = [("weight", *self.names, *names, "")]
        for weight, costs, design, dominated in zip(
            self.weights, self.costs, self.designs, self.dominated, strict=True
        ):
            numbers = (weight, *costs, *(design.values[name] for name in names))
            converged = bool(design.result == RESULTS.successful)
            note = "dominated" if dominated else "" if converged else "not converged"
            rows.append((*(f"{float(x):.4g}" for x in numbers), note))
        return "\n".join(
            [f"Costs of '{self.names[0]}' and '{self.names[1]}' by the weight of the latter", *aligned(rows, "  ")]
        )


@contract
def pareto(
    mechanism: AbstractMechanism,
    variables: Sequence[Parameter],
    goals: Sequence[Goal],
    *,
    weights: AllPositive,
    over: Mapping[str, Numbers] | Numbers,
    start: Mapping[str, Numbers] | None = None,
    speed: NonZero = 1.0,
    rtol: Positive = 1e-10,
    max_iterations: Count = 200,
) -> ParetoFront:
    """Trade-offs between two goals: the dimensions of least weighted cost, for one weight μ after another.

        F₁(x) + μ F₂(x) = min,    F = ½ Σ (weight (f(x) − target))²

    A search starts from the previous design, on its branch. A design of least weighted cost is Pareto-optimal: nothing near it is better by both
    goals (Miettinen 1999, theorem 3.1.2). Where the front is not convex there are designs that no weight leads to: then give
    one goal as a limit, and call `optimise` for several values of it.

    Args:
        mechanism: the mechanism.
        variables: as in `optimise`, and so are all others.
        goals: two with a target, and any number of others that have limits only.
        weights: μ (k,), of the second goal with a target beside the first.
        over: the input and its values.
        start: a guess of the first pose with the first weight.
        speed: of the input.
        rtol: the least change that counts in a search.
        max_iterations: largest number of evaluations for each weight.

    Returns:
        A `ParetoFront`; `print` shows it as a table.

    Raises:
        TypeError, ValueError: as in `optimise`, and naming `goals` and `weights`.
    """
    traded = [goal for goal in goals if goal.target is not None]
    if len(traded) != 2:
        raise ValueError(
            f"Argument `goals` must hold two goals with a `target`, but holds {listing(goal.name for goal in traded)}."
        )
    weights = as_floats(weights)
    if weights.ndim != 1 or not weights.size:
        raise ValueError(f"Argument `weights` must have shape (k,), but has shape {weights.shape}.")
    designs = []
    for factor in jnp.sqrt(weights):
        weighed = [dataclasses.replace(g, weight=factor * g.weight) if g is traded[1] else g for g in goals]
        design = optimise(
            mechanism, variables, weighed, over=over, start=start, speed=speed, rtol=rtol, max_iterations=max_iterations
        )
        designs.append(design)
        variables = [_from(design, parameter) for parameter in variables]
        first = design.after.states.q[0]
        start = dict(zip(design.after.system.coordinates, first, strict=True))
    cost = lambda goal, design: 0.5 * jnp.sum(goal.differences(design.after.values[goal.name]) ** 2)
    return ParetoFront(
        names=(traded[0].name, traded[1].name),
        weights=weights,
        designs=tuple(designs),
        costs=jnp.array([[cost(goal, design) for goal in traded] for design in designs]),
    )


def _from(design: Design, parameter: Parameter) -> Parameter:
    """A variable that starts where a design has it."""
    # A value at its bound may be beyond it by rounding.
    value = jnp.clip(design.values[parameter.name], parameter.min_value, parameter.max_value)
    return dataclasses.replace(parameter, nominal=value)
