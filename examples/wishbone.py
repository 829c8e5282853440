"""A double wishbone suspension that is dropped: arms, upright, track rod, wheel, spring and damper."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from gallery import check, meeting, save

import jaxmb as jm

S = jm.spatial
# y to the wheel and z up, in m. Both hinges lie along x, so that the ball joints move in the plane x = 0.
ARMS = {"lower": ((0.0, 0.0), (0.40, -0.02)), "upper": ((0.10, 0.28), (0.36, 0.28))}  # inner ends and balls
RACK, STEER = np.array([0.12, 0.05, 0.07]), np.array([0.12, 0.40, 0.06])  # ends of the track rod


def wishbone():
    """The chassis stands still; the wheel turns on the upright."""
    bodies, joints = [], []
    for name, (inner, ball) in ARMS.items():
        along = np.subtract(ball, inner)
        length = float(np.linalg.norm(along))
        turned = np.eye(3)  # x of the arm lies on the hinge, y points to the ball
        turned[1:, 1:] = np.stack([along, [-along[1], along[0]]], axis=1) / length
        plate = S.Plate([(-0.15, 0.0), (0.15, 0.0), (0.02, length), (-0.02, length)], 0.02)
        bodies.append(S.Body(name, 3.0, shape=plate, position=(0.0, *inner), orientation=turned))
        joints.append(S.Revolute(f"{name}_hinge", ("ground", (0.0, *inner)), name, axis=(1.0, 0.0, 0.0)))
        joints.append(S.Spherical(f"{name}_ball", (name, (0.0, length, 0.0)), f"upright.{name}"))
    low = np.array([0.0, *ARMS["lower"][1]])
    points = {"lower": np.zeros(3), "upper": (0.0, -0.04, 0.30), "steer": STEER - low, "axle": (0.0, 0.06, 0.15)}
    bodies.append(S.Body("upright", 5.0, (0.1, 0.1, 0.1), (0.0, 0.0, 0.15), points, position=low))
    bodies.append(S.Body("wheel", 15.0, shape=S.Cylinder(0.18, 0.3, 0.05)))
    joints.append(S.Revolute("bearing", "upright.axle", "wheel", axis=(0.0, 1.0, 0.0), axis_b=(0.0, 0.0, 1.0)))
    joints.append(S.Distance("track rod", ("ground", RACK), "upright.steer", float(np.linalg.norm(STEER - RACK))))
    strut = S.SpringDamper("strut", ("ground", (0.0, 0.15, 0.45)), ("lower", (0.0, 0.25, 0.01)), 1e4, 300.0, 0.5)
    return S.Mechanism(bodies, joints, forces=[strut], gravity=(0.0, 0.0, -9.81))


def main():
    system, ts = wishbone().build(), jnp.linspace(0.0, 0.5, 26)
    controller = dfx.PIDController(rtol=1e-9, atol=1e-9)
    solution = jm.simulate(system, jm.assemble(system), ts, stepsize_controller=controller)
    low, high = (np.asarray(jm.position(system, solution, f"upright.{name}")) for name in ARMS)
    upright, arm = (np.linalg.norm(np.subtract(ARMS["upper"][1], x)) for x in (ARMS["lower"][1], ARMS["upper"][0]))
    exact = meeting(low[:, 1:], upright, np.array(ARMS["upper"][0]), arm, -1)
    camber = np.degrees(np.arctan2(*(high - low)[:, 1:].T))
    print(f"the wheel travels by {1e3 * np.ptp(low[:, 2]):.0f} mm, its camber changes by {np.ptp(camber):.2f}°")
    check(
        [
            ("upper ball from that of the four-bar, m", np.abs(high[:, 1:] - exact).max(), 1e-9),
            ("length of the track rod and closure, m", jnp.abs(jm.residuals(system, solution).position).max(), 1e-9),
            ("energy and what the damper took, J", jnp.abs(jm.energy(system, solution).balance).max(), 1e-6),
        ]
    )
    save(jm.plot.draw(system, solution.state(25), view=(-30.0, 15.0)), "wishbone")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
