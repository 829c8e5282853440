"""Draws the figures of the documentation from the results.

python benchmarks/draw.py [folder of results] [folder of pictures]
"""

import json
import pathlib
import sys
from typing import Any

import matplotlib.pyplot as plt
from common import RESULTS, ROOT

FIGURES = ROOT / "docs" / "figures"
COLOURS = {"jaxmb": "#0b6fb8", "MuJoCo": "#d1495b", "Exudyn": "#3a7d44", "MJX": "#8d5a97"}
MARKERS = "osD^vP*X<>"
UNITS = {"A01": "m", "A02": "m", "A03": "rad", "A04": "m", "A05": "m"}
STYLE = {
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
}


def rows_of(folder: pathlib.Path, name: str) -> list[dict[str, Any]]:
    """The rows of a benchmark; none if it has not been run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def grouped(rows: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by the values of some of their fields, in their order."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def colour(engine: str) -> str:
    """Of an engine, or of one of its kinds, whose names begin with it."""
    return next(value for name, value in COLOURS.items() if engine.startswith(name))


def work_precision(rows: list[dict[str, Any]]) -> plt.Figure:
    """Error against time, a panel for each problem, the least error of each method at each time."""
    problems = grouped(rows, "problem")
    figure, axes = plt.subplots(2, 3, figsize=(11, 7.2), layout="constrained")
    for axis, ((problem,), own) in zip(axes.flat, problems.items(), strict=False):
        marks = dict.fromkeys(COLOURS, 0)
        for (engine, method), runs in grouped(own, "engine", "method").items():
            known = [run for run in runs if run["error"] is not None and run["error"] < 1]
            if not known or "NullSpace" in method:
                continue
            label = (
                f"{engine} {method}".replace("GaussProjection, ", "")
                .replace(" loop", "")
                .replace("stiff, ratio ", "stiff ")
            )
            times, errors = [run["median_s"] for run in known], [max(run["error"], 1e-15) for run in known]
            axis.loglog(errors, times, marker=MARKERS[marks[engine]], color=colour(engine), label=label)
            marks[engine] += 1
        axis.set(title=problem, xlabel=f"error at the end, {UNITS[problem]}", ylabel="time of a later call, s")
        axis.invert_xaxis()
        axis.legend(fontsize=6.5)
    for axis in axes.flat[len(problems) :]:
        axis.set_axis_off()
    return figure


def throughput(rows: list[dict[str, Any]]) -> plt.Figure:
    """Simulated time per time against lanes; each engine's error in the legend."""
    mechanisms = grouped(rows, "mechanism")
    figure, axes = plt.subplots(
        1, len(mechanisms), figsize=(5.5 * len(mechanisms), 5), layout="constrained", squeeze=False
    )
    for axis, ((mechanism,), own) in zip(axes.flat, mechanisms.items(), strict=True):
        for i, ((engine, dtype), runs) in enumerate(grouped(own, "engine", "dtype").items()):
            error = "failed" if runs[0]["error_rad"] is None else f"{runs[0]['error_rad']:.0e} rad"
            line = "-" if dtype == "float64" else "--"
            lanes, rates = [run["lanes"] for run in runs], [run["simulated_s_per_s"] for run in runs]
            label = f"{engine}, {dtype}: {error}"
            axis.loglog(lanes, rates, line, marker=MARKERS[i], color=colour(engine), label=label)
        axis.set(title=mechanism, xlabel="trajectories at once", ylabel="simulated s per s")
        axis.legend(title="engine, precision: error of lane 0", title_fontsize=8)
    return figure


def gradients(rows: list[dict[str, Any]]) -> plt.Figure:
    """Time and memory of derivatives in those of the run, against numbers of parameters."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    lines = {"run": ":", "forward": "--", "reverse, tape": "-", "reverse, checkpoints": "-."}
    for (runs, derivative), own in grouped(rows, "runs", "derivative").items():
        counts = [row["parameters"] for row in own]
        hue = "C0" if runs == 1 else "C1"
        style = dict(marker="o", linestyle=lines[derivative], color=hue, label=f"{derivative}, {runs} at once")
        if derivative != "run":
            axes[0].loglog(counts, [row["times_the_run"] for row in own], **style)
        axes[1].loglog(counts, [row["temporary_mb"] for row in own], **style)
    axes[0].set(xlabel="parameters", ylabel="time, in times of the run")
    axes[1].set(xlabel="parameters", ylabel="memory for temporaries, MB")
    for axis in axes:
        axis.legend(fontsize=7)
    return figure


def growth(rows: list[dict[str, Any]]) -> plt.Figure:
    """First call, time per step and memory against numbers of bodies."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    bodies = [row["bodies"] for row in rows]
    for axis, (key, label) in zip(
        axes,
        (("first_s", "first call, s"), ("us_per_step", "time per step, µs"), ("peak_mb", "memory of first call, MB")),
        strict=True,
    ):
        axis.loglog(bodies, [row[key] for row in rows], marker="o", color=COLOURS["jaxmb"])
        axis.set(xlabel="bodies", ylabel=label)
    return figure


PICTURES = {"work_precision": work_precision, "throughput": throughput, "gradients": gradients, "growth": growth}


def main(results: pathlib.Path, pictures: pathlib.Path) -> None:
    pictures.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        if rows := rows_of(results, name):
            with plt.rc_context(STYLE):
                figure = draw(rows)
                figure.savefig(pictures / f"{name}.png", dpi=100)
                plt.close(figure)
            print(pictures / f"{name}.png")


if __name__ == "__main__":
    given = [pathlib.Path(word) for word in sys.argv[1:]]
    main(*given, *(RESULTS, FIGURES)[len(given) :])
