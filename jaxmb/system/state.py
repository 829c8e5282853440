"""The state of a system."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import TextInNotebooks, counted, is_concrete, table
from .mode import Mode


class Scale(eqx.Module):
    """Sizes of rows, residuals and coordinates near a state; measured when the state is made, and constant along its motion.

    They scale with the units like the quantities that they measure. So decisions depend neither on units, nor on the size of single
    bodies, nor on unconnected bodies.

    Attributes:
        row: σ (m,), the size of each row of C in the metric of M, at the pose and nearby.
        span: Φ (m,), by how much φ, or the integral of ψ over time, changes while its row turns: residuals are relative to it.
        reach: ℓ (nv,), how far each coordinate alone moves while a row turns; zero where no row determines it.
        row_by_length: (m,), the size of each row of C diag(ℓ), at the pose and nearby: a metric without masses.
        rate: Ω in 1/s, how fast the motion goes, by the velocities and forces at the state; zero at rest without forces.
    """

    row: Float[Array, "... m"]
    span: Float[Array, "... m"]
    reach: Float[Array, "... nv"]
    row_by_length: Float[Array, "... m"]
    rate: Float[Array, "..."]

    def passing(self, velocity: Float[Array, "... nv"]) -> Float[Array, "..."]:
        """The largest |v_k|/ℓ_k: of velocities in 1/s, of displacements a number; a coordinate that no row reads has no reach."""
        # The inner `where` keeps the untaken quotient finite, in derivatives too.
        sized = self.reach > 0
        rates = jnp.where(sized, jnp.abs(velocity) / jnp.where(sized, self.reach, 1), 0)
        return jnp.max(rates, axis=-1, initial=0)

    def rounding_rate(self, velocity: Float[Array, " nv"]) -> Float[Array, ""]:
        """√eps max |v_k|/ℓ_k: rows that turn more slowly than that in a motion do so by rounding."""
        return jnp.finfo(velocity.dtype).eps ** 0.5 * self.passing(velocity)


class State(TextInNotebooks, eqx.Module):
    """A point of a motion, made by `jaxmb.assemble`.

    Attributes:
        t: time in s.
        q: coordinates (nq,).
        v: velocities (nv,).
        scale: sizes of rows, residuals and coordinates, fixed when the state was assembled.
        mode: which constraints act; None where all do.
        control: state (nz,) of a controller at the end of a run, with which another run continues; None without one.
    """

    t: Float[Array, "..."]
    q: Float[Array, "... nq"]
    v: Float[Array, "... nv"]
    scale: Scale
    mode: Mode | None = None
    control: Float[Array, "... nz"] | None = None

    def __str__(self) -> str:
        """Its numbers, of many states their shapes; the representation of all fields where numbers are not known."""
        if not is_concrete(self):
            return repr(self)
        t, several = np.asarray(self.t), self.t.ndim > 0
        numbers = lambda x: (
            [] if x is None else [str(x.shape)] if several else [f"{number:.6g}" for number in np.ravel(x)]
        )
        acting = None if self.mode is None else np.asarray(self.mode.active)
        return table(
            f"{counted(t.size, 'state').capitalize()}, t from {t.min():.6g} to {t.max():.6g} s"
            if several
            else f"State at t = {t:.6g} s",
            {
                "q": numbers(self.q),
                "v": numbers(self.v),
                "rows": [] if acting is None or several else [f"{np.sum(acting)} of {acting.size} act"],
                "control": numbers(self.control),
            },
        )
