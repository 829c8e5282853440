"""Functional mock-up units: valid, the motions of jaxmb in both kinds, exact derivatives, failures that are told."""

import functools
import pathlib
import subprocess
import zipfile

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import parallelogram
import pytest
from test_export import CASES, HOSTILE, STRICT, lagging, needs_compiler

import jaxmb as jm

fmpy = pytest.importorskip("fmpy", reason="FMPy is not installed: extra `export`")
validation = pytest.importorskip("fmpy.validation")
fmi3 = pytest.importorskip("fmpy.fmi3")

COUNT = 100


@pytest.fixture(scope="module")
def unit(tmp_path_factory):
    """A pendulum with inputs, and one with a controller that remembers."""

    @functools.cache
    def written(case):
        step, options = CASES[case]()
        path = tmp_path_factory.mktemp("fmu") / "mech.fmu"
        return step, path, jm.export.fmu(step, path, "mech", **options)

    return written


def motion(step, us=None):
    """The states of the steps."""
    states = [step.start()]
    for k in range(COUNT):
        states.append(step(states[-1], None if us is None else jnp.asarray(us[k])))
    return states


@needs_compiler
@pytest.mark.parametrize("case", ["pendulum", "controlled", "slider-crank"])
@pytest.mark.slow
def test_units_move_as_jaxmb_does(case, unit, tmp_path):
    step, path, written = unit(case)
    assert validation.validate_fmu(str(path)) == [] and written.platform is not None
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    subprocess.run(
        ["gcc", *STRICT, "-shared", "-fPIC", "mech.c", "fmi3.c", "-lm", "-o", "mech.so"],
        cwd=tmp_path / "sources",
        check=True,
    )
    nu, dt = (0 if step.control is not None else step.system.nu), float(step.dt)
    us = np.sin(np.arange(1.0, nu + 1)) * np.ones((COUNT, nu))
    states = motion(step, us if nu else None)
    names = jm.system.Names.of(step.system)
    signals = None
    if nu:
        signals = np.array(
            [(0.0, *us[0]), (COUNT * dt, *us[0])], dtype=[(name, float) for name in ("time", *names.inputs)]
        )
    end, expected = COUNT * dt, np.concatenate([states[-1].q, states[-1].v])
    outputs = [*names.coordinates, *names.rates]
    run = lambda kind, **options: fmpy.simulate_fmu(
        str(path), fmi_type=kind, stop_time=end, input=signals, output=outputs, output_interval=dt, **options
    )
    found = run("CoSimulation", step_size=dt)
    assert np.abs(np.array(found[-1].tolist()[1:]) - expected).max() < 1e-9
    found = run("ModelExchange", relative_tolerance=1e-10)
    assert np.abs(np.array(found[-1].tolist()[1:]) - expected).max() < 1e-6


def before_start(path, kind):
    """A unit in its initialisation, and the references of its variables by name."""
    description, folder = fmpy.read_model_description(str(path)), fmpy.extract(str(path))
    instance = kind(guid=description.guid, unzipDirectory=folder, modelIdentifier="mech", instanceName="one")
    instance.instantiate()
    instance.enterInitializationMode()
    return instance, {v.name: v.valueReference for v in description.modelVariables}


@needs_compiler
def test_directional_derivatives_and_parameters(unit):
    instance, at = before_start(unit("pendulum")[1], fmi3.FMU3Model)
    instance.setFloat64([at["u0"], at["u1"]], [3.0, -1.0])
    instance.exitInitializationMode()
    unknowns = [at[name] for name in ("der(x')", "der(y')", "height")]
    rng, known = np.random.default_rng(0), [at[name] for name in ("x", "y", "x'", "y'", "u0", "u1", "m", "l")]
    seed = rng.normal(size=len(known))
    found = np.array(instance.getDirectionalDerivative(unknowns, known, seed))
    start, h, sides = np.array(instance.getFloat64(known)), 1e-6, []
    for sign in (1, -1):
        instance.setFloat64(known, start + sign * h * seed)
        sides.append(np.array(instance.getFloat64(unknowns)))
    assert np.allclose(found, (sides[0] - sides[1]) / (2 * h), rtol=1e-7, atol=1e-7)
    state = instance.getFMUState()
    instance.setFloat64([at["x"]], [9.0])
    instance.setFMUState(state)
    assert instance.getFloat64([at["x"]])[0] != 9.0
    with pytest.raises(Exception, match="fmi3GetFloat64"):
        instance.getFloat64([999])
    instance.freeFMUState(state)
    instance.freeInstance()


@needs_compiler
def test_what_is_set_before_the_start_is_moved_onto_the_constraints(unit):
    """A longer rod and a speed along it: in co-simulation, too, the first state is consistent."""
    instance, at = before_start(unit("pendulum")[1], fmi3.FMU3Slave)
    instance.setFloat64([at["l"], at["x'"]], [1.001, 0.5])
    instance.exitInitializationMode()
    x, y, dx, dy = instance.getFloat64([at[name] for name in ("x", "y", "x'", "y'")])
    assert abs(x**2 + y**2 - 1.001**2) < 1e-8 and abs(x * dx + y * dy) < 1e-8
    assert np.allclose((x, y, dx, dy), (-0.8008, -0.6006, 0.18, -0.24), atol=1e-8)
    instance.freeInstance()


@needs_compiler
@pytest.mark.slow
def test_a_step_that_cannot_be_made_is_told(tmp_path):
    """A parallelogram on its way to where it is folded flat."""
    system = parallelogram.parallelogram()
    start = jm.assemble(system, *parallelogram.pose(jnp.array(0.3), jnp.array(-3.0)))
    path = tmp_path / "mech.fmu"
    jm.export.fmu(jm.stepper(system, start, 0.01, solver=dfx.Midpoint()), path, "mech")
    messages = []
    with pytest.raises(Exception, match="fmi3DoStep"):
        fmpy.simulate_fmu(
            str(path),
            fmi_type="CoSimulation",
            stop_time=0.5,
            step_size=0.01,
            logger=lambda *words: messages.append(words),
        )
    assert any(
        b"near to being dependent" in (x if isinstance(x, bytes) else str(x).encode())
        for words in messages
        for x in words
    )


@needs_compiler
def test_names_are_escaped(tmp_path):
    system = jm.System(HOSTILE, mass=lambda t, q, p: jnp.eye(6), params={"<&\n>": 1.0})
    step = jm.stepper(system, jm.assemble(system, jnp.ones(6)), 0.01, solver=dfx.Midpoint())
    path = tmp_path / "mech.fmu"
    written = jm.export.fmu(step, path, "mech", parameters=["<&\n>"], outputs={HOSTILE[0]: HOSTILE[1]})
    assert validation.validate_fmu(str(path)) == []
    assert [v.name for v in fmpy.read_model_description(str(path)).modelVariables] == list(written.variables)


def test_without_a_compiler_there_is_no_binary(tmp_path, monkeypatch):
    step, outputs = lagging()
    path = tmp_path / "mech.fmu"
    monkeypatch.setattr("shutil.which", lambda name: None)
    written = jm.export.fmu(step, path, "mech", outputs=outputs)
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if name.startswith("binaries")]
    assert written.platform is None and "source code only" in str(written)
    assert validation.validate_fmu(str(path)) == []
    monkeypatch.setattr("shutil.which", lambda name: "false")
    with pytest.raises(RuntimeError, match="The C compiler fails"):
        jm.export.fmu(step, path, "mech", outputs=outputs)


def test_refusals(tmp_path):
    step, _ = CASES["pendulum"]()
    with pytest.raises(ValueError, match="`path` must name a file in a folder that is there"):
        jm.export.fmu(step, tmp_path / "no" / "mech.fmu")
    with pytest.raises(ValueError, match=r"`path` must end with \.fmu, but is"):
        jm.export.fmu(step, tmp_path / "mech.zip")
    with pytest.raises(ValueError, match="`name` must be an identifier"):
        jm.export.fmu(step, tmp_path / "mech.fmu", "a b")
    with jax.enable_x64(False), pytest.raises(ValueError, match="`step` must be of float64, as FMI's states are"):
        jm.export.fmu(lagging()[0], tmp_path / "mech.fmu", "mech")
    assert not any(pathlib.Path(tmp_path).iterdir())
