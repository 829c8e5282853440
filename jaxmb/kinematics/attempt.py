"""Assembly that says how it ended instead of raising."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import RESULTS, SUCCESS, Number, Numbers, Positive, TextInNotebooks, all_hold, contract, program
from ..linalg import RANK_TOL
from ..system import State, System, scaled_residuals
from .assemble import as_guess, nearest


class Attempt(TextInNotebooks, eqx.Module):
    """The result of `try_assemble`.

    Attributes:
        state: the assembled state, or the state at which the search ended; its coordinates and velocities are not NaN if the guess is finite.
        result: `RESULTS.successful`, or `RESULTS.no_assembly` where the state is not on the constraints.
        position, velocity: residuals (m,) relative to the size of the mechanism, φ/Φ and (C v + b)/Φ, as in `jaxmb.residuals`.
    """

    state: State
    result: RESULTS
    position: Float[Array, " m"]
    velocity: Float[Array, " m"]


@contract
def try_assemble(
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
) -> Attempt:
    """Like `assemble`, but raises no error if there is no state near the guess, and reports the residuals at which it ended.

    This is for questions about an assembly: whether lengths allow it, what is missed, how nearly. Its state is the pose at which the search
    ended, on the constraints or not. `assemble(…, throw=False)` is for states that are handed on: its numbers are NaN where it failed, so
    that no result of a pose off the constraints passes for one.

    Args:
        system: the system.
        q: guess of the coordinates; this and all other arguments as in `jaxmb.assemble`.
        v: guess of the velocities.
        t: time.
        hold: coordinates that keep their values.
        hold_velocity: velocities that keep their values.
        inactive: names of constraints that do not act.
        length: how far coordinates move until the mechanism looks different.
        rank_tol: cut-off of the rank rule.

    Returns:
        An `Attempt`. Where values are traced, rows of a batch included, nothing in the program calls the host.

    Raises:
        ValueError: if an argument does not fit the system, which is known before anything is computed.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> attempt = jm.try_assemble(system, [1.5, 0.2], hold=["x"])
        >>> bool(attempt.result == jm.RESULTS.no_assembly), bool(abs(attempt.position[0]) > 0.1)
        (True, True)
    """
    system, guess = as_guess(system, q, v, t, hold, hold_velocity, inactive, length, rank_tol, False)
    assembly = nearest(system, guess)
    # No `enforce`: it would call the host from within a batch, and raise for all rows where one has no state.
    position, velocity = _relative_residuals(system.in_mode(guess.mode), assembly.state)
    return Attempt(
        state=assembly.state,
        result=RESULTS.where(all_hold(assembly.checks), SUCCESS, RESULTS.no_assembly),
        position=position,
        velocity=velocity,
    )


@program
def _relative_residuals(system: System, state: State) -> tuple[Array, Array]:
    return scaled_residuals(system, state)
