"""Models from files: what they say, to rounding; what they must not say, refused where it stands."""

import dataclasses
import pathlib
import re
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from models import BARS, FOURBARS, TREE, inertial, joint, link, of_mujoco, residual, robot, states, written

import jaxmb as jm
from jaxmb.models.model import KINDS

assert written

# URDF


def test_a_tree_has_mass_and_bias_of_mujoco(written):
    """Damping acts in both; axes of any length, frames and inertials turned, links fixed to others."""
    mujoco = pytest.importorskip("mujoco")
    system = jm.load(written(TREE)).build()
    model = mujoco.MjModel.from_xml_string(TREE)
    order = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(model.njnt)]
    places = np.array([system.coordinates.index(name) for name in order])
    evaluate = inertial(system)
    for q, v in states(system, 10):
        mass, force = evaluate(q, v)
        wanted, bias = of_mujoco(model, np.asarray(q)[places], np.asarray(v)[places])
        np.testing.assert_allclose(np.asarray(mass)[np.ix_(places, places)], wanted, rtol=0, atol=1e-9)
        np.testing.assert_allclose(np.asarray(force)[places], bias, rtol=0, atol=1e-9)


def test_the_record_tells_what_a_mechanism_does_not_hold(written):
    text = TREE.replace(
        'name="camera"/>',
        'name="camera"><visual><geometry><mesh filename="package://a/b.stl"/></geometry></visual></link>',
    )
    text = text.replace("</robot>", '<gazebo reference="arm"/><transmission name="t"/><brand name="x"/></robot>')
    model = jm.load(written(text))
    assert model.limits == {"elbow": (-1.0, 2.0)} and model.loops == ()
    assert (
        model.markers["tool"] == "slide.tool"
        and model.markers["base"] == "ground.base"
        and model.markers["arm"] == "arm"
    )
    told = str(model)
    for line in (
        "belongs to 'slide'",
        "<gazebo> of",
        "transmissions are not read",
        "is not known",
        "shapes are not read",
    ):
        assert line in told
    assert "<brand name='x'> on line" in told
    assert jm.load(written(text)).to_dict()["limits"] == {"elbow": [-1.0, 2.0]}


def test_the_page_names_what_the_record_has(written):
    """Attributes of `Model`, and the kinds of notes, in the order of the page's tables."""
    page = (pathlib.Path(__file__).parent.parent / "docs" / "models.md").read_text()
    record = page.split("| kind of note")[0].split("## The record")[1]
    named = [
        name
        for line in record.splitlines()
        if line.startswith("| `")
        for name in re.findall("`([a-z_]+)`", line.split("|")[1])
    ]
    assert named == [field.name for field in dataclasses.fields(jm.models.Model) if field.name in named]
    assert {*named} == {field.name for field in dataclasses.fields(jm.models.Model)}
    assert re.findall(r"\| \*([a-z ]+)\* \|", page) == list(KINDS)


@pytest.mark.parametrize(
    "old, new, told",
    [
        ('"continuous"', '"planar"', "approximated  <joint name='pivot'>: the format does not say which way x and y"),
        (
            'type="continuous">',
            'type="floating"><dynamics damping="1"/>',
            "left out      <joint name='pivot'>: friction of a floating joint has no element",
        ),
        (
            'type="continuous">',
            'type="revolute"><limit effort="10" velocity="2"/>',
            "listed        <joint name='pivot'>: its limit of velocity is not part of a mechanism",
        ),
        (
            'type="continuous">',
            'type="continuous"><limit effort="10"/>',
            "listed        <joint name='pivot'>: its limit of effort is not part of a mechanism",
        ),
        (
            'type="continuous">',
            'type="continuous"><dynamics friction="0.3"/>',
            "approximated  joint 'pivot': dry friction is −f tanh(v/v₀) with v₀ = 0.01 m/s or rad/s",
        ),
    ],
)
def test_what_joints_cannot_have_is_told(written, old, new, told):
    model = jm.load(written(changed(old, new)))
    assert told in str(model) and model.limits == {}


def test_frames_may_be_turned_by_quaternions(written):
    """About y by 0.8 rad, as roll, pitch and yaw have it."""
    models = [
        jm.load(written(changed(PIVOT, PIVOT.replace('rpy="0 0 0"', turn))))
        for turn in ('rpy="0 0.8 0"', f'quat_xyzw="0 {np.sin(0.4)} 0 {np.cos(0.4)}"')
    ]
    one, other = (np.asarray(model.mechanism.elements["pivot"].a.local) for model in models)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
    np.testing.assert_allclose(one[:3, 0], (np.cos(0.8), 0.0, -np.sin(0.8)), atol=1e-15)


@pytest.mark.slow
def test_a_base_may_be_free(written):
    """The first link then moves freely, with gravity as asked for."""
    mujoco = pytest.importorskip("mujoco")
    text = robot(link("trunk", 3.0), link("arm"), joint("elbow", "continuous", "trunk", "arm", "0.1 0 0", axis="0 1 0"))
    system = jm.load(written(text), base="free", gravity=(0.0, 1.0, -2.0)).build()
    spec = mujoco.MjSpec.from_string(text)
    spec.option.gravity = (0.0, 1.0, -2.0)
    spec.body("trunk").add_freejoint()
    model = spec.compile()
    evaluate = inertial(system)
    for q, v in states(system, 5):
        mass, force = evaluate(q, v)
        wanted, bias = of_mujoco(model, q, v)
        np.testing.assert_allclose(mass, wanted, rtol=0, atol=1e-9)
        np.testing.assert_allclose(force, bias, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_all_dialects_of_loops_say_the_same(written):
    """The same text of ours, whichever way the loop is written; the sidecar has frames instead."""
    models = {name: jm.load(written(text, f"{name}.urdf")) for name, text in FOURBARS.items()}
    texts = {model.mechanism.to_text() for model in models.values()}
    assert len(texts) == 1 and all(model.loops == ("C",) for model in models.values())
    system = models["loop"].build()
    assert system.coordinates == ("A", "B", "D") and list(system.rows) == ["C"]
    a = 1.0  # the crank's angle, then by the law of cosines in the triangle of its end, the hinge between the others and D
    across = np.array([0.5, 0.0]) - 0.2 * np.array([np.cos(a), np.sin(a)])
    d = np.hypot(*across)
    to_d, inner = np.arctan2(*across[::-1]), lambda x, y: np.arccos((x**2 + d**2 - y**2) / (2 * x * d))
    coupler, rocker = to_d + inner(0.6, 0.4), to_d + np.pi - inner(0.4, 0.6)
    q = np.array([a, coupler - a, rocker])
    np.testing.assert_allclose(residual(system)(q), 0.0, atol=1e-15)
    gap = residual(system)
    slopes = [(gap(q + 1e-6 * step) - gap(q - 1e-6 * step)) / 2e-6 for step in np.eye(3)]
    assert np.linalg.matrix_rank(np.array(slopes), tol=1e-6) == 2


def test_loops_of_a_sidecar_are_frames_that_coincide(written):
    """Joints stand for what they move; three rows, or six."""
    frames = (
        '<link name="end_a"/>',
        '<link name="end_b"/>',
        joint("hold_a", "fixed", "coupler", "end_a", "0.6 0 0"),
        joint("hold_b", "fixed", "rocker", "end_b", "0.4 0 0", "0 0 0.3"),
    )
    path = written(robot(*BARS, *frames), "robot.urdf")
    written("closed_loop: [['end_a', 'hold_b']]\ntype: ['3d']\nname_mot: ['A']\n", "robot.yaml")
    point = jm.load(path)
    assert point.loops == ("end_a_hold_b",) and "name_mot" in str(point)
    other = written("closed_loop:\n  - [end_a, end_b]\n", "other.yaml")
    frame = jm.load(path, loops=other)
    kinds = {model.mechanism.elements[model.loops[0]].__class__.__name__ for model in (point, frame)}
    assert kinds == {"Spherical", "Fixed"}
    closed, plain = point.build(), jm.load(written(FOURBARS["loop"])).build()
    q, _ = states(plain, 1)[0]
    np.testing.assert_allclose(residual(closed)(q), residual(plain)(q)[:3], rtol=0, atol=1e-14)


def test_couplings_and_mimics_are_gears(written):
    """Angles seen from what carries both links."""
    rotor = link("rotor", 0.1, "0 0 0", "0 0 0")
    parts = (
        '<link name="base"/>',
        link("thigh"),
        rotor,
        link("shank"),
        joint("hip", "continuous", "base", "thigh", axis="0 1 0"),
        joint("spin", "continuous", "thigh", "rotor", axis="0 1 0"),
        joint(
            "knee",
            "continuous",
            "thigh",
            "shank",
            "0 0 -0.3",
            axis="0 1 0",
            inside='<mimic joint="hip" multiplier="-2" offset="0.1"/>',
        ),
    )
    coupling = '<coupling name="drive" type="rolling"><predecessor link="shank"/><successor link="rotor"/><ratio value="6"/></coupling>'
    model = jm.load(written(robot(*parts, coupling)))
    gears = {name: model.mechanism.elements[name] for name in ("drive", "knee_mimic")}
    assert {name: (gear.joints, float(gear.ratio), float(gear.offset)) for name, gear in gears.items()} == {
        "drive": (("knee", "spin"), 6.0, 0.0),
        "knee_mimic": (("hip", "knee"), -2.0, 0.1),
    }
    system = model.build()
    assert system.coordinates == ("hip", "spin", "knee")
    np.testing.assert_allclose(residual(system)(np.array([0.3, 6 * -0.5, -0.5])), 0.0, atol=1e-14)
    far = '<coupling name="drive" type="rolling"><predecessor link="shank"/><successor link="base"/><ratio value="6"/></coupling>'
    with pytest.raises(ValueError, match="one joint with one coordinate moves"):
        jm.load(written(robot(*parts, far)))


def test_an_inertia_that_no_body_has_is_changed_where_asked_for(written):
    """Σ loses its negative eigenvalue only; by how much is told."""
    text = robot(
        '<link name="base"/>',
        link("rod", moments="0.01 0.01 0.05", rpy="0 0 0"),
        joint("pivot", "continuous", "base", "rod"),
    )
    path = written(text)
    with pytest.raises(
        ValueError, match=r"line 4, <link name='rod'> must have principal moments .* less than .* by 0\.03"
    ):
        jm.load(path)
    model = jm.load(path, repair=True)
    given = np.array([[0.01, 0.001, -0.002], [0.001, 0.01, 0.0015], [-0.002, 0.0015, 0.05]])
    sigma = lambda inertia: 0.5 * np.trace(inertia) * np.eye(3) - inertia
    values = np.linalg.eigvalsh(sigma(given))
    found = sigma(np.asarray(model.mechanism.elements["rod"].inertia))
    np.testing.assert_allclose(np.linalg.eigvalsh(found), np.maximum(values, 0), atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(found - sigma(given)), -values[0], atol=1e-15)
    assert "inertia changed to the nearest" in str(model)


def test_names_are_made_to_differ(written):
    """A mechanism has one name for each element, without dots; a number is behind the third and later ones."""
    text = robot('<link name="base"/>', link("arm.1"), joint("arm.1", "continuous", "base", "arm.1"))
    model = jm.load(written(text))
    assert list(model.mechanism.elements) == ["arm_1_body", "arm_1"]
    assert model.markers["arm.1"] == "arm_1_body" and "body 'arm.1' to 'arm_1_body'" in str(model)
    alike = ("a.b.c", "a.b_c", "a_b.c")
    chain = [joint(f"j{i}", "continuous", a, b) for i, (a, b) in enumerate(zip(("base", *alike), alike, strict=False))]
    model = jm.load(written(robot('<link name="base"/>', *map(link, alike), *chain)))
    assert [model.markers[name] for name in alike] == ["a_b_c", "a_b_c_body", "a_b_c_body2"]
    cameras = [f'<link name="{name}"/>' + joint(f"at_{name}", "fixed", "rod", name) for name in ("eye.1", "eye_1")]
    model = jm.load(written(changed(PIVOT, PIVOT + "".join(cameras))))
    assert [model.markers[name] for name in ("eye.1", "eye_1")] == ["rod.eye_1", "rod.eye_1_2"]


def test_elements_are_left_out_where_asked_for(written):
    with pytest.raises(ValueError, match="`exclude` must name elements of the file, but names 'tap'"):
        jm.load(written(TREE), exclude=["tip", "tap"])
    model = jm.load(written(TREE), exclude=["tip"])
    assert "wrist" not in model.mechanism.elements and "as was asked for" in str(model)


@pytest.mark.slow
def test_loops_that_rounded_numbers_leave_open_are_closed(written):
    """A loop in a plane whose hinge is 10 nm too high: refused with a hint, or its end is moved by that much, and the motion is that of the plane."""
    high = FOURBARS["loop"].replace('<origin xyz="0.4 0 0"/>', '<origin xyz="0.4 0 1e-8"/>')
    assert high != FOURBARS["loop"]
    model, guess = jm.load(written(high)), {"A": 1.0, "B": -0.6, "D": 1.3}
    with pytest.raises(
        ValueError, match=r"'C' cannot be satisfied.*\n?.*`jaxmb.load\(…, repair=True\)` moves the ends"
    ):
        model.assemble(model.build(), q=guess)
    repaired = jm.load(written(high), repair=True)
    (note,) = [note for note in repaired.notes if note.what == "joint 'C'"]
    assert note.kind == "approximated" and "moved by 1.0e-08 m" in note.text
    ends = []
    for each in (repaired, jm.load(written(FOURBARS["loop"]), repair=True)):
        system = each.build()
        state = each.assemble(system, q=guess)
        assert np.abs(jm.residuals(system, state).position).max() < 1e-14
        ends.append(jm.simulate(system, state, [0.3]).q)
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-7)
    # A millimetre is no rounding.
    wrong = jm.load(written(high.replace("1e-8", "1e-3")), repair=True)
    assert not [note for note in wrong.notes if note.what == "joint 'C'"]
    with pytest.raises(ValueError, match=r"cannot be satisfied(?!.*repair)"):
        wrong.assemble(wrong.build(), q=guess)


HELD = robot(
    '<link name="base"/>',
    link("rod"),
    joint("pivot", "continuous", "base", "rod"),
    '<loop name="pin" type="revolute"><predecessor link="rod"/><successor link="base"><origin xyz="0 0 1e-6"/></successor><axis xyz="0 0 1"/></loop>'
    '<loop name="guide" type="planar"><predecessor link="rod"/><successor link="base"/><axis xyz="0 0 1"/></loop>',
)


def test_ends_of_loops_are_moved_by_what_they_are_open(written):
    """A second hinge on an axis, a micrometre too high; what is closed, and what is open by more, stays as it is."""
    model = jm.load(written(HELD))
    with pytest.raises(
        ValueError, match=r"'pin' cannot be satisfied.*\n.*`jaxmb.load\(…, repair=True\)` moves the ends"
    ):
        model.assemble(model.build())
    repaired = jm.load(model.path, repair=True)
    (note,) = [note for note in repaired.notes if note.kind == "approximated"]
    assert note.what == "joint 'pin'" and "moved by 1.0e-06 m" in note.text
    system = repaired.build()
    np.testing.assert_allclose(jm.residuals(system, repaired.assemble(system)).position, 0.0, atol=1e-15)
    for name in ("pivot", "guide"):
        assert eqx.tree_equal(repaired.mechanism.elements[name], model.mechanism.elements[name])
    wrong = jm.load(written(HELD.replace("1e-6", "1e-3")), repair=True)
    assert not [note for note in wrong.notes if note.kind == "approximated"]
    with pytest.raises(ValueError, match=r"'pin' cannot be satisfied(?!.*repair)"):
        wrong.assemble(wrong.build())
    with pytest.raises(ValueError, match="Argument `pose` must be a keyframe out of none, but is 'home'"):
        repaired.assemble(system, "home")


@pytest.mark.parametrize("text", [TREE, FOURBARS["loop"]], ids=["tree", "loop"])
@pytest.mark.slow_cases("tree")
def test_texts_of_ours_keep_all_numbers(written, text):
    """Read, written and read again: bit for bit the same mechanism, so that M, forces and rows are the same too."""
    model = jm.load(written(text))
    again = jm.load(written(model.mechanism.to_text(), "model.toml"))
    assert bool(eqx.tree_equal(model.mechanism, again.mechanism))
    assert again.build(cut=model.loops).coordinates == model.build().coordinates
    other = jm.load(again.path, gravity=(1.0, 2.0, 3.0), exclude=model.loops)
    assert other.mechanism.gravity.tolist() == [1.0, 2.0, 3.0] and not {*model.loops} & {*other.mechanism.elements}


GEARED = TREE.replace(
    'type="revolute"><parent link="tool"',
    'type="revolute"><mimic joint="yaw" multiplier="3" offset="0.2"/><parent link="tool"',
)


def rewritten(written, text):
    """The systems of a model, and of the same read, written and read again; frames of links are other ones."""
    model = jm.load(written(text))
    again = jm.load(written(jm.models.to_urdf(model.mechanism, cut=model.loops), "again.urdf"))
    one, other = model.build(), again.build()
    assert one.coordinates == other.coordinates and one.m == other.m > 0
    return one, other


def test_urdf_that_is_written_has_the_same_rows(written):
    one, other = rewritten(written, FOURBARS["loop"])
    q, _ = states(one, 1)[0]
    np.testing.assert_allclose(residual(one)(q), residual(other)(q), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("text", [GEARED, FOURBARS["loop"]], ids=["tree", "loop"])
def test_urdf_that_is_written_has_the_same_masses_and_forces(written, text):
    one, other = rewritten(written, text)
    q, v = states(one, 1)[0]
    np.testing.assert_allclose(residual(one)(q), residual(other)(q), rtol=0, atol=1e-12)
    for a, b in zip(inertial(one)(q, v), inertial(other)(q, v), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_joints_are_written_the_other_way_round_too(written):
    """A joint whose B is on the parent turns about the opposite axis; points are frames; bodies may move freely."""
    place = jm.spatial.frame((0.1, 0.2, 0.3), (0.5, 0.1, 0.7, 0.2))
    bodies = [
        jm.spatial.Body(name, 1.0, (0.1, 0.2, 0.25), (0.1, 0.0, 0.2), points={"p": place}) for name in ("one", "two")
    ]
    hinge = jm.spatial.Revolute("hinge", "two.p", ("one", place), axis=(1.0, 2.0, 0.5), axis_b=(0.0, 1.0, 0.0))
    mechanism = jm.spatial.Mechanism(bodies, [hinge])
    found = jm.load(written(jm.models.to_urdf(mechanism)), gravity=(0.0, 0.0, 0.0))
    one, other = mechanism.build(), found.build()
    assert one.coordinates == other.coordinates and found.markers["two_p"] == "two.two_p"
    q = np.array([0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0, 0.7])
    place_of = lambda system, at: np.asarray(
        system.joints.motion(jnp.zeros(()), jnp.array(q), jnp.zeros(7), system.params).pose(at)
    )
    relative = lambda system, a, b: np.linalg.inv(place_of(system, a)) @ place_of(system, b)
    np.testing.assert_allclose(relative(one, "one.p", "two.p"), relative(other, "one.p", "two.two_p"), atol=1e-12)


def test_urdf_that_is_written_has_friction_gears_and_empty_links(written):
    """Friction of several elements along a joint adds up; dry friction at a speed of its own has no words."""
    S = jm.spatial
    rods = [S.Body(name, 1.0, (0.1, 0.2, 0.25), com=(0.1, 0.0, 0.2)) for name in ("rod", "arm")]
    joints = [
        S.Revolute("pivot", "ground", "rod"),
        S.Revolute("elbow", ("rod", (0.5, 0.0, 0.0)), "arm"),
        S.Fixed("flange", "arm", "plate"),
        S.Gear("train", ("pivot", "elbow"), -2.0, 0.3),
    ]
    forces = [S.JointFriction("oil", "elbow", 0.2, 0.5), S.JointFriction("seal", "elbow", 0.1)]
    mechanism = S.Mechanism([*rods, S.Body("plate", 0.0, (0.0, 0.0, 0.0))], joints, forces=forces)
    text = jm.models.to_urdf(mechanism)
    assert '<link name="plate"/>' in text
    again = jm.load(written(text)).mechanism
    gear, friction = again.elements["elbow_mimic"], again.elements["elbow_friction"]
    assert (gear.joints, float(gear.ratio), float(gear.offset)) == (("pivot", "elbow"), -2.0, 0.3)
    np.testing.assert_allclose((float(friction.viscous), float(friction.coulomb)), (0.3, 0.5), rtol=1e-15)
    with pytest.raises(ValueError, match="URDF cannot express 'dry'"):
        jm.models.to_urdf(mechanism.joined(forces=[S.JointFriction("dry", "pivot", coulomb=1.0, speed=0.1)]))


@pytest.mark.parametrize(
    "options, told",
    [
        ({"name": " "}, "Argument `name` must not be empty, but is ' '"),
        ({"cut": ["hinge"]}, "Argument `cut` must hold names of joints out of 'pivot', but holds 'hinge'"),
    ],
)
def test_names_that_cannot_be_written_are_refused(options, told):
    S = jm.spatial
    mechanism = S.Mechanism([S.Body("rod", 1.0, (0.1, 0.1, 0.1))], [S.Revolute("pivot", "ground", "rod")])
    with pytest.raises(ValueError, match=told):
        jm.models.to_urdf(mechanism, **options)
    world = S.Mechanism([S.Body("world", 1.0, (0.1, 0.1, 0.1))])
    with pytest.raises(ValueError, match="Body 'world' must have another name to be written as URDF"):
        jm.models.to_urdf(world)


def test_what_urdf_has_no_words_for_is_refused_by_name():
    mechanism = jm.spatial.Mechanism(
        [jm.spatial.Body("a", 1.0, (1.0, 1.0, 1.0))],
        [jm.spatial.Spherical("ball", "ground", "a")],
        forces=[jm.spatial.SpringDamper("spring", "ground", "a")],
    )
    with pytest.raises(ValueError, match="URDF cannot express 'spring' and 'ball'"):
        jm.models.to_urdf(mechanism)


def test_doubtful_numbers_are_told(written):
    """Each kind of doubt, with its number, of the body that gives cause for it; the pose as it was asked for."""
    P = jm.planar
    bodies = [
        P.Body("slab", 2e6, 1e9, (0.5, 0.0)),
        P.Body("box", 1.0, 0.1),
        P.Body("dot", 2e6, 0.0, (0.3, 0.0)),
        P.Body("label", 0.0, 0.0),
    ]
    joints = [P.Revolute("hinge", "ground", "slab"), *(P.Fixed(f"at_{b.name}", "slab", b.name) for b in bodies[1:])]
    model = jm.load(written(P.Mechanism(bodies, joints).to_text(), "model.toml"))
    model = dataclasses.replace(model, poses={"home": {"hinge": 0.2, "gone": 5.0}})
    found = jm.models.inspect(model, "home")
    assert found.doubts == (
        "slab: has a radius of gyration of 22.4 m in a mechanism of 0.5 m",
        "box: is lighter than the heaviest body by a factor of 2e+06",
        "dot: has a mass and no moment of inertia",
        "label: has no mass; only what it carries and what holds it lets it move",
    )
    assert found.closed and found.gaps == {} and found.diagnosis.freedom == 1 and found.coordinates == {"hinge": 0.2}
    told = str(found)
    for line in (
        "looks wrong: dot: has a mass",
        "At pose 'home'",
        "degrees of freedom      1 here",
        str(found.reactions),
    ):
        assert line in told
    assert found.to_dict()["diagnosis"] == found.diagnosis.to_dict()
    assert "At the pose in which the file is drawn, with hinge = 0.3" in str(jm.models.inspect(model, q={"hinge": 0.3}))
    with pytest.raises(ValueError, match="Argument `pose` must be a keyframe out of 'home', but is 'away'"):
        jm.models.inspect(model, "away")


# Refusals


ROD = link("rod")
PIVOT = joint("pivot", "continuous", "base", "rod")
RIGHT = robot('<link name="base"/>', ROD, PIVOT)
HUGE = "<!DOCTYPE robot [" + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "x"}">' for i in range(9)) + "]>"
MESH = '<visual><geometry><mesh filename="{}"/></geometry></visual>'
meshed = lambda name: RIGHT.replace('<link name="base"/>', f'<link name="base">{MESH.format(name)}</link>')
changed = lambda old, new: RIGHT.replace(old, new, 1)
turned = lambda inside: joint("pivot", "continuous", "base", "rod", inside=inside)
SLIDE = link("plate") + joint("slide", "planar", "base", "plate")
DRIVE = link("wheel") + joint("drive", "continuous", "base", "wheel")
coupled = lambda kind, end, ratio: changed(
    PIVOT,
    f'{PIVOT}<coupling name="c" {kind}><predecessor link="rod"/><successor link="{end}"/><ratio value="{ratio}"/></coupling>',
)
HOSTILE = {
    "truncated": (RIGHT[:-20], r"line \d+, must be XML, but is not"),
    "no XML": ("robot", r"line 1, must be XML"),
    "empty": ("", r"must be XML"),
    "two roots": (RIGHT + RIGHT.split("?>")[1], r"must be XML"),
    "binary": ("\x00\x01\x02", r"must be XML"),
    "unbound entity": (changed("rod", "&rod;"), r"must be XML|entities"),
    "an attribute twice": (changed('type="continuous"', 'type="continuous" type="fixed"'), r"line 5, must be XML"),
    "another root": (
        RIGHT.replace("robot", "human"),
        r"<human name='small'> must be a <robot> of URDF, a <mujoco> of MJCF or an",
    ),
    "a bomb": (
        RIGHT.replace("<robot", HUGE + "<robot").replace('"base"', '"&a8;"'),
        r"must not declare document types",
    ),
    "an external entity": (
        RIGHT.replace("<robot", '<!DOCTYPE robot [<!ENTITY e SYSTEM "file:///etc/passwd">]><robot'),
        r"must not declare document types",
    ),
    "a document type elsewhere": (
        RIGHT.replace("<robot", '<!DOCTYPE robot SYSTEM "http://example.org/a.dtd"><robot'),
        r"must not declare document types",
    ),
    "too deep": (changed(ROD, ROD + "<a>" * 200 + "</a>" * 200), r"must not be nested in more than"),
    "xacro": (changed(ROD, '<xacro:leg xmlns:xacro="x"/>'), r"must be expanded first"),
    "no link": (robot(), r"must hold a <link>"),
    "no moving joint": (robot('<link name="base"/>'), r"must have a joint that moves"),
    "link without a name": (changed('name="rod"', 'title="rod"'), r"line 4, <link> must have the attribute `name`"),
    "link with an empty name": (changed('name="rod"', 'name=" "'), r"must have the attribute `name`"),
    "links of one name": (
        changed(ROD, ROD + "\n" + ROD),
        r"line 5, <link name='rod'> must have a name of its own.*line 4",
    ),
    "joints of one name": (
        changed(PIVOT, PIVOT + "\n" + PIVOT),
        r"line 6, <joint name='pivot'> must have a name of its own",
    ),
    "two parents": (
        changed(PIVOT, PIVOT + joint("other", "fixed", "base", "rod")),
        r"hangs on 'pivot' too; write it as a <loop>",
    ),
    "a cycle": (
        robot(
            '<link name="base"/>', link("a"), link("b"), joint("x", "fixed", "b", "a"), joint("y", "fixed", "a", "b")
        ),
        r"hang on each other in a cycle",
    ),
    "a cycle without a root": (
        robot(link("a"), link("b"), joint("x", "fixed", "b", "a"), joint("y", "fixed", "a", "b")),
        r"hang on each other in a cycle",
    ),
    "a link on itself": (changed('child link="rod"', 'child link="base"'), r"must join two links|hangs on"),
    "two trees": (
        changed(ROD, ROD + '<link name="lost"/>'),
        r"must have one link that hangs on no other, but has 'base' and 'lost'",
    ),
    "no such link": (changed('child link="rod"', 'child link="road"'), r"must join links out of .*names 'road'"),
    "no child": (changed('<child link="rod"/>', ""), r"must hold a <child>"),
    "two origins": (
        changed("<axis", '<origin xyz="0 0 1"/><axis'),
        r"<origin> must stand in <joint name='pivot'> once",
    ),
    "an unknown joint": (changed("continuous", "spherical"), r"must have a `type` out of .*, but has 'spherical'"),
    "a joint without type": (changed('type="continuous"', ""), r"must have the attribute `type`"),
    "a zero axis": (changed('axis xyz="0 0 1"', 'axis xyz="0 0 0"'), r"<axis> must have a direction"),
    "a short axis": (
        changed('axis xyz="0 0 1"', 'axis xyz="0 1"'),
        r"must have 3 finite numbers as `xyz`, but has '0 1'",
    ),
    "words for numbers": (changed('origin xyz="0.1 0.02 -0.2"', 'origin xyz="a b c"'), r"must have 3 finite numbers"),
    "NaN": (
        changed('mass value="1.0"', 'mass value="nan"'),
        r"<mass> must have a finite number as `value`, but has 'nan'",
    ),
    "infinity": (changed('mass value="1.0"', 'mass value="inf"'), r"must have a finite number"),
    "overflow": (changed('mass value="1.0"', 'mass value="1e999"'), r"must have a finite number"),
    "underscores": (changed('mass value="1.0"', 'mass value="1_0"'), r"must have a finite number"),
    "a negative mass": (
        changed('mass value="1.0"', 'mass value="-1"'),
        r"must have a mass that is finite and not negative, but has -1",
    ),
    "inertia without mass": (
        changed('mass value="1.0"', 'mass value="0"'),
        r"must have a mass where it has an inertia",
    ),
    "no mass": (changed('<mass value="1.0"/>', ""), r"<inertial> must hold a <mass>"),
    "no inertia": (RIGHT.replace("<inertia ", "<inert "), r"<inertial> must hold a <inertia>"),
    "a negative moment": (changed('ixx="0.02"', 'ixx="-0.02"'), r"the moment -0\.02.* is negative"),
    "the triangle inequality": (changed('izz="0.04"', 'izz="0.09"'), r"is less than 0\.09.* by 0\.04"),
    "a massless end": (
        changed(PIVOT, PIVOT + '<link name="wheel"/>' + joint("spin", "continuous", "rod", "wheel")),
        r"<joint name='spin'> must move something that has inertia along it, but 'wheel'",
    ),
    "a point on its axis": (
        changed(
            PIVOT,
            PIVOT
            + '<link name="w"><inertial><mass value="1"/><inertia ixx="0" iyy="0" izz="0"/></inertial></link>'
            + joint("spin", "continuous", "rod", "w"),
        ),
        r"must move something that has inertia along it",
    ),
    "limits the wrong way": (
        changed(PIVOT, joint("pivot", "revolute", "base", "rod", inside='<limit lower="1" upper="-1"/>')),
        r"must have `lower` below `upper`, but has 1 and -1",
    ),
    "negative damping": (
        changed(PIVOT, joint("pivot", "revolute", "base", "rod", inside='<dynamics damping="-1"/>')),
        r"must not have a negative `damping`, but has -1",
    ),
    "a long quaternion": (
        changed(PIVOT, PIVOT.replace("rpy", 'quat_xyzw="0 0 0 2" rpy')),
        r"must have a quaternion of unit length as `quat_xyzw`, but its length is 2",
    ),
    "mimic of nobody": (
        changed(PIVOT, joint("pivot", "continuous", "base", "rod", inside='<mimic joint="no"/>')),
        r"must name another joint out of .*names 'no'",
    ),
    "mimic of itself": (
        changed(PIVOT, joint("pivot", "continuous", "base", "rod", inside='<mimic joint="pivot"/>')),
        r"must name another joint",
    ),
    "mimic of a plane": (
        changed(PIVOT, turned('<mimic joint="slide"/>') + SLIDE),
        r"<mimic> of .*'pivot'> must relate joints with one coordinate",
    ),
    "mimic by nothing": (
        changed(PIVOT, turned('<mimic joint="drive" multiplier="0"/>') + DRIVE),
        r"<mimic> of .*'pivot'> must not have the `multiplier` 0, but has; make the joint fixed",
    ),
    "a coupling by a belt": (coupled('type="belt"', "base", 2), r"<coupling name='c'> must have the `type` 'rolling'"),
    "a coupling by nothing": (coupled("", "base", 0), r"must have the `type` 'rolling' and a ratio other than zero"),
    "a coupling to nowhere": (coupled("", "road", 2), r"<coupling name='c'> must relate links out of .*'road'"),
    "an encoding of no name": (RIGHT.replace("?>", ' encoding="utf-7"?>', 1), r"must be XML, but is not"),
    "a loop of no type": (
        changed(PIVOT, PIVOT + '<loop name="c" type="rope"><predecessor link="rod"/><successor link="base"/></loop>'),
        r"<loop name='c'> must have a `type` out of",
    ),
    "a loop to nowhere": (
        changed(PIVOT, PIVOT + '<loop name="c" type="fixed"><predecessor link="rod"/><successor link="x"/></loop>'),
        r"<loop name='c'> must join links out of .* 'x'",
    ),
    "a loop on one link": (
        changed(PIVOT, PIVOT + '<loop name="c" type="fixed"><predecessor link="rod"/><successor link="rod"/></loop>'),
        r"must join two links",
    ),
    "a mesh above": (meshed("../secret.stl"), r"<mesh> must refer to files in .*'\.\./secret\.stl'"),
    "an absolute mesh": (meshed("/etc/passwd"), r"<mesh> must refer to files in"),
    "a mesh by URL": (meshed("file:///etc/passwd"), r"<mesh> must refer to files in"),
    "a mesh behind a link": (meshed("outside/secret.stl"), r"<mesh> must refer to files in"),
    "the name of the ground": (RIGHT.replace('"base"', '"ground"'), r"must not be called 'ground'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_refused_where_it_stands(written, tmp_path, name):
    """With file and reason, without opening any other file, and before anything is compiled."""
    text, reason = HOSTILE[name]
    (tmp_path / "outside").symlink_to("/etc")
    path = written(text)
    opened = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" and WATCHED else None)
    WATCHED.append(path)
    try:
        with pytest.raises(ValueError, match=reason) as refused:
            jm.load(path)
    finally:
        WATCHED.clear()
    assert str(path) in str(refused.value) or "Model 'small'" in str(refused.value)
    others = [
        x for x in opened if x != str(path) and not x.endswith((".py", ".pyc", ".so")) and "site-packages" not in x
    ]
    assert not others


WATCHED = []


def test_right_models_are_read_beside_hostile_ones(written):
    """What is changed above is right before it is changed."""
    assert list(jm.load(written(RIGHT)).build().coordinates) == ["pivot"]


def test_files_elsewhere_are_read_where_allowed(written, tmp_path):
    """Folders by argument; packages by a map, and by name only without one."""
    inside = written(meshed("../secret.stl"), "inside.urdf")
    assert jm.load(inside, allow=[tmp_path.parent]).name == "small"
    packaged = written(meshed("package://arm/../../etc/passwd"), "packaged.urdf")
    assert jm.load(packaged).name == "small"
    with pytest.raises(ValueError, match="must refer to files in"):
        jm.load(packaged, packages={"arm": tmp_path})


@pytest.mark.parametrize(
    "text, reason",
    [
        ("closed_loop: [[rod]]", "a list of pairs of names"),
        ("closed_loop: [[rod, road]]", "must name a link or a joint, but 'road' is none"),
        ("closed_loop: [[rod, base]]\ntype: [7d]", "must have as `type` one of '6d' and '3d'"),
        ("closed_loop: [[rod, base]]\ntype: []", "must have as `type` one of"),
        ("closed_loop: [[rod, base]", "line 1, must be YAML"),
        ("closed_loop: &a [[rod, base]]\nb: *a", "must not hold anchors or aliases"),
        ("closed_loop: !!python/object/apply:os.system ['true']", "must be YAML"),
        ("- closed_loop", "must be a table"),
        ("closed_loop: [[rod, base], [rod, base]]", "'rod' and 'base', must stand there once, but stands there again"),
        ("closed_loop: " + "[" * 200 + "]" * 200, "must not be nested more deeply"),
    ],
)
def test_sidecars_are_refused_likewise(written, text, reason):
    path = written(RIGHT)
    written(text, "model.yaml")
    with pytest.raises(ValueError, match=reason):
        jm.load(path)


def test_other_formats_are_refused_by_name(written, tmp_path):
    with pytest.raises(ValueError, match="is USD, which is not supported"):
        jm.load(tmp_path / "a.usda")
    with pytest.raises(ValueError, match="Argument `path` must be a file"):
        jm.load(tmp_path / "none.urdf")
    with pytest.raises(ValueError, match=r"model\.toml: .*must have `space`"):
        jm.load(written("version = 1\n", "model.toml"))
    with pytest.raises(ValueError, match=r"Argument `stops` must be None for a text of `Mechanism.to_text`"):
        jm.load(written(jm.load(written(RIGHT)).mechanism.to_text(), "model.toml"), stops={"pivot": (1.0, 0.0)})
    with pytest.raises(ValueError, match=r"Argument `loops` must be a file, but 'none\.yaml' is none"):
        jm.load(written(RIGHT), loops="none.yaml")
    for text, name in (
        ("<mujoco/>", "model.xml"),
        ("<sdf version='1.9'/>", "model.sdf"),
        ("version = 1\n", "model.toml"),
    ):
        path = written(text, name)
        with pytest.raises(
            ValueError, match=r"Argument `base` must be 'fixed' for .*, since it is for URDF only, but is not"
        ):
            jm.load(path, base="free")
        with pytest.raises(
            ValueError, match=r"Argument `loops` must be None for .*, since it is for URDF only, but is not"
        ):
            jm.load(path, loops="loops.yaml")


@pytest.mark.parametrize(
    "limit, told",
    [
        ("load.MAX_BYTES", r"model\.xml must not be longer than 40 bytes, but is\."),
        ("document.MAX_BYTES", r"model\.xml must not be longer than 40 bytes, but has \d+\."),
        ("document.MAX_ELEMENTS", r"model\.xml, line 41, <body name='b39'> must be one of 40 at most in a file"),
        (
            "folder.MAX_FILE_BYTES",
            r"line 44, <include> must refer to files of 40 bytes at most, but .*part\.xml has 60",
        ),
    ],
)
def test_what_is_too_large_is_refused(written, monkeypatch, limit, told):
    pytest.importorskip("mujoco")
    module, _, name = limit.partition(".")
    monkeypatch.setattr(sys.modules[f"jaxmb.models.{module}"], name, 40)
    written("<mujoco/>".ljust(60), "part.xml")
    bodies = "\n".join(f'<body name="b{i}"/>' for i in range(1, 42))
    with pytest.raises(ValueError, match=told):
        jm.load(
            written(f'<mujoco>\n<worldbody>\n{bodies}\n<include file="part.xml"/></worldbody></mujoco>', "model.xml")
        )
