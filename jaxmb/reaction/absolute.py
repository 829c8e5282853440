"""The constraints of a system as they act on its bodies."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation
from ..linalg import ConstrainedFactor, independent_rows, mean_inertia, regular_metric
from ..mechanism import ROLLING, absolute
from ..system import State, System, constraint_jacobian

Scalar = Float[Array, ""]


class JointTerms(eqx.Module):
    """The rows of all constraints, each joint included, in absolute coordinates where the system is a mechanism's.

    In relative coordinates the joints of the tree have no rows and the reactions in them no multipliers; seen from the bodies they
    do (Newton and Euler).

    Attributes:
        mass: M (n, n) of the bodies.
        jacobian: C (m, n).
        scale: sizes (m,) of the rows in the metric of M.
        poses: of ground and bodies; None for a system that was not built from a mechanism.
        frames: poses of A and B (k, D, D) of the joints' frames in the world, by group; None likewise.
    """

    mass: Float[Array, "n n"]
    jacobian: Float[Array, "m n"]
    scale: Float[Array, " m"]
    poses: Float[Array, "b D D"] | None

    def independent(self) -> Bool[Array, " m"]:
        """A largest set of independent rows."""
        return independent_rows(regular_metric(self.mass, self.jacobian), self.jacobian, self.scale)

    def multipliers(self, reaction: Float[Array, " n"], formulation: AbstractFormulation) -> Float[Array, " m"]:
        """λ with Cᵀλ = reaction, shared among dependent rows as the formulation does, by default with least norm."""
        metric = regular_metric(self.mass, self.jacobian)
        left_out = formulation.left_out(self.jacobian.shape[0])
        jacobian = self.jacobian if left_out is None else jnp.where(left_out[:, None], 0, self.jacobian)
        keep = independent_rows(metric, jacobian, self.scale)
        factor = ConstrainedFactor(metric, jacobian, self.scale, keep)
        own = factor.solve(-reaction, jnp.zeros_like(self.scale))[1]
        return formulation.shares(factor, jacobian, own)[0]


def joint_rows(system: System) -> dict[str, np.ndarray]:
    """The rows of each constraint in `JointTerms`, by name; of a rolling contact both kinds."""
    if system.joints is None:
        return {name: np.arange(part.start, part.stop) for name, part in system.rows.items()}
    skeleton, start = system.joints.skeleton, 0
    rows: dict[str, np.ndarray] = {}
    for name, count in (*skeleton.rows, *skeleton.slips):
        owner = name.removesuffix(ROLLING)
        owner = owner if owner in rows else name
        rows[owner] = np.concatenate([rows.get(owner, np.zeros(0, int)), np.arange(start, start + count)])
        start += count
    return rows


def joint_terms(system: System, state: State) -> tuple[System, State, JointTerms]:
    """The system in absolute coordinates, the state there, and its rows.

    For a system that was not built from a mechanism all of it is in its own coordinates.
    """
    t, q, v = state.t, state.q, state.v
    poses = None
    if system.joints is not None:
        free = absolute(system)
        here = system.joints.motion(t, q, v, system.params)
        poses = here.poses
        q = free.joints.measure(poses, free.params)
        v = free.joints.measure_rates(poses, here.rates, free.params)
        system = free
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    metric = regular_metric(mass, jacobian)
    unit = jnp.linalg.inv(metric / mean_inertia(metric))
    size = jnp.sqrt(jnp.sum((jacobian @ unit) * jacobian, axis=1))
    scale = jax.lax.stop_gradient(jnp.where(size > 0, size, 1))
    return system, State(t, q, v, scale), JointTerms(mass, jacobian, scale, poses)


def acceleration_of_bodies(system: System, state: State, vdot: Float[Array, " nv"], free: System) -> Float[Array, " n"]:
    """v̇ in absolute coordinates."""
    if system.joints is None:
        return vdot

    def velocities(q: Array, v: Array) -> Array:
        motion = system.joints.motion(state.t, q, v, system.params)
        return free.joints.measure_rates(motion.poses, motion.rates, free.params)

    return jax.jvp(velocities, (state.q, state.v), (system.qdot(state.q, state.v), vdot))[1]
