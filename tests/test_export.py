"""A stepper in C returns the numbers of jaxmb, says where it cannot, and cannot be broken by a name."""

import ctypes
import dataclasses
import functools
import os
import re
import shutil
import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import parallelogram
import pytest
from systems import make

import jaxmb as jm
from jaxmb.lanes import CTypes, Program, Shaped, c_function
from jaxmb.system import constraint_jacobian

P, S = jm.planar, jm.spatial
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ["-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")


def pendulum():
    """A point on a rod, pushed by two inputs."""
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * 9.81 * q[1],
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - p["l"] ** 2)],
        actuation=lambda t, q, p: jnp.eye(2),
        params={"m": 2.0, "l": 1.0},
    )
    step = jm.stepper(system, jm.assemble(system, [-0.8, -0.6]), 0.01)
    return step, dict(
        parameters=["m", "l"], outputs={"height": lambda system, state: state.q[1], "x": "x", "speed": "x'"}
    )


def fourbar(module, **axis):
    """A four-bar by joints; in space its loop is closed three times too often."""
    flat = module is P
    at = lambda *x: x if flat else (*x, 0.0)
    body = lambda name, length: (
        P.Body.rod(name, 1.0, length)
        if flat
        else S.Body(
            name, 1.0, (0.01, 0.1, 0.1), points={"a": S.frame((0.0, 0.0, 0.0)), "b": S.frame((length, 0.0, 0.0))}
        )
    )
    joints = [
        module.Revolute("A", "ground", "crank.a", **axis),
        module.Revolute("B", "crank.b", "coupler.a", **axis),
        module.Revolute("C", "coupler.b", "rocker.b", **axis),
        module.Revolute("D", "ground.d", "rocker.a", **axis),
    ]
    mechanism = module.Mechanism(
        [body("crank", 0.3), body("coupler", 0.9), body("rocker", 0.7)],
        joints,
        actuators=[module.Motor("motor", "A")],
        gravity=at(0.0, -9.81),
        points={"d": at(0.8, 0.0)},
    )
    system = mechanism.build()
    step = jm.stepper(system, jm.assemble(system, {"A": 0.9}), 0.004, substeps=2, solver=dfx.Midpoint())
    return step, dict(parameters=["crank.mass"], model=mechanism, outputs=["coupler.b", "D"])


def slider_crank():
    """With a driver, a motor, and a spring by a table."""
    mechanism = P.Mechanism(
        [
            P.Body.rod("crank", 1.0, 0.3),
            P.Body.rod("rod", 1.5, 0.8),
            P.Body("block", 0.8, 0.01),
            P.Body.rod("arm", 0.4, 0.5),
        ],
        [
            P.Revolute("turn", "ground", "crank.a"),
            P.Revolute("knee", "crank.b", "rod.a"),
            P.Revolute("pin", "rod.b", "block"),
            P.Prismatic("rail", "ground", "block"),
            P.Revolute("elbow", "block", "arm.a"),
        ],
        [P.Driver("motor", "turn", lambda t, p: 0.4 + p["speed"] * t)],
        [
            P.JointCharacteristic(
                "spring", "rail", "coordinate", [0.5, 0.8, 0.9, 1.2], [30.0, 5.0, -5.0, -40.0], "cubic"
            )
        ],
        [P.Motor("drive", "elbow")],
        gravity=(0.0, -9.81),
        params={"speed": 3.0},
    )
    system = mechanism.build()
    step = jm.stepper(system, jm.assemble(system, {"turn": 0.4, "elbow": -1.0}), 0.005)
    return step, dict(parameters=["params.speed", "spring.y"], model=mechanism)


def sleigh():
    system, start = make("sleigh")
    return jm.stepper(system, start, 0.01, solver=dfx.Ralston()), {}


def top():
    system, start = make("top")
    return jm.stepper(system, start, 0.005), {}


class Lag(jm.control.AbstractController):
    """A torque that follows the pose late."""

    gain: jax.Array
    uses_plant = False

    def init(self, system):
        return jnp.zeros(2)

    def output(self, plant, z):
        return -self.gain * z

    def rate(self, plant, z, response):
        return (plant.q - z) / 0.1


def balanced():
    """A controller that remembers, on a point on a rod."""
    step, _ = pendulum()
    step = jm.stepper(step.system, step.state, 0.01, control=Lag(jnp.array(4.0)))
    return step, dict(parameters=["control.gain"])


CASES = {
    "pendulum": pendulum,
    "four-bar": functools.partial(fourbar, P),
    "four-bar in space": functools.partial(fourbar, S, axis=(0.0, 0.0, 1.0)),
    "slider-crank": slider_crank,
    "sleigh": sleigh,
    "top": top,
    "controlled": balanced,
}


class Code:
    """Functions in C, called from Python with arrays by their names."""

    def __init__(self, folder, name="mech", flags=("-O2",), compiler=None):
        self.header = (folder / f"{name}.h").read_text()
        self.name, library = name, folder / f"{name}.so"
        command = [compiler or COMPILERS[0], *flags, "-shared", "-fPIC", "-o", library, folder / f"{name}.c", "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        self.library = ctypes.CDLL(str(library))

    def __call__(self, function, **numbers):
        """The code that is returned; arrays that are not const are changed."""
        declaration = re.search(rf"int {self.name}_{function}\((.*?)\);", self.header, re.S)[1]
        arguments = []
        for argument in declaration.split(", "):
            name = argument.split()[-1].lstrip("*")
            if "*" in argument:
                array = numbers[name]
                assert array.dtype == np.float64 and array.flags.c_contiguous
                arguments.append(array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
            else:
                arguments.append(ctypes.c_double(numbers[name]))
        return getattr(self.library, f"{self.name}_{function}")(*arguments)


def parts(step, state):
    """Arrays of a state, by the names of arguments."""
    out = {"q": state.q, "v": state.v}
    if state.control is not None:
        out["z"] = state.control
    return {k: np.array(x) for k, x in out.items()}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    @functools.cache
    def make(case, derivatives=False):
        step, options = CASES[case]()
        folder = tmp_path_factory.mktemp("c")
        jm.export.c(step, folder, "mech", derivatives=derivatives, **options)
        return step, options, folder

    return make


def nominal(step, options):
    """The numbers that stay arguments."""
    setup = jm.fit.target.Setup(options.get("model", step.system), step.control)
    values = [jm.fit.target.locate(setup, name).read(setup) for name in options.get("parameters", ())]
    return np.concatenate([np.zeros(0), *(np.ravel(x) for x in values)])


@needs_compiler
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow_except("pendulum")
def test_the_numbers_are_those_of_jaxmb(case, exported):
    """Warnings are errors; the test that is written along passes; 200 steps, accelerations and multipliers agree."""
    step, options, folder = exported(case)
    for compiler in COMPILERS:
        subprocess.run([compiler, *STRICT, "test_mech.c", "mech.c", "-lm", "-o", "tried"], cwd=folder, check=True)
        found = subprocess.run(["./tried"], cwd=folder, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout
    code, p = Code(folder), nominal(step, options)
    system, state, rng = step.system, step.start(), np.random.default_rng(1)
    nu = 0 if step.control is not None else system.nu
    moved, advance = parts(step, state), eqx.filter_jit(step)
    m = sum(part.stop - part.start for part in system.rows.values())
    for k in range(200):
        u = rng.normal(size=nu)
        if k % 50 == 0 and step.control is None:
            expected = jm.reactions(system, state, u=u if nu else None)
            a, multipliers = np.empty(system.nv), np.empty(m)
            own = {**parts(step, state), "u": u, "p": p}
            assert code("acceleration", t=float(state.t), **own, a=a, **{"lambda": multipliers}) == 0
            assert_near(a, expected.vdot)
            pushed = np.asarray(constraint_jacobian(system, state.t, state.q)).T @ multipliers if m else 0 * a
            assert_near(pushed, expected.reaction)
            if bool(np.all(step.independent)):
                assert_near(
                    multipliers, np.concatenate([np.zeros(0), *(np.ravel(x) for x in expected.multipliers.values())])
                )
        assert code("step", t=float(state.t), dt=float(step.dt), **moved, u=u, p=p) == 0
        state = advance(state, jnp.asarray(u) if nu else None)
    for name, x in parts(step, state).items():
        assert np.all(np.isfinite(x))
        assert_near(moved[name], x, 1e-10)  # rounding grows along a motion


def assert_near(found, expected, tol=1e-12):
    expected = np.asarray(expected)
    assert np.abs(found - expected).max(initial=0) <= tol * max(1, np.abs(expected).max(initial=0))


@needs_compiler
def test_every_operation_is_that_of_numpy(tmp_path):
    """Also what C does otherwise: the larger of a number and NaN, halves that are rounded, tables beyond their ends."""

    def fn(x, y):
        one = [
            jnp.sin(x),
            jnp.cos(x),
            jnp.tan(x),
            jnp.arctan(x),
            jnp.exp(x),
            jnp.exp2(x),
            jnp.expm1(x),
            jnp.tanh(x),
            jnp.sinh(x),
        ]
        one += [
            jnp.cosh(x),
            jnp.arcsinh(x),
            jnp.cbrt(x),
            jnp.abs(x),
            jnp.floor(x),
            jnp.ceil(x),
            jax.lax.round(x),
            jnp.round(x),
        ]
        one += [jnp.log(jnp.abs(x)), jnp.log1p(jnp.abs(x)), jnp.sqrt(jnp.abs(x)), jnp.arccosh(1 + jnp.abs(x))]
        one += [jnp.arcsin(jnp.sin(x)), jnp.arccos(jnp.cos(x)), jnp.arctanh(0.9 * jnp.sin(x)), 1 / x, -x, x * 0.0]
        two = [
            x + y,
            x - y,
            x * y,
            x / y,
            jnp.maximum(x, y),
            jnp.minimum(x, y),
            jnp.fmod(x, y),
            jnp.arctan2(x, y),
            jnp.abs(x) ** y,
        ]
        truths = [
            x > y,
            x < y,
            x >= y,
            x <= y,
            x == y,
            x != y,
            (x > y) & (y > 0),
            (x > y) | (y > 0),
            (x > y) ^ (y > 0),
            ~(x > y),
        ]
        row = lambda rows: jax.lax.dynamic_index_in_dim(
            rows, jnp.sum(x > jnp.array([-2.0, 0.0, 2.0, 3.0])) - 1, 0, False
        )
        looked_up = [
            row(jnp.array([3.0, -1.0, 2.0])),
            row(jnp.stack([x, y, x + y])),
            row(jnp.stack([y, jnp.array(2.0)])),
        ]
        return [jnp.stack([jnp.asarray(r, x.dtype) for r in (*one, *two, *truths, *looked_up)])]

    program = Program.of(fn, Shaped((), jnp.float64), Shaped((), jnp.float64), exact=True)
    text = "#include <math.h>\n" + CTypes(np.float64).lookup + c_function("f", program, np.float64, ["x", "y"], ["r"])
    (tmp_path / "f.c").write_text(text + "void g(double x, double y, double *r) { f(x, y, r); }\n")
    subprocess.run(
        [COMPILERS[0], *STRICT, "-Wno-unused-function", "-shared", "-fPIC", "-o", "f.so", "f.c", "-lm"],
        cwd=tmp_path,
        check=True,
    )
    g = ctypes.CDLL(str(tmp_path / "f.so")).g
    pairs = [(0.3, 1.7), (-2.5, 0.5), (2.5, 2.5), (3.5, -1.0), (np.nan, 1.0), (1.0, np.nan), (-7.2, 3.0)]
    for x, y in pairs:
        found = np.empty(program.results[0].shape)
        g(ctypes.c_double(x), ctypes.c_double(y), found.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
        expected = program.fn(jnp.asarray(x), jnp.asarray(y))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


@needs_compiler
@pytest.mark.parametrize("case", ["pendulum", "four-bar", "controlled"])
@pytest.mark.slow
def test_tangents_are_those_of_jax(case, exported):
    step, options, folder = exported(case, derivatives=True)
    code, p, rng = Code(folder), nominal(step, options), np.random.default_rng(2)
    state, nu = step.start(), 0 if step.control is not None else step.system.nu
    u, own = rng.normal(size=nu), parts(step, state)
    dots = {name: rng.normal(size=x.shape) for name, x in own.items()} | {"u": rng.normal(size=nu), "p": 0 * p}
    # Along the constraints: beside them a step has another tangent than its correction.
    tangents = {f"d_{name}": x.copy() for name, x in dots.items()}

    def after(changes, u):
        names = {"z": "control"}
        moved = dataclasses.replace(
            state, **{names.get(k, k): getattr(state, names.get(k, k)) + x for k, x in changes.items()}
        )
        end = step(moved, u if nu else None)
        return {k: getattr(end, names.get(k, k)) for k in own}

    zeros = {name: jnp.zeros(x.shape) for name, x in own.items()}
    _, expected = jax.jvp(
        after, (zeros, jnp.asarray(u)), ({k: jnp.asarray(dots[k]) for k in own}, jnp.asarray(dots["u"]))
    )
    assert code("step_tangent", t=0.0, dt=float(step.dt), **own, **tangents, u=u, p=p) == 0
    for name in own:
        assert_near(tangents[f"d_{name}"], expected[name], 1e-10)


@needs_compiler
@pytest.mark.slow
def test_tangents_by_parameters_and_of_outputs_are_those_of_differences(exported):
    step, options, folder = exported("pendulum", derivatives=True)
    code, p, rng, h = Code(folder), nominal(step, options), np.random.default_rng(3), 1e-6
    own = {**parts(step, step.start()), "u": rng.normal(size=2), "p": p}
    dots = {f"d_{name}": rng.normal(size=x.shape) for name, x in own.items()}
    for function, sizes in (("acceleration", {"a": 2, "lambda": 1}), ("outputs", {"y": 3})):
        found = {f"{'d_' * dot}{name}": np.empty(n) for name, n in sizes.items() for dot in (0, 1)}
        assert code(f"{function}_tangent", t=0.0, **own, **dots, **found) == 0
        sides = []
        for sign in (1, -1):
            sides.append({name: np.empty(n) for name, n in sizes.items()})
            moved = {name: x + sign * h * dots[f"d_{name}"] for name, x in own.items()}
            assert code(function, t=0.0, **moved, **sides[-1]) == 0
        for name in sizes:
            assert_near(found[f"d_{name}"], (sides[0][name] - sides[1][name]) / (2 * h), 1e-7)


@needs_compiler
@pytest.mark.slow
def test_what_is_not_regular_is_told_and_nothing_is_written(tmp_path):
    """A parallelogram of equal bars, folded flat: its rows are dependent there; and numbers that are not finite, or off the constraints."""
    system = parallelogram.parallelogram()
    at = lambda angle, speed: jm.assemble(system, *parallelogram.pose(jnp.array(angle), jnp.array(speed)))
    jm.export.c(jm.stepper(system, at(0.6, -3.0), 0.01, solver=dfx.Midpoint()), tmp_path, "mech")
    code = Code(tmp_path)

    def tried(state, dt=0.01, off=0.0):
        q, v = np.array(state.q) + off, np.array(state.v)
        before, a = (q.copy(), v.copy()), np.full(system.nv, 7.0)
        result = code("step", t=0.0, dt=dt, q=q, v=v)
        written = not (np.array_equal(q, before[0], equal_nan=True) and np.array_equal(v, before[1]))
        other = code("acceleration", t=0.0, q=before[0], v=before[1], a=a, **{"lambda": np.empty(system.m)})
        return result, written, other, bool(np.any(a != 7.0))

    assert tried(at(0.6, -3.0)) == (0, True, 0, True)
    assert tried(at(1e-4, -3.0)) == (1, False, 1, False)
    # Both ends of such a step are regular: rows that have turned tell of the pose between them.
    assert tried(at(0.2, -4.0), dt=0.1)[:2] == (1, False)
    assert tried(at(0.6, -3.0), off=np.nan) == (2, False, 2, False)
    assert tried(at(0.6, -3.0), dt=np.inf)[:2] == (2, False)
    result, written, *_ = tried(at(0.6, -3.0), off=0.3 * np.arange(system.nq))
    assert result in (1, 3) and not written


@needs_compiler
@pytest.mark.slow
def test_single_precision(tmp_path):
    with jax.enable_x64(False):
        step, options = pendulum()
        jm.export.c(step, tmp_path, "mech", derivatives=True, **options)
    assert "double" not in re.sub(r"/\*.*?\*/|\(double\)largest", "", (tmp_path / "mech.c").read_text(), flags=re.S)
    subprocess.run(
        [
            COMPILERS[0],
            *STRICT,
            "-Wdouble-promotion",
            "-Wno-error=double-promotion",
            "test_mech.c",
            "mech.c",
            "-lm",
            "-o",
            "tried",
        ],
        cwd=tmp_path,
        check=True,
    )
    subprocess.run(["./tried"], cwd=tmp_path, check=True)


HOSTILE = ['a*/b"', "c\\\nd", "??/", "e'; exit(1); //", "ö²", "int"]


@needs_compiler
def test_names_cannot_break_out(tmp_path):
    system = jm.System(
        HOSTILE,
        mass=lambda t, q, p: jnp.eye(6),
        potential=lambda t, q, p: jnp.sum(q**2) * p["*/k"],
        params={"*/k": 1.0},
    )
    step = jm.stepper(system, jm.assemble(system, jnp.ones(6)), 0.01, solver=dfx.Midpoint())
    jm.export.c(step, tmp_path, "mech", outputs={'*/ #error "': HOSTILE[0], "/*": HOSTILE[5]}, parameters=["*/k"])
    subprocess.run(
        [COMPILERS[0], *STRICT, "-trigraphs", "test_mech.c", "mech.c", "-lm", "-o", "tried"], cwd=tmp_path, check=True
    )
    for path in tmp_path.glob("*mech.*"):
        text = path.read_text(encoding="ascii")
        code = re.sub(r"/\*.*?\*/|\"[^\"\n]*\"", "", text, flags=re.S)
        assert "exit" not in code and "error" not in code and text.count("/*") == text.count("*/")


@pytest.mark.slow
def test_refusals(tmp_path):
    step, _ = pendulum()
    for name in ("2d", "a b", "../a", "int", "a" * 32, "ä"):
        with pytest.raises(ValueError, match="`name` must be an identifier of C"):
            jm.export.c(step, tmp_path, name)
    with pytest.raises(ValueError, match="'mass' is not one of"):
        jm.export.c(step, tmp_path, parameters=["mass"])
    with pytest.raises(ValueError, match="must be one of"):
        jm.export.c(step, tmp_path, outputs=["nobody"])
    with pytest.raises(ValueError, match="`outputs` must hold different names, but repeats 'x'"):
        jm.export.c(step, tmp_path, outputs=["x", "x"])
    with pytest.raises(TypeError, match="`outputs`, 'x', must return a number or an array, but returns a NoneType"):
        jm.export.c(step, tmp_path, outputs={"x": lambda system, state: None})
    with pytest.raises(TypeError, match=r"`outputs`, 'x', must compute with `jax.numpy` alone"):
        jm.export.c(step, tmp_path, outputs={"x": lambda system, state: float(state.q[0])})
    with pytest.raises(ValueError, match="folder that is there"):
        jm.export.c(step, tmp_path / "no" / "where")
    implicit = jm.stepper(step.system, step.state, 0.01, solver=dfx.Kvaerno3())
    with pytest.raises(ValueError, match="`step` must make regular steps, but `Kvaerno3` is not an explicit"):
        jm.export.c(implicit, tmp_path)
    partition = jm.stepper(step.system, step.state, 0.01, formulation=jm.formulation.CoordinatePartition())
    with pytest.raises(ValueError, match="`step` must make regular steps, but `CoordinatePartition`"):
        jm.export.c(partition, tmp_path)
    mechanism = fourbar(P)[1]["model"]
    with pytest.raises(ValueError, match="`model` must build the system of `step`"):
        jm.export.c(step, tmp_path, model=mechanism, parameters=["crank.mass"])
    assert not any(tmp_path.iterdir())


def lagging():
    """A point in the plane that a controller with a memory pushes; its height is read."""
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: 2.0 * jnp.eye(2),
        potential=lambda t, q, p: 9.81 * q[1],
        actuation=lambda t, q, p: jnp.eye(2),
    )
    step = jm.stepper(
        system, jm.as_state(system, [0.3, -0.2]), 0.01, solver=dfx.Midpoint(), control=Lag(jnp.array(4.0))
    )
    return step, {"height": "y"}


@needs_compiler
def test_what_a_controller_puts_out_is_a_function_of_the_state(tmp_path):
    """Its inputs are no arguments; what it remembers is part of the state."""
    step, outputs = lagging()
    jm.export.c(step, tmp_path, "mech", outputs=outputs)
    code, start = Code(tmp_path), step.start()
    assert "double *u);" in code.header and "const double *u" not in code.header
    own, u, y = parts(step, start) | {"z": np.array([0.5, -0.25])}, np.empty(2), np.empty(1)
    assert code("inputs", t=0.0, **own, u=u) == 0 and u.tolist() == [-2.0, 1.0]
    assert code("outputs", t=0.0, **own, y=y) == 0 and y.tolist() == [-0.2]
    assert code("step", t=0.0, dt=0.01, **own) == 0
    expected = parts(step, step(dataclasses.replace(start, control=jnp.array([0.5, -0.25]))))
    for name, x in expected.items():
        assert_near(own[name], x)


@needs_compiler
def test_controllers_at_joints_are_written_and_those_that_hold_are_not(tmp_path):
    """A block that is pushed along its joint, without an actuator: ẍ = −9 x − 6 ẋ from x = 1, critically damped."""
    block = P.Mechanism([P.Body("block", 2.0, 0.1)], [P.Prismatic("rail", "ground", "block", axis=(1.0, 0.0))])
    system = block.build()
    start = jm.assemble(system, {"rail": 1.0})
    made = lambda control: jm.stepper(system, start, 0.01, control=control)
    jm.export.c(made(jm.control.PD("rail", 18.0, 12.0)), tmp_path, "mech")
    code, own, u = Code(tmp_path), {"q": np.array([1.0]), "v": np.array([0.0])}, np.empty(1)
    assert "#define MECH_U_RAIL 0 /* rail, in N */" in code.header
    assert code("inputs", t=0.0, **own, u=u) == 0 and u.tolist() == [-18.0]
    for k in range(100):
        assert code("step", t=0.01 * k, dt=0.01, **own) == 0
    assert_near(own["q"], [4.0 * np.exp(-3.0)])
    with pytest.raises(ValueError, match="`step` must act in continuous time, but `Recorded` holds its outputs"):
        jm.export.c(made(jm.control.Recorded([0.0, 0.5], [1.0, 2.0], "rail", hold=True)), tmp_path)


def test_a_program_of_stablehlo_makes_the_step(tmp_path):
    """With what a controller remembers, and what is read of the state after it."""
    pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed: extra `export`")
    step, outputs = lagging()
    found = jm.export.stablehlo(step, tmp_path / "step.bin", outputs=outputs, platforms=["cpu"])
    assert found.operands == {"t": (), "q": (2,), "v": (2,), "z": (2,)} and found.results["y"] == (1,)
    start = step.start()
    program = jax.export.deserialize(bytearray((tmp_path / "step.bin").read_bytes()))
    out, after = program.call({"t": start.t, **{k: jnp.asarray(x) for k, x in parts(step, start).items()}}), step(start)
    for name, x in parts(step, after).items():
        assert_near(np.asarray(out[name]), x)
    assert_near(np.asarray(out["y"]), after.q[1:])
    assert bool(out["successful"])
    plain = jm.stepper(step.system, step.state, 0.01, solver=dfx.Midpoint())
    found = jm.export.stablehlo(plain, tmp_path / "step.bin", platforms=["cpu"])
    assert set(found.operands) == {"t", "q", "v", "u"} and set(found.results) == {"t", "q", "v", "successful"}


def test_a_model_must_be_the_one_of_the_step(tmp_path):
    step, _ = pendulum()
    mechanism = P.Mechanism([P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("O", "ground", "rod.a")])
    with pytest.raises(ValueError, match="`model` must build the system of `step`, but builds another one"):
        jm.export.c(step, tmp_path, model=mechanism)
    with pytest.raises(ValueError, match="`model` must build the system of `step`, but builds one with other numbers"):
        jm.export.c(step, tmp_path, model=step.system.with_params({"m": 3.0, "l": 1.0}), build=lambda system: system)
    assert not any(tmp_path.iterdir())
    step, outputs = lagging()
    alone, given = (tmp_path / name for name in ("alone", "given"))
    for folder, model in ((alone, {}), (given, {"model": step.system, "build": lambda system: system})):
        folder.mkdir()
        jm.export.c(step, folder, "mech", outputs=outputs, **model)
    assert (given / "mech.c").read_text() == (alone / "mech.c").read_text()


def test_a_step_that_fails_is_refused(tmp_path):
    """Its force is that of a spring whose law ends at zero."""
    system = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: jnp.sqrt(q))
    step = jm.stepper(system, jm.as_state(system, [-0.3]), 0.01, solver=dfx.Midpoint())
    with pytest.raises(ValueError, match=r"`step` must make a regular step from its own state, but that .* fails: see"):
        jm.export.c(step, tmp_path)


CHILD = """
import sys
sys.modules["jaxmb"] = None  # an import of it fails
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from jax import export
program = export.deserialize(bytearray(open("step.bin", "rb").read()))
data = dict(np.load("in.npz"))
for _ in range(3):
    out = program.call(data)
    data |= {k: out[k] for k in ("t", "q", "v")}
np.savez("out.npz", **out)
"""


@pytest.mark.slow
def test_a_program_of_stablehlo_runs_without_the_library(tmp_path):
    pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed: extra `export`")
    step, options = pendulum()
    step = jm.stepper(step.system, step.state, 0.01, solver=dfx.Midpoint())
    found = jm.export.stablehlo(step, tmp_path / "step.bin", lanes=2, **options)
    assert found.platforms == ("cpu", "cuda") and found.operands["u"] == (2, 2) and found.results["y"] == (2, 3)
    start, u = step.start(), np.array([[3.0, -1.0], [0.0, 2.0]])
    both = lambda x: np.stack([np.asarray(x)] * 2)
    np.savez(tmp_path / "in.npz", t=both(start.t), q=both(start.q), v=both(start.v), u=u, p=[2.5, 1.0])
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", CHILD], cwd=tmp_path, check=True, env=environment)
    out = np.load(tmp_path / "out.npz")
    heavy = step.system.with_params({"m": 2.5, "l": 1.0})
    step = jm.stepper(heavy, step.state, 0.01, solver=dfx.Midpoint())
    for lane in range(2):
        state = start
        for _ in range(3):
            state = step(state, jnp.asarray(u[lane]))
        assert_near(out["q"][lane], state.q)
        assert_near(out["v"][lane], state.v)
        assert_near(out["y"][lane], [state.q[1], state.q[0], state.v[0]])
    assert np.all(out["successful"])
