"""Pictures of mechanisms: what is drawn of each element, and where."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm

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


@pytest.mark.slow
def test_gears_tables_friction_and_functions_have_symbols():
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
        P.BearingFriction("bush", "bed", 0.1),
        P.JointForce("law", "bed", lambda motion: 1.0),
        P.Force("wind", "large", lambda motion: jnp.array([3.0, 4.0, -1.0])),
    ]
    system = P.Mechanism(bodies, joints, forces=forces).build()
    pose = {"bed": 0.4, "small axle": 4.0, "large axle": -2.0, "far axle": 2.0}
    state = posed(system, [pose[name] for name in system.coordinates])
    ax = jm.plot.draw(system, state)

    def radius(loop, centre):
        return np.linalg.norm(loop - centre, axis=1)

    for loop, name, size in zip(
        loops(ax, "mesh"), ("small", "large"), (0.1, 0.2), strict=True
    ):  # in the ratio, and in contact
        found = radius(loop, places[name])
        assert found.min() < size < found.max() and abs(found.mean() / size - 1) < 0.01
    small, far, *_, left, right = loops(ax, "belt")
    sizes = radius(small, places["small"]), radius(far, places["far"])
    np.testing.assert_allclose(sizes[0], sizes[0][0])
    np.testing.assert_allclose(sizes[1], 2 * sizes[0][0])
    for tangent in (left, right):
        along = (tangent[1] - tangent[0]) / np.linalg.norm(tangent[1] - tangent[0])
        np.testing.assert_allclose(radius(tangent[:1], places["small"]), sizes[0][0])
        np.testing.assert_allclose(along @ (tangent[0] - places["small"]), 0, atol=1e-12)
    pinion, teeth, arm = loops(ax, "rack")
    assert abs(radius(pinion, (0.0, 0.0)).mean() / 0.1 - 1) < 0.01
    assert (
        abs(teeth[:, 1].mean() + 0.1) < 0.01
        and np.ptp(teeth[:, 1]) < 0.03
        and teeth[:, 0].min() < 0 < teeth[:, 0].max()
    )
    np.testing.assert_allclose(arm[-1], (0.4, -0.1), atol=1e-12)

    np.testing.assert_allclose(ends_of(loops(ax, "cable")[0]), [(0.4, -0.1), (0.8, -0.1)], atol=1e-12)
    curve = loops(ax, "cable")[-1]  # flat, then rising, in a box at the middle
    assert curve[0, 1] == curve[1, 1] < curve[2, 1] and abs(curve[1, 0] - 0.6) < 1e-12
    assert loops(ax, "brake") and loops(ax, "bush") and len(loops(ax, "engine")) == 5
    wind, _, turn, _ = loops(ax, "wind")
    np.testing.assert_allclose(wind[1], places["large"], atol=1e-12)
    np.testing.assert_allclose((wind[1] - wind[0]) / np.linalg.norm(wind[1] - wind[0]), (0.6, 0.8), atol=1e-12)
    sense = np.cross(np.append(turn[0] - places["large"], 0), np.append(turn[1] - places["large"], 0))[2]
    assert sense < 0  # clockwise, as the torque
    assert {text.get_text() for text in ax.texts} == {"engine", "law", "wind"}


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
    return system, jm.assemble(system)


def test_joints_have_the_colour_of_their_verdict():
    system, state = beam()
    ax = jm.plot.draw(system, state, report=jm.analyse_reactions(system, state))
    assert {text.get_text() for text in ax.texts} == {"left?", "right?"}
    assert {to_rgba(text.get_color()) for text in ax.texts} == {RED}
    for name in ("left", "right"):
        assert any(np.allclose(edge, RED) for _, edge, _ in artists(ax, name))
    told = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert told == ["reaction not determined (?)"]

    system, state = pushed()
    ax = jm.plot.draw(system, state, forces=True)
    assert any(np.allclose(edge, BLUE) for _, edge, _ in artists(ax, "pin"))
    assert "reaction determined" in [text.get_text() for text in ax.figure.legends[0].get_texts()]


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
    ax = movie._fig.axes[0]
    np.testing.assert_allclose(ends_of(loops(ax, "rod")[0])[1], jm.position(system, solution, "rod.b")[-1], atol=1e-12)

    if animation.FFMpegWriter.isAvailable():
        jm.plot.animate(system, solution, tmp_path / "motion.mp4")
        assert (tmp_path / "motion.mp4").read_bytes()[4:8] == b"ftyp"
    with pytest.raises(ValueError, match=r"`path` must end in .gif or .mp4, but is 'motion.html'; a page is made by"):
        jm.plot.animate(system, solution, "motion.html")
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
    solids, resting = spatial()
    with pytest.raises(
        ValueError, match=r"`view` must be one of 'front', .* or azimuth and elevation in degrees, but is 'back'"
    ):
        jm.plot.draw(solids, resting, view="back")
    with pytest.raises(ValueError, match="`ax` must hold 4 axes for this view, but holds 1"):
        jm.plot.draw(solids, resting, plt.figure().add_subplot(), view="three")
    with pytest.raises(ValueError, match="`ax` must be plain axes, but is three-dimensional"):
        jm.plot.draw(solids, resting, plt.figure().add_subplot(projection="3d"))


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
