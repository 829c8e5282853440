"""Consistent states from rough guesses."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ..deferral import with_fallback
from ..foundations import (
    Check,
    Number,
    Numbers,
    Positive,
    all_hold,
    arrays_of,
    as_floats,
    as_jax,
    as_parameters,
    contract,
    default_float,
    enforce,
    is_concrete,
    is_outermost,
    listing,
    program,
    strong,
)
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
    extent,
    laid_out,
    massless_at,
    measure,
    position_residual,
    residuals,
    velocity_offset,
    velocity_residual,
    with_rate,
)
from .refinement import REFINED, held_rows, refined
from .search import searched
from .shortest_move import shortest_move

# Rounds, with sizes measured at the start of each, and iterations in each: enough for a rough guess; near the solution the
# error is squared in each iteration.
ROUNDS, ITERATIONS = 2, 20
# Lengths of the step that are tried in each iteration, relative to Gauss and Newton's.
STEPS = tuple(2.0**-k for k in range(8))
VANISHES = (
    "Constraint '{name}' vanishes at this pose, and nothing tells how it grows nearby; give `length`, how far "
    "coordinates move until the mechanism looks different."
)


@contract
def assemble(
    system: System,
    q: Numbers | Mapping[Any, Numbers] | None = None,
    v: Numbers | Mapping[Any, Numbers] | None = None,
    *,
    t: Number = 0.0,
    hold: Sequence[str | int] = (),
    hold_velocity: Sequence[str | int] = (),
    inactive: Sequence[str] = (),
    length: Positive | None = None,
    rank_tol: Positive = RANK_TOL,
    throw: bool = True,
) -> State:
    """A state that satisfies all constraints, near a guess.

    Gauss–Newton in the metric of M with step-length control: each iteration moves q by −N C⁺φ, the shortest way in that
    metric, then v by −C⁺(C v + b). Derivatives with respect to q, v, t and params are those of these iterations. Positions,
    or velocities, that hold to rounding stay as they are.

    Where that leads to no pose on the constraints, or joints are the wrong way round there, one is searched for by Levenberg and Marquardt's
    steps, from the guess and then from others around it, the nearest first. The iterations go on from there, and their
    derivatives are taken as if the guess, shifted by a constant, were that pose: with respect to q the projection along C⁺.

    Args:
        system: the system.
        q: guess of the coordinates, (nq,) or by name; those not named, or all, are those of `system.guess`.
        v: guess of the velocities, (nv,) or by name; zero by default.
        t: time.
        hold: names or indices of coordinates that keep the value given in `q`.
        hold_velocity: names or indices of velocities that keep the value given in `v`.
        inactive: names of constraints that do not act until an event activates them.
        length: how far coordinates move (in their unit) until the mechanism looks different. Needed only where a row vanishes at
            the pose and no other row tells, like that of x y = 0 at the origin.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.
        throw: whether to raise where there is no such state. If False its coordinates and velocities are NaN, which `simulate`
            reports as `inconsistent_state`: a batch is not spoilt by one row, and nothing in the program calls the host.
            `jaxmb.try_assemble` tells what was missed, and by how much.

    Returns:
        A `State`, with residuals at the level of rounding.

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
    notes = _notes(system, q)
    system, guess = as_guess(system, q, v, t, hold, hold_velocity, inactive, length, rank_tol, throw)
    found = nearest(system, guess)
    state, checks = found.state, found.checks
    if throw:
        if is_concrete(checks, guess.q) and not bool(all_hold(checks)):
            _expect_inertia(system.in_mode(guess.mode), guess.t, guess.q)
        return enforce(state, checks, notes)
    found = all_hold(checks)
    return dataclasses.replace(state, q=jnp.where(found, state.q, jnp.nan), v=jnp.where(found, state.v, jnp.nan))


def as_guess(
    system: System,
    q: Any,
    v: Any,
    t: Number,
    hold: Sequence[str | int],
    hold_velocity: Sequence[str | int],
    inactive: Sequence[str],
    length: Any,
    rank_tol: float,
    throw: bool,
) -> tuple[System, "Guess"]:
    """The system and the guess as iterations take them; refuses what does not fit."""
    cuts = {} if system.joints is None else system.joints.loops
    q = _filled(q, system.guess, system.coordinates, "q", cuts)
    v = _filled(v, as_floats(np.zeros(system.nv)), system.velocities, "v", cuts)
    t = as_floats(t)
    _expect_shape("q", q.shape, (system.nq,))
    _expect_shape("v", v.shape, (system.nv,))
    _expect_shape("t", t.shape, ())
    if throw:
        _expect_finite("q", q, system.coordinates)
        _expect_finite("v", v, system.velocities)
    held = _indices(hold, system.coordinates, "hold", cuts)
    held_velocities = _indices(hold_velocity, system.velocities, "hold_velocity", cuts)
    length = None if length is None else jnp.asarray(length, default_float())
    mode = _mode(system, inactive)
    system, known = laid_out(strong(system)), is_outermost(system, t, q, v, length)
    return system, Guess(t, q, v, held, held_velocities, mode, length, rank_tol, known)


def nearest(system: System, guess: "Guess") -> "Assembly":
    """What iterations from a guess, and where they miss the search around it, lead to."""
    return _refined(system, guess, _searched(system, guess, assembled(system, guess)))


def _notes(system: System, given: Any) -> dict[str, str]:
    """By constraint, which loop it closes, and of which of its joints no coordinate is given."""
    if system.joints is None:
        return {}
    named = [name.partition(".")[0] for name in given if isinstance(name, str)] if isinstance(given, Mapping) else []
    notes = {}
    for name, joints in system.joints.loops.items():
        missing = [joint for joint in joints if joint != name and joint not in named]
        notes[name] = f" It closes the loop of {listing(joints)}"
        if missing and (given is None or isinstance(given, Mapping)):
            notes[name] += f", of which `q` names no coordinate for {listing(missing)}"
        notes[name] += ": the lengths must allow it, and the guess be close enough."
    return notes


def _expect_inertia(system: System, t: Array, q: Array) -> None:
    """Bodies without inertia are held by constraints at the guess."""
    bodies = () if system.joints is None else system.joints.without_inertia(system.params) or ()
    found = massless_at(system, t, q, bodies)
    if found is not None and found.unheld:
        raise ValueError(found.refusal)


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


class Guess(eqx.Module):
    """What `assemble` starts from and what it must not move, by index, in a mode; `length` and `rank_tol` as of `assemble`.

    Of numbers that are `known`, so that nobody differentiates them, iterations end where nothing moves any more.
    """

    t: Array
    q: Array
    v: Array
    held: tuple[int, ...] = eqx.field(static=True, default=())
    held_velocities: tuple[int, ...] = eqx.field(static=True, default=())
    mode: Mode | None = None
    length: Array | None = None
    rank_tol: float = eqx.field(static=True, default=RANK_TOL)
    known: bool = eqx.field(static=True, default=False)


class Assembly(eqx.Module):
    """What iterations from a guess have led to.

    Attributes:
        state: the state, with its mode.
        checks: that tell whether it is on the constraints.
        missed: whether it is not on those of positions, or a joint is the wrong way round, though the guess is finite.
        beside: whether it was moved, to a pose beside a singular one, where rounding is of consequence.
        scale: sizes at the guess.
    """

    state: State
    checks: tuple[Check, ...]
    missed: Array
    beside: Array
    scale: Scale


def _searched(system: System, guess: Guess, near: Assembly) -> Assembly:
    """What the iterations have led to; where they have missed, what they lead to from where a search has led.

    The search is another program, which is made only where it is needed. Known numbers tell so here, others where the program runs.
    """
    if not guess.known:
        return with_fallback(near.missed, _after_search, (system, guess, near.scale), near)
    return _after_search(system, guess, near.scale) if bool(near.missed) else near


def _refined(system: System, guess: Guess, near: Assembly) -> Assembly:
    """The same with a state that is determined better, if it was moved to beside a singular pose; by another program, as the search."""
    acting, state = system.in_mode(guess.mode), near.state
    if not guess.known:
        better = with_fallback(near.beside, refined, (acting, guess, state), (state.q, state.v))
    else:
        better = refined(acting, guess, state) if bool(near.beside) else (state.q, state.v)
    q, v = (x + lax.stop_gradient(y - x) for x, y in zip((state.q, state.v), better, strict=True))
    return dataclasses.replace(near, state=dataclasses.replace(state, q=q, v=v))


def _after_search(system: System, guess: Guess, scale: Scale) -> Assembly:
    """The iterations from where the search has led; what they do has derivatives, how far it led has none."""
    acting = system.in_mode(guess.mode)
    start = _in_turn(acting, guess.t, acting.normalise(guess.q), guess.held)
    q = searched(acting, guess.t, start, guess.held, scale)
    return assembled(system, dataclasses.replace(guess, q=guess.q + lax.stop_gradient(q - guess.q)))


@program
def assembled(whole: System, guess: Guess) -> Assembly:
    """What the iterations from a guess lead to: what is near it, or nothing. `assemble` searches beyond."""
    t, q, v, mode, length, rank_tol = guess.t, guess.q, guess.v, guess.mode, guess.length, guess.rank_tol
    system = whole.in_mode(mode)
    start = _in_turn(system, t, system.normalise(q), guess.held)
    fixed, fixed_velocities = np.array(guess.held, int), np.array(guess.held_velocities, int)

    def improve(q: Array, scale: Scale) -> Array:
        extra = held_rows(system, q, guess.held)
        residual = jnp.concatenate([position_residual(system, t, q), (q - start)[fixed]])
        mass, jacobian, own = system.mass(t, q), constraint_jacobian(system, t, q), extent(system, q)
        step, _ = shortest_move(
            system, mass, jacobian, scale, extra, residual, own, scale.span, system.holonomic, rank_tol
        )
        move = system.qdot(q, -step)
        trials = jax.vmap(lambda length: system.normalise(q + length * move))(jnp.array(STEPS, q.dtype))
        amounts = jax.vmap(lambda q: jnp.sum((position_residual(system, t, q) / scale.span) ** 2))(trials)
        return trials[jnp.argmin(jnp.where(jnp.isnan(amounts), jnp.inf, amounts))]

    def closed(q: Array, scale: Scale) -> Array:
        if not guess.known:
            return lax.scan(lambda q, _: (improve(q, scale), None), q, None, length=ITERATIONS)[0]

        def once(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            count, q, _ = carry
            better = improve(q, scale)
            return count + 1, better, jnp.any(better != q)

        start = (jnp.array(0), q, jnp.array(True))
        return lax.while_loop(lambda carry: carry[2] & (carry[0] < ITERATIONS), once, start)[1]

    def round(q: Array, _: None) -> tuple[Array, tuple[Scale, Array, Array]]:
        measured = measure(whole, t, q, length)
        return closed(q, measured[0]), measured

    if not system.m:
        state = with_rate(whole, State(t, start, v, measure(whole, t, start, length)[0]))
        checks = check_values(system, state, Values.of(system, state))
        return Assembly(dataclasses.replace(state, mode=mode), checks, jnp.array(False), jnp.array(False), state.scale)
    q, measured = lax.scan(round, start, None, length=ROUNDS)
    first, (scale, never, unknown) = (jax.tree.map(lambda x, i=i: x[i], measured) for i in (0, -1))
    extra = jnp.eye(system.nv)[fixed_velocities]
    jacobian, mass, beside = constraint_jacobian(system, t, q), system.mass(t, q), velocity_offset(system, t, q)

    def closer(v: Array, _: None) -> tuple[Array, Array]:
        residual = jnp.concatenate([velocity_residual(system, t, q, v), jnp.zeros(fixed_velocities.shape)])
        move, gap = shortest_move(system, mass, jacobian, scale, extra, residual, v, beside, None, rank_tol)
        return v - move, gap

    v, gaps = lax.scan(closer, v, None, length=2)  # the second removes the rounding of the first
    values = Values.of(system, State(t, q, v, scale), mass, jacobian)
    state = with_rate(whole, State(t, q, v, scale), values if mode is None else None)
    sized = Check(system.largest(unknown.astype(float)), 0.0, VANISHES, tuple(system.rows))
    consistent = consistency(system, state, "cannot be satisfied from this guess", values)
    turned = _turned_round(system, state)
    missed = ~all_hold((consistent[0], *turned)) & jnp.all(jnp.isfinite(start))
    checks = (*check_rows(whole, never), sized, *check_values(system, state, values), *consistent, *turned)
    near = (jnp.any(q != start) | jnp.any(v != guess.v)) & (gaps[-1] < REFINED)
    return Assembly(dataclasses.replace(state, mode=mode), checks, *lax.stop_gradient((missed, near)), first[0])


def _in_turn(system: System, t: Array, q: Array, held: tuple[int, ...]) -> Array:
    """The same pose with the angles that are driven, and not held, in the turn that their drivers prescribe."""
    turns = {} if system.joints is None else system.joints.driven_turns(t, q, system.params)
    for name, count in turns.items():
        acts = True if system.active is None else system.active[system.rows[name].start]
        q = q - 2 * jnp.pi * jnp.where(acts, count.at[np.array(held, int)].set(0), 0)
    return q


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


def consistency(system: System, state: State, verb: str, values: Values | None = None) -> tuple[Check, ...]:
    """A check per constraint of its residuals on position and velocity level; the values there may be known."""
    system, state = lax.stop_gradient((system, state))
    tol = float(jnp.finfo(state.q.dtype).eps) ** 0.5
    found = residuals(system, state.t, state.q, state.v) if values is None else (values.position, values.velocity)
    position, velocity = (jnp.abs(x) / state.scale.span for x in found)
    rate = state.scale.rate
    velocity = jnp.where(velocity > 0, velocity / rate, 0)  # none is allowed at rest
    text = f"Constraint '{{name}}' {verb}: its LEVEL residual, relative to the size of the mechanism, is {{}}.{{note}}"
    return tuple(
        Check(system.largest(values), tol, text.replace("LEVEL", level), tuple(system.rows))
        for level, values in (("position", position), ("velocity", velocity))
    )


def _filled(given: Any, default: Array, names: tuple[str, ...], argument: str, cuts: Mapping[str, Any]) -> Array:
    """The default with what is given, as an array or by name."""
    if given is None:
        return default
    if not isinstance(given, Mapping):
        given = given if hasattr(given, "shape") else list(given)
        if is_concrete(given):
            given = np.asarray(given, default_float())
        return jnp.asarray(as_parameters(given), default_float())
    index = [*_indices(tuple(given), names, argument, cuts)]
    numbers = arrays_of(default, given)
    values = [numbers.asarray(x, default_float()) for x in given.values()]
    for name, value in zip(given, values, strict=True):
        _expect_shape(f"{argument}['{name}']", value.shape, ())
    entries = [*numbers.asarray(default)]
    for place, value in zip(index, values, strict=True):
        entries[place] = value
    return as_jax(numbers.stack(entries))


def _expect_shape(argument: str, given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if given != shape:
        raise ValueError(f"Argument `{argument}` must have shape {shape}, but has shape {given}.")


def _expect_finite(argument: str, value: Array, names: tuple[str, ...]) -> None:
    """Names what is known not to be finite before it is used."""
    if is_concrete(value):
        text = f"Argument `{argument}` must hold finite numbers, but '{{name}}' is none."
        enforce(value, [Check((~np.isfinite(np.asarray(value))).astype(float), 0.0, text, names)])


def _indices(
    names: Sequence[str | int], known: tuple[str, ...], argument: str, cuts: Mapping[str, Any]
) -> tuple[int, ...]:
    if isinstance(names, str):
        raise TypeError(f"Argument `{argument}` must be a sequence of names or indices, but is the string {names!r}.")
    indices = []
    for name in names:
        if isinstance(name, int) and 0 <= name < len(known):
            indices.append(name)
        elif name in known:
            indices.append(known.index(name))
        else:
            joint = str(name).partition(".")[0]
            closing = (
                f" Joint '{joint}' closes the loop of {listing(cuts[joint])}, and its coordinates follow from the others'; name these, or "
                f"`build(cut=[…])` with another joint of the loop."
                if joint in cuts
                else ""
            )
            raise ValueError(
                f"Argument `{argument}` must hold indices or names out of {', '.join(known)}, but holds {name!r}.{closing}"
            )
    return tuple(dict.fromkeys(indices))
