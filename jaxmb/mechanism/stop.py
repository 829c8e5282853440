"""Stops of joints."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import NonNegative, Number, as_floats, contract, floats_or_none, is_concrete
from .force import AbstractForce
from .motion import Motion

Scalar = Float[Array, ""]


class JointStop(AbstractForce):
    """Stops that hold a joint coordinate s between bounds: f = k δ max(1 + d δ̇, 0), directed inwards.

    δ is how far s is beyond its bound, zero between them. The force grows from zero, since damping is proportional to δ too, and
    it never pulls (Hunt and Crossley 1975, doi 10.1115/1.3423596). With a small speed v the joint bounces back with the coefficient of
    restitution 1 − ⅔ d v.

    Args:
        name: its name.
        joint: name of the joint, or "joint.coordinate" where it has several; coordinate and velocity must go by one name.
        lower: the least s in m or rad; no stop there by default.
        upper: the largest s; no stop there by default.
        stiffness: k in N/m or N m/rad.
        damping: d in s/m or s/rad; none by default.

    Raises:
        ValueError: without any bound, and for a lower one above the upper.
    """

    joint: str = eqx.field(static=True)
    lower: Scalar | None
    upper: Scalar | None
    stiffness: Scalar
    damping: Scalar

    @contract
    def __init__(
        self,
        name: str,
        joint: str,
        lower: Number | None = None,
        upper: Number | None = None,
        *,
        stiffness: NonNegative,
        damping: NonNegative = 0.0,
    ):
        self.name, self.joint = name, joint
        self.lower, self.upper = map(floats_or_none, (lower, upper))
        self.stiffness, self.damping = map(as_floats, (stiffness, damping))
        self.check()

    def check(self) -> None:
        """There is a bound, and a lower one is not above the upper one."""
        if self.lower is None or self.upper is None:
            if self.lower is self.upper:
                raise ValueError(f"Force '{self.name}' must have `lower` or `upper`, but has neither.")
        elif is_concrete(self.lower, self.upper) and self.lower > self.upper:
            raise ValueError(
                f"Argument `lower` of force '{self.name}' must not be above `upper`, but is {float(self.lower):g} above {float(self.upper):g}."
            )

    def coordinates(self) -> tuple[str, ...]:
        """The joint coordinate: full turns count."""
        return (self.joint,)

    def _stops(self, motion: Motion) -> list[tuple[float, Scalar]]:
        """Of each stop the direction outwards, and δ."""
        s = motion.coordinate(self.joint)
        ends = [(-1.0, self.lower), (1.0, self.upper)]
        return [(side, jnp.maximum(side * (s - bound), 0)) for side, bound in ends if bound is not None]

    def _force(self, motion: Motion, spring: float) -> Scalar:
        """The force f with a part of the spring: all of it, or none for damping alone."""
        rate, force = motion.rate(self.joint), jnp.zeros((), motion.q.dtype)
        for side, depth in self._stops(motion):
            # max(1 + d δ̇, 0) is the 1 of the spring, and damping that never outweighs it.
            force = force - side * self.stiffness * depth * (spring + jnp.maximum(self.damping * side * rate, -1))
        return force

    def power(self, motion: Motion, test: Motion) -> Scalar:
        """The power of the damping; the spring has a potential."""
        return self._force(motion, 0.0) * test.rate(self.joint)

    def potential(self, motion: Motion) -> Scalar:
        """½ k δ²."""
        return sum((0.5 * self.stiffness * x**2 for _, x in self._stops(motion)), jnp.zeros((), motion.q.dtype))

    def value(self, motion: Motion) -> Scalar:
        """f, along the coordinate."""
        return self._force(motion, 1.0)
