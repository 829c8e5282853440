"""The constraints of a system as they act on its bodies."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation
from ..foundations import listing, positive_or_one
from ..linalg import ConstrainedFactor, independent_rows, regular_metric, row_norms
from ..system import Scale, State, System, constraint_jacobian
from .connection import ROLLING
from .linkage import AbstractLinkage, linkage_of
from .pose import position_of, product, rotation_of


class JointTerms(eqx.Module):
    """The rows of all constraints, each joint included, in absolute coordinates.

    In relative coordinates the joints of the tree have no rows and the reactions in them no multipliers; seen from the bodies they
    do (Newton and Euler).

    Attributes:
        mass: M (n, n) of the bodies.
        jacobian: C (m, n).
        scale: sizes (m,) of the rows in the metric of M.
        poses: of ground and bodies.
    """

    mass: Float[Array, "n n"]
    jacobian: Float[Array, "m n"]
    scale: Float[Array, " m"]
    poses: Float[Array, "b D D"]

    def multipliers(self, reaction: Float[Array, " n"], formulation: AbstractFormulation) -> Float[Array, " m"]:
        """λ with Cᵀλ = reaction, shared among dependent rows as the formulation does, by default with least norm."""
        metric = regular_metric(self.mass, self.jacobian)
        excluded = formulation.excluded(self.jacobian.shape[0])
        jacobian = self.jacobian if excluded is None else jnp.where(excluded[:, None], 0, self.jacobian)
        in_use = independent_rows(metric, jacobian, self.scale, formulation.rank_tol)
        factor = ConstrainedFactor(metric, jacobian, self.scale, in_use, formulation.rank_tol)
        # With F = −reaction and Γ = 0 nothing accelerates: the multipliers of that problem are those of Cᵀλ =
        # reaction.
        own = factor.solve(-reaction, jnp.zeros_like(self.scale))[1]
        return formulation.shares(factor, jacobian, own)[0]


def joint_rows(free: System) -> dict[str, np.ndarray]:
    """The rows of each constraint in `JointTerms`, by name; of a rolling contact both kinds."""
    rows: dict[str, np.ndarray] = {}
    for name, part in free.rows.items():
        owner = name.removesuffix(ROLLING)
        owner = owner if owner in rows else name
        rows[owner] = np.concatenate([rows.get(owner, np.zeros(0, int)), np.arange(part.start, part.stop)])
    return rows


def joint_terms(system: System, free: System, t: Array, q: Array, v: Array) -> tuple[State, JointTerms]:
    """The state in absolute coordinates, and the rows there.

    Args:
        system: built from a mechanism.
        free: the same mechanism in absolute coordinates.
        t: time in s.
        q: coordinates of `system`.
        v: its velocities.
    """
    own, absolute = linkage_of(system), linkage_of(free)
    here = own.motion(t, q, v, system.params)
    q = absolute.with_turns(absolute.measure(here.poses, free.params), own, q)
    v = absolute.measure_rates(here.poses, here.rates, free.params)
    mass, jacobian = free.mass(t, q), constraint_jacobian(free, t, q)
    size = row_norms(regular_metric(mass, jacobian), jacobian)
    # Sizes only weigh rows against each other, so that no derivative goes through them; a row of zeros counts as of
    # size 1.
    scale = jax.lax.stop_gradient(positive_or_one(size))
    sizes = Scale(
        row=scale,
        span=jnp.ones_like(scale),
        reach=jnp.zeros_like(v),
        row_by_length=scale,
        rate=jnp.zeros_like(t),
    )
    return State(t, q, v, sizes), JointTerms(mass=mass, jacobian=jacobian, scale=scale, poses=here.poses)


def acceleration_of_bodies(system: System, state: State, vdot: Float[Array, " nv"], free: System) -> Float[Array, " n"]:
    """v̇ in absolute coordinates."""

    def velocities(q: Array, v: Array) -> Array:
        motion = linkage_of(system).motion(state.t, q, v, system.params)
        return linkage_of(free).measure_rates(motion.poses, motion.rates, free.params)

    return jax.jvp(velocities, (state.q, state.v), (system.qdot(state.q, state.v), vdot))[1]


@dataclasses.dataclass(frozen=True)
class ConnectionSlot:
    """Where a connection stands in the arrays of a build.

    Attributes:
        group: number of its group.
        entry: its number in the group.
        a, b: numbers of the bodies of A and B; 0 is ground.
    """

    group: int
    entry: int
    a: int
    b: int


def connection_slot(linkage: AbstractLinkage, name: str) -> ConnectionSlot:
    """The slot of a connection, by its name."""
    for g, group in enumerate(linkage.connectivity.groups):
        if name in group.names:
            i = group.names.index(name)
            return ConnectionSlot(g, i, group.a[i], group.b[i])
    names = [name for group in linkage.connectivity.groups for name in group.names]
    raise ValueError(f"Argument `joint` must be a joint out of {listing(names)}, but is '{name}'.")


def wrench_map(
    free: System, jacobian: Array, poses: Array, joint: str, end: int, frame: str
) -> tuple[Float[Array, "w m"], Float[Array, " d"]]:
    """The map from all multipliers to force and torque of a joint on one of its bodies, and the joint's point on it.

    Rows: force, then torque about the point.
    """
    linkage = linkage_of(free)
    dim, slot = linkage.dim, connection_slot(linkage, joint)
    size = 3 if dim == 2 else 6
    frames = free.params.frames[slot.group]
    at = product(poses[(slot.a, slot.b)[end]], (frames.a, frames.b)[end][slot.entry])
    body, sign = (slot.a, slot.b)[end], 1.0
    if body == 0:  # on the ground acts the opposite of what acts on the other body
        body, sign = (slot.a, slot.b)[1 - end], -1.0
    mask = jnp.zeros(free.m).at[joint_rows(free)[joint]].set(1.0)
    columns = sign * mask * jacobian[:, (body - 1) * size : body * size].T
    force, torque = columns[:dim], columns[dim:]
    if dim == 3:
        # Generalised forces along ω are torques in the axes of the body, in space; in the plane there is one axis.
        torque = rotation_of(poses[body]) @ torque
    # Rows act at the origin of the body's frame: τ_P = τ_O − r × f moves the torque to the joint's point.
    arm = position_of(at) - position_of(poses[body])
    if dim == 2:
        torque = torque - (arm[0] * force[1] - arm[1] * force[0])
    else:
        torque = torque - jnp.cross(arm[:, None], force, axis=0)
    axes = {"world": jnp.eye(dim), "body": rotation_of(poses[(slot.a, slot.b)[end]]), "joint": rotation_of(at)}[frame]
    torque = axes.T @ torque if dim == 3 else torque
    return jnp.concatenate([axes.T @ force, torque]), position_of(at)
