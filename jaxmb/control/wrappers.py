"""What stands between a controller and the mechanism: limits of the actuators, noise of the sensors."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..formulation import AbstractFormulation
from ..foundations import (
    AllNonNegative,
    AllPositive,
    FunctionOfMotion,
    Key,
    NoNaN,
    as_floats,
    contract,
    expect_shape,
    lower_limits,
)
from ..system import State, System
from .clock import AbstractClock
from .controller import AbstractController, as_controller
from .instant import AbstractInstant
from .plant import Response

Scalar = Float[Array, ""]


class AbstractWrapper(AbstractController):
    """A controller that wraps another one; its state is that of the wrapped one unless a class says otherwise."""

    controller: AbstractController

    @property
    def acts_at(self) -> tuple[str, ...] | None:
        """Those of the other."""
        return self.controller.acts_at

    @property
    def uses_plant(self) -> bool:
        """As the other."""
        return self.controller.uses_plant

    @property
    def only_sampled(self) -> bool:
        """As the other."""
        return self.controller.only_sampled

    @property
    def clock(self) -> AbstractClock | None:
        """The other's."""
        return self.controller.clock

    @property
    def breaks(self) -> Float[Array, " k"]:
        """The other's."""
        return self.controller.breaks

    def init(self, system: System) -> PyTree:
        """The other's state."""
        return self.controller.init(system)

    def sizes(self, z: PyTree) -> PyTree:
        """The other's."""
        return self.controller.sizes(z)

    def check(self, system: System, state: State, formulation: AbstractFormulation | None = None) -> list[str]:
        """The other's."""
        return self.controller.check(system, state, formulation)

    def check_period(self, period: float) -> list[str]:
        """The other's."""
        return self.controller.check_period(period)


class Saturated(AbstractWrapper):
    """A controller whose outputs are clipped to limits; numbers of its state that would drive them further beyond the limits stand still.

    u = clip(u_c, lower, upper). A number z_j is held while Σ_i s_i ∂u_i/∂z_j ż_j > 0 over the clipped inputs, s_i = 1 at the
    upper limit and −1 at the lower one (conditional integration, Åström and Hägglund).

    Args:
        controller: a controller, or a function u(t, q, v, params).
        upper: upper limits, a number or (nu,).
        lower: lower limits; −upper by default.

    Example:
        >>> import jaxmb as jm
        >>> law = jm.control.Saturated(lambda t, q, v, p: -100 * q, upper=2.0)
        >>> float(law.lower)
        -2.0
    """

    upper: Float[Array, "*nu"]
    lower: Float[Array, "*nu"]

    @contract
    def __init__(self, controller: AbstractController | FunctionOfMotion, upper: NoNaN, lower: NoNaN | None = None):
        self.controller = as_controller(controller, "controller")
        self.upper = as_floats(upper)
        self.lower = lower_limits(self.upper, lower)

    def init(self, system: System) -> PyTree:
        """The other's state.

        Raises:
            ValueError: for limits of another shape.
        """
        expect_shape("`upper` of Saturated", self.upper, (), (system.nu,))
        expect_shape("`lower` of Saturated", self.lower, (), (system.nu,))
        return self.controller.init(system)

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs within the limits."""
        # The derivative is zero beyond the limits, as it is of a real actuator.
        return jnp.clip(self.controller.output(plant, z), self.lower, self.upper)

    def rate(self, plant: AbstractInstant, z: PyTree, response: Response | None) -> PyTree:
        """The other's, or zero."""
        rate = self.controller.rate(plant, z, response)
        return self._stopped(plant, z, rate, self.controller.output(plant, z))

    def sample(
        self, plant: AbstractInstant, z: PyTree, response: Response | None, period: Scalar
    ) -> tuple[Float[Array, " nu"], PyTree]:
        """The other's, within the limits."""
        u, after = self.controller.sample(plant, z, response, period)
        step = self._stopped(plant, z, jax.tree.map(jnp.subtract, after, z), u)
        return jnp.clip(u, self.lower, self.upper), jax.tree.map(jnp.add, z, step)

    def _stopped(self, plant: AbstractInstant, z: PyTree, change: PyTree, u: Array) -> PyTree:
        """The change of z without what drives the inputs that are cut off further out."""
        # Without a state there is nothing to hold, and no second evaluation to pay for.
        if not jax.tree.leaves(z):
            return change
        out = (u > self.upper).astype(u.dtype) - (u < self.lower)
        # Which numbers of z drive u further out is read off by one vjp; so any controller may be saturated, not
        # integrators alone.
        _, pull = jax.vjp(lambda z: self.controller.output(plant, z), z)
        return jax.tree.map(lambda dz, slope: jnp.where(slope * dz > 0, 0, dz), change, pull(out)[0])


class RateLimited(AbstractWrapper):
    """A sampled controller whose outputs change by no more than a given rate; they are zero before the first sample.

    |u_n − u_{n−1}| ≤ rate · period.

    Args:
        controller: a controller, or a function u(t, q, v, params).
        limit: largest rate of each input, a number or (nu,), in N/s or N m/s.
    """

    limit: Float[Array, "*nu"]

    @contract
    def __init__(self, controller: AbstractController | FunctionOfMotion, limit: AllPositive):
        self.controller = as_controller(controller, "controller")
        self.limit = as_floats(limit)

    @property
    def only_sampled(self) -> bool:
        """True."""
        return True

    def init(self, system: System) -> PyTree:
        """The other's state, and the latest outputs.

        Raises:
            ValueError: for a limit of another shape.
        """
        expect_shape("`limit` of RateLimited", self.limit, (), (system.nu,))
        return self.controller.init(system), jnp.zeros(system.nu)

    def sizes(self, z: PyTree) -> PyTree:
        """The other's, and ones."""
        return self.controller.sizes(z[0]), jnp.ones_like(z[1])

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The other's, without a limit."""
        return self.controller.output(plant, z[0])

    def sample(
        self, plant: AbstractInstant, z: PyTree, response: Response | None, period: Scalar
    ) -> tuple[Float[Array, " nu"], PyTree]:
        """The other's, not too far from the latest."""
        u, inner = self.controller.sample(plant, z[0], response, period)
        u = z[1] + jnp.clip(u - z[1], -self.limit * period, self.limit * period)
        return u, (inner, u)


class Noisy(AbstractWrapper):
    """A sampled controller that receives coordinates and velocities with Gaussian noise, drawn again at each sample.

    q_seen = q + σ_q n, v_seen = v + σ_v n', by a key of `jax.random` and the number of samples so far: equal keys make equal runs, and
    derivatives go through. Its argument `plant` is the mechanism at the noisy state.

    Args:
        controller: a controller, or a function u(t, q, v, params).
        key: of `jax.random.key`.
        q: standard deviation of the coordinates, a number or (nq,).
        v: of the velocities, a number or (nv,).
    """

    key: Array
    q: Float[Array, "*nq"]
    v: Float[Array, "*nv"]

    @contract
    def __init__(
        self,
        controller: AbstractController | FunctionOfMotion,
        key: Key,
        q: AllNonNegative = 0.0,
        v: AllNonNegative = 0.0,
    ):
        self.controller = as_controller(controller, "controller")
        # As plain numbers: a typed key is no leaf that `ravel_pytree` or a file of checkpoints takes.
        self.key = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        self.q, self.v = map(as_floats, (q, v))

    @property
    def only_sampled(self) -> bool:
        """True."""
        return True

    def init(self, system: System) -> PyTree:
        """The other's state, and the number of samples.

        Raises:
            ValueError: for deviations of another shape.
        """
        expect_shape("`q` of Noisy", self.q, (), (system.nq,))
        expect_shape("`v` of Noisy", self.v, (), (system.nv,))
        return self.controller.init(system), jnp.zeros(())

    def sizes(self, z: PyTree) -> PyTree:
        """The other's, and one."""
        return self.controller.sizes(z[0]), jnp.ones_like(z[1])

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The other's, of what is seen."""
        return self.controller.output(self._measured(plant, z[1]), z[0])

    def sample(
        self, plant: AbstractInstant, z: PyTree, response: Response | None, period: Scalar
    ) -> tuple[Float[Array, " nu"], PyTree]:
        """The other's, of what is seen."""
        u, inner = self.controller.sample(self._measured(plant, z[1]), z[0], response, period)
        return u, (inner, z[1] + 1)

    def _measured(self, plant: AbstractInstant, number: Array) -> AbstractInstant:
        # The count is a float in z, since states are integrated as one vector; keys are folded with integers.
        number = jax.lax.stop_gradient(number).astype(int)
        one, two = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(self.key), number))
        seen = lambda x, deviation, key: x + deviation * jax.random.normal(key, x.shape, x.dtype)
        return plant.with_motion(seen(plant.q, self.q, one), seen(plant.v, self.v, two))
