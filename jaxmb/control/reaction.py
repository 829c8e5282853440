"""The force law: inputs that bring reactions to demanded values without changing the motion."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..foundations import (
    FunctionOfState,
    Limits,
    NonNegative,
    TextInNotebooks,
    as_function,
    contract,
    listing,
    positive_or_one,
    program,
    shape_of,
)
from ..linalg import PseudoInverse, invert, metric_root
from ..system import System
from .motion import Chart, Command, chart, command, preferred_input
from .output import OutputRows
from .plant import Plant, Response


class AbstractForces(eqx.Module):
    """Forces of constraints that a control law commands, y = S λ."""

    @abc.abstractmethod
    def labels(self, system: System) -> tuple[str, ...]:
        """The name of each of them in messages."""

    @abc.abstractmethod
    def weights(self, plant: Plant) -> Float[Array, "k m"]:
        """The matrix S."""

    @abc.abstractmethod
    def read(self, response: Response) -> Float[Array, "k *n"]:
        """Their values y in the response of a mechanism."""


class Multipliers(AbstractForces):
    """The multipliers λ of constraints, for example the normal force of a wall, or the effort of a driver.

    Args:
        *names: names of constraints, in whose order they follow each other.
    """

    names: tuple[str, ...] = eqx.field(static=True)

    @contract
    def __init__(self, *names: str):
        self.names = names

    def labels(self, system: System) -> tuple[str, ...]:
        """The name for each row."""
        parts = [(name, _part(system, name)) for name in self.names]
        return tuple(
            name if part.stop - part.start == 1 else f"{name}[{i}]"
            for name, part in parts
            for i in range(part.stop - part.start)
        )

    def weights(self, plant: Plant) -> Float[Array, "k m"]:
        """Rows of I."""
        return self._chosen(plant.system, jnp.eye(plant.system.m, dtype=plant.q.dtype))

    def read(self, response: Response) -> Float[Array, "k *n"]:
        """λ of these rows."""
        return self._chosen(response.plant.system, response.multipliers)

    def _chosen(self, system: System, rows: Array) -> Array:
        return jnp.concatenate([rows[:0], *(rows[_part(system, name)] for name in self.names)])


class ReactionAlong(AbstractForces):
    """Components E (M v̇ − F) of the reaction of all constraints together, which are unique wherever the motion is.

    Args:
        directions: `directions(t, q, params)` returns E (k, nv): the velocities along which the power of the reaction is measured, for
            example a row of the Jacobian of a point with respect to v.
        names: what to call them.
    """

    directions: Callable[..., Array]
    names: tuple[str, ...] | None = eqx.field(static=True)

    @contract
    def __init__(self, directions: FunctionOfState, names: tuple[str, ...] | None = None):
        self.directions, self.names = as_function(directions, "directions"), names

    def labels(self, system: System) -> tuple[str, ...]:
        """Their names."""
        count = _direction_count(system, self.directions)
        return _checked_names(self.names, count) or tuple(f"reaction {i}" for i in range(count))

    def weights(self, plant: Plant) -> Float[Array, "k m"]:
        """E Cᵀ."""
        return _directions(plant, self.directions) @ plant.rows.jacobian.T

    def read(self, response: Response) -> Float[Array, "k *n"]:
        """E (M v̇ − F), which needs no multipliers."""
        return _directions(response.plant, self.directions) @ response.reaction


class ConstraintForce(AbstractForces):
    """Components E C_Xᵀλ_X of the generalised force of one constraint X.

    Args:
        name: of the constraint.
        directions: as in `ReactionAlong`.
        names: what to call them.
    """

    name: str = eqx.field(static=True)
    directions: Callable[..., Array]
    names: tuple[str, ...] | None = eqx.field(static=True)

    @contract
    def __init__(self, name: str, directions: FunctionOfState, names: tuple[str, ...] | None = None):
        self.name, self.directions, self.names = name, as_function(directions, "directions"), names

    def labels(self, system: System) -> tuple[str, ...]:
        """Their names."""
        count = _direction_count(system, self.directions)
        return _checked_names(self.names, count) or tuple(f"{self.name} {i}" for i in range(count))

    def weights(self, plant: Plant) -> Float[Array, "k m"]:
        """E C_Xᵀ, zero in the columns of other constraints."""
        rows = jnp.zeros((plant.v.shape[0], plant.system.m), plant.q.dtype)
        part = _part(plant.system, self.name)
        return _directions(plant, self.directions) @ rows.at[:, part].set(plant.rows.jacobian[part].T)

    def read(self, response: Response) -> Float[Array, "k *n"]:
        """E C_Xᵀλ_X."""
        part = _part(response.plant.system, self.name)
        force = response.plant.rows.jacobian[part].T @ response.multipliers[part]
        return _directions(response.plant, self.directions) @ force


def _part(system: System, name: str) -> slice:
    if name not in system.rows:
        raise ValueError(f"Argument `name` must be a constraint out of {listing(system.rows)}, but is {name!r}.")
    return system.rows[name]


def _directions(plant: Plant, directions: Callable[..., Array]) -> Float[Array, "k nv"]:
    _direction_count(plant.system, directions)
    # After the check of shapes, whose error names the argument.
    return directions(plant.t, plant.q, plant.system.params)


def _direction_count(system: System, directions: Callable[..., Array]) -> int:
    q = system.guess
    return shape_of("directions", directions, (q[:1].sum(), q, system.params), ("k", system.nv))[0]


def _checked_names(names: tuple[str, ...] | None, count: int) -> tuple[str, ...] | None:
    if names is not None and len(names) != count:
        raise ValueError(f"Argument `names` must name each of {count} directions, but names {len(names)}.")
    return names


class HybridCommand(TextInNotebooks, eqx.Module):
    """Inputs for a motion and for forces.

    Attributes:
        u: inputs (nu,).
        motion: the command of the motion, as in `motion_law`.
        forces: y (k_y,) that they give the model.
        residual: by how much these miss the demanded forces (k_y,).
        by_force: ∂u/∂y_c (nu, k_y).
        authority: smallest singular value of the answer of y to inputs that move nothing, in units of what the inputs could do:
            zero where the actuators cannot command all these forces besides the motion.
    """

    u: Float[Array, " nu"]
    motion: Command
    forces: Float[Array, " k"]
    residual: Float[Array, " k"]
    by_force: Float[Array, "nu k"]
    authority: Float[Array, ""]


class Authority(eqx.Module):
    """How inputs act on forces.

    Attributes:
        alone: y₀ (k_y,), at u = 0.
        by_input: −∂y/∂x (k_y, nu) for x = W^(−1/2) u, rows in units of `sizes`.
        sizes: (k_y,), what the inputs could do to a reaction without sharing it.
        impotent: projector (nu, nu) on the x that move no output.
        inverse: of `by_input` in these directions.
    """

    alone: Float[Array, " k"]
    by_input: Float[Array, "k nu"]
    sizes: Float[Array, " k"]
    impotent: Float[Array, "nu nu"]
    inverse: PseudoInverse


@contract
@program
def hybrid_law(
    plant: Plant,
    rows: OutputRows,
    w: Float[Array, " k"],
    forces: AbstractForces,
    y: Float[Array, " j"],
    *,
    limits: Limits | None = None,
    preferred: Float[Array, " nu"] | None = None,
    damping: NonNegative | None = None,
) -> HybridCommand:
    """The motion law, with forces y controlled in the freedom that it leaves.

    With A₁ = Π D B W^(1/2), y = y₀ − A₂ x, N = I − A₁⁺A₁ and s of `motion_law`

        x = A₁⁺ s + (A₂ N)⁺ (y₀ − y_c − A₂ A₁⁺ s),   u = W^(1/2) x:

    the motion has priority, whether or not the forces can be reached; if they can, the input has least norm. With an actuator in
    every coordinate that is u = M v̇_c − F − Cᵀλ_c (Aghili 2005, section 4, corrected). Forces that a rigid model does not determine
    follow their value of least norm, see `analyse_forces`.

    Args:
        plant: the mechanism at an instant.
        rows: the output there; that of `Outputs()`, which is empty, if the motion is not controlled.
        w: as in `motion_law`.
        forces: what y is.
        y: y_c (k_y,).
        limits: as in `motion_law`.
        preferred: likewise.
        damping: likewise; for the motion only.

    Raises:
        ValueError: for arguments of another shape, and names that are not known.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: 2 * jnp.eye(2),
        ...                    constraints=[jm.Holonomic("wall", lambda t, q, p: q[1])],
        ...                    actuation=lambda t, q, p: jnp.eye(2))
        >>> plant = jm.control.Plant.at(system, jm.assemble(system, [0.0, 0.0]))
        >>> rows, wall = jm.control.output_rows(plant, "x"), jm.control.Multipliers("wall")
        >>> found = jm.control.hybrid_law(plant, rows, jnp.array([3.0]), wall, jnp.array([5.0]))
        >>> [round(float(x), 6) for x in found.u], round(float(plant.respond(found.u).multipliers[0]), 6)
        ([6.0, -5.0], 5.0)
    """
    moving = chart(plant, rows, w, limits, damping)
    first = moving.actuation(damping)
    # Not damped: what moves nothing must move nothing, and a damped inverse leaves a little of each motion.
    authority = force_authority(plant, moving, first if damping is None else moving.actuation(), forces)
    if jnp.shape(y) != authority.alone.shape:
        raise ValueError(
            f"Argument `y` must have a number for each of {authority.alone.shape[0]} forces, but has shape {jnp.shape(y)}."
        )
    by_input, limits = moving.drive.by_input, moving.drive.limits
    x = preferred_input(preferred, limits)
    x = x + first.inverse @ (moving.projector @ (moving.target - by_input @ x))
    sizes = authority.sizes
    # The second task in the null space of the first, by its own pseudo-inverse (Nakamura 1991, task priority).
    x = x + authority.impotent @ (authority.inverse.inverse @ ((authority.alone - y) / sizes - authority.by_input @ x))
    reached = authority.alone - sizes * (authority.by_input @ x)
    least = authority.inverse.value(sizes.shape[0])
    motion = command(plant, rows, w, moving, first, limits * x, by_input @ x)
    by_force = -limits[:, None] * (authority.impotent @ authority.inverse.inverse) / sizes
    return HybridCommand(
        u=limits * x, motion=motion, forces=reached, residual=y - reached, by_force=by_force, authority=least
    )


def force_authority(plant: Plant, moving: Chart, potent: PseudoInverse, forces: AbstractForces) -> Authority:
    """How inputs act on forces beside a motion; `potent` is the inverse of its Π D B W^(1/2), not damped."""
    limits = moving.drive.limits
    alone = forces.read(plant.respond())
    answer = forces.read(plant.respond_to_forces(plant.actuation * limits))
    sizes = _sizes(plant, forces) * moving.drive.size
    by_input = -answer / sizes[:, None]
    impotent = jnp.eye(limits.shape[0], dtype=limits.dtype) - potent.inverse @ moving.by_input
    # Relative to what the inputs could do, not to what is left of it: else rounding would be inverted, and the motion lost.
    inverse = invert(by_input @ impotent, moving.drive.rank_tol)
    return Authority(alone=alone, by_input=by_input, sizes=sizes, impotent=impotent, inverse=inverse)


def _sizes(plant: Plant, forces: AbstractForces) -> Float[Array, " k"]:
    """‖S_i/σ‖: the force y_i of multipliers with a reaction of unit size each, in the metric of M⁻¹."""
    rows = lax.stop_gradient(plant.rows.jacobian)
    root = metric_root(lax.stop_gradient(plant.terms.mass), lax.stop_gradient(plant.terms.jacobian))
    # ‖C_i M^(−1/2)‖, so that λ_i times it is a force of row i in units of M⁻¹.
    lengths = positive_or_one(jnp.linalg.norm(rows @ root.T, axis=1))
    sizes = jnp.linalg.norm(lax.stop_gradient(forces.weights(plant)) / lengths, axis=1)
    return positive_or_one(sizes)
