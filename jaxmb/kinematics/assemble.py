"""Consistent states from rough guesses."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

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
    contract,
    default_float,
    enforce,
    expect_shape,
    floats_or_none,
    is_concrete,
    is_outermost,
    listing,
)
from ..linalg import RANK_TOL
from ..system import (
    AbstractJoints,
    Mode,
    Scale,
    State,
    System,
    canonical,
    massless_at,
    undefined,
    with_layout,
)
from .closing import Assembly, Guess, solve_guess, with_driven_turns
from .refinement import refined
from .search import search_pose


@contract
def assemble(
    system: System,
    q: Numbers | Mapping[str | int, Numbers] | None = None,
    v: Numbers | Mapping[str | int, Numbers] | None = None,
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
    metric, then v by −C⁺(C v + b). Derivatives with respect to q, v, t and params are those of these iterations.
    Positions, or velocities, that satisfy the constraints to rounding are not changed.

    If this leads to no pose on the constraints, or to one with joints the wrong way round, steps of Levenberg and
    Marquardt's method search for a pose, from the guess and then from others around it, the nearest first. The
    iterations continue from there. Their derivatives are taken as if the guess, shifted by a constant, were
    that pose: with respect to q the projection along C⁺.

    Args:
        system: the system.
        q: guess of the coordinates, (nq,) or by name; those not named, or all, are those of `system.guess`. By name you may also give other
            joint coordinates of a mechanism, such as those of joints that close loops, to select one of several poses.
        v: guess of the velocities, (nv,) or by name; zero by default.
        t: time.
        hold: names or indices of coordinates that keep the value given in `q`.
        hold_velocity: names or indices of velocities that keep the value given in `v`.
        inactive: names of constraints that do not act until an event activates them.
        length: how far coordinates move (in their unit) until the mechanism looks different. Needed only if a row vanishes at the pose and no
            other row determines the length, such as x y = 0 at the origin.
        rank_tol: cut-off of the rank rule, see `jaxmb.linalg.independent_rows`.
        throw: whether to raise an error if there is no such state. If False its coordinates and velocities are NaN, which `simulate` reports
            as `inconsistent_state`: other rows of a batch are not affected, and nothing in the program calls the host. For what was missed,
            by how much, and the pose at which the search ended, see `jaxmb.try_assemble`.

    Returns:
        A `State`, with residuals at the level of rounding.

    Raises:
        ValueError: if a constraint cannot be satisfied, a held value prevents it, or the system's functions return invalid values; the
            message names the element and the amount. Where values are traced the compiled program
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
    assembly = nearest(system, guess)
    state, checks = assembly.state, assembly.checks
    if throw:
        if is_concrete(checks, guess.q) and not bool(all_hold(checks)):
            _expect_numbers(system.in_mode(guess.mode), guess)
        return enforce(state, checks, notes)
    # NaN and no error: in a batch one row without a state must not stop the others.
    closed = all_hold(checks)
    return dataclasses.replace(state, q=jnp.where(closed, state.q, jnp.nan), v=jnp.where(closed, state.v, jnp.nan))


def as_guess(
    system: System,
    q: Numbers | Mapping[str | int, Numbers] | None,
    v: Numbers | Mapping[str | int, Numbers] | None,
    t: Number,
    hold: Sequence[str | int],
    hold_velocity: Sequence[str | int],
    inactive: Sequence[str],
    length: float | None,
    rank_tol: float,
    throw: bool,
) -> tuple[System, "Guess"]:
    """The system and the guess as iterations take them; refuses what does not fit."""
    q, aims = _split(system, q)
    q = _full_vector(q, system.guess, system.coordinates, "q", system.joints)
    v = _full_vector(v, as_floats(np.zeros(system.nv)), system.velocities, "v", system.joints)
    t = as_floats(t)
    expect_shape("`q`", q, (system.nq,))
    expect_shape("`v`", v, (system.nv,))
    expect_shape("`t`", t, ())
    if throw:
        _expect_finite("q", q, system.coordinates)
        _expect_finite("v", v, system.velocities)
    fixed = _indices(hold, system.coordinates, "hold", system.joints)
    fixed_velocities = _indices(hold_velocity, system.velocities, "hold_velocity", system.joints)
    size = floats_or_none(length)
    mode = _mode(system, inactive)
    system, concrete = with_layout(canonical(system)), is_outermost(system, t, q, v, size)
    return system, Guess(
        t=t,
        q=q,
        v=v,
        fixed=fixed,
        fixed_velocities=fixed_velocities,
        mode=mode,
        length=size,
        rank_tol=rank_tol,
        concrete=concrete,
        aims=tuple(aims),
        targets=as_floats(list(aims.values())) if aims else None,
    )


def nearest(system: System, guess: "Guess") -> "Assembly":
    """The result of the iterations from a guess; where they miss the constraints, of those from a pose found by a search around it."""
    if guess.aims:
        # Constraints are met afterwards, and without the aims: these say which of several poses is meant, and need not be possible.
        q, free = solve_guess(system, guess).state.q, dataclasses.replace(guess, aims=(), targets=None)
        shift = jnp.where(jnp.all(jnp.isfinite(q)), q - guess.q, 0)
        guess = dataclasses.replace(free, q=guess.q + lax.stop_gradient(shift))
    return _refined(system, guess, _with_search(system, guess, solve_guess(system, guess)))


def _notes(system: System, values: object) -> dict[str, str]:
    """By constraint, which loop it closes, and of which of its joints no coordinate is given."""
    if system.joints is None:
        return {}
    named = [name.partition(".")[0] for name in values if isinstance(name, str)] if isinstance(values, Mapping) else []
    notes = {}
    for name, joints in system.joints.loops.items():
        missing = [joint for joint in joints if joint != name and joint not in named]
        notes[name] = f" It closes the loop of {listing(joints)}"
        if missing and (values is None or isinstance(values, Mapping)):
            notes[name] += f", of which `q` names no coordinate for {listing(missing)}"
        notes[name] += ": the lengths must allow it, and the guess be close enough."
    return notes


def _expect_numbers(system: System, guess: Guess) -> None:
    """At the guess constraints give numbers, without which nothing else does, and hold the bodies without inertia."""
    if text := undefined(system, guess.t[None], guess.q, guess.v)[1]:
        raise ValueError(text)
    bodies = () if system.joints is None else system.joints.without_inertia(system.params) or ()
    lacking = massless_at(system, guess.t, guess.q, bodies)
    if lacking is not None and lacking.unconstrained:
        raise ValueError(lacking.refusal)


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


def _with_search(system: System, guess: Guess, assembly: Assembly) -> Assembly:
    """The result of the iterations; where they missed the constraints, that of iterations from the pose to which a search has led.

    The search is another program, which is made only where it is needed. With concrete numbers this is decided here, otherwise when the program runs.
    """
    if not guess.concrete:
        return with_fallback(assembly.missed, _after_search, (system, guess, assembly.scale), assembly)
    return _after_search(system, guess, assembly.scale) if bool(assembly.missed) else assembly


def _refined(system: System, guess: Guess, near: Assembly) -> Assembly:
    """The assembly with its state refined (`refined`), if it was moved to beside a singular pose; a program of its own, like the search."""
    if not system.m or (guess.concrete and not bool(near.beside)):
        return near
    acting, state = system.in_mode(guess.mode), near.state
    if guess.concrete:
        better = refined(acting, guess, state)
    else:
        better = with_fallback(near.beside, refined, (acting, guess, state), (state.q, state.v))
    # The better value with the derivatives of the iterations: the refinement has none.
    q, v = (x + lax.stop_gradient(y - x) for x, y in zip((state.q, state.v), better, strict=True))
    return dataclasses.replace(near, state=dataclasses.replace(state, q=q, v=v))


def _after_search(system: System, guess: Guess, scale: Scale) -> Assembly:
    """The iterations from the pose of the search; they have derivatives, the search has none."""
    acting = system.in_mode(guess.mode)
    start = with_driven_turns(acting, guess.t, acting.normalise(guess.q), guess.fixed)
    q = search_pose(acting, guess.t, start, guess.fixed, scale)
    # A constant shift: derivatives by the guess are those of the iterations from where the search has led.
    return solve_guess(system, dataclasses.replace(guess, q=guess.q + lax.stop_gradient(q - guess.q)))


def _split(system: System, q: object) -> tuple[Any, dict[str, Number]]:
    """The guess of the system's coordinates, and by name that of other joint coordinates, such as of joints that close loops."""
    if system.joints is None or not isinstance(q, Mapping):
        return q, {}
    others = [x for x in q if isinstance(x, str) and x not in system.coordinates]
    aims = {name: q[name] for name in others if name.partition(".")[0] in system.joints.names}
    for name, value in aims.items():
        system.joints.coordinate(name)  # refuses what is no coordinate of the joint
        expect_shape(f"`q['{name}']`", value, ())
    return {name: value for name, value in q.items() if name not in aims}, aims


def _full_vector(
    overrides: PyTree, default: Array, names: tuple[str, ...], argument: str, joints: AbstractJoints | None
) -> Array:
    """The default with what the user overrides, as an array or by name."""
    if overrides is None:
        return default
    if not isinstance(overrides, Mapping):
        is_iterable = isinstance(overrides, Iterable) and not hasattr(overrides, "shape")
        return as_floats(list(overrides) if is_iterable else overrides)
    index = [*_indices(tuple(overrides), names, argument, joints)]
    # NumPy where all numbers are concrete: an indexed update in JAX is a program to compile for each entry.
    numbers = arrays_of(default, overrides)
    values = [numbers.asarray(x, default_float()) for x in overrides.values()]
    for name, value in zip(overrides, values, strict=True):
        expect_shape(f"`{argument}['{name}']`", value, ())
    entries = [*numbers.asarray(default)]
    for i, value in zip(index, values, strict=True):
        entries[i] = value
    return as_jax(numbers.stack(entries))


def _expect_finite(argument: str, value: Array, names: tuple[str, ...]) -> None:
    """Names what is known not to be finite before it is used."""
    if is_concrete(value):
        text = f"Argument `{argument}` must hold finite numbers, but '{{name}}' is none."
        enforce(value, [Check((~np.isfinite(np.asarray(value))).astype(float), 0.0, text, names)])


def _indices(
    names: Sequence[str | int], available: tuple[str, ...], argument: str, joints: AbstractJoints | None
) -> tuple[int, ...]:
    if isinstance(names, str):
        raise TypeError(f"Argument `{argument}` must be a sequence of names or indices, but is the string {names!r}.")
    indices = []
    for name in names:
        if isinstance(name, int) and 0 <= name < len(available):
            indices.append(name)
        elif name in available:
            indices.append(available.index(name))
        else:
            raise ValueError(
                f"Argument `{argument}` must hold indices or names out of {', '.join(available)}, but holds {name!r}."
                f"{_without_coordinate(joints, str(name).partition('.')[0])}"
            )
    return tuple(dict.fromkeys(indices))


def _without_coordinate(joints: AbstractJoints | None, name: str) -> str:
    """What to do where a joint has no coordinate in the system."""
    if joints is None or name not in joints.names:
        return ""
    if name in joints.loops:
        return (
            f" Joint '{name}' closes the loop of {listing(joints.loops[name])}, and its coordinates follow from the others'; name these, or "
            "`build(cut=[…])` with another joint of the loop."
        )
    return (
        f" Joint '{name}' has no coordinate in this build: name coordinates of its bodies, or assemble the system of `build()` with it and "
        "carry the state over by `jaxmb.convert(state, source, target)`."
    )
