"""Inputs that act along coordinates of joints."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
    fns: tuple[Any, ...]
    rate: Any
    nv: int = eqx.field(static=True)

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: Any) -> Float[Array, "nv k"]:
        """B."""
        values = lambda q: jnp.stack([jnp.reshape(fn(t, q, params), ()) for fn in self.fns])
        rows = jax.jacrev(values)(q)
        return (rows if self.rate is None else rows @ rate_matrix(lambda q, v: self.rate(q, v, params), q, self.nv)).T
