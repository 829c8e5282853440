"""What all benchmarks share: where they ran, timing in alternation, tables, results as JSON, sizes from the command line."""

import argparse
import concurrent.futures
import dataclasses
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("jaxmb", "jax", "jaxlib", "diffrax", "equinox", "optimistix", "lineax", "numpy", "scipy")
PEERS = ("mujoco", "mujoco-mjx", "brax", "exudyn", "mujoco-warp", "warp-lang")


@dataclasses.dataclass(frozen=True)
class Timing:
    """Times of one candidate in s, its first call apart, and what that call returned."""

    first: float
    median: float
    minimum: float
    value: Any

    def row(self) -> dict[str, float]:
        """The times as fields of a row."""
        return {"first_s": self.first, "median_s": self.median, "minimum_s": self.minimum}


def in_alternation(candidates: Mapping[Any, Callable[[], Any]], rounds: int = 5) -> dict[Any, Timing]:
    """Calls each candidate once, then all of them in turn, round after round.

    What disturbs the machine for a while so disturbs all candidates alike.

    Args:
        candidates: functions without arguments by name; arrays of JAX that they return are waited for.
        rounds: how often each is called after its first call.
    """
    first = {name: seconds(call) for name, call in candidates.items()}
    times: dict[Any, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            times[name].append(seconds(call)[0])
    return {
        name: Timing(spent, statistics.median(times[name]), min(times[name]), value)
        for name, (spent, value) in first.items()
    }


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, in s, and what it returns."""
    start = time.perf_counter()
    value = jax.block_until_ready(call())
    return time.perf_counter() - start, value


def in_own_process(fn: Callable[..., Any], *values: Any) -> Any:
    """What a function returns in a fresh process: nothing compiled, a peak of memory and a precision of its own."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(fn, *values).result()


def header() -> dict[str, Any]:
    """Where and with what a benchmark runs."""
    device = jax.devices()[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES + PEERS if (version := installed(name))},
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "device": device.device_kind,
        "platform": device.platform,
    }


def installed(name: str) -> str | None:
    """The version of a package; None without it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit that is checked out, marked where files differ from it; None outside a repository."""
    ask = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
    try:
        changed = ask("status", "--porcelain", "--untracked-files=no", "--", "jaxmb", "benchmarks/*.py").stdout
        return ask("rev-parse", "--short", "HEAD").stdout.strip() + (", changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def cpu_model() -> str:
    """The processor's name."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows as a table in Markdown, columns in the order of the first row unless they are named."""
    columns = list(rows[0]) if columns is None else columns
    cells = [list(columns)] + [[shown(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def shown(value: Any) -> str:
    """A value as it stands in a table: numbers with three digits, or without decimals."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    return str(value)


def write(path: pathlib.Path, rows: Sequence[Mapping[str, Any]], started: float, size: str, **more: Any) -> None:
    """Writes rows, and whatever else belongs to them, below a header.

    Args:
        path: of the JSON file.
        rows: what was measured, one flat mapping each.
        started: of `time.perf_counter()`, when the benchmark began.
        size: how much was run.
        more: other entries of the file.
    """
    found = {"header": header(), "size": size, "run_s": round(time.perf_counter() - started, 1), **more, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    print(f"\n{path.name}: {found['run_s']:.0f} s", flush=True)


def arguments(name: str, text: str) -> argparse.Namespace:
    """The command line of a benchmark: `--small` or `--full` as `size`, and `output`, where the JSON file goes."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    sizes = parser.add_mutually_exclusive_group()
    for size, meaning in (("small", "the least that shows the benchmark works"), ("full", "the long sweeps")):
        sizes.add_argument(f"--{size}", dest="size", action="store_const", const=size, default="default", help=meaning)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS / f"{name}.json", help="the JSON file to write")
    return parser.parse_args()
