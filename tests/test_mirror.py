"""The mirror image of a planar mechanism moves as its mirror image."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
import jaxmb.planar as P

LINE = dict(point=(0.3, 0.1), along=(1.0, 2.0))


def reflected(x, vector=False):
    """A place, or a direction, across the line."""
    point, along = (np.array(LINE[key]) for key in ("point", "along"))
    unit = along / np.linalg.norm(along)
    turned = 2 * np.outer(unit, unit) - np.eye(2)
    return x @ turned if vector else (x - point) @ turned + point


def everything():
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
        P.JointFriction("rub", "O", viscous=0.1, coulomb=0.2, speed=0.1),
        P.JointCharacteristic("law", "Q.angle", "coordinate", [-1.0, 0.5, 2.0], [1.0, 0.5, -3.0]),
        P.JointCharacteristic("ramp", "O", "time", [0.0, 1.0], [0.5, 2.0]),
        P.Load("push", "plate.c2", (1.0, 0.3), 0.4, follows=True),
        P.Load("wind", "wheel.rim", (0.5, -0.2), 0.1),
    ]
    actuators = [P.Motor("motor", "O", 1.5), P.Motor("jack", "S"), P.Thruster("jet", "sledge.blade", (0.4, 0.9))]
    return P.Mechanism(bodies, joints, [], forces, actuators, points={"slot": place(0.1, -0.4, 0.3)})


PLACES = {
    "crank.b": "crank.b", "slider.c00": "slider.c01", "plate.c1": "plate.c1", "part.box_c01": "part.box_c00", "part.tail_b": "part.tail_b",
    "wheel.rim": "wheel.rim", "sledge.blade": "sledge.blade",
}  # fmt: skip


@functools.cache
def images():
    """Systems and states of both."""
    one = everything()
    speeds, found = {"O": 0.8, "sledge.angle": -0.4}, []
    for mechanism, sign in ((one, 1.0), (one.mirrored(**LINE), -1.0)):
        system = mechanism.build()
        v = {name: sign * value for name, value in speeds.items()}
        found.append((system, jm.assemble(system, v=v, t=0.3, hold_velocity=list(speeds))))
    return found


def test_places_velocities_and_accelerations_are_mirrored():
    (system, state), (image, seen) = images()
    u = jnp.array([0.7, -0.4, 1.1])
    for place, other in PLACES.items():
        np.testing.assert_allclose(
            jm.position(image, seen, other), reflected(jm.position(system, state, place)), atol=1e-11
        )
        for quantity, more in ((jm.velocity, {}), (jm.acceleration, {"u": u})):
            expected = reflected(quantity(system, state, place, **more), vector=True)
            np.testing.assert_allclose(quantity(image, seen, other, **more), expected, rtol=1e-9, atol=1e-9)
    assert float(jnp.abs(jm.acceleration(system, state, "sledge.blade", u=u)).max()) > 0.1


def test_mirrored_twice_is_the_same():
    one = everything()
    again = one.mirrored(along=(0.0, 1.0)).mirrored(along=(0.0, 1.0))
    for a, b in zip(one.elements.values(), again.elements.values(), strict=True):
        assert type(a) is type(b) and a.name == b.name
    states = [jm.assemble(m.build(), {"O": 0.3}, t=0.3) for m in (one, again)]
    np.testing.assert_array_equal(states[0].q, states[1].q)


def test_the_image_goes_through_text():
    image = everything().mirrored(**LINE)
    assert P.Mechanism.from_text(image.to_text()).to_text() == image.to_text()


@pytest.mark.parametrize("kind", [P.Driver, P.DrivenSpeed])
def test_prescribed_angles_turn_the_other_way(kind):
    rod = P.Body.rod("rod", 1.0, 1.0)
    joints = [P.Revolute("O", "ground", "rod.a")]
    one = P.Mechanism([rod], joints, [kind("drive", "O", lambda t, p: 0.3 + p * t)], params=2.0)
    for mechanism, sign in ((one, 1.0), (one.mirrored(), -1.0), (one.mirrored().mirrored(), 1.0)):
        assert float(mechanism.drivers[0].fn(0.5, 2.0)) == pytest.approx(1.3 * sign)
    shifted = P.Mechanism([rod], [P.Prismatic("S", "ground", "rod")], [kind("drive", "S", lambda t, p: t)])
    assert float(shifted.mirrored().drivers[0].fn(0.5, None)) == 0.5


def test_what_has_no_image_is_named():
    rod = P.Body.rod("rod", 1.0, 1.0)
    joints = [P.Revolute("O", "ground", "rod.a")]
    with pytest.raises(ValueError, match="Element 'law' of class `JointForce` must not be mirrored"):
        P.Mechanism([rod], joints, forces=[P.JointForce("law", "O", lambda m: 1.0)]).mirrored()
    with pytest.raises(ValueError, match="`along` must"):
        P.Mechanism([rod], joints).mirrored(along=(1.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="`along` must not be zero"):
        P.Mechanism([rod], joints).mirrored(along=(0.0, 0.0))
