"""What ties two bodies, or two joints, to each other."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import default_float
from .marker import Marker
from .pair import AbstractPair
from .pose import inverse, product

# What the name of the rows that forbid slipping ends with, where the same connection has holonomic rows too.
ROLLING = " rolling"


class AbstractConnection(eqx.Module):
    """A relation between a frame A on one body and a frame B on another.

    Attributes:
        name: a name, unique in its mechanism, that coordinates, messages and results use.
        a: the marker of A, on the body that counts as fixed.
        b: the marker of B.
        holonomic: number of rows of `residual`.
        nonholonomic: number of rows of `slip`.
    """

    name: eqx.AbstractVar[str]
    a: eqx.AbstractVar[Marker]
    b: eqx.AbstractVar[Marker]
    holonomic: ClassVar[int]
    nonholonomic: ClassVar[int]

    @classmethod
    def slip_name(cls, name: str) -> str:
        """The name of the nonholonomic rows."""
        return name + ROLLING if cls.holonomic else name

    @abc.abstractmethod
    def turns(self) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
        """Rotations of A and B in their markers."""

    @abc.abstractmethod
    def data(self) -> Float[Array, " k"]:
        """The numbers that `residual` and `slip` read."""

    @classmethod
    @abc.abstractmethod
    def residual(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """φ of the poses A and B, (holonomic,)."""

    @classmethod
    @abc.abstractmethod
    def slip(
        cls,
        a: Float[Array, "D D"],
        b: Float[Array, "D D"],
        da: Float[Array, "D D"],
        db: Float[Array, "D D"],
        data: Float[Array, " k"],
    ) -> Array:
        """ψ of the poses and their derivatives, linear in these, (nonholonomic,)."""


class AbstractJoint(AbstractConnection):
    """A connection by a lower pair, or one like it, that can be a joint of the tree or the closure of a loop.

    Its coordinates describe B in A.
    """

    pair: ClassVar[AbstractPair]

    def data(self) -> Float[Array, " k"]:
        """Nothing, as a rule."""
        return jnp.zeros(0, default_float())

    @classmethod
    def residual(cls, a: Float[Array, "D D"], b: Float[Array, "D D"], data: Float[Array, " k"]) -> Array:
        """The pair's, of B in A."""
        return cls.pair.residual(product(inverse(a), b), data)

    @classmethod
    def slip(cls, a: Any, b: Any, da: Any, db: Any, data: Any) -> Array:
        """None."""
        return jnp.zeros(0, a.dtype)


class AbstractRelation(eqx.Module):
    """A linear relation between joint coordinates, Σ factor_i s_i = offset.

    Attributes:
        name: its name.
        joints: names of the joints, or "joint.coordinate" for those with several.
    """

    name: eqx.AbstractVar[str]
    joints: eqx.AbstractVar[tuple[str, str]]
    holonomic: ClassVar[int]

    @abc.abstractmethod
    def factors(self) -> Float[Array, "3"]:
        """factor₁, factor₂ and offset."""
