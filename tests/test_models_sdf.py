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


RIGHT = sdf(link("rod"), joint("pivot", "continuous", "world", "rod"))
changed = lambda old, new: RIGHT.replace(old, new, 1)
HOSTILE = {
    "truncated": (RIGHT[:-20], r"must be XML, but is not"),
    "an entity": (RIGHT.replace("<sdf", '<!DOCTYPE sdf [<!ENTITY e SYSTEM "file:///etc/passwd">]><sdf'), r"must not declare document types"),
    "too deep": (changed("<link", "<a>" * 200 + "</a>" * 200 + "<link"), r"must not be nested in more than"),
    "no version": (changed(' version="1.9"', ""), r"<sdf> must have the attribute `version`"),
    "an old version": (changed("1.9", "1.4"), r"must have the `version` 1\.5 or a later one, but has '1\.4'"),
    "no model": ('<sdf version="1.9"/>', r"must hold one <model>, but holds 0"),
    "two models": (changed("</model>", "</model><model name='b'/>"), r"must hold one <model>, but holds 2"),
    "an include": (changed("<link", "<include><uri>model://a</uri></include><link"), r"<include> cannot be read: models in models"),
    "a model inside": (changed("<link", "<model name='in'/><link"), r"line 4, <model name='in'> cannot be read: models in models"),
    "no link": (sdf(), r"must hold a <link>"),
    "no moving joint": (sdf(link("a"), joint("j", "fixed", "world", "a", "")), r"must have a joint that moves"),
    "a static model": (changed("<link", "<static>true</static><link").replace('"continuous"', '"fixed"'), r"must have a joint that moves"),
    "links of one name": (changed("</link>", "</link>\n" + link("rod")), r"line 5, <link name='rod'> must have a name of its own.*line 4"),
    "a link and a joint of one name": (RIGHT.replace("pivot", "rod"), r"<joint name='rod'> must have a name of its own"),
    "the name of the world": (RIGHT.replace('name="rod"', 'name="world"'), r"must have another name than 'world'"),
    "no such link": (changed("<child>rod", "<child>road"), r"<child> must name a link, a joint or a frame out of .*names 'road'"),
    "no child": (changed("<child>rod</child>", ""), r"must hold a <child>"),
    "an unknown joint": (changed("continuous", "screw"), r"must have a `type` out of .*, but has 'screw'"),
    "a joint on one link": (changed("<parent>world", "<parent>rod"), r"must join two links|must move"),
    "no axis": (changed(HINGE, ""), r"must hold a <axis>"),
    "a zero axis": (changed("<xyz>0 0 1", "<xyz>0 0 0"), r"<axis> must have a direction as <xyz>"),
    "a short axis": (changed("<xyz>0 0 1", "<xyz>0 1"), r"<xyz> must have 3 finite numbers inside, but has '0 1'"),
    "an axis in nothing": (changed("<xyz>", "<xyz expressed_in='x'>"), r"<xyz> must name a link, a joint or a frame out of .* 'x'"),
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
    "no truth": (changed("<link", "<static>maybe</static><link"), r"<static> must hold 'true' or 'false', but holds 'maybe'"),
    "a mesh elsewhere": (changed("</link>", "<visual name='v'><geometry><mesh><uri>../m.stl</uri></mesh></geometry></visual></link>"), r"<uri> must refer to files in"),
    "an absolute mesh": (changed("</link>", "<collision name='v'><geometry><mesh><uri>file:///etc/passwd</uri></mesh></geometry></collision></link>"), r"<uri> must refer to files in"),
    "a cycle": (sdf(link("a"), link("b"), joint("x", "fixed", "b", "a", ""), joint("y", "fixed", "a", "b", "")), r"<joint name='y'> must tie two bodies, but both its links belong to 'b'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_is_refused_where_it_stands(written, name):
    text, reason = HOSTILE[name]
    with pytest.raises(ValueError, match=reason) as refused:
        jm.load(written(text, "model.sdf"))
    assert "model.sdf" in str(refused.value) or "Model 'small'" in str(refused.value)


def test_right_models_are_read_beside_hostile_ones(written):
    assert list(jm.load(written(RIGHT, "model.sdf")).build().coordinates) == ["pivot"]
