"""Draws the pictures of the page of elements, docs/figures/elements/*.png, with `jaxmb.plot`.

python docs/make_element_pictures.py [NAME …]
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxmb as jm

jax.config.update("jax_enable_x64", True)
matplotlib.use("Agg")

FOLDER = pathlib.Path(__file__).parent / "figures" / "elements"
P, S = jm.planar, jm.spatial
SIZE, DPI = (2.6, 2.0), 140  # of one picture in inches


def arm(**more):
    """A rod in the plane."""
    return P.Body.rod("arm", 1.0, 0.5, **more)


def slide(**more):
    """A box in the plane."""
    return P.Body("slide", 1.0, shape=P.Box((0.16, 0.1)), **more)


def box(size=(0.3, 0.16, 0.1), **more):
    """A box in space."""
    return S.Body("box", 1.0, shape=S.Box(size), **more)


def rod(**more):
    """A cylinder in space, along z from its point a."""
    return S.Body("rod", 1.0, shape=S.Cylinder(0.5, 0.03), **more)


def nut():
    """A thin disk in space."""
    return S.Body("nut", 1.0, shape=S.Disk(0.07, 0.02))


def planar(bodies, joints, q=None, **more):
    """A mechanism in the plane and its guess."""
    return P.Mechanism(bodies, joints, **more), q


def spatial(bodies, joints, q=None, **more):
    """A mechanism in space and its guess."""
    return S.Mechanism(bodies, joints, **more), q


def hinged(**more):
    """An arm on a hinge."""
    return planar([arm()], [P.Revolute("hinge", "ground", "arm.a")], {"hinge": 0.5}, **more)


def guided(**more):
    """A box on a rail."""
    return planar([slide()], [P.Prismatic("rail", "ground", "slide")], {"rail": 0.35}, **more)


def anchored(**more):
    """A box on a rail and a place on the ground beside it."""
    return planar([slide()], [P.Prismatic("rail", ("ground", (0.0, -0.2)), "slide")], {"rail": 0.3}, **more)


X, TILTED = (1.0, 0.0, 0.0), (0.8, 0.35, 0.35, 0.3)
SPIN = lambda t, p: 0.5 + t
WHEELS = [P.Body("one", 1.0, 0.01, points={"o": (0.0, 0.0)}), P.Body("two", 1.0, 0.01, position=(0.36, 0.0))]
AXLES = [P.Revolute("first", "ground", "one"), P.Revolute("second", ("ground", (0.36, 0.0)), "two")]
PINION = P.Body("pinion", 1.0, shape=P.Disk(0.03))
FLAT = S.frame((0.0, 0.0, 0.0), (0.7071, 0.0, 0.0, 0.7071))

PICTURES = {
    "revolute": (
        hinged(),
        spatial(
            [box()], [S.Revolute("hinge", "ground", ("box", (-0.15, 0.0, 0.09)), axis=(0.0, 1.0, 0.0))], {"hinge": -0.4}
        ),
    ),
    "prismatic": (
        guided(),
        spatial([rod()], [S.Prismatic("rail", "ground", "rod.a", axis=X)], {"rail": 0.35}),
    ),
    "fixed": (
        planar([arm()], [P.Fixed("weld", ("ground", P.frame((0.0, 0.0), 0.4)), "arm.a")]),
        spatial([rod()], [S.Fixed("weld", "ground", "rod.a")]),
    ),
    "cylindrical": (
        spatial([rod()], [S.Cylindrical("pin", "ground", "rod.a", axis=X)], {"pin.z": 0.35, "pin.angle": 0.4}),
    ),
    "screw": (spatial([nut()], [S.Screw("spindle", "ground", "nut", 0.05)], {"spindle": 0.5}),),
    "universal": (
        spatial(
            [S.Body("one", 1.0, shape=S.Cylinder(0.4, 0.02)), rod()],
            [
                S.Revolute("bearing", "ground", "one.a", axis=X, axis_b=(0.0, 0.0, 1.0)),
                S.Universal("cross", "one.b", "rod.a", axis=(0.0, 1.0, 0.0)),
            ],
            {"bearing": 0.3, "cross.first": 0.0, "cross.second": 0.5},
        ),
    ),
    "spherical": (spatial([rod(orientation=TILTED)], [S.Spherical("ball", "ground", "rod.a")]),),
    "planar": (
        spatial(
            [box()],
            [S.Planar("table", "ground", ("box", (0.0, 0.0, -0.05)))],
            {"table.x": 0.3, "table.y": 0.2, "table.angle": 0.5},
        ),
    ),
    "point_on_line": (
        planar(
            [arm(angle=0.6, position=(0.3, 0.0))],
            [P.PointOnLine("slot", "ground", "arm.a")],
            {"slot.x": 0.3, "slot.angle": 0.8},
        ),
        spatial([rod(orientation=TILTED)], [S.PointOnLine("wire", "ground", "rod.a", axis=X)], {"wire.z": 0.35}),
    ),
    "point_on_plane": (
        spatial(
            [rod(orientation=(0.95, 0.2, 0.2, 0.0))],
            [S.PointOnPlane("floor", "ground", "rod.a")],
            {"floor.x": 0.3, "floor.y": 0.2},
        ),
    ),
    "distance": (
        planar(
            [arm()],
            [P.Revolute("hinge", "ground", "arm.a"), P.Distance("tie", ("ground", (0.2, 0.45)), "arm.b", 0.35)],
            {"hinge": 0.3},
        ),
        spatial(
            [box(position=(0.3, 0.0, -0.3))],
            [S.Distance("tie", ("ground", (0.0, 0.0, 0.1)), ("box", (-0.15, 0.0, 0.05)), 0.38)],
        ),
    ),
    "gear": (
        planar(WHEELS, [*AXLES, P.Gear("mesh", ("first", "second"), ratio=-0.5)]),
        planar(WHEELS, [*AXLES, P.Gear("belt", ("first", "second"), ratio=0.5)]),
    ),
    "rack": (
        planar(
            [P.Body("pinion", 1.0, 0.01), slide()],
            [
                P.Revolute("axle", ("ground", (0.0, 0.14)), "pinion"),
                P.Prismatic("rail", ("ground", (-0.1, 0.0)), ("slide", (0.0, 0.0))),
                P.Rack("rack", "axle", "rail", radius=0.1),
            ],
            {"rail": 0.35, "axle": 3.5},
        ),
    ),
    "rolling_wheel": (
        planar(
            [P.Body("wheel", 1.0, 0.1, position=(0.0, 0.2))],
            [P.RollingWheel("road", "ground", "wheel", 0.2)],
            {"wheel.y": 0.2},
        ),
    ),
    "rolling_disk": (
        spatial(
            [S.Body("disk", 1.0, (0.1, 0.1, 0.2), position=(0.0, 0.0, 0.28), orientation=(0.75, 0.62, 0.1, 0.0))],
            [S.RollingDisk("road", "ground", "disk", 0.3)],
        ),
    ),
    "rolling_sphere": (
        spatial(
            [S.Body("ball", 1.0, (0.1, 0.1, 0.1), position=(0.0, 0.0, 0.2))],
            [S.RollingSphere("road", "ground", "ball", 0.2)],
        ),
    ),
    "knife_edge": (
        planar(
            [P.Body("sleigh", 1.0, shape=P.Plate([(0.0, -0.12), (0.45, 0.0), (0.0, 0.12)]), angle=0.5)],
            [P.KnifeEdge("blade", ("sleigh", (0.2, 0.0)))],
        ),
    ),
    "driver": (
        hinged(drivers=[P.Driver("turn", "hinge", SPIN)]),
        guided(drivers=[P.Driver("push", "rail", lambda t, p: 0.35 + t)]),
    ),
    "driven_distance": (
        planar(
            [arm()],
            [P.Revolute("hinge", "ground", "arm.a")],
            {"hinge": 0.6},
            drivers=[P.DrivenDistance("jack", ("ground", (0.45, 0.0)), "arm.b", lambda t, p: 0.3 + t)],
        ),
    ),
    "driven_angle": (
        planar(
            [arm()],
            [P.Revolute("hinge", "ground", "arm.a")],
            {"hinge": 0.5},
            drivers=[P.DrivenAngle("turn", "ground", "arm.b", SPIN)],
        ),
    ),
    "driven_speed": (
        planar(
            [arm()],
            [P.Revolute("hinge", "ground", "arm.a")],
            {"hinge": 0.5},
            drivers=[P.DrivenSpeed("speed", "hinge", SPIN)],
        ),
    ),
    "spring_damper": (
        anchored(forces=[P.SpringDamper("strut", "ground", "slide", 10.0, 1.0)]),
        spatial(
            [box(position=(0.5, 0.0, 0.0))],
            [],
            forces=[S.SpringDamper("strut", "ground", ("box", (-0.15, 0.0, 0.0)), 10.0, 1.0)],
        ),
    ),
    "joint_spring": (
        hinged(forces=[P.JointSpring("spring", "hinge", 10.0)]),
        guided(forces=[P.JointSpring("spring", "rail", 10.0, 1.0)]),
    ),
    "joint_characteristic": (
        hinged(
            forces=[
                P.JointCharacteristic("motor", "hinge", "rate", [0.0, 1.0, 2.0, 3.0], [1.0, 1.1, 0.9, 0.0], "cubic")
            ]
        ),
        guided(forces=[P.JointCharacteristic("stop", "rail", "coordinate", [0.0, 0.3, 0.4], [0.0, 0.0, -9.0])]),
    ),
    "line_characteristic": (
        anchored(forces=[P.LineCharacteristic("cable", "ground", "slide", "length", [0.0, 0.3, 0.5], [0.0, 0.0, 9.0])]),
    ),
    "joint_friction": (
        hinged(forces=[P.JointFriction("friction", "hinge", coulomb=1.0)]),
        guided(forces=[P.JointFriction("friction", "rail", coulomb=1.0)]),
    ),
    "bearing_friction": (
        hinged(forces=[P.BearingFriction("friction", "hinge", 0.1, 0.02)]),
        guided(forces=[P.BearingFriction("friction", "rail", 0.1)]),
    ),
    "load": (
        planar(
            [slide()],
            [],
            forces=[P.Load("pull", ("slide", (-0.08, 0.0)), (3.0, 1.0)), P.Load("twist", "slide", torque=1.0)],
        ),
        spatial(
            [box()],
            [],
            forces=[
                S.Load("pull", ("box", (-0.15, 0.0, 0.0)), (3.0, 0.0, -1.0)),
                S.Load("twist", "box", torque=(0.0, 0.0, 1.0)),
            ],
        ),
    ),
    "force": (hinged(forces=[P.Force("wind", "arm.b", lambda motion: jnp.array([1.0, 0.5, 0.2]))]),),
    "joint_force": (
        hinged(forces=[P.JointForce("law", "hinge", lambda motion: jnp.ones(()))]),
        guided(forces=[P.JointForce("law", "rail", lambda motion: jnp.ones(()))]),
    ),
    "motor": (hinged(actuators=[P.Motor("motor", "hinge")]), guided(actuators=[P.Motor("motor", "rail")])),
    "thruster": (planar([slide(angle=0.4)], [], actuators=[P.Thruster("jet", ("slide", (-0.08, 0.0)), (1.0, 0.0))]),),
}


def picture(name):
    """One element, in the plane and in space beside each other where there are both."""
    import matplotlib.pyplot as plt

    cases = PICTURES[name]
    figure = plt.figure(figsize=(SIZE[0] * len(cases), SIZE[1]), layout="constrained")
    for ax, (mechanism, q) in zip(np.ravel(figure.subplots(1, len(cases))), cases, strict=True):
        system = mechanism.build("absolute" if name == "fixed" else "relative")
        jm.plot.draw(system, jm.assemble(system, q), ax, symbols=0.045)
        ax.set_axis_off()
    figure.savefig(FOLDER / f"{name}.png", dpi=DPI, pil_kwargs={"optimize": True})
    plt.close(figure)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        picture(name)
        print(f"wrote {name}.png")
