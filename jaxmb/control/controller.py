"""What a run asks of a controller."""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..formulation import AbstractFormulation
from ..foundations import (
    Rule,
    TextInNotebooks,
    as_function,
    check_fields,
    contract,
    default_float,
    function_of,
    refusal,
)
from ..system import State, System, joint_names
from .clock import AbstractClock
from .instant import AbstractInstant
from .plant import Response

Scalar = Float[Array, ""]


class AbstractController(TextInNotebooks, eqx.Module):
    """u = `output`(plant, z), with a state z of its own: ż = `rate`(…), or from sample to sample by `sample`.

    To add one, inherit and define `output`; one that remembers something defines `init` and `rate` too. All numbers are
    leaves of the module, so that they can be differentiated, batched and tuned.

    Attributes:
        acts_at: names of the joint coordinates at which the outputs act, as torques or forces; None if they are the
            system's own inputs.
        uses_plant: whether it reads more of its argument `plant` than any `AbstractInstant` has: terms and responses.
        only_sampled: whether it has no meaning in continuous time.
        clock: the instants at which its outputs change, if they are held in between; steps end there.
        breaks: times (k,) at which a derivative of its outputs jumps, if they are not held; steps of an adaptive step-size controller end there.
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

    @property
    def clock(self) -> AbstractClock | None:
        """See above; None unless a class says otherwise."""
        return None

    @property
    def breaks(self) -> Float[Array, " k"]:
        """See above; none unless a class says otherwise."""
        return jnp.zeros(0, default_float())

    def init(self, system: System) -> PyTree:
        """The state z at the start, a pytree of floating-point arrays; empty by default."""
        return ()

    def sizes(self, z: PyTree) -> PyTree:
        """How large the numbers of z are, for the absolute tolerance of a run; ones by default."""
        # x * 0 + 1, not ones_like: it keeps the type and, under `vmap`, the batch of each leaf.
        return jax.tree.map(lambda x: x * 0 + 1, z)

    @abc.abstractmethod
    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs u.

        Args:
            plant: the mechanism at this instant, with `t`, `q`, `v`, `params` and `motion`. Where `uses_plant` is true it is a
                `jaxmb.control.Plant`; its reaction is not known yet, since it depends on u, but `plant.respond(u)` tells what it would be.
            z: the controller's state.
        """

    def rate(self, plant: AbstractInstant, z: PyTree, response: Response | None) -> PyTree:
        """ż, of the structure of z; zero by default. `response` is what the mechanism does, None where the plant is not used."""
        return jax.tree.map(lambda x: x * 0, z)

    def sample(
        self, plant: AbstractInstant, z: PyTree, response: Response | None, period: Scalar
    ) -> tuple[Float[Array, " nu"], PyTree]:
        """At a sample: u until the next one, and z there; by default `output` and z + h ż.

        `response` is what the mechanism does just before, under the inputs held until then; None where the plant is not used.
        """
        # Euler's step: between samples what a controller sees is held, so that its own rate is constant.
        rate = self.rate(plant, z, response)
        return self.output(plant, z), jax.tree.map(lambda x, dx: x + period * dx, z, rate)

    def check(self, system: System, state: State, formulation: AbstractFormulation | None = None) -> list[str]:
        """What to warn of before a run from a state with known numbers, by the formulation of the run.

        Raises:
            ValueError: for what cannot work.
        """
        return []

    def check_period(self, period: float) -> list[str]:
        """What to warn of where it is sampled with a period in s."""
        return []


class Law(AbstractController):
    """A plain function u(t, q, v, params), or a callable pytree such as an Equinox module, as a controller."""

    fn: Annotated[Any, function_of("t, q, v, params")]

    def __check_init__(self):
        check_fields(self)

    @property
    def uses_plant(self) -> bool:
        """False."""
        return False

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """What the function returns."""
        return self.fn(plant.t, plant.q, plant.v, plant.params)


class AbstractJointController(AbstractController):
    """A controller whose outputs act at joint coordinates by name; at the system's own inputs if `joints` is None."""

    joints: tuple[str, ...] | None = eqx.field(static=True)

    @property
    def acts_at(self) -> tuple[str, ...] | None:
        """The joints."""
        return self.joints


class MotionLaw(AbstractJointController):
    """A function u(motion) of the mechanism's `Motion`: angles and rates of any joint, points, their velocities, time and parameters.

    Args:
        fn: `fn(motion)` returns u (nu,), for example `lambda motion: -5.0 * motion.joint_rates("elbow")`.
        joints: names of joint coordinates at which the inputs act; None for the system's own inputs.
    """

    fn: Callable[..., Array]

    @contract
    def __init__(self, fn: Annotated[Any, function_of("motion")], joints: str | Sequence[str] | None = None):
        self.fn, self.joints = as_function(fn, "fn"), joint_names(joints)

    @property
    def uses_plant(self) -> bool:
        """False."""
        return False

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """What the function returns."""
        return self.fn(plant.motion)


class Sum(AbstractController):
    """Controllers that act at the same inputs together: u = Σ u_i.

    Args:
        *controllers: controllers, or functions u(t, q, v, params).

    Raises:
        ValueError: if there are none, or they act at different joints.
    """

    controllers: tuple[AbstractController, ...]

    def __init__(self, *controllers: object):
        self.controllers = tuple(as_controller(c, "controllers") for c in controllers)
        if not controllers:
            raise ValueError("Argument `controllers` must hold one controller at least, but holds none.")
        if len({c.acts_at for c in self.controllers}) > 1:
            joints = ", ".join(str(c.acts_at or "the system's inputs") for c in self.controllers)
            raise ValueError(f"Argument `controllers` must act at the same joints, but act at {joints}.")

    @property
    def acts_at(self) -> tuple[str, ...] | None:
        """Those of each."""
        return self.controllers[0].acts_at

    @property
    def uses_plant(self) -> bool:
        """Whether one of them uses the plant."""
        return any(c.uses_plant for c in self.controllers)

    @property
    def only_sampled(self) -> bool:
        """Whether one of them is only sampled."""
        return any(c.only_sampled for c in self.controllers)

    @property
    def clock(self) -> None:
        """None.

        Raises:
            ValueError: if one of them holds its outputs, which the sum does not.
        """
        holding = [type(c).__name__ for c in self.controllers if c.clock is not None]
        if holding:
            raise ValueError(
                f"Argument `control` must hold the outputs of no part of a `Sum` alone, but does those of `{holding[0]}` between samples: "
                "what is held is the whole input, so make it `jaxmb.control.Sampled(Sum(…), period)`, or give a table that is interpolated linearly."
            )

    @property
    def breaks(self) -> Float[Array, " k"]:
        """Those of all controllers."""
        return jnp.concatenate([c.breaks for c in self.controllers])

    def init(self, system: System) -> PyTree:
        """Those of all controllers."""
        return tuple(c.init(system) for c in self.controllers)

    def sizes(self, z: PyTree) -> PyTree:
        """Those of all controllers."""
        return tuple(c.sizes(part) for c, part in zip(self.controllers, z, strict=True))

    def check(self, system: System, state: State, formulation: AbstractFormulation | None = None) -> list[str]:
        """Those of all controllers."""
        return [text for c in self.controllers for text in c.check(system, state, formulation)]

    def check_period(self, period: float) -> list[str]:
        """Those of all controllers."""
        return [text for c in self.controllers for text in c.check_period(period)]

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The sum."""
        return _total([c.output(plant, part) for c, part in zip(self.controllers, z, strict=True)])

    def rate(self, plant: AbstractInstant, z: PyTree, response: Response | None) -> PyTree:
        """Those of all controllers."""
        return tuple(c.rate(plant, part, response) for c, part in zip(self.controllers, z, strict=True))

    def sample(
        self, plant: AbstractInstant, z: PyTree, response: Response | None, period: Scalar
    ) -> tuple[Float[Array, " nu"], PyTree]:
        """The sum, and the states of all."""
        pairs = zip(self.controllers, z, strict=True)
        samples = [c.sample(plant, part, response, period) for c, part in pairs]
        return _total([u for u, _ in samples]), tuple(z for _, z in samples)


def _total(parts: list[Array]) -> Array:
    return functools.reduce(jnp.add, parts)


_CONTROLLER = Rule(
    "a controller or a function (t, q, v, params) -> (nu,)", lambda x: callable(x) and not isinstance(x, type)
)


def as_controller(control: object, argument: str) -> AbstractController:
    """A controller as it is, and a function as a `Law`."""
    if isinstance(control, AbstractController):
        return control
    if not _CONTROLLER.kind(control):
        raise refusal(_CONTROLLER, f"`{argument}`", control)
    return Law(as_function(control, argument))
