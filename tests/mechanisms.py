"""Pairs of bodies for each joint, and mechanisms that several tests share."""

import jax.numpy as jnp
import numpy as np

import jaxmb as jm

P, S = jm.planar, jm.spatial


def planar_bodies():
    return [
        P.Body("one", 1.3, 0.2, com=(0.1, -0.2), points={"p": P.frame((0.4, 0.3), 0.5)}),
        P.Body(
            "two", 0.7, 0.1, com=(-0.3, 0.1), points={"p": P.frame((-0.2, 0.6), -0.9)}, point_masses=[(0.2, (0.5, 0.5))]
        ),
    ]


def spatial_bodies():
    inertia = np.array([[0.3, 0.02, -0.01], [0.02, 0.4, 0.03], [-0.01, 0.03, 0.5]])
    return [
        S.Body("one", 1.3, inertia, (0.1, -0.2, 0.05), {"p": S.frame((0.4, 0.3, -0.1), (0.9, 0.2, -0.3, 0.1))}),
        S.Body(
            "two",
            0.7,
            (0.2, 0.25, 0.3),
            (-0.3, 0.1, 0.2),
            {"p": S.frame((-0.2, 0.6, 0.1), (0.5, -0.4, 0.7, 0.2))},
            [(0.2, (0.5, 0.5, -0.3))],
        ),
    ]


PLANAR = {
    "Revolute": P.Revolute("joint", "one.p", "two.p"),
    "Prismatic": P.Prismatic("joint", "one.p", "two.p", axis=(0.6, -0.8), axis_b=(1.0, 2.0)),
    "Fixed": P.Fixed("joint", "one.p", "two.p"),
    "PointOnLine": P.PointOnLine("joint", "one.p", "two.p", axis=(0.3, 1.0)),
}

AXES = {"axis": (0.3, -0.5, 0.8), "axis_b": (-0.7, 0.1, 0.2)}
SPATIAL = {
    "Revolute": S.Revolute("joint", "one.p", "two.p", **AXES),
    "Prismatic": S.Prismatic("joint", "one.p", "two.p", **AXES),
    "Cylindrical": S.Cylindrical("joint", "one.p", "two.p", **AXES),
    "Screw": S.Screw("joint", "one.p", "two.p", 0.4, **AXES),
    "Planar": S.Planar("joint", "one.p", "two.p", **AXES),
    "Spherical": S.Spherical("joint", "one.p", "two.p"),
    "Universal": S.Universal("joint", "one.p", "two.p", **AXES),
    "Fixed": S.Fixed("joint", "one.p", "two.p"),
    "PointOnLine": S.PointOnLine("joint", "one.p", "two.p", **AXES),
    "PointOnPlane": S.PointOnPlane("joint", "one.p", "two.p", **AXES),
}

PAIRS = {("planar", name): joint for name, joint in PLANAR.items()} | {
    ("spatial", name): joint for name, joint in SPATIAL.items()
}


def pair(key):
    """A mechanism of two bodies, the first free, with a joint between them, a spring and friction."""
    where, _ = key
    module, bodies = (P, planar_bodies()) if where == "planar" else (S, spatial_bodies())
    dim = 2 if where == "planar" else 3
    forces = [
        module.SpringDamper("spring", "one", "two.p", 30.0, 2.0, 0.3),
        module.Load("push", "two.p", force=np.arange(1.0, dim + 1.0), follows=True),
    ]
    joint = PAIRS[key]
    if joint.pair.velocities:
        forces.append(module.JointFriction("friction", "joint", 0.4, 0.3, 0.1))
    return module.Mechanism(bodies, [joint], forces=forces, gravity=np.linspace(-9.81, 2.0, dim))


def random_states(system, count, seed=0):
    """Coordinates and velocities of a system without constraints."""
    rng = np.random.default_rng(seed)
    q = jnp.asarray(rng.normal(size=(count, system.nq)))
    q = q if system.normalise_fn is None else jnp.stack([system.normalise(x) for x in q])
    return q, jnp.asarray(rng.normal(size=(count, system.nv)))


def three_cranks(drivers=()):
    """Three equal cranks under a top, of which one is superfluous."""
    cranks = [P.Body.rod(name, 1.0, 1.0, position=(i, 0.0)) for i, name in enumerate(("left", "middle", "right"))]
    joints = [
        P.Revolute("A", "ground", "left.a"),
        P.Revolute("B", "ground.b", "middle.a"),
        P.Revolute("C", "ground.c", "right.a"),
        P.Revolute("D", "left.b", "top.a"),
        P.Revolute("E", "middle.b", ("top", (1.0, 0.0))),
        P.Revolute("F", "right.b", "top.b"),
    ]
    points = {"b": (1.0, 0.0), "c": (2.0, 0.0)}
    return P.Mechanism([*cranks, P.Body.rod("top", 1.0, 2.0)], joints, drivers, points=points)
