"""Tolerances and a first step that follow from a system's own sizes."""

import dataclasses
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from ..foundations import positive_or_one, quotient
from ..system import Scale, State, System, Values, free_acceleration, rate_matrix
from .clipping import AbstractWrapping
from .real_scalar import RealScalar
from .state_vector import StateVector

Scalar = Float[Array, ""]

# The first step, in units of 1/Ω: a step of a fifth-order method at the default tolerances.
FIRST_STEP = 0.03
# Ω of a run is at least one motion in its time (`sizes_of_run`): where it is no more than that, but for rounding, the start tells of none.
QUIET = 1.001
# This power of eps of what forces would do if none of them cancelled is the least acceleration that sizes follow from. Measured without: chains that fall from
# a straight line, links of 0.1 m, took 4,096 steps and failed from 20 links on; with it 20 and 80 links take 32 and 28.
CANCELLED = 1 / 4


class RelativeTolerances(AbstractWrapping):
    """A controller whose absolute tolerance is relative to a size of each variable."""

    controller: dfx.AbstractAdaptiveStepSizeController
    sizes: StateVector

    def __init__(self, controller: dfx.AbstractAdaptiveStepSizeController, sizes: StateVector):
        self.controller, self.sizes = controller, sizes

    def adapt_step_size(
        self,
        t0: RealScalar,
        t1: RealScalar,
        y0: StateVector,
        y1_candidate: StateVector,
        args: PyTree,
        y_error: StateVector | None,
        error_order: RealScalar,
        controller_state: PyTree,
    ) -> Any:
        """The controller's, with all variables in units of their sizes."""
        # Dividing by sizes makes one absolute tolerance do for metres, radians and joules alike.
        relative = lambda y: jax.tree.map(lambda x, size: x / size, y, self.sizes)
        y0, y1_candidate, y_error = relative(y0), relative(y1_candidate), relative(y_error)
        return self.controller.adapt_step_size(t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state)


def default_controller(dtype: DTypeLike) -> dfx.PIDController:
    """PID control at tolerances that suit the precision."""
    # In float32 rounding, 1e-7, is above the tolerances that suit float64: steps would be rejected for it.
    precise = jnp.finfo(dtype).eps < 1e-10
    return dfx.PIDController(rtol=1e-8, atol=1e-10) if precise else dfx.PIDController(rtol=1e-4, atol=1e-6)


def sizes_of_run(system: System, state: State, until: Scalar, values: Values) -> tuple[Scale, StateVector]:
    """The sizes of a run: the state's with the rate of this run, and those of q, v and work.

    Where rows do not tell how far a coordinate moves it is how far it gets, |v_k| τ + |v̇_k| τ²/2, in the time of the run or until
    forces have changed: 1/τ² = |∂v̇_k/∂q d|/|d_k| in the directions d = v and v̇. Ω is at least one motion in the time of the
    run; v has the size ℓ Ω, work that of the kinetic energy then.
    """
    # Step sizes have no derivative, and neither have the sizes that they follow from.
    system, state, until = lax.stop_gradient((system, state, until))
    q, v, time, mass = state.q, state.v, until - state.t, values.mass
    root = values.measuring
    length = jnp.sqrt(jnp.abs(jnp.diagonal(mass)))

    def moving(way: Array) -> Array:
        """Which coordinates move, and by more than rounding beside the others in the metric of M."""
        far = length * jnp.abs(way)
        return (far > jnp.finfo(way.dtype).eps ** 0.75 * jnp.max(far)) | ((length == 0) & (way != 0))

    def probe(direction: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        accelerations = lambda q: free_acceleration(system, dataclasses.replace(state, q=q), root)
        vdot, variation = jax.jvp(accelerations, (q,), (system.qdot(q, direction),))
        is_moving = moving(direction)
        return vdot, (vdot, jnp.where(is_moving, jnp.abs(variation) / jnp.where(is_moving, jnp.abs(direction), 1), 0))

    _, (vdots, changes) = lax.scan(probe, v, None, length=2)
    vdot, fastest = vdots[0], jnp.sqrt(jnp.max(changes, axis=0))
    duration = jnp.fmin(time, 1 / fastest)  # NaN, of forces without a derivative, is passed over
    # An acceleration that is left where forces cancel is rounded as these are, and no tolerance may be below that.
    least = jnp.finfo(q.dtype).eps ** CANCELLED * jnp.abs(root.T) @ (jnp.abs(root) @ jnp.abs(mass @ vdot))
    distance = jnp.abs(v) * duration + 0.5 * jnp.maximum(jnp.abs(vdot), least) * duration**2
    # One that does not move is as far reaching as the others, in the metric of M if it has inertia.
    largest = quotient(jnp.max(length * distance), length)
    distance = jnp.where(moving(distance), distance, positive_or_one(largest))
    reach = jnp.where(state.scale.reach > 0, state.scale.reach, distance)
    # How fast a coordinate passes its reach at its speed, and how fast from rest under its acceleration.
    own = jnp.maximum(jnp.abs(v) / reach, jnp.sqrt(jnp.abs(vdot) / reach))
    rate = jnp.maximum(state.scale.rate, jnp.max(jnp.where(jnp.isfinite(own), own, 0)))
    # A system at rest without forces has no rate of its own; for no time either any step will do.
    rate = positive_or_one(jnp.maximum(rate, quotient(1.0, time)))
    across = reach if system.rate is None else jnp.abs(rate_matrix(system.rate, q, system.nv)) @ reach
    energy = 0.5 * jnp.sum(jnp.diagonal(mass) * (reach * rate) ** 2)
    # Of a system without inertia no energy tells how exact work must be.
    energy = jnp.where(energy > 0, energy, jnp.inf)
    sizes = StateVector.of(positive_or_one(across), reach * rate, energy)
    return dataclasses.replace(state.scale, rate=rate), sizes
