"""What is read of robots from elsewhere: `python benchmarks/read_models.py FOLDER`.

FOLDER holds a folder for each model, with a URDF or an MJCF in it. Of each: bodies, velocities and rows of the build with the tree of the file, rank and
freedoms at the first keyframe, or where the file draws it, how far loops are open there, and the largest differences of mass matrix and bias force
from MuJoCo at random states, relative to the largest entry. Springs, dampers and friction are left out of the latter.
"""

import argparse
import dataclasses
import pathlib

import common
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxmb as jm
from jaxmb.models.document import document
from jaxmb.models.folder import Folder
from jaxmb.models.graph import ModelGraph
from jaxmb.models.mjcf import compiled_model
from jaxmb.models.mjcf_text import xml_text

# What MuJoCo's reader of URDF does not take, or takes from files that may not be there.
BESIDE = ("visual", "collision", "transmission", "loop_joint", "loop", "coupling", "gazebo")
STATES = 5
KINDS = (".urdf", ".xml")


def of_mujoco(path, excluded):
    """MuJoCo's own model; of a URDF the tree. None where MuJoCo refuses it."""
    root = document(path.read_bytes(), path)
    if root.tag == "mujoco":
        return compiled_model(mujoco, root, Folder.of(path), excluded, ModelGraph("", np.zeros(3)))[0]
    bare = lambda e: dataclasses.replace(e, children=[bare(x) for x in e.children if x.tag not in BESIDE])
    try:
        return mujoco.MjModel.from_xml_string(xml_text(bare(root)))
    except ValueError:
        return None


def difference(model, theirs):
    """The largest relative differences of M and of the bias force at random states."""
    keep = [f.name for f in model.mechanism.forces if not isinstance(f, jm.spatial.JointInertia)]
    loops = list(model.loops) + [j.name for j in model.mechanism.joints if not hasattr(j, "pair")]
    system = model.mechanism.without(*keep, *loops, *(a.name for a in model.mechanism.actuators)).build()
    terms = jax.jit(lambda q, v: (system.mass(jnp.zeros(()), q), system.intrinsic_force(jnp.zeros(()), q, v)))
    names = [mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(theirs.njnt)]
    order = slice(None)
    if model.format == "URDF":
        order = np.array([system.coordinates.index(name) for name in names])
    rng, data, worst = np.random.default_rng(0), mujoco.MjData(theirs), np.zeros(2)
    gravity = model.mechanism.gravity
    theirs.opt.gravity[:] = gravity
    for _ in range(STATES):
        q = jnp.asarray(rng.normal(size=system.nq))
        q = np.asarray(q if system.rate is None else system.normalise(q))
        v = rng.normal(size=system.nv)
        data.qpos[:], data.qvel[:] = q[order], v[order]
        mujoco.mj_forward(theirs, data)
        mass = np.zeros((theirs.nv, theirs.nv))
        for i, unit in enumerate(np.eye(theirs.nv)):
            mujoco.mj_mulM(theirs, data, mass[i], unit)
        ours, force = (np.asarray(x) for x in terms(q, v))
        ours, force = ours[order][:, order], force[order]
        pairs = ((ours, mass), (force, -data.qfrc_bias))
        worst = np.maximum(worst, [np.abs(a - b).max() / np.abs(b).max() for a, b in pairs])
    return worst


def row(folder, excluded):
    """The figures of one model."""
    path = next(p for p in sorted(folder.iterdir()) if p.suffix in KINDS)
    model = jm.load(path, exclude=excluded, repair=True)
    pose = next(iter(model.poses), None)
    report = jm.models.inspect(model, pose)
    repaired = sum("inertia changed" in note.text for note in model.notes)
    # With other inertias there is nothing to compare.
    theirs = None if repaired else of_mujoco(path, excluded)
    mass, bias = (None, None) if theirs is None else map(float, difference(model, theirs))
    found = report.diagnosis
    return {
        "model": folder.name,
        "bodies": len(model.mechanism.bodies),
        "velocities": model.build().nv,
        "rows": sum(found.rows.values()) if found else model.build().m,
        "rank": found.rank if found else None,
        "freedom": found.freedom if found else None,
        "rank_nearby": found.rank_nearby if found else None,
        "pose": pose or "as drawn",
        "repaired": repaired,
        "gap": max(report.gaps.values(), default=0.0),
        "closes": report.closed,
        "mass_error": mass,
        "bias_error": bias,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--exclude", action="append", default=[], help="MODEL=NAME, an element that is not read")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    excluded = [word.partition("=")[::2] for word in options.exclude]
    rows = []
    for folder in sorted({p.parent for p in options.folder.glob("*/*") if p.suffix in KINDS}):
        rows.append(row(folder, [name for model, name in excluded if model == folder.name]))
        print(rows[-1], flush=True)
    print(common.table(rows))


if __name__ == "__main__":
    main()
