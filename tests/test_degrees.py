"""Functions of v have the degree that they must have, whatever the units: exact ones pass, slightly bent ones are refused."""

import functools

import jax.numpy as jnp
import pytest

import jaxmb as jm

# Lengths, masses and times of the units in which a model is written, seen from those in which its speeds are about one.
UNITS = [(1.0, 1.0, 1.0), (1e6, 1.0, 1.0), (1e-6, 1.0, 1.0), (1.0, 1e6, 1e-6), (1.0, 1e-6, 1e6), (1e6, 1e6, 1e6)]
SMALL = 1e-6
NUMBERS = {"bend": 0.0, "length": 1.0, "mass": 1.0, "time": 1.0}


def pair(**arguments):
    """Two coordinates, a length and an angle-like one of a metre, with their masses."""
    mass = lambda t, q, p: p["mass"] * jnp.array([[2.0, 0.3], [0.3, 1.0]])
    return jm.System(2, mass=mass, params=NUMBERS, **arguments)


def affine():
    def row(t, q, v, p):
        speed = p["length"] / p["time"]
        return jnp.stack([v[0] + 0.5 * v[1], q[0] / p["time"] + v[1] + p["bend"] * v[0] ** 2 / speed])

    return pair(constraints=[jm.Pfaffian("blade", row, parts={"first": 1, "second": 1})])


def linear():
    return pair(velocities=2, rate=lambda q, v, p: 3 * v + p["bend"] * (p["length"] / p["time"] + jnp.abs(v[1])))


def quadratic():
    def lagrangian(t, q, qdot, p):
        mass, speed = p["mass"], p["length"] / p["time"]
        kinetic = 0.5 * mass * (qdot[0] ** 2 + qdot @ qdot + qdot[0] * qdot[1])
        return (
            kinetic * (1 + p["bend"] * qdot @ qdot / speed**2)
            + mass * speed * q[1] / p["length"] * qdot[0]
            - mass * q @ q / p["time"] ** 2
        )

    return jm.System.from_lagrangian(lagrangian, 2, params=NUMBERS)


CASES = {
    affine: "Constraint 'second' must be affine in v",
    linear: "Argument `rate` must be linear in v",
    quadratic: "Argument `lagrangian` must be quadratic in qdot",
}


@functools.cache
def built(make):
    """All units share a program: they are values."""
    return make()


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_degrees_are_the_same_in_all_units(make, units):
    q = [0.3 * units[0], 0.2 * units[0]]
    bent = lambda bend: built(make).with_params(dict(zip(NUMBERS, (bend, *units), strict=True)))
    for v in ([0.0, 0.0], [units[0] / units[2], 0.0]):
        jm.assemble(bent(0.0), q, v if make is not affine else None)
    with pytest.raises(ValueError, match=CASES[make]):
        jm.assemble(bent(SMALL), q)


RELATIVISTIC = jm.System.from_lagrangian(
    lambda t, q, qdot, p: -(p**2) * jnp.sqrt(1 - qdot[0] ** 2 / p**2) - q[0], 1, params=2.0
)


@pytest.mark.parametrize("light", [1.0, 10.0, 3e8])
def test_a_relativistic_particle_is_refused(light):
    """Its momentum is not that of a mass matrix: −0.083 would be −1."""
    with pytest.raises(ValueError, match=r"`lagrangian` must be quadratic in qdot, but its third .* is [0-9.e+-]+\.$"):
        jm.assemble(RELATIVISTIC.with_params(light), [0.0], [0.9])
