"""Inertia as an output feels it, and inputs along a given motion."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..foundations import FunctionOfState, Limits, as_function, contract, function_of, program, quotient
from ..linalg import invert, solve_square
from ..system import Holonomic, Pfaffian, System, in_turn
from .affine import drive
from .output import AbstractOutput, OutputRows, as_output, row_counts
from .plant import Plant


class Operational(eqx.Module):
    """The equations of an output, M_θ (θ̈ + Γ − J v̇₀) = Λᵀ B u.

    Attributes:
        mass: M_θ = (J Y Jᵀ)⁻¹ = ΛᵀMΛ (k_θ, k_θ).
        lift: Λ = Y Jᵀ M_θ (nv, k_θ), with J Λ = I and C Λ = 0.
        by_input: Λᵀ B (k_θ, nu), what inputs do along the output: the efforts of drivers that would do the same.
        bias: J v̇₀ − Γ (k_θ,), θ̈ or ω̇ without inputs.
    """

    mass: Float[Array, "k k"]
    lift: Float[Array, "nv k"]
    by_input: Float[Array, "k nu"]
    bias: Float[Array, " k"]


@contract
@program
def operational(plant: Plant, rows: OutputRows) -> Operational:
    """The operational space of an output; NaN where its rows are not independent on null(C) (Khatib 1987, on null(C))."""
    # Y Jᵀ: the accelerations under a unit force along each row; constraints do their part (Khatib 1987, here on
    # null(C)).
    answer = plant.respond_to_forces(rows.jacobian.T).vdot
    count = rows.value.shape[0]
    inverse = rows.jacobian @ answer
    mass = jax.vmap(lambda unit: solve_square(inverse, unit), out_axes=1)(jnp.eye(count, dtype=answer.dtype))
    lift = answer @ mass
    return Operational(mass, lift, lift.T @ plant.actuation, rows.jacobian @ plant.respond().vdot - rows.gamma)


class Effort(eqx.Module):
    """The inputs and reactions of a given motion.

    Attributes:
        u: inputs (nu,).
        reaction: M v̇ − F − B u (nv,).
        missed: ‖D (M v̇ − F − B u)‖/‖D (M v̇ − F)‖, the part of the required force that the actuators cannot give.
    """

    u: Float[Array, " nu"]
    reaction: Float[Array, " nv"]
    missed: Float[Array, ""]


@contract
@program
def inverse_dynamics(plant: Plant, vdot: Float[Array, " nv"], limits: Limits | None = None) -> Effort:
    """The inputs for a known motion, u = W^(1/2) (D B W^(1/2))⁺ D (M v̇ − F).

    Args:
        plant: the mechanism at an instant of the motion.
        vdot: v̇ (nv,), which the constraints allow.
        limits: as in `motion_law`.
    """
    actuators = drive(plant, limits)
    force = plant.terms.mass @ vdot - plant.terms.force
    # D M (v̇ − v̇₀) = D (M v̇ − F), which needs no reaction: D Cᵀ = 0.
    demand = actuators.basis @ (plant.terms.mass @ (vdot - plant.respond().vdot))
    x = invert(actuators.by_input, actuators.rank_tol, actuators.size).inverse @ demand
    length = jnp.linalg.norm(demand)
    missing = jnp.linalg.norm(demand - actuators.by_input @ x)
    u = actuators.limits * x
    return Effort(u, force - plant.actuation @ u, quotient(missing, length))


class _Driven(eqx.Module):
    """θ − θ_d(t), of angles without full turns between −π and π."""

    fn: Callable[..., Array]
    reference: Callable[[Array], Array]
    start: int = eqx.field(static=True)
    count: int = eqx.field(static=True)
    wraps: bool = eqx.field(static=True)

    def __call__(self, t: Array, *rest: PyTree) -> Array:
        value = jnp.reshape(self.fn(t, *rest), (self.count,))
        desired = jnp.ravel(jnp.asarray(self.reference(t), value.dtype))[self.start : self.start + self.count]
        gap = value - desired
        return in_turn(gap) if self.wraps else gap


@contract
def with_drivers(
    system: System,
    output: AbstractOutput | str | Sequence[AbstractOutput | str | FunctionOfState] | FunctionOfState,
    reference: Annotated[Any, function_of("t")],
    name: str = "driver",
) -> System:
    """The system with the output driven, θ = θ_d(t): its kinematics is the motion, its multipliers are the efforts τ_θ = Λᵀ B u.

    Assemble a state of it: v̇ is `jm.reactions(driven, state).vdot`, from which `inverse_dynamics` of the system without drivers finds the inputs.

    Args:
        system: the system.
        output: what `as_output` accepts.
        reference: `reference(t)` returns θ_d, or ω_d, of as many numbers as the output has rows.
        name: of the constraints: the name of the output's block follows it.

    Raises:
        ValueError: for functions of another shape, and names that are not known.
    """
    output = as_output(output)
    blocks, wraps = output.rows(system), output.wraps(system)
    counts, added, start = row_counts(system, blocks), [], 0
    fn = as_function(reference, "reference")
    for block, count, turning in zip(blocks, counts, wraps, strict=True):
        kind = Pfaffian if isinstance(block, Pfaffian) else Holonomic
        added.append(kind(f"{name} {block.name}", _Driven(block.fn, fn, start, count, turning)))
        start += count
    return system.with_constraints((*system.constraints, *added), (*system.row_counts, *counts))
