"""The reference problems in MuJoCo: trees of hinges, loops closed by `connect`, springs by tendons; and how they are run.

A loop in MuJoCo is soft: its error obeys r̈ = (1 − z) r̈₀ + z (−K r − C ṙ), z < 1, where r̈₀ is what it would be without the
constraint. `default` takes MuJoCo's own K, C and z. `stiff` takes z = 0.9999, the largest there is, C = 2 √K and K = (ratio/h)²
for steps of length h: the gap then is about 1e-4 r̈₀/K, and a smaller step closes the loop further.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import problems
from problems import andrews_model as squeezer
from problems import bricard as linkage
from problems import puma as arm

import jaxmb as jm

Z, Y = "0 0 1", "0 1 0"


@dataclasses.dataclass(frozen=True)
class Model:
    """A problem in MuJoCo's language.

    Attributes:
        world: bodies, equalities and tendons, with `{loop}` where attributes of a closed loop go.
        gravity: in m/s².
        start: coordinates and velocities.
        answer: reads the answer off model and data.
    """

    world: str
    gravity: str
    start: tuple[np.ndarray, np.ndarray]
    answer: Callable[[mujoco.MjData], Any]

    def compile(self, step: float, ratio: float | None, integrator: str = "RK4") -> mujoco.MjModel:
        """The model with steps of a length in s; `ratio` makes its loops stiff, None leaves MuJoCo's defaults."""
        loop, accurate = "", ""
        if ratio is not None:
            loop = f'solimp="0.9999 0.9999 1 0.5 1" solref="{-((ratio / step) ** 2)!r} {-2 * ratio / step!r}"'
            accurate = 'solver="Newton" tolerance="1e-14" iterations="100"'
        return mujoco.MjModel.from_xml_string(
            f'<mujoco><compiler angle="radian"/><option timestep="{step!r}" integrator="{integrator}" '
            f'gravity="{self.gravity}" {accurate}/>{self.world.format(loop=loop)}</mujoco>'
        )

    def run(self, step: float, steps: int, ratio: float | None, integrator: str = "RK4") -> Callable[[], Any]:
        """A function that goes through the motion, in one call of MuJoCo, and gives the answer."""
        mujoco.set_mju_user_warning(lambda text: None)  # an unstable run shows in its error, not in a log file
        model = self.compile(step, ratio, integrator)
        data = mujoco.MjData(model)

        def run():
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = self.start
            mujoco.mj_step(model, data, nstep=steps)
            mujoco.mj_kinematics(model, data)
            return np.array(self.answer(data))

        return run


def body(name: str, at: Any, joint: str, mass: float, centre: Any, inertia: Any, inside: str = "") -> str:
    """A body whose frame has a joint at its origin, parallel to its parent's at the start unless that is in `at`."""
    text = lambda values: " ".join(repr(float(x)) for x in values)
    place = at if isinstance(at, str) else f'pos="{text(at)}"'
    return (
        f'<body name="{name}" {place}>{joint}<inertial pos="{text(centre)}" mass="{mass!r}" '
        f'diaginertia="{text(inertia)}"/>{inside}</body>'
    )


def hinge(name: str, axis: str = Z) -> str:
    return f'<joint name="{name}" type="hinge" axis="{axis}"/>'


def site(name: str, at: Any) -> str:
    return f'<site name="{name}" pos="{" ".join(repr(float(x)) for x in at)}"/>'


def closed(first: str, second: str) -> str:
    return f'<connect site1="{first}" site2="{second}" {{loop}}/>'


def flat(moment: float) -> tuple[float, float, float]:
    """Moments of inertia of a body that moves in the plane; the first two do not matter."""
    return moment, moment, moment


def pendulum() -> Model:
    """A01, as the one hinge that it is; MuJoCo has no point masses, 1e-14 kg m² stands for none."""
    world = body("rod", (0, 0, 0), hinge("pivot"), 1.0, (1, 0, 0), flat(1e-14), site("end", (1, 0, 0)))
    answer = lambda data: data.site("end").xpos[:2]
    return Model(f"<worldbody>{world}</worldbody>", "0 -9.81 0", (np.array([np.pi]), np.zeros(1)), answer)


def nfourbar(n: int = 2) -> Model:
    """A02: uprights in the ground, a coupler on each but the last, closed at its far end."""
    rod = dict(mass=1.0, centre=(0.5, 0, 0), inertia=flat(1 / 12))
    uprights, loops = "", ""
    for i in range(n + 1):
        inside = site(f"head{i}", (1, 0, 0))
        if i < n:
            inside += body(f"across{i}", (1, 0, 0), hinge(f"left{i}"), **rod, inside=site(f"end{i}", (1, 0, 0)))
            loops += closed(f"end{i}", f"head{i + 1}")
        uprights += body(f"up{i}", (i, 0, 0), hinge(f"foot{i}"), **rod, inside=inside)
    one = np.array([np.pi / 2, -np.pi / 2])
    q = np.concatenate([np.tile(one, n), one[:1]])
    v = np.concatenate([np.tile([-1.0, 1.0], n), [-1.0]])
    world = f"<worldbody>{uprights}</worldbody><equality>{loops}</equality>"
    return Model(world, "0 -9.81 0", (q, v), lambda data: data.site("head0").xpos[:2])


def fourbar(state: jm.State) -> Model:
    """The four-bar of `examples/fourbar_model.py` in its three relative angles, clockwise from +y."""
    lengths, masses = (0.4, 0.9, 0.8), (1.0, 2.0, 1.5)
    inside = site("end", (0, lengths[2], 0))
    for i in (2, 1, 0):
        at, length = (0, lengths[i - 1] if i else 0, 0), lengths[i]
        joint = f'<joint name="a{i + 1}" type="hinge" axis="0 0 -1"/>'
        inside = body(f"b{i + 1}", at, joint, masses[i], (0, length / 2, 0), flat(masses[i] * length**2 / 12), inside)
    world = f"<worldbody>{site('ground', (1, 0, 0))}{inside}</worldbody><equality>{closed('end', 'ground')}</equality>"
    return Model(world, "0 -9.81 0", (np.asarray(state.q), np.asarray(state.v)), lambda data: data.qpos[0])


def fivebar(state: jm.State, torque: float) -> Model:
    """The five-bar of `examples/fivebar_control.py`; inputs from −1 to 1 are so many N m at its base."""
    rod = lambda name, at, joint, length, inside: body(
        name, at, hinge(joint), 2 * length, (length / 2, 0, 0), flat(2 * length**3 / 12), inside
    )
    # Brax reads no model without a shape.
    arms, motors = '<geom type="sphere" size="0.01" contype="0" conaffinity="0"/>', ""
    for k, x in (("1", -0.15), ("2", 0.15)):
        lower = rod(f"lower{k}", (0.4, 0, 0), f"elbow{k}", 0.5, site(f"end{k}", (0.5, 0, 0)))
        arms += rod(f"upper{k}", (x, 0, 0), f"base{k}", 0.4, lower)
        motors += f'<motor name="motor{k}" joint="base{k}" gear="{torque!r}"/>'
    loop = f"<equality>{closed('end1', 'end2')}</equality>"
    world = f"<worldbody>{arms}</worldbody>{loop}<actuator>{motors}</actuator>"
    return Model(
        world, "0 -9.81 0", (np.asarray(state.q), np.asarray(state.v)), lambda data: data.site("end1").xpos[:2]
    )


def andrews(state: jm.State) -> Model:
    """A03: the tree of `examples/andrews_joints.py`, closed three times at the pin in which four bodies meet."""
    p = squeezer.PARAMS
    fixed = {k: (p["x" + k.lower()], p["y" + k.lower()], 0) for k in "ABC"}
    planar = lambda x, y: (x, y, 0)
    arm4 = body("upper_arm", planar(p["zt"], 0), hinge("Phi"), p["m4"], planar(0, p["ea"] - p["e"]), flat(p["i4"]),
                site("E4", planar(0, -p["e"])))  # fmt: skip
    arm6 = body("lower_arm", planar(0, -p["u"]), hinge("Omega"), p["m6"], planar(p["zf"] - p["fa"], 0), flat(p["i6"]),
                site("E6", planar(p["zf"], 0)))  # fmt: skip
    rod = body("rod", planar(p["rr"], 0), hinge("Theta"), p["m2"], planar(-p["da"], 0), flat(p["i2"]),
               site("E2", planar(-p["d"], 0)))  # fmt: skip
    plate = site("E3", planar(0, -p["ss"])) + site("D", planar(p["sd"], -p["sc"]))
    bodies = (
        site("C", fixed["C"])
        + body("crank", (0, 0, 0), hinge("beta"), p["m1"], planar(p["ra"], 0), flat(p["i1"]), rod)
        + body("plate", fixed["B"], hinge("gamma"), p["m3"], planar(p["sa"], -p["sb"]), flat(p["i3"]), plate)
        + body("rocker5", fixed["A"], hinge("delta"), p["m5"], planar(p["ta"], p["tb"]), flat(p["i5"]), arm4)
        + body("rocker7", fixed["A"], hinge("epsilon"), p["m7"], planar(p["ua"], -p["ub"]), flat(p["i7"]), arm6)
    )
    spring = f'<tendon><spatial stiffness="{p["c0"]}" springlength="{p["l0"]}"><site site="C"/><site site="D"/></spatial></tendon>'
    loops = "".join(closed("E2", f"E{i}") for i in (3, 4, 6))
    order = [0, 1, 2, 4, 3, 6, 5]  # rockers carry the arms
    q, v = np.asarray(state.q)[order], np.asarray(state.v)[order]
    motor = f'<actuator><general joint="beta" biastype="affine" biasprm="{p["mom"]} 0 0" gainprm="0"/></actuator>'
    world = f"<worldbody>{bodies}</worldbody><equality>{loops}</equality>{spring}{motor}"
    return Model(world, "0 0 0", (q, v), lambda data: data.qpos[0])


def bricard() -> Model:
    """A04: five rods on hinges; two points on the axis of the last hinge stay where they are."""
    axis = lambda i: " ".join(repr(float(x)) for x in linkage.AXES[i])
    inside, ground = "", ""
    for k, shift in enumerate((0.0, 1.0)):
        inside += site(f"end{k}", linkage.POINTS[5] - linkage.POINTS[4] + shift * linkage.AXES[5])
        ground += site(f"ground{k}", linkage.POINTS[5] + shift * linkage.AXES[5])
    for i in range(4, -1, -1):
        half = (linkage.POINTS[i + 1] - linkage.POINTS[i]) / 2
        inertia = np.where(linkage.ALONG[i] > 0, 1 / 600, 1.01 / 12)
        at = linkage.POINTS[i] - (linkage.POINTS[i - 1] if i else 0)
        mark = site("P3", 2 * half) if i == 1 else ""
        inside = body(f"rod{i + 1}", at, hinge(f"hinge{i + 1}", axis(i)), 1.0, half, inertia, mark + inside)
    loops = "".join(closed(f"end{k}", f"ground{k}") for k in (0, 1))
    world = f"<worldbody>{ground}{inside}</worldbody><equality>{loops}</equality>"
    return Model(world, "0 -9.81 0", (np.zeros(5), np.zeros(5)), lambda data: data.site("P3").xpos)


def governor() -> Model:
    """A05: a tree; the springs with dampers are tendons. The balls are bodies of their own, welded to the tips of the rods."""
    rod_mass, slim, long = 0.3, 0.3 * (2 * 0.01**2) / 12, 0.3 * (1 + 0.01**2) / 12
    rods = ""
    for k, side in (("1", 1.0), ("2", -1.0)):
        ball = f'<body pos="{side} 0 0"><inertial pos="0 0 0" mass="5" diaginertia="1e-14 1e-14 1e-14"/></body>'
        inside = site(f"middle{k}", (0.5 * side, 0, 0)) + ball
        joint = hinge(f"hinge{k}", f"0 {side} 0")
        rods += body(f"rod{k}", (0.05 * side, 0, 1), joint, rod_mass, (0.5 * side, 0, 0), (slim, long, long), inside)
    slide = '<joint name="slide" type="slide" axis="0 0 1"/>'
    points = site("inner1", (0.05, 0, 0)) + site("inner2", (-0.05, 0, 0))
    slider = body("slider", (0, 0, 0), slide, 3.0, (0, 0, 0), flat(3.0 * 0.02 / 12), points)
    shaft = body("shaft", (0, 0, 0), hinge("spin"), rod_mass, (0, 0, 0.5), (long, long, slim), slider + rods)
    springs = "".join(
        f'<spatial stiffness="8e5" damping="4e4" springlength="0.5"><site site="middle{k}"/><site site="inner{k}"/></spatial>'
        for k in "12"
    )
    start = np.array([0, 0.5, np.pi / 6, np.pi / 6]), np.array([2 * np.pi, 0, 0, 0])
    world = f"<worldbody>{shaft}</worldbody><tendon>{springs}</tendon>"
    return Model(world, "0 0 -9.81", start, lambda data: data.joint("slide").qpos[0])


def puma() -> Model:
    """The arm of `examples/puma.py`, whose joints are at the near ends of its links' frames."""
    inside = ""
    for i in range(len(arm.TABLE) - 1, -1, -1):
        (d, a, twist), name = arm.TABLE[i], f"{i + 1}"
        axis, half = np.array([0.0, np.sin(twist), np.cos(twist)]), twist / 2
        text = lambda *x: " ".join(repr(float(y)) for y in x)
        place = f'pos="{text(a, 0, d)}" quat="{text(np.cos(half), np.sin(half), 0, 0)}"'
        joint = f'<joint type="hinge" axis="{text(*axis)}" pos="{text(-a, *(-d * axis[1:]))}"/>'
        inside = body(f"link{name}", place, joint, arm.MASSES[i], arm.CENTRES[i], arm.INERTIAS[i], inside)
    start = np.array(arm.Q0), np.array(arm.V0)
    return Model(f"<worldbody>{inside}</worldbody>", "0 0 -9.81", start, lambda data: data.qpos[0])


MODELS = {
    "A01": pendulum,
    "A02": nfourbar,
    "A03": lambda: andrews(problems.A03.built()[1]),
    "A04": bricard,
    "A05": governor,
}
