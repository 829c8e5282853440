"""From dimensions to the goals of a mechanism."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fit import Parameter
from ..fit.parameter import Unknowns
from ..fit.residuals import AbstractResiduals
from ..fit.target import Setup
from ..foundations import (
    RESULTS,
    SUCCESS,
    Numbers,
    as_parameters,
    calling,
    counted,
    listing,
    positive_or_one,
    program,
    strong,
)
from ..kinematics import assemble
from ..mechanism import AbstractMechanism, linkage_of
from ..system import State, System, constraint_jacobian
from .cycle import Cycle, Poses, poses_over
from .goal import Goal
from .output import AbstractOutput

# Columns of the rows at the start, each of unit length, are dependent where their smallest singular value is below this.
DEPENDENT = 1e-9
# A velocity takes part in a freedom that is left where its share of the unit vector is above this: below is rounding.
SHARE = 1e-6
Outputs = tuple[Float[Array, "..."], ...]


class Outcome(eqx.Module):
    """A mechanism over the cycle of its input.

    Attributes:
        system: with the driver of its input.
        states: at the values of the input (n,).
        values: of each goal, by name.
    """

    system: System
    states: State
    values: dict[str, Array]


class DesignProblem(AbstractResiduals):
    """Differences from the targets of all goals, and excesses over their limits, as a function of the dimensions over their scales.

    A limit g ≤ 0, over its size, is the residual √μ max(0, g + λ/μ): the augmented Lagrangian as a sum of squares
    (Nocedal and Wright 2006, eq. 17.64).

    Attributes:
        model: the driven mechanism with its nominal numbers.
        unknowns: the dimensions.
        cycle: the values of the input.
        goals: the goals.
        start: the state of the nominal mechanism at the first of these values.
        reference: the rows there.
        sizes: of the limits (L,).
        multipliers, penalty: λ (L,) and μ.
        low, high: bounds of the unknowns.
        compared: number of differences from targets.
        open_loops: as in `poses_over`.
    """

    model: AbstractMechanism
    unknowns: Unknowns
    cycle: Cycle
    goals: tuple[Goal, ...]
    start: State
    reference: Float[Array, "m nv"]
    sizes: Float[Array, " L"]
    multipliers: Float[Array, " L"]
    penalty: Float[Array, ""]
    low: Float[Array, " N"]
    high: Float[Array, " N"]
    bounded: bool = eqx.field(static=True)
    compared: int = eqx.field(static=True)
    open_loops: bool = eqx.field(static=True, default=False)

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return self.compared + self.sizes.shape[0]

    @property
    def shots(self) -> int:
        """One: the cycle."""
        return 1

    def system(self, y: Float[Array, " N"]) -> System:
        """The driven system with these dimensions."""
        return self.unknowns.applied(Setup(self.model), self.unknowns.values(y)).model.build()

    def poses(self, y: Float[Array, " N"]) -> tuple[System, Poses]:
        """The system, and its poses over the cycle."""
        system = self.system(y)
        return system, poses_over(system, self.cycle, self.start, self.reference, self.open_loops)

    def outputs(self, y: Float[Array, " N"]) -> tuple[Outputs, Poses]:
        """The values of all goals, NaN where the mechanism does not go through its cycle."""
        system, poses = self.poses(y)
        spoilt = lambda x: jnp.where(poses.complete, x, jnp.nan)
        values = []
        for goal in self.goals:
            with calling("of", f" of goal '{goal.name}'"):
                value: Any = goal.of(system, poses.states)
            if not isinstance(value, float | int | Array):
                raise TypeError(
                    f"Argument `of` of goal '{goal.name}' must return a number or an array, but returns a {type(value).__name__}."
                )
            values.append(spoilt(jnp.asarray(value)))
        return tuple(values), poses

    def cost(self, outputs: Outputs) -> Float[Array, ""]:
        """½ Σ (weight (value − target))² of all goals."""
        pairs = zip(self.goals, outputs, strict=True)
        return 0.5 * sum((jnp.sum(goal.differences(x) ** 2) for goal, x in pairs), start=jnp.zeros(()))

    def excess(self, outputs: Outputs) -> Float[Array, " L"]:
        """By how much all limits are passed, over their sizes."""
        parts = [goal.excess(x) for goal, x in zip(self.goals, outputs, strict=True)]
        return jnp.concatenate([jnp.zeros(0, self.sizes.dtype), *parts]) / self.sizes

    def linear(self, y: Float[Array, " N"]) -> tuple[Float[Array, " R"], Float[Array, "R N"], RESULTS]:
        """Residuals, their Jacobian and whether the mechanism goes through its cycle."""

        def both(y: Array) -> tuple[Array, tuple[Array, Array]]:
            outputs, poses = self.outputs(y)
            differences = [goal.differences(x) for goal, x in zip(self.goals, outputs, strict=True)]
            # `maximum` would take an excess that is NaN for none in some orders of its arguments; sums of NaN stay NaN.
            shifted = self.excess(outputs) + self.multipliers / self.penalty
            limits = jnp.sqrt(self.penalty) * jnp.where(shifted < 0, 0.0, shifted)
            residuals = jnp.concatenate([*differences, limits])
            return residuals, (residuals, poses.complete)

        jacobian, (residuals, complete) = jax.jacfwd(both, has_aux=True)(y)
        result = RESULTS.where(complete, SUCCESS, RESULTS.no_assembly)
        return residuals, jacobian, jax.tree.map(lambda x: x[None], result)


def evaluated(problem: DesignProblem, y: Float[Array, " N"]) -> tuple[Outputs, Poses]:
    """The values of all goals and the poses."""
    # Without what it does not read, so that all calls are one program.
    none = jnp.zeros(0)
    return _evaluated(dataclasses.replace(problem, sizes=none, multipliers=none, compared=0), y)


@program
def _evaluated(problem: DesignProblem, y: Float[Array, " N"]) -> tuple[Outputs, Poses]:
    return problem.outputs(y)


@program
def rows_of(system: System, state: State) -> Float[Array, "m nv"]:
    """C at a state."""
    return constraint_jacobian(system, state.t, state.q)


class Start(NamedTuple):
    """A problem, where its search starts, and what is there.

    Attributes:
        problem: the problem.
        y: the nominal dimensions over their scales.
        outputs: the values of the goals there.
        poses: the poses there.
    """

    problem: DesignProblem
    y: Float[Array, " N"]
    outputs: Outputs
    poses: Poses


def prepare(
    mechanism: AbstractMechanism,
    variables: Sequence[Parameter],
    goals: Sequence[Goal] | Goal,
    cycle: Cycle,
    guess: Mapping[str, Numbers] | None,
    open_loops: bool = False,
) -> Start:
    """All arguments, checked at the nominal dimensions.

    Raises:
        TypeError, ValueError: naming the variable, the goal or the argument.
    """
    goals = (goals,) if isinstance(goals, Goal) else tuple(goals)
    names = [goal.name for goal in goals]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"Argument `goals` must hold goals of different names, but holds {listing(names)}.")
    model = strong(as_parameters(driven(mechanism, cycle)))
    unknowns = Unknowns.of(variables, Setup(model))
    if not unknowns.free:
        raise ValueError("Argument `variables` must hold one at least that is not frozen.")
    system = model.build()
    _expect_driven(linkage_of(system).topology.freedom - len(model.drivers), cycle)
    for goal in goals:
        if isinstance(goal.of, AbstractOutput):
            goal.of.check(system)
    start = _start(system, guess, cycle)
    reference = rows_of(system, start)
    _check_mobility(system, np.asarray(reference), cycle)
    problem = DesignProblem(
        model=model,
        unknowns=unknowns,
        cycle=cycle,
        goals=goals,
        start=start,
        reference=reference,
        sizes=jnp.zeros(0),
        multipliers=jnp.zeros(0),
        penalty=jnp.ones((), start.q.dtype),
        low=unknowns.low,
        high=unknowns.high,
        bounded=bool(np.isfinite([unknowns.low, unknowns.high]).any()),
        compared=0,
        open_loops=open_loops,
    )
    outputs, poses = evaluated(problem, unknowns.start)
    if not bool(poses.complete):
        raise ValueError(
            f"Argument `over` must be a way that the mechanism can go from its start, but {failure(cycle, poses)}."
        )
    for goal, values in zip(goals, outputs, strict=True):
        if not np.all(np.isfinite(np.asarray(values))):
            raise ValueError(
                f"Goal '{goal.name}' must have finite values at the start, but has {np.asarray(values).tolist()}."
            )
    sizes = jnp.concatenate([jnp.zeros(0), *(_limits(goal, x) for goal, x in zip(goals, outputs, strict=True))])
    compared = sum(x.size for goal, x in zip(goals, outputs, strict=True) if goal.target is not None)
    problem = dataclasses.replace(problem, sizes=sizes, multipliers=jnp.zeros_like(sizes), compared=compared)
    return Start(problem, unknowns.start, outputs, poses)


def driven(mechanism: AbstractMechanism, cycle: Cycle) -> AbstractMechanism:
    """The mechanism with its input driven.

    Raises:
        ValueError: for an input that is no joint coordinate.
    """
    try:
        return cycle.driven(mechanism)
    except ValueError as error:
        raise ValueError(f"Argument `over` must name a joint coordinate, but names '{cycle.input}': {error}") from None


def _start(system: System, guess: Mapping[str, Numbers] | None, cycle: Cycle) -> State:
    try:
        return assemble(system, guess, t=cycle.ts[0])
    except ValueError as error:
        raise ValueError(f"Argument `start` must lead to the first pose, but does not. {error}") from None


def _check_mobility(system: System, rows: np.ndarray, cycle: Cycle) -> None:
    """Refuses what moves without being driven, and rows that do not determine a pose."""
    lengths = np.linalg.norm(rows, axis=0)
    scaled = rows / positive_or_one(lengths)
    _, values, vectors = np.linalg.svd(np.concatenate([scaled, np.zeros((max(0, system.nv - len(rows)), system.nv))]))
    free = int((values < DEPENDENT).sum())
    if free:
        moving = [
            name
            for name, part in zip(system.velocities, np.abs(vectors[-free:]).max(axis=0), strict=True)
            if part > SHARE
        ]
        _expect_driven(free, cycle, f", of {listing(moving)}")


def _expect_driven(free: int, cycle: Cycle, of: str = "") -> None:
    """Refuses degrees of freedom that are left; counting, which may find too few of them, needs no pose."""
    if free > 0:
        what = f"'{cycle.input}'" if cycle.input else "the drivers of the mechanism"
        raise ValueError(
            f"Argument `over` must drive all that moves, but with {what} driven {counted(free, 'degree')} of freedom left{of}: "
            "name an input, or give the mechanism drivers of the others."
        )


def _limits(goal: Goal, values: Array) -> Float[Array, " l"]:
    """The sizes of a goal's limits; refuses arguments whose shapes do not fit the values."""
    for argument in ("target", "low", "high", "weight"):
        value = getattr(goal, argument)
        if value is not None and value.shape not in ((), values.shape):
            raise ValueError(
                f"Argument `{argument}` of goal '{goal.name}' must be a number, or have shape {values.shape} as its values, but has shape "
                f"{value.shape}."
            )
    # A limit of zero tells no size: then that of the values at the start does.
    own = jnp.max(jnp.abs(values))
    size = lambda limit: jnp.broadcast_to(jnp.maximum(jnp.abs(limit), own), values.shape).ravel()
    sizes = jnp.concatenate([jnp.zeros(0), *(size(x) for x in (goal.low, goal.high) if x is not None)])
    return positive_or_one(sizes)


def failure(cycle: Cycle, poses: Poses) -> str:
    """Where, and how, a mechanism does not go through its cycle."""
    index = int(poses.first_failure)
    value = float(cycle.ts[index] * cycle.speed)
    where = f"at {cycle.input or 't'} = {value:.4g}"
    if not bool(poses.closed[index]):
        return f"loops do not close {where}"
    return f"the branch changes {where}" if index else "the first pose is on another branch"
