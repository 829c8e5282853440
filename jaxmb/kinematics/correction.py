"""Bringing a state that is nearly consistent back onto the constraints."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Bool, Float, PyTree

from ..formulation import EXACT, AbstractFormulation
from ..foundations import positive_or_one, tree_where
from ..linalg import AbstractFactor, ConstrainedFactor, SparseFactor, independent_rows, solve_spd
from ..system import (
    Scale,
    SparseTerms,
    State,
    System,
    Terms,
    imbalance,
    position_residual,
    rate_matrix,
    residuals,
    rows_at,
    sparse_rows_at,
    velocity_residual,
)


class Correction(eqx.Module):
    """A state that was brought back onto the constraints.

    Attributes:
        q, v: coordinates (nq,) and velocities (nv,) after the correction.
        in_use: mask (m,) of the rows onto which it was corrected: those in use less rows close to being dependent that already hold to rounding.
        basis: as in `directions`.
        position, velocity: residuals φ and C v + b (m,) that are left.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    in_use: Bool[Array, " m"]
    basis: Float[Array, "m n"]
    position: Float[Array, " m"]
    velocity: Float[Array, " m"]

    @classmethod
    def none(
        cls, q: Float[Array, " nq"], v: Float[Array, " nv"], in_use: Bool[Array, " m"], basis: Float[Array, "m n"]
    ) -> "Correction":
        """A state that was not moved."""
        rest = jnp.asarray(np.zeros(in_use.shape), q.dtype)
        return cls(q=q, v=v, in_use=in_use, basis=basis, position=rest, velocity=rest)


def correct(
    system: System, formulation: AbstractFormulation, state: State, in_use: Bool[Array, " m"], iterations: int
) -> Correction:
    """Moves a state onto the constraints along the shortest way in the formulation's metric; see `linearise_correction` for derivatives.

    q ← q − N M⁻¹C_kᵀ (C_k M⁻¹ C_kᵀ)⁻¹ φ_k for the holonomic rows, then likewise v with C v + b for all rows. C and M are
    taken at the given state and kept, so that `iterations` steps leave an error of order δ^(iterations+1) after a drift
    of size δ. The step is the same for any scaling of the rows.

    Close to a singular pose the direction of a correction belongs to a pose off the constraints, and rows may turn out to
    be better left alone; then it is done again, from v, until it has begun on the constraints. Four times are enough for both.

    Args:
        system: the system.
        formulation: gives the metric.
        state: the state; its time stays.
        in_use: mask (m,) of independent rows.
        iterations: number of corrections of q and of v.
    """
    # Its derivative is that of the equations which it solves (`linearise_correction`), not that of its iterations.
    system, formulation, state = lax.stop_gradient((system, formulation, state))

    def once(carry: tuple[Array, Correction, Array, Array]) -> tuple[Array, Correction, Array, Array]:
        count, correction, in_use, _ = carry
        here = dataclasses.replace(state, q=correction.q)
        terms = rows_at(system, state.t, correction.q, state.scale.row)
        factor = formulation.factorise(terms, in_use)
        better, rest = correct_by(factor, system, formulation, here, terms, iterations)
        # Once more after a first time close to dependent rows, and whenever rows are left alone.
        off = jnp.abs(position_residual(system, state.t, correction.q)) / state.scale.span
        on = jnp.all(off <= jnp.finfo(off.dtype).eps ** EXACT)
        again = jnp.any(rest) | ((distance_to_dependence(state.scale, factor) < NEAR) | (count > 0)) & ~on
        better = dataclasses.replace(better, in_use=in_use & ~rest)
        return count + 1, better, better.in_use, again

    basis = jnp.asarray(np.zeros((system.m, system.nv)), state.q.dtype)
    start = Correction.none(system.normalise(state.q), state.v, in_use, basis)
    if not system.m:
        return start
    return lax.while_loop(lambda c: c[3] & (c[0] < 4), once, (jnp.array(0), start, in_use, jnp.array(True)))[1]


def correct_by(
    factor: AbstractFactor,
    system: System,
    formulation: AbstractFormulation,
    state: State,
    terms: Terms | SparseTerms,
    iterations: int,
) -> tuple[Correction, Bool[Array, " m"]]:
    """`correct` by the factors of the rows at the state itself, once; and rows that should have been left alone.

    If there are any nothing is moved.
    """
    t, q, v = state.t, system.normalise(state.q), state.v
    position_factor = _of_positions(formulation, terms, factor)

    def improve(carry: tuple[Array, ...], i: Array) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
        """Positions first, then velocities, then what is left, by one copy of everything."""
        q, v, rest = carry
        position, velocity = residuals(system, t, q, v)
        rest = jnp.where(i == 0, at_rest(state.scale, factor, position, velocity), rest)
        first, last = i < iterations, i == 2 * iterations
        used = tree_where(first, position_factor, factor)
        # The last turn moves nothing: it is there for the residuals that are left.
        step = jnp.where(last, 0, used.particular(jnp.where(first, position, velocity)))
        corrected = system.displaced(q, -step)
        return (jnp.where(first, corrected, q), jnp.where(first, v, v - step), rest), (position, velocity)

    start = (q, v, jnp.zeros_like(factor.in_use))
    (q_new, v_new, rest), history = lax.scan(improve, start, jnp.asarray(np.arange(2 * iterations + 1)))
    # Rows that should have been left alone are known only now, after a move along them: all of it is undone, and made without them.
    stay = jnp.any(rest)
    q_new, v_new = jnp.where(stay, q, q_new), jnp.where(stay, v, v_new)
    position, velocity = (jnp.where(stay, x[0], x[-1]) for x in history)
    return Correction(
        q=q_new,
        v=v_new,
        in_use=factor.in_use & ~rest,
        basis=directions(state.scale, factor),
        position=position,
        velocity=velocity,
    ), rest


@eqx.filter_custom_jvp
def with_derivative(
    linearise: Callable[..., Callable[[System, State], State]],
    system: System,
    formulation: AbstractFormulation,
    state: State,
    corrected: State,
    in_use: Bool[Array, " m"],
    sparse: bool,
) -> State:
    """`corrected`, which a correction has made of `state`, with the derivatives of `linearise(system, formulation, state, corrected, in_use, sparse)`."""
    return corrected


@with_derivative.def_jvp
def _by_linearisation(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[State, State]:
    linearise, system, formulation, state, corrected, in_use, sparse = primals
    linear_map = linearise(system, formulation, state, corrected, in_use, sparse)
    _, derivative = eqx.filter_jvp(linear_map, (system, state), (tangents[1], tangents[3]))
    # Not `corrected` itself, which has no derivative: this value is differentiated again.
    return with_derivative(*primals), derivative


def linearise_correction(
    system: System,
    formulation: AbstractFormulation,
    state: State,
    corrected: State,
    in_use: Bool[Array, " m"],
    sparse: bool = False,
) -> Callable[[System, State], State]:
    """A function of system and state that has the derivative of `correct`, which has made `corrected` of `state`.

    It is not that of the iterations but of what they solve, q_new = q − N M⁻¹C_kᵀ λ with φ_k(q_new) = 0, M and C at the
    given state, exact to second order in the drift. The state is moved by M⁻¹C_kᵀλ with the multipliers that its
    correction took, M and C at the state; what that opens is closed by one more step. With the multipliers from C_k
    M⁻¹C_kᵀ λ = C_k Δ at the corrected state, Δ being the move, its error is of second order in Δ. That is along the
    constraints. Across them, where the derivative of a run's states is of the size of the drift itself, it is exact to
    first order: the one more step is made with M and C at the corrected state. Far from singular poses that can be
    `sparse`, by the system's layout.
    """
    if not system.m:
        return lambda system, perturbed: dataclasses.replace(perturbed, q=system.normalise(perturbed.q))
    start, corrected = lax.stop_gradient((state, corrected))
    q, v, zero = corrected.q, corrected.v, jnp.zeros_like(corrected.v)
    terms, factor = factors_at(system, formulation, corrected, in_use, sparse)
    if not sparse:
        # Rows that were at rest have no part in it.
        unmoved = jnp.all(q == system.normalise(start.q)) & jnp.all(v == start.v)
        rest = at_rest(corrected.scale, factor, *residuals(system, corrected.t, q, v))
        factor = formulation.factorise(terms, in_use & ~(rest & unmoved))
    factors = (_of_positions(formulation, terms, factor), factor)
    move = (displacement(system, q, start.q - q, sparse), start.v - v)
    # The multipliers that the correction has taken, read off the move that it has made: an error of second order in the move.
    pulls = [f.solve(zero, terms.jacobian @ d)[1] for f, d in zip(factors, move, strict=True)]
    pulls = lax.stop_gradient(pulls)

    def linear_map(system: System, perturbed: State) -> State:
        q1, v1 = q + (perturbed.q - start.q), v + (perturbed.v - start.v)
        steps = _steps(system, formulation, perturbed, corrected, pulls, factor)
        # Zero, with a derivative: the step to the corrected state has been made, only its change counts.
        steps = [step - lax.stop_gradient(step) for step in steps]
        q1, v1 = q1 - system.qdot(q, steps[0]), v1 - steps[1]
        # φ is closed but for rounding: this step has no value of its own, only the derivative that the implicit function theorem asks for.
        q1 = q1 - system.qdot(q1, factors[0].solve(zero, position_residual(system, perturbed.t, q1))[0])
        v1 = v1 - factors[1].solve(zero, velocity_residual(system, perturbed.t, q1, v1))[0]
        return dataclasses.replace(perturbed, q=system.normalise(q1), v=v1)

    return linear_map


def factors_at(
    system: System, formulation: AbstractFormulation, state: State, in_use: Bool[Array, " m"], sparse: bool
) -> tuple[Any, Any]:
    """M, C and the factors of rows at a pose; `sparse` by the system's layout."""
    if sparse:
        assert system.layout is not None
        terms = sparse_rows_at(system, system.layout, state.t, state.q, state.scale.row)
        return terms, SparseFactor(terms.mass, terms.jacobian, terms.scale, in_use)
    terms = rows_at(system, state.t, state.q, state.scale.row)
    return terms, formulation.factorise(terms, in_use)


def _steps(
    system: System,
    formulation: AbstractFormulation,
    perturbed: State,
    corrected: State,
    pulls: list[Array],
    factor: AbstractFactor,
) -> list[Array]:
    """M⁻¹ Cᵀ λ at a state for several λ, or what has its derivatives if the factors at hand, of a state nearby, are sparse."""
    q = system.normalise(perturbed.q)
    if not isinstance(factor, SparseFactor):
        raw = rows_at(system, perturbed.t, q, corrected.scale.row)
        return list(solve_spd(formulation.metric(raw), raw.jacobian.T @ jnp.stack(pulls, axis=1)).T)
    constants = [
        factor.free(lax.stop_gradient(imbalance(system, perturbed.t, q, jnp.zeros_like(corrected.v), x)[0]))
        for x in pulls
    ]
    return [
        factor.free(imbalance(system, perturbed.t, q, x, pull)[0]) for x, pull in zip(constants, pulls, strict=True)
    ]


def displacement(
    system: System, q: Float[Array, " nq"], change: Float[Array, " nq"], sparse: bool = False
) -> Float[Array, " nv"]:
    """N⁺ `change`: the displacement along the velocities that comes nearest to a change of the coordinates."""
    if system.rate is None:  # N = I
        return change
    if sparse:  # of quaternions NᵀN is a quarter of I
        to_rates = lambda d: system.qdot(q, d)
        back = jax.linear_transpose(to_rates, jnp.zeros(system.nv, q.dtype))
        return cg(lambda d: back(to_rates(d))[0], back(change)[0], tol=1e-9, maxiter=20)[0]
    # N has full column rank and few columns: normal equations are exact enough, and need no SVD, which does not batch safely.
    matrix = rate_matrix(system.rate, q, system.nv)
    return solve_spd(matrix.T @ matrix, matrix.T @ change)


def _of_positions(
    formulation: AbstractFormulation, terms: Terms | SparseTerms, factor: AbstractFactor
) -> AbstractFactor:
    """The factors of the holonomic rows in use, and of those that the formulation leaves out of the dynamics.

    A position row may follow from velocity rows, which have no position to be corrected to.
    """
    if terms.holonomic is None and formulation.excluded(terms.scale.shape[0]) is None:
        return factor
    in_use, holonomic = factor.in_use, jnp.array(True) if terms.holonomic is None else terms.holonomic
    if isinstance(terms, SparseTerms):
        return SparseFactor(terms.mass, terms.jacobian, terms.scale, in_use & holonomic)
    if formulation.excluded(terms.scale.shape[0]) is not None:
        metric = formulation.metric(terms)
        in_use = independent_rows(metric, terms.jacobian, terms.scale, formulation.rank_tol, terms.holonomic)
    return formulation.factorise(terms, in_use & holonomic)


def at_rest(
    scale: Scale, factor: AbstractFactor, position: Float[Array, " m"], velocity: Float[Array, " m"]
) -> Bool[Array, " m"]:
    """Rows that are close to being dependent and hold to rounding, which a correction would amplify."""
    if not isinstance(factor, ConstrainedFactor):
        return jnp.zeros_like(factor.in_use)  # others are not used there
    scale, factor, position, velocity = lax.stop_gradient((scale, factor, position, velocity))
    eps, rate = jnp.finfo(position.dtype).eps, scale.rate
    # The combination of rows that nearly vanishes, relative to that of Φ.
    weights = factor.vanishing / scale.row
    total, own = jnp.abs(weights) @ scale.span, jnp.abs(jnp.diagonal(weights)) * scale.span
    relative = lambda r: jnp.abs(weights @ r) / positive_or_one(total)
    # Of a mechanism at rest without forces nothing tells how fast it goes: no velocity is rounding there.
    unknown = jnp.where(relative(velocity) > 0, jnp.inf, 0)
    off = jnp.maximum(relative(position), jnp.where(rate > 0, relative(velocity) / positive_or_one(rate), unknown))
    # Both metrics: a light body alone must not make rows count as dependent.
    close = (factor.remainders < CLOSE) & (by_lengths(scale, factor, quick=True).gap < CLOSE)
    close &= factor.in_use  # a row that is lost here is left alone already
    # Remainders of other rows may be infinite, and a residual that is known to be zero times them is no number.
    # All of the combination is left in the row itself, however small its part in it is: less than what a drift correction admits.
    return close & (off * jnp.where(close, factor.remainders, 0) <= 4 * eps) & (off * total <= eps**0.75 * own)


def distance_to_dependence(scale: Scale, factor: AbstractFactor, quick: bool = False) -> Float[Array, ""]:
    """The smallest remainder of the rows in use, in the metric of M or by the lengths ℓ, whichever is larger.

    Rows that become dependent do so in every metric. Those that seem to in one only are brought together there by a light body, by
    which they all move, or by a lever of no length.
    """
    if not isinstance(factor, ConstrainedFactor):
        return factor.gap
    return jnp.maximum(factor.gap, by_lengths(scale, factor, quick).gap)


def by_lengths(scale: Scale, factor: ConstrainedFactor, quick: bool = False) -> ConstrainedFactor:
    """The factors of the same rows relative to the lengths ℓ, without derivatives: no mass has a part in them.

    Lost rows keep their remainders: they are dependent whatever measures lengths.
    """
    factor = lax.stop_gradient(factor)
    lengths = factor.by_lengths(scale.reach, scale.row_by_length, quick)
    remainders = jnp.where(factor.in_use, lengths.remainders, factor.remainders)
    return eqx.tree_at(lambda f: f.remainders, lengths, remainders)


def directions(scale: Scale, factor: AbstractFactor) -> Float[Array, "m n"]:
    """Q (m, nv): the rows in use, orthonormalised in their order relative to the lengths ℓ; without columns where the factor has no orthonormal rows.

    A row turns there only if the mechanism does. In the metric of M those by which a light body moves turn wherever that body does.
    """
    return by_lengths(scale, factor, quick=True).basis if isinstance(factor, ConstrainedFactor) else factor.basis


# Distances from being dependent, relative to the reference sizes. Below NEAR corrections are repeated and stages are
# corrected before they are evaluated, those of the same step below BESIDE too. Below CLOSE rounding would do more harm than an error along the row.
NEAR = 0.02
BESIDE = 0.1
CLOSE = 1e-3
