"""Quantities read off a state or a solution."""

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ..formulation import AbstractFormulation, Acceleration, CoordinatePartition, contradiction_tol, formulation_at
from ..foundations import (
    RESULTS,
    NoNaN,
    TextInNotebooks,
    announce,
    as_jax,
    contract,
    counted,
    default_float,
    expect_shape,
    in_numpy,
    is_concrete,
    listing,
    over_leading_axes,
    positive_or_one,
    program,
    strong,
    summary,
)
from ..kinematics import belongs_to_motion
from ..linalg import (
    RANK_TOL,
    ConstrainedFactor,
    pseudoinverse,
    regular_metric,
    row_norms,
    solve_spd,
    solve_square,
    spectral_norm,
)
from ..simulation import Solution
from ..system import State, System, Terms, apply_mode, check_state, evaluate, scaled_residuals

T = TypeVar("T")


class Energy(TextInNotebooks, eqx.Module):
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

    def __str__(self) -> str:
        """Its numbers, of several states the least and the largest."""
        return summary(self, self.total.ndim, {f"{x.name}, J": getattr(self, x.name) for x in dataclasses.fields(self)})


class Residuals(TextInNotebooks, eqx.Module):
    """Residuals relative to the size of the mechanism: φ/Φ, without a unit, and (C v + b)/Φ in 1/s, each (..., m).

    Φ is `State.scale.span`.
    """

    position: Float[Array, "... m"]
    velocity: Float[Array, "... m"]

    def __str__(self) -> str:
        """Its numbers, of several states the least and the largest."""
        return summary(self, self.position.ndim - 1, {"position": self.position, "velocity, 1/s": self.velocity})


class Reactions(TextInNotebooks, eqx.Module):
    """Accelerations and constraint forces.

    Attributes:
        vdot: v̇ (..., nv).
        reaction: M v̇ − F (..., nv), the generalised reaction acting on the system, unique wherever v̇ is.
        multipliers: λ by constraint name (..., k), of least norm; not unique where rows are redundant, NaN where undefined,
            at singular poses. That of a driver is its effort, (...).
        forces: C_Xᵀλ_X by constraint name (..., nv), which add up to `reaction`. `jaxmb.analyse_reactions` reports which of
            them a rigid model determines.
        result: what the formulation reports (...), see `jaxmb.formulation.Acceleration`; `RESULTS.inconsistent_state` if a state is off its
            constraints by 7e-4 of the mechanism's size or more, or its velocities by as much relative to the rate of the motion, if the state
            has one.
    """

    vdot: Float[Array, "... nv"]
    reaction: Float[Array, "... nv"]
    multipliers: dict[str, Float[Array, "..."]]
    forces: dict[str, Float[Array, "... nv"]]
    result: RESULTS

    def __str__(self) -> str:
        """Its numbers, of several states the least and the largest."""
        rows = {"vdot": self.vdot, "reaction": self.reaction, "multipliers": self.multipliers}
        return summary(self, self.vdot.ndim - 1, rows)


@contract
def energy(system: System, motion: Solution | State) -> Energy:
    """Kinetic, potential and total energy, the work done on the system and the balance of both.

    Args:
        system: the system.
        motion: a solution, or a state; leading axes are kept.
    """
    kinetic, potential, total = over_states(_energies, system, motion)
    if not isinstance(motion, Solution):
        return Energy(kinetic, potential, total, jnp.zeros_like(total), jnp.zeros_like(total))
    # In NumPy where all numbers are concrete: two differences are not worth compiled programs.
    total_in_numpy, work = in_numpy(total, motion.work)
    difference = total_in_numpy - work
    # Less the first saved value of each run, as energy has no zero of its own.
    return Energy(kinetic, potential, total, motion.work, as_jax(difference - difference[..., :1]))


@contract
def residuals(system: System, motion: Solution | State) -> Residuals:
    """The residuals of the constraints on position and velocity level."""
    return Residuals(*over_states(scaled_residuals, system, motion))


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
        formulation: the formulation that solves for them; `GaussProjection()` by default.
        u: inputs (..., nu); those of the solution by default, none for a state.
        throw: whether to raise where no acceleration is determined, if values are concrete; `result` reports it in any case.

    Raises:
        RuntimeError: for a state that violates its constraints, constraints that contradict each other, a motion that is not
            determined, a choice of the formulation that does not fit, and numbers that are not finite.
    """
    u = inputs_of(system, motion, u)
    states = states_of(motion)
    solve = _Solve(formulation_at(formulation, system, states))
    results = over_states(solve, system, motion, u)
    if throw:
        announce(results.result)
    # A program returns dictionaries in the order of the alphabet.
    ordered = lambda by_name: {name: by_name[name] for name in system.in_mode(states.mode).rows}
    return dataclasses.replace(results, multipliers=ordered(results.multipliers), forces=ordered(results.forces))


@contract
def physical_reactions(
    system: System,
    state: State,
    directions: dict[str, Callable[..., Array]],
    *,
    scheme: Literal["metric", "square", "direct"] = "direct",
    u: NoNaN | None = None,
    throw: bool = True,
) -> dict[str, Float[Array, ""]]:
    """Reactions along named physical directions, Cᵀλ = Bᵀf (Blajer, Schiehlen and Schirm 1994, section 5).

    Row j of B is the virtual displacement along direction j for each velocity: the derivative of a function of the pose
    which gives the displacement of the constrained point, or the turn of the constrained frame, along that direction. The
    rows must be independent and must span the reaction M v̇ − F, in the metric of M⁻¹.

    * "metric": f = (B M⁻¹Bᵀ)⁻¹ B ([0; ξ] − M⁻¹F), their (35);
    * "square": [f; 0] = [B; D M]⁻ᵀ (M v̇ − F), their (37);
    * "direct": Bᵀf = M v̇ − F by least squares, their (38).

    Args:
        system: the system.
        state: a single state.
        directions: by name, `fn(t, q, params)` → displacement in m or turn in rad.
        scheme: one of the three.
        u: inputs (nu,).
        throw: whether to raise, with concrete numbers, where f is not determined or leaves a part of the reaction; f is NaN there in any case.

    Returns:
        f by name, in N or N m.

    Raises:
        ValueError: for an unknown scheme, for directions that depend on each other, and for those that leave a part of the
            reaction, with the size of that part.
        RuntimeError: where no acceleration is determined, as in `reactions`.
    """
    check_state(system, state)
    if not 0 < len(directions) <= system.nv:
        raise ValueError(
            f"Argument `directions` must hold between 1 and {system.nv} directions, as many as there are velocities, but holds "
            f"{len(directions)}."
        )
    system, state = strong(system), strong(state)
    displacement = lambda t, q: jnp.stack([jnp.reshape(fn(t, q, system.params), ()) for fn in directions.values()])
    rate = lambda v: jax.jvp(lambda q: displacement(state.t, q), (state.q,), (system.qdot(state.q, v),))[1]
    # Linear in v: the Jacobian is the same at any velocity.
    matrix = jax.jacfwd(rate)(jnp.zeros(system.nv))
    formulation = formulation_at(None, system, state)
    values, result, rank, independent, remainder = _in_directions(system, state, matrix, formulation, scheme, u)
    few = jnp.asarray(scheme == "square") & (rank != len(directions))
    if throw:
        announce(result)
        if is_concrete(independent, remainder, few):
            _check_directions(bool(independent), float(remainder), int(rank) if few else None)
    fine = (result == RESULTS.successful) & independent & ~few & (remainder <= contradiction_tol(remainder.dtype))
    return dict(zip(directions, jnp.where(fine, values, jnp.nan), strict=True))


@program
def _in_directions(
    system: System,
    state: State,
    matrix: Float[Array, "k nv"],
    formulation: AbstractFormulation,
    scheme: str,
    u: Array | None,
) -> tuple[Array, RESULTS, Array, Array, Array]:
    """f, the result of the acceleration and its rank, whether the rows B are independent, and what they leave of the reaction."""
    terms, solution = _acceleration(formulation, system, state, u)
    metric = formulation.metric(terms)
    # W in place of M, with (W − M) v̇ added to F, changes neither v̇ nor f.
    regular = dataclasses.replace(terms, mass=metric, force=terms.force + (metric - terms.mass) @ solution.vdot)
    values = _components(regular if scheme == "metric" else terms, matrix, solution.reaction, scheme)
    # Each scheme gives numbers for any directions; whether they are the reaction is a question of its own.
    return values, solution.result, solution.rank, *_spanned(terms, matrix, solution.reaction)


def _components(
    terms: Terms, matrix: Float[Array, "k nv"], reaction: Float[Array, " nv"], scheme: str
) -> Float[Array, " k"]:
    """The components f of a reaction by a scheme, with the rows B of the directions."""
    if scheme == "direct":
        # Directions may be fewer than velocities: least squares solves Bᵀf = M v̇ − F exactly where it can be solved.
        return pseudoinverse(matrix.T, RANK_TOL, spectral_norm(matrix)) @ reaction
    parts = CoordinatePartition().partition(terms)
    if scheme == "metric":
        # Their (35), from v̇ = M⁻¹(F + Bᵀf) and B v̇ = B [0; ξ]: v̇_I has no part in it, as D Bᵀ = 0.
        inverse = solve_spd(terms.mass, matrix.T).T
        return solve_square(inverse @ matrix.T, matrix @ parts.xi - inverse @ terms.force)
    # (37) needs a square matrix, whose size is static: as many rows of D as are left by the directions. Where the rank is another one the
    # caller returns NaN.
    freedom = matrix.shape[1] - matrix.shape[0]
    tangent = parts.tangent[jnp.flatnonzero(parts.independent, size=freedom, fill_value=0)]
    return solve_square(jnp.concatenate([matrix, tangent @ terms.mass]).T, reaction)[: matrix.shape[0]]


def _spanned(terms: Terms, matrix: Float[Array, "k nv"], reaction: Float[Array, " nv"]) -> tuple[Array, Array]:
    """Whether the rows B are independent, and the part of the reaction outside of their span, in the metric of M⁻¹."""
    metric = regular_metric(terms.mass, terms.jacobian)
    size = row_norms(metric, matrix)
    # Rows of unit size in the metric: displacements in m and turns in rad compare.
    factor = ConstrainedFactor(metric, matrix, positive_or_one(size), jnp.ones(matrix.shape[0], bool))
    full, force = factor.root @ reaction, factor.root @ terms.force
    rest = jnp.linalg.norm(full - (factor.basis @ full) @ factor.basis)
    # A reaction that vanishes is rounding beside the forces that it balances.
    # Below the tolerance of contradictions a reaction is a difference of forces that cancel.
    against = jnp.maximum(jnp.linalg.norm(full), contradiction_tol(rest.dtype) * jnp.linalg.norm(force))
    return jnp.all(factor.in_use), rest / positive_or_one(against)


def _check_directions(independent: bool, remainder: float, rank: int | None) -> None:
    """Refuses directions that depend on each other, leave a part of a reaction, or are not as many as the `rank`, if that must be."""
    if not independent:
        raise ValueError("Argument `directions` must hold directions that are independent at this pose, but does not.")
    if not remainder <= contradiction_tol(default_float()):
        raise ValueError(
            f"Argument `directions` must span the reaction, but leaves {remainder:.3g} of it: give a direction for each independent row of "
            "the constraints, such as the displacements of the point, and turns of the frame, that they hold."
        )
    if rank is not None:
        raise ValueError(
            f"Argument `directions` must hold {rank} directions for scheme 'square', as many as there are independent rows."
        )


def _energies(system: System, state: State) -> tuple[Array, Array, Array]:
    kinetic, potential = system.energies(state.t, state.q, state.v)
    return kinetic, potential, kinetic + potential


def _acceleration(
    formulation: AbstractFormulation, system: System, state: State, u: Array | None
) -> tuple[Terms, Acceleration]:
    """The terms at a state and their acceleration, which belongs to a motion only where the state is on the constraints."""
    terms = evaluate(system, state, u=u)
    solution = formulation.acceleration(terms)
    consistent = belongs_to_motion(system, state) | (solution.result == RESULTS.nonfinite)
    result = RESULTS.where(consistent, solution.result, RESULTS.inconsistent_state)
    return terms, dataclasses.replace(solution, result=result)


class _Solve(eqx.Module):
    formulation: AbstractFormulation

    def __call__(self, system: System, state: State, u: Array | None) -> Reactions:
        terms, solution = _acceleration(self.formulation, system, state, u)
        by_name = {name: solution.multipliers[part] for name, part in system.rows.items()}
        forces = {name: by_name[name] @ terms.jacobian[part] for name, part in system.rows.items()}
        # A driver is one row, whose multiplier is its effort: a scalar rather than an array of one entry.
        for name in () if system.joints is None else system.joints.drivers(system.params):
            by_name[name] = by_name[name][0]
        return Reactions(solution.vdot, solution.reaction, by_name, forces, solution.result)


def states_of(motion: Solution | State) -> State:
    """All saved states of a solution; a state, or several, as they are."""
    return motion.states if isinstance(motion, Solution) else motion


def check_motion(system: System, motion: Solution | State) -> None:
    """Refuses a motion whose coordinates are not those of a system."""
    # Names where both sides have them: equal shapes alone would let another mechanism of as many coordinates pass.
    names = motion.names if isinstance(motion, Solution) else None
    coordinates = names is not None and names.coordinates
    if (coordinates and coordinates != system.coordinates) or (motion.q.shape[-1:], motion.v.shape[-1:]) != (
        (system.nq,),
        (system.nv,),
    ):
        theirs = f"{listing(coordinates)}" if coordinates else f"{counted(motion.q.shape[-1], 'number')}"
        raise ValueError(
            f"The motion must be one of `system`, with coordinates {listing(system.coordinates)}, but has {theirs}."
        )


def inputs_of(system: System, motion: Solution | State, u: ArrayLike | None) -> ArrayLike | None:
    """Inputs along a motion; those of a solution by default.

    Raises:
        ValueError: where they do not fit the system and the motion.
    """
    if u is None:
        u = motion.u if isinstance(motion, Solution) else None
    if u is None:
        return None
    # A run by a controller with `joints` has torques at these as its inputs, in place of the system's own.
    joints = motion.joints if isinstance(motion, Solution) else None
    count, axes = system.nu if joints is None else len(joints), motion.q.shape[:-1]
    expect_shape("`u`", u, (*axes, count))
    return u


def over_states(fn: Callable[..., T], system: System, motion: Solution | State, *more: PyTree) -> T:
    """`fn(system, state, *more)` at each state.

    Raises:
        ValueError: for the motion of another system.
    """
    check_motion(system, motion)
    return _over_states(fn, strong(system), strong(motion), *more)


@program
def _over_states(fn: Callable[..., T], system: System, motion: Solution | State, *more: PyTree) -> T:
    states = states_of(motion)
    system = system.acting_at(motion.joints if isinstance(motion, Solution) else None)
    # The mode is that of each state: along a run with events it changes.
    return over_leading_axes(lambda state, *more: fn(*apply_mode(system, state), *more), states.t.ndim)(states, *more)
