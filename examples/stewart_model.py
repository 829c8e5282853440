"""A Stewart platform; the lengths of its legs follow from a wanted motion by closed-form inverse kinematics."""

import functools

import jax.numpy as jnp
import numpy as np
from jax.scipy.spatial.transform import Rotation

from jaxmb.spatial import Body, Cylinder, Driver, Mechanism, Plate, Prismatic, Spherical, Universal

LEGS = 6
# Feet on the ground and heads on the platform, in pairs that alternate, in m.
FEET = np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad([50, 70, 170, 190, 290, 310])])
HEADS = 0.6 * np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad([10, 110, 130, 230, 250, 350])])
RIMS = np.cross([0.0, 0.0, 1.0], FEET)  # first axes of the universal joints
CYLINDER = dict(mass=3.0, inertia=(0.05, 0.05, 0.002), com=(0.0, 0.0, 0.3), shape=Cylinder(0.7, 0.04, 0.03))
PISTON = dict(mass=2.0, inertia=(0.04, 0.04, 0.001), com=(0.0, 0.0, -0.35))
PLATFORM = dict(mass=20.0, inertia=(0.9, 0.8, 1.6), com=(0.02, -0.01, 0.05), shape=Plate(HEADS[:, :2], 0.03))


def platform_pose(t):
    """The motion that is wanted: position, and rotation matrix from roll, pitch and yaw."""
    place = jnp.stack([0.10 * jnp.sin(2 * t), 0.08 * jnp.sin(3 * t + 0.5), 1.0 + 0.06 * jnp.cos(2.5 * t)])
    roll, pitch, yaw = 0.15 * jnp.sin(2.2 * t), 0.12 * jnp.cos(1.7 * t), 0.20 * jnp.sin(1.3 * t + 0.3)
    return place, Rotation.from_euler("ZYX", jnp.stack([yaw, pitch, roll])).as_matrix()


def leg_frames(place, turned):
    """Positions of feet and heads (6, 3), rotation matrices (6, 3, 3) and lengths (6,) of the legs; z points to the head, x lies across z and the rim."""
    gaps = place + HEADS @ turned.T - FEET
    lengths = jnp.linalg.norm(gaps, axis=1)
    z = gaps / lengths[:, None]
    x = jnp.cross(RIMS, z)
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    return FEET, FEET + gaps, jnp.stack([x, jnp.cross(z, x), z], axis=2), lengths


@functools.cache
def length(leg):
    """The wanted length of one leg as a function of time, always the same object so that programs are shared."""
    return lambda t, params: leg_frames(*platform_pose(t))[3][leg]


def stewart():
    """The platform on six legs: a cylinder on a universal joint, a piston in it, and a ball joint at its head."""
    place, turned = platform_pose(jnp.zeros(()))
    low, high, along, _ = leg_frames(place, turned)
    bodies = [Body("platform", **PLATFORM, position=place, orientation=turned)]
    joints, drivers = [], []
    for i in range(LEGS):
        bodies.append(Body(f"cylinder{i}", **CYLINDER, position=low[i], orientation=along[i]))
        bodies.append(Body(f"piston{i}", **PISTON, position=high[i], orientation=along[i]))
        joints += [
            Universal(f"foot{i}", ("ground", FEET[i]), f"cylinder{i}", axis=RIMS[i]),
            Prismatic(f"leg{i}", f"cylinder{i}", f"piston{i}"),
            Spherical(f"head{i}", f"piston{i}", ("platform", HEADS[i])),
        ]
        drivers.append(Driver(f"drive{i}", f"leg{i}", length(i)))
    return Mechanism(bodies, joints, drivers, gravity=(0.0, 0.0, -9.81))
