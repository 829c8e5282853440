"""Quantities read off a state or a solution."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation, CoordinatePartition, GaussProjection
from ..foundations import RESULTS, NoNaN, announce, contract, counted, listing, over_leading_axes, program, strong
from ..linalg import RANK_TOL, pseudoinverse, solve_spd, solve_square, spectral_norm
from ..simulation import Solution
from ..system import State, System, check_state, evaluate, scaled_residuals, settled

T = TypeVar("T")
SCHEMES = ("metric", "square", "direct")


class Energy(eqx.Module):
    """Energies in J; each array has the leading axes of the state or solution.

    Attributes:
        kinetic: T.
        potential: V.
        total: T + V.
        work: of applied forces, inputs and moving constraints since the start; zero for a single state.
        balance: (total − work) minus its first value in time: zero for an exact solution.
    """

    kinetic: Float[Array, "..."]
    potential: Float[Array, "..."]
    total: Float[Array, "..."]
    work: Float[Array, "..."]
    balance: Float[Array, "..."]


class Residuals(eqx.Module):
    """Residuals relative to the size of the mechanism: φ/Φ, without a unit, and (C v + b)/Φ in 1/s, each (..., m).

    Φ is `State.scale.span`.
    """

    position: Float[Array, "... m"]
    velocity: Float[Array, "... m"]


class Reactions(eqx.Module):
    """What the constraints do.

    Attributes:
        vdot: v̇ (..., nv).
        reaction: M v̇ − F (..., nv), the generalised reaction acting on the system, unique wherever v̇ is.
        multipliers: λ by constraint name (..., k), of least norm; not unique where rows are redundant, NaN where undefined,
            at singular poses. That of a driver is its effort, (...).
        forces: C_Xᵀλ_X by constraint name (..., nv), which add up to `reaction`. `jaxmb.analyse_reactions` tells which of them
            a rigid model determines.
        result: what the formulation reports (...), see `jaxmb.Acceleration`.
    """

    vdot: Float[Array, "... nv"]
    reaction: Float[Array, "... nv"]
    multipliers: dict[str, Float[Array, "..."]]
    forces: dict[str, Float[Array, "... nv"]]
    result: RESULTS


@contract
def energy(system: System, motion: Solution | State) -> Energy:
    """Kinetic, potential and total energy, the work done on the system and the balance of both.

    Args:
        system: the system.
        motion: a solution, or a state; leading axes are kept.
    """
    kinetic, potential = over_states(_energies, strong(system), strong(motion))
    total = kinetic + potential
    if not isinstance(motion, Solution):
        return Energy(kinetic, potential, total, jnp.zeros_like(total), jnp.zeros_like(total))
    kept = total - motion.work
    return Energy(kinetic, potential, total, motion.work, kept - kept[..., :1])


@contract
def residuals(system: System, motion: Solution | State) -> Residuals:
    """How well the constraints hold on position and velocity level."""
    return Residuals(*over_states(scaled_residuals, strong(system), strong(motion)))


@contract
def reactions(
    system: System,
    motion: Solution | State,
    *,
    formulation: AbstractFormulation | None = None,
    u: NoNaN | None = None,
    throw: bool = True,
) -> Reactions:
    """Accelerations, generalised reactions and multipliers.

    Args:
        system: the system.
        motion: a solution, or a state; leading axes are kept.
        formulation: how they are found; `GaussProjection()` by default.
        u: inputs (..., nu); those of the solution by default, none for a state.
        throw: whether to raise where no acceleration is determined, if values are known; `result` says it in any case.

    Raises:
        RuntimeError: for constraints that contradict each other, a motion that is not determined, a choice of the formulation
            that does not fit, and numbers that are not finite.
    """
    if u is None and isinstance(motion, Solution):
        u = motion.u
    check_inputs(system, motion, u)
    solve = _Solve(formulation or GaussProjection())
    vdot, reaction, multipliers, jacobian, result = over_states(solve, strong(system), strong(motion), u)
    if throw:
        announce(result)
    rows = system.in_mode((motion.states if isinstance(motion, Solution) else motion).mode).rows
    by_name = {name: multipliers[..., part] for name, part in rows.items()}
    forces = {name: jnp.sum(jacobian[..., part, :] * by_name[name][..., None], axis=-2) for name, part in rows.items()}
    for name in () if system.joints is None else system.joints.drivers(system.params):
        by_name[name] = by_name[name][..., 0]
    return Reactions(vdot, reaction, by_name, forces, result)


@contract
def physical_reactions(
    system: System,
    state: State,
    directions: dict[str, Callable[..., Any]],
    *,
    scheme: str = "direct",
    u: NoNaN | None = None,
) -> dict[str, Float[Array, ""]]:
    """Reactions along named physical directions, Cᵀλ = Bᵀf (Blajer, Schiehlen and Schirm 1994, section 5).

    Row j of B is the virtual displacement along direction j for each velocity: the derivative of a function of the pose
    which gives the displacement of the constrained point, or the turn of the constrained frame, along that direction. The
    rows must span the same space as the constraints and be independent.

    * "metric": f = (B M⁻¹Bᵀ)⁻¹ B ([0; ξ] − M⁻¹F), their (35);
    * "square": [f; 0] = [B; D M]⁻ᵀ (M v̇ − F), their (37);
    * "direct": Bᵀf = M v̇ − F by least squares, their (38).

    Args:
        system: the system.
        state: a single state.
        directions: by name, `fn(t, q, params)` → displacement in m or turn in rad.
        scheme: one of the three.
        u: inputs (nu,).

    Returns:
        f by name, in N or N m.

    Raises:
        ValueError: for a scheme that is not known.
        RuntimeError: with known numbers, where no acceleration is determined, as of `reactions`.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"Argument `scheme` must be 'metric', 'square' or 'direct', but is {scheme!r}.")
    check_state(system, state)
    system, state = strong(system), strong(state)
    displacement = lambda t, q: jnp.stack([jnp.reshape(fn(t, q, system.params), ()) for fn in directions.values()])
    along = lambda v: jax.jvp(lambda q: displacement(state.t, q), (state.q,), (system.qdot(state.q, v),))[1]
    matrix = jax.jacfwd(along)(jnp.zeros(system.nv))
    terms = evaluate(system, state, u=u)
    found = GaussProjection().acceleration(terms)
    announce(found.result)
    reaction = found.reaction
    if scheme == "direct":
        values = pseudoinverse(matrix.T, RANK_TOL, spectral_norm(matrix)) @ reaction
    else:
        parts = CoordinatePartition().partition(terms)
        if scheme == "metric":
            inverse = solve_spd(terms.mass, matrix.T).T
            values = solve_square(inverse @ matrix.T, matrix @ parts.xi - inverse @ terms.force)
        else:
            tangent = parts.tangent[jnp.flatnonzero(parts.independent)]
            square = jnp.concatenate([matrix, tangent @ terms.mass])
            values = solve_square(square.T, reaction)
    return dict(zip(directions, values, strict=False))


def _energies(system: System, state: State) -> tuple[Array, Array]:
    return system.energies(state.t, state.q, state.v)


class _Solve(eqx.Module):
    formulation: AbstractFormulation

    def __call__(self, system: System, state: State, u: Array | None) -> tuple[Array, Array, Array, Array, RESULTS]:
        terms = evaluate(system, state, u=u)
        found = self.formulation.acceleration(terms)
        return found.vdot, found.reaction, found.multipliers, terms.jacobian, found.result


@program
def check_motion(system: System, motion: Solution | State) -> None:
    """Refuses a motion whose coordinates are not those of a system."""
    names = motion.names if isinstance(motion, Solution) else None
    known = names is not None and names.coordinates
    if (known and known != system.coordinates) or (motion.q.shape[-1:], motion.v.shape[-1:]) != (
        (system.nq,),
        (system.nv,),
    ):
        theirs = f"{listing(known)}" if known else f"{counted(motion.q.shape[-1], 'number')}"
        raise ValueError(
            f"The motion must be one of `system`, with coordinates {listing(system.coordinates)}, but has {theirs}."
        )


def check_inputs(system: System, motion: Solution | State, u: Any) -> None:
    """Refuses inputs that do not fit a system and its motion."""
    if u is None:
        return
    joints = motion.joints if isinstance(motion, Solution) else None
    count, axes = system.nu if joints is None else len(joints), motion.q.shape[:-1]
    if np.shape(u) != (*axes, count):
        raise ValueError(f"Argument `u` must have shape {(*axes, count)}, but has shape {np.shape(u)}.")


def over_states(fn: Callable[..., T], system: System, motion: Solution | State, *more: Any) -> T:
    """`fn(system, state, *more)` at each state.

    Raises:
        ValueError: for the motion of another system.
    """
    check_motion(system, motion)
    states = motion.states if isinstance(motion, Solution) else motion
    system = system.acting_at(motion.joints if isinstance(motion, Solution) else None)
    return over_leading_axes(lambda state, *more: fn(*settled(system, state), *more), states.t.ndim)(states, *more)
