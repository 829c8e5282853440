"""A motion as a page for a browser."""

import base64
import html
import importlib.resources
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from ..foundations import RESULTS
from ..mechanism import SpringDamper, linkage_of
from ..output import tabulate
from ..records import Record
from ..simulation import Solution
from ..system import System
from .outline import links, solids
from .solid import Solid, moved

SPEEDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)


def page(
    system: System,
    solution: Solution,
    path: str | os.PathLike[str],
    *,
    curves: Record | None = None,
    points: bool = True,
    speed: float = 1.0,
    title: str = "Motion",
) -> pathlib.Path:
    """Writes a page that plays a motion: one file that any browser shows, without a network.

    It plays, stops at any time, turns (in space), moves (with shift, and in the plane) and grows under the mouse; it draws the path of
    a point, and a curve below with the time marked. Poses are those of the solution at its saved times, in single precision.

    Args:
        system: built from a mechanism.
        solution: a single motion.
        path: of the file to write.
        curves: what can be shown over time; by default all that `tabulate` gives. Its times must be the solution's.
        points: whether named points belong to the shapes of the bodies; as of `draw`.
        speed: how many times faster than real time it plays at first.
        title: of the page.

    Returns:
        The path.

    Raises:
        TypeError: for a system that was not built from a mechanism.
        ValueError: for a batch, for a run that did not get beyond its start, for other times of `curves`, and for a speed that is not positive.
    """
    if solution.ts.ndim != 1:
        raise ValueError(
            f"Argument `solution` must be a single motion, but has leading axes {solution.ts.shape[:-1]}; index it."
        )
    if not speed > 0:
        raise ValueError(f"Argument `speed` must be positive, but is {speed}.")
    curves = tabulate(system, solution) if curves is None else curves
    if curves.t.shape != solution.ts.shape or not np.array_equal(curves.t, solution.ts):
        raise ValueError("Argument `curves` must have the times of `solution`, but has others.")
    reached = np.flatnonzero(np.isfinite(np.asarray(solution.q)).all(axis=1))
    if not len(reached):
        raise ValueError("Argument `solution` must hold a motion, but no saved time was reached.")
    data = _data(system, solution, reached, points) | {
        "curves": _curves(curves, reached),
        "speeds": sorted({*SPEEDS, speed}),
        "speed": speed,
        "told": "" if bool(solution.result == RESULTS.successful) else RESULTS[solution.result],
    }
    text = importlib.resources.files("jaxmb.plot").joinpath("page.html").read_text(encoding="utf-8")
    text = text.replace("__TITLE__", html.escape(title)).replace(
        "__DATA__", json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    )
    path = pathlib.Path(path)
    path.write_text(text, encoding="utf-8")
    return path


def _data(system: System, solution: Solution, reached: np.ndarray, points: bool) -> dict[str, Any]:
    """What is drawn, and where it is at each time."""
    linkage, numbers = linkage_of(system), system.params
    springs = [force for force in numbers.forces if isinstance(force, SpringDamper)]

    def places(state: Any) -> tuple[Any, Any]:
        motion = linkage.motion(state.t, state.q, state.v, numbers)
        return motion.poses[..., :-1, :], [(motion.position(s.a), motion.position(s.b)) for s in springs]

    states = jax.tree.map(lambda x: x[reached], solution.states)
    poses, ends = jax.tree.map(np.asarray, jax.jit(jax.vmap(places))(states))
    drawn, found = solids(linkage, numbers, points), links(linkage, numbers)
    whole = [
        moved(pose, solid.points) for body, solid in enumerate(drawn) if any(solid) for pose in _square(poses[:, body])
    ]
    whole = np.concatenate([*whole, *(end for pair in ends for end in pair)])
    low, high = whole.min(axis=0), whole.max(axis=0)
    bodies = [
        {
            "name": name,
            "ground": body == 0,
            "strokes": _strokes(drawn[body]),
            "poses": _packed(poses[:, body]),
        }
        for body, name in enumerate(("ground", *linkage.bodies))
    ]
    names = list(linkage.bodies)
    named = zip(linkage.skeleton.points, np.asarray(numbers.points), strict=True)
    return {
        "dim": linkage.dim,
        "times": [float(t) for t in np.asarray(solution.ts)[reached]],
        "centre": ((low + high) / 2).tolist(),
        "radius": float(np.linalg.norm(high - low) / 2) or 1.0,
        "bodies": bodies,
        "guides": [
            {"sleeve": link.slides, "bodies": link.bodies, "points": [frame[:-1, -1].tolist() for frame in link.frames]}
            for link in found
            if link.slides or link.is_rod
        ],
        "springs": [
            {"ends": _packed(np.stack(pair, axis=1)), "coil": bool(s.stiffness), "pot": bool(s.damping)}
            for s, pair in zip(springs, ends, strict=True)
        ],
        "joints": [
            {
                "name": link.name,
                "grounded": link.is_grounded,
                "body": link.bodies[1],
                "point": link.frames[1][:-1, -1].tolist(),
            }
            for link in found
        ],
        "points": [
            {"name": name, "body": names.index(name.partition(".")[0]) + 1, "point": local[:-1, -1].tolist()}
            for name, local in named
            if name.partition(".")[0] in names
        ],
    }


def _square(poses: np.ndarray) -> list[np.ndarray]:
    """The matrices with the row that they all have."""
    last = np.eye(poses.shape[-1])[-1:]
    return [np.concatenate([pose, last]) for pose in poses]


def _strokes(solid: Solid) -> list[dict[str, Any]]:
    """Faces, each an outline with its holes, edges and rods."""
    drawn = {"face": solid.faces, "edge": [(x,) for x in solid.edges], "rod": [(x,) for x in solid.rods]}
    return [
        {"kind": kind, "loops": [points.tolist() for points in loops]} for kind, all_ in drawn.items() for loops in all_
    ]


def _curves(record: Record, reached: np.ndarray) -> list[dict[str, Any]]:
    """The columns, those of several numbers one by one; without those that have none."""
    units, found = dict(record.units), []
    for name, column in record.columns.items():
        values = np.asarray(column)[reached].reshape(len(reached), -1)
        for i, each in enumerate(values.T):
            label = name if values.shape[1] == 1 else f"{name}[{i}]"
            if np.isfinite(each).any():
                found.append({"name": label, "unit": units.get(name, ""), "values": _packed(each)})
    return found


def _packed(numbers: np.ndarray) -> str:
    """Numbers in single precision as text."""
    return base64.b64encode(np.ascontiguousarray(numbers, "<f4").tobytes()).decode()
