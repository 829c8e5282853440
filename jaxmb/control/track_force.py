"""Tracking of a motion and of forces."""

import math
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..formulation import AbstractFormulation
from ..foundations import (
    AllNonNegative,
    Positive,
    Vector,
    as_floats,
    as_function,
    contract,
    floats_or_none,
    function_of,
)
from ..system import State, System
from .controller import AbstractController
from .force_report import analyse_forces
from .instant import AbstractInstant
from .output import reference_at
from .plant import Plant, Response, with_dynamics
from .reaction import AbstractForces, HybridCommand, hybrid_law
from .track import Track

Scalar = Float[Array, ""]


class TrackForce(AbstractController):
    """A motion follows its reference, and forces y of constraints follow theirs in the freedom that the motion leaves.

    The plant responds to a command y_c with y = y_c + δ; δ is zero if the model is right. With e = y_d − y and ζ = ∫e dt the
    command y_c = y_d + G_F e + G_I ζ gives (1 + G_F) ė + G_I e = −δ̇ (Aghili 2005, eq. 52, for named forces). The reaction depends
    on the inputs of the same instant, so that this equation is solved by means of the plant's response to a first command. With

    * `filter` τ the force is measured through τ ḟ = e − f, y_c = y_d + G_F f + G_I ζ, ζ̇ = f:
      τ ζ̈ + (1 + G_F) ζ̇ + G_I ζ = −δ;
    * samples, h apart, the disturbance is fed back and not the force, because its delay would allow G_F < 1 only: δ̂ is the measured force
      less that of the model under the input held until then, y_c = y_d + (1 + G_F)⁻¹ (G_I ζ − G_F δ̂), and ζ grows by
      h (y_d − y_c − δ̂), so that e decays by 1 − h G_I/(1 + G_F) per sample.

    `simulate` rejects forces that a rigid model does not determine, or that the actuators cannot command, if values are
    known.

    Args:
        motion: how the motion is tracked; a `Track` of the empty output `Outputs()` if it is not controlled.
        forces: y, for example `jaxmb.control.Multipliers("wall")`.
        reference: y_d, numbers or a function of time.
        gain: G_F, a number or (k,), without a unit.
        integral: G_I in 1/s, likewise.
        filter: τ in s; none by default.
    """

    motion: Track
    forces: AbstractForces
    reference: Array | Callable[[Scalar], Array]
    gain: Float[Array, "*k"]
    integral: Float[Array, "*k"]
    filter: Scalar | None

    @contract
    def __init__(
        self,
        motion: Track,
        forces: AbstractForces,
        reference: Vector | Annotated[Any, function_of("t")],
        gain: AllNonNegative = 0.0,
        integral: AllNonNegative = 0.0,
        filter: Positive | None = None,
    ):
        self.motion, self.forces = motion, forces
        self.reference = as_function(reference, "reference") if callable(reference) else as_floats(reference)
        self.gain, self.integral = as_floats(gain), as_floats(integral)
        self.filter = floats_or_none(filter)

    @property
    def acts_at(self) -> tuple[str, ...] | None:
        """As the motion."""
        return self.motion.joints

    def init(self, system: System) -> PyTree:
        """That of the motion, ζ, and the filter's state f."""
        none = jnp.zeros(len(self.forces.labels(system)))
        return self.motion.init(system), none, None if self.filter is None else none

    def check(self, system: System, state: State, formulation: AbstractFormulation | None = None) -> list[str]:
        """Those of the motion; forces that a rigid model does not determine, or the actuators cannot command, are refused."""
        doubts = self.motion.check(system, state, formulation)
        report = analyse_forces(
            system, state, self.forces, output=self.motion.target, limits=self.motion.limits, formulation=formulation
        )
        if report.verdicts:
            raise ValueError("Argument `forces` must be forces that can be commanded. " + " ".join(report.verdicts))
        return doubts

    def check_period(self, period: float) -> list[str]:
        """Those of the motion, and whether the loop of the forces is stable."""
        doubts, gain = self.motion.check_period(period), float(jnp.max(self.gain, initial=0))
        integral = float(jnp.max(self.integral / (1 + self.gain), initial=0))
        # e decays by 1 − h G_I/(1 + G_F) per sample, see above: stable between 0 and 2.
        if self.filter is None and period * integral >= 2:
            doubts.append(
                f"Samples {period:g} s apart make the force unstable: h G_I/(1 + G_F) must be below 2, but is {period * integral:g}."
            )
        if self.filter is not None and gain * math.tanh(period / (2 * float(self.filter))) >= 1:
            limit = 1 / math.tanh(period / (2 * float(self.filter)))
            doubts.append(
                f"Samples {period:g} s apart make the force unstable: G_F must be below coth(h/2τ) = {limit:g}, but is {gain:g}."
            )
        return doubts

    def desired(self, plant: Plant) -> Float[Array, " k"]:
        """The demanded forces y_d."""
        return reference_at(self.reference, plant.t, len(self.forces.labels(plant.system)))[0]

    def hybrid(self, plant: Plant, z: PyTree, y: Float[Array, " k"]) -> HybridCommand:
        """The inputs for a command y_c, and how far they meet the demand."""
        plant, rows, errors = self.motion.evaluate(plant)
        return hybrid_law(plant, rows, self.motion.demand(errors, z[0]), self.forces, y, **self.motion.options)

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs u."""
        plant = with_dynamics(plant)
        desired, (_, total, filtered) = self.desired(plant), z
        if self.filter is not None:
            return self.hybrid(plant, z, desired + self.gain * filtered + self.integral * total).u
        # Two evaluations in place of an equation: y is affine in u, so that the answer to a first command tells the
        # rest.
        first = self.hybrid(plant, z, desired + self.integral * total)
        answer = self.forces.read(plant.respond(first.u))
        return first.u + first.by_force @ (self.gain / (1 + self.gain) * (desired - answer))

    def rate(self, plant: AbstractInstant, z: PyTree, response: Response | None) -> PyTree:
        """The error of the motion, e of the force, or f and ḟ."""
        plant, response = with_dynamics(plant), _answer(response)
        error = self.desired(plant) - self.forces.read(response)
        moving = self.motion.rate(plant, z[0], response)
        if self.filter is None:
            return moving, error, None
        return moving, z[2], (error - z[2]) / self.filter

    def sample(
        self, plant: AbstractInstant, z: PyTree, response: Response | None, period: Scalar
    ) -> tuple[Float[Array, " nu"], PyTree]:
        """At a sample, by the disturbance."""
        if self.filter is not None:
            return super().sample(plant, z, response, period)
        plant, response = with_dynamics(plant), _answer(response)
        desired, model = self.desired(plant), self.motion.evaluate(plant)[0]
        off = self.forces.read(response) - self.forces.read(model.respond(response.u))
        y = desired + (self.integral * z[1] - self.gain * off) / (1 + self.gain)
        moving = self.motion.rate(plant, z[0], response)
        # Of the motion as by default, by its own rate; of the force by the disturbance.
        after = jax.tree.map(lambda x, dx: x + period * dx, z[0], moving)
        return self.hybrid(plant, z, y).u, (after, z[1] + period * (desired - y - off), None)


def _answer(response: Response | None) -> Response:
    """The plant's response, which runs have for all laws that use the plant."""
    assert response is not None
    return response
