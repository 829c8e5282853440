"""Inputs that act along coordinates of joints."""

from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..foundations import expect_different
from .inertia import rate_matrix

Scalar = Float[Array, ""]


class JointDirections(eqx.Module):
    """B = ∂ṡ/∂v of functions s_i(t, q, params): the inputs' power is Σ u_i ṡ_i.

    Attributes:
        names: of the joint coordinates.
        fns: the functions.
        rate: N(q) v, None where q̇ = v.
        nv: number of velocities.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    fns: tuple[Callable[..., Array], ...]
    rate: Callable[..., Array] | None
    nv: int = eqx.field(static=True)

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> Float[Array, "nv k"]:
        """B."""
        values = lambda q: jnp.stack([jnp.reshape(fn(t, q, params), ()) for fn in self.fns])
        # Reverse mode, as inputs are seldom more than coordinates. By virtual power B is (∂s/∂q N)ᵀ; the explicit time of s has no part
        # in it.
        rows = jax.jacrev(values)(q)
        rate = self.rate
        return (rows if rate is None else rows @ rate_matrix(lambda q, v: rate(q, v, params), q, self.nv)).T


def joint_names(joints: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Names as a tuple.

    Raises:
        ValueError: for a name that comes twice.
    """
    # A string is a sequence of letters, too.
    names = (joints,) if isinstance(joints, str) else None if joints is None else tuple(joints)
    expect_different("`joints`", names or ())
    return names
