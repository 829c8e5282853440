"""A controller in a run: what of it is integrated, and what is held between samples."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, PyTree

from ..control import AbstractClock, AbstractController, AbstractInstant, Law, Response
from ..foundations import shape_of
from ..system import State, System
from .state_vector import StateVector

Scalar = Float[Array, ""]


class FeedbackLoop(eqx.Module):
    """A controller and how its numbers stand in `StateVector.control`: z; with a clock [n, z, u] or [n, z, u, u delayed].

    n is the number of the next sample. `reading` is static: where it is set, the vector field has in place of ż what the
    controller puts out at the state itself, [z, u], or with a clock all that a sample there makes of `StateVector.control`.
    """

    controller: AbstractController
    clock: AbstractClock | None
    start: PyTree
    nu: int = eqx.field(static=True)
    reading: bool = eqx.field(static=True, default=False)

    def check(self, system: System, state: State) -> None:
        """Raises a ValueError if outputs have the wrong shape, or a state holds what another controller remembers."""
        if isinstance(self.controller, Law):
            shape_of("control", self.controller.fn, (state.t, state.q, state.v, system.params), (self.nu,))
        own = jax.eval_shape(self.initial_control, state.t).shape
        if state.control is not None and state.control.shape != own:
            raise ValueError(
                f"Argument `state` must hold what the controller remembers, of shape {own}, but holds {state.control.shape}; to start a "
                "controller anew use `dataclasses.replace(state, control=None)`."
            )

    def checked_inputs(self, u: ArrayLike) -> Float[Array, " nu"]:
        """The outputs, of the right shape."""
        u = jnp.asarray(u)
        if u.shape != (self.nu,):
            raise ValueError(
                f"Argument `control` must put out an array of shape ({self.nu},), but `{type(self.controller).__name__}` returns shape {u.shape}."
            )
        return u

    @property
    def needs_plant(self) -> bool:
        """Whether the vector field must know the plant before the inputs are known."""
        return self.controller.uses_plant and (self.clock is None or self.reading)

    def initial_control(self, t: Scalar) -> Float[Array, " n"]:
        """`StateVector.control` at the start of a run; a sample is due."""
        z = ravel_pytree(self.start)[0].astype(t.dtype)
        if self.clock is None:
            return z
        return self._packed(
            self.clock.number(t), z, *(jnp.zeros(self.nu, t.dtype) for _ in range(1 + self.clock.delay))
        )

    def _packed(self, n: Array, *parts: Array) -> Float[Array, " n"]:
        return jnp.concatenate([jnp.reshape(n, (1,)), *parts])

    def sizes(self, dtype: DTypeLike) -> Float[Array, " n"]:
        """The sizes of `StateVector.control`, relative to which its error is measured; held numbers have no error."""
        size = ravel_pytree(self.controller.sizes(self.start))[0].astype(dtype)
        if self.clock is None:
            return size
        # Held inputs have no rate and so no error: any size but zero will do.
        input_sizes = jnp.ones(self.nu * (1 + self.clock.delay), dtype)
        return self._packed(jnp.ones((), dtype), size, input_sizes)

    def state(self, packed: Float[Array, " n"]) -> Any:
        """The controller's state z."""
        flat, unravel = ravel_pytree(self.start)
        first = 0 if self.clock is None else 1
        return unravel(packed[first : first + flat.shape[0]])

    def sampled_inputs(self, packed: Float[Array, " n"]) -> Float[Array, " nu"]:
        """The inputs of the last sample."""
        late = self.nu if self.clock is not None and self.clock.delay else 0
        return packed[packed.shape[0] - self.nu - late : packed.shape[0] - late]

    def due(self, t: Scalar, packed: Float[Array, " n"]) -> Bool[Array, ""]:
        """Whether a sample is due that has not been taken."""
        if self.clock is None:
            return jnp.array(False)
        # A number among floats, as all of it is one vector: it is a count and has no derivative.
        return lax.stop_gradient(packed[0]) <= self.clock.number(t)

    def with_next_sample(self, t: Scalar, packed: Float[Array, " n"]) -> Float[Array, " n"]:
        """The state after a sample, with the number of the next one."""
        assert self.clock is not None
        # Counted from the time and not from the number held, so that a sample left out does not delay all later ones.
        return packed.at[0].set(self.clock.number(t) + 1)

    def reader(self, y: StateVector) -> tuple["FeedbackLoop", StateVector]:
        """The loop that reads what the controller puts out, and the state with room for it."""
        if self.clock is None:
            # The rate has the shape of the state: room for u is made in both.
            y = y.with_control(jnp.concatenate([y.control, jnp.zeros(self.nu, y.packed.dtype)]))
        return dataclasses.replace(self, reading=True), y

    def inputs(self, plant: AbstractInstant, y: StateVector) -> Float[Array, " nu"]:
        """The inputs u (nu,) that act on the mechanism."""
        if self.clock is not None:
            return self.sampled_inputs(y.control)
        return self.checked_inputs(self.controller.output(plant, self.state(y.control)))

    def rate(self, plant: AbstractInstant, y: StateVector, u: Array, response: Response | None) -> Float[Array, " n"]:
        """The rate of `StateVector.control`; of a reader the controller's outputs."""
        if self.reading:
            return self.read(plant, y, u, response)
        if self.clock is not None:
            return jnp.zeros_like(y.control)
        rate = self.controller.rate(plant, self.state(y.control), response)
        return self._memory(rate, "rate").astype(y.packed.dtype)

    def read(self, plant: AbstractInstant, y: StateVector, u: Array, response: Response | None) -> Float[Array, " n"]:
        """The controller's outputs in place of its rate, where the loop is a reader: see the class."""
        if self.clock is None:
            return jnp.concatenate([y.control[: y.control.shape[0] - self.nu], u])
        z = self.state(y.control)
        out, z = self.controller.sample(plant, z, response, self.clock.interval(plant.t))
        out = self.checked_inputs(out)
        # With a delay of one period the output of the last sample begins to act at this one.
        late = [y.control[y.control.shape[0] - self.nu :]] if self.clock.delay else []
        return self._packed(y.control[0], self._memory(z, "sample").astype(y.packed.dtype), *late, out)

    def _memory(self, z: Any, name: str) -> Float[Array, " n"]:
        """What a method of the controller returns in the place of z, as a vector."""
        (flat, _), size = ravel_pytree(z), ravel_pytree(self.start)[0].shape[0]
        if flat.shape[0] != size:
            raise ValueError(
                f"Argument `control` must remember as many numbers as `init` of `{type(self.controller).__name__}` returns, {size}, but "
                f"`{name}` returns {flat.shape[0]}."
            )
        return flat


def breaks_of(system: System, loop: FeedbackLoop | None) -> list[Float[Array, " k"]]:
    """The times at which a function of the system, or what a control law puts out, is not smooth; what is held is smooth between samples."""
    law = None if loop is None or loop.clock is not None else loop.controller.breaks
    return [times for times in (system.breaks, law) if times is not None and times.size]


def initial_state(loop: FeedbackLoop | None, state: State) -> StateVector:
    """The integrated vector at the start of a run."""
    work = jnp.zeros_like(state.t)
    if loop is None:
        return StateVector.of(state.q, state.v, work)
    return StateVector.of(
        state.q, state.v, work, loop.initial_control(state.t) if state.control is None else state.control
    )
