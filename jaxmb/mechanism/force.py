"""Forces between bodies, in joints and by inputs.

An element states its virtual power: the power of its force at the present motion when the bodies move as in a test motion at
the same poses. Generalised forces follow by differentiation, in any coordinates.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import (
    Finite,
    FunctionOfForce,
    NonNegative,
    Number,
    Positive,
    TextInNotebooks,
    as_floats,
    as_function,
    contract,
    default_float,
    positive_or_one,
    square_root,
)
from .marker import Marker, MarkerLike, as_vector, marker
from .motion import Motion

Scalar = Float[Array, ""]
# The default v₀ of dry friction in m/s or rad/s.
FRICTION_SPEED = 1e-2


class AbstractForce(TextInNotebooks, eqx.Module):
    """An element that exerts forces. To add one, inherit and define `power` and `value`, and the rest where it differs.

    Attributes:
        name: its name.
    """

    name: str = eqx.field(static=True)

    def coordinates(self) -> tuple[str, ...]:
        """Names of the joint coordinates, "joint" for all of it, that are read with their full turns; none by default."""
        return ()

    def loads(self) -> tuple[str, ...]:
        """Names of the joints whose reaction forces, `motion.load`, `power` is linear in; none by default."""
        return ()

    @property
    def breaks(self) -> Float[Array, " k"]:
        """Times at which a derivative of the force jumps; none by default."""
        return jnp.zeros(0, default_float())

    @abc.abstractmethod
    def power(self, motion: Motion, test: Motion) -> Scalar:
        """The virtual power in W of the force without potential; linear in the velocities of `test`."""

    def potential(self, motion: Motion) -> Scalar:
        """The potential energy in J, a function of the pose only; zero by default."""
        return jnp.zeros((), motion.q.dtype)

    @abc.abstractmethod
    def value(self, motion: Motion) -> Array:
        """The force or torque in N or N m, as the class says."""

    def check(self) -> None:
        """Refuses numbers that do not fit each other; all do by default."""


class AbstractLineForce(AbstractForce):
    """A force along the line between two markers."""

    a: Marker
    b: Marker

    def length_of(self, motion: Motion) -> Scalar:
        """The distance l of the markers; its derivative is set to zero where they meet."""
        return square_root(jnp.sum((motion.position(self.b) - motion.position(self.a)) ** 2))

    def speed(self, motion: Motion) -> Scalar:
        """l̇, positive where they part."""
        gap, length = motion.position(self.b) - motion.position(self.a), self.length_of(motion)
        return jnp.dot(gap, motion.velocity(self.b) - motion.velocity(self.a)) / positive_or_one(length)


class SpringDamper(AbstractLineForce):
    """A spring and a damper between two points: f = k (l − l₀) + c l̇, positive in tension.

    Args:
        name: its name.
        a: a marker.
        b: another marker; the points must not meet where f ≠ 0.
        stiffness: k in N/m.
        damping: c in N s/m.
        length: l₀ in m.
    """

    stiffness: Scalar
    damping: Scalar
    length: Scalar

    @contract
    def __init__(
        self,
        name: str,
        a: MarkerLike,
        b: MarkerLike,
        stiffness: Number = 0.0,
        damping: Number = 0.0,
        length: NonNegative = 0.0,
    ):
        self.name = name
        self.a, self.b = marker(a, f"a of force '{name}'"), marker(b, f"b of force '{name}'")
        self.stiffness, self.damping, self.length = map(as_floats, (stiffness, damping, length))

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """−c l̇ l̇_test, the power of the damper; the spring has a potential."""
        return -self.damping * self.speed(motion) * self.speed(test)

    def potential(self, motion: Motion) -> Scalar:
        """½ k (l − l₀)²."""
        return 0.5 * self.stiffness * (self.length_of(motion) - self.length) ** 2

    def value(self, motion: Motion) -> Scalar:
        """f, in tension."""
        return self.stiffness * (self.length_of(motion) - self.length) + self.damping * self.speed(motion)


class JointSpring(AbstractForce):
    """A spring and a damper along a joint coordinate: f = −k (s − s₀) − c ṡ.

    Args:
        name: its name.
        joint: name of the joint, or "joint.coordinate" where it has several; coordinate and velocity must go by one name.
        stiffness: k in N/m or N m/rad.
        damping: c in N s/m or N m s/rad.
        rest: s₀ in m or rad.
    """

    joint: str = eqx.field(static=True)
    stiffness: Scalar
    damping: Scalar
    rest: Scalar

    @contract
    def __init__(self, name: str, joint: str, stiffness: Number = 0.0, damping: Number = 0.0, rest: Number = 0.0):
        self.name, self.joint = name, joint
        self.stiffness, self.damping, self.rest = map(as_floats, (stiffness, damping, rest))

    def coordinates(self) -> tuple[str, ...]:
        """The joint coordinate: full turns count."""
        return (self.joint,)

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """−c ṡ ṡ_test, the power of the damper; the spring has a potential."""
        return -self.damping * motion.rate(self.joint) * test.rate(self.joint)

    def potential(self, motion: Motion) -> Scalar:
        """½ k (s − s₀)²."""
        return 0.5 * self.stiffness * (motion.coordinate(self.joint) - self.rest) ** 2

    def value(self, motion: Motion) -> Scalar:
        """f, along the coordinate."""
        stretch = motion.coordinate(self.joint) - self.rest
        return -self.stiffness * stretch - self.damping * motion.rate(self.joint)


class JointFriction(AbstractForce):
    """Friction in all velocities of a joint: f = −c v − f_C tanh(v/v₀), viscous and regularised Coulomb.

    Args:
        name: its name.
        joint: name of the joint.
        viscous: c in N s/m or N m s/rad.
        coulomb: f_C in N or N m, which does not depend on the joint's reaction.
        speed: v₀ in m/s or rad/s, at which Coulomb friction reaches three quarters of f_C; small values are stiff.
    """

    joint: str = eqx.field(static=True)
    viscous: Scalar
    coulomb: Scalar
    speed: Scalar

    @contract
    def __init__(
        self,
        name: str,
        joint: str,
        viscous: NonNegative = 0.0,
        coulomb: NonNegative = 0.0,
        speed: Positive = FRICTION_SPEED,
    ):
        self.name, self.joint = name, joint
        self.viscous, self.coulomb, self.speed = map(as_floats, (viscous, coulomb, speed))

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """F · v_test."""
        return jnp.dot(self.value(motion), test.joint_rates(self.joint))

    def value(self, motion: Motion) -> Float[Array, " nv"]:
        """f, along each velocity of the joint."""
        v = motion.joint_rates(self.joint)
        # tanh in place of the sign: the force stays a function of the state, and v̇ stays smooth. It creeps where dry
        # friction sticks; locks and `Brake` model sticking exactly.
        return -self.viscous * v - self.coulomb * jnp.tanh(v / self.speed)


class BearingFriction(AbstractForce):
    """Dry friction in a joint that grows with the joint's load: f = −μ r |F| tanh(v/v₀), F the reaction force.

    The reaction in turn depends on the friction; both are solved for together. The motion is determined only if a rigid model determines
    the load: `simulate` warns of other loads by name, see `jaxmb.analyse_reactions`. F is the whole force that the joint's
    constraints transmit, along its axis too; its torque does not count.

    Args:
        name: its name.
        joint: name of the joint.
        coefficient: μ.
        radius: r in m, for velocities that are angular; not used for shifts.
        speed: v₀ in m/s or rad/s, at which friction reaches three quarters; small values are stiff.
    """

    joint: str = eqx.field(static=True)
    coefficient: Scalar
    radius: Scalar
    speed: Scalar

    @contract
    def __init__(
        self,
        name: str,
        joint: str,
        coefficient: NonNegative,
        radius: NonNegative = 1.0,
        speed: Positive = FRICTION_SPEED,
    ):
        self.name, self.joint = name, joint
        self.coefficient, self.radius, self.speed = map(as_floats, (coefficient, radius, speed))

    def loads(self) -> tuple[str, ...]:
        """The joint whose reaction is the load."""
        return (self.joint,)

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """F · v_test."""
        return jnp.dot(self.value(motion), test.joint_rates(self.joint))

    def value(self, motion: Motion) -> Float[Array, " nv"]:
        """f, along each velocity of the joint."""
        v, shifts = motion.joint_rates(self.joint), len(motion.slot(self.joint).pair.axes)
        # Velocities of a pair are those of its shifts first, then angular ones, for which friction acts at the
        # radius.
        arms = jnp.where(jnp.arange(v.shape[0]) < shifts, 1.0, self.radius)
        # Linear in the load, on which `joint_loads` relies: it finds the loads by the response of reactions to unit
        # ones.
        return -self.coefficient * arms * motion.load(self.joint) * jnp.tanh(v / self.speed)


class Load(AbstractForce):
    """A constant force and torque at a point.

    Args:
        name: its name.
        at: its marker.
        force: (d,) in N; none by default.
        torque: a number in the plane, (3,) in space, in N m; none by default.
        follows: whether both turn with the body, or keep their directions in the world.
    """

    at: Marker
    force: Float[Array, " d"] | None
    torque: Float[Array, " k"] | None
    follows: bool = eqx.field(static=True)

    @contract
    def __init__(
        self,
        name: str,
        at: MarkerLike,
        force: Finite | None = None,
        torque: Finite | None = None,
        follows: bool = False,
    ):
        self.name, self.at, self.follows = name, marker(at, f"at of force '{name}'"), follows
        self.force = None if force is None else as_vector(force, f"force of force '{name}'", (2,), (3,))
        self.torque = (
            None if torque is None else jnp.atleast_1d(as_vector(torque, f"torque of force '{name}'", (), (1,), (3,)))
        )

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """F · v_test + τ · ω_test."""
        return wrench_power(self.value(motion), self.at, test)

    def value(self, motion: Motion) -> Float[Array, " w"]:
        """Force, then torque, in the world."""
        dim = motion.linkage.dim
        force = jnp.zeros(dim) if self.force is None else self.force
        torque = jnp.zeros(1 if dim == 2 else 3) if self.torque is None else self.torque
        # In the plane a torque has one component, about the normal, and stays as it is.
        if self.follows:
            turned = motion.rotation(self.at)
            force, torque = turned @ force, turned @ torque if dim == 3 else torque
        return jnp.concatenate([force, torque])


class Force(AbstractForce):
    """Any force and torque at a point, by a function.

    Args:
        name: its name.
        at: its marker.
        fn: `fn(motion)` returns force and torque, in one array in the world: (fx, fy, τ) in the plane, (fx, fy, fz, τx, τy, τz)
            in space. It may read all positions and velocities of the `Motion`, its time `motion.t` and `motion.params`; angles of joints outside
            the tree between −π and π, unless an element at the joint counts their turns, such as a `JointSpring` without stiffness.
    """

    at: Marker
    fn: FunctionOfForce

    @contract
    def __init__(self, name: str, at: MarkerLike, fn: FunctionOfForce):
        self.name, self.at, self.fn = (
            name,
            marker(at, f"at of force '{name}'"),
            as_function(fn, f"fn of force '{name}'"),
        )

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """F · v_test + τ · ω_test."""
        return wrench_power(self.value(motion), self.at, test)

    def value(self, motion: Motion) -> Float[Array, " w"]:
        """Force, then torque, in the world."""
        return as_floats(self.fn(motion))


class JointForce(AbstractForce):
    """Any force or torque along the velocities of a joint, by a function.

    Args:
        name: its name.
        joint: name of the joint.
        fn: `fn(motion)` returns an effort for each velocity of the joint, or one number. It reads angles of this joint with their
            full turns, those of other joints outside the tree between −π and π, unless an element there counts them, such as a `JointSpring`
            without stiffness.
    """

    joint: str = eqx.field(static=True)
    fn: FunctionOfForce

    @contract
    def __init__(self, name: str, joint: str, fn: FunctionOfForce):
        self.name, self.joint, self.fn = name, joint, as_function(fn, f"fn of force '{name}'")

    def coordinates(self) -> tuple[str, ...]:
        """Those of the joint."""
        return (self.joint,)

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """F · v_test."""
        # A product, not `dot`: one number stands for all velocities of the joint.
        return jnp.sum(self.value(motion) * test.joint_rates(self.joint))

    def value(self, motion: Motion) -> Float[Array, "..."]:
        """f, along each velocity of the joint."""
        return as_floats(self.fn(motion))


def wrench_power(wrench: Float[Array, " w"], at: Marker, test: Motion) -> Scalar:
    """The virtual power f · v + τ · ω of a wrench (force, torque) at a marker, in a test motion."""
    dim = test.linkage.dim
    return jnp.dot(wrench[:dim], test.velocity(at)) + jnp.dot(wrench[dim:], test.angular_velocity(at))


class AbstractActuator(TextInNotebooks, eqx.Module):
    """An element whose force is an input u times a fixed direction.

    Attributes:
        name: its name.
    """

    name: str = eqx.field(static=True)

    @abc.abstractmethod
    def power(self, motion: Motion, test: Motion) -> Scalar:
        """The virtual power of a unit input."""


class Motor(AbstractActuator):
    """An input that acts along a joint coordinate, f = gain · u.

    Args:
        name: its name.
        joint: name of the joint, or "joint.velocity" where it has several.
        gain: for example a gear ratio times a motor constant.
    """

    joint: str = eqx.field(static=True)
    gain: Scalar

    @contract
    def __init__(self, name: str, joint: str, gain: Number = 1.0):
        self.name, self.joint, self.gain = name, joint, as_floats(gain)

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """The power gain · ṡ_test."""
        return self.gain * test.rate(self.joint)


class Thruster(AbstractActuator):
    """An input that pushes a point in a direction fixed on its body, f = u d.

    Args:
        name: its name.
        at: its marker.
        direction: d in the frame of that marker, with the gain as its length.
    """

    at: Marker
    direction: Float[Array, " d"]

    @contract
    def __init__(self, name: str, at: MarkerLike, direction: Finite):
        self.name, self.at = name, marker(at, f"at of actuator '{name}'")
        self.direction = as_vector(direction, f"direction of actuator '{name}'", (2,), (3,))

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """The power d · v_test."""
        return jnp.dot(motion.rotation(self.at) @ self.direction, test.velocity(self.at))
