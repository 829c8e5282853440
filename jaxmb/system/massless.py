"""Velocities without inertia, and whether constraints hold them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ..foundations import is_concrete, listing, positive_or_one, program, remembered, strong
from ..linalg import SINGULAR, regular_metric
from .state import State
from .system import System, check_state
from .terms import constraint_jacobian

# A velocity whose component in the motions without inertia, which have unit length in scaled velocities, is smaller than this takes no part in them.
PART = 1e-6


@dataclasses.dataclass(frozen=True)
class Massless:
    """Where a mass matrix is singular.

    Attributes:
        velocities: names of those with a component in motions without inertia.
        bodies: names of the bodies that have no inertia, of a mechanism.
        unconstrained: of the velocities those that no constraint holds either.
    """

    velocities: tuple[str, ...]
    bodies: tuple[str, ...]
    unconstrained: tuple[str, ...]

    def __str__(self) -> str:
        bodies = f" (without inertia: {listing(self.bodies)})" if self.bodies else ""
        return f"{listing(self.velocities)}{bodies}"

    @property
    def refusal(self) -> str:
        """The message for motions that neither inertia nor constraints determine."""
        bodies = f" of {listing(self.bodies)}" if self.bodies else ""
        return (
            f"Argument `mass` must be positive definite on the null space of the constraints, but is not: along {listing(self.unconstrained)} "
            f"there is no inertia, and no constraint holds it. Give mass and inertia{bodies}, or constraints that hold it."
        )


def massless(system: System, state: State) -> Massless | None:
    """Where M is singular at a state, of several at the first one; None where it is regular, or where numbers are traced.

    A mechanism all of whose bodies have inertia is not examined any further. If its numbers are concrete but the state is not,
    as inside of `jax.jit`, it is examined at `System.guess`.
    """
    if not isinstance(state, State) or not is_concrete(system):
        return None
    # Known from the bodies, without an eigenvalue problem: the rule of mechanisms costs nothing.
    bodies = _bodies_without_inertia(system)
    if system.joints is not None and bodies == ():
        return None
    if is_concrete(state):
        first = first_state(state)
        check_state(system, first)
        return massless_at(system.in_mode(first.mode), first.t, first.q, bodies or ())
    return None if system.joints is None else massless_at(system, 0.0, system.guess, bodies or ())


@remembered
def _bodies_without_inertia(system: System) -> tuple[str, ...] | None:
    """Known from a mechanism's bodies; None where it is not known."""
    return () if system.joints is None else system.joints.without_inertia(system.params)


def first_state(states: State) -> State:
    """The first of several states, or the one."""
    return jax.tree.map(lambda x: x[(0,) * states.t.ndim], states)


def massless_at(system: System, t: ArrayLike, q: Array, bodies: tuple[str, ...] = ()) -> Massless | None:
    """Likewise at a pose; the system is in its mode."""
    # Inside `jax.jit` the numbers of the system are concrete although operations would be traced.
    with jax.ensure_compile_time_eval():
        system, instant, q = strong(system), strong(jnp.asarray(t, q.dtype)), strong(q)
        # M alone first: C is differentiated only for the rare system whose M is singular. Of bodies that are known to be without inertia
        # M may hold rounding, which is no inertia beside that of the metric.
        mass = np.asarray(_mass(system, instant, q))
        if not np.isfinite(mass).all() or not (bodies or _named(system, _scaled(mass, mass))):
            return None
        metric = np.asarray(_metric(system, instant, q))
    without, unconstrained = (_named(system, _scaled(x, metric)) for x in (mass, metric))
    return Massless(without, bodies, unconstrained) if without else None


@program
def _mass(system: System, t: Array, q: Array) -> Array:
    return system.mass(t, q)


@program
def _metric(system: System, t: Array, q: Array) -> Array:
    return regular_metric(system.mass(t, q), constraint_jacobian(system, t, q))


def _scaled(matrix: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """The matrix in units of velocities in which the diagonal of the metric is 1."""
    size = np.sqrt(positive_or_one(np.diag(metric)))
    return matrix / np.outer(size, size)


def _named(system: System, matrix: np.ndarray) -> tuple[str, ...]:
    """The velocities that take part in the null space of a symmetric matrix."""
    # In NumPy and outside of programs: no derivative is wanted, and LAPACK must not be called in batches.
    values, vectors = np.linalg.eigh(matrix)
    parts = np.linalg.norm(vectors[:, np.abs(values) <= SINGULAR * np.finfo(matrix.dtype).eps], axis=1)
    return tuple(name for name, part in zip(system.velocities, parts, strict=True) if part > PART)
