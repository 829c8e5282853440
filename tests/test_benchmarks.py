"""The benchmarks' least runs work, and what they write has its fields; their reference answers hold."""

import json
import pathlib
import subprocess
import sys

import common
import draw
import pytest
import tables
import work_precision

ROOT = pathlib.Path(__file__).parent.parent
FIELDS = {
    "work_precision": {"problem", "engine", "method", "setting", "error", "steps", "first_s", "median_s", "minimum_s"},
    "throughput": {"mechanism", "engine", "dtype", "lanes", "simulated_s_per_s", "error_rad", "failed_lanes"},
    "native": {"mechanism", "what", "engine", "lanes", "us_per_step_and_lane", "median_s"},
    "gradients": {"runs", "parameters", "derivative", "times_the_run", "temporary_mb", "compile_s", "median_s"},
    "growth": {"n", "bodies", "steps", "us_per_step", "error_m", "peak_mb", "first_s", "median_s"},
    "first_call": {"mechanism", "call", "first_s", "first_cpu_s", "median_s"},
    "formulations": {"problem", "formulation", "error", "steps", "us_per_step", "relative", "median_s"},
    "environments": {"engine", "lanes", "steps", "steps_per_s", "finite", "gap_m", "error_m"},
    "gpu": {"mechanism", "dtype", "lanes", "us_per_step_and_lane", "floor_bytes_us", "floor_operations_us"},
}
HEADER = {"date", "commit", "packages", "cpu", "cores", "memory_gb", "device"}
ERROR = {
    "environments": ("error_m", 1e-9),
    "work_precision": ("error", 1e-4),
    "growth": ("error_m", 1e-6),
    "formulations": ("error", 1e-7),
}


def test_candidates_take_turns():
    order = []
    calls = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    found = common.in_alternation(calls, rounds=3)
    assert order == list("abababab")
    assert found["a"].value == 1 and found["b"].value == 2
    assert 0 <= found["a"].minimum <= found["a"].median


def test_table_shows_what_is_missing():
    rows = [{"name": "x", "error": 1.23456e-7}, {"name": "y", "error": None}]
    assert common.table(rows).splitlines()[2:] == ["| x    | 1.23e-07 |", "| y    | –        |"]


def test_results_are_json_without_nan(tmp_path):
    path = tmp_path / "some.json"
    common.write(path, [{"a": 1.0}], 0.0, "small", extra=2)
    found = json.loads(path.read_text())
    assert found["header"].keys() >= HEADER and found["rows"] == [{"a": 1.0}] and found["extra"] == 2
    with pytest.raises(ValueError, match="JSON"):
        common.write(path, [{"a": float("nan")}], 0.0, "small")


def run_of(engine, error, time):
    return dict(problem="A03", engine=engine, method="m", setting="s", steps=1, error=error, median_s=time)


def test_equal_error_takes_the_quickest_that_is_good_enough():
    wanted = work_precision.EQUAL["A03"]
    rows = [run_of("jaxmb", wanted / 10, 3.0), run_of("jaxmb", wanted, 2.0), run_of("jaxmb", 2 * wanted, 1.0)]
    rows += [run_of("MuJoCo", 3 * wanted, 2.0), run_of("MuJoCo", 2 * wanted, 4.0), run_of("Exudyn", None, 1.0)]
    ours, theirs = work_precision.at_equal_error(rows, "A03")
    assert ours["reached"] and ours["median_s"] == 2.0
    assert not theirs["reached"] and theirs["error"] == 2 * wanted


def test_page_has_a_mark_for_each_table():
    text = tables.PAGE.read_text()
    assert all(text.count(f"<!-- {mark} -->") == 1 for mark in tables.TABLES)


@pytest.mark.slow
def test_figures_are_small(tmp_path):
    draw.main(common.RESULTS, tmp_path)
    known = {name for name in draw.PICTURES if (common.RESULTS / f"{name}.json").exists()}
    assert {path.stem for path in tmp_path.glob("*.png")} == known != set()
    assert all(path.stat().st_size < 100_000 for path in tmp_path.iterdir())


def test_page_is_written_from_the_results(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- {mark} --><!-- end -->\n" for mark in tables.TABLES))
    tables.main(common.RESULTS, page)
    text = page.read_text()
    for mark, (name, _) in tables.TABLES.items():
        written = text.split(f"<!-- {mark} -->")[1].split("<!-- end -->")[0]
        assert ("|" in written) == (common.RESULTS / f"{name}.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", FIELDS)
def test_least_run(name, tmp_path):
    path = tmp_path / f"{name}.json"
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--small", "--output", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["header"].keys() >= HEADER
    assert found["size"] == "small"
    assert found["rows"] and all(row.keys() >= FIELDS[name] for row in found["rows"])
    if name in ERROR:
        key, limit = ERROR[name]
        own = [row[key] for row in found["rows"] if row.get("engine", "jaxmb").startswith("jaxmb")]
        assert min(own) <= limit
