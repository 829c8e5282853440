"""The mode of a system: which constraints act, and the values that locks hold."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from .inertia import rate_transposed

Scalar = Float[Array, ""]


def in_turn(angle: Float[Array, "..."], other: Float[Array, "..."] | float = 0.0) -> Float[Array, "..."]:
    """The angle less or more the full turns by which it comes nearest to another."""
    # With the derivatives of the angle: an integrator that passes ±π sees no jump in them.
    return angle + 2 * jnp.pi * lax.stop_gradient(jnp.round((other - angle) / (2 * jnp.pi)))


class Coordinate(eqx.Module):
    """A coordinate as a function of the pose."""

    index: int = eqx.field(static=True)

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> Scalar:
        """The coordinate."""
        return q[self.index]


class LockRow(eqx.Module):
    """A function s(t, q, params) that may be held at a value, or braked by a force along it.

    Attributes:
        name: of its row.
        fn: s, a function or a pytree without numbers.
        wraps: whether s is an angle between −π and π.
    """

    name: str = eqx.field(static=True)
    fn: Callable[..., Array]
    wraps: bool = eqx.field(static=True, default=False)


class Mode(eqx.Module):
    """Which constraints of a system act, and what its locks do. Belongs to a `State`; all arrays gain its leading axes.

    Attributes:
        locks: the rows that are added to the system's own.
        active: mask (m + k,) of the rows that act, those of the system first.
        lock_values: values (k,) that locks hold.
        drag: forces (k,) along the functions of locks, of brakes that slide.
        armed: mask (e,) of the events of a run that may still happen.
        events: their names.
    """

    locks: tuple[LockRow, ...]
    active: Bool[Array, "... m"]
    lock_values: Float[Array, "... k"]
    drag: Float[Array, "... k"]
    armed: Bool[Array, "... e"]
    events: tuple[str, ...] = eqx.field(static=True, default=())


class LockResidual(eqx.Module):
    """s(t, q, params) − value, of an angle that `wraps` the shorter way round."""

    fn: Callable[..., Array]
    value: Float[Array, "..."]
    wraps: bool = eqx.field(static=True, default=False)

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> Scalar:
        """The residual."""
        gap = self.fn(t, q, params) - self.value
        return in_turn(gap) if self.wraps else gap


class PoseFunctions(eqx.Module):
    """Numbers that are functions of the pose, as one function."""

    fns: tuple[Callable[..., Array], ...]

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> Float[Array, " k"]:
        """All of them."""
        values = [jnp.reshape(fn(t, q, params), ()) for fn in self.fns]
        return jnp.stack(values) if values else jnp.zeros(0, q.dtype)


class BrakeForce(eqx.Module):
    """Forces along functions s_i(t, q, params), which `fn` returns, beside another `resistance`."""

    resistance: Callable[..., Array] | None
    rate: Callable[..., Array] | None
    fn: Callable[..., Array]
    drag: Float[Array, "... k"]

    def __call__(self, t: Scalar, q: Array, v: Array, params: PyTree, u: Array | None) -> Float[Array, " nv"]:
        """Σ f_i ∂ṡ_i/∂v."""
        # By virtual power, (∂s/∂q)ᵀ f and from there the transpose of q̇ = N v, without forming ∂s/∂q.
        (force,) = jax.vjp(lambda q: self.fn(t, q, params), q)[1](self.drag)
        rate = self.rate
        if rate is not None:
            force = rate_transposed(lambda q, v: rate(q, v, params), q, v, force)
        return force if self.resistance is None else force + self.resistance(t, q, v, params, u)
