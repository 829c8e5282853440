"""What a plan needs to know of steps of one length."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..foundations import RESULTS, Numbers, TextInNotebooks
from ..system import State, System
from .controller import AbstractController


class AbstractStepper(TextInNotebooks, eqx.Module):
    """Steps of fixed length, `state = step(state, u)`, such as those made by `jaxmb.stepper`."""

    system: eqx.AbstractVar[System]
    dt: eqx.AbstractVar[Float[Array, ""]]
    control: eqx.AbstractVar[AbstractController | None]

    @abc.abstractmethod
    def with_result(self, state: State, u: Numbers | None = None) -> tuple[State, RESULTS]:
        """The state after a step, and the result of the step."""
