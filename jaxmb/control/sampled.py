"""Controllers that act at samples, and hold their outputs between them."""

import warnings

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..foundations import FunctionOfMotion, Number, Positive, contract, default_float, is_concrete
from .controller import AbstractController, as_controller

Scalar = Float[Array, ""]


# Part of a period, above rounding, within which a time is that of a sample: steps end at samples only up to the rounding of sums of steps.
SAME = 1e-9


class Clock(eqx.Module):
    """When a controller acts: at phase + n·period."""

    period: Scalar
    phase: Scalar
    delay: bool = eqx.field(static=True)

    def number(self, t: Scalar) -> Scalar:
        """The number n of the latest sample."""
        # `floor` has no useful derivative, and when a sample is taken is no quantity of the motion.
        t, period, phase = lax.stop_gradient((t, self.period, self.phase))
        periods = (t - phase) / period
        # Four units of rounding of the quotient besides: far from the phase these exceed the fixed part.
        return jnp.floor(periods + SAME + 4 * jnp.finfo(periods.dtype).eps * jnp.abs(periods))

    def next_time(self, t: Scalar) -> Scalar:
        """When the next one is, later than t."""
        return lax.stop_gradient(self.phase + (self.number(t) + 1) * self.period)


class Sampled(eqx.Module):
    """A controller in discrete time, with zero-order hold: it acts at t = phase + n·period, and when a run starts.

    Steps of the integrator end at the samples. Between them u and z are held; with `delay` what is put out at one sample acts
    from the next one on, and nothing before. Sampling times have no derivative.

    Args:
        controller: a controller, or a function u(t, q, v, params).
        period: time between samples in s.
        phase: time of one of them in s.
        delay: whether the outputs come one period late.

    Example:
        >>> import jaxmb as jm
        >>> float(jm.control.Sampled(lambda t, q, v, p: -q, period=0.01).clock.period)
        0.01
    """

    controller: AbstractController
    clock: Clock

    @contract
    def __init__(
        self,
        controller: AbstractController | FunctionOfMotion,
        period: Positive,
        phase: Number = 0.0,
        delay: bool = False,
    ):
        self.controller = as_controller(controller, "controller")
        as_array = lambda x: jnp.asarray(x, default_float())
        self.clock = Clock(as_array(period), as_array(phase), delay)
        if is_concrete(self.clock, self.controller):
            for doubt in self.controller.check_period(float(self.clock.period)):
                warnings.warn(doubt, stacklevel=4)  # Equinox makes modules by two functions of its own
