"""MJCF, by MuJoCo's own reader and compiler."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..foundations import listing, optional
from .document import XmlElement
from .folder import Folder
from .graph import WORLD, Z_AXIS, ModelGraph, ModelJoint, ModelLink, from_quaternion, massless_link, pose
from .inertia import expect_mass
from .mjcf_constraints import MjcfConstraints, MujocoModel, MujocoSpec, NamedModel, note_nonlinear
from .mjcf_text import Meshes, expanded, expect_readable, stripped, without, xml_text

# Numbers of MuJoCo's model that the graph is made of.
FINITE_FIELDS = (
    *("body_mass", "body_inertia", "body_pos", "body_quat", "body_ipos", "body_iquat", "jnt_pos", "jnt_axis"),
    *("jnt_stiffness", "dof_damping", "dof_frictionloss", "dof_armature", "qpos0", "eq_data"),
)
# Kinds of joints by MuJoCo's numbers of them.
FREE, BALL, SLIDE, HINGE = range(4)
KINDS = {FREE: "free", BALL: "spherical", SLIDE: "prismatic", HINGE: "revolute"}


def mjcf_graph(root: XmlElement, folder: Folder, excluded: Sequence[str]) -> ModelGraph:
    """The graph of a <mujoco>.

    Args:
        root: the element.
        folder: where files may lie.
        excluded: names of elements that are not read.

    Raises:
        ValueError: with file and what MuJoCo says, or file, line and element.
        ImportError: without MuJoCo.
    """
    mujoco = optional("mujoco", "models")
    graph = ModelGraph(root.attributes.get("model", folder.root.name), np.zeros(3))
    model, root = compiled_model(mujoco, root, folder, excluded, graph)
    return GraphReader(mujoco, model, graph, root).graph


def compiled_model(
    mujoco: ModuleType, root: XmlElement, folder: Folder, excluded: Sequence[str], graph: ModelGraph
) -> tuple[MujocoModel, XmlElement]:
    """MuJoCo's model of a <mujoco>, and the document that it was made of; what is left out is noted in the graph.

    Raises:
        ValueError: as `mjcf_graph`.
    """
    root = expanded(root, folder)
    expect_readable(root)
    root = stripped(without(root, tuple(excluded), graph), graph)
    model = _compiled(mujoco, root, Meshes(root, folder), graph)
    _expect_finite(model, root)
    return model, root


def _compiled(mujoco: ModuleType, root: XmlElement, meshes: Meshes, graph: ModelGraph) -> MujocoModel:
    """The compiled model; of its meshes only those are read from which masses follow."""
    source = xml_text(meshes.root)
    try:
        # Read twice: the first time without files, to learn which meshes masses follow from. Shapes for pictures and
        # contacts, which are most of the data of a robot, are never opened.
        spec = mujoco.MjSpec.from_string(source)
        mesh_files = _mass_meshes(mujoco, spec, meshes, root)
        data = {name: meshes.read(name) for name in mesh_files}
        spec = mujoco.MjSpec.from_string(source, assets={k: v for k, v in data.items() if v is not None})
        # Meshes without a file have their vertices in the model.
        unread = {mesh.name for mesh in spec.meshes if mesh.file and mesh.file not in mesh_files}
        for geom in [geom for geom in spec.geoms if geom.meshname in unread]:
            graph.note("listed", f"<geom mesh={geom.meshname!r}>", "shapes are not read")
            _delete(spec, geom)
        for mesh in [mesh for mesh in spec.meshes if mesh.name in unread]:
            _delete(spec, mesh)
        # Else MuJoCo merges bodies without joints into others, and their names, which users refer to, are gone.
        spec.compiler.fusestatic = False
        return spec.compile()
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        if str(error).startswith(str(root.file)):
            raise
        raise ValueError(
            f"{root.file} must be MJCF that MuJoCo reads, but it says: {' '.join(str(error).split())}"
        ) from None


def _delete(spec: MujocoSpec, element: MujocoSpec) -> None:
    # Newer versions delete by the specification, older ones by the element.
    spec.delete(element) if hasattr(spec, "delete") else element.delete()


def _mass_meshes(mujoco: ModuleType, spec: MujocoSpec, meshes: Meshes, root: XmlElement) -> set[str]:
    """The files of the meshes that masses of moving bodies follow from.

    Raises:
        ValueError: for a body whose mass follows from a file that is not there.
    """
    # A body's mass follows from its shapes unless it has an <inertial> and the compiler does not overrule it, as in
    # MuJoCo's `inertiafromgeom`.
    choice = spec.compiler.inertiafromgeom
    always, never = (getattr(mujoco.mjtInertiaFromGeom, f"mjINERTIAFROMGEOM_{x}") for x in ("TRUE", "FALSE"))
    low, high = spec.compiler.inertiagrouprange
    mesh_files: set[str] = set()
    for body in spec.bodies:
        if choice == never or (body.explicitinertial and choice != always) or not _moves(body):
            continue
        own = [geom for geom in body.geoms if geom.meshname and geom.mass != 0 and geom.density != 0]
        files = {spec.mesh(geom.meshname).file for geom in own if low <= geom.group <= high} - {""}
        absent = [name for name in files if meshes.read(name) is None]
        if absent:
            where = next(
                (e.where for e in root.walk() if e.tag == "body" and e.attributes.get("name") == body.name), root.file
            )
            raise ValueError(
                f"{where} must have an <inertial>, or the meshes from which its mass follows, but {meshes.references(absent)} is not there; "
                f"`exclude=[{body.name!r}]` reads the model without it."
            )
        mesh_files |= files
    return mesh_files


def _moves(body: MujocoSpec) -> bool:
    """Whether a joint moves a body or one that carries it."""
    while body is not None and body.name != "world":
        if len(body.joints):
            return True
        body = body.parent
    return False


def _expect_finite(model: MujocoModel, root: XmlElement) -> None:
    """Refuses numbers that are not finite, some of which MuJoCo admits."""
    for field in FINITE_FIELDS:
        if not np.isfinite(getattr(model, field)).all():
            raise ValueError(f"{root.file} must hold finite numbers, but `{field}` of MuJoCo's model does not.")


class GraphReader(NamedModel):
    """The graph of a compiled model."""

    def __init__(self, mujoco: ModuleType, model: MujocoModel, graph: ModelGraph, root: XmlElement):
        super().__init__(mujoco, model, root)
        self.graph = graph
        if WORLD in self.bodies[1:]:
            raise ValueError(f"{root.file}: no body must be called '{WORLD}', which is what stands still, but one is.")
        self._options()
        for body in range(1, model.nbody):
            self._body(body)
        MjcfConstraints(self, graph).add()
        self._keyframes()

    def _options(self) -> None:
        option = self.model.opt
        self.graph.gravity = np.zeros(3) if self.disables("GRAVITY") else np.array(option.gravity)
        for element in self.root.children_of("option"):
            others = [name for name in element.attributes if name != "gravity"]
            if others:
                self.graph.note("listed", f"{listing(others)} of <option>", "settings of the solver are not read")
        for field in ("density", "viscosity", "wind"):
            if np.any(getattr(option, field)):
                self.graph.note("left out", f"`{field}` of <option>", "there is no fluid")
        parts = ("SPRING", "DAMPER", "PASSIVE", "ACTUATION", "FRICTIONLOSS", "CONSTRAINT")
        if any(self.disables(part) for part in parts):
            text = "springs, dampers, friction and actuators act though the file disables some"
            self.graph.note("left out", "<flag>", text)

    def _body(self, index: int) -> None:
        """The link of a body, with one more before each further joint."""
        model, name = self.model, self.bodies[index]
        where = self.where("body", name)
        rotation = from_quaternion(model.body_iquat[index])
        inertia = rotation @ np.diag(model.body_inertia[index]) @ rotation.T
        expect_mass(float(model.body_mass[index]), inertia, where)
        own = [i for i in range(model.nsite) if model.site_bodyid[i] == index]
        points = {self.name("site", i): pose(model.site_pos[i], from_quaternion(model.site_quat[i])) for i in own}
        link = ModelLink(
            name=name,
            mass=float(model.body_mass[index]),
            com=np.array(model.body_ipos[index]),
            inertia=inertia,
            where=where,
            points=points,
        )
        if model.body_gravcomp[index]:
            self.graph.note("left out", f"gravcomp of body '{name}'", "gravity acts on all bodies alike")
        if model.body_mocapid[index] >= 0:
            self.graph.note("left out", f"mocap of body '{name}'", "it stands still where the file draws it")
        frame = pose(model.body_pos[index], from_quaternion(model.body_quat[index]))
        parent = self.bodies[model.body_parentid[index]]
        first, count = int(model.body_jntadr[index]), int(model.body_jntnum[index])
        if not count:
            self.graph.joints.append(ModelJoint(f"{name}_weld", "fixed", parent, name, where, outer=frame))
        for joint in range(first, first + count):
            last = joint == first + count - 1
            # A body with several joints hangs on a chain of bodies without mass, one for each further joint.
            child = name if last else f"{name}_{self.joints[joint]}"
            if not last:
                while child in self.bodies:
                    child += "_"
                self.graph.links.append(massless_link(child, where))
                self.graph.note(
                    "approximated", f"body '{name}'", "joints in a row have bodies without mass between them"
                )
            self.graph.joints.append(self._joint(joint, parent, child, frame))
            parent, frame = child, np.eye(4)
        self.graph.links.append(link)

    def _joint(self, index: int, parent: str, child: str, frame: np.ndarray) -> ModelJoint:
        model, name = self.model, self.joints[index]
        kind, q, v = int(model.jnt_type[index]), int(model.jnt_qposadr[index]), int(model.jnt_dofadr[index])
        single, free = kind in (HINGE, SLIDE), kind == FREE
        # A joint turns about its anchor, not about the origin of its body; a free one has none.
        anchor = np.eye(4) if free else pose(model.jnt_pos[index])
        # A number, or in some versions an array whose first entry it is; further ones belong to polynomials, see
        # below.
        stiffness = float(np.ravel(model.jnt_stiffness[index])[0])
        numbers: dict[str, Any] = dict(self._constants(v, name))
        self._note_unsupported(index, v, name)
        if free and any(numbers.values()):
            self.graph.note("left out", f"joint '{name}'", "friction and armature of a free joint have no element")
        if stiffness and not single:
            self.graph.note("left out", f"joint '{name}'", "springs of ball and free joints have no element")
        limits = None
        if model.jnt_limited[index] and single:
            limits = float(model.jnt_range[index][0]), float(model.jnt_range[index][1])
        elif model.jnt_limited[index]:
            self.graph.note("listed", f"joint '{name}'", "limits of ball joints are not part of a mechanism")
        axis = np.array(model.jnt_axis[index]) if single else Z_AXIS
        return ModelJoint(
            name=name,
            kind=KINDS[kind],
            parent=parent,
            child=child,
            outer=frame @ anchor,
            inner=anchor,
            axis=axis,
            axis_b=axis,
            where=self.where("joint", name),
            value=float(model.qpos0[q]) if single else 0.0,
            stiffness=stiffness if single else 0.0,
            rest=float(model.qpos_spring[q]) if single else 0.0,
            limits=limits,
            **({} if free else numbers),
        )

    def _constants(self, dof: int, name: str) -> dict[str, float]:
        """Damping, dry friction and armature along a velocity.

        Raises:
            ValueError: if one of them is negative.
        """
        fields = {"viscous": "damping", "coulomb": "frictionloss", "armature": "armature"}
        numbers = {key: float(getattr(self.model, f"dof_{field}")[dof]) for key, field in fields.items()}
        if negative := [fields[key] for key, value in numbers.items() if value < 0]:
            raise ValueError(f"{self.where('joint', name)} must not have a negative {listing(negative)}, but has.")
        return numbers

    def _note_unsupported(self, joint: int, dof: int, name: str) -> None:
        """Notes numbers for which there is no element."""
        what = f"joint '{name}'"
        fields = {"jnt_stiffnesspoly": joint, "jnt_springyield": joint, "dof_dampingpoly": dof}
        note_nonlinear(self.model, self.graph, what, fields)
        if np.any(getattr(self.model, "jnt_actfrclimited", np.zeros(joint + 1))[joint]):
            self.graph.note("listed", what, "limits of its actuators are not part of a mechanism")

    def _keyframes(self) -> None:
        """The coordinates of each keyframe by joint; of those of a free joint, of the body."""
        sizes = {FREE: 7, BALL: 4, SLIDE: 1, HINGE: 1}
        for key in range(self.model.nkey):
            qpos = self.model.key_qpos[key]
            # Bound by default: the lambda would else read the last keyframe.
            at = lambda j, qpos=qpos: np.array(
                qpos[self.model.jnt_qposadr[j] : self.model.jnt_qposadr[j] + sizes[int(self.model.jnt_type[j])]]
            )
            self.graph.poses[self.name("key", key)] = {name: at(j) for j, name in enumerate(self.joints)}
            if np.any(self.model.key_qvel[key]) or np.any(self.model.key_ctrl[key]):
                self.graph.note(
                    "listed", f"keyframe '{self.name('key', key)}'", "its velocities and inputs are not part of a pose"
                )
