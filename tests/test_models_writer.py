"""MJCF that is written is what the mechanism says, by our reader and by MuJoCo itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from models import inertial, of_mujoco, residual, states, written

import jaxmb as jm
import jaxmb.spatial as S

mujoco = pytest.importorskip("mujoco")

assert written

SKEW = [[0.05, 0.01, -0.02], [0.01, 0.06, 0.005], [-0.02, 0.005, 0.07]]
PLACE = S.frame((0.1, 0.2, 0.3), (0.5, 0.1, 0.7, 0.2))


def body(name, mass=1.0, **options):
    return S.Body(name, mass, SKEW, com=(0.1, 0.02, -0.05), points={"p": PLACE, "q": (0.3, 0.0, 0.1)}, **options)


def arm():
    """A hinge, a slide that is passed from B to A, a hand that is fixed, and what acts in them; a flat disk."""
    bodies = [body("one"), body("two", 0.7), S.Body("disk", shape=S.Disk(0.3), mass=0.5)]
    joints = [
        S.Revolute("hinge", "ground.post", "one", axis=(0.3, 1.0, 0.2), axis_b=(1.0, 0.1, 0.0)),
        S.Prismatic("slide", "two.p", "one.p", axis=(0.2, 0.5, 1.0)),
        S.Fixed("flange", "two.q", ("disk", PLACE)),
    ]
    forces = [
        S.JointSpring("coil", "hinge", 5.0, 0.2, rest=0.7),
        S.JointFriction("rub", "slide", viscous=0.3),
        S.JointInertia("rotor", "hinge", 0.3),
        S.JointInertia("screw", "slide", 2.0),
        S.SpringDamper("band", ("ground", (0.2, 1.0, 0.0)), "disk.rim", 30.0, 0.5, 0.4),
    ]
    actuators = [S.Motor("motor", "hinge", 1.5), S.Thruster("jet", "two.q", (0.4, 0.9, -0.2))]
    options = dict(gravity=(0.3, -0.2, -9.7), points={"post": (0.1, 0.2, 0.0)})
    return S.Mechanism(bodies, joints, forces=forces, actuators=actuators, **options)


def machine():
    """A trunk that moves freely, with legs on balls and hinges whose feet are tied by a ball, a weld and a gear."""
    bodies = [
        body("trunk", 3.0, position=(0.0, 0.1, 1.0)),
        body("thigh"),
        body("shank"),
        body("left"),
        body("right", 0.4),
    ]
    joints = [
        S.Spherical("hip", "trunk.p", "thigh.q"),
        S.Revolute("knee", "thigh.p", "shank", axis=(0.0, 1.0, 0.3)),
        S.Revolute("swing", "trunk.q", "left.p"),
        S.Prismatic("reach", "left.q", "right.p", axis=(1.0, 0.0, 0.2)),
        S.Spherical("tie", "shank.q", "left.q"),
        S.Fixed("glue", "shank", "right.q"),
        S.Gear("train", ("knee", "swing"), -1.7, 0.2),
        S.Distance("rod", "trunk.q", "shank.p", 0.9),
        S.Distance("stay", ("ground", (0.5, 0.1, 0.3)), "right.p", 1.3),
    ]
    forces = [S.JointFriction("rub", "hip", viscous=0.3), S.JointInertia("rotor", "hip", 0.02)]
    return S.Mechanism(bodies, joints, forces=forces, gravity=(0.0, 0.0, -9.81)), ("tie", "glue")


def places(names, others):
    """Where the entries of one system stand in another."""
    return np.array([others.index(name) for name in names])


def agree(mechanism, cut, count):
    """Masses and forces at random states are those of MuJoCo, whose bodies are in another order."""
    text, one = jm.models.to_mjcf(mechanism, cut=cut), mechanism.build(cut=cut)
    model = mujoco.MjModel.from_xml_string(text)
    names = {"q": [], "v": []}
    for i in range(model.njnt):
        joint = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, i).removesuffix("_free")
        for key, own in (("q", one.coordinates), ("v", one.velocities)):
            names[key] += [name for name in own if name.partition(".")[0] == joint]
    q_places, v_places = places(names["q"], one.coordinates), places(names["v"], one.velocities)
    evaluate = inertial(one)
    for q, v in states(one, count):
        mass, force = evaluate(q, v)
        wanted, bias = of_mujoco(model, q[q_places], v[v_places])
        np.testing.assert_allclose(mass[np.ix_(v_places, v_places)], wanted, rtol=0, atol=1e-11)
        np.testing.assert_allclose(force[v_places], bias, rtol=0, atol=1e-10)


def returns(written, mechanism, cut):
    """Masses, forces, inputs and rows of what is written and read again are the same."""
    text, one = jm.models.to_mjcf(mechanism, cut=cut), mechanism.build(cut=cut)
    other = jm.load(written(text, "again.xml")).build()
    assert sorted(one.coordinates) == sorted(other.coordinates) and sorted(one.rows) == sorted(other.rows)
    q_places, v_places = places(other.coordinates, one.coordinates), places(other.velocities, one.velocities)
    q, v = (jnp.asarray(x) for x in states(one, 1)[0])
    there = q[q_places], v[v_places]
    (mass, force), (new_mass, new_force) = inertial(one)(q, v), inertial(other)(*there)
    np.testing.assert_allclose(new_mass, mass[np.ix_(v_places, v_places)], rtol=0, atol=1e-12)
    np.testing.assert_allclose(new_force, force[v_places], rtol=0, atol=1e-11)
    if mechanism.actuators:
        inputs, new_inputs = (s.actuation(jnp.zeros(()), x) for s, x in ((one, q), (other, there[0])))
        np.testing.assert_allclose(new_inputs, inputs[v_places], rtol=0, atol=1e-12)
    mine, theirs = (residual(s)(x) if s.m else np.zeros(0) for s, x in ((one, q), (other, there[0])))
    for name, rows in one.rows.items():
        np.testing.assert_allclose(theirs[other.rows[name]], mine[rows], rtol=0, atol=1e-12)


def test_mujoco_reads_the_numbers_of_an_arm():
    """Masses, constants of the joints, sites and motors; a flat disk is not refused."""
    text = jm.models.to_mjcf(arm(), name="arm")
    model = mujoco.MjModel.from_xml_string(text)
    joint = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name) for name in ("hinge", "slide")]
    v = model.jnt_dofadr[joint]
    np.testing.assert_allclose(model.dof_armature[v], (0.3, 2.0))
    np.testing.assert_allclose(model.dof_damping[v], (0.2, 0.3))
    np.testing.assert_allclose(np.ravel(model.jnt_stiffness[joint[0]])[0], 5.0)
    np.testing.assert_allclose(model.qpos_spring[model.jnt_qposadr[joint[0]]], 0.7)
    np.testing.assert_allclose(sorted(model.body_mass[1:]), (0.5, 0.7, 1.0))
    assert model.nsite == 11 and model.nu == 2 and '<motor name="jet" site="jet_at" gear="0.4 0.9 -0.2 0 0 0"/>' in text


def test_bodies_without_mass_are_carried_by_others():
    """MuJoCo asks for a mass only of what a joint moves."""
    mechanism = arm().joined(
        S.Mechanism([S.Body("label", 0.0, (0.0, 0.0, 0.0))]), joints=[S.Fixed("glue", "one.q", "label")]
    )
    model = mujoco.MjModel.from_xml_string(jm.models.to_mjcf(mechanism))
    label, one = (mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name) for name in ("label", "one"))
    assert model.body_mass[label] == 0.0 and model.body_parentid[label] == one and model.nbody == 5


@pytest.mark.slow
def test_an_arm_moves_alike():
    agree(arm(), (), 3)


@pytest.mark.slow
def test_an_arm_is_read_again(written):
    returns(written, arm(), ())


@pytest.mark.slow
def test_a_machine_with_loops_is_written(written):
    mechanism, cut = machine()
    agree(mechanism, cut, 3)
    returns(written, mechanism, cut)


def test_keyframes_are_read_again_as_they_were(written):
    """Coordinates of all kinds of joints, in the file's order; those that are not named are as the file draws them."""
    mechanism, cut = machine()
    turned = dict(zip(("hip.qw", "hip.qx", "hip.qy", "hip.qz"), (0.8, 0.0, 0.6, 0.0), strict=True))
    raised = {"trunk.z": 1.5, "knee": 0.4, "swing": -0.3, "reach": 0.2, **turned}
    text = jm.models.to_mjcf(mechanism, cut=cut, poses={"drawn": {}, "raised": raised})
    poses = jm.load(written(text, "again.xml")).poses
    drawn = dict.fromkeys(poses["drawn"], 0.0) | {"trunk.y": 0.1, "trunk.z": 1.0, "trunk.qw": 1.0, "hip.qw": 1.0}
    assert poses == {"drawn": drawn, "raised": drawn | raised}
    assert set(drawn) == set(mechanism.build(cut=cut).coordinates)
    with pytest.raises(
        ValueError, match=r"Argument `poses` must name coordinates of the tree, .*'bent' names 'tie\.qw'"
    ):
        jm.models.to_mjcf(mechanism, cut=cut, poses={"bent": {"tie.qw": 1.0}})


@pytest.mark.parametrize(
    "change, names",
    [
        (lambda m: m.joined(joints=[S.Revolute("loop", "ground", "two.q")]), "'loop'"),
        (lambda m: m.joined(drivers=[S.Driver("drive", "hinge", lambda t, p: t)]), "'drive'"),
        (lambda m: m.joined(forces=[S.JointSpring("more", "hinge", 1.0)]), "'coil' and 'more'"),
        (lambda m: m.joined(forces=[S.JointStop("stop", "hinge", 0.0, stiffness=1.0)]), "'stop'"),
        (lambda m: m.joined(forces=[S.JointFriction("dry", "hinge", coulomb=1.0, speed=0.1)]), "'dry'"),
        (lambda m: m.joined(actuators=[S.Thruster("push", "ground", (1.0, 0.0, 0.0))]), "'push'"),
    ],
)
def test_what_mjcf_has_no_words_for_is_refused_by_name(change, names):
    with pytest.raises(ValueError, match=f"MJCF cannot express {names}; write the mechanism `without` them"):
        changed = change(arm())
        jm.models.to_mjcf(changed, cut=[name for name in ("loop",) if name in changed.elements])


def test_bodies_that_mjcf_cannot_move_are_refused_by_name():
    """Such as what lies between two joints of one body, as read."""
    with pytest.raises(ValueError, match="must have a mass and inertia to be written as MJCF, but 'one' has none"):
        jm.models.to_mjcf(arm().replace("one", mass=0.0))
