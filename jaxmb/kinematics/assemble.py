"""Consistent states from rough guesses."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..foundations import Check, as_parameters, default_float, enforce, listing, strong
from ..linalg import ConstrainedFactor, independent_rows, reference_sizes, regular_metric
from ..system import (
    Mode,
    State,
    System,
    check_rows,
    check_values,
    constraint_jacobian,
    position_residual,
    rate_matrix,
    row_sizes,
    velocity_residual,
)

# Enough for a rough guess: near the solution the error is squared in each iteration.
ITERATIONS = 40
# Lengths of the step that are tried in each iteration, relative to Gauss and Newton's.
STEPS = tuple(2.0**-k for k in range(8))


def assemble(
    system: System,
    q: Any = None,
    v: Any = None,
    *,
    t: Any = 0.0,
    hold: Sequence[str | int] = (),
    hold_velocity: Sequence[str | int] = (),
    inactive: Sequence[str] = (),
) -> State:
    """A state that satisfies all constraints, near a guess.

    Gauss–Newton in the metric of M with step-length control: each iteration moves q by −N C⁺φ, the shortest way in that
    metric, then v by −C⁺(C v + b). Derivatives with respect to q, v, t and params are those of these iterations.

    Args:
        system: the system.
        q: guess of the coordinates, (nq,) or by name; those not named, or all, are those of `system.guess`.
        v: guess of the velocities, (nv,) or by name; zero by default.
        t: time.
        hold: names or indices of coordinates that keep the value given in `q`.
        hold_velocity: names or indices of velocities that keep the value given in `v`.
        inactive: names of constraints that do not act until an event activates them.

    Returns:
        A `State`, with |φ/σ| and |(C v + b)/σ| at the level of rounding.

    Raises:
        ValueError: if a constraint cannot be satisfied, a held value is in the way, or the system's functions give values
            they must not give; the message names the element and the amount. Where values are traced the compiled program
            raises the same text without the amount.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> state = jm.assemble(system, [0.6, 0.7], hold=["x"])
        >>> print(f"{float(state.q[1]):.6f}")
        0.800000
    """
    q = _filled(q, system.guess, system.coordinates, "q")
    v = _filled(v, jnp.zeros(system.nv), system.velocities, "v")
    t = jnp.asarray(t, default_float())
    _expect_shape("q", q, (system.nq,))
    _expect_shape("v", v, (system.nv,))
    _expect_shape("t", t, ())
    held = _indices(hold, system.coordinates, "hold")
    held_velocities = _indices(hold_velocity, system.velocities, "hold_velocity")
    state, checks = _assemble(strong(system), t, q, v, held, held_velocities, _mode(system, inactive))
    return enforce(state, checks)


def _mode(system: System, inactive: Sequence[str]) -> Mode | None:
    """The mode in which some constraints do not act."""
    if not inactive:
        return None
    unknown = [name for name in inactive if name not in system.rows]
    if unknown or isinstance(inactive, str):
        raise ValueError(
            f"Argument `inactive` must hold names of constraints out of {listing(system.rows)}, but holds {inactive!r}."
        )
    active = np.ones(system.m, bool)
    for name in inactive:
        active[system.rows[name]] = False
    none = jnp.zeros(0, default_float())
    return Mode((), jnp.asarray(active), none, none, jnp.zeros(0, bool))


@eqx.filter_jit
def _assemble(
    whole: System,
    t: Array,
    q: Array,
    v: Array,
    held: tuple[int, ...],
    held_velocities: tuple[int, ...],
    mode: Mode | None,
) -> tuple[State, tuple[Check, ...]]:
    system = whole.in_mode(mode)
    scale = _nonzero(row_sizes(whole, t, q))
    start = system.normalise(q)
    checks: tuple[Check, ...] = ()
    fixed, fixed_velocities = np.array(held, int), np.array(held_velocities, int)

    def improve(q: Array, _: None) -> tuple[Array, None]:
        rate = system.rate
        rows = jnp.eye(system.nq)[fixed]
        extra = rows if rate is None else rows @ rate_matrix(rate, q, system.nv)
        residual = jnp.concatenate([position_residual(system, t, q), (q - start)[fixed]])
        move = system.qdot(q, -_least_move(system, t, q, scale, extra, residual, system.holonomic))
        trials = jax.vmap(lambda length: system.normalise(q + length * move))(jnp.array(STEPS, q.dtype))
        amounts = jax.vmap(lambda q: jnp.sum((position_residual(system, t, q) / scale) ** 2))(trials)
        return trials[jnp.argmin(jnp.where(jnp.isnan(amounts), jnp.inf, amounts))], None

    if system.m:
        q = lax.scan(improve, start, None, length=ITERATIONS)[0]
        scale = row_sizes(whole, t, q)
        checks = check_rows(whole, scale)
        scale = _nonzero(scale)
        extra = jnp.eye(system.nv)[fixed_velocities]
        for _ in range(2):  # the second removes the rounding of the first
            residual = jnp.concatenate([velocity_residual(system, t, q, v), jnp.zeros(fixed_velocities.shape)])
            v = v - _least_move(system, t, q, scale, extra, residual, None)
    state = State(t, q, v, scale)
    closed = consistency(system, state, "cannot be satisfied from this guess")
    checks = (*checks, *check_values(system, state), *closed, *_turned_round(system, state))
    return dataclasses.replace(state, mode=mode), checks


def _turned_round(system: System, state: State) -> tuple[Check, ...]:
    """A check of the joints whose rows cannot tell a pose from one that is turned round."""
    aligned = {} if system.joints is None else system.joints.alignment(lax.stop_gradient(state.q), system.params)
    if not aligned:
        return ()
    text = "Joint '{name}' is assembled the wrong way round; give a guess closer to the right one."
    off = {name: -value for name, value in aligned.items()}
    if system.active is not None:
        off = {name: jnp.where(system.active[system.rows[name].start], value, -1) for name, value in off.items()}
    return (Check(jnp.stack(list(off.values())), 0.0, text, tuple(off)),)


def _least_move(
    system: System, t: Array, q: Array, scale: Array, extra: Array, residual: Array, holonomic: Array | None
) -> Array:
    """The shortest x with C x = residual in the rows of the constraints and in the extra rows."""
    jacobian = constraint_jacobian(system, t, q)
    metric = regular_metric(system.mass(t, q), jacobian)
    if holonomic is not None:
        jacobian = jnp.where(holonomic[:, None], jacobian, 0)
    first = None
    if extra.shape[0]:
        sizes = reference_sizes(metric, extra, jnp.zeros((*extra.shape, system.nv)))
        jacobian = jnp.concatenate([jacobian, extra])
        scale = lax.stop_gradient(jnp.concatenate([scale, _nonzero(sizes)]))
        first = jnp.arange(jacobian.shape[0]) >= system.m  # what is held is held
    keep = independent_rows(metric, jacobian, scale, first=first)
    return ConstrainedFactor(metric, jacobian, scale, keep).solve(jnp.zeros(system.nv), residual)[0]


def _nonzero(sizes: Array) -> Array:
    return jnp.where(sizes > 0, sizes, 1)


def consistency(system: System, state: State, verb: str) -> tuple[Check, ...]:
    """A check per constraint of its residuals on position and velocity level."""
    system, state = lax.stop_gradient((system, state))
    tol = float(jnp.finfo(state.q.dtype).eps) ** 0.5
    position = jnp.abs(position_residual(system, state.t, state.q)) / state.scale
    velocity = jnp.abs(velocity_residual(system, state.t, state.q, state.v)) / state.scale
    text = f"Constraint '{{name}}' {verb}: its LEVEL residual, relative to the reference size of its rows, is {{}}."
    return tuple(
        Check(system.largest(values), tol, text.replace("LEVEL", level), tuple(system.rows))
        for level, values in (("position", position), ("velocity", velocity))
    )


def _filled(given: Any, default: Array, names: tuple[str, ...], argument: str) -> Array:
    """The default with what is given, as an array or by name."""
    if given is None:
        return default
    if not isinstance(given, Mapping):
        given = given if hasattr(given, "shape") else list(given)
        return jnp.asarray(as_parameters(given), default_float())
    index = [*_indices(tuple(given), names, argument)]
    values = [jnp.asarray(x, default_float()) for x in given.values()]
    for name, value in zip(given, values, strict=True):
        _expect_shape(f"{argument}['{name}']", value, ())
    return default.at[jnp.array(index)].set(jnp.stack(values)) if index else default


def _expect_shape(argument: str, value: Float[Array, "..."], shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        raise ValueError(f"Argument `{argument}` must have shape {shape}, but has shape {value.shape}.")


def _indices(names: Sequence[str | int], known: tuple[str, ...], argument: str) -> tuple[int, ...]:
    if isinstance(names, str):
        raise TypeError(f"Argument `{argument}` must be a sequence of names or indices, but is the string {names!r}.")
    indices = []
    for name in names:
        if isinstance(name, int) and 0 <= name < len(known):
            indices.append(name)
        elif name in known:
            indices.append(known.index(name))
        else:
            raise ValueError(
                f"Argument `{argument}` must hold indices or names out of {', '.join(known)}, but holds {name!r}."
            )
    return tuple(dict.fromkeys(indices))
