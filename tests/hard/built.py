"""The same mechanisms by the package's builders, in any units, and runs of many at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from hard.reference import skew
from jaxmb.mechanism import linkage_of


@dataclasses.dataclass
class Units:
    """How many of the package's units one of the drawn ones is."""

    length: float = 1.0
    mass: float = 1.0
    time: float = 1.0


def angle(t, params):
    """The angle of a driven hinge."""
    start, rate, amplitude, frequency = params
    return start + rate * t + amplitude * jnp.sin(frequency * t)


def mechanism_of(case, units=Units(), motor=None):
    """A `jm.planar.Mechanism` or `jm.spatial.Mechanism`, with a motor at one of its joints, by number, if asked for."""
    space, d = (jm.planar, 2) if case.dim == 2 else (jm.spatial, 3)
    frame = lambda x, turn: space.frame(units.length * x[:d], turn[:d, :d])
    points = [{} for _ in range(len(case.links) + 1)]
    for i, c in enumerate(case.connections):
        points[c.a][f"a{i}"] = frame(*c.frame_a)
        points[c.b][f"b{i}"] = frame(*c.frame_b)
    names = ["ground", *(f"body{i}" for i in range(len(case.links)))]
    at = lambda body, x: (names[body], units.length * x[:d])
    inertia_unit = units.mass * units.length**2
    bodies = [
        space.Body(
            names[i + 1],
            units.mass * link.mass,
            inertia_unit * (link.inertia if d == 3 else link.inertia[2, 2]),
            units.length * link.com[:d],
            points[i + 1],
            position=units.length * link.x[:d],
            **({"orientation": link.turn} if d == 3 else {"angle": np.arctan2(link.turn[1, 0], link.turn[0, 0])}),
        )
        for i, link in enumerate(case.links)
    ]
    joints = []
    for i, c in enumerate(case.connections):
        a, b = f"{names[c.a]}.a{i}", f"{names[c.b]}.b{i}"
        if c.kind == "KnifeEdge":
            joints.append(space.KnifeEdge(f"j{i}", b))
        else:
            size = [units.length * c.size] if c.kind in ("Distance", "RollingWheel") else []
            joints.append(getattr(space, c.kind)(f"j{i}", a, b, *size))
    forces = [
        space.SpringDamper(
            f"s{i}",
            at(a, at_a),
            at(b, at_b),
            units.mass / units.time**2 * stiffness,
            units.mass / units.time * damping,
            units.length * length,
        )
        for i, (a, b, at_a, at_b, stiffness, damping, length) in enumerate(case.springs)
    ]
    drivers = [space.Driver("drive", f"j{joint}", angle) for joint, _ in case.drives]
    laws = [
        np.array([f, rate / units.time, amplitude, frequency / units.time])
        for _, (f, rate, amplitude, frequency) in case.drives
    ]
    gravity = units.length / units.time**2 * case.gravity[:d]
    motors = [] if motor is None else [space.Motor("motor", f"j{motor}")]
    law = laws[0] if laws else None
    return space.Mechanism(bodies, joints, drivers, forces, motors, gravity=gravity, points=points[0], params=law)


def poses_of(case, model, y, u, units=Units()):
    """Poses of the bodies' frames and their rates (n + 1, D, D), the ground first, from a state of the reference."""
    d = case.dim
    x, turn = model.poses(y)
    v, w = model.expand(u)
    poses, rates = np.zeros((2, model.n + 1, d + 1, d + 1))
    for i in range(model.n + 1):
        com = case.links[i - 1].com if i else np.zeros(3)
        spin = skew(w[i])
        poses[i, :d, :d], poses[i, :d, d], poses[i, d, d] = (
            turn[i][:d, :d],
            (units.length * (x[i] - turn[i] @ com))[:d],
            1,
        )
        rates[i, :d, :d] = (spin @ turn[i] / units.time)[:d, :d]
        rates[i, :d, d] = (units.length / units.time * (v[i] - spin @ turn[i] @ com))[:d]
    return poses, rates


@jax.jit
def measured(system, poses, rates):
    """Coordinates and velocities of the system at given poses of the bodies."""
    linkage = linkage_of(system)
    return linkage.measure(poses, system.params), linkage.measure_rates(poses, rates, system.params)


def start_of(system, poses, rates):
    """The state with given poses of the bodies, which satisfy the constraints."""
    return jm.as_state(system, *measured(system, poses, rates))


@jax.jit
def seen(system, states):
    """Poses (T, n, D, D) of the bodies at saved states."""
    linkage = linkage_of(system)
    at = lambda q: linkage.poses(q, system.params)[1:]
    return jax.vmap(at)(states.q)


def formulation_of(case):
    """What the package is asked for: bodies without mass need the KKT matrix."""
    return jm.formulation.KKT() if min(link.mass for link in case.links) == 0 else None
