"""Dimensions with which a mechanism does what it is for."""

import os
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..fit import Parameter, Progress
from ..fit.least_squares import MILD
from ..fit.parameter import Unknowns
from ..fit.progress import reporting
from ..fit.target import Setup
from ..foundations import RESULTS, Count, Key, NonZero, Numbers, Positive, contract, counted
from ..linalg import at_bounds
from ..mechanism import AbstractMechanism
from ..system import State
from .cycle import Cycle
from .goal import Goal
from .problem import DesignProblem, Outcome, Outputs, evaluated, prepare
from .report import Design
from .search import DesignSearch, search


@contract
def optimise(
    mechanism: AbstractMechanism,
    variables: Sequence[Parameter],
    goals: Sequence[Goal] | Goal,
    *,
    over: Mapping[str, Numbers] | Numbers,
    start: Mapping[str, Numbers] | None = None,
    speed: NonZero = 1.0,
    starts: Count = 1,
    key: Key | None = None,
    rtol: Positive = 1e-10,
    max_iterations: Count = 200,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Design:
    """The dimensions with which a mechanism comes closest to its goals.

        ½ Σ (weight (f(x) − target))² = min,    low ≤ f(x) ≤ high,    within the bounds of x.

    The input is driven through its values, and all poses follow by closed loops, with exact derivatives by the
    dimensions. A step after which loops do not close at some value, or the mechanism is on another branch, is shortened
    until they close on the same branch. Limits are kept by an augmented Lagrangian.

    Args:
        mechanism: the mechanism; numbers that no variable names stay as they are.
        variables: the dimensions, points, masses and springs that may change, with their bounds; several at once by a `modifier`.
        goals: what for.
        over: the input, a joint coordinate, and the values (n,) at which goals are read, in order: `{"crank": angles}`; or times (n,),
            where drivers of the mechanism prescribe its motion. Another driver of the input is removed.
        start: a guess of the first pose, as in `jaxmb.assemble`: it selects the branch, which is kept.
        speed: of the input, in rad/s or m/s, for goals of dynamics.
        starts: number of starts: the nominal dimensions, and random ones within the bounds. Those that do not go through the cycle are
            dropped; each of the others makes some evaluations, the best continue until they end, and the best of these is the result.
        key: for the random starts.
        rtol: the search ends when a step, relative to each variable, or the predicted decrease of the cost, relative to the cost, is below it.
        max_iterations: largest number of evaluations, each with a Jacobian.
        checkpoint: a file in which the search is saved after each evaluation, and from which it continues if the file exists.
        progress: a function that receives a `Progress`; on a terminal a progress line is shown in any case, see `show_progress`.

    Returns:
        A `Design`; `print` shows it as a table.

    Raises:
        TypeError, ValueError: before anything is tried, naming the variable, the goal or the argument that does not fit: unknown names, bounds, a
            start that does not lead through the cycle, freedoms that nothing drives, values of a wrong shape or not finite.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> P = jm.planar
        >>> crank, rod = P.Body.rod("crank", 1.0, 1.0), P.Body.rod("rod", 1.0, 3.0)
        >>> joints = [P.Revolute("A", "ground", "crank.a"), P.Revolute("B", "crank.b", "rod.a"), P.Prismatic("slide", "ground", "ram"), P.Revolute("C", "rod.b", "ram")]
        >>> press = P.Mechanism([crank, rod, P.Body("ram", 2.0, 0.1)], joints)
        >>> goal = jm.design.Goal("stroke", jm.design.Stroke("slide"), 1.0)
        >>> design = jm.design.optimise(press, [jm.fit.Parameter("crank.length")], goal, over={"A": jnp.linspace(0.0, 6.2, 40)}, start={"slide": 4.0})
        >>> print(f"{float(design.values['crank.length']):.6f}")
        0.500000
    """
    cycle = Cycle.of(over, speed)
    prepared = prepare(mechanism, variables, goals, cycle, start)
    with reporting(progress) as report:
        state = search(prepared, (rtol, max_iterations), starts, key, checkpoint, report)
    problem, y = state.problem(prepared.problem), state.searches.y[0]
    outputs, poses = evaluated(problem, y)
    values, own = problem.unknowns.values(y), Setup(mechanism)
    return Design(
        values=values,
        nominal=problem.unknowns.nominal,
        mechanism=Unknowns.of(variables, own).applied(own, values).model,
        input=cycle.values,
        label=cycle.input or "t",
        goals=problem.goals,
        before=_outcome(problem, prepared.y, prepared.poses.states, prepared.outputs),
        after=_outcome(problem, y, poses.states, outputs),
        cost=problem.cost(outputs),
        first_cost=problem.cost(prepared.outputs),
        obstacles=_obstacles(cycle, state),
        at_bound=_at_bound(problem, state),
        starts=(int(state.starts), int(state.turning)),
        reached=state.costs,
        iterations=int(state.iterations),
        excess=float(jnp.max(problem.excess(outputs), initial=0)),
        result=_result(state),
    )


def _outcome(problem: DesignProblem, y: Array, states: State, outputs: Outputs) -> Outcome:
    values = {goal.name: x for goal, x in zip(problem.goals, outputs, strict=True)}
    return Outcome(system=problem.system(y), states=states, values=values)


def _result(state: DesignSearch) -> RESULTS:
    """That of the last round; limits that are not kept yet leave the search unfinished, and steps that were shortened to nothing leave it stuck."""
    one: RESULTS = jax.tree.map(lambda x: x[0], state.searches.result)
    shortened = (state.shortened > 0) & (state.searches.damping[0] > MILD)
    success = one == RESULTS.successful
    stuck = RESULTS.where(shortened & success, RESULTS.search_stuck, one)
    return RESULTS.where(jnp.asarray(state.exceeds) & success, RESULTS.search_unfinished, stuck)


def _at_bound(problem: DesignProblem, state: DesignSearch) -> tuple[str, ...]:
    """The variables that a bound holds."""
    y, slope = state.searches.y[0], state.searches.r[0] @ state.searches.jacobian[0]
    return problem.unknowns.picked(at_bounds(y, slope, problem.low, problem.high))


def _obstacles(cycle: Cycle, state: DesignSearch) -> tuple[str, ...]:
    """What held steps back, by the values of the input at which it did most often."""
    sentences = []
    for counts, what in ((state.open, "loops would not close"), (state.changed, "the branch would change")):
        total = int(counts.sum())
        if total:
            value = float(cycle.ts[int(jnp.argmax(counts))] * cycle.speed)
            sentences.append(
                f"{counted(total, 'step')} shortened: {what}, most often at {cycle.input or 't'} = {value:.4g}."
            )
    return tuple(sentences)
