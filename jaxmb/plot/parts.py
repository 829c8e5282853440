"""The symbols of a motion for a page: points once, and how they move."""

import base64
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from .drives import arrows
from .primitive import Primitive
from .reactions import ReactionArrows
from .scene import Scene
from .snapshot import Trajectory
from .solid import transform, triangles

EXACT = 1e-5  # what a picture may be off by, in sizes of the mechanism


def page_parts(scene: Scene, trajectory: Trajectory, reactions: ReactionArrows | None) -> dict[str, Any]:
    """What is drawn, by element, in the order in which it is drawn in the plane, with its styles and maps; `frame` must be called before.

    A piece moves with a body, by a linear map for each instant, as a spring does, or point by point. It has the numbers of its style and map.
    """
    instants = [scene.at(trajectory, i) for i in range(len(trajectory.poses))]
    symbols = [scene.symbols(now) for now in instants]
    after = [pieces for _, pieces in symbols]
    if reactions is not None:
        after = [[*pieces, *reactions.pieces(i, small=True)] for i, pieces in enumerate(after)]
    data = _Data(trajectory.poses, scene.radius, scene.dim)
    labelled = {element.name for element in scene.elements if arrows(instants[0], element)}
    parts = [
        *data.moving([pieces for pieces, _ in symbols]),
        *(
            data.part(pieces, [data.on_body(body, x) for x in pieces])
            for body, pieces in enumerate(scene.bodies())
            if pieces
        ),
        *data.moving(after),
    ]
    styles = [style._asdict() for style in data.styles]
    for part in parts:
        has_heads = any(styles[piece["style"]]["heads"] for piece in part["pieces"])
        part["label"] = part["name"] in labelled and has_heads
        labelled -= {part["name"]} if part["label"] else set()
    return {"parts": parts, "styles": styles, "maps": data.maps}


class _Style(NamedTuple):
    """See `Primitive`."""

    fills: bool
    colour: str
    alpha: float
    width: float
    rim: str | None
    heads: int


class _Data:
    """What pieces share: styles, with their numbers, and maps."""

    def __init__(self, poses: np.ndarray, radius: float, dim: int):
        self._poses, self._radius, self._dim = poses, radius, dim
        self.styles: dict[_Style, int] = {}
        self.maps: list[str] = []

    def moving(self, instants: list[list[Primitive]]) -> list[dict[str, Any]]:
        """Pieces at all instants, those of one element that follow each other together."""
        parts = []
        for _, run in groupby(zip(*instants, strict=True), lambda over_time: (over_time[0].name, over_time[0].layer)):
            pieces = [*run]
            points = [np.stack([np.concatenate(piece.loops) for piece in over_time]) for over_time in pieces]
            # One motion for the whole element, as of a bar, where there is one.
            motion = self._motion(np.concatenate(points, axis=1))
            motions = [self._motion(of_piece) if motion is None else motion for of_piece in points]
            first = [over_time[0] for over_time in pieces]
            parts.append(self.part(first, [self._placed(*x) for x in zip(first, points, motions, strict=True)]))
        return parts

    def part(self, pieces: list[Primitive], motions: list[dict[str, Any]]) -> dict[str, Any]:
        """An element of pieces with their motions."""
        styled = [
            motion | {"style": self._style(piece)} | self._triangles(piece)
            for piece, motion in zip(pieces, motions, strict=True)
        ]
        return {"name": pieces[0].name, "layer": pieces[0].layer, "pieces": styled}

    def on_body(self, body: int, piece: Primitive) -> dict[str, Any]:
        """A piece that stands still on a body."""
        return {"body": body, "loops": [rounded(loop, self._radius) for loop in piece.loops]}

    def _style(self, piece: Primitive) -> int:
        colour, alpha = piece.colour if isinstance(piece.colour, tuple) else (piece.colour, 1.0)
        style = _Style(
            fills=piece.fills, colour=colour, alpha=alpha, width=piece.width, rim=piece.rim, heads=piece.heads
        )
        return self.styles.setdefault(style, len(self.styles))

    def _triangles(self, piece: Primitive) -> dict[str, Any]:
        """Those of a face in space, where they are not plain."""
        if self._dim == 2 or not piece.fills or sum(map(len, piece.loops)) < 5:
            return {}
        return {"triangles": triangles(piece.loops).tolist()}

    def _motion(self, points: np.ndarray) -> dict[str, int] | None:
        """How points (k, n, d) move: with a "body", or by a "map" (k, d, d + 1) of their first positions; None if by neither."""
        count, dim = points.shape[1:]
        body = _carrier(points, self._poses, self._radius)
        if body is not None:
            return {"body": body}
        # With no more points than an affine map has freedoms any motion would fit, and nothing be saved.
        if count > dim + 1 and np.isfinite(points).all():
            local = np.concatenate([points[0], np.ones((count, 1))], axis=1)
            maps = np.swapaxes(np.linalg.pinv(local) @ points, 1, 2)
            if np.abs(points - local @ np.swapaxes(maps, 1, 2)).max() <= EXACT * self._radius:
                self.maps.append(packed(maps))
                return {"map": len(self.maps) - 1}
        return None

    def _placed(self, piece: Primitive, points: np.ndarray, motion: dict[str, int] | None) -> dict[str, Any]:
        if motion is None:
            return {"places": packed(points), "lengths": [len(loop) for loop in piece.loops]}
        if "body" not in motion:
            return motion | {"loops": [rounded(loop, self._radius) for loop in piece.loops]}
        local = np.linalg.inv(self._poses[0, motion["body"]])
        return motion | {"loops": [rounded(transform(local, loop), self._radius) for loop in piece.loops]}


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
