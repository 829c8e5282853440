"""Force and torque in a joint."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import RESULTS, NoNaN, TextInNotebooks, as_jax, contract, is_concrete, listing, summary, warn
from ..mechanism import absolute, acceleration_of_bodies, connection_slot, joint_terms, linkage_of, wrench_map
from ..reaction import analyse_reactions
from ..simulation import Solution
from ..system import State, System
from .quantities import inputs_of, over_states, reactions, states_of

# Whose axes a wrench has: the world's, those of the body, or those of the joint's frame on it.
Frame = Literal["world", "body", "joint"]


class Wrench(TextInNotebooks, eqx.Module):
    """The force and torque of a joint on a body.

    Attributes:
        force: (..., d) in N.
        torque: (..., 1) in the plane, (..., 3) in space, in N m, about the joint's point on that body.
        point: that point (..., d) in the world, in m.
        result: the result that the formulation reports (...), see `reactions`.
    """

    force: Float[Array, "... d"]
    torque: Float[Array, "... k"]
    point: Float[Array, "... d"]
    result: RESULTS

    def __str__(self) -> str:
        """Its numbers, of several states the least and the largest."""
        return summary(
            self, self.force.ndim - 1, {"force, N": self.force, "torque, N m": self.torque, "point, m": self.point}
        )


@contract
def joint_reaction(
    system: System,
    motion: Solution | State,
    joint: str,
    *,
    on: str | None = None,
    frame: Frame = "world",
    formulation: AbstractFormulation | None = None,
    u: NoNaN | None = None,
    warn: bool = True,
    throw: bool = True,
) -> Wrench:
    """Force and torque that a joint, or another connection, exerts on one of its bodies.

    From M v̇ − F of the bodies in absolute coordinates, whatever the coordinates of the system: Cᵀλ = M v̇ − F with the rows
    of all joints, λ of least norm where they are redundant; then C_Xᵀλ_X of this joint, moved to its point. Forces of
    springs, friction and motors in the joint do not belong to it.

    Args:
        system: built from a mechanism.
        motion: a solution, or a state; leading axes are kept.
        joint: name of the joint.
        on: the body; that of the joint's B by default. May be "ground".
        frame: axes of the result: "world", "body" for those of the body, "joint" for those of the joint's frame on it.
        formulation: solves for the accelerations and shares λ among dependent rows; by default
            `GaussProjection()`, that is with least norm.
        u: inputs (..., nu); those of the solution by default.
        warn: whether to warn, with concrete numbers, if a rigid model does not determine this reaction.
        throw: whether to raise where no acceleration is determined, as in `reactions`.

    Raises:
        ValueError: for an unknown name.
        RuntimeError: as in `reactions`.
    """
    linkage = linkage_of(system)
    slot, bodies = connection_slot(linkage, joint), ("ground", *linkage.bodies)
    ends = [bodies[slot.a], bodies[slot.b]]
    on = ends[1] if on is None else on
    if on not in ends:
        raise ValueError(f"Argument `on` must be one of the bodies of joint '{joint}', {listing(ends)}, but is {on!r}.")
    return _wrenches(system, motion, {joint: ends.index(on)}, frame, formulation, u, warn, throw)[joint]


@contract
def joint_reactions(
    system: System,
    motion: Solution | State,
    *,
    frame: Frame = "world",
    formulation: AbstractFormulation | None = None,
    u: NoNaN | None = None,
    warn: bool = True,
    throw: bool = True,
) -> dict[str, Wrench]:
    """Force and torque that each joint, or other connection, exerts on its body B, by name.

    On its body A it exerts the opposite, about the same point. Arguments as in `joint_reaction`.
    """
    groups = linkage_of(system).connectivity.groups
    joints = {name: 1 for group in groups for name in group.names}
    return _wrenches(system, motion, joints, frame, formulation, u, warn, throw)


def _wrenches(
    system: System,
    motion: Solution | State,
    joints: dict[str, int],
    frame: str,
    formulation: AbstractFormulation | None,
    u: ArrayLike | None,
    warn: bool,
    throw: bool,
) -> dict[str, Wrench]:
    """The wrench of each joint on its body of A (0) or B (1)."""
    formulation = formulation_at(formulation, system, states_of(motion))
    u = inputs_of(system, motion, u)
    # One solution for the accelerations; wrenches of all joints follow from it by Newton and Euler.
    results = reactions(system, motion, formulation=formulation, u=u, throw=throw)
    if warn and is_concrete(system, motion):
        _warn(system, motion, tuple(joints), results.result, formulation.rank_tol)
    read = _WrenchReader(tuple(joints.items()), frame, formulation)
    return over_states(read, system, motion, results.vdot, results.result, u)


def wrenches_at_rest(
    system: System, state: State, frame: str, formulation: AbstractFormulation, result: RESULTS, u: Array | None
) -> dict[str, Wrench]:
    """`joint_reactions` at rest and without acceleration, whatever the constraints are about to do."""
    joints = tuple((name, 1) for group in linkage_of(system).connectivity.groups for name in group.names)
    # v = 0 and v̇ = 0: one array of zeros serves as both.
    resting = dataclasses.replace(state, v=as_jax(np.zeros(state.v.shape, state.v.dtype)))
    read = _WrenchReader(joints, frame, formulation)
    wrenches = over_states(read, system, resting, resting.v, result, u)
    return {name: wrenches[name] for name, _ in joints}


class _WrenchReader(eqx.Module):
    joints: tuple[tuple[str, int], ...] = eqx.field(static=True)
    frame: str = eqx.field(static=True)
    formulation: AbstractFormulation

    def __call__(
        self, system: System, state: State, vdot: Array, result: RESULTS, u: Array | None
    ) -> dict[str, Wrench]:
        # In absolute coordinates every joint has rows, so that its wrench is C_Xᵀλ_X; in relative ones joints of the tree have none.
        free, dim = absolute(system), linkage_of(system).dim
        there, terms = joint_terms(system, free, state.t, state.q, state.v)
        change = acceleration_of_bodies(system, state, vdot, free)
        # Forces of elements are subtracted, so that springs, friction and motors in the joint are no part of its reaction.
        applied = free.applied_force(there.t, there.q, there.v, u)
        reaction = terms.mass @ change - free.intrinsic_force(there.t, there.q, there.v) - applied
        multipliers = terms.multipliers(reaction, self.formulation)
        wrenches = {}
        for joint, end in self.joints:
            maps, point = wrench_map(free, terms.jacobian, terms.poses, joint, end, self.frame)
            wrench = maps @ multipliers
            wrenches[joint] = Wrench(wrench[:dim], wrench[dim:], point, result)
        return wrenches


def _warn(system: System, motion: Solution | State, joints: tuple[str, ...], result: RESULTS, rank_tol: float) -> None:
    states = states_of(motion)
    # One state stands for the run, as the analysis is of a single pose; states that failed have no reactions to doubt.
    good = np.argwhere(np.asarray(result == RESULTS.successful))
    if not len(good):
        return
    first = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[tuple(good[0])]), states)
    # With the cut-off of the run, so that the warning is of the rows that shared the load.
    report = analyse_reactions(system, first, rank_tol=rank_tol)
    # One warning for all that trade the same load: a platform on many legs would have as many as it has joints.
    clusters: dict[tuple[str, ...], list[str]] = {}
    for joint in joints:
        if not report.groups[joint].unique:
            clusters.setdefault(tuple(report.cluster_of(joint)) or (joint,), []).append(joint)
    for cluster, members in clusters.items():
        partners = [name for name in cluster if name not in members]
        others = f" with {listing(partners)}" if partners else ""
        if len(members) == 1:
            subject, traded = (
                f"reaction in '{members[0]}' is",
                f"it may be changed{' together' * bool(partners)}{others}",
            )
        else:
            subject, traded = f"reactions in {listing(members)} are", f"they may be changed together{others}"
        warn(
            f"The {subject} not determined by a rigid model: {traded} without changing the motion. The value of least norm is one of many; "
            "`analyse_reactions` tells which components can be trusted."
        )
