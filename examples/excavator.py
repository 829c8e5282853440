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
ELBOW, WRIST = frame((2.8, 0.5), -np.pi / 2), frame((2.8, -1.1), -0.3)  # the stick hangs down


def cylinder(name, foot, head):
    """Barrel and piston, each 60 % of their distance, and oil as a spring; pins at the barrel's frame and at "piston.b"."""
    distance, angle = np.linalg.norm(head - foot), np.arctan2(*(head - foot)[::-1])
    barrel = Body.rod("barrel", 40.0, 0.6 * distance)
    piston = Body.rod("piston", 25.0, 0.6 * distance, position=(0.4 * distance, 0.0))
    oil = JointSpring("oil", "stroke", stiffness=2e6, damping=1e5, rest=0.4 * distance)
    part = Mechanism([barrel, piston], [Prismatic("stroke", "barrel", "piston")], forces=[oil])
    return part.renamed(f"{name}_").placed(frame(foot, angle))


def excavator():
    """Boom, stick and bucket, with a cylinder to lift the boom, one to reach out and one to curl the bucket."""
    plate = lambda name, corners, **arguments: Body(name, shape=Plate(corners), density=STEEL, **arguments)
    eye = Body("eye", shape=Disk(0.12, 0.06), density=STEEL)
    bodies = {
        "boom": plate("boom", BOOM),
        "stick": plate("stick", STICK, position=ELBOW[:2, 2], angle=ELBOW[:2, :2]),
        "bucket": Body.joined("bucket", [plate("blade", BUCKET), (eye, BUCKET[1])], position=WRIST[:2, 2], angle=-0.3),
    }
    joints = [Revolute("foot", "ground", "boom"), Revolute("elbow", "boom.c2", "stick")]
    joints.append(Revolute("wrist", "stick.c2", "bucket"))
    ends = {"lift": ("ground.rack", "boom.c1"), "reach": ("boom.c3", "stick.c0"), "curl": ("stick.c3", "bucket.eye")}
    arm = Mechanism(list(bodies.values()), joints, gravity=(0.0, -9.81), points={"rack": (0.6, -0.5)})

    def place(at):  # in the first pose
        body, _, point = at.partition(".")
        local = arm.points[point] if body == "ground" else bodies[body].pose @ bodies[body].points[point]
        return np.asarray(local)[:2, 2]

    ties = [Revolute(f"{name}_low", low, f"{name}_barrel") for name, (low, _) in ends.items()]
    ties += [Revolute(f"{name}_high", f"{name}_piston.b", high) for name, (_, high) in ends.items()]
    return arm.joined(*(cylinder(name, place(low), place(high)) for name, (low, high) in ends.items()), joints=ties)


def main():
    arm = excavator()
    system, again = arm.build(), Mechanism.from_text(arm.to_text()).build()
    run = lambda system: simulate(system, assemble(system), jnp.linspace(0.0, 0.2, 21))
    solution = run(system)
    sinks = -float(jnp.diff(position(system, solution, "bucket.blade_c3")[jnp.array([0, -1]), 1])[0])
    print(f"{sum(float(body.mass) for body in arm.bodies):.0f} kg; the bucket's edge sinks by {1e3 * sinks:.1f} mm")
    assert 0.0 < sinks < 0.05, "The oil must give way a little."
    assert jnp.abs(energy(system, solution).balance).max() < 1e-3, "Energy must balance."
    assert (run(again).q == solution.q).all(), "The mechanism of the text must move bit for bit alike."
    save(plot.draw(system, solution.state(0)), "excavator")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
