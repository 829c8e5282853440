"""MJCF: mass, forces and rows as MuJoCo has them; what cannot be read is refused, nothing outside the folder is opened."""

import re

import jax
import numpy as np
import pytest
from models import inertial, of_mujoco, residual, states, written

import jaxmb as jm

mujoco = pytest.importorskip("mujoco")

assert written

CUBE = "\n".join(f"v {x} {y} {z}" for x in (0, 0.2) for y in (0, 0.3) for z in (0, 0.1)) + "\n" + "\n".join(
    f"f {a} {b} {c}" for a, b, c in
    [(1, 2, 4), (1, 4, 3), (5, 8, 6), (5, 7, 8), (1, 6, 2), (1, 5, 6), (3, 4, 8), (3, 8, 7), (1, 3, 7), (1, 7, 5), (2, 6, 8), (2, 8, 4)]
)  # fmt: skip
# A free trunk; a ball, several joints of a body, hinges that are drawn at 20°, springs at rest elsewhere, classes, masses of geoms.
BODIES = """
<body name="trunk" pos="0 0 1" euler="10 20 30">
  <freejoint name="root"/>
  <geom type="box" size=".1 .2 .3" density="500"/>
  <site name="hook" pos=".1 0 .2" euler="0 40 0"/>
  <body name="arm" pos=".2 0 .1" childclass="stiff">
    <joint name="shoulder" type="ball" pos="0 0 .05" damping=".3" stiffness="0"/>
    <inertial pos=".1 .02 0" mass="1.3" fullinertia=".02 .03 .04 .001 -.002 .003"/>
    <body name="hand" pos=".3 0 0" quat="1 .2 0 .1">
      <joint name="bend" axis="0 1 0" ref="20" springref="-10" range="-40 90"/>
      <joint name="twist" axis="1 0 1" pos="0 .1 0"/>
      <joint name="reach" type="slide" axis="0 0 1" stiffness="40" ref=".1" springref=".3"/>
      <geom type="capsule" fromto="0 0 0 .2 0 0" size=".03"/>
      <site name="finger" pos=".2 0 0"/>
      <body name="ring" pos=".1 0 0"><geom size=".04" mass=".2"/></body>
    </body>
  </body>
  <body name="leg" pos="0 .2 -.3"><joint name="hip" axis="1 0 0" damping=".2"/><geom type="cylinder" size=".05 .2"/>
    <site name="sole" pos="0 0 -.2"/></body>
  <body name="tail" pos="0 -.2 -.3"><joint name="wag" axis="0 1 0"/><geom type="ellipsoid" size=".05 .2 .1" mass=".4"/></body>
</body>
"""
MODEL = f"""<mujoco model="small">
<option gravity="0.1 0.2 -9.7" timestep="0.001"/>
<default><default class="stiff"><joint stiffness="2" armature=".01"/></default></default>
<worldbody><geom type="plane" size="1 1 1"/><light pos="0 0 3"/>
{BODIES}
</worldbody>
<tendon><spatial name="band" stiffness="30" damping="2" springlength=".2"><site site="hook"/><site site="sole"/></spatial></tendon>
{{ties}}
<actuator><motor name="hip drive" joint="hip" gear="5"/><position name="servo" joint="wag" kp="3"/>
<motor name="jet" site="hook" gear="0 2 1 0 0 0"/></actuator>
<sensor><jointpos joint="hip"/></sensor>
<keyframe><key name="home" qpos="0 0 2 1 0 0 0 1 0 0 0 .3 .4 .5 .6 .7"/></keyframe>
</mujoco>"""


ARM = """<mujoco><option gravity="0.1 0.2 -9.7"/><worldbody><body name="arm" pos="0 0 1" euler="10 20 30">
<joint name="bend" axis="0 1 0" ref="20" springref="-10" stiffness="2" damping=".1" armature=".3"/>
<joint name="reach" type="slide" axis="1 0 1" ref=".1" armature=".7" stiffness="40" springref=".3"/><geom type="capsule" fromto="0 0 0 .2 0 0" size=".03"/>
<body pos=".2 0 0"><joint name="twist" axis="1 0 1" pos="0 .1 0" damping=".2"/><geom type="box" size=".1 .05 .02"/></body></body></worldbody></mujoco>"""

# A mesh by its vertices, a field of heights, elements without names beside some that are called as those would be.
UNNAMED = """<mujoco><asset><mesh name="m" vertex="0 0 0 .2 0 0 0 .3 0 0 0 .4"/><hfield name="h" nrow="3" ncol="3" size="1 1 1 1"/></asset>
<worldbody><geom type="hfield" hfield="h"/><body><joint axis="0 1 0"/><joint axis="1 0 0"/><geom type="mesh" mesh="m"/>
<body name="body1_joint0_"><joint name="joint0"/><geom size=".1" pos=".2 0 0"/></body></body></worldbody></mujoco>"""


@pytest.mark.parametrize(
    "text",
    [ARM, UNNAMED, pytest.param(MODEL.format(ties=""), marks=pytest.mark.slow)],
    ids=["arm", "without names", "whole"],
)
def test_mass_and_forces_are_those_of_mujoco(written, text):
    """Gravity, springs, dampers, armature."""
    system, model = jm.load(written(text, "model.xml")).build(), mujoco.MjModel.from_xml_string(text)
    evaluate = inertial(system)
    for q, v in states(system, 5):
        mass, force = evaluate(q, v)
        wanted, bias = of_mujoco(model, q, v)
        np.testing.assert_allclose(mass, wanted, rtol=0, atol=1e-9)
        np.testing.assert_allclose(force, bias, rtol=0, atol=1e-9)


def test_coordinates_are_those_of_mujoco(written):
    """In its order, with what the file says beside the mechanism."""
    text = MODEL.format(ties="")
    record = jm.load(written(text, "model.xml"))
    system, model = record.build(), mujoco.MjModel.from_xml_string(text)
    names = ("trunk.x", "shoulder.qw", "bend", "twist", "reach", "hip", "wag")
    assert [system.coordinates.index(name) for name in names] == [0, 7, 11, 12, 13, 14, 15]
    armatures = {x.joint: float(x.inertia) for x in record.mechanism.forces if isinstance(x, jm.spatial.JointInertia)}
    assert armatures == dict.fromkeys(("shoulder", "bend", "twist", "reach"), 0.01)
    known = record.poses["home"]
    assert (known["trunk.z"], known["trunk.qw"], known["reach"], known["wag"]) == (2.0, 1.0, 0.5, 0.7)
    assert record.limits == {"bend": (np.deg2rad(-40), np.deg2rad(90))}
    np.testing.assert_allclose(system.guess, model.qpos0, atol=1e-12)
    gains = {a.name: a for a in record.mechanism.actuators}
    assert float(gains["hip drive"].gain) == 5.0 and gains["jet"].direction.tolist() == [0.0, 2.0, 1.0]
    told = str(record)
    for line in (
        "actuator 'servo': is no force",
        "sensors are not read",
        "belongs to 'hand'",
        "bodies without mass between",
    ):
        assert line in told


def test_limits_become_stops_where_asked_for(written):
    """By the name of a joint, else by its kind; the record keeps them."""
    path = written(
        ARM.replace('axis="0 1 0"', 'range="-40 90" axis="0 1 0"').replace('type="slide"', 'type="slide" range="0 .2"'),
        "model.xml",
    )
    plain, record = jm.load(path), jm.load(path, stops={"revolute": (50.0, 0.1), "reach": (3e3, 0.2)})
    assert plain.limits == record.limits and not [
        f for f in plain.mechanism.forces if isinstance(f, jm.spatial.JointStop)
    ]
    stops = {
        f.joint: (f.lower, f.upper, f.stiffness, f.damping)
        for f in record.mechanism.forces
        if isinstance(f, jm.spatial.JointStop)
    }
    np.testing.assert_allclose(stops["bend"], (*np.deg2rad([-40, 90]), 50.0, 0.1))
    np.testing.assert_allclose(stops["reach"], (0.0, 0.2, 3e3, 0.2))
    with pytest.raises(
        ValueError, match=r"Argument `stops` must name joints with limits, or their kinds, out of .*names 'twist'"
    ):
        jm.load(path, stops={"twist": (1.0, 0.0)})


TIES = """<equality>
<connect name="clasp" body1="hand" body2="leg" anchor=".1 .2 .3"/>
<weld name="glue" body1="tail" body2="hand" relpose=".1 .2 .3 1 .5 0 .2" anchor=".05 0 .1"/>
<connect name="tips" site1="finger" site2="sole"/>
<weld name="flat" site1="hook" site2="finger"/>
<joint name="train" joint1="bend" joint2="twist" polycoef=".1 -2 0 0 0"/>
<tendon name="line" tendon1="sum" polycoef=".2 0 0 0 0"/>
<tendon name="wire" tendon1="rope"/>
<connect name="asleep" body1="hand" body2="tail" anchor="0 0 0" active="false"/>
</equality>
<tendon><fixed name="sum"><joint joint="hip" coef="2"/><joint joint="wag" coef="-3"/></fixed>
<spatial name="rope"><site site="finger"/><site site="sole"/></spatial></tendon>
"""


def test_rows_vanish_with_those_of_mujoco(written):
    """Connects and joints row by row; of welds the gaps. What is not active does not act."""
    text = MODEL.format(ties=TIES)
    record = jm.load(written(text, "model.xml"))
    system, model = record.build(), mujoco.MjModel.from_xml_string(text)
    assert record.loops == ("clasp", "glue", "tips", "flat") and "equality 'asleep': is not active" in str(record)
    data, gap = mujoco.MjData(model), residual(system)
    for q, _ in states(system, 3):
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        theirs = data.efc_pos[data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)]
        clasp, glue, tips, flat, train, line, wire = np.split(theirs, np.cumsum([3, 6, 3, 6, 1, 1]))
        found = {name: np.asarray(gap(q))[rows] for name, rows in system.rows.items()}
        for name, wanted in (("clasp", clasp), ("tips", tips), ("glue", glue[:3]), ("flat", flat[:3])):
            np.testing.assert_allclose(np.linalg.norm(found[name][:3]), np.linalg.norm(wanted), atol=1e-12)
        np.testing.assert_allclose(found["train"], train, atol=1e-12)
        np.testing.assert_allclose(found["line"] * -3, line, atol=1e-12)
        length = float(data.ten_length[-1])
        start = float(model.tendon_length0[-1])
        np.testing.assert_allclose(found["wire"], (length**2 - start**2) / (2 * start), atol=1e-12)
        np.testing.assert_allclose(wire, length - start, atol=1e-12)
        # sin θ of the rotation between both frames; MuJoCo's rows are twice the vector of the quaternion
        for name, wanted in (("glue", glue[3:]), ("flat", flat[3:])):
            half = np.linalg.norm(wanted)
            size = half if abs(half) <= 1 else half / 2
            sine = 2 * size * np.sqrt(max(1 - size**2, 0.0))
            np.testing.assert_allclose(np.linalg.norm(found[name][3:]), sine, atol=1e-9)


def test_masses_of_meshes_are_those_of_mujoco(written, tmp_path):
    """Read from the folder where a mass follows from them, by name only elsewhere."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "cube.obj").write_text(CUBE)
    text = """<mujoco><compiler meshdir="parts"/><asset><mesh file="cube.obj"/><mesh name="none" file="none.stl"/></asset>
    <worldbody><body name="a"><joint/><geom type="mesh" mesh="cube"/><geom type="mesh" mesh="none" mass="0"/></body>
    <body name="b" pos="1 0 0"><geom type="mesh" mesh="none"/></body></worldbody></mujoco>"""
    body = jm.load(written(text, "model.xml")).mechanism.elements["a"]
    np.testing.assert_allclose(float(body.mass), 1000 * 0.2 * 0.3 * 0.1, rtol=1e-6)
    np.testing.assert_allclose(body.com, (0.1, 0.15, 0.05), atol=1e-6)


def test_a_weld_whose_angular_residual_has_no_weight_is_a_connect(written):
    text = PAIR.replace(
        "</mujoco>", '<equality><weld name="e" body1="a" body2="b" torquescale="0"/></equality></mujoco>'
    )
    assert isinstance(jm.load(written(text, "model.xml")).mechanism.elements["e"], jm.spatial.Spherical)


def test_files_that_are_included_stand_in_their_places(written):
    written("<mujocoinclude><body name='a'><joint name='j'/><geom size='.1'/></body></mujocoinclude>", "part.xml")
    model = jm.load(written("<mujoco><worldbody><include file='part.xml'/></worldbody></mujoco>", "model.xml"))
    assert model.mechanism.elements["j"].name == "j"


def test_bodies_are_left_out_with_what_refers_to_them(written):
    record = jm.load(written(MODEL.format(ties=TIES), "model.xml"), exclude=["leg", "train"])
    assert record.loops == ("glue", "flat") and "hip" not in record.mechanism.elements
    assert "train" not in record.mechanism.elements and "as was asked for" in str(record)


UNUSUAL = """<mujoco><option density="1"><flag frictionloss="disable"/></option><worldbody><body name="hand" mocap="true"/>
<body name="a" gravcomp=".5"><joint name="root" type="free" damping="1"/><geom size=".1"/><site name="s"/>
<body name="b"><joint name="ball" type="ball" stiffness="2" range="0 30"/><geom size=".1"/><site name="t" pos="0 0 .2"/>
<body name="c"><joint name="j" frictionloss=".2"/><geom size=".1"/>
<body name="d"><joint name="k" actuatorfrcrange="-1 1"/><geom size=".1"/></body></body></body></body></worldbody>
<tendon><spatial name="cord" range="0 1" frictionloss="1"><site site="s"/><site site="t"/></spatial>
<spatial name="loose" stiffness="2" springlength="0 1"><site site="s"/><site site="t"/></spatial>
<fixed name="sum" stiffness="3"><joint joint="j" coef="1"/><joint joint="k" coef="2"/></fixed></tendon>
<actuator><motor name="m" joint="j" ctrlrange="0 1"/></actuator>
<keyframe><key name="fast" qvel="1 0 0 0 0 0 0 0 0 0 0"/></keyframe>
</mujoco>"""


def test_what_has_no_element_is_told(written):
    """The mechanism has none of it, and the record says so, of each."""
    model = jm.load(written(UNUSUAL, "model.xml"))
    assert [type(force).__name__ for force in model.mechanism.forces] == ["JointFriction"] and model.limits == {}
    told = str(model)
    for line in (
        "left out      `density` of <option>: there is no fluid",
        "left out      <flag>: springs, dampers, friction and actuators act though the file disables some",
        "left out      gravcomp of body 'a': gravity acts on all bodies alike",
        "left out      joint 'root': friction and armature of a free joint have no element",
        "left out      joint 'ball': springs of ball and free joints have no element",
        "left out      tendon 'cord': friction of tendons has no element",
        "left out      tendon 'loose', tendon 'sum': springs of tendons act between two sites only",
        "left out      mocap of body 'hand': it stands still where the file draws it",
        "listed        joint 'k': limits of its actuators are not part of a mechanism",
        "listed        joint 'ball': limits of ball joints are not part of a mechanism",
        "listed        tendon 'cord': limits of tendons are not part of a mechanism",
        "listed        actuator 'm': its limits are not part of a mechanism",
        "listed        keyframe 'fast': its velocities and inputs are not part of a pose",
    ):
        assert line in told


@pytest.mark.parametrize(
    "field, old, new, told",
    [
        (
            "jnt_stiffnesspoly",
            '"j"',
            '"j" stiffness="2 3 1"',
            "joint 'j': springs and dampers are linear: `stiffnesspoly`",
        ),
        (
            "tendon_stiffnesspoly",
            'stiffness="2" springlength',
            'stiffness="2 3" springlength',
            "tendon 'loose': springs and dampers are linear: `stiffnesspoly`",
        ),
        ("tendon_armature", 'range="0 1"', 'armature="2"', "tendon 'cord': armature of tendons has no element"),
        ("actuator_armature", 'ctrlrange="0 1"', 'armature="1"', "actuator 'm': its armature is not read"),
    ],
)
def test_what_newer_versions_of_mujoco_have_is_told(written, field, old, new, told):
    if not hasattr(mujoco.MjModel, field):
        pytest.skip("this version of MuJoCo has none")
    assert told in str(jm.load(written(UNUSUAL.replace(old, new, 1), "model.xml")))


BODY = '<body name="a"><joint name="j"/><geom size=".1"/></body>'
RIGHT = f"<mujoco>\n<worldbody>\n{BODY}\n</worldbody>\n</mujoco>"
added = lambda text: RIGHT.replace("</mujoco>", f"{text}</mujoco>")
PAIR = RIGHT.replace(BODY, BODY + BODY.replace('"a"', '"b"').replace('"j"', '"k"'))
TENDONS = (
    "<tendon>"
    + "".join(f'<fixed name="{t}"><joint joint="{j}" coef="1"/></fixed>' for t, j in (("one", "j"), ("two", "k")))
    + "</tendon><equality>"
)
tied = lambda text: PAIR.replace("</mujoco>", f"<equality>{text}</equality></mujoco>")
HOSTILE = {
    "broken": (RIGHT[:-5], r"model\.xml, line 5, must be XML"),
    "unknown": (added("<rope/>"), r"must be MJCF that MuJoCo reads, but it says: .*rope"),
    "another line": (RIGHT.replace('size=".1"', 'size="x"'), r"MuJoCo reads, but it says: .*line 3"),
    "a plugin": (
        added('<extension><plugin plugin="a.b"/></extension>'),
        r"line 5, <extension> cannot be read: forces of plugins",
    ),
    "soft": (
        RIGHT.replace(BODY, BODY + '<flexcomp name="f" type="grid" count="4 4 1" spacing=".1 .1 .1"/>'),
        r"<flexcomp name='f'> cannot be",
    ),
    "a model": (
        added('<asset><model name="m" file="other.xml"/></asset>'),
        r"<model name='m'> cannot be read: models in models",
    ),
    "copies": (
        RIGHT.replace(BODY, f'<replicate count="100000">{BODY}</replicate>'),
        r"must make 10000 copies at most, but makes 100000",
    ),
    "copies of copies": (
        RIGHT.replace(BODY, f'<replicate count="1000"><replicate count="1000">{BODY}</replicate></replicate>'),
        r"must make 10000 copies at most",
    ),
    "an include elsewhere": (added('<include file="../other.xml"/>'), r"<include> must refer to files in"),
    "an absolute include": (added('<include file="/etc/passwd"/>'), r"<include> must refer to files in"),
    "an include behind a link": (added('<include file="outside/passwd"/>'), r"<include> must refer to files in"),
    "an include of nothing": (
        added('<include file="none.xml"/>'),
        r"must include a file that is there, but 'none.xml' is not",
    ),
    "an include of itself": (added('<include file="model.xml"/>'), r"must include each file once"),
    "a mesh elsewhere": (
        added('<asset><mesh name="m" file="../m.stl"/></asset>'),
        r"<mesh name='m'> must refer to files in",
    ),
    "a folder elsewhere": (
        RIGHT.replace(
            "<worldbody>", '<compiler meshdir="/etc"/><asset><mesh name="m" file="passwd"/></asset><worldbody>'
        ),
        r"<mesh name='m'> must refer to files in",
    ),
    "a mesh that is not there": (
        RIGHT.replace('size=".1"', 'type="mesh" mesh="m"').replace(
            "</worldbody>", '</worldbody><asset><mesh name="m" file="m.stl"/></asset>'
        ),
        r"line 3, <body name='a'> must have an <inertial>, or the meshes .* but 'm\.stl' is not there; `exclude=\['a'\]`",
    ),
    "an infinite mass": (RIGHT.replace('size=".1"', 'size=".1" mass="inf"'), r"MuJoCo reads|must have a mass|finite"),
    "no mass": (RIGHT.replace('size=".1"', 'size=".1" mass="0"'), r"MuJoCo reads, but it says: .*mass"),
    "the triangle inequality": (
        RIGHT.replace('<geom size=".1"/>', '<inertial pos="0 0 0" mass="1" diaginertia="1 1 3"/>'),
        r"MuJoCo reads, but it says: .*inertia",
    ),
    "the name of the ground": (RIGHT.replace('"a"', '"ground"'), r"no body must be called 'ground'"),
    "a curve between joints": (
        tied('<joint name="e" joint1="j" joint2="k" polycoef="0 1 2 0 0"/>'),
        r"line 5, <joint name='e'> must be linear, but has the coefficients \[0\.0, 1\.0, 2\.0.*`exclude=\['e'\]`",
    ),
    "a joint at a value": (tied('<joint name="e" joint1="j"/>'), r"must relate two joints, but holds 'j' at a value"),
    "two tendons": (
        tied('<tendon name="e" tendon1="one" tendon2="two"/>').replace("<equality>", TENDONS),
        r"line 5, <tendon name='e'> must fix the length of one tendon, but relates two; `exclude=\['e'\]`",
    ),
    "a tendon over one joint": (
        tied('<tendon name="e" tendon1="one"/>').replace("<equality>", TENDONS),
        r"<tendon name='e'> must fix a tendon between two joints or two sites, but fixes another",
    ),
    "joints with a ball": (
        tied('<joint name="e" joint1="j" joint2="k"/>').replace('"k"', '"k" type="ball"', 1),
        r"MuJoCo reads, but it says: .*HINGE and SLIDE",
    ),
    "negative friction": (
        RIGHT.replace('name="j"', 'name="j" frictionloss="-1"'),
        r"line 3, <joint name='j'> must not have a negative 'frictionloss', but has",
    ),
    "an include of something else": (
        added('<include file="robot.xml"/>'),
        r"robot\.xml, line 1, <robot> must be a <mujoco> or a <mujocoinclude> to be included",
    ),
    "a file of a shape": (
        RIGHT.replace('size=".1"', 'size=".1" file="robot.xml"'),
        r"line 3, <geom> must not refer to a file, but does",
    ),
    "nothing that moves": (
        "<mujoco><worldbody><body><geom size='1'/></body></worldbody></mujoco>",
        r"must have a joint that moves",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_refused(written, tmp_path, name):
    text, reason = HOSTILE[name]
    (tmp_path / "outside").symlink_to("/etc")
    written("<robot/>", "robot.xml")
    with pytest.raises(ValueError, match=reason) as refused:
        jm.load(written(text, "model.xml"))
    assert re.search(r"(model|robot)\.xml|Model '", str(refused.value))


def test_right_models_are_read_beside_hostile_ones(written):
    assert jax.tree.leaves(jm.load(written(PAIR, "model.xml")).mechanism.elements["k"].axis)
