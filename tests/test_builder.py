"""Bodies from shapes, mechanisms from parts, mechanisms as text."""

import functools
import itertools

import andrews_joints
import bricard_joints
import diffrax as dfx
import equinox as eqx
import fivebar_control
import governor
import jax
import jax.numpy as jnp
import knife_edge
import mobile_robot
import nfourbar_joints
import numpy as np
import puma
import pytest
import rolling_disk
import scipy.special
import stewart_model
from mechanisms import PAIRS, pair

import jaxmb as jm
from jaxmb.fit.target import Setup, locate
from jaxmb.mechanism.text.language import same

P, S = jm.planar, jm.spatial
G = 9.81
PRECISE = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(rtol=1e-11, atol=1e-12)}


@eqx.filter_jit
def acceleration(system, q, v):
    return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, jm.as_state(system, q, v))).vdot


# Shapes. The same regions as images of unit cubes, integrated by Gauss' and the trapezoidal rule.

ELL = [(0.2, 0.1), (1.2, 0.1), (1.2, 0.4), (0.5, 0.4), (0.5, 1.1), (0.2, 1.1)]
TRIANGLE = [(0.3, -0.2), (-0.5, 0.9), (-0.1, -0.7)]


def rectangle(low, high):
    low, high = np.array(low), np.array(high)
    return lambda u: low + u[:, : len(low)] * (high - low), lambda u: np.prod(high - low)


def annulus(inner, outer):
    radius = lambda u: inner + u[:, 0] * (outer - inner)
    at = lambda u: radius(u)[:, None] * np.stack([np.cos(2 * np.pi * u[:, 1]), np.sin(2 * np.pi * u[:, 1])], axis=1)
    return at, lambda u: 2 * np.pi * radius(u) * (outer - inner)


def triangle(a, b, c):
    a, b, c = map(np.array, (a, b, c))
    at = lambda u: a + u[:, :1] * (b - a) + u[:, :1] * u[:, 1:2] * (c - b)
    return at, lambda u: abs(np.linalg.det([b - a, c - a])) * u[:, 0]


def ball(radius):
    def at(u):
        r, height, angle = radius * u[:, 0], 2 * u[:, 2] - 1, 2 * np.pi * u[:, 1]
        across = r * np.sqrt(1 - height**2)
        return np.stack([across * np.cos(angle), across * np.sin(angle), r * height], axis=1)

    return at, lambda u: 4 * np.pi * radius**3 * u[:, 0] ** 2


def prism(piece, low, high):
    at, weight = piece
    lifted = lambda u: np.column_stack([at(u), low + u[:, 2] * (high - low)])
    return lifted, lambda u: weight(u) * (high - low)


ELL_PIECES = [rectangle((0.2, 0.1), (1.2, 0.4)), rectangle((0.2, 0.4), (0.5, 1.1))]
line = lambda axis, length: (lambda u: length * u[:, :1] * np.eye(3)[axis], lambda u: length)
flat = lambda piece, dim: (lambda u: np.pad(piece[0](u), ((0, 0), (0, 1)))[:, :dim], piece[1])
SHAPES = {
    "rod": (P.Rod(0.7), [flat(line(0, 0.7), 2)]),
    "box": (P.Box((0.6, 0.4)), [rectangle((-0.3, -0.2), (0.3, 0.2))]),
    "disk": (P.Disk(0.4), [annulus(0.0, 0.4)]),
    "ring": (P.Disk(0.4, 0.3), [annulus(0.3, 0.4)]),
    "plate": (P.Plate(ELL), ELL_PIECES),
    "plate, the other way round": (P.Plate(ELL[::-1]), ELL_PIECES),
    "triangle": (P.Plate(TRIANGLE), [triangle(*TRIANGLE)]),
    "rod in space": (S.Rod(0.7), [line(2, 0.7)]),
    "box in space": (S.Box((0.6, 0.4, 0.2)), [rectangle((-0.3, -0.2, -0.1), (0.3, 0.2, 0.1))]),
    "cylinder": (S.Cylinder(0.9, 0.2), [prism(annulus(0.0, 0.2), 0.0, 0.9)]),
    "tube": (S.Cylinder(0.9, 0.2, 0.15), [prism(annulus(0.15, 0.2), 0.0, 0.9)]),
    "disk in space": (S.Disk(0.4, 0.1), [flat(annulus(0.1, 0.4), 3)]),
    "plate in space": (S.Plate(ELL, 0.2), [prism(piece, -0.1, 0.1) for piece in ELL_PIECES]),
    "sphere": (S.Sphere(0.3), [ball(0.3)]),
}


@functools.cache
def nodes():
    """Points (n, 3) and weights (n,) in the unit cube; the second coordinate is that in which angles run."""
    x, w = np.polynomial.legendre.leggauss(6)
    angles, even = np.arange(8) / 8, np.full(8, 1 / 8)
    gauss = ((x + 1) / 2, w / 2)
    rules = {True: (gauss, (angles, even), gauss), False: (gauss, gauss, gauss)}
    grid = lambda parts: np.array(list(itertools.product(*parts)))
    return {k: (grid([r[0] for r in v]), grid([r[1] for r in v]).prod(axis=1)) for k, v in rules.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_moments_of_shapes_are_integrals(name):
    shape, pieces = SHAPES[name]
    dim = shape.centre().shape[0]
    u, w = nodes()[name.split()[0] in ("disk", "ring", "cylinder", "tube", "sphere")]
    parts = [(at(u), w * weight(u)) for at, weight in pieces]
    x, w = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    centre = w @ x / w.sum()
    spread = ((x - centre).T * w) @ (x - centre)
    module = P if dim == 2 else S
    body = module.Body("body", shape=shape, density=3.0)
    np.testing.assert_allclose(body.mass, 3.0 * w.sum(), rtol=1e-13)
    np.testing.assert_allclose(body.com, centre, atol=1e-15)
    inertia = np.trace(spread) if dim == 2 else np.trace(spread) * np.eye(3) - spread
    np.testing.assert_allclose(body.inertia, 3.0 * inertia, atol=1e-14)
    np.testing.assert_allclose(body.points["centre"][:-1, -1], centre, atol=1e-15)
    given = module.Body("body", mass=body.mass, shape=shape)
    np.testing.assert_allclose(given.inertia, body.inertia, rtol=1e-14)
    module.Mechanism([body])  # its inertia obeys the triangle inequality


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_in_millimetres_and_tonnes(name):
    """Lengths × 1000, masses × 1e−3: inertia × 1000."""
    shape, _ = SHAPES[name]
    large = shape.resized({key: 1e3 * value for key, value in shape.dimensions.items()})
    module = P if shape.centre().shape[0] == 2 else S
    small, large = module.Body("body", 2.0, shape=shape), module.Body("body", 2e-3, shape=large)
    np.testing.assert_allclose(large.inertia, 1e3 * small.inertia, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(large.com, 1e3 * small.com, rtol=1e-14, atol=1e-12)
    for point, at in small.points.items():
        np.testing.assert_allclose(large.points[point][:-1, -1], 1e3 * at[:-1, -1], rtol=1e-14, atol=1e-12)


def test_points_of_shapes_are_where_they_are_said_to_be():
    at = lambda shape, name: tuple(float(x) for x in shape.points()[name])
    assert at(P.Rod(0.5), "b") == (0.5, 0.0) and at(S.Rod(0.5), "b") == (0.0, 0.0, 0.5)
    assert at(P.Box((1.0, 2.0)), "c10") == (0.5, -1.0) and at(S.Box((1.0, 2.0, 4.0)), "c011") == (-0.5, 1.0, 2.0)
    assert at(P.Plate(TRIANGLE), "c2") == TRIANGLE[2]
    assert at(S.Plate(TRIANGLE, 0.2), "c2+") == (*TRIANGLE[2], 0.1)
    assert at(S.Cylinder(2.0, 0.5, 0.25), "bore") == (0.25, 0.0, 0.0) == at(S.Disk(1.0, 0.25), "bore")
    assert at(S.Sphere(0.5), "rim") == (0.5, 0.0, 0.0) and at(P.Disk(0.5), "rim") == (0.5, 0.0)


# Bodies joined to one


def same_inertia(one, other):
    np.testing.assert_allclose(one.spread(), other.spread(), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(one.inertia, other.inertia, rtol=1e-12, atol=1e-15)


def test_what_is_cut_and_joined_is_the_whole():
    rod = P.Body("rod", shape=P.Rod(1.0), density=2.0)
    parts = [P.Body(f"part{i}", shape=P.Rod(length), density=2.0) for i, length in enumerate((0.3, 0.7))]
    same_inertia(P.Body.joined("rod", [parts[0], (parts[1], (0.3, 0.0))]), rod)
    turned = P.frame((1.0, 0.0), np.pi)  # the second part runs backwards from the far end
    joined = P.Body.joined("rod", [parts[0], (parts[1], turned)], points={"hand": (1.0, 0.1)})
    same_inertia(joined, rod)
    np.testing.assert_allclose(joined.points["part1_b"][:2, 2], [0.3, 0.0], atol=1e-15)
    assert list(joined.points) == [
        *("part0", "part0_a", "part0_b", "part0_centre", "part1", "part1_a", "part1_b", "part1_centre"),
        *("centre", "hand"),
    ]

    box = S.Body("box", shape=S.Box((0.6, 0.4, 0.2)), density=2.0)
    half = lambda name, sides: S.Body(name, shape=S.Box(sides), density=2.0)
    quarter_turn = S.frame((0.0, 0.1, 0.0), (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0))
    halves = [(half("low", (0.6, 0.2, 0.2)), (0.0, -0.1, 0.0)), (half("high", (0.6, 0.2, 0.2)), quarter_turn)]
    same_inertia(S.Body.joined("box", halves), box)
    tube = S.Body("tube", shape=S.Cylinder(1.0, 0.2, 0.1), density=5.0)
    filled = S.Body.joined("bar", [tube, S.Body("core", shape=S.Cylinder(1.0, 0.1), density=5.0)])
    same_inertia(filled, S.Body("bar", shape=S.Cylinder(1.0, 0.2), density=5.0))


def test_mass_points_of_parts_are_joined_too():
    tip = [(0.5, (1.0, 0.0))]
    one = P.Body.joined("rod", [P.Body("part", 2.0, shape=P.Rod(1.0), point_masses=tip)])
    same_inertia(
        one, P.Body.joined("rod", [P.Body("part", 2.0, shape=P.Rod(1.0)), P.Body("tip", 0.5, 0.0, (1.0, 0.0))])
    )
    loaded = P.Body("rod", 2.0, shape=P.Rod(1.0), point_masses=tip).spread()  # only the trace counts in the plane
    np.testing.assert_allclose(one.spread()[:, 2], loaded[:, 2], rtol=1e-14)
    np.testing.assert_allclose(jnp.trace(one.spread()), jnp.trace(loaded), rtol=1e-14)


@pytest.mark.parametrize("space", [P, S], ids=["plane", "space"])
def test_motion_does_not_depend_on_the_frames_of_bodies(space):
    """A double pendulum whose second body has its frame elsewhere, in position and direction."""
    if space is P:
        plate, moved = P.Plate(ELL), P.frame((0.4, -0.7), 2.0)
        hinge, gravity = P.Revolute, (0.0, -G)
    else:
        plate, moved = S.Plate(ELL, 0.1), S.frame((0.4, -0.7, 0.3), (0.3, 0.5, -0.7, 0.2))
        hinge, gravity = functools.partial(S.Revolute, axis=(0.0, 1.0, 0.0)), (0.0, 0.0, -G)
    rod, plate = space.Body("rod", 1.0, shape=space.Rod(0.8)), space.Body("plate", 2.0, shape=plate)

    def pendulum(body, points):
        joints = [hinge("O", "ground", "rod.a"), hinge("A", "rod.b", f"{body.name}.{points}c0")]
        return space.Mechanism([rod, body], joints, gravity=gravity).build()

    q, v = jnp.array([0.4, -0.9]), jnp.array([1.5, -2.0])
    found = acceleration(pendulum(space.Body.joined("whole", [(plate, moved)]), "plate_"), q, v)
    np.testing.assert_allclose(found, acceleration(pendulum(plate, ""), q, v), rtol=1e-12)


def test_period_of_a_compound_pendulum():
    """A plate hung by a corner: T = 4 K(sin²(θ₀/2)) √(J/(m g d))."""
    start, sides = 0.9, np.array([0.3, 0.2])
    box = P.Body("box", shape=P.Box(sides), density=12.0)
    system = P.Mechanism([box], [P.Revolute("O", "ground", "box.c01")], gravity=(0.0, -G)).build()
    arm = np.linalg.norm(sides) / 2
    pole = float(np.arctan2(sides[1] / 2, -sides[0] / 2)) - np.pi / 2  # the angle at which it hangs is minus this
    period = 4 * scipy.special.ellipk(np.sin(start / 2) ** 2) * np.sqrt((arm**2 + sides @ sides / 12) / (G * arm))
    ts = jnp.array([0.0, 0.5, 1.0]) * period
    solution = jm.simulate(system, jm.assemble(system, {"O": start - pole}), ts, **PRECISE)
    np.testing.assert_allclose(solution.q[:, 0] + pole, [start, -start, start], atol=1e-9)


# Dimensions


def test_what_follows_from_a_dimension_follows_it():
    bodies = [
        P.Body("plate", shape=P.Plate(ELL), density=3.0, points={"hook": (0.9, 0.2)}, point_masses=[(0.1, (0.2, 0.2))]),
        P.Body("rod", 2.0, shape=P.Rod(0.7), position=(1.0, 2.0), angle=0.5),
        P.Body("plain", 1.0, 1.0),
    ]
    mechanism = P.Mechanism(bodies)
    wider = [(2 * x, y) for x, y in ELL]
    found = mechanism.replace("plate", corners=wider, density=4.0).elements["plate"]
    made = P.Body("plate", None, shape=P.Plate(wider), density=4.0, points={"hook": (0.9, 0.2)}, point_masses=[(0.1, (0.2, 0.2))])  # fmt: skip
    assert eqx.tree_equal(found, made, rtol=1e-15)
    longer = P.Body("rod", 5.0, shape=P.Rod(0.9), position=(1.0, 2.0), angle=0.5)
    assert eqx.tree_equal(mechanism.replace("rod", mass=5.0, length=0.9).elements["rod"], longer, rtol=1e-15)
    heavier = mechanism.replace("rod", mass=5.0).elements["rod"]
    assert (float(heavier.mass), float(heavier.inertia)) == (5.0, float(bodies[1].inertia))  # alone
    assert float(mechanism.replace("plain", mass=2.0).elements["plain"].inertia) == 1.0
    for name, value in (("rod.length", 0.9), ("plate.density", 4.0), ("plate.corners", wider)):
        setup = Setup(mechanism)
        body, field = name.split(".")
        there = locate(setup, name)
        assert eqx.tree_equal(there.read(setup), mechanism.elements[body].dimensions[field])
        written = there.replaced(setup, jnp.asarray(value)).model
        assert eqx.tree_equal(written, mechanism.replace(body, **{field: value}), rtol=1e-15)


@pytest.mark.slow
def test_derivatives_with_respect_to_a_dimension():
    rod = P.Body("rod", shape=P.Rod(1.0), density=2.0)
    hammer = P.Body("hammer", 1.0, shape=P.Box((0.2, 0.1)))
    joints = [P.Revolute("O", "ground", "rod.a"), P.Fixed("weld", "rod.b", "hammer")]
    mechanism = P.Mechanism([rod, hammer], joints, gravity=(0.0, -G))

    @jax.jit
    @jax.value_and_grad
    def end(length):
        system = mechanism.replace("rod", length=length).build()
        state = jm.as_state(system, jnp.array([0.3]), jnp.zeros(1))
        return jm.simulate(system, state, jnp.array([0.6]), **PRECISE).q[0, 0]

    step = 1e-5
    slope = (end(0.8 + step)[0] - end(0.8 - step)[0]) / (2 * step)
    np.testing.assert_allclose(end(0.8)[1], slope, rtol=1e-7)


WRONG_SHAPES = {
    "neither": (lambda: P.Body("rod", shape=P.Rod(1.0)), "Body 'rod' must have either `mass` or `density` with its shape, but has none"),
    "both": (lambda: P.Body("rod", 1.0, shape=P.Rod(1.0), density=1.0), "Body 'rod' must have either .* but has both"),
    "no inertia": (lambda: P.Body("rod", 1.0), "Body 'rod' must have `mass` and `inertia`, or a `shape` with"),
    "density alone": (lambda: P.Body("rod", 1.0, 1.0, density=1.0), "Body 'rod' must have `mass` and `inertia`, or"),
    "of space": (lambda: P.Body("rod", 1.0, shape=S.Rod(1.0)), "`shape` of body 'rod' must be a shape with 2 dimensions, but is Rod"),
    "no shape": (lambda: P.Body("rod", 1.0, shape="Rod"), "`shape` of body 'rod' must be a shape with 2 dimensions, but is 'Rod'"),
    "length": (lambda: P.Rod(-1.0), "`length` of Rod must be a positive number, but is -1.0"),
    "not a number": (lambda: S.Sphere(np.nan), "`radius` of Sphere must be a positive number, but is nan"),
    "sides": (lambda: S.Box((1.0, 0.0, 1.0)), r"`sides` of Box must be positive, .*, but is \(1.0, 0.0, 1.0\)"),
    "inner": (lambda: S.Cylinder(1.0, 0.2, 0.3), "`inner of a Cylinder` must lie between zero and the radius 0.2, but is 0.3"),
    "corners": (lambda: P.Plate([(0.0, 0.0), (1.0, 0.0)]), "`corners of a Plate` must hold at least three corners, but holds 2"),
    "flat": (lambda: P.Plate([(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]), "`corners of a Plate` must enclose an area, but encloses 0"),
    "crossing": (lambda: P.Plate([(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 2.0)]), "whose sides do not cross, but those from corners 0 and 2 do"),
    "corner in space": (lambda: P.Plate([(0.0, 0.0, 0.0)] * 3), r"must have shape \(3, 2\), but has shape \(3, 3\)"),
    "point": (lambda: P.Body.rod("rod", 1.0, 1.0, points={"a": (0.0, 0.0)}), "`points` of body 'rod' must not hold 'a', which its shape has"),
    "part": (lambda: P.Body.joined("all", [P.Rod(1.0)]), "`parts` must hold bodies, or pairs of a body and its position, but holds Rod"),
    "parts": (lambda: P.Body.joined("all", 2 * [P.Body("rod", 1.0, 1.0)]), r"`parts` must hold bodies with names that differ, but holds \['rod', 'rod'\]"),
    "no parts": (lambda: P.Body.joined("all", []), r"`parts` must hold bodies with names that differ, but holds \[\]"),
    "mixed parts": (lambda: P.Body.joined("all", [S.Body.box("box", 1.0, (1.0, 1.0, 1.0))]), "all in the plane, or all in space"),
    "resized": (lambda: P.Mechanism([P.Body.rod("rod", 1.0, 1.0)]).replace("rod", length=-1.0), "`length` of Rod must be a positive number"),
    "two sources": (lambda: P.Mechanism([P.Body.rod("rod", 1.0, 1.0)]).replace("rod", length=2.0, inertia=1.0), "Of body 'rod' 'inertia' must not be given with 'length', from which it follows"),
    "two masses": (lambda: P.Mechanism([P.Body("rod", shape=P.Rod(1.0), density=1.0)]).replace("rod", density=2.0, mass=1.0), "Of body 'rod' 'mass' must not be given with 'density'"),
    "no dimensions": (lambda: P.Body("rod", 1.0, 1.0).resized(), "Body 'rod' must have a shape to have dimensions, but has none"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SHAPES)
def test_wrong_shapes_are_named(case):
    make, message = WRONG_SHAPES[case]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


# Mechanisms from parts


def leg():
    """A four-bar with everything that can refer to a name."""
    bodies = [
        P.Body.rod("crank", 1.0, 0.3),
        P.Body("plate", shape=P.Plate([(0.0, 0.0), (1.0, 0.0), (0.5, 0.4)]), density=3.0, position=(0.3, 0.0)),
        P.Body.rod("rocker", 1.0, 0.9, position=(1.2, 0.0), angle=1.4),
    ]
    joints = [
        P.Revolute("O", "ground", "crank.a"),
        P.Revolute("A", "crank.b", "plate.c0"),
        P.Revolute("B", "plate.c1", "rocker.b"),
        P.Revolute("C", "ground.C", "rocker.a"),
        P.Gear("gear", ("O", "A"), ratio=1.7),
    ]
    forces = [
        P.SpringDamper("spring", ("ground", (0.5, 1.0)), "plate.c2", 40.0, 0.3, 0.5),
        P.JointSpring("coil", "O", 2.0, 0.1, 0.3),
        P.Load("push", "plate.c2", (1.0, 0.0), follows=True),
    ]
    return P.Mechanism(
        bodies, joints[:4], [P.Driver("drive", "O", lambda t, p: p["speed"] * t)], forces, [P.Motor("motor", "C")],
        points={"C": (1.2, 0.0)}, params={"speed": 2.0},
    )  # fmt: skip


@functools.cache
def left_and_right():
    frame = P.frame((2.0, 1.0), 0.8)
    return leg(), leg().renamed("left_").joined(leg().renamed("right_").placed(frame)), frame


def test_renamed_and_joined_mechanisms_refer_to_their_own_elements():
    one, both, _ = left_and_right()
    assert list(both.elements) == [
        side + e.name
        for kind in ("bodies", "joints", "drivers", "forces", "actuators")
        for side in ("left_", "right_")
        for e in getattr(one, kind)
    ]
    assert list(both.points) == ["left_C", "right_C"]
    right = both.elements
    assert (str(right["right_C"].a), str(right["right_C"].b)) == ("ground.right_C", "right_rocker.a")
    assert right["right_coil"].joint == "right_O" and right["left_motor"].joint == "left_C"
    assert str(right["left_spring"].a) == "ground" and both.params.keys() == {"speed"}
    geared = P.Mechanism(one.bodies, [*one.joints, P.Gear("gear", ("O", "A"), 1.7)], points=one.points).renamed("x_")
    assert geared.elements["x_gear"].joints == ("x_O", "x_A")
    assert [b.strokes for b in both.bodies] == 2 * [b.strokes for b in one.bodies]


@pytest.mark.slow
def test_joined_mechanisms_move_as_each_alone_would():
    """Without gravity a placed copy moves alike: same accelerations in joint coordinates, reactions turned."""
    one, both, frame = left_and_right()
    alone, together = (
        one.without("drive").build(cut=["B"]),
        both.without("left_drive", "right_drive").build(cut=["left_B", "right_B"]),
    )
    start = jm.assemble(alone, {"O": 0.7, "A": -0.6, "C": 1.5}, {"O": 2.0}, hold=["O"], hold_velocity=["O"])
    order = [[together.coordinates.index(side + name) for name in alone.coordinates] for side in ("left_", "right_")]
    q, v = (jnp.zeros(2 * alone.nq).at[jnp.array(order)].set(x) for x in (start.q, start.v))
    state = jm.as_state(together, q, v)
    np.testing.assert_allclose(jm.residuals(together, state).position, 0, atol=1e-12)
    found = acceleration(together, q, v)[jnp.array(order)]
    np.testing.assert_allclose(found, np.tile(acceleration(alone, start.q, start.v), (2, 1)), rtol=1e-10)
    tip = jm.position(alone, start, "plate.c2")
    np.testing.assert_allclose(jm.position(together, state, "left_plate.c2"), tip, atol=1e-12)
    np.testing.assert_allclose(
        jm.position(together, state, "right_plate.c2"), (frame @ jnp.append(tip, 1.0))[:2], atol=1e-12
    )
    np.testing.assert_allclose(both.elements["right_crank"].pose, frame, atol=1e-15)


def test_placed_in_space_axes_turn_with_the_ground():
    frame = S.frame((1.0, 2.0, 3.0), (0.5, -0.4, 0.7, 0.2))
    body = S.Body("body", shape=S.Box((0.3, 0.2, 0.1)), density=9.0)
    hinge = S.Revolute("O", ("ground", (0.1, 0.0, 0.0)), "body.c000", axis=(0.3, 0.5, 0.8))
    system = S.Mechanism([body], [hinge]).placed(frame).build()
    pose = jm.pose(system, jm.as_state(system, jnp.array([0.4]), jnp.zeros(1)), "body")
    plain = S.Mechanism([body], [hinge]).build()
    np.testing.assert_allclose(
        pose, frame @ jm.pose(plain, jm.as_state(plain, jnp.array([0.4]), jnp.zeros(1)), "body"), atol=1e-14
    )


ROD = P.Mechanism(
    [P.Body.rod("rod", 1.0, 1.0)],
    [P.Revolute("O", "ground", "rod.a")],
    gravity=(0.0, -G),
    points={"A": (1.0, 0.0)},
    params={"k": 1.0},
)
WEIGHED = P.Mechanism([P.Body("bob", 1.0, 1.0)], gravity=(0.0, -1.0))
WRONG_PARTS = {
    "names": (lambda: ROD.joined(ROD), "must not share names, but share 'O', 'ground.A' and 'rod'; see `renamed`"),
    "added": (lambda: ROD.joined(forces=[P.JointSpring("O", "O")]), "must not share names, but share 'O'"),
    "gravity": (lambda: ROD.joined(WEIGHED), r"gravity of the first or none, but have \[0.0, -9.81\] and \[0.0, -1.0\] m/s²"),
    "space": (lambda: ROD.joined(S.Mechanism([S.Body("ball", 1.0, (1.0, 1.0, 1.0))])), r"gravity of the first or none, but have \[0.0, -9.81\] and \[0.0, 0.0, 0.0\]"),
    "params": (lambda: ROD.joined(P.Mechanism([P.Body("bob", 1.0, 1.0)], params={"k": 2.0})), r"must agree on `params\['k'\]`, but do not"),
    "no dictionary": (lambda: ROD.joined(P.Mechanism([P.Body("bob", 1.0, 1.0)], params=2.0)), "must have `params` that are dictionaries"),
    "prefix": (lambda: ROD.renamed("a.b"), "`prefix` must be a string without a dot, but is 'a.b'"),
    "function": (lambda: ROD.joined(forces=[P.JointForce("law", "O", lambda m: 1.0)]).renamed("x_"), "Force 'law' must not be renamed, since its function may name"),
    "pose": (lambda: ROD.placed((1.0, 2.0, 3.0)), "`pose` must have 2 dimensions, but has 3"),
    "unknown": (lambda: ROD.without("bar"), "`names` must hold names out of 'rod' and 'O', but holds 'bar'"),
    "needed": (lambda: ROD.joined(forces=[P.JointSpring("k", "O")]).without("O"), "Element 'k' must name a joint out of none, but names 'O'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_wrong_parts_are_named(case):
    make, message = WRONG_PARTS[case]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


# Text


def zoo_of_the_plane():
    """Every element of the plane that is data, and names that TOML must quote."""
    compound = P.Body.joined(
        "whole", [P.Body("disk", shape=P.Disk(0.5, 0.1), density=2.0), (P.Body("arm", 1.0, shape=P.Rod(2.0)), P.frame((0.5, 0.0), 0.3))],
        points={"hook": P.frame((1.0, 2.0), 0.3), "eye": (1.0, 2.0)}, position=(1.0, 2.0), angle=7.0,
    )  # fmt: skip
    bodies = [
        *(compound, P.Body("box", 1e-3, shape=P.Box((0.1, 1e22)), com=(0.1, -0.0), point_masses=[(0.2, (0.5, 0.5))])),
        P.Body('a "b" \\ ü', shape=P.Plate(ELL), density=1 / 3, inertia=np.pi),
        P.Body("plain", 1.0, 1.0, position=(3.0, 4.0), angle=-2.0),
    ]
    joints = [
        P.Revolute("hinge 1", "ground.A", "whole.hook"),
        P.Prismatic("slide", ("ground", P.frame((1.0, 0.0), 0.2)), "box", (0.3, 0.4), (1.0, 0.1)),
        P.PointOnLine("slot", "whole", 'a "b" \\ ü.c2'),
        P.Distance("bar", ("ground", (1.0, 1.0)), "plain", 2.0),
        P.Gear("gear", ("hinge 1", "slot.angle"), -2.5, 0.1),
        P.Rack("rack", "hinge 1", "slide", 0.4),
        P.KnifeEdge("blade", "plain", (0.6, 0.8)),
        P.RollingWheel("wheel", "ground", "plain", 0.3),
        P.Fixed("weld", "box", "plain"),
    ]
    forces = [
        P.SpringDamper("spring", "ground.A", "plain", 40.0, length=0.2),
        P.JointSpring("coil", "hinge 1", 2.0, rest=0.3),
        P.JointFriction("friction", "slide", 0.1, 0.2),
        P.BearingFriction("bearing", "hinge 1", 0.1, 0.05),
        P.Load("load", "whole.eye", (1.0, 2.0), 0.5, follows=True),
        P.Load("couple", "box", torque=0.5),
    ]
    actuators = [P.Motor("motor", "hinge 1", 3.0), P.Thruster("jet", "box", (0.0, 2.0))]
    points = {"A": P.frame((0.3, 0.1), 7.0), "B": (0.0, 1.0)}
    params = {"k": 2.0, "table": {"x": np.arange(3.0), "none": np.zeros(0)}}
    return P.Mechanism(bodies, joints, [], forces, actuators, (0.1, -G), points, params)


def zoo_of_space():
    shapes = [
        S.Rod(0.3),
        S.Box((0.3, 0.2, 0.1)),
        S.Cylinder(0.5, 0.2, 0.1),
        S.Disk(0.3),
        S.Plate(ELL, 0.01),
        S.Sphere(0.2),
    ]
    bodies = [
        S.Body(f"body{i}", shape=shape, density=7.0 + i, orientation=(1.0, 0.1 * i, 0.2, 0.3))
        for i, shape in enumerate(shapes)
    ]
    bodies[2] = S.Body.joined("body2", [(bodies[2], S.frame((0.1, 0.2, 0.3), (0.5, 0.5, 0.5, 0.5))), bodies[1]])
    joints = [
        S.RollingDisk("disk", "ground", "body3", 0.3),
        S.RollingSphere("ball", "ground", "body5", 0.2, normal=(0.0, 0.1, 1.0)),
        S.Screw("screw", "ground", "body0.a", 0.01),
    ]
    forces = [S.Load("load", "body4.c2+", (1.0, 2.0, 3.0), (0.1, 0.2, 0.3))]
    return S.Mechanism(bodies, joints, [], forces, gravity=(0.0, 0.0, -G))


DATA = {
    "plane": zoo_of_the_plane,
    "space": zoo_of_space,
    "four-bar": lambda: leg().without("drive"),
    "two of them": lambda: left_and_right()[1].without("left_drive", "right_drive"),
    "squeezer": andrews_joints.squeezer,
    "N-four-bar": lambda: nfourbar_joints.nfourbar(3),
    "bricard": bricard_joints.bricard_joints,
    "puma": puma.puma,
    "governor": governor.governor,
    "robot": lambda: mobile_robot.mobile_robot().without("steering"),
    "stewart": lambda: stewart_model.stewart().without(*(f"drive{i}" for i in range(6))),
    "five-bar": fivebar_control.fivebar,
    "rolling disk": rolling_disk.rolling_disk,
    "sleigh": lambda: knife_edge.edged(1.0, 0.2, 0.3, 0.1),
} | {" ".join(key): functools.partial(pair, key) for key in PAIRS}


@pytest.mark.slow_except(
    "plane", "space", "four-bar", "two of them", "rolling disk", "sleigh", "planar Revolute", "spatial Universal"
)
@pytest.mark.parametrize("name", DATA)
@pytest.mark.slow_cases("four-bar", "plane", "space", "two of them")
def test_text_gives_the_mechanism_back_bit_for_bit(name):
    mechanism = DATA[name]()
    text = mechanism.to_text()
    found = type(mechanism).from_text(text)
    assert same(found, mechanism)  # all numbers, and all that is static
    assert found.to_text() == text
    listed = lambda m: [(e.name, list(getattr(e, "points", ()))) for e in m.elements.values()]
    assert listed(found) == listed(mechanism)


def test_parts_of_bodies_and_pairs_of_joints_go_through_text():
    parts = [
        P.Body("disk", shape=P.Disk(0.5, 0.1), density=2.0),
        (P.Body("arm", 1.0, shape=P.Rod(2.0)), P.frame((0.5, 0.0), 0.3)),
    ]
    bodies = [P.Body.joined("whole", parts, points={"hook": P.frame((1.0, 2.0), 0.3)}), P.Body.rod("rod", 1.0, 1.0)]
    joints = [
        P.Revolute("O", "ground", "whole.arm_b"),
        P.Revolute("A", "whole.hook", "rod.a"),
        P.Gear("gear", ("O", "A"), -2.5),
    ]
    mechanism = P.Mechanism(bodies, joints)
    text = mechanism.to_text()
    assert "[[body.whole.shape.parts]]" in text and 'joints = ["O", "A"]' in text
    assert same(P.Mechanism.from_text(text), mechanism)


def test_numbers_that_are_traced_are_not_looked_at():
    """Gravity of mechanisms that are joined, and corners of plates: what they are must be right, and follows through."""

    @jax.jit
    def moment(gravity, corners):
        plate = P.Mechanism([P.Body("plate", shape=P.Plate(corners), mass=2.0)], gravity=gravity)
        both = plate.joined(P.Mechanism([P.Body("dot", 1.0, 0.1)], gravity=gravity))
        return both.gravity, both.elements["plate"].inertia

    gravity, inertia = moment(jnp.array([0.0, -G]), jnp.array([(0.0, 0.0), (3.0, 0.0), (0.0, 3.0)]))
    assert gravity.tolist() == [0.0, -G] and float(inertia) == pytest.approx(2.0 * (3**2 + 3**2) / 18)


@pytest.mark.slow
def test_mechanism_of_a_text_moves_bit_for_bit_alike():
    mechanism = leg().without("drive")
    systems = [m.build() for m in (mechanism, P.Mechanism.from_text(mechanism.to_text()))]
    states = [jm.as_state(s, s.guess, jnp.arange(1.0, s.nv + 1)) for s in systems]
    found = [acceleration(s, x.q, x.v) for s, x in zip(systems, states, strict=True)]
    assert found[0].tobytes() == found[1].tobytes()


def test_text_is_short_and_can_be_edited():
    rod = P.Body("rod", shape=P.Rod(0.3), density=2.0, position=(0.5, 0.0), angle=0.3)
    pendulum = P.Mechanism([rod], [P.Revolute("O", "ground.A", "rod.a")], gravity=(0.0, -G), points={"A": (0.5, 0.0)})
    text = pendulum.to_text()
    assert (
        text
        == """\
version = 1
space = "plane"
gravity = [0.0, -9.81]

[points]
A = [0.5, 0.0]

[body.rod]
position = [0.5, 0.0]
angle = 0.3
shape = {kind = "Rod", length = 0.3}
density = 2.0

[joint.O]
kind = "Revolute"
a = "ground.A"
b = "rod.a"
"""
    )
    longer = P.Mechanism.from_text(text.replace("length = 0.3", "length = 0.6"))
    assert eqx.tree_equal(longer, pendulum.replace("rod", length=0.6), rtol=1e-15)
    fitted = pendulum.replace("rod", mass=1.0)  # no longer that of its density
    found = P.Mechanism.from_text(fitted.to_text()).elements["rod"]
    assert (float(found.mass), found.density, float(found.inertia)) == (1.0, None, float(rod.inertia))


def text(more="", head='version = 1\nspace = "plane"\n'):
    return f'{head}[body.rod]\nmass = 1.0\nshape = {{kind = "Rod", length = 1.0}}\n{more}'


class Wind(P.Load):
    """An element that is not this package's."""


MOVED = eqx.tree_at(lambda m: m.bodies[0].points["a"], P.Mechanism([P.Body.rod("rod", 1.0, 1.0)]), P.frame((0.1, 0.0)))
WRONG_TEXTS = {
    "no TOML": ("[body", "`text` must be TOML, but is not: Expected ']'"),
    "no version": (text(head=""), "The text must have `version` 1, but has None"),
    "version": (text(head="version = 2\n"), "The text must have `version` 1, but has 2"),
    "space": (text(head='version = 1\nspace = "space"\n'), "The text must have `space` 'plane', but has 'space'"),
    "table": (text("[bodies.x]\n"), r"The text must have keys out of .*, but has 'bodies'; perhaps 'body' is meant"),
    "no table": ("joint = 3\n" + text(), "`joint` must be a table, but is 3"),
    "key": (text("density = 1.0\nlenght = 2.0\n"), "Body 'rod' must have keys out of .*, but has 'lenght'"),
    "near key": (text("inertai = 2.0\n"), "Body 'rod' must have keys .*; perhaps 'inertia' is meant"),
    "kind": (text('[joint.O]\nkind = "Revolut"\na = "ground"\nb = "rod.a"'), "Joint 'O' must have a `kind` out of .*, but has 'Revolut'; perhaps 'Revolute' is meant"),
    "no kind": (text('[joint.O]\na = "ground"\nb = "rod.a"'), "Joint 'O' must have a `kind` out of .*, but has None"),
    "missing": (text('[joint.O]\nkind = "Revolute"\na = "ground"'), "Joint 'O' must have 'b', but has not"),
    "place": (text('[joint.O]\nkind = "Revolute"\na = {body = "ground", at = [0.0, 0.0]}\nb = "rod"'), "`a` of joint 'O' must have keys out of 'body', 'position' and 'angle', but has 'at'"),
    "shape": (text().replace("Rod", "Road"), "`shape` of body 'rod' must have a `kind` .* perhaps 'Rod' is meant"),
    "number": (text().replace("mass = 1.0", 'mass = "heavy"'), "`mass` of Body 'rod' must be a number that is not negative or None, but is 'heavy'"),
    "driver": (lambda: leg().to_text(), r"Driver 'drive' holds a function, `fn`, which a text cannot: write the mechanism `without\('drive'\)`"),
    "class": (lambda: ROD.joined(forces=[Wind("wind", "rod", (1.0, 0.0))]).to_text(), "Force 'wind' must be of a class of `jaxmb` to be written, but is a Wind"),
    "moved point": (MOVED.to_text, "Body 'rod' holds numbers that its arguments do not tell, such as a point of its shape"),
    "params": (P.Mechanism([P.Body("rod", 1.0, 1.0)], params=[1.0]).to_text, "`params` must be a dictionary of numbers"),
    "integers": (P.Mechanism([P.Body("rod", 1.0, 1.0)], params={"n": np.arange(3)}).to_text, "`params` must be a dictionary of numbers"),
    "traced": (lambda: jax.eval_shape(lambda mass: len(ROD.replace("rod", mass=mass).to_text()), 1.0), "must hold known numbers to be written"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TEXTS)
def test_wrong_texts_are_named(case):
    given, message = WRONG_TEXTS[case]
    with pytest.raises((TypeError, ValueError), match=message):
        given() if callable(given) else P.Mechanism.from_text(given)


@pytest.mark.parametrize("made", [jm.planar, jm.spatial])
def test_where_a_place_is(made):
    """In the poses as given: of a point, of a body's frame, of the ground, of a place on a body."""
    dim = 2 if made is jm.planar else 3
    at = np.arange(1.0, dim + 1)
    ends = {"b": 2 * np.eye(dim)[0]}
    rod = made.Body("rod", 1.0, 1.0 if dim == 2 else np.ones(3), points=ends, position=at)
    mechanism = made.Mechanism([rod], points={"pin": -at})
    along = np.eye(dim)[0]
    for at_place, expected in (
        ("rod", at),
        ("rod.b", at + 2 * along),
        ("ground.pin", -at),
        ("ground", 0 * at),
        (("rod", along), at + along),
    ):
        np.testing.assert_allclose(mechanism.position(at_place), expected, atol=1e-15)
    with pytest.raises(ValueError, match=r"Argument `at` must refer to a point of 'rod' out of .*, but refers to 'c'"):
        mechanism.position("rod.c")
