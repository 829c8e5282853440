"""Equalities, tendons and actuators of MJCF."""

from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any

import numpy as np

from .document import XmlElement
from .graph import WORLD, Cord, Coupling, ModelActuator, ModelGraph, ModelJoint, from_quaternion, pose

# Classes of MuJoCo's compiled extension, which has no annotations to check against.
MujocoModel = Annotated[Any, "mujoco.MjModel"]
MujocoSpec = Annotated[Any, "mujoco.MjSpec, or an element of it"]
LinkFrame = tuple[str, np.ndarray]
# What every refusal of an equality ends with, since most models are of use without it.
REMEDY = "`exclude=[{!r}]` reads the model without it."


def note_nonlinear(model: MujocoModel, graph: ModelGraph, what: str, fields: Mapping[str, int]) -> None:
    """Notes springs and dampers of newer versions of MuJoCo for which there is no element, in entries of fields."""
    for field, index in fields.items():
        values = np.ravel(getattr(model, field, np.zeros(index + 1))[index])
        if np.isfinite(values).all() and values.any():
            text = "springs and dampers are linear: `" + field.partition("_")[2] + "` is not read"
            graph.note("left out", what, text)


class NamedModel:
    """A compiled model with the names of its elements, and where they stand in the file.

    Args:
        mujoco: the package.
        model: the compiled model.
        root: the document that it was made of.
    """

    def __init__(self, mujoco: ModuleType, model: MujocoModel, root: XmlElement):
        self.mujoco, self.model, self.root = mujoco, model, root
        # Equalities have tags of other elements, and names of their own.
        self.lines = {
            ("equality" if outer.tag == "equality" else e.tag, e.attributes["name"]): e.where
            for outer in root.walk()
            for e in outer.children
            if "name" in e.attributes
        }
        # By MuJoCo's numbers.
        self.bodies = [WORLD, *(self.name("body", i) for i in range(1, model.nbody))]
        self.joints = [self.name("joint", i) for i in range(model.njnt)]

    def name(self, kind: str, index: int) -> str:
        """The name of an element, or its kind and number."""
        number = getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        name, other = self.mujoco.mj_id2name(self.model, number, index), f"{kind}{index}"
        # Another element may be called so in the file.
        while not name and self.mujoco.mj_name2id(self.model, number, other) >= 0:
            other += "_"
        return name or other

    def where(self, kind: str, name: str) -> str:
        """File, line and element, with which a refusal begins."""
        return self.lines.get((kind, name), f"{self.root.file}, <{kind} name={name!r}>")

    def disables(self, part: str) -> bool:
        """Whether the file switches a part of the dynamics off."""
        # Flags differ between versions of MuJoCo: one that a version does not have is not set.
        flag = getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{part}", 0)
        return bool(self.model.opt.disableflags & int(flag))


class MjcfConstraints:
    """The constraints and actuators of a compiled model beyond its tree.

    Args:
        reading: the model, names and lines.
        graph: what is added to.
    """

    def __init__(self, reading: NamedModel, graph: ModelGraph):
        self.reading, self.mujoco, self.model, self.graph = reading, reading.mujoco, reading.model, graph
        self.equalities_act = not (reading.disables("EQUALITY") or reading.disables("CONSTRAINT"))
        self.single = {name for name in reading.joints if self._joint(name).kind in ("revolute", "prismatic")}

    def add(self) -> None:
        """Adds all."""
        rigid_bodies: set[int] = set()
        for index in range(self.model.neq):
            # Equalities first: tendons whose lengths they fix are rods or gears, and their springs never act.
            rigid_bodies |= self._equality(index)
        for tendon in range(self.model.ntendon):
            if tendon not in rigid_bodies:
                self._tendon(tendon)
        for actuator in range(self.model.nu):
            self._actuator(actuator)

    def _joint(self, name: str) -> ModelJoint:
        joint = self.graph.joint(name)
        assert joint is not None
        return joint

    def _refusal(self, name: str, reason: str) -> ValueError:
        where = self.reading.where("equality", name)
        return ValueError(f"{where} {reason}; {REMEDY.format(name)}")

    # Equalities

    def _equality(self, index: int) -> set[int]:
        """Adds an equality, and returns the tendons whose lengths it fixes."""
        model, name = self.model, self.reading.name("equality", index)
        kinds = self.mujoco.mjtEq
        if not model.eq_active0[index] or not self.equalities_act:
            self.graph.note("left out", f"equality '{name}'", "is not active")
            return set()
        kind, data = int(model.eq_type[index]), np.array(model.eq_data[index])
        one, other = int(model.eq_obj1id[index]), int(model.eq_obj2id[index])
        if kind in (int(kinds.mjEQ_CONNECT), int(kinds.mjEQ_WELD)):
            weld = kind == int(kinds.mjEQ_WELD)
            (a, outer), (b, inner) = self._ends(index, one, other, data, weld)
            # A weld whose angular residual has no weight is a connect.
            joint_kind = "fixed" if weld and data[10] else "spherical"
            where = self.reading.where("equality", name)
            self.graph.joints.append(ModelJoint(name, joint_kind, a, b, where, outer=outer, inner=inner, closes=True))
            return set()
        if kind == int(kinds.mjEQ_JOINT):
            self._couple(name, self.reading.joints[one], None if other < 0 else self.reading.joints[other], data)
            return set()
        if kind == int(kinds.mjEQ_TENDON):
            self._fix(name, one, other, data)
            return {one}
        raise self._refusal(name, "must be a connect, a weld, a joint or a tendon, but is none")

    def _ends(self, index: int, one: int, other: int, data: np.ndarray, weld: bool) -> tuple[LinkFrame, LinkFrame]:
        """The two frames that coincide, as the engine of MuJoCo reads them."""
        if int(self.model.eq_objtype[index]) == int(self.mujoco.mjtObj.mjOBJ_SITE):
            return self._site(one), self._site(other)
        a, b = (self.reading.bodies[i] for i in (one, other))
        if weld:
            # `eq_data` of a weld: the anchor in the second body, then pose of that in the first; of a connect, the
            # anchor in both.
            return (a, pose(data[3:6], from_quaternion(data[6:10]))), (b, pose(data[0:3]))
        return (a, pose(data[0:3])), (b, pose(data[3:6]))

    def _site(self, index: int) -> LinkFrame:
        body = self.reading.bodies[int(self.model.site_bodyid[index])]
        return body, pose(self.model.site_pos[index], from_quaternion(self.model.site_quat[index]))

    def _couple(self, name: str, first: str, second: str | None, data: np.ndarray) -> None:
        """q₁ − q₁⁰ = c₀ + c₁ (q₂ − q₂⁰) + …, with the coordinates in which the model is drawn."""
        if second is None or data[1] == 0:
            raise self._refusal(name, f"must relate two joints, but holds '{first}' at a value; make it fixed there")
        # Coefficients of a polynomial of degree four; a gear has the first two.
        if np.any(data[2:5]):
            raise self._refusal(name, f"must be linear, but has the coefficients {data[:5].tolist()}")
        offset = self._joint(first).value + data[0] - data[1] * self._joint(second).value
        where = self.reading.where("equality", name)
        self.graph.couplings.append(
            Coupling(name=name, joints=(second, first), ratio=float(data[1]), offset=float(offset), where=where)
        )

    def _fix(self, name: str, one: int, other: int, data: np.ndarray) -> None:
        """A tendon with a fixed length: two joints that depend on each other, or two sites at a distance."""
        if other >= 0:
            raise self._refusal(name, "must fix the length of one tendon, but relates two")
        length = float(self.model.tendon_length0[one] + data[0])
        parts, where = self._wraps(one), self.reading.where("equality", name)
        joints = [(self.reading.joints[i], c) for kind, i, c in parts if kind == "joint" and c != 0]
        # c₁ q₁ + c₂ q₂ = length: a fixed tendon over two joints is a gear.
        if len(joints) == len(parts) == 2:
            (first, c1), (second, c2) = joints
            self.graph.couplings.append(
                Coupling(name=name, joints=(first, second), ratio=-c1 / c2, offset=length / c2, where=where)
            )
        elif [kind for kind, _, _ in parts] == ["site", "site"] and length > 0:
            ends = [self._site(i) for _, i, _ in parts]
            self.graph.cords.append(Cord(name=name, a=ends[0], b=ends[1], length=length, where=where, fixed=True))
        else:
            raise self._refusal(name, "must fix a tendon between two joints or two sites, but fixes another")

    # Tendons

    def _wraps(self, tendon: int) -> list[tuple[str, int, float]]:
        """The path of a tendon: kind, number and coefficient of each element."""
        names = {int(getattr(self.mujoco.mjtWrap, f"mjWRAP_{x}")): x.lower() for x in ("JOINT", "SITE", "PULLEY")}
        first, count = int(self.model.tendon_adr[tendon]), int(self.model.tendon_num[tendon])
        return [
            (
                names.get(int(self.model.wrap_type[i]), "geom"),
                int(self.model.wrap_objid[i]),
                float(self.model.wrap_prm[i]),
            )
            for i in range(first, first + count)
        ]

    def _tendon(self, index: int) -> None:
        model, name = self.model, self.reading.name("tendon", index)
        parts = self._wraps(index)
        stiffness, damping = (
            float(np.ravel(getattr(model, f"tendon_{x}")[index])[0]) for x in ("stiffness", "damping")
        )
        low, high = model.tendon_lengthspring[index]
        if model.tendon_limited[index]:
            self.graph.note("listed", f"tendon '{name}'", "limits of tendons are not part of a mechanism")
        if float(model.tendon_frictionloss[index]):
            self.graph.note("left out", f"tendon '{name}'", "friction of tendons has no element")
        if np.any(getattr(model, "tendon_armature", np.zeros(index + 1))[index]):
            self.graph.note("left out", f"tendon '{name}'", "armature of tendons has no element")
        fields = ("tendon_stiffnesspoly", "tendon_springyield", "tendon_dampingpoly")
        note_nonlinear(model, self.graph, f"tendon '{name}'", dict.fromkeys(fields, index))
        # Without a spring a tendon is only a path for actuators and sensors, and exerts no force of its own.
        if not stiffness and not damping:
            return
        if [kind for kind, _, _ in parts] == ["site", "site"] and low == high:
            a, b = (self._site(i) for _, i, _ in parts)
            self.graph.cords.append(
                Cord(
                    name=name,
                    a=a,
                    b=b,
                    length=float(low),
                    where=self.reading.where("spatial", name),
                    stiffness=stiffness,
                    damping=damping,
                )
            )
        else:
            self.graph.note("left out", f"tendon '{name}'", "springs of tendons act between two sites only")

    # Actuators

    def _actuator(self, index: int) -> None:
        """A force or torque proportional to the input; others are listed."""
        model, name, kinds = self.model, self.reading.name("actuator", index), self.mujoco.mjtTrn
        # A gain and no bias, no dynamics: all others are controllers, such as servos of a position.
        is_proportional = (
            int(model.actuator_dyntype[index]) == int(self.mujoco.mjtDyn.mjDYN_NONE)
            and int(model.actuator_gaintype[index]) == int(self.mujoco.mjtGain.mjGAIN_FIXED)
            and int(model.actuator_biastype[index]) == int(self.mujoco.mjtBias.mjBIAS_NONE)
        )
        kind, target = int(model.actuator_trntype[index]), int(model.actuator_trnid[index][0])
        gear, gain = np.array(model.actuator_gear[index]), float(model.actuator_gainprm[index][0])
        for field in ("armature", "damping", "delay"):
            if np.any(getattr(model, f"actuator_{field}", np.zeros(index + 1))[index]):
                self.graph.note("left out", f"actuator '{name}'", f"its {field} is not read")
        if model.actuator_ctrllimited[index] or model.actuator_forcelimited[index]:
            self.graph.note("listed", f"actuator '{name}'", "its limits are not part of a mechanism")
        on_joint = kind in (int(kinds.mjTRN_JOINT), int(kinds.mjTRN_JOINTINPARENT))
        on_site = kind == int(kinds.mjTRN_SITE) and model.actuator_trnid[index][1] < 0 and not gear[3:].any()
        if is_proportional and on_joint and self.reading.joints[target] in self.single:
            self.graph.actuators.append(ModelActuator(name, gain * float(gear[0]), joint=self.reading.joints[target]))
        elif is_proportional and on_site and self._site(target)[0] != WORLD:
            self.graph.actuators.append(ModelActuator(name, gain, at=self._site(target), direction=gain * gear[:3]))
        else:
            self.graph.note(
                "listed", f"actuator '{name}'", "is no force proportional to its input: use `jaxmb.control`"
            )
