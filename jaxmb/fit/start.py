"""Where a run starts: coordinates that are independent, and all others from these."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from ..foundations import all_hold, expect_available, listing, positive_or_one, program
from ..kinematics import Guess, solve_guess
from ..linalg import RANK_TOL
from ..system import State, System, constraint_jacobian

Indices = tuple[int, ...]
# A coordinate is independent of others if this part of it, at least, is: below, others follow from it a thousand times as fast.
INDEPENDENT = 1e-3


@program
def _tangents(system: System, state: State) -> tuple[Array, Array, Array, Array]:
    """M, C and N at a state, and which rows of C are holonomic."""
    t, q = state.t, state.q
    holonomic = jnp.ones(system.m, bool) if system.holonomic is None else system.holonomic
    moves = system.by_velocities(q, jnp.eye(system.nq))
    return system.mass(t, q), constraint_jacobian(system, t, q), moves, holonomic


def independent(
    system: System, state: State, first: Sequence[str] = (), preferred: Sequence[str] = ()
) -> tuple[Indices, Indices]:
    """Coordinates, and velocities, that determine all others near a state.

    Those of `first` ("name", "name'") are among them, then those of `preferred` that are independent; the rest are picked as
    rows of a basis of the motions that are left, by the largest remainder, in the metric of the diagonal of M.

    Raises:
        ValueError: for a name of `first` that is not known, and where they depend on each other.
    """
    names = (system.coordinates, tuple(f"{name}'" for name in system.velocities))
    expect_available("Argument `fit_start` must hold names", first, [*names[0], *names[1]])
    mass, jacobian, moves, holonomic = (np.asarray(x) for x in _tangents(system.in_mode(state.mode), state))
    chosen = []
    for of, rows, map_ in ((names[0], jacobian[holonomic], moves), (names[1], jacobian, np.eye(system.nv))):
        sizes = np.sqrt(np.diag(mass))
        sizes = positive_or_one(sizes)  # of coordinates without mass
        # By NumPy: which coordinates are independent is a choice of shapes, made once, at the nominal parameters.
        basis = map_ @ (_null_space(rows / sizes) / sizes[:, None])
        required = [of.index(name) for name in first if name in of]
        chosen.append(
            _independent_rows(
                basis, required, [of[i] for i in required], [of.index(name) for name in preferred if name in of]
            )
        )
    return chosen[0], chosen[1]


def _null_space(rows: np.ndarray) -> np.ndarray:
    """A basis of null(rows), decided on rows of unit length."""
    if not rows.shape[0]:
        return np.eye(rows.shape[1])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return scipy.linalg.null_space(rows / positive_or_one(lengths), rcond=RANK_TOL)


def _independent_rows(basis: np.ndarray, required: list[int], names: list[str], preferred: list[int]) -> Indices:
    """Independent rows of a basis: those that are wanted, those that had better be, and others."""
    chosen: list[int] = []
    for i in (*required, *preferred):
        if i in chosen:
            continue
        if np.linalg.norm(_remainder(basis, chosen)[i]) > INDEPENDENT * np.linalg.norm(basis[i]):
            chosen.append(i)
        elif i in required:
            raise ValueError(f"Argument `fit_start` must hold independent coordinates, but {listing(names)} are not.")
    return (*chosen, *pivots(_remainder(basis, chosen).T)[: basis.shape[1] - len(chosen)])


def _remainder(basis: np.ndarray, chosen: list[int]) -> np.ndarray:
    """The rows of a basis without their parts along some of them."""
    directions = scipy.linalg.orth(basis[chosen].T) if chosen else np.zeros((basis.shape[1], 0))
    return basis - basis @ directions @ directions.T


def pivots(matrix: np.ndarray) -> list[int]:
    """Columns in the order of their remainders: the first ones span all."""
    factors: Any = scipy.linalg.qr(matrix, mode="r", pivoting=True)
    return [int(i) for i in factors[1]]


def independent_values(state: State, independents: tuple[Indices, Indices]) -> Float[Array, "... s"]:
    """The independent coordinates and velocities of a state, or of several."""
    at = lambda values, indices: values[..., np.array(indices, int)]
    return jnp.concatenate(list(map(at, (state.q, state.v), independents)), axis=-1)


def state_with(
    system: System, state: State, independents: tuple[Indices, Indices], values: Float[Array, " s"]
) -> tuple[State, Array]:
    """The state with these values of the independent coordinates and velocities, and whether there is one."""
    positions, velocities = independents
    count = len(positions)
    q = state.q.at[np.array(positions, int)].set(values[:count])
    v = state.v.at[np.array(velocities, int)].set(values[count:])
    near = solve_guess(
        system, Guess(t=state.t, q=q, v=v, fixed=positions, fixed_velocities=velocities, mode=state.mode)
    )
    # Not raised: a trial of a search may ask for a start that there is not.
    return near.state, jax.lax.stop_gradient(all_hold(near.checks))
