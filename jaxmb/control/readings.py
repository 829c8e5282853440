"""Names of what describes a motion in first order, and how it is read off a state."""

import abc
import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ..foundations import expect_different, listing
from ..kinematics import displacement
from ..linalg import solve_spd
from ..system import System, in_turn, rate_matrix

Scalar = Float[Array, ""]
Rate = Callable[[Array, Array], Array]  # q̇ = N(q) v of (q, v)


class AbstractReading(eqx.Module):
    """An independent coordinate s, or quasi-coordinate, of which ṡ is read off positions and velocities."""

    name: str = eqx.field(static=True)

    @abc.abstractmethod
    def rate(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], qdot: Rate, params: PyTree) -> Scalar:
        """ṡ, where q̇ = `qdot(q, v)`."""


class VelocityReading(AbstractReading):
    """A velocity of the system; its coordinate is the deviation along it, δs of δq = N δr."""

    index: int = eqx.field(static=True)

    def rate(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], qdot: Rate, params: PyTree) -> Scalar:
        """The velocity."""
        return v[self.index]


class JointReading(AbstractReading):
    """A joint coordinate s(t, q, params), an angle between −π and π where it `wraps`."""

    fn: Callable[[Scalar, Array, PyTree], Array]
    wraps: bool = eqx.field(static=True)

    def rate(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], qdot: Rate, params: PyTree) -> Scalar:
        """ṡ by one derivative."""
        return jax.jvp(lambda t, q: self.fn(t, q, params), (t, q), (jnp.ones_like(t), qdot(q, v)))[1]


class StateReadings(eqx.Module):
    """What is read: some coordinates for positions, and some for velocities.

    Where velocity constraints leave fewer velocities than positions free, their numbers differ.
    """

    positions: tuple[AbstractReading, ...]
    velocities: tuple[AbstractReading, ...]

    @property
    def size(self) -> int:
        """Number of states n."""
        return len(self.positions) + len(self.velocities)

    @property
    def same_names(self) -> bool:
        """Whether velocities are those of the positions."""
        return [r.name for r in self.positions] == [r.name for r in self.velocities]

    def names(self, system: System) -> tuple[str, ...]:
        """Names of the states: s and s', or "along v" and v of a velocity v that is no derivative of a coordinate of its name."""
        is_coordinate = lambda r: isinstance(r, JointReading) or r.name in system.coordinates
        positions = [r.name if is_coordinate(r) else f"along {r.name}" for r in self.positions]
        return (*positions, *(f"{r.name}'" if is_coordinate(r) else r.name for r in self.velocities))


def rates(readings: Sequence[AbstractReading], system: System, t: Scalar, q: Array, v: Array) -> Float[Array, " k"]:
    """ṡ of each reading."""
    if not readings:
        return jnp.zeros(0, q.dtype)
    return jnp.stack([r.rate(t, q, v, system.qdot, system.params) for r in readings])


def rate_rows(readings: Sequence[AbstractReading], system: System, t: Scalar, q: Array) -> Float[Array, "k nv"]:
    """∂ṡ/∂v."""
    return jax.jacfwd(lambda v: rates(readings, system, t, q, v))(jnp.asarray(np.zeros(system.nv), q.dtype))


def bracket(system: System, q: Array, v: Array, displacement_rate: Array) -> Float[Array, " nv"]:
    """What δṙ is beyond δv: with δq = N δr and q̇ = N v, N (δṙ − δv) = ∂(N v)/∂q N δr − ∂(N δr)/∂q N v.

    Zero where q̇ = v, and −ω × δr of angular velocities in the axes of a body.
    """
    if system.rate is None:
        return jnp.zeros_like(v)
    # The Lie bracket of the fields N v and N δr, the term of Boltzmann and Hamel in quasi-velocities.
    turn = lambda speed, way: jax.jvp(lambda q: system.qdot(q, speed), (q,), (system.qdot(q, way),))[1]
    return displacement(system, q, turn(v, displacement_rate) - turn(displacement_rate, v))


class Deviation(eqx.Module):
    """The deviation of a motion from a state, in position and velocity, in the independent coordinates: x(t, q, v, params).

    Positions are differences of joint coordinates, and N⁺(q₀)(q − q₀) along velocities. Full turns of angles are not removed; for angles whose
    turns are not counted the difference is the shorter way round.

    Attributes:
        readings: the coordinates.
        rate_fn: q̇ = N(q) v, as in `System`.
        q: q₀ (nq,).
        inverse: rows of N⁺(q₀) (k, nq); zero for joint coordinates.
        positions: s₀ (k,) of joint coordinates; zero for the others.
        velocities: ṡ₀ (l,).
    """

    readings: StateReadings
    rate_fn: Callable[[Array, Array, PyTree], Array] | None
    q: Float[Array, " nq"]
    inverse: Float[Array, "k nq"]
    positions: Float[Array, " k"]
    velocities: Float[Array, " l"]

    def __call__(
        self, t: ArrayLike, q: Float[Array, " nq"], v: Float[Array, " nv"], params: PyTree
    ) -> Float[Array, " n"]:
        """The deviation x, positions first."""
        # The system's function and not the system: a law that holds a `Deviation` need not carry masses and
        # constraints.
        qdot = lambda q, v: v if self.rate_fn is None else self.rate_fn(q, v, params)
        t = jnp.asarray(t, q.dtype)
        positions = self.inverse @ (q - self.q) + self._joints(t, q, params)
        speeds = [r.rate(t, q, v, qdot, params) for r in self.readings.velocities]
        return jnp.concatenate([positions, jnp.stack(speeds) - self.velocities]) if speeds else positions

    def _joints(self, t: Scalar, q: Array, params: PyTree) -> Float[Array, " k"]:
        differences = [jnp.zeros_like(t)] * len(self.readings.positions)
        for i, r in enumerate(self.readings.positions):
            if isinstance(r, JointReading):
                gap = r.fn(t, q, params) - self.positions[i]
                differences[i] = in_turn(gap) if r.wraps else gap
        return jnp.stack(differences) if differences else jnp.zeros(0, q.dtype)


def deviation(readings: StateReadings, system: System, t: Scalar, q: Array, v: Array) -> Deviation:
    """The deviation from a state, which is zero there."""
    is_velocity = [isinstance(r, VelocityReading) for r in readings.positions]
    rows = rate_rows(readings.positions, system, t, q)
    # Joint coordinates are differences of themselves, by `_joints`; their rows of N⁺ are empty.
    rows = jnp.where(np.array(is_velocity, bool)[:, None], rows, 0)
    if system.rate is not None:
        matrix = rate_matrix(system.rate, q, system.nv)
        rows = jax.vmap(lambda row: matrix @ solve_spd(matrix.T @ matrix, row))(rows)
    count, speed = len(readings.positions), rates(readings.velocities, system, t, q, v)
    start = Deviation(
        readings=readings,
        rate_fn=system.rate_fn,
        q=q,
        inverse=rows,
        positions=jnp.zeros(count, q.dtype),
        velocities=speed,
    )
    return dataclasses.replace(start, positions=start._joints(t, q, system.params))


def named_readings(names: object, system: System) -> tuple[AbstractReading, ...]:
    """The readings with the given names.

    Raises:
        TypeError, ValueError: for what is no sequence of different names of velocities, or joint coordinates.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"Argument `independent` must be a sequence of names, but is {names!r}.")
    readings: list[AbstractReading] = []
    for name in names:
        if name in system.velocities:
            readings.append(VelocityReading(name, system.velocities.index(name)))
        elif system.joints is not None and isinstance(name, str):
            readings.append(JointReading(name, system.joints.coordinate(name), system.joints.wraps(name)))
        else:
            raise ValueError(
                f"Argument `independent` must hold names of velocities out of {listing(system.velocities)}, but holds {name!r}."
            )
    expect_different("`independent`", [r.name for r in readings])
    return tuple(readings)
