"""Controllers that act at samples, and hold their outputs between them."""

import equinox as eqx

from ..foundations import (
    FunctionOfMotion,
    Number,
    Positive,
    TextInNotebooks,
    as_floats,
    contract,
    is_concrete,
    warn,
)
from .clock import Clock
from .controller import AbstractController, as_controller


class Sampled(TextInNotebooks, eqx.Module):
    """A controller in discrete time, with zero-order hold: it acts at t = phase + n·period, and when a run starts.

    Steps of the integrator end at the samples. Between them u and z are held; with `delay`, the output of one sample acts
    from the next one on, and before the first one acts nothing. Sampling times have no derivative.

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
        self.clock = Clock(period=as_floats(period), phase=as_floats(phase), delay=delay)
        if is_concrete(self.clock, self.controller):
            for doubt in self.controller.check_period(float(self.clock.period)):
                warn(doubt)
