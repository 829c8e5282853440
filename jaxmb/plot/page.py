"""A motion as a page for a browser."""

import dataclasses
import html
import importlib.resources
import json
import os
from typing import Any

import jax
import numpy as np

from ..foundations import (
    RESULTS,
    Positive,
    Text,
    contract,
    expect_concrete,
    replacing,
)
from ..mechanism import linkage_of
from ..output import Wrench, joint_reactions, tabulate
from ..reaction import analyse_reactions
from ..records import Record
from ..simulation import Solution
from ..system import System
from .colour import of_body
from .parts import packed, page_parts
from .reactions import ReactionArrows, reaction_arrows, verdict_legend, verdicts
from .scene import SIZE, Scene
from .snapshot import reached_times
from .view import DIM, DISTANCE, LIGHT, PALE

LIFT = 0.01  # how much nearer lines are than the faces on which they lie, in radii of what is seen
SPEEDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)


@dataclasses.dataclass(frozen=True)
class Player:
    """A motion that plays in a browser, or in a notebook where it is the value of a cell.

    Attributes:
        html: the page, which needs no network.
    """

    html: str

    def _repr_html_(self) -> str:
        # A frame of its own: scripts and styles of the page and of the notebook do not meet.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 36em; border: 0"></iframe>'


@contract
def page(
    system: System,
    solution: Solution,
    path: str | os.PathLike[str] | None = None,
    *,
    curves: Record | None = None,
    points: bool = True,
    speed: Positive = 1.0,
    title: Text = "Motion",
    forces: bool | dict[str, Wrench] = False,
    symbols: Positive = SIZE,
) -> Player:
    """A page that plays a motion, without a network: one file that any browser shows, and in a notebook the value of a cell.

    The motion can be played and stopped, and with the mouse turned (in space), moved (with shift, and in the plane) and
    zoomed. The page draws the path of a point, and one or two curves below with the time marked. It draws what `draw`
    draws, light or dark as the browser is set, in space by WebGL
    2. Poses are
    those of the solution at its saved times, in single precision.

    Args:
        system: built from a mechanism.
        solution: a single motion.
        path: of the file to write; none by default.
        curves: the curves that can be shown over time; by default all that `tabulate` gives. Its times must be the solution's.
        points: whether named points belong to the shapes of the bodies; as in `draw`.
        speed: how many times faster than real time it plays at first.
        title: of the page.
        forces: whether reactions are drawn, as in `draw`, with one scale for all times.
        symbols: as in `draw`.

    Returns:
        The page, a `Player`.

    Raises:
        TypeError: for a system that was not built from a mechanism.
        ValueError: for a batch, for a run that did not get beyond its start, for other times of `curves`, and for a speed that is not positive.
    """
    expect_concrete(system=system, solution=solution)
    indices = reached_times(solution)
    curves = tabulate(system, solution) if curves is None else curves
    if curves.t.shape != solution.ts.shape or not np.array_equal(curves.t, solution.ts):
        raise ValueError("Argument `curves` must have the times of `solution`, but has others.")
    scene = Scene(system, points, symbols)
    data = _data(system, solution, indices, scene, forces) | {
        "curves": _curves(curves, indices),
        "speeds": sorted({*SPEEDS, speed}),
        "speed": speed,
        "told": "" if bool(solution.result == RESULTS.successful) else RESULTS[solution.result],
    }
    text = importlib.resources.files("jaxmb.plot").joinpath("page.html").read_text(encoding="utf-8")
    # Escaped, since names are the user's: one that holds "</script>" must not end the script.
    text = text.replace("__TITLE__", html.escape(title)).replace(
        "__DATA__", json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    )
    if path is not None:
        with replacing(path) as fresh:
            fresh.write_text(text, encoding="utf-8")
    return Player(text)


def _data(
    system: System, solution: Solution, indices: np.ndarray, scene: Scene, forces: bool | dict[str, Wrench]
) -> dict[str, Any]:
    """What is drawn, and where it is at each time."""
    linkage, numbers = linkage_of(system), system.params
    trajectory = scene.trajectory(jax.tree.map(lambda x: x[indices], solution.states))
    scene.frame(trajectory)
    reactions = None if forces is False else _reaction_arrows(system, solution, indices, scene, forces)
    rows = trajectory.poses[:, :, :-1]
    names = ("ground", *linkage.bodies)
    content = {
        "dim": scene.dim,
        "times": [float(t) for t in np.asarray(solution.ts)[indices]],
        "centre": scene.centre.tolist(),
        "radius": scene.radius,
        "size": scene.size,
        "bodies": [
            {
                "name": name,
                "colour": of_body(body),
                "poses": packed(rows[:, body]),
            }
            for body, name in enumerate(names)
        ],
        **page_parts(scene, trajectory, reactions),
        "view": {"lift": LIFT, "distance": DISTANCE, "light": LIGHT.tolist(), "dim": DIM, "pale": PALE},
        "legend": [] if reactions is None else [*reactions.legend, *verdict_legend(scene.colours)],
        "joints": [
            {"name": link.name, "body": link.bodies[1], "point": link.frames[1][:-1, -1].tolist()}
            for link in scene.links
        ],
    }
    named_points = zip(linkage.connectivity.points, np.asarray(numbers.points), strict=True)
    points = [(name, names.index(name.partition(".")[0]), local[:-1, -1].tolist()) for name, local in named_points]
    return content | {"points": [{"name": name, "body": body, "point": point} for name, body, point in points if body]}


def _reaction_arrows(
    system: System, solution: Solution, indices: np.ndarray, scene: Scene, forces: bool | dict[str, Wrench]
) -> ReactionArrows:
    """The arrows of reactions; joints get the colours of their verdicts."""
    wrenches = joint_reactions(system, solution, warn=False, throw=False) if forces is True else forces
    scene.colours = verdicts(analyse_reactions(system, solution.state(0)))
    return reaction_arrows(jax.tree.map(lambda x: x[indices], wrenches), 2 * scene.radius)


def _curves(record: Record, indices: np.ndarray) -> list[dict[str, Any]]:
    """The columns, those of several numbers one by one; without those that have none."""
    units, curves = dict(record.units), []
    for name, column in record.columns.items():
        values = np.asarray(column)[indices].reshape(len(indices), -1)
        for i, part in enumerate(values.T):
            label = name if values.shape[1] == 1 else f"{name}[{i}]"
            if np.isfinite(part).any():
                curves.append({"name": label, "unit": units.get(name, ""), "values": packed(part)})
    return curves
