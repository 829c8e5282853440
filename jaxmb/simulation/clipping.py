"""Steps that end at the samples of a controller or where the vector field jumps, and steps of a limited length."""

import abc
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..control import AbstractClock
from ..foundations import index_among
from .real_scalar import Integer, RealScalar

# Part of a step that is not worth one of its own.
SLIVER = 1e-6


class AbstractWrapping(dfx.AbstractAdaptiveStepSizeController):
    """An adaptive step size controller by another one, to which all is handed on as Diffrax gives it."""

    controller: dfx.AbstractAdaptiveStepSizeController

    # Diffrax's solvers look for these on the controller that they are given.
    rtol = property(lambda self: self.controller.rtol)  # pyright: ignore[reportAssignmentType]
    atol = property(lambda self: self.controller.atol)  # pyright: ignore[reportAssignmentType]
    norm = property(lambda self: self.controller.norm)  # pyright: ignore[reportAssignmentType]

    def wrap(self, direction: Integer) -> Any:
        """The same around the wrapped controller."""
        return eqx.tree_at(lambda c: c.controller, self, self.controller.wrap(direction))

    def init(self, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        """The controller's first step."""
        return self.controller.init(*arguments, **named)


class AbstractClipping(AbstractWrapping):
    """An adaptive step size controller, some of whose steps are ended sooner."""

    @abc.abstractmethod
    def clipped(self, start: Array, end: Array) -> Array:
        """When a step ends that the controller would end at `end`."""

    def init(self, terms: PyTree, t0: RealScalar, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        """The first step."""
        t1, state = self.controller.init(terms, t0, *arguments, **named)
        return self.clipped(jnp.asarray(t0), jnp.asarray(t1)), state

    def adapt_step_size(self, *arguments: Any, **named: Any) -> Any:
        """The controller's choice, ended sooner."""
        decision: tuple[PyTree, ...] = self.controller.adapt_step_size(*arguments, **named)
        accepted, start, end, *others = decision
        return accepted, start, self.clipped(start, end), *others


class Landing(AbstractClipping):
    """An adaptive controller whose steps do not go beyond a sample; before one, two equal steps rather than a short one."""

    clock: AbstractClock

    def __init__(self, controller: dfx.AbstractAdaptiveStepSizeController, clock: AbstractClock):
        self.controller, self.clock = controller, clock

    def clipped(self, start: Array, end: Array) -> Array:
        """The end of the step, at the next sample at the latest."""
        sample = self.clock.next_time(start)
        step, remaining = end - start, sample - start
        # What is left before a sample would be a short step, after which the controller had to grow again: two halves cost no more.
        half = jnp.where(2 * step > remaining, start + remaining / 2, end)
        # The sample's own time and no sum, which rounding may place beside it.
        return jnp.where(step >= remaining * (1 - SLIVER), sample, half)


class Limited(AbstractClipping):
    """An adaptive controller whose steps do not take longer than a given time in s."""

    longest: Float[Array, ""]

    def __init__(self, controller: dfx.AbstractAdaptiveStepSizeController, longest: Array):
        self.controller, self.longest = controller, longest

    def clipped(self, start: Array, end: Array) -> Array:
        """The end of the step, after the longest time at the latest."""
        # The controller's state is left alone: it goes on to propose the step that the error allows.
        return jnp.minimum(end, start + self.longest)


class Interrupted(AbstractClipping):
    """An adaptive controller whose steps end just before the vector field jumps, the next one beginning just after it.

    What `diffrax.ClipStepSizeController` does with its `jump_ts`, without its loop, which is no scalar program.
    """

    before: Float[Array, " k"]
    after: Float[Array, " k"]

    def __init__(self, controller: dfx.AbstractAdaptiveStepSizeController, jump_ts: Array):
        jumps = jnp.sort(jnp.asarray(jump_ts))
        never = jnp.full(1, jnp.inf, jumps.dtype)  # behind the last one
        self.controller = controller
        self.before, self.after = (
            jnp.concatenate([beside(jumps), never]) for beside in (eqxi.prevbefore, eqxi.nextafter)
        )

    def clipped(self, start: Array, end: Array) -> Array:
        """The end of the step, just before the next jump at the latest."""
        return jnp.minimum(end, self.before[index_among(self.before, start)])

    def adapt_step_size(self, *arguments: Any, **named: Any) -> Any:
        """The controller's choice, ended before a jump or begun after it."""
        decision: tuple[PyTree, ...] = self.controller.adapt_step_size(*arguments, **named)
        accepted, start, end, jumped, *others = decision
        here, begin = _moved(start, self.before, self.after)
        return accepted, begin, self.clipped(begin, end + (begin - start)), jumped | here, *others


class ConstantLanding(dfx.AbstractStepSizeController):
    """Constant steps, of which only those before a sample, and before the end, are shorter."""

    clock: AbstractClock

    def wrap(self, direction: Integer) -> "ConstantLanding":
        """The same."""
        return self

    def init(
        self,
        terms: PyTree,
        t0: RealScalar,
        t1: RealScalar,
        y0: PyTree,
        dt0: RealScalar | None,
        args: PyTree,
        func: Callable[..., PyTree],
        error_order: RealScalar | None,
    ) -> tuple[Any, Any]:
        """The first step."""
        assert dt0 is not None  # see `check_steps`
        return self._clipped(jnp.asarray(t0), jnp.asarray(dt0)), dt0

    def adapt_step_size(
        self,
        t0: RealScalar,
        t1: RealScalar,
        y0: PyTree,
        y1_candidate: PyTree,
        args: PyTree,
        y_error: PyTree,
        error_order: RealScalar,
        controller_state: PyTree,
    ) -> Any:
        """The next step."""
        return (
            True,
            t1,
            self._clipped(jnp.asarray(t1), controller_state),
            False,
            controller_state,
            dfx.RESULTS.successful,
        )

    def _clipped(self, start: Array, step: Array) -> Array:
        sample = self.clock.next_time(start)
        # A step that would end a sliver before a sample ends there: rounding of start + step must not cost a step.
        return jnp.where(step >= (sample - start) * (1 - SLIVER), sample, start + step)


def landing(controller: dfx.AbstractStepSizeController, clock: AbstractClock) -> dfx.AbstractStepSizeController:
    """The controller with steps that end at the samples of a clock."""
    if isinstance(controller, dfx.ConstantStepSize):
        return ConstantLanding(clock)
    if isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        return Landing(controller, clock)
    raise ValueError(
        "Argument `stepsize_controller` must be adaptive or `ConstantStepSize` where a controller is sampled, but is a "
        f"`{type(controller).__name__}`."
    )


def ends_of_steps(controller: PyTree, begins: Float[Array, " k"]) -> Float[Array, " k"]:
    """When steps have ended, from when those behind them begin: sooner where the vector field jumps in between."""
    ends = begins
    while hasattr(controller, "controller"):
        if isinstance(controller, dfx.ClipStepSizeController) and controller.jump_ts is not None:
            controller = Interrupted(controller.controller, controller.jump_ts)
        if isinstance(controller, Interrupted):
            ends = jax.vmap(lambda t, c=controller: _moved(t, c.after, c.before)[1])(ends)
        controller = controller.controller
    return ends


def _moved(t: Array, sources: Array, targets: Array) -> tuple[Array, Array]:
    """Whether a time is one of `sources`, and the target that belongs to it, or else the time itself."""
    i = index_among(sources, t, "left")
    here = sources[i] == t
    return here, jnp.where(here, targets[i], t)
