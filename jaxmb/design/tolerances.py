"""What tolerances of dimensions do to the goals of a mechanism, and to the closing of its loops."""

import functools
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..fit import Parameter
from ..foundations import Count, Key, NonZero, Numbers, TextInNotebooks, aligned, contract, lasting
from ..linalg import solve_spd
from ..mechanism import AbstractMechanism
from ..system import Names, State, constraint_jacobian, position_residual
from .cycle import Cycle
from .goal import Goal
from .problem import DesignProblem, Outputs, prepare
from .search import by_groups

# A tolerance is three standard deviations of a dimension, as manufacturers state process capability; so are the deviations of goals.
SIGMAS = 3.0
# Gaps below this part of the mechanism are rounding: loops close whatever the dimension is.
ROUNDING = 1e-9


class Tolerances(TextInNotebooks, eqx.Module):
    """The result of `tolerances`; `print` shows it as a table.

    Attributes:
        labels: names of the dimensions, components of arrays by themselves.
        widths: their tolerances ± (N,).
        nominal: the values of each goal, by name.
        changes: by how much they change where a dimension changes by its tolerance (..., N), by goal, to first order.
        closure: by how much each row of the constraints stays open, at the worst pose, where a dimension changes by its tolerance (N,), as
            least squares share it; by its name, "joint[i]" with shifts in m first and then rotations in rad; empty if there are no more
            constraints than needed.
        samples: the values of each goal with random dimensions (S, ...), normal ones of which the tolerances are three standard deviations;
            NaN where the mechanism does not go through its cycle.
        gaps: how far (S,) loops are open at the worst pose then, relative to the mechanism.
        within: the fraction of the samples that keeps each goal's limits, by name of the goals that have any.
    """

    labels: tuple[str, ...] = eqx.field(static=True)
    widths: Float[Array, " N"]
    nominal: dict[str, Array]
    changes: dict[str, Array]
    closure: dict[str, Float[Array, " N"]]
    samples: dict[str, Array]
    gaps: Float[Array, " S"]
    within: dict[str, float] = eqx.field(static=True)

    @property
    def sensitivities(self) -> dict[str, Array]:
        """The derivatives of each goal by the dimensions (..., N)."""
        return {name: x / self.widths for name, x in self.changes.items()}

    @property
    def worst_case(self) -> dict[str, Array]:
        """Σ |∂f/∂x_i| τ_i of each goal: all dimensions at their worst ends, to first order."""
        return {name: jnp.sum(jnp.abs(x), axis=-1) for name, x in self.changes.items()}

    @property
    def root_sum_square(self) -> dict[str, Array]:
        """√Σ (∂f/∂x_i τ_i)² of each goal: three standard deviations where dimensions are independent, to first order."""
        return {name: jnp.sqrt(jnp.sum(x**2, axis=-1)) for name, x in self.changes.items()}

    @property
    def monte_carlo(self) -> dict[str, Array]:
        """Three standard deviations of each goal over the samples."""
        return {name: SIGMAS * jnp.nanstd(x, axis=0) for name, x in self.samples.items()}

    @property
    def failing(self) -> int:
        """How many samples do not go through the cycle."""
        return int(jnp.sum(~jnp.isfinite(self.gaps)))

    def __str__(self) -> str:
        worst = lambda x: f"{float(jnp.max(jnp.abs(x), initial=0)):.3g}"
        goals = tuple(self.nominal)
        rows = [("variable", "±", *goals)]
        for i, label in enumerate(self.labels):
            rows.append((label, f"{float(self.widths[i]):.3g}", *(worst(self.changes[g][..., i]) for g in goals)))
        for title, of in (
            ("worst case", self.worst_case),
            ("root sum square", self.root_sum_square),
            ("Monte Carlo, 3 σ", self.monte_carlo),
        ):
            rows.append((title, "", *(worst(of[g]) for g in goals)))
        far = {g: x - self.nominal[g] for g, x in self.samples.items()}
        rows.append(("Monte Carlo, largest", "", *(worst(jnp.nan_to_num(far[g])) for g in goals)))
        if self.within:
            rows.append(
                ("within limits", "", *(f"{100 * self.within[g]:.4g} %" if g in self.within else "" for g in goals))
            )
        lines = ["Largest changes of goals over the cycle, by the tolerance of each variable", *aligned(rows, "  ")]
        if self.failing:
            lines.append(f"  {self.failing} of {len(self.gaps)} samples do not go through the cycle")
        return "\n".join([*lines, *self._closure_lines()])

    def _closure_lines(self) -> list[str]:
        """Of what jams a mechanism with more constraints than it needs."""
        opening = {name: np.asarray(x) for name, x in self.closure.items() if np.any(x > 0)}
        if not opening:
            return ["Loops close with each of these dimensions."] if self.closure else []
        rows = [("variable", *opening)]
        for i, label in enumerate(self.labels):
            rows.append((label, *(f"{x[i]:.3g}" if x[i] > 0 else "closes" for x in opening.values())))
        return ["Rows of constraints that stay open, in m or rad", *aligned(rows, "  ")]


@contract
def tolerances(
    mechanism: AbstractMechanism,
    variables: Sequence[Parameter],
    goals: Sequence[Goal] | Goal,
    *,
    over: Mapping[str, Numbers] | Numbers,
    start: Mapping[str, Numbers] | None = None,
    speed: NonZero = 1.0,
    samples: Count = 1000,
    key: Key | None = None,
) -> Tolerances:
    """The effect of tolerances τ of dimensions on goals: of each dimension, in the worst case, by root-sum-square, and by Monte Carlo.

        Δf ≤ Σ |∂f/∂x_i| τ_i,    Δf ≈ √Σ (∂f/∂x_i τ_i)²

    Derivatives are exact, through closed loops. A mechanism with more constraints than it needs closes by least squares: the part
    (1 − C C⁺) ∂φ/∂x_i τ_i of ∂φ/∂x_i τ_i, which no motion of the bodies compensates, stays open. A dimension with such a gap jams the mechanism.

    Args:
        mechanism: the mechanism.
        variables: the dimensions; the `scale` of each is its tolerance, ± so much.
        goals: the quantities of interest, such as the goals of `optimise`.
        over: the input and its values; this and the following as in `optimise`.
        start: a guess of the first pose.
        speed: of the input.
        samples: number of samples, with independent normal dimensions of which a tolerance is three standard deviations.
        key: for them; `jax.random.key(0)` by default.

    Returns:
        A `Tolerances`; `print` shows it as a table.

    Raises:
        TypeError, ValueError: naming the variable, the goal or the argument that does not fit.
    """
    without = [p.name for p in variables if isinstance(p, Parameter) and not p.frozen and p.scale is None]
    if without:
        raise ValueError(f"Argument `scale` of variable '{without[0]}' must be its tolerance, but is not given.")
    prepared = prepare(mechanism, variables, goals, Cycle.of(over, speed), start, open_loops=True)
    problem = prepared.problem
    changes, gaps = _linear(problem, prepared.y)
    names = [goal.name for goal in problem.goals]
    draws = _draws(problem, prepared.y, samples, jax.random.key(0) if key is None else key)
    outputs, open_by = by_groups(functools.partial(_sampled, problem), draws)
    complete = np.isfinite(np.asarray(open_by))
    within = {}
    for goal, values in zip(problem.goals, outputs, strict=True):
        if goal.low is not None or goal.high is not None:
            admissible = np.asarray(jax.vmap(lambda x, goal=goal: jnp.all(goal.excess(x) <= 0))(values))
            within[goal.name] = float((admissible & complete).mean())
    return Tolerances(
        labels=problem.unknowns.labels,
        widths=problem.unknowns.scale,
        nominal=dict(zip(names, prepared.outputs, strict=True)),
        changes=dict(zip(names, changes, strict=True)),
        closure=gaps,
        samples=dict(zip(names, outputs, strict=True)),
        gaps=open_by,
        within=within,
    )


def _draws(problem: DesignProblem, y: Float[Array, " N"], samples: int, key: PRNGKeyArray) -> Float[Array, "S N"]:
    """Normal dimensions over their tolerances."""
    return y + jax.random.normal(key, (samples, y.shape[0]), y.dtype) / SIGMAS


@lasting
def _sampled(problem: DesignProblem, draws: Float[Array, "s N"]) -> tuple[Outputs, Float[Array, " s"]]:
    """The values of all goals with several dimensions, and how far loops are open then."""

    def at(y: Float[Array, " N"]) -> tuple[Outputs, Float[Array, ""]]:
        outputs, poses = problem.outputs(y)
        return outputs, jnp.where(poses.complete, jnp.max(poses.gaps), jnp.inf)

    return jax.vmap(at)(draws)


@lasting
def _linear(problem: DesignProblem, y: Float[Array, " N"]) -> tuple[Outputs, dict[str, Array]]:
    """The derivatives of all goals by the dimensions over their tolerances, and what stays open of each constraint."""
    changes, poses = jax.jacfwd(problem.outputs, has_aux=True)(y)
    system = problem.system(y)
    if system.m == system.nv:
        return changes, {}
    states, weights = lax.stop_gradient(poses.states), 1 / problem.start.scale.span

    def gap_of(state: State) -> Float[Array, "m N"]:
        rows = constraint_jacobian(system, state.t, state.q) * weights[:, None]
        changes = jax.jacfwd(lambda y: position_residual(problem.system(y), state.t, state.q))(y) * weights[:, None]
        return changes - rows @ solve_spd(rows.T @ rows, rows.T @ changes)

    relative = jnp.max(jnp.abs(jax.vmap(gap_of)(states)), axis=0)
    gaps = jnp.where(relative > ROUNDING, relative, 0.0) / weights[:, None]
    return changes, dict(zip(Names.of(system).rows, gaps, strict=True))
