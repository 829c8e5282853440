"""The lines by which shapes of bodies are drawn."""

import numpy as np

from ..mechanism import AbstractLinkage, Numbers, Stroke

# Points of a circle.
ROUND = np.linspace(0, 2 * np.pi, 49)


def outlines(linkage: AbstractLinkage, numbers: Numbers) -> dict[int, list[tuple[np.ndarray, bool]]]:
    """Of each body with a shape, by its number, lines (n, d) in its frame and whether what they enclose is filled."""
    poses = dict(zip(linkage.skeleton.points, np.asarray(numbers.points), strict=True))
    return {
        i + 1: [line for stroke in strokes for line in _lines(stroke, name, poses)]
        for i, (name, strokes) in enumerate(zip(linkage.bodies, linkage.skeleton.strokes, strict=True))
        if strokes
    }


def _lines(stroke: Stroke, body: str, poses: dict[str, np.ndarray]) -> list[tuple[np.ndarray, bool]]:
    """See `AbstractShape.strokes`."""
    kind, *names = stroke
    frames = [poses[f"{body}.{name}"] for name in names]
    places = np.stack([frame[:-1, -1] for frame in frames])
    if kind in ("line", "loop"):
        return [(places if kind == "line" else np.concatenate([places, places[:1]]), kind == "loop")]
    radius, axes = np.linalg.norm(places[-1] - places[-2]), frames[0][:-1, :-1].T
    planes = ((0, 1), (1, 2), (2, 0)) if kind == "sphere" else ((0, 1),)
    circle = lambda i, j: places[0] + radius * (np.outer(np.cos(ROUND), axes[i]) + np.outer(np.sin(ROUND), axes[j]))
    return [(circle(i, j), kind == "circle") for i, j in planes]
