"""Small models of robots that tests write, and what MuJoCo says of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.system import position_residual


@pytest.fixture
def written(tmp_path):
    """Writes a model and tells its path."""

    def write(text, name="model.urdf"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def link(name, mass=1.0, at="0.1 0.02 -0.2", rpy="0.3 -0.2 0.5", moments="0.02 0.03 0.04", inside=""):
    """A link with an inertial."""
    xx, yy, zz = moments.split()
    return (
        f'<link name="{name}"><inertial><origin xyz="{at}" rpy="{rpy}"/><mass value="{mass}"/>'
        f'<inertia ixx="{xx}" ixy="0.001" ixz="-0.002" iyy="{yy}" iyz="0.0015" izz="{zz}"/></inertial>{inside}</link>'
    )


def joint(name, kind, parent, child, at="0 0 0", rpy="0 0 0", axis="0 0 1", inside=""):
    """A joint."""
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{at}" rpy="{rpy}"/><axis xyz="{axis}"/>{inside}</joint>'
    )


def robot(*parts):
    """A URDF."""
    return f'<?xml version="1.0"?>\n<robot name="small">\n{chr(10).join(parts)}\n</robot>\n'


# A tree with a joint of each kind, a camera and a tool that are fixed, and a base that is drawn only.
TREE = robot(
    '<link name="base"/>',
    link("trunk", 3.0),
    link("arm", 1.2, "0.0 0.1 -0.1"),
    link("slide", 0.7),
    link("tool", 0.3, "0.02 0.0 0.05"),
    '<link name="camera"/>',
    link("tip", 0.2),
    joint("yaw", "continuous", "base", "trunk", "0.1 0.2 0.3", "0.2 0.1 -0.3", "0 0 2", '<dynamics damping="0.4"/>'),
    joint("elbow", "revolute", "trunk", "arm", "0.3 0 0.1", "0.5 -0.4 0.2", "0 1 1", '<limit lower="-1" upper="2"/>'),
    joint("rail", "prismatic", "arm", "slide", "0 0.2 0", "-0.3 0.6 0.1", "1 0.5 0"),
    joint("flange", "fixed", "slide", "tool", "0.05 0 0.02", "0.1 0.7 -0.2"),
    joint("mount", "fixed", "trunk", "camera", "0 0 0.4", "0 0.3 0"),
    joint("wrist", "revolute", "tool", "tip", "0 0.1 0", "1.2 0 0.4", "-1 0 0.3"),
)

# Four bars, closed in each of the dialects.
BARS = (
    '<link name="base"/>',
    link("crank", 1.0, "0.1 0 0", "0 0 0"),
    link("coupler", 1.5, "0.3 0 0", "0 0 0"),
    link("rocker", 1.2, "0.2 0 0", "0 0 0"),
    joint("A", "continuous", "base", "crank", axis="0 0 1"),
    joint("B", "continuous", "crank", "coupler", "0.2 0 0", axis="0 0 1"),
    joint("D", "continuous", "base", "rocker", "0.5 0 0", axis="0 0 1"),
)
DIALECTS = {
    "loop_joint": '<loop_joint name="C" type="continuous"><axis xyz="0 0 1"/><link1 link="coupler" xyz="0.6 0 0" rpy="0 0 0"/>'
    '<link2 link="rocker" xyz="0.4 0 0" rpy="0 0 0"/></loop_joint>',
    "loop": '<loop name="C" type="revolute"><predecessor link="coupler"><origin xyz="0.6 0 0"/></predecessor>'
    '<successor link="rocker"><origin xyz="0.4 0 0"/></successor><axis xyz="0 0 1"/></loop>',
    "constraint": '<constraint name="C" type="revolute"><parent link="coupler"/><parent_origin xyz="0.6 0 0"/><parent_axis xyz="0 0 1"/>'
    '<child link="rocker"/><child_origin xyz="0.4 0 0"/><child_axis xyz="0 0 1"/></constraint>',
}
FOURBARS = {name: robot(*BARS, closing) for name, closing in DIALECTS.items()}


def inertial(system):
    """M and the force without v̇ as a function of q and v."""

    @jax.jit
    def evaluate(q, v):
        t = jnp.zeros(())
        force = system.intrinsic_force(t, q, v)
        applied = system.applied_force(t, q, v)
        return system.mass(t, q), force if applied is None else force + applied

    return evaluate


def residual(system):
    """φ as a function of q."""
    return jax.jit(lambda q: position_residual(system, jnp.zeros(()), q))


def states(system, count, seed=0):
    """Random coordinates, quaternions among them of unit length, and velocities."""
    rng = np.random.default_rng(seed)
    normal = (lambda q: q) if system.rate is None else jax.jit(lambda q: system.normalise(q))
    return [(normal(rng.normal(size=system.nq)), jnp.array(rng.normal(size=system.nv))) for _ in range(count)]


def of_mujoco(model, qpos, qvel):
    """M, and the force without v̇ and without constraints, of a compiled model."""
    import mujoco

    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    for i, unit in enumerate(np.eye(model.nv)):
        mujoco.mj_mulM(model, data, mass[i], unit)
    return mass, data.qfrc_passive - data.qfrc_bias
