"""The state of a system."""

import equinox as eqx
from jaxtyping import Array, Float


class State(eqx.Module):
    """A point of a motion, made by `jaxmb.assemble`.

    Attributes:
        t: time in s.
        q: coordinates (nq,).
        v: velocities (nv,).
        scale: reference sizes σ (m,) of the constraint rows, fixed when the state was assembled (see `jaxmb.linalg`).
    """

    t: Float[Array, "..."]
    q: Float[Array, "... nq"]
    v: Float[Array, "... nv"]
    scale: Float[Array, "... m"]
