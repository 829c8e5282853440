"""Writes the tables of docs/benchmarks.md from the results, each between its marks `<!-- name -->` and `<!-- end -->`.

python benchmarks/tables.py [folder of results] [page]
"""

import json
import pathlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common import RESULTS, ROOT, shown, table

PAGE = ROOT / "docs" / "benchmarks.md"
Rows = Sequence[Mapping[str, Any]]


def machine(found: Mapping[str, Any]) -> str:
    """Where and when, in a sentence."""
    head = found["header"]
    versions = ", ".join(f"{name} {version}" for name, version in head["packages"].items())
    device = "" if head["platform"] == "cpu" else f" {head['device']};"
    return (
        f"Measured {head['date'][:10]} at {head['commit']}, size {found['size']}, in {found['run_s']:.0f} s:{device} {head['cpu']}, "
        f"{head['cores']} cores, {head['memory_gb']:.0f} GB; {versions}.\n\n"
    )


def equal_error(found: Mapping[str, Any]) -> str:
    """Of each engine the quickest run with the error that is wanted."""
    rows = []
    own = {row["problem"]: row["median_s"] for row in found["at_equal_error"] if row["engine"] == "jaxmb"}
    for row in found["at_equal_error"]:
        reached = "" if row["reached"] else " (not reached)"
        rows.append(
            {
                "problem": row["problem"],
                "error wanted": f"{row['wanted']:.0e}",
                "engine": row["engine"],
                "method": row["method"],
                "step or tolerance": row["setting"],
                "steps": row["steps"],
                "error": f"{row['error']:.0e}{reached}",
                "time, ms": 1e3 * row["median_s"],
                "times jaxmb's": row["median_s"] / own[row["problem"]],
            }
        )
    return table(rows)


def pivoted(
    rows: Rows, keys: Sequence[str], across: str, read: Callable[[Mapping[str, Any]], Any]
) -> list[dict[str, Any]]:
    """One row for each value of the keys, with a column for each value of another field."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
        line[f"{row[across]:,}" if isinstance(row[across], int) else row[across]] = read(row)
    return list(lines.values())


def rates(found: Mapping[str, Any]) -> str:
    """Time for a simulated millisecond and lane, by numbers of lanes, and the error of lane 0."""
    errors = {(row["mechanism"], row["engine"], row["dtype"]): row["error_rad"] for row in found["rows"]}
    keys = ("mechanism", "engine", "dtype")
    lines = pivoted(found["rows"], keys, "lanes", lambda row: 1e3 / row["simulated_s_per_s"])
    for line in lines:
        line["error, rad"] = shown(errors[tuple(line[key] for key in keys)])
    return table(lines)


def steps(found: Mapping[str, Any]) -> str:
    """Microseconds per step and lane, by numbers of lanes."""
    keys = ("mechanism", "what", "engine")
    return table(pivoted(found["rows"], keys, "lanes", lambda row: row["us_per_step_and_lane"]))


def environments(found: Mapping[str, Any]) -> str:
    """Steps of environments per second by numbers of lanes, beside gap and error, which are those of lane 0."""
    rate = lambda row: f"{float(format(row['steps_per_s'], '.3g')):,.0f}"
    lines = pivoted(found["rows"], ("engine", "gap_m", "error_m"), "lanes", rate)
    named = {"gap_m": "gap, m", "error_m": "error of the tip, m"}
    return table([{named.get(k, k): f"{x:.0e}" if k in named else x for k, x in line.items()} for line in lines])


def uneven(found: Mapping[str, Any]) -> str:
    return table([found["uneven"]])


def derivatives(found: Mapping[str, Any]) -> str:
    """Time in times of the run, and memory in MB."""
    read = lambda row: f"{shown(row['times_the_run'])}, {shown(row['temporary_mb'])} MB"
    run = {
        (row["runs"], row["parameters"]): 1e3 * row["median_s"] for row in found["rows"] if row["derivative"] == "run"
    }
    lines = pivoted(
        [row for row in found["rows"] if row["derivative"] != "run"], ("runs", "parameters"), "derivative", read
    )
    return table([line | {"the run, ms": run[line["runs"], line["parameters"]]} for line in lines])


def all_rows(*columns: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda found: table(found["rows"], columns)


# By mark: the file of results and what makes the table.
TABLES = {
    "work_precision": ("work_precision", equal_error),
    "throughput": ("throughput", rates),
    "native": ("native", steps),
    "environments": ("environments", environments),
    "uneven": ("throughput", uneven),
    "gradients": ("gradients", derivatives),
    "growth": (
        "growth",
        all_rows("n", "bodies", "rows", "first_s", "us_per_step", "temporary_mb", "peak_mb", "error_m"),
    ),
    "first_call": ("first_call", all_rows("mechanism", "call", "first_s", "first_cpu_s", "median_s")),
    "gpu": (
        "gpu",
        all_rows(
            "mechanism",
            "dtype",
            "lanes",
            "engine",
            "us_per_step_and_lane",
            "times_floor_bytes",
            "times_floor_operations",
        ),
    ),
}


def main(results: pathlib.Path, page: pathlib.Path) -> None:
    text = page.read_text()
    for mark, (name, make) in TABLES.items():
        path = results / f"{name}.json"
        if path.exists():
            found = json.loads(path.read_text())
            made = f"<!-- {mark} -->\n\n{machine(found)}{make(found)}\n\n<!-- end -->"
            text, count = re.subn(rf"<!-- {mark} -->.*?<!-- end -->", lambda _, made=made: made, text, flags=re.DOTALL)
            assert count == 1, f"{page.name} must have one mark <!-- {mark} -->, but has {count}."
    page.write_text(text)


if __name__ == "__main__":
    given = [pathlib.Path(word) for word in sys.argv[1:]]
    main(*given, *(RESULTS, PAGE)[len(given) :])
