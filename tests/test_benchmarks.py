"""The benchmarks' least runs work, and what they write has its fields; their reference answers hold."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FIELDS = {
    "work_precision": {"problem", "engine", "method", "setting", "error", "steps", "first_s", "median_s", "minimum_s"},
    "throughput": {"mechanism", "engine", "dtype", "lanes", "simulated_s_per_s", "error_rad", "failed_lanes"},
    "gradients": {"runs", "parameters", "derivative", "times_the_run", "temporary_mb", "compile_s", "median_s"},
    "growth": {"n", "bodies", "steps", "us_per_step", "error_m", "peak_mb", "first_s", "median_s"},
    "first_call": {"mechanism", "call", "first_s", "first_cpu_s", "median_s"},
    "formulations": {"problem", "formulation", "error", "steps", "us_per_step", "relative", "median_s"},
    "gpu": {"mechanism", "dtype", "lanes", "us_per_step_and_lane", "floor_bytes_us", "floor_operations_us"},
}
HEADER = {"date", "commit", "packages", "cpu", "cores", "memory_gb", "device"}
ERROR = {"work_precision": ("error", 1e-4), "growth": ("error_m", 1e-6), "formulations": ("error", 1e-7)}


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
        own = [row[key] for row in found["rows"] if row.get("engine", "jaxmb") == "jaxmb"]
        assert min(own) <= limit
