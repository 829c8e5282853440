"""Pictures of mechanisms: what is drawn of each element, and where."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.output import Wrench
from jaxmb.plot.primitive import Primitive
from jaxmb.plot.reactions import reaction_arrows
from jaxmb.plot.scene import Scene
from jaxmb.plot.snapshot import Trajectory
from jaxmb.plot.view import View

plt = pytest.importorskip("matplotlib.pyplot")
animation = pytest.importorskip("matplotlib.animation")
to_rgba = pytest.importorskip("matplotlib.colors").to_rgba

P, S = jm.planar, jm.spatial
G = 9.81
RED, BLUE = to_rgba("tab:red"), to_rgba("tab:blue")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@functools.cache
def alone():
    """A state of some system."""
    system = P.Mechanism([P.Body("body", 1.0, 1.0)]).build()
    return jm.as_state(system, jnp.zeros(3), length=1.0)


def posed(system, q):
    """A state at coordinates that fit, which is all that pictures without reactions need; its sizes are not measured."""
    rows, state = jnp.ones(system.m), alone()
    sizes = dataclasses.replace(state.scale, row=rows, span=rows, row_by_length=rows)
    return dataclasses.replace(state, q=jnp.asarray(q, float), v=jnp.zeros(system.nv), scale=sizes)


@functools.cache
def planar():
    """A driven wheel that pushes a slider on a spring and a damper, a plate on a rod, and a wheel that rolls."""
    bodies = [
        P.Body("crank", 1.0, shape=P.Disk(0.12, 0.03), points={"pin": (0.1, 0.0)}),
        P.Body.rod("rod", 1.0, 0.5),
        P.Body("slide", 1.0, shape=P.Box((0.12, 0.08))),
        P.Body("wheel", 1.0, 0.01),
        P.Body("plate", 1.0, shape=P.Plate([(0.0, 0.0), (0.2, 0.0), (0.1, 0.2)])),
    ]
    joints = [
        P.Revolute("O", "ground", "crank"),
        P.Revolute("A", "crank.pin", "rod.a"),
        P.Revolute("B", "rod.b", "slide"),
        P.Prismatic("guide", "ground", "slide"),
        P.RollingWheel("road", ("ground", (0.0, -0.4)), "wheel", 0.15),
        P.Revolute("hook", ("ground", (0.1, 0.4)), "plate"),
        P.Distance("tie", ("ground", (0.6, 0.5)), "plate.c1", 0.35),
    ]
    forces = [
        P.SpringDamper("spring", "slide", ("ground", (1.1, 0.0)), 100.0, length=0.3),
        P.SpringDamper("damper", "wheel", ("ground", (0.9, -0.25)), damping=5.0),
        P.JointSpring("coil", "hook", 3.0),
        P.Load("push", "slide", force=(-10.0, 0.0)),
        P.Load("turning", "wheel", torque=-0.5),
    ]
    mechanism = P.Mechanism(
        bodies,
        joints,
        drivers=[P.Driver("turn", "O", lambda t, p: 0.7 + t)],
        forces=forces,
        actuators=[P.Motor("motor", "hook")],
        gravity=(0.0, -G),
    )
    system = mechanism.build()
    rod, far = -np.arcsin(0.1 * np.sin(0.7) / 0.5), np.hypot(0.5, 0.1)
    q = {"O": 0.7, "A": rod - 0.7, "guide": 0.1 * np.cos(0.7) + 0.5 * np.cos(rod), "wheel.x": 0.3, "wheel.y": -0.25}
    q["hook"] = np.arctan2(0.1, 0.5) - np.arccos(
        (0.2**2 + far**2 - 0.35**2) / (2 * 0.2 * far)
    )  # the tie has its length
    return system, posed(system, [q.get(name, 0.0) for name in system.coordinates])


@functools.cache
def carriage():
    """A slide on a rail, pushed above it, with a pendulum; it swings for a second."""
    bodies = [P.Body("slide", 1.0, shape=P.Box((0.3, 0.2))), P.Body.rod("rod", 1.0, 1.0)]
    joints = [P.Prismatic("rail", "ground", "slide"), P.Revolute("pin", "slide", "rod.a")]
    push = P.Load("push", ("slide", (0.0, 0.1)), (-3.0, 0.0))
    system = P.Mechanism(bodies, joints, forces=[push], gravity=(0.0, -G)).build()
    return system, jm.simulate(system, jm.assemble(system, {"pin": 0.3}), jnp.linspace(0.0, 1.0, 4))


def pushed():
    """Its start."""
    system, solution = carriage()
    return system, solution.state(0)


@functools.cache
def spatial():
    """A box on a slider, a wheel on it, and solids that hang from balls and Cardan joints."""
    bodies = [
        S.Body("box", 2.0, shape=S.Box((0.4, 0.2, 0.1)), position=(0.3, 0.0, 0.0)),
        S.Body("wheel", 1.0, shape=S.Disk(0.3, 0.1)),
        S.Body("tube", 1.0, shape=S.Cylinder(0.5, 0.05, 0.02)),
        S.Body("ball", 1.0, shape=S.Sphere(0.1)),
    ]
    joints = [
        S.Prismatic("guide", "ground", "box", axis=(1.0, 0.0, 0.0)),
        S.Revolute("axle", ("box", (0.0, 0.2, 0.0)), "wheel", axis=(0.0, 1.0, 0.0), axis_b=(0.0, 0.0, 1.0)),
        S.Spherical("socket", ("ground", (0.0, 1.0, 0.0)), "tube.a"),
        S.Universal("cross", "tube.b", "ball.centre"),
    ]
    forces = [S.SpringDamper("spring", ("ground", (-0.5, 0.0, 0.0)), "box", 20.0, 1.0, 0.5)]
    system = S.Mechanism(bodies, joints, forces=forces, gravity=(0.0, 0.0, -G)).build()
    return system, posed(system, system.guess)


def hung():
    """Its state with sizes, for reactions."""
    system, _ = spatial()
    return system, jm.assemble(system)


def artists(ax, name):
    """The loops of an element's paths, each with the colour of its line and that of its face."""
    found = []
    for artist in ax.collections:
        if artist.get_gid() == name:
            edges, faces = artist.get_edgecolor(), artist.get_facecolor()
            for i, path in enumerate(artist.get_paths()):
                loop = path.vertices
                found.append((loop, edges[i % len(edges)], faces[i % len(faces)] if len(faces) else None))
    return found


def loops(ax, name):
    return [loop for loop, _, _ in artists(ax, name)]


def ends_of(loop):
    return loop[[0, -1]]


def at(dim, position, turn=0.0):
    """The pose of a body that is turned about z."""
    pose = np.eye(dim + 1)
    pose[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    pose[:-1, -1] = position
    return pose


def instant(system, *poses, points=True, **wrenches):
    """The scene of a system and an instant of it, with its bodies at poses: nothing has to be compiled."""
    scene = Scene(system, points)
    ground = np.eye(scene.dim + 1)
    trajectory = Trajectory(np.stack([ground, *poses])[None], {k: np.array([v], float) for k, v in wrenches.items()})
    scene.frame(trajectory)
    return scene, scene.at(trajectory, 0)


def lines(scene, now):
    """The lines and outlines of each element."""
    found = {}
    for piece in scene.pieces(now):
        found.setdefault(piece.name, []).extend(piece.loops)
    return found


def test_in_the_plane_every_element_is_drawn_where_it_is():
    system, state = planar()
    ax = jm.plot.draw(system, state)
    at = lambda place: np.asarray(jm.position(system, state, place))

    rim, bore, *spokes = [loop for loop, _, face in artists(ax, "crank") if face is None or not face[3]]
    np.testing.assert_allclose(np.linalg.norm(rim, axis=1), 0.12, rtol=1e-12)  # about the origin, with a hole
    np.testing.assert_allclose(np.linalg.norm(bore, axis=1), 0.03, rtol=1e-12)
    angle = float(state.q[0])  # the first spoke turns with the wheel
    np.testing.assert_allclose(spokes[0][1], [0.12 * np.cos(angle), 0.12 * np.sin(angle)], atol=1e-12)
    assert len(spokes) == 3

    np.testing.assert_allclose(ends_of(loops(ax, "rod")[0]), [at("rod.a"), at("rod.b")], atol=1e-12)
    np.testing.assert_allclose(np.ptp(loops(ax, "slide")[0], axis=0), [0.12, 0.08], atol=1e-12)
    assert all((np.abs(loops(ax, "plate")[0] - at(f"plate.c{i}")).sum(axis=1) < 1e-12).any() for i in range(3))
    np.testing.assert_allclose(ends_of(loops(ax, "tie")[0]), [[0.6, 0.5], at("plate.c1")], atol=1e-12)
    np.testing.assert_allclose(ends_of(loops(ax, "spring")[0]), [at("slide"), [1.1, 0.0]], atol=1e-12)

    wheel = np.concatenate(loops(ax, "wheel"))  # without a shape it is drawn by what it rolls on
    np.testing.assert_allclose(np.linalg.norm(wheel - at("wheel"), axis=1).max(), 0.15, rtol=1e-12)
    road = loops(ax, "road ground")
    np.testing.assert_allclose(road[0][:, 1], -0.4, atol=1e-12)
    assert len(road) > 10 and all(stroke[1, 1] < -0.4 for stroke in road[1:])  # hatched below

    pot = np.concatenate(loops(ax, "damper"))
    np.testing.assert_allclose([pot[:, 0].min(), pot[:, 0].max()], [0.3, 0.9], atol=1e-12)
    for name in ("O", "hook", "tie", "spring", "guide"):
        assert loops(ax, f"{name} ground"), name
    assert {text.get_text() for text in ax.texts} == {"turn", "motor", "push", "turning"}
    for name, centre in (
        ("turn", at("crank")),
        ("motor", at("plate")),
        ("coil", at("plate")),
        ("turning", at("wheel")),
    ):
        radii = np.linalg.norm(loops(ax, name)[0] - centre, axis=1)
        assert radii.max() < 0.12 and (name == "coil" or np.ptp(radii) < 1e-12), name  # about the joint
    np.testing.assert_allclose(loops(ax, "push")[0][-1], at("slide"), atol=1e-12)  # it points to where it acts


@pytest.mark.parametrize("by_poses", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gears_tables_friction_and_functions_have_symbols(by_poses):
    """Of bodies at given poses, and in a picture of a state."""
    places = {"small": (0.0, 0.0), "large": (0.3, 0.0), "far": (0.0, 0.6)}
    bodies = [P.Body(name, 1.0, 0.1, position=place) for name, place in places.items()]
    bodies += [P.Body("bar", 1.0, 0.1, position=(0.4, -0.1))]
    joints = [P.Revolute(f"{name} axle", ("ground", place), name) for name, place in places.items()]
    joints += [P.Prismatic("bed", ("ground", (0.0, -0.1)), "bar")]
    joints += [P.Gear("mesh", ("small axle", "large axle"), -0.5), P.Gear("belt", ("small axle", "far axle"), 0.5)]
    joints += [P.Rack("rack", "small axle", "bed", 0.1)]
    table = [0.0, 1.0, 2.0], [0.0, 0.0, 5.0]
    forces = [
        P.LineCharacteristic("cable", "bar", ("ground", (0.8, -0.1)), "length", *table),
        P.JointCharacteristic("engine", "far axle", "rate", *table),
        P.JointFriction("brake", "far axle", 1.0),
        (P.JointFriction if by_poses else P.BearingFriction)("bush", "bed", 0.1),
        P.JointForce("law", "bed", lambda motion: 1.0),
        P.Force("wind", "large", lambda motion: jnp.array([3.0, 4.0, -1.0])),
    ]
    system = P.Mechanism(bodies, joints, forces=forces).build()
    pose = {"bed": 0.4, "small axle": 4.0, "large axle": -2.0, "far axle": 2.0}
    if by_poses:
        turns = (pose[f"{name} axle"] for name in places)
        wheels = [at(2, place, turn) for place, turn in zip(places.values(), turns, strict=True)]
        scene, now = instant(system, *wheels, at(2, (0.4, -0.1)), wind=[3.0, 4.0, -1.0])
        drawn, labels = lines(scene, now), {*scene.arrows(now)}
    else:
        ax = jm.plot.draw(system, posed(system, [pose[name] for name in system.coordinates]))
        drawn = {artist.get_gid(): loops(ax, artist.get_gid()) for artist in ax.collections}
        labels = {text.get_text() for text in ax.texts}

    def radius(loop, centre):
        return np.linalg.norm(loop - centre, axis=1)

    for loop, name, size in zip(
        drawn["mesh"], ("small", "large"), (0.1, 0.2), strict=True
    ):  # in the ratio, and in contact
        found = radius(loop, places[name])
        assert found.min() < size < found.max() and abs(found.mean() / size - 1) < 0.01
    small, far, *_, left, right = drawn["belt"]
    sizes = radius(small, places["small"]), radius(far, places["far"])
    np.testing.assert_allclose(sizes[0], sizes[0][0])
    np.testing.assert_allclose(sizes[1], 2 * sizes[0][0])
    for tangent in (left, right):
        along = (tangent[1] - tangent[0]) / np.linalg.norm(tangent[1] - tangent[0])
        np.testing.assert_allclose(radius(tangent[:1], places["small"]), sizes[0][0])
        np.testing.assert_allclose(along @ (tangent[0] - places["small"]), 0, atol=1e-12)
    pinion, teeth, arm = drawn["rack"]
    assert abs(radius(pinion, (0.0, 0.0)).mean() / 0.1 - 1) < 0.01
    assert (
        abs(teeth[:, 1].mean() + 0.1) < 0.01
        and np.ptp(teeth[:, 1]) < 0.03
        and teeth[:, 0].min() < 0 < teeth[:, 0].max()
    )
    np.testing.assert_allclose(arm[-1], (0.4, -0.1), atol=1e-12)

    np.testing.assert_allclose(ends_of(drawn["cable"][0]), [(0.4, -0.1), (0.8, -0.1)], atol=1e-12)
    curve = drawn["cable"][-1]  # flat, then rising, in a box at the middle
    assert curve[0, 1] == curve[1, 1] < curve[2, 1] and abs(curve[1, 0] - 0.6) < 1e-12
    assert drawn["brake"] and drawn["bush"] and len(drawn["engine"]) >= 4
    wind, turn = drawn["wind"] if by_poses else drawn["wind"][::2]  # there followed by their heads
    np.testing.assert_allclose(wind[1], places["large"], atol=1e-12)
    np.testing.assert_allclose((wind[1] - wind[0]) / np.linalg.norm(wind[1] - wind[0]), (0.6, 0.8), atol=1e-12)
    sense = np.cross(np.append(turn[0] - places["large"], 0), np.append(turn[1] - places["large"], 0))[2]
    assert sense < 0  # clockwise, as the torque
    assert labels == {"engine", "law", "wind"}


def gearing(module, *relations, far=None, bed=(0.0, -0.1, 0.0)):
    """Two axles about z, 0.3 m apart, the far one also about another axis, and a bar on a bed along x, with relations between them."""
    space = module is S
    turning, sliding = ({"axis": (0, 0, 1)}, {"axis": (1, 0, 0)}) if space else ({}, {})
    inertia = (0.1, 0.1, 0.1) if space else 0.1
    places = {"small": (0.0, 0.0, 0.0), "large": (0.3, 0.0, 0.2), "bar": bed}
    cut = lambda place: place if space else place[:2]
    bodies = [module.Body(name, 1.0, inertia, position=cut(place)) for name, place in places.items()]
    about = turning if far is None else {"axis": far}
    joints = [
        module.Revolute("first", "ground", "small", **turning),
        module.Revolute("second", ("ground", cut(places["large"])), "large", **about),
        module.Prismatic("bed", ("ground", cut(bed)), "bar", **sliding),
    ]
    dim = 3 if space else 2
    poses = [at(dim, cut(place)) for place in places.values()]
    scene, now = instant(module.Mechanism(bodies, [*joints, *relations]).build(), *poses)
    return lines(scene, dataclasses.replace(now, size=0.01, reaches={}))


def test_a_rack_in_space_is_that_in_the_plane_and_its_slider_may_come_first():
    flat = gearing(P, P.Rack("rack", "first", "bed", 0.1))["rack"]
    turned = gearing(P, P.Gear("rack", ("bed", "first"), 10.0))["rack"]  # θ = s/r
    space = gearing(S, S.Rack("rack", "first", "bed", 0.1))["rack"]
    for one, other, lifted in zip(flat, turned, space, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-12)
        np.testing.assert_allclose(lifted, np.pad(one, ((0, 0), (0, 1))), atol=1e-12)


def test_a_rack_lies_below_its_pinion_or_above_by_the_sign_of_the_radius():
    below, above = (gearing(P, P.Rack("rack", "first", "bed", r))["rack"] for r in (0.1, -0.1))
    np.testing.assert_allclose([x[1][:, 1].mean() for x in (below, above)], [-0.1, 0.1], atol=2e-3)
    np.testing.assert_array_equal(below[0], above[0])


@pytest.mark.parametrize(("axis", "ratio"), [((0, 0, 1), -0.5), ((0, 0, -1), 0.5)])
def test_wheels_in_space_touch_across_their_axles(axis, ratio):
    """Each in the plane of its own axle; an axle that looks the other way turns the other way."""
    small, large = gearing(S, S.Gear("mesh", ("first", "second"), ratio), far=axis)["mesh"]
    for wheel, centre, radius in ((small, (0.0, 0.0, 0.0), 0.1), (large, (0.3, 0.0, 0.2), 0.2)):
        np.testing.assert_allclose(wheel[:, 2], centre[2], atol=1e-12)
        assert abs(np.linalg.norm(wheel - centre, axis=1).mean() / radius - 1) < 0.01


def test_a_belt_in_space_touches_both_pulleys():
    one, other, *_, left, right = gearing(S, S.Gear("belt", ("first", "second"), 0.5))["belt"]
    radii = [np.linalg.norm(x - x.mean(axis=0), axis=1).max() for x in (one[:-1], other[:-1])]
    np.testing.assert_allclose(radii[1], 2 * radii[0])
    for tangent in (left, right):
        along = tangent[1] - tangent[0]
        np.testing.assert_allclose([along @ tangent[0], along @ (tangent[1] - [0.3, 0.0, 0.0])], 0.0, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(tangent[0]), radii[0])


def test_what_no_gear_can_be_drawn_of_is_a_line():
    """Axles that are skew, a pinion that has shrunk to nothing, two sliders."""
    (skew,) = gearing(S, S.Gear("wire", ("first", "second"), 2.0), far=(0, 1, 0))["wire"]
    np.testing.assert_allclose(skew, [(0.0, 0.0, 0.0), (0.3, 0.0, 0.2)], atol=1e-12)
    shrunk = eqx.tree_at(lambda rack: rack.radius, P.Rack("wire", "first", "bed", 0.1), jnp.zeros(()))
    (line,) = gearing(P, shrunk)["wire"]
    np.testing.assert_allclose(line, [(0.0, 0.0), (0.0, -0.1)], atol=1e-12)
    bodies = [P.Body(name, 1.0, 0.1) for name in ("one", "other")]
    sliders = [P.Prismatic("bed", "ground", "one"), P.Prismatic("rail", ("ground", (0.4, 0.0)), "other", (0, 1))]
    system = P.Mechanism(bodies, [*sliders, P.Gear("wire", ("bed", "rail"), 2.0)]).build()
    (line,) = lines(*instant(system, at(2, (0.0, 0.0)), at(2, (0.4, 0.0))))["wire"]
    np.testing.assert_allclose(line, [(0.0, 0.0), (0.4, 0.0)], atol=1e-12)


def held(joint, module=S, forces=(), drivers=(), actuators=(), body=None, **more):
    """What is drawn of a body on a joint to the ground, shifted by 0.4 m along x and 0.1 m along z, and the size of symbols."""
    body = body or module.Body("block", 1.0, (1.0, 1.0, 1.0) if module is S else 1.0)
    system = module.Mechanism([body], [joint], drivers, forces, actuators).build("absolute")
    pose = at(3, (0.4, 0.0, 0.1)) if module is S else at(2, (0.4, 0.0))
    scene, now = instant(system, pose, **more)
    return lines(scene, now), scene.size


@pytest.mark.parametrize("pitch", [0.4, -0.4])
def test_a_screw_has_a_thread_of_its_hand(pitch):
    drawn, size = held(S.Screw("screw", "ground", "block", pitch))
    thread = drawn["screw"][-1] - [0.4, 0.0, 0.1]
    np.testing.assert_allclose(np.linalg.norm(thread[:, :2], axis=1), 0.8 * size)
    turned = np.cross(thread[:-1], thread[1:])[:, 2] * np.diff(thread[:, 2])
    assert (np.sign(turned) == np.sign(pitch)).all()


def test_sliders_that_turn_are_round():
    """A pin in a block in the plane; a tube about the axis of a cylindrical joint; a ball on a line in space."""
    along = {"axis": (1.0, 0.0, 0.0)}
    drawn, size = held(P.PointOnLine("slot", "ground", "block", **along | {"axis": (1.0, 0.0)}), P)
    radii = [np.linalg.norm(x - [0.4, 0.0], axis=1) for x in drawn["slot"]]
    assert any(np.allclose(x, 0.6 * size) for x in radii) and any(len(x) == 5 for x in radii)
    drawn, size = held(S.Cylindrical("tube", ("ground", (0.0, 0.0, 0.1)), "block", **along))
    tube = np.concatenate([x for x in drawn["tube"] if len(x) == 13])  # outlines of both ends
    np.testing.assert_allclose(np.linalg.norm(tube[:, 1:] - [0.0, 0.1], axis=1), size)
    np.testing.assert_allclose([tube[:, 0].min(), tube[:, 0].max()], [0.4 - 1.6 * size, 0.4 + 1.6 * size])
    drawn, size = held(S.PointOnLine("slot", ("ground", (0.0, 0.0, 0.1)), "block", **along))
    far = np.linalg.norm(np.concatenate(drawn["slot"]) - [0.4, 0.0, 0.1], axis=1)
    assert np.isclose(far, size).sum() > 100


@pytest.mark.parametrize("shift", [0.9, -0.6])
def test_a_body_along_an_axis_is_the_sleeve_of_what_slides_on_it(shift):
    """The rod leads out of it: in space from its end, in the plane from A; a thin body gets a block as long as it."""
    tube = S.Body("tube", 1.0, shape=S.Cylinder(0.5, 0.05))
    slide = S.Prismatic("slide", "tube.a", "block")
    system = S.Mechanism([tube, S.Body("block", 1.0, (1.0, 1.0, 1.0))], [slide]).build("absolute")
    drawn = lines(*instant(system, at(3, (0.0, 0.0, 0.0)), at(3, (0.0, 0.0, shift))))
    rod = np.concatenate(drawn["slide"])[:, 2]
    np.testing.assert_allclose([rod.min(), rod.max()], [0.5, 0.9] if shift > 0 else [-0.6, 0.0], atol=1e-12)
    rods = [P.Body.rod("outer", 1.0, 0.5), P.Body("block", 1.0, 1.0)]
    system = P.Mechanism(rods, [P.Prismatic("slide", "outer.a", "block")]).build("absolute")
    rod, *block = lines(*instant(system, at(2, (0.0, 0.0)), at(2, (shift, 0.0))))["slide"]
    np.testing.assert_allclose(sorted(rod[:, 0]), sorted([0.0, shift]), atol=1e-12)
    assert all(np.allclose([x[:, 0].min(), x[:, 0].max()], [0.0, 0.5]) for x in block) and block


def test_a_disk_rolls_on_a_floor():
    drawn, _ = held(S.RollingDisk("road", ("ground", (0.0, 0.0, -0.2)), "block", 0.3, axis=(0.0, 1.0, 0.0)))
    ground, wheel = np.concatenate(drawn["road ground"]), np.concatenate(drawn["block"]) - [0.4, 0.0, 0.1]
    np.testing.assert_allclose(ground[:, 2], -0.2, atol=1e-12)
    assert ground[:, 0].min() < 0.1 and 0.7 < ground[:, 0].max()
    np.testing.assert_allclose(np.linalg.norm(wheel, axis=1).max(), 0.3)
    np.testing.assert_allclose(wheel[:, 1], 0.0, atol=1e-12)


def test_elements_along_a_slider_lie_beside_it():
    table = [0.0, 1.0], [0.0, 2.0]
    forces = [
        P.JointSpring("coil", "bed", 3.0),
        P.JointFriction("shoe", "bed", 1.0),
        P.JointForce("push", "bed", lambda motion: 1.0),
        P.JointCharacteristic("law", "bed", "rate", *table),
    ]
    drawn, size = held(P.Prismatic("bed", "ground", "block"), P, forces)
    start, end, coil = drawn["coil"]
    np.testing.assert_allclose([start[0], end[-1]], [(0.0, 0.0), (0.4, 0.0)], atol=1e-12)
    np.testing.assert_allclose(ends_of(coil), [(0.04, 2.4 * size), (0.36, 2.4 * size)], atol=1e-12)
    (shoe,), (push,) = drawn["shoe"], drawn["push"]
    np.testing.assert_allclose(shoe, [(0.4 - 1.4 * size, 1.5 * size), (0.4 + 1.4 * size, 1.5 * size)], atol=1e-12)
    np.testing.assert_allclose(push, [(0.4 - 3 * size, 2.4 * size), (0.4 + 3 * size, 2.4 * size)], atol=1e-12)
    np.testing.assert_allclose(drawn["law"][0].mean(axis=0), (0.4, 4.4 * size), atol=1e-12)


def test_an_angle_between_bodies_is_driven_about_the_second_and_a_thruster_points_along_its_body():
    bodies = [P.Body(name, 1.0, 1.0) for name in ("one", "other")]
    angle = P.DrivenAngle("swing", "one", "other", lambda t, p: t)
    jet = P.Thruster("jet", ("other", (0.1, 0.0)), (2.0, 0.0))
    system = P.Mechanism(bodies, drivers=[angle], actuators=[jet]).build()
    scene, now = instant(system, at(2, (0.0, 0.0)), at(2, (0.4, 0.0), 0.5 * np.pi))
    drawn = lines(scene, now)
    np.testing.assert_allclose(np.linalg.norm(drawn["swing"][0] - [0.4, 0.0], axis=1), 2.6 * scene.size)
    tail, tip = drawn["jet"][0]
    np.testing.assert_allclose(tip, (0.4, 0.1), atol=1e-12)
    np.testing.assert_allclose((tip - tail) / np.linalg.norm(tip - tail), (0.0, 1.0), atol=1e-12)


def test_a_torque_in_space_turns_about_its_vector():
    gust = S.Force("gust", "block", lambda motion: jnp.zeros(6))
    wrench = np.array([0.0, 0.0, 2.0, 3.0, 0.0, 4.0])
    drawn, size = held(S.Spherical("ball", "ground", "block"), forces=[gust], gust=wrench)
    force, torque = drawn["gust"]
    np.testing.assert_allclose(force[-1], (0.4, 0.0, 0.1), atol=1e-12)
    off = torque - [0.4, 0.0, 0.1]
    np.testing.assert_allclose(np.linalg.norm(off, axis=1), 2.6 * size)
    np.testing.assert_allclose(off @ wrench[3:], 0.0, atol=1e-12)
    assert (np.cross(off[:-1], off[1:]) @ wrench[3:] > 0).all()
    none, _ = held(S.Spherical("ball", "ground", "block"), forces=[gust], gust=np.zeros(6))
    assert "gust" not in none


def test_motors_of_a_cardan_joint_turn_about_its_two_axes():
    joint = S.Universal("cross", ("ground", (0.4, 0.0, 0.1)), "block")
    names = joint.pair.velocities
    motors = [S.Motor(name, f"cross.{name}") for name in names]
    drawn, size = held(joint, actuators=motors)
    for name, axis in zip(names, (2, 0), strict=True):  # z of A, x of B
        off = drawn[name][0] - [0.4, 0.0, 0.1]
        np.testing.assert_allclose(np.linalg.norm(off, axis=1), 2.6 * size)
        np.testing.assert_allclose(off[:, axis], 0.0, atol=1e-12)


def test_named_points_may_be_left_out_of_the_outline():
    body = P.Body("plate", 1.0, 1.0, points={"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (0.0, 1.0)})
    joints = [P.Revolute("hook", "ground", "plate.a"), P.Distance("tie", ("ground", (1.0, 1.0)), "plate.b", 1.0)]
    system = P.Mechanism([body], joints).build("absolute")
    with_points, without = (lines(*instant(system, at(2, (0.0, 0.0)), points=x))["plate"] for x in (True, False))
    assert {tuple(x) for x in with_points[0].round(9)} == {(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)}
    assert {tuple(x) for x in np.concatenate(without).round(9)} == {(0.0, 0.0), (1.0, 0.0)}


def wrench(force, torque, point):
    """A wrench at one instant."""
    result = jax.tree.map(lambda x: x[None], jm.RESULTS.successful)
    return Wrench(*(jnp.array([x], float) for x in (force, torque, point)), result)


def test_reactions_have_round_scales_and_small_ones_are_left_out():
    """In space a torque is an arrow along its vector; a force of rounding beside it is not drawn."""
    pushed, turned = wrench((0, 0, 30.0), (0, 0, 0), (1, 0, 0)), wrench((0, 1e-9, 0), (2.0, 0, 0), (0, 0, 0))
    arrows = reaction_arrows({"pin": pushed, "nut": turned}, 2.0)
    for scale in (arrows.force_scale, arrows.torque_scale):
        assert scale / 10 ** np.floor(np.log10(scale)) in (1.0, 2.0, 5.0)
    drawn = {piece.name: piece.loops[0] for piece in arrows.pieces(0)}
    assert {*drawn} == {"pin force", "nut torque"}
    np.testing.assert_allclose(np.diff(drawn["pin force"], axis=0)[0] * arrows.force_scale, (0, 0, 30.0))
    np.testing.assert_allclose(np.diff(drawn["nut torque"], axis=0)[0] * arrows.torque_scale, (2.0, 0, 0))
    for arrow in drawn.values():
        assert (np.abs(arrows.tips - arrow[1]).sum(axis=1) < 1e-9).any()
    assert len(arrows.pieces(0, small=True)) == 4 and len(arrows.legend) == 2


def test_a_mechanism_at_rest_has_no_arrows_of_reactions():
    arrows = reaction_arrows({"pin": wrench((0, 0), (0,), (1, 0))}, 2.0)
    assert arrows.force_scale == arrows.torque_scale == 1.0
    assert not arrows.pieces(0) and not arrows.legend


def test_faces_of_any_number_of_corners_are_in_a_view():
    """Those of four corners are cut into parts of the same area, others are left whole."""
    view = View("top", np.zeros(3), 0.5)
    corners = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    area = lambda x: 0.5 * abs(np.cross(x, np.roll(x, -1, axis=0))[:, 2].sum())
    for loop, parts in ((corners, 25**2), (corners[:3], 1)):
        faces = [piece.loops[0] for piece, _ in view.sorted([Primitive("face", (loop,), "#000000", fills=True)])]
        assert len(faces) == parts and sum(map(area, faces)) == pytest.approx(area(loop))


def test_a_spring_keeps_its_coils_and_ends_where_it_is_fixed():
    from jaxmb.plot.symbols import spring

    for dim in (2, 3):
        for length in (0.3, 3.0):
            b = np.append(length, np.zeros(dim - 1))
            line = spring(np.zeros(dim), b, 0.05)
            np.testing.assert_array_equal(ends_of(line), [np.zeros(dim), b])
            np.testing.assert_allclose(np.abs(line[:, 1:]).max(), 0.05, rtol=1e-9)
            if dim == 2:
                assert np.isclose(line[:, 1], 0.05).sum() == 6
            else:  # it comes back to where it starts
                assert np.isclose(line[1:-1, 1:], line[1, 1:]).all(axis=1).sum() == 6 + 1


def test_in_space_solids_have_their_sizes_in_each_view():
    system, state = spatial()
    top, perspective, front, side = jm.plot.draw(system, state, view="three")
    place = {name: np.asarray(jm.position(system, state, name)) for name in ("box", "wheel", "tube", "tube.b", "ball")}
    sizes = {"box": (0.4, 0.2, 0.1), "wheel": (0.6, 0.0, 0.6), "tube": (0.1, 0.1, 0.5), "ball": (0.2, 0.2, 0.2)}
    for ax, (i, j) in ((top, (0, 1)), (front, (0, 2)), (side, (1, 2))):
        for name, size in sizes.items():
            points = np.concatenate(loops(ax, name))
            np.testing.assert_allclose(np.ptp(points, axis=0), [size[i], size[j]], atol=1e-12)
            if name != "tube":
                middle = (points.max(axis=0) + points.min(axis=0)) / 2
                np.testing.assert_allclose(middle, place[name][[i, j]], atol=1e-12)
        assert ax.get_xlabel() == f"{'xyz'[i]} in m" and ax.get_ylabel() == f"{'xyz'[j]} in m"
    for name in (*sizes, "spring", "guide", "axle", "socket", "cross", "socket ground"):
        assert loops(perspective, name), name
    assert not perspective.axison


def test_joints_that_do_not_turn_are_told_from_hinges():
    plate = P.Body("plate", 1.0, shape=P.Box((1.0, 1.0)))
    joints = [P.Fixed("weld", "ground", "plate"), P.KnifeEdge("blade", ("plate", (0.2, 0.0)), (0.0, 1.0))]
    system = P.Mechanism([plate], joints).build("absolute")
    ax = jm.plot.draw(system, posed(system, system.guess))
    assert {len(loop) for loop in loops(ax, "weld")} == {5}  # a square, closed
    np.testing.assert_allclose(loops(ax, "blade")[0][:, 0], 0.2, atol=1e-12)

    slab, drive = S.Body("slab", 1.0, shape=S.Box((1.0, 1.0, 1.0)), position=(2.0, 1.0, 0.5)), lambda t, p: 1.0
    joints = [S.Planar("table", "ground", ("slab", (0.0, 0.0, -0.5)))]
    drivers = [S.Driver("push", "table.x", drive), S.DrivenDistance("jack", "ground", "slab", drive)]
    system = S.Mechanism([slab], joints, drivers).build("absolute")
    ax = jm.plot.draw(system, posed(system, system.guess), view="top")
    table, jack = np.concatenate(loops(ax, "table")), np.concatenate(loops(ax, "jack"))
    assert (table.min(axis=0) < 0.0).all() and (table.max(axis=0) > [2.0, 1.0]).all()
    assert any(np.allclose(place, 0.0) for place in jack) and any(np.allclose(place, [2.0, 1.0]) for place in jack)
    (arrow,) = (loop for loop in loops(ax, "push") if len(loop) == 2)
    np.testing.assert_allclose(np.diff(arrow, axis=0)[0][1], 0.0, atol=1e-12)  # along x
    assert {text.get_text() for text in ax.texts} == {"push", "jack"}


def test_near_parts_hide_far_ones():
    """Of two boxes the near one is drawn last, from both sides."""
    bodies = [
        S.Body(name, 1.0, shape=S.Box((1.0, 1.0, 1.0)), position=(0.0, y, 0.0)) for name, y in (("a", 0.0), ("b", 3.0))
    ]
    system = S.Mechanism(bodies).build()
    state = posed(system, system.guess)
    for azimuth, last in ((-90.0, "a"), (90.0, "b")):
        ax = jm.plot.draw(system, state, view=(azimuth, 10.0))
        drawn = sorted(ax.collections, key=lambda artist: artist.get_zorder())
        assert drawn[-1].get_gid() == last


def test_a_lone_body_has_its_true_size():
    system = P.Mechanism([P.Body("box", 1.0, shape=P.Box((2.0, 4.0)), position=(10.0, 0.0))]).build()
    ax = jm.plot.draw(system, posed(system, system.guess))
    corners = np.concatenate(loops(ax, "box"))
    np.testing.assert_allclose([corners.min(axis=0), corners.max(axis=0)], [[9.0, -2.0], [11.0, 2.0]], atol=1e-12)
    assert ax.get_xlim()[0] < 9.0 and ax.get_xlim()[1] > 11.0 and ax.get_aspect() == 1.0


def test_parts_of_a_body_are_drawn():
    arm = (P.Body("arm", 1.0, shape=P.Rod(2.0)), (0.5, 0.0))
    wheel = P.Body.joined("wheel", [P.Body("disk", 1.0, shape=P.Disk(0.5)), arm])
    system = P.Mechanism([wheel]).build()
    ax = jm.plot.draw(system, posed(system, system.guess))
    assert any(np.allclose(ends_of(loop), [[0.5, 0.0], [2.5, 0.0]]) for loop in loops(ax, "wheel"))
    points = np.concatenate(loops(ax, "wheel"))
    np.testing.assert_allclose([points.min(axis=0), points.max(axis=0)], [[-0.5, -0.5], [2.5, 0.5]], atol=1e-12)


@functools.cache
def beam():
    """On two pins, so that the axial force is shared in any way."""
    body = P.Body("beam", 1.0, 1.0, points={"left": (-1.0, 0.0), "right": (1.0, 0.0)})
    joints = [
        P.Revolute("left", ("ground", (-1.0, 0.0)), "beam.left"),
        P.Revolute("right", ("ground", (1.0, 0.0)), "beam.right"),
    ]
    system = P.Mechanism([body], joints, gravity=(0.0, -G)).build("absolute")
    return system, posed(system, system.guess)


def test_joints_have_the_colour_of_their_verdict():
    system, state = beam()
    ax = jm.plot.draw(system, state, report=jm.analyse_reactions(system, state))
    assert {text.get_text() for text in ax.texts} == {"left?", "right?"}
    assert {to_rgba(text.get_color()) for text in ax.texts} == {RED}
    for name in ("left", "right"):
        assert any(np.allclose(edge, RED) for _, edge, _ in artists(ax, name))
    told = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert told == ["reaction not determined (?)"]
    given = plt.figure().add_subplot()  # whose figure may hold more
    assert jm.plot.draw(system, state, given, report=jm.analyse_reactions(system, state)) is given
    assert [text.get_text() for text in given.get_legend().get_texts()] == told and not given.figure.legends


@pytest.mark.parametrize("made", [pushed, pytest.param(hung, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_arrows_are_reactions_to_scale(made):
    system, state = made()
    wrenches = jm.joint_reactions(system, state, warn=False)
    views = {"view": "three"} if made is hung else {}
    axes = np.ravel(jm.plot.draw(system, state, forces=True, **views))
    told = " ".join(text.get_text() for text in axes[0].figure.legends[0].get_texts())
    newtons = float(told.split("force: 1 m is ")[1].split(" N")[0])
    metres = float(told.split("torque: 1 m ")[1].split("is ")[1].split(" N m")[0])
    # Top and front view of a mechanism in space tell all three components.
    shown = ((axes[0], [0, 1]), (axes[2], [0, 2])) if made is hung else ((axes[0], [0, 1]),)
    count = 0
    for ax, parts in shown:
        for name, wrench in wrenches.items():
            force, torque = np.asarray(wrench.force), np.asarray(wrench.torque)
            for arrow in loops(ax, f"{name} force")[:1]:
                count += 1
                np.testing.assert_allclose(arrow[0], np.asarray(wrench.point)[parts], atol=1e-12)
                np.testing.assert_allclose((arrow[1] - arrow[0]) * newtons, force[parts], atol=1e-9 * newtons)
            for arrow in loops(ax, f"{name} torque")[:1]:
                count += 1
                if made is hung:
                    np.testing.assert_allclose((arrow[1] - arrow[0]) * metres, torque[parts], atol=1e-9 * metres)
                else:
                    radius = np.linalg.norm(arrow - np.asarray(wrench.point), axis=1)
                    np.testing.assert_allclose(radius * metres, abs(torque[0]), atol=1e-9 * metres)
            # The largest reactions are not left out.
            if np.linalg.norm(force) > 1.0:
                assert loops(ax, f"{name} force"), name
    assert count >= (3 if made is pushed else 5)


def test_animations_are_written(tmp_path, monkeypatch):
    from PIL import Image

    system, solution = carriage()
    movie = jm.plot.animate(system, solution, tmp_path / "motion.gif", forces=True)
    assert Image.open(tmp_path / "motion.gif").n_frames == 4
    shown = jm.plot.animate(system, solution, speed=2.0)
    shown._draw_was_started = True  # else it warns that nobody has seen it
    assert shown._interval == pytest.approx(1e3 / 6) and shown._save_count == 4  # three steps in half a second
    ax = movie._fig.axes[0]
    np.testing.assert_allclose(ends_of(loops(ax, "rod")[0])[1], jm.position(system, solution, "rod.b")[-1], atol=1e-12)
    assert any(np.allclose(edge, BLUE) for _, edge, _ in artists(ax, "pin"))
    assert "reaction determined" in [text.get_text() for text in ax.figure.legends[0].get_texts()]

    if animation.FFMpegWriter.isAvailable():
        jm.plot.animate(system, solution, tmp_path / "motion.mp4")
        assert (tmp_path / "motion.mp4").read_bytes()[4:8] == b"ftyp"
    with pytest.raises(ValueError, match=r"`path` must end in .gif or .mp4, but is 'motion.html'; a page is made by"):
        jm.plot.animate(system, solution, "motion.html")
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), solution)
    with pytest.raises(ValueError, match=r"`solution` must be a single motion, but has leading axes \(2,\)"):
        jm.plot.animate(system, stacked)
    with pytest.raises(ValueError, match=r"`state` must be a single state, but has leading axes \(2,\)"):
        jm.plot.draw(system, stacked.state(0))
    with pytest.raises(ValueError, match="`solution` must hold a motion, but no saved time was reached"):
        jm.plot.animate(system, eqx.tree_at(lambda run: run.q, solution, jnp.full_like(solution.q, jnp.nan)))
    monkeypatch.setattr(animation.FFMpegWriter, "isAvailable", classmethod(lambda cls: False))
    with pytest.raises(
        RuntimeError, match=r"`path` must end in .gif where ffmpeg is not installed, but is 'motion.mp4'"
    ):
        jm.plot.animate(system, solution, "motion.mp4")
    monkeypatch.setattr(animation.FFMpegWriter, "isAvailable", classmethod(lambda cls: True))
    saved = {}

    def setup(self, figure, outfile, dpi=None):
        self.fig, self.outfile = figure, outfile
        saved.update(path=str(outfile), fps=self.fps)

    monkeypatch.setattr(animation.FFMpegWriter, "setup", setup)
    monkeypatch.setattr(
        animation.FFMpegWriter, "grab_frame", lambda self, **_: saved.update(frames=saved.get("frames", 0) + 1)
    )
    monkeypatch.setattr(animation.FFMpegWriter, "finish", lambda self: None)
    jm.plot.animate(system, solution, tmp_path / "slow.mp4", speed=2.0)
    assert saved["path"].endswith(".mp4") and (tmp_path / "slow.mp4").exists() and saved["frames"] == 4
    np.testing.assert_allclose(saved["fps"], 6.0)  # three steps in half a second


def test_arguments_that_do_not_fit():
    system, state = planar()
    with pytest.raises(ValueError, match="`view` must be None for a mechanism in the plane, but is 'top'"):
        jm.plot.draw(system, state, view="top")
    with pytest.raises(TypeError, match="`state` must hold known numbers"):
        jax.eval_shape(lambda state: jm.plot.draw(system, state), state)
    solids, resting = spatial()
    with pytest.raises(
        ValueError, match=r"`view` must be one of 'front', .* or azimuth and elevation in degrees, but is 'back'"
    ):
        jm.plot.draw(solids, resting, view="back")
    with pytest.raises(ValueError, match="`ax` must hold 4 axes for this view, but holds 1"):
        jm.plot.draw(solids, resting, plt.figure().add_subplot(), view="three")
    with pytest.raises(ValueError, match="`ax` must be plain axes, but is three-dimensional"):
        jm.plot.draw(solids, resting, plt.figure().add_subplot(projection="3d"))
    with pytest.raises(TypeError, match="`ax` must be axes of matplotlib, but is 'page'"):
        jm.plot.draw(solids, resting, "page")


def test_a_perspective_view_has_axes_and_a_bar_of_its_length():
    """In metres and millimetres; axes point where the view turns them, and the bar is the longest of 1, 2, 5, … below half the size."""
    for unit, label in ((1.0, "0.5 m"), (1e3, "500 m")):
        body = jm.spatial.Body("box", 1.0, shape=jm.spatial.Box((1.0 * unit, 0.4 * unit, 1.8 * unit)))
        system = jm.spatial.Mechanism([body], [jm.spatial.Revolute("held", "ground", "box")]).build()
        ax = jm.plot.draw(system, jm.assemble(system))
        texts = {text.get_text(): text for text in ax.texts}
        assert {"x", "y", "z", label} <= set(texts)
        x, y, z, bar = (line.get_xydata() for line in ax.lines[-4:])
        np.testing.assert_allclose(x[0], z[0])
        assert z[1, 1] > z[0, 1] and abs(z[1, 0] - z[0, 0]) < 1e-12 * unit and x[1, 0] > x[0, 0] and y[1, 0] > y[0, 0]
        np.testing.assert_allclose(np.diff(bar, axis=0)[0], [0.5 * unit, 0.0], atol=1e-12 * unit)


@pytest.mark.parametrize("height", [1.0, 0.0])
def test_the_bar_lies_within_a_picture_narrower_than_it(height):
    """Of a rod that stands, and of one body at the point about which it turns."""
    points = {"top": (0.0, 0.0, height)}
    hinge = S.Revolute("hinge", "ground", "body.top")
    system = S.Mechanism([S.Body("body", 1.0, np.ones(3), points=points)], [hinge]).build()
    ax = jm.plot.draw(system, jm.as_state(system, [0.0], length=1.0))
    bar = max((line.get_xydata() for line in ax.lines), key=lambda points: np.ptp(points[:, 0]))
    label = next(text for text in ax.texts if text.get_text().endswith(" m"))
    (low, high), middle = ax.get_xlim(), label.get_position()[0]
    assert low < bar[:, 0].min() < middle < bar[:, 0].max() < high


def test_a_plane_that_something_slides_on_is_within_the_picture():
    """Its corners lie where neither the body nor the origin is, in perspective the near ones farther out."""
    box = S.Body("box", 1.0, shape=S.Box((0.3, 0.16, 0.1)))
    system = S.Mechanism([box], [S.Planar("table", "ground", ("box", (0.0, 0.0, -0.05)))]).build()
    for x, y in ((0.3, 0.2), (-0.3, 0.9), (1.5, -0.4)):
        ax = jm.plot.draw(system, posed(system, [x, y, 0.5]), symbols=0.045)
        (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
        drawn = np.concatenate([path.vertices for patches in ax.collections for path in patches.get_paths()])
        assert np.all((left < drawn[:, 0]) & (drawn[:, 0] < right) & (low < drawn[:, 1]) & (drawn[:, 1] < high))
