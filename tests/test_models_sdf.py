"""SDFormat: frames wherever they are written, loops by joints with a child that hangs already; what is wrong is refused where it stands."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import inertial, residual, states, written
from scipy.spatial.transform import Rotation

import jaxmb as jm

assert written

INERTIA = "<ixx>0.02</ixx><iyy>0.03</iyy><izz>0.04</izz><ixy>0.001</ixy><ixz>-0.002</ixz><iyz>0.0015</iyz>"
inertial_of = lambda mass=1.0, at="0.1 0.02 -0.2 0.3 -0.2 0.5": (
    f"<inertial><pose>{at}</pose><mass>{mass}</mass><inertia>{INERTIA}</inertia></inertial>"
)


def link(name, pose="", mass=1.0, inside=""):
    return f'<link name="{name}">{pose}{inertial_of(mass)}{inside}</link>'


def joint(name, kind, parent, child, inside="<axis><xyz>0 0 1</xyz></axis>"):
    return f'<joint name="{name}" type="{kind}"><parent>{parent}</parent><child>{child}</child>{inside}</joint>'


def sdf(*parts, name="small"):
    return (
        f'<?xml version="1.0"?>\n<sdf version="1.9">\n<model name="{name}">\n{chr(10).join(parts)}\n</model>\n</sdf>\n'
    )


CHAIN = sdf(
    "<pose>0.5 -0.2 0.1 0 0 0.3</pose>",
    link("trunk", '<pose relative_to="hip">0 0 0 0.1 0.2 0</pose>', 3.0),
    link("arm", '<pose relative_to="trunk">0.3 0 0.1 0.5 -0.4 0.2</pose>', 1.2),
    link("slide", "<pose degrees='true'>0.4 0.6 0.2 20 30 -40</pose>", 0.7),
    '<frame name="hip" attached_to="trunk"><pose relative_to="__model__">0.1 0.2 0.3 0.2 0.1 -0.3</pose></frame>',
    '<frame name="tool" attached_to="slide"><pose rotation_format="quat_xyzw">0.1 0 0 0.5 0.5 -0.5 0.5</pose></frame>',
    joint(
        "yaw", "continuous", "world", "hip",
        '<pose relative_to="hip">0.05 0 0 0 0.4 0</pose><axis><xyz expressed_in="__model__">0 0 2</xyz><dynamics><damping>0.4</damping></dynamics></axis>',
    ),
    joint(
        "elbow", "revolute", "trunk", "arm",
        '<axis><xyz expressed_in="tool">0 1 1</xyz><limit><lower>-1</lower><upper>2</upper></limit>'
        "<dynamics><spring_stiffness>3</spring_stiffness><spring_reference>0.2</spring_reference></dynamics></axis>",
    ),
    joint("rail", "prismatic", "arm", "slide", "<pose>0 0.2 0 -0.3 0.6 0.1</pose><axis><xyz>1 0.5 0</xyz><limit><lower>-inf</lower><upper>1e16</upper></limit></axis>"),
)  # fmt: skip


def at(*numbers):
    """A pose of a position and turns about x, then y, then z of the frame outside."""
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", numbers[3:]).as_matrix()
    matrix[:3, 3] = numbers[:3]
    return matrix


def test_frames_are_where_the_format_has_them(written):
    """Poses of bodies and axes of joints at zero, by products of the poses as they are written."""
    record = jm.load(written(CHAIN, "model.sdf"))
    assert record.format == "SDF" and record.loops == () and record.limits == {"elbow": (-1.0, 2.0)}
    assert record.mechanism.gravity.tolist() == [0.0, 0.0, -9.8]
    model = at(0.5, -0.2, 0.1, 0, 0, 0.3)
    hip = model @ at(0.1, 0.2, 0.3, 0.2, 0.1, -0.3)
    trunk = hip @ at(0, 0, 0, 0.1, 0.2, 0)
    arm = trunk @ at(0.3, 0, 0.1, 0.5, -0.4, 0.2)
    slide = model @ at(0.4, 0.6, 0.2, *np.deg2rad([20, 30, -40]))
    rail = slide @ at(0, 0.2, 0, -0.3, 0.6, 0.1)
    tool = slide @ np.array([[0, 0, -1, 0.1], [1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
    tool[:3, :3] = slide[:3, :3] @ Rotation.from_quat([0.5, 0.5, -0.5, 0.5]).as_matrix()
    system = record.build()
    assert system.coordinates == ("yaw", "elbow", "rail")
    np.testing.assert_allclose(system.guess, 0.0, atol=1e-15)

    @jax.jit
    def moving(v):
        motion = system.joints.motion(jnp.zeros(()), jnp.zeros(3), v, system.params)
        poses = [motion.pose(name) for name in ("trunk", "arm", "slide")]
        return poses, motion.angular_velocity("trunk"), motion.angular_velocity("arm"), motion.velocity("slide")

    (poses, yaw, *_), (*_, elbow, _), (*_, along) = map(moving, np.eye(3))
    np.testing.assert_allclose(poses, [trunk, arm, slide], rtol=0, atol=1e-14)
    np.testing.assert_allclose(yaw, model[:3, 2], rtol=0, atol=1e-14)
    np.testing.assert_allclose(elbow, tool[:3, :3] @ np.array([0, 1, 1]) / np.sqrt(2), rtol=0, atol=1e-14)
    np.testing.assert_allclose(along, rail[:3, :3] @ np.array([1, 0.5, 0]) / np.sqrt(1.25), rtol=0, atol=1e-14)


HINGE = "<axis><xyz>0 0 1</xyz></axis>"
BARS = (
    link("crank"), link("coupler", "<pose>0.2 0 0 0 0 0</pose>"), link("rocker", "<pose>0.5 0 0 0 0 0</pose>"),
    joint("A", "continuous", "world", "crank"), joint("B", "continuous", "crank", "coupler"),
    joint("D", "continuous", "world", "rocker"),
)  # fmt: skip
FOURBAR = sdf(
    *BARS, joint("C", "revolute", "coupler", "rocker", f'<pose relative_to="coupler">0.3 0 0 0 0 0</pose>{HINGE}')
)


def test_a_link_with_two_parents_closes_a_loop(written):
    """Rows vanish in the closed pose of the file."""
    record = jm.load(written(FOURBAR, "model.sdf"))
    system = record.build()
    assert record.loops == ("C",) and system.coordinates == ("A", "B", "D") and list(system.rows) == ["C"]
    gap = residual(system)
    np.testing.assert_allclose(gap(np.zeros(3)), 0.0, atol=1e-15)
    assert np.abs(gap(np.array([0.3, 0.0, 0.0]))).max() > 0.1


@pytest.mark.slow
def test_urdf_of_it_has_the_same_masses_and_forces(written):
    """Read, written as URDF and read by the other reader."""
    mechanism = jm.load(written(CHAIN, "model.sdf")).mechanism.without("elbow_spring")
    one = mechanism.build()
    again = jm.load(written(jm.models.to_urdf(mechanism)), gravity=(0.0, 0.0, -9.8)).build()
    q, v = states(one, 1)[0]
    for a, b in zip(inertial(one)(q, v), inertial(again)(q, v), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_roots_move_freely_and_joints_of_all_kinds_are_read(written):
    """A world's gravity; couplings by <mimic>; a link without inertial has that of the format."""
    text = sdf(
        link("trunk"), link("leg"), link("foot"), "<link name='toe'/>", link("claw"),
        joint("hip", "ball", "trunk", "leg", ""), joint("ankle", "universal", "leg", "foot", "<axis><xyz>1 0 0</xyz></axis><axis2><xyz>0 1 0</xyz></axis2>"),
        joint("grip", "prismatic", "foot", "toe"),
        joint("follow", "revolute", "foot", "claw", '<axis><xyz>0 1 0</xyz><mimic joint="grip" axis="axis"><multiplier>3</multiplier><offset>0.5</offset><reference>0.1</reference></mimic></axis>'),
    ).replace("<model", "<world name='w'><gravity>0 0 -1.6</gravity><model").replace("</model>", "</model></world>")  # fmt: skip
    record = jm.load(written(text, "model.sdf"))
    elements = record.mechanism.elements
    kinds = {name: type(elements[name]).__name__ for name in ("hip", "ankle", "grip", "follow")}
    assert kinds == {"hip": "Spherical", "ankle": "Universal", "grip": "Prismatic", "follow": "Revolute"}
    gear = elements["follow_mimic"]
    assert gear.joints == ("grip", "follow") and float(gear.ratio) == 3.0
    np.testing.assert_allclose(float(gear.offset), 0.5 - 0.3)
    assert record.build().coordinates[0] == "trunk.x" and float(record.mechanism.gravity[2]) == -1.6
    assert float(elements["toe"].mass) == 1.0 and "has no <inertial>: 1 kg and 1 kg m²" in str(record)


TURN = lambda axis, frame="__model__": f'<xyz expressed_in="{frame}">{axis}</xyz>'
# Two screws of one thread, in the older and in the newer way, and two axes about one point.
SCREWS = sdf(
    link("nut"), link("bolt", "<pose>0.1 0.2 0.3 0.4 -0.2 0.1</pose>", 0.4), link("wheel", "<pose>0.3 0 0.1 0.2 0.1 0</pose>", 0.6),
    joint("base", "screw", "world", "nut", "<screw_thread_pitch>0.02</screw_thread_pitch><axis><xyz>0 1 2</xyz><dynamics><damping>0.3</damping></dynamics></axis>"),
    joint("drive", "screw", "nut", "bolt", f"<thread_pitch>{-2 * np.pi / 0.02!r}</thread_pitch><axis><xyz>0 0 1</xyz><limit><lower>0</lower><upper>1</upper></limit></axis>"),
    joint("steer", "revolute2", "bolt", "wheel", f"<pose>0 0.1 0 0 0 0</pose><axis>{TURN('0 0 1', 'bolt')}</axis><axis2>{TURN('0 1 0', 'bolt')}<limit><lower>-1</lower><upper>1</upper></limit></axis2>"),
)  # fmt: skip


def by_hand():
    """The mechanism of these screws, from products of poses."""
    S, inertia = jm.spatial, np.array([[0.02, 0.001, -0.002], [0.001, 0.03, 0.0015], [-0.002, 0.0015, 0.04]])
    turn = Rotation.from_euler("xyz", [0.3, -0.2, 0.5]).as_matrix()
    bolt, wheel = at(0.1, 0.2, 0.3, 0.4, -0.2, 0.1), at(0.3, 0, 0.1, 0.2, 0.1, 0)
    body = lambda name, mass: S.Body(name, mass, turn @ inertia @ turn.T, (0.1, 0.02, -0.2))
    here = wheel @ at(0, 0.1, 0, 0, 0, 0)
    local = here[:3, :3].T @ bolt[:3, :3]
    joints = [
        S.Screw("base", "ground", "nut", 0.02, axis=(0, 1, 2)),
        S.Screw("drive", ("nut", bolt), "bolt", 0.02),
        S.Universal(
            "steer", ("bolt", np.linalg.inv(bolt) @ here), ("wheel", at(0, 0.1, 0, 0, 0, 0)), local[:, 2], local[:, 1]
        ),
    ]
    bodies = [body("nut", 1.0), body("bolt", 0.4), body("wheel", 0.6)]
    return S.Mechanism(bodies, joints, forces=[S.JointFriction("friction", "base", 0.3)], gravity=(0, 0, -9.8))


def test_screws_and_two_axes_are_read(written):
    """A thread in m for each turn and right-handed, or in rad/m and left-handed; axes in any frame."""
    record = jm.load(written(SCREWS, "model.sdf"))
    elements, hand = record.mechanism.elements, by_hand().elements
    for name in ("base", "drive"):
        np.testing.assert_allclose(float(elements[name].pitch), 0.02, rtol=1e-15)
    for end in ("axis", "axis_b"):
        np.testing.assert_allclose(getattr(elements["steer"], end), getattr(hand["steer"], end), rtol=0, atol=1e-15)
    for kind in ("screw", "revolute2"):  # the latter's on its second axis
        assert f"limits of the type '{kind}' are not part" in str(record) and record.limits == {}
    bare = jm.load(written(SCREWS.replace("<screw_thread_pitch>0.02</screw_thread_pitch>", ""), "model.sdf"))
    assert float(bare.mechanism.elements["base"].pitch) == 1.0 and "has no <screw_thread_pitch>: 1 m" in str(bare)


@pytest.mark.slow
def test_screws_and_two_axes_have_the_masses_and_forces_of_the_same_by_hand(written):
    one, other = jm.load(written(SCREWS, "model.sdf")).build(), by_hand().build()
    assert one.coordinates == other.coordinates == ("base", "drive", "steer.first", "steer.second")
    for q, v in states(one, 3):
        for a, b in zip(inertial(one)(q, v), inertial(other)(q, v), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


# A sun and a planet on a carrier; the joint of the planet is written from the planet to the carrier.
GEARS = sdf(
    link("carrier"), link("sun"), link("planet", "<pose>0.3 0 0 0 0 0</pose>"),
    joint("arm", "continuous", "world", "carrier"), joint("centre", "continuous", "carrier", "sun"),
    joint("pin", "continuous", "carrier", "planet", "<axis><xyz>0 0 -1</xyz></axis>"),
    joint("teeth", "gearbox", "sun", "planet", "<gearbox_ratio>1.5</gearbox_ratio><gearbox_reference_body>carrier</gearbox_reference_body>"
          "<axis><xyz>0 0 1</xyz></axis><axis2><xyz>0 0 1</xyz></axis2>"),
)  # fmt: skip


def test_a_gearbox_relates_turns_seen_from_its_reference_body(written):
    """θ₂ = −ratio θ₁ of angular velocities in the world, whatever the directions of both joints."""
    record = jm.load(written(GEARS, "model.sdf"))
    assert record.mechanism.elements["teeth"].joints == ("centre", "pin") and record.loops == ()
    system = record.build()

    @jax.jit
    def turns(v):
        motion = system.joints.motion(jnp.zeros(()), jnp.zeros(3), v, system.params)
        row = jax.jvp(residual(system), (jnp.zeros(3),), (v,))[1]
        return jnp.stack([motion.angular_velocity(name)[2] for name in ("carrier", "sun", "planet")]), row

    assert system.coordinates == ("arm", "centre", "pin")
    (carrier, sun, planet), row = turns(jnp.array([0.7, 2.0, float(record.mechanism.elements["teeth"].ratio) * 2.0]))
    np.testing.assert_allclose(planet - carrier, -1.5 * (sun - carrier), rtol=1e-14)
    np.testing.assert_allclose(row, 0.0, atol=1e-14)


ARM = sdf(
    link("lower", "<pose>0.1 0 0 0.2 0 0</pose>"), link("upper", "<pose relative_to='lower'>0 0 0.4 0 0.3 0</pose>", 0.5),
    '<frame name="flange" attached_to="lower"><pose>0 0.05 -0.1 0.3 0.1 0</pose></frame>',
    joint("elbow", "revolute", "lower", "upper", "<axis><xyz>1 0 0</xyz></axis>"), name="arm",
)  # fmt: skip
MOUNT = "0.2 0.1 0.5 0 0 0.4"
INNER = ARM[ARM.index("<model") : ARM.index("</sdf>")]
within = lambda arms: sdf(
    link("trunk"),
    arms,
    joint("yaw", "continuous", "world", "trunk"),
    joint("shoulder", "revolute", "trunk", "left::lower"),
    name="robot",
)
PLACED = within(
    INNER.replace('name="arm"', 'name="left" placement_frame="flange"').replace(
        "<link", f"<pose relative_to='trunk'>{MOUNT}</pose><link", 1
    )
)
include = lambda uri: within(
    f'<include><name>left</name><uri>{uri}</uri><pose relative_to="trunk">{MOUNT}</pose><placement_frame>flange</placement_frame></include>'
)


def test_models_in_models_are_where_their_frames_are_placed(written, tmp_path):
    """The same written inside, in a file beside, and in a folder with a `model.config`; against products of poses."""
    record = jm.load(written(PLACED, "model.sdf"))
    flange = at(0, 0.05, -0.1, 0.3, 0.1, 0)
    lower = at(*map(float, MOUNT.split())) @ np.linalg.inv(flange)
    bodies = {body.name: np.asarray(body.pose) for body in record.mechanism.bodies}
    np.testing.assert_allclose(bodies["left::lower"], lower, rtol=0, atol=1e-15)
    np.testing.assert_allclose(bodies["left::upper"], lower @ at(0, 0, 0.4, 0, 0.3, 0), rtol=0, atol=1e-15)
    assert record.build().coordinates == ("yaw", "shoulder", "left::elbow") and record.name == "robot"
    (tmp_path / "library" / "arm").mkdir(parents=True)
    written(ARM, "arm.sdf")
    written(ARM, "library/arm/arm-1_9.sdf")
    written(
        '<model><sdf version="1.5">none.sdf</sdf><sdf version="1.9">arm-1_9.sdf</sdf></model>',
        "library/arm/model.config",
    )
    for uri, packages in (
        ("arm.sdf", None),
        ("library/arm", None),
        ("model://arm", {"arm": tmp_path / "library" / "arm"}),
    ):
        again = jm.load(written(include(uri), "model.sdf"), packages=packages)
        assert all(
            np.array_equal(a, b)
            for a, b in zip(*map(jax.tree.leaves, (record.mechanism, again.mechanism)), strict=True)
        )
        assert list(again.mechanism.elements) == list(record.mechanism.elements)
    with pytest.raises(ValueError, match="`exclude` must name elements of the file, but names 'lift'"):
        jm.load(written(include("model://arm"), "model.sdf"), exclude=["left", "left::upper", "lift"])
    without = jm.load(written(include("model://arm"), "model.sdf"), exclude=["left"])
    assert [body.name for body in without.mechanism.bodies] == ["trunk"]
    assert [body.name for body in jm.load(written(PLACED, "model.sdf"), exclude=["left::upper"]).mechanism.bodies] == [
        "trunk",
        "left::lower",
    ]


def test_a_static_model_stands_still_with_all_its_links(written):
    """One inside another: what joins it to the rest closes loops to the ground."""
    record = jm.load(
        written(
            PLACED.replace('placement_frame="flange">', 'placement_frame="flange"><static>true</static>'), "model.sdf"
        )
    )
    assert [body.name for body in record.mechanism.bodies] == ["trunk"] and record.loops == ("shoulder",)
    assert "both its links stand still" in str(record)


def test_files_that_grow_by_powers_of_two_are_refused(written):
    """Each includes the next one twice."""
    pair = lambda name: "".join(f"<include><name>{x}</name><uri>{name}.sdf</uri></include>" for x in "ab")
    for i in range(20):
        written(sdf(pair(f"part{i + 1}")), f"part{i}.sdf")
    written(sdf(link("rod")), "part20.sdf")
    with pytest.raises(ValueError, match=r"part\d+\.sdf, line \d+, <include> must be one of 1000 at most"):
        jm.load(written(sdf(pair("part0")), "model.sdf"))


def test_what_a_mechanism_cannot_have_is_told(written):
    """Limits on one side, friction in two axes, bodies without gravity, what is drawn, and what is not known."""
    text = sdf(
        link("trunk", inside="<gravity>false</gravity><visual name='v'/>"),
        link("arm", inside="<colour>red</colour>"),
        link("hand"),
        joint("hip", "revolute", "world", "trunk", "<axis><xyz>0 0 1</xyz><limit><lower>0</lower></limit></axis>"),
        joint(
            "wrist", "universal", "arm", "hand",
            "<axis><xyz>1 0 0</xyz></axis><axis2><xyz>0 1 0</xyz><dynamics><damping>2</damping></dynamics></axis2>",
        ),
        joint("neck", "prismatic", "trunk", "arm", "<axis><xyz>0 0 1</xyz><limit><effort>3</effort></limit></axis>"),
    )  # fmt: skip
    model = jm.load(written(text, "model.sdf"))
    assert model.limits == {} and model.mechanism.forces == ()
    told = str(model)
    for line in (
        "left out      <gravity> of <link name='trunk'>: gravity acts on all bodies alike",
        "left out      <joint name='wrist'>: friction and springs of universal joints have no element",
        "listed        <joint name='hip'>: has a limit on one side only",
        "listed        <visual> of <link name='trunk'>: pictures are not read",
        "listed        <effort> of <limit>: these limits are not part of a mechanism",
        "left out      <colour> on line 5: is not known",
    ):
        assert line in told


def test_axes_of_older_files_are_in_the_frame_of_their_model(written):
    """As where it is named; without it an axis is in the frame of the joint."""
    axis = lambda inside: ARM.replace("<xyz>1 0 0</xyz>", inside)
    texts = (
        axis("<xyz>1 0 0</xyz><use_parent_model_frame>true</use_parent_model_frame>"),
        axis("<xyz expressed_in='__model__'>1 0 0</xyz>"),
        axis("<xyz>1 0 0</xyz><use_parent_model_frame>0</use_parent_model_frame>"),
    )
    one, same, own = (np.asarray(jm.load(written(x, "model.sdf")).mechanism.elements["elbow"].axis) for x in texts)
    lower = Rotation.from_euler("xyz", (0.2, 0, 0)) * Rotation.from_euler("xyz", (0, 0.3, 0))
    np.testing.assert_allclose(one, lower.inv().apply((1, 0, 0)), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_allclose(own, (1, 0, 0), rtol=0, atol=1e-15)


def test_a_joint_to_a_static_model_ends_at_the_ground(written):
    """The frame of the model is that of the world then, not that of its first link."""
    text = sdf(
        f"<model name='wall'><static>true</static><pose>0.5 0 0 0 0 0</pose>{link('brick')}</model>",
        link("rod"), joint("pivot", "revolute", "wall", "rod"),
    )  # fmt: skip
    model = jm.load(written(text, "model.sdf"))
    assert [body.name for body in model.mechanism.bodies] == ["rod"] and model.build().coordinates == ("pivot",)
    assert model.mechanism.elements["pivot"].a.body == "ground"


@pytest.mark.parametrize(
    "files, told",
    [
        ({"arm.sdf": "<model name='arm'/>"}, r"arm\.sdf, line 1, <model name='arm'> must be an <sdf>, but is not"),
        (
            {"arm.sdf": '<sdf version="1.9"/>'},
            r"arm\.sdf, line 1, <sdf> must hold one <model> to be included, but holds 0",
        ),
        ({"arm.sdf/model.config": "<model/>"}, r"<uri> must refer to a model that is there, but refers to 'arm\.sdf'"),
        (
            {"arm.sdf": ARM, "pose": ""},
            r"<include> must hold a <pose> where it holds a <placement_frame>, but does not",
        ),
    ],
    ids=["no sdf", "no model", "no file", "no pose"],
)
def test_models_that_cannot_be_included_are_refused(written, tmp_path, files, told):
    text = include("arm.sdf")
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(content, name)
    if "pose" in files:
        text = text.replace(f'<pose relative_to="trunk">{MOUNT}</pose>', "")
    with pytest.raises(ValueError, match=told):
        jm.load(written(text, "model.sdf"))


@pytest.mark.parametrize("limit, count", [("MAX_ELEMENTS", 40), ("MAX_DEPTH", 5)])
def test_what_grows_too_large_by_what_it_includes_is_refused(written, monkeypatch, limit, count):
    """Each file by itself is read."""
    arm = written(ARM, "arm.sdf")
    monkeypatch.setattr(f"jaxmb.models.sdf_files.{limit}", count)
    assert jm.load(arm).name == "arm"
    with pytest.raises(ValueError, match=r"must be one of \d+ at most, nested in \d+ others at most, but with what is"):
        jm.load(written(include("arm.sdf"), "model.sdf"))


RIGHT = sdf(link("rod"), joint("pivot", "continuous", "world", "rod"))
changed = lambda old, new: RIGHT.replace(old, new, 1)
included = lambda uri: changed("<link", f"<include><uri>{uri}</uri></include><link")
screwed = lambda tag, pitch: changed("continuous", "screw").replace("<axis>", f"<{tag}>{pitch}</{tag}><axis>")
HOSTILE = {
    "truncated": (RIGHT[:-20], r"must be XML, but is not"),
    "an entity": (RIGHT.replace("<sdf", '<!DOCTYPE sdf [<!ENTITY e SYSTEM "file:///etc/passwd">]><sdf'), r"must not declare document types"),
    "too deep": (changed("<link", "<a>" * 200 + "</a>" * 200 + "<link"), r"must not be nested in more than"),
    "no version": (changed(' version="1.9"', ""), r"<sdf> must have the attribute `version`"),
    "an old version": (changed("1.9", "1.4"), r"must have the `version` 1\.5 or a later one, but has '1\.4'"),
    "no model": ('<sdf version="1.9"/>', r"must hold one <model>, but holds 0"),
    "two models": (changed("</model>", "</model><model name='b'/>"), r"must hold one <model>, but holds 2"),
    "an include of nothing": (included("none.sdf"), r"line 4, <uri> must refer to a model that is there, but refers to 'none.sdf'"),
    "an include of an unknown package": (included("model://a"), r"<uri> must refer to a model that is there, .*`packages="),
    "an include of a folder": (included("."), r"<uri> must refer to a model that is there, but refers to '\.'"),
    "an include of itself": (included("model.sdf"), r"<include> must not include the file it is included by"),
    "an include elsewhere": (included("../other.sdf"), r"<uri> must refer to files in"),
    "an absolute include": (included("file:///etc/passwd"), r"<uri> must refer to files in"),
    "an include behind a link": (included("outside/passwd"), r"<uri> must refer to files in"),
    "an include that merges": (included("arm.sdf").replace("<include>", "<include merge='true'>"), r"<include> must not `merge` a model"),
    "an include without a file": (changed("<link", "<include/><link"), r"<include> must hold a <uri>"),
    "an empty model inside": (changed("<link", "<model name='in'/><link").replace("<child>rod", "<child>in"), r"<model name='in'> must hold a <link>"),
    "models of one name": (changed("<link", "<model name='in'/><model name='in'/><link"), r"<model name='in'> must have a name of its own"),
    "no such link in a model": (changed("<child>rod", "<child>in::rod"), r"<child> must name a link, .* but names 'in::rod'"),
    "a placement outside": (
        changed("<link", "<model name='in' placement_frame='a'><frame name='a'><pose relative_to='world'/></frame>" + link("b") + "</model><link").replace("<child>rod", "<child>in"),
        r"<frame name='a'> must have a pose in <model name='in'>",
    ),
    "a placement by nothing": (changed("<link", "<model name='in' placement_frame='a'>" + link("b") + "</model><link"), r"<model name='in'> must name a link, .* 'a'"),
    "a circle of placements": (
        changed("<link", "<model name='in' placement_frame='a'><frame name='a'><pose relative_to='b'/></frame><frame name='b'><pose relative_to='a'/></frame>" + link("c") + "</model><link"),
        r"frames 'in::a' and 'in::b' refer to each other in a circle",
    ),
    "a child that stands still": (changed("<child>rod", "<child>world").replace("<parent>world", "<parent>rod"), r"must not have what stands still as its <child>"),
    "no second axis": (changed("continuous", "revolute2"), r"<joint name='pivot'> must hold a <axis2>"),
    "a second axis of zeros": (changed("continuous", "revolute2").replace("</axis>", "</axis><axis2><xyz>0 0 0</xyz></axis2>"), r"<axis2> must have a direction"),
    "two axes that are not across": (changed("continuous", "revolute2").replace("</axis>", "</axis><axis2><xyz>0 1 1</xyz></axis2>"), r"at a right angle to <axis>, but is not; two joints of type 'revolute'"),
    "a pitch that is NaN": (screwed("screw_thread_pitch", "nan"), r"<screw_thread_pitch> must have a finite number inside, but has 'nan'"),
    "a pitch of zero": (screwed("screw_thread_pitch", "0"), r"<screw_thread_pitch> of .* must not be zero"),
    "an older pitch of zero": (screwed("thread_pitch", "0.0"), r"<thread_pitch> of .* must not be zero"),
    "a screw without an axis": (changed("continuous", "screw").replace(HINGE, ""), r"must hold a <axis>"),
    "a gearbox without a body": (GEARS.replace("<gearbox_reference_body>carrier</gearbox_reference_body>", ""), r"<joint name='teeth'> must hold a <gearbox_reference_body>"),
    "a gearbox on nothing": (GEARS.replace("body>carrier<", "body>frame<"), r"<gearbox_reference_body> must name a link, .* names 'frame'"),
    "a gearbox on another body": (GEARS.replace("body>carrier<", "body>sun<"), r"<axis> of .*'teeth'> must be that of a joint by which 'sun' turns on 'sun'"),
    "a gearbox about another axis": (GEARS.replace("<axis2><xyz>0 0 1", "<axis2><xyz>0 1 0"), r"<axis2> of .* must be that of a joint by which 'planet' turns on 'carrier'"),
    "a gearbox without a second axis": (GEARS.replace("<axis2><xyz>0 0 1</xyz></axis2>", ""), r"'teeth'> must hold a <axis2>"),
    "a gearbox of zero": (GEARS.replace("1.5", "0"), r"must have a <gearbox_ratio> other than zero"),
    "a gearbox of NaN": (GEARS.replace("1.5", "nan"), r"<gearbox_ratio> must have a finite number"),
    "a gearbox on one link": (GEARS.replace('gearbox"><parent>sun', 'gearbox"><parent>planet'), r"'teeth'> must relate two links"),
    "no link": (sdf(), r"must hold a <link>"),
    "no moving joint": (sdf(link("a"), joint("j", "fixed", "world", "a", "")), r"must have a joint that moves"),
    "a static model": (changed("<link", "<static>true</static><link").replace('"continuous"', '"fixed"'), r"must have a joint that moves"),
    "links of one name": (changed("</link>", "</link>\n" + link("rod")), r"line 5, <link name='rod'> must have a name of its own.*line 4"),
    "a link and a joint of one name": (RIGHT.replace("pivot", "rod"), r"<joint name='rod'> must have a name of its own"),
    "the name of the world": (RIGHT.replace('name="rod"', 'name="world"'), r"must have another name than 'world'"),
    "no such link": (changed("<child>rod", "<child>road"), r"<child> must name a link, a joint, a frame or a model out of .*names 'road'"),
    "no child": (changed("<child>rod</child>", ""), r"must hold a <child>"),
    "an unknown joint": (changed("continuous", "rope"), r"must have a `type` out of .* and 'gearbox', but has 'rope'"),
    "a joint on one link": (changed("<parent>world", "<parent>rod"), r"must join two links|must move"),
    "no axis": (changed(HINGE, ""), r"must hold a <axis>"),
    "a zero axis": (changed("<xyz>0 0 1", "<xyz>0 0 0"), r"<axis> must have a direction as <xyz>"),
    "a short axis": (changed("<xyz>0 0 1", "<xyz>0 1"), r"<xyz> must have 3 finite numbers inside, but has '0 1'"),
    "an axis in nothing": (changed("<xyz>", "<xyz expressed_in='x'>"), r"<xyz> must name a link, a joint, a frame or a model out of .* 'x'"),
    "frames in a circle": (
        changed("<link", "<frame name='a'><pose relative_to='b'>0 0 0 0 0 0</pose></frame><frame name='b'><pose relative_to='a'>0 0 0 0 0 0</pose></frame><link").replace("<xyz>", "<xyz expressed_in='a'>"),
        r"frames 'a' and 'b' refer to each other in a circle",
    ),
    "attached in a circle": (
        changed("<link", "<frame name='a' attached_to='b'/><frame name='b' attached_to='a'/><link").replace("<child>rod", "<child>a"),
        r"'a' and 'b' (are attached|refer) to each other in a circle",
    ),
    "a short pose": (changed("0.1 0.02 -0.2 0.3 -0.2 0.5", "0.1 0.02 -0.2"), r"<pose> must have 6 finite numbers inside"),
    "a long quaternion": (changed("<pose>0.1 0.02 -0.2 0.3 -0.2 0.5", "<pose rotation_format='quat_xyzw'>0 0 0 0 0 0 2"), r"must have a quaternion of unit length, but its length is 2"),
    "an unknown rotation": (changed("<pose>", "<pose rotation_format='axis'>"), r"must have 'euler_rpy' or 'quat_xyzw' as `rotation_format`"),
    "NaN": (changed("<mass>1.0", "<mass>nan"), r"<mass> must have a finite number inside, but has 'nan'"),
    "a negative mass": (changed("<mass>1.0", "<mass>-1"), r"must have a mass that is finite and not negative, but has -1"),
    "the triangle inequality": (changed("<izz>0.04", "<izz>0.09"), r"is less than 0\.09.* by 0\.04"),
    "an inertia to be found": (changed("<inertial>", "<inertial auto='true'>"), r"must hold numbers, but is to follow from shapes"),
    "negative damping": (changed("</axis>", "<dynamics><damping>-1</damping></dynamics></axis>"), r"must not have a negative <damping>, but has -1"),
    "limits the wrong way": (changed("continuous", "revolute").replace("</axis>", "<limit><lower>1</lower><upper>-1</upper></limit></axis>"), r"must have <lower> below <upper>, but has 1 and -1"),
    "mimic of nobody": (changed("</axis>", "<mimic joint='no'/></axis>"), r"must name another joint, but names 'no'"),
    "axes that are not across": (changed("continuous", "universal").replace("</axis>", "</axis><axis2><xyz>0 1 1</xyz></axis2>"), r"<axis2> of .* must be at a right angle"),
    "mimic of a ball": (
        changed("<link", link("ball") + joint("k", "ball", "rod", "ball", "") + "<link").replace("</axis>", "<mimic joint='k'/></axis>"),
        r"<mimic> of .*'pivot'> must relate joints with one coordinate by a <multiplier> other than zero",
    ),
    "people": (changed("<model", "<actor name='a'/><model"), r"line 3, <actor name='a'> cannot be read: scripted motion has no element"),
    "the name of the ground": (RIGHT.replace('"rod"', '"ground"').replace(">rod<", ">ground<"), r"<link name='ground'> must not be called 'ground'"),
    "no truth": (changed("<link", "<static>maybe</static><link"), r"<static> must hold 'true' or 'false', but holds 'maybe'"),
    "a mesh elsewhere": (changed("</link>", "<visual name='v'><geometry><mesh><uri>../m.stl</uri></mesh></geometry></visual></link>"), r"<uri> must refer to files in"),
    "an absolute mesh": (changed("</link>", "<collision name='v'><geometry><mesh><uri>file:///etc/passwd</uri></mesh></geometry></collision></link>"), r"<uri> must refer to files in"),
    "a cycle": (sdf(link("a"), link("b"), joint("x", "fixed", "b", "a", ""), joint("y", "fixed", "a", "b", "")), r"<joint name='y'> must tie two bodies, but both its links belong to 'b'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_refused_where_it_stands(written, tmp_path, name):
    text, reason = HOSTILE[name]
    (tmp_path / "outside").symlink_to("/etc")
    with pytest.raises(ValueError, match=reason) as refused:
        jm.load(written(text, "model.sdf"))
    assert "model.sdf" in str(refused.value) or "Model 'small'" in str(refused.value)


def test_right_models_are_read_beside_hostile_ones(written):
    assert list(jm.load(written(RIGHT, "model.sdf")).build().coordinates) == ["pivot"]
