"""Draws the figures of the documentation from the results.

python benchmarks/draw.py [folder of results] [folder of pictures]
"""

import json
import pathlib
import re
import sys
from typing import Any

import matplotlib.pyplot as plt
from common import RESULTS, ROOT
from PIL import Image

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
    """Error against time, a panel for each problem; of each method the runs that no other of it beats in both."""
    problems = grouped(rows, "problem")
    figure, axes = plt.subplots(2, 3, figsize=(11, 7), layout="constrained")
    methods: dict[str, dict[str, str]] = {}
    for axis, ((problem,), own) in zip(axes.flat, problems.items(), strict=False):
        for (engine, method), runs in grouped(
            [row | {"method": plain(row["method"])} for row in own], "engine", "method"
        ).items():
            known = front([run for run in runs if run["error"] is not None and run["error"] < 1])
            marks = [style["marker"] for style in methods.values() if style["color"] == colour(engine)]
            style = methods.setdefault(f"{engine} {method}", dict(color=colour(engine), marker=MARKERS[len(marks)]))
            axis.loglog([max(run["error"], 1e-15) for run in known], [run["median_s"] for run in known], **style)
        axis.set(title=problem, xlabel=f"error at the end, {UNITS[problem]}", ylabel="time of a later call, s")
        axis.invert_xaxis()
    for axis in axes.flat[len(problems) :]:
        axis.set_axis_off()
    handles = [plt.Line2D([], [], **style, label=name) for name, style in sorted(methods.items())]
    axes.flat[-1].legend(handles=handles, loc="center")
    return figure


def plain(method: str) -> str:
    """The name of a method without what its panel does not tell apart."""
    return re.sub(r", ratio .*", "", method.replace("GaussProjection, ", ""))


def front(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs that no other beats in error and time, from the quickest on."""
    kept: list[dict[str, Any]] = []
    for run in sorted(runs, key=lambda run: run["median_s"]):
        if not kept or run["error"] < kept[-1]["error"]:
            kept.append(run)
    return kept


def throughput(rows: list[dict[str, Any]]) -> plt.Figure:
    """Simulated time per time against lanes; each engine's error in the legend."""
    mechanisms = grouped(rows, "mechanism")
    size = (5.2 * len(mechanisms), 6.2)
    figure, axes = plt.subplots(1, len(mechanisms), figsize=size, layout="constrained", squeeze=False)
    for axis, ((mechanism,), own) in zip(axes.flat, mechanisms.items(), strict=True):
        for i, ((engine, dtype), runs) in enumerate(grouped(own, "engine", "dtype").items()):
            error = "failed" if runs[0]["error_rad"] is None else f"{runs[0]['error_rad']:.0e} rad"
            line = "-" if dtype == "float64" else "--"
            lanes, rates = [run["lanes"] for run in runs], [run["simulated_s_per_s"] for run in runs]
            label = f"{engine}, {dtype}: {error}"
            axis.loglog(lanes, rates, line, marker=MARKERS[i], color=colour(engine), label=label)
        axis.set(title=mechanism, xlabel="trajectories at once", ylabel="simulated s per s")
        axis.set_xticks(lanes, [f"{n:,}" for n in lanes], minor=False)
        axis.legend(title="engine, precision: error", title_fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    return figure


def gradients(rows: list[dict[str, Any]]) -> plt.Figure:
    """Time and memory of derivatives beside the run, against numbers of parameters."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    lines = {"run": "o:", "forward": "s--", "reverse, tape": "D-", "reverse, checkpoints": "^-."}
    hues = {runs: f"C{i}" for i, (runs,) in enumerate(grouped(rows, "runs"))}
    for (runs, derivative), own in grouped(rows, "runs", "derivative").items():
        counts = [row["parameters"] for row in own]
        style = dict(color=hues[runs], label=f"{derivative}, {runs} at once")
        axes[0].loglog(counts, [row["times_the_run"] for row in own], lines[derivative], **style)
        axes[1].loglog(counts, [row["temporary_mb"] for row in own], lines[derivative], **style)
    axes[0].set(xlabel="parameters", ylabel="time, in times of the run")
    axes[1].set(xlabel="parameters", ylabel="memory for temporaries, MB")
    for axis in axes:
        axis.set_xticks(counts, [str(n) for n in counts])
        axis.xaxis.set_minor_locator(plt.NullLocator())
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    return figure


def growth(rows: list[dict[str, Any]]) -> plt.Figure:
    """First call, time per step and memory against numbers of bodies."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    bodies = [row["bodies"] for row in rows]
    shown = (
        ("first_s", "first call, s"),
        ("us_per_step", "time per step, µs"),
        ("temporary_mb", "memory for temporaries, MB"),
    )
    for axis, (key, label) in zip(axes, shown, strict=True):
        axis.loglog(bodies, [row[key] for row in rows], marker="o", color=COLOURS["jaxmb"])
        axis.set(xlabel="bodies", ylabel=label)
        axis.set_xticks(bodies, [str(n) for n in bodies])
        if key == "first_s":
            axis.set(yscale="linear", ylim=(0, None))
        axis.xaxis.set_minor_locator(plt.NullLocator())
    return figure


def saved(figure: plt.Figure, path: pathlib.Path) -> None:
    """A picture of few colours, which takes little room."""
    figure.savefig(path, dpi=100)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


PICTURES = {"work_precision": work_precision, "throughput": throughput, "gradients": gradients, "growth": growth}


def main(results: pathlib.Path, pictures: pathlib.Path) -> None:
    pictures.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        if rows := rows_of(results, name):
            with plt.rc_context(STYLE):
                saved(draw(rows), pictures / f"{name}.png")
            print(pictures / f"{name}.png")


if __name__ == "__main__":
    given = [pathlib.Path(word) for word in sys.argv[1:]]
    main(*given, *(RESULTS, FIGURES)[len(given) :])
