"""Poses of rest, with the inputs and reactions that hold the system there."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PyTree

from ..foundations import (
    RESULTS,
    SUCCESS,
    Check,
    NoNaN,
    Number,
    TextInNotebooks,
    Vector,
    all_hold,
    as_floats,
    contract,
    enforce,
    expect_available,
    expect_shape,
    positive_or_one,
    program,
    strong,
    table,
)
from ..kinematics import assemble, consistency
from ..linalg import inverse_root
from ..system import State, System, apply_mode, check_state, gamma, scaled_residuals, with_rate
from .balance import Balance, balance, deficit, independent, inputs_of, steps, stiffness
from .names import input_names

# Steps of Newton's method at most, which ends searches that go round in circles, and the parts of each that are tried side by side, since
# under `vmap` trials one after the other would wait for the longest search of the batch.
STEPS, PARTS = 60, tuple(2.0**-k for k in range(12))


class Equilibrium(TextInNotebooks, eqx.Module):
    """A pose of rest.

    Attributes:
        state: the pose, v = 0.
        u: inputs (nu,), those that were given and those that were found.
        reaction: −F (nv,), what the constraints exert.
        multipliers: λ by constraint name (k,), of least norm.
        residual: v̇ (nv,) from rest, zero in an equilibrium.
        result: `RESULTS.no_equilibrium` if none was found.
    """

    state: State
    u: Float[Array, "... nu"]
    reaction: Float[Array, "... nv"]
    multipliers: dict[str, Float[Array, "... k"]]
    residual: Float[Array, "... nv"]
    result: RESULTS

    def __str__(self) -> str:
        numbers = lambda x: [np.array2string(np.asarray(x), precision=6, threshold=12)]
        q = np.asarray(self.state.q)
        rows = {
            "q": numbers(np.where(np.abs(q) > np.finfo(q.dtype).eps, q, 0)),
            "u": numbers(self.u) if self.u.size else (),
        }
        rows |= {name: numbers(value) for name, value in self.multipliers.items()}
        largest = np.max(np.abs(np.asarray(self.residual)), initial=0)
        return table(f"Equilibrium at t = {float(self.state.t):g} s, accelerations up to {largest:.2g}", rows)


@contract
def equilibrium(
    system: System,
    start: State | Vector | Mapping[Any, Number] | None = None,
    *,
    u: NoNaN | None = None,
    solve_inputs: object = (),
    hold: Sequence[str | int] = (),
    t: Number = 0.0,
    throw: bool = True,
) -> Equilibrium:
    """A pose at which the system stays at rest: φ(t, q) = 0 and D F(t, q, 0, u) = 0, D Cᵀ = 0.

    D F = 0 means that v̇ = 0 from rest. The method is Newton's with step-length control; where this makes no progress
    it moves along the forces. Each step is the shortest, in the metric of M, that satisfies both equations to first
    order. Redundant rows change nothing. If equilibria form a family, one near the start is found. It may be stable or
    not: see `linearise`.

    Inputs in `solve_inputs` act like constraints: the pose moves only as far as they cannot hold it, and at the resulting pose
    they have the least Σ (u_i/w_i)².

    Derivatives are those of the equations, of any order, with respect to everything but the start, which only says where to search;
    held coordinates keep their derivatives. LAPACK is not called, so that batches under `jax.vmap` are safe.

    Args:
        system: the system.
        start: a `State`, whose time and mode it keeps, or a guess of the coordinates, from which `assemble` makes one.
        u: inputs (nu,) that are given; zero by default.
        solve_inputs: names of inputs to solve for, True for all, or their weights w by name, such as their limits.
        hold: names or indices of coordinates that keep their values.
        t: time, with a guess.
        throw: whether to raise an error if none is found; `result` reports it in any case.

    Returns:
        An `Equilibrium`.

    Raises:
        ValueError: if none is found, with the coordinate that is furthest from balance; for constraints that move or cannot be satisfied; for
            names and shapes that do not fit. If values are traced, the compiled program raises the error.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> found = jm.equilibrium(system, [0.6, -0.8])
        >>> [round(float(x), 6) + 0.0 for x in found.state.q], round(float(found.multipliers["rod"][0]), 6)
        ([0.0, -1.0], -4.905)
    """
    if isinstance(start, State):
        check_state(system, start, "start")
        state = start
    else:
        if start is not None and not isinstance(start, Mapping):
            expect_shape("`start`", start, (system.nq,))
        state = _initial_state(system, start, as_floats(t), hold)
    system_of_all_modes, state = strong(system), strong(state)
    inputs = jnp.zeros(system.nu) if u is None else as_floats(u)
    expect_shape("`u`", inputs, (system.nu,))
    solution, checks = _equilibrium(
        system_of_all_modes, state, inputs, _weights(system, solve_inputs), _fixed_indices(system, hold)
    )
    return enforce(solution, checks) if throw else solution


def _initial_state(
    system: System, guess: Vector | Mapping[Any, Number] | None, t: Array, hold: Sequence[str | int]
) -> State:
    """The state to start from, with derivatives where coordinates are held only."""
    if hold:
        return assemble(system, guess, t=t, hold=hold)
    # Where to look has no derivative, by the statement above; held coordinates have one, and take the other way.
    fixed = lambda tree: jax.tree.map(lambda x: lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)
    return dataclasses.replace(assemble(fixed(system), fixed(guess), t=fixed(t)), t=t)


def _weights(system: System, solve_inputs: object) -> Float[Array, " nu"] | None:
    """The weights of the inputs to be solved for, zero for the others; None where there are none."""
    names = input_names(system)
    if solve_inputs is True:
        solve_inputs = names
    if isinstance(solve_inputs, str) or not isinstance(solve_inputs, Mapping | Sequence):
        raise TypeError(f"Argument `solve_inputs` must hold names of inputs, or be True, but is {solve_inputs!r}.")
    expect_available("Argument `solve_inputs` must hold names of inputs", solve_inputs, names)
    if not len(solve_inputs):
        return None
    weights = solve_inputs if isinstance(solve_inputs, Mapping) else dict.fromkeys(solve_inputs, 1.0)
    return jnp.stack([as_floats(weights.get(name, 0.0)) for name in names])


def _fixed_indices(system: System, hold: Sequence[str | int]) -> tuple[int, ...]:
    indices = range(system.nq)
    expect_available(
        "Argument `hold` must hold indices or names", [x for x in hold if x not in indices], system.coordinates
    )
    return tuple(dict.fromkeys(x if isinstance(x, int) else system.coordinates.index(x) for x in hold))


@program
def _equilibrium(
    full: System, start: State, u: Array, weights: Array | None, fixed: tuple[int, ...]
) -> tuple[Equilibrium, tuple[Check, ...]]:
    system, state = apply_mode(full, start)
    fixed_inputs = u if weights is None else jnp.where(weights == 0, u, 0)
    scale, initial = lax.stop_gradient(state.scale), state.q if fixed else lax.stop_gradient(state.q)
    problem = Balance(
        system=system, t=state.t, u=fixed_inputs, weights=weights, scale=scale, start=initial, fixed=fixed
    )
    root, imbalance = _minimise(lax.stop_gradient(problem))
    q = _differentiable(problem, root)
    in_use = independent(problem, q)
    u, vdot, reaction, multipliers = inputs_of(problem, q, in_use)
    bare = with_rate(system, State(state.t, q, jnp.zeros_like(state.v), problem.scale))
    text = (
        "Argument `start` must be near an equilibrium, but none was found: along '{name}' forces are out of balance by {}, "
        "relative to what acts there."
    )
    worst = Check(
        jnp.where(jnp.arange(imbalance.shape[0]) == jnp.argmax(imbalance), imbalance, 0),
        _balance_tol(q.dtype),
        text,
        system.velocities,
    )
    checks = (*consistency(system, bare, "cannot hold at rest"), *_standing(system, bare), worst)
    result = RESULTS.where(all_hold(checks), SUCCESS, RESULTS.no_equilibrium)
    solution = Equilibrium(
        state=dataclasses.replace(bare, mode=start.mode),
        u=u,
        reaction=reaction,
        multipliers={name: multipliers[part] for name, part in system.rows.items()},
        residual=vdot,
        result=result,
    )
    return solution, checks


def _balance_tol(dtype: DTypeLike) -> float:
    """4e-11 in float64, relative to the forces that act: five digits above rounding, which stiff systems amplify."""
    return float(jnp.finfo(dtype).eps) ** (2 / 3)


def _minimise(problem: Balance) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Where Newton's method ends: no part of a step lowers the sum of squared residuals any more; and how far from balance."""
    system = problem.system

    def merit(q: Array, in_use: Bool[Array, " r"], size: Array) -> Array:
        root, force, _ = balance(problem, q, in_use)
        position = scaled_residuals(system, State(problem.t, q, jnp.zeros(system.nv, q.dtype), problem.scale))[0]
        total = jnp.sum((root @ force) ** 2) / size + jnp.sum(position**2)
        # A trial beyond where the model has values is worse than any other; NaN would be the least of all for
        # `argmin`.
        return jnp.where(jnp.isnan(total), jnp.inf, total)

    def improve(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        count, q, _, _ = carry
        in_use = independent(problem, q)
        newton, fall, imbalance = steps(problem, q, in_use)
        parts = jnp.array(PARTS, q.dtype)[:, None]
        # No step at all is among the trials: where it is the best, the search has ended.
        ways = jnp.concatenate([0 * newton[None], parts * newton, parts * fall])
        trials = jax.vmap(lambda way: system.displaced(q, way))(ways)
        merits = jax.vmap(lambda q: merit(q, in_use, size))(trials)
        # Not along the forces where Newton's method leads on, or has arrived: a coordinate that moves by its own size may become zero, which is another
        # equilibrium of what is symmetric, without any residual.
        near = (merits[1] < merits[0]) | (jnp.max(imbalance) <= _balance_tol(q.dtype))
        merits = jnp.where(near & (jnp.arange(merits.shape[0]) > len(PARTS)), jnp.inf, merits)
        best = jnp.argmin(merits)  # the first of equal ones, which is where it stands
        return count + 1, trials[best], best > 0, imbalance

    # Forces at the start are the unit of the merit function; residuals of positions have none.
    root = inverse_root(problem.rows(problem.start)[0])
    size = positive_or_one(jnp.sum((root @ problem.force(problem.start, problem.u)) ** 2))
    go = lambda carry: carry[2] & (carry[0] < STEPS)
    start = (jnp.array(0), problem.start, jnp.array(True), jnp.zeros(system.nv, problem.start.dtype))
    _, q, _, imbalance = lax.while_loop(go, improve, start)
    return q, imbalance


def _standing(system: System, state: State) -> tuple[Check, ...]:
    """That constraints which stand still at this instant do not start to move."""
    system, state = lax.stop_gradient((system, state))
    # Velocities may fit, as of a driver at its dead centre, while accelerations do not: Γ at rest says so.
    moving = jnp.abs(gamma(system, state.t, state.q, state.v)) / state.scale.span
    amount = jnp.where(moving > 0, moving / state.scale.rate**2, 0)
    text = (
        "Constraint '{name}' cannot hold at rest: it accelerates, relative to the size and rate of the mechanism by {}."
    )
    return (Check(system.largest(amount), float(jnp.finfo(amount.dtype).eps) ** 0.5, text, tuple(system.rows)),)


# The implicit function theorem: the derivative of the root is −(∂F/∂q)⁻¹ ∂F/∂p, whatever way led there; a loop of
# unknown length has no reverse mode, and needs none.
@eqx.filter_custom_jvp
def _differentiable(problem: Balance, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """The pose that was found, with the derivative of one more step of Newton's method."""
    return q


@_differentiable.def_jvp
def _newton_derivative(primals: tuple[Balance, Array], tangents: tuple[PyTree, PyTree]) -> tuple[Array, Array]:
    problem, q = primals
    root = _differentiable(problem, q)
    in_use = independent(problem, lax.stop_gradient(root))
    opened = eqx.filter_jvp(lambda problem: deficit(problem, root, in_use), (problem,), (tangents[0],))[1]
    displacement = stiffness(problem, root, in_use)[0].solve(jnp.zeros(problem.system.nv, q.dtype), -opened)[0]
    return root, problem.system.qdot(root, displacement)
