"""The interface of a mechanism to the engine, and its system in absolute coordinates."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import is_concrete, listing
from ..reaction import analyse_reactions
from ..system import (
    BodyRows,
    BrakeForce,
    Holonomic,
    JointDirections,
    LockResidual,
    PoseFunctions,
    State,
    System,
)
from .friction import complete_system
from .joint_rows import joint_rows, joint_terms, wrench_map
from .linkage import AbstractLinkage, linkage_of
from .structure import Numbers


class Linkage(AbstractLinkage):
    """A built mechanism: the `joints` of its system."""

    def coordinate(self, name: str) -> "CoordinateFunction":
        """A joint coordinate as a function of the pose."""
        self.index(name, "coordinates")
        return CoordinateFunction(self, name)

    def actuators(self, params: Numbers) -> tuple[str, ...]:
        """Names of the actuators."""
        return tuple(actuator.name for actuator in params.actuators)

    def axes(self, t: Float[Array, ""], q: Float[Array, " nq"], params: Numbers) -> dict[str, Float[Array, " nv"]]:
        """The derivatives of the joint velocities by v."""
        names = [
            name if len(slot.pair.velocities) == 1 else f"{name}.{part}"
            for name, slot in self.joints
            for part in slot.pair.velocities
        ]
        if not names:
            return {}
        # Joint velocities are linear in v: their derivative at v = 0 is the whole map, and its rows are also the
        # directions of unit efforts (virtual power).
        rates = lambda v: jnp.stack([self.motion(t, q, v, params).rate(name) for name in names])
        return dict(zip(names, jax.jacfwd(rates)(jnp.zeros(self.nv, q.dtype)), strict=True))

    def wraps(self, name: str) -> bool:
        """Whether a joint coordinate is an angle of a joint outside the tree whose turns are not counted."""
        joint, index = self.index(name, "coordinates")
        slot = self.slot(joint)
        return slot.pair.angles[index] and not slot.in_tree and slot.q[index] < 0

    def body_rows(self, system: System, state: State) -> BodyRows:
        """The rows of the system in absolute coordinates."""
        free = absolute(system)
        _, terms = joint_terms(system, free, state.t, state.q, state.v)
        wrenches = {}
        for group in self.connectivity.groups:
            for name, b in zip(group.names, group.b, strict=True):
                # The wrench is meant on the body of B; where that is the ground, on the body of A with the opposite
                # sign.
                end = 1 if b else 0
                wrenches[name] = wrench_map(free, terms.jacobian, terms.poses, name, end, "joint")[0]
        rows = {name: jnp.asarray(part) for name, part in joint_rows(free).items()}
        return BodyRows(terms.mass, terms.jacobian, rows, wrenches)

    def check_run(self, system: System, state: State, events: bool, rank_tol: float) -> list[str]:
        """The forces that depend on reactions which a rigid model does not determine; modes are refused where there are any."""
        load_joints = self.connectivity.load_joints
        if not load_joints:
            return []
        if events or state.mode is not None:
            what = "`events` must be empty" if events else "`state` must have no mode"
            raise ValueError(
                f"Argument {what} where friction grows with the load of a joint ({listing(load_joints)}): this load is found with all "
                "joints acting and without locks and brakes. Use `JointFriction`, whose size is given, or let a run without events "
                "end where something happens and start another, of a mechanism built for what acts from then on."
            )
        # Uniqueness of reactions is decided by numbers. Under `jit` there are none, and a warning could not be
        # printed anyway.
        if not is_concrete(system, state):
            return []
        report = analyse_reactions(system, state, rank_tol=rank_tol)
        return [
            f"Force '{force.name}' depends on the reaction in '{joint}', which is not determined by a rigid model: so is the motion. "
            f"It follows the reactions of least norm; '{joint}' may trade its load with "
            f"{listing([name for name in report.cluster_of(joint) if name != joint])}."
            for force in system.params.forces
            for joint in force.loads()
            if not all(unique for c, unique in report.groups[joint].components.items() if c.startswith("f"))
        ]


class CoordinateFunction(eqx.Module):
    """A joint coordinate of a mechanism as a function of the pose."""

    linkage: AbstractLinkage
    name: str = eqx.field(static=True)

    @property
    def unit(self) -> str:
        """SI unit of the coordinate."""
        joint, index = self.linkage.index(self.name, "coordinates")
        return self.linkage.slot(joint).pair.units[index]

    def __call__(self, t: Float[Array, ""], q: Float[Array, " nq"], params: Numbers) -> Float[Array, ""]:
        """The coordinate."""
        return self.linkage.at_rest(t, q, params).coordinate(self.name)


def absolute(system: System) -> System:
    """The system of the same mechanism in absolute coordinates; `params` stay what they are."""
    free = complete_system(linkage_of(system).absolute, system.params)
    if isinstance(system.actuation_fn, JointDirections):  # a controller's, in place of the actuators
        free = free.acting_at(system.actuation_fn.names)
    return free if system.active is None else _in_same_mode(system, free)


class _InOtherCoordinates(eqx.Module):
    """A function of the coordinates of one build as a function of those of another."""

    fn: Callable[[Array, Array, Numbers], Array]
    own: AbstractLinkage
    other: AbstractLinkage

    def __call__(self, t: Array, q: Float[Array, " nq"], params: Numbers) -> Array:
        return self.fn(t, self.own.measure(self.other.poses(q, params), params), params)


def _in_same_mode(system: System, free: System) -> System:
    """The build of the same mechanism in absolute coordinates, in the mode of a system."""
    # `absolute` asks only for systems in a mode; this tells the type checker.
    assert system.active is not None
    first = {name: system.active[part.start] for name, part in system.rows.items()}
    locks = {c.name: c.fn for c in system.constraints if isinstance(c.fn, LockResidual)}
    active = [jnp.broadcast_to(first.get(name, True), part.stop - part.start) for name, part in free.rows.items()]
    active = jnp.concatenate([jnp.zeros(0, bool), *active, *(first[name][None] for name in locks)])
    brakes = system.resistance_fn
    if not isinstance(brakes, BrakeForce):
        return free.with_locks(active, (), (), None)
    there = lambda fn: _InOtherCoordinates(fn, linkage_of(system), linkage_of(free))
    # One constraint for all of them, so that the coordinates of the other build are measured once.
    rows = Holonomic("locks", there(PoseFunctions(tuple(locks.values()))), dict.fromkeys(locks, 1))
    return free.with_locks(active, [rows], [len(locks)], dataclasses.replace(brakes, fn=there(brakes.fn)))
