"""Closing the loops of a mechanism by iterations from a guess."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ..foundations import Check, all_hold, positive_or_one, program
from ..linalg import RANK_TOL
from ..system import (
    Mode,
    Scale,
    State,
    System,
    Values,
    check_rows,
    check_values,
    constraint_jacobian,
    in_turn,
    measure,
    position_residual,
    residuals,
    with_rate,
)
from .refinement import REFINED
from .shortest_move import ROUNDING, consistent_velocities, position_equations, shortest_move

# Rounds, with sizes measured at the start of each, and iterations in each: enough for a rough guess; near the solution the
# error is squared in each iteration.
ROUNDS, ITERATIONS = 2, 20
# Lengths of the step that are tried in each iteration, relative to Gauss and Newton's.
STEPS = tuple(2.0**-k for k in range(8))
# Far above rounding, and far below any gap of consequence.
CONSISTENT = 0.5
# A motion without correction of the drift, or one that was measured, is off its constraints by less than this power of eps, 7e-4, of the mechanism's size.
DRIFTED = 0.2
VANISHES = (
    "Constraint '{name}' vanishes at this pose, and its size nearby is not known; give `length`, how far "
    "coordinates move until the mechanism looks different."
)


class Guess(eqx.Module):
    """The guess of `assemble`, and the indices of fixed coordinates and velocities, in a mode; `length` and `rank_tol` as in `assemble`.

    `aims` are joint coordinates beyond the system's own, which are brought to `targets` (k,) as nearly as constraints allow.

    Of numbers that are `concrete`, so that nobody differentiates them, iterations end where nothing moves any more.
    """

    t: Array
    q: Array
    v: Array
    fixed: tuple[int, ...] = eqx.field(static=True, default=())
    fixed_velocities: tuple[int, ...] = eqx.field(static=True, default=())
    mode: Mode | None = None
    length: Array | None = None
    rank_tol: float = eqx.field(static=True, default=RANK_TOL)
    concrete: bool = eqx.field(static=True, default=False)
    aims: tuple[str, ...] = eqx.field(static=True, default=())
    targets: Array | None = None


class Assembly(eqx.Module):
    """The result of iterations from a guess.

    Attributes:
        state: the state, with its mode.
        checks: that tell whether it is on the constraints.
        missed: whether it is not on those of positions, or a joint is the wrong way round, though the guess is finite.
        beside: whether the guess was moved to a pose beside a singular one, where rounding has large effects.
        scale: sizes at the guess.
    """

    state: State
    checks: tuple[Check, ...]
    missed: Array
    beside: Array
    scale: Scale


@program
def solve_guess(full: System, guess: Guess) -> Assembly:
    """The result of the iterations from a guess, without a search: see `assemble`."""
    t, mode = guess.t, guess.mode
    system = full.in_mode(mode)
    start = with_driven_turns(system, t, system.normalise(guess.q), guess.fixed)

    def measured_round(q: Array, _: None) -> tuple[Array, tuple[Scale, Array, Array]]:
        measured = measure(full, t, q, guess.length)
        return _closed(system, guess, start, q, measured[0]), measured

    if not system.m:
        state = with_rate(full, State(t, start, guess.v, measure(full, t, start, guess.length)[0]))
        checks = check_values(system, state, Values.of(system, state))
        return Assembly(dataclasses.replace(state, mode=mode), checks, jnp.array(False), jnp.array(False), state.scale)
    q, measured = lax.scan(measured_round, start, None, length=ROUNDS)
    # The first sizes, those at the guess, are for a search: where iterations have missed, their last pose may lie anywhere.
    first, (scale, never, unknown) = (jax.tree.map(lambda x, i=i: x[i], measured) for i in (0, -1))
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    v, gap = consistent_velocities(system, guess, t, q, guess.v, scale, mass, jacobian)
    values = Values.of(system, State(t, q, v, scale), mass, jacobian)
    state = with_rate(full, State(t, q, v, scale), values if mode is None else None)
    sized = Check(system.largest(unknown.astype(float)), 0.0, VANISHES, tuple(system.rows))
    consistent = consistency(system, state, "cannot be satisfied from this guess", values)
    turned = _orientation_checks(system, state)
    # On position level and the way round only: a velocity that cannot be had there is no reason to look for another pose.
    missed = ~all_hold((consistent[0], *turned)) & jnp.all(jnp.isfinite(start))
    checks = (*check_rows(full, never), sized, *check_values(system, state, values), *consistent, *turned)
    displaced = (jnp.any(q != start) | jnp.any(v != guess.v)) & (gap < REFINED)
    return Assembly(dataclasses.replace(state, mode=mode), checks, *lax.stop_gradient((missed, displaced)), first[0])


def _closed(system: System, guess: Guess, start: Array, q: Array, scale: Scale) -> Array:
    """The pose after the iterations from q, with sizes that stay as they are."""
    improve = lambda q: _closing_step(system, guess, start, q, scale)
    if not guess.concrete:
        # `while_loop` has no reverse derivative: iterations that may be differentiated have a fixed number.
        return lax.scan(lambda q, _: (improve(q), None), q, None, length=ITERATIONS)[0]

    def once(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, q, _ = carry
        better = improve(q)
        return count + 1, better, jnp.any(better != q)

    first = (jnp.array(0), q, jnp.array(True))
    return lax.while_loop(lambda carry: carry[2] & (carry[0] < ITERATIONS), once, first)[1]


def _closing_step(system: System, guess: Guess, start: Array, q: Array, scale: Scale) -> Array:
    """One iteration on position level: the least move in the metric of M, or a part of it where that closes better."""
    t, aimed = guess.t, _aim_rows(system, guess, q)
    equations = position_equations(system, t, q, scale, guess.fixed, start)
    equations = equations._replace(
        extra=jnp.concatenate([equations.extra, aimed]),
        residual=jnp.concatenate([equations.residual, _missing(system, guess, q)]),
    )
    move = -shortest_move(system, equations, guess.rank_tol)[0]
    # All lengths at once: a search one after the other would be a loop within the loop.
    trials = jax.vmap(lambda length: system.displaced(q, length * move))(jnp.array(STEPS, q.dtype))
    # As Φ is of a row, so of an aim how far it goes while all coordinates move by ℓ: metres and radians compare.
    far = jnp.abs(aimed) @ scale.reach
    sizes = jnp.concatenate([scale.span, positive_or_one(far)])
    off = lambda q: jnp.concatenate([position_residual(system, t, q), _missing(system, guess, q)]) / sizes
    amounts = jax.vmap(lambda q: jnp.sum(off(q) ** 2))(trials)
    # Where functions are not defined a trial counts as infinite: `argmin` would choose a NaN.
    return trials[jnp.argmin(jnp.where(jnp.isnan(amounts), jnp.inf, amounts))]


def _missing(system: System, guess: Guess, q: Array) -> Array:
    """By how much (k,) the joint coordinates that are aimed at are off; of angles without their turns, the shorter way round."""
    if system.joints is None or guess.targets is None:
        return jnp.zeros(0, q.dtype)
    off = jnp.stack([system.joints.coordinate(name)(guess.t, q, system.params) for name in guess.aims]) - guess.targets
    wraps = np.array([system.joints.wraps(name) for name in guess.aims])
    return jnp.where(wraps, in_turn(off), off)


def _aim_rows(system: System, guess: Guess, q: Array) -> Array:
    """The rows (k, nv) of their derivatives with respect to the velocities."""
    if not guess.aims:
        return jnp.zeros((0, system.nv), q.dtype)
    return system.by_velocities(q, jax.jacfwd(lambda q: _missing(system, guess, q))(q))


def with_driven_turns(system: System, t: Array, q: Array, fixed: tuple[int, ...]) -> Array:
    """The same pose with the angles that are driven, and not held, in the turn that their drivers prescribe."""
    turns = {} if system.joints is None else system.joints.driven_turns(t, q, system.params)
    for name, count in turns.items():
        acts = True if system.active is None else system.active[system.rows[name].start]
        q = q - 2 * jnp.pi * jnp.where(acts, count.at[np.array(fixed, int)].set(0), 0)
    return q


def _orientation_checks(system: System, state: State) -> tuple[Check, ...]:
    """A check of the joints whose rows cannot tell a pose from one that is turned round."""
    aligned = {} if system.joints is None else system.joints.alignment(lax.stop_gradient(state.q), system.params)
    if not aligned:
        return ()
    text = "Joint '{name}' is assembled the wrong way round; give a guess closer to the right one."
    off = {name: -value for name, value in aligned.items()}
    if system.active is not None:
        off = {name: jnp.where(system.active[system.rows[name].start], value, -1) for name, value in off.items()}
    return (Check(jnp.stack(list(off.values())), 0.0, text, tuple(off)),)


def consistency(
    system: System, state: State, verb: str, values: Values | None = None, power: float = CONSISTENT
) -> tuple[Check, ...]:
    """A check per constraint of its residuals on position and velocity level, up to that power of eps; the values there may be known."""
    system, state = lax.stop_gradient((system, state))
    tol = float(jnp.finfo(state.q.dtype).eps) ** power
    residual_pair = (
        residuals(system, state.t, state.q, state.v) if values is None else (values.position, values.velocity)
    )
    position, velocity = (jnp.abs(x) / state.scale.span for x in residual_pair)
    # Rounding of C v is none, however slow the rows are: entries of C that vanish at this pose do so to rounding of the row's size. Nothing else is
    # allowed at rest.
    scale = state.scale
    rate = jnp.maximum(scale.rate, scale.passing(state.v))
    speed = jnp.linalg.norm(state.v / jnp.where(scale.reach > 0, scale.reach, jnp.inf))
    rounding = ROUNDING * jnp.finfo(state.q.dtype).eps * scale.row_by_length * speed / scale.span
    velocity = jnp.where(velocity > rounding, velocity / rate, 0)
    text = f"Constraint '{{name}}' {verb}: its LEVEL residual, relative to the size of the mechanism, is {{}}.{{note}}"
    return tuple(
        Check(system.largest(values), tol, text.replace("LEVEL", level), tuple(system.rows))
        for level, values in (("position", position), ("velocity", velocity))
    )


def belongs_to_motion(system: System, state: State, *, pose_only: bool = False) -> Array:
    """Whether a state, or its pose, is on the constraints but for what drift leaves, or what was measured; numbers that are not finite are not."""
    # Of a mechanism that was at rest without forces when its sizes were measured nothing tells how fast it goes: its velocities are not judged.
    scale = dataclasses.replace(state.scale, rate=jnp.where(state.scale.rate > 0, state.scale.rate, jnp.inf))
    checks = consistency(system, dataclasses.replace(state, scale=scale), "", power=DRIFTED)
    return all_hold(checks[:1] if pose_only else checks)
