"""The branches of motion that meet where rows become dependent."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..foundations import contract, program, strong
from ..linalg import metric_root, metric_rows, regular_metric
from ..system import State, System, apply_mode, constraint_jacobian, jacobian_rate

# Singular values up to this one vanish, at poses that are known to less.
VANISHING = 1e-6
# Newton's method is tried from so many directions, in so many steps.
TRIALS, STEPS = 60, 60


@contract
def branches(system: System, state: State) -> State:
    """The branches of motion through a pose: the pose once for each of them (k,), with a velocity along the branch.

    Along a branch φ vanishes to second order: its tangent τ lies in null(C) and obeys zᵀ Ċ(τ) τ = 0 for every z with zᵀC = 0
    (the second-order mobility of Kumar and Pellegrino 2000). Where rows are independent this leaves one direction of a mechanism with one degree of
    freedom; where branches meet, one for each. Tangents are of unit length in the metric of M, their sign is any.

    Args:
        system: the system, with holonomic constraints.
        state: one pose.

    Returns:
        States; none (0,) at a pose through which no motion leads, and where motions of more than one freedom meet, for
        example where a part folds onto its hinge and may turn by itself.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> cross = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                   constraints=[jm.Holonomic("x y = 0", lambda t, q, p: q[0] * q[1])])
        >>> met = jm.kinematics.branches(cross, jm.assemble(cross, [0.0, 0.0], length=1.0))
        >>> sorted(abs(met.v).round(6).tolist())
        [[0.0, 1.0], [1.0, 0.0]]
    """
    full, pose = apply_mode(system, state)
    rows, root, second = (np.asarray(x) for x in _expanded(strong(full), strong(pose)))
    # One pose on the host, without derivatives: here LAPACK's decomposition is safe, and gives both null spaces at once.
    left, values, right = np.linalg.svd(rows)
    rank = int((values > VANISHING).sum())
    # Rows of A act on R⁻ᵀv, R M Rᵀ = I: a direction y of its null space is the velocity v = Rᵀ y.
    null = right[rank:] @ root
    # zᵀ Ċ(n_a) n_b of every z and of every two directions of the null space
    forms = np.einsum("mz,kml,ak,bl->zab", left[:, rank:], second, null, null)
    tangents = _common_zeros(0.5 * (forms + np.swapaxes(forms, 1, 2))) @ null
    repeat = lambda x: jnp.broadcast_to(x, (len(tangents), *x.shape))
    repeated_state: State = jax.tree.map(repeat, state)
    return dataclasses.replace(repeated_state, v=jnp.asarray(tangents, state.v.dtype))


@program
def _expanded(system: System, state: State) -> tuple[Array, Array, Array]:
    """Scaled rows A, R with R M Rᵀ = I, and the derivatives (nv, m, nv) of the scaled rows along each velocity."""
    t, q, size = state.t, state.q, state.scale.row
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    derivative = jax.vmap(lambda v: jacobian_rate(system, t, q, v, 0.0))(jnp.eye(system.nv, dtype=q.dtype))
    rows = metric_rows(regular_metric(mass, jacobian), jacobian, size)
    return rows, metric_root(mass, jacobian), derivative / size[:, None]


def _common_zeros(forms: np.ndarray) -> np.ndarray:
    """The unit vectors (k, d), up to their sign, at which all quadratic forms (z, d, d) vanish, if there are few.

    By Newton's method from directions spread over the sphere.
    """
    count = forms.shape[1]
    if count == 1:
        return np.ones((1, 1))
    size = np.abs(forms).max(initial=0)
    # Every direction is a zero then: a continuum, no branches to be told apart.
    if size == 0:
        return np.zeros((0, count))
    forms = forms / size
    zeros: list[np.ndarray] = []
    # A fixed seed: one pose has the same branches in each call.
    for a in np.random.default_rng(0).normal(size=(TRIALS, count)):
        for _ in range(STEPS):
            a = a / np.linalg.norm(a)
            slope = np.concatenate([2 * forms @ a, a[None]])
            # There may be more forms than unknowns, or fewer; the last row keeps the length of the direction.
            a = a - np.linalg.pinv(slope, rcond=1e-9) @ np.append(a @ forms @ a, 0.0)
        # A direction counts when all forms vanish at it, and only once with its opposite, as the sign of a tangent is any.
        if np.abs(a @ forms @ a).max() < 1e-6 and all(abs(a @ b) < 1 - 1e-6 for b in zeros):
            zeros.append(a)
    # Bézout: d − 1 quadratic forms meet in no more than 2^(d−1) directions, unless in a continuum of them.
    return np.array(zeros).reshape(len(zeros), count) if len(zeros) <= 2 ** (count - 1) else np.zeros((0, count))
