"""The mirror image of a mechanism moves as its mirror image."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
import jaxmb.planar as P
import jaxmb.spatial as S

LINE = dict(point=(0.3, 0.1), along=(1.0, 2.0))
PLANE = dict(point=(0.3, 0.1, -0.2), normal=(1.0, -2.0, 0.5))


def reflected(x, dim, vector=False):
    """A place, or a direction, across the line or the plane."""
    point, normal = (LINE["point"], (-2.0, 1.0)) if dim == 2 else PLANE.values()
    unit, point = np.array(normal) / np.linalg.norm(normal), np.array(point)
    turned = np.eye(dim) - 2 * np.outer(unit, unit)
    return x @ turned if vector else (x - point) @ turned + point


def in_the_plane():
    """An arm with a slider and a plate in gear, a part in a slot, a wheel on a line and a sledge; each kind of element once."""
    place = lambda *x: P.frame(x[:2], x[2])
    box = P.Body("box", shape=P.Box((0.2, 0.1)), mass=0.3)
    bodies = [
        P.Body.rod("crank", 1.0, 0.5, angle=0.4),
        P.Body("slider", shape=P.Box((0.3, 0.2)), mass=0.7, position=(0.8, 0.5), angle=0.4),
        P.Body("plate", shape=P.Plate([(0.0, 0.0), (0.4, 0.1), (0.1, 0.3)]), mass=0.5, position=(0.9, 0.7), angle=0.9),
        P.Body.joined("part", [(box, (0.1, 0.2)), P.Body.rod("tail", 0.2, 0.3)], position=(0.0, -0.5), angle=0.2),
        P.Body("wheel", shape=P.Disk(0.2), mass=0.4, position=(0.5, 1.2), point_masses=[(0.1, (0.05, 0.07))]),
        P.Body("sledge", 2.0, 0.3, com=(0.1, 0.05), points={"blade": (0.2, -0.1)}, position=(-1.0, 0.0), angle=0.3),
    ]
    joints = [
        P.Revolute("O", ("ground", place(0.0, 0.0, 0.2)), "crank.a"),
        P.Prismatic("S", "crank.b", "slider.c01", axis=(0.6, 0.8)),
        P.Revolute("A", "slider.c10", "plate.c0"),
        P.PointOnLine("Q", "ground.slot", "part.box_c11", axis=(1.0, 0.3)),
        P.RollingWheel("roll", ("ground", place(0.0, 1.0, 0.1)), "wheel", 0.2, axis=(1.0, 0.2)),
        P.KnifeEdge("edge", "sledge.blade", axis=(1.0, 0.5)),
        P.Distance("rod", "sledge", ("ground", (-1.5, 0.4)), 0.8),
        P.Gear("gear", ("O", "A"), 1.7, 0.3),
        P.Rack("rack", "Q.angle", "S", 0.4, 0.1),
    ]
    forces = [
        P.SpringDamper("band", "plate.c2", ("ground", (0.2, 1.0)), 30.0, 0.5, 0.4),
        P.LineCharacteristic("rope", "plate.c1", "wheel", "length", [0.0, 1.0, 2.0], [0.0, 3.0, 4.0]),
        P.JointSpring("coil", "O", 5.0, 0.2, rest=0.7),
        P.JointSpring("stop", "S", 8.0, 0.1, rest=0.2),
        P.JointInertia("rotor", "O", 0.3),
        P.JointStop("buffer", "Q.angle", -0.4, 0.1, stiffness=8.0, damping=0.3),
        P.JointFriction("rub", "O", viscous=0.1, coulomb=0.2, speed=0.1),
        P.JointCharacteristic("law", "Q.angle", "coordinate", [-1.0, 0.5, 2.0], [1.0, 0.5, -3.0]),
        P.JointCharacteristic("ramp", "O", "time", [0.0, 1.0], [0.5, 2.0]),
        P.Load("push", "plate.c2", (1.0, 0.3), 0.4, follows=True),
        P.Load("wind", "wheel.rim", (0.5, -0.2), 0.1),
    ]
    actuators = [P.Motor("motor", "O", 1.5), P.Motor("jack", "S"), P.Thruster("jet", "sledge.blade", (0.4, 0.9))]
    return P.Mechanism(bodies, joints, [], forces, actuators, points={"slot": place(0.1, -0.4, 0.3)})


def in_space():
    """Two chains, a plate that slides on a plane and one that hangs on a line, a ball and a disk that roll; each kind of element once."""
    place = lambda *x: S.frame(x, (0.9, 0.1, -0.3, 0.2))
    part = S.Body("part", shape=S.Box((0.2, 0.1, 0.3)), mass=0.3)
    skew = [[0.05, 0.01, -0.02], [0.01, 0.06, 0.005], [-0.02, 0.005, 0.07]]
    bodies = [
        S.Body("arm", shape=S.Rod(0.5), mass=1.0, orientation=(0.8, 0.2, 0.3, -0.1)),
        S.Body("sleeve", shape=S.Cylinder(0.3, 0.05, 0.03), mass=0.7, position=(0.3, 0.2, 0.4)),
        S.Body("nut", shape=S.Plate([(0.0, 0.0), (0.4, 0.1), (0.1, 0.3)], 0.02), mass=0.5),
        S.Body("fork", 0.8, skew, com=(0.1, 0.02, -0.05), points={"tip": (0.2, 0.1, 0.3)}, position=(1.0, 0.0, 0.0)),
        S.Body.joined("knob", [(part, (0.1, 0.2, 0.0)), S.Body("end", shape=S.Sphere(0.1), mass=0.2)]),
        S.Body("slab", shape=S.Box((0.3, 0.2, 0.1)), mass=0.6, position=(-1.0, 0.5, 0.0)),
        S.Body("bead", 0.4, skew, point_masses=[(0.1, (0.05, 0.07, 0.02))], position=(0.0, -1.0, 0.3)),
        S.Body("foot", 0.5, skew, position=(0.5, 0.5, -0.6)),
        S.Body("ball", shape=S.Sphere(0.2), mass=1.0, com=(0.01, 0.02, 0.0), position=(-0.5, -0.5, 0.2)),
        S.Body("disk", shape=S.Disk(0.3), mass=1.0, position=(-0.5, 0.8, 0.28), orientation=(0.8, 0.6, 0.1, 0.0)),
    ]
    joints = [
        S.Revolute("O", ("ground", place(0.0, 0.0, 0.2)), "arm.a", axis=(0.3, 1.0, 0.2), axis_b=(1.0, 0.1, 0.0)),
        S.Cylindrical("C", "arm.b", "sleeve.rim", axis=(0.1, -0.4, 1.0)),
        S.Screw("W", "sleeve.b", "nut.c1+", 0.05, axis=(0.0, 0.5, 1.0)),
        S.Universal("U", ("ground", place(1.0, 0.1, 0.0)), "fork", axis=(0.0, 1.0, 1.0), axis_b=(1.0, 0.2, 0.3)),
        S.Spherical("B", "fork.tip", "knob.part_c010"),
        S.Planar("flat", ("ground", place(-1.0, 0.4, 0.0)), "slab.c110", axis=(0.2, 0.3, 1.0)),
        S.PointOnLine("wire", "ground.post", "bead", axis=(0.3, 1.0, 0.0)),
        S.PointOnPlane("floor", ("ground", place(0.5, 0.5, -0.6)), "foot", axis=(0.1, 0.2, 1.0)),
        S.RollingSphere("rolls", "ground", "ball", 0.2, normal=(0.1, 0.05, 1.0)),
        S.RollingDisk("wheel", "ground", "disk", 0.3, normal=(0.0, 0.1, 1.0)),
        S.Distance("rod", "foot", ("ground", (0.0, 0.9, -0.3)), 0.8),
        S.Gear("gear", ("O", "U.first"), 1.7, 0.3),
        S.Rack("rack", "C.angle", "C.z", 0.4, 0.1),
    ]
    forces = [
        S.SpringDamper("band", "knob.end_rim", ("ground", (0.2, 1.0, 0.3)), 30.0, 0.5, 0.4),
        S.JointSpring("coil", "flat.y", 5.0, 0.2, rest=0.7),
        S.JointSpring("twist", "flat.angle", 3.0, 0.1, rest=-0.4),
        S.JointInertia("rotor", "flat.angle", 0.3),
        S.JointStop("buffer", "flat.y", -0.4, 0.1, stiffness=8.0, damping=0.3),
        S.JointFriction("rub", "B", viscous=0.1, coulomb=0.2, speed=0.1),
        S.JointCharacteristic("law", "U.second", "coordinate", [-1.0, 0.5, 2.0], [1.0, 0.5, -3.0]),
        S.Load("push", "knob.end", (1.0, 0.3, -0.2), (0.1, 0.2, 0.3), follows=True),
        S.Load("wind", "ball.rim", (0.5, -0.2, 0.1), (0.3, -0.1, 0.05)),
    ]
    actuators = [S.Motor("motor", "O", 1.5), S.Motor("push_x", "flat.x"), S.Motor("spin", "B.wy", 0.2)]
    actuators += [S.Motor("turn", "B.wz"), S.Thruster("jet", "disk.rim", (0.4, 0.9, 0.3))]
    return S.Mechanism(bodies, joints, [], forces, actuators, points={"post": place(0.1, -0.9, 0.3)})


# Mechanism, mirror, some velocities that are given with their signs in the image, inputs, and places with their names in the image.
PLANAR = (
    in_the_plane, LINE, {"O": (0.8, -1), "sledge.angle": (-0.4, -1)}, (0.7, -0.4, 1.1),
    {"crank.b": "crank.b", "slider.c00": "slider.c01", "plate.c1": "plate.c1", "part.box_c01": "part.box_c00", "part.tail_b": "part.tail_b",
     "wheel.rim": "wheel.rim", "sledge.blade": "sledge.blade"},
)  # fmt: skip
SPATIAL = (
    in_space, PLANE,
    {"O": (0.8, -1), "C.angle": (0.3, -1), "U.second": (0.5, -1), "W": (-0.4, -1), "B.wx": (0.5, -1), "B.wy": (0.3, 1), "flat.x": (0.4, 1),
     "flat.y": (0.2, -1), "flat.angle": (0.6, -1), "wire.vz": (0.3, 1), "floor.wy": (-0.7, 1), "disk.wz": (0.8, -1)},
    (0.7, -0.4, 1.1, 0.3, -0.6),
    {"arm.b": "arm.b", "sleeve.rim": "sleeve.rim", "nut.c2-": "nut.c2-", "fork.tip": "fork.tip", "knob.part_c101": "knob.part_c111",
     "knob.end_rim": "knob.end_rim", "slab.c000": "slab.c010", "bead": "bead", "foot": "foot", "ball.rim": "ball.rim", "disk.rim": "disk.rim"},
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(PLANAR, id="plane"), pytest.param(SPATIAL, id="space", marks=pytest.mark.slow)]
)
def test_places_velocities_and_accelerations_are_mirrored(case):
    made, mirror, speeds, inputs, places = case
    one = made()
    found = []
    for mechanism, which in ((one, 0), (one.mirrored(**mirror), 1)):
        system = mechanism.build()
        v = {name: value * (sign if which else 1) for name, (value, sign) in speeds.items()}
        found.append((system, jm.assemble(system, v=v, t=0.3, hold_velocity=list(speeds))))
    (system, state), (image, seen) = found
    dim, moved = one.gravity.shape[0], 0.0
    for place, other in places.items():
        expected = reflected(jm.position(system, state, place), dim)
        np.testing.assert_allclose(jm.position(image, seen, other), expected, atol=1e-11, err_msg=place)
        for quantity, more in ((jm.velocity, {}), (jm.acceleration, {"u": jnp.array(inputs)})):
            expected = reflected(quantity(system, state, place, **more), dim, vector=True)
            found = quantity(image, seen, other, **more)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=place)
            moved = max(moved, float(jnp.abs(found).max()))
    assert moved > 0.1


@pytest.mark.parametrize("made", [in_the_plane, in_space])
@pytest.mark.slow
def test_mirrored_twice_more_is_the_same(made):
    once = made().mirrored()
    assert once.mirrored().mirrored().to_text() == once.to_text()


@pytest.mark.parametrize("made, mirror", [(in_the_plane, LINE), (in_space, PLANE)])
@pytest.mark.slow
def test_the_image_goes_through_text(made, mirror):
    image = made().mirrored(**mirror)
    assert type(image).from_text(image.to_text()).to_text() == image.to_text()


@pytest.mark.parametrize("kind", [P.Driver, P.DrivenSpeed])
def test_prescribed_angles_turn_the_other_way(kind):
    rod = P.Body.rod("rod", 1.0, 1.0)
    joints = [P.Revolute("O", "ground", "rod.a")]
    one = P.Mechanism([rod], joints, [kind("drive", "O", lambda t, p: 0.3 + p * t)], params=2.0)
    for mechanism, sign in ((one, 1.0), (one.mirrored(), -1.0), (one.mirrored().mirrored(), 1.0)):
        assert float(mechanism.drivers[0].fn(0.5, 2.0)) == pytest.approx(1.3 * sign)
    shifted = P.Mechanism([rod], [P.Prismatic("S", "ground", "rod")], [kind("drive", "S", lambda t, p: t)])
    assert float(shifted.mirrored().drivers[0].fn(0.5, None)) == 0.5


def test_parts_and_points_of_a_body_are_mirrored():
    """Mass, centre and places across the x axis; corners of a box change their names, and bodies without a shape have none."""
    box = P.Body("box", shape=P.Box((0.2, 0.1)), mass=0.3)
    whole = P.Body.joined("part", [(box, (0.1, 0.2)), P.Body.rod("tail", 0.2, 0.3)], position=(0.0, -0.5), angle=0.2)
    plain = P.Body("plain", 2.0, 0.3, com=(0.1, 0.05), points={"p": (0.2, -0.1)})
    one, other = P.Mechanism([whole, plain]), P.Mechanism([whole, plain]).mirrored(along=(1.0, 0.0))
    place = lambda m, body, at: (np.asarray(m.elements[body].pose @ m.elements[body].points[at]))[:2, 2]
    names = {
        "box_c01": "box_c00",
        "box_c10": "box_c11",
        "tail_b": "tail_b",
        "box_centre": "box_centre",
        "centre": "centre",
    }
    for name, image in names.items():
        np.testing.assert_allclose(place(other, "part", image), place(one, "part", name) * (1, -1), atol=1e-15)
    assert place(other, "plain", "p").tolist() == [0.2, 0.1]
    for name in ("part", "plain"):
        np.testing.assert_allclose(other.elements[name].com, one.elements[name].com * np.array((1, -1)), atol=1e-15)
        assert float(other.elements[name].inertia) == pytest.approx(float(one.elements[name].inertia), rel=1e-14)


def test_laws_of_joints_keep_what_a_shift_says_and_turn_over_what_an_angle_does():
    """f(s) becomes −f(−s) of an angle, and its least bound the largest; shifts along an axis stay."""
    rod = P.Body.rod("rod", 1.0, 1.0)
    joints = [P.Revolute("O", "ground", "rod.a"), P.Prismatic("S", "rod", "block")]
    forces = [
        force
        for joint in ("O", "S")
        for force in (
            P.JointStop(f"stop {joint}", joint, -0.4, 0.1, stiffness=8.0),
            P.JointCharacteristic(f"law {joint}", joint, "coordinate", [-1.0, 0.5, 2.0], [1.0, 0.5, -3.0]),
            P.JointCharacteristic(f"ramp {joint}", joint, "time", [0.0, 1.0], [0.5, 2.0]),
        )
    ]
    image = P.Mechanism([rod, P.Body("block", 1.0, 0.1)], joints, forces=forces).mirrored().elements
    bounds = lambda stop: (float(stop.lower), float(stop.upper))
    points = lambda law: (law.x.tolist(), law.y.tolist())
    assert bounds(image["stop O"]) == (-0.1, 0.4) and bounds(image["stop S"]) == (-0.4, 0.1)
    assert points(image["law O"]) == ([-2.0, -0.5, 1.0], [3.0, -0.5, -1.0])
    assert points(image["law S"]) == ([-1.0, 0.5, 2.0], [1.0, 0.5, -3.0])
    assert points(image["ramp O"]) == ([0.0, 1.0], [-0.5, -2.0]) and points(image["ramp S"]) == ([0.0, 1.0], [0.5, 2.0])


class Wedge(P.Box):
    """A shape of one's own."""


def test_what_has_no_image_is_named():
    rod = P.Body.rod("rod", 1.0, 1.0)
    joints = [P.Revolute("O", "ground", "rod.a")]
    with pytest.raises(ValueError, match="Element 'law' of class `JointForce` must not be mirrored"):
        P.Mechanism([rod], joints, forces=[P.JointForce("law", "O", lambda m: 1.0)]).mirrored()
    with pytest.raises(ValueError, match="Body 'part' must not be mirrored, since the image of a `Wedge` is not known"):
        P.Mechanism([P.Body("part", shape=Wedge((0.2, 0.1)), mass=1.0)]).mirrored()
    with pytest.raises(ValueError, match="`along` must"):
        P.Mechanism([rod], joints).mirrored(along=(1.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="`along` must be a direction, finite numbers not all of them zero"):
        P.Mechanism([rod], joints).mirrored(along=(0.0, 0.0))
    with pytest.raises(ValueError, match="`normal` must be a direction, finite numbers not all of them zero"):
        S.Mechanism([S.Body("ball", shape=S.Sphere(0.1), mass=1.0)], []).mirrored(normal=(0.0, 0.0, 0.0))
