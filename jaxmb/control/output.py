"""What is to be moved: rows that are differentiated like those of constraints."""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import (
    FunctionOfMotion,
    FunctionOfState,
    NoNaN,
    as_function,
    contract,
    expect_available,
    function_of,
    program,
    shape_of,
)
from ..system import (
    AbstractConstraint,
    AbstractJoints,
    Coordinate,
    Holonomic,
    Pfaffian,
    System,
    constraint_jacobian,
    gamma,
    in_turn,
    residuals,
)
from .plant import Plant

Scalar = Float[Array, ""]


class AbstractOutput(eqx.Module):
    """Quantities that a control law moves, θ(t, q) or ω(t, q, v)."""

    @abc.abstractmethod
    def rows(self, system: System) -> tuple[AbstractConstraint, ...]:
        """The quantities as constraints θ = 0 or ω = 0, whose derivatives are those of θ and ω."""

    @abc.abstractmethod
    def wraps(self, system: System) -> tuple[bool, ...]:
        """For each block of `rows`, whether it consists of angles between −π and π."""


class Output(AbstractOutput):
    """A function of the pose, θ(t, q, params).

    Args:
        theta: `theta(t, q, params)` returns θ of shape (k,), or a scalar. It must not jump along the motion: for an angle by `arctan2` choose
            the branch, or name the joint's coordinate in a `JointOutput`.
    """

    theta: Callable[..., Array]

    @contract
    def __init__(self, theta: FunctionOfState):
        self.theta = as_function(theta, "theta")

    def rows(self, system: System) -> tuple[AbstractConstraint, ...]:
        """θ as a constraint θ = 0."""
        return (Holonomic("theta", self.theta),)

    def wraps(self, system: System) -> tuple[bool, ...]:
        """False."""
        return (False,)


class VelocityOutput(AbstractOutput):
    """A velocity, ω(t, q, v, params), affine in v: a speed, an angular velocity, or a velocity that is not the derivative of a position.

    Args:
        omega: `omega(t, q, v, params)` returns ω of shape (k,), or a scalar.
    """

    omega: Callable[..., Array]

    @contract
    def __init__(self, omega: FunctionOfMotion):
        self.omega = as_function(omega, "omega")

    def rows(self, system: System) -> tuple[AbstractConstraint, ...]:
        """ω as a constraint ω = 0."""
        return (Pfaffian("omega", self.omega),)

    def wraps(self, system: System) -> tuple[bool, ...]:
        """False."""
        return (False,)


class JointOutput(AbstractOutput):
    """Coordinates of joints by name, whether they are coordinates of the system or not.

    Angles of joints outside the tree whose turns are not counted lie between −π and π. Their errors are taken modulo 2π, so that
    they do not jump as long as they are less than half a turn.

    Args:
        *names: "joint", or "joint.coordinate" where it has several; names of coordinates where the system was not built from a
            mechanism.
    """

    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, *names: object):
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"Argument `names` must hold names of joint coordinates, but is {names!r}.")
        self.names = tuple(str(name) for name in names)

    def rows(self, system: System) -> tuple[AbstractConstraint, ...]:
        """One for each name."""
        return tuple(Holonomic(name, self._coordinate(system, name)) for name in self.names)

    def wraps(self, system: System) -> tuple[bool, ...]:
        """Those that are such angles."""
        return tuple(system.joints is not None and system.joints.wraps(name) for name in self.names)

    def _coordinate(self, system: System, name: str) -> Callable[..., Array]:
        if system.joints is not None:
            return system.joints.coordinate(name)
        expect_available("Argument `names` must hold coordinates", [name], system.coordinates)
        return Coordinate(system.coordinates.index(name))


class MotionOutput(AbstractOutput):
    """A function of the positions of a mechanism.

    Args:
        fn: `fn(motion)` returns θ of shape (k,), or a scalar, for example `lambda motion: motion.position("tip")`. It may read
            poses, coordinates and time of the `Motion`, no velocities.
    """

    fn: Callable[..., Array]

    @contract
    def __init__(self, fn: Annotated[Any, function_of("motion")]):
        self.fn = as_function(fn, "fn")

    def rows(self, system: System) -> tuple[AbstractConstraint, ...]:
        """θ as a constraint θ = 0."""
        if system.joints is None:
            raise ValueError("Argument `fn` must be left to systems that were built from a mechanism, but this is not.")
        return (Holonomic("fn", _OfMotion(system.joints, self.fn, system.nv)),)

    def wraps(self, system: System) -> tuple[bool, ...]:
        """False."""
        return (False,)


class Outputs(AbstractOutput):
    """Several outputs, one after another.

    Args:
        *outputs: outputs, or what `as_output` accepts.
    """

    outputs: tuple[AbstractOutput, ...]

    @contract
    def __init__(
        self, *outputs: AbstractOutput | str | Sequence[AbstractOutput | str | FunctionOfState] | FunctionOfState
    ):
        self.outputs = tuple(as_output(output) for output in outputs)

    def rows(self, system: System) -> tuple[AbstractConstraint, ...]:
        """Those of all outputs."""
        return tuple(row for output in self.outputs for row in output.rows(system))

    def wraps(self, system: System) -> tuple[bool, ...]:
        """Those of all outputs."""
        return tuple(wraps for output in self.outputs for wraps in output.wraps(system))


def as_output(output: object) -> AbstractOutput:
    """Converts to an output: one or several names to a `JointOutput`, a function to an `Output`."""
    if isinstance(output, AbstractOutput):
        return output
    if isinstance(output, str):
        return JointOutput(output)
    if isinstance(output, Sequence):
        return JointOutput(*output) if all(isinstance(x, str) for x in output) else Outputs(*output)
    return Output(output)


class _OfMotion(eqx.Module):
    joints: AbstractJoints
    fn: Callable[..., Array]
    nv: int = eqx.field(static=True)

    def __call__(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> Array:
        return self.fn(self.joints.motion(t, q, jnp.zeros(self.nv, q.dtype), params))


class OutputRows(eqx.Module):
    """An output at an instant: its rate is J v + b, and J v̇ = θ̈ + Γ.

    Attributes:
        value: θ (k,); zero in rows of velocities.
        rate: θ̇, or ω (k,).
        jacobian: J (k, nv).
        gamma: Γ (k,), minus the time derivative of the rate with v held fixed.
        velocity: which rows are velocities.
        wraps: which rows are angles between −π and π.
    """

    value: Float[Array, " k"]
    rate: Float[Array, " k"]
    jacobian: Float[Array, "k nv"]
    gamma: Float[Array, " k"]
    velocity: tuple[bool, ...] = eqx.field(static=True)
    wraps: tuple[bool, ...] = eqx.field(static=True)


@contract
@program
def output_rows(
    plant: Plant, output: AbstractOutput | str | Sequence[AbstractOutput | str | FunctionOfState] | FunctionOfState
) -> OutputRows:
    """An output at an instant, differentiated by the same code as constraints are.

    Args:
        plant: the mechanism at an instant.
        output: what `as_output` accepts.

    Raises:
        ValueError: for functions of another shape, and names that are not known.
    """
    output, t, q, v = as_output(output), plant.t, plant.q, plant.v
    blocks = output.rows(plant.system)
    counts = row_counts(plant.system, blocks)
    # The output in place of the constraints: J, b and Γ of θ are found by the code that finds those of φ.
    system = plant.system.with_constraints(blocks, counts)
    value, rate = residuals(system, t, q, v)
    spread = lambda flags: tuple(flag for flag, count in zip(flags, counts, strict=True) for _ in range(count))
    return OutputRows(
        value=value,
        rate=rate,
        jacobian=constraint_jacobian(system, t, q),
        gamma=gamma(system, t, q, v),
        velocity=spread([isinstance(block, Pfaffian) for block in blocks]),
        wraps=spread(output.wraps(plant.system)),
    )


def row_counts(system: System, blocks: Sequence[AbstractConstraint]) -> tuple[int, ...]:
    """The numbers of rows of blocks of an output."""
    counts = []
    arguments = [jax.ShapeDtypeStruct(shape, system.guess.dtype) for shape in ((), (system.nq,), (system.nv,))]
    for block in blocks:
        shapes = arguments if isinstance(block, Pfaffian) else arguments[:2]
        # By abstract evaluation: functions are not run, and an error names the block.
        shape = shape_of(block.name, block.fn, (*shapes, system.params), ("k",), ())
        counts.append(shape[0] if shape else 1)
    return tuple(counts)


class Tracking(eqx.Module):
    """The errors of an output relative to its reference.

    Attributes:
        error: θ_d − θ (k,), of angles without full turns modulo 2π; zero in rows of velocities.
        rate: θ̇_d − θ̇, or ω_d − ω (k,).
        feedforward: θ̈_d, or ω̇_d (k,).
    """

    error: Float[Array, " k"]
    rate: Float[Array, " k"]
    feedforward: Float[Array, " k"]

    def law(self, stiffness: Float[Array, "..."] | float, damping: Float[Array, "..."] | float) -> Float[Array, " k"]:
        """W = θ̈_d + G_D ė + G_P e, of velocities ω̇_d + G_D (ω_d − ω); gains are numbers, (k,) or (k, k)."""
        times = lambda gain, x: jnp.asarray(gain) @ x if jnp.ndim(gain) == 2 else gain * x
        return self.feedforward + times(damping, self.rate) + times(stiffness, self.error)


@contract
def tracking(plant: Plant, rows: OutputRows, reference: NoNaN | Annotated[Any, function_of("t")]) -> Tracking:
    """The errors of an output.

    Args:
        plant: the mechanism at an instant.
        rows: the output there, by `output_rows`.
        reference: θ_d or ω_d, numbers of shape (k,) or a scalar, or a function of t that returns them, which is differentiated.

    Raises:
        ValueError: for a reference of another shape.
    """
    desired, speed, acceleration = reference_at(reference, plant.t, rows.value.shape[0])
    velocity = np.array(rows.velocity, bool)
    error = desired - rows.value
    error = jnp.where(np.array(rows.wraps, bool), in_turn(error), error)
    return Tracking(
        error=jnp.where(velocity, 0, error),
        rate=jnp.where(velocity, desired, speed) - rows.rate,
        feedforward=jnp.where(velocity, speed, acceleration),
    )


def reference_at(
    reference: NoNaN | Callable[[Scalar], Array], t: Scalar, count: int
) -> tuple[Float[Array, " k"], Float[Array, " k"], Float[Array, " k"]]:
    """A reference with its first and second derivatives in time, each (count,)."""
    function = reference if callable(reference) else lambda t: reference
    shape = shape_of("reference", function, (t,), (), ("k",)) if callable(reference) else jnp.shape(reference)
    if shape not in ((), (count,)):
        raise ValueError(
            f"Argument `reference` must have, or return, {count} numbers as the output has, but has shape {shape}."
        )
    fn = lambda t: jnp.broadcast_to(jnp.asarray(function(t), t.dtype), (count,))
    one = jnp.ones_like(t)
    # Forward over forward: θ_d, θ̇_d and θ̈_d in one pass.
    rate = lambda t: jax.jvp(fn, (t,), (one,))
    (value, speed), (_, acceleration) = jax.jvp(rate, (t,), (one,))
    return value, speed, acceleration
