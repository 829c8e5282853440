"""Feedback at joints."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..foundations import AllNonNegative, NoNaN, as_floats, as_function, contract, expect_shape, function_of, shape_of
from ..system import System, in_turn, joint_names
from .controller import AbstractController
from .instant import AbstractInstant
from .plant import Response

Scalar = Float[Array, ""]
Reference = Callable[[Scalar], Array]


class Constant(eqx.Module):
    """A reference that stands still."""

    value: Float[Array, " k"]

    def __call__(self, t: Scalar) -> Float[Array, " k"]:
        """The value."""
        return self.value


def reference(target: NoNaN | Reference, count: int, argument: str) -> Reference:
    """A function of time from a number, an array or a function; derivatives are those of the function."""
    if callable(target):
        fn = as_function(target, argument)
        shape_of(argument, fn, (jnp.zeros(()),), (count,), ())
        return fn
    value = as_floats(target)
    expect_shape(f"`{argument}`", value, (), (count,))
    return Constant(jnp.broadcast_to(value, (count,)))


class PID(AbstractController):
    """Proportional, derivative and integral feedback at joint coordinates.

    u = K_P e + K_D ė + K_I ∫e dt with e = s_d(t) − s. The inputs are torques and forces at these joints, whether or not they belong to
    the tree. For angles whose turns are not counted, e is taken between −π and π.

    Args:
        joints: names of joint coordinates, "joint" or "joint.coordinate".
        stiffness: K_P, a number or (k,), in N m/rad or N/m.
        damping: K_D, in N m s/rad or N s/m.
        target: s_d, a number, (k,), or a function of time that returns (k,).
        integral: K_I, in N m/(rad s) or N/(m s); none by default.

    Example:
        >>> import jaxmb as jm
        >>> law = jm.control.PID(["elbow"], stiffness=20.0, damping=2.0, target=lambda t: 0.5 * t[None])
        >>> law.acts_at
        ('elbow',)
    """

    joints: tuple[str, ...] = eqx.field(static=True)
    stiffness: Float[Array, " k"]
    damping: Float[Array, " k"]
    target: Reference
    integral: Float[Array, " k"] | None

    @contract
    def __init__(
        self,
        joints: str | Sequence[str],
        stiffness: AllNonNegative,
        damping: AllNonNegative,
        target: NoNaN | Annotated[Any, function_of("t")] = 0.0,
        integral: AllNonNegative | None = None,
    ):
        self.joints = tuple(joint_names(joints) or ())
        count = len(self.joints)
        gain = lambda x, name: reference(x, count, name)(jnp.zeros(()))
        self.stiffness, self.damping = gain(stiffness, "stiffness"), gain(damping, "damping")
        self.integral = None if integral is None else gain(integral, "integral")
        self.target = reference(target, count, "target")

    @property
    def acts_at(self) -> tuple[str, ...]:
        """The joints."""
        return self.joints

    @property
    def uses_plant(self) -> bool:
        """False."""
        return False

    def init(self, system: System) -> PyTree:
        """∫e dt."""
        # Without integral there is no state: nothing is integrated, and tolerances have nothing to say.
        return () if self.integral is None else jnp.zeros(len(self.joints))

    def errors(self, plant: AbstractInstant) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The error e and its rate ė."""
        t, system = plant.t, plant.system
        joints = system.joints
        if joints is None:
            raise ValueError(
                "Argument `system` must be built from a mechanism where a control law reads joints, but is not."
            )
        fns = [joints.coordinate(name) for name in self.joints]
        values = lambda q: jnp.stack([jnp.reshape(fn(t, q, system.params), ()) for fn in fns])
        positions, rates = jax.jvp(values, (plant.q,), (system.qdot(plant.q, plant.v),))
        target, speed = jax.jvp(self.target, (t,), (jnp.ones_like(t),))
        error = target - positions
        wraps = jnp.array([joints.wraps(name) for name in self.joints])
        return jnp.where(wraps, in_turn(error), error), speed - rates

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs u."""
        error, rate = self.errors(plant)
        u = self.stiffness * error + self.damping * rate
        return u if self.integral is None else u + self.integral * z

    def rate(self, plant: AbstractInstant, z: PyTree, response: Response | None) -> PyTree:
        """The rate of the integral, the error e."""
        return () if self.integral is None else self.errors(plant)[0]


@contract
def PD(
    joints: str | Sequence[str],
    stiffness: AllNonNegative,
    damping: AllNonNegative,
    target: NoNaN | Annotated[Any, function_of("t")] = 0.0,
) -> PID:
    """`PID` without the integral."""
    return PID(joints, stiffness, damping, target)
