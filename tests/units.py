"""The same system measured in other units, and beside a stranger."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from jaxmb.system import AbstractInertia, Holonomic

# Units of length, mass and time.
UNITS = np.array(
    [
        [1.0, 1.0, 1.0],
        [1e-6, 1.0, 1.0],
        [1e-3, 1.0, 1.0],
        [1e3, 1.0, 1.0],
        [1e6, 1.0, 1.0],
        [1.0, 1e-9, 1.0],
        [1.0, 1e9, 1.0],
        [1.0, 1.0, 1e-3],
        [1.0, 1.0, 1e3],
        [1e-3, 1e-6, 1e-3],
    ]
)
# Mass and length of an unconnected pendulum.
STRANGERS = np.array([[1.0, 1e3], [1e-9, 1e3], [1e9, 1e3], [1e-6, 1e6], [1e6, 1e6]])


class Inertia(AbstractInertia):
    """That of a system, in other units; coordinates and velocities are given and returned in those."""

    system: jm.System
    lengths: tuple = eqx.field(static=True)

    def _own(self, t, q, p):
        own, units = p
        return units[2], t / units[2], q / sizes(self.lengths[0], units[0]), own, units

    def mass(self, t, q, p, rate, nv):
        _, t, q, own, units = self._own(t, q, p)
        size = sizes(self.lengths[1], units[0])
        return units[1] * units[0] ** 2 * self.system.with_params(own).mass(t, q) / jnp.outer(size, size)

    def force(self, t, q, v, p, rate):
        tau, t, q, own, units = self._own(t, q, p)
        size = sizes(self.lengths[1], units[0])
        force = self.system.with_params(own).intrinsic_force(t, q, v * tau / size)
        return units[1] * units[0] ** 2 / tau**2 * force / size

    def energy(self, t, q, v, p, rate):
        tau, t, q, own, units = self._own(t, q, p)
        size = sizes(self.lengths[1], units[0])
        kinetic, potential = self.system.with_params(own).energies(t, q, v * tau / size)
        unit = units[1] * units[0] ** 2 / tau**2
        return unit * kinetic, unit * potential

    def lagrangian(self, t, q, v, p, rate):
        kinetic, potential = self.energy(t, q, v, p, rate)
        return kinetic - potential


def sizes(lengths, unit):
    """The unit of length for coordinates that are lengths, 1 for angles."""
    return jnp.where(np.array(lengths), unit, 1.0)


def in_units(system, lengths, velocity_lengths=None):
    """The system with params (own params, (length, mass, time)), its q, v and t in these units.

    Args:
        system: a system.
        lengths: for each coordinate whether it is a length.
        velocity_lengths: likewise of velocities.
    """
    velocity_lengths = lengths if velocity_lengths is None else velocity_lengths

    def own(t, q, v, p):
        tau = p[1][2]
        v = None if v is None else v * tau / sizes(velocity_lengths, p[1][0])
        return t / tau, q / sizes(lengths, p[1][0]), v

    def force(t, q, v, p):
        tau = p[1][2]
        unit = p[1][1] * p[1][0] ** 2 / tau**2 / sizes(velocity_lengths, p[1][0])
        return unit * system.with_params(p[0]).applied_force(*own(t, q, v, p))

    def rows(constraint):
        def fn(t, q, *rest):
            p = rest[-1]
            t, q, v = own(t, q, rest[0] if len(rest) == 2 else None, p)
            return constraint.fn(t, q, *(() if v is None else (v,)), p[0])

        return type(constraint)(constraint.name, fn)

    def rate(q, v, p):
        unit = p[1][0]
        qdot = system.with_params(p[0]).qdot(q / sizes(lengths, unit), v / sizes(velocity_lengths, unit))
        return sizes(lengths, unit) * qdot

    plain = system.rate_fn is None
    normalise = None
    if system.normalise_fn is not None:  # lengths are not normalised
        normalise = lambda q: jnp.where(np.array(lengths), q, system.normalise(q))
    return jm.System(
        system.coordinates,
        inertia=Inertia(system, (tuple(lengths), tuple(velocity_lengths))),
        force=force,
        constraints=[rows(c) for c in system.constraints],
        params=(system.params, jnp.ones(3)),
        velocities=system.velocities,
        rate=None if plain else rate,
        normalise=normalise,
    )


def with_stranger(system):
    """The system beside a pendulum of mass and length p[1] that is not connected to it."""
    n, k = system.nq, system.nv

    def mass(t, q, p):
        return jax.scipy.linalg.block_diag(system.with_params(p[0]).mass(t, q[:n]), p[1][0] * jnp.eye(2))

    def force(t, q, v, p):
        own = system.with_params(p[0])
        mine = own.applied_force(t, q[:n], v[:k]) + own.intrinsic_force(t, q[:n], v[:k])
        # Inertia forces come from the mass matrix too; those of the system are in `mine` already.
        return jnp.concatenate([mine, jnp.stack([jnp.zeros(()), -9.81 * p[1][0]])]) - _inertia(t, q, v, p)

    def _inertia(t, q, v, p):
        momentum = lambda t, q: mass(t, q, p) @ v
        energy = lambda q: 0.5 * v @ mass(t, q, p) @ v
        rest = jax.grad(energy)(q) - jax.jvp(momentum, (t, q), (jnp.ones_like(t), v))[1]
        return rest

    def rows(constraint):
        holonomic = isinstance(constraint, Holonomic)
        fn = (
            (lambda t, q, p: constraint.fn(t, q[:n], p[0]))
            if holonomic
            else (lambda t, q, v, p: constraint.fn(t, q[:n], v[:k], p[0]))
        )
        return type(constraint)(constraint.name, fn)

    return jm.System(
        (*system.coordinates, "stranger x", "stranger y"),
        mass=mass,
        force=force,
        constraints=[*(rows(c) for c in system.constraints), jm.Holonomic("string", _string)],
        params=(system.params, jnp.ones(2)),
    )


def _string(t, q, p):
    return q[-2:] @ q[-2:] - p[1][1] ** 2


def replaced(system, units):
    """The system of `in_units` or `with_stranger` with other numbers."""
    return system.with_params((system.params[0], units))
