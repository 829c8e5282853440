"""Systems and formulations that the tests share; each system with a state near which it can be assembled.

Each is built once: programs are compiled for the functions of a system, not for what they say.
"""

import dataclasses
import functools

import fourbar_model
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm

GRAVITY = 9.81

FORMULATIONS = {
    "GaussProjection": jm.formulation.GaussProjection(),
    "KKT": jm.formulation.KKT(),
    "skew": jm.formulation.OrthogonalProjection(inertia="skew"),
    "symmetric": jm.formulation.OrthogonalProjection(inertia="symmetric"),
    "parameterised": jm.formulation.OrthogonalProjection(),
    "NullSpace": jm.formulation.NullSpace(),
    "CoordinatePartition": jm.formulation.CoordinatePartition(),
    "Elimination": jm.formulation.Elimination(),
    "Proximal": jm.formulation.Proximal(),
}


@functools.cache
def pendulum(copies=1, factors=(1.0, 3.0, 1e-6, 1e6)):
    """Point mass on a rod, x and y; the rod's row may be repeated with other units."""

    def rods(t, q, p):
        return jnp.stack([f * (q @ q - p["l"] ** 2) for f in factors[:copies]])

    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * GRAVITY * q[1],
        constraints=[jm.Holonomic("rod", rods)],
        params={"m": 1.0, "l": 1.0},
    ), ([-0.8, -0.5], [0.3, -0.2])


@functools.cache
@jax.ensure_compile_time_eval()  # kept, and not of the program in which it is first asked for
def fourbar(copies=1):
    """The four-bar; with copies > 1 its loop is closed several times, in other units and order."""
    extra = [
        jm.Holonomic(f"loop {i}", lambda t, q, p, f=f: f * fourbar_model.loop(t, q, p)[::-1])
        for i, f in enumerate((1e3, 1e-3, 1.0)[: copies - 1])
    ]
    return fourbar_model.fourbar(extra), ([0.3, 1.1, 1.7], [1.0, 0.0, 0.0])


def quaternion_rate(q, v):
    """ṗ = v_p, q̇ = ½ q ∘ (0, ω) for pose (p, wxyz) and velocity (v_p, ω in the body)."""
    w, x, y, z = q[3:]
    matrix = 0.5 * jnp.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])
    return jnp.concatenate([v[:3], matrix @ v[3:]])


def rotation(q):
    w, x, y, z = q
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def normalise(q):
    return jnp.concatenate([q[:3], q[3:] / jnp.linalg.norm(q[3:])])


@functools.cache
def top(copies=1):
    """A spatial body hung at a point of its own: a spherical joint, three rows, or several times that."""

    def pivot(t, q, p):
        return jnp.tile(q[:3] + rotation(q[3:]) @ p["r"], copies)

    return jm.System(
        ("x", "y", "z", "e0", "e1", "e2", "e3"),
        velocities=("vx", "vy", "vz", "wx", "wy", "wz"),
        mass=lambda t, q, p: jnp.diag(jnp.concatenate([p["m"] * jnp.ones(3), p["J"]])),
        potential=lambda t, q, p: p["m"] * GRAVITY * q[2],
        constraints=[jm.Holonomic("pivot", pivot)],
        rate=lambda q, v, p: quaternion_rate(q, v),
        normalise=normalise,
        params={"m": 1.3, "J": np.array([0.2, 0.3, 0.45]), "r": np.array([0.1, -0.3, 0.6])},
    ), ([0.0, 0.0, -0.5, 0.9, 0.1, -0.3, 0.2], [0.0, 0.0, 0.0, 0.5, -0.8, 1.9])


@functools.cache
def moving_line():
    """A particle on a line that turns at a given rate: rheonomic, with b ≠ 0."""
    return jm.System(
        2,
        mass=lambda t, q, p: jnp.array([[2.0, 0.3], [0.3, 1.0]]),
        force=lambda t, q, v, p: jnp.array([jnp.sin(3 * q[0]), -v[1]]),
        constraints=[
            jm.Holonomic("line", lambda t, q, p: q[1] * jnp.cos(p["w"] * t) - q[0] * jnp.sin(p["w"] * t) - 0.1)
        ],
        params={"w": 0.7},
    ), ([0.5, 0.2], [0.1, 0.0])


@functools.cache
def sleigh(copies=1):
    """Chaplygin's sleigh in the coordinates of its contact point; the blade may be stated several times."""

    def mass(t, q, p):
        s, c = jnp.sin(q[2]), jnp.cos(q[2])
        m, a = p["m"], p["a"]
        return jnp.array([[m, 0 * s, -m * a * s], [0 * s, m, m * a * c], [-m * a * s, m * a * c, p["J"] + m * a * a]])

    def blade(t, q, v, p):
        return (v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])) * jnp.array([1.0, -2.0, 1e4])[:copies]

    return jm.System(
        ("x", "y", "theta"),
        mass=mass,
        constraints=[jm.Pfaffian("blade", blade)],
        params={"m": 2.0, "J": 0.5, "a": 0.25},
    ), ([0.0, 0.0, 0.0], [-1.0, 0.0, 0.4])


@functools.cache
def driven_cart():
    """A knife edge, a driven speed and a holonomic row that the two together repeat in part."""

    def drive(t, q, v, p):
        return v[0] * jnp.cos(q[2]) + v[1] * jnp.sin(q[2]) - 0.3 * jnp.cos(t)

    return jm.System(
        4,
        mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 1.0, 0.2, 0.5])) + 0.1 * jnp.cos(q[3]) * jnp.eye(4),
        force=lambda t, q, v, p: jnp.array([0.1, 0.2, jnp.sin(q[0]), -v[3]]),
        constraints=[
            jm.Pfaffian("blade", lambda t, q, v, p: v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])),
            jm.Pfaffian("speed", drive),
            jm.Holonomic("gear", lambda t, q, p: q[3] - 2 * q[2] - 0.1),
            jm.Pfaffian("gear speed", lambda t, q, v, p: 5 * (v[3] - 2 * v[2])),
        ],
    ), ([0.1, 0.2, 0.4, 0.9], [0.2, 0.1, 0.5, 1.0])


@functools.cache
def lagrangian_fourbar():
    """The four-bar from its Lagrangian."""

    def lagrangian(t, q, qdot, p):
        return 0.5 * qdot @ fourbar_model.mass(t, q, p) @ qdot - fourbar_model.potential(t, q, p)

    return jm.System.from_lagrangian(
        lagrangian,
        ("a1", "a2", "a3"),
        constraints=[jm.Holonomic("loop", fourbar_model.loop)],
        params={"l": fourbar_model.LENGTHS, "m": fourbar_model.MASSES},
    ), ([0.3, 1.1, 1.7], [1.0, 0.0, 0.0])


@functools.cache
def lagrangian_top():
    """The top from a Lagrangian in quaternion rates, with body angular velocities."""

    def lagrangian(t, q, qdot, p):
        w, x, y, z = q[3:]
        spin = 2 * jnp.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]]) @ qdot[3:]
        kinetic = 0.5 * p["m"] * qdot[:3] @ qdot[:3] + 0.5 * spin @ (p["J"] * spin)
        return kinetic - p["m"] * GRAVITY * q[2]

    system, guess = top()
    return jm.System.from_lagrangian(
        lagrangian,
        system.coordinates,
        velocities=system.velocities,
        constraints=system.constraints,
        rate=lambda q, v, p: quaternion_rate(q, v),
        normalise=normalise,
        params=system.params,
    ), guess


@functools.cache
def unconstrained():
    """No rows at all; the mass depends on time."""
    return jm.System(
        2,
        mass=lambda t, q, p: jnp.array([[2.0 + jnp.sin(t), jnp.cos(q[1])], [jnp.cos(q[1]), 1.5 + 0 * q[0]]]),
        potential=lambda t, q, p: jnp.cos(q[0]) * (1 + 0.2 * t),
        force=lambda t, q, v, p: -0.3 * v,
    ), ([0.4, 1.0], [0.5, -0.7])


@functools.cache
def contradictory():
    """Two driven speeds that agree at t = 0 only, and in the acceleration nowhere."""
    return jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        constraints=[
            jm.Pfaffian("slow", lambda t, q, v, p: v[0] - t),
            jm.Pfaffian("fast", lambda t, q, v, p: v[0] - 2 * t),
        ],
    )


SYSTEMS = {
    "pendulum": pendulum,
    "pendulum, 4 copies": functools.partial(pendulum, 4),
    "four-bar": fourbar,
    "four-bar, 3 loops": functools.partial(fourbar, 3),
    "top": top,
    "top, 2 pivots": functools.partial(top, 2),
    "moving line": moving_line,
    "sleigh": sleigh,
    "sleigh, 3 blades": functools.partial(sleigh, 3),
    "driven cart": driven_cart,
    "four-bar, Lagrangian": lagrangian_fourbar,
    "top, Lagrangian": lagrangian_top,
    "unconstrained": unconstrained,
}

# What the others show is shown by these: repeated rows, quaternions, moving and nonholonomic rows, no rows, a Lagrangian.
TELLING = ("four-bar, 3 loops", "top, 2 pivots", "driven cart", "top, Lagrangian", "unconstrained")


def slow_but(names, systems=SYSTEMS):
    """Systems as cases of a test; all but these are slow."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in systems]


@functools.cache
def make(name):
    """System and assembled state, by name."""
    system, batch = states(name)
    return system, jax.tree.map(lambda x: x[0], batch)


@functools.cache
def states(name, count=20):
    """System and a batch of consistent states, random but for the first."""
    system, (q, v) = SYSTEMS[name]()
    rng = np.random.default_rng(len(name))
    q = np.asarray(q) + 0.15 * rng.normal(size=(count, system.nq)) * (np.arange(count) > 0)[:, None]
    v = np.asarray(v) + rng.normal(size=(count, system.nv)) * (np.arange(count) > 0)[:, None]
    return system, jax.jit(jax.vmap(lambda q, v: jm.assemble(system, q, v, t=0.2)))(q, v)


@functools.cache
def evaluated(name, count=20):
    """The terms at these states, without what the rows say nearby: they are arrays only."""
    system, batch = states(name, count)
    return jax.jit(jax.vmap(lambda s: dataclasses.replace(jm.evaluate(system, s), nearby=None)))(batch)
