"""The symbols of a motion for a page: points once, and how they move."""

import base64
from itertools import groupby
from typing import Any

import numpy as np

from .drives import arrows
from .primitive import Primitive
from .reactions import ReactionArrows
from .scene import Scene
from .snapshot import Trajectory
from .solid import transform

EXACT = 1e-5  # what a picture may be off by, in sizes of the mechanism


def page_parts(scene: Scene, trajectory: Trajectory, reactions: ReactionArrows | None) -> list[dict[str, Any]]:
    """What is drawn besides the bodies, by element, in the order in which it is drawn in the plane; `frame` must be called before.

    A piece moves with a body, by a linear map for each instant, as a spring does, or point by point.
    """
    instants = [scene.at(trajectory, i) for i in range(len(trajectory.poses))]
    symbols = [scene.symbols(now) for now in instants]
    after = [pieces for _, pieces in symbols]
    if reactions is not None:
        after = [[*pieces, *reactions.pieces(i, small=True)] for i, pieces in enumerate(after)]
    labelled = {element.name for element in scene.elements if arrows(instants[0], element)}
    under = _groups([pieces for pieces, _ in symbols], trajectory.poses, scene.radius)
    over = _groups(after, trajectory.poses, scene.radius)
    for part in over:
        part["label"] = part["name"] in labelled and any(piece["heads"] for piece in part["pieces"])
        labelled -= {part["name"]} if part["label"] else set()
    return [*(part | {"under": True} for part in under), *over]


def _groups(instants: list[list[Primitive]], poses: np.ndarray, radius: float) -> list[dict[str, Any]]:
    """Pieces of one element that follow each other, at all instants."""
    pieces = [_moving(over_time, poses, radius) for over_time in zip(*instants, strict=True)]
    named = zip(instants[0], pieces, strict=True)
    return [
        {"name": name, "layer": layer, "pieces": [piece for _, piece in group]}
        for (name, layer), group in groupby(named, lambda pair: (pair[0].name, pair[0].layer))
    ]


def _moving(pieces: tuple[Primitive, ...], poses: np.ndarray, radius: float) -> dict[str, Any]:
    """One piece at all instants."""
    first = pieces[0]
    points = np.stack([np.concatenate(piece.loops) for piece in pieces])
    colour, alpha = first.colour if isinstance(first.colour, tuple) else (first.colour, 1.0)
    style = {"fills": first.fills, "colour": colour, "alpha": alpha, "width": first.width, "rim": first.rim}
    lengths = [len(loop) for loop in first.loops]
    return style | {"heads": first.heads} | _motion(points, poses, radius, lengths)


def _motion(points: np.ndarray, poses: np.ndarray, radius: float, lengths: list[int]) -> dict[str, Any]:
    """How points (k, n, d) move: "body" with "loops", "maps" (k, d, d + 1) with "loops", or "places" (k, n, d)."""
    count, dim = points.shape[1:]
    loops = lambda local: [rounded(loop, radius) for loop in np.split(local, np.cumsum(lengths)[:-1])]
    body = _carrier(points, poses, radius)
    if body is not None:
        return {"body": body, "loops": loops(transform(np.linalg.inv(poses[0, body]), points[0]))}
    # With no more points than an affine map has freedoms any motion would fit, and nothing be saved.
    if count > dim + 1 and np.isfinite(points).all():
        local = np.concatenate([points[0], np.ones((count, 1))], axis=1)
        maps = np.swapaxes(np.linalg.pinv(local) @ points, 1, 2)
        if np.abs(points - local @ np.swapaxes(maps, 1, 2)).max() <= EXACT * radius:
            return {"maps": packed(maps), "loops": loops(points[0])}
    return {"places": packed(points), "lengths": lengths}


def _carrier(points: np.ndarray, poses: np.ndarray, radius: float) -> int | None:
    """The body that points (k, n, d) move with."""
    fits, inverse = np.arange(poses.shape[1]), np.linalg.inv(poses[0])
    for instants in (slice(-1, None), slice(None)):  # few bodies pass the first look, at the end
        inverse_poses, at_instants = inverse[fits], poses[instants][:, fits]
        local = np.einsum("bij,nj->bni", inverse_poses[:, :-1, :-1], points[0]) + inverse_poses[:, None, :-1, -1]
        moving = np.einsum("kbij,bnj->kbni", at_instants[..., :-1, :-1], local) + at_instants[:, :, None, :-1, -1]
        gap = moving - points[instants, None]
        fits = fits[np.abs(gap).max(axis=(0, 2, 3)) <= EXACT * radius]
    return int(fits[0]) if len(fits) else None


def rounded(points: np.ndarray, radius: float) -> list[Any]:
    """Coordinates with the digits that a picture needs."""
    return np.round(points, max(0, int(np.ceil(-np.log10(1e-6 * radius))))).tolist()


def packed(numbers: np.ndarray) -> str:
    """Numbers in single precision as text."""
    return base64.b64encode(np.ascontiguousarray(numbers, "<f4").tobytes()).decode()
