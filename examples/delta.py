"""A Delta robot (Clavel 1988): three driven arms and three parallelograms of rods carry a plate that only shifts."""

import jax
import jax.numpy as jnp
import numpy as np
from gallery import check, save

import jaxmb as jm

S = jm.spatial
BASE, PLATE, ARM, ROD, WIDTH = 0.2, 0.06, 0.25, 0.5, 0.05  # m; WIDTH is half of that of a parallelogram
COS, SIN, ZERO = np.cos([0.0, 2 * np.pi / 3, -2 * np.pi / 3]), np.sin([0.0, 2 * np.pi / 3, -2 * np.pi / 3]), np.zeros(3)
OUT, ACROSS = np.stack([COS, SIN, ZERO], axis=1), np.stack([-SIN, COS, ZERO], axis=1)  # directions of each arm


def path(t):
    """The motion that is wanted (3,): a helix."""
    return jnp.stack([0.1 * jnp.cos(3 * t), 0.1 * jnp.sin(3 * t), -0.45 - 0.05 * t])


def angle(i, place):
    """Of an arm below the horizontal by inverse kinematics: its elbow is as far from the plate's corner as the rods are long."""
    x, y, z = place @ OUT[i] + PLATE - BASE, place @ ACROSS[i], place[2]
    reach = (x**2 + y**2 + z**2 + ARM**2 - ROD**2) / (2 * ARM)
    return jnp.arctan2(-z, x) - jnp.arccos(reach / jnp.hypot(x, z))


def delta():
    """Arms lie along z of their frames, outwards at angle 0, and end in an elbow across."""
    solid = lambda name, mass, *sizes, **where: S.Body(name, mass, shape=S.Cylinder(*sizes), **where)
    elbow = solid("elbow", 0.1, 2 * WIDTH, 0.01), S.frame((0.0, -WIDTH, ARM), (0.5**0.5, -(0.5**0.5), 0.0, 0.0))
    bodies, joints = [solid("plate", 0.3, 0.02, 1.5 * PLATE, position=path(jnp.zeros(())))], []
    drivers = [S.Driver(f"motor{i}", f"shoulder{i}", lambda t, params, i=i: angle(i, path(t))) for i in range(3)]
    for i, (out, across) in enumerate(zip(OUT, ACROSS, strict=True)):
        pose = np.eye(4)
        pose[:3] = np.stack([[0.0, 0.0, -1.0], across, out, BASE * out], axis=1)
        bodies.append(S.Body.joined(f"arm{i}", [solid("bar", 0.4, ARM, 0.015), elbow]))
        joints.append(S.Revolute(f"shoulder{i}", ("ground", pose), f"arm{i}.bar_a", axis=(0.0, 1.0, 0.0)))
        for side, shift in (("left", WIDTH), ("right", -WIDTH)):
            ends = (f"arm{i}", (0.0, shift, ARM)), ("plate", PLATE * out + shift * across)
            joints.append(S.Distance(f"{side}{i}", *ends, ROD))
    return S.Mechanism(bodies, joints, drivers, gravity=(0.0, 0.0, -9.81))


def main():
    system, ts = delta().build(), jnp.linspace(0.0, 2.0, 21)
    guess = {f"shoulder{i}": angle(i, path(ts[0])) for i in range(3)}
    solution = jm.simulate(system, jm.assemble(system, guess), ts)
    off = jnp.abs(jm.position(system, solution, "plate") - jax.vmap(path)(ts)).max()
    turn = jnp.abs(jm.pose(system, solution, "plate")[:, :3, :3] - jnp.eye(3)).max()
    check([("position by inverse kinematics, m", off, 1e-9), ("turn of the plate", turn, 1e-9)])
    save(jm.plot.draw(system, solution.state(0)), "delta")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
