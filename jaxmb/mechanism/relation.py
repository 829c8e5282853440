"""Relations between joint coordinates."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import NonZero, Number, as_floats, contract
from .connection import AbstractRelation

Scalar = Float[Array, ""]


class Gear(AbstractRelation):
    """A pair of gears or a belt: s₂ = ratio · s₁ + offset.

    If both joints sit on a common carrier this is a planetary stage. Full turns count.

    Args:
        name: its name.
        joints: names of the two joints, or "joint.coordinate" where one has several.
        ratio: −r₁/r₂ for outer gears, r₁/r₂ for inner gears and belts.
        offset: s₂ where s₁ = 0.
    """

    ratio: Scalar
    offset: Scalar
    units: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("m", "rad"), ("m", "rad"))

    @contract
    def __init__(self, name: str, joints: Sequence[str], ratio: NonZero, offset: Number = 0.0):
        self.name, self.joints = name, pair_of(joints, name)
        self.ratio, self.offset = as_floats(ratio), as_floats(offset)

    def factors(self) -> Float[Array, "3"]:
        """The factors of s₂ − ratio · s₁ = offset."""
        return jnp.stack([-self.ratio, jnp.ones(()), self.offset])


class Rack(AbstractRelation):
    """A pinion on a rack: s = r θ + offset.

    Args:
        name: its name.
        pinion: name of the joint that turns by θ.
        rack: name of the joint that shifts by s.
        radius: r in m, with the sign that the directions of both joints ask for.
        offset: s where θ = 0, in m.
    """

    radius: Scalar
    offset: Scalar
    units: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("rad",), ("m",))

    @contract
    def __init__(self, name: str, pinion: str, rack: str, radius: NonZero, offset: Number = 0.0):
        self.name, self.joints = name, pair_of((pinion, rack), name)
        self.radius, self.offset = as_floats(radius), as_floats(offset)

    @property
    def pinion(self) -> str:
        """The joint that turns."""
        return self.joints[0]

    @property
    def rack(self) -> str:
        """The joint that shifts."""
        return self.joints[1]

    def factors(self) -> Float[Array, "3"]:
        """The factors of s − r θ = offset."""
        return jnp.stack([-self.radius, jnp.ones(()), self.offset])


def pair_of(joints: Sequence[str], name: str) -> tuple[str, str]:
    """Two names."""
    if isinstance(joints, str) or len(joints) != 2 or joints[0] == joints[1]:
        raise ValueError(f"Argument `joints` of '{name}' must be the names of two joints, but is {joints!r}.")
    return (joints[0], joints[1])
