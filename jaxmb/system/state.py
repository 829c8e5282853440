"""The state of a system."""

import equinox as eqx
from jaxtyping import Array, Float

from .mode import Mode


class State(eqx.Module):
    """A point of a motion, made by `jaxmb.assemble`.

    Attributes:
        t: time in s.
        q: coordinates (nq,).
        v: velocities (nv,).
        scale: reference sizes σ (m,) of the constraint rows, fixed when the state was assembled (see `jaxmb.linalg`).
        mode: which constraints act; None where all do.
    """

    t: Float[Array, "..."]
    q: Float[Array, "... nq"]
    v: Float[Array, "... nv"]
    scale: Float[Array, "... m"]
    mode: Mode | None = None
