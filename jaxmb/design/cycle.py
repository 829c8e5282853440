"""The poses of a mechanism over a cycle of its input, with the derivatives of closed loops."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..foundations import as_floats
from ..linalg import determinant, solve_spd
from ..mechanism import AbstractMechanism, Driver
from ..system import State, System, constraint_jacobian, position_residual, velocity_offset

# Newton's steps at each pose. The guess, on the line through the two poses before, is off by some h², h the part of a turn from pose to
# pose; with h = 2π/`POSES` four steps leave 1e-16, since each squares the error. The gap is that before the last step, and one step more is
# for what bends more.
STEPS, POSES = 6, 60
# Parts of the way from the pose of the start to that of another design: rows are closed by and by, so that the branch stays (Newton's homotopy,
# Allgower and Georg 1990, ch. 2).
WAY = 8
# A pose is closed where its rows are off by less than this power of the rounding, relative to the mechanism, as along a curve of motion.
CLOSED = 0.7
# The driver of the input.
INPUT = "input"
Three = tuple[Array, Array, Array]


class SteadyInput(eqx.Module):
    """An input that moves at a steady speed, and is zero at t = 0."""

    speed: Float[Array, ""]

    def __call__(self, t: Float[Array, ""], params: PyTree) -> Float[Array, ""]:
        """The value."""
        return self.speed * t


class Cycle(eqx.Module):
    """The values of an input at which poses are wanted, and the times of all poses on the way through them.

    Attributes:
        input: the joint coordinate that is driven; None where drivers of the mechanism prescribe the motion in time.
        speed: of that input, in rad/s or m/s.
        values: of the input, or times (n,).
        ts: times of all poses on the way (k,).
        indices: which of them are those of `values`.
    """

    input: str | None = eqx.field(static=True)
    speed: Float[Array, ""]
    values: Float[Array, " n"]
    ts: Float[Array, " k"]
    indices: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, over: object, speed: float) -> "Cycle":
        """The cycle over values by the name of the input, or over times.

        Raises:
            ValueError: for values that are no cycle.
        """
        name, values = None, over
        if isinstance(over, Mapping):
            if len(over) != 1:
                raise ValueError(f"Argument `over` must name one input, but names {len(over)}.")
            name, values = next(iter(over.items()))
        values = np.asarray(values, float)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all() or not np.diff(values).all():
            raise ValueError(
                "Argument `over` must hold finite values, two at least, and each other than the one before, but holds "
                f"{values.tolist()}."
            )
        steps = np.diff(values)
        counts = np.maximum(1, np.ceil(POSES * np.abs(steps) / np.abs(steps).sum() - 1e-9)).astype(int)
        ways = [a + step * np.arange(n) / n for a, step, n in zip(values, steps, counts, strict=False)]
        rate = 1.0 if name is None else speed
        ts = np.append(np.concatenate(ways), values[-1]) / rate
        return cls(name, as_floats(rate), as_floats(values), as_floats(ts), tuple(np.cumsum([0, *counts]).tolist()))

    def driven(self, mechanism: AbstractMechanism) -> AbstractMechanism:
        """The mechanism with a driver of the input in place of any other one of it."""
        if self.input is None:
            return mechanism
        others = [x.name for x in mechanism.drivers if getattr(x, "joint", None) == self.input]
        return mechanism.without(*others).joined(drivers=[Driver(INPUT, self.input, SteadyInput(self.speed))])


class Poses(eqx.Module):
    """The poses over a cycle.

    Attributes:
        states: at the wanted values (n,); NaN where there are none.
        gaps: how far (k,) loops are open at each pose on the way, relative to the mechanism.
        closed: whether (k,) they are closed.
        oriented: whether (k,) the pose is on the branch of the one before it; the first on that of the start.
    """

    states: State
    gaps: Float[Array, "... k"]
    closed: Bool[Array, "... k"]
    oriented: Bool[Array, "... k"]

    @property
    def complete(self) -> Bool[Array, "..."]:
        """Whether the mechanism goes through all of it on its branch."""
        return jnp.all(self.closed & self.oriented, axis=-1)

    @property
    def first_failure(self) -> Int[Array, "..."]:
        """The number of the first pose on the way that is open or on another branch."""
        return jnp.argmin(self.closed & self.oriented, axis=-1)


def poses_over(
    system: System, cycle: Cycle, start: State, reference: Float[Array, "m nv"], open_loops: bool = False
) -> Poses:
    """The poses of a driven mechanism over a cycle, each found by Newton's steps from the one before.

    φ(t_k, q_k) = 0 with as many independent rows as velocities, so that

        dq_k = −C⁺ (∂φ/∂p) dp,    v = −C⁺ b,

    which is the derivative of one more of Newton's steps from a constant q_k: neither the steps nor the way through the cycle are
    differentiated. The branch is kept: det(C_{k−1}ᵀ C_k) > 0, since between neighbours on different branches C is singular.

    Args:
        system: the driven mechanism, in the design that is asked for.
        cycle: the cycle.
        start: a state of another design at its first time.
        reference: the rows of that state.
        open_loops: whether loops may stay open, as far as redundant rows keep them from closing.
    """
    fixed, weights, count = lax.stop_gradient(system), 1 / start.scale.span, cycle.ts.shape[0]
    opening = position_residual(fixed, start.t, start.q)

    def advance(carry: tuple[Array, Array], to: Three) -> tuple[tuple[Array, Array], Three]:
        (before, q), (t, share, straight) = carry, to

        def closer(_: Array, at: Three) -> Three:
            residual = (position_residual(fixed, t, at[0]) - share * opening) * weights
            rows = constraint_jacobian(fixed, t, at[0]) * weights[:, None]
            return _moved(fixed, at[0], rows, residual), rows, jnp.max(jnp.abs(residual))

        guess = fixed.normalise(q + straight * (q - before))
        new = lax.fori_loop(0, STEPS, closer, (guess, jnp.zeros_like(reference), jnp.zeros_like(t)))
        return (q, new[0]), new

    # One loop for the way to the first pose and for the cycle, since code in two places is compiled twice.
    ts = jnp.concatenate([jnp.broadcast_to(cycle.ts[0], WAY), cycle.ts[1:]])
    shares = np.append(1 - np.arange(1, WAY + 1) / WAY, np.zeros(count - 1))
    straight = np.where(np.arange(len(shares)) == WAY, 0.0, 1.0)
    on_the_way = lax.scan(advance, (start.q, start.q), (ts, jnp.asarray(shares), jnp.asarray(straight)))[1]
    qs, rows, gaps = (lax.stop_gradient(x[WAY - 1 :]) for x in on_the_way)
    gaps = jnp.where(jnp.isfinite(gaps), gaps, jnp.inf)
    before = jnp.concatenate([(reference * weights[:, None])[None], rows[:-1]])
    oriented = jax.vmap(lambda a, b: determinant(a.T @ b) > 0)(before, rows)
    limit = jnp.inf if open_loops else jnp.finfo(gaps.dtype).eps ** CLOSED
    at = np.array(cycle.indices)
    states = jax.vmap(lambda t, q: state_at(system, t, q, start))(cycle.ts[at], qs[at])
    poses = Poses(states=states, gaps=gaps, closed=gaps <= limit, oriented=oriented)
    spoilt = lambda x: jnp.where(poses.complete, x, jnp.nan)
    return dataclasses.replace(poses, states=dataclasses.replace(states, q=spoilt(states.q), v=spoilt(states.v)))


def state_at(system: System, t: Float[Array, ""], q: Float[Array, " nq"], like: State) -> State:
    """The state at a pose that is closed, with the derivatives of q and v by all numbers of the system."""
    weights = 1 / like.scale.span
    q = newton(system, t, lax.stop_gradient(q), weights)
    rows = constraint_jacobian(system, t, q) * weights[:, None]
    v = -solve_spd(rows.T @ rows, rows.T @ (velocity_offset(system, t, q) * weights))
    return dataclasses.replace(like, t=t, q=q, v=v)


def state_beside(system: System, states: State, index: Int[Array, ""], t: Float[Array, ""]) -> State:
    """The state at a time near that of one of several states, with its derivatives by all numbers of the system."""
    like: State = jax.tree.map(lambda x: x[index], states)
    fixed, near, t = lax.stop_gradient((system, like, t))
    guess = fixed.displaced(near.q, (t - near.t) * near.v)
    weights = 1 / near.scale.span
    q = lax.fori_loop(0, STEPS, lambda _, q: newton(fixed, t, q, weights), guess)
    return state_at(system, t, q, like)


def newton(
    system: System, t: Float[Array, ""], q: Float[Array, " nq"], weights: Float[Array, " m"]
) -> Float[Array, " nq"]:
    """One of Newton's steps onto the rows, by least squares where there are more than velocities; only residuals are differentiated."""
    rows = lax.stop_gradient(constraint_jacobian(system, t, q) * weights[:, None])
    return _moved(system, q, rows, position_residual(system, t, q) * weights)


def _moved(system: System, q: Array, rows: Array, residual: Array) -> Float[Array, " nq"]:
    return system.displaced(q, -solve_spd(rows.T @ rows, rows.T @ residual))
