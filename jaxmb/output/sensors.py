"""Sensors: what instruments in a mechanism would show."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..foundations import RESULTS, AllNonNegative, Key, NoNaN, Positive, as_floats, contract
from ..mechanism import Marker, linkage_of, marker
from ..simulation import Solution
from ..system import State, System
from .points import acceleration, coordinate, rate
from .quantities import over_states
from .wrench import Frame, joint_reaction


class AbstractSensor(eqx.Module):
    """An instrument with a name; `sensor(system, motion)` returns its reading.

    Use it in `jaxmb.fit.Signal` and in observations. Its numbers are leaves, and derivatives go through it.
    """

    name: str = eqx.field(static=True)
    sigma: Float[Array, "*k"]

    def __call__(
        self, system: System, motion: Solution | State, u: NoNaN | None = None, *, key: Key | None = None
    ) -> Float[Array, "..."]:
        """What the sensor shows; NaN where no acceleration is determined.

        Args:
            system: built from a mechanism.
            motion: a solution, or a state; leading axes are kept.
            u: inputs (..., nu); those of the solution by default, none for a state.
            key: of `jax.random`, for noise of standard deviation `sigma`; none by default. Equal keys give equal noise.
        """
        value = self.ideal(system, motion, u)
        if key is not None:
            value = value + self.sigma * jax.random.normal(key, value.shape, value.dtype)
        return self.shown(value)

    @abc.abstractmethod
    def ideal(self, system: System, motion: Solution | State, u: NoNaN | None) -> Float[Array, "..."]:
        """What is measured, without noise."""

    def shown(self, value: Float[Array, "..."]) -> Float[Array, "..."]:
        """The reading for a measured value."""
        return value


class IMU(AbstractSensor):
    """An inertial measurement unit at a point of a body: specific force and angular velocity in the axes of that point.

        f = Rᵀ(a − g),   Ω = Rᵀω

    At rest it shows −g, upwards. (f, Ω) has shape (…, 6) in m/s² and rad/s, (…, 3) in the plane. The acceleration
    follows from the equations of motion (Titterton and Weston, *Strapdown Inertial Navigation Technology*, 2004,
    chapter 3).

    Args:
        point: "body", "body.point", (body, position) or (body, pose), whose axes are those of the sensor.
        name: its name.
        sigma: standard deviation of its noise, a number or (k,).

    Example:
        >>> import jaxmb as jm
        >>> P = jm.planar
        >>> rod = P.Mechanism([P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("pivot", "ground", "rod.a")], gravity=(0.0, -9.81)).build()
        >>> [round(float(x), 6) + 0.0 for x in jm.output.IMU("rod.a")(rod, jm.assemble(rod, {"pivot": 0.0}))]
        [0.0, 9.81, 0.0]
    """

    point: Marker

    @contract
    def __init__(self, point: object, *, name: str = "imu", sigma: AllNonNegative = 0.0):
        self.point, self.name = marker(point, "point"), name
        self.sigma = as_floats(sigma)

    def ideal(self, system: System, motion: Solution | State, u: NoNaN | None) -> Float[Array, "... k"]:
        """Specific force and rate of turn."""
        a = acceleration(system, motion, self.point, u=u, throw=False)
        return over_states(_Inertial(self.point), system, motion, a)


class _Inertial(eqx.Module):
    point: Marker

    def __call__(self, system: System, state: State, a: Array) -> Array:
        motion = linkage_of(system).motion(state.t, state.q, state.v, system.params)
        omega, rotation = motion.angular_velocity(self.point), motion.rotation(self.point)
        force = rotation.T @ (a - motion.numbers.gravity)
        return jnp.concatenate([force, omega if omega.shape[0] == 1 else rotation.T @ omega])


class Encoder(AbstractSensor):
    """An encoder at a joint: its coordinate, rounded to steps.

        shown = resolution · round(s / resolution)

    The derivative is that of the coordinate, as if it were not rounded, so that searches can use it.

    Args:
        joint: "joint", or "joint.coordinate" where it has several; with "'" behind it its rate.
        resolution: size of a step in m or rad, for a rate in m/s or rad/s.
        name: its name; the joint's by default.
        sigma: standard deviation of noise that is added before it is rounded.
    """

    joint: str = eqx.field(static=True)
    resolution: Float[Array, ""]

    @contract
    def __init__(self, joint: str, resolution: Positive, *, name: str | None = None, sigma: AllNonNegative = 0.0):
        self.joint, self.name = joint, name or joint
        self.resolution, self.sigma = (as_floats(x) for x in (resolution, sigma))

    def ideal(self, system: System, motion: Solution | State, u: NoNaN | None) -> Float[Array, "..."]:
        """The coordinate."""
        base = self.joint.removesuffix("'")
        return (coordinate if base == self.joint else rate)(system, motion, base)

    def shown(self, value: Float[Array, "..."]) -> Float[Array, "..."]:
        """The nearest step."""
        return value + lax.stop_gradient(self.resolution * jnp.round(value / self.resolution) - value)


class LoadCell(AbstractSensor):
    """A load cell in a joint: force and torque on a body, as `jaxmb.joint_reaction` finds them.

    The shape is (…, 6) in space, (…, 3) in the plane, in N and N m. If a rigid model does not determine the reaction, it is the one of least norm.

    Args:
        joint: name of the joint.
        on: the body; that of the joint's B by default.
        frame: axes: "world", "body" or "joint".
        name: its name; the joint's by default.
        sigma: standard deviation of its noise, a number or (k,).
    """

    joint: str = eqx.field(static=True)
    on: str | None = eqx.field(static=True)
    frame: Frame = eqx.field(static=True)

    @contract
    def __init__(
        self,
        joint: str,
        *,
        on: str | None = None,
        frame: Frame = "joint",
        name: str | None = None,
        sigma: AllNonNegative = 0.0,
    ):
        self.joint, self.on, self.frame, self.name = joint, on, frame, name or joint
        self.sigma = as_floats(sigma)

    def ideal(self, system: System, motion: Solution | State, u: NoNaN | None) -> Float[Array, "... k"]:
        """Force and torque."""
        wrench = joint_reaction(system, motion, self.joint, on=self.on, frame=self.frame, u=u, warn=False, throw=False)
        value = jnp.concatenate([wrench.force, wrench.torque], axis=-1)
        return jnp.where((wrench.result == RESULTS.successful)[..., None], value, jnp.nan)
