"""Functions of v have the degree that they must have, whatever the units: exact ones pass, slightly bent ones are refused."""

import jax.numpy as jnp
import pytest

import jaxmb as jm

# Lengths, masses and times of the units in which a model is written, seen from those in which its speeds are about one.
UNITS = [(1.0, 1.0, 1.0), (1e6, 1.0, 1.0), (1e-6, 1.0, 1.0), (1.0, 1e6, 1e-6), (1.0, 1e-6, 1e6), (1e6, 1e6, 1e6)]
SMALL = 1e-6


def pair(mass, **arguments):
    """Two coordinates, a length and an angle-like one of a metre, with their masses."""
    return jm.System(2, mass=lambda t, q, p: mass * jnp.array([[2.0, 0.3], [0.3, 1.0]]), **arguments)


def affine(bend, length, mass, time):
    speed = length / time
    row = lambda t, q, v, p: jnp.stack([v[0] + 0.5 * v[1], q[0] / time + v[1] + bend * v[0] ** 2 / speed])
    return pair(mass, constraints=[jm.Pfaffian("blade", row, parts={"first": 1, "second": 1})])


def linear(bend, length, mass, time):
    speed = length / time
    return pair(mass, velocities=2, rate=lambda q, v, p: 3 * v + bend * (speed + jnp.abs(v[1])))


def quadratic(bend, length, mass, time):
    speed = length / time

    def lagrangian(t, q, qdot, p):
        kinetic = 0.5 * mass * (qdot[0] ** 2 + qdot @ qdot + qdot[0] * qdot[1])
        return (
            kinetic * (1 + bend * qdot @ qdot / speed**2)
            + mass * speed * q[1] / length * qdot[0]
            - mass * q @ q / time**2
        )

    return jm.System.from_lagrangian(lagrangian, 2)


CASES = {
    affine: "Constraint 'second' must be affine in v",
    linear: "Argument `rate` must be linear in v",
    quadratic: "Argument `lagrangian` must be quadratic in qdot",
}


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_degrees_are_the_same_in_all_units(make, units):
    q = [0.3 * units[0], 0.2 * units[0]]
    for v in ([0.0, 0.0], [units[0] / units[2], 0.0]):
        jm.assemble(make(0.0, *units), q, v if make is not affine else None)
    with pytest.raises(ValueError, match=CASES[make]):
        jm.assemble(make(SMALL, *units), q)


@pytest.mark.parametrize("light", [1.0, 10.0, 3e8])
def test_a_relativistic_particle_is_refused(light):
    """Its momentum is not that of a mass matrix: −0.083 would be −1."""
    lagrangian = lambda t, q, qdot, p: -(light**2) * jnp.sqrt(1 - qdot[0] ** 2 / light**2) - q[0]
    with pytest.raises(ValueError, match=r"`lagrangian` must be quadratic in qdot, but its third .* is [0-9.e+-]+\.$"):
        jm.assemble(jm.System.from_lagrangian(lagrangian, 1), [0.0], [0.9])
