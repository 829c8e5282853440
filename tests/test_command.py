"""The command line: what it prints, what it writes, and what it returns."""

import json
import pathlib
import re
import subprocess
import sys
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
from models import FOURBARS, TREE, joint, link, robot, written

import jaxmb as jm
from jaxmb.command import fitting, main
from jaxmb.command.main import COMMANDS, _as_json
from jaxmb.foundations import RESULTS

assert written

ROD = robot('<link name="base"/>', link("rod"), joint("pivot", "continuous", "base", "rod", axis="0 1 0"))


def test_help_has_examples(capsys):
    for words in ([], ["inspect"], ["simulate"], ["view"], ["convert"], ["fit"], ["docs"]):
        with pytest.raises(SystemExit) as done:
            main([*words, "--help"])
        assert done.value.code == 0
        assert "examples:\n  jaxmb " + (words[0] if words else "inspect") in capsys.readouterr().out
    assert main([]) == 2 and "COMMAND" in capsys.readouterr().out
    assert main(["--version"]) == 0 and capsys.readouterr().out == jm.__version__ + "\n"


@pytest.mark.parametrize(
    "words, told",
    [
        (["inspect", "none.urdf"], "error: Argument `path` must be a file, but 'none.urdf' is none."),
        (["convert", "MODEL", "a.step"], "must end with .toml, .urdf or .xml"),
        (["simulate", "MODEL", "--out", "a.txt"], "must end with .nc or .csv"),
        (["simulate", "MODEL", "--out", "a.csv", "--samples", "1"], "--samples must be 2 or more"),
        (["inspect", "MODEL", "--package", "a"], "must be NAME=FOLDER"),
        (["inspect", "MODEL", "--pose", "home"], "`pose` must be a keyframe out of none, but is 'home'"),
        (["docs", "reaction"], "`page` must be one that `jaxmb docs` lists, such as 'reactions'"),
        (["inspect", "MODEL", "--set", "q=1"], "`q` must name coordinates out of 'pivot', but names 'q'"),
    ],
)
def test_errors_are_told_in_a_sentence(written, capsys, words, told):
    path = str(written(ROD))
    assert main([path if word == "MODEL" else word for word in words]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and told in error and "Traceback" not in error


def test_the_documentation_is_printed(capsys):
    assert main(["docs"]) == 0
    overview = capsys.readouterr().out
    assert overview.startswith("# jaxmb\n") and "\nformulations/kkt\n" in overview
    assert main(["docs", "formulations/kkt"]) == 0
    text = pathlib.Path(__file__).parents[1].joinpath("docs", "formulations", "kkt.md").read_text()
    assert capsys.readouterr().out == text + "\n"


def test_a_sweep_that_is_not_there_and_a_task_without_the_others(written, capsys):
    path = written('function = "fn.py:fn"\nfolder = "out"\n[table]\na = [1, 2]\n', "sweep.toml")
    assert main(["sweep", str(path), "--status"]) == 1
    assert "There is no sweep in" in capsys.readouterr().err
    assert main(["sweep", str(path), "--task", "1"]) == 1
    assert "--task and --tasks must go together" in capsys.readouterr().err


def test_whoever_has_read_enough_is_no_error(monkeypatch, tmp_path, capsys):
    """What the process prints after that goes nowhere, as behind `| head`."""
    with (tmp_path / "out").open("w") as file:

        class Pipe:
            fileno = file.fileno

            def write(self, text):
                raise BrokenPipeError

        with monkeypatch.context() as changed:
            changed.setattr(sys, "stdout", Pipe())
            assert main(["docs"]) == 0
        file.write("more")
    assert (tmp_path / "out").read_text() == "" and capsys.readouterr().err == ""


def test_an_interrupt_ends_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setitem(COMMANDS, "docs", mock.Mock(side_effect=KeyboardInterrupt))
    assert main(["docs"]) == 130 and capsys.readouterr().err == "interrupted\n"


def test_stages_are_told_to_a_terminal_only(written, tmp_path, capsys, monkeypatch):
    path = written(ROD)
    words = ["convert", str(path), str(tmp_path / "rod.toml")]
    assert main(words) == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(words) == 0 and capsys.readouterr().err == f"reading {path} …\n"


def test_packages_are_where_it_is_said(written, tmp_path, capsys):
    """A file outside of its package is refused once it is known where that is."""
    mesh = '<visual><geometry><mesh filename="package://arm/../../etc/passwd"/></geometry></visual></link>'
    words = ["convert", str(written(ROD.replace("</link>", mesh))), str(tmp_path / "rod.toml")]
    assert main(words) == 0
    assert main([*words, "--package", f"arm={tmp_path}"]) == 1
    assert "<mesh> must refer to files in" in capsys.readouterr().err


def test_json_has_null_where_a_number_is_none():
    values = {"a": [1.0, float("inf")], 2: (float("nan"), "x", None), "b": {"c": -float("inf"), "d": True}}
    assert _as_json(values) == {"a": [1.0, None], "2": [None, "x", None], "b": {"c": None, "d": True}}


@pytest.mark.parametrize(
    "words", [["--set", "a"], ["--set", "a=b"], ["--time", "-1"], ["--time", "nan"], ["--stop", "pivot=1"], ["--oops"]]
)
def test_words_that_make_no_sense_are_refused(written, capsys, words):
    with pytest.raises(SystemExit) as done:
        main(["simulate", str(written(ROD)), "--out", "a.csv", *words])
    assert done.value.code == 2 and "error: " in capsys.readouterr().err


def test_what_a_written_model_does_not_hold_is_told(written, tmp_path, capsys):
    limited = ROD.replace('type="continuous"', 'type="revolute"').replace(
        "</joint>", '<limit lower="-1" upper="2"/></joint>'
    )
    assert "limit" in limited and "revolute" in limited
    assert main(["convert", str(written(limited)), str(tmp_path / "other.urdf")]) == 0
    assert "other.urdf does not hold limits of joints and gravity." in capsys.readouterr().out


def test_models_are_converted_to_text(written, tmp_path, capsys):
    """Bit for bit what the file says."""
    target = tmp_path / "tree.toml"
    assert main(["convert", str(written(TREE)), str(target)]) == 0
    assert (
        target.read_text() == jm.load(written(TREE)).mechanism.to_text() and "Model 'small'" in capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_loop_is_inspected(written, capsys):
    """Degrees of freedom, redundancy by joint, gaps, reactions and ranges; as text and as JSON."""
    path = str(written(FOURBARS["loop"]))
    words = ["inspect", path, "--set", "A=1.0", "--set", "B=-0.6", "--set", "D=1.3", "--input", "A"]
    assert main(words) == 0
    text = capsys.readouterr().out
    for line in ("1 here, 1 nearby", "shared by joints        A, B, D, C (3)", "gap of C", "Curve of motion by 'A'"):
        assert line in text
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["diagnosis"]["freedom"] == 1 and found["closed"] and found["changes"] == {"A": 1.0, "B": -0.6, "D": 1.3}
    )
    assert found["joints"]["C"] == "Revolute" and found["reactions"]["redundancy"] == 3
    assert 6.28 < found["ranges"]["A"][1] - found["ranges"]["A"][0] < 6.29


def test_loops_that_cannot_close_are_told(written, capsys):
    """With what looks wrong in the file, which may be why."""
    template = '<inertia ixx="1" iyy="1" izz="1"/>'
    path = written(re.sub("<inertia [^>]*>", template, FOURBARS["loop"], count=1).replace("0.5 0 0", "5 0 0"))
    assert main(["inspect", str(path)]) == 1
    told = capsys.readouterr().out
    assert "loops do not close near it: Constraint 'C' cannot be satisfied" in told
    assert "looks wrong: crank: has the inertia of a template, 1 kg m² about each axis" in told
    assert main(["inspect", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["closed"] and found["diagnosis"] is None and found["gaps"]["C"] > 1 and found["failure"] in told


@pytest.mark.slow
def test_models_move_and_are_shown(written, tmp_path, capsys):
    path = written(ROD)
    table, page = tmp_path / "run.csv", tmp_path / "run.html"
    assert (
        main(["simulate", str(path), "--time", "0.5", "--set", "pivot=0.3", "--samples", "11", "--out", str(table)])
        == 0
    )
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 12 and "pivot" in lines[0] and "energy balance" in capsys.readouterr().out
    assert main(["view", str(path), "--time", "0.1", "--samples", "3", "--out", str(page), "--no-open"]) == 0
    assert capsys.readouterr().out.strip() == str(page) and "<html" in page.read_text()


def test_a_run_is_kept_and_looked_at_later(written, tmp_path, capsys, monkeypatch):
    """The page of the file shows the same poses as that of the run itself, and a table has the same numbers."""
    pytest.importorskip("netCDF4")
    xarray, opened = pytest.importorskip("xarray"), []
    path, run = written(ROD), tmp_path / "run.nc"
    words = ["--time", "0.2", "--set", "pivot=0.3", "--samples", "5"]
    assert main(["simulate", str(path), *words, "--out", str(run)]) == 0
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["view", str(run)]) == 0 and opened == [(tmp_path / "run.html").as_uri()]
    assert main(["view", str(path), *words, "--out", str(tmp_path / "same.html"), "--no-open"]) == 0
    assert (tmp_path / "run.html").read_text() == (tmp_path / "same.html").read_text()
    for word, value in (("--set", "pivot=1"), ("--time", "3"), ("--samples", "11"), ("--base", "free")):
        assert main(["view", str(run), word, value, "--no-open"]) == 1
        assert f"{word} must not be given with a saved run" in capsys.readouterr().err
    for command in (["inspect", str(run)], ["simulate", str(run), "--out", str(tmp_path / "again.csv")]):
        assert main(command) == 1
        assert "but is netCDF, in which runs are kept; `jaxmb view` shows" in capsys.readouterr().err
    assert main(["simulate", str(path), *words, "--out", str(tmp_path / "run.csv")]) == 0
    with xarray.open_dataset(run) as file:
        data = file.load()
    table = jm.records.read(tmp_path / "run.csv", {"angle": "pivot"})
    np.testing.assert_array_equal(table["angle"], data.q[:, 0])
    for other, told in (
        (
            data.assign_attrs(mechanism=data.mechanism.replace("pivot", "hinge")),
            "must hold a single motion in the coordinates",
        ),
        (data.drop_attrs(), "must hold a run that `jaxmb simulate` has written, but has no mechanism among"),
    ):
        other.to_netcdf(tmp_path / "other.nc")
        assert main(["view", str(tmp_path / "other.nc"), "--no-open"]) == 1
        assert told in capsys.readouterr().err


FIT = """
model = "model.urdf"
output = "fitted.toml"
[parameters."rod.mass"]
nominal = 0.7
min = 0.1
[parameters."pivot_friction.viscous"]
frozen = true
[[experiments]]
record = "swing.toml"
start = {pivot = 0.3}
[experiments.signals.angle]
of = "pivot"
sigma = 1e-3
"""


@pytest.mark.slow
def test_a_fit_is_described_by_a_file(written, tmp_path, capsys):
    """The mass of which the record was made is found, and goes into the text."""
    path = written(ROD.replace("</joint>", '<dynamics damping="0.2"/></joint>'))
    record = 'file = "run.csv"\n[time]\ncolumn = "time"\n[columns]\nangle = "pivot"\n'
    words = ["--time", "1", "--set", "pivot=0.3", "--samples", "21"]
    assert main(["simulate", str(path), *words, "--out", str(tmp_path / "run.csv")]) == 0
    written(record, "swing.toml")
    assert main(["fit", str(written(FIT, "fit.toml"))]) == 0
    assert "rod.mass" in capsys.readouterr().out
    assert abs(float(jm.load(tmp_path / "fitted.toml").mechanism.elements["rod"].mass) - 1.0) < 1e-5


@pytest.mark.slow
def test_measured_inputs_drive_a_fit(written):
    """A rod is swung by a torque that was recorded: without it the record says nothing of the mass."""
    P = jm.planar
    rod = P.Mechanism(
        [P.Body.rod("rod", 1.0, 0.6)],
        [P.Revolute("pivot", "ground", "rod.a")],
        actuators=[P.Motor("brake", "pivot"), P.Motor("motor", "pivot", 2.0)],
        gravity=(0.0, -9.81),
    )
    ts = jnp.linspace(0.0, 1.0, 41)
    torque = jnp.sin(9 * ts) + 0.5
    system = rod.build()
    inputs = jm.control.Recorded(ts, jnp.stack([0 * ts, torque], axis=1))
    run = jm.simulate(system, jm.assemble(system, {"pivot": 0.3}), ts, control=inputs)
    columns = np.stack([ts, run.q[:, 0], torque], axis=1)
    np.savetxt(written("", "run.csv"), columns, "%.17g", delimiter=",", header="time,angle,torque", comments="")
    named = "".join(f'{name} = "{name}"\n' for name in ("angle", "torque"))
    written('file = "run.csv"\n[time]\ncolumn = "time"\n[columns]\n' + named, "swing.toml")
    written(rod.to_text(), "rod.toml")
    text = FIT.replace("model.urdf", "rod.toml").replace("frozen", "max = 9.0\nfrozen")
    text = text.replace('[parameters."pivot_friction.viscous"]', '[parameters."motor.gain"]')
    text = text.replace("[experiments.signals.angle]", 'inputs = {motor = "torque"}\n[experiments.signals.angle]')
    path = written(text, "fit.toml")
    assert main(["fit", str(path)]) == 0
    assert abs(float(jm.load(path.parent / "fitted.toml").mechanism.elements["rod"].mass) - 1.0) < 1e-5


INPUTS = FIT.replace("[experiments.signals", 'inputs = {motor = "torque"}\n[experiments.signals', 1).replace(
    "model.urdf", "rod.toml"
)


@pytest.fixture
def driven(written):
    """A rod with a brake and a motor, and a record of its motion."""
    P = jm.planar
    rod = P.Mechanism(
        [P.Body.rod("rod", 1.0, 0.6)],
        [P.Revolute("pivot", "ground", "rod.a")],
        actuators=[P.Motor("brake", "pivot"), P.Motor("motor", "pivot", 2.0)],
    )
    written(rod.to_text(), "rod.toml")
    written("time,angle,torque,broken\n0,0.3,1,1\n0.1,0.4,3,\n", "run.csv")
    named = "".join(f'{name} = "{name}"\n' for name in ("angle", "torque", "broken"))
    written('file = "run.csv"\n[columns]\n' + named, "swing.toml")
    return rod


def test_a_fit_is_what_its_description_says(written, driven, monkeypatch):
    """Parameters, the pose at the start, signals, inputs of all actuators; what is found goes into the output."""
    asked, found = [], driven.replace("rod", mass=3.0)
    fitted = mock.Mock(spec=jm.fit.Fit, model=found, result=RESULTS.successful)

    def identify(model, parameters, experiments, *, build, **limit):
        asked.append((parameters, experiments[0], build(model), limit))
        return fitted

    monkeypatch.setattr(fitting, "identify", identify)
    path = written("max_iterations = 7" + INPUTS.replace("sigma", "bias = true\nsigma"), "fit.toml")
    assert main(["fit", str(path)]) == 0
    fitted.result = RESULTS.max_steps_reached
    assert (
        main(["fit", str(written(FIT.replace("model.urdf", "rod.toml").replace("output", "# output"), "fit.toml"))])
        == 1
    )
    (parameters, experiment, system, limit), (*_, alone, _, none) = asked
    mass, friction = parameters
    assert (mass.name, mass.nominal, mass.min_value, mass.max_value, mass.frozen) == (
        "rod.mass",
        0.7,
        0.1,
        np.inf,
        False,
    )
    assert friction.frozen and friction.nominal is None and limit == {"max_iterations": 7} and none == {}
    assert (
        system.coordinates == ("pivot",) and experiment.start.q.tolist() == [0.3] and experiment.ts.tolist() == [0, 0.1]
    )
    (signal,) = experiment.signals
    assert (signal.of, signal.name, signal.bias, signal.sigma) == ("pivot", "angle", True, 1e-3)
    assert signal.values.tolist() == [0.3, 0.4]
    assert experiment.control.values.tolist() == [[0.0, 1.0], [0.0, 3.0]] and alone.control is None
    assert (path.parent / "fitted.toml").read_text() == found.to_text()


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("motor =", "engine =", "must name actuators of the model, 'brake' and 'motor', but names 'engine'"),
        ('"torque"', '"force"', "Input 'motor' in .* must be a column of its record, but 'force' is none of 'angle', "),
        (
            '"torque"',
            '"broken"',
            "Input 'motor' in .* must be a finite number at each time, but column 'broken' is not",
        ),
        (
            "signals.angle",
            "signals.angel",
            "Signal 'angel' in .* must be a column of its record, but 'angel' is none of",
        ),
        ("of =", "what =", "Signal 'angle' in .* has unknown keys 'what'"),
        ("{pivot = 0.3}", "3", "'start' in .* must be a table, but is 3"),
    ],
)
def test_an_experiment_that_cannot_be_is_told(written, driven, capsys, old, new, told):
    assert main(["fit", str(written(INPUTS.replace(old, new), "fit.toml"))]) == 1
    assert re.search(told, capsys.readouterr().err)


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("[[experiments]]", "[experiments]", "'experiments' in .* must be a list of tables, but is {"),
        ("[parameters", "[parameter", "has unknown keys 'parameter'"),
        ("min = ", "least = ", "Parameter 'rod.mass' in .* has unknown keys 'least'"),
        ("model.urdf", "../model.urdf", "'model' in .* must be in the same folder or below"),
        ('record = "swing.toml"', "", "An experiment in .* lacks 'record'"),
    ],
)
def test_a_fit_that_cannot_be_is_told(written, capsys, old, new, told):
    written(ROD)
    assert main(["fit", str(written(FIT.replace(old, new), "fit.toml"))]) == 1
    assert re.search(told, capsys.readouterr().err)


@pytest.mark.slow
def test_it_is_a_module():
    done = subprocess.run([sys.executable, "-m", "jaxmb", "--help"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "jaxmb inspect robot.urdf" in done.stdout
