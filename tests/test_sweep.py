"""Sweeps: every row once, whatever ends, fails or runs beside; equal data whichever way they were made."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.command import main
from jaxmb.command.sweeping import of_array
from jaxmb.sweep import grid, read_described, run, status
from jaxmb.sweep.shards import Shards

xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

PENDULUM = jm.System(
    ("x",),
    mass=lambda t, q, p: jnp.eye(1),
    potential=lambda t, q, p: -p["g"] * jnp.cos(q[0]),
    params={"g": 9.81},
)
TABLE = grid({"g": np.linspace(1.0, 9.81, 4), "x": np.linspace(0.1, 1.0, 5)})


def swing(row):
    """A swing, which fails where it is too fast for so few steps."""
    start = jm.as_state(PENDULUM, row["x"][None])
    return jm.simulate(PENDULUM.with_params({"g": row["g"]}), start, jnp.linspace(0, 0.5, 3), throw=False, max_steps=64)


def square(row):
    noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), row["row"]))
    return {"y": row["a"] ** 2 + noise, "powers": row["a"] ** jnp.arange(3.0)}


def picky(row):
    """Raises for a > 5."""
    a = eqx.error_if(row["a"], row["a"] > 5, "a is too large")
    return {"y": jnp.where(a < 0, jnp.nan, 2 * a)}


def refused(match, fn, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match):
        fn(*args, **kwargs)


# Data


@pytest.mark.slow
def test_rows_are_those_of_direct_runs(tmp_path):
    report = run(swing, TABLE, tmp_path, rows_per_shard=6)
    data = jm.sweep.open(tmp_path)
    assert (report.rows, report.computed, report.reused, report.failed) == (20, 4, 0, {})
    assert report.verdicts == {"successful": 20} and "20 rows, 4 shards computed, 0 reused, 0 failed" in str(report)
    direct = jax.jit(jax.vmap(swing))({name: jnp.array(x) for name, x in TABLE.items()})
    np.testing.assert_allclose(data.q, direct.q, rtol=1e-13)
    np.testing.assert_array_equal(data.time, direct.ts[0])
    np.testing.assert_array_equal(data.row, np.arange(20))
    for name, values in TABLE.items():
        np.testing.assert_array_equal(data[name], values)
        assert data[name].dims == ("row",)
    assert data.attrs == {"rows": 20, "missing_rows": 0, "missing_shards": 0}


def test_of_each_shard_the_row_of_most_steps_is_held_against_its_equations(tmp_path):
    """By the system of the row all are well, by another one none conserves its energy; a shard in which all fail has none."""
    table = {"g": np.array([9.81, 5.0, 9.81, 9.81, 1e6]), "x": np.array([0.1, 1.0, 1.0, 400.0, 0.5])}
    own = lambda row: PENDULUM.with_params({"g": row["g"]})
    report = run(swing, table, tmp_path / "own", rows_per_shard=2, check=own)
    steps = jm.sweep.open(tmp_path / "own").stats_num_steps.values
    assert report.verdicts == {"successful": 4, "max_steps_reached": 1}
    assert [*report.checks] == [int(np.argmax(steps[:2])), 2 + int(np.argmax(steps[2:4]))]
    assert all(x.verdict == "ok" for x in report.checks.values()) and "2 runs checked, 2 ok" in str(report)
    other = lambda row: PENDULUM.with_params({"g": 3.0})
    report = run(swing, table, tmp_path / "other", rows_per_shard=2, check=other)
    assert "2 runs checked, 0 ok" in str(report) and str(report).count("failed, see 'energy balance'") == 2


def test_rows_that_fail_keep_their_verdict(tmp_path):
    """Too few steps for the fast rows."""
    table = {"g": [1.0, 1e6, 1.0], "x": [0.5, 0.5, 0.7]}
    report = run(swing, table, tmp_path, rows_per_shard=2)
    assert report.verdicts == {"successful": 2, "max_steps_reached": 1} and not report.failed
    again = run(swing, table, tmp_path, rows_per_shard=2)
    assert again.verdicts == report.verdicts and (again.computed, again.reused) == (0, 2)
    data = jm.sweep.open(tmp_path)
    assert data.verdict.values.tolist() == ["successful", "max_steps_reached", "successful"]
    assert np.isnan(data.q[1, -1]).all() and np.isfinite(data.q[::2]).all()


def test_rows_with_times_of_their_own_keep_them(tmp_path):
    end = jnp.array([0.5, 1.0])
    start = jm.as_state(PENDULUM, jnp.array([0.1]))
    own = lambda row: jm.simulate(PENDULUM, start, row["end"] * jnp.linspace(0, 1, 3), throw=False, max_steps=64)
    run(own, {"end": end}, tmp_path)
    data = jm.sweep.open(tmp_path)
    assert data.time.dims == ("row", "sample") and data.q.dims[:2] == ("row", "sample")
    np.testing.assert_array_equal(data.time, end[:, None] * np.linspace(0, 1, 3))
    assert float(data.q[0, 2, 0]) == pytest.approx(float(data.q[1, 1, 0]), rel=1e-6)


@pytest.mark.filterwarnings("ignore:coordinate 'arm length' has a space")
@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_columns_with_spaces_in_their_names_are_coordinates(tmp_path, kind):
    run(lambda row: {"area": row["arm length"] ** 2}, {"arm length": [1.0, 2.0]}, tmp_path, kind=kind)
    data = jm.sweep.open(tmp_path)
    assert [*data.data_vars] == ["area"] and {*data.coords} == {"row", "arm length"}
    assert data.area.where(data["arm length"] == 2.0, drop=True).item() == 4.0


def test_integers_are_finite(tmp_path):
    report = run(lambda row: {"half": row["n"] // 2, "y": 1.0 / row["n"]}, {"n": np.array([0, 1, 2])}, tmp_path)
    assert report.verdicts == {"finite": 2, "not finite": 1}
    assert jm.sweep.open(tmp_path).half.values.tolist() == [0, 0, 1]


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_a_place_is_taken_once(tmp_path, kind):
    """What comes too late stays beside it until it is tidied away, with what others have left; of shards that are not there it stays."""
    shards = Shards(tmp_path, rows=3, size=2, kind=kind)
    data = lambda y: xarray.Dataset({"y": ("row", [y, y])}, {"row": [0, 1]})
    shards.write(0, data(1.0))
    shards.write(0, data(2.0))
    (late,) = tmp_path.glob(".shard-*.part")
    assert late.is_dir() == (kind == "zarr")
    other = tmp_path / f".shard-000001.{kind}.0123.part"
    other.write_text("half")
    shards.tidy()
    assert {path.name for path in tmp_path.iterdir()} == {shards.path(0).name, other.name}
    with shards.read(0) as found:
        assert found.y.values.tolist() == [1.0, 1.0]
    assert shards.read(1) is None


def test_a_full_disk_is_told_unless_another_process_was_there(tmp_path):
    shards = Shards(tmp_path, rows=2, size=2, kind="nc")

    class Full:
        def to_netcdf(self, path, engine):
            raise OSError("no space left")

    refused("no space left", shards.write, 0, Full(), error=OSError)
    shards.write(0, xarray.Dataset({"y": ("row", [1.0, 2.0])}, {"row": [0, 1]}))
    shards.write(0, Full())
    with shards.read(0) as found:
        assert found.y.values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_dictionaries_of_arrays(tmp_path, kind):
    """Results of any shape, columns of vectors, and a result among them."""
    reach = lambda row: {
        "sum": row["pair"].sum(),
        "outer": jnp.outer(row["pair"], row["pair"]),
        "result": swing(row).result,
    }
    table = TABLE | {"pair": np.arange(40.0).reshape(20, 2), "n": np.arange(20)}
    report = run(reach, table, tmp_path / kind, rows_per_shard=8, kind=kind)
    data = jm.sweep.open(tmp_path / kind)
    assert report.verdicts == {"successful": 20} and data.outer.dims == ("row", "outer_0", "outer_1")
    np.testing.assert_array_equal(data.pair, table["pair"])
    np.testing.assert_array_equal(data["sum"], table["pair"].sum(axis=1))
    np.testing.assert_array_equal(data.outer, table["pair"][:, :, None] * table["pair"][:, None])
    assert data.n.dtype == int and data.result.attrs["flag_meanings"].startswith("successful ")


def test_a_shard_that_raises_loses_no_other(tmp_path):
    table = {"a": [1.0, 2.0, 3.0, 9.0, -1.0, 6.0, 7.0]}
    report = run(picky, table, tmp_path, rows_per_shard=2, throw=False)
    assert list(report.failed) == [1, 2, 3] and "a is too large" in report.failed[1]
    assert report.rows == 2 and report.verdicts == {"finite": 2}
    refused(
        r"1 shard computed|0 shards computed, 1 reused, 3 failed",
        run,
        picky,
        table,
        tmp_path,
        rows_per_shard=2,
        error=RuntimeError,
    )
    with pytest.warns(UserWarning, match="1 of 4 shards are there, 2 of 7 rows; missing are 1, 2, 3") as caught:
        data = jm.sweep.open(tmp_path)
    assert caught[0].filename == __file__
    assert data.attrs == {"rows": 7, "missing_rows": 5, "missing_shards": 3}
    np.testing.assert_array_equal(data.y, [2.0, 4.0])
    assert status(tmp_path).missing == (1, 2, 3) and status(tmp_path).missing_rows == 5
    report = run(picky, {"a": [1.0, -1.0]}, tmp_path / "other")
    assert report.verdicts == {"finite": 1, "not finite": 1}


def test_shards_that_are_not_whole_are_computed_again(tmp_path):
    run(square, {"a": np.arange(6.0)}, tmp_path, rows_per_shard=2)
    whole = jm.sweep.open(tmp_path).load()
    foreign = xarray.Dataset({"y": ("x", [1.0])})
    torn, moved = tmp_path / "shard-000001.nc", tmp_path / "shard-000002.nc"
    torn.write_bytes(torn.read_bytes()[:-100])
    moved.write_bytes((tmp_path / "shard-000000.nc").read_bytes())
    (tmp_path / "shard-000000.nc").unlink()
    foreign.to_netcdf(tmp_path / "shard-000000.nc")
    assert status(tmp_path).missing == (0, 1, 2)
    refused("There are no shards in .* yet", jm.sweep.open, tmp_path, error=FileNotFoundError)
    assert run(square, {"a": np.arange(6.0)}, tmp_path, rows_per_shard=2).computed == 3
    assert jm.sweep.open(tmp_path).load().identical(whole)


def test_a_chunk_that_is_torn_is_named(tmp_path):
    """Of the numbers of rows the shard is computed again; of results `open` names the shard."""
    a = {"a": np.linspace(0.1, 1.0, 64)}
    run(square, a, tmp_path, rows_per_shard=32, kind="zarr")
    torn, whole = tmp_path / "shard-000001.zarr", {}
    for name, missing in (("y", ()), ("row", (1,))):
        chunk = torn / name / "c" / "0"
        whole[chunk] = chunk.read_bytes()
        chunk.write_bytes(whole[chunk][:-4])
        assert status(tmp_path).missing == missing
        if not missing:
            text = r"shard-000001\.zarr must be whole, but: .*\. Once it is removed"
            refused(text, jm.sweep.open, tmp_path)
            refused(text, run, square, a, tmp_path, rows_per_shard=32, kind="zarr")
        chunk.write_bytes(whole[chunk])
    assert jm.sweep.open(tmp_path).y.size == 64


def test_tasks_share_the_shards(tmp_path):
    a = {"a": np.arange(11.0)}
    run(square, a, tmp_path / "whole", rows_per_shard=2)
    reports = [run(square, a, tmp_path / "parts", rows_per_shard=2, task=i, tasks=4) for i in (3, 0, 2, 1)]
    assert [r.computed for r in reports] == [1, 2, 1, 2]
    whole, parts = (jm.sweep.open(tmp_path / name).load() for name in ("whole", "parts"))
    assert parts.identical(whole)


def test_rows_sorted_by_cost_and_groups_within_a_budget(tmp_path):
    a = {"a": np.array([3.0, 1.0, 2.0, 5.0, 4.0])}
    run(square, a, tmp_path / "plain", rows_per_shard=3)
    run(square, a, tmp_path / "sorted", rows_per_shard=3, cost=lambda row: row["a"], memory=1e5)
    plain, sorted_ = (jm.sweep.open(tmp_path / name).load() for name in ("plain", "sorted"))
    np.testing.assert_allclose(sorted_.y, plain.y, rtol=1e-15)
    np.testing.assert_array_equal(sorted_.a, a["a"])


def test_progress(tmp_path, capsys):
    run(square, {"a": np.arange(6.0)}, tmp_path / "quiet", rows_per_shard=2)
    assert capsys.readouterr().err == ""
    run(square, {"a": np.arange(6.0)}, tmp_path / "told", rows_per_shard=2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 3
        and lines[0].startswith("shard 0: 1 of 3 done, ")
        and lines[-1].endswith(" rows/s, 0:00:00 left")
    )


# Processes

SCRIPT = """
import jax
import jax.numpy as jnp
import neighbour


def fn(row):
    noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), row["row"]), (50,))
    return {"y": jnp.sin(neighbour.FACTOR * row["a"]) * row["b"] + noise}
"""
TOML = """
function = "model/fn.py:fn"
folder = "results"
rows_per_shard = 4
seed = 3

[table]
a = {from = 0.0, to = 1.0, count = 100}
b = [1, 2]
c = {normal = [0.0, 1.0]}
"""


def described_in(folder, text=TOML):
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model" / "fn.py").write_text(SCRIPT)
    (folder / "model" / "neighbour.py").write_text("FACTOR = 3.0\n")
    (folder / "sweep.toml").write_text(text)
    return folder / "sweep.toml"


def started(path, *arguments):
    root = pathlib.Path(jm.__file__).parent.parent
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "jaxmb", "sweep", str(path), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def whole_of(path):
    """The data of the sweep, made in this process."""
    read_described(path).run(folder=path.parent / "whole")
    return jm.sweep.open(path.parent / "whole").load()


@pytest.mark.slow
def test_a_killed_sweep_goes_on(tmp_path):
    """SIGKILL in the middle, then again to the end: bit for bit what an uninterrupted one gives, and no debris."""
    path = described_in(tmp_path)
    results, process = tmp_path / "results", started(path)
    deadline = time.monotonic() + 120
    while len(list(results.glob("shard-*.nc"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    there = len(list(results.glob("shard-*.nc")))
    assert process.returncode == -signal.SIGKILL and 3 <= there < 50
    for i in (0, 49):  # as if it was killed between taking the place and leaving, and while it wrote
        (results / f".shard-{i:06d}.nc.0123.part").write_text("half")
    report = read_described(path).run()
    assert report.reused >= there and report.reused + report.computed == 50
    assert jm.sweep.open(results).load().identical(whole_of(path))
    assert not list(results.glob("*.part")) and not list(results.glob(".*.part"))


@pytest.mark.slow
def test_processes_beside_each_other(tmp_path):
    """Two at the same shards, one of them by half: nothing is torn, and all is there once."""
    path = described_in(tmp_path)
    processes = [started(path, "--progress"), started(path, "--task", "1", "--tasks", "2")]
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "Sweep in" in outputs[0][0] and "200 rows" in outputs[0][0] and "200 finite" in outputs[0][0]
    assert outputs[1][1] == "" or "shard" not in outputs[1][1]
    assert jm.sweep.open(tmp_path / "results").load().identical(whole_of(path))
    assert len(list((tmp_path / "results").iterdir())) == 51


def test_command(tmp_path, capsys, monkeypatch):
    """Arrays of SLURM, status, and errors without a traceback."""
    path = described_in(tmp_path)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "25")
    assert main(["sweep", str(path)]) == 0
    assert "8 rows, 2 shards computed" in capsys.readouterr().out
    assert main(["sweep", str(path), "--status"]) == 0
    assert "2 of 50 shards are there, 8 of 200 rows; missing are 0, 1, 3, " in capsys.readouterr().out
    path.write_text(TOML.replace("count = 100", "count = 50"))
    assert main(["sweep", str(path)]) == 1
    error = capsys.readouterr().err
    assert (
        "must be empty or of this sweep, but holds another one: " in error
        and "'rows' is 200 there and 100 here" in error
    )
    assert main(["sweep", str(tmp_path / "none.toml")]) == 1 and "There is no file" in capsys.readouterr().err
    assert main(["sweep", str(path), "--task", "1"]) == 1 and "must go together" in capsys.readouterr().err


def test_arrays_of_slurm():
    array = lambda **x: {f"SLURM_ARRAY_TASK_{key}": str(value) for key, value in x.items()}
    assert of_array({}) == (0, 1)
    assert of_array(array(ID=0, MIN=0, COUNT=1)) == (0, 1)
    assert of_array(array(ID=30, MIN=10, COUNT=5, STEP=10)) == (2, 5)
    for gaps in (array(ID=9, MIN=1, COUNT=3), array(ID=12, MIN=10, COUNT=5, STEP=10)):
        refused("must have no gaps", of_array, gaps)


# Tables


def test_columns_of_descriptions():
    from jaxmb.sweep.columns import combine_columns

    said = {"a": {"from": 0, "to": 1, "count": 3}, "b": [1, 2], "c": 5, "d": {"uniform": [2, 3]}}
    table = combine_columns(said, "grid", 1, None)
    np.testing.assert_array_equal(table["a"], [0, 0, 0.5, 0.5, 1, 1])
    np.testing.assert_array_equal(table["b"], [1, 2] * 3)
    np.testing.assert_array_equal(table["c"], [5] * 6)
    assert list(table) == list(said) and len(set(table["d"])) == 6 and ((table["d"] >= 2) & (table["d"] <= 3)).all()
    # Draws depend on seed and name alone.
    np.testing.assert_array_equal(table["d"], combine_columns({"d": {"uniform": [2, 3]}}, "zip", 1, 6)["d"])
    assert (table["d"] != combine_columns(said, "grid", 2, None)["d"]).all()
    rows = combine_columns({"a": [1, 2, 3], "v": [[1, 2], [3, 4], [5, 6]], "c": 7}, "zip", 0, None)
    np.testing.assert_array_equal(rows["v"], [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(rows["c"], [7, 7, 7])
    normal = combine_columns({"n": {"normal": [5.0, 0.1]}}, "grid", 0, 10000)["n"]
    assert abs(normal.mean() - 5) < 0.005 and abs(normal.std() - 0.1) < 0.003


@pytest.mark.parametrize(
    "said, match, error",
    [
        ({"a": [1, 2], "b": [1, 2, 3]}, "must hold columns of one length, .* but 'a' has 2, 'b' has 3", ValueError),
        ({"a": "x"}, "Column 'a' must be a number, but is 'x'", TypeError),
        ({"a": [1, True]}, "Column 'a' must be a number, but is True", TypeError),
        ({"a": {"from": 0, "count": 3}}, "Column 'a' lacks 'to'", ValueError),
        (
            {"a": {"from": 0, "to": 1, "count": 0}},
            "'count' of column 'a' must be an integer of at least 1, but is 0",
            ValueError,
        ),
        ({"a": [1], "b": {"gamma": [1, 2]}}, "Column 'b' has unknown keys 'gamma'", ValueError),
        (
            {"a": [1], "b": {"uniform": [2, 1]}},
            r"'uniform' of column 'b' must be \[low, high\], but is \[2, 1\]",
            ValueError,
        ),
        ({"a": [1], "b": {"normal": [2]}}, r"'normal' of column 'b' must be two numbers, but is \[2\]", ValueError),
        ({"a": [1], "b": {}}, "Column 'b' must have one of 'uniform' and 'normal'", ValueError),
        ({"a": {"uniform": [0, 1]}}, "'rows' must say how many rows there are", ValueError),
    ],
)
def test_columns_that_are_refused(said, match, error):
    from jaxmb.sweep.columns import combine_columns

    refused(match, combine_columns, said, "zip", 0, None, error=error)


def test_tables_from_files(tmp_path):
    path = described_in(tmp_path, 'function = "model/fn.py:fn"\nfolder = "out"\ntable = "rows.csv"\n')
    (tmp_path / "rows.csv").write_text("a,b\n0.5,2\n0.25,3\n")
    table = read_described(path).rows_of_table()
    np.testing.assert_array_equal(table["a"], [0.5, 0.25])
    assert read_described(path).run().rows == 2
    (tmp_path / "rows.csv").write_text("a,b\n0.5,2\n0.25,\n")
    refused("Column 'b' of the table must be finite, but is not in row 1", read_described(path).rows_of_table)


@pytest.mark.parametrize(
    "old, new, match, error",
    [
        ("seed = 3", "sead = 3", "has unknown keys 'sead'; they may be 'function', 'folder', ", ValueError),
        ('folder = "results"', "", "lacks 'folder'", ValueError),
        (
            'folder = "results"',
            'folder = "../results"',
            "'folder' in .* must be in the same folder or below",
            ValueError,
        ),
        (
            'folder = "results"',
            'folder = "/tmp/results"',
            "'folder' in .* must be in the same folder or below",
            ValueError,
        ),
        ("seed = 3", "seed = 0.5", "'seed' in .* must be an integer, but is 0.5", TypeError),
        ("seed = 3", "float64 = 1", "'float64' in .* must be true or false, but is 1", TypeError),
        (
            "rows_per_shard = 4",
            "rows_per_shard = true",
            "'rows_per_shard' in .* must be an integer, but is True",
            TypeError,
        ),
        ("fn.py:fn", "fn.py", r"must be 'file.py:name' or 'package.module:name', but is 'model/fn.py'", ValueError),
        (
            "model/fn.py",
            "../fn.py",
            "'function' in .* must be in the same folder or below, but is '../fn.py'",
            ValueError,
        ),
        ("seed = 3", 'combine = "all"', "'combine' must be one of 'grid' and 'zip', but is 'all'", ValueError),
        ("seed = 3", "seed = -3", "'seed' must be at least 0, but is -3", ValueError),
        ("seed = 3", "rows = 0", "'rows' must be at least 1, but is 0", ValueError),
        ("seed = 3", "rows = 3", "'rows' must be left out where columns have values of their own", ValueError),
        ("fn.py:fn", "fn.py:none", "'function' in .* must be there, but 'model/fn.py:none' is not: ", ValueError),
        (
            "model/fn.py",
            "model/none.py",
            "'function' in .* must be there, but 'model/none.py:fn' is not: there is no file",
            ValueError,
        ),
        (
            "model/fn.py:fn",
            "no.such.module:fn",
            "'function' in .* must be there, but 'no.such.module:fn' is not: ",
            ValueError,
        ),
    ],
)
def test_descriptions_that_are_refused(tmp_path, old, new, match, error):
    assert old in TOML
    path = described_in(tmp_path, TOML.replace(old, new))
    refused(match, lambda: read_described(path).run(), error=error)
    assert not (tmp_path / "results").exists()


def test_descriptions_say_the_precision(tmp_path):
    path = described_in(tmp_path, TOML.replace("seed = 3", "float64 = false"))
    refused(r"needs `jax.config.update\('jax_enable_x64', False\)`", read_described(path).run)
    path = described_in(tmp_path, 'function = "a:b"\nfolder = "c"\ntable = "rows.csv"\nseed = 1')
    refused("'seed' in .* must be left out, as the table is a file", read_described, path)
    path = described_in(tmp_path, 'function = "a:b"\nfolder = "c"\ntable = "rows.mat"')
    refused("'table' in .* must end with one of '.csv' and '.npz', but is 'rows.mat'", read_described, path)


# Refusals


@pytest.mark.parametrize(
    "arguments, match, error",
    [
        ({"fn": 1}, "`fn` must be a function \\(row\\), but is 1", TypeError),
        (
            {"fn": lambda row: {"y": row["b"]}},
            "`fn` must be written in JAX for one row of 'a' and 'row', but raised KeyError: 'b'",
            RuntimeError,
        ),
        (
            {"fn": lambda row: {"y": float(row["a"])}},
            "`fn` must be written in JAX .* but raised Concretization",
            RuntimeError,
        ),
        (
            {"fn": lambda row: row["a"]},
            "`fn` must return a `Solution` or a dictionary of arrays of real numbers, .* but returns an array",
            TypeError,
        ),
        ({"fn": lambda row: {"y": row}}, "`fn` must return .* but returns {'y': 'dict'}", TypeError),
        ({"fn": lambda row: {"y": 1j * row["a"]}}, "`fn` must return .* but returns {'y': 'complex128'}", TypeError),
        ({"fn": lambda row: {"y/z": row["a"]}}, "must have names without a slash, but there are 'y/z'", ValueError),
        ({"table": {"a/b": [1.0]}}, "must have names without a slash, but there are 'a/b'", ValueError),
        (
            {"fn": lambda row: {"a": row["a"]}},
            "must have other names than the columns of the table, but 'a' is both",
            ValueError,
        ),
        ({"table": [1.0]}, "`table` must map names to arrays, but is", TypeError),
        ({"table": dict}, "`table` must map names to arrays, but is", TypeError),
        ({"table": {}}, "`table` must hold columns, and none called 'row', but holds none", ValueError),
        ({"table": {"row": [1.0]}}, "`table` must hold columns, and none called 'row', but holds 'row'", ValueError),
        (
            {"table": {"a": [1.0], "b": [1.0, 2.0]}},
            "of one length, of one row at least, but 'a' has 1, 'b' has 2",
            ValueError,
        ),
        ({"table": {"a": []}}, "of one row at least, but 'a' has 0", ValueError),
        (
            {"table": {"a": 1.0}},
            "Column 'a' of the table must be an array of numbers with a row for each, but is 1.0",
            TypeError,
        ),
        ({"table": {"a": ["x"]}}, "Column 'a' of the table must be an array of numbers", TypeError),
        (
            {"table": {"a": [[1.0], [1.0, 2.0]]}},
            "Column 'a' of the table must be an array of numbers, but: ",
            TypeError,
        ),
        ({"table": {"a": [1.0, np.inf]}}, "Column 'a' of the table must be finite, but is not in row 1", ValueError),
        ({"rows_per_shard": 0}, "`rows_per_shard` must be a positive integer, but is 0", ValueError),
        ({"task": -1}, "`task` must be an integer that is not negative, but is -1", ValueError),
        ({"task": 2, "tasks": 2}, "`task` must be below `tasks`, 2, but is 2", ValueError),
        ({"memory": -1.0}, "`memory` must be a positive number or None, but is -1", ValueError),
        ({"check": lambda row: PENDULUM}, "`check` must be None unless `fn` returns a `Solution`", ValueError),
        (
            {"fn": swing, "table": TABLE, "check": lambda row: 1.0},
            "`check` must return a System, but returns a float",
            TypeError,
        ),
        ({"kind": "hdf"}, "`kind` must be 'nc' or 'zarr', but is 'hdf'", ValueError),
    ],
)
def test_arguments_that_are_refused(tmp_path, arguments, match, error):
    given = {"fn": square, "table": {"a": [1.0]}, "folder": tmp_path / "new"} | arguments
    refused(match, lambda: run(**given), error=error)
    assert not (tmp_path / "new").exists()


def test_folders_of_other_sweeps(tmp_path):
    a = {"a": np.arange(3.0)}
    run(square, a, tmp_path)
    refused("holds another one: 'table' is ", run, square, {"a": np.arange(1.0, 4.0)}, tmp_path)
    refused("'function' is .*square.* there and .*picky.* here; 'source' is ", run, picky, a, tmp_path)
    refused(
        "'rows_per_shard' is 3 there and 1 here; 'shards' is 1 there and 3 here",
        run,
        square,
        a,
        tmp_path,
        rows_per_shard=1,
    )
    told = json.loads((tmp_path / "manifest.json").read_text())
    assert told["dtype"] == "float64" and told["rows"] == 3 and told["versions"]["jax"] == jax.__version__
    told["versions"]["jax"] = "0.1"
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    refused("'versions' is .*0.1.* there and ", run, square, a, tmp_path)
    for key, value, match in (
        ("rows", -1, "'rows' must be a positive integer, but is -1"),
        ("rows_per_shard", 0.5, "'rows_per_shard' must be a positive integer, but is 0.5"),
        ("shards", 10**9, "'shards' must be 1 for these rows, but is 1000000000"),
        ("format", 0, "manifest.json must be the manifest of a sweep, but: it has format 0, and not "),
        ("kind", "../nc", "'kind' must be one of nc, zarr, but is '../nc'"),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps(told | {key: value}))
        refused(match, jm.sweep.open, tmp_path)
        refused(match, status, tmp_path)
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    refused("manifest.json must be the manifest of a sweep, but: ", jm.sweep.open, tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    refused("manifest.json must be the manifest of a sweep, but: ", jm.sweep.open, tmp_path)
    refused("There is no sweep in .*: it holds no manifest.json", status, tmp_path / "none", error=FileNotFoundError)


def test_folders_without_links(tmp_path, monkeypatch):
    def no_links(*paths):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert run(square, {"a": [1.0]}, tmp_path).computed == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "shard-000000.nc"]


def test_sweeps_without_shards(tmp_path):
    run(picky, {"a": [9.0]}, tmp_path, throw=False)
    refused("There are no shards in .* yet", jm.sweep.open, tmp_path, error=FileNotFoundError)


def test_results_called_like_columns_of_runs(tmp_path):
    refused(
        "must have other names .* but 'work' is both", run, swing, {"g": [1.0], "x": [0.1], "work": [1.0]}, tmp_path
    )


def test_packages_that_are_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    refused(
        r"needs the package 'netCDF4': pip install jaxmb\[data\]",
        run,
        square,
        {"a": [1.0]},
        tmp_path,
        error=ImportError,
    )


def test_integers_keep_their_type():
    from jaxmb.sweep.table import as_table

    table = as_table({"n": np.arange(3), "q": [1, 2, 3], "flag": [True, False, True]})
    assert [table[name].dtype.kind for name in ("n", "q", "flag")] == ["i", "f", "b"]
    framed = as_table(pytest.importorskip("pandas").DataFrame(table))
    assert all(np.array_equal(framed[name], table[name]) for name in table) and list(framed) == list(table)
    refused("`table` must hold columns, .* but holds none", grid, {})
    with jax.enable_x64(False):
        refused("Column 'n' of the table holds integers that need 64 bits", as_table, {"n": np.array([2**40])})
