"""One right call of each public function; what is wrong for each argument follows from what is right.

Run as a script, without the type checks that pytest hooks in, it makes every wrong call and prints what is not refused by name.
"""

import functools
import inspect
import itertools
import json
import os
import re
import sys
import tempfile
import warnings

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxmb as jm

jax.config.update("jax_enable_x64", True)  # before anything is built

planar, spatial, control = jm.planar, jm.spatial, jm.control
PACKAGES = ["planar", "spatial", "control", "fit", "models", "plot", "records", "sweep"]
PACKAGES += [
    "design",
    "env",
    "export",
    "formulation",
    "kinematics",
    "mechanism",
    "output",
    "reaction",
    "simulation",
    "system",
    "topology",
    "verification",
]
ROOMS = {"": jm} | {room: getattr(jm, room) for room in PACKAGES}


class Among:
    """A right value, further values of other kinds that are right too, by their labels, and what is wrong beside the kind."""

    def __init__(self, value, *also, wrong=()):
        self.value, self.also, self.wrong = value, also, wrong


ZERO, NEGATIVE, ABOVE, UNKNOWN = ("zero", 0.0), ("negative", -1.5), ("above one", 1.5), ("unknown", "no such")
more = lambda value: Among(value, wrong=(ZERO, NEGATIVE))  # positive
least = lambda value: Among(value, wrong=(NEGATIVE,))  # not negative
share = lambda value: Among(value, wrong=(NEGATIVE, ABOVE))
known = lambda value: Among(value, wrong=(UNKNOWN,))  # a name of something that must be there
either = lambda value, *labels: Among(value, *labels)


# What calls are about


@functools.cache
def pendulum():
    rod = planar.Body.rod("rod", mass=1.0, length=1.0)
    hinge = planar.Revolute("pivot", "ground", "rod.a")
    motor = planar.Motor("motor", "pivot")
    return planar.Mechanism([rod], [hinge], actuators=[motor], gravity=(0.0, -9.81))


@functools.cache
def solid():
    rod = spatial.Body.box("rod", mass=1.0, size=(0.1, 0.1, 1.0), position=(0.0, 0.0, 0.5))
    return spatial.Mechanism(
        [rod], [spatial.Revolute("pivot", "ground", "rod", axis=(1.0, 0.0, 0.0))], gravity=(0, 0, -9.81)
    )


@functools.cache
def built():
    return pendulum().build()


@functools.cache
def absolute():
    return pendulum().build("absolute")


@functools.cache
def start():
    return jm.assemble(built(), q=(0.1,))


@functools.cache
def rest():
    return jm.assemble(built(), q=(-np.pi / 2,))


@functools.cache
def joint_state():
    return jm.assemble(absolute())


@functools.cache
def motion():
    return jm.simulate(built(), start(), np.linspace(0.0, 0.1, 3))


def point(t, q, params):
    return jnp.array([q[0] ** 2 + q[1] ** 2 - 1.0])


@functools.cache
def particle():
    return jm.System(
        ("x", "y"), mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("C", point)], params={"m": 1.0}
    )


@functools.cache
def particle_start():
    return jm.assemble(particle(), q=(0.8, 0.6))


@functools.cache
def sprung():
    spring = planar.JointSpring("spring", "pivot", stiffness=1.0)
    return pendulum().joined(forces=[spring]).build()


@functools.cache
def closure():
    return jm.kinematics.Closure("C", ["y"], lambda t, y, p: jnp.sqrt(1 - y**2))


@functools.cache
def terms():
    return jm.evaluate(particle(), particle_start())


@functools.cache
def plant():
    return control.Plant.at(built(), start())


@functools.cache
def rows():
    return control.output_rows(plant(), control.JointOutput("pivot"))


@functools.cache
def track():
    return control.Track("pivot", lambda t: 0.1, stiffness=1.0, damping=1.0)


@functools.cache
def linearisation():
    return jm.linearise(built(), rest())


@functools.cache
def experiment():
    return jm.fit.Experiment(np.linspace(0.0, 0.1, 3), start(), [jm.fit.Signal("pivot", np.zeros(3))])


@functools.cache
def parameter():
    return jm.fit.Parameter("rod.mass", 1.0)


@functools.cache
def record():
    return jm.records.Record(np.arange(3.0), {"a": np.zeros(3)})


@functools.cache
def table():
    path = os.path.join(folder(), "a.csv")
    with open(path, "w") as file:
        file.write("time,a\n0,1\n1,2\n")
    return path


@functools.cache
def folder():
    return tempfile.mkdtemp()


counter = itertools.count()
fresh = lambda end="": os.path.join(folder(), f"{next(counter)}{end}")
RESULT = lambda t, q, v, reaction, params: q[0]
TIMES = np.linspace(0.0, 0.1, 3)
CHANNEL = lambda motion: motion.coordinate("pivot")


@functools.cache
def model():
    """A model of a file."""
    path = os.path.join(folder(), "pendulum.toml")
    with open(path, "w") as file:
        file.write('version = 1\nspace = "plane"\n[body.rod]\nmass = 1.0\ninertia = 0.1\ncom = [0.5, 0.0]\n')
        file.write('[joint.pivot]\nkind = "Revolute"\na = "ground"\nb = "rod"\n')
    return jm.models.load(path)


def right_calls(groups):
    """The functions, and the arguments of one call of each by name."""
    for group in groups:
        yield from GROUPS[group]()


def doors():
    state = dict(system=built(), state=start())
    yield (
        jm.simulate,
        state
        | dict(
            ts=TIMES,
            formulation=jm.formulation.GaussProjection(),
            drift=jm.Projection(),
            events=Among([jm.Lock("pivot", at=0.05)], "[]"),
            max_events=more(2),
            control=control.PD("pivot", 1.0, 1.0),
            solver=dfx.Tsit5(),
            stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
            dt0=more(1e-3),
            adjoint=dfx.RecursiveCheckpointAdjoint(),
            progress_meter=dfx.NoProgressMeter(),
            max_steps=Among(100, "none", wrong=(ZERO, NEGATIVE)),
            dense=False,
            engine=either(jm.XLA(), "jm.XLA"),
            throw=True,
        ),
    )
    yield jm.choose_engine, state | dict(
        formulation=jm.formulation.GaussProjection(), drift=jm.Projection(), control=control.PD("pivot", 1.0, 1.0), solver=dfx.Tsit5(),
        adjoint=dfx.RecursiveCheckpointAdjoint(), engine=either(jm.XLA(), "jm.XLA"),
    )  # fmt: skip
    yield (
        jm.stepper,
        state
        | dict(
            dt=0.01,
            substeps=2,
            solver=dfx.Tsit5(),
            formulation=jm.formulation.GaussProjection(),
            drift=jm.Projection(),
            control=control.PD("pivot", 1.0, 1.0),
            engine=either(jm.XLA(), "jm.XLA"),
            throw=True,
        ),
    )
    yield jm.Compiled, dict(sparse=Among(True, "none"))
    yield jm.XLA, dict(sparse=Among(True, "none"))
    yield jm.assemble, dict(
        system=built(), q=np.array([0.1]), v=np.array([0.0]), t=0.0, hold=known(["pivot"]), hold_velocity=known(["pivot"]),
        inactive=known([]), length=more(1.0), rank_tol=more(1e-7), throw=True,
    )  # fmt: skip
    yield jm.try_assemble, dict(
        system=built(), q=Among(np.array([0.1]), "nan"), v=Among(np.array([0.0]), "nan"), t=0.0, hold=known(["pivot"]),
        hold_velocity=known(["pivot"]), inactive=known([]), length=more(1.0), rank_tol=more(1e-7),
    )  # fmt: skip
    yield (
        jm.as_state,
        dict(system=built(), q=np.array([0.1]), v=np.array([0.0]), t=0.0, mode=start().mode, length=more(1.0)),
    )
    yield jm.System, dict(
        coordinates=either(["x", "y"], "2"), mass=lambda t, q, p: jnp.eye(2), force=lambda t, q, v, p: -q,
        potential=lambda t, q, p: q[0], constraints=[jm.Holonomic("C", point)], velocities=either(["u", "w"], "2"), rate=lambda q, v, p: v,
        normalise=lambda q: q, actuation=lambda t, q, p: jnp.ones((2, 1)), resistance=None, guess=np.zeros(2), breaks=np.array([0.5]),
    )  # fmt: skip
    yield (
        jm.System.from_lagrangian,
        dict(lagrangian=lambda t, q, qdot, p: qdot @ qdot, coordinates=either(["x", "y"], "2")),
    )
    yield particle().with_params, dict(params={"m": 2.0})
    yield jm.Holonomic, dict(name="C", fn=point, parts={"a": 1})
    yield jm.Pfaffian, dict(name="C", fn=lambda t, q, v, p: v[:1], parts={"a": 1})
    yield jm.Baumgarte, dict(alpha=least(1.0), beta=least(1.0))
    yield jm.Projection, dict(iterations=more(3), tol=more(1e-8))
    for kind in (
        jm.formulation.KKT,
        jm.formulation.GaussProjection,
        jm.formulation.Elimination,
        jm.formulation.CoordinatePartition,
        jm.formulation.NullSpace,
        jm.formulation.OrthogonalProjection,
        jm.formulation.Proximal,
    ):
        own = {
            jm.formulation.Elimination: dict(eliminated=Among((0,), "()")), jm.formulation.Proximal: dict(mu=more(1e-8), refinements=least(2)),
            jm.formulation.CoordinatePartition: dict(independent=(0,), switching=share(0.3)), jm.formulation.NullSpace: dict(weight=np.eye(2)),
            jm.formulation.OrthogonalProjection: dict(inertia=known("parameterised"), gamma=more(1.0), weight=np.eye(2)),
        }  # fmt: skip
        yield kind, own.get(kind, {}) | dict(rank_tol=more(1e-7))
    yield (
        jm.formulation.Elimination.of,
        dict(system=particle(), rows=either({"C": [0]}, "list of unknown"), rank_tol=more(1e-7)),
    )
    when = dict(when=RESULT, direction=1, name="event")
    again = dict(repeat=False)
    yield jm.Lock, dict(what="pivot", consistent=True) | when | again
    yield jm.Lock, dict(what="pivot", at=0.05)
    yield jm.Release, dict(names=either(["C"], "text", "unknown")) | when | again
    yield (
        jm.Activate,
        dict(names=either(["C"], "text", "unknown"), restitution=share(0.5), assemble=False, consistent=True)
        | when
        | again,
    )
    yield jm.Brake, dict(what="pivot", sliding=least(1.0), holding=least(2.0)) | when
    yield jm.transition, dict(
        system=particle(), state=jm.assemble(particle(), q=(0.8, 0.6), inactive=["C"]), lock=known(["x"]), activate=known(["C"]), release=known([]), impulse=np.zeros(2), restitution=share(0.5), method=known("full"),
        formulation=jm.formulation.GaussProjection(), consistent=True, assemble=False, throw=True,
    )  # fmt: skip
    yield jm.kinematics.Closure, dict(name="C", independent=["y"], fn=lambda t, y, p: y)
    reduced = jm.kinematics.restrict(particle(), closure(), particle_start())
    yield jm.kinematics.restrict, dict(system=particle(), closure=closure(), state=particle_start())
    yield jm.kinematics.closure_kinematics, dict(system=particle(), closure=closure(), state=reduced)
    yield jm.kinematics.reduce, dict(system=particle(), closure=closure())
    yield jm.kinematics.embed, dict(system=particle(), closure=closure(), state=reduced)
    yield jm.diagnose, state | dict(formulation=jm.formulation.GaussProjection())
    yield jm.kinematics.branches, state
    yield jm.trace_motion, dict(
        system=particle(), state=particle_start(), input=known("y"), watch=known(["x"]), between=(0.5, 0.7), step=more(0.25),
        max_points=more(4), formulation=jm.formulation.GaussProjection(),
    )  # fmt: skip
    yield jm.show_progress, dict(on=True)
    yield jm.batched, dict(fn=lambda x: x, size=more(4), memory=more(1e9), cost=lambda x: x)
    yield jm.equilibrium, dict(system=built(), start=rest(), u=np.zeros(1), hold=known([]), t=0.0, throw=True)
    yield jm.linearise, dict(
        system=built(), state=rest(), u=np.zeros(1), independent=known(["pivot"]), outputs=lambda t, q, v, p: q,
        formulation=jm.formulation.GaussProjection(), throw=True,
    )  # fmt: skip
    yield (
        jm.control.lqr,
        dict(linearisation=linearisation(), Q=np.eye(2), R=np.eye(1), N=np.zeros((2, 1)), period=more(0.01)),
    )


def reports():
    state = dict(system=built(), state=start())
    moving = dict(system=built(), motion=motion())
    for function in (jm.energy, jm.residuals):
        yield function, moving
    options = dict(formulation=jm.formulation.GaussProjection(), u=np.zeros((3, 1)), throw=True)
    yield jm.reactions, moving | options
    for function in (jm.position, jm.velocity, jm.pose, jm.angular_velocity):
        yield function, moving | dict(point=known("rod.b"))
    yield jm.acceleration, moving | dict(point=known("rod.b")) | options
    yield jm.angle_between, moving | dict(one=known("rod.b"), at=known("rod.a"), other=known("rod.centre"))
    for function in (jm.coordinate, jm.rate):
        yield function, moving | dict(name=known("pivot"))
    yield jm.force, dict(system=sprung(), motion=jm.assemble(sprung()), name=known("spring"), u=np.zeros(1))
    yield (
        jm.joint_reaction,
        moving | dict(joint=known("pivot"), on=known("rod"), frame=known("world"), warn=True) | options,
    )
    yield jm.joint_reactions, moving | dict(frame=known("world"), warn=True) | options
    yield (
        jm.statics,
        dict(system=built(), state=rest(), hold=known(["pivot"]), u=np.zeros(1), frame=known("world"), throw=True),
    )
    yield (
        jm.output.tabulate,
        dict(
            system=built(),
            solution=motion(),
            quantities=known(["energy"]),
            formulation=jm.formulation.GaussProjection(),
        ),
    )
    yield jm.output.commands, moving | dict(law=track())
    yield jm.output.IMU, dict(point="rod.b", name="imu", sigma=least(0.1))
    yield jm.output.Encoder, dict(joint="pivot", resolution=more(0.1), name=either("angle", "none"), sigma=least(0.1))
    yield (
        jm.output.LoadCell,
        dict(joint="pivot", on=either("rod", "none"), frame="joint", name="cell", sigma=least(0.1)),
    )
    yield jm.analyse_reactions, state | dict(method=known("qr"), rank_tol=more(1e-7))
    yield jm.evaluate, state | dict(u=np.zeros(1))
    yield jm.physical_reactions, dict(
        system=particle(), state=particle_start(), directions={"x": lambda t, q, p: q[0]}, scheme=known("direct"),
    )  # fmt: skip
    yield jm.formulation.length_metric, dict(system=particle(), rotations=known(["x"]), length=more(1.0))
    metric = dict(terms=terms(), weight=np.eye(2), rank_tol=more(1e-7))
    yield jm.formulation.decoupling, metric
    yield jm.formulation.projective_criterion, metric
    yield jm.formulation.gauss_residual, dict(terms=terms(), vdot=np.zeros(2), rank_tol=more(1e-7))
    yield jm.formulation.inertia_conditioning, metric | dict(gammas=np.ones(2))
    yield jm.convert, dict(state=start(), source=built(), target=absolute())
    yield jm.mechanism.loop_cuts, dict(mechanism=pendulum(), state=start(), system=built())
    yield motion().state, dict(i=Among(1, "list", wrong=(("out of range", 99), ("out of range", -99))))
    yield motion().to_xarray, dict(shared_times=True)
    yield motion().to_pandas, dict()
    yield pendulum().build, dict(coordinates=known("relative"), cut=known([]))
    yield (
        pendulum().placed,
        dict(
            pose=Among(
                np.eye(3), "shape of it", wrong=(("scales", 2 * np.eye(3)), ("mirrors", np.diag([1.0, -1.0, 1.0])))
            )
        ),
    )
    yield pendulum().renamed, dict(prefix="a")
    yield pendulum().replace, dict(name=known("rod"))
    yield pendulum().position, dict(at=known("rod.b"))
    yield pendulum().mirrored, dict(point=np.zeros(2), along=np.array([0.0, 1.0]))
    yield planar.Mechanism.from_text, dict(text=known(pendulum().to_text()))


def elements(room, dim):
    room, whole = getattr(jm, room), (pendulum, solid)[dim - 2]()
    body = dict(
        name="B", mass=least(1.0), inertia=1.0 if dim == 2 else np.eye(3), com=np.zeros(dim), points={"p": np.zeros(dim)},
        point_masses=[(1.0, np.zeros(dim))], position=np.zeros(dim),
    )  # fmt: skip
    yield room.Body, body | (dict(angle=0.1) if dim == 2 else dict(orientation=np.array([1.0, 0, 0, 0])))
    yield room.Body, dict(name="B", shape=room.Rod(1.0), density=more(1.0))
    if dim == 2:
        yield room.Body.rod, dict(name="B", mass=least(1.0), length=more(1.0))
        yield room.frame, dict(position=np.zeros(2), angle=0.1)
    else:
        yield room.Body.box, dict(name="B", mass=least(1.0), size=np.ones(3))
        yield room.frame, dict(position=np.zeros(3), orientation=np.array([1.0, 0, 0, 0]))
    yield room.Body.joined, dict(name="B", parts=[whole.bodies[0]])
    tie = dict(name="J", a="ground", b="rod")
    axis = (1.0, 0.0, 0.0)[:dim]
    for kind in [
        "Fixed",
        "Revolute",
        "Prismatic",
        "PointOnLine",
        "Cylindrical",
        "Planar",
        "PointOnPlane",
        "Spherical",
        "Universal",
        "Screw",
    ]:
        if hasattr(room, kind):
            takes = inspect.signature(getattr(room, kind)).parameters
            own = dict(axis=axis, pitch=1.0)
            yield getattr(room, kind), tie | {key: value for key, value in own.items() if key in takes}
    yield room.Distance, tie | dict(length=more(1.0))
    if dim == 2:
        yield room.KnifeEdge, dict(name="J", at="rod", axis=axis, on="ground")
        yield room.RollingWheel, tie | dict(radius=more(1.0), axis=axis)
    else:
        yield room.RollingDisk, tie | dict(radius=more(1.0), axis=(0, 0, 1.0), normal=(0, 0, 1.0))
        yield room.RollingSphere, tie | dict(radius=more(1.0), normal=(0, 0, 1.0))
    yield room.Mechanism, dict(
        bodies=whole.bodies, joints=whole.joints, drivers=[], forces=[], actuators=[room.Motor("motor", "pivot")],
        gravity=np.zeros(dim), points={"p": np.zeros(dim)},
    )  # fmt: skip
    if dim == 3:
        return
    angle = lambda t, p: 0.1 * t
    yield room.Driver, dict(name="D", joint="pivot", fn=angle, breaks=[0.5])
    yield room.DrivenSpeed, dict(name="D", joint="pivot", fn=angle, breaks=[0.5])
    yield room.DrivenAngle, dict(name="D", a="ground", b="rod", fn=angle, breaks=[0.5])
    yield room.DrivenDistance, dict(name="D", a="ground", b="rod", fn=angle, breaks=[0.5])
    yield room.Force, dict(name="F", at="rod", fn=lambda motion: jnp.zeros(3))
    yield room.JointForce, dict(name="F", joint="pivot", fn=lambda motion: jnp.zeros(()))
    yield room.Load, dict(name="F", at="rod", force=np.zeros(dim), torque=0.0, follows=False)
    yield room.Thruster, dict(name="F", at="rod", direction=(1.0, 0.0))
    yield room.Motor, dict(name="F", joint="pivot", gain=1.0)
    yield (
        room.SpringDamper,
        dict(name="F", a="ground", b="rod", stiffness=1.0, damping=1.0, length=least(1.0)),
    )
    yield room.JointSpring, dict(name="F", joint="pivot", stiffness=1.0, damping=1.0, rest=1.0)
    yield room.JointInertia, dict(name="F", joint="pivot", inertia=least(1.0))
    yield (
        room.JointStop,
        dict(name="F", joint="pivot", lower=-1.0, upper=1.0, stiffness=least(1.0), damping=least(1.0)),
    )
    yield room.JointFriction, dict(name="F", joint="pivot", viscous=least(1.0), coulomb=least(1.0), speed=more(1.0))
    yield (
        room.BearingFriction,
        dict(name="F", joint="pivot", coefficient=least(0.1), radius=least(1.0), speed=more(1.0)),
    )
    curve = dict(x=np.arange(3.0), y=np.arange(3.0), interpolation=known("linear"), beyond=known("hold"))
    yield room.Table, curve
    yield room.JointCharacteristic, dict(name="F", joint="pivot", of=known("coordinate")) | curve
    yield room.LineCharacteristic, dict(name="F", a="ground", b="rod", of=known("length")) | curve
    yield room.Gear, dict(name="G", joints=["A", "B"], ratio=Among(1.0, wrong=(ZERO,)), offset=0.0)
    yield room.Rack, dict(name="G", pinion="A", rack="B", radius=Among(1.0, wrong=(ZERO,)), offset=0.0)


def shapes():
    yield planar.Rod, dict(length=more(1.0))
    yield planar.Box, dict(sides=np.ones(2))
    yield planar.Disk, dict(radius=more(1.0), inner=least(0.5))
    yield planar.Plate, dict(corners=np.array([(0, 0), (1, 0), (0, 1.0)]))
    yield spatial.Rod, dict(length=more(1.0))
    yield spatial.Box, dict(sides=np.ones(3))
    yield spatial.Disk, dict(radius=more(1.0), inner=least(0.5))
    yield spatial.Sphere, dict(radius=more(1.0))
    yield spatial.Cylinder, dict(length=more(1.0), radius=more(1.0), inner=least(0.5))
    yield spatial.Plate, dict(corners=np.array([(0, 0), (1, 0), (0, 1.0)]), thickness=more(0.1))


def laws():
    yield from environments()
    state = dict(system=built(), state=start())
    gains = dict(stiffness=least(1.0), damping=least(1.0))
    yield control.PD, dict(joints="pivot", target=0.1) | gains
    yield control.PID, dict(joints="pivot", target=0.1, integral=least(0.1)) | gains
    yield control.Saturated, dict(controller=control.PD("pivot", 1.0, 1.0), upper=least(1.0), lower=-1.0)
    yield control.RateLimited, dict(controller=control.PD("pivot", 1.0, 1.0), limit=more(1.0))
    yield (
        control.Noisy,
        dict(controller=control.PD("pivot", 1.0, 1.0), key=jax.random.key(0), q=least(0.1), v=least(0.1)),
    )
    yield control.Sampled, dict(controller=control.PD("pivot", 1.0, 1.0), period=more(0.1), phase=0.0, delay=False)
    yield control.Recorded, dict(ts=np.arange(3.0), values=np.zeros(3), joints="pivot", hold=False)
    yield control.MotionLaw, dict(fn=lambda motion: jnp.zeros(1), joints="pivot")
    yield control.Law, dict(fn=lambda t, q, v, p: jnp.zeros(1))
    yield control.GravityCompensation, dict(joints="pivot", limits=least(1.0), model=built())
    yield control.Track, dict(
        output=either("pivot", "function"), reference=either(lambda t: 0.1, "number", "negative", "list"), integral=least(1.0), limits=least(1.0), preferred=0.0,
        regularisation=least(0.1), joints="pivot", model=built(), dropped={"C": [0]},
    ) | gains  # fmt: skip
    force = control.Multipliers("pivot")
    yield control.TrackForce, dict(
        motion=track(), forces=force, reference=either(lambda t: jnp.zeros(2), "number", "negative", "list"), gain=least(0.1), integral=least(0.1),
        filter=more(1.0),
    )  # fmt: skip
    yield control.ReactionAlong, dict(directions=lambda t, q, p: jnp.ones((1, 1)), names=("a",))
    yield control.ConstraintForce, dict(name="C", directions=lambda t, q, p: jnp.ones((1, 1)), names=("a",))
    for kind in (control.Output, control.VelocityOutput, control.MotionOutput):
        yield kind, {next(iter(inspect.signature(kind).parameters)): lambda *args: jnp.zeros(1)}
    for function in (control.affine,):
        yield function, dict(plant=plant())
    yield control.Plant.at, state | dict(formulation=jm.formulation.GaussProjection())
    yield control.drive, dict(plant=plant(), limits=np.ones(1))
    yield control.operational, dict(plant=plant(), rows=rows())
    yield control.output_rows, dict(plant=plant(), output="pivot")
    yield control.tracking, dict(plant=plant(), rows=rows(), reference=either(lambda t: 0.1, "number"))
    yield control.split_force, dict(plant=plant(), force=either(np.zeros(1), "nan"))
    yield control.split_input, dict(plant=plant(), u=either(np.zeros(1), "nan"), limits=np.ones(1))
    yield control.inverse_dynamics, dict(plant=plant(), vdot=either(np.zeros(1), "nan"), limits=np.ones(1))
    options = dict(limits=np.ones(1), preferred=either(np.zeros(1), "nan"), damping=least(0.1))
    yield control.Sum, dict(controllers=either(control.PD("pivot", 1.0, 1.0), "function"))
    yield control.Outputs, dict(outputs=either("pivot", "function"))
    yield control.JointOutput, dict(names="pivot")
    yield control.Multipliers, dict(names="pivot")
    apart = control.Plant.at(absolute(), joint_state())
    yield control.hybrid_law, options | dict(
        plant=apart, rows=control.output_rows(apart, "pivot"), w=either(np.zeros(1), "nan"), forces=control.Multipliers("pivot"), y=either(np.zeros(2), "nan"),
    )  # fmt: skip
    yield control.motion_law, dict(plant=plant(), rows=rows(), w=either(np.zeros(1), "nan")) | options
    yield control.with_drivers, dict(system=built(), output="pivot", reference=lambda t: 0.1, name="driver")
    yield (
        control.controllability,
        state | dict(limits=np.ones(1), output="pivot", formulation=jm.formulation.GaussProjection()),
    )
    yield control.trajectory, dict(
        step=jm.stepper(built(), start(), 0.05), start=start(), cost=lambda state, u: u @ u, steps=more(2), final=lambda state: state.q @ state.q,
        guess=np.zeros((2, 1)), upper=np.ones(1), lower=np.full(1, -1.0), rtol=more(1e-6), max_iterations=more(2),
    )  # fmt: skip
    held = dict(system=absolute_with_motor(), state=jm.assemble(absolute_with_motor()))
    yield (
        control.analyse_forces,
        held
        | dict(forces=control.Multipliers("pivot"), limits=np.ones(1), formulation=jm.formulation.GaussProjection()),
    )


@functools.cache
def absolute_with_motor():
    return absolute()


def designs():
    design = jm.design
    for kind in (design.Coordinate, design.Stroke):
        yield kind, dict(name="pivot")
    yield design.Path, dict(point="rod.b")
    yield design.PathDeviation, dict(point="rod.b", through=np.ones((2, 2)))
    yield design.Dwell, dict(name="pivot", between=Among((0.0, 1.0), "shape"))
    yield design.TransmissionAngle, dict(one="rod.b", at="rod.a", other="rod.centre")
    yield design.BearingLoad, dict(joint="pivot")
    yield design.Effort, dict(driver="input")
    yield design.Peak, dict(of=Among(design.Effort(), "class"))
    tip = design.Goal("tip", design.Path("rod.b"), 0.0)
    yield design.Goal, dict(
        name="tip", of=lambda system, states: states.q, target=Among(0.0, "none"), low=Among(-1.0, "none"), high=Among(1.0, "none"),
        weight=more(1.0),
    )  # fmt: skip
    given = dict(
        mechanism=pendulum(),
        variables=[jm.fit.Parameter("rod.length", 1.0, 0.5, 2.0, scale=0.01)],
        goals=[tip],
        over={"pivot": [0.0, 0.5]},
        start={"pivot": 0.0},
        speed=Among(1.0, wrong=(ZERO,)),
        key=jax.random.key(0),
    )
    yield design.optimise, given | dict(
        starts=more(1), rtol=more(1e-6), max_iterations=more(2), checkpoint=Among(fresh(".npz"), "text"), progress=None
    )  # fmt: skip
    yield design.tolerances, given | dict(samples=more(4))
    small = {name: value for name, value in given.items() if name not in ("speed", "key")}
    pair = given | dict(goals=[tip, design.Goal("far", design.Path("rod.b"), 1.0)], weights=more([1.0]))
    del pair["key"]
    yield design.pareto, pair | dict(rtol=more(1e-6), max_iterations=more(2))
    front = design.pareto(**small | dict(goals=pair["goals"], weights=[1.0]), max_iterations=1)
    yield jm.plot.pareto, dict(front=front, figure=None)
    yield jm.plot.design, dict(result=design.optimise(**small, max_iterations=1), figure=None)


def files():
    found = model()
    robot = os.path.join(folder(), "pendulum.urdf")
    with open(robot, "w") as file:
        file.write(
            '<robot name="r"><link name="base"/><link name="rod"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/>'
        )
        file.write(
            '</inertial></link><joint name="j" type="continuous"><parent link="base"/><child link="rod"/></joint></robot>'
        )
    yield jm.models.load, dict(
        path=robot, base=known("fixed"), gravity=None, exclude=[], repair=False, stops=None, loops=None, allow=[],
        packages=either({}, "dict of text")
    )  # fmt: skip
    yield jm.models.inspect, dict(model=found, pose=known(None), q={"pivot": 0.1}, input=known("pivot"))
    yield jm.models.to_urdf, dict(mechanism=solid(), name="robot", cut=known([]))
    yield jm.models.to_mjcf, dict(mechanism=solid(), name="robot", cut=known([]), poses={})
    yield found.build, dict(coordinates=known("relative"), cut=known([]))
    yield found.assemble, dict(system=found.build(), pose=known(None), q={"pivot": 0.1})
    fit = jm.fit
    yield (
        fit.Parameter,
        dict(
            name="rod.mass",
            nominal=1.0,
            min_value=0.1,
            max_value=10.0,
            frozen=False,
            modifier=lambda m, x: m,
            scale=more(1.0),
        ),
    )
    yield (
        fit.Signal,
        dict(
            of=either("pivot", "function"),
            values=either(np.zeros(3), "nan", "shape"),
            sigma=more(1.0),
            bias=False,
            name="s",
        ),
    )
    yield fit.Experiment, dict(
        ts=TIMES, start=start(), signals=[fit.Signal("pivot", np.zeros(3))], control=control.PD("pivot", 1.0, 1.0), events=[],
        fit_start=either(False, "list"), windows=more(1), gap=more(0.001), name="e",
    )  # fmt: skip
    found = dict(
        model=pendulum(),
        parameters=[parameter()],
        experiments=[experiment()],
        build=lambda model: model.build(),
    )
    yield fit.identify, found | dict(
        optimiser=None, jacobian=known("forward"), rtol=least(1e-3), max_iterations=more(1), starts=more(1), key=jax.random.key(0),
        checkpoint=Among(fresh(".npz"), "text"), progress=None, check=False, throw=False,
    )  # fmt: skip
    yield fit.tune, found | dict(
        objective=lambda system, solution: jnp.sum(solution.q**2), steps=least(1), optimiser=optax.adam(1e-2), over=jnp.mean,
        gradient=known("reverse"), checkpoint=Among(fresh(".npz"), "text"), progress=None, check=False, throw=False,
    )  # fmt: skip
    yield jm.export.c, dict(
        step=episodes().stepper, folder=fresh(), name=Among("arm", wrong=(UNKNOWN,)), outputs={"turn": "pivot"}, parameters=["rod.mass"], model=Among(pendulum(), "number"),
        build=Among(lambda model: model.build(), "none"), derivatives=False,
    )  # fmt: skip
    yield jm.export.fmu, dict(
        step=episodes().stepper, path=fresh(".fmu"), name=Among("arm", wrong=(UNKNOWN,)), outputs={"turn": "pivot"}, parameters=["rod.mass"], model=Among(pendulum(), "number"),
        build=Among(lambda model: model.build(), "none"),
    )  # fmt: skip
    yield jm.export.stablehlo, dict(
        step=episodes().stepper, path=fresh(".bin"), lanes=Among(2, "none", wrong=(ZERO, NEGATIVE)), platforms=["cpu"], outputs={"turn": "pivot"}, parameters=["rod.mass"],
        model=Among(pendulum(), "number"), build=Among(lambda model: model.build(), "none"),
    )  # fmt: skip
    yield jm.check, dict(system=built(), solution=motion(), reference=motion())
    yield jm.check_gradient, dict(
        fn=lambda x: x**2, at=Among(2.0, "nan"), rtol=more(1e-6), directions=more(1), key=Among(jax.random.key(0), "none"),
    )  # fmt: skip
    yield fit.identifiability, found | dict(jacobian=known("forward"))
    yield fit.information, found | dict(jacobian=known("forward"))
    yield fit.inertia_parameter, dict(model=solid(), body=known("rod"), bound=more(10.0))
    yield from designs()
    system, run = built(), motion()
    yield jm.plot.draw, dict(
        system=system, state=start(), ax=None, points=True, view=None, forces=False, symbols=more(0.02),
    )  # fmt: skip
    yield jm.plot.live, dict(system=system, state=start(), port=least(8080), points=True, symbols=more(0.02))
    yield jm.plot.page, dict(
        system=system, solution=run, path=fresh(".html"), curves=jm.records.Record(TIMES, {"a": np.zeros(3)}), points=True, speed=more(1.0), title=either("Motion", "empty"), forces=False,
        symbols=more(0.02),
    )  # fmt: skip
    few = fit.identify(pendulum(), [parameter()], [experiment()], max_iterations=1, throw=False, progress=None)
    yield jm.plot.fit, dict(result=few, experiment=known(None), figure=None)
    yield (
        jm.plot.animate,
        dict(system=system, solution=run, points=True, speed=more(1.0), forces=False, symbols=more(0.02)),
    )
    records = jm.records
    yield records.Record, dict(t=np.arange(3.0), columns={"a": np.zeros(3)}, units={"a": "m"}, source="s")
    yield records.Column, dict(source="a", unit="m", offset=0.0, index=least(0))
    yield records.Column, dict(source="a", scale=1.0)
    yield records.read, dict(path=known(table()), columns={"a": "a"}, time="time")
    yield records.read_described, dict(path=known(described()))
    yield record().window, dict(start=0.0, stop=1.0)
    yield record().every, dict(n=more(2))
    yield record().to_csv, dict(path=either(fresh(".csv"), "text"))
    yield jm.sweep.grid, dict(columns={"a": [1.0, 2.0]})
    yield jm.sweep.run, dict(
        fn=lambda row: {"y": row["a"]}, table={"a": np.arange(3.0)}, folder=fresh(), rows_per_shard=more(2), memory=more(1e9),
        task=least(0), tasks=more(1), kind=known("nc"), progress=False, throw=True, cost=None, check=None,
    )  # fmt: skip
    yield jm.sweep.status, dict(folder=known(swept()))
    yield jm.sweep.open, dict(folder=known(swept()))
    yield jm.sweep.read_described, dict(path=known(swept_by_text()))


@functools.cache
def swept_by_text():
    path = os.path.join(folder(), "sweep.toml")
    with open(path, "w") as file:
        file.write('function = "math:sqrt"\nfolder = "results"\nrows_per_shard = 2\n[table]\na = [1.0, 2.0]\n')
    return path


@functools.cache
def described():
    path = os.path.join(folder(), "a.toml")
    with open(path, "w") as file:
        file.write('file = "a.csv"\n[columns]\na = "a"\n')
    table()
    return path


@functools.cache
def swept():
    path = fresh()
    jm.sweep.run(lambda row: {"y": row["a"]}, {"a": np.arange(3.0)}, path, progress=False)
    return path


@functools.cache
def episodes():
    step = jm.stepper(built(), start(), 0.01)
    return jm.env.Environment(step, lambda system, state: state.q, lambda system, state, action: state.q[0], 1.0)


def environments():
    yield jm.env.Environment, dict(
        stepper=episodes().stepper, observe=lambda system, state: state.q, reward=lambda system, state, action: state.q[0], upper=np.ones(1),
        lower=np.full(1, -1.0), done=lambda system, state: False, randomise=lambda rng, system: system, spread=np.full(1, 0.1),
        episode_length=Among(10, "none", wrong=(ZERO, NEGATIVE)),
    )  # fmt: skip
    yield jm.env.AutoReset, dict(env=episodes())
    yield (
        jm.env.make,
        dict(name=known("five_bar_hopper"), episode_length=Among(10, "none", wrong=(ZERO, NEGATIVE)), randomise=False),
    )
    yield jm.env.to_gymnasium, dict(env=episodes(), seed=least(0))
    yield jm.env.to_gymnasium_vector, dict(env=episodes(), num_envs=more(2), seed=least(0))


GROUPS = {
    "doors": doors,
    "planar": lambda: elements("planar", 2),
    "spatial": lambda: elements("spatial", 3),
    "shapes": shapes,
    "laws": laws,
    "reports": reports,
    "files": files,
}


# What is wrong

# Functions that make something of a function, which is called later.
LATER = (jm.batched, control.with_drivers)


class _Other:
    def __repr__(self):
        return "an object"


def kind_of(value):
    """The kind of a right value."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int):
        return "count"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "dict"
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, jm.System):
        return "system"
    if isinstance(value, tuple | list):
        numbers = value and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
        return "array" if numbers else "names" if all(isinstance(x, str) for x in value) else "several"
    if inspect.isfunction(value):
        return "function"
    return "object"


COMMON = {"none": None, "object": _Other(), "dict of text": {"no": "such"}}
WRONG = {
    "flag": COMMON | {"text": "no", "number": 1.5, "2": 2, "list": []},
    "count": COMMON | {"text": "no", "number": 1.5, "nan": np.nan, "True": True, "list": [1]},
    "number": COMMON | {"text": "no", "digits": "1", "nan": np.nan, "True": True, "complex": 1j, "list of unknown": ["no"], "class": float},
    "text": COMMON | {"number": 1.5, "empty": "", "True": True, "class": str, "list of number": [1.5]},
    "names": COMMON | {"number": 1.5, "True": True, "list of number": [1.5], "list of empty": [""], "class": list},
    "function": COMMON | {"text": "no", "number": 1.5, "True": True, "list": [], "arity": lambda: 0.0, "text of it": lambda *args: "no"},
    "object": COMMON | {"text": "no", "number": 1.5, "True": True, "list": [], "mechanism": pendulum()},
    "system": COMMON | {"text": "no", "number": 1.5, "True": True, "list": [], "mechanism": pendulum()},
    "array": COMMON | {"text": "no", "list of text": ["no"], "nan": None, "True": True, "function": abs},
    "dict": COMMON | {"text": "no", "number": 1.5, "True": True, "list of number": [1.5], "class": dict},
    "several": COMMON | {"text": "no", "number": 1.5, "True": True, "list of object": [_Other()], "list of class": [jm.formulation.KKT]},
}  # fmt: skip


def wrong_values(right):
    """Labels and values that are wrong where a value is right."""
    among = right if isinstance(right, Among) else Among(right)
    kind = kind_of(among.value)
    values = dict(WRONG[kind]) | dict(among.wrong)
    if kind in ("object", "system"):
        values["class"] = type(among.value)
    if kind == "array":
        array = np.asarray(among.value, float)
        values |= {"nan": np.full(array.shape, np.nan), "shape": np.ones((*array.shape, 7))}
    if isinstance(among.value, planar.Mechanism | spatial.Mechanism):
        del values["mechanism"]
    if kind == "names" and among.wrong:
        values |= {"text": "no such", "unknown": ["no such"]}
    if kind == "count":
        values = {label: int(value) if label in ("zero", "negative") else value for label, value in values.items()}
    return {label: value for label, value in values.items() if label not in among.also}


NAMED = (ValueError, TypeError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


def names(error, name, wrong):
    """Whether an error names the argument, the element, or the name that is not there."""
    said = str(error)
    asked = wrong[0] if isinstance(wrong, list) and wrong else wrong
    shown = isinstance(asked, str) and asked and asked in said
    return shown or re.search(rf"(?<![a-z]){re.escape(name)}(?![a-z])", said) or re.match(r"[A-Z]\w+ '[^']+' ", said)


def call(function, arguments):
    """With one argument for those of any number."""
    kinds = {name: p.kind for name, p in inspect.signature(function).parameters.items()}
    several = [x for name, x in arguments.items() if kinds.get(name) is inspect.Parameter.VAR_POSITIONAL]
    return function(
        *several, **{k: x for k, x in arguments.items() if kinds.get(k) is not inspect.Parameter.VAR_POSITIONAL}
    )


def outcome(function, arguments, name, wrong):
    """ "refused" by name, "accepted", or what else is raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(function, arguments | {name: wrong})
    except Exception as error:
        return (
            "refused"
            if type(error) in NAMED and names(error, name, wrong)
            else f"{type(error).__name__}: {str(error)[:300]}"
        )
    return "accepted"


def label_of(function):
    owner = getattr(function, "__self__", None)
    owner = None if owner is None else (owner if inspect.isclass(owner) else type(owner))
    path = f"{owner.__module__}.{owner.__name__}." if owner is not None else f"{function.__module__}."
    return path.removeprefix("jaxmb.") + function.__name__


def with_lists(arguments):
    """The arguments with one array after the other as nested lists, by its name."""
    for name, x in arguments.items():
        if isinstance(x, np.ndarray | jax.Array) and x.ndim and x.dtype != np.uint32:  # which is a key
            yield name, arguments | {name: np.asarray(x).tolist()}


def walk(*groups):
    """Every wrong call: how many, and those that are not refused by name."""
    calls, failures = 0, []
    for function, given in right_calls(groups or GROUPS):
        label, failed = label_of(function), len(failures)
        arguments = {name: value.value if isinstance(value, Among) else value for name, value in given.items()}
        for name, way in (("", arguments), *with_lists(arguments)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(function, way)
            except Exception as error:
                failures.append((label, name, "right", f"{type(error).__name__}: {str(error)[:300]}"))
        if len(failures) > failed:
            continue
        defaults = {key: p.default for key, p in inspect.signature(function).parameters.items()}
        for name, right in given.items():
            for sort, wrong in wrong_values(right).items():
                default = defaults.get(name, inspect.Parameter.empty)
                if wrong is default or (wrong is None and right is None):
                    continue
                if sort == "text of it" and (inspect.isclass(function) or function in LATER):
                    continue  # what a function returns is looked at where a system is built
                calls += 1
                found = outcome(function, arguments, name, wrong)
                if found != "refused":
                    failures.append((label, name, sort, found))
    return calls, failures


if __name__ == "__main__":
    # What is called may print, and does so at the end of the process, too.
    out, sys.stdout = sys.stdout, sys.stderr
    calls, failures = walk(*sys.argv[1:])
    print(json.dumps({"calls": calls, "failures": failures}, indent=1), file=out)
