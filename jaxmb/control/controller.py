"""What a run asks of a controller."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..foundations import as_function
from ..system import System

Scalar = Float[Array, ""]


class AbstractController(eqx.Module):
    """u = `output`(t, q, v, z, plant), with a state z of its own: ż = `rate`(…), or from sample to sample by `sample`.

    To add one, inherit and define `output`; one that remembers something defines `init` and `rate` too. All numbers are
    leaves of the module, so that they can be differentiated, batched and tuned.

    Attributes:
        acts_at: names of the joint coordinates at which the outputs act, as torques or forces; None if they are the
            system's own inputs.
        uses_plant: whether it reads more of its argument `plant` than `plant.params` and `plant.motion`: terms and responses.
        only_sampled: whether it has no meaning in continuous time.
    """

    @property
    def acts_at(self) -> tuple[str, ...] | None:
        """See above; None unless a class says otherwise."""
        return None

    @property
    def uses_plant(self) -> bool:
        """See above; True unless a class says otherwise."""
        return True

    @property
    def only_sampled(self) -> bool:
        """See above; False unless a class says otherwise."""
        return False

    def init(self, system: System) -> Any:
        """The state z at the start, a pytree of floating-point arrays; empty by default."""
        return ()

    def sizes(self, z: Any) -> Any:
        """How large the numbers of z are, for the absolute tolerance of a run; ones by default."""
        return jax.tree.map(lambda x: x * 0 + 1, z)

    @abc.abstractmethod
    def output(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], z: Any, plant: Any
    ) -> Float[Array, " nu"]:
        """The inputs u.

        Args:
            t: time in s.
            q: coordinates.
            v: velocities.
            z: the controller's state.
            plant: the mechanism at this instant, a `jaxmb.control.Plant`; its reaction is not known yet, since it depends on u,
                but `plant.respond(u)` tells what it would be.
        """

    def rate(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], z: Any, plant: Any, response: Any) -> Any:
        """ż, of the structure of z; zero by default. `response` is what the mechanism does: accelerations and reactions."""
        return jax.tree.map(lambda x: x * 0, z)

    def sample(
        self,
        t: Scalar,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        z: Any,
        plant: Any,
        response: Any,
        period: Scalar,
    ) -> tuple[Float[Array, " nu"], Any]:
        """At a sample: u until the next one, and z there; by default `output` and z + h ż.

        `response` is what the mechanism does just before, under the inputs held until then.
        """
        rate = self.rate(t, q, v, z, plant, response)
        return self.output(t, q, v, z, plant), jax.tree.map(lambda x, dx: x + period * dx, z, rate)


class Law(AbstractController):
    """A plain function u(t, q, v, params), or a callable pytree such as an Equinox module, as a controller."""

    fn: Any

    @property
    def uses_plant(self) -> bool:
        """False."""
        return False

    def output(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], z: Any, plant: Any
    ) -> Float[Array, " nu"]:
        """What the function returns."""
        return self.fn(t, q, v, plant.params)


def as_controller(control: Any, argument: str) -> AbstractController:
    """A controller as it is, and a function as a `Law`."""
    if isinstance(control, AbstractController):
        return control
    if not callable(control):
        raise TypeError(
            f"Argument `{argument}` must be a controller or a function (t, q, v, params) -> (nu,), but is a "
            f"{type(control).__name__}."
        )
    return Law(as_function(control, argument))
