"""A Stewart platform whose six legs are driven so that it follows a given motion: no freedom is left, reactions are.

The legs' lengths come from the motion by closed-form inverse kinematics; the mechanism has to find the motion again.
"""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from gallery import check, save

import jaxmb as jm

LEGS = 6
# Feet on the ground and heads on the platform, in pairs that alternate, in m.
FEET = np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad([50, 70, 170, 190, 290, 310])])
HEADS = 0.6 * np.array([[np.cos(x), np.sin(x), 0.0] for x in np.deg2rad([10, 110, 130, 230, 250, 350])])
UP = np.array([0.0, 0.0, 1.0])
TUBE = jm.spatial.Cylinder(0.7, 0.04, 0.03)
CYLINDER = dict(mass=3.0, inertia=(0.05, 0.05, 0.002), com=(0.0, 0.0, 0.3), shape=TUBE)
PISTON = dict(mass=2.0, inertia=(0.04, 0.04, 0.001), com=(0.0, 0.0, -0.35))
PLATFORM = dict(mass=20.0, inertia=(0.9, 0.8, 1.6), com=(0.02, -0.01, 0.05), shape=jm.spatial.Plate(HEADS[:, :2], 0.03))
GRAVITY = (0.0, 0.0, -9.81)


def platform_pose(t):
    """The motion that is wanted: position, and rotation matrix from roll, pitch and yaw."""
    place = jnp.stack([0.10 * jnp.sin(2 * t), 0.08 * jnp.sin(3 * t + 0.5), 1.0 + 0.06 * jnp.cos(2.5 * t)])
    roll, pitch, yaw = 0.15 * jnp.sin(2.2 * t), 0.12 * jnp.cos(1.7 * t), 0.20 * jnp.sin(1.3 * t + 0.3)
    turned = jnp.eye(3)
    for axis, angle in ((2, yaw), (1, pitch), (0, roll)):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        c, s = jnp.cos(angle), jnp.sin(angle)
        turned = turned @ jnp.eye(3).at[i, i].set(c).at[j, j].set(c).at[i, j].set(-s).at[j, i].set(s)
    return place, turned


def leg_vectors(place, turned):
    """From the feet to the heads, (6, 3)."""
    return place + HEADS @ turned.T - FEET


def leg_frames(place, turned):
    """Positions of feet and heads (6, 3) each, rotation matrices (6, 3, 3) and lengths (6,) of the legs.

    A leg's z axis points to its head; its x axis is the second one of its universal joint, across the leg and the
    first one, which lies along the base's rim.
    """
    gaps = leg_vectors(place, turned)
    lengths = jnp.linalg.norm(gaps, axis=1)
    z = gaps / lengths[:, None]
    x = jnp.cross(rims(), z)
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    return FEET, FEET + gaps, jnp.stack([x, jnp.cross(z, x), z], axis=2), lengths


def rims():
    """The first axes of the universal joints, (6, 3)."""
    return np.cross(UP, FEET)


@functools.cache
def length(leg):
    """The wanted length of one leg as a function of time, always the same object so that programs are shared."""

    def of_time(t, params):
        gap = leg_vectors(*platform_pose(t))[leg]
        return jnp.sqrt(jnp.sum(gap**2))

    return of_time


def stewart():
    """The platform on six legs: a cylinder on a universal joint, a piston in it, and a ball joint at its head."""
    place, turned = platform_pose(jnp.zeros(()))
    low, high, along, _ = leg_frames(place, turned)
    bodies = [jm.spatial.Body("platform", **PLATFORM, position=place, orientation=turned)]
    joints, drivers = [], []
    for i in range(LEGS):
        bodies.append(jm.spatial.Body(f"cylinder{i}", **CYLINDER, position=low[i], orientation=along[i]))
        bodies.append(jm.spatial.Body(f"piston{i}", **PISTON, position=high[i], orientation=along[i]))
        joints += [
            jm.spatial.Universal(f"foot{i}", ("ground", FEET[i]), f"cylinder{i}", axis=rims()[i]),
            jm.spatial.Prismatic(f"leg{i}", f"cylinder{i}", f"piston{i}"),
            jm.spatial.Spherical(f"head{i}", f"piston{i}", ("platform", HEADS[i])),
        ]
        drivers.append(jm.spatial.Driver(f"drive{i}", f"leg{i}", length(i)))
    return jm.spatial.Mechanism(bodies, joints, drivers, gravity=GRAVITY)


def run(system, ts, tolerance=1e-9):
    """The motion; the drivers leave nothing to choose, so that only the time is integrated."""
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    return jm.simulate(system, jm.assemble(system), ts, solver=dfx.Tsit5(), stepsize_controller=controller)


def main():
    system, ts = stewart().build(), jnp.linspace(0.0, 4.0, 9)
    solution = run(system, ts)
    place, turned = jax.vmap(platform_pose)(ts)
    poses = jm.pose(system, solution, "platform")
    multipliers = jm.reactions(system, solution).multipliers
    forces = jnp.concatenate([multipliers[f"drive{i}"] for i in range(LEGS)], axis=1)
    ranks = [int(solution.stats[key]) for key in ("lowest_rank", "highest_rank")]
    print(
        f"{system.nv} velocities, {system.m} rows, rank {ranks[0]}–{ranks[1]}: no freedom is left, nothing is redundant"
    )
    assert ranks == [system.nv, system.nv] == [system.m, system.m]
    print("t, s    forces of the drives along the legs, N")
    for t, row in zip(ts, forces, strict=True):
        print(f"{float(t):.1f}   " + " ".join(f"{float(x):>9.3f}" for x in row))
    rows = (
        ("position of the platform, m", jnp.abs(poses[:, :3, 3] - place).max(), 1e-9),
        ("its rotation matrix", jnp.abs(poses[:, :3, :3] - turned).max(), 1e-9),
        ("residual", jnp.abs(jm.residuals(system, solution).position).max(), 1e-12),
        ("energy less the work of the drives, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-6),
    )
    check(rows)
    save(jm.plot.draw(system, solution.state(0)), "stewart")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
