"""An excavator's arm of steel plates; its three hydraulic cylinders are one part, renamed and placed."""

import jax
import jax.numpy as jnp
import numpy as np
from gallery import save

from jaxmb import assemble, energy, plot, position, simulate
from jaxmb.planar import Body, Disk, JointSpring, Mechanism, Plate, Prismatic, Revolute, frame

STEEL = 7850.0 * 0.05  # kg/m², plates of 50 mm
BOOM = [(0.0, 0.0), (1.2, 0.6), (2.8, 0.5), (1.3, 1.1)]
STICK = [(-0.5, 0.25), (0.0, -0.15), (1.6, 0.0), (0.2, 0.2)]
BUCKET = [(0.0, 0.0), (0.25, 0.1), (0.6, -0.3), (0.5, -0.7), (0.3, -0.3)]


def with_cylinder(arm, name, low, high):
    """Barrel and piston, each 60 % of their distance, and oil as a spring; pins at the barrel's frame and at "piston.b"."""
    foot, along = arm.position(low), arm.position(high) - arm.position(low)
    length = np.linalg.norm(along)
    barrel = Body.rod("barrel", 40.0, 0.6 * length)
    piston = Body.rod("piston", 25.0, 0.6 * length, position=(0.4 * length, 0.0))
    oil = JointSpring("oil", "stroke", stiffness=2e6, damping=1e5, rest=0.4 * length)
    part = Mechanism([barrel, piston], [Prismatic("stroke", "barrel", "piston")], forces=[oil]).renamed(f"{name}_")
    pins = [Revolute(f"{name}_low", low, f"{name}_barrel"), Revolute(f"{name}_high", f"{name}_piston.b", high)]
    return arm.joined(part.placed(frame(foot, np.arctan2(along[1], along[0]))), joints=pins)


def excavator():
    """Boom, stick and bucket, with a cylinder to lift the boom, one to reach out and one to curl the bucket."""
    plate = lambda name, corners, **arguments: Body(name, shape=Plate(corners), density=STEEL, **arguments)
    eye = Body("eye", shape=Disk(0.12, 0.06), density=STEEL)
    stick = plate("stick", STICK, position=(2.8, 0.5), angle=-np.pi / 2)
    bucket = Body.joined("bucket", [plate("blade", BUCKET), (eye, BUCKET[1])], position=(2.8, -1.1), angle=-0.3)
    pins = (("foot", "ground", "boom"), ("elbow", "boom.c2", "stick"), ("wrist", "stick.c2", "bucket"))
    joints, points = [Revolute(*pin) for pin in pins], {"rack": (0.6, -0.5)}
    arm = Mechanism([plate("boom", BOOM), stick, bucket], joints, gravity=(0.0, -9.81), points=points)
    arm = with_cylinder(arm, "lift", "ground.rack", "boom.c1")
    arm = with_cylinder(arm, "reach", "boom.c3", "stick.c0")
    return with_cylinder(arm, "curl", "stick.c3", "bucket.eye")


def main():
    arm = excavator()
    system, again = arm.build(), Mechanism.from_text(arm.to_text()).build()
    solution, same = (simulate(x, assemble(x), jnp.linspace(0.0, 0.2, 21)) for x in (system, again))
    height = position(system, solution, "bucket.blade_c3")[:, 1]
    print(f"The bucket's edge sinks by {1e3 * (height[0] - height[-1]):.1f} mm")
    assert 0.0 < height[0] - height[-1] < 0.05, "The oil must give way a little."
    assert jnp.abs(energy(system, solution).balance).max() < 1e-3, "Energy must balance."
    assert (same.q == solution.q).all(), "The mechanism of the text must move bit for bit alike."
    save(plot.draw(system, solution.state(0)), "excavator")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
