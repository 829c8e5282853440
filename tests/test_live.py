"""A window in a browser that follows states, and in which joints are dragged."""

import sys
import urllib.request

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmb as jm
from jaxmb.plot.primitive import Primitive

P = jm.planar


def fourbar():
    bodies = [P.Body.rod(name, 1.0, length) for name, length in zip("abc", (0.4, 0.9, 0.8), strict=True)]
    joints = [
        P.Revolute("A", "ground", "a.a"),
        P.Revolute("B", "a.b", "b.a"),
        P.Revolute("C", "b.b", "c.a"),
        P.Revolute("D", "c.b", ("ground", (1.0, 0.0))),
    ]
    system = P.Mechanism(bodies, joints, gravity=(0.0, -9.81)).build(cut=["D"])
    return system, jm.assemble(system, {"A": 1.2, "B": -1.3, "C": -1.4}, hold=["A"])


@pytest.fixture
def window():
    pytest.importorskip("viser")
    system, state = fourbar()
    shown = jm.plot.live(system, state, port=8765)
    yield system, state, shown
    shown.close()


@pytest.mark.slow
def test_a_window_follows_states(window):
    """Bodies stand where `pose` says, and the page is served."""
    system, state, shown = window
    assert b"<html" in urllib.request.urlopen(shown.url, timeout=20).read()[:2000].lower()
    motion = jm.simulate(system, state, jnp.linspace(0.0, 0.2, 3))
    shown.show(motion.state(-1))
    for frame, body in zip(shown._bodies[1:], "abc", strict=True):
        pose = jm.pose(system, motion.state(-1), body)
        np.testing.assert_allclose(frame.position, [pose[0, 2], pose[1, 2], 0.0], atol=1e-12)
        turn = Rotation.from_quat(np.asarray(frame.wxyz)[[1, 2, 3, 0]]).as_matrix()
        np.testing.assert_allclose(turn[:2, :2], pose[:2, :2], atol=1e-12)
    np.testing.assert_allclose(shown._sliders["A"].value, motion.q[-1, 0], atol=1e-12)
    with pytest.raises(ValueError, match="state"):
        shown.show(motion.states)


def test_a_joint_is_dragged_and_loops_stay_closed(window):
    """By its slider; where a loop cannot close the pose stays, and the window says so."""
    system, _, shown = window
    shown._sliders["A"].value = 1.5
    assert float(shown.state.q[0]) == 1.5 and float(jnp.abs(jm.residuals(system, shown.state).position).max()) < 1e-12
    np.testing.assert_allclose(shown._sliders["B"].value, shown.state.q[1], atol=1e-12)
    before = shown.state
    assert not shown.drag("C", 0.0) and shown.state is before and "No pose with C = 0" in shown._message.content
    assert shown.drag("A", 1.4) and shown._message.content == ""
    with pytest.raises(ValueError, match="`coordinate` must be a coordinate out of 'A', 'B' and 'C', but is 'D'"):
        shown.drag("D", 1.0)


def test_symbols_that_a_state_no_longer_has_leave_the_window(window):
    """As the arrow of a force that is not a number any more."""
    _, _, shown = window
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    line, face = (Primitive("push", (corners,), "#1f77b4", fills=fills) for fills in (False, True))
    there = lambda: {name for name in shown._server.scene._handle_from_node_name if name.startswith("/own/")}
    shown._pieces("/own", [line, face], 0)
    assert there() == {"/own/lines0", "/own/faces0"}
    shown._pieces("/own", [face], 0)
    assert there() == {"/own/faces0"}


def test_faces_are_cut_into_triangles():
    """With holes and corners that turn in, in any plane of space: areas are those of the outlines."""
    cut = sys.modules["jaxmb.plot.solid"].triangles
    triangles = lambda loops: np.concatenate(loops)[cut(loops)].reshape(-1, 3)
    turn = Rotation.from_rotvec([0.3, -0.7, 1.1]).as_matrix()
    area = lambda x: np.linalg.norm(np.cross(x[1::3] - x[::3], x[2::3] - x[::3]), axis=1).sum() / 2
    square = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    corner = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [1.0, 1.0], [1.0, 2.0], [0.0, 2.0]])
    for loops, expected in (((square,), 4.0), ((square, 0.5 + 0.5 * square), 3.0), ((corner,), 3.0)):
        space = [np.pad(loop, ((0, 0), (0, 1))) @ turn.T + 5.0 for loop in loops]
        np.testing.assert_allclose(area(triangles(space)), expected, rtol=1e-12)
    line = np.linspace(0.0, 1.0, 6)[:, None] * np.ones(3)
    assert len(triangles([line])) == 0


def test_without_viser_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ImportError, match=r"pip install jaxmb\[live\]"):
        jm.plot.live(*fourbar())
