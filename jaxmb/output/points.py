"""Named outputs: motions of the points of a mechanism, joint coordinates, and forces of its elements."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation
from ..foundations import RESULTS, NoNaN, contract
from ..mechanism import JointInertia, Marker, Motion, joint_loads, linkage_of, marker
from ..simulation import Solution
from ..system import State, System, in_turn
from .quantities import inputs_of, over_states, reactions


@contract
def position(system: System, motion: Solution | State, point: object) -> Float[Array, "... d"]:
    """The position of a point in m, in the world.

    Args:
        system: built from a mechanism.
        motion: a solution, or a state; leading axes are kept.
        point: "body", "body.point" or (body, position).
    """
    return _at(system, motion, Motion.position, marker(point, "point"))


@contract
def velocity(system: System, motion: Solution | State, point: object) -> Float[Array, "... d"]:
    """The velocity of a point in m/s; arguments as in `position`."""
    return _at(system, motion, Motion.velocity, marker(point, "point"))


@contract
def angular_velocity(system: System, motion: Solution | State, point: object) -> Float[Array, "..."]:
    """The angular velocity ω of a body in rad/s in the axes of the world, (..., 3), or (...) in the plane; arguments as in `position`."""
    omega = _at(system, motion, Motion.angular_velocity, marker(point, "point"))
    return omega[..., 0] if omega.shape[-1] == 1 else omega


@contract
def acceleration(
    system: System,
    motion: Solution | State,
    point: object,
    *,
    formulation: AbstractFormulation | None = None,
    u: NoNaN | None = None,
    throw: bool = True,
) -> Float[Array, "... d"]:
    """The acceleration of a point in m/s²; arguments and errors as in `position` and `reactions`.

    It is NaN where no acceleration is determined and `throw` is False.
    """
    linkage_of(system)
    reaction = reactions(system, motion, formulation=formulation, u=u, throw=throw)
    # A failed solution may still hold finite numbers, as where the motion is indeterminate: NaN keeps them from being read.
    vdot = jnp.where((reaction.result == RESULTS.successful)[..., None], reaction.vdot, jnp.nan)
    return over_states(_PointAcceleration(marker(point, "point")), system, motion, vdot)


@contract
def angle_between(
    system: System, motion: Solution | State, one: object, at: object, other: object
) -> Float[Array, "..."]:
    """The angle in rad, between 0 and π, between the lines from one point to two others.

    The transmission angle of a four-bar is the one at the joint of coupler and rocker, between the lines to their other joints.

    Args:
        system: built from a mechanism.
        motion: a solution, or states such as those of a `MotionCurve`; leading axes are kept.
        one: a point on the first line.
        at: the point where the lines meet.
        other: a point on the second line.
    """
    points = {"one": one, "at": at, "other": other}
    a, corner, b = (_at(system, motion, Motion.position, marker(point, name)) for name, point in points.items())
    a, b = a - corner, b - corner
    size = lambda x: jnp.linalg.norm(x, axis=-1, keepdims=True)
    a, b = a / size(a), b / size(b)
    # Kahan's formula: arccos of a product of unit vectors loses half of the digits near 0 and π, and its derivative there is infinite.
    return 2 * jnp.arctan2(size(a - b), size(a + b))[..., 0]


@contract
def pose(system: System, motion: Solution | State, point: object) -> Float[Array, "... D D"]:
    """The pose [[R, p], [0, 1]] of a body or a point in the world; arguments as in `position`."""
    return _at(system, motion, Motion.pose, marker(point, "point"))


@contract
def coordinate(system: System, motion: Solution | State, name: str) -> Float[Array, "..."]:
    """A joint coordinate in m or rad, whether or not it is a coordinate of the system.

    Angles of joints whose turns are not counted lie between −π and π; along a solution they are
    made continuous by their rates, for which the trapezoidal rule must give the motion between two saved times to half a turn.

    Args:
        system: built from a mechanism.
        motion: a solution, or a state; leading axes are kept.
        name: "joint", or "joint.coordinate" where it has several.
    """
    linkage = linkage_of(system)
    # Only along a solution: states by themselves have no order in which turns could be counted. Times are its last axis.
    if not (isinstance(motion, Solution) and linkage.wraps(name)):
        return _at(system, motion, Motion.coordinate, name)
    values, rates = jnp.moveaxis(_at(system, motion, _angle_and_rate, name), -1, 0)
    ways = 0.5 * (rates[..., 1:] + rates[..., :-1]) * jnp.diff(motion.ts)
    expected = jnp.cumsum(jnp.pad(ways, [(0, 0)] * (ways.ndim - 1) + [(1, 0)]), axis=-1)
    turned = expected + jnp.unwrap(values - expected, axis=-1)
    # Whole turns alone are added: nothing is lost of the digits and derivatives of the angle.
    return in_turn(values, turned)


@contract
def rate(system: System, motion: Solution | State, name: str) -> Float[Array, "..."]:
    """A joint velocity in m/s or rad/s; arguments as in `coordinate`."""
    return _at(system, motion, Motion.rate, name)


@contract
def force(system: System, motion: Solution | State, name: str, *, u: NoNaN | None = None) -> Float[Array, "..."]:
    """The force of an element, in N and N m; the components are those that its class documents.

    Args:
        system: built from a mechanism.
        motion: a solution, or a state; leading axes are kept.
        name: name of the element.
        u: inputs (..., nu), needed if the element depends on reactions or accelerations; those of the solution by default.
    """
    linkage_of(system)
    names = [element.name for element in system.params.forces]
    if name not in names:
        raise ValueError(
            f"Argument `name` must be a force element out of {', '.join(names) or 'none'}, but is '{name}'."
        )
    u = inputs_of(system, motion, u)
    index = names.index(name)
    # Accelerations cost a solution of the equations of motion, and only inertia forces read them.
    needs_accelerations = isinstance(system.params.forces[index], JointInertia)
    vdot = reactions(system, motion, u=u).vdot if needs_accelerations else None
    return over_states(_Value(index), system, motion, u, vdot)


def _at(system: System, motion: Solution | State, read: Callable[..., Array], argument: Marker | str) -> Array:
    """`read(motion of the mechanism, argument)` at each state."""
    linkage_of(system)
    return over_states(_PointReader(read, argument), system, motion)


def _angle_and_rate(motion: Motion, name: str) -> Float[Array, "2"]:
    return jnp.stack([motion.coordinate(name), motion.rate(name)])


class _PointReader(eqx.Module):
    # Static, as a function; what is read, a marker, may hold positions that are differentiated.
    read: Callable[..., Array] = eqx.field(static=True)
    argument: Marker | str

    def __call__(self, system: System, state: State) -> Array:
        return self.read(linkage_of(system).motion(state.t, state.q, state.v, system.params), self.argument)


class _PointAcceleration(eqx.Module):
    marker: Marker

    def __call__(self, system: System, state: State, vdot: Array) -> Array:
        # The derivative of the point's velocity along (N v, v̇), in place of formulas for centripetal and Coriolis terms.
        speed = lambda q, v: linkage_of(system).motion(state.t, q, v, system.params).velocity(self.marker)
        return jax.jvp(speed, (state.q, state.v), (system.qdot(state.q, state.v), vdot))[1]


class _Value(eqx.Module):
    index: int = eqx.field(static=True)

    def __call__(self, system: System, state: State, u: Array | None, vdot: Array | None) -> Array:
        t, q, v = state.t, state.q, state.v
        linkage = linkage_of(system)
        motion = linkage.motion(t, q, v, system.params)
        if vdot is not None:
            rates = lambda q, v: linkage.motion(t, q, v, system.params).rates
            change = jax.jvp(rates, (q, v), (system.qdot(q, v), vdot))[1]
            motion = dataclasses.replace(motion, accelerations=(vdot, change))
        # Loads of joints cost a solution of the equations of motion, and only friction by reactions reads them.
        if linkage.connectivity.load_joints:
            motion = dataclasses.replace(motion, loads=joint_loads(linkage, t, q, v, system.params, u))
        return motion.numbers.forces[self.index].value(motion)
