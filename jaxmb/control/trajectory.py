"""Inputs over a horizon that cost least."""

import dataclasses
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..foundations import (
    RESULTS,
    Count,
    Finite,
    NoNaN,
    Positive,
    TextInNotebooks,
    Whole,
    as_floats,
    as_function,
    contract,
    expect_shape,
    function_of,
    lower_limits,
    shape_of,
    strong,
    table,
)
from ..system import State, check_state
from .horizon import Guess, Horizon, solved
from .names import input_names
from .steps import AbstractStepper


class Trajectory(TextInNotebooks, eqx.Module):
    """Inputs over a horizon, and the resulting motion.

    Attributes:
        states: states (N + 1,), the first one being the start; NaN after a step that fails.
        u: inputs (N, nu), each held over a step.
        cost: Σ cost + final; infinite where a step fails or a cost is not a number.
        gain: K (N, nu, nq + nv) of the best reaction u_k + K_k (x − x_k) to a deviation of x = (q, v); zero for inputs at a limit.
        change: k (N, nu), by which the next iteration would move the inputs: zero at a minimum.
        iterations: number of iterations made.
        result: `RESULTS.successful`; `search_unfinished` after `max_iterations`; `search_stuck`; the result of the step that fails from
            the guess, or `search_failed` where a cost is not a number.
        names: of the inputs.
    """

    states: State
    u: Float[Array, "... N nu"]
    cost: Float[Array, "..."]
    gain: Float[Array, "... N nu n"]
    change: Float[Array, "... N nu"]
    iterations: Int[Array, "..."]
    result: RESULTS
    names: tuple[str, ...] = eqx.field(static=True)

    @contract
    def shifted(self, steps: Whole = 1) -> Guess:
        """The inputs from a later step on, with their reactions to deviations, the last ones repeated: a guess for the horizon that begins there."""
        count = self.u.shape[-2]
        later = jnp.minimum(jnp.arange(count) + steps, count - 1)
        x = jnp.concatenate([self.states.q, self.states.v], axis=-1)
        return Guess(*(jnp.take(y, later, axis) for y, axis in ((x, -2), (self.u, -2), (self.gain, -3))))

    def __str__(self) -> str:
        u = np.asarray(self.u)
        if u.ndim != 2:
            return f"Trajectories, {u.shape[:-2]}, of {u.shape[-2]} steps"
        ts = np.asarray(self.states.t)
        title = f"Trajectory of {u.shape[0]} steps, t = {ts[0]:g} to {ts[-1]:g} s"
        inputs = [
            f"{name} {low:.5g} to {high:.5g}"
            for name, low, high in zip(self.names, u.min(axis=0), u.max(axis=0), strict=True)
        ]
        rows = {"cost": [f"{float(self.cost):.6g}"], "iterations": [str(int(self.iterations))], "inputs": inputs}
        if not bool(self.result == RESULTS.successful):
            rows["result"] = [RESULTS[self.result]]
        return table(title, rows)


@contract
def trajectory(
    step: AbstractStepper,
    start: State,
    cost: Annotated[Any, function_of("state, u")],
    steps: Count,
    *,
    final: Annotated[Any, function_of("state")] | None = None,
    guess: Finite | Guess | None = None,
    upper: NoNaN | None = None,
    lower: NoNaN | None = None,
    rtol: Positive = 1e-6,
    max_iterations: Count = 100,
) -> Trajectory:
    """The inputs u₀ … u_{N−1} of a stepper that cost least, within limits, and the resulting motion.

        minimise Σ cost(x_k, u_k) + final(x_N),   x_{k+1} = step(x_k, u_k),   lower ≤ u_k ≤ upper

    Differential dynamic programming with the first derivatives of the steps, which are exact, and first and second
    derivatives of the costs (iLQR). Backwards in time, with V = final, A = ∂x_{k+1}/∂x_k, B = ∂x_{k+1}/∂u_k

        Q_u = ∂cost/∂u + BᵀV_x,   Q_uu = ∂²cost/∂u² + BᵀV_xx B,   Q_ux = ∂²cost/∂u∂x + BᵀV_xx A,
        k = argmin kᵀ(Q_uu + μ D) k/2 + kᵀQ_u  within the limits,   K = −(Q_uu + μ D)⁻¹ Q_ux  of the inputs that no limit holds,

    then forwards by u + α k + K δx, for the best α of 1, 1/2, …. The damping μ grows if that does not lower the cost,
    or a step fails, and falls to zero otherwise (Tassa, Mansard and Todorov 2014; Li and Todorov 2004). It ends when
    the predicted decrease is below rtol² Σ |cost|.

    x holds all coordinates and velocities. A step ends on the constraints, so that the columns of A and B lie in their
    tangent spaces: no basis of these is needed, quaternions are coordinates like others, and redundant rows change
    nothing.

    No error is raised if a step fails, see `Trajectory.result`. The plan has no derivative: differentiate steps with its inputs, and
    pass this function `jax.lax.stop_gradient` of arguments that depend on the variable.

    Args:
        step: made by `jaxmb.stepper` without `control`.
        start: the first state; batches by `jax.vmap`, whose rows do not affect each other.
        cost: `cost(state, u)` returns the cost of a step, a number with two derivatives, by the state where it begins; `state.t` tells the time.
        steps: N.
        final: `final(state)` returns the cost at the end; none by default.
        guess: inputs (N, nu) from which to start, or `previous.shifted()`, whose inputs react to deviations as well; zero by default. They
            are clipped to the limits.
        upper: largest inputs, a number or (nu,); no limit by default.
        lower: least inputs; −upper by default.
        rtol: relative error of the inputs, about.
        max_iterations: largest number of iterations; few are enough in a loop that plans again at each sample.

    Returns:
        A `Trajectory`.

    Raises:
        RuntimeError: if the plan is differentiated.
        ValueError: for arguments that do not fit.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> cart = jm.System(("s",), mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
        >>> start = jm.assemble(cart, [1.0])
        >>> plan = jm.control.trajectory(jm.stepper(cart, start, 0.1), start, lambda s, u: u @ u, 20,
        ...                              final=lambda s: 1e4 * (s.q @ s.q + s.v @ s.v), upper=1.0)
        >>> print(plan.result == jm.RESULTS.successful, float(jnp.abs(plan.u).max()), float(jnp.abs(plan.states.q[-1, 0])) < 0.01)
        True 1.0 True
    """
    check_state(step.system, start, "start")
    if step.control is not None or not step.system.nu:
        what = "has a controller" if step.system.nu else "its system has no actuators"
        raise ValueError(f"Argument `step` must take inputs, but {what}.")
    start, nu = strong(jax.tree.map(jnp.asarray, dataclasses.replace(start, control=None))), step.system.nu
    low, high = _limits(upper, lower, nu)
    begin = _guess(guess, start, int(steps), nu)
    cost, final = as_function(cost, "cost"), as_function(final, "final")
    shape_of("cost", cost, (start, low), ())
    if final is not None:
        shape_of("final", final, (start,), ())
    problem = Horizon(step=step, cost=cost, final=final, start=start, low=low, high=high)
    search = solved(problem, begin, as_floats(rtol), jnp.asarray(max_iterations, int))
    path, nq = search.path, step.system.nq
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (path.t.shape[0], *x.shape)), start)
    return Trajectory(
        states=dataclasses.replace(states, t=path.t, q=path.x[:, :nq], v=path.x[:, nq:]),
        u=path.u,
        cost=path.cost,
        gain=search.law.gain,
        change=search.law.change,
        iterations=search.iterations,
        result=search.result,
        names=input_names(step.system),
    )


def _guess(guess: Finite | Guess | None, start: State, steps: int, nu: int) -> Guess:
    """What the search begins with."""
    x = jnp.concatenate([start.q, start.v])
    zero = Guess(
        jnp.broadcast_to(x, (steps, x.shape[0])), jnp.zeros((steps, nu)), jnp.zeros((steps, nu, x.shape[0]), x.dtype)
    )
    if guess is None:
        return zero
    u = guess.u if isinstance(guess, Guess) else as_floats(guess)
    expect_shape("`guess`, the inputs of each step,", u, (steps, nu))
    if isinstance(guess, Guess) and guess.gain.shape != zero.gain.shape:
        raise ValueError(
            f"Argument `guess` must have gains of shape {zero.gain.shape}, but has {guess.gain.shape}: is it of another system?"
        )
    return guess if isinstance(guess, Guess) else dataclasses.replace(zero, u=u)


def _limits(upper: NoNaN | None, lower: NoNaN | None, nu: int) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
    """Lower and upper limits of each input."""
    high = as_floats(jnp.inf if upper is None else upper)
    for name, x in (("upper", high), ("lower", lower)):
        expect_shape(f"`{name}`", high if x is None else x, (), (nu,))
    low = lower_limits(high, lower)
    return jnp.broadcast_to(low, (nu,)), jnp.broadcast_to(high, (nu,))
